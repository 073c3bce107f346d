//! Packets that arrive on the wire: flows at a rate, or the packets of a capture.
//!
//! Flows are mapped to queues once, as RSS does: a synthetic flow's hash is a uniform number, a captured packet has its
//! own Toeplitz hash. The queue of a flow is random, and the latency of the fullest queue depends on how uneven the
//! result is. With virtual functions flows are first distributed by weight, as a sender chooses its destinations, and
//! RSS spreads those of a function over its queues. Marks: docs/reference/README.md#marks.

use super::captured::{self, WIRE_OVERHEAD_BYTES};
use super::spread::Spread;
use crate::random::Stream;
use crate::scenario::CapturedTraffic;
use std::sync::Arc;

/// In which order flows send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowOrder {
    /// Round robin, as the client of A4's artifact does.
    InTurn,
    /// Each packet from a random flow.
    Random,
}

/// Arrival times of flows' packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// At equal gaps.
    Even,
    /// In bursts at line rate, with exponential gaps between them.
    Exponential {
        /// Packets in a burst.
        burst: u32,
        /// The line rate, Gb/s.
        line_gbps: f64,
    },
}

/// Traffic offered to a port.
#[derive(Clone, Debug)]
pub enum TrafficSpec {
    /// Fixed-size packets of some flows at a rate.
    Flows {
        /// Packet size in bytes, without preamble and checksum.
        packet_bytes: u32,
        /// Random sizes, each with its weight; empty if all packets have one size.
        mix: Vec<(u32, f64)>,
        /// Offered load on the wire, Gb/s (overheads included).
        gbps: f64,
        /// Number of flows.
        flows: u32,
        /// Order in which they send.
        order: FlowOrder,
        /// When they come.
        pace: Pace,
        /// Their differentiated services code point.
        dscp: u8,
    },
    /// A capture, played in a loop.
    Capture {
        /// Its packets.
        capture: Arc<CapturedTraffic>,
        /// Offered load on the wire, Gb/s, 0 for none; `None` keeps the original gaps.
        gbps: Option<f64>,
        /// The line rate, Gb/s: no packet comes before the one before it has passed.
        line_gbps: f64,
    },
}

impl TrafficSpec {
    /// Its longest packet, bytes.
    pub(crate) fn longest_packet(&self) -> u32 {
        match self {
            TrafficSpec::Flows { packet_bytes, mix, .. } => {
                mix.iter().map(|(bytes, _)| *bytes).max().unwrap_or(*packet_bytes)
            }
            TrafficSpec::Capture { capture, .. } => {
                capture.packets.iter().map(|packet| packet.bytes).max().unwrap_or(0)
            }
        }
    }
}

/// A packet on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub at_ns: f64,
    /// A packet of more than a buffer's room fills several.
    pub bytes: u16,
    pub queue: u32,
    /// Number of the flow; of a captured packet, its hash.
    pub flow: u32,
    pub dscp: u8,
}

/// The source of a port's packets.
#[derive(Clone, Debug)]
pub struct Traffic {
    source: Source,
    stream: Stream,
    spread: Spread,
    /// Draws the queues of flows; separate from the stream for sizes and gaps.
    rss: Stream,
    next_ns: f64,
    /// What is offered, and how much of it.
    spec: TrafficSpec,
    load: Load,
}

/// How much of a specified traffic is offered.
#[derive(Clone, Copy, Debug)]
struct Load {
    factor: f64,
    /// No rate of flows is raised above this.
    most_gbps: f64,
}

impl Load {
    /// What the specification says.
    const AS_SPECIFIED: Load = Load { factor: 1.0, most_gbps: f64::INFINITY };

    fn rate(self, gbps: f64) -> f64 {
        (gbps * self.factor).min(self.most_gbps)
    }
}

#[derive(Clone, Debug)]
enum Source {
    Silent,
    Flows { sizes: Sizes, gaps: Gaps, queue_of: Vec<u32>, order: FlowOrder, turn: usize, dscp: u8 },
    Capture { capture: Arc<CapturedTraffic>, gaps_ns: Arc<[f64]>, turn: usize },
}

