//! Other programs that use the same knobs or counters, and leftovers of an earlier run of Waykeeper.
//!
//! Reads lock files, counter controls and our journal. Must not know how a result is used.

use super::allocation;
use super::facts::Facts;
use super::file;
use super::report::{Check, CheckState, check};
use std::path::Path;
use waykeeper_kernel::journal::{self, HandOver};
use waykeeper_kernel::resctrl::holder_in;
use waykeeper_kernel::root::Root;

/// Paths of libpqos's lock file: `/var/lock` is a link to `/run/lock` on most distributions (cmt-cat:lib/api.c).
const PQOS_LOCKS: [&str; 2] = ["run/lock/libpqos", "var/lock/libpqos"];

/// All checks of this family.
pub(super) fn checks(facts: &Facts<'_>) -> Vec<Check> {
    let mut checks = allocation::others(facts);
    checks.extend([pqos(facts), counters_in_use(facts), journal(facts)]);
    checks
}

fn pqos(facts: &Facts<'_>) -> Check {
    let name = "pqos-lock";
    let Some(path) = PQOS_LOCKS.iter().map(|path| facts.root.path(path)).find(|path| path.exists()) else {
        return check(name, CheckState::Ok, "pqos is not running");
    };
    let Ok(Some(locks)) = file::text(facts.root, "proc/locks") else {
        return check(name, CheckState::Unknown, "pqos ran here; whether it does now, proc/locks would tell");
    };
    match held_by(facts.root, &locks, &path) {
        Some(pid) => check(name, CheckState::Degraded, format!("pqos (pid {pid}) holds {}", path.display()))
            .remedy("let it finish or end it: libpqos and Waykeeper must not turn the same knobs"),
        None => check(name, CheckState::Ok, "pqos ran here and has ended"),
    }
}

/// The process that holds a lock of any kind on a file.
fn held_by(root: &Root, locks: &str, path: &Path) -> Option<u32> {
    holder_in(locks, &root.system().metadata(path).ok()?, &["POSIX", "FLOCK", "OFDLCK"])
}

/// Whether counter controls of the first CPU are enabled. Those of the kernel itself (NMI watchdog, perf) count too:
/// an MSR does not show its writer.
fn counters_in_use(facts: &Facts<'_>) -> Check {
    let name = "counters-in-use";
    let Some(generation) = facts.generation else {
        return check(
            name,
            CheckState::Unknown,
            "no built-in table for this CPU says where the counter controls are",
        );
    };
    let (Ok(()), Some(cpu)) = (&facts.msr, facts.first_cpu()) else {
        return check(name, CheckState::Unknown, "needs MSRs");
    };
    let registers = &generation.core.registers;
    let mut on = Vec::new();
    for index in 0..generation.core.counters {
        let address = registers.select + u32::from(index) * registers.step;
        match facts.read_msr(cpu, address) {
            // SDM vol. 3, IA32_PERFEVTSELx: bit 22 is the enable bit; AMD's PERF_CTLx has it in the same place.
            Ok(value) if value >> 22 & 1 == 1 => on.push(index.to_string()),
            Ok(_) => {}
            Err(why) => return check(name, CheckState::Unknown, why),
        }
    }
    if on.is_empty() {
        return check(name, CheckState::Ok, format!("no programmable counter of CPU {} runs", cpu.0));
    }
    let all = generation.core.counters;
    check(
        name,
        CheckState::Info,
        format!("programmable counters {} of {all} run on CPU {}", on.join(", "), cpu.0),
    )
    .remedy(
        "perf, the NMI watchdog or another tool uses them; end it if Waykeeper has to program \
            counters through MSRs",
    )
}

fn journal(facts: &Facts<'_>) -> Check {
    let name = "journal";
    let path = journal::usual_path(facts.root);
    let look = match journal::summarize(&path, facts.root) {
        Ok(Some(look)) => look,
        Ok(None) => return check(name, CheckState::Ok, "no knob has to be restored"),
        Err(error) => return check(name, CheckState::Unknown, error),
    };
    let unproved = look.unproved.first().map(|first| {
        let more = look.unproved.len() - 1;
        let more = if more > 0 { format!(" (and {more} more lines)") } else { String::new() };
        format!("a journal was damaged or lost since the boot: {first}{more}")
    });
    let look_yourself = || {
        let file = path.with_file_name(format!("{}.unproved", file_name(&path)));
        format!("compare these knobs with what they should be, then remove {}", file.display())
    };
    if let Some(holder) = look.held {
        let pid = holder.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        let value = format!("a waykeeper process{pid} is running and holds {} knobs", look.originals.len());
        return match unproved {
            Some(why) => check(name, CheckState::Degraded, format!("{value}; {why}")).remedy(look_yourself()),
            None => check(name, CheckState::Info, value),
        };
    }
    if look.stale {
        let value = format!("{} is from an earlier boot", path.display());
        return check(name, CheckState::Degraded, value).remedy("run `waykeeper restore` to clear it");
    }
    if let Some(damage) = look.damage.first() {
        let value = format!("{} is damaged: {damage}", path.display());
        return check(name, CheckState::Degraded, value)
            .remedy("run `waykeeper restore`, which restores what is intact and says what is not");
    }
    if look.originals.is_empty() {
        return match unproved {
            Some(why) => check(name, CheckState::Degraded, why).remedy(look_yourself()),
            None => check(name, CheckState::Ok, "no knob has to be restored"),
        };
    }
    if let Some(mark) = &look.hand_over {
        return handed_over(facts, &path, mark, look.originals.len());
    }
    let value = format!(
        "{} holds the original values of {} knobs, and no waykeeper process is running",
        path.display(),
        look.originals.len()
    );
    check(name, CheckState::Degraded, value).remedy("waykeeper restore")
}

/// A daemon left its knobs to the next one, which is not there yet.
fn handed_over(facts: &Facts<'_>, path: &Path, mark: &HandOver, knobs: usize) -> Check {
    let (waits, remedy) = match mark.time_left(facts.root.system().now()) {
        Some(left) => (
            format!("which has {} s to start", left.as_secs()),
            "start the daemon; `waykeeper restore` restores the knobs instead",
        ),
        None => ("which did not start in time".to_owned(), "waykeeper restore"),
    };
    let value =
        format!("a daemon that ended left {knobs} knobs in {} to the next one, {waits}", path.display());
    check("journal", CheckState::Degraded, value).remedy(remedy)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
