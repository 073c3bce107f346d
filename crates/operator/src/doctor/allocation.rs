//! resctrl: whether it is mounted, what it allocates, how many classes are free, and if it is missing,
//! why (hardware.md 7.1, 7.2, 8.1).
//!
//! Must not know devices or MSRs. Widths and masks are read, never looked up by model.

use super::access::{NoWrites, unless_refused};
use super::facts::Facts;
use super::file;
use super::monitoring::{free_rmids, rmid_holders};
use super::report::{Check, CheckState, check};
use rustix::io::Errno;
use std::collections::BTreeSet;
use waykeeper_generations::{ErratumKind, Vendor};
use waykeeper_kernel::journal;
use waykeeper_kernel::resctrl::{
    self, ExclusiveWays, GroupMode, Info, IoAllocState, REMOUNT_COMMAND, Resctrl, ResctrlError,
    ResctrlErrorKind, Resource,
};
use waykeeper_kernel::restore;
use waykeeper_kernel::root::DEAD_MOUNT;
use waykeeper_units::few;

/// The state of resctrl on this host.
pub(super) enum Mount {
    /// Mounted; its `info`, or why that cannot be parsed.
    Mounted(Resctrl, Result<Info, ResctrlError>),
    /// Not mounted or not supported, with the error of the attempt.
    No(ResctrlError),
}

/// Opens the mount.
pub(super) fn mount(root: &waykeeper_kernel::root::Root) -> Mount {
    match Resctrl::open(root, waykeeper_kernel::resctrl::GROUP_PREFIX) {
        Ok(resctrl) => {
            let info = resctrl.info();
            Mount::Mounted(resctrl, info)
        }
        Err(error) => Mount::No(error),
    }
}

/// The checks of its knobs.
pub(super) fn steered(facts: &Facts<'_>) -> Vec<Check> {
    let judged = |name, judge: fn(&Facts<'_>, &Info) -> Check| match info(facts, name) {
        Ok(info) => judge(facts, info),
        Err(check) => check,
    };
    let checks = [cat(facts), judged("classes", classes), judged("mba", mba), judged("io-alloc", io_alloc)];
    checks.into_iter().map(|check| unless_refused(NoWrites::to_resctrl(facts), check, "set")).collect()
}

/// The check of the file system itself.
pub(super) fn access(facts: &Facts<'_>) -> Check {
    let check = |state, value: String| check("resctrl", state, value);
    match &facts.mount {
        Mount::Mounted(resctrl, Ok(info)) => {
            let cdp = if info.has_cdp() { " with CDP" } else { "" };
            let mounted = format!("mounted at {}{cdp}", resctrl.mount_point().display());
            if facts.is_read_only {
                let value = format!("{mounted}, read-only: the kernel refuses every write");
                let remedy = format!("{REMOUNT_COMMAND}, or give the container a mount that takes writes");
                return check(CheckState::Degraded, value).remedy(remedy);
            }
            return match info.strange.first() {
                None => check(CheckState::Ok, mounted),
                Some(first) => check(CheckState::Degraded, format!("{mounted}; not understood: {first}")),
            };
        }
        Mount::Mounted(_, Err(error)) => {
            return check(CheckState::Unknown, error.to_string());
        }
        Mount::No(error) if error.kind != ResctrlErrorKind::NotMounted => {
            let check = check(CheckState::Unknown, error.to_string());
            return match error.errno.map(Errno::from_raw_os_error) {
                Some(Errno::ACCESS | Errno::PERM) => check.remedy("run as root"),
                Some(Errno::NOTCONN) => check.remedy(DEAD_MOUNT),
                _ => check,
            };
        }
        Mount::No(_) => {}
    }
    if let Ok(Some(place)) = Resctrl::mounted_at(facts.root) {
        let remedy = format!("{}, or unmount it and mount it there", resctrl::bind_command(&place));
        return check(CheckState::Missing, resctrl::elsewhere(&place)).remedy(remedy);
    }
    match has_resctrl(facts) {
        Ok(Some(true)) => {
            check(CheckState::Missing, "the kernel has resctrl, but it is not mounted".to_owned())
                .remedy(resctrl::MOUNT_COMMAND)
        }
        Ok(Some(false)) if facts.has_flag("rdt_a") || facts.has_flag("cat_l3") => {
            check(CheckState::Missing, "the CPU has RDT, but this kernel has no resctrl".to_owned())
                .remedy("run a kernel with CONFIG_X86_CPU_RESCTRL=y")
        }
        Ok(Some(false)) => check(
            CheckState::Missing,
            format!("the CPU reports no RDT or PQoS{}", facts.behind_a_hypervisor()),
        ),
        Ok(None) => {
            check(CheckState::Unknown, "there is no proc/filesystems and no sys/fs/resctrl".to_owned())
        }
        Err(why) => check(CheckState::Unknown, why),
    }
}

