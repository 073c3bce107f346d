//! A fake server for policies: counters set by hand become Intervals. It must not know any policy.

#![allow(dead_code, reason = "every test file uses its own part of the harness")]

pub mod iat;

use std::collections::BTreeMap;
use waykeeper_host::{
    Device, DeviceKind, Dial, Interval, Inventory, KnobValues, LlcGeometry, Platform, PortCounter, PortRates,
    Priority, Reading, RootPort, SocketCounter, SocketRates, Support, Workload, WorkloadCounter,
    WorkloadKind, WorkloadRates,
};
use waykeeper_policy::{Decision, Event, Policy};
use waykeeper_units::{CoreId, CoreList, DeviceId, PortId, WayMask, WorkloadId};

/// Port and device of the NIC, and of two storage arrays.
pub const NIC: u8 = 0;
pub const SSD: u8 = 1;
pub const SSD2: u8 = 2;

fn dial(low: u32, high: u32) -> Dial {
    Dial { switch: Support::Yes, low, high }
}

/// The Gold 6140 of the paper: 11 ways, DCA ways 0x600, inclusive ways 0x003; a NIC and two arrays.
pub fn gold_6140() -> Inventory {
    let device = |id, name: &str, kind| Device {
        id: DeviceId(id),
        name: name.to_owned(),
        kind,
        ports: vec![PortId(id)],
    };
    let port = |id, address: &str| RootPort {
        id: PortId(id),
        address: address.to_owned(),
        socket: 0,
        dca_switch: Support::Yes,
        rx_ring: if id == NIC { dial(32, 4096) } else { Dial::absent("no NIC") },
        rx_burst: if id == NIC { dial(1, 512) } else { Dial::absent("no NIC") },
    };
    Inventory {
        platform: Platform { chip: "gold-6140".to_owned(), host: "test".to_owned() },
        cores: (0..18).map(CoreId).collect(),
        llc: Some(LlcGeometry {
            ways: 11,
            min_ways: 1,
            bytes: 25_952_256,
            clos_count: 16,
            sparse_masks: false,
            inclusive_ways: Some(WayMask::from_bits(0x003)),
        }),
        dca_ways_default: Some(WayMask::from_bits(0x600)),
        dca_ways_switch: Support::Yes,
        devices: vec![
            device(NIC, "nic0", DeviceKind::Network),
            device(SSD, "ssd0", DeviceKind::Storage),
            device(SSD2, "ssd1", DeviceKind::Storage),
        ],
        ports: vec![port(NIC, "0000:3a:00.0"), port(SSD, "0000:5e:00.0"), port(SSD2, "0000:5f:00.0")],
    }
}

/// A workload with `cores` cores; `devices` are indices into the inventory.
pub fn group(
    id: u32,
    name: &str,
    priority: Priority,
    kind: WorkloadKind,
    cores: u16,
    devices: &[u8],
) -> Workload {
    Workload {
        id: WorkloadId(id),
        name: name.to_owned(),
        priority,
        kind,
        cores: CoreList::from((id as u16 * 4..id as u16 * 4 + cores).map(CoreId).collect::<Vec<_>>()),
        devices: devices.iter().map(|device| DeviceId(*device)).collect(),
        stack: false,
        mask: None,
    }
}

/// What one workload's counters say, as ratios; rates are per million references a second.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// LLC hit ratio.
    pub llc_hit: f64,
    /// MLC miss ratio.
    pub mlc_miss: f64,
    /// LLC references per second.
    pub references: f64,
    /// Instructions per cycle.
    pub ipc: f64,
    /// False makes the LLC counters unavailable.
    pub llc_readable: bool,
}

impl Default for Load {
    fn default() -> Load {
        Load { llc_hit: 0.6, mlc_miss: 0.3, references: 1e7, ipc: 1.0, llc_readable: true }
    }
}

