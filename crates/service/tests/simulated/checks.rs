//! What must hold at every system call of the daemon and after every step.
//!
//! Must not know how the daemon decides.

use crate::journaled::is_ours;
use crate::picture::{self, MOUNT};
use crate::world::{CALLER, PREFIX, State};
use std::collections::BTreeSet;

/// The group's directory and the file of a path below the mount.
fn group_and_file(path: &str) -> Option<(&str, &str)> {
    let inner = path.strip_prefix(MOUNT)?.strip_prefix('/')?;
    Some(inner.rsplit_once('/').unwrap_or(("", inner)))
}

/// A write of the daemon: the durable journal must have the knob's original.
pub fn before_write(state: &mut State, number: u64, offset: u64, bytes: &[u8]) {
    if !state.is_alive() {
        return;
    }
    let path = state.files.path(number);
    note_races(state, &path, bytes);
    let unwatched = unwatched_cpus(state, &path, bytes);
    let wrong = if let Some((group, file)) = group_and_file(&path) {
        of_resctrl(state, group, file, bytes)
    } else if let Some(cpu) = path.strip_prefix("dev/cpu/").and_then(|rest| rest.strip_suffix("/msr")) {
        if offset == picture::WAYS {
            overwrite(state, picture::WAYS_NAME.to_owned());
            state.touched.own.insert((picture::WAYS_NAME.to_owned(), format!("{bytes:x?}")));
        }
        of_register(state, number, cpu.parse().unwrap_or(0), offset as u32, bytes)
    } else if let Some(device) = path.strip_suffix("/config").and_then(|path| path.rsplit('/').next()) {
        if offset == picture::SWITCH.0 {
            let name = picture::port_name(device);
            overwrite(state, name.clone());
            // The picture has the first byte.
            state.touched.own.insert((name, format!("{:x?}", &bytes[..bytes.len().min(1)])));
        }
        of_device(state, number, device, offset, bytes)
    } else {
        Some("no such file may be written".to_owned())
    };
    if let Some(wrong) = wrong.or(unwatched) {
        state.violation(format!(
            "write of {:?} to {path} at {offset:#x}: {wrong}",
            String::from_utf8_lossy(bytes)
        ));
    }
}

/// Notes the CPUs in a write that another program took into its own group after the daemon's last look.
fn note_races(state: &mut State, path: &str, bytes: &[u8]) {
    if !path.ends_with("/cpus_list") {
        return;
    }
    let wanted = picture::cpus(&String::from_utf8_lossy(bytes));
    let names = wanted.iter().map(|cpu| format!("CPU {cpu}"));
    let is_taken = |name: &String| {
        let left = state.touched.values.get(name).and_then(Option::as_ref);
        state.is_unseen(name) && left.is_some_and(|group| !group.is_empty() && !is_ours(group))
    };
    let raced: Vec<String> = names.filter(is_taken).collect();
    state.touched.raced.extend(raced);
}

/// The policy of a running daemon writes a knob. A restore does not count: it must leave another program's value.
fn overwrite(state: &mut State, name: String) {
    if state.mailbox.is_running() {
        state.touched.overwritten.insert(name);
    }
}

