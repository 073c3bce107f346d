//! Monitoring through resctrl: the events, whether they count whole caches, and how many RMIDs are free (hardware.md 7.1,
//! 7.4).
//!
//! Must not know masks nor classes.

use super::allocation::{Mount, info, not_driven, unless_strange};
use super::facts::Facts;
use super::report::{Check, CheckState, check};
use waykeeper_generations::ErratumKind;
use waykeeper_kernel::resctrl::{self, MonitorEvent, MonitoringInfo, PARTIAL_COUNTS};
use waykeeper_units::few;

/// The check of monitoring.
pub(super) fn check_of(facts: &Facts<'_>) -> Check {
    let check = |state, value: String| check("monitoring", state, value);
    let info = match info(facts, "monitoring") {
        Ok(info) => info,
        Err(check) => return check,
    };
    let Some(monitoring) = &info.monitoring else {
        if let Some(trouble) = info.trouble_with(resctrl::MONITORING) {
            return check(CheckState::Unknown, trouble.to_string());
        }
        if !facts.has_flag("cqm_llc") {
            return check(
                CheckState::Missing,
                format!("the CPU reports no CMT or MBM{}", facts.behind_a_hypervisor()),
            );
        }
        let check = check(
            CheckState::Missing,
            "the CPU has CMT and MBM, but the kernel does not offer them".to_owned(),
        );
        let words = ["cmt", "mbmtotal", "mbmlocal"];
        return not_driven(facts, check, &words, Some(ErratumKind::MonitoringNeedsBootOption));
    };
    let events: Vec<&str> = monitoring.events.iter().map(|event| event.name()).collect();
    let mode = match monitoring.assign_mode.as_deref() {
        Some(mode) => format!("; counters assigned by {mode}"),
        None => String::new(),
    };
    let held = rmid_holders(facts);
    let free = held.as_ref().map(|held| free_rmids(monitoring, held));
    let free_words = free.map_or_else(String::new, |free| format!(", {free} free"));
    let value = format!("{}; {} RMIDs{free_words}{mode}", events.join(", "), monitoring.num_rmids);
    if let (Mount::Mounted(resctrl, _), Ok(topology)) = (&facts.mount, &facts.topology)
        && topology.l3.iter().any(|l3| resctrl.counts_only_a_part(l3))
    {
        return check(CheckState::Degraded, format!("{value}; {PARTIAL_COUNTS}"))
            .remedy("run Linux 6.11 or later, or switch sub-NUMA clustering off in the BIOS");
    }
    // By these tenants are counted: each with the CPU's flag and its word of the boot option.
    let needed = [
        (MonitorEvent::LlcOccupancy, "cqm_occup_llc", "cmt"),
        (MonitorEvent::MbmTotal, "cqm_mbm_total", "mbmtotal"),
    ];
    let is_lacking = |(event, flag, _): &&(MonitorEvent, &str, &str)| {
        facts.has_flag(flag) && !monitoring.events.contains(event)
    };
    let lacking: Vec<_> = needed.iter().filter(is_lacking).collect();
    if !lacking.is_empty() {
        let names: Vec<&str> = lacking.iter().map(|(event, ..)| event.name()).collect();
        let words: Vec<&str> = lacking.iter().map(|(_, _, word)| *word).collect();
        let value = format!("{value}; the kernel does not offer {}, which the CPU has", names.join(" and "));
        let check = check(CheckState::Degraded, value);
        return not_driven(facts, check, &words, Some(ErratumKind::MonitoringNeedsBootOption));
    }
    if let (Some(0), Some(held)) = (free, held) {
        return check(CheckState::Degraded, format!("{value}: {} hold {}", few(&held), held.len()))
            .remedy("remove groups under /sys/fs/resctrl that are no longer used (rmdir): each new group needs an RMID");
    }
    unless_strange(info.trouble_with(resctrl::MONITORING), check(CheckState::Ok, value))
}

/// The groups that have an RMID beside the default group's, monitoring groups included. `None` if they cannot be listed.
pub(super) fn rmid_holders(facts: &Facts<'_>) -> Option<Vec<String>> {
    let Mount::Mounted(resctrl, _) = &facts.mount else { return None };
    Some(resctrl.rmid_holders().ok()?.iter().map(ToString::to_string).collect())
}

/// RMIDs for further groups: the default group has one too.
pub(super) fn free_rmids(monitoring: &MonitoringInfo, held: &[String]) -> u32 {
    monitoring.num_rmids.saturating_sub(1).saturating_sub(u32::try_from(held.len()).unwrap_or(u32::MAX))
}