/// A policy under test, the workloads alive, and the numbers the next interval will show.
pub struct Bench {
    pub policy: Box<dyn Policy>,
    pub inventory: Inventory,
    pub groups: Vec<Workload>,
    pub loads: BTreeMap<u32, Load>,
    /// Chip-wide DCA write miss ratio; `None` makes it unavailable.
    pub dca_miss: Option<f64>,
    /// Inbound bytes per second per port; `None` makes it unavailable.
    pub inbound: BTreeMap<u8, Option<f64>>,
    /// Memory bytes per second; `None` makes it unavailable.
    pub memory: Option<f64>,
    /// Time of the last step.
    pub now_ns: u64,
    /// Length of the next interval.
    pub step_ns: u64,
    /// The last answer.
    pub last: Decision,
    /// All events so far with the time they came.
    pub log: Vec<(u64, Event)>,
}

pub const SECOND: u64 = 1_000_000_000;

impl Bench {
    /// Starts `policy` with TOML `settings` on `inventory`.
    pub fn on(inventory: Inventory, policy: &str, settings: &str, groups: Vec<Workload>) -> Bench {
        let mut policy = waykeeper_policy::build(policy, &settings.parse().unwrap()).unwrap();
        let last = policy.start(&inventory, &groups);
        let log = last.events.iter().map(|event| (0, event.clone())).collect();
        let inbound = inventory.ports.iter().map(|port| (port.id.0, Some(1e9))).collect();
        Bench {
            policy,
            loads: groups.iter().map(|group| (group.id.0, Load::default())).collect(),
            inventory,
            groups,
            dca_miss: Some(0.1),
            inbound,
            memory: Some(2e10),
            now_ns: 0,
            step_ns: SECOND,
            last,
            log,
        }
    }

    /// Starts `policy` on the paper's chip.
    pub fn new(policy: &str, settings: &str, groups: Vec<Workload>) -> Bench {
        Bench::on(gold_6140(), policy, settings, groups)
    }

    /// The load of one workload, to be changed.
    pub fn load(&mut self, id: u32) -> &mut Load {
        self.loads.entry(id).or_default()
    }

    /// One interval with the present counters.
    pub fn step(&mut self) -> &Decision {
        let seen = self.interval();
        self.now_ns = seen.to_ns;
        self.feed(&seen)
    }

    /// One interval that the caller built.
    pub fn feed(&mut self, seen: &Interval) -> &Decision {
        self.last = self.policy.step(&self.groups, seen);
        self.log.extend(self.last.events.iter().map(|event| (seen.to_ns, event.clone())));
        &self.last
    }

    /// As many intervals as fit into `seconds`.
    pub fn run(&mut self, seconds: u64) -> &Decision {
        for _ in 0..seconds * SECOND / self.step_ns {
            self.step();
        }
        &self.last
    }

    /// Steps until the policy is in `state`; panics after a minute.
    pub fn until(&mut self, state: &str) -> &Decision {
        for _ in 0..60 * SECOND / self.step_ns {
            if self.last.state == state {
                return &self.last;
            }
            self.step();
        }
        panic!("never reached {state}; still in {} after {:#?}", self.last.state, self.texts());
    }

    /// The mask planned for a workload.
    pub fn mask(&self, id: u32) -> u32 {
        self.last.plan.mask(WorkloadId(id)).unwrap().bits()
    }

    /// The switch planned for a port.
    pub fn dca(&self, port: u8) -> Option<bool> {
        self.last.plan.dca(PortId(port))
    }

    /// True if an event of this action happened at or after `from_ns`.
    pub fn happened_since(&self, action: &str, from_ns: u64) -> bool {
        self.log.iter().any(|(at, event)| *at >= from_ns && event.action == action)
    }

    /// True if an event of this action ever happened.
    pub fn happened(&self, action: &str) -> bool {
        self.happened_since(action, 0)
    }

