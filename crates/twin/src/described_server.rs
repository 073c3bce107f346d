//! A described server as a host: a policy turns its knobs, and its counters change as the twin predicts. So a control loop
//! can show what a policy would do on a server of which only counters are known.
//!
//! Every counter begins with the rate that was seen. Of a layout the twin predicts progress, hit ratios, lines held and
//! misses of device writes; the other rates follow from these. It must not know the server that was described, nor any
//! policy.

use crate::foresight::{ForeseenCounters, ForeseenTenant, Foresight};
use crate::layout::Layout;
use crate::plant::Plant;
use crate::tuning::Tuning;
use crate::{Budget, LONGEST};
use std::collections::BTreeMap;
use waykeeper_calibration::{Candidate, FetchCosts, LayoutLimits, ServerDescription, limits};
use waykeeper_host::{
    Applied, Host, HostCounter, HostError, Interval, Inventory, Knob, KnobOutcome, KnobSetting, KnobValues,
    Lines, Plan, PortCounter, PortRates, Reading, Readings, Setting, Snapshot, SocketCounter, SocketRates,
    Support, Workload, WorkloadCounter, WorkloadKind, WorkloadRates,
};
use waykeeper_units::{LINE_BYTES, PortId, WayMask, WorkloadId};

/// A server that is known by its counters alone.
#[derive(Clone, Debug)]
pub struct DescribedServer<'a> {
    server: &'a ServerDescription,
    limits: LayoutLimits,
    inventory: &'a Inventory,
    /// Rates under the knobs in force when it was described.
    seen: &'a Interval,
    foresight: Foresight<'a>,
    knobs: KnobValues,
    /// What the twin said of each layout that was in force.
    known: BTreeMap<Layout, (Candidate, Interval)>,
    now_ns: u64,
    /// Counts since the start.
    groups: BTreeMap<WorkloadId, WorkloadRates>,
    socket: SocketRates,
    ports: BTreeMap<PortId, PortRates>,
}

impl<'a> DescribedServer<'a> {
    /// A server with its inventory and the rates of its counters under the knobs in force. The small chip is tuned with a
    /// part of `budget`; each new layout costs 150,000 line events more.
    pub fn new(
        server: &'a ServerDescription,
        inventory: &'a Inventory,
        seen: &'a Interval,
        budget: Budget,
    ) -> DescribedServer<'a> {
        let (tuning, _) = Tuning::within(server, budget);
        let plant = Plant::new(server, &tuning);
        // The layouts that were observed are run as long as any other: the one in force then changes nothing.
        let (foresight, _) = Foresight::new(server, FetchCosts::default(), plant, LONGEST);
        DescribedServer {
            server,
            limits: limits(inventory),
            inventory,
            seen,
            foresight,
            knobs: server.knobs.clone(),
            known: BTreeMap::new(),
            now_ns: 0,
            groups: seen.groups.iter().map(|(id, rates)| (*id, begun(rates))).collect(),
            socket: begun(&seen.socket),
            ports: seen.ports.iter().map(|(id, rates)| (*id, begun(rates))).collect(),
        }
    }

    /// What the layout in force brings, relative to the one that was in force when the server was described.
    pub fn foreseen(&mut self) -> &Candidate {
        &self.present().0
    }

    fn present(&mut self) -> &(Candidate, Interval) {
        let layout = Layout::of(&self.knobs, self.server);
        let (server, limits, seen, inventory) = (self.server, &self.limits, self.seen, self.inventory);
        let foresight = &self.foresight;
        self.known.entry(layout).or_insert_with_key(|layout| {
            let (candidate, counters) = foresight.with_counters(layout, limits, LONGEST);
            let rates = rates(server, inventory, seen, layout, &candidate, &counters);
            (candidate, rates)
        })
    }

    fn turned(&self, KnobSetting { knob, setting }: KnobSetting) -> KnobOutcome {
        let refused = |why: &str| KnobOutcome::Refused(why.to_owned());
        let llc = self.inventory.known_llc();
        match (knob, setting) {
            (Knob::Mask(id), Setting::Ways(mask)) => match mask.check(llc.ways, llc.min_ways) {
                _ if self.server.tenant(id).is_none() => refused("the tenant was not seen"),
                Ok(_) => KnobOutcome::Applied,
                Err(why) => KnobOutcome::Refused(why.to_string()),
            },
            (Knob::DcaWays, Setting::Ways(mask)) => match &self.inventory.dca_ways_switch {
                Support::Yes => match mask.check(llc.ways, 1) {
                    Ok(_) => KnobOutcome::Applied,
                    Err(why) => KnobOutcome::Refused(why.to_string()),
                },
                Support::ReadOnly => refused("the register is read-only"),
                Support::No(why) => refused(why),
            },
            (Knob::Dca(port), Setting::Switch(_)) => match self.inventory.ports.get(port.index()) {
                None => refused("the port does not exist"),
                Some(port) => match &port.dca_switch {
                    Support::Yes => KnobOutcome::Applied,
                    Support::ReadOnly => refused("the switch is read-only"),
                    Support::No(why) => refused(why),
                },
            },
            (Knob::RxRing(_) | Knob::RxBurst(_), _) => {
                refused("what rings and bursts would change is not predicted")
            }
            (Knob::Mask(_) | Knob::DcaWays | Knob::Dca(_), _) => {
                KnobOutcome::Refused(format!("{knob:?} does not take {setting}"))
            }
        }
    }
}

