//! The real daemon on the simulated machine: its processes one after another, and what must hold in the end.
//!
//! Must not know where a history comes from.

use crate::checks;
use crate::history::{History, What};
use crate::inline_twin;
use crate::picture::Picture;
use crate::scenarios;
use crate::stage::Stage;
use crate::system::Simulated;
use crate::usage::Usage;
use crate::world::{JOURNAL, PREFIX, World};
use crossbeam_channel::{Receiver, bounded, unbounded};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use toml::Table;
use waykeeper_kernel::journal::{Journal, JournalError};
use waykeeper_kernel::restore::Report;
use waykeeper_kernel::root::Root;
use waykeeper_kernel::system::SharedSystem;
use waykeeper_linux_host::{RestoreScope, adopt_orphans, restore_journal};
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::daemon::{DaemonError, run_and_restore};
use waykeeper_service::engine::{self, ManagedHost, ProblemSource, Setup};
use waykeeper_service::linux::ManagedLinuxHost;
use waykeeper_service::protocol::DaemonStatus;
use waykeeper_service::recorder::{RecorderConfig, RecordingRing};
use waykeeper_service::{Published, PublishedState, PublishedStep, orders, step_queue};

/// Where the configuration is.
const CONFIG: &str = "/etc/waykeeper/waykeeper.toml";

/// Time between the end of a process and the next start, ns.
const PAUSE_NS: u64 = 20_000_000;

/// What a history came to.
pub struct Outcome {
    /// What must not happen and did.
    pub violations: Vec<String>,
    /// How often everything happened.
    pub marks: BTreeMap<&'static str, u64>,
    /// Hash of all calls, events and outcomes, and the number of calls.
    pub trace: (u64, u64),
    /// What was in use, once an hour.
    pub usage: Vec<Usage>,
    /// Files that are open after the last process ended.
    pub left_open: usize,
}

/// How a process ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Stopped,
    Killed,
    Failed(String),
}

/// Runs a history.
pub fn run(history: &History) -> Outcome {
    let stage = Stage::new(history);
    let Stage { world, original, .. } = &stage;
    let mut last = End::Stopped;
    let mut is_handed_over = false;
    for start in 0..history.most_starts {
        last = process(world, original);
        if start > 0 {
            world.lock().mark("restart");
        }
        let mut state = world.lock();
        match &last {
            End::Stopped => state.mark("stopped"),
            End::Killed => state.mark("killed"),
            End::Failed(why) => {
                state.mark("failed");
                state.note(why, 0);
            }
        }
        is_handed_over = last == End::Stopped && state.has_hand_over();
        if is_handed_over {
            state.mark("handed-over");
        } else if last == End::Stopped {
            drop(state);
            stage.compare("after a stop");
            state = world.lock();
        }
        let now = state.now_ns;
        if now >= history.end_ms * 1_000_000 || !state.violations.is_empty() {
            break;
        }
        state.advance(now + PAUSE_NS);
    }
    let some_were_off = world.lock().calm();
    // The registers of a CPU that was off at a stop are still in the journal.
    let some_are_away = !world.lock().journaled().away().is_empty();
    let some_differ = last != End::Stopped || is_handed_over || some_were_off || some_are_away;
    if some_differ && world.lock().violations.is_empty() {
        finish(world, history, original);
        stage.compare("in the end");
    }
    let state = world.lock();
    Outcome {
        violations: state.violations.clone(),
        marks: state.marks.clone(),
        trace: state.trace(),
        usage: state.usage.clone(),
        left_open: state.open_descriptors(),
    }
}

/// The last word on a quiet machine: `waykeeper restore`, or a start and a stop.
fn finish(world: &World, history: &History, original: &Picture) {
    let failed = if history.ends_with_restore {
        world.lock().mark("restore");
        restore_failure(world)
    } else {
        world.lock().mark("start-and-stop");
        write_config(world, history.tenants);
        match process(world, original) {
            End::Stopped => None,
            end => Some(format!("{end:?}")),
        }
    };
    if let Some(why) = failed {
        world.lock().violation(format!("on a quiet machine: {why}"));
    }
}