impl Traffic {
    pub(crate) fn new(spec: &TrafficSpec, spread: Spread, stream: Stream, rss: Stream) -> Traffic {
        let (spec, load) = (spec.clone(), Load::AS_SPECIFIED);
        let mut traffic = Traffic { source: Source::Silent, stream, spread, rss, next_ns: 0.0, spec, load };
        traffic.begin(0.0);
        traffic
    }

    /// Offers `factor` times what the specification says from `now_ns` on, also of later specifications. Flows get no faster
    /// than `most_gbps`.
    pub(crate) fn set_load(&mut self, factor: f64, most_gbps: f64, now_ns: f64) {
        self.load = Load { factor, most_gbps };
        self.begin(now_ns);
    }

    /// Switches to other traffic from `now_ns` on. Existing flows keep their queues: RSS draws only for new flows.
    pub(crate) fn change(&mut self, spec: &TrafficSpec, now_ns: f64) {
        self.spec = spec.clone();
        self.begin(now_ns);
    }

    /// Begins to offer the present specification at the present load.
    fn begin(&mut self, now_ns: f64) {
        let load = self.load;
        self.source = match &self.spec {
            _ if load.factor <= 0.0 => Source::Silent,
            TrafficSpec::Flows { gbps, .. } if *gbps <= 0.0 => Source::Silent,
            TrafficSpec::Flows { packet_bytes, mix, gbps, flows, order, pace, dscp } => {
                let mut queue_of = match &mut self.source {
                    Source::Flows { queue_of, .. } => std::mem::take(queue_of),
                    _ => Vec::new(),
                };
                self.spread.deal(&mut queue_of, *flows as usize, &mut self.rss);
                queue_of.truncate(*flows as usize);
                let sizes = Sizes::new(*packet_bytes, mix);
                let gaps = Gaps::new(*pace, sizes.mean_bits(), load.rate(*gbps));
                Source::Flows { sizes, gaps, queue_of, order: *order, turn: 0, dscp: *dscp }
            }
            TrafficSpec::Capture { gbps: Some(gbps), .. } if *gbps <= 0.0 => Source::Silent,
            TrafficSpec::Capture { capture, .. } if capture.packets.is_empty() => Source::Silent,
            TrafficSpec::Capture { capture, gbps, line_gbps } => {
                let gaps_ns = captured::gaps(capture, *gbps, *line_gbps, load.factor).into();
                Source::Capture { capture: capture.clone(), gaps_ns, turn: 0 }
            }
        };
        self.next_ns = self.next_ns.max(now_ns);
    }

    /// Every packet that arrives before `until_ns`, one after the other.
    #[inline(always)]
    pub(crate) fn each_before(&mut self, until_ns: f64, mut each: impl FnMut(Arrival)) {
        let even = self.even();
        // One call of `each`, which is long, so that it is inlined.
        loop {
            let arrival = match (&mut self.source, even) {
                (Source::Flows { queue_of, turn, .. }, Some(Even { gap_ns, bytes, dscp })) => {
                    let at_ns = self.next_ns;
                    if at_ns >= until_ns {
                        return;
                    }
                    *turn = if *turn + 1 < queue_of.len() { *turn + 1 } else { 0 };
                    self.next_ns += gap_ns;
                    Arrival { at_ns, bytes, queue: queue_of[*turn], flow: *turn as u32, dscp }
                }
                _ => match self.next_before(until_ns) {
                    Some(arrival) => arrival,
                    None => return,
                },
            };
            each(arrival);
        }
    }

    /// Values that all packets share if none of them is random, as in most scenarios.
    #[inline(always)]
    fn even(&self) -> Option<Even> {
        match &self.source {
            Source::Flows {
                sizes: Sizes::One(bytes),
                gaps: Gaps::Even(gap_ns),
                order: FlowOrder::InTurn,
                dscp,
                ..
            } => Some(Even { gap_ns: *gap_ns, bytes: *bytes, dscp: *dscp }),
            _ => None,
        }
    }

