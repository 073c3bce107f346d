//! Runs the crate `cachesim` as a peer of `make bench`: one level, FIFO, a number of sets that is a power of two.
//!
//!     cachesim TRACE SETSxWAYS
//!
//! TRACE holds line numbers of 32 bits. For each line on standard input the program passes the trace through the cache once
//! and prints `pass SECONDS HITS`: its CPU time, and the accesses that hit. With several levels it ends with status 3, since
//! it has only one. It knows nothing of Waykeeper.

use cachesim::general_cache_behavior::{AccessResult, GeneralCacheBehavior, HitOrMiss};
use cachesim::DefaultCache;
use rustix::time::{clock_gettime, ClockId};

/// The geometry as the file that the crate reads: its only way to set one.
fn definition(level: &str) -> Option<String> {
    let (sets, ways) = level.split_once('x')?;
    let (sets, ways): (u32, u32) = (sets.parse().ok()?, ways.parse().ok()?);
    // The crate takes the set from address bits, so it has a power of two of sets, and ways for about the same size.
    let power = 1 << sets.ilog2();
    let ways = (sets * ways + power / 2) / power;
    Some(format!(
        "type=default$\nsets={power}$\nassociativity={ways}$\nblocksize=64$\nhit latency=0$\nmiss penalty=0$"
    ))
}

fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, trace, level] = &arguments[..] else { std::process::exit(3) };
    let definition = definition(level).unwrap_or_else(|| panic!("{level}: expected SETSxWAYS"));
    let file = std::env::temp_dir().join(format!("cachesim-{}.txt", std::process::id()));
    std::fs::write(&file, definition).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut cache = DefaultCache::new();
    cache.init(&file.to_string_lossy()).unwrap_or_else(|error| panic!("{error}"));
    std::fs::remove_file(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let bytes = std::fs::read(trace).unwrap_or_else(|error| panic!("{trace}: {error}"));
    let (numbers, _) = bytes.as_chunks::<4>();
    let addresses: Vec<u32> = numbers.iter().map(|number| u32::from_ne_bytes(*number) << 6).collect();
    for line in std::io::stdin().lines() {
        line.expect("standard input can be read");
        let start = cpu_s();
        let mut hits = 0u64;
        for address in &addresses {
            let AccessResult(result, _) = cache.access(*address);
            hits += u64::from(matches!(result, HitOrMiss::Hit));
        }
        println!("pass {:.9} {hits}", cpu_s() - start);
    }
}
