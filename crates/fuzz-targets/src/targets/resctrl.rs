//! A mounted resctrl: what the kernel says in `info`, and the files of every group.

use crate::{checked, host};
use std::time::Duration;
use waykeeper_kernel::resctrl::{GROUP_PREFIX, MonitorEvent, Resctrl};
use waykeeper_kernel::restore::mounted;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let root = host(data);
    let Some(resctrl) = mounted(&root, GROUP_PREFIX) else { return };
    let info = checked(resctrl.info());
    for resource in info.iter().flat_map(|info| info.caches.keys()) {
        checked(resctrl.bit_usage(resource));
        checked(resctrl.io_alloc(resource));
        checked(resctrl.io_alloc_cbm(resource));
    }
    checked(resctrl.max_threshold_occupancy());
    let mut groups = checked(resctrl.control_groups()).unwrap_or_default();
    let inner: Vec<_> =
        groups.iter().filter_map(|group| checked(resctrl.monitor_groups(group))).flatten().collect();
    groups.extend(inner);
    for group in &groups {
        checked(resctrl.schemata(group));
        checked(resctrl.cpus(group));
        checked(resctrl.cpus_by_mask(group));
        checked(resctrl.mode(group));
        checked(resctrl.size(group));
        checked(resctrl.tasks(group));
        for domain in checked(resctrl.monitor_domains(group)).unwrap_or_default() {
            for event in ["llc_occupancy", "mbm_total_bytes"].map(MonitorEvent::from) {
                checked(resctrl.count(group, domain, &event));
            }
        }
    }
    let _ = resctrl.lock_shared(Duration::from_millis(1)).map(drop);
    let _ = Resctrl::open(&root, GROUP_PREFIX).map(|resctrl| resctrl.last_status());
}
