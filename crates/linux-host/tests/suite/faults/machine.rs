//! The machine under test: a scenario on Skylake, mounted with faults, with other tools' values in its registers.
//!
//! The clock is held, so two counts of the same interval are equal. It must not know which faults are injected.

use std::sync::Arc;
use waykeeper_kernel::root::Root;
use waykeeper_machine::Scenario;
use waykeeper_tenants::Tenant;
use waykeeper_testbed::{MountedHost, SCENARIO, manual_clock};

/// A fourth tenant: another scan, on core 4. With two scans that fit into the LLC and half the packets, no count
/// differs much from one interval to the next.
const LATE: &str = r#"
[[workload]]
name = "late"
program = "x-mem"
cores = "4"
priority = "low"
working_set = "4M"
"#;

fn scenario() -> Arc<Scenario> {
    let steady = SCENARIO.replace("offered_gbps = 80", "offered_gbps = 40").replace("24M", "4M");
    waykeeper_testbed::scenario("gold-6140", &format!("{steady}{LATE}"))
}

/// Mounts it. Other tools left values in stopped registers: event numbers without the enable bit, and a third DCA way.
/// So a restore that writes zeros would be detected.
pub fn machine() -> MountedHost {
    let machine = MountedHost::with(scenario(), manual_clock(16));
    for cpu in [0, 1, 2, 3, 4, 17] {
        machine.set_msr(cpu, 0x187, 0x0003_412e);
    }
    for cha in 0..18 {
        machine.set_msr(0, 0xe01 + 0x10 * cha, 0x1435);
    }
    machine.set_msr(0, 0xc8b, 0x700);
    for channel in machine.classes().keys().filter(|name| name.ends_with("0a.2")) {
        machine.config(channel).write_at(&0x0304_u32.to_le_bytes(), 0xd8).expect("written");
    }
    machine
}

/// Its tenants, for a process that has only its files.
pub fn tenants(root: &Root) -> Vec<Tenant> {
    waykeeper_testbed::tenants(root, &scenario())
}
