//! Fixtures for tests: a small scenario, the virtual server made from it, and the exact state of everything that a
//! manager could have changed on it. Only a dev-dependency; a failure here panics with the reason.
//!
//! * [`scenario`] makes a scenario from a chip and a text ([`SCENARIO`] or a test's own), [`run_options`] its seeds.
//! * `manual_clock` and `wall_clock` (feature `files`) are options of a virtual host: a clock that the test sets, or
//!   the wall clock.
//! * `MountedHost` (feature `host`) is a mounted host with its tenants and a journal beside it: `open` starts to manage
//!   it, `run` advances the clock, `faults` makes its files fail, `state` reads everything that could have been
//!   changed, `restore` does what `waykeeper restore` does. `on_model_clock` is the same host with the server's clock
//!   instead of the kernel's, for a control loop that must not wait in real time.
//! * `SyntheticHost` (feature `synthetic`) is an in-process host of any size with varying counters, for the cost of
//!   decisions.
//! * `LargeServer` (feature `host`) is a server of 128 cores and 64 tenants without a model, for the cost of sampling.
//! * [`wait_for`] waits for a condition; [`PATIENCE`] is the one limit of all waits of tests.
//!
//! ```text
//! let machine = MountedHost::new("gold-6140");          // root and /dev/fuse, or a panic that says so
//! let found = machine.state();
//! let mut host = machine.open();
//! machine.run(5 * MS);
//! // ... sample, apply ...
//! drop(host);
//! assert_same_state(&machine.state(), &found, "after a run");
//! ```
//!
//! Must not know what is tested.

#[cfg(feature = "host")]
mod large;
#[cfg(feature = "host")]
mod machine;
#[cfg(feature = "host")]
mod model_clock;
#[cfg(feature = "host")]
pub mod plain_tree;
#[cfg(feature = "host")]
mod state;
#[cfg(feature = "synthetic")]
mod synthetic;
#[cfg(feature = "host")]
mod tenants;
mod waiting;

#[cfg(feature = "host")]
pub use large::LargeServer;
#[cfg(feature = "host")]
pub use machine::MountedHost;
#[cfg(feature = "host")]
pub use model_clock::ModelClockHost;
#[cfg(feature = "host")]
pub use state::{HostState, Watched, assert_same_state, groups, state_difference};
#[cfg(feature = "synthetic")]
pub use synthetic::SyntheticHost;
#[cfg(feature = "host")]
pub use tenants::tenants;
pub use waiting::{PATIENCE, wait_for, wait_for_some};

/// Whether tests run in their long form (`make test-long`): more seeds, more inputs, every round of faults.
pub fn is_long() -> bool {
    std::env::var_os("TEST_LONG").is_some()
}

use std::sync::Arc;
use waykeeper_machine::{RunOptions, Scenario, ScenarioSource};
use waykeeper_silicon::Sampling;
#[cfg(feature = "files")]
pub use waykeeper_vhost::faults;
#[cfg(feature = "files")]
use waykeeper_vhost::{machine_clock::ClockSpeed, virtual_host::VirtualHostOptions};

/// A millisecond of the server's clock, ns.
pub const MS: u64 = 1_000_000;

/// A NIC at 80 Gb/s with a forwarder on cores 0 and 1, an array with a reader on core 2, a scan of 24 MiB on core 3.
/// It names no chip: [`scenario`] prepends one.
pub const SCENARIO: &str = r#"
name = "host"
duration_s = 1
warmup_s = 0.1
measure_s = 0.1
time_factor = 5

[[nic]]
name = "nic0"
ring = 2048
offered_gbps = 80

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0-1"
priority = "high"

[[workload]]
name = "fio"
program = "fio"
cores = "2"
priority = "low"

[[workload]]
name = "scan"
program = "x-mem"
cores = "3"
priority = "low"
working_set = "24M"
"#;

/// A scenario on a chip.
///
/// # Panics
/// With the reader's error, if the text is not a scenario.
pub fn scenario(chip: &str, text: &str) -> Arc<Scenario> {
    let text = format!("chip = \"{chip}\"\n{text}");
    let source = ScenarioSource::parse("host", &text, None).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")))
}

/// Seed 1; one set in `one_in` is simulated, which must be a power of two.
pub fn run_options(one_in: u32) -> RunOptions {
    let sampling = Sampling::one_in(one_in).unwrap_or_else(|| panic!("{one_in} is no power of two"));
    RunOptions { seed: 1, sample_seed: 1, sampling }
}

/// Options of a host whose clock stops until the test advances it.
#[cfg(feature = "files")]
pub fn manual_clock(one_in: u32) -> VirtualHostOptions {
    VirtualHostOptions {
        speed: ClockSpeed::Stopped,
        run: run_options(one_in),
        ..VirtualHostOptions::default()
    }
}

/// Options of a host whose clock follows the wall clock.
#[cfg(feature = "files")]
pub fn wall_clock(one_in: u32) -> VirtualHostOptions {
    VirtualHostOptions {
        speed: ClockSpeed::Wall(1.0),
        run: run_options(one_in),
        ..VirtualHostOptions::default()
    }
}
