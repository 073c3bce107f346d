//! The files of a probe: the page, the numbers, and the machine profile. Must not know how they were measured.

use crate::exit::Failure;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use waykeeper_kernel::text_file::TextFileError;
use waykeeper_lab::files::write_probe;
use waykeeper_linux_host::profile::{self, KnobState, MachineIdentity, MachineProfile, ProfiledPort, Writes};
use waykeeper_probe::findings::Findings;
use waykeeper_probe::ports::{PortVerdict, Reach, Switch};
use waykeeper_probe::register::{RegisterEffect, RegisterVerdict};

/// Writes the requested files; returns their names.
pub fn write(
    findings: &Findings,
    identity: MachineIdentity,
    folder: Option<&Path>,
    saved: Option<&Path>,
) -> Result<Vec<String>, Failure> {
    let profile = profile(findings, identity);
    let mut written = Vec::new();
    if let Some(folder) = folder {
        let files = write_probe(folder, findings, &profile.to_string())?;
        written.extend(files.iter().map(|file| file.display().to_string()));
    }
    if let Some(path) = saved {
        profile.write(path)?;
        written.push(path.display().to_string());
    }
    Ok(written)
}

/// The machine profile made from findings.
fn profile(findings: &Findings, host: MachineIdentity) -> MachineProfile {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let evidence = findings.rows().into_iter().map(|row| {
        let confidence =
            if row.confidence.is_empty() { String::new() } else { format!(" ({})", row.confidence) };
        format!("{}: {}{confidence}; {}", row.question, row.answer, row.evidence.join("; "))
    });
    MachineProfile {
        version: profile::VERSION,
        made_unix_s: since.as_secs(),
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        evidence: evidence.collect(),
        host,
        ways: profile::Ways {
            dca: findings.dca_ways.as_ref().and_then(|verdict| verdict.value()).copied(),
            inclusive: findings
                .inclusive_ways
                .as_ref()
                .and_then(|verdict| verdict.value())
                .map(|ways| ways.unwrap_or_default()),
        },
        register: findings.register.as_ref().map(register),
        port: findings.ports.iter().map(port).collect(),
    }
}

fn register(verdict: &RegisterVerdict) -> profile::DcaWaysRegister {
    let floor = verdict.floor.value();
    profile::DcaWaysRegister {
        state: match verdict.acts.value() {
            Some(RegisterEffect::Acts) => KnobState::Acts,
            Some(RegisterEffect::NoEffect) => KnobState::NoEffect,
            Some(RegisterEffect::Absent) => KnobState::Absent,
            None => KnobState::CannotTell,
        },
        kept: floor.map(|floor| floor.kept),
        fewest: floor.map(|floor| floor.fewest),
        most: floor.map(|floor| floor.most),
        least: floor.map(|floor| floor.least),
    }
}

fn port(verdict: &PortVerdict) -> ProfiledPort {
    ProfiledPort {
        address: verdict.address.clone(),
        switch: match verdict.switch.value() {
            Some(Switch::Acts) => KnobState::Acts,
            Some(Switch::NoEffect) => KnobState::NoEffect,
            Some(Switch::Absent) => KnobState::Absent,
            None => KnobState::CannotTell,
        },
        writes: match verdict.reach.value() {
            Some(Reach::ThisLlc) => Writes::ThisLlc,
            Some(Reach::Past) => Writes::Past,
            None => Writes::CannotTell,
        },
    }
}

impl From<TextFileError> for Failure {
    fn from(error: TextFileError) -> Failure {
        match &error {
            TextFileError::Io { why, .. } => Failure::new(crate::exit::io_code(why), &error),
            TextFileError::Wrong { .. } => Failure::bad_input(&error),
        }
    }
}
