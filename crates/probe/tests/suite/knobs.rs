//! The probe finds which knobs have an effect, their accepted values, and whose writes bypass the LLC, by measuring.

use crate::chips;

use chips::{on_stand, server};
use waykeeper_probe::ports::{self, PortVerdict, Reach, Switch};
use waykeeper_probe::register::{self, RegisterEffect, RegisterVerdict};
use waykeeper_units::WayMask;

fn register(chip: &str, chip_changes: &[(&str, &str)], changes: &[(&str, &str)]) -> RegisterVerdict {
    on_stand(&mut server(chip, chip_changes, changes), |experiment| register::measure(experiment).unwrap())
}

fn ports(chip: &str, changes: &[(&str, &str)]) -> Vec<PortVerdict> {
    on_stand(&mut server(chip, &[], changes), |experiment| ports::measure(experiment).unwrap())
}

fn mask(bits: u32) -> WayMask {
    WayMask::from_bits(bits)
}

const END: &str = "working_set = \"3 MiB\"";

#[test]
fn a_register_that_acts_and_keeps_the_bits_of_power_on() {
    let found = register("gold-6140", &[], &[]);
    assert_eq!(found.acts.value(), Some(&RegisterEffect::Acts), "{found:?}");
    let floor = found.floor.value().unwrap();
    assert_eq!((floor.kept, floor.fewest, floor.least, floor.most), (mask(0x600), 2, mask(0x600), 11));
    assert!(
        floor.refused.iter().any(|(value, why)| *value == mask(0x400) && why == "0x600 reads back"),
        "{floor:?}"
    );
}

#[test]
fn a_floor_of_three_ways_and_one_of_a_single_way() {
    let three = [
        ("dca_ways = \"0x600\"", "dca_ways = \"0x700\""),
        ("lowest = \"0x600\"", "lowest = \"0x700\""),
        ("kept = \"0x600\"", "kept = \"0x700\""),
    ];
    let floor = register("gold-6140", &three, &[]).floor.value().cloned().unwrap();
    assert_eq!((floor.kept, floor.fewest), (mask(0x700), 3));
    let one = [("lowest = \"0x600\"", "lowest = \"0x1\""), ("kept = \"0x600\"", "kept = \"0x400\"")];
    let found = register("gold-6140", &one, &[]);
    let floor = found.floor.value().cloned().unwrap();
    assert_eq!((floor.kept, floor.fewest, found.acts.value()), (mask(0x400), 1, Some(&RegisterEffect::Acts)));
    // Haswell has no fixed bit and accepts any number of ways from the lowest on (ddio-bench s4.4).
    let rings = [("ring = 2048", "ring = 512")];
    let found = register("e5-2630v3", &[], &rings);
    let floor = found.floor.value().cloned().unwrap();
    assert_eq!((floor.kept, floor.least, floor.fewest), (mask(0), mask(0x60000), 1), "{floor:?}");
    assert_eq!(found.acts.value(), Some(&RegisterEffect::Acts), "{found:?}");
}

#[test]
fn a_register_that_reads_back_and_does_nothing() {
    let icelake = register("gold-5320", &[], &[]);
    assert_eq!(icelake.acts.value(), Some(&RegisterEffect::NoEffect), "{icelake:?}");
    let fault = format!("{END}\n[[fault]]\nkind = \"dead-dca-ways\"\nat_s = 0");
    let skylake = register("gold-6140", &[], &[(END, &fault)]);
    assert_eq!(skylake.acts.value(), Some(&RegisterEffect::NoEffect), "{skylake:?}");
}

#[test]
fn a_registers_effect_is_unknown_without_traffic_or_with_traffic_that_fits_anywhere() {
    let idle = register("gold-6140", &[], &[("offered_gbps = 60", "offered_gbps = 0.01")]);
    assert!(idle.acts.reason().is_some_and(|why| why.contains("put traffic on them")), "{idle:?}");
    let small = register("gold-6140", &[], &[("ring = 2048", "ring = 64")]);
    // The message depends on how much the share varies by itself.
    let hardly_any = ["almost all writes hit or almost all miss", "a share near 0 or 100 % need not move"];
    assert!(
        small.acts.reason().is_some_and(|why| hardly_any.iter().any(|words| why.contains(words))),
        "{small:?}"
    );
    // The accepted values are known nevertheless.
    assert_eq!(small.floor.value().map(|floor| floor.fewest), Some(2));
    let none = register(
        "e3-1230",
        &[],
        &[
            ("ring = 2048", "ring = 64"),
            ("cores = \"4\"", "cores = \"0\""),
            ("cores = \"0-1\"", "cores = \"1\""),
            ("cores = \"2-3\"", "cores = \"2\""),
            ("cores = \"5\"", "cores = \"3\""),
        ],
    );
    assert_eq!(none.acts.value(), Some(&RegisterEffect::Absent), "{none:?}");
}

#[test]
fn switches_that_act_a_dead_one_and_a_device_of_another_socket() {
    let found = ports("gold-6140", &[]);
    for port in &found {
        assert_eq!(
            (port.switch.value(), port.reach.value()),
            (Some(&Switch::Acts), Some(&Reach::ThisLlc)),
            "{port:?}"
        );
    }
    let dead = format!("{END}\n[[fault]]\nkind = \"dead-switch\"\ndevice = \"nic1\"\nat_s = 0");
    let found = ports("gold-6140", &[(END, &dead)]);
    assert_eq!(found[0].switch.value(), Some(&Switch::Acts), "{found:?}");
    assert_eq!(
        (found[1].switch.value(), found[1].reach.value()),
        (Some(&Switch::NoEffect), Some(&Reach::ThisLlc)),
        "{found:?}"
    );
    let remote = [("name = \"nic0\"\n", "name = \"nic0\"\nremote = true\n")];
    let found = ports("gold-6140", &remote);
    assert_eq!(
        (found[0].switch.value(), found[0].reach.value()),
        (Some(&Switch::Absent), Some(&Reach::Past)),
        "{found:?}"
    );
    assert_eq!(
        (found[1].switch.value(), found[1].reach.value()),
        (Some(&Switch::Acts), Some(&Reach::ThisLlc)),
        "{found:?}"
    );
}

#[test]
fn ports_without_switches_and_without_traffic() {
    // An Ice Lake: no switch, so both ports are judged together; both write into the LLC.
    let found = ports("gold-5320", &[]);
    for port in &found {
        assert_eq!(
            (port.switch.value(), port.reach.value()),
            (Some(&Switch::Absent), Some(&Reach::ThisLlc)),
            "{port:?}"
        );
    }
    // One of them is on another socket: the probe cannot know which.
    let remote = [("name = \"nic0\"\n", "name = \"nic0\"\nremote = true\n")];
    let found = ports("gold-5320", &remote);
    assert!(
        found.iter().all(|port| port.reach.reason().is_some_and(|why| why.contains("several ports"))),
        "{found:?}"
    );
    let idle = ports("gold-6140", &[("offered_gbps = 60", "offered_gbps = 0.01")]);
    assert!(
        idle.iter().all(|port| port.switch.reason().is_some() && port.reach.reason().is_some()),
        "{idle:?}"
    );
}
