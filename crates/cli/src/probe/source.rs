//! What is probed: a scenario's virtual server in this process, or the host under a root prefix. Only this file knows
//! which.

use super::RunArgs;
use super::companion::Companion;
use crate::exit::{self, Failure};
use crate::restore::{journal_at, root_at};
use crate::run::change;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waykeeper_host::{Host, Priority, WorkloadKind};
use waykeeper_lab::registry;
use waykeeper_linux::host::{LinuxHost, OpenError, Options};
use waykeeper_linux::profile;
use waykeeper_linux::resctrl::Kind;
use waykeeper_linux::root::Root;
use waykeeper_linux::tenants::{self, Census, Tenant};
use waykeeper_machine::{FaultyServer, RunOptions, ScenarioSource, VirtualServer};
use waykeeper_probe::stand::ProbeError;
use waykeeper_probe::sweep::{Dial, Load};
use waykeeper_units::CoreList;

/// What is probed.
pub struct Source {
    host: Opened,
    load: Option<ScenarioLoad>,
    /// Ends with the source, after the host has been given back.
    companion: Option<Companion>,
}

enum Opened {
    Virtual(Box<FaultyServer>),
    Linux(Box<LinuxHost>, Root),
}

impl Source {
    /// Opens what the arguments name.
    pub fn open(args: &RunArgs) -> Result<Source, Failure> {
        match &args.root {
            None => scenario(args),
            Some(root) => linux(root, args),
        }
    }

    /// The host.
    pub fn host(&self) -> &dyn Host {
        match &self.host {
            Opened::Virtual(server) => &**server,
            Opened::Linux(host, _) => &**host,
        }
    }

    /// The host, to be turned.
    pub fn host_mut(&mut self) -> &mut dyn Host {
        match &mut self.host {
            Opened::Virtual(server) => &mut **server,
            Opened::Linux(host, _) => &mut **host,
        }
    }

    /// The load, where it can be set.
    pub fn take_load(&mut self) -> Option<ScenarioLoad> {
        self.load.take()
    }

    /// The microcode, where the kernel tells.
    pub fn microcode(&self) -> Option<String> {
        match &self.host {
            Opened::Virtual(_) => None,
            Opened::Linux(_, root) => profile::microcode(root),
        }
    }

    /// Where the daemon and doctor look for this host's profile.
    pub fn profile_path(&self) -> Option<PathBuf> {
        match &self.host {
            Opened::Virtual(_) => None,
            Opened::Linux(_, root) => Some(profile::usual_path(root)),
        }
    }

    /// Gives the host back, and ends the command.
    pub fn close(mut self) -> Result<(), Failure> {
        let failed = match &mut self.host {
            Opened::Virtual(_) => None,
            Opened::Linux(host, _) => {
                let report = host.close()?;
                report.failures().next().map(|(knob, why)| format!("{knob}: {why}"))
            }
        };
        drop(self.companion.take());
        match failed {
            None => Ok(()),
            Some(why) => Err(Failure::new(
                exit::FAILED,
                format!("{why}; it stays in the journal: try `waykeeper restore`"),
            )),
        }
    }
}

fn scenario(args: &RunArgs) -> Result<Source, Failure> {
    let mut source = registry::open(&args.scenario)?;
    for (key, value) in &args.set {
        change(&mut source, key, value)?;
    }
    let options = RunOptions { seed: args.seed, sample_seed: args.seed, sampling: args.sets };
    let server = server(&source, options)?;
    let nics = source.read()?.nics.iter().map(|nic| nic.name.clone()).collect();
    let load = Some(ScenarioLoad { source, nics, options });
    Ok(Source { host: Opened::Virtual(Box::new(server)), load, companion: None })
}

fn server(source: &ScenarioSource, options: RunOptions) -> Result<FaultyServer, Failure> {
    Ok(FaultyServer::new(VirtualServer::new(Arc::new(source.read()?), options)?))
}

