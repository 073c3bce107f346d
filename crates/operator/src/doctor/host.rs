//! Identity of the host: CPU, generation, topology, caches, kernel, and whether it is a virtual machine.
//!
//! Plain facts. Must not know what can be managed on such a host.

use super::facts::Facts;
use super::file;
use super::report::{Check, CheckState, check};
use std::collections::BTreeSet;
use waykeeper_generations::Generation;

/// All checks of this family.
pub(super) fn checks(facts: &Facts<'_>) -> Vec<Check> {
    vec![
        cpu(facts),
        generation(facts),
        topology(facts),
        llc(facts),
        snc(facts),
        kernel(facts),
        hypervisor(facts),
    ]
}

fn cpu(facts: &Facts<'_>) -> Check {
    if let (Err(error), Err(_)) = (&facts.cpu.cpuinfo, &facts.cpu.cpuid) {
        let check = |value: &dyn std::fmt::Display| check("cpu", CheckState::Unknown, value);
        let absent = check(&"there is no proc/cpuinfo");
        return match (error.is_absent(), &facts.topology) {
            (false, _) => check(error),
            (true, Err(_)) => absent.remedy("check --root: it is not the file tree of a host"),
            // A chroot has what was mounted in it.
            (true, Ok(_)) => {
                let place = facts.root.path("/proc");
                absent.remedy(format!("mount -t proc proc {}", place.display()))
            }
        };
    }
    let brand = facts.cpu.brand().unwrap_or("unnamed CPU");
    match facts.signature() {
        Some(signature) => check("cpu", CheckState::Info, format!("{brand}; {signature}")),
        None => check(
            "cpu",
            CheckState::Unknown,
            format!("{brand}; the vendor is neither Intel nor AMD, or is not given"),
        ),
    }
}

fn generation(facts: &Facts<'_>) -> Check {
    let name = "generation";
    match (facts.generation, facts.signature()) {
        (Some(generation), Some(signature)) => {
            let code = generation.code(&signature).unwrap_or_default();
            check(name, CheckState::Ok, format!("{} ({code})", generation.name))
        }
        (_, Some(_)) => {
            let known: Vec<&str> =
                Generation::all().iter().map(|generation| generation.id.as_str()).collect();
            let value = format!(
                "none of {}: doctor shows what can be read, and Waykeeper writes no register",
                known.join(", ")
            );
            check(name, CheckState::Unknown, value)
        }
        (_, None) => check(name, CheckState::Unknown, "the CPU is not known"),
    }
}

fn topology(facts: &Facts<'_>) -> Check {
    let name = "topology";
    let topology = match &facts.topology {
        Ok(topology) => topology,
        Err(error) => return check(name, CheckState::Unknown, error),
    };
    let sockets = topology.sockets();
    let cores: usize = sockets.iter().map(|socket| topology.cores_of(*socket)).sum();
    let online = topology.online().count();
    let offline = topology.offline().count();
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let value = format!(
        "{}, {}, {}",
        counted(sockets.len(), "socket"),
        counted(cores, "core"),
        counted(online, "CPU")
    );
    match offline {
        0 => check(name, CheckState::Info, value),
        _ => check(name, CheckState::Info, format!("{value}, {offline} more offline")),
    }
}

fn llc(facts: &Facts<'_>) -> Check {
    let topology = match &facts.topology {
        Ok(topology) => topology,
        Err(_) => return check("llc", CheckState::Unknown, "the topology is not known"),
    };
    if topology.l3.is_empty() {
        return check("llc", CheckState::Missing, "no CPU has an L3");
    }
    let shapes: BTreeSet<(u64, Option<u32>)> = topology.l3.iter().map(|l3| (l3.bytes, l3.ways)).collect();
    let shape = |(bytes, ways): &(u64, Option<u32>)| {
        let ways = ways.map_or_else(|| "ways unknown".to_owned(), |ways| format!("{ways} ways"));
        format!("{} MiB, {ways}", *bytes as f64 / f64::from(1 << 20))
    };
    let shapes: Vec<String> = shapes.iter().map(shape).collect();
    check("llc", CheckState::Info, format!("{} of {}", topology.l3.len(), shapes.join(" or ")))
}

fn snc(facts: &Facts<'_>) -> Check {
    let name = "snc";
    let topology = match &facts.topology {
        Ok(topology) => topology,
        Err(_) => return check(name, CheckState::Unknown, "the topology is not known"),
    };
    match topology.l3.iter().map(|l3| l3.clusters()).max() {
        None => check(name, CheckState::Info, "no L3 to cluster"),
        Some(1) => check(name, CheckState::Info, "off: each L3 has one NUMA node"),
        Some(nodes) => check(
            name,
            CheckState::Degraded,
            format!("on: each L3 has {nodes} NUMA nodes; for each of them a way is {nodes} times smaller"),
        )
        .remedy("switch sub-NUMA clustering off in the BIOS if one tenant needs a whole L3"),
    }
}

fn kernel(facts: &Facts<'_>) -> Check {
    let from_version = || match file::line(facts.root, "proc/version") {
        Ok(Some(text)) => {
            let release = text.strip_prefix("Linux version ").and_then(|rest| rest.split_whitespace().next());
            match release {
                Some(release) => Ok(release.to_owned()),
                None => Err(file::odd(facts.root, "proc/version", &text, "Linux version RELEASE ...")),
            }
        }
        Ok(None) => Err("there is no proc/sys/kernel/osrelease and no proc/version".to_owned()),
        Err(why) => Err(why),
    };
    let release = match file::line(facts.root, "proc/sys/kernel/osrelease") {
        Ok(Some(release)) if release.starts_with(|c: char| c.is_ascii_digit()) => Ok(release),
        Ok(Some(release)) => {
            Err(file::odd(facts.root, "proc/sys/kernel/osrelease", &release, "a release like 6.12.1"))
        }
        Ok(None) => from_version(),
        Err(why) => Err(why),
    };
    match release {
        Ok(release) => check("kernel", CheckState::Info, format!("Linux {release}")),
        Err(why) => check("kernel", CheckState::Unknown, why),
    }
}

fn hypervisor(facts: &Facts<'_>) -> Check {
    let name = "virtual-machine";
    match facts.is_virtual {
        Some(false) => check(name, CheckState::Ok, "no"),
        Some(true) => check(
            name,
            CheckState::Degraded,
            "yes: the hypervisor decides which uncore counters, RDT features and MSRs are visible",
        )
        .remedy("run on the machine itself (in a cloud: a `metal` size)"),
        None => check(name, CheckState::Unknown, "neither CPUID nor proc/cpuinfo can be read"),
    }
}
