//! Checks of a plan that need no target: numbers within bounds, and no option without an effect.
//!
//! Knows plans; must not know targets, nor permission to load them.

use crate::plan::{EngineKind, LoadPlan, Touch};
use waykeeper_load::{BudgetRule, LoadLimits, MOST_DEPTH, MOST_WORKERS, Pattern};

/// Maximum outstanding commands of all threads. Each takes one or two KiB of kernel memory (request, pages, completion)
/// in addition to its data; more could exhaust the memory. A guess.
const MOST_OUTSTANDING: u64 = 1 << 18;

/// An invalid plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// An invalid value, or one that the target does not support.
    #[error("{option} is {value}; {wanted}")]
    Value {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
        /// Accepted values.
        wanted: String,
    },
    /// An option without an effect for this pattern.
    #[error("{option} has no meaning for the pattern {pattern}; leave it out, or take another pattern")]
    Stray {
        /// The option.
        option: &'static str,
        /// The pattern.
        pattern: &'static str,
    },
}

/// Checks a plan for any target, also in simulated time.
///
/// # Errors
/// If a value is invalid, or an option has no effect together with the others.
pub fn check(plan: &LoadPlan) -> Result<(), PlanError> {
    let value = |option, value: &dyn ToString, wanted: &str| {
        Err(PlanError::Value { option, value: value.to_string(), wanted: wanted.to_owned() })
    };
    if plan.depth == 0 || plan.depth > MOST_DEPTH {
        return value(
            "--depth",
            &plan.depth,
            &format!("it must be 1 to {MOST_DEPTH} outstanding commands per worker"),
        );
    }
    if plan.workers == 0 || plan.workers > MOST_WORKERS {
        return value("--workers", &plan.workers, &format!("it must be 1 to {MOST_WORKERS}"));
    }
    let outstanding = u64::from(plan.depth) * u64::from(plan.workers);
    if outstanding > MOST_OUTSTANDING {
        let wanted = format!(
            "with --workers {} that makes {outstanding} outstanding commands, and at most {MOST_OUTSTANDING} \
             are possible",
            plan.workers
        );
        return value("--depth", &plan.depth, &wanted);
    }
    if plan.slots == 0 || plan.slots > 1_000_000 {
        return value("--slots", &plan.slots, "it must be 1 to 1000000 slots per second");
    }
    for (option, limit) in [("--limit-bytes", plan.limit_bytes), ("--limit-commands", plan.limit_commands)] {
        match limit {
            Some(limit) if !(limit.is_finite() && limit > 0.0) => {
                return value(option, &limit, "it must be above 0; leave it out for no limit");
            }
            _ => {}
        }
    }
    if plan.mixed.is_some() && plan.verify {
        let wanted = "data that is read and written at the same time cannot be verified; leave it out";
        return value("--verify", &"given with a mixed `rw`", wanted);
    }
    if plan.commands == Some(0) {
        return value("--commands", &0, "it must be at least 1");
    }
    if plan.blocks == Some(0) {
        return value("--blocks", &0, "it must be at least 1");
    }
    // An option without an effect is an error, because the user expects one.
    let name = plan.pattern.name();
    let stray = [
        ("--verify", plan.verify, plan.pattern.moves()),
        ("--touch", plan.touch != Touch::Never, plan.pattern.moves()),
        ("--blocks", plan.blocks.is_some(), plan.pattern.moves()),
        ("--limit-bytes", plan.limit_bytes.is_some(), plan.pattern.moves()),
        ("--commands", plan.commands.is_some(), plan.pattern != Pattern::Noop),
        ("--limit-commands", plan.limit_commands.is_some(), plan.pattern != Pattern::Noop),
        ("--stride", plan.stride != 1, plan.pattern == Pattern::Packets),
        ("--max-blocks", plan.max_blocks.is_some(), matches!(plan.pattern, Pattern::Random | Pattern::Full)),
    ];
    if let Some((option, ..)) = stray.into_iter().find(|(_, is_said, has_meaning)| *is_said && !has_meaning) {
        return Err(PlanError::Stray { option, pattern: name });
    }
    if plan.limit_bytes.is_none() && plan.limit_commands.is_none() {
        if plan.slots != 1 {
            let wanted = "it divides --limit-commands or --limit-bytes into slots, and neither is given";
            return value("--slots", &plan.slots, wanted);
        }
        if plan.catch_up {
            let wanted =
                "it makes up for missed slots of --limit-commands or --limit-bytes, and neither is given";
            return value("--catch-up", &"given", wanted);
        }
    }
    if plan.catch_up && plan.thesis {
        let wanted = "--profile thesis drops what a slot did not use; leave one of the two out";
        return value("--catch-up", &"given", wanted);
    }
    if let Some(cpu) = plan.cpus.iter().find(|cpu| **cpu as usize >= rustix::thread::CpuSet::MAX_CPU) {
        return value("--cpus", cpu, "it must be a CPU from 0 to 1023");
    }
    Ok(())
}

/// The rate limits of a plan, in blocks of `block_bytes` bytes.
pub fn limits(plan: &LoadPlan, block_bytes: u32) -> LoadLimits {
    LoadLimits {
        blocks: plan.limit_bytes.map(|bytes| bytes / f64::from(block_bytes)),
        commands: plan.limit_commands,
        slots: plan.slots,
        rule: match (plan.thesis, plan.catch_up) {
            (true, _) => BudgetRule::Thesis,
            (false, true) => BudgetRule::CatchUp,
            (false, false) => BudgetRule::Exact,
        },
    }
}

/// Refuses flushes that the kernel would merge. It combines outstanding flushes of a file or block device, so fewer
/// reach the drive than are counted: 2000 at depth 16 became 600. NVMe passthrough commands are not merged.
pub fn alone(plan: &LoadPlan, engine: EngineKind) -> Result<(), PlanError> {
    let words = [("--depth", plan.depth), ("--workers", plan.workers)];
    let more = words.into_iter().find(|(_, count)| *count > 1);
    match more.filter(|_| plan.pattern == Pattern::Flush && engine == EngineKind::Uring) {
        None => Ok(()),
        Some((option, value)) => {
            let wanted = "for files and block devices the kernel merges flushes that are outstanding \
                together; leave it out, or give an NVMe namespace";
            Err(PlanError::Value { option, value: value.to_string(), wanted: wanted.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_dealt_out_as_the_plan_says() {
        let of = |thesis, catch_up| {
            limits(
                &LoadPlan { thesis, catch_up, limit_bytes: Some(8192.0), slots: 7, ..LoadPlan::default() },
                4096,
            )
        };
        let wanted = |rule| LoadLimits { blocks: Some(2.0), commands: None, slots: 7, rule };
        assert_eq!(of(false, false), wanted(BudgetRule::Exact));
        assert_eq!(of(false, true), wanted(BudgetRule::CatchUp));
        assert_eq!(of(true, false), wanted(BudgetRule::Thesis));
    }
}