impl Host for DescribedServer<'_> {
    fn inventory(&self) -> &Inventory {
        self.inventory
    }

    fn workloads(&self) -> Vec<Workload> {
        self.server.tenants.iter().map(|tenant| tenant.workload.clone()).collect()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        Ok(Snapshot {
            at_ns: self.now_ns,
            counters_read: None,
            groups: self.groups.iter().map(|(id, counts)| (*id, whole(counts))).collect(),
            socket: whole(&self.socket),
            ports: self.ports.iter().map(|(id, counts)| (*id, whole(counts))).collect(),
            knobs: self.knobs.clone(),
        })
    }

    fn partial_writes(&mut self) -> Lines {
        Lines { hits: Reading::Unsupported, misses: Reading::Unsupported }
    }

    fn root_mask(&mut self) -> WayMask {
        WayMask::full(self.inventory.known_llc().ways)
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let turn = |setting: KnobSetting| (setting.knob, self.turned(setting));
        let applied: Applied = plan.settings().map(turn).collect();
        for (knob, setting) in plan.iter() {
            if applied.get(knob) == Some(&KnobOutcome::Applied) {
                self.knobs.insert(knob, *setting);
            }
        }
        Ok(applied)
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        let seconds = deadline_ns.saturating_sub(self.now_ns) as f64 * 1e-9;
        let rates = self.present().1.clone();
        for (id, counts) in &mut self.groups {
            *counts = later(counts, &rates.groups[id], seconds);
        }
        for (id, counts) in &mut self.ports {
            *counts = later(counts, &rates.ports[id], seconds);
        }
        self.socket = later(&self.socket, &rates.socket, seconds);
        self.now_ns = self.now_ns.max(deadline_ns);
        Ok(())
    }
}

/// Counts of zero for the counters that have a rate; levels are as seen.
fn begun<K: HostCounter<N>, const N: usize>(rates: &Readings<K, f64, N>) -> Readings<K, f64, N> {
    Readings::from_fn(|counter: K| rates[counter].map(|rate| if counter.is_level() { rate } else { 0.0 }))
}

/// Counts after so many seconds at these rates, and the levels.
fn later<K: HostCounter<N>, const N: usize>(
    counts: &Readings<K, f64, N>,
    rates: &Readings<K, f64, N>,
    seconds: f64,
) -> Readings<K, f64, N> {
    counts.zip_with(rates, |counter, count, rate| {
        if counter.is_level() { rate } else { count.zip_with(rate, |count, rate| count + rate * seconds) }
    })
}

fn whole<K: HostCounter<N>, const N: usize>(counts: &Readings<K, f64, N>) -> Readings<K, u64, N> {
    Readings::from_fn(|counter: K| counts[counter].map(|count| count as u64))
}

