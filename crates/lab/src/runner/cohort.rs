//! Simulations that are equal until policies set different knobs: until then they share one server.
//!
//! The simulations of one server and seed form a cohort. All its control loops step together: in each interval the
//! first advances the server and the others read its recorded answers (`shared_host`). When policies set different
//! knobs the group splits, and each part continues with its own copy of the server, on any thread. So the same history
//! is simulated once, and no simulation takes longer than alone. Must not know how results are combined.

use super::RunError;
use super::inline_twin::InlineTwin;
use super::job::Done;
use super::job::Job;
use super::run_log::RunLog;
use super::shared_host::{Passed, SharedHost, SharedStep};
use rayon::Scope;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use waykeeper_control::{Loop, Observer};
use waykeeper_host::Host;
use waykeeper_machine::FaultyServer;
use waykeeper_silicon::Sampling;

/// Most simulations of a cohort. Each has at most one server, and a step of a group keeps two more; lines of shared
/// working sets are in memory once. A thread starts a cohort only if none of its own is waiting, so this limits its
/// memory.
const MOST: usize = 16;
/// The same where more than one cache set in [`SPARSE`] is simulated, which makes servers large.
const MOST_LARGE: usize = 4;
const SPARSE: u32 = 8;

/// Most simulations that share a server.
pub(super) fn most(sampling: Sampling) -> usize {
    if sampling.factor() < SPARSE { MOST_LARGE } else { MOST }
}

/// A job with its index in the plan and the host of its loop.
pub(super) struct CohortMember<'s> {
    pub index: usize,
    pub job: &'s Job<'s>,
    pub host: &'s mut SharedHost,
}

/// Callbacks for progress and results.
pub(super) struct Callbacks<'a> {
    /// Called with a job's index in the plan and the time it advanced, in ns of simulated time.
    pub passed: &'a (dyn Fn(usize, Passed) + Sync),
    /// Called with each job's result and its index in the plan.
    pub done: &'a (dyn Fn(usize, Result<Done, RunError>) + Sync),
}

/// A simulation in progress.
struct Run<'s> {
    index: usize,
    job: &'s Job<'s>,
    looping: Loop<'s, SharedHost>,
    run_log: RunLog<'s>,
}

/// Simulations that were equal so far and share a server.
struct Group<'s> {
    server: FaultyServer,
    runs: Vec<Run<'s>>,
}

/// Starts the simulations of a cohort, which differ only in their policies, and runs them to the end.
pub(super) fn run<'s>(scope: &Scope<'s>, cohort: Vec<CohortMember<'s>>, callbacks: &'s Callbacks<'s>) {
    // They have begun: laying out memory and the first interval may take long.
    cohort.iter().for_each(|member| (callbacks.passed)(member.index, Passed::default()));
    let (mut ready, mut server) = (Vec::new(), None);
    for CohortMember { index, job, host } in cohort {
        // Each job reports its own errors, as it would alone.
        let prepared = job.policy().and_then(|policy| {
            let server = match &mut server {
                Some(server) => server,
                none => none.insert(job.server()?),
            };
            job.check(policy.as_ref(), server.inventory())?;
            Ok((policy, job.run_log(server.inventory())))
        });
        match prepared {
            Ok((policy, run_log)) => ready.push((index, job, host, policy, run_log)),
            Err(why) => (callbacks.done)(index, Err(why)),
        }
    }
    let (Some(mut server), Some((_, first, ..))) = (server, ready.first()) else { return };
    server.begin_stretch_at(first.measure_from_ns());
    let mut step = SharedStep::new(FaultyServer::new(server), ready.len());
    let mut split = SplitGroups::default();
    for (index, job, host, policy, mut run_log) in ready {
        host.enter(step);
        let mut looping = Loop::start(host, policy, job.config()).expect("the period was checked");
        looping.set_predictor(Box::new(InlineTwin::default()));
        let turn = Turn::after(run_log.observe(looping.record(), None));
        step = split.add(Run { index, job, looping, run_log }, turn, callbacks);
    }
    if let Some(group) = split.part(step, scope, callbacks) {
        group.run(scope, callbacks);
    }
}

/// Result of one turn of a loop.
enum Turn {
    Continues,
    /// The time of the run is over.
    Finished,
    Failed(RunError),
}

impl Turn {
    /// The turn after an observer's answer; only an interrupt ends a run early.
    fn after(answer: ControlFlow<()>) -> Turn {
        if answer.is_continue() { Turn::Continues } else { Turn::Failed(RunError::Interrupted) }
    }
}

impl Run<'_> {
    fn step(&mut self) -> Turn {
        match self.looping.step() {
            Err(why) => Turn::Failed(self.job.stopped(why)),
            Ok(true) => {
                let answer = self.run_log.observe(self.looping.record(), self.looping.seen());
                self.run_log.add_latencies(self.looping.host().server().latency_totals());
                Turn::after(answer)
            }
            Ok(false) => {
                // A dropped loop restores the knobs again; here the loop still has a server for it.
                self.looping.restore();
                self.looping.restore();
                Turn::Finished
            }
        }
    }
}

impl<'s> Group<'s> {
    /// Steps the loops one after another, until all have ended or continue as tasks of their own.
    fn run(mut self, scope: &Scope<'s>, callbacks: &'s Callbacks<'s>) {
        loop {
            let mut step = SharedStep::new(self.server, self.runs.len());
            let mut split = SplitGroups::default();
            for mut run in self.runs {
                run.looping.host().enter(step);
                let turn = run.step();
                step = split.add(run, turn, callbacks);
            }
            match split.part(step, scope, callbacks) {
                Some(group) => self = group,
                None => return,
            }
        }
    }
}

/// Loops of a group that continue, by the moment of the server's history that they have reached.
#[derive(Default)]
struct SplitGroups<'s> {
    runs: BTreeMap<usize, Vec<Run<'s>>>,
}

impl<'s> SplitGroups<'s> {
    /// Ends a loop's turn and returns the step to the next loop.
    fn add(&mut self, mut run: Run<'s>, turn: Turn, callbacks: &Callbacks<'_>) -> SharedStep {
        let host = run.looping.host();
        let Passed { ns, shared_ns, simulated_ns } = host.passed();
        let simulated = |ns| (ns as f64 / run.job.scenario.time_factor) as u64;
        let passed = Passed { ns: simulated(ns), shared_ns: simulated(shared_ns), simulated_ns };
        (callbacks.passed)(run.index, passed);
        let result = match turn {
            Turn::Continues => {
                let (step, moment) = host.leave(true);
                self.runs.entry(moment).or_default().push(run);
                return step;
            }
            Turn::Finished => Ok(run.job.result(run.run_log, host.server())),
            Turn::Failed(why) => Err(why),
        };
        (callbacks.done)(run.index, result);
        host.leave(false).0
    }

    /// Loops at the same moment continue together: the first of these groups is returned, the others become tasks.
    fn part(
        self,
        mut step: SharedStep,
        scope: &Scope<'s>,
        callbacks: &'s Callbacks<'s>,
    ) -> Option<Group<'s>> {
        let groups = self.runs.into_iter().map(|(moment, runs)| Group { server: step.take(moment), runs });
        let mut groups = groups.collect::<Vec<_>>().into_iter();
        let first = groups.next();
        for group in groups {
            scope.spawn(move |scope| group.run(scope, callbacks));
        }
        first
    }
}
