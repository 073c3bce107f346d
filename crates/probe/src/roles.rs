//! Who plays which part: the applications that devices write for, and the co-runners whose ways are slid over the cache.
//!
//! Chosen by what the operator named, else by declared kind and by counters. Must not know what the parts are for.

use crate::stand::{ProbeError, Stand};
use waykeeper_host::{Group, Interval, WorkloadKind};
use waykeeper_units::GroupId;

/// What the operator named.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Named {
    /// The I/O application.
    pub io: Option<String>,
    /// The co-runner.
    pub victim: Option<String>,
}

/// The cast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roles {
    /// Applications that devices write for.
    pub io: Vec<GroupId>,
    /// The co-runner that presses hardest on the cache.
    pub presser: GroupId,
    /// The co-runner that feels most what others do to it; the same one if there is one only.
    pub victim: GroupId,
}

/// Why there is no cast.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoleError {
    /// A name that no group has.
    #[error("unknown tenant `{name}`; known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that run.
        known: String,
    },
    /// Nobody computes beside the I/O.
    #[error("no co-runner: every tenant owns a device; add a tenant without devices")]
    NoVictim,
}

/// Checks names before anything is measured.
///
/// # Errors
/// [`RoleError::Unknown`].
pub fn check(groups: &[Group], named: &Named) -> Result<(), RoleError> {
    let find = |name: &Option<String>| match name {
        Some(name) if !groups.iter().any(|group| group.name == *name) => {
            let known: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
            Err(RoleError::Unknown { name: name.clone(), known: known.join(", ") })
        }
        _ => Ok(()),
    };
    find(&named.io).and_then(|()| find(&named.victim))
}

/// The cast, from names, declared kinds and one look at the counters.
///
/// # Errors
/// The host; the inner one if there is no cast.
pub fn cast(stand: &mut Stand<'_>, named: &Named) -> Result<Result<Roles, RoleError>, ProbeError> {
    let groups = stand.groups();
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
        return Ok(Ok(Roles { io, presser: victim, victim }));
    }
    let others = groups.iter().filter(|group| group.kind == WorkloadKind::NonIo && !io.contains(&group.id));
    let others: Vec<GroupId> = others.map(|group| group.id).collect();
    let presser = match others.as_slice() {
        [] => return Ok(Err(RoleError::NoVictim)),
        [only] => return Ok(Ok(Roles { io, presser: *only, victim: *only })),
        _ => {
            let seen = stand.look()?;
            most(&others, |group| misses(&seen, group))
        }
    };
    let rest: Vec<GroupId> = others.into_iter().filter(|group| *group != presser).collect();
    let seen = stand.sample()?;
    Ok(Ok(Roles { io, presser, victim: most(&rest, |group| references(&seen, group)) }))
}

fn misses(seen: &Interval, group: GroupId) -> f64 {
    seen.groups.get(&group).and_then(|rates| rates.llc_misses.value()).unwrap_or(0.0)
}

fn references(seen: &Interval, group: GroupId) -> f64 {
    seen.groups.get(&group).and_then(|rates| rates.llc_references()).unwrap_or(0.0)
}

/// The first of those with the highest number.
fn most(groups: &[GroupId], number: impl Fn(GroupId) -> f64) -> GroupId {
    let best =
        groups.iter().copied().reduce(|best, next| if number(next) > number(best) { next } else { best });
    best.unwrap_or(GroupId(0))
}
