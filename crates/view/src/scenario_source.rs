//! A virtual server as a source: it runs in a thread of its own under the control loop, at a chosen speed, and takes turns
//! between two steps. While it has no viewer, it is paused and takes no time of a core.
//!
//! Its clock starts at 1970-01-01T00:00:00Z, so that the same scenario and seed give the same stream. Must not know how a
//! scenario is found, nor what is drawn.

use crate::by_hand;
use crate::live::LiveSteps;
use crate::mailbox::Mailbox;
use crate::source::{Abilities, Source, SourceEvent, SourceInfo, SourceKind, Turn, TurnError};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use toml::Table;
use waykeeper_control::{ControlConfig, ControlError, Loop};
use waykeeper_host::{DeviceKind, Host, Inventory, KnobOutcome};
use waykeeper_machine::{RunOptions, Scenario, ScenarioError, VirtualServer};
use waykeeper_policy::{Policy, PolicyError, registry};
use waykeeper_service::twin::{Twin, TwinConfig};
use waykeeper_service::{DaemonMode, Pause, Published, PublishedTotals};
use waykeeper_silicon::Sampling;

/// Share of a core that the model takes which answers a policy's questions: as the daemon's (`twin.share`).
const TWIN_SHARE: f64 = 0.2;
/// The longest time in which a turn is carried out: a step of a slow machine takes seconds. Assumption.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// How a virtual server is run.
#[derive(Clone, Debug)]
pub struct LiveSetup {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// The policy at the start. Its settings are those of the scenario.
    pub policy: String,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The part of the sets that is simulated.
    pub sampling: Sampling,
    /// Seconds of the server's clock per second of wall-clock time, from [`Turn::SPEED_LEAST`] to [`Turn::SPEED_MOST`].
    pub speed: f64,
    /// Nice value of its thread: programs with a lower one come first.
    pub nice: i32,
}

impl LiveSetup {
    /// A scenario under a policy, with seed 1, at the usual sampling and at the speed of the server's clock.
    pub fn new(scenario: Arc<Scenario>, policy: &str) -> LiveSetup {
        LiveSetup {
            scenario,
            policy: policy.to_owned(),
            seed: 1,
            sampling: Sampling::DEFAULT,
            speed: 1.0,
            nice: 0,
        }
    }
}

/// A running virtual server. It ends when this is dropped.
#[derive(Debug)]
pub struct LiveScenario {
    mailbox: Mailbox,
    asked: Sender<Asked>,
    info: Arc<Mutex<SourceInfo>>,
    stop: Arc<AtomicBool>,
}

/// What the thread is asked.
enum Asked {
    /// A turn, and the channel for its answer.
    Turn(Turn, Sender<Result<String, TurnError>>),
    /// Whether it has a viewer.
    Watch(bool),
}

