//! The programs of a scenario as declared tenants of its virtual host.
//!
//! Must not know how they are found or managed.

use crate::exit::Failure;
use std::collections::BTreeSet;
use std::fmt::Write;
use toml::Value;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_machine::Scenario;
use waykeeper_units::CoreId;
use waykeeper_vhost::layout::Layout;
use waykeeper_vhost::virtual_host::VirtualHostError;

/// A `[[tenant]]` for each workload: its control group, its cores and devices unless an earlier one has them, priority and
/// kind.
pub fn declaration(scenario: &Scenario) -> Result<String, Failure> {
    let layout = Layout::new(scenario).map_err(VirtualHostError::from)?;
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    let (mut cores, mut claimed) = (BTreeSet::<CoreId>::new(), BTreeSet::<String>::new());
    let mut text = String::new();
    for workload in &scenario.workloads {
        let priority = if workload.priority == Priority::High { "high" } else { "low" };
        let kind = match workload.program.kind {
            WorkloadKind::NonIo => "non-io",
            WorkloadKind::NetworkIo => "network-io",
            WorkloadKind::StorageIo => "storage-io",
        };
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "[[tenant]]\nname = {}\ncgroup = {}\npriority = \"{priority}\"\nkind = \"{kind}\"\nstack = {}",
            quoted(&workload.name),
            quoted(&workload.cgroup),
            workload.stack
        );
        let own = workload.cores.cores();
        if own.iter().all(|core| !cores.contains(core)) {
            cores.extend(own);
            let _ = writeln!(text, "cores = {}", quoted(&workload.cores.to_string()));
        }
        let nic = workload.nic.and_then(|index| scenario.nics.get(index)).map(|nic| nic.name.as_str());
        let array =
            workload.storage.and_then(|index| scenario.storage.get(index)).map(|array| array.name.as_str());
        let named = |name: &str| layout.ports.iter().find(|port| port.device == name);
        let ports = [nic, array].into_iter().flatten().filter_map(named).map(|port| port.address.to_string());
        let ports: Vec<String> =
            ports.filter(|port| claimed.insert(port.clone())).map(|port| quoted(&port)).collect();
        if !ports.is_empty() {
            // The address of a root port means all devices behind it.
            let _ = writeln!(text, "devices = [{}]", ports.join(", "));
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_lab::registry;

    #[test]
    fn the_programs_of_every_built_in_mix_are_tenants_that_the_daemon_accepts() {
        for name in ["a4-hpw-heavy", "a4-lpw-heavy", "a4-fig5"] {
            let scenario = registry::open(name).unwrap().read().unwrap();
            let text = declaration(&scenario).unwrap();
            let tenants = waykeeper_tenants::parse(std::path::Path::new("t.toml"), &text).unwrap();
            assert_eq!(tenants.len(), scenario.workloads.len(), "{name}");
            let devices: usize = tenants.iter().map(|tenant| tenant.devices.len()).sum();
            assert_eq!(devices, scenario.nics.len() + scenario.storage.len(), "{name}: {text}");
        }
    }
}