/// A scenario whose keys can be set, and a server of it made anew each time.
pub struct ScenarioLoad {
    source: ScenarioSource,
    nics: Vec<String>,
    options: RunOptions,
}

impl Load for ScenarioLoad {
    fn dials(&self) -> Vec<Dial> {
        if self.nics.is_empty() { Vec::new() } else { vec![Dial::PacketBytes, Dial::OfferedGbps] }
    }

    fn with(&mut self, dial: Dial, value: f64) -> Result<Box<dyn Host + '_>, ProbeError> {
        let (key, value) = match dial {
            Dial::PacketBytes => ("packet_bytes", toml::Value::Integer(value as i64)),
            Dial::OfferedGbps => ("offered_gbps", toml::Value::Float(value)),
            other => {
                return Err(ProbeError::Load(format!(
                    "a scenario's {} is no dial of its load",
                    other.title()
                )));
            }
        };
        let mut source = self.source.clone();
        for nic in &self.nics {
            let place = format!("nic.{nic}.{key}");
            source.set(&place, &value).map_err(|why| ProbeError::Load(why.to_string()))?;
        }
        let server =
            server(&source, self.options).map_err(|failure| ProbeError::Load(failure.line().to_owned()))?;
        Ok(Box::new(server))
    }
}

fn linux(prefix: &Path, args: &RunArgs) -> Result<Source, Failure> {
    let root = root_at(prefix)?;
    let mut tenants = match &args.tenants {
        Some(file) => declared(&root, file)?,
        None => Vec::new(),
    };
    let companion = match args.command.as_slice() {
        [] => None,
        command => {
            let wanted = "--cores LIST says on which CPUs the command runs, for example --cores 8-9";
            let cores = args.cores.clone().ok_or_else(|| Failure::bad_input(wanted))?;
            let companion = Companion::start(command, &cores)?;
            tenants.push(tenant_of(&companion, cores, args.as_io));
            Some(companion)
        }
    };
    if tenants.is_empty() {
        let why = "who runs on that host? give --tenants FILE, or a command after `--`";
        return Err(Failure::bad_input(why));
    }
    let journal = journal_at(&root, args.journal.as_ref());
    let host = LinuxHost::open(Options::new(root.clone(), tenants, journal)).map_err(refused)?;
    for note in host.notes() {
        exit::say(&format!("note: {note}"));
    }
    Ok(Source { host: Opened::Linux(Box::new(host), root), load: None, companion })
}

/// The tenants of a file that are here now.
fn declared(root: &Root, file: &Path) -> Result<Vec<Tenant>, Failure> {
    let specs = tenants::read(file).map_err(Failure::bad_input)?;
    let roster = Census::new(specs).take(root);
    for absent in &roster.absent {
        exit::say(&format!("note: tenant {} is not here: {}", absent.name, absent.why));
    }
    Ok(roster.tenants)
}

fn tenant_of(companion: &Companion, cores: CoreList, does_io: bool) -> Tenant {
    Tenant {
        name: "command".to_owned(),
        priority: Priority::Low,
        kind: if does_io { WorkloadKind::StorageIo } else { WorkloadKind::NonIo },
        cores,
        pids: vec![companion.pid()],
        devices: Vec::new(),
        stack: false,
        mask: None,
    }
}

fn refused(error: OpenError) -> Failure {
    let code = match &error {
        OpenError::Journal(_) => exit::CONFLICT,
        OpenError::NoCat | OpenError::NoL3 { .. } => exit::UNSUPPORTED,
        OpenError::Elsewhere { .. } | OpenError::NoDevice { .. } | OpenError::Tenant { .. } => {
            exit::BAD_INPUT
        }
        OpenError::Resctrl(error) => match error.kind {
            Kind::Denied => exit::NOT_PERMITTED,
            Kind::NotMounted => exit::UNSUPPORTED,
            Kind::Busy | Kind::Exhausted | Kind::Locked => exit::CONFLICT,
            _ => exit::FAILED,
        },
        _ => exit::FAILED,
    };
    Failure::new(code, error)
}