/// Why a virtual server does not start.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The scenario does not fit simulated memory.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// There is no such policy, or it does not fit the server.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The speed is out of range.
    #[error(transparent)]
    Speed(#[from] TurnError),
    /// The scenario's interval is 0.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// No thread can be started.
    #[error("starting a thread: {0}")]
    Thread(#[from] io::Error),
}

impl LiveScenario {
    /// Starts a virtual server.
    ///
    /// # Errors
    /// If scenario, policy or speed do not fit.
    pub fn start(setup: LiveSetup) -> Result<LiveScenario, LiveError> {
        LiveScenario::start_holding(setup, ())
    }

    /// Starts a virtual server that holds something, such as a place among servers. It is dropped when the server has ended
    /// and its memory is given back, which is some time after the source is dropped.
    ///
    /// # Errors
    /// As [`LiveScenario::start`].
    pub fn start_holding(setup: LiveSetup, held: impl Send + 'static) -> Result<LiveScenario, LiveError> {
        let speed = Turn::check_speed(setup.speed)?;
        let scenario = setup.scenario.clone();
        let run = RunOptions { seed: setup.seed, sample_seed: setup.seed, sampling: setup.sampling };
        let mut server = VirtualServer::new(scenario.clone(), run)?;
        let nice = setup.nice;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        server.observe(Arc::new(move |_| {
            if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
        let settings = own_settings(&scenario, &setup.policy);
        let policy = built(&setup.policy, &settings, &scenario, server.inventory())?;
        let period_ns = (scenario.interval_s * 1e9).round() as u64;
        if period_ns == 0 {
            return Err(ControlError::NoPeriod.into());
        }
        let devices = &server.inventory().devices;
        let loads = devices.iter().map(|device| (device.name.clone(), Turn::load_most(device.kind)));
        let info = SourceInfo {
            kind: SourceKind::Scenario,
            name: scenario.name.clone(),
            live: true,
            abilities: Abilities {
                policies: registry().iter().map(|entry| entry.name.to_owned()).collect(),
                pause: true,
                knobs: true,
                loads: loads.collect(),
                speed: true,
                seek: false,
            },
            speed: Some(speed),
            stopped: false,
            length_s: None,
            place_s: None,
            loads: Vec::new(),
        };
        let twin = TwinConfig { share: TWIN_SHARE, cores: None, period_ns };
        // Without a model of its own a policy decides by measuring alone.
        let twin = Twin::start(twin)?.ok().map(|(twin, _)| twin);
        let (sender, asked) = unbounded();
        let (mailbox, info) = (Mailbox::default(), Arc::new(Mutex::new(info)));
        let thread = Stage {
            scenario,
            asked,
            mailbox: mailbox.clone(),
            info: info.clone(),
            period_ns,
            settings: Arc::new(settings),
            paused: None,
            step: 0,
            steps: LiveSteps::default(),
            inventory: Arc::new(server.inventory().clone()),
            loads: BTreeMap::new(),
        };
        std::thread::Builder::new().name("virtual-server".to_owned()).spawn(move || {
            // Without permission the priority stays as it is.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
            thread.run(&mut server, policy, twin);
            drop(server);
            return_freed_memory();
            // The thread ends a little later than its server: no thread that is named after one has given its place back.
            let _ = rustix::thread::set_name(c"ended-server");
            drop(held);
        })?;
        Ok(LiveScenario { mailbox, asked: sender, info, stop })
    }
}

impl Drop for LiveScenario {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Source for LiveScenario {
    fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
        self.mailbox.take(wait)
    }

    fn turn(&mut self, turn: Turn) -> Result<String, TurnError> {
        let lost = || TurnError::Lost("the virtual server has ended".to_owned());
        let (answer, answered) = bounded(1);
        self.asked.send(Asked::Turn(turn, answer)).map_err(|_| lost())?;
        answered.recv_timeout(TURN_TIMEOUT).map_err(|why| match why {
            RecvTimeoutError::Disconnected => lost(),
            RecvTimeoutError::Timeout => {
                TurnError::Lost(format!("the virtual server took longer than {} s", TURN_TIMEOUT.as_secs()))
            }
        })?
    }

    fn info(&self) -> SourceInfo {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn watch(&mut self, is_watched: bool) {
        // A thread that has ended takes no steps.
        let _ = self.asked.send(Asked::Watch(is_watched));
    }
}

/// Gives the memory of a server that has ended back to the system: the allocator keeps it otherwise, because it lies
/// between what others use. Eight servers of A4's mix left 84 MB of the 88 MB that they had taken.
fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and gives back only pages that have no allocation in them.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The settings that a scenario has for a policy.
fn own_settings(scenario: &Scenario, policy: &str) -> Table {
    scenario.policy_settings.get(policy).and_then(toml::Value::as_table).cloned().unwrap_or_default()
}

/// A policy that fits the server.
fn built(
    name: &str,
    settings: &Table,
    scenario: &Scenario,
    inventory: &Inventory,
) -> Result<Box<dyn Policy>, PolicyError> {
    let policy = waykeeper_policy::build(name, settings)?;
    let names: Vec<&str> = scenario.workloads.iter().map(|workload| workload.name.as_str()).collect();
    policy.check(inventory, &names)?;
    Ok(policy)
}

/// The thread's own state.
struct Stage {
    scenario: Arc<Scenario>,
    asked: Receiver<Asked>,
    mailbox: Mailbox,
    info: Arc<Mutex<SourceInfo>>,
    period_ns: u64,
    settings: Arc<Table>,
    paused: Option<Pause>,
    step: u64,
    steps: LiveSteps,
    inventory: Arc<Inventory>,
    loads: BTreeMap<String, f64>,
}

impl Stage {
    /// Steps and carries out turns until the source is dropped.
    fn run(mut self, server: &mut VirtualServer, policy: Box<dyn Policy>, twin: Option<Twin>) {
        let looping = Loop::start(server, policy, ControlConfig::every(self.period_ns));
        let Ok(mut looping) = looping else { return self.end("the control loop cannot start") };
        if let Some(twin) = twin {
            looping.set_predictor(twin.predictor);
        }
        self.publish(&mut looping);
        let mut due = Instant::now() + self.pace();
        let mut is_watched = true;
        loop {
            let is_stopped = !is_watched || self.info.lock().unwrap_or_else(PoisonError::into_inner).stopped;
            let left = due.saturating_duration_since(Instant::now());
            let asked = match is_stopped {
                true => self.asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => self.asked.recv_timeout(left),
            };
            match asked {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(Asked::Watch(looked_at)) => {
                    // Time in which it was paused is not made up for.
                    if looked_at && !is_watched {
                        due = Instant::now() + self.pace();
                    }
                    is_watched = looked_at;
                }
                Ok(Asked::Turn(turn, answer)) => {
                    let pace = self.pace();
                    let done = self.carry_out(turn, &mut looping);
                    // The source may have been dropped.
                    let _ = answer.send(done);
                    // At another speed, or after a stop, the next step is one period from now.
                    if is_stopped || pace != self.pace() {
                        due = Instant::now() + self.pace();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let stepped = if self.paused.is_none() { looping.step() } else { looping.watch() };
                    if let Err(why) = stepped {
                        return self.end(&why.to_string());
                    }
                    self.step += 1;
                    self.publish(&mut looping);
                    // A model that is too slow for the speed does not hurry afterwards.
                    due = (due + self.pace()).max(Instant::now());
                }
            }
        }
    }

    fn end(&self, why: &str) {
        self.mailbox.put(SourceEvent::Lost { why: why.to_owned() });
        self.mailbox.put(SourceEvent::End);
    }

    /// Wall-clock time between two steps.
    fn pace(&self) -> Duration {
        let speed = self.info.lock().unwrap_or_else(PoisonError::into_inner).speed.unwrap_or(1.0);
        Duration::from_secs_f64(self.period_ns as f64 * 1e-9 / speed)
    }

    fn carry_out(&mut self, turn: Turn, looping: &mut Loop<'_, VirtualServer>) -> Result<String, TurnError> {
        match turn {
            Turn::Policy { name, settings } => {
                let own = own_settings(&self.scenario, &name);
                let settings = if settings.is_empty() { own } else { settings };
                self.replace(&name, settings, looping)
            }
            Turn::Pause { release } => {
                self.paused = Some(if release { Pause::Release } else { Pause::Hold });
                if release {
                    looping.restore();
                    self.publish(looping);
                    return Ok(
                        "the policy is paused; the knobs are restored to their original values".to_owned()
                    );
                }
                self.publish_again(looping);
                Ok("the policy is paused; the knobs keep their values".to_owned())
            }
            Turn::Resume => match self.paused {
                None => Ok("the policy is not paused; nothing changed".to_owned()),
                Some(pause) => {
                    let name = looping.policy().name().to_owned();
                    if pause == Pause::Release {
                        // Its state refers to values of knobs that are no longer in force.
                        let settings = (*self.settings).clone();
                        return self.replace(&name, settings, looping).map(|text| format!("resumed: {text}"));
                    }
                    self.paused = None;
                    self.publish_again(looping);
                    Ok(format!("resumed: policy {name} decides again from the next step on"))
                }
            },
            Turn::Load { device, factor } => self.set_load(device, factor, looping),
            Turn::Speed { factor } => {
                let speed = Turn::check_speed(factor)?;
                self.info.lock().unwrap_or_else(PoisonError::into_inner).speed = Some(speed);
                Ok(format!("speed {speed}"))
            }
            Turn::Stop => {
                self.info.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
                Ok("the server's time is stopped".to_owned())
            }
            Turn::Play => {
                self.info.lock().unwrap_or_else(PoisonError::into_inner).stopped = false;
                Ok("the server's time runs".to_owned())
            }
            Turn::Seek { .. } => {
                Err(TurnError::Unsupported("a virtual server has no other places in time".to_owned()))
            }
            knob @ (Turn::Mask { .. } | Turn::DcaWays { .. } | Turn::Dca { .. }) => {
                let tenants = looping.host().workloads();
                let knobs = looping.record().knobs.clone();
                let settings = by_hand::settings(&knob, &knobs, &tenants, &self.inventory)?;
                self.replace(by_hand::POLICY, settings.unwrap_or_default(), looping)
            }
        }
    }

    fn replace(
        &mut self,
        name: &str,
        settings: Table,
        looping: &mut Loop<'_, VirtualServer>,
    ) -> Result<String, TurnError> {
        let next = built(name, &settings, &self.scenario, &self.inventory);
        let next = next.map_err(|why| TurnError::Refused(why.to_string()))?;
        let before = looping.policy().name().to_owned();
        looping.replace(next);
        self.settings = Arc::new(settings);
        self.paused = None;
        self.publish(looping);
        if name == by_hand::POLICY {
            let applied = &looping.record().applied;
            let turned = applied.values().filter(|outcome| **outcome == KnobOutcome::Applied).count();
            return Ok(format!("knobs turned by hand: {turned}; policy {name} holds all of them"));
        }
        Ok(format!("policy {name} replaces {before}"))
    }

    fn set_load(
        &mut self,
        device: String,
        factor: f64,
        looping: &mut Loop<'_, VirtualServer>,
    ) -> Result<String, TurnError> {
        let own = by_hand::device(&self.inventory, &device)?;
        let most = Turn::load_most(own.kind);
        if !(factor.is_finite() && (0.0..=most).contains(&factor)) {
            let why = match own.kind {
                DeviceKind::Network => "",
                DeviceKind::Storage => ", as its programs have no memory for more requests",
            };
            let text =
                format!("load {factor} of {device} is out of range; give a number from 0 to {most}{why}");
            return Err(TurnError::Refused(text));
        }
        if !looping.host().set_load(own.id, factor) {
            return Err(TurnError::Unsupported(format!("the load of {device} cannot be changed")));
        }
        let text = match own.kind {
            DeviceKind::Network => format!("{device} is offered {factor} times its traffic"),
            DeviceKind::Storage => {
                format!("programs of {device} keep {factor} times their requests in flight")
            }
        };
        self.loads.insert(device, factor);
        self.loads.retain(|_, factor| *factor != 1.0);
        let loads = self.loads.iter().map(|(name, factor)| (name.clone(), *factor)).collect();
        self.info.lock().unwrap_or_else(PoisonError::into_inner).loads = loads;
        Ok(text)
    }

    /// Sends the record of a step, or of a change of the policy.
    fn publish(&mut self, looping: &mut Loop<'_, VirtualServer>) {
        let published = self.published(looping);
        for event in self.steps.events(&published) {
            self.mailbox.put(event);
        }
    }

    /// The last record again, without what happened in it: only the pause has changed.
    fn publish_again(&mut self, looping: &mut Loop<'_, VirtualServer>) {
        let mut published = self.published(looping);
        published.record.events.clear();
        published.record.problems.clear();
        published.record.applied = Default::default();
        for event in self.steps.events(&published) {
            self.mailbox.put(event);
        }
    }

    fn published(&self, looping: &mut Loop<'_, VirtualServer>) -> Published {
        let record = looping.record().clone();
        let now = Duration::from_nanos(record.at_ns);
        Published {
            step: self.step,
            at: SystemTime::UNIX_EPOCH + now,
            started: SystemTime::UNIX_EPOCH,
            at_clock: now,
            started_clock: Duration::ZERO,
            mode: DaemonMode::Manage,
            paused: self.paused,
            hands_over_until: None,
            policy: looping.policy().name().to_owned(),
            file_policy: None,
            settings: self.settings.clone(),
            period_ns: self.period_ns,
            inventory: self.inventory.clone(),
            groups: looping.host().workloads(),
            groupings: Vec::new(),
            classes: Vec::new(),
            snapshot: None,
            seen: looping.seen().cloned(),
            record,
            twin: None,
            advice: None,
            last_actions: Vec::new(),
            active_problems: Vec::new(),
            totals: PublishedTotals::default(),
        }
    }
}
