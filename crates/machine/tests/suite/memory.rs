//! Memory channels do not exceed their bandwidth under load from cores, a NIC and drives.

use crate::common;

use common::{means, scenario};
use waykeeper_silicon::Sampling;

/// Usable bandwidth of one channel of a Gold 6140, GB/s: 17.5 (microarchitecture.md 2), of which at most 0.95.
const USABLE_GB_PER_S: f64 = 17.5 * 0.95;

/// A NIC at 100 Gb/s, four drives, and cores that read their data, with one memory channel.
fn one_channel(dca_off: &str, sampling: Sampling) -> (f64, f64) {
    let sets = format!("knobs.dca_off={dca_off};workload.fio.block=\"2M\";memory_channels=1");
    let seen = means(scenario("a4-fig6", &sets), 1..=1, sampling);
    (seen["mem_rd"] + seen["mem_wr"], seen["gb_per_s/fio"])
}

#[test]
fn one_channel_moves_no_more_than_it_can() {
    for sampling in [Sampling::one_in(8).expect("a factor"), Sampling::DEFAULT] {
        for dca_off in ["[]", "[\"raid0\"]", "[\"nic0\", \"raid0\"]"] {
            let (moved, _) = one_channel(dca_off, sampling);
            // The channel is always busy, and traffic estimated from sampled sets is accurate to a few per cent.
            let share = moved / USABLE_GB_PER_S;
            assert!((0.93..=1.03).contains(&share), "{dca_off} at {sampling:?}: {moved} GB/s, {share}");
        }
    }
}

#[test]
fn drives_that_write_memory_wait_for_it() {
    let (_, off) = one_channel("[\"nic0\", \"raid0\"]", Sampling::DEFAULT);
    let six = scenario("a4-fig6", "knobs.dca_off=[\"nic0\", \"raid0\"];workload.fio.block=\"2M\"");
    let free = means(six, 1..=1, Sampling::DEFAULT)["gb_per_s/fio"];
    // Each block is written to memory and read from it, besides packets: at most half of the channel, less their part.
    assert!(off < USABLE_GB_PER_S / 2.0 && free > 10.0, "{off} GB/s through one channel, {free} through six");
}
