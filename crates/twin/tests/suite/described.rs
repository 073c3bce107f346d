//! Descriptions by hand, whose answers are known.

use crate::goal::GOAL;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_calibration::{
    Estimate, LayoutAnswer, LayoutLimits, LayoutQuestion, Observed, ReuseComponent, SeenTenant,
    ServerDescription, TenantDescription,
};
use waykeeper_host::{KnobValues, LlcGeometry, Plan, Priority, Workload, WorkloadKind};
use waykeeper_twin::{Budget, answer};
use waykeeper_units::{CoreList, WayMask, WorkloadId};

const WAYS: u32 = 11;
const LLC_LINES: f64 = 405_504.0;
const BUDGET: Budget = Budget { events: 3_000_000 };

/// A program that refers to `lines` lines at random, and what was seen of it with all ways.
fn tenant(id: u32, priority: Priority, lines: f64, hits: f64) -> TenantDescription {
    let exact = Estimate::exact;
    TenantDescription {
        workload: Workload {
            id: WorkloadId(id),
            name: format!("program{id}"),
            priority,
            kind: WorkloadKind::NonIo,
            cores: id.to_string().parse::<CoreList>().expect("a core"),
            devices: Vec::new(),
            stack: false,
            mask: None,
        },
        references: exact(20e6),
        hits: exact(hits),
        cycles: 2.3e9,
        // 40 cycles of work for each reference at a base of one cycle per instruction.
        instructions: 20e6 * 40.0,
        base_cycles: exact(1.0),
        hit_cycles: exact(30.0),
        miss_cycles: exact(100.0),
        reuse: vec![ReuseComponent { share: exact(1.0), lines: Some(exact(lines)) }],
        held_lines: None,
    }
}

fn question(tenants: Vec<TenantDescription>, asked: Vec<Plan>) -> LayoutQuestion {
    let full = WayMask::full(WAYS);
    let knobs: KnobValues = Plan::of_masks(tenants.iter().map(|tenant| (tenant.workload.id, full)));
    let seen = |tenant: &TenantDescription| SeenTenant {
        references: tenant.references.value,
        hits: tenant.hits,
        cycles_per_instruction: Estimate::exact(2.3e9 / tenant.instructions),
        lines: None,
    };
    let observed = Observed {
        knobs: knobs.clone(),
        tenants: tenants.iter().map(|tenant| (tenant.workload.id, seen(tenant))).collect(),
        write_misses: None,
        ports: BTreeMap::new(),
        memory_bytes: None,
        intervals: 4.0,
    };
    let llc = LlcGeometry {
        ways: WAYS,
        min_ways: 1,
        bytes: LLC_LINES as u64 * 64,
        clos_count: 16,
        sparse_masks: false,
        inclusive_ways: Some(WayMask::from_bits(3)),
    };
    LayoutQuestion {
        number: 7,
        server: ServerDescription {
            chip: "a chip that no file describes".to_owned(),
            llc,
            dca_ways: Some(WayMask::from_bits(0x600)),
            tenants,
            devices: Vec::new(),
            knobs,
            observed: vec![observed],
        },
        limits: LayoutLimits { min_ways: 1, most_classes: 16, dca_ways: Vec::new(), switches: Vec::new() },
        goal: GOAL,
        since_found: BTreeMap::new(),
        kept: BTreeSet::new(),
        asked,
        most: 2,
    }
}

fn with_ways(count: u32) -> Plan {
    Plan::of_masks([(WorkloadId(0), WayMask::span(0, count))])
}

fn of(answer: &LayoutAnswer, asked: usize) -> Estimate {
    answer.asked[asked].tenants[&WorkloadId(0)]
}