/// Rates under a layout: those that were seen, changed as the twin foresees.
fn rates(
    server: &ServerDescription,
    inventory: &Inventory,
    seen: &Interval,
    layout: &Layout,
    candidate: &Candidate,
    counters: &ForeseenCounters,
) -> Interval {
    let mut then = seen.clone();
    let mut more_misses = 0.0;
    // How much more the devices behind a port move: the mean of their tenants, weighted by cores.
    let mut paces: BTreeMap<PortId, (f64, f64)> = BTreeMap::new();
    for (tenant, foreseen) in server.tenants.iter().zip(&counters.tenants) {
        let workload = &tenant.workload;
        let Some(rates) = then.groups.get_mut(&workload.id) else { continue };
        let progress = candidate.tenants.get(&workload.id).map_or(1.0, |progress| progress.value);
        let pace = match workload.kind {
            WorkloadKind::NonIo | WorkloadKind::StorageIo => progress,
            // Progress of a workload on a NIC also counts what its packets wait for; lines are those that arrive.
            WorkloadKind::NetworkIo => foreseen.carried,
        };
        let cores = workload.cores.len().max(1) as f64;
        let devices = workload.devices.iter().filter_map(|id| inventory.devices.get(id.index()));
        for port in devices.flat_map(|device| &device.ports) {
            let (sum, weight) = paces.entry(*port).or_default();
            *sum += cores * pace;
            *weight += cores;
        }
        let before = rates[WorkloadCounter::LlcMisses].value();
        *rates = tenant_rates(rates, workload.kind, pace, *foreseen);
        if let Some((before, after)) = before.zip(rates[WorkloadCounter::LlcMisses].value()) {
            more_misses += after - before;
        }
    }
    let mut lines_without_dca = 0.0;
    // Lines that devices with DCA write, and lines that all devices read: before and then.
    let (mut writes, mut reads) = ([0.0; 2], [0.0; 2]);
    for (port, rates) in &mut then.ports {
        let pace = paces.get(port).map_or(1.0, |(sum, weight)| sum / weight);
        let lines = |rates: &PortRates, counter| rates[counter].value().unwrap_or(0.0) / LINE_BYTES as f64;
        let before = *rates;
        *rates = PortRates::from_fn(|counter| before[counter].map(|rate| rate * pace));
        let dca = [server.knobs.dca(*port).unwrap_or(true), layout.dca.get(port).copied().unwrap_or(true)];
        for (at, rates) in [&before, &*rates].into_iter().enumerate() {
            let written = lines(rates, PortCounter::InboundBytes);
            reads[at] += lines(rates, PortCounter::OutboundBytes);
            if dca[at] {
                writes[at] += written;
            } else {
                // Writes past the LLC go to memory; the program's read of them is one of its misses.
                lines_without_dca += if at == 1 { written } else { -written };
            }
        }
    }
    let more_write_misses = device_writes(&mut then.socket, writes, counters.write_misses);
    if reads[0] > 0.0 {
        for counter in [SocketCounter::DcaReadHits, SocketCounter::DcaReadMisses] {
            then.socket[counter] = then.socket[counter].map(|rate| rate * reads[1] / reads[0]);
        }
    }
    let more = |rate: Reading<f64>, lines: f64| rate.map(|rate| (rate + lines * LINE_BYTES as f64).max(0.0));
    let (read, written) = (SocketCounter::MemoryReadBytes, SocketCounter::MemoryWriteBytes);
    then.socket[read] = more(then.socket[read], more_misses);
    then.socket[written] = more(then.socket[written], more_write_misses + lines_without_dca);
    then
}

/// Sets hits and misses of the writes of devices with DCA, from the lines that these write and the share of them that the
/// small chip misses, before and then. Returns how many more lines miss per second.
fn device_writes(socket: &mut SocketRates, lines: [f64; 2], misses: [Option<f64>; 2]) -> f64 {
    let counters = [SocketCounter::DcaWriteHits, SocketCounter::DcaWriteMisses];
    let Some((hit, missed)) = socket[counters[0]].value().zip(socket[counters[1]].value()) else {
        return 0.0;
    };
    let before = hit + missed;
    // Without device writes before, what the small chip says is all that is known.
    let (all, ratio) = if before > 0.0 && lines[0] > 0.0 {
        let more = misses[1].zip(misses[0]).map_or(0.0, |(then, before)| then - before);
        (before * lines[1] / lines[0], missed / before + more)
    } else {
        (lines[1], misses[1].unwrap_or(0.0))
    };
    let ratio = ratio.clamp(0.0, 1.0);
    socket[counters[0]] = Reading::Value(all * (1.0 - ratio));
    socket[counters[1]] = Reading::Value(all * ratio);
    all * ratio - missed
}

/// A tenant's rates at another pace, with other hits and lines held.
fn tenant_rates(
    rates: &WorkloadRates,
    kind: WorkloadKind,
    pace: f64,
    foreseen: ForeseenTenant,
) -> WorkloadRates {
    let references = rates.llc_references().map(|references| references * pace);
    let hits = rates.llc_hit_ratio().map(|ratio| (ratio + foreseen.more_hits).clamp(0.0, 1.0));
    Readings::from_fn(|counter| {
        let rate = rates[counter];
        let of = |share: f64| references.map_or(rate, |all| Reading::Value(all * share));
        match (counter, hits) {
            (WorkloadCounter::LlcHits, Some(hits)) => of(hits),
            (WorkloadCounter::LlcMisses, Some(hits)) => of(1.0 - hits),
            (WorkloadCounter::OccupancyBytes, _) => rate.map(|bytes| bytes * foreseen.held.unwrap_or(1.0)),
            (WorkloadCounter::Cycles, _) => rate,
            // A polling loop retires instructions whatever it finds.
            (WorkloadCounter::Instructions, _) if kind == WorkloadKind::NetworkIo => rate,
            _ => rate.map(|rate| rate * pace),
        }
    })
}
