//! The chip: mid-level caches, last-level cache, directory, DCA, memory. State and rules, nothing else.
//!
//! Must not know time, programs, or more of a device than its number. Takes accesses and returns the level that
//! served them. The specification is microarchitecture.md 4 and 5; every rule is one function that cites it, every
//! variant of microarchitecture.md 11 is a value of [`Rules`].
//!
//! The hot path allocates nothing, hashes nothing and takes no lock: addresses become [`Line`] handles
//! once, when memory is handed out by [`AddressMap`].

mod address;
mod audit;
mod bytes;
mod chip;
mod counters;
mod dca;
mod directory;
mod dram;
mod evictions;
mod gather;
mod history;
mod inclusive;
mod level;
mod line;
mod mlc;
mod noninclusive;
mod pages;
mod ranges;
mod rules;
mod shared;
mod simd;
mod slices;
mod socket;
mod spec;
mod steering;
mod table;
mod ways;

pub use address::{AddressMap, FRAME_LINES, HUGE_LINES, Handed, OutOfMemory, Region, Sampling};
pub use audit::{MlcResident, Resident};
pub use chip::{Chip, Fill, Level, MAX_CORES, MAX_DEVICES};
pub use counters::{ChipCounters, CoreCounters, DcaCounters, DeviceCounters, PrefetchCounters};
pub use dca::{DcaRegisters, RegisterError};
pub use dram::Dram;
pub use evictions::{EvictionCount, EvictionReason, Owner};
pub use gather::{Gather, PADDING};
pub use level::OneLevel;
pub use line::Line;
pub use pages::{Lent, Pages};
pub use rules::{DmaUpdate, InclusiveVictim, Migration, MlcHeldWrite, Replacement, Rules, SliceHash};
pub use shared::DcaMode;
pub use spec::{ChipSpec, DramSpec, Identity, Latency, LlcKind, LlcSpec, MlcSpec, OpcodeSpec, SpecError};
pub use steering::{PayloadTarget, Placement, SteeringCounters, Tag};
pub use table::Table;
