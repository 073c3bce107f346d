//! The baselines around DDIO: fixed, ddio-ways, ddio-off, resq, dmadynamic. Numbers worked by hand.

use crate::common;

use common::{Bench, NIC, SSD, SSD2, gold_6140, group, micro};
use proptest::prelude::*;
use waykeeper_host::{
    Dial, Interval, Inventory, Knob, KnobSetting, KnobValues, Priority::Low, Reading, Setting, SocketCounter,
    Support, Workload, WorkloadKind::NetworkIo,
};
use waykeeper_policy::{Decision, build, registry};
use waykeeper_units::{PortId, WayMask};

fn refusal(name: &str, settings: &str, chip: &Inventory) -> String {
    let policy = match build(name, &settings.parse().unwrap()) {
        Ok(policy) => policy,
        Err(error) => return error.to_string(),
    };
    let groups = micro();
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    policy.check(chip, &names).unwrap_err().to_string()
}

/// An interval in which knobs read back as the last plan wanted, except for what `change` does to them.
fn reads_back(bench: &Bench, change: impl FnOnce(&mut KnobValues)) -> Interval {
    let mut seen = bench.interval();
    seen.knobs = bench.last.plan.clone();
    change(&mut seen.knobs);
    seen
}

fn ring(bench: &Bench) -> Option<u32> {
    bench.last.plan.rx_ring(PortId(NIC))
}

fn burst(decision: &Decision) -> Option<u32> {
    decision.plan.rx_burst(PortId(NIC))
}

#[test]
fn fixed_turns_what_is_named_and_nothing_else() {
    let settings =
        "masks = { fio = \"0x00c\" }\ndca = { ssd0 = false, \"0000:3a:00.0\" = true }\ndca_ways = \"0x700\"";
    let mut bench = Bench::new("fixed", settings, micro());
    bench.step();
    let plan = &bench.last.plan;
    assert_eq!((plan.masks().count(), bench.mask(1)), (1, 0x00c));
    assert_eq!([bench.dca(NIC), bench.dca(SSD), bench.dca(SSD2)], [Some(true), Some(false), None]);
    assert_eq!(plan.dca_ways(), Some(WayMask::from_bits(0x700)));
    assert!(Bench::new("fixed", "", micro()).last.plan.is_empty());
    // Launched later: its mask comes then.
    let late = bench.groups.remove(1);
    assert!(bench.step().plan.masks().next().is_none());
    bench.groups.push(late);
    assert_eq!(bench.step().plan.masks().count(), 1);
}

#[test]
fn fixed_refuses_unknown_names_and_illegal_masks_in_one_line() {
    let chip = gold_6140();
    assert_eq!(
        refusal("fixed", "masks = { fia = \"0x00c\" }", &chip),
        "fixed: unknown workload `fia`; did you mean `fio`?; known are dpdk-t, fio, x-mem1, x-mem2, x-mem3"
    );
    assert_eq!(
        refusal("fixed", "dca = { ssd9 = false }", &chip),
        "fixed: unknown device `ssd9`; did you mean `ssd0`?; known are nic0, ssd0, ssd1"
    );
    assert!(
        refusal("fixed", "masks = { fio = \"0x005\" }", &chip)
            .starts_with("fixed: mask of workload `fio`: mask 0x005 has holes")
    );
    assert!(refusal("fixed", "masks = { fio = \"0x800\" }", &chip).contains("wider than the chip"));
    assert!(refusal("fixed", "masks = { fio = \"x\" }", &chip).contains("`x` is not a way mask"));
    assert!(
        refusal("fixed", "dca_ways = \"0xf00\"", &chip).contains("`dca_ways` cannot be set on this server")
    );
    assert!(refusal("fixed", "dca = { nic0 = 1 }", &chip).contains("`dca.nic0` must be true or false"));
    // Without a check before the start: the rest of the plan is kept, and the event says why.
    let bench = Bench::new("fixed", "masks = { fio = \"0x005\", dpdk-t = \"0x600\" }", micro());
    assert_eq!((bench.last.plan.masks().count(), bench.mask(0)), (1, 0x600));
    assert!(bench.text("setting-refused").contains("has holes"));
}

