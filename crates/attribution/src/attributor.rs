//! Takes one interval after another and says who evicts whose lines.
//!
//! Knows the rates of an interval and what playing them gives; must not know how sets are sampled, nor who asks.

use crate::evidence::evidence;
use crate::flows::{KnownFlows, SamplePart};
use crate::pairs::{Attribution, LineLoss, PollutionPair, PollutionSource, UntoldVictim};
use crate::play::Play;
use waykeeper_host::{Interval, Inventory, KnobValues, Workload};
use waykeeper_units::{WayMask, WorkloadId};

/// A share from which a pair is claimed.
pub const TRUE_SHARE: f64 = 0.1;
/// A loss matters from this part of the victim's fills.
pub const LEAST_LOSS_PART: f64 = 0.02;
/// A loss matters from this many lines per second.
pub const LEAST_LOSS: f64 = 1e4;

/// Most sampled sets. With 256, an interval of 11 tenants is played in 3 ms, in 6 ms after a mask was changed, and one
/// of 256 tenants in up to 60 ms (benchmark `observe`).
const SETS: u32 = 256;
/// Accesses per interval, for each line that the sampled sets and MLCs hold: every line is replaced several times.
const TURNS: f64 = 6.0;
/// Part of the counts that is forgotten per interval while no knob is changed: the last three intervals count most.
const FORGOTTEN: f64 = 0.3;
/// Standard error of a share by the method itself, from the scenarios for tuning: the band of 90 % has 92 % of the true
/// shares there.
const METHOD_ERROR: f64 = 0.08;
/// The band reaches this many standard errors to each side: 90 % of a normal distribution.
const BAND: f64 = 1.645;
/// Fewest lines of a victim that are sampled, to say who evicted them. Assumption.
const FEWEST_LINES: f64 = 10.0;

/// Says who evicts whose lines, from one interval after another.
#[derive(Clone, Debug)]
pub struct Attributor {
    inventory: Inventory,
    /// `None` where the LLC is not known.
    sample: Option<SamplePart>,
    state: Option<State>,
}

/// What is kept from one interval to the next.
#[derive(Clone, Debug)]
struct State {
    tenants: Vec<WorkloadId>,
    knobs: KnobValues,
    play: Play,
    /// Accesses that are played for an interval.
    events: usize,
    /// Time that the counts of the play span.
    seconds: f64,
}

impl Attributor {
    /// For a host.
    pub fn new(inventory: &Inventory) -> Attributor {
        let sample = inventory.llc.map(|llc| SamplePart::of(&llc, SETS));
        Attributor { inventory: inventory.clone(), sample, state: None }
    }

    /// Takes the next interval of the workloads that were there.
    pub fn observe(&mut self, workloads: &[Workload], seen: &Interval) -> Attribution {
        let Some(sample) = self.sample else {
            let untold = |workload: &Workload| UntoldVictim {
                victim: workload.id,
                reason: "the ways of the LLC are not known".to_owned(),
            };
            let cannot_tell = workloads.iter().map(untold).collect();
            return Attribution { cannot_tell, ..Attribution::default() };
        };
        let known = KnownFlows::of(&self.inventory, workloads, seen, sample);
        let tenants: Vec<WorkloadId> = workloads.iter().map(|workload| workload.id).collect();
        let kept = self.state.take().filter(|state| state.tenants == tenants);
        let state = match kept {
            Some(state) if state.knobs == seen.knobs => state,
            // Lines of the layout before are played away first.
            kept => {
                let mut state = kept.unwrap_or_else(|| self.start(tenants, &known, sample.sets));
                state.play.run(&known.flows, state.events);
                state.play.forget(1.0);
                State { knobs: seen.knobs.clone(), seconds: 0.0, ..state }
            }
        };
        let state = self.state.insert(state);
        state.play.forget(FORGOTTEN);
        state.seconds = state.seconds * (1.0 - FORGOTTEN) + state.play.run(&known.flows, state.events);
        let view = View { inventory: &self.inventory, workloads, known: &known, state };
        view.attribution()
    }

    fn start(&self, tenants: Vec<WorkloadId>, known: &KnownFlows, sets: u32) -> State {
        let ways = self.inventory.known_llc().ways;
        let mlc_lines: Vec<usize> = known.flows.tenants.iter().map(|tenant| tenant.mlc_lines).collect();
        let lines = mlc_lines.iter().sum::<usize>() + (sets * ways) as usize;
        State {
            tenants,
            knobs: KnobValues::default(),
            play: Play::new(ways, sets, &mlc_lines, self.inventory.ports.len()),
            events: (TURNS * lines as f64) as usize,
            seconds: 0.0,
        }
    }
}

/// All that is known of an interval once it is played.
struct View<'a> {
    inventory: &'a Inventory,
    workloads: &'a [Workload],
    known: &'a KnownFlows,
    state: &'a State,
}

