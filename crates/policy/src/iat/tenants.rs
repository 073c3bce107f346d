//! Owners of ways: tenants in slots, with class, first grant and present mask (IAT s4.A, algorithms.md 2.1).
//!
//! A slot is one run of ways and the tenants in it: one tenant, or several that were declared to share ways, as the
//! containers of s6.B do. It must not know counters or thresholds.

use crate::Event;
use crate::isolate::shares::{Partition, partition};
use crate::ways::widest_run;
use waykeeper_host::{LlcGeometry, Priority, Workload, WorkloadKind};
use waykeeper_units::{WayMask, WorkloadId};

/// Class of a slot, lowest first: `Be` shares with DDIO before `Pc`, and the stack last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// Best effort.
    Be,
    /// Performance critical.
    Pc,
    /// The software stack of the aggregation model, with its special priority.
    Stack,
}

/// One run of ways and its tenants.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Slot {
    /// Its tenants, in order.
    pub members: Vec<WorkloadId>,
    /// Their names, for messages.
    pub name: String,
    /// The highest class among them.
    pub class: Class,
    /// Whether any of them does I/O.
    pub is_io: bool,
    /// Number of its first ways; IAT never leaves it with fewer.
    pub grant: u32,
    /// Its ways now.
    pub mask: WayMask,
    /// LLC references per second when it last gained a way.
    pub refs_at_growth: Option<f64>,
}

impl Slot {
    /// Number of its ways.
    pub fn ways(&self) -> u32 {
        self.mask.count()
    }

    /// A slot of `members` at `mask`; at least one member.
    fn new(members: &[&Workload], mask: WayMask) -> Slot {
        let names: Vec<&str> = members.iter().map(|group| group.name.as_str()).collect();
        let class = members.iter().map(|group| class(group)).max().unwrap_or(Class::Be);
        let mut ids: Vec<WorkloadId> = members.iter().map(|group| group.id).collect();
        ids.sort_unstable();
        Slot {
            members: ids,
            name: names.join(" and "),
            class,
            is_io: members.iter().any(|group| group.kind != WorkloadKind::NonIo),
            grant: mask.count(),
            mask,
            refs_at_growth: None,
        }
    }
}

fn class(group: &Workload) -> Class {
    match (group.stack, group.priority) {
        (true, _) => Class::Stack,
        (false, Priority::High) => Class::Pc,
        (false, Priority::Low) => Class::Be,
    }
}

/// All slots, the leftmost (DDIO side) first, and tenants that got no way of their own.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tenants {
    /// Their runs do not overlap.
    pub slots: Vec<Slot>,
    /// Their mask is all ways, as for unmanaged cores.
    pub unplaced: Vec<WorkloadId>,
}

impl Tenants {
    /// First masks of `groups` on a chip whose devices write into `ddio` (LLC Alloc of Fig. 5).
    ///
    /// Declared masks are kept; overlapping ones are joined into one slot. Tenants without one divide the rest, outside
    /// `ddio` where possible, by cores.
    pub fn of(groups: &[Workload], llc: &LlcGeometry, ddio: WayMask, log: &mut Vec<Event>) -> Tenants {
        let mut runs: Vec<(WayMask, Vec<&Workload>)> = Vec::new();
        let mut rest: Vec<&Workload> = Vec::new();
        for group in groups {
            match group.mask.map(|mask| llc.check(mask)) {
                Some(Ok(mask)) => {
                    let (shared, apart): (Vec<_>, Vec<_>) =
                        runs.into_iter().partition(|(other, _)| other.overlaps(mask));
                    let mut run = (mask, Vec::new());
                    for (other, members) in shared {
                        run.0 = run.0.or(other);
                        run.1.extend(members);
                    }
                    run.1.push(group);
                    runs = apart;
                    runs.push(run);
                }
                Some(Err(error)) => {
                    let text = format!("declared mask of {} is not used: {error}", group.name);
                    log.push(event("mask-illegal", Some(&group.name), text));
                    rest.push(group);
                }
                None => rest.push(group),
            }
        }
        let taken = runs.iter().fold(WayMask::EMPTY, |all, (mask, _)| all.or(*mask));
        let min_ways = llc.min_ways.max(1);
        let free = WayMask::full(llc.ways).minus(taken);
        let beside_ddio = widest_run(free.minus(ddio));
        let run = if beside_ddio.count() >= min_ways { beside_ddio } else { widest_run(free) };
        let limit = llc.clos_count.saturating_sub(1 + runs.len() as u32);
        for Partition { mask, members } in partition(&rest, run, min_ways, limit) {
            rest.retain(|group| !members.iter().any(|member| member.id == group.id));
            runs.push((mask, members));
        }
        let mut slots: Vec<Slot> = runs.iter().map(|(mask, members)| Slot::new(members, *mask)).collect();
        slots.sort_by_key(|slot| std::cmp::Reverse(slot.mask.highest()));
        for slot in &slots {
            let text = format!("{} starts with {} ({} ways)", slot.name, slot.mask, slot.ways());
            log.push(event("llc-alloc", Some(&slot.name), text));
        }
        for group in &rest {
            let text = format!("no ways are left for {}; it may allocate everywhere", group.name);
            log.push(event("no-room", Some(&group.name), text));
        }
        Tenants { slots, unplaced: rest.iter().map(|group| group.id).collect() }
    }

    /// The mask of every tenant on a chip of `ways` ways.
    pub fn masks(&self, ways: u32) -> std::collections::BTreeMap<WorkloadId, WayMask> {
        let placed = self.slots.iter().flat_map(|slot| slot.members.iter().map(|id| (*id, slot.mask)));
        placed.chain(self.unplaced.iter().map(|id| (*id, WayMask::full(ways)))).collect()
    }
}

/// An event without causes.
pub(crate) fn event(action: &str, group: Option<&str>, text: String) -> Event {
    Event { action: action.to_owned(), group: group.map(str::to_owned), text, causes: Vec::new() }
}
