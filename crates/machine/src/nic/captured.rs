//! When the packets of a capture arrive: at their recorded times or at a rate, and never faster than the line.

use crate::scenario::CapturedTraffic;

/// Preamble, gap and checksum around a packet on the wire, bytes. IEEE 802.3: 8, 12 and 4; with them 1 KiB is the
/// 1048 bytes of microarchitecture.md 7.
pub(crate) const WIRE_OVERHEAD_BYTES: f64 = 24.0;

/// How long a packet takes on a line, ns.
fn wire_ns(bytes: u32, gbps: f64) -> f64 {
    (f64::from(bytes) + WIRE_OVERHEAD_BYTES) * 8.0 / gbps
}

/// Time from each packet to the next with `factor` times the load, ns; never below the packet's own on the line. A packet
/// that the line delays delays those behind it until they have caught up. The last one's gap is the mean, so that a loop
/// continues evenly.
pub(super) fn gaps(capture: &CapturedTraffic, gbps: Option<f64>, line_gbps: f64, factor: f64) -> Vec<f64> {
    let packets = &capture.packets;
    if let Some(gbps) = gbps {
        // A target rate: the gap is each packet's own time on a wire of that rate.
        return packets.iter().map(|packet| wire_ns(packet.bytes, (gbps * factor).min(line_gbps))).collect();
    }
    let times = arrivals(capture, line_gbps, factor);
    let mean = capture.span_ns() / factor / (packets.len() - 1).max(1) as f64;
    let mut gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.extend(packets.last().map(|last| mean.max(wire_ns(last.bytes, line_gbps))));
    gaps
}

/// When each packet of a capture with its original gaps has come, ns.
pub(super) fn arrivals(capture: &CapturedTraffic, line_gbps: f64, factor: f64) -> Vec<f64> {
    let mut free_ns = 0.0_f64;
    let at = capture.packets.iter().map(|packet| {
        let at_ns = free_ns.max(packet.at_ns / factor);
        free_ns = at_ns + wire_ns(packet.bytes, line_gbps);
        at_ns
    });
    at.collect()
}

#[cfg(test)]
mod tests {
    use super::super::spread::Spread;
    use super::super::traffic::{Traffic, TrafficSpec};
    use super::*;
    use crate::random::Stream;
    use crate::scenario::CapturedPacket;
    use std::sync::Arc;
    use waykeeper_inputs::CaptureOddities;

    fn traffic_of(spec: &TrafficSpec) -> Traffic {
        Traffic::new(spec, Spread::Rss(1), Stream::new(1, "nic"), Stream::new(1, "nic rss"))
    }

    #[test]
    fn a_captured_packet_brings_its_dscp() {
        let packets = [0, 46].map(|dscp| (f64::from(dscp), 100, dscp));
        let spec = captured(&packets, None, 1e3);
        let mut traffic = traffic_of(&spec);
        let seen = std::iter::from_fn(|| traffic.next_before(60.0)).map(|a| a.dscp);
        assert_eq!(seen.collect::<Vec<_>>(), [0, 46]);
    }

    #[test]
    fn a_capture_keeps_its_gaps_or_takes_a_rate() {
        let packets = [(0.0, 100, 46), (10.0, 200, 46), (40.0, 300, 46)];
        let arrivals = |gbps, until| times(&captured(&packets, gbps, 1e3), until);
        assert_eq!(arrivals(None, 75.0), [0.0, 10.0, 40.0, 60.0, 70.0]); // looped after the mean gap of 20
        // At 8 Gb/s a byte takes 1 ns: 124, then 224.
        assert_eq!(arrivals(Some(8.0), 400.0), [0.0, 124.0, 348.0]);
        assert_eq!(arrivals(Some(0.0), 400.0), []);
    }

    #[test]
    fn no_packet_of_a_capture_comes_before_the_one_before_it_has_passed_the_line() {
        // At 8 Gb/s a byte takes 1 ns: 100 B take 124. The second and third wait, the fourth has caught up.
        let packets = [(0.0, 100, 0), (0.0, 100, 0), (10.0, 100, 0), (1000.0, 100, 0)];
        let spec = captured(&packets, None, 8.0);
        assert_eq!(times(&spec, 1200.0), [0.0, 124.0, 248.0, 1000.0]);
        assert_eq!(spec.delayed_by_the_line(), (2, 238.0));
        // With four times the load the recorded 1000 are 250, and the line is busy until 372.
        let mut traffic = traffic_of(&spec);
        traffic.set_load(4.0, 8.0, 0.0);
        let four: Vec<f64> = std::iter::from_fn(|| traffic.next_before(400.0)).map(|a| a.at_ns).collect();
        assert_eq!(four, [0.0, 124.0, 248.0, 372.0]);
        assert_eq!(captured(&packets, Some(4.0), 8.0).delayed_by_the_line(), (0, 0.0));
    }

    /// A capture of packets with their times in ns, bytes and code points.
    fn captured(packets: &[(f64, u32, u8)], gbps: Option<f64>, line_gbps: f64) -> TrafficSpec {
        let packet =
            |(at_ns, bytes, dscp): &_| CapturedPacket { at_ns: *at_ns, bytes: *bytes, hash: 5, dscp: *dscp };
        let packets = packets.iter().map(packet).collect();
        let capture = Arc::new(CapturedTraffic {
            packets,
            recorded: 0,
            merged: 0,
            gap: None,
            oddities: CaptureOddities::default(),
        });
        TrafficSpec::Capture { capture, gbps, line_gbps }
    }

    /// When packets arrive until then.
    fn times(spec: &TrafficSpec, until_ns: f64) -> Vec<f64> {
        let mut traffic = traffic_of(spec);
        std::iter::from_fn(|| traffic.next_before(until_ns)).map(|arrival| arrival.at_ns).collect()
    }
}