    /// The next packet that arrives before `until_ns`.
    #[inline(always)]
    pub(crate) fn next_before(&mut self, until_ns: f64) -> Option<Arrival> {
        if self.next_ns >= until_ns {
            return None;
        }
        let at_ns = self.next_ns;
        match &mut self.source {
            Source::Silent => None,
            Source::Flows { sizes, gaps, queue_of, order, turn, dscp } => {
                let flow = match order {
                    FlowOrder::InTurn => {
                        *turn = if *turn + 1 < queue_of.len() { *turn + 1 } else { 0 };
                        *turn
                    }
                    FlowOrder::Random => self.stream.below(queue_of.len() as u32) as usize,
                };
                let gap_ns = gaps.next(&mut self.stream);
                let (bytes, part) = sizes.next(&mut self.stream);
                self.next_ns += gap_ns * part;
                let (queue, flow, dscp) = (queue_of[flow], flow as u32, *dscp);
                Some(Arrival { at_ns, bytes, queue, flow, dscp })
            }
            Source::Capture { capture, gaps_ns, turn } => {
                let packet = capture.packets[*turn];
                self.next_ns += gaps_ns[*turn];
                *turn = if *turn + 1 < capture.packets.len() { *turn + 1 } else { 0 };
                let queue = self.spread.of_hash(packet.hash);
                let (bytes, flow, dscp) = (packet.bytes as u16, packet.hash, packet.dscp);
                Some(Arrival { at_ns, bytes, queue, flow, dscp })
            }
        }
    }
}

/// Flows in turn, with packets of one size at equal gaps.
#[derive(Clone, Copy, Debug)]
struct Even {
    gap_ns: f64,
    bytes: u16,
    dscp: u8,
}

/// Packet sizes of flows.
#[derive(Clone, Debug)]
enum Sizes {
    One(u16),
    /// Sizes with the cumulative share of packets, and the gap after a packet of each size relative to the mean gap.
    Mix(Vec<(u16, f64, f64)>, f64),
}

impl Sizes {
    fn new(bytes: u32, mix: &[(u32, f64)]) -> Sizes {
        if mix.is_empty() {
            return Sizes::One(bytes as u16);
        }
        let total: f64 = mix.iter().map(|(_, weight)| weight).sum();
        let bits = |bytes: u32| (f64::from(bytes) + WIRE_OVERHEAD_BYTES) * 8.0;
        let mean: f64 = mix.iter().map(|(bytes, weight)| bits(*bytes) * weight / total).sum();
        let mut upto = 0.0;
        let size = |(bytes, weight): &(u32, f64)| {
            upto += weight / total;
            (*bytes as u16, upto, bits(*bytes) / mean)
        };
        Sizes::Mix(mix.iter().map(size).collect(), mean)
    }

    /// Mean bits on the wire.
    fn mean_bits(&self) -> f64 {
        match self {
            Sizes::One(bytes) => (f64::from(*bytes) + WIRE_OVERHEAD_BYTES) * 8.0,
            Sizes::Mix(_, mean) => *mean,
        }
    }

    /// The next packet's size, and the gap after it relative to the mean gap.
    #[inline(always)]
    fn next(&self, stream: &mut Stream) -> (u16, f64) {
        match self {
            Sizes::One(bytes) => (*bytes, 1.0),
            Sizes::Mix(sizes, _) => {
                let at = stream.unit();
                let (bytes, _, part) =
                    sizes.iter().find(|(_, upto, _)| at < *upto).unwrap_or(&sizes[sizes.len() - 1]);
                (*bytes, *part)
            }
        }
    }
}

/// Times between the packets of flows.
#[derive(Clone, Copy, Debug)]
enum Gaps {
    Even(f64),
    /// `left` packets of the burst have not arrived yet, `within_ns` apart; bursts are `between_ns` apart on average.
    Bursts {
        burst: u32,
        left: u32,
        within_ns: f64,
        between_ns: f64,
    },
}

impl Gaps {
    /// For packets of so many bits, overhead included, at a mean rate.
    fn new(pace: Pace, bits: f64, gbps: f64) -> Gaps {
        match pace {
            Pace::Even => Gaps::Even(bits / gbps),
            Pace::Exponential { burst, line_gbps } => {
                let within_ns = bits / line_gbps;
                let others = f64::from(burst - 1);
                let between_ns = (bits / gbps * f64::from(burst) - within_ns * others).max(within_ns);
                Gaps::Bursts { burst, left: burst - 1, within_ns, between_ns }
            }
        }
    }