/// `info` if it could be read; else the check that says why not.
pub(super) fn info<'f>(facts: &'f Facts<'_>, name: &'static str) -> Result<&'f Info, Check> {
    match &facts.mount {
        Mount::Mounted(_, Ok(info)) => Ok(info),
        Mount::Mounted(_, Err(_)) => {
            Err(check(name, CheckState::Unknown, "the files in resctrl's info folder cannot be understood"))
        }
        Mount::No(_) => Err(check(name, CheckState::Missing, "needs resctrl")),
    }
}

/// The boot option that enables what the kernel disables on Skylake servers (hardware.md 7.2).
const RDT_BOOT_OPTION: &str =
    "boot with rdt=cmt,mbmtotal,mbmlocal,l3cat,l3cdp,mba on the kernel's command line";

/// Adds the remedy for a feature that the CPU reports and the kernel does not offer. `words` are its names in the boot
/// option `rdt=` (kernel:Documentation/admin-guide/kernel-parameters.txt).
pub(super) fn not_driven(
    facts: &Facts<'_>,
    check: Check,
    words: &[&str],
    kind: Option<ErratumKind>,
) -> Check {
    let asked = asked_for(facts, words);
    if let Asked::Off(word) = &asked {
        let value = format!("{}: rdt=!{word} on its command line switches it off", check.value);
        return Check { value, ..check }.remedy(format!("boot without !{word} in rdt="));
    }
    let look = "look for an erratum in the kernel's log (dmesg | grep resctrl)";
    match kind.and_then(|kind| facts.erratum(kind)) {
        Some(_) if asked == Asked::Nothing => check.remedy(RDT_BOOT_OPTION),
        _ if asked == Asked::On => {
            let value = format!("{}, although rdt= on its command line asks for it", check.value);
            Check { value, ..check }.remedy(look)
        }
        _ => check.remedy(look),
    }
}

/// What the boot option `rdt=` says of a feature.
#[derive(PartialEq, Eq)]
enum Asked {
    /// Nothing: the kernel decides.
    Nothing,
    /// The kernel is to offer it.
    On,
    /// It is switched off, by this word.
    Off(String),
}

/// What the kernel's command line asks for, of a feature with these names.
fn asked_for(facts: &Facts<'_>, names: &[&str]) -> Asked {
    let cmdline = file::line(facts.root, "proc/cmdline").ok().flatten().unwrap_or_default();
    let options = cmdline.split_whitespace().filter_map(|word| word.strip_prefix("rdt="));
    let words: Vec<&str> = options.flat_map(|list| list.split(',')).collect();
    // Where both are there, the feature is on (linux resctrl/core.c, rdt_cpu_has).
    if words.iter().any(|word| names.contains(word)) {
        return Asked::On;
    }
    let off = words.iter().filter_map(|word| word.strip_prefix('!')).find(|word| names.contains(word));
    off.map_or(Asked::Nothing, |word| Asked::Off(word.to_owned()))
}