#[test]
fn half_of_a_working_set_hits_half_of_the_time() {
    // All of 147,456 lines are in 11 ways. Four ways hold as many lines, two hold half of them. A reference takes 40 + 30
    // cycles if it hits and 40 + 100 if it misses: half of them 105, so progress is 70 / 105 = 0.667.
    let lines = LLC_LINES * 4.0 / 11.0;
    let answer = answer(
        &question(vec![tenant(0, Priority::High, lines, 0.998)], vec![with_ways(11), with_ways(2)]),
        BUDGET,
    );
    assert_eq!((answer.question, answer.asked.len()), (7, 2));
    let (all, two) = (of(&answer, 0), of(&answer, 1));
    assert!((all.value - 1.0).abs() < 0.01, "{all:?}");
    assert!((two.value - 0.667).abs() < 0.09, "{two:?}");
    assert!(two.error > all.error, "a layout far from those seen is less certain: {two:?}");
}

#[test]
fn more_ways_never_slow_a_lone_program_down() {
    let asked: Vec<Plan> = (1..=11).map(with_ways).collect();
    let answer = answer(&question(vec![tenant(0, Priority::High, LLC_LINES * 0.8, 0.95)], asked), BUDGET);
    for ways in 1..11 {
        let (fewer, more) = (of(&answer, ways - 1), of(&answer, ways));
        assert!(
            more.value > fewer.value - 2.0 * fewer.error.min(0.03),
            "{ways} ways {fewer:?}, one more {more:?}"
        );
    }
    assert!(of(&answer, 0).value < 0.85, "one way is too little: {:?}", of(&answer, 0));
}

#[test]
fn a_question_has_one_answer() {
    let ask = || {
        let tenants = vec![tenant(0, Priority::High, 2e5, 0.4), tenant(1, Priority::Low, 8e5, 0.3)];
        answer(&question(tenants, vec![with_ways(5)]), BUDGET)
    };
    assert_eq!(ask(), ask());
}

#[test]
fn a_program_without_reuse_gives_its_ways_to_one_with_reuse() {
    // The first has a set of 250,000 lines, and hits 40 % beside a second one that uses no line twice.
    let mut stream = tenant(1, Priority::Low, 1.0, 0.0);
    stream.reuse = vec![ReuseComponent { share: Estimate::exact(1.0), lines: None }];
    stream.references = Estimate::exact(60e6);
    stream.instructions = 60e6 * 10.0;
    let answer = answer(&question(vec![tenant(0, Priority::High, 2.5e5, 0.4), stream], Vec::new()), BUDGET);
    let best = &answer.best[0];
    assert!(best.hpw.value > 1.03, "{best:?}");
    assert!(best.lpw.value > 0.97, "{best:?}");
    let (program, stream) = (best.plan.mask(WorkloadId(0)).unwrap(), best.plan.mask(WorkloadId(1)).unwrap());
    assert!(stream.count() < WAYS && program.minus(stream).count() > 0, "{program} {stream}");
}

#[test]
fn layouts_stay_within_the_limits() {
    let tenants: Vec<_> = (0..6).map(|id| tenant(id, Priority::High, 1e5, 0.5)).collect();
    let mut question = question(tenants, Vec::new());
    question.limits.most_classes = 3;
    question.limits.min_ways = 2;
    question.most = 8;
    let answer = answer(&question, BUDGET);
    assert!(answer.simulated > 20 && answer.best.len() == 8);
    for candidate in &answer.best {
        let mut masks: Vec<WayMask> = candidate.plan.masks().map(|(_, mask)| mask).collect();
        assert!(masks.iter().all(|mask| mask.is_contiguous() && mask.count() >= 2), "{masks:?}");
        masks.push(WayMask::full(WAYS));
        masks.sort_unstable();
        masks.dedup();
        assert!(masks.len() <= 3, "{masks:?}");
        assert!(candidate.plan.dca_ways().is_none() && candidate.plan.dca_by_port().count() == 0);
    }
}

#[test]
fn a_server_without_tenants_is_answered() {
    let answer = answer(&question(Vec::new(), vec![Plan::default()]), Budget { events: 1000 });
    assert_eq!(answer.asked.len(), 1);
    assert_eq!(answer.asked[0].hpw, Estimate::exact(1.0));
}
