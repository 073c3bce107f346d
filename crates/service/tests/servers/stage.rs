//! A daemon without a host: a published state that changes, answered orders, open socket and metrics.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use waykeeper_calibration::{Candidate, Estimate};
use waykeeper_control::{LoopSummary, StepRecord, Worth, WorthEstimate, WorthSource};
use waykeeper_host::{
    Device, DeviceKind, Dial, Interval, Inventory, Knob, KnobValues, LlcGeometry, Plan, Platform,
    PortCounter, PortCounters, Priority, Reading, RootPort, Snapshot, SocketCounter, SocketCounters, Support,
    Workload, WorkloadCounter, WorkloadCounters, WorkloadKind,
};
use waykeeper_kernel::system::real;
use waykeeper_linux_host::Grouping;
use waykeeper_policy::{Cause, Event};
use waykeeper_service::twin::{TwinState, TwinStatus};
use waykeeper_service::{
    ActiveProblem, DaemonMode, LastAction, Listen, Order, OrderError, Published, PublishedClass,
    PublishedState, PublishedTotals, Servers, ServersConfig, SocketLimits, orders,
};
use waykeeper_testbed::{PATIENCE, wait_for};
use waykeeper_units::{CoreId, DeviceId, PortId, WayMask, WorkloadId};

/// A standard group of Debian, in every image, and not the kernel's overflow id.
pub const READERS: (&str, u32) = ("games", 60);

/// Two tenants, a NIC behind a port with DCA, an SSD behind one without; `step` steps of traffic.
pub fn published(step: u64) -> Published {
    let name = |id: u32| ["dpdk \"rx\"", "fio"][id as usize].to_owned();
    let group = |id: u32, kind| Workload {
        id: WorkloadId(id),
        name: name(id),
        priority: if id == 0 { Priority::High } else { Priority::Low },
        kind,
        cores: vec![CoreId(2 * id as u16), CoreId(2 * id as u16 + 1)].into(),
        devices: vec![DeviceId(id as u8)],
        stack: false,
        mask: None,
    };
    let groups = vec![group(0, WorkloadKind::NetworkIo), group(1, WorkloadKind::StorageIo)];
    let before = snapshot(step.saturating_sub(1));
    let after = snapshot(step);
    let cause = Cause {
        what: "DCA write miss ratio".to_owned(),
        value: 0.25,
        limit: Some(("dmaleak".to_owned(), 0.2)),
    };
    let event = Event {
        action: "lp-zone-grow".to_owned(),
        group: Some("fio".to_owned()),
        text: format!("step {step}: fio takes a way"),
        causes: vec![cause],
    };
    let record = StepRecord {
        at_ns: step * 1_000_000_000,
        state: "steady".to_owned(),
        events: vec![event],
        knobs: after.knobs.clone(),
        worth: Worth::Known(worth()),
        ..StepRecord::default()
    };
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    Published {
        step,
        at: SystemTime::now(),
        started,
        at_clock: real().now(),
        started_clock: Duration::ZERO,
        mode: DaemonMode::Manage,
        paused: None,
        hands_over_until: None,
        policy: "a4".to_owned(),
        file_policy: None,
        settings: Arc::new("stable_interval_s = 5".parse().unwrap()),
        period_ns: 20_000_000,
        inventory: Arc::new(inventory()),
        groups,
        groupings: vec![Grouping {
            tenant: name(1),
            with: vec![name(0)],
            in_default: false,
            why: "classes of service are short".to_owned(),
        }],
        classes: vec![
            PublishedClass { name: "waykeeper-fio".to_owned(), tenants: vec![WorkloadId(1)] },
            PublishedClass { name: "default".to_owned(), tenants: vec![WorkloadId(0)] },
        ],
        seen: Interval::between(&before, &after),
        snapshot: Some(after),
        record,
        twin: Some(TwinStatus {
            state: TwinState::Computing,
            asked: Some(real().now()),
            cpu: Duration::from_millis(1500),
            answers: 3,
            panics: 1,
        }),
        advice: Some(Candidate {
            plan: Plan::of_masks([(WorkloadId(1), WayMask::from_bits(0x3))]),
            tenants: BTreeMap::new(),
            hpw: Estimate { value: 1.12, error: 0.04 },
            lpw: Estimate { value: 0.99, error: 0.005 },
        }),
        last_actions: (step.saturating_sub(2)..=step)
            .map(|step| LastAction {
                step,
                at: started + Duration::from_secs(step),
                policy: "a4".to_owned(),
                action: "lp-zone-grow".to_owned(),
                text: "fio takes a way".to_owned(),
            })
            .collect(),
        active_problems: vec![ActiveProblem { kind: "counter".to_owned(), text: "no MBM here".to_owned() }],
        totals: PublishedTotals {
            summary: LoopSummary { steps: step, blind_steps: 1, missed_deadlines: 2 },
            actions: BTreeMap::from([("a4".to_owned(), BTreeMap::from([("lp-zone-grow".to_owned(), step)]))]),
            dropped: BTreeMap::from([("backwards".to_owned(), 3)]),
            unrecorded: 4,
            unlogged: 7,
            reloads: [5, 6],
        },
    }
}

