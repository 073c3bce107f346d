//! A made-up result of the flagship scenario with the shape of A4's HPW-heavy experiment: 11 workloads, 6 policies.
//! Tables and reports are tested with it.

#![allow(dead_code, reason = "every test binary uses its own part of the fixture")]

use indexmap::IndexMap;
use waykeeper_host::{KnobKind, Priority, WorkloadKind};
use waykeeper_lab::results::*;
use waykeeper_silicon::EvictionReason;
use waykeeper_units::WayMask;

pub const POLICIES: [&str; 6] = ["default", "isolate", "a4-a", "a4-b", "a4-c", "a4-d"];

const DCA_WAYS: WayMask = WayMask::from_bits(0x600);

struct Spec {
    name: &'static str,
    cores: &'static str,
    priority: Priority,
    kind: WorkloadKind,
    /// Latency in us for I/O, IPC for the others, under `default`.
    base: f64,
    /// Performance under each policy.
    ratios: [f64; 6],
    llc_hit: [f64; 6],
}

fn specs() -> Vec<Spec> {
    use Priority::{High, Low};
    use WorkloadKind::{NetworkIo, NonIo, StorageIo};
    let spec = |name, cores, priority, kind, base, ratios, llc_hit| Spec {
        name,
        cores,
        priority,
        kind,
        base,
        ratios,
        llc_hit,
    };
    vec![
        spec(
            "fastclick",
            "0-3",
            High,
            NetworkIo,
            310.0,
            [1.0, 0.83, 0.77, 1.11, 1.48, 1.48],
            [0.71, 0.95, 0.75, 0.94, 0.99, 0.99],
        ),
        spec(
            "redis-server",
            "4",
            High,
            NonIo,
            0.92,
            [1.0, 0.97, 1.02, 1.04, 1.08, 1.09],
            [0.60, 0.53, 0.55, 0.44, 0.50, 0.40],
        ),
        spec(
            "redis-client",
            "5",
            High,
            NonIo,
            0.81,
            [1.0, 0.98, 1.01, 1.02, 1.05, 1.05],
            [0.10, 0.03, 0.10, 0.08, 0.29, 0.18],
        ),
        spec(
            "x264",
            "6",
            High,
            NonIo,
            1.72,
            [1.0, 0.97, 1.90, 1.94, 2.02, 2.05],
            [0.04, 0.04, 0.02, 0.01, 0.03, 0.06],
        ),
        spec(
            "parest",
            "7",
            High,
            NonIo,
            1.10,
            [1.0, 1.05, 0.98, 0.99, 1.24, 1.31],
            [0.20, 0.32, 0.16, 0.14, 0.48, 0.51],
        ),
        spec(
            "xalancbmk",
            "8",
            High,
            NonIo,
            0.74,
            [1.0, 1.08, 1.12, 1.15, 1.33, 1.36],
            [0.31, 0.40, 0.42, 0.44, 0.61, 0.63],
        ),
        spec(
            "lbm",
            "9",
            High,
            NonIo,
            0.58,
            [1.0, 0.99, 1.01, 1.02, 1.06, 1.06],
            [0.0, 0.0, 0.01, 0.0, 0.01, 0.01],
        ),
        spec(
            "ffsb-heavy",
            "10-12",
            Low,
            StorageIo,
            4210.0,
            [1.0, 0.98, 0.97, 0.97, 0.96, 0.95],
            [0.43, 0.44, 0.46, 0.45, 0.48, 0.48],
        ),
        spec(
            "omnetpp",
            "13",
            Low,
            NonIo,
            0.49,
            [1.0, 0.94, 0.90, 0.91, 0.93, 0.94],
            [0.38, 0.30, 0.25, 0.26, 0.28, 0.29],
        ),
        spec(
            "exchange2",
            "14",
            Low,
            NonIo,
            2.31,
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            [0.88, 0.86, 0.85, 0.85, 0.86, 0.86],
        ),
        spec(
            "bwaves",
            "15",
            Low,
            NonIo,
            0.66,
            [1.0, 0.96, 0.95, 0.95, 0.97, 0.97],
            [0.01, 0.01, 0.01, 0.01, 0.01, 0.01],
        ),
    ]
}

