//! Faults on the virtual server: each has the effect at the seam that it has on a real machine, and nothing else
//! changes.

use std::sync::Arc;
use waykeeper_host::{
    Host, Interval, Knob, KnobOutcome, Lines, Plan, Priority, Reading, Snapshot, SocketCounter,
    WorkloadCounter,
};
use waykeeper_machine::{FaultyServer, RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_units::{PortId, WayMask, WorkloadId};

const MS: u64 = 1_000_000;
const X: WorkloadId = WorkloadId(0);
const Y: WorkloadId = WorkloadId(1);

fn source(faults: &str) -> ScenarioSource {
    let text = format!(
        r#"
name = "faults"
duration_s = 0.1
warmup_s = 0
measure_s = 0.01
time_factor = 1

[[storage]]
name = "raid0"

[[workload]]
name = "x"
program = "x-mem"
cores = "0"
priority = "high"
working_set = "2 MiB"
[[workload.phase]]
at_s = 0.004
priority = "low"

[[workload]]
name = "y"
program = "fio"
cores = "1"
block = "128K"
{faults}
"#
    );
    ScenarioSource::parse("faults", &text, None).unwrap()
}

fn server(faults: &str) -> FaultyServer {
    let read = source(faults).read().unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::one_in(32).unwrap() };
    FaultyServer::new(VirtualServer::new(Arc::new(read), options).unwrap())
}

fn masks(group: WorkloadId, bits: u32) -> Plan {
    Plan::of_masks([(group, WayMask::from_bits(bits))])
}

/// A snapshot at a time in ms.
fn at(server: &mut FaultyServer, ms: u64) -> Snapshot {
    server.wait_until(ms * MS).unwrap();
    server.sample().unwrap()
}

#[test]
fn without_faults_it_is_the_server_itself() {
    let mut faulty = server("");
    let read = source("").read().unwrap();
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::one_in(32).unwrap() };
    let mut plain = VirtualServer::new(Arc::new(read), options).unwrap();
    for ms in 1..4 {
        plain.wait_until(ms * MS).unwrap();
        assert_eq!(at(&mut faulty, ms), plain.sample().unwrap());
        assert_eq!(faulty.apply(&masks(X, 0x00f)).unwrap(), plain.apply(&masks(X, 0x00f)).unwrap());
    }
    let partial = faulty.partial_writes();
    assert_ne!(partial, Lines::UNSUPPORTED, "the virtual server counts them");
    assert_eq!((partial, faulty.root_mask()), (plain.partial_writes(), plain.root_mask()));
}

#[test]
fn nothing_can_be_read_for_a_while() {
    let mut server = server("[[fault]]\nkind = \"sample-fails\"\nat_s = 0.002\nfor_s = 0.002");
    let readable: Vec<bool> =
        (1..6).map(|ms| server.wait_until(ms * MS).and_then(|()| server.sample()).is_ok()).collect();
    assert_eq!(readable, [true, false, false, true, true]);
}

#[test]
fn one_workloads_counters_are_unavailable_and_the_others_are_not() {
    let mut server =
        server("[[fault]]\nkind = \"unavailable\"\nat_s = 0.002\nfor_s = 0.001\nworkload = \"x\"");
    let seen = [1, 2, 3].map(|ms| at(&mut server, ms));
    let gone =
        seen.each_ref().map(|seen| seen.groups[&X][WorkloadCounter::Instructions] == Reading::Unavailable);
    assert_eq!(gone, [false, true, false]);
    assert!(seen.iter().all(|seen| seen.groups[&Y][WorkloadCounter::Instructions].value().is_some()));
    assert!(seen[1].groups[&X][WorkloadCounter::OccupancyBytes].value().is_some(), "a level, not a count");
    let after = Interval::between(&seen[1], &seen[2]).unwrap();
    assert_eq!(after.groups[&X].ipc(), None, "and no rate is made of half a pair");
}

