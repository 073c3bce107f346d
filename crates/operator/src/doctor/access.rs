//! Access to the hardware: the kernel's msr and cpuid devices, lockdown, and what a hypervisor hides.
//!
//! Checks a device by reading one value from it. Must not know what the values mean.

use super::allocation;
use super::facts::Facts;
use super::report::{Check, CheckState, check};
use rustix::io::Errno;
use waykeeper_generations::Generation;
use waykeeper_kernel::msr::MsrError;

/// All checks of this family.
pub(super) fn checks(facts: &Facts<'_>) -> Vec<Check> {
    vec![allocation::access(facts), cpuid(facts), msr(facts), msr_writes(facts), lockdown(facts)]
}

/// Lockdown (hardware.md 10): the file has the form `[none] integrity confidentiality`, with the active level in
/// brackets.
pub(super) enum Lockdown {
    /// The kernel knows no lockdown.
    Unreported,
    /// securityfs, which would tell, is not mounted.
    Unmounted,
    /// `none`.
    Off,
    /// `integrity` or `confidentiality`: writes to MSRs and PCI config space are refused.
    On(String),
    /// The file says something else.
    Unparsable(String),
}

/// What `sys/kernel/security/lockdown` says. `is_mounted`: securityfs, in which the kernel always has a file.
pub(super) fn lockdown_of(text: Result<Option<String>, String>, is_mounted: bool) -> Lockdown {
    let text = match text {
        Ok(Some(text)) => text,
        Ok(None) if !is_mounted => return Lockdown::Unmounted,
        Ok(None) => return Lockdown::Unreported,
        Err(why) => return Lockdown::Unparsable(why),
    };
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    match chosen {
        Some("none") => Lockdown::Off,
        Some(level @ ("integrity" | "confidentiality")) => Lockdown::On(level.to_owned()),
        _ => Lockdown::Unparsable(
            "sys/kernel/security/lockdown names none of [none], [integrity], [confidentiality]".to_owned(),
        ),
    }
}

/// Why the kernel refuses every write of a kind, and the check that has the remedy.
pub(super) struct NoWrites {
    /// Beside `cannot be set`.
    why: String,
    remedy: &'static str,
}

impl NoWrites {
    /// Of resctrl.
    pub fn to_resctrl(facts: &Facts<'_>) -> Option<NoWrites> {
        let why = "while resctrl is mounted read-only".to_owned();
        facts.is_read_only.then_some(NoWrites { why, remedy: "see resctrl above" })
    }

    /// Of PCI config space.
    pub fn to_pci(facts: &Facts<'_>) -> Option<NoWrites> {
        match &facts.lockdown {
            Lockdown::On(level) => {
                Some(NoWrites { why: format!("under lockdown ({level})"), remedy: "see lockdown above" })
            }
            _ => None,
        }
    }

    /// Of MSRs.
    pub fn to_msr(facts: &Facts<'_>) -> Option<NoWrites> {
        let off = matches!(&facts.allow_writes, Ok(Some(text)) if text == "off");
        let by_driver = || NoWrites {
            why: "while the msr driver has allow_writes off".to_owned(),
            remedy: "see msr-writes above",
        };
        NoWrites::to_pci(facts).or_else(|| off.then(by_driver))
    }
}

/// Degrades the check of what can be read, where a write of a kind that `cannot` names is refused.
pub(super) fn unless_refused(refused: Option<NoWrites>, check: Check, cannot: &str) -> Check {
    match refused {
        Some(NoWrites { why, remedy }) if check.state == CheckState::Ok => {
            let value = format!("{}; cannot be {cannot} {why}", check.value);
            Check { state: CheckState::Degraded, value, ..check }.remedy(remedy)
        }
        _ => check,
    }
}

fn lockdown(facts: &Facts<'_>) -> Check {
    match &facts.lockdown {
        Lockdown::Unreported | Lockdown::Unmounted if !facts.has_sysfs() => {
            check("lockdown", CheckState::Unknown, "there is no sys/bus")
        }
        Lockdown::Unmounted => {
            check("lockdown", CheckState::Unknown, "sys/kernel/security is empty: securityfs is not mounted")
                .remedy("mount -t securityfs securityfs /sys/kernel/security")
        }
        Lockdown::Unreported => check("lockdown", CheckState::Info, "this kernel reports no lockdown state"),
        Lockdown::Off => check("lockdown", CheckState::Ok, "none"),
        Lockdown::On(level) => {
            let value = format!("{level}: the kernel refuses writes to MSRs and to PCI config space");
            check("lockdown", CheckState::Degraded, value).remedy(
                "switch Secure Boot off in the BIOS, or boot without lockdown=; CAT through resctrl \
                    works under lockdown too",
            )
        }
        Lockdown::Unparsable(why) => check("lockdown", CheckState::Unknown, why),
    }
}