/// Without a mount it is unknown what the kernel offers, except for features that it is known to disable.
fn before_mounting(facts: &Facts<'_>, check: Check, names: &[&str], kind: ErratumKind) -> Check {
    // A kernel without resctrl has no such option; where resctrl is mounted at another place, it has decided already.
    let can_mount = !matches!(has_resctrl(facts), Ok(Some(false)))
        && !matches!(Resctrl::mounted_at(facts.root), Ok(Some(_)));
    match (can_mount, asked_for(facts, names), facts.erratum(kind)) {
        (true, Asked::Off(word), _) => {
            let value = format!("{}; rdt=!{word} on the kernel's command line switches it off", check.value);
            Check { value, ..check }.remedy(format!("boot without !{word} in rdt="))
        }
        (true, Asked::Nothing, Some(_)) => {
            let value = format!(
                "{}; after mounting, the kernel offers it on this CPU only with a boot option",
                check.value
            );
            Check { value, ..check }.remedy(RDT_BOOT_OPTION)
        }
        _ => check,
    }
}

/// Whether the kernel has resctrl: it registers the file system, and makes the directory for its mount, only if it found RDT
/// or PQoS (resctrl_init). `None`: neither shows.
fn has_resctrl(facts: &Facts<'_>) -> Result<Option<bool>, String> {
    let listed = |text: String| text.lines().any(|line| line.split_whitespace().last() == Some("resctrl"));
    let has = file::text(facts.root, "proc/filesystems")?.map(listed);
    Ok(has.or(facts.root.exists(resctrl::MOUNT).then_some(true)))
}

fn cat(facts: &Facts<'_>) -> Check {
    let check = |state, value: String| check("cat", state, value);
    let info = match info(facts, "cat") {
        Ok(info) => info,
        Err(check) if facts.has_flag("cat_l3") => {
            return before_mounting(facts, check, &["l3cat"], ErratumKind::CatNeedsBootOption);
        }
        Err(check) => return check,
    };
    let Some(l3) = info.l3() else {
        if let Some(trouble) = info.l3_trouble() {
            return check(CheckState::Unknown, trouble.to_string());
        }
        if !facts.has_flag("cat_l3") {
            return check(
                CheckState::Missing,
                format!("the CPU reports no L3 CAT{}", facts.behind_a_hypervisor()),
            );
        }
        let check =
            check(CheckState::Missing, "the CPU has L3 CAT, but the kernel does not offer it".to_owned());
        return not_driven(facts, check, &["l3cat"], Some(ErratumKind::CatNeedsBootOption));
    };
    let ways = l3.cbm_mask.count();
    let shared = match l3.shareable_bits {
        Some(bits) if !bits.is_empty() => format!("; {bits} is shared with devices"),
        _ => String::new(),
    };
    let holes = if l3.sparse_masks == Some(true) { "; masks may have holes" } else { "" };
    let least = l3.min_cbm_bits;
    let halves = if info.has_cdp() { "; code and data have a mask each (CDP)" } else { "" };
    let value = format!("{ways} ways ({}), at least {least} per mask{shared}{holes}{halves}", l3.cbm_mask);
    if facts.topology.as_ref().is_ok_and(|topology| topology.l3.iter().any(|l3| l3.id.is_none())) {
        let value =
            format!("{value}; which masks are of which L3 is not known: the kernel gives no id of an L3");
        return check(CheckState::Degraded, value);
    }
    let held = exclusive(facts, info);
    if held.is_empty() {
        return unless_strange(info.l3_trouble(), check(CheckState::Ok, value));
    }
    let locked = held.iter().any(|(own, _)| own.mode == GroupMode::PseudoLocked);
    let words: BTreeSet<String> = held.into_iter().map(|(_, words)| words).collect();
    let words: Vec<String> = words.into_iter().collect();
    let mode = if locked { "" } else { ", or write `shareable` into its `mode`" };
    check(CheckState::Degraded, format!("{value}; {}", few(&words)))
        .remedy(format!("no other group can have these ways: remove the group (rmdir){mode}"))
}

/// Degrades a check if some file of its directory of `info` is not understood.
pub(super) fn unless_strange(trouble: Option<&ResctrlError>, check: Check) -> Check {
    match trouble {
        Some(trouble) => {
            Check { state: CheckState::Degraded, value: format!("{}; {trouble}", check.value), ..check }
        }
        None => check,
    }
}