/// A small repeatable variation in -1..1, so that curves look measured.
fn wobble(a: usize, b: usize, seed: u64) -> f64 {
    let mut x =
        (a as u64 * 0x9e37 + b as u64 * 0x85eb + seed * 0xc2b2 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as f64 / (1u64 << 24) as f64) * 2.0 - 1.0
}

fn workload(spec: &Spec, policy: usize, seed: u64) -> WorkloadResult {
    let ratio = spec.ratios[policy] * (1.0 + 0.01 * wobble(policy, spec.name.len(), seed));
    let io = spec.kind != WorkloadKind::NonIo;
    let network = spec.kind == WorkloadKind::NetworkIo;
    let metrics = WorkloadMetrics {
        throughput: Some(match spec.kind {
            WorkloadKind::NetworkIo => 11.6e9,
            WorkloadKind::StorageIo => 3.1e9 * ratio,
            WorkloadKind::NonIo => spec.base * ratio * 2.3e9,
        }),
        latency_mean_us: io.then(|| spec.base / ratio),
        latency_p50_us: io.then(|| spec.base * 0.9 / ratio),
        latency_p99_us: io.then(|| spec.base * 1.9 / ratio),
        ipc: Some(if io { 1.1 } else { spec.base * ratio }),
        llc_hit_ratio: Some(spec.llc_hit[policy]),
        mlc_hit_ratio: Some(0.8),
        llc_misses_per_s: Some(4.2e6),
        llc_occupancy_bytes: Some(2.0e6 + 1.0e6 * spec.llc_hit[policy]),
        memory_read_bytes_per_s: Some(0.9e9),
        memory_write_bytes_per_s: Some(0.4e9),
        drops_per_s: network.then_some([0.0, 1520.0, 210.0, 0.0, 0.0, 0.0][policy]),
        ..Default::default()
    };
    WorkloadResult {
        program: if network { "fastclick-chain".into() } else { spec.name.replace("-heavy", "") },
        cores: spec.cores.parse().unwrap(),
        priority: spec.priority,
        kind: spec.kind,
        idle_jobs: Vec::new(),
        devices: match spec.kind {
            WorkloadKind::NetworkIo => vec!["nic0".to_owned()],
            WorkloadKind::StorageIo => vec!["raid0".to_owned()],
            WorkloadKind::NonIo => Vec::new(),
        },
        score: if io { Score::InverseLatency } else { Score::Ipc },
        throughput_unit: Some(if io { ThroughputUnit::Bytes } else { ThroughputUnit::Instructions }),
        metrics,
        cause: None,
        sampling_error: IndexMap::from([
            ("llc_hit_ratio".to_owned(), if spec.name == "parest" { 1.1 } else { 0.4 }),
            ("mlc_hit_ratio".to_owned(), 0.2),
        ]),
        spread: IndexMap::new(),
    }
}

fn system(policy: usize, seed: u64) -> SystemMetrics {
    let hit = [0.71, 0.88, 0.76, 0.90, 0.985, 0.987][policy] * (1.0 + 0.005 * wobble(policy, 99, seed));
    SystemMetrics {
        memory_read_bytes_per_s: Some([41.2e9, 38.0e9, 39.3e9, 37.7e9, 34.8e9, 34.5e9][policy]),
        memory_write_bytes_per_s: Some([19.8e9, 17.1e9, 18.4e9, 16.6e9, 13.9e9, 13.7e9][policy]),
        memory_latency_ns: Some([124.0, 118.0, 121.0, 117.0, 112.0, 111.0][policy]),
        dca_write_hit_ratio: Some(hit),
        dca_read_hit_ratio: Some(0.99),
        dma_leak_lines_per_s: Some((1.0 - hit) * 2.2e8),
        drops_per_s: Some([0.0, 1520.0, 210.0, 0.0, 0.0, 0.0][policy]),
        inbound_bytes_per_s: Some(15.1e9),
        outbound_bytes_per_s: Some(11.6e9),
        ..Default::default()
    }
}

