//! Plays the rates of an interval on the sampled sets and counts who evicts whose lines.
//!
//! Each event is one access, drawn by its rate; what it does is a row of microarchitecture.md 4. Knows rates per tenant and
//! port and the rules of LLCs; must not know counters, names or what is reported. Writes of devices are in
//! `play/devices.rs`.

mod devices;

use crate::mlc::{HeldLine, HeldLines, Origin};
use crate::rates::{Flows, PortFlow, TenantFlow};
use crate::sets::{EVICT_FIRST, GoneLine, LineKind, OwnerNumber, SampledSets, WayNumber, below};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use waykeeper_units::WayMask;

/// Kinds of events of a tenant, in the order of its flows.
const TENANT_EVENTS: usize = 4;

/// An MLC victim that was only read once is put into the LLC with this probability (microarchitecture.md 4).
const INSERT_CHANCE: f64 = 0.25;
/// A copy that must displace something of value is made with this probability (microarchitecture.md 4).
const FORCE_CHANCE: f64 = 0.125;
/// Age of an MLC victim, and of one with proven reuse (microarchitecture.md 5).
const VICTIM_AGE: u8 = 1;
const REUSED_AGE: u8 = 0;
/// The part of a tenant's lines from memory that it writes, where occupancy says nothing else. Assumption.
const FIRST_WRITTEN: f64 = 0.3;
/// How much that part changes when the lines held differ by their whole number. Assumption: slow against one play.
const WRITTEN_STEP: f64 = 0.02;

/// The sampled sets with all that is in them and in the MLCs.
#[derive(Clone, Debug)]
pub(crate) struct Play {
    sets: SampledSets,
    held: Vec<HeldLines>,
    /// Per tenant, the part of its lines from memory that it writes.
    written: Vec<f64>,
    tenants: usize,
    owners: usize,
    rng: Xoshiro256PlusPlus,
    /// Lines per evictor and owner: the counts, evictor by evictor.
    evicted: Vec<f64>,
}

impl Play {
    pub fn new(ways: u32, sets: u32, mlc_lines: &[usize], ports: usize) -> Play {
        let owners = mlc_lines.len() + ports;
        Play {
            sets: SampledSets::new(ways, sets, owners),
            held: mlc_lines.iter().map(|lines| HeldLines::new(*lines)).collect(),
            written: vec![FIRST_WRITTEN; mlc_lines.len()],
            tenants: mlc_lines.len(),
            owners,
            rng: Xoshiro256PlusPlus::seed_from_u64(0),
            evicted: vec![0.0; owners * owners],
        }
    }

    /// Lines of `of` that `by` evicted since the counts were cleared.
    pub fn evicted(&self, by: usize, of: usize) -> f64 {
        self.evicted[by * self.owners + of]
    }

    /// Forgets this part of the counts.
    pub fn forget(&mut self, part: f64) {
        self.evicted.iter_mut().for_each(|count| *count *= 1.0 - part);
    }

    /// Lines of a tenant in the sampled sets.
    pub fn held_lines(&self, tenant: usize) -> usize {
        let owner = tenant as OwnerNumber;
        self.sets.lines(owner, LineKind::Plain) + self.sets.lines(owner, LineKind::Used)
    }

    /// Plays `events` accesses. Returns the seconds that they take on all sets of which these are one.
    pub fn run(&mut self, flows: &Flows, events: usize) -> f64 {
        let mut sums = flows.rates();
        let mut sum = 0.0;
        for rate in &mut sums {
            sum += rate.max(0.0);
            *rate = sum;
        }
        if sum <= 0.0 {
            return 0.0;
        }
        for _ in 0..events {
            let at = self.chance_value() * sum;
            let event = sums.partition_point(|upto| *upto <= at).min(sums.len() - 1);
            match event.checked_sub(TENANT_EVENTS * flows.tenants.len()) {
                None => self.tenant(flows, event / TENANT_EVENTS, event % TENANT_EVENTS),
                Some(port) => self.device_write(flows, port),
            }
        }
        events as f64 / sum
    }

    fn random(&mut self) -> u32 {
        self.rng.next_u32()
    }

    /// 0 to 1, without 1.
    fn chance_value(&mut self) -> f64 {
        f64::from(self.random()) / (f64::from(u32::MAX) + 1.0)
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.chance_value() < probability
    }

    fn any_set(&mut self) -> u32 {
        below(self.random(), self.sets.count())
    }

    fn any_line(&mut self, owner: usize, kind: LineKind) -> Option<WayNumber> {
        let random = self.random();
        self.sets.any(owner as OwnerNumber, kind, random)
    }

    fn count(&mut self, by: usize, gone: Option<GoneLine>) {
        if let Some(gone) = gone {
            let place = by * self.owners + usize::from(gone.owner);
            self.evicted[place] += 1.0;
        }
    }

    fn insert(&mut self, by: usize, set: u32, mask: WayMask, line: (OwnerNumber, LineKind, bool, u8)) {
        if let Some((_, gone)) = self.sets.insert(set, mask, line) {
            self.count(by, gone);
        }
    }

    fn tenant(&mut self, flows: &Flows, tenant: usize, event: usize) {
        match flows.inclusive_ways {
            Some(inclusive) => self.in_exclusive(flows, tenant, event, inclusive),
            None => self.in_inclusive(flows, tenant, event),
        }
    }