/// The ways that other programs' groups have for themselves, in words too; with CDP of each half.
fn exclusive(facts: &Facts<'_>, info: &Info) -> Vec<(ExclusiveWays, String)> {
    let (Mount::Mounted(resctrl, _), Ok(topology)) = (&facts.mount, &facts.topology) else {
        return Vec::new();
    };
    let mut held = Vec::new();
    for resource in info.l3_resources() {
        let half = match resource {
            Resource::L3Code => " for code",
            Resource::L3Data => " for data",
            _ => "",
        };
        for domain in topology.l3.iter().filter_map(|l3| l3.id) {
            let own = resctrl.exclusive_ways(&resource, domain).unwrap_or_default();
            held.extend(own.into_iter().map(|own| {
                let words = format!("{own}{half}");
                (own, words)
            }));
        }
    }
    held
}

fn classes(facts: &Facts<'_>, info: &Info) -> Check {
    let check = |state, value: String| check("classes", state, value);
    let Mount::Mounted(resctrl, _) = &facts.mount else {
        return check(CheckState::Missing, "needs resctrl".to_owned());
    };
    let all = info.limits().closids;
    if let (None, Some(trouble)) = (info.l3(), info.l3_trouble()) {
        return check(CheckState::Unknown, trouble.to_string());
    }
    if info.l3().is_none() {
        return check(CheckState::Missing, format!("{all} classes of service, but none divides the L3"));
    }
    let groups = match resctrl.control_groups() {
        Ok(groups) => {
            let with_class = groups.iter().filter(|group| resctrl.has_class(group));
            with_class.map(ToString::to_string).collect::<Vec<_>>()
        }
        Err(error) => return check(CheckState::Unknown, error.to_string()),
    };
    let held = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    let free = info.classes_for_groups().saturating_sub(held);
    let halved = if info.has_cdp() { " (half as many as without CDP)" } else { "" };
    let value = format!("{all} classes of service{halved}, {free} free");
    let held_rmids = rmid_holders(facts).unwrap_or_default();
    if free > 0 && info.monitoring.as_ref().is_some_and(|own| free_rmids(own, &held_rmids) == 0) {
        return check(CheckState::Degraded, format!("{value}, but no RMID for a further group"))
            .remedy("see monitoring above");
    }
    if free > 0 || all <= 1 {
        let check = check(if all > 1 { CheckState::Ok } else { CheckState::Missing }, value);
        // A resource that is not understood may have fewer classes.
        let other = info.trouble_with(Resource::Mb.name());
        return unless_strange(info.l3_trouble(), unless_strange(other, check));
    }
    check(CheckState::Degraded, format!("{value}: {} hold {held}", few(&groups)))
        .remedy("remove groups under /sys/fs/resctrl that are no longer used (rmdir)")
}

fn mba(facts: &Facts<'_>, info: &Info) -> Check {
    let check = |state, value: String| check("mba", state, value);
    let Some(bandwidth) = info.bandwidths.get(&Resource::Mb) else {
        if let Some(trouble) = info.trouble_with(Resource::Mb.name()) {
            return check(CheckState::Unknown, trouble.to_string());
        }
        if !facts.has_flag("mba") {
            let value = format!("the CPU reports no MBA{}", facts.behind_a_hypervisor());
            return check(CheckState::Missing, value);
        }
        let check =
            check(CheckState::Missing, "the CPU has MBA, but the kernel does not offer it".to_owned());
        return not_driven(facts, check, &["mba"], None);
    };
    let (low, step) = (bandwidth.min_bandwidth, bandwidth.bandwidth_gran);
    let value = match facts.vendor() {
        // hardware.md 7.3: units of 1/8 GB/s; 2048 is no limit.
        Some(Vendor::Amd) => format!("from {low} in steps of {step} eighths of a GB/s; 2048 means no limit"),
        _ if Resctrl::limits_in_mb_per_s(facts.root) => {
            format!(
                "in MB/s (mounted with mba_MBps): the kernel keeps to them from {low} % in steps of {step} %"
            )
        }
        _ => format!("from {low} % in steps of {step} %"),
    };
    unless_strange(info.trouble_with(Resource::Mb.name()), check(CheckState::Ok, value))
}

