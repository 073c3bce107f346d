//! Prints every profile's curve on the simulated Gold 5120 beside the measurements, as CSV: `make curves` draws it.

// The fit uses all of it, this example a part.
#[allow(dead_code)]
#[path = "../tests/suite/common/curves.rs"]
mod curves;

use std::io::Write;
use std::sync::Mutex;
use waykeeper_silicon::Sampling;

fn main() -> std::io::Result<()> {
    let curves: Vec<_> = curves::measured().into_iter().collect();
    let (queue, rows) = (Mutex::new(curves.iter()), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some((name, target)) = queue.lock().expect("no run panics").next() else { break };
                    let sampling = Sampling::one_in(32).expect("a factor");
                    let seconds = curves::seconds_for(target);
                    for (prefetch, points) in [("off", &target.off), ("on", &target.on)] {
                        for (ways, was) in curves::WAYS.into_iter().zip(points) {
                            let profile = format!("benchmark = \"{name}\"");
                            let is = curves::simulated(&profile, ways, prefetch == "on", seconds, sampling);
                            rows.lock().expect("no push panics").push(format!(
                                "{name},{prefetch},{ways},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3}",
                                was.cpi, is.cpi, was.mpki, is.mpki, was.reads, is.reads
                            ));
                        }
                    }
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("the threads ended");
    rows.sort();
    let mut out = std::io::stdout().lock();
    writeln!(out, "program,prefetchers,ways,cpi_measured,cpi,mpki_measured,mpki,reads_measured,reads")?;
    rows.iter().try_for_each(|row| writeln!(out, "{row}"))
}
