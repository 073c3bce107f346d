//! Prints the curves of the shipped traces on the simulated Gold 5120 as rows of a table: `make curves` puts them into
//! docs/programs.md.

// The tests use all of them, this example a part.
#[allow(dead_code)]
#[path = "../tests/suite/common/curves.rs"]
mod curves;
#[allow(dead_code)]
#[path = "../tests/suite/common/traces.rs"]
mod traces;

use std::io::Write;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for trace in traces::TRACES {
        let info = waykeeper_inputs::TraceInfo::read(&trace.path()).map_err(std::io::Error::other)?;
        let curve = trace.curve();
        let cells = |number: fn(&curves::Point) -> f64| {
            curve.iter().map(|point| format!("{:.2}", number(point))).collect::<Vec<_>>().join(" | ")
        };
        writeln!(
            out,
            "| {} | {:.1} | {} | {} | {} | {} |",
            trace.name,
            info.footprint_bytes as f64 / f64::from(1 << 20),
            trace.cpi,
            trace.mlp,
            cells(|point| point.cpi),
            cells(|point| point.mpki),
        )?;
    }
    Ok(())
}
