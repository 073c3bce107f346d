//! A short simulation of a scenario, for `scenario check`: packets that are dropped, and workloads that cannot react.
//!
//! 20 ms of traffic to fill queues and caches, then 20 ms that are measured, under the knob values of the scenario and
//! without a policy. A queue of 2048 packets that is offered a tenth more than its core takes, at 3 million a second, is
//! full after 7 ms. What begins later (`start_s`, phases) is not seen. Must not know how a warning is shown.

use super::RunError;
use super::job;
use crate::results::{PolicyResult, RunSummary, SystemResult, Warning, warning};
use waykeeper_control::ControlError;
use waykeeper_host::Host;
use waykeeper_machine::{Scenario, VirtualServer};

/// Traffic before the measurement, and measured, s.
const FILLED_S: f64 = 0.02;
const MEASURED_S: f64 = 0.02;

/// Most points of a sweep that are simulated (ours): one takes 10 to 50 ms of a core.
pub(super) const MOST_POINTS: usize = 64;

/// Name of the only result: no policy decides.
const NO_POLICY: &str = "none";

/// The warnings; `blank` is a result without policies, `server` has just been switched on.
pub(super) fn warnings(
    mut blank: RunSummary,
    scenario: &Scenario,
    mut server: VirtualServer,
) -> Result<Vec<Warning>, RunError> {
    let until = |server: &mut VirtualServer, traffic_s: f64| {
        let deadline_ns = (traffic_s * scenario.time_factor * 1e9) as u64;
        let stopped = |why| RunError::Stopped {
            policy: NO_POLICY.to_owned(),
            seed: blank.seed,
            why: ControlError::Host(why),
        };
        server.wait_until(deadline_ns).map_err(stopped)
    };
    until(&mut server, FILLED_S)?;
    server.begin_stretch();
    until(&mut server, FILLED_S + MEASURED_S)?;
    let workloads = job::workloads(scenario, &server.measured());
    let result = PolicyResult { workloads, system: SystemResult::default(), ..PolicyResult::default() };
    blank.policies.insert(NO_POLICY.to_owned(), result);
    Ok(warning::of_short_simulation(&blank))
}
