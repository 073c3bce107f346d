//! The cost of one decision, without reading counters or setting knobs: on a typical server and a large one.
//!
//! The papers' daemons take up to 800 us an interval for everything (IAT s6.D); counters are the larger part of that.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use toml::Table;
use waykeeper_host::{Host, Interval};
use waykeeper_testbed::SyntheticHost;

/// The counters of a host over 64 intervals: all of them change, so that every policy has work to do.
fn seen(host: &mut SyntheticHost) -> Vec<Interval> {
    let mut before = host.sample().expect("it always can");
    let mut next = |second: u64| {
        host.wait_until(second * 1_000_000_000).expect("it always can");
        let after = host.sample().expect("it always can");
        let seen = Interval::between(&before, &after).expect("a second has passed");
        before = after;
        seen
    };
    (1..=64).map(&mut next).collect()
}

fn decisions(criterion: &mut Criterion) {
    for (cores, tenants) in [(18, 11), (512, 256)] {
        let mut host = SyntheticHost::new(cores, tenants);
        let (inventory, groups) = (host.inventory().clone(), host.workloads());
        let seen = seen(&mut host);
        let mut bench = criterion.benchmark_group(format!("{cores} cores, {tenants} tenants"));
        for name in ["isolate", "iat", "a4", "waykeeper"] {
            bench.bench_function(name, |bencher| {
                bencher.iter_batched_ref(
                    || {
                        let mut policy =
                            waykeeper_policy::build(name, &Table::new()).expect("it is registered");
                        policy.start(&inventory, &groups);
                        policy
                    },
                    |policy| {
                        for seen in &seen {
                            black_box(policy.step(&groups, seen));
                        }
                    },
                    BatchSize::LargeInput,
                );
            });
        }
        bench.finish();
    }
}

criterion_group! {
    name = benches;
    // One iteration makes 64 decisions: divide criterion's time by 64.
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = decisions
}
criterion_main!(benches);
