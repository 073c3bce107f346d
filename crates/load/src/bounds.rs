//! Upper limits of a load, for every way to request one (options, job files, scenarios).
//!
//! Knows numbers; must not know the limits of a single device, which the code that opens the device checks.

/// Most commands that a worker keeps outstanding: an NVMe queue has 65 536 entries at most, of which one stays empty
/// (NVM Express Base 2.0, 3.3.1.5 and 3.3.3.1).
pub const MOST_DEPTH: u32 = 65_535;
/// Maximum number of workers, which are threads: more than any server has CPUs. A guess.
pub const MOST_WORKERS: u32 = 1024;
/// Maximum bytes of a command if the device has no limit of its own: half of what io_uring registers at once
/// (io_uring_register(2)), and more than any known use needs.
pub const MOST_COMMAND_BYTES: u64 = 1 << 29;