#[test]
fn ddio_ways_counts_from_the_left_and_leaves_the_rest_as_booted() {
    // 11 ways: 2 = 0x600, 3 = 0x700, 4 = 0x780, 5 = 0x7c0, 6 = 0x7e0.
    for (ways, bits) in [(2, 0x600), (3, 0x700), (4, 0x780), (5, 0x7c0), (6, 0x7e0), (11, 0x7ff)] {
        let bench = Bench::new("ddio-ways", &format!("ways = {ways}"), micro());
        assert_eq!(bench.last.plan.dca_ways(), Some(WayMask::from_bits(bits)));
        assert!((0..5).all(|id| bench.mask(id) == 0x7ff));
        assert_eq!(bench.dca(SSD), Some(true));
    }
    let chip = gold_6140();
    assert!(refusal("ddio-ways", "ways = 1", &chip).contains("from 2 to 32"));
    assert!(refusal("ddio-ways", "ways = 12", &chip).contains("from 2 to 11"));
    assert!(refusal("ddio-ways", "ways = 2.5", &chip).contains("a whole number"));
    let mut dead = gold_6140();
    dead.dca_ways_switch = Support::ReadOnly;
    assert!(refusal("ddio-ways", "", &dead).contains("cannot be set on this server"));
    assert_eq!(Bench::on(dead, "ddio-ways", "", micro()).last.plan.dca_ways(), None);
}

#[test]
fn ddio_ways_yields_to_a_register_that_holds_something_else() {
    let mut bench = Bench::new("ddio-ways", "ways = 4", micro());
    let good = reads_back(&bench, |_| {});
    bench.feed(&good);
    assert_eq!((bench.last.state.as_str(), bench.last.events.len()), ("Held", 0));
    let seen = reads_back(&bench, |knobs| knobs.insert(Knob::DcaWays, WayMask::from_bits(0x600)));
    bench.feed(&seen);
    assert_eq!((bench.last.state.as_str(), bench.last.plan.dca_ways()), ("Overruled", None));
    assert_eq!(
        bench.text("knob-overruled"),
        "DCA ways 0x780 did not take effect: 0x600 reads back and is left"
    );
    let values: Vec<f64> = bench.event("knob-overruled").causes.iter().map(|cause| cause.value).collect();
    assert_eq!(values, [4.0, 2.0]);
    bench.feed(&seen);
    assert_eq!((bench.last.events.len(), bench.last.plan.dca_ways()), (0, None), "told once");
}

#[test]
fn ddio_off_switches_all_devices_or_those_named() {
    let bench = Bench::new("ddio-off", "", micro());
    assert_eq!([bench.dca(NIC), bench.dca(SSD), bench.dca(SSD2)], [Some(false); 3]);
    assert_eq!((bench.last.state.as_str(), bench.mask(0)), ("Off", 0x7ff));
    let bench = Bench::new("ddio-off", "devices = [\"ssd1\", \"0000:5e:00.0\"]", micro());
    assert_eq!([bench.dca(NIC), bench.dca(SSD), bench.dca(SSD2)], [Some(true), Some(false), Some(false)]);
    let mut chip = gold_6140();
    assert!(refusal("ddio-off", "devices = [\"nvme\"]", &chip).contains("unknown device `nvme`"));
    chip.ports[1].dca_switch = Support::No("another socket".to_owned());
    assert_eq!(
        refusal("ddio-off", "devices = [\"ssd0\"]", &chip),
        "ddio-off: `devices` cannot be set on this server: another socket"
    );
    // All devices: only ports that can be switched.
    let bench = Bench::on(chip, "ddio-off", "", micro());
    assert_eq!([bench.dca(NIC), bench.dca(SSD)], [Some(false), None]);
}

#[test]
fn ddio_off_yields_to_a_port_that_stays_on() {
    let mut bench = Bench::new("ddio-off", "", micro());
    let seen = reads_back(&bench, |knobs| knobs.insert(Knob::Dca(PortId(SSD)), true));
    bench.feed(&seen);
    assert_eq!([bench.dca(NIC), bench.dca(SSD)], [Some(false), None]);
    assert_eq!(bench.text("knob-overruled"), "DCA off on port 1 did not take effect: it stays on");
    assert_eq!(bench.last.state, "Off");
}