/// HPWs gained an eighth and fio lost a tenth, as a look said 42 s ago.
fn worth() -> WorthEstimate {
    let (hpw, lpw) = (Estimate { value: 1.125, error: 0.04 }, Estimate { value: 0.9, error: 0.02 });
    WorthEstimate {
        from: WorthSource::Look,
        age_s: 42.0,
        hpw: Some(hpw),
        lpw: Some(lpw),
        tenants: [(WorkloadId(0), hpw), (WorkloadId(1), lpw)].into(),
    }
}

fn inventory() -> Inventory {
    let port = |id: u8| RootPort {
        id: PortId(id),
        address: format!("0000:{}a:00.0", 3 + id),
        socket: 0,
        dca_switch: Support::Yes,
        rx_ring: Dial::absent("none"),
        rx_burst: Dial::absent("none"),
    };
    let device = |id: u8, name: &str, kind| Device {
        id: DeviceId(id),
        name: name.to_owned(),
        kind,
        ports: vec![PortId(id)],
    };
    Inventory {
        platform: Platform { chip: "gold-6140".to_owned(), host: "Linux 6.12".to_owned() },
        cores: (0..18).map(CoreId).collect(),
        llc: Some(LlcGeometry::plain(11, 25_952_256, 16)),
        dca_ways_default: Some(WayMask::from_bits(0x600)),
        dca_ways_switch: Support::Yes,
        devices: vec![device(0, "nic0", DeviceKind::Network), device(1, "ssd0", DeviceKind::Storage)],
        ports: vec![port(0), port(1)],
    }
}

/// Counters after `step` seconds. The SSD's port counts no reads, and fio's occupancy is unavailable.
fn snapshot(step: u64) -> Snapshot {
    let value = |per_s: u64| Reading::Value(step * per_s);
    let counters = |id: u32| {
        WorkloadCounters::of([
            (WorkloadCounter::Instructions, value(3_000_000_000)),
            (WorkloadCounter::Cycles, value(2_000_000_000)),
            (WorkloadCounter::MlcHits, value(90_000_000)),
            (WorkloadCounter::MlcMisses, value(10_000_000)),
            (WorkloadCounter::LlcHits, value(8_000_000)),
            (WorkloadCounter::LlcMisses, value(2_000_000)),
            (
                WorkloadCounter::OccupancyBytes,
                if id == 0 { Reading::Value(4_194_304) } else { Reading::Unavailable },
            ),
        ])
    };
    let masks = [(WorkloadId(0), WayMask::from_bits(0x7f0)), (WorkloadId(1), WayMask::from_bits(0x00c))];
    Snapshot {
        at_ns: step * 1_000_000_000,
        counters_read: None,
        groups: (0..2).map(|id| (WorkloadId(id), counters(id))).collect(),
        socket: SocketCounters::of([
            (SocketCounter::DcaWriteHits, value(30_000_000)),
            (SocketCounter::DcaWriteMisses, value(10_000_000)),
            (SocketCounter::MemoryReadBytes, value(5_000_000_000)),
            (SocketCounter::MemoryWriteBytes, value(1_000_000_000)),
        ]),
        ports: BTreeMap::from([
            (
                PortId(0),
                PortCounters::of([
                    (PortCounter::InboundBytes, value(2_000_000_000)),
                    (PortCounter::OutboundBytes, value(500_000_000)),
                ]),
            ),
            (
                PortId(1),
                PortCounters::of([
                    (PortCounter::InboundBytes, value(640_000_000)),
                    (PortCounter::OutboundBytes, Reading::Absent),
                ]),
            ),
        ]),
        knobs: KnobValues::of_masks(masks)
            .with(Knob::DcaWays, WayMask::from_bits(0x600))
            .with(Knob::Dca(PortId(0)), true)
            .with(Knob::Dca(PortId(1)), false),
    }
}

