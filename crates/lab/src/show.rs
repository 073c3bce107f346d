//! Numbers and names for output: three digits and a unit, without control characters.
//!
//! Network bandwidth is shown in Gb/s, all other bandwidth in GB/s (10^9), sizes in KiB and MiB, ratios in percent.
//! Must not know tables or charts.

use crate::results::{RunSummary, ThroughputUnit, WorkloadResult};
use std::cmp::Ordering;
use std::fmt::Write;
use waykeeper_host::WorkloadKind;

/// Width of the terminal for every line but those of decisions, whose length is the policy's.
pub(crate) const PAGE_COLUMNS: usize = 110;

/// Text for a number that is not available.
pub(crate) const NOTHING: &str = "-";

/// A performance ratio this far from 1 is marked; a smaller difference is noise in most scenarios (a choice of ours).
const WORTH_SAYING: f64 = 0.03;

/// Whether a performance ratio is better than the baseline's, worse, or equal within [`WORTH_SAYING`].
pub(crate) fn verdict(ratio: f64) -> Ordering {
    match ratio {
        _ if ratio >= 1.0 + WORTH_SAYING => Ordering::Greater,
        _ if ratio <= 1.0 - WORTH_SAYING => Ordering::Less,
        _ => Ordering::Equal,
    }
}

/// The longest name a table shows; longer ones end in an ellipsis.
const NAME_CHARS: usize = 22;

/// Three significant digits, without an exponent.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A number in thousands, millions or billions of a unit: `7.42 Mpps`.
pub(crate) fn scaled(value: f64, unit: &str) -> String {
    let (factor, prefix) = match value.abs() {
        size if size >= 0.9995e9 => (1e9, "G"),
        size if size >= 0.9995e6 => (1e6, "M"),
        size if size >= 0.9995e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{} {prefix}{unit}", digits(value / factor))
}

/// A ratio in percent.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.1}%", ratio * 100.0)
}

/// Memory or device bandwidth.
pub(crate) fn bandwidth(bytes_per_s: f64) -> String {
    format!("{} GB/s", digits(bytes_per_s / 1e9))
}

/// A time; milliseconds from ten on.
pub(crate) fn micros(us: f64) -> String {
    if us < 9_995.0 { format!("{} us", digits(us)) } else { format!("{} ms", digits(us / 1e3)) }
}

/// A size in bytes.
pub(crate) fn size(bytes: f64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    if bytes >= MIB {
        format!("{} MiB", digits(bytes / MIB))
    } else {
        format!("{} KiB", digits(bytes / 1024.0))
    }
}

/// Seconds on a time line: whole ones without a point.
pub(crate) fn seconds(s: f64) -> String {
    if s.fract() == 0.0 { format!("{s:.0} s") } else { format!("{s:.2} s") }
}

/// Length of a run's traffic, and the simulated part of it if steady intervals were extrapolated.
pub(crate) fn simulated(summary: &RunSummary) -> String {
    let whole = seconds(summary.simulated_s);
    let parts = || summary.policies.values().map(|policy| policy.simulated_s);
    let (least, most) = (parts().fold(f64::INFINITY, f64::min), parts().fold(0.0, f64::max));
    if least >= summary.simulated_s * (1.0 - 1e-9) {
        return format!("a run is {whole} simulated");
    }
    let (least, most) = (seconds(least), seconds(most));
    let parts = if least == most { most } else { format!("{} to {most}", least.trim_end_matches(" s")) };
    format!("a run is {whole} of traffic, {parts} of it simulated")
}

/// A workload's throughput in its own unit; network programs in bits.
pub(crate) fn throughput(workload: &WorkloadResult, value: f64) -> String {
    match workload.throughput_unit {
        Some(ThroughputUnit::Packets) => scaled(value, "pps"),
        Some(ThroughputUnit::Bytes) if workload.kind == WorkloadKind::NetworkIo => {
            format!("{} Gb/s", digits(value * 8.0 / 1e9))
        }
        Some(ThroughputUnit::Bytes) => bandwidth(value),
        Some(ThroughputUnit::Operations) => scaled(value, "op/s"),
        Some(ThroughputUnit::Instructions) => scaled(value, "instr/s"),
        None => scaled(value, "/s"),
    }
}

/// Any metric by its key; the suffix of the key is the unit.
pub(crate) fn metric(key: &str, value: f64) -> String {
    match key {
        "performance_ratio" | "ipc" => format!("{value:.2}"),
        _ if key.ends_with("_ratio") => percent(value),
        _ if key.ends_with("_us") => micros(value),
        _ if key.ends_with("bytes_per_s") => bandwidth(value),
        _ if key.ends_with("_bytes") => size(value),
        _ if key.ends_with("_ns") => format!("{} ns", digits(value)),
        _ if key.ends_with("_per_s") => scaled(value, "/s"),
        _ => digits(value),
    }
}

/// A metric's name in a heading: `llc_hit_ratio` is `LLC hit`.
pub(crate) fn metric_name(key: &str) -> &str {
    match key {
        "performance_ratio" => "performance",
        "throughput" => "throughput",
        "latency_mean_us" => "mean latency",
        "latency_p50_us" => "p50 latency",
        "queueing_mean_us" => "mean time in the RX ring",
        "pointer_mean_us" => "mean time to fetch a packet",
        "processing_mean_us" => "mean processing time of a packet",
        "latency_p99_us" => "p99 latency",
        "ipc" => "IPC",
        "llc_hit_ratio" => "LLC hit",
        "mlc_hit_ratio" => "MLC hit",
        "llc_misses_per_s" => "LLC misses",
        "llc_occupancy_bytes" => "LLC occupancy",
        "memory_read_bytes_per_s" => "memory read",
        "memory_write_bytes_per_s" => "memory write",
        "memory_latency_ns" => "memory latency",
        "dca_write_hit_ratio" => "DCA write hit",
        "dca_read_hit_ratio" => "DCA read hit",
        "dma_leak_lines_per_s" => "DMA leak, lines",
        "dma_bloat_lines_per_s" => "DMA bloat, lines",
        "mlc_writebacks_per_s" => "MLC write-backs, lines",
        "llc_writebacks_per_s" => "LLC write-backs, lines",
        "drops_per_s" => "drops",
        "dropped_ratio" => "dropped",
        "llc_time_ratio" => "time beyond the MLC, at most",
        "drive_busy_ratio" => "drives busy",
        "inbound_bytes_per_s" => "I/O inbound",
        "outbound_bytes_per_s" => "I/O outbound",
        other => other,
    }
}

