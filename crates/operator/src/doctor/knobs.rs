//! Knobs: masks of the LLC and limits of bandwidth, the DCA ways, DCA of each root port, and the devices behind them
//! (hardware.md 1 and 2).
//!
//! Must not know the registers: [`crate::ddio`] does.

use super::access::{NoWrites, unless_refused};
use super::allocation;
use super::facts::Facts;
use super::report::{Check, CheckState, check};
use super::watch;
use crate::ddio::{self, PortDca, Survey};
use waykeeper_generations::Evidence;
use waykeeper_kernel::{dca_ways, journal};
use waykeeper_linux_host::{HostAccess, LinuxHost, LinuxHostOptions};

/// All checks of this family.
pub(super) fn checks(facts: &Facts<'_>) -> Vec<Check> {
    let survey = ddio::survey(facts.root);
    let mut checks = allocation::steered(facts);
    checks.extend([ways(facts, &survey), ports(facts, &survey), devices(facts, &survey)]);
    checks
}

/// Whether a daemon would start here, and whether it would to observe only: its own answers. `watched`: the checks of the
/// counters, of which an observing daemon shows those that it need not program.
pub(super) fn daemon(facts: &Facts<'_>, watched: &[Check]) -> Vec<Check> {
    // What the host allows does not depend on who asks, but the daemon's socket and lock are root's.
    let as_root = if facts.root.system().user() == 0 { "" } else { " as root" };
    let starts = |name, access, can: &str| {
        let options = LinuxHostOptions::new(facts.root.clone(), Vec::new(), journal::usual_path(facts.root));
        let needs_cat = access == HostAccess::Manage;
        match LinuxHost::check(&LinuxHostOptions { access, needs_cat, ..options }) {
            Ok(()) => check(name, CheckState::Ok, format!("{can}{as_root}")),
            Err(why) => check(name, CheckState::Missing, why),
        }
    };
    let observe = starts("observe", HostAccess::Observe, "the daemon can observe this host (--observe)");
    let started = format!("the daemon would start with --observe{as_root}");
    let observe = match watch::can_read(facts, watched) {
        _ if observe.state != CheckState::Ok => observe,
        Some(true) => observe,
        Some(false) => {
            let value = format!("{started}, but finds no counter that it can read");
            check("observe", CheckState::Degraded, value)
        }
        None => {
            let value = format!("{started}; whether it finds a counter is not known");
            check("observe", CheckState::Unknown, value)
        }
    };
    vec![starts("daemon", HostAccess::Manage, "it can manage this host"), observe]
}

fn ways(facts: &Facts<'_>, survey: &Survey) -> Check {
    let name = "ddio-ways";
    let Some(generation) = survey.generation else {
        return check(
            name,
            CheckState::Unknown,
            "it is not known whether this CPU has such a register; Waykeeper does not write it",
        );
    };
    let standing = generation.dca.ways.evidence;
    if standing == Evidence::Absent {
        return check(name, CheckState::Missing, format!("{} has no such register", generation.name));
    }
    if facts.has_no_registers() {
        return check(name, CheckState::Missing, ddio::NO_GUEST_REGISTER);
    }
    if let Err(error) = &facts.msr {
        return check(name, CheckState::Missing, error).remedy(error.remedy());
    }
    if let Some(why) = survey.sockets.iter().find_map(|socket| socket.note.as_ref()) {
        return check(name, CheckState::Missing, why);
    }
    let held: Vec<String> = survey
        .sockets
        .iter()
        .map(|socket| match socket.mask {
            Some(mask) => format!("socket {}: {mask} ({} ways)", socket.socket, mask.count()),
            None => format!("socket {}: not known", socket.socket),
        })
        .collect();
    if held.is_empty() {
        return check(name, CheckState::Unknown, "the sockets are not known");
    }
    let value = format!("{}; the register {}", held.join(", "), dca_ways::words(standing));
    if standing == Evidence::Confirmed && survey.sockets.iter().any(|socket| socket.llc_ways.is_none()) {
        let value = format!("{value}; cannot be set: {}", ddio::NO_WIDTH);
        return check(name, CheckState::Degraded, value);
    }
    match standing {
        Evidence::Confirmed => {
            unless_refused(NoWrites::to_msr(facts), check(name, CheckState::Ok, value), "set")
        }
        Evidence::AnswersWithoutEffect => {
            check(name, CheckState::Degraded, format!("{value}; shown, never written"))
                .remedy("give device-heavy tenants and others disjoint CAT masks, or switch DDIO in the BIOS")
        }
        Evidence::Claimed | Evidence::Unknown => {
            check(name, CheckState::Unknown, format!("{value}; shown, never written"))
        }
        Evidence::Absent => check(name, CheckState::Missing, value),
    }
}

