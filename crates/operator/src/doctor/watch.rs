//! Counters: which ones the kernel offers through perf, which ones could be programmed through MSRs, and whether this
//! process may use them (hardware.md 3 to 6).
//!
//! Counts directories and reads settings; opens no event. Must not know how the counts are used.

use super::access::{NoWrites, unless_refused};
use super::facts::Facts;
use super::file;
use super::monitoring;
use super::report::{Check, CheckState, check};
use waykeeper_generations::{AddressSpace, Pmu, Vendor};
use waykeeper_kernel::pci::PciTree;
use waykeeper_kernel::perf;

/// All checks of this family.
pub(super) fn checks(facts: &Facts<'_>) -> Vec<Check> {
    let cache = facts.generation.and_then(|generation| generation.cache.as_ref()).map(|cache| &cache.pmu);
    let iio = facts.generation.and_then(|generation| generation.iio.as_ref()).map(|iio| &iio.pmu);
    let memory = facts.generation.and_then(|generation| generation.memory.as_ref()).map(|memory| &memory.pmu);
    vec![
        monitoring::check_of(facts),
        core(facts),
        uncore(facts, "dca-counters", "device writes and reads that hit or miss the LLC", cache),
        uncore(facts, "io-counters", "bytes of each root port", iio),
        uncore(facts, "memory-counters", "bytes of the memory controllers", memory),
        paranoid(facts),
        watchdog(facts),
    ]
}

/// Whether an observing daemon can read a counter: resctrl's, or one that perf counts for this process. It programs no
/// register. `None`: not known.
pub(super) fn can_read(facts: &Facts<'_>, watched: &[Check]) -> Option<bool> {
    let has = |name: &str, states: &[CheckState]| {
        watched.iter().any(|check| check.name == name && states.contains(&check.state))
    };
    let perf = || {
        let (all, generation) = (sources(facts).ok()?, facts.generation?);
        let units = [
            generation.cache.as_ref().map(|cache| &cache.pmu),
            generation.iio.as_ref().map(|iio| &iio.pmu),
            generation.memory.as_ref().map(|memory| &memory.pmu),
        ];
        Some(facts.core_pmu().is_some() || units.into_iter().flatten().any(|pmu| boxes(all, pmu) > 0))
    };
    if has("monitoring", &[CheckState::Ok, CheckState::Degraded])
        || has("perf-access", &[CheckState::Ok]) && perf() == Some(true)
    {
        return Some(true);
    }
    let is_unknown = |check: &Check| check.state == CheckState::Unknown && check.value != NO_TABLE;
    (!watched.iter().any(is_unknown)).then_some(false)
}

/// Why a setting of the kernel is not known.
const NO_PROC: &str = "there is no proc/sys/kernel";
/// Why no counter is read.
const NO_TABLE: &str = "no built-in table for this CPU";

/// Perf's event sources, or why they are not known.
fn sources<'f>(facts: &'f Facts<'_>) -> Result<&'f [String], String> {
    match &facts.event_sources {
        Ok(sources) if sources.is_empty() && !facts.has_sysfs() => Err("there is no sys/bus".to_owned()),
        Ok(sources) => Ok(sources),
        Err(why) => Err(why.to_string()),
    }
}

fn core(facts: &Facts<'_>) -> Check {
    let name = "core-counters";
    if let Err(why) = sources(facts) {
        return check(name, CheckState::Unknown, why);
    }
    let offered = facts.core_pmu();
    if facts.generation.is_none() && (offered.is_some() || facts.is_virtual != Some(true)) {
        return check(name, CheckState::Unknown, NO_TABLE);
    }
    if let Some(pmu) = offered {
        return check(name, CheckState::Ok, format!("perf ({pmu})"));
    }
    if facts.generation.is_some() && facts.msr.is_ok() {
        let check = check(name, CheckState::Ok, "by MSR; perf offers none");
        return unless_refused(NoWrites::to_msr(facts), check, "programmed");
    }
    let check =
        check(name, CheckState::Missing, format!("perf offers no core PMU{}", facts.behind_a_hypervisor()));
    if facts.is_virtual == Some(true) {
        return check.remedy("in a cloud: a `metal` size; on a QEMU/KVM of your own: -cpu host,pmu=on");
    }
    check
}

