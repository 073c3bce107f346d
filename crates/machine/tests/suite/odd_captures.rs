//! Captures as a NIC plays them: packets with VLAN tags, and the rates of phases beside a capture.

use std::path::Path;
use waykeeper_machine::{NicSpec, ScenarioSource, TrafficSpec};

/// A pcap of Ethernet packets of these lengths, 100 us apart, each with so many VLAN tags.
fn capture(folder: &Path, packets: &[(u32, usize)]) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for (at, (bytes, tags)) in packets.iter().enumerate() {
        let frame = [vec![0; 12], [0x81, 0, 0, 7].repeat(*tags), vec![8, 6]].concat();
        file.extend(words(&[0, at as u32 * 100, frame.len() as u32, *bytes]));
        file.extend(frame);
    }
    std::fs::write(folder.join("c.pcap"), file).unwrap();
}

/// The NIC of a scenario that plays the capture.
fn nic(folder: &Path, keys: &str) -> NicSpec {
    let text = format!(
        "name = \"t\"\n[[nic]]\nname = \"nic0\"\n{keys}\n\
         [[workload]]\nname = \"w\"\nprogram = \"l2fwd\"\ncores = 0\n"
    );
    let source = ScenarioSource::parse("test.toml", &text, Some(folder.to_owned())).unwrap();
    source.read().unwrap().nics.remove(0)
}

#[test]
fn vlan_tags_are_no_part_of_the_mtu() {
    let folder = tempfile::tempdir().unwrap();
    let played = |packets: &[(u32, usize)], keys: &str| {
        capture(folder.path(), packets);
        let nic = nic(folder.path(), &format!("capture = \"c.pcap\"\n{keys}"));
        let TrafficSpec::Capture { capture, .. } = nic.traffic else { panic!() };
        capture.packets.iter().map(|packet| packet.bytes).collect::<Vec<_>>()
    };
    assert_eq!(played(&[(1514, 0), (1518, 1), (1522, 2)], ""), [1514, 1518, 1522]);
    // 4 bytes too many: the second packet has the least that Ethernet carries.
    assert_eq!(played(&[(1518, 0), (1522, 1)], ""), [1514, 60, 1518, 60]);
    assert_eq!(played(&[(9018, 1)], "mtu = 9000\noffered_gbps = 1"), [9018]);
}

#[test]
fn a_phase_keeps_the_rate_of_the_nic() {
    let folder = tempfile::tempdir().unwrap();
    capture(folder.path(), &[(60, 0); 3]);
    // The rate of the NIC, and of its one phase.
    let rates = |own: &str, phase: &str| {
        let nic = nic(folder.path(), &format!("{own}\n[[nic.phase]]\nat_s = 1\n{phase}"));
        let rate = |traffic: &TrafficSpec| match traffic {
            TrafficSpec::Capture { gbps, .. } => *gbps,
            TrafficSpec::Flows { gbps, .. } => Some(*gbps),
        };
        (rate(&nic.traffic), rate(&nic.phases[0].traffic))
    };
    let (played, captured) = ("capture = \"c.pcap\"", "capture = \"c.pcap\"\noffered_gbps = ");
    assert_eq!(rates(played, ""), (None, None));
    assert_eq!(rates(&format!("{captured}2"), ""), (Some(2.0), Some(2.0)));
    assert_eq!(rates(&format!("{captured}2"), "offered_gbps = 3"), (Some(2.0), Some(3.0)));
    // 0 is silence, here too.
    assert_eq!(rates(&format!("{captured}0"), ""), (Some(0.0), Some(0.0)));
    // A phase begins to play a capture, or ends it.
    assert_eq!(rates("offered_gbps = 2", played), (Some(2.0), Some(2.0)));
    assert_eq!(rates("", played), (Some(100.0), None));
    assert_eq!(rates(&format!("{captured}2"), "packet_bytes = 100"), (Some(2.0), Some(2.0)));
    assert_eq!(rates(played, "packet_bytes = 100"), (None, Some(100.0)));
}
