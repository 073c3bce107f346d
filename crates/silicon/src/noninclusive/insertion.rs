//! What enters a set of the LLC and what leaves it: insertion, the eviction that it causes, the history of lines that left.
//!
//! Steps that several rows of the transition table share. Must not know which row it is.

use super::Set;
use crate::directory::{Directory, Holder};
use crate::evictions::EvictionReason;
use crate::line::{Line, LineTag};
use crate::mlc;
use crate::shared::{DEVICE_OWNER, Shared};
use crate::ways::{COPY, Chooser, DIRTY, Evicted, IO, MaskLanes, UNCONSUMED, Ways};

/// Frees a way because its line moves elsewhere.
#[inline(always)]
pub(super) fn remove<T: LineTag, const L: usize>(sh: &mut Shared<T>, ways: &mut Ways<T, L>, way: u32) {
    sh.llc_removed(ways.owner(way));
    ways.free(way);
}

/// An MLC victim that the LLC does not take.
#[inline(always)]
pub(super) fn leave<T: LineTag>(sh: &mut Shared<T>, at: usize, line: Line, state: u8) {
    if !T::LATER_RULES {
        return;
    }
    if state & DIRTY != 0 {
        sh.write_back(line);
    }
    if let Some(history) = &mut sh.history {
        history.remember(at, T::of(line));
    }
}

/// What the history says of a line that no cache holds: the flag of proven reuse, or none.
#[inline(always)]
pub(super) fn remembered<T: LineTag>(sh: &mut Shared<T>, at: usize, line: Line) -> u8 {
    if !T::LATER_RULES {
        return 0;
    }
    let Some(history) = &mut sh.history else { return 0 };
    if history.forget(at, T::of(line)) && sh.rules.reuse_flag { mlc::REUSED } else { 0 }
}

/// `insert(mask, class)` of microarchitecture.md 4: an empty way, else the victim of microarchitecture.md 5. A dirty
/// victim is one memory write; the eviction of a `copy` leaves the line in the MLC.
#[inline(always)]
pub(super) fn insert<T: LineTag, const L: usize>(
    sh: &mut Shared<T>,
    set: &mut Set<T, L>,
    recency: &mut [[u8; 32]],
    at: usize,
    line: Line,
    mask: &MaskLanes<L>,
    (state, owner, why): (u8, u8, EvictionReason),
) {
    let is_device = T::LATER_RULES && owner >= DEVICE_OWNER;
    let kind = if is_device { sh.device_replacement } else { sh.rules.replacement };
    let mut rule = Chooser { kind, rng: &mut sh.rng, recency };
    let gone = set.ways.insert(mask, (T::of(line), state, owner), &mut rule, at);
    sh.llc_filled(owner);
    if let Some(gone) = gone {
        evicted(sh, &set.directory, at, line, gone, why);
    }
}

/// Inserts a copy of a line that an MLC holds into the inclusive ways: into the way `spare` if there is one, else
/// with probability `p_force`. Returns whether it was inserted.
#[inline(always)]
pub(super) fn insert_copy<T: LineTag, const L: usize>(
    sh: &mut Shared<T>,
    set: &mut Set<T, L>,
    recency: &mut [[u8; 32]],
    at: usize,
    line: Line,
    (inclusive, spare): (&MaskLanes<L>, Option<u32>),
    (state, owner, why): (u8, u8, EvictionReason),
) -> bool {
    if !sh.rules.copies_spare_io {
        // A migrated copy may displace nothing of value, a read-allocated one may.
        let put = state & IO == 0 || set.ways.has_room(inclusive) || sh.p_force.hits(sh.random());
        if put {
            insert(sh, set, recency, at, line, inclusive, (state, owner, why));
        }
        return put;
    }
    match spare {
        Some(way) => put(sh, set, recency, at, line, way, (state, owner, why)),
        None if sh.p_force.hits(sh.random()) => {
            insert(sh, set, recency, at, line, inclusive, (state, owner, why));
        }
        None => return false,
    }
    true
}

/// Replaces the line of a way.
#[inline(always)]
pub(super) fn put<T: LineTag, const L: usize>(
    sh: &mut Shared<T>,
    set: &mut Set<T, L>,
    recency: &mut [[u8; 32]],
    at: usize,
    line: Line,
    way: u32,
    (state, owner, why): (u8, u8, EvictionReason),
) {
    let mut rule = Chooser { kind: sh.rules.replacement, rng: &mut sh.rng, recency };
    let gone = set.ways.put(way, (T::of(line), state, owner), &mut rule, at);
    sh.llc_filled(owner);
    if let Some(gone) = gone {
        evicted(sh, &set.directory, at, line, gone, why);
    }
}

/// Counts an eviction. The core whose MLC holds a line owns its copy; any other line belongs to its recorded owner,
/// and so does unread device data.
#[inline(always)]
pub(super) fn evicted<T: LineTag>(
    sh: &mut Shared<T>,
    directory: &Directory<T>,
    at: usize,
    near: Line,
    gone: Evicted<T>,
    why: EvictionReason,
) {
    if T::LATER_RULES
        && let Some(history) = &mut sh.history
        && gone.state & (COPY | UNCONSUMED) == 0
    {
        history.remember(at, gone.tag);
    }
    let copied = gone.state & (COPY | UNCONSUMED) == COPY;
    let of = if copied { holder_of(sh, directory, gone.tag.in_set_of(near)) } else { None };
    sh.llc_evicted(near, gone, of.unwrap_or(gone.owner), why);
}

/// The group of the core whose MLC holds a line; of several cores the first.
#[inline(never)]
pub(super) fn holder_of<T: LineTag>(sh: &Shared<T>, directory: &Directory<T>, line: Line) -> Option<u8> {
    let core = match directory.holder(T::of(line))? {
        Holder::One { core, .. } => core,
        Holder::Several => {
            (0..sh.cores()).find(|core| sh.mlc_ref(*core, T::set(line)).find(T::of(line)).is_some())?
        }
    };
    Some(sh.group_of[core])
}