/// The configuration with a list of tenants.
pub fn write_config(world: &World, list: u64) {
    let mut state = world.lock();
    let history = &state.history;
    let text = scenarios::config(history, list);
    let found = state.disk.find(CONFIG);
    let number = found.or_else(|_| state.disk.make_file(CONFIG, 0o644));
    let written = number.and_then(|number| {
        state.disk.set_len(number, 0)?;
        state.disk.write(number, 0, text.as_bytes())?;
        state.disk.sync(number)?;
        let folder = state.disk.find("/etc/waykeeper")?;
        state.disk.sync(folder)
    });
    written.unwrap_or_else(|why| panic!("the disk: {why}"));
}

/// A process of the daemon, from its start to its end.
pub fn process(world: &World, original: &Picture) -> End {
    let process = world.lock().start_process();
    let simulated = Simulated::new(world, process);
    let system: SharedSystem = Arc::new(simulated.clone());
    let inputs = Inputs { file: Some(CONFIG.into()), ..Inputs::default() };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let config = Config::load_on(system.as_ref(), &inputs)?;
        let host = ManagedLinuxHost::open_on(system.clone(), &config)?;
        // A start that restores removes the mark.
        if world.lock().has_hand_over() {
            world.lock().mark("taken-over");
        }
        run_and_restore(host, |host| {
            let setup = setup(world, &simulated, original, config, inputs, host);
            Ok(engine::run(host, setup)?)
        })
    }));
    // The act holds the system, which holds the act.
    simulated.after_wait(Box::new(|| {}));
    let mut state = world.lock();
    let killed = !state.is_process(process);
    state.end_process();
    match done {
        _ if killed => End::Killed,
        Ok(Ok(())) => {
            if !state.has_hand_over() && !state.journaled().away().is_empty() {
                state.violation("the daemon ended as if every knob were restored".to_owned());
            }
            End::Stopped
        }
        // The registers of a CPU that is off are said to be left.
        Ok(Err(DaemonError::Left(left))) if left.iter().all(|line| line.contains("restored later: ")) => {
            End::Stopped
        }
        Ok(Err(why @ DaemonError::Panic(_))) => {
            state.violation(why.to_string());
            End::Failed(why.to_string())
        }
        Ok(Err(why)) => End::Failed(why.to_string()),
        Err(_) => {
            state.violation("the daemon panicked".to_owned());
            End::Failed("a panic".to_owned())
        }
    }
}

fn setup<H: ManagedHost>(
    world: &World,
    simulated: &Simulated,
    original: &Picture,
    config: Config,
    inputs: Inputs,
    host: &mut H,
) -> Setup {
    let system: SharedSystem = Arc::new(simulated.clone());
    let first = engine::first(&config, host.inventory(), system.as_ref());
    let published_state = Arc::new(PublishedState::new(first));
    let (sender, taken) = orders();
    let (signals, signal_requests) = bounded(4);
    world.lock().mailbox.open(sender, signals);
    let twin_delay_ms = world.lock().history.twin_delay_ms;
    let (recorder, step_queues) = match &config.recorder.dir {
        None => (None, Vec::new()),
        Some(directory) => {
            let (queue, steps) = step_queue(64);
            let settings = RecorderConfig {
                most_bytes: 1 << 20,
                flush_steps: 3,
                ..RecorderConfig::in_directory(directory)
            };
            let ring = Arc::new(Mutex::new(RecordingRing::new(system.clone(), settings)));
            (Some((ring, steps)), vec![queue])
        }
    };
    let problem = |ring: Arc<Mutex<RecordingRing>>| -> ProblemSource {
        Box::new(move || ring.lock().unwrap_or_else(PoisonError::into_inner).active_problem())
    };
    let own = world.clone();
    // The engine asks at every publication.
    let note: ProblemSource = Box::new(move || {
        own.lock().mailbox.note_published();
        None
    });
    let recorders = recorder.iter().map(|(ring, _)| problem(ring.clone()));
    let problem_sources = recorders.chain([note]).collect();
    let mut after_step = AfterStep {
        world: world.clone(),
        original: original.clone(),
        published_state: published_state.clone(),
        recorder,
        last: None,
    };
    simulated.after_wait(Box::new(move || after_step.act()));
    Setup {
        system,
        config,
        inputs,
        published_state,
        step_queues,
        orders: taken,
        signal_requests,
        pods: None,
        twin: twin_delay_ms.map(|delay_ms| inline_twin::twin(world, delay_ms)),
        problem_sources,
        lifecycle_events: unbounded().0,
        unlogged: Box::new(|| 0),
    }
}