/// The sampling error of a hit ratio in points, with the largest one if it is larger: `LLC 0.41 (largest 1.10, parest)`.
pub(crate) fn sampling_error(key: &str, error: f64, largest: Option<(String, f64)>) -> String {
    let largest = largest.filter(|(_, points)| *points > error);
    let largest = largest.map(|(name, points)| format!(" (largest {}, {name})", digits(points)));
    format!("{} {}{}", metric_name(key).trim_end_matches(" hit"), digits(error), largest.unwrap_or_default())
}

/// Text from a scenario made safe for a terminal: characters that it obeys become `?`.
pub(crate) fn plain(text: &str) -> String {
    waykeeper_units::printable(text)
}

/// A name for a table: safe and not too long.
pub(crate) fn name(text: &str) -> String {
    let safe = plain(text);
    if safe.chars().count() <= NAME_CHARS {
        return safe;
    }
    safe.chars().take(NAME_CHARS - 1).chain(['…']).collect()
}

/// A line that lists something, wrapped at the page's width; nothing for no items.
pub(crate) fn listed(head: &str, items: Vec<String>) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for (index, item) in items.iter().enumerate() {
        let item = if index + 1 < items.len() { format!("{item}, ") } else { item.clone() };
        let chars = item.chars().count();
        if index == 0 {
            out.push_str(head);
            used = head.chars().count();
        } else if used + chars > PAGE_COLUMNS {
            out.truncate(out.trim_end().len());
            let _ = write!(out, "\n{:1$}", "", head.chars().count());
            used = head.chars().count();
        }
        out.push_str(&item);
        used += chars;
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// A sentence, wrapped at the page's width; all lines but the first are indented.
pub(crate) fn wrapped(text: &str) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for word in text.split_whitespace() {
        let chars = word.chars().count();
        if used > 0 && used + 1 + chars > PAGE_COLUMNS {
            out.push_str("\n  ");
            used = 2;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += chars;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_the_unit_people_use() {
        let cases = [
            (digits(0.0), "0"),
            (digits(9.994), "9.99"),
            (digits(9.996), "10.0"),
            (digits(99.96), "100"),
            (digits(-12.34), "-12.3"),
            (scaled(7_420_000.0, "pps"), "7.42 Mpps"),
            (scaled(999.9, "op/s"), "1.00 kop/s"),
            (scaled(12.0, "/s"), "12.0 /s"),
            (percent(0.9714), "97.1%"),
            (bandwidth(12.34e9), "12.3 GB/s"),
            (micros(385.2), "385 us"),
            (micros(12_000.0), "12.0 ms"),
            (size(2.25 * 1024.0 * 1024.0), "2.25 MiB"),
            (size(512.0), "0.50 KiB"),
            (seconds(12.0), "12 s"),
            (seconds(0.05), "0.05 s"),
            (metric("performance_ratio", 1.484), "1.48"),
            (metric("dca_write_hit_ratio", 0.5), "50.0%"),
            (metric("inbound_bytes_per_s", 2e9), "2.00 GB/s"),
        ];
        for (got, wanted) in cases {
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn a_sampling_error_has_its_largest_if_that_is_more() {
        let largest = |points| Some(("parest".to_owned(), points));
        assert_eq!(sampling_error("llc_hit_ratio", 0.406, largest(1.1)), "LLC 0.41 (largest 1.10, parest)");
        assert_eq!(sampling_error("dca_write_hit_ratio", 0.2, largest(0.2)), "DCA write 0.20");
        assert_eq!(sampling_error("mlc_hit_ratio", 0.0, None), "MLC 0");
    }

    #[test]
    fn a_list_is_wrapped_below_its_first_item() {
        let items = |count| vec!["x".repeat(39); count];
        assert_eq!(listed("head: ", items(0)), "");
        assert_eq!(listed("head: ", items(1)), format!("head: {}\n", "x".repeat(39)));
        // Six columns of head and two items of 41 are 88; a third does not fit.
        let wrapped = listed("head: ", items(3));
        let lines: Vec<&str> = wrapped.lines().collect();
        assert_eq!(lines[1], format!("      {}", "x".repeat(39)));
        assert!(lines.len() == 2 && lines[0].ends_with("x,"));
    }

    #[test]
    fn a_sentence_is_wrapped_between_words() {
        let text = format!("{} {} end", "x".repeat(60), "y".repeat(49));
        // 60 and 49 columns and a space are 110.
        assert_eq!(wrapped(&text), format!("{} {}\n  end\n", "x".repeat(60), "y".repeat(49)));
        assert_eq!(wrapped("a  b"), "a b\n");
    }

    #[test]
    fn names_cannot_drive_the_terminal_or_break_a_table() {
        assert_eq!(name("\x1b[2Jboo\n"), "?[2Jboo?");
        assert_eq!(name(&"x".repeat(40)).chars().count(), NAME_CHARS);
    }
}