    #[inline(always)]
    fn next(&mut self, stream: &mut Stream) -> f64 {
        match self {
            Gaps::Even(ns) => *ns,
            Gaps::Bursts { left: left @ 1.., within_ns, .. } => {
                *left -= 1;
                *within_ns
            }
            Gaps::Bursts { burst, left, between_ns, .. } => {
                *left = *burst - 1;
                stream.exponential(*between_ns)
            }
        }
    }
}

impl TrafficSpec {
    /// How many packets of a capture with its original gaps the line delays, and the longest delay, ns.
    pub fn delayed_by_the_line(&self) -> (u64, f64) {
        let TrafficSpec::Capture { capture, gbps: None, line_gbps } = self else { return (0, 0.0) };
        let times = captured::arrivals(capture, *line_gbps, 1.0);
        let delays = times.iter().zip(&capture.packets).map(|(at_ns, packet)| at_ns - packet.at_ns);
        delays
            .filter(|delay| *delay > 0.0)
            .fold((0, 0.0), |(count, most), delay| (count + 1, delay.max(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::spread::Function;

    /// What a port is offered in a run with seed 1.
    fn traffic_of(spec: &TrafficSpec, spread: Spread) -> Traffic {
        Traffic::new(spec, spread, Stream::new(1, "nic"), Stream::new(1, "nic rss"))
    }

    #[test]
    fn line_rate_of_one_kib_packets() {
        // 1024 B + 24 B on the wire at 100 Gb/s: 83.84 ns, 11.93 Mpps (microarchitecture.md 7).
        let spec = TrafficSpec::Flows {
            packet_bytes: 1024,
            mix: Vec::new(),
            gbps: 100.0,
            flows: 192,
            order: FlowOrder::InTurn,
            pace: Pace::Even,
            dscp: 0,
        };
        let mut traffic = traffic_of(&spec, Spread::Rss(4));
        let mut per_queue = [0u32; 4];
        let mut count = 0;
        while let Some(arrival) = traffic.next_before(1e6) {
            per_queue[arrival.queue as usize] += 1;
            count += 1;
        }
        assert_eq!(count, 11_928); // 1e6 / 83.84 = 11927.5
        assert!(per_queue.iter().all(|n| *n > 11_928 / 8), "{per_queue:?}");
    }

    #[test]
    fn functions_get_their_part_of_flows_and_hashes() {
        // Weights 1 : 3, one queue and two: of 8 flows 2 and 6, for every RSS draw within the second function.
        let function = |first, queues, weight| Function { first, queues, weight };
        let spread = Spread::Functions(vec![function(0, 1, 1.0), function(1, 2, 3.0)]);
        let spec = TrafficSpec::Flows {
            packet_bytes: 1000,
            mix: Vec::new(),
            gbps: 8.192,
            flows: 8,
            order: FlowOrder::InTurn,
            pace: Pace::Even,
            dscp: 0,
        };
        let mut traffic = traffic_of(&spec, spread.clone());
        let mut packets = [0u32; 3];
        // A packet takes 1024 x 8 / 8.192 = 1000 ns.
        while let Some(arrival) = traffic.next_before(800_000.0) {
            packets[arrival.queue as usize] += 1;
        }
        assert_eq!((packets[0], packets[1] + packets[2]), (200, 600));
        let hashes = (0..4096u32).map(|i| (i << 20) | (i % 128));
        let first = hashes.filter(|hash| spread.of_hash(*hash) == 0).count();
        assert_eq!(first, 1024);
    }

    #[test]
    fn bursts_come_at_line_rate_and_keep_the_mean() {
        // 1000 B + 24 B at a line of 8.192 Gb/s take 1000 ns; at 0.8192 Gb/s 4 packets come every 40 us on average.
        let pace = Pace::Exponential { burst: 4, line_gbps: 8.192 };
        let order = FlowOrder::InTurn;
        let spec = TrafficSpec::Flows {
            packet_bytes: 1000,
            mix: Vec::new(),
            gbps: 0.8192,
            flows: 8,
            order,
            pace,
            dscp: 46,
        };
        let mut traffic = traffic_of(&spec, Spread::Rss(1));
        let all: Vec<Arrival> = std::iter::from_fn(|| traffic.next_before(400e6)).collect();
        let mean = 400e6 / all.len() as f64;
        assert!((mean / 10_000.0 - 1.0).abs() < 0.03, "{mean}");
        for burst in all.chunks_exact(4) {
            assert!(burst.windows(2).all(|pair| (pair[1].at_ns - pair[0].at_ns - 1000.0).abs() < 1e-3));
        }
        assert!(all.iter().all(|arrival| arrival.dscp == 46));
    }

    #[test]
    fn a_mix_has_its_shares_and_each_packet_its_time_on_the_wire() {
        // One packet of 76 B to three of 976 B: (100 + 3 x 1000) x 8 / 4 = 6200 bits on average, at 6.2 Gb/s a packet
        // every 1000 ns; the small one takes 100 x 8 / 6.2 = 129 ns of them, the large one 1290 ns.
        let spec = TrafficSpec::Flows {
            packet_bytes: 1024,
            mix: vec![(76, 1.0), (976, 3.0)],
            gbps: 6.2,
            flows: 8,
            order: FlowOrder::InTurn,
            pace: Pace::Even,
            dscp: 0,
        };
        let mut traffic = traffic_of(&spec, Spread::Rss(1));
        let all: Vec<Arrival> = std::iter::from_fn(|| traffic.next_before(20e6)).collect();
        assert!((all.len() as f64 / 20_000.0 - 1.0).abs() < 0.01, "{}", all.len());
        let small = all.iter().filter(|a| a.bytes == 76).count() as f64 / all.len() as f64;
        assert!((small - 0.25).abs() < 0.01, "{small}");
        for pair in all.windows(2) {
            let gap = pair[1].at_ns - pair[0].at_ns;
            assert!((gap / (f64::from(pair[0].bytes) + 24.0) - 8.0 / 6.2).abs() < 1e-6);
        }
    }

    #[test]
    fn the_busiest_queue_has_so_many_times_the_mean() {
        for (queues, imbalance) in [(18, 1.69), (18, 2.78), (4, 1.0), (4, 3.9)] {
            let Spread::Functions(functions) = Spread::uneven(queues, imbalance) else {
                panic!("no functions")
            };
            let total: f64 = functions.iter().map(|f| f.weight).sum();
            let busiest = functions[0].weight / total * f64::from(queues);
            assert!((busiest - imbalance).abs() < 1e-6, "{busiest}");
            assert!(functions.windows(2).all(|pair| pair[0].weight >= pair[1].weight));
        }
    }

    /// The `rss_seed` of A4's scenarios.
    const A4_RSS_SEED: u64 = 209;

    /// Packets of each of four queues when 192 flows have sent one packet each, in a run with `seed`.
    fn deal(seed: u64, rss_seed: u64) -> [u32; 4] {
        let spec = TrafficSpec::Flows {
            packet_bytes: 1024,
            mix: Vec::new(),
            gbps: 100.0,
            flows: 192,
            order: FlowOrder::InTurn,
            pace: Pace::Even,
            dscp: 0,
        };
        let rss = Stream::new(rss_seed, "nic0 rss");
        let mut traffic = Traffic::new(&spec, Spread::Rss(4), Stream::new(seed, "nic0"), rss);
        let mut packets = [0; 4];
        for _ in 0..192 {
            packets[traffic.next_before(f64::INFINITY).expect("flows send for ever").queue as usize] += 1;
        }
        packets
    }

    #[test]
    fn the_seed_of_rss_alone_decides_which_queues_flows_have() {
        assert_eq!(deal(1, 7), deal(2, 7));
        assert_ne!(deal(1, 7), deal(1, 8));
    }

    #[test]
    fn the_scenarios_of_a4_have_a_usual_draw() {
        // The mean of each rank over 1000 draws is that of a usual draw: the k-th busiest queue of every draw,
        // averaged.
        let ranked = |seed| {
            let mut packets = deal(1, seed);
            packets.sort_unstable_by(|a, b| b.cmp(a));
            packets.map(f64::from)
        };
        let mut mean = [0.0; 4];
        for seed in 0..1000 {
            for (mean, packets) in mean.iter_mut().zip(ranked(seed)) {
                *mean += packets / 1000.0;
            }
        }
        let off = |seed| ranked(seed).iter().zip(mean).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let nearest = (0..1000).min_by(|a, b| off(*a).total_cmp(&off(*b)));
        assert_eq!(nearest, Some(A4_RSS_SEED));
    }
}