fn evictions(policy: usize, seed: u64) -> Vec<Evictions> {
    use EvictionReason::*;
    let size = 1.0 - 0.1 * policy as f64 + 0.01 * wobble(policy, 7, seed);
    let pairs = [
        ("nic0", "nic0", DeviceWrite, 22.0, 21.0),
        ("raid0", "nic0", DeviceWrite, 14.0, 14.0),
        ("nic0", "x264", DeviceWrite, 9.0, 0.0),
        ("fastclick", "xalancbmk", MlcVictim, 6.0, 0.0),
        ("fastclick", "nic0", MigratedCopy, 1.2, 1.2),
        ("omnetpp", "omnetpp", MlcVictim, 0.6, 0.0),
        ("bwaves", "parest", DirectoryConflict, 0.4, 0.0),
    ];
    let pair = |(by, of, reason, lines, unread): (&str, &str, _, f64, f64)| Evictions {
        by: by.to_owned(),
        of: of.to_owned(),
        reason,
        lines_per_s: lines * size * 1e6,
        unread_lines_per_s: unread * size * 1e6,
    };
    pairs.map(pair).to_vec()
}

fn zone(policy: usize, at_s: f64) -> WayMask {
    // A4's LP zone grows one way a second after its measurement, from the right of the DCA zone.
    let grown = if policy >= 2 { (at_s - 2.0).clamp(0.0, 4.0) as u32 } else { 0 };
    WayMask::span(2, 2 + grown.min(3))
}

fn way_map(policy: usize) -> Vec<WayMapSlice> {
    let marks: &[f64] = if policy < 2 { &[0.0, 30.0] } else { &[0.0, 3.0, 4.0, 5.0, 12.0, 13.0, 14.0, 30.0] };
    let slices = marks.windows(2).map(|span| {
        let (from_s, to_s) = (span[0], span[1]);
        let masks = specs().into_iter().enumerate().map(|(i, spec)| {
            let mask = match (policy, spec.priority) {
                (0, _) => WayMask::full(11),
                (1, Priority::High) => WayMask::span(4, 5),
                (1, Priority::Low) => WayMask::span(i as u32 % 4, 1),
                (_, Priority::High) => WayMask::full(11),
                (4.., Priority::Low) if spec.name == "ffsb-heavy" && from_s >= 12.0 => WayMask::span(2, 1),
                (_, Priority::Low) if from_s == 13.0 => WayMask::full(11),
                (_, Priority::Low) => zone(policy, from_s),
            };
            (spec.name.to_owned(), mask)
        });
        WayMapSlice {
            from_s,
            to_s,
            masks: masks.collect(),
            dca_ways: Some(DCA_WAYS),
            dca_off_ports: if policy >= 4 && from_s >= 12.0 {
                vec!["0000:5e:00.0".into()]
            } else {
                Vec::new()
            },
        }
    });
    slices.collect()
}

pub fn decision(at_s: f64, state: &str, action: &str, text: &str) -> DecisionRecord {
    DecisionRecord {
        at_s,
        state: state.into(),
        action: action.into(),
        group: None,
        text: text.into(),
        causes: Vec::new(),
        knobs: Vec::new(),
    }
}

fn cause(what: &str, value: f64, limit_name: &str, limit: f64) -> CauseRecord {
    CauseRecord {
        what: what.into(),
        value: Some(value),
        limit_name: Some(limit_name.into()),
        limit: Some(limit),
    }
}