#[test]
fn resq_fits_all_buffers_into_the_dca_ways_and_keeps_cores_out_of_them() {
    // Two of 11 ways of 25 952 256 bytes are 4 718 592; a 1500-byte buffer is 24 lines = 1536 bytes: 3072
    // buffers. Four queues: 768 each, down to 512.
    let mut bench = Bench::new("resq", "", micro());
    assert_eq!(ring(&bench), Some(512));
    assert_eq!(bench.text("ring-size"), "4 queues share 4.5 MiB of DCA ways: 512 descriptors each");
    // 11 cores on the 9 ways outside 0x600: 4/11 of 9 = 3.27 each for the two with four cores, 0.82 below the
    // floor of one for the others: they get one each, the rest of 6 is halved.
    let masks: Vec<u32> = (0..5).map(|id| bench.mask(id)).collect();
    assert_eq!(masks, [0x1c0, 0x038, 0x004, 0x002, 0x001]);
    assert_eq!(bench.dca(NIC), Some(true));
    // 1024-byte packets do not get more entries; another MTU does change the count: 64 bytes, 18432 each, but the
    // port takes 4096 at most.
    assert_eq!(ring(&Bench::new("resq", "mtu_bytes = 64", micro())), Some(4096));
    // 18 queues of 9000 bytes: 9024, 522 / 18 = 29, but 64 at least.
    let many = vec![group(0, "nf", Low, NetworkIo, 18, &[NIC])];
    assert_eq!(ring(&Bench::new("resq", "mtu_bytes = 9000", many)), Some(64));
    // A second NF with four more queues: 3072 / 8 = 384, down to 256.
    bench.groups.push(group(5, "nf2", Low, NetworkIo, 4, &[NIC]));
    let seen = reads_back(&bench, |_| {});
    bench.feed(&seen);
    assert_eq!(ring(&bench), Some(256));
}

#[test]
fn resq_follows_the_dca_ways_in_force() {
    let mut bench = Bench::new("resq", "", micro());
    let seen = reads_back(&bench, |knobs| knobs.insert(Knob::DcaWays, WayMask::from_bits(0x780)));
    bench.feed(&seen);
    // Four ways are twice the buffers: 1536 a queue, down to 1024; and 7 ways are left for cores.
    assert_eq!(ring(&bench), Some(1024));
    assert!((0..5).all(|id| bench.mask(id) & 0x780 == 0));
    assert!(bench.text("dca-ways-moved").contains("0x780"));
}

#[test]
fn resq_without_a_ring_knob_keeps_its_slices_and_reports_it() {
    let mut chip = gold_6140();
    chip.ports[0].rx_ring = Dial::absent("a DPDK program owns it");
    let bench = Bench::on(chip, "resq", "", micro());
    assert_eq!((ring(&bench), bench.mask(4)), (None, 0x001));
    assert!(bench.text("ring-unavailable").ends_with("a DPDK program owns it"));
    // A ring that reads back as it was is given up, with one event.
    let mut bench = Bench::new("resq", "", micro());
    let seen = reads_back(&bench, |knobs| knobs.insert(Knob::RxRing(PortId(NIC)), 2048));
    bench.feed(&seen);
    assert_eq!(ring(&bench), None);
    assert_eq!(
        bench.text("knob-overruled"),
        "RX rings of 512 on port 0 did not take effect: 2048 reads back and is left"
    );
    bench.groups.pop();
    let seen = reads_back(&bench, |knobs| knobs.insert(Knob::RxRing(PortId(NIC)), 2048));
    bench.feed(&seen);
    assert_eq!(ring(&bench), None, "also after another layout");
}

#[test]
fn dmadynamic_cuts_the_burst_for_one_interval_by_what_misses_rose() {
    let mut bench = Bench::new("dmadynamic", "", micro());
    let mut step = |misses: Reading<f64>| {
        let mut seen = reads_back(&bench, |_| {});
        seen.socket[SocketCounter::DcaWriteMisses] = misses;
        let decision = bench.feed(&seen);
        (burst(decision).unwrap(), decision.state.clone())
    };
    let value = Reading::Value;
    assert_eq!(step(value(1e6)), (32, "Full".to_owned()), "nothing to compare with yet");
    // Twice the misses: half of 32. Steady afterwards: full again. +10 % is not a rise of more than 10 %.
    assert_eq!(step(value(2e6)), (16, "Reduced".to_owned()));
    assert_eq!(step(value(2e6)).0, 32);
    assert_eq!(step(value(2.2e6)).0, 32);
    assert_eq!(step(value(2.6e6)).0, 27); // 32 x 2.2 / 2.6 = 27.08
    assert_eq!(step(value(1e9)).0, 1, "one packet is the least");
    // Without a reading there is no decision, nor in the interval after it.
    assert_eq!(step(Reading::Unavailable).0, 32);
    assert_eq!(step(value(2e9)).0, 32);
    // Below the floor of 1e5 per second a rise is noise.
    step(value(1e3));
    assert_eq!(step(value(9e4)).0, 32);
    let event = bench.event("burst-reduce");
    assert_eq!(event.causes[0].limit.as_ref().unwrap().0, "miss_rise");
}

