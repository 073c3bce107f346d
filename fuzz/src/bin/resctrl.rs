//! A mounted resctrl: what the kernel says in `info`, and the files of every group.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use waykeeper_fuzz::{host, one_line};
use waykeeper_kernel::resctrl::{GROUP_PREFIX, MonitorEvent, Resctrl, ResctrlError};
use waykeeper_kernel::restore::mounted;

fn told<T>(result: Result<T, ResctrlError>) -> Option<T> {
    result.inspect_err(|why| one_line(why)).ok()
}

fuzz_target!(|data: &[u8]| {
    let root = host(data);
    let Some(resctrl) = mounted(&root, GROUP_PREFIX) else { return };
    let info = told(resctrl.info());
    for resource in info.iter().flat_map(|info| info.caches.keys()) {
        told(resctrl.bit_usage(resource));
        told(resctrl.io_alloc(resource));
        told(resctrl.io_alloc_cbm(resource));
    }
    told(resctrl.max_threshold_occupancy());
    let mut groups = told(resctrl.control_groups()).unwrap_or_default();
    let inner: Vec<_> =
        groups.iter().filter_map(|group| told(resctrl.monitor_groups(group))).flatten().collect();
    groups.extend(inner);
    for group in &groups {
        told(resctrl.schemata(group));
        told(resctrl.cpus(group));
        told(resctrl.cpus_by_mask(group));
        told(resctrl.mode(group));
        told(resctrl.size(group));
        told(resctrl.tasks(group));
        for domain in told(resctrl.monitor_domains(group)).unwrap_or_default() {
            for event in ["llc_occupancy", "mbm_total_bytes"].map(MonitorEvent::from) {
                told(resctrl.count(group, domain, &event));
            }
        }
    }
    let _ = resctrl.lock_shared(Duration::from_millis(1)).map(drop);
    let _ = Resctrl::open(&root, GROUP_PREFIX).map(|resctrl| resctrl.last_status());
});
