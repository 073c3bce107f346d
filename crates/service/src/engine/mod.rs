//! The control thread's work: step, publish, carry out orders, until it is stopped.
//!
//! After each step it takes the census of tenants and publishes the step in the published state and to the step queues;
//! until the next one it carries out orders. It waits only for the clock and its channels. Deadlines are absolute, so
//! orders do not delay the period. Must not know what serves the host, or who reads the published state.

mod active_problems;
mod event_sources;
mod host;
mod orders;
mod pods;
mod publish;

pub use event_sources::SignalRequest;
pub use host::ManagedHost;

use crate::config::{Config, ConfigError, Inputs};
use crate::daemon::Unlogged;
use crate::order::Orders;
use crate::pods::PodReceiver;
use crate::published_state::{
    ActiveProblem, DaemonMode, LastAction, Pause, Published, PublishedState, PublishedTotals,
};
use crate::step_queue::StepQueue;
use crate::twin::{ShowTwin, Twin};
use active_problems::ActiveProblems;
pub(crate) use active_problems::ProblemChanges;
use crossbeam_channel::{Receiver, Sender};
use event_sources::{EventSources, SourceEvent};
use pods::PodState;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use toml::Table;
use waykeeper_control::{ControlConfig, ControlError, Loop, LoopMemory, StepRecord, TakenOver};
use waykeeper_host::{Inventory, Snapshot, WorkloadCounter};
use waykeeper_kernel::system::{SharedSystem, System};
use waykeeper_policy::Policy;

/// Returns a lasting problem of a part outside the engine, for example the recorder.
pub type ProblemSource = Box<dyn Fn() -> Option<ActiveProblem> + Send>;

/// Events that the engine reports to its starter. The channel closes when the engine ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifecycleEvent {
    /// The policy has started, its first knobs are set, and the published state shows them.
    Started,
    /// A reload of the configuration has begun.
    Loading,
    /// The reload is done, successfully or not.
    Loaded,
}

/// The engine's inputs and outputs.
pub struct Setup {
    /// Its wall clock dates the steps, its files are read at a reload.
    pub system: SharedSystem,
    /// The configuration in force.
    pub config: Config,
    /// The sources for a reload.
    pub inputs: Inputs,
    /// Where every step is published.
    pub published_state: Arc<PublishedState>,
    /// Receivers of every step.
    pub step_queues: Vec<StepQueue>,
    /// The queue of orders.
    pub orders: Orders,
    /// Requests from signals.
    pub signal_requests: Receiver<SignalRequest>,
    /// The tenants of pods, if a plugin of the container runtime sends them.
    pub pods: Option<PodReceiver>,
    /// Answers the policy's questions; with `None` they are not answered.
    pub twin: Option<Twin>,
    /// Problems of other parts, to be shown with the engine's.
    pub problem_sources: Vec<ProblemSource>,
    /// Receives events; should be unbounded, as the engine does not wait for room.
    pub lifecycle_events: Sender<LifecycleEvent>,
    /// Number of lost log lines.
    pub unlogged: Unlogged,
}

/// Why an engine could not start or continue. The knobs are restored.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The policy does not fit this host.
    #[error(transparent)]
    Policy(#[from] ConfigError),
    /// The host is gone.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Neither counters nor masks could be read for too long.
    #[error(
        "neither counters nor masks could be read in {steps} steps in a row ({why}); check that resctrl is \
         mounted (`daemon.blind_steps` sets the limit)"
    )]
    Blind {
        /// Steps in a row.
        steps: u64,
        /// The last reason.
        why: String,
    },
}

/// Runs until it is stopped, and restores every knob, or leaves them to the next daemon where that was ordered.
///
/// # Errors
/// A policy that does not fit the host, or a host that is gone.
pub fn run<H: ManagedHost>(host: &mut H, setup: Setup) -> Result<(), EngineError> {
    let mut engine = Engine::start(host, setup)?;
    let done = engine.run_until_stopped();
    if done.is_err() || !engine.hand_over() {
        engine.end();
    }
    done
}

/// The published content before the first step, at the present time of `system`.
pub fn first(config: &Config, inventory: &Inventory, system: &dyn System) -> Published {
    let (now, clock) = (system.wall_clock(), system.now());
    Published {
        step: 0,
        at: now,
        started: now,
        at_clock: clock,
        started_clock: clock,
        mode: config.mode,
        paused: None,
        hands_over_until: None,
        policy: policy_of(config).name,
        file_policy: file_policy_of(config),
        settings: Arc::new(policy_of(config).settings),
        period_ns: config.period_ns,
        inventory: Arc::new(inventory.clone()),
        groups: Vec::new(),
        groupings: Vec::new(),
        classes: Vec::new(),
        snapshot: None,
        seen: None,
        record: StepRecord::default(),
        twin: None,
        advice: None,
        last_actions: Vec::new(),
        active_problems: Vec::new(),
        totals: PublishedTotals::default(),
    }
}