/// What follows each step: the recorder writes, the checks run, the next message is sent.
struct AfterStep {
    world: World,
    original: Picture,
    published_state: Arc<PublishedState>,
    recorder: Option<(Arc<Mutex<RecordingRing>>, Receiver<PublishedStep>)>,
    last: Option<Arc<Published>>,
}

impl AfterStep {
    fn act(&mut self) {
        let published = self.published_state.read();
        if self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &published)) {
            return;
        }
        let before = self.last.replace(published.clone());
        if let Some((ring, steps)) = &self.recorder {
            let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            steps.try_iter().for_each(|step| ring.record(&step));
            self.world.lock().mark("recorded");
        }
        let mut state = self.world.lock();
        state.mark("step");
        if before.is_none() {
            state.note_first_step();
        }
        state.note_usage();
        check_published(&published, before.as_deref()).into_iter().for_each(|wrong| state.violation(wrong));
        if state.history.has_no_other_program() {
            let problems = published.active_problems.iter().map(|own| own.text.clone());
            let problems = problems.chain(published.record.problems.iter().map(ToString::to_string));
            let blamed = problems.filter(|text| text.contains("another program"));
            blamed.for_each(|text| state.violation(format!("there is no other program: {text}")));
        }
        checks::masks(&mut state);
        state.check_foreign(&self.original);
        if state.now_ns >= state.history.end_ms * 1_000_000 && !state.mailbox.is_stopping() {
            state.mailbox.put(What::Stop);
        }
        let Some(message) = state.mailbox.next() else { return };
        let settings = match &message {
            What::SetPolicy { name } if name == "fixed" => {
                "masks = { a = \"0x600\" }".parse::<Table>().unwrap_or_default()
            }
            _ => Table::new(),
        };
        if let What::Declare { variant, .. } = &message {
            let variant = *variant;
            drop(state);
            write_config(&self.world, variant);
            state = self.world.lock();
        }
        if message == What::Stop {
            state.note_stop();
        }
        state.mailbox.send(&message, settings);
    }
}

/// What is wrong with a published state.
fn check_published(published: &Published, before: Option<&Published>) -> Vec<String> {
    let mut wrong = Vec::new();
    let names: BTreeSet<&str> = published.groups.iter().map(|group| group.name.as_str()).collect();
    if names.len() != published.groups.len() {
        wrong.push(format!("two tenants have one name: {names:?}"));
    }
    // The record is the step's; a tenant that ended since is in it, and no longer in the list.
    let known = |id| published.groups.iter().any(|group| group.id == id);
    let was = |id| before.is_some_and(|before| before.groups.iter().any(|group| group.id == id));
    for (id, _) in published.record.knobs.masks() {
        if !known(id) && !was(id) {
            wrong.push(format!("{id} has a mask and is no tenant"));
        }
    }
    let json = serde_json::to_string(published).unwrap_or_else(|why| why.to_string());
    match serde_json::from_str::<Published>(&json) {
        Ok(back) if back == *published => {}
        Ok(_) => wrong.push(format!("the published state reads back differently: {json}")),
        Err(why) => wrong.push(format!("the published state does not read back: {why}")),
    }
    let status = DaemonStatus::of(published, Vec::new(), published.at_clock);
    let json = serde_json::to_string(&status).unwrap_or_else(|why| why.to_string());
    match serde_json::from_str::<DaemonStatus>(&json) {
        Ok(back) if back == status => {}
        _ => wrong.push(format!("the status does not read back: {json}")),
    }
    wrong
}

/// What `waykeeper restore` does.
pub fn restore(world: &World, scope: RestoreScope) -> Result<Report, JournalError> {
    let process = world.lock().start_process();
    let root = Root::on(Arc::new(Simulated::new(world, process)), PREFIX);
    let done = Journal::open(Path::new(JOURNAL), &root).and_then(|mut journal| {
        let mut report = restore_journal(&root, &mut journal, scope)?;
        let known = journal.originals().to_vec();
        adopt_orphans(&root, &mut journal, &known, &mut report)?;
        Ok(report)
    });
    world.lock().end_process();
    done
}

/// Why a host is not as it was found after a restore.
fn restore_failure(world: &World) -> Option<String> {
    match restore(world, RestoreScope::All) {
        Err(why) => Some(why.to_string()),
        Ok(report) => {
            let failures = report.failures().map(|(knob, why)| format!("{knob}: {why}"));
            let wrong: Vec<String> = failures.chain(report.unproved.iter().cloned()).collect();
            (!wrong.is_empty()).then(|| wrong.join("; "))
        }
    }
}