fn of_resctrl(state: &State, group: &str, file: &str, bytes: &[u8]) -> Option<String> {
    let journaled = state.journaled();
    // A group inside one of Waykeeper's is made by another program, or recorded itself.
    let ours = is_ours(group);
    let recorded = journaled.has_group(group);
    let text = String::from_utf8_lossy(bytes);
    match file {
        "schemata" if recorded || journaled.has_schemata(group) => None,
        "schemata" => Some("neither the group nor its masks are in the durable journal".to_owned()),
        "cpus_list" | "cpus" => {
            let wanted: BTreeSet<u16> = picture::cpus(&text).into_iter().collect();
            if ours && !recorded && !group.contains("mon_groups") {
                return Some("the group is not in the durable journal".to_owned());
            }
            let moved = group.contains("mon_groups") && !group.rsplit('/').next().is_some_and(is_ours);
            if moved || (!ours && !group.is_empty()) {
                let known = journaled.cpus(group);
                let now: BTreeSet<u16> =
                    picture::cpus(&picture::text(&state.files, &picture::in_group(group, file)))
                        .into_iter()
                        .collect();
                let changed: Vec<&u16> = now.symmetric_difference(&wanted).collect();
                let bad = changed.iter().find(|cpu| !known.contains(cpu));
                return bad.map(|cpu| format!("CPU {cpu} of another program's group is not in the journal"));
            }
            if group.contains("mon_groups") {
                return None;
            }
            taken_cpus(state, group, &wanted)
        }
        "tasks" => {
            let pid: u32 = text.trim().parse().unwrap_or(0);
            if ours && !recorded && !group.contains("mon_groups") {
                return Some("the group is not in the durable journal".to_owned());
            }
            let at = picture::control_groups(&state.files).into_iter().find(|other| {
                let tasks = picture::text(&state.files, &picture::in_group(other, "tasks"));
                tasks.lines().any(|line| line == text.trim())
            })?;
            let corrects = state.history.outsiders == "correct";
            let unseen = corrects || state.is_unseen(&format!("task {pid}"));
            let foreign = !at.is_empty() && !is_ours(&at) && at != group && !unseen;
            if foreign && !journaled.has_task(&at, pid) {
                return Some(format!("task {pid} of {at} is not in the durable journal"));
            }
            let back = !ours && !group.is_empty() && !journaled.has_task(group, pid);
            back.then(|| format!("task {pid} is moved into another program's group"))
        }
        "mode" | "last_cmd_status" | "max_threshold_occupancy" => Some("the daemon never sets it".to_owned()),
        _ => None,
    }
}

/// A CPU that a write takes from another program's monitoring group, and that the journal does not have as that group's.
struct LostCpu {
    /// The control group of the monitoring group; empty for the default group.
    above: String,
    monitor: String,
    cpu: u16,
}

/// The CPUs that other programs' monitoring groups lose by a write without an entry in the journal. The kernel empties the
/// monitoring groups in the written control group. The others lose the written CPUs.
fn lost_cpus(state: &State, path: &str, bytes: &[u8]) -> Vec<LostCpu> {
    let Some((group, "cpus_list" | "cpus")) = group_and_file(path) else { return Vec::new() };
    let wanted = picture::cpus(&String::from_utf8_lossy(bytes));
    let (written, own) = match group.split_once("mon_groups/") {
        Some((above, own)) => (above.trim_end_matches('/'), Some(own)),
        None => (group, None),
    };
    let control = picture::control_groups(&state.files);
    let changed = control.into_iter().filter(|above| own.is_none() || above == written);
    let mut lost = Vec::new();
    for above in changed {
        let monitors = picture::names(&state.files, &picture::in_group(&above, "mon_groups"));
        for monitor in monitors.into_iter().filter(|name| !is_ours(name) && own != Some(name.as_str())) {
            let in_default = format!("mon_groups/{monitor}");
            let place = if above.is_empty() { in_default.clone() } else { format!("{above}/{in_default}") };
            let theirs = picture::cpus(&picture::text(&state.files, &picture::in_group(&place, "cpus_list")));
            let mut known = state.journaled().cpus(&place);
            known.extend(state.journaled().cpus(&in_default));
            let is_emptied = own.is_none() && above == written;
            let cpus = theirs.into_iter().filter(|cpu| is_emptied || wanted.contains(cpu));
            for cpu in cpus.filter(|cpu| !known.contains(cpu)) {
                lost.push(LostCpu { above: above.clone(), monitor: monitor.clone(), cpu });
            }
        }
    }
    lost
}

/// CPUs that a write takes from another program's monitoring group must be in the journal. Those that the other program
/// added between the daemon's reading and its write, without resctrl's lock, are lost: the daemon cannot see them.
fn unwatched_cpus(state: &mut State, path: &str, bytes: &[u8]) -> Option<String> {
    for LostCpu { above, monitor, cpu } in lost_cpus(state, path, bytes) {
        let shown = if above.is_empty() { "default" } else { &above };
        if !state.is_unseen(&format!("monitor {monitor} of {shown}")) {
            return Some(format!(
                "CPU {cpu} of the monitoring group {monitor} of {shown} is not in the journal"
            ));
        }
        if let Some(cpus) = state.touched.watched.get_mut(&monitor) {
            cpus.remove(&format!("CPU {cpu}"));
        }
    }
    None
}