/// The daemon. Its control thread updates the published state and answers orders, as the real one does.
pub struct Stage {
    /// Folder of its socket.
    pub folder: tempfile::TempDir,
    pub published_state: Arc<PublishedState>,
    servers: Option<Servers>,
    /// Steps that the control thread has taken.
    steps: Arc<AtomicU64>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Order>>>,
}

impl Stage {
    /// A daemon with these limits and an optional readers' group. Its published state changes 50 times a second.
    pub fn new(limits: SocketLimits, group: Option<&str>) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        // The socket, not the folder, must refuse other users.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let published_state = Arc::new(PublishedState::new(published(1)));
        let (sender, waiting) = orders();
        let config = ServersConfig {
            socket: Some(folder.path().join("s")),
            group: group.map(str::to_owned),
            metrics: Some(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))),
            limits,
            ..ServersConfig::default()
        };
        let ours = group.is_none() || rustix::process::geteuid().is_root();
        assert!(ours, "not run: needs root: the socket is given to a group");
        let servers = Servers::open(&config, published_state.clone(), sender).unwrap();
        let (steps, ending) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
        let (shown, counted, reported) = (published_state.clone(), steps.clone(), ending.clone());
        let thread = std::thread::spawn(move || {
            let mut carried_out = Vec::new();
            while !reported.load(Ordering::Relaxed) {
                shown.replace(published(counted.fetch_add(1, Ordering::Relaxed) + 1));
                for asked in waiting.try_iter() {
                    carried_out.push(asked.order.clone());
                    let reply = match &asked.order {
                        Order::SetPolicy { name, .. } if name == "a5" => {
                            Err(OrderError::Refused("unknown policy `a5`".to_owned()))
                        }
                        order => Ok(format!("done: {order:?}")),
                    };
                    asked.answer(reply);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            carried_out
        });
        Stage { folder, published_state, servers: Some(servers), steps, ending, thread: Some(thread) }
    }

    /// Path of the control socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Address of the metrics.
    pub fn metrics(&self) -> SocketAddr {
        self.servers.as_ref().and_then(Servers::metrics_address).unwrap()
    }

    /// Waits until the control thread has taken `more` steps.
    pub fn moves_on(&self, more: u64) {
        let goal = self.steps.load(Ordering::Relaxed) + more;
        wait_for("the published state moves on", || self.steps.load(Ordering::Relaxed) >= goal);
    }

    /// Closes socket and metrics.
    pub fn close(&mut self) {
        self.servers.take();
    }

    /// Ends it; returns the orders that were carried out.
    pub fn end(mut self) -> Vec<Order> {
        self.close();
        self.ending.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A client that sends raw lines.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects, with a time limit.
    pub fn at(path: &Path) -> Client {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// The stream.
    pub fn stream(&mut self) -> &mut UnixStream {
        self.0.get_mut()
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) {
        self.stream().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line; empty after the daemon closed the connection.
    pub fn receive(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// Sends a line and parses the answer.
    pub fn ask(&mut self, line: &str) -> serde_json::Value {
        self.send(line);
        let answer = self.receive();
        serde_json::from_str(&answer).unwrap_or_else(|why| panic!("{line}: {why}: {answer:?}"))
    }
}
