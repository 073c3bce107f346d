//! How much a load may ask for, whoever makes it and however it is written down.
//!
//! Knows numbers; must not know what a single device takes, which is for those to say who look at it.

/// Most commands that a worker keeps outstanding: an NVMe queue has 65 536 entries at most, of which one stays empty
/// (NVM Express Base 2.0, 3.3.1.5 and 3.3.3.1).
pub const MOST_DEPTH: u32 = 65_535;
/// Most workers, which are threads: more than anybody has CPUs for. A guess.
pub const MOST_WORKERS: u32 = 1024;
/// Most bytes of a command where the device has no limit of its own: half of what io_uring registers at once
/// (io_uring_register(2)), and more than anybody needs.
pub const MOST_COMMAND_BYTES: u64 = 1 << 29;