impl View<'_> {
    fn attribution(&self) -> Attribution {
        let mut said = Attribution::default();
        for (victim, workload) in self.workloads.iter().enumerate() {
            let id = workload.id;
            let told = self.untold(victim).map_or_else(|| self.victim(victim), Err);
            match told {
                Ok((loss, pairs)) => {
                    said.losses.push(loss);
                    said.pairs.extend(pairs);
                }
                Err(reason) => said.cannot_tell.push(UntoldVictim { victim: id, reason }),
            }
        }
        said
    }

    /// Why counters or knobs that are missing make it impossible to tell of a victim.
    fn untold(&self, victim: usize) -> Option<String> {
        let flows = &self.known.flows;
        if let Some(why) = &self.known.untold[victim] {
            return Some(why.clone());
        }
        let has_data = flows.tenants[victim].ports_with_lines.iter().any(|(port, _)| flows.ports[*port].dca);
        let mask = flows.tenants[victim].mask;
        let reach = if has_data { mask.or(flows.dca_ways) } else { mask };
        for (other, workload) in self.workloads.iter().enumerate() {
            // A mask that cannot be read may be any.
            let its = flows.tenants[other].mask;
            if let Some(why) = &self.known.untold[other]
                && (its.is_empty() || its.overlaps(reach))
            {
                return Some(format!("of {}, {why}", workload.name));
            }
        }
        let of_devices = flows.dca_ways.or(flows.inclusive_ways.unwrap_or(WayMask::EMPTY));
        self.known.untold_devices.clone().filter(|_| of_devices.is_empty() || of_devices.overlaps(reach))
    }

    /// Whether an evictor is the victim, or devices that it uses.
    fn is_own(&self, by: usize, victim: usize) -> bool {
        let port = by.checked_sub(self.workloads.len());
        by == victim || port.is_some_and(|port| self.known.flows.ports[port].users.contains(&victim))
    }

    /// Sampled lines of a victim, with its part of the unread data of its devices, that an agent evicted.
    fn evicted(&self, by: usize, victim: usize) -> f64 {
        let play = &self.state.play;
        let tenants = self.workloads.len();
        let unread = self.known.flows.tenants[victim].ports_with_lines.iter().map(|(port, _)| {
            let users = self.known.flows.ports[*port].users.len();
            play.evicted(by, tenants + port) / users as f64
        });
        play.evicted(by, victim) + unread.sum::<f64>()
    }

    /// A victim's loss and its causes, or why the counters cannot tell.
    fn victim(&self, victim: usize) -> Result<(LineLoss, Vec<PollutionPair>), String> {
        let known = self.known;
        let agents = 0..self.workloads.len() + known.flows.ports.len();
        let counts: Vec<(usize, f64)> = agents.map(|by| (by, self.evicted(by, victim))).collect();
        let sum = |own: bool| -> f64 {
            let all = counts.iter().filter(|(by, _)| own || !self.is_own(*by, victim));
            all.map(|(_, lines)| lines).sum()
        };
        let (with_own, all) = (sum(true), sum(false));
        let (seconds, fills) = (self.state.seconds, known.fills[victim]);
        let least = (LEAST_LOSS_PART * fills).max(LEAST_LOSS);
        if fills >= LEAST_LOSS && least * seconds < 1.0 && with_own < FEWEST_LINES {
            return Err("it brings too few lines into the LLC among those of the others".to_owned());
        }
        // In a steady state each lost line is missed later.
        let per_s = if seconds > 0.0 { 1.0 / seconds } else { 0.0 };
        let per_s = per_s * (known.most_lost[victim] / (with_own * per_s).max(1.0)).min(1.0);
        let lines_per_s = all * per_s;
        let id = self.workloads[victim].id;
        let loss = LineLoss { victim: id, lines_per_s, fills_per_s: fills, matters: lines_per_s >= least };
        let others = counts.into_iter().filter(|(by, lines)| *lines > 0.0 && !self.is_own(*by, victim));
        let mut pairs: Vec<PollutionPair> = others
            .map(|(by, lines)| {
                let share = lines / all;
                let error = (share * (1.0 - share) / all + METHOD_ERROR.powi(2)).sqrt();
                PollutionPair {
                    polluter: self.source(by),
                    victim: id,
                    share,
                    low: (share - BAND * error).max(0.0),
                    high: (share + BAND * error).min(1.0),
                    lines_per_s: lines * per_s,
                    confidence: probability((share - TRUE_SHARE) / error),
                    evidence: evidence(self.workloads, &known.flows, by, victim),
                }
            })
            .collect();
        pairs.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.polluter.cmp(&b.polluter)));
        Ok((loss, pairs))
    }

    fn source(&self, by: usize) -> PollutionSource {
        match by.checked_sub(self.workloads.len()) {
            None => PollutionSource::Tenant(self.workloads[by].id),
            Some(port) => PollutionSource::Port(self.inventory.ports[port].id),
        }
    }
}

/// Probability that a normal variable is below so many standard errors: the logistic curve, which is within 0.01 of it.
fn probability(errors: f64) -> f64 {
    1.0 / (1.0 + (-1.702 * errors).exp())
}
