//! A host in memory that can be slow, fail to read, refuse, be busy, have its knobs changed by others and have a clock
//! that jumps; and a policy that wants what a function returns. Times are in seconds for readability.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use waykeeper_control::{ControlConfig, LoopSummary, StepRecord, run};
use waykeeper_host::{
    Applied, Dial, Host, HostError, Interval, Inventory, Knob, KnobOutcome, KnobValues, Lines, LlcGeometry,
    Plan, Platform, PortCounter, PortCounters, Priority, Reading, RootPort, Snapshot, SocketCounter,
    SocketCounters, Support, Workload, WorkloadCounter, WorkloadCounters, WorkloadKind,
};
use waykeeper_policy::{Decision, Policy};
use waykeeper_units::{CoreId, CoreList, PortId, WayMask, WorkloadId};

pub const SECOND: u64 = 1_000_000_000;

/// A server in memory. Counters run with its clock; knobs are a map.
pub struct FakeHost {
    pub inventory: Inventory,
    pub now_ns: u64,
    /// The groups alive from the given second on.
    pub lives: BTreeMap<u64, Vec<Workload>>,
    pub knobs: KnobValues,
    /// Masks that it refuses, and ports whose switch does nothing.
    /// Mask of the root class.
    pub root: WayMask,
    pub refused_masks: BTreeSet<WayMask>,
    pub dead_ports: BTreeSet<PortId>,
    /// Seconds in which no counter can be read.
    pub blind: BTreeSet<u64>,
    /// How long an `apply` takes.
    pub apply_ns: u64,
    /// The number of mask writes, from now on, that fail as busy.
    pub busy: u32,
    /// Per second: the mask that another program sets.
    pub outsiders: BTreeMap<u64, (WorkloadId, WayMask)>,
    /// When the clock reaches the first time, it jumps to the second.
    pub jump: Option<(u64, u64)>,
    /// Every plan that it received, with the time.
    pub plans: Vec<(u64, Plan)>,
}

pub fn group(id: u32) -> Workload {
    Workload {
        id: WorkloadId(id),
        name: format!("w{id}"),
        priority: if id == 0 { Priority::High } else { Priority::Low },
        kind: WorkloadKind::NonIo,
        cores: CoreList::from(vec![CoreId(id as u16)]),
        devices: Vec::new(),
        stack: false,
        mask: None,
    }
}

pub fn fake() -> FakeHost {
    let llc = LlcGeometry {
        ways: 11,
        min_ways: 1,
        bytes: 25_952_256,
        clos_count: 4,
        sparse_masks: false,
        inclusive_ways: Some(WayMask::from_bits(3)),
    };
    let port = RootPort {
        id: PortId(0),
        address: "0000:5e:00.0".to_owned(),
        socket: 0,
        dca_switch: Support::Yes,
        rx_ring: Dial { switch: Support::Yes, low: 32, high: 2048 },
        rx_burst: Dial::absent("the program does not offer it"),
    };
    FakeHost {
        inventory: Inventory {
            platform: Platform { chip: "fake".to_owned(), host: "test".to_owned() },
            cores: (0..4).map(CoreId).collect(),
            llc: Some(llc),
            dca_ways_default: Some(WayMask::from_bits(0x600)),
            dca_ways_switch: Support::Yes,
            devices: Vec::new(),
            ports: vec![port],
        },
        now_ns: 0,
        lives: [(0, vec![group(0), group(1)])].into(),
        knobs: KnobValues::from([(Knob::DcaWays, WayMask::from_bits(0x600))])
            .with(Knob::Dca(PortId(0)), true)
            .with(Knob::RxRing(PortId(0)), 2048),
        root: WayMask::full(11),
        refused_masks: BTreeSet::new(),
        dead_ports: BTreeSet::new(),
        blind: BTreeSet::new(),
        apply_ns: 0,
        busy: 0,
        outsiders: BTreeMap::new(),
        jump: None,
        plans: Vec::new(),
    }
}

