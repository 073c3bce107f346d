//! The control thread's work: step, show, listen, until somebody ends it.
//!
//! Between two steps it looks who is there, puts what it saw on the board, hands it to the feeds and carries out orders; it
//! waits for nobody but the clock. Deadlines are absolute: what an order costs is not added to the period. Must not know
//! who serves the host, nor who listens to the board.

mod ears;
mod host;
mod standing;
mod telling;
mod turns;

pub use ears::Nudge;
pub use host::ManagedHost;

use crate::board::{Board, Mode, Pause, Published, Standing, Totals};
use crate::config::{Config, ConfigError, Inputs};
use crate::daemon::Unlogged;
use crate::feed::Feed;
use crate::order::Orders;
use crossbeam_channel::{Receiver, Sender};
use ears::{Ears, Heard};
pub(crate) use standing::News;
use standing::Standings;
use std::sync::Arc;
use std::time::SystemTime;
use toml::Table;
use waykeeper_control::{ControlConfig, ControlError, Loop, Record};
use waykeeper_host::{Inventory, Snapshot};
use waykeeper_policy::Policy;

/// Somebody beside the engine who may have trouble that lasts.
pub type Watched = Box<dyn Fn() -> Option<Standing> + Send>;

/// What whoever started the engine may want to pass on. The end is told by the channel's: it is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The policy has started, its first knobs stand, and the board shows it.
    Stands,
    /// The configuration is being read again.
    Loading,
    /// That is done, well or not.
    Loaded,
}

/// What an engine is started with.
pub struct Setup {
    /// The configuration in force.
    pub config: Config,
    /// Where it is read again.
    pub inputs: Inputs,
    /// Where every step is shown.
    pub board: Arc<Board>,
    /// Where every step goes.
    pub feeds: Vec<Feed>,
    /// Where orders come from.
    pub orders: Orders,
    /// Where signals come from.
    pub nudges: Receiver<Nudge>,
    /// Whose trouble is shown with the rest.
    pub watched: Vec<Watched>,
    /// Where moments are told; should have no bound, as the engine does not wait for room.
    pub moments: Sender<Moment>,
    /// How many lines of the log were lost.
    pub unlogged: Unlogged,
}

/// Why an engine could not start or go on. The knobs are as they were found.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The policy does not fit this host.
    #[error(transparent)]
    Policy(#[from] ConfigError),
    /// The host is gone.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Nothing could be read for too long.
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

/// Runs until somebody ends it, and puts every knob back.
///
/// # Errors
/// A policy that does not fit the host, or a host that is gone.
pub fn run<H: ManagedHost>(host: &mut H, setup: Setup) -> Result<(), EngineError> {
    let mut engine = Engine::start(host, setup)?;
    let done = engine.go_on();
    engine.end();
    done
}

/// What a board shows before the first step.
pub fn first(config: &Config, inventory: &Inventory) -> Published {
    let now = SystemTime::now();
    Published {
        step: 0,
        at: now,
        started: now,
        mode: config.mode,
        paused: None,
        policy: policy_of(config).name,
        settings: Arc::new(policy_of(config).settings),
        period_ns: config.period_ns,
        inventory: Arc::new(inventory.clone()),
        groups: Vec::new(),
        groupings: Vec::new(),
        classes: Vec::new(),
        snapshot: None,
        seen: None,
        record: Record::default(),
        standing: Vec::new(),
        totals: Totals::default(),
    }
}

/// What comes after listening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heeded {
    /// The next step is due.
    Step,
    /// Somebody ended it.
    Stop,
}

/// A policy that is built, with the words it was asked for in.
struct Built {
    policy: Box<dyn Policy>,
    settings: Arc<Table>,
}

/// An engine at work.
struct Engine<'a, H: ManagedHost> {
    looping: Loop<'a, H>,
    config: Config,
    board: Arc<Board>,
    feeds: Vec<Feed>,
    watched: Vec<Watched>,
    moments: Sender<Moment>,
    unlogged: Unlogged,
    ears: Ears,
    paused: Option<Pause>,
    /// Settings of the policy in charge.
    settings: Arc<Table>,
    /// Who takes over when the pause ends.
    pending: Option<Built>,
    standings: Standings,
    log: crate::log::Log,
    totals: Totals,
    started: SystemTime,
    step: u64,
    /// Whether the loop's record tells of something that was not shown yet.
    unshown: bool,
    inventory: Arc<Inventory>,
    before: Option<Snapshot>,
    /// Steps in a row in which nothing could be read.
    blind: u64,
}

