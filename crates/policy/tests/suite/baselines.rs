//! The two baselines of A4 s6 and s7.1: default and isolate. Numbers worked by hand.

use crate::common;

use common::{Bench, NIC, SSD, SSD2, gold_6140, group, micro};
use waykeeper_host::{Priority::Low, Support, Workload, WorkloadKind::NonIo};
use waykeeper_policy::build;

#[test]
fn default_gives_everyone_everything_and_turns_dca_on() {
    let mut bench = Bench::new("default", "", micro());
    bench.step();
    assert!((0..5).all(|id| bench.mask(id) == 0x7ff));
    assert_eq!([bench.dca(NIC), bench.dca(SSD), bench.dca(SSD2)], [Some(true); 3]);
    assert!(bench.last.events.is_empty());
}

#[test]
fn dca_is_left_alone_where_it_cannot_be_switched() {
    let mut chip = gold_6140();
    chip.ports[0].dca_switch = Support::No("no IIO".to_owned());
    chip.ports[1].dca_switch = Support::ReadOnly;
    let bench = Bench::on(chip, "isolate", "", micro());
    assert_eq!([bench.dca(NIC), bench.dca(SSD), bench.dca(SSD2)], [None, None, Some(true)]);
}

#[test]
fn isolate_divides_eleven_ways_by_cores_from_the_left() {
    // 11 cores on 11 ways: 4, 4, 1, 1, 1 ways from way[0] on.
    let mut bench = Bench::new("isolate", "", micro());
    bench.step();
    let masks: Vec<u32> = (0..5).map(|id| bench.mask(id)).collect();
    assert_eq!(masks, [0x780, 0x078, 0x004, 0x002, 0x001]);
    assert_eq!(bench.last.state, "Isolate");
    assert_eq!(bench.text("isolate"), "x-mem3 get 0x001 (1 ways)");
}

#[test]
fn isolate_takes_the_papers_micro_masks_and_shares_out_the_rest() {
    // way[2:3] = 0x180, way[4:6] = 0x070; the widest run left is 0x00f: 4 ways for three X-Mem of one core,
    // quotas 1.33 each, the spare way to the first.
    let settings = "masks = { dpdk-t = \"0x180\", fio = \"4-6\" }";
    let bench = Bench::new("isolate", settings, micro());
    let masks: Vec<u32> = (0..5).map(|id| bench.mask(id)).collect();
    assert_eq!(masks, [0x180, 0x070, 0x00c, 0x002, 0x001]);
}

#[test]
fn isolate_lets_the_smallest_share_when_there_are_more_workloads_than_ways() {
    // 12 workloads on 11 ways, cores 2,2,1,1,...: the two lightest (the last two of one core) share.
    let groups: Vec<Workload> =
        (0..12).map(|id| group(id, &format!("w{id}"), Low, NonIo, if id < 2 { 2 } else { 1 }, &[])).collect();
    let bench = Bench::new("isolate", "", groups);
    assert_eq!(bench.mask(10), bench.mask(11));
    let distinct: std::collections::BTreeSet<u32> = (0..12).map(|id| bench.mask(id)).collect();
    assert_eq!(distinct.len(), 11);
    assert_eq!(distinct.iter().fold(0, |all, mask| all | mask), 0x7ff);
}

#[test]
fn isolate_never_asks_for_more_classes_than_there_are() {
    // 4 classes, one of them the root class: three partitions for five workloads.
    let mut chip = gold_6140();
    chip.llc.as_mut().unwrap().clos_count = 4;
    let bench = Bench::on(chip, "isolate", "", micro());
    let distinct: std::collections::BTreeSet<u32> = (0..5).map(|id| bench.mask(id)).collect();
    assert_eq!(distinct.len(), 3);
}

#[test]
fn isolate_lays_out_anew_only_when_workloads_change() {
    let mut bench = Bench::new("isolate", "", micro());
    bench.step();
    assert!(bench.last.events.is_empty());
    bench.groups.truncate(2);
    bench.step();
    // 8 cores on 11 ways: 5.5 each, the spare way to the first.
    assert_eq!([bench.mask(0), bench.mask(1)], [0x7e0, 0x01f]);
    assert_eq!(bench.last.events.len(), 2);
}

#[test]
fn isolate_says_which_masks_it_cannot_use() {
    let settings = "masks = { dpdk = \"0x180\", fio = \"0x800\" }";
    let bench = Bench::new("isolate", settings, micro());
    assert_eq!(
        bench.text("mask-waits"),
        "no workload is called `dpdk`, its mask 0x180 waits; the nearest is `dpdk-t`"
    );
    assert!(
        bench.text("mask-illegal").starts_with("mask of fio is not used: mask 0x800 is wider than the chip")
    );
    // fio falls back to its share.
    assert_eq!(bench.mask(1), 0x078);
}

#[test]
fn bad_settings_are_refused_with_what_is_accepted() {
    let refusal =
        |name: &str, settings: &str| build(name, &settings.parse().unwrap()).err().unwrap().to_string();
    assert_eq!(refusal("default", "masks = {}"), "policy default has no setting `masks`; it has no settings");
    assert_eq!(
        refusal("isolate", "masks = 3"),
        "isolate: `masks` must be a table of workload name = \"mask\", not an integer 3"
    );
    assert!(
        refusal("isolate", "masks = { fio = \"xx\" }")
            .starts_with("isolate: mask of workload `fio`: `xx` is not")
    );
    assert_eq!(
        refusal("isolate", "masks = { fio = 3 }"),
        "isolate: `masks.fio` must be a mask like \"0x180\", not an integer 3"
    );
}