#[test]
fn dmadynamic_says_when_there_is_no_such_knob_or_it_does_not_hold() {
    let mut chip = gold_6140();
    chip.ports[0].rx_burst = Dial::absent("the program does not offer it");
    let mut bench = Bench::on(chip, "dmadynamic", "", micro());
    assert_eq!((burst(&bench.last), bench.last.state.as_str()), (None, "Unavailable"));
    assert!(bench.happened("burst-unavailable"));
    assert!(bench.step().events.is_empty());
    let mut bench = Bench::new("dmadynamic", "", micro());
    let seen = reads_back(&bench, |knobs| knobs.insert(Knob::RxBurst(PortId(NIC)), 64));
    assert_eq!(burst(bench.feed(&seen)), None);
    assert!(bench.happened("knob-overruled"));
}

#[test]
fn every_setting_of_the_baselines_names_its_source_and_shows_its_default() {
    for name in ["fixed", "ddio-ways", "ddio-off", "resq", "dmadynamic"] {
        assert!(registry().iter().any(|entry| entry.name == name));
        let description = build(name, &toml::Table::new()).unwrap().describe();
        assert!(!description.settings.is_empty() && !description.deviations.is_empty());
        for setting in description.settings {
            assert!(!setting.source.is_empty() && !setting.meaning.is_empty() && !setting.unit.is_empty());
            let shown = |text: &str| text.replace("{  }", "").trim().to_owned();
            assert_eq!(shown(&setting.value), shown(&setting.default), "{name}.{}", setting.name);
        }
    }
}

/// Chips of all widths with their DCA ways on the left.
fn chips() -> impl Strategy<Value = Inventory> {
    (2u32..=20, 1u32..=3, 1u32..=16, 0u32..=4).prop_map(|(ways, min_ways, clos_count, dca)| {
        let mut chip = gold_6140();
        let dca = dca.min(ways - 1);
        chip.llc.as_mut().unwrap().ways = ways;
        chip.llc.as_mut().unwrap().min_ways = min_ways.min(ways);
        chip.llc.as_mut().unwrap().clos_count = clos_count;
        chip.dca_ways_default = (dca > 0).then(|| WayMask::span(ways - dca, dca));
        chip
    })
}

fn crowds() -> impl Strategy<Value = Vec<Workload>> {
    proptest::collection::vec((1u16..=4, any::<bool>()), 0..8).prop_map(|crowd| {
        let member = |(id, (cores, on_nic)): (u32, (u16, bool))| {
            group(id, &format!("w{id}"), Low, NetworkIo, cores, if on_nic { &[NIC] } else { &[] })
        };
        (0..).zip(crowd).map(member).collect()
    })
}

proptest! {
    #[test]
    fn masks_are_always_legal_and_never_more_than_the_classes(
        chip in chips(),
        before in crowds(),
        after in crowds(),
        name in proptest::sample::select(vec!["ddio-ways", "ddio-off", "resq", "dmadynamic"]),
        moved in any::<bool>(),
    ) {
        let mut bench = Bench::on(chip, name, "", before);
        for round in 0..3 {
            let llc = bench.inventory.known_llc();
            let plan = &bench.last.plan;
            let mut classes = std::collections::BTreeSet::from([WayMask::full(llc.ways)]);
            for mask in plan.masks().map(|(_, mask)| mask) {
                prop_assert!(mask.check(llc.ways, llc.min_ways).is_ok(), "{name}: {mask}");
                classes.insert(mask);
            }
            prop_assert!(classes.len() <= llc.clos_count.max(2) as usize);
            if let Some(mask) = plan.dca_ways() {
                prop_assert!(mask.check(llc.ways, 1).is_ok());
            }
            for KnobSetting { knob, setting } in plan.settings() {
                match (knob, setting) {
                    (Knob::RxRing(_), Setting::Count(ring)) => {
                        prop_assert!(ring.is_power_of_two() && (32..=4096).contains(&ring));
                    }
                    (Knob::RxBurst(_), Setting::Count(burst)) => prop_assert!((1..=512).contains(&burst)),
                    _ => {}
                }
            }
            if round == 1 {
                bench.groups = after.clone();
            }
            let full = WayMask::full(llc.ways);
            let seen = reads_back(&bench, |knobs| if moved { knobs.insert(Knob::DcaWays, full) });
            bench.feed(&seen);
        }
    }

    #[test]
    fn resq_never_lets_a_core_into_the_dca_ways(chip in chips(), groups in crowds()) {
        let bench = Bench::on(chip, "resq", "", groups);
        let dca = bench.inventory.dca_ways_default.unwrap_or_default();
        prop_assert!(bench.last.plan.masks().map(|(_, mask)| mask).all(|mask| !mask.overlaps(dca)));
    }
}
