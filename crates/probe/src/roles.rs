//! Roles of the groups: I/O applications, for which devices write, and co-runners, whose masks slide over the cache.
//!
//! Chosen by the operator's names, otherwise by declared kind and counters. Must not know the use of the roles.

use crate::experiment::{ProbeError, ProbeExperiment};
use waykeeper_host::{Interval, Workload, WorkloadCounter, WorkloadKind};
use waykeeper_units::WorkloadId;

/// Names that the operator gave.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Named {
    /// The I/O application.
    pub io: Option<String>,
    /// The co-runner.
    pub victim: Option<String>,
}

/// The groups in each role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roles {
    /// The I/O applications.
    pub io: Vec<WorkloadId>,
    /// The co-runner with the most LLC misses.
    pub highest_miss_corunner: WorkloadId,
    /// Of the other co-runners, that with the most LLC references; `highest_miss_corunner` if there is no other.
    pub victim: WorkloadId,
}

/// Why roles cannot be assigned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoleError {
    /// An unknown name.
    #[error("unknown tenant `{name}`; known are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Names of the running groups.
        known: String,
    },
    /// There is no group without a device.
    #[error("no co-runner: every tenant owns a device; add a tenant without devices")]
    NoVictim,
}

/// Checks names before the measurement.
///
/// # Errors
/// [`RoleError::Unknown`].
pub fn check(groups: &[Workload], named: &Named) -> Result<(), RoleError> {
    let find = |name: &Option<String>| match name {
        Some(name) if !groups.iter().any(|group| group.name == *name) => {
            let known: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
            Err(RoleError::Unknown { name: name.clone(), known: known.join(", ") })
        }
        _ => Ok(()),
    };
    find(&named.io).and_then(|()| find(&named.victim))
}

/// Assigns the roles by names, declared kinds and samples of the counters.
///
/// # Errors
/// Host errors; the inner error if roles cannot be assigned.
pub fn cast(
    experiment: &mut ProbeExperiment<'_>,
    named: &Named,
) -> Result<Result<Roles, RoleError>, ProbeError> {
    let groups = experiment.workloads();
    if let Err(error) = check(&groups, named) {
        return Ok(Err(error));
    }
    let by_name = |name: &Option<String>| {
        let name = name.as_ref()?;
        groups.iter().find(|group| group.name == *name).map(|group| group.id)
    };
    let io = match by_name(&named.io) {
        Some(io) => vec![io],
        None => {
            groups.iter().filter(|group| group.kind != WorkloadKind::NonIo).map(|group| group.id).collect()
        }
    };
    if let Some(victim) = by_name(&named.victim) {
        return Ok(Ok(Roles { io, highest_miss_corunner: victim, victim }));
    }
    let others = groups.iter().filter(|group| group.kind == WorkloadKind::NonIo && !io.contains(&group.id));
    let others: Vec<WorkloadId> = others.map(|group| group.id).collect();
    let highest_miss_corunner = match others.as_slice() {
        [] => return Ok(Err(RoleError::NoVictim)),
        [only] => return Ok(Ok(Roles { io, highest_miss_corunner: *only, victim: *only })),
        _ => {
            let seen = experiment.settle_and_sample()?;
            most(&others, |group| misses(&seen, group))
        }
    };
    let rest: Vec<WorkloadId> = others.into_iter().filter(|group| *group != highest_miss_corunner).collect();
    let seen = experiment.sample()?;
    Ok(Ok(Roles { io, highest_miss_corunner, victim: most(&rest, |group| references(&seen, group)) }))
}

fn misses(seen: &Interval, group: WorkloadId) -> f64 {
    seen.groups.get(&group).and_then(|rates| rates[WorkloadCounter::LlcMisses].value()).unwrap_or(0.0)
}

fn references(seen: &Interval, group: WorkloadId) -> f64 {
    seen.groups.get(&group).and_then(|rates| rates.llc_references()).unwrap_or(0.0)
}

/// The group with the highest number; the first if several have it.
fn most(groups: &[WorkloadId], number: impl Fn(WorkloadId) -> f64) -> WorkloadId {
    let best =
        groups.iter().copied().reduce(|best, next| if number(next) > number(best) { next } else { best });
    best.unwrap_or(WorkloadId(0))
}
