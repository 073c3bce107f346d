//! What each CPU generation calls its counters and knobs: one data table a generation, each value with its source.
//!
//! This crate knows numbers from manuals. It must not know how they are read (files, perf, MSRs) or served: the real
//! host and the virtual one both use these tables, so that they stay consistent.

mod core_counters;
mod dca;
mod facts;
mod free_running;
mod generation;
mod pmu;
mod registers;
mod signature;
mod terms;
mod uncore;

pub use core_counters::{CoreCounterTable, CoreEvent, CoreRegisters, FixedCounters, Quantities, Quantity};
pub use dca::{Dca, Evidence, WayRegister, WaysSwitch};
pub use dca::{PortSwitch, RegisterBit};
pub use facts::{Erratum, ErratumKind, ResctrlFacts};
pub use free_running::{FreeRunning, FreeRunningSet};
pub use generation::Generation;
pub use pmu::{BoxCount, Field, FieldRegister, Pmu, Programmed};
pub use registers::{AddressSpace, Block, BoxControl, RegisterMap};
pub use signature::{Signature, SignatureRule, Vendor};
pub use terms::{Terms, TermsError};
pub use uncore::{
    BusRegister, Iio, IoRequestEvent, LlcCounterTable, MemoryCounterTable, MemoryEvent, PartMap, Role,
    SharedCache,
};
