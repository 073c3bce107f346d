//! The summary of a run as a table.
//!
//! Must not know how the run was made.

use super::counters;
use crate::listing;
use waykeeper_load::{LoadSummary, Op};

/// The table.
pub fn table(summary: &LoadSummary) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    // `op` is seen from memory, as in the thesis; the text in parentheses names the drive's side.
    let op = match summary.op {
        _ if !summary.pattern.moves() => "",
        Op::Write => " write (the drive is read)",
        Op::Read => " read (the drive is written)",
        Op::Mixed => " mixed",
    };
    let load =
        format!("{}{op}, {} B blocks, by {}", summary.pattern.name(), summary.block_bytes, summary.engine);
    row("load", load);
    let runtime = format!("{} in {:.3} s", summary.commands, summary.runtime_s);
    row("commands", format!("{runtime}, {:.1}/s", summary.iops));
    let moved = match summary.blocks_moved == summary.blocks {
        true => String::new(),
        false => format!(" counted, {} moved", summary.blocks_moved),
    };
    row("blocks", format!("{}{moved}", summary.blocks));
    if summary.errors > 0 {
        row("errors", summary.errors.to_string());
    }
    let mib = summary.bandwidth_bytes_per_s / f64::from(1 << 20);
    row("bandwidth", format!("{mib:.1} MiB/s, queue entries included"));
    if let Some(us) = &summary.latency_us {
        row(
            "latency",
            format!(
                "mean {:.1} us, p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
                us.mean, us.p50, us.p99, us.p99_9, us.max
            ),
        );
    }
    if let Some(us) = summary.cpu_us_per_io {
        row("CPU", format!("{us:.2} us per command"));
    }
    listing::columns(&rows) + "\n" + &counters::table(&summary.counters)
}
