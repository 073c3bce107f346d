//! Prints every profile's curve on the simulated Gold 5120 beside the measurements, as CSV; `make curves` draws it.

// The fit uses what this example does not.
#[allow(dead_code)]
#[path = "../tests/suite/common/curves.rs"]
mod curves;

use std::io::Write;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "program,prefetchers,ways,cpi_measured,cpi,mpki_measured,mpki,reads_measured,reads")?;
    curves::compared().into_iter().try_for_each(|curves::Compared { name, prefetchers, ways, was, is }| {
        writeln!(
            out,
            "{name},{prefetchers},{ways},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3}",
            was.cpi, is.cpi, was.mpki, is.mpki, was.reads, is.reads
        )
    })
}
