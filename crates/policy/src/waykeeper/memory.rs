//! The best layout known for each phase. It must not know how a layout is found.

use super::layout::Layout;
use super::server::Server;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use waykeeper_calibration::TrafficSignature;

/// Phases whose layouts are remembered. Assumption: no host alternates between more; the oldest is forgotten.
const PHASES_REMEMBERED: usize = 16;

/// The phases met so far with these workloads, the last one first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PhaseMemory<T = Layout> {
    phases: VecDeque<(TrafficSignature, T)>,
}

impl<T> Default for PhaseMemory<T> {
    fn default() -> PhaseMemory<T> {
        PhaseMemory { phases: VecDeque::new() }
    }
}

/// True if two signatures belong to one phase.
fn same(a: &TrafficSignature, b: &TrafficSignature, server: &Server) -> bool {
    a.distance(b, &server.groups).0 <= server.config.phase_change
}

impl<T: Clone> PhaseMemory<T> {
    /// The layout that was best in this phase before.
    pub fn best(&self, phase: &TrafficSignature, server: &Server) -> Option<&T> {
        let known = self.phases.iter().find(|(known, _)| same(known, phase, server));
        known.map(|(_, layout)| layout)
    }

    /// Remembers the best layout of a phase instead of earlier ones.
    pub fn remember(&mut self, phase: &TrafficSignature, best: &T, server: &Server) {
        self.phases.retain(|(known, _)| !same(known, phase, server));
        self.phases.push_front((phase.clone(), best.clone()));
        self.phases.truncate(PHASES_REMEMBERED);
    }

    /// Forgets all phases: the workloads or the knobs changed.
    pub fn clear(&mut self) {
        self.phases.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{interval, server};
    use super::*;

    #[test]
    fn a_phase_has_one_layout_and_the_oldest_phase_is_forgotten() {
        let server = server(1);
        let phase = |bytes| TrafficSignature::of(&server.groups, &interval(&[1.0], bytes), &server.inventory);
        let layout = |lp_ways| Layout { lp_ways, ..server.limits.open() };
        let mut memory = PhaseMemory::<Layout>::default();
        memory.remember(&phase(1e9), &layout(3), &server);
        // 10 % more traffic is the same phase, twice the traffic another one (phase_change is 0.25).
        assert_eq!(memory.best(&phase(1.1e9), &server), Some(&layout(3)));
        assert_eq!(memory.best(&phase(2e9), &server), None);
        memory.remember(&phase(1.1e9), &layout(4), &server);
        assert_eq!((memory.best(&phase(1e9), &server), memory.phases.len()), (Some(&layout(4)), 1));
        for doubled in 1..=PHASES_REMEMBERED as i32 {
            memory.remember(&phase(1e9 * 2_f64.powi(doubled)), &layout(5), &server);
        }
        assert_eq!((memory.best(&phase(1e9), &server), memory.phases.len()), (None, PHASES_REMEMBERED));
        memory.clear();
        assert_eq!(memory.best(&phase(2e9), &server), None);
    }
}
