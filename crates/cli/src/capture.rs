//! `waykeeper capture`: shows the content of a packet capture. Must not know how a NIC replays it.

use crate::exit::Failure;
use crate::{listing, out};
use clap::Subcommand;
use std::path::PathBuf;
use waykeeper_inputs::{Capture, CaptureInfo, SHORTEST_FRAME};

const INFO_EXAMPLES: &str = "\
Examples:
  waykeeper capture info inputs/redis-benchmark.pcap    packets, sizes and rate of a capture
  waykeeper capture info traffic.pcapng.zst --json      the same of a packed capture, as JSON

In a scenario, a NIC replays a capture with: [[nic]] capture = \"traffic.pcapng\".";

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper capture info inputs/redis-benchmark.pcap    packets, sizes and rate of a capture";

/// What to do with captures.
#[derive(Subcommand, Debug)]
pub enum CaptureCommand {
    /// Show the packets, sizes, rate and link types of a capture
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// The capture: pcap or pcapng, plain or packed with gzip, xz or zstd
        file: PathBuf,
        /// Print JSON instead of a list
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
pub fn capture(command: CaptureCommand) -> Result<(), Failure> {
    let CaptureCommand::Info { file, json } = command;
    let info = Capture::read(&file)?.info();
    if json { out::json(&info) } else { out::text(&page(&info)) }
}

fn page(info: &CaptureInfo) -> String {
    let count = listing::grouped;
    let links: Vec<String> = info.links.iter().map(|link| format!("{link:?}").to_lowercase()).collect();
    let rate = |rate: Option<f64>, scale: f64, unit: &str| {
        rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.3} {unit}", rate * scale))
    };
    let without_flow = match info.without_flow {
        0 => String::new(),
        packets => format!(", {} packets belong to no flow", count(packets)),
    };
    let mut facts = vec![
        ("format", format!("{:?}", info.format).to_lowercase()),
        ("link types", links.join(", ")),
        ("packets", count(info.packets)),
        ("bytes", count(info.bytes)),
        (
            "packet size",
            format!("{} to {} bytes, mean {:.1}", info.min_bytes, info.max_bytes, info.mean_bytes),
        ),
        ("flows", format!("{}{without_flow}", count(info.flows))),
        ("duration", format!("{:.6} s", info.duration_ns as f64 * 1e-9)),
        ("packet rate", rate(info.packets_per_s, 1e-6, "M packets/s")),
        ("data rate", rate(info.bytes_per_s, 8e-9, "Gb/s")),
    ];
    if let Some(gap) = &info.dominant_gap {
        let (seconds, after, before) = (gap.ns as f64 * 1e-9, gap.after_packet, gap.before_packet);
        let text = format!("{seconds:.6} s between packets {after} and {before}: a wrong time, or a pause");
        facts.push(("longest gap", text));
    }
    let odd = &info.oddities;
    let padded = format!("a frame has at least {SHORTEST_FRAME} bytes; a sender pads them to that");
    let counted = [
        ("out of order", odd.reordered, "all are sorted by time"),
        ("longer than said", odd.longer_than_said, "the captured length counts"),
        ("too short", odd.shorter_than_a_frame, padded.as_str()),
        (
            "FCS",
            odd.undeclared_fcs,
            "they end in a frame check sequence, though the file says nothing of it; it is left out",
        ),
        ("no bytes", odd.empty, "they are left out"),
        ("outgoing", odd.outgoing, "the capturing host sent them; they are left out"),
        (
            "come twice",
            odd.copies,
            "they have the bytes of one just before them; capture one interface; `editcap -d IN OUT` removes those that are the same to the last byte",
        ),
        ("no time", odd.without_time, "each has the time of the packet before it"),
    ];
    let found = counted.into_iter().filter(|(_, packets, _)| *packets > 0);
    facts.extend(found.map(|(name, packets, what)| (name, format!("{} packets; {what}", count(packets)))));
    let whole = [
        ("nanoseconds", odd.are_nanoseconds, "the times are nanoseconds, though the file says microseconds"),
        ("padding", odd.is_padded, "zeros behind the last packet are left out"),
        (
            "cut off",
            odd.is_cut_off,
            "the file ends within a packet or its compression; the whole packets before that count",
        ),
    ];
    facts.extend(whole.into_iter().filter(|(_, is, _)| *is).map(|(name, _, what)| (name, what.to_owned())));
    if info.packets > 1 && info.duration_ns == 0 {
        facts.push((
            "times",
            "all packets have one; a NIC needs `offered_gbps` beside this capture".to_owned(),
        ));
    }
    listing::facts(&facts)
}