#[test]
fn a_counter_that_begins_again_costs_one_interval() {
    let mut server = server("[[fault]]\nkind = \"counter-restarts\"\nat_s = 0.0025\nworkload = \"x\"");
    let seen = [1, 2, 3, 4].map(|ms| at(&mut server, ms));
    let count = |seen: &Snapshot| seen.groups[&X][WorkloadCounter::Instructions].value().unwrap();
    assert!(count(&seen[2]) < count(&seen[1]) && count(&seen[3]) > count(&seen[2]));
    let ipc: Vec<bool> = seen
        .windows(2)
        .map(|pair| Interval::between(&pair[0], &pair[1]).unwrap().groups[&X].ipc().is_some())
        .collect();
    assert_eq!(ipc, [true, false, true]);
}

#[test]
fn masks_are_busy_and_then_not() {
    let mut server = server("[[fault]]\nkind = \"busy\"\nat_s = 0\nfor_s = 0.002");
    let plan = masks(X, 0x00f).with(Knob::Dca(PortId(0)), false);
    let applied = server.apply(&plan).unwrap();
    assert!(matches!(&applied[Knob::Mask(X)], KnobOutcome::Busy(why) if why.contains("busy")));
    assert_eq!(applied[Knob::Dca(PortId(0))], KnobOutcome::Applied, "another lock");
    assert_eq!(at(&mut server, 1).knobs.mask(X).unwrap().bits(), 0x7ff);
    server.wait_until(2 * MS).unwrap();
    assert_eq!(server.apply(&plan).unwrap()[Knob::Mask(X)], KnobOutcome::Applied);
}

#[test]
fn dead_knobs_read_back_and_do_nothing() {
    let mut server = server(
        "[[fault]]\nkind = \"dead-mask\"\nat_s = 0\nworkload = \"x\"\n\
         [[fault]]\nkind = \"dead-switch\"\nat_s = 0\ndevice = \"raid0\"\n\
         [[fault]]\nkind = \"dead-dca-ways\"\nat_s = 0",
    );
    let ways = WayMask::from_bits(0x700);
    let plan = masks(X, 0x004).with(Knob::Dca(PortId(0)), false).with(Knob::DcaWays, ways);
    assert!(server.apply(&plan).unwrap().is_complete());
    let knobs = at(&mut server, 3).knobs;
    assert_eq!(
        (knobs.mask(X).unwrap().bits(), knobs.dca(PortId(0)).unwrap(), knobs.dca_ways()),
        (0x004, false, Some(ways))
    );
    let real = server.server().measured();
    assert!(real.system.dca_write_hit_ratio.is_some(), "the array still writes into the LLC");
    let seen = server.sample().unwrap();
    let occupied = seen.groups[&X][WorkloadCounter::OccupancyBytes].value().unwrap();
    assert!(occupied > 0 && seen.socket[SocketCounter::DcaWriteMisses].value().unwrap() > 0);
}

#[test]
fn a_dead_knob_acts_again_after_its_fault() {
    let mut server = server("[[fault]]\nkind = \"dead-mask\"\nat_s = 0\nfor_s = 0.002\nworkload = \"x\"");
    let plan = masks(X, 0x004);
    assert!(server.apply(&plan).unwrap().is_complete());
    assert_eq!(at(&mut server, 1).knobs.mask(X).unwrap().bits(), 0x004, "it reads back");
    assert_eq!(at(&mut server, 3).knobs.mask(X).unwrap().bits(), 0x7ff, "the value that acted all the time");
    assert!(server.apply(&plan).unwrap().is_complete());
    assert_eq!(server.sample().unwrap().knobs.mask(X).unwrap().bits(), 0x004);
}

#[test]
fn a_workload_dies_while_a_plan_is_carried_out() {
    let mut server = server("[[fault]]\nkind = \"dies\"\nat_s = 0.002\nworkload = \"y\"");
    assert!(at(&mut server, 2).groups.contains_key(&Y), "it lives until a plan comes");
    let applied = server.apply(&masks(Y, 0x00f)).unwrap();
    assert!(matches!(&applied[Knob::Mask(Y)], KnobOutcome::Refused(why) if why.contains("does not exist")));
    assert!(server.workloads().iter().all(|group| group.id != Y));
    assert!(!at(&mut server, 3).knobs.names(Knob::Mask(Y)));
}

