//! The virtual server: cores and programs, NICs, SSDs, simulated time; and the same [`Host`] seam as a
//! real server in front of it.
//!
//! Knows the chip's interface and what programs and devices do to it. Knows no policy: it is watched and
//! steered through [`waykeeper_host::Host`] alone. The results of a run ([`Measured`]) are the truth a
//! report needs and a policy never sees.
//!
//! [`Host`]: waykeeper_host::Host

mod bare;
mod bus;
mod coverage;
mod evictions;
mod faults;
mod host;
mod idio;
mod inventory;
mod knobs;
mod launch;
mod loading;
mod mailbox;
mod measured;
mod meter;
mod nic;
mod nvme;
mod opcodes;
mod posted;
mod programs;
mod pulse;
mod random;
mod root_port;
mod sampling_error;
mod scenario;
mod server;
mod ssd;
mod steady;
mod team;

pub use bare::{BareMachine, ClassError, CoreCounts, DcaCounts, MAX_RMIDS, MemoryBytes, PortBytes};
pub use coverage::Gap;
pub use evictions::{Agent, EvictionRate};
pub use faults::FaultyServer;
pub use host::VirtualServer;
pub use launch::Process;
pub use loading::LoadServer;
pub use measured::{Measured, SystemMeasured, WorkloadMeasured, WriteBacks};
pub use nic::{FlowOrder, MempoolSpec, Pace, Steering, TrafficSpec};
pub use opcodes::{Commands, OpcodeRates, Opcodes};
pub use programs::{JobSpan, KINDS, ProgramKind, ScoreKind, WorkUnit};
pub use pulse::OnPulse;
pub use sampling_error::{HitErrors, SamplingErrors};
pub use scenario::{
    CapturedPacket, CapturedTraffic, ChipFile, Fault, FaultKind, Keys, KnobPhase, LATEST_S, NicPhase,
    NicSpec, SHORTEST_RUN_S, Scenario, ScenarioError, ScenarioSource, StorageSpec, SweptKey, WorkloadPhase,
    WorkloadSpec, shown,
};
pub use server::{Machine, RunOptions};
pub use ssd::ArraySpec;