/// CPUs that another program's group loses must be recorded as that group's.
fn taken_cpus(state: &State, group: &str, wanted: &BTreeSet<u16>) -> Option<String> {
    for other in picture::control_groups(&state.files) {
        if other == group || other.is_empty() || is_ours(&other) {
            continue;
        }
        let theirs = picture::cpus(&picture::text(&state.files, &picture::in_group(&other, "cpus_list")));
        let known = state.journaled().cpus(&other);
        // Another program that changes CPUs between the daemon's reading and its write, and does not take the lock, is
        // not seen: resctrl has no other means against that.
        // With `outsiders = "correct"` the daemon takes back what another program took from its groups.
        let corrects = state.history.outsiders == "correct";
        let seen = |cpu: &u16| !corrects && !state.is_unseen(&format!("CPU {cpu}"));
        if let Some(cpu) = theirs.iter().find(|cpu| wanted.contains(cpu) && !known.contains(cpu) && seen(cpu))
        {
            return Some(format!("CPU {cpu} of {other} is not in the durable journal"));
        }
    }
    None
}

fn of_register(state: &State, number: u64, cpu: u16, register: u32, bytes: &[u8]) -> Option<String> {
    let before = state.files.read(number, 0, u64::from(register), 8, CALLER).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    let changed = word(&before)? ^ word(bytes)?;
    let allowed = state.journaled().msr_bits(cpu, cpu / state.cores, register);
    (changed & !allowed != 0)
        .then(|| format!("bits {:#x} are not in the durable journal", changed & !allowed))
}

fn of_device(state: &State, number: u64, device: &str, offset: u64, bytes: &[u8]) -> Option<String> {
    let before = state.files.read(number, 0, offset, bytes.len(), CALLER).ok()?;
    let bad = before
        .iter()
        .zip(bytes)
        .zip(offset..)
        .find(|((before, after), at)| (*before ^ *after) & !state.journaled().pci_bits(device, *at) != 0);
    bad.map(|(_, at)| format!("byte {at:#x} is not in the durable journal"))
}

/// A group that the daemon makes or removes.
pub fn before_directory(state: &mut State, path: &str, act: &str) {
    if !state.is_alive() {
        return;
    }
    let inner = path.strip_prefix(PREFIX).and_then(|path| path.strip_prefix('/')).unwrap_or(path);
    let group = inner.strip_prefix(MOUNT).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
    if !is_ours(group) {
        state.violation(format!("the daemon wants to {act} {path}, which is not its own"));
    } else if !state.journaled().has_group(group) {
        state.violation(format!("the daemon wants to {act} {path}, which is not in the durable journal"));
    }
}

/// All masks are legal for the chip.
pub fn masks(state: &mut State) {
    let full = text_number(&picture::text(&state.files, &format!("{MOUNT}/info/L3/cbm_mask")));
    let least: u32 =
        picture::text(&state.files, &format!("{MOUNT}/info/L3/min_cbm_bits")).trim().parse().unwrap_or(1);
    for group in picture::control_groups(&state.files) {
        let text = picture::text(&state.files, &picture::in_group(&group, "schemata"));
        let line = text.lines().find_map(|line| line.trim().strip_prefix("L3:0="));
        let Some(mask) = line.map(text_number) else { continue };
        let run = mask >> mask.trailing_zeros().min(31);
        if mask & !full != 0 || run & (run + 1) != 0 || mask.count_ones() < least {
            state.violation(format!("group {group:?} has the mask {mask:#x}"));
        }
    }
}

fn text_number(text: &str) -> u32 {
    u32::from_str_radix(text.trim().split(';').next().unwrap_or_default(), 16).unwrap_or(0)
}