/// Why listening ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextAction {
    /// The next step is due.
    Step,
    /// The engine was stopped.
    Stop,
}

/// A policy with the settings it was built with.
struct Built {
    policy: Box<dyn Policy>,
    settings: Arc<Table>,
}

/// A running engine.
struct Engine<'a, H: ManagedHost> {
    looping: Loop<'a, H>,
    system: SharedSystem,
    config: Config,
    published_state: Arc<PublishedState>,
    step_queues: Vec<StepQueue>,
    problem_sources: Vec<ProblemSource>,
    show_twin: Option<ShowTwin>,
    lifecycle_events: Sender<LifecycleEvent>,
    unlogged: Unlogged,
    event_sources: EventSources,
    pods: PodState,
    paused: Option<Pause>,
    /// Until when a stop leaves the knobs to the next daemon, on the monotonic clock.
    hands_over_until: Option<Duration>,
    /// Settings of the current policy.
    settings: Arc<Table>,
    /// The policy that starts when the pause ends.
    pending: Option<Built>,
    active_problems: ActiveProblems,
    last_actions: Vec<LastAction>,
    log: crate::log::DaemonLog,
    totals: PublishedTotals,
    /// When the daemon started, on the wall clock and on the monotonic clock.
    started: (SystemTime, Duration),
    step: u64,
    /// Whether the loop has a record that was not published yet.
    unpublished: bool,
    inventory: Arc<Inventory>,
    before: Option<Snapshot>,
    /// Consecutive steps in which nothing could be read.
    blind: u64,
}

/// The name of the file's policy.
fn file_policy_of(config: &Config) -> Option<String> {
    config.file_policy.loaded.as_ref().map(|loaded| loaded.described.name.clone())
}

/// The policy that a configuration selects. In mode `observe` it is `none`, unless the policy can advise.
fn policy_of(config: &Config) -> crate::config::PolicyChoice {
    let crate::config::PolicyChoice { name, settings } = &config.policy;
    // A policy from a file cannot advise. A mistake in settings is reported where the policy is built.
    let is_file = config.file_policy.named(name).is_some();
    let advises =
        || !is_file && waykeeper_policy::build(name, settings).map_or(true, |own| own.advisor().is_some());
    match config.mode {
        DaemonMode::Observe if !advises() => {
            crate::config::PolicyChoice { name: "none".to_owned(), settings: Table::new() }
        }
        DaemonMode::Observe | DaemonMode::Manage | DaemonMode::DryRun => config.policy.clone(),
    }
}

/// What the daemon before has learnt; `None` if that was another version's, which this one cannot read.
fn read(memory: serde_json::Value) -> Option<LoopMemory> {
    let read = serde_json::from_value(memory);
    read.inspect_err(|why| tracing::info!("what the daemon before has learnt is not used: {why}")).ok()
}

