//! Tests that the probe finds the DCA ways and inclusive ways of different chips without using their descriptions.

use crate::chips;

use chips::{on_stand, server};
use waykeeper_host::Host;
use waykeeper_machine::FaultyServer;
use waykeeper_probe::verdict::ProbeVerdict;
use waykeeper_probe::{roles, slide, ways};
use waykeeper_units::WayMask;

/// Both answers for a server.
fn measure(mut host: FaultyServer) -> (ProbeVerdict<WayMask>, ProbeVerdict<Option<WayMask>>) {
    on_stand(&mut host, |experiment| {
        let cast = roles::cast(experiment, &roles::Named::default()).unwrap().unwrap();
        let pressing = slide::slide(experiment, cast.highest_miss_corunner, &cast.io, None).unwrap().unwrap();
        let feeling = slide::slide(experiment, cast.victim, &cast.io, Some(cast.highest_miss_corunner))
            .unwrap()
            .unwrap();
        let dca = ways::dca_ways(&pressing);
        let inclusive = ways::inclusive_ways(&feeling, &dca);
        (dca, inclusive)
    })
}

fn mask(bits: u32) -> WayMask {
    WayMask::from_bits(bits)
}

#[test]
fn skylakes_two_leftmost_ways_and_two_rightmost_ones() {
    // On warm caches: on cold ones, inclusive ways are less visible.
    let mut warm = server("gold-6140", &[], &[]);
    warm.wait_until(4_000_000_000).unwrap();
    let (dca, inclusive) = measure(warm);
    assert_eq!(dca.value(), Some(&mask(0x600)), "{dca:?}");
    assert_eq!(inclusive.value(), Some(&Some(mask(0x003))), "{inclusive:?}");
}

#[test]
fn four_dca_ways_in_the_middle_and_inclusive_ways_elsewhere() {
    let chip = [
        ("dca_ways = \"0x600\"", "dca_ways = \"0x1e0\""),
        ("inclusive_ways = \"0x003\"", "inclusive_ways = \"0x00c\""),
        ("lowest = \"0x600\"", "lowest = \"0x1\""),
        ("kept = \"0x600\"", "kept = \"0x0\""),
    ];
    let (dca, inclusive) = measure(server("gold-6140", &chip, &[]));
    assert_eq!(dca.value(), Some(&mask(0x1e0)), "{dca:?}");
    assert_eq!(inclusive.value(), Some(&Some(mask(0x00c))), "{inclusive:?}");
}

#[test]
fn three_dca_ways_and_one_inclusive_way() {
    let chip = [
        ("dca_ways = \"0x600\"", "dca_ways = \"0x00e\""),
        ("inclusive_ways = \"0x003\"", "inclusive_ways = \"0x400\""),
        ("lowest = \"0x600\"", "lowest = \"0x1\""),
        ("kept = \"0x600\"", "kept = \"0x0\""),
    ];
    let (dca, inclusive) = measure(server("gold-6140", &chip, &[]));
    assert_eq!(dca.value(), Some(&mask(0x00e)), "{dca:?}");
    assert_eq!(inclusive.value(), Some(&Some(mask(0x400))), "{inclusive:?}");
}

#[test]
fn nothing_is_said_of_an_idle_device_nor_of_one_that_writes_past_the_cache() {
    let idle = [("offered_gbps = 60", "offered_gbps = 0.01")];
    let past = [
        ("name = \"nic0\"\n", "name = \"nic0\"\nremote = true\n"),
        ("name = \"nic1\"\n", "name = \"nic1\"\nremote = true\n"),
    ];
    for changes in [idle.as_slice(), past.as_slice()] {
        let (dca, inclusive) = measure(server("gold-6140", &[], changes));
        assert!(dca.reason().is_some_and(|why| why.contains("fewer than 100000")), "{dca:?}");
        assert!(
            inclusive.reason().is_some_and(|why| why.contains("the DCA ways are not known")),
            "{inclusive:?}"
        );
    }
}

#[test]
fn haswells_two_ways_and_none_that_are_inclusive() {
    let rings = [("ring = 2048", "ring = 512")];
    let (dca, inclusive) = measure(server("e5-2630v3", &[], &rings));
    assert_eq!(dca.value(), Some(&mask(0xc0000)), "{dca:?}");
    assert!(dca.evidence.iter().any(|line| line.contains("cannot distinguish the last ways")), "{dca:?}");
    // The victim's data is never evicted from the LLC there: no answer is better than a wrong one.
    assert!(
        inclusive.reason().is_some_and(|why| why.contains("no extra misses even in the DCA ways")),
        "{inclusive:?}"
    );
}
