//! The calibrator: intervals of counters in, a description of the server out. It must not know a model, nor who uses the
//! description.

use crate::cost::{CycleCosts, Stall};
use crate::layout_record::{LayoutRecord, TenantMeans, hits_of, rates_of};
use crate::reuse::{Point, Profile};
use crate::{
    DeviceDescription, Estimate, PortDescription, ReuseComponent, ServerDescription, TenantDescription,
};
use std::collections::BTreeMap;
use waykeeper_host::{Device, DeviceKind, Interval, Inventory, KnobValues, Support, Workload, WorkloadKind};
use waykeeper_units::{DeviceId, LINE_BYTES, WayMask, WorkloadId};

/// Layouts that are remembered. Assumption: a search tries about as many in a phase.
const MOST_LAYOUTS: usize = 8;
/// Intervals under a layout before the first one counts: lines of the layout before are still in the LLC. Assumption: the
/// LLC is replaced many times in a second.
const SETTLING: u32 = 1;
/// Intervals under a layout before the server is described.
const FEWEST: f64 = 2.0;
/// Traffic has changed if it is off by more than this part, ...
const CHANGED: f64 = 0.25;
/// ... and by more than so many standard deviations of single intervals, ...
const DEVIATIONS: f64 = 6.0;
/// ... in so many intervals in turn. Assumptions: noise of single intervals is below 5 % in the mixes of the papers.
const IN_TURN: u32 = 2;
/// Profiles that are fitted in one interval, so that its cost is bounded.
const FITS: usize = 3;
/// Lines per packet where its size is not known: 1500 bytes. Assumption: full Ethernet frames.
const PACKET_LINES: f64 = 24.0;
/// Buffers of a NIC's queues where rings are not known, in lines per core that polls: 1024 packets.
const QUEUE_LINES: f64 = 1024.0 * PACKET_LINES;

/// What was fitted for a tenant, and from how much.
#[derive(Clone, Debug)]
struct Fit {
    profile: Profile,
    /// Intervals in its points when it was fitted.
    seen: f64,
    layouts: usize,
}

/// Describes a server from its counters alone.
#[derive(Clone, Debug)]
pub struct Calibrator {
    inventory: Inventory,
    groups: Vec<Workload>,
    records: Vec<LayoutRecord>,
    /// The layout in force, as an index into the records.
    current: Option<usize>,
    /// Intervals under the layout in force.
    under: u32,
    /// Intervals in turn whose traffic was not that of the records.
    strange: u32,
    fits: BTreeMap<WorkloadId, Fit>,
    /// The tenant that is fitted next.
    turn: usize,
}

/// What became of an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntervalUse {
    /// It is in the means.
    Counted,
    /// It is the first one of a layout: lines of the layout before are still in the LLC.
    Settling,
    /// Its traffic is far from that of the means. One more such interval begins a new phase.
    LeftOut,
    /// Other workloads or other traffic begin with it: all that was seen before is dropped.
    NewPhase,
}

impl Calibrator {
    /// A calibrator that has seen nothing.
    pub fn new(inventory: &Inventory) -> Calibrator {
        Calibrator {
            inventory: inventory.clone(),
            groups: Vec::new(),
            records: Vec::new(),
            current: None,
            under: 0,
            strange: 0,
            fits: BTreeMap::new(),
            turn: 0,
        }
    }

    /// An interval of counters, and the workloads alive in it. Returns what became of it.
    pub fn observe(&mut self, groups: &[Workload], seen: &Interval) -> IntervalUse {
        let ids = |groups: &[Workload]| groups.iter().map(|group| group.id).collect::<Vec<_>>();
        let others = ids(&self.groups) != ids(groups);
        if others {
            self.forget();
        }
        self.groups = groups.to_vec();
        self.enter(&seen.knobs);
        self.under += 1;
        if self.under <= SETTLING {
            return if others { IntervalUse::NewPhase } else { IntervalUse::Settling };
        }
        let strange = self.is_strange(seen);
        if strange {
            self.strange += 1;
            if self.strange < IN_TURN {
                return IntervalUse::LeftOut;
            }
            self.forget();
            self.enter(&seen.knobs);
        }
        self.strange = 0;
        if let Some(current) = self.current {
            self.records[current].note(groups, seen);
            self.fit_some();
        }
        if strange { IntervalUse::NewPhase } else { IntervalUse::Counted }
    }

    /// Drops all that was seen: the traffic is another one.
    fn forget(&mut self) {
        self.records.clear();
        self.fits.clear();
        self.current = None;
        self.under = 0;
        self.strange = 0;
    }