impl<'a, H: ManagedHost> Engine<'a, H> {
    fn start(host: &'a mut H, setup: Setup) -> Result<Engine<'a, H>, EngineError> {
        let Setup {
            system,
            config,
            inputs,
            published_state,
            step_queues,
            orders,
            signal_requests,
            pods,
            twin,
            problem_sources,
            lifecycle_events,
            unlogged,
        } = setup;
        let known_pods = PodState::at_start(host, pods.as_ref(), &config);
        host.refresh();
        let choice = policy_of(&config);
        let policy = orders::build(host, &config, &choice.name, &choice.settings)
            .map_err(|error| config.policy_refused(&error))?;
        let control = ControlConfig {
            take_back: config.take_back(),
            // In a dry run no knob is set, so none can have an effect.
            verify: config.mode == DaemonMode::Manage,
            look_back: config.worth.allowed(),
            ..ControlConfig::every(config.period_ns)
        };
        let inventory = Arc::new(host.inventory().clone());
        let taken_over = TakenOver {
            originals: host.originals_taken_over(),
            memory: host.memory_taken_over().and_then(|(memory, ago)| Some((read(memory)?, ago))),
        };
        let mut looping = Loop::take_over(host, policy, control, taken_over)?;
        let show_twin = twin.map(|twin| {
            looping.set_predictor(twin.predictor);
            twin.show
        });
        let first = published_state.read();
        let started = (first.started, first.started_clock);
        let mut engine = Engine {
            looping,
            published_state,
            step_queues,
            problem_sources,
            show_twin,
            lifecycle_events,
            unlogged,
            event_sources: EventSources::new(system.clone(), orders, signal_requests, inputs, pods),
            pods: known_pods,
            system,
            paused: None,
            hands_over_until: None,
            settings: Arc::new(choice.settings),
            pending: None,
            active_problems: ActiveProblems::default(),
            last_actions: Vec::new(),
            log: crate::log::DaemonLog::default(),
            totals: PublishedTotals::default(),
            started,
            step: 0,
            unpublished: true,
            inventory,
            before: None,
            blind: 0,
            config,
        };
        engine.answer_pods();
        engine.publish();
        engine.report(LifecycleEvent::Started);
        Ok(engine)
    }

    /// The receiver may be gone.
    fn report(&self, event: LifecycleEvent) {
        let _ = self.lifecycle_events.try_send(event);
    }

    /// Steps and carries out orders until the engine is stopped.
    fn run_until_stopped(&mut self) -> Result<(), EngineError> {
        loop {
            if self.execute_until_due() == NextAction::Stop {
                return Ok(());
            }
            if self.paused.is_none() {
                self.looping.step()?;
            } else {
                self.looping.watch()?;
            }
            self.step += 1;
            self.looping.host().refresh();
            self.answer_pods();
            self.publish();
            self.check_readable()?;
        }
    }

    /// Carries out orders until the next step is due. A flood of orders cannot delay the step.
    fn execute_until_due(&mut self) -> NextAction {
        // At least one is taken before each step, however short the period is.
        loop {
            let due_ns = self.looping.due_ns();
            let time_left = self.looping.host().time_left(due_ns);
            match self.event_sources.wait(time_left) {
                Some(SourceEvent::SignalRequest(SignalRequest::Stop)) => return NextAction::Stop,
                Some(event) => self.carry_out(event),
                None => {}
            }
            if self.looping.host().time_left(due_ns).is_zero() {
                return NextAction::Step;
            }
        }
    }

    /// Leaves every knob to the next daemon if an order is in force that asks for it. False if they are to be restored.
    fn hand_over(&mut self) -> bool {
        let Some(until) = self.hands_over_until else { return false };
        let left = until.saturating_sub(self.system.now());
        if left.is_zero() {
            tracing::info!("the order to hand over has expired, so the knobs are restored");
            return false;
        }
        self.looping.leave();
        // Numbers that JSON does not have would be a fault of a policy; the knobs are handed over all the same.
        let memory = serde_json::to_value(self.looping.memory()).ok();
        if let Err(why) = self.looping.host().hand_over(until, memory) {
            tracing::warn!(
                "the knobs are restored, because they could not be handed over: {}",
                why.join("; ")
            );
            return false;
        }
        tracing::info!(
            "the knobs stay in force for the next daemon, which has {} s to start",
            left.as_secs()
        );
        self.step += 1;
        self.publish();
        true
    }

    /// Restores every knob and publishes that.
    fn end(&mut self) {
        self.looping.restore();
        self.step += 1;
        self.publish();
    }

    /// Ends the engine when neither counters nor masks could be read for too long: the open files of a host that is
    /// gone stay unreadable.
    fn check_readable(&mut self) -> Result<(), EngineError> {
        let record = self.looping.record();
        let counts = |seen: &waykeeper_host::Interval| {
            seen.groups.is_empty()
                || seen.groups.values().any(|group| group[WorkloadCounter::Cycles].value().is_some())
        };
        // In other modes tenants that share a group have no mask of their own, and tenants without cores have no
        // cycles.
        let has_masks = record.knobs.masks().next().is_some() || self.config.mode != DaemonMode::Manage;
        let sees = self.looping.seen().is_some_and(|seen| has_masks || counts(seen));
        if sees {
            self.blind = 0;
            return Ok(());
        }
        self.blind += 1;
        if self.blind < self.config.blind_steps {
            return Ok(());
        }
        let why = record.problems.first().map_or("no mask reads back".to_owned(), ToString::to_string);
        Err(EngineError::Blind { steps: self.blind, why })
    }

    /// All problems that last.
    fn lasting_problems(&mut self) -> Vec<ActiveProblem> {
        let mut all = self.looping.host().active_problems();
        all.extend(self.pod_problems());
        all.extend(self.problem_sources.iter().filter_map(|own| own()));
        let policy = self.config.file_policy.loaded.as_ref().and_then(|loaded| loaded.trouble.get());
        all.extend(policy.map(|text| ActiveProblem::new("policy", text)));
        if self.blind > 0 {
            all.push(ActiveProblem::new("blind", "neither counters nor masks can be read"));
        }
        all
    }
}