    /// The text of the last event of this action.
    pub fn text(&self, action: &str) -> &str {
        let found = self.log.iter().rev().find(|(_, event)| event.action == action);
        &found.unwrap_or_else(|| panic!("no {action} in {:#?}", self.texts())).1.text
    }

    /// The last event of this action.
    pub fn event(&self, action: &str) -> &Event {
        let found = self.log.iter().rev().find(|(_, event)| event.action == action);
        &found.unwrap_or_else(|| panic!("no {action} in {:#?}", self.texts())).1
    }

    /// All events as lines.
    pub fn texts(&self) -> Vec<String> {
        let line =
            |(at, event): &(u64, Event)| format!("{} ms {}: {}", at / 1_000_000, event.action, event.text);
        self.log.iter().map(line).collect()
    }

    /// The present counters as an interval.
    pub fn interval(&self) -> Interval {
        let value = |known: Option<f64>| known.map_or(Reading::Unavailable, Reading::Value);
        let rates = |group: &Workload| {
            let load = self.loads.get(&group.id.0).copied().unwrap_or_default();
            let llc = |ratio: f64| value(load.llc_readable.then_some(ratio * load.references));
            let mlc_all = if load.mlc_miss > 0.0 { load.references / load.mlc_miss } else { 1e9 };
            let rates = WorkloadRates::of([
                (WorkloadCounter::Instructions, Reading::Value(1e9)),
                (WorkloadCounter::Cycles, Reading::Value(1e9 / load.ipc)),
                (WorkloadCounter::MlcHits, Reading::Value(mlc_all * (1.0 - load.mlc_miss))),
                (WorkloadCounter::MlcMisses, Reading::Value(mlc_all * load.mlc_miss)),
                (WorkloadCounter::LlcHits, llc(load.llc_hit)),
                (WorkloadCounter::LlcMisses, llc(1.0 - load.llc_hit)),
            ]);
            (group.id, rates)
        };
        let ports = self.inbound.iter().map(|(port, bytes)| {
            (
                PortId(*port),
                PortRates::of([
                    (PortCounter::InboundBytes, value(*bytes)),
                    (PortCounter::OutboundBytes, Reading::Value(0.0)),
                ]),
            )
        });
        Interval {
            from_ns: self.now_ns,
            to_ns: self.now_ns + self.step_ns,
            groups: self.groups.iter().map(rates).collect(),
            socket: SocketRates::of([
                (SocketCounter::DcaWriteHits, value(self.dca_miss.map(|miss| 1e8 * (1.0 - miss)))),
                (SocketCounter::DcaWriteMisses, value(self.dca_miss.map(|miss| 1e8 * miss))),
                (SocketCounter::MemoryReadBytes, value(self.memory.map(|bytes| bytes * 0.5))),
                (SocketCounter::MemoryWriteBytes, value(self.memory.map(|bytes| bytes * 0.5))),
            ]),
            ports: ports.collect(),
            knobs: KnobValues::default(),
        }
    }
}

/// The micro runs of A4 s7.1: DPDK-T 0 (HPW), FIO 1 (LPW), X-Mem 2 (HPW), 3 and 4 (LPW).
pub fn micro() -> Vec<Workload> {
    use Priority::{High, Low};
    use WorkloadKind::{NetworkIo, NonIo, StorageIo};
    vec![
        group(0, "dpdk-t", High, NetworkIo, 4, &[NIC]),
        group(1, "fio", Low, StorageIo, 4, &[SSD]),
        group(2, "x-mem1", High, NonIo, 1, &[]),
        group(3, "x-mem2", Low, NonIo, 1, &[]),
        group(4, "x-mem3", Low, NonIo, 1, &[]),
    ]
}

/// Two programs without I/O: 0 is an HPW, 1 an LPW.
pub fn pair() -> Vec<Workload> {
    use Priority::{High, Low};
    let kind = WorkloadKind::NonIo;
    vec![group(0, "mcf", High, kind, 1, &[]), group(1, "lbm", Low, kind, 1, &[])]
}