#[test]
fn the_clock_jumps_ahead_and_back() {
    let mut ahead = server("[[fault]]\nkind = \"clock-jumps\"\nat_s = 0.002\nby_s = 5");
    ahead.wait_until(3 * MS).unwrap();
    assert_eq!((ahead.now_ns(), ahead.server().now_ns()), (5002 * MS, 2 * MS));
    let mut back = server("[[fault]]\nkind = \"clock-jumps\"\nat_s = 0.004\nby_s = -0.003");
    back.wait_until(6 * MS).unwrap();
    assert_eq!(back.now_ns(), MS);
    back.wait_until(2 * MS).unwrap();
    assert_eq!((back.sample().unwrap().at_ns, back.server().now_ns()), (2 * MS, 5 * MS));
}

#[test]
fn another_program_sets_a_mask() {
    let mut server =
        server("[[fault]]\nkind = \"outsider\"\nat_s = 0.002\nworkload = \"x\"\nmask = \"0x030\"");
    assert_eq!([1, 2, 3].map(|ms| at(&mut server, ms).knobs.mask(X).unwrap().bits()), [0x7ff, 0x030, 0x030]);
}

#[test]
fn a_mask_may_have_holes_where_the_chip_takes_it() {
    let text = |chip: &str| {
        format!(
            "chip = \"{chip}\"\nname = \"holes\"\ntime_factor = 1\nduration_s = 0.01\nwarmup_s = 0\nmeasure_s = 0.01\n\
             [[workload]]\nname = \"x\"\nprogram = \"x-mem\"\ncores = 0\nworking_set = \"1M\"\nmask = \"0x505\"\n\
             [[fault]]\nkind = \"outsider\"\nat_s = 0.002\nworkload = \"x\"\nmask = \"0x0a0\"\n"
        )
    };
    let read = |chip: &str| ScenarioSource::parse("holes.toml", &text(chip), None).unwrap().read();
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
    let server = VirtualServer::new(Arc::new(read("epyc-9554").unwrap()), options).unwrap();
    let mut server = FaultyServer::new(server);
    assert_eq!([1, 3].map(|ms| at(&mut server, ms).knobs.mask(X).unwrap().bits()), [0x505, 0x0a0]);
    let refused = read("gold-6140").unwrap_err().to_string();
    assert!(refused.contains("contiguous ways of 0x7ff (mask 0x505 has holes"), "{refused}");
}

#[test]
fn an_owner_declares_another_priority_and_the_program_runs_on() {
    let mut server = server("");
    let mut priority = |ms: u64| {
        let before = at(&mut server, ms);
        (server.workloads()[0].priority, before.groups[&X][WorkloadCounter::Instructions].value().unwrap())
    };
    let (before, after) = (priority(3), priority(5));
    assert_eq!((before.0, after.0), (Priority::High, Priority::Low));
    assert!(after.1 > before.1);
}

#[test]
fn a_fault_that_cannot_be_is_refused_with_its_key() {
    let error = |text: &str| source(text).read().unwrap_err().to_string();
    let unknown = error("[[fault]]\nkind = \"dead-masks\"\nat_s = 0");
    assert!(unknown.contains("fault.kind") && unknown.contains("did you mean `dead-mask`"), "{unknown}");
    let unknown_workload = error("[[fault]]\nkind = \"dies\"\nat_s = 0\nworkload = \"z\"");
    assert!(
        unknown_workload.contains("`fault.workload` is `z`; it must be one of x, y"),
        "{unknown_workload}"
    );
    let when = error("[[fault]]\nkind = \"busy\"");
    assert!(when.contains("`fault.at_s` is missing"), "{when}");
    let how = error("[[fault]]\nkind = \"clock-jumps\"\nat_s = 0");
    assert!(how.contains("`fault.by_s` is missing"), "{how}");
}