fn decisions(policy: usize) -> Vec<DecisionRecord> {
    if policy < 2 {
        return Vec::new();
    }
    let mut all = vec![decision(0.0, "InitMeasure", "initial-masks", "LP zone starts at 2 ways")];
    for (step, at_s) in [3.0, 4.0, 5.0].into_iter().enumerate() {
        let mut grow =
            decision(at_s, "Expand", "lp-zone-grow", &format!("LP zone grows to {} ways", step + 3));
        grow.causes.push(cause("HPW LLC hit ratio loss", 0.004 * (step + 1) as f64, "T1", 0.2));
        grow.knobs.push(KnobRecord {
            knob: KnobKind::Mask,
            target: Some("omnetpp".into()),
            value: zone(policy, at_s).to_string(),
            outcome: Some("applied".into()),
        });
        all.push(grow);
    }
    if policy >= 4 {
        let mut off =
            decision(12.0, "Trash", "dca-off", "storage antagonist: DCA off, demoted to the trash ways");
        off.group = Some("ffsb-heavy".into());
        off.causes.push(cause("DCA write miss ratio", 0.342, "DMALK_DCA_MS_THR", 0.4));
        off.causes.push(cause("share of I/O throughput", 0.21, "DMALK_IO_TP_THR", 0.2));
        off.knobs.push(KnobRecord {
            knob: KnobKind::Dca,
            target: Some("0000:5e:00.0".into()),
            value: "off".into(),
            outcome: Some("applied".into()),
        });
        off.knobs.push(KnobRecord {
            knob: KnobKind::DcaWays,
            target: None,
            value: "0x600".into(),
            outcome: Some("reads back 0x400".into()),
        });
        all.push(off);
    }
    for round in 0..3 {
        let at_s = 13.0 + 5.0 * f64::from(round);
        all.push(decision(at_s, "Revert", "revert", "every workload gets all ways for a look"));
        all.push(decision(at_s + 1.0, "Stable", "stable", "nothing changed: masks restored"));
    }
    all
}

fn samples(policy: usize, seed: u64) -> Vec<TimeSample> {
    let sample = |second: usize| {
        let settled = if policy < 2 { 1.0 } else { (second as f64 / 14.0).min(1.0) };
        let blend = |from: f64, to: f64, noise: f64| from + (to - from) * settled + noise;
        let workloads = specs().into_iter().enumerate().map(|(i, spec)| {
            let mut metrics = workload(&spec, policy, seed).metrics;
            let noise = 0.012 * wobble(second, i, seed);
            metrics.llc_hit_ratio = Some(blend(spec.llc_hit[0], spec.llc_hit[policy], noise).clamp(0.0, 1.0));
            (spec.name.to_owned(), metrics)
        });
        let (start, end) = (system(0, seed), system(policy, seed));
        let mix = |key: &str, scale: f64| {
            Some(blend(start.get(key)?, end.get(key)?, scale * wobble(second, key.len(), seed)))
        };
        TimeSample {
            at_s: second as f64 + 1.0,
            state: (policy >= 2).then(|| if second < 14 { "Expand" } else { "Stable" }.to_owned()),
            workloads: workloads.collect(),
            system: SystemMetrics {
                memory_read_bytes_per_s: mix("memory_read_bytes_per_s", 0.6e9),
                memory_write_bytes_per_s: mix("memory_write_bytes_per_s", 0.4e9),
                dca_write_hit_ratio: mix("dca_write_hit_ratio", 0.008),
                ..end
            },
        }
    };
    (0..30).map(sample).collect()
}

/// The flagship under the given seed, scored.
pub fn flagship(seed: u64) -> RunSummary {
    let policies = POLICIES.iter().enumerate().map(|(index, name)| {
        let result = PolicyResult {
            workloads: specs()
                .iter()
                .map(|spec| (spec.name.to_owned(), workload(spec, index, seed)))
                .collect(),
            groups: IndexMap::new(),
            system: SystemResult {
                metrics: system(index, seed),
                sampling_error: IndexMap::from([("dca_write_hit_ratio".to_owned(), 0.3)]),
                spread: IndexMap::new(),
            },
            evictions: evictions(index, seed),
            simulated_s: if index == 0 { 0.75 } else { 1.25 },
            settled_s: (index >= 2).then_some(if index >= 4 { 12.0 } else { 5.0 }),
            regret: None,
            worth: None,
            decisions: decisions(index),
            way_map: way_map(index),
            samples: samples(index, seed),
        };
        ((*name).to_owned(), result)
    });
    let mut summary = RunSummary {
        schema: RUN_SCHEMA.into(),
        version: "0.1.0".into(),
        scenario: "a4-hpw-heavy".into(),
        about: Some(
            "seven high-priority workloads against four low ones, a network and a storage array".into(),
        ),
        chip: "gold-6140".into(),
        llc_ways: 11,
        seed,
        seeds: 1,
        sets: "1/32".into(),
        sample_seed: None,
        time_factor: 20.0,
        duration_s: 30.0,
        measured_from_s: 12.0,
        simulated_s: 1.5,
        wall_s: Some(14.2),
        partial: false,
        missing: Vec::new(),
        baseline: None,
        sampling_error: IndexMap::new(),
        warnings: Vec::new(),
        verdict: None,
        policies: policies.collect(),
    };
    summary.score();
    summary
}