    /// Makes this layout the one in force.
    fn enter(&mut self, knobs: &KnobValues) {
        if self.current.is_some_and(|current| self.records[current].knobs == *knobs) {
            return;
        }
        self.under = 0;
        if let Some(known) = self.records.iter().position(|record| record.knobs == *knobs) {
            let record = self.records.remove(known);
            self.records.push(record);
        } else {
            self.records.push(LayoutRecord::new(knobs.clone()));
            if self.records.len() > MOST_LAYOUTS {
                self.records.remove(0);
            }
        }
        self.current = Some(self.records.len() - 1);
    }

    /// Whether an interval's traffic is far from that of the records.
    fn is_strange(&self, seen: &Interval) -> bool {
        let far = |running: &crate::running::Running, value: f64, least: f64| {
            let off = (value - running.mean()).abs();
            running.count() >= FEWEST
                && off > CHANGED * running.mean().abs() + least
                && off > DEVIATIONS * running.deviation()
        };
        // References per instruction and lines of devices do not depend on the layout.
        let others = self.records.iter().any(|record| {
            let tenants = record.tenants.iter().any(|(id, means)| {
                let computes = self.groups.iter().any(|g| g.id == *id && g.kind == WorkloadKind::NonIo);
                rates_of(seen, *id).is_some_and(|rates| {
                    computes
                        && rates.instructions > 0.0
                        && far(&means.intensity, rates.references / rates.instructions, 1e-4)
                })
            });
            let ports = record.ports.iter().any(|(port, (inbound, outbound))| {
                let lines = |counter| {
                    seen.ports
                        .get(port)
                        .and_then(|rates| rates[counter].value())
                        .map(|b| b / LINE_BYTES as f64)
                };
                let moved = |running, counter| lines(counter).is_some_and(|now| far(running, now, 1e6));
                moved(inbound, waykeeper_host::PortCounter::InboundBytes)
                    || moved(outbound, waykeeper_host::PortCounter::OutboundBytes)
            });
            tenants || ports
        });
        // Hit ratios do; they are compared under the same one only.
        let hits = self.current.is_some_and(|current| {
            self.records[current].tenants.iter().any(|(id, means)| {
                let busy = means.references.mean() > 1e6;
                busy && rates_of(seen, *id).and_then(|r| r.hits).is_some_and(|h| far(&means.hits, h, 0.1))
            })
        });
        others || hits
    }

    /// Fits the profiles of the next tenants.
    fn fit_some(&mut self) {
        let count = self.groups.len();
        for _ in 0..count.min(FITS) {
            self.turn = (self.turn + 1) % count;
            let id = self.groups[self.turn].id;
            if let Some(fit) = self.fitted(id) {
                self.fits.insert(id, fit);
            }
        }
    }

    /// The fit of a tenant by what is seen now; `None` without references, or if nothing was seen since the last one.
    fn fitted(&self, id: WorkloadId) -> Option<Fit> {
        let points = self.points(id);
        let seen: f64 = self.means(id).map(|(_, means)| means.hits.count()).sum();
        let llc_lines = self.llc_lines();
        let first = *points.last()?;
        let before = self.fits.get(&id);
        if before.is_some_and(|fit| fit.seen == seen && fit.layouts == points.len()) {
            return None;
        }
        let alone = Profile::of_one(first, llc_lines);
        let profile = if points.len() > 1 { alone.fitted(&points, llc_lines) } else { alone };
        Some(Fit { profile, seen, layouts: points.len() })
    }

    /// What was seen of a tenant, by layout; the one in force is the last.
    fn means(&self, id: WorkloadId) -> impl Iterator<Item = (&LayoutRecord, &TenantMeans)> {
        self.records.iter().filter_map(move |record| {
            record.tenants.get(&id).filter(|means| means.hits.count() > 0.0).map(|means| (record, means))
        })
    }

    fn points(&self, id: WorkloadId) -> Vec<Point> {
        let points = self.means(id).map(|(record, means)| {
            let counted = (means.lines.count() > 0.0).then(|| means.lines.mean());
            let lines = counted.unwrap_or_else(|| self.share_of(record, id)).max(16.0);
            Point { lines, hits: hits_of(means) }
        });
        points.collect()
    }

    /// Lines that a tenant holds where the host does not count them: each way is shared by misses.
    fn share_of(&self, record: &LayoutRecord, id: WorkloadId) -> f64 {
        let llc = self.inventory.known_llc();
        let mask = |id| record.knobs.mask(id).unwrap_or_else(|| WayMask::full(llc.ways));
        let misses = |id: WorkloadId| {
            record.tenants.get(&id).map_or(0.0, |m| m.references.mean() * (1.0 - m.hits.mean()) + 1.0)
        };
        let own = misses(id) / f64::from(mask(id).count().max(1));
        let ways = (0..llc.ways).filter(|way| mask(id).contains(*way)).map(|way| {
            let all = record.tenants.keys().filter(|other| mask(**other).contains(way));
            own / all.map(|other| misses(*other) / f64::from(mask(*other).count().max(1))).sum::<f64>()
        });
        ways.sum::<f64>() * self.llc_lines() / f64::from(llc.ways)
    }