    /// An access to an LLC that is exclusive but for its inclusive ways.
    fn in_exclusive(&mut self, flows: &Flows, tenant: usize, event: usize, inclusive: WayMask) {
        let flow = &flows.tenants[tenant];
        let (origin, set) = match event {
            0 => {
                let set = match self.any_line(tenant, LineKind::Plain) {
                    Some(way) => {
                        self.sets.remove(way);
                        self.sets.set_of(way)
                    }
                    None => self.any_set(),
                };
                (Origin::Reused, set)
            }
            1 => {
                self.adjust_written(flow, tenant);
                let written = self.chance(self.written[tenant]);
                (if written { Origin::Written } else { Origin::Clean }, self.any_set())
            }
            2 => return self.read_device(flows, tenant, inclusive),
            _ => (Origin::Lost, self.any_set()),
        };
        self.store(flow, tenant, HeldLine { origin, set, copy: None });
    }

    /// An access to an LLC that has each line of the MLCs: hits stay, misses allocate.
    fn in_inclusive(&mut self, flows: &Flows, tenant: usize, event: usize) {
        let flow = &flows.tenants[tenant];
        let owner = tenant as OwnerNumber;
        match event {
            0 => {
                if let Some(way) = self.any_line(tenant, LineKind::Plain) {
                    self.sets.promote(way);
                }
            }
            2 => {
                if let Some((_, way)) = self.any_unread(flow, &flows.ports) {
                    self.sets.give(way, owner, LineKind::Used, false);
                    self.sets.promote(way);
                }
            }
            _ => {
                let kind = if event == 1 { LineKind::Plain } else { LineKind::Used };
                let set = self.any_set();
                self.insert(tenant, set, flow.mask, (owner, kind, false, VICTIM_AGE));
            }
        }
    }

    /// Approaches the lines that the tenant was counted to hold.
    fn adjust_written(&mut self, flow: &TenantFlow, tenant: usize) {
        let Some(held) = flow.held_lines else { return };
        let lack = (held - self.held_lines(tenant) as f64) / held.max(1.0);
        let written = &mut self.written[tenant];
        *written = (*written + WRITTEN_STEP * lack.clamp(-1.0, 1.0)).clamp(0.0, 1.0);
    }

    /// Unread data of one of the tenant's devices.
    fn any_unread(&mut self, flow: &TenantFlow, ports: &[PortFlow]) -> Option<(usize, WayNumber)> {
        let cached = || flow.ports_with_lines.iter().filter(|(port, _)| ports[*port].dca);
        let mut at = self.chance_value() * cached().map(|(_, lines)| lines).sum::<f64>();
        let mut found = None;
        for (port, lines) in cached() {
            found = Some(*port);
            at -= lines;
            if at < 0.0 {
                break;
            }
        }
        let port = found?;
        Some((port, self.any_line(self.tenants + port, LineKind::Plain)?))
    }

    /// A core reads device data from the LLC: in the inclusive ways the line stays, from others it migrates.
    fn read_device(&mut self, flows: &Flows, tenant: usize, inclusive: WayMask) {
        let flow = &flows.tenants[tenant];
        let owner = tenant as OwnerNumber;
        let Some((port, way)) = self.any_unread(flow, &flows.ports) else { return };
        let is_written = flows.ports[port].is_written;
        if inclusive.contains(self.sets.bit(way)) && !is_written {
            self.sets.give(way, owner, LineKind::Copy, true);
            self.sets.promote(way);
            let (set, copy) = (self.sets.set_of(way), Some(self.sets.mark(way)));
            self.store(flow, tenant, HeldLine { origin: Origin::Device, set, copy });
            return;
        }
        let set = self.sets.set_of(way);
        self.sets.remove(way);
        let mut copy = if is_written { None } else { self.copy(tenant, tenant, set, inclusive) };
        // The device reads what only the MLC holds.
        if copy.is_none() && self.chance(flows.ports[port].sent_ratio) {
            copy = self.copy(self.tenants + port, tenant, set, inclusive);
        }
        self.store(flow, tenant, HeldLine { origin: Origin::Device, set, copy });
    }

    /// Puts a copy of a line of `reader` into the inclusive ways.
    fn copy(&mut self, by: usize, reader: usize, set: u32, inclusive: WayMask) -> Option<(WayNumber, u32)> {
        let owner = reader as OwnerNumber;
        let way = match self.sets.spare_for_copy(set, inclusive) {
            Some(way) => {
                let gone = self.sets.put_copy(way, owner);
                self.count(by, gone);
                way
            }
            None if self.chance(FORCE_CHANCE) => {
                let line = (owner, LineKind::Copy, true, EVICT_FIRST);
                let (way, gone) = self.sets.insert(set, inclusive, line)?;
                self.count(by, gone);
                way
            }
            None => return None,
        };
        Some(self.sets.mark(way))
    }

    /// An MLC of the tenant gets a line and evicts another.
    fn store(&mut self, flow: &TenantFlow, tenant: usize, line: HeldLine) {
        let Some(leaves) = self.held[tenant].store(line) else { return };
        let owner = tenant as OwnerNumber;
        let copy = leaves.copy.filter(|mark| self.sets.is_there(*mark));
        if let Some((way, _)) = copy {
            self.sets.remove(way);
        }
        let set = leaves.set;
        let line = match leaves.origin {
            Origin::Reused => (owner, LineKind::Plain, false, REUSED_AGE),
            Origin::Written => (owner, LineKind::Plain, false, VICTIM_AGE),
            Origin::Device => (owner, LineKind::Used, false, VICTIM_AGE),
            Origin::Clean if self.chance(INSERT_CHANCE) => (owner, LineKind::Plain, false, VICTIM_AGE),
            Origin::Lost
                if copy.is_some() || (self.chance(INSERT_CHANCE) && self.sets.has_room(set, flow.mask)) =>
            {
                (owner, LineKind::Used, false, VICTIM_AGE)
            }
            Origin::Clean | Origin::Lost => return,
        };
        self.insert(tenant, set, flow.mask, line);
    }
}