/// Five seeds of it as one.
pub fn five_seeds() -> RunSummary {
    combine((1..=5).map(flagship).collect()).unwrap()
}

/// A sweep over one or two keys, two policies, two workloads a point.
pub fn sweep(two_keys: bool) -> SweepSummary {
    let masks = ["0x600", "0x300", "0x0c0", "0x030", "0x00c", "0x003"];
    let sizes: &[i64] = if two_keys { &[64, 1024] } else { &[1024] };
    let mut keys = vec![SweepKey { key: "workload.xmem.mask".into(), label: Some("X-Mem mask".into()) }];
    if two_keys {
        keys.push(SweepKey { key: "nic.nic0.packet_bytes".into(), label: Some("packet, bytes".into()) });
    }
    let points = masks.iter().enumerate().flat_map(|(i, mask)| {
        let keys = &keys;
        sizes.iter().map(move |size| {
            let mut run = flagship(1);
            run.policies.retain(|name, _| name == "default" || name == "isolate");
            for policy in run.policies.values_mut() {
                policy.workloads.retain(|name, _| name == "fastclick" || name == "xalancbmk");
                policy.samples.clear();
                let hit =
                    0.45 + 0.08 * i as f64 - if i == 0 || i == 5 { 0.3 } else { 0.0 } + *size as f64 / 1e5;
                policy
                    .workloads
                    .values_mut()
                    .for_each(|w| w.metrics.llc_hit_ratio = Some(hit.clamp(0.0, 1.0)));
            }
            run.score();
            let values = [SweepValue::Text((*mask).to_owned()), SweepValue::Integer(*size)];
            SweepPoint { at: keys.iter().map(|key| key.key.clone()).zip(values).collect(), run }
        })
    });
    let points = points.collect();
    SweepSummary {
        schema: SWEEP_SCHEMA.into(),
        version: "0.1.0".into(),
        scenario: "a4-fig3".into(),
        about: Some("which ways hurt: X-Mem's mask moves over the LLC".into()),
        wall_s: Some(61.0),
        partial: false,
        missing: Vec::new(),
        keys,
        points,
    }
}

/// Text that breaks output without escaping.
pub const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&$\\alpha$\x1b[2J\u{202e},\n=cmd";

/// The flagship with hostile names in every field that contains a name of the scenario.
pub fn hostile() -> RunSummary {
    let mut summary = flagship(1);
    summary.scenario = HOSTILE.into();
    summary.about = Some(HOSTILE.into());
    summary.chip = HOSTILE.into();
    summary.sets = HOSTILE.into();
    summary.version = HOSTILE.into();
    let rename = |name: &str| if name == "fastclick" { HOSTILE.to_owned() } else { name.to_owned() };
    let policies = std::mem::take(&mut summary.policies);
    for (name, mut policy) in policies {
        policy.workloads = policy.workloads.into_iter().map(|(name, w)| (rename(&name), w)).collect();
        for slice in &mut policy.way_map {
            slice.masks =
                std::mem::take(&mut slice.masks).into_iter().map(|(n, m)| (rename(&n), m)).collect();
            slice.dca_off_ports = vec![HOSTILE.into()];
        }
        for one in &mut policy.evictions {
            (one.by, one.of) = (rename(&one.by), HOSTILE.into());
        }
        for sample in &mut policy.samples {
            sample.workloads =
                std::mem::take(&mut sample.workloads).into_iter().map(|(n, m)| (rename(&n), m)).collect();
        }
        for decision in &mut policy.decisions {
            decision.text = HOSTILE.into();
            decision.state = HOSTILE.into();
            decision.group = Some(HOSTILE.into());
            decision.causes.iter_mut().for_each(|cause| cause.what = HOSTILE.into());
            decision.knobs.iter_mut().for_each(|knob| knob.outcome = Some(HOSTILE.into()));
        }
        let name = if name == "a4-d" { HOSTILE.to_owned() } else { name };
        summary.policies.insert(name, policy);
    }
    summary.score();
    summary
}