impl Host for FakeHost {
    fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn workloads(&self) -> Vec<Workload> {
        let alive = self.lives.range(..=self.now_ns / SECOND).next_back();
        alive.map(|(_, groups)| groups.clone()).unwrap_or_default()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        if self.blind.contains(&(self.now_ns / SECOND)) {
            return Err(HostError::Failed { what: "counters".to_owned(), why: "blind".to_owned() });
        }
        // A million hits and as many misses a second.
        let count = Reading::Value(self.now_ns / 1000);
        let group = |group: &Workload| {
            let counters = WorkloadCounters::of([
                (WorkloadCounter::Instructions, count),
                (WorkloadCounter::Cycles, count),
                (WorkloadCounter::MlcHits, count),
                (WorkloadCounter::MlcMisses, count),
                (WorkloadCounter::LlcHits, count),
                (WorkloadCounter::LlcMisses, count),
            ]);
            (group.id, counters)
        };
        let alive = self.workloads();
        let mut knobs = self.knobs.clone();
        let is_alive = |id| alive.iter().any(|group| group.id == id);
        knobs.retain(|knob, _| knob.workload().is_none_or(is_alive));
        for group in alive.iter().filter(|group| self.knobs.mask(group.id).is_none()) {
            knobs.insert(Knob::Mask(group.id), WayMask::full(11));
        }
        Ok(Snapshot {
            at_ns: self.now_ns,
            counters_read: None,
            groups: alive.iter().map(group).collect(),
            socket: SocketCounters::of([
                (SocketCounter::DcaWriteHits, count),
                (SocketCounter::DcaWriteMisses, count),
                (SocketCounter::DcaReadHits, count),
                (SocketCounter::DcaReadMisses, count),
                (SocketCounter::MemoryReadBytes, count),
                (SocketCounter::MemoryWriteBytes, count),
            ]),
            ports: [(
                PortId(0),
                PortCounters::of([(PortCounter::InboundBytes, count), (PortCounter::OutboundBytes, count)]),
            )]
            .into(),
            knobs,
        })
    }

    fn partial_writes(&mut self) -> Lines {
        Lines::UNSUPPORTED
    }

    fn root_mask(&mut self) -> WayMask {
        self.root
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.plans.push((self.now_ns, plan.clone()));
        self.now_ns += self.apply_ns;
        let mut applied = Applied::default();
        for (id, mask) in plan.masks() {
            let outcome = if self.busy > 0 {
                self.busy -= 1;
                KnobOutcome::Busy("device or resource busy".to_owned())
            } else if self.refused_masks.contains(&mask) {
                KnobOutcome::Refused("invalid argument".to_owned())
            } else {
                self.knobs.insert(Knob::Mask(id), mask);
                KnobOutcome::Applied
            };
            applied.insert(Knob::Mask(id), outcome);
        }
        if let Some(mask) = plan.dca_ways() {
            // As on a Skylake: the power-on bits stay set. And this host reports every write as applied.
            if WayMask::from_bits(0x600).minus(mask).is_empty() {
                self.knobs.insert(Knob::DcaWays, mask);
            }
            applied.insert(Knob::DcaWays, KnobOutcome::Applied);
        }
        for (knob, ring) in plan.iter().filter(|(knob, _)| matches!(knob, Knob::RxRing(_))) {
            self.knobs.insert(knob, *ring);
            applied.insert(knob, KnobOutcome::Applied);
        }
        for (port, on) in plan.dca_by_port() {
            let outcome = if self.dead_ports.contains(&port) {
                KnobOutcome::ReadsBack("on".to_owned())
            } else {
                self.knobs.insert(Knob::Dca(port), on);
                KnobOutcome::Applied
            };
            applied.insert(Knob::Dca(port), outcome);
        }
        Ok(applied)
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        let from = self.now_ns / SECOND;
        self.now_ns = self.now_ns.max(deadline_ns);
        for second in from + 1..=self.now_ns / SECOND {
            if let Some((group, mask)) = self.outsiders.remove(&second) {
                self.knobs.insert(Knob::Mask(group), mask);
            }
        }
        if let Some((_, there)) = self.jump.take_if(|(at, _)| *at <= deadline_ns) {
            self.now_ns = there;
        }
        Ok(())
    }
}

/// A policy whose wanted values are a function of the groups alive.
pub struct Wants<F>(pub F);

impl<F: FnMut(&[Workload]) -> Plan + Send> Policy for Wants<F> {
    fn name(&self) -> &str {
        "wants"
    }

    fn start(&mut self, _inventory: &Inventory, groups: &[Workload]) -> Decision {
        Decision { plan: (self.0)(groups), state: "Started".to_owned(), events: Vec::new() }
    }

    fn step(&mut self, groups: &[Workload], _seen: &Interval) -> Decision {
        Decision { plan: (self.0)(groups), state: "Stepped".to_owned(), events: Vec::new() }
    }
}

pub fn masks(pairs: &[(u32, u32)]) -> Plan {
    let masks = pairs.iter().map(|(id, bits)| (WorkloadId(*id), WayMask::from_bits(*bits)));
    Plan::of_masks(masks)
}

pub fn seconds(count: u64) -> ControlConfig {
    ControlConfig::every(SECOND).lasting(count * SECOND)
}

/// A record and the interval that the policy saw.
pub type Seen = (StepRecord, Option<(u64, u64)>);

/// Runs to the end and returns all records.
pub fn records(
    host: &mut FakeHost,
    policy: &mut dyn Policy,
    config: ControlConfig,
) -> (Vec<Seen>, LoopSummary) {
    let mut all = Vec::new();
    let mut keep = |record: &StepRecord, seen: Option<&Interval>| {
        all.push((record.clone(), seen.map(|seen| (seen.from_ns, seen.to_ns))));
        ControlFlow::Continue(())
    };
    let summary = run(host, policy, config, &mut keep).unwrap();
    (all, summary)
}
