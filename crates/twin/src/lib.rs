//! The twin: a small server on `silicon`, built from a description, that predicts what other layouts would bring.
//!
//! [`answer`] is a pure function of its question: same question, same answer. [`DescribedServer`] is that server as a host.
//! It must not know a real or a virtual server, nor any policy; all that it knows of programs is in the description.

mod described_server;
mod foresight;
mod layout;
mod plant;
mod run;
mod search;
mod small_chip;
mod tuning;

pub use described_server::DescribedServer;

use foresight::Foresight;
use layout::Layout;
use plant::Plant;
use search::Search;
use tuning::Tuning;
use waykeeper_calibration::{FetchCosts, LayoutAnswer, LayoutQuestion};

/// How much an answer may cost, in simulated line events: not in time, so that the answer does not depend on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Line events of the whole answer.
    pub events: u64,
}

impl Budget {
    /// Line events of each of some runs that together have a part of it.
    fn share(self, part: f64, runs: usize) -> u64 {
        ((part * self.events as f64 / runs.max(1) as f64) as u64).clamp(SHORTEST, LONGEST)
    }
}

impl Default for Budget {
    /// Two fifths of a second of one core, at about 30 million line events a second (`benches/answer.rs`): two intervals of
    /// a second at a fifth of a core.
    fn default() -> Budget {
        Budget { events: 12_000_000 }
    }
}

/// Parts of the budget for the numbers of devices, for what was observed, and for the layouts that were asked for and are
/// found best. The search has the rest.
const TUNING: f64 = 0.2;
const OBSERVED: f64 = 0.1;
const FINAL: f64 = 0.2;
/// Most line events of a run: more do not make it better than the description is. Assumption.
const LONGEST: u64 = 150_000;
/// Fewest line events of a run that says anything. Assumption.
const SHORTEST: u64 = 10_000;

/// The layouts that serve the goal of a question best, and those that it asks for.
///
/// Simulates until the budget is spent, and at least the layouts that were asked for.
pub fn answer(question: &LayoutQuestion, budget: Budget) -> LayoutAnswer {
    let LayoutQuestion { server, limits, .. } = question;
    let (tuning, tuned) = Tuning::within(server, budget);
    let plant = Plant::new(server, &tuning);
    let costs = FetchCosts { llc: question.goal.llc_cost, memory: question.goal.memory_cost };
    let (foresight, observed) =
        Foresight::new(server, costs, plant, budget.share(OBSERVED, server.observed.len() + 1));
    let mut simulated = 0;
    let last = budget.share(FINAL, question.asked.len() + question.most);
    let mut asked = Vec::new();
    let mut spent = tuned + observed;
    for plan in &question.asked {
        let (candidate, events) = foresight.of(&Layout::after(plan, server, limits), limits, last);
        asked.push(waykeeper_calibration::Candidate { plan: plan.clone(), ..candidate });
        spent += events;
        simulated += 1;
    }
    let left = budget.events.saturating_sub(spent).saturating_sub(last * question.most as u64);
    let mut search = Search::new(question, &foresight);
    search.go(left, SHORTEST);
    simulated += search.simulated();
    let mut best = Vec::new();
    for layout in search.best(question.most * 2) {
        let (candidate, _) = foresight.of(&layout, limits, last);
        simulated += 1;
        best.push(candidate);
    }
    best.sort_by(|a, b| search::score(b, question).total_cmp(&search::score(a, question)));
    best.truncate(question.most);
    LayoutAnswer { question: question.number, simulated, best, asked }
}