    fn llc_lines(&self) -> f64 {
        self.inventory.known_llc().bytes as f64 / LINE_BYTES as f64
    }

    /// The server as it was seen under the layout in force; `None` before that was seen for two intervals.
    pub fn describe(&self) -> Option<ServerDescription> {
        let record = &self.records[self.current?];
        if record.intervals() < FEWEST {
            return None;
        }
        let tenants = self.groups.iter().filter_map(|group| self.tenant(group, record)).collect();
        let devices = self.inventory.devices.iter().map(|device| self.device(device, record)).collect();
        Some(ServerDescription {
            chip: self.inventory.platform.chip.clone(),
            llc: self.inventory.known_llc(),
            dca_ways: record.knobs.dca_ways().or(self.inventory.dca_ways_default),
            tenants,
            devices,
            knobs: record.knobs.clone(),
            observed: self
                .records
                .iter()
                .filter(|r| r.intervals() >= 1.0)
                .map(LayoutRecord::observed)
                .collect(),
        })
    }

    fn tenant(&self, group: &Workload, record: &LayoutRecord) -> Option<TenantDescription> {
        let means = record.tenants.get(&group.id)?;
        let stalls: Vec<Stall> = self
            .means(group.id)
            .map(|(_, means)| Stall {
                cycles: means.cycles_per_instruction.estimate(0.01),
                misses: means.intensity.mean() * (1.0 - means.hits.mean()),
                references: means.intensity.mean(),
            })
            .collect();
        let cycles_per_instruction = means.cycles_per_instruction.mean();
        let costs = CycleCosts::of(&stalls).unwrap_or(CycleCosts {
            base: Estimate::exact(cycles_per_instruction),
            hit: Estimate::default(),
            miss: Estimate::default(),
        });
        let reuse = self.fitted(group.id).or_else(|| self.fits.get(&group.id).cloned());
        let once = ReuseComponent { share: Estimate::exact(1.0), lines: None };
        Some(TenantDescription {
            workload: group.clone(),
            references: means.references.estimate(0.03),
            hits: hits_of(means),
            cycles: means.cycles.mean(),
            instructions: means.instructions.mean(),
            base_cycles: costs.base,
            hit_cycles: costs.hit,
            miss_cycles: costs.miss,
            reuse: reuse.map_or_else(|| vec![once], |fit| fit.profile.components()),
            held_lines: (means.lines.count() > 0.0).then(|| means.lines.mean()),
        })
    }

    fn device(&self, device: &Device, record: &LayoutRecord) -> DeviceDescription {
        let users = self.groups.iter().filter(|group| group.devices.contains(&device.id));
        let ports = device.ports.iter().map(|id| {
            let lines = record.ports.get(id).copied().unwrap_or_default();
            let port = self.inventory.ports.iter().find(|port| port.id == *id);
            PortDescription {
                id: *id,
                inbound_lines: lines.0.mean(),
                outbound_lines: lines.1.mean(),
                can_switch: port.is_some_and(|port| port.dca_switch == Support::Yes),
            }
        });
        DeviceDescription {
            id: device.id,
            kind: device.kind,
            ports: ports.collect(),
            tenants: users.map(|group| group.id).collect(),
            buffer_lines: self.buffers(device.id, device.kind, record),
            write_misses: record.write_misses.estimate(0.05),
        }
    }

    /// Lines of a device's buffers. Rings that can be set are known; others are guessed by the cores that serve them.
    fn buffers(&self, id: DeviceId, kind: DeviceKind, record: &LayoutRecord) -> Estimate {
        if kind == DeviceKind::Storage {
            // Blocks are written to memory that was not used lately: more lines than the LLC has.
            let lines = 4.0 * self.llc_lines();
            return Estimate { value: lines, error: lines / 2.0 };
        }
        let users = self.groups.iter().filter(|group| group.devices.contains(&id));
        let cores: usize = users.map(|group| group.cores.len().max(1)).sum();
        let ports = self.inventory.devices.get(id.index()).map_or(&[][..], |device| &device.ports);
        let ring = ports.iter().find_map(|port| record.knobs.rx_ring(*port));
        let lines = match ring {
            Some(packets) => f64::from(packets) * PACKET_LINES * cores.max(1) as f64,
            None => QUEUE_LINES * cores.max(1) as f64,
        };
        Estimate { value: lines, error: lines / 2.0 }
    }
}
