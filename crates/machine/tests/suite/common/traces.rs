//! The shipped traces of real programs, each alone on the simulated Gold 5120 over the size of the LLC.
//!
//! Shared by the test of these curves and by the example that prints them for docs/programs.md.

use super::curves::{Point, WAYS, alone};
use std::path::PathBuf;
use waykeeper_silicon::Sampling;

/// A trace of `inputs/`, with data that its file does not contain.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// The program, also the file's name.
    pub name: &'static str,
    /// Cycles per instruction while accesses hit the L1.
    pub cpi: f64,
    /// Memory-level parallelism: misses that overlap.
    pub mlp: f64,
    /// Millions of instructions.
    pub millions: u64,
}

/// Every shipped trace. `cpi` and `mlp` are from the profile of a SPEC program of the same kind, which was fitted to
/// measurements (crates/machine/src/programs/spec/profiles.toml). X: that programs of a kind agree in these two. X: all
/// numbers of sqlite3, sort, redis-server and grep, which have no counterpart in SPEC: gcc's for sqlite3 (branches and
/// pointers), the defaults of `replay` for the others.
pub const TRACES: [Shipped; 12] = [
    Shipped { name: "bfs", cpi: 0.55, mlp: 4.7, millions: 20 }, // mcf
    Shipped { name: "cc1", cpi: 0.293, mlp: 1.91, millions: 20 }, // gcc
    Shipped { name: "flac", cpi: 0.282, mlp: 1.78, millions: 20 }, // x264
    Shipped { name: "grep", cpi: 0.6, mlp: 2.0, millions: 4 },
    Shipped { name: "perl", cpi: 0.25, mlp: 1.18, millions: 20 }, // perlbench
    Shipped { name: "python3", cpi: 0.25, mlp: 1.18, millions: 20 }, // perlbench
    Shipped { name: "redis-server", cpi: 0.6, mlp: 2.0, millions: 25 },
    Shipped { name: "sort", cpi: 0.6, mlp: 2.0, millions: 20 },
    Shipped { name: "spmv", cpi: 0.25, mlp: 3.22, millions: 20 }, // parest
    Shipped { name: "sqlite3", cpi: 0.293, mlp: 1.91, millions: 20 },
    Shipped { name: "xz", cpi: 0.338, mlp: 1.19, millions: 20 }, // xz
    Shipped { name: "zstd", cpi: 0.338, mlp: 1.19, millions: 20 }, // xz
];

/// Simulated time, s: the slowest trace (two cycles per instruction) is replayed over fifty times. A line that fits
/// into the LLC needs about thirty accesses to enter it, because three of four clean victims are dropped.
const SECONDS: f64 = 1.5;

impl Shipped {
    /// Its file.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../inputs/{}.wkt", self.name))
    }

    /// The curve over [`WAYS`]. Hardware prefetchers do not act for `replay`.
    pub fn curve(&self) -> [Point; 4] {
        let (path, Shipped { cpi, mlp, .. }) = (self.path(), self);
        let keys = format!("program = \"replay\"\ntrace = {path:?}\ncpi = {cpi}\nmlp = {mlp}");
        WAYS.map(|ways| alone(&keys, ways, false, SECONDS, Sampling::one_in(32).expect("a factor")))
    }
}