/// How many of perf's event sources are units of a kind: `uncore_cha` alone, or `uncore_cha_N`.
fn boxes(sources: &[String], pmu: &Pmu) -> usize {
    let is_unit = |source: &&String| {
        let rest = source.strip_prefix(pmu.perf.as_str());
        let number = rest.map(|rest| rest.strip_prefix('_').unwrap_or(rest));
        number.is_some_and(|number| {
            rest == Some("") || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    sources.iter().filter(is_unit).count()
}

fn uncore(facts: &Facts<'_>, name: &'static str, what: &str, pmu: Option<&Pmu>) -> Check {
    let sources = match sources(facts) {
        Ok(sources) => sources,
        Err(why) => return check(name, CheckState::Unknown, why),
    };
    let Some(generation) = facts.generation else {
        return check(name, CheckState::Unknown, NO_TABLE);
    };
    let Some(pmu) = pmu else {
        return check(name, CheckState::Missing, format!("{} has no such counters", generation.name));
    };
    let boxes = boxes(sources, pmu);
    if boxes > 0 {
        return check(name, CheckState::Ok, format!("{what}: perf, {}_N units: {boxes}", pmu.perf));
    }
    let module = match facts.vendor() {
        Some(Vendor::Amd) => "amd_uncore",
        _ => "intel_uncore",
    };
    if perf::is_asked(facts.root) && sources.contains(&generation.core.perf) {
        let value = format!("{what}: perf offers no {}_N although it counts the cores", pmu.perf);
        let check = check(name, CheckState::Missing, value);
        return if facts.is_virtual == Some(true) {
            check
        } else {
            check.remedy(format!("modprobe {module}"))
        };
    }
    let space = pmu.registers.as_ref().map(|registers| registers.space);
    if space == Some(AddressSpace::Msr) && facts.msr.is_ok() {
        let value = format!("{what}: by MSR; perf offers no {}_N", pmu.perf);
        return unless_refused(NoWrites::to_msr(facts), check(name, CheckState::Ok, value), "programmed");
    }
    let channels = memory_channels(facts);
    if space == Some(AddressSpace::PciConfig) && channels > 0 {
        let value =
            format!("{what}: in the config space of {channels} channels; perf offers no {}_N", pmu.perf);
        return unless_refused(NoWrites::to_pci(facts), check(name, CheckState::Ok, value), "programmed");
    }
    let value = format!("{what}: perf offers no {}_N{}", pmu.perf, facts.behind_a_hypervisor());
    let check = check(name, CheckState::Missing, value);
    match facts.is_virtual {
        Some(true) => check,
        _ if space == Some(AddressSpace::Msr) => {
            check.remedy(format!("modprobe {module}, or modprobe msr to count through MSRs"))
        }
        _ => check.remedy(format!("modprobe {module}")),
    }
}

/// The number of PCI devices that contain counters of memory channels.
fn memory_channels(facts: &Facts<'_>) -> usize {
    let memory = facts.generation.and_then(|generation| generation.memory.as_ref());
    let Some(known) = memory.map(|memory| &memory.pci_devices) else { return 0 };
    // The check of the root ports reports errors of the PCI tree.
    let tree = PciTree::read(facts.root).unwrap_or_default();
    tree.devices().filter(|device| known.contains(&[device.vendor, device.device])).count()
}

fn paranoid(facts: &Facts<'_>) -> Check {
    const PATH: &str = "proc/sys/kernel/perf_event_paranoid";
    let name = "perf-access";
    let text = match file::line(facts.root, PATH) {
        Ok(Some(text)) => text,
        Ok(None) if !facts.has_procfs() => return check(name, CheckState::Unknown, NO_PROC),
        Ok(None) => {
            return check(name, CheckState::Missing, "this kernel has no perf events")
                .remedy("run a kernel with CONFIG_PERF_EVENTS=y");
        }
        Err(why) => return check(name, CheckState::Unknown, why),
    };
    let Ok(level) = text.parse::<i32>() else {
        return check(name, CheckState::Unknown, file::odd(facts.root, PATH, &text, "a number from -1 to 4"));
    };
    let is_hardware = |source: &String| source.starts_with("uncore_") || source.starts_with("amd_");
    if sources(facts).is_ok_and(|all| facts.core_pmu().is_none() && !all.iter().any(is_hardware)) {
        let value = format!("perf_event_paranoid {level}; perf offers no core PMU to count with");
        return check(name, CheckState::Info, value);
    }
    // hardware.md 6.2: counters of whole CPUs and of the uncore need level 0 or below, or CAP_PERFMON.
    if level <= 0 {
        return check(
            name,
            CheckState::Ok,
            format!("perf_event_paranoid {level}: every user may count whole CPUs"),
        );
    }
    if facts.may_perf {
        return check(
            name,
            CheckState::Ok,
            format!("perf_event_paranoid {level}, and this process has CAP_PERFMON"),
        );
    }
    check(
        name,
        CheckState::Degraded,
        format!("perf_event_paranoid {level}: counting whole CPUs and uncore units needs CAP_PERFMON"),
    )
    .remedy("run as root or with CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=0")
}

fn watchdog(facts: &Facts<'_>) -> Check {
    const PATH: &str = "proc/sys/kernel/nmi_watchdog";
    let name = "nmi-watchdog";
    match file::line(facts.root, PATH) {
        Ok(Some(text)) => match text.as_str() {
            "0" => check(name, CheckState::Ok, "off: it takes no core counter"),
            "1" => check(name, CheckState::Degraded, "on: it takes one counter of every core")
                .remedy("sysctl kernel.nmi_watchdog=0 if events have to share counters"),
            _ => check(name, CheckState::Unknown, file::odd(facts.root, PATH, &text, "0 or 1")),
        },
        Ok(None) if !facts.has_procfs() => check(name, CheckState::Unknown, NO_PROC),
        Ok(None) => check(name, CheckState::Info, "this kernel has none"),
        Err(why) => check(name, CheckState::Unknown, why),
    }
}