fn cpuid(facts: &Facts<'_>) -> Check {
    match &facts.cpu.cpuid {
        Ok(_) => check("cpuid", CheckState::Ok, "the cpuid device can be read"),
        Err(error) if error.is_absent() && !facts.has_devices() => {
            check("cpuid", CheckState::Unknown, NO_DEVICES)
        }
        Err(error) if error.is_absent() => {
            let used = if facts.cpu.cpuinfo.is_ok() { "; proc/cpuinfo is used" } else { "" };
            check("cpuid", CheckState::Missing, format!("no cpuid device{used}")).remedy("modprobe cpuid")
        }
        Err(error) if matches!(error.errno(), Some(Errno::ACCESS | Errno::PERM)) => {
            check("cpuid", CheckState::Missing, error).remedy("run as root")
        }
        Err(error) => check("cpuid", CheckState::Unknown, error),
    }
}

/// Whether registers would show or set something here that the kernel does not: a virtual machine is given none of the
/// cache's, and a CPU without DDIO ways needs them only to count what perf does not.
fn msr_helps(facts: &Facts<'_>) -> bool {
    let has_ways = |generation: &Generation| generation.dca.ways.register.is_some();
    let helps = |generation| has_ways(generation) || facts.core_pmu().is_none();
    facts.is_virtual != Some(true) && facts.generation.is_none_or(helps)
}

/// Why the msr module is not asked for.
const NO_USE: &str = "no msr driver; nothing here needs it";

/// Why nothing is known of the drivers of registers.
const NO_DEVICES: &str = "there is no dev";

fn msr(facts: &Facts<'_>) -> Check {
    if matches!(facts.msr, Err(MsrError::NoModule { .. })) && !facts.has_devices() {
        return check("msr", CheckState::Unknown, NO_DEVICES);
    }
    if matches!(facts.msr, Err(MsrError::NoModule { .. })) && !msr_helps(facts) {
        return check("msr", CheckState::Info, NO_USE);
    }
    match &facts.msr {
        Ok(()) => check("msr", CheckState::Ok, "the msr device can be read"),
        Err(error @ (MsrError::NoModule { .. } | MsrError::Permission { .. } | MsrError::Offline { .. })) => {
            check("msr", CheckState::Missing, error).remedy(error.remedy())
        }
        Err(error) => check("msr", CheckState::Unknown, error),
    }
}

fn msr_writes(facts: &Facts<'_>) -> Check {
    let check = |state, value: &str| check("msr-writes", state, value);
    match &facts.allow_writes {
        // Kernels before 5.9 have no such parameter and allow every write.
        Ok(None) if facts.msr.is_ok() => {
            check(CheckState::Info, "the msr driver has no parameter allow_writes: writes are allowed")
        }
        Ok(None) if !facts.has_devices() => check(CheckState::Unknown, NO_DEVICES),
        Ok(None) if !msr_helps(facts) => check(CheckState::Info, NO_USE),
        Ok(None) => check(CheckState::Missing, "no msr driver").remedy("modprobe msr"),
        Err(why) => check(CheckState::Unknown, why),
        Ok(Some(_)) if matches!(facts.lockdown, Lockdown::On(_)) => {
            check(CheckState::Degraded, "every write is refused under lockdown").remedy("see lockdown below")
        }
        Ok(Some(text)) => match text.as_str() {
            "on" => check(CheckState::Ok, "on: writes are silent"),
            "default" => check(CheckState::Ok, "default: the first write taints the kernel and is logged"),
            "off" => check(CheckState::Degraded, "off: every write is refused").remedy(
                "echo on > /sys/module/msr/parameters/allow_writes, or boot with msr.allow_writes=on",
            ),
            _ => check(
                CheckState::Unknown,
                "sys/module/msr/parameters/allow_writes holds none of on, off, default",
            ),
        },
    }
}