/// The policy that a configuration puts in charge: none where none is asked.
fn policy_of(config: &Config) -> crate::config::PolicyChoice {
    match config.mode {
        Mode::Observe => crate::config::PolicyChoice { name: "none".to_owned(), settings: Table::new() },
        Mode::Manage | Mode::DryRun => config.policy.clone(),
    }
}

impl<'a, H: ManagedHost> Engine<'a, H> {
    fn start(host: &'a mut H, setup: Setup) -> Result<Engine<'a, H>, EngineError> {
        let Setup { config, inputs, board, feeds, orders, nudges, watched, moments, unlogged } = setup;
        host.refresh();
        let choice = policy_of(&config);
        let policy = turns::build(host, &config, &choice.name, &choice.settings)
            .map_err(|error| config.policy_refused(&error))?;
        let control = ControlConfig {
            take_back: config.take_back(),
            // In a dry run nothing acts, and that is no wonder.
            verify: config.mode == Mode::Manage,
            ..ControlConfig::every(config.period_ns)
        };
        let inventory = Arc::new(host.inventory().clone());
        let looping = Loop::start(host, policy, control)?;
        let started = board.read().started;
        let mut engine = Engine {
            looping,
            board,
            feeds,
            watched,
            moments,
            unlogged,
            ears: Ears::new(orders, nudges, inputs),
            paused: None,
            settings: Arc::new(choice.settings),
            pending: None,
            standings: Standings::default(),
            log: crate::log::Log::default(),
            totals: Totals::default(),
            started,
            step: 0,
            unshown: true,
            inventory,
            before: None,
            blind: 0,
            config,
        };
        engine.show();
        engine.tell(Moment::Stands);
        Ok(engine)
    }

    /// Nobody may be there to hear it.
    fn tell(&self, moment: Moment) {
        let _ = self.moments.try_send(moment);
    }

    /// Steps and listens until somebody ends it.
    fn go_on(&mut self) -> Result<(), EngineError> {
        loop {
            if self.listen() == Heeded::Stop {
                return Ok(());
            }
            if self.paused.is_none() && self.config.mode != Mode::Observe {
                self.looping.step()?;
            } else {
                self.looping.watch()?;
            }
            self.step += 1;
            self.looping.host().refresh();
            self.show();
            self.look_for_blindness()?;
        }
    }

    /// Carries out what is asked until the next step is due. A flood of orders cannot keep the step off: what is due is due.
    fn listen(&mut self) -> Heeded {
        // At least one is heard before each step, however short the period is.
        loop {
            let due_ns = self.looping.due_ns();
            let spare = self.looping.host().spare(due_ns);
            match self.ears.listen(spare) {
                Some(Heard::Nudge(Nudge::Stop)) => return Heeded::Stop,
                Some(heard) => self.carry_out(heard),
                None => {}
            }
            if self.looping.host().spare(due_ns).is_zero() {
                return Heeded::Step;
            }
        }
    }

    /// Every knob goes back, and the board tells of it.
    fn end(&mut self) {
        self.looping.restore();
        self.step += 1;
        self.show();
    }

    /// Neither counters nor masks: a host that is not there any more will not come back under our open files.
    fn look_for_blindness(&mut self) -> Result<(), EngineError> {
        let record = self.looping.record();
        let counts = |seen: &waykeeper_host::Interval| {
            seen.groups.is_empty() || seen.groups.values().any(|group| group.cycles.value().is_some())
        };
        // Who only looks has no mask of a tenant that shares its group with others, and unpinned ones have no cycles.
        let has_masks = !record.knobs.masks.is_empty() || self.config.mode != Mode::Manage;
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

    /// What lasts and is not as it should be.
    fn trouble(&mut self) -> Vec<Standing> {
        let mut all = self.looping.host().standing();
        all.extend(self.watched.iter().filter_map(|own| own()));
        if self.blind > 0 {
            all.push(Standing::new("blind", "neither counters nor masks can be read"));
        }
        all
    }
}