fn io_alloc(facts: &Facts<'_>, info: &Info) -> Check {
    let check = |state, value: &str| check("io-alloc", state, value);
    match info.l3().and_then(|l3| l3.io_alloc) {
        Some(IoAllocState::Enabled) => check(CheckState::Ok, "enabled: devices have ways of their own"),
        Some(IoAllocState::Disabled) => {
            check(CheckState::Ok, "disabled; devices could have ways of their own")
        }
        Some(IoAllocState::NotSupported) => {
            check(CheckState::Missing, "this CPU cannot give devices L3 ways of their own")
        }
        None if facts.vendor() == Some(Vendor::Amd) => {
            check(CheckState::Missing, "this kernel does not offer it")
                .remedy("run Linux 6.19 or later on a CPU with SDCIAE (Zen 5)")
        }
        None => {
            check(CheckState::Missing, "this kernel does not offer it; on Intel the DDIO ways take its place")
        }
    }
}

/// Groups that Waykeeper did not make, and the holder of the lock that tools share.
pub(super) fn others(facts: &Facts<'_>) -> Vec<Check> {
    let Mount::Mounted(resctrl, _) = &facts.mount else { return Vec::new() };
    let groups = match resctrl.control_groups() {
        Err(error) => check("groups", CheckState::Unknown, error.to_string()),
        Ok(groups) => {
            let names = |ours: bool| {
                let of = groups.iter().filter(|group| resctrl.is_ours(group) == ours);
                of.map(ToString::to_string).collect::<Vec<_>>()
            };
            let (ours, foreign) = (names(true), names(false));
            let by_others = format!("made by others: {}", few(&foreign));
            match (orphaned(facts, resctrl), ours.is_empty(), foreign.is_empty()) {
                (Some(orphans), _, true) => orphans,
                (Some(orphans), _, false) => {
                    Check { value: format!("{}; {by_others}", orphans.value), ..orphans }
                }
                (None, true, true) => check("groups", CheckState::Ok, "only the default group".to_owned()),
                (None, _, true) => {
                    check("groups", CheckState::Info, format!("made by Waykeeper: {}", few(&ours)))
                }
                (None, _, false) => check("groups", CheckState::Degraded, by_others).remedy(
                    "Waykeeper leaves them unchanged; if the tool that made them has ended, remove them (pqos -R, \
                    rmdir)",
                ),
            }
        }
    };
    let lock = match resctrl.lock_shared(std::time::Duration::ZERO) {
        Ok(_) => check("resctrl-lock", CheckState::Ok, "no process holds it".to_owned()),
        Err(error) if error.kind == ResctrlErrorKind::Locked => {
            check("resctrl-lock", CheckState::Degraded, error.detail)
                .remedy("let that tool finish; it holds the flock on /sys/fs/resctrl")
        }
        Err(error) => check("resctrl-lock", CheckState::Unknown, error.to_string()),
    };
    vec![groups, lock]
}

/// The check of groups of our name that no running process of Waykeeper and no journal has; `None` without any. With
/// another journal (`daemon.journal`) a group may look like one.
fn orphaned(facts: &Facts<'_>, resctrl: &Resctrl) -> Option<Check> {
    let path = journal::usual_path(facts.root);
    // What is wrong with the journal is said by its own check.
    let look = journal::summarize(&path, facts.root).ok().flatten().unwrap_or_default();
    let left = restore::orphans(resctrl, &look.originals).ok()?;
    if left.is_empty() || look.held.is_some() || journal::is_managed(facts.root) {
        return None;
    }
    let names: Vec<String> = left.iter().map(ToString::to_string).collect();
    let value =
        format!("left by a run of Waykeeper whose journal is not at {}: {}", path.display(), few(&names));
    Some(check("groups", CheckState::Degraded, value).remedy(
        "waykeeper restore (with the daemon's --config, if that names a journal): it removes them and says what \
        cannot be restored",
    ))
}
