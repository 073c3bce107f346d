//! What writes of devices do to the sampled sets: update, allocate in the DCA ways, or pass the LLC.
//!
//! As cores in `play.rs`; must not know which device writes.

use super::{Play, VICTIM_AGE};
use crate::rates::{Flows, PortFlow};
use crate::sets::{EVICT_FIRST, LineKind, OwnerNumber, WayNumber, below};
use rand_core::Rng;

/// A device's new line is not evict-first with this probability (microarchitecture.md 5).
const YOUNG_CHANCE: f64 = 1.0 / 16.0;
/// A device's write makes the circle of its buffers larger or smaller with this probability, while the reader's occupancy is
/// not as counted. Assumption: slow against the circle.
const CIRCLE_CHANCE: f64 = 0.125;
/// A user holds too many lines from this multiple of what was counted. Assumption.
const ENOUGH: f64 = 1.1;
/// How much more likely a device writes to a line that an MLC has evicted than to one that it holds: buffers are used in the
/// order in which they were read. Assumption.
const OLDER_FIRST: usize = 4;

/// What a device's write to a cached line finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WritePlace {
    /// The line is in the LLC: it is updated there.
    Way(WayNumber),
    /// Only an MLC held the line: it is put into the DCA ways of its set.
    Set(u32),
}

impl WritePlace {
    fn way(self) -> Option<WayNumber> {
        if let WritePlace::Way(way) = self { Some(way) } else { None }
    }
}

impl Play {
    /// A device writes a line.
    pub(super) fn device_write(&mut self, flows: &Flows, port: usize) {
        let flow = &flows.ports[port];
        let owner = (self.tenants + port) as OwnerNumber;
        let read = self.chance(flow.read_ratio);
        let kind = if read { LineKind::Plain } else { LineKind::Used };
        let hits = self.chance(flow.hit_ratio);
        let user = self.any_user(flow);
        if !flow.dca {
            if let Some(user) = user.filter(|user| hits && self.holds_more(flows, *user)) {
                self.take_used(user, owner);
            }
            return;
        }
        let place = if hits { self.place_of_write(flows, user, owner) } else { None };
        if let Some(WritePlace::Way(way)) = place {
            self.sets.give(way, owner, kind, true);
            return;
        }
        let age = if self.chance(YOUNG_CHANCE) { VICTIM_AGE } else { EVICT_FIRST };
        let set = match place {
            Some(WritePlace::Set(set)) => set,
            _ => self.any_set(),
        };
        self.insert(usize::from(owner), set, flows.dca_ways, (owner, kind, true, age));
    }

    /// Whether the tenant has more lines here than were counted.
    fn holds_more(&self, flows: &Flows, tenant: usize) -> bool {
        flows.tenants[tenant].held_lines.is_none_or(|held| self.held_lines(tenant) as f64 > held)
    }

    fn any_user(&mut self, flow: &PortFlow) -> Option<usize> {
        let count = flow.users.len() as u32;
        if count == 0 { None } else { Some(flow.users[below(self.random(), count) as usize]) }
    }

    /// The line that a write finds in a cache: data that no core will read, or a line that the user has read.
    /// `None` if the buffers become one line more.
    fn place_of_write(
        &mut self,
        flows: &Flows,
        user: Option<usize>,
        owner: OwnerNumber,
    ) -> Option<WritePlace> {
        let unread = self.sets.lines(owner, LineKind::Used);
        let (in_mlc, in_llc) = user.map_or((0, 0), |user| self.used_lines(user));
        let weight_in_llc = OLDER_FIRST * in_llc;
        let all = (unread + in_mlc + weight_in_llc) as u32;
        let at = below(self.random(), all.max(1)) as usize;
        if at < unread {
            return self.any_line(usize::from(owner), LineKind::Used).map(WritePlace::Way);
        }
        let user = user.filter(|_| all > 0)?;
        // As many lines circulate as let the user hold what was counted.
        let held = flows.tenants[user].held_lines.map(|counted| (counted, self.held_lines(user) as f64));
        if held.is_some_and(|(counted, is)| is < counted) && self.chance(CIRCLE_CHANCE) {
            return None;
        }
        let too_many = held.is_some_and(|(counted, is)| is > ENOUGH * counted);
        if too_many && self.chance(CIRCLE_CHANCE) {
            self.take_held(user);
        }
        if at < unread + weight_in_llc || (too_many && in_llc > 0) {
            return self.any_line(user, LineKind::Used).map(WritePlace::Way);
        }
        self.take_held(user)
    }

    /// Lines that devices wrote and a tenant has read: in its MLCs, and outside the inclusive ways' copies in the LLC.
    fn used_lines(&self, user: usize) -> (usize, usize) {
        (self.held[user].devices(), self.sets.lines(user as OwnerNumber, LineKind::Used))
    }

    /// A line of the user leaves its MLC. Returns the way of its copy, or its set if there is none.
    fn take_held(&mut self, user: usize) -> Option<WritePlace> {
        let (held, rng) = (&mut self.held[user], &mut self.rng);
        let taken = held.take_device(|| rng.next_u32())?;
        let copy = taken.copy.filter(|mark| self.sets.is_there(*mark));
        Some(copy.map_or(WritePlace::Set(taken.set), |(way, _)| WritePlace::Way(way)))
    }

    /// A write past the LLC takes a used line out of all caches.
    fn take_used(&mut self, user: usize, owner: OwnerNumber) {
        let unread = self.any_line(usize::from(owner), LineKind::Plain);
        if let Some(way) = unread {
            self.sets.remove(way);
            return;
        }
        let (in_mlc, in_llc) = self.used_lines(user);
        let way = if (below(self.random(), (in_mlc + in_llc).max(1) as u32) as usize) < in_llc {
            self.any_line(user, LineKind::Used)
        } else {
            self.take_held(user).and_then(WritePlace::way)
        };
        if let Some(way) = way {
            self.sets.remove(way);
        }
    }
}