fn ports(facts: &Facts<'_>, survey: &Survey) -> Check {
    let name = "dca-ports";
    let with_devices: Vec<&PortDca> = survey.ports.iter().filter(|port| !port.devices.is_empty()).collect();
    let Some(standing) = survey.port_standing else {
        return check(
            name,
            CheckState::Unknown,
            "it is not known whether this CPU has such a switch; Waykeeper does not write it",
        );
    };
    if standing == Evidence::Absent {
        return check(name, CheckState::Missing, "this CPU has no switch for DCA of a root port")
            .remedy("some BIOSes switch DDIO for the whole machine");
    }
    if survey.generation.is_some_and(|generation| generation.dca.port.allocating.is_none()) {
        return check(
            name,
            CheckState::Unknown,
            "no public source says whether and where this CPU has such a switch",
        )
        .remedy("some BIOSes switch DDIO for the whole machine");
    }
    if let (Some(why), true) = (&survey.blind, with_devices.is_empty()) {
        return check(name, CheckState::Unknown, why);
    }
    if with_devices.is_empty() {
        return check(name, CheckState::Missing, "no device is behind a root port");
    }
    let off = with_devices.iter().filter(|port| port.dca == Some(false)).count();
    let on = with_devices.iter().filter(|port| port.dca == Some(true)).count();
    let blind = with_devices.len() - on - off;
    let mut value = format!("{on} root ports with devices have DCA on, {off} off");
    if blind > 0 {
        let why = with_devices.iter().find_map(|port| port.note.as_deref()).unwrap_or_default();
        value.push_str(&format!(", {blind} cannot be read ({why})"));
    }
    if on + off == 0 {
        let why =
            with_devices.iter().find_map(|port| port.note.as_deref()).unwrap_or("no switch can be read");
        return check(name, CheckState::Missing, why)
            .remedy("run as root: the kernel hides most of PCI config space from others");
    }
    let mut value = format!("{value}; the switch {}", dca_ways::words(standing));
    if let Some(why) = &survey.blind {
        value.push_str(&format!("; {why}"));
    }
    match standing {
        Evidence::Confirmed if blind > 0 || survey.blind.is_some() => {
            check(name, CheckState::Degraded, value)
        }
        Evidence::Confirmed => {
            unless_refused(NoWrites::to_pci(facts), check(name, CheckState::Ok, value), "set")
        }
        _ => check(name, CheckState::Unknown, format!("{value}; shown, never written")),
    }
}

fn devices(facts: &Facts<'_>, survey: &Survey) -> Check {
    let name = "devices";
    let described: Vec<String> = survey
        .ports
        .iter()
        .filter(|port| !port.devices.is_empty())
        .map(|port| {
            let devices: Vec<String> = port.devices.iter().map(ToString::to_string).collect();
            format!("{} <- {}", port.address, devices.join(", "))
        })
        .collect();
    if let (true, Some(why)) = (described.is_empty(), &survey.blind) {
        return check(name, CheckState::Unknown, why);
    }
    if described.is_empty() && !facts.has_sysfs() {
        return check(name, CheckState::Unknown, "there is no sys/bus");
    }
    if described.is_empty() {
        return check(name, CheckState::Info, "none behind root ports");
    }
    check(name, CheckState::Info, described.join("; "))
}
