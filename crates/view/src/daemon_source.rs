//! A daemon's socket as a source: the request `steps`, and orders for turns. When the daemon is gone it tries again, with
//! growing pauses, until the daemon is back.
//!
//! A thread reads the stream, so that a reader that draws does not keep the daemon waiting. Must not know what is drawn.

use crate::by_hand;
use crate::mailbox::Mailbox;
use crate::source::{Abilities, Source, SourceEvent, SourceInfo, SourceKind, Turn, TurnError};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use waykeeper_host::{Inventory, KnobValues, Workload};
use waykeeper_service::protocol::{ControlCommand, OrderResult, PolicyState};
use waykeeper_service::recorder::{StreamLine, StreamReader};
use waykeeper_service::{Client, ClientError, DaemonMode};

/// First pause before the daemon is tried again, and the longest. Assumption: a restart takes about a second.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Silence after which the daemon counts as hung: so many periods, and at least [`SILENCE`].
const SILENT_PERIODS: u32 = 10;
const SILENCE: Duration = Duration::from_secs(15);

/// A daemon's socket.
#[derive(Debug)]
pub struct DaemonSource {
    path: PathBuf,
    mailbox: Mailbox,
    shared: Arc<Mutex<LastStep>>,
    policies: Vec<String>,
    /// Dropping it ends the thread.
    _alive: Sender<()>,
}

/// What turns need of the last step.
#[derive(Debug, Default)]
struct LastStep {
    mode: Option<DaemonMode>,
    inventory: Option<Arc<Inventory>>,
    tenants: Vec<Workload>,
    knobs: KnobValues,
}

impl DaemonSource {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// If no daemon answers there, or this user may not connect. A daemon that ends later is no error.
    pub fn connect(path: &Path) -> Result<DaemonSource, ClientError> {
        let mut client = Client::connect(path, Client::TIMEOUT)?;
        let known: PolicyState = client.ask(ControlCommand::Policy)?;
        let (alive, ended) = bounded(0);
        let (mailbox, shared) = (Mailbox::default(), Arc::new(Mutex::new(LastStep::default())));
        let (own, last, socket) = (mailbox.clone(), shared.clone(), path.to_owned());
        let failed = |why: io::Error| ClientError::Io { path: path.to_owned(), why };
        let work = move || follow(&socket, Some(client), &own, &last, &ended);
        std::thread::Builder::new().name("steps".to_owned()).spawn(work).map_err(failed)?;
        Ok(DaemonSource { path: path.to_owned(), mailbox, shared, policies: known.known, _alive: alive })
    }

    fn ask(&self, command: ControlCommand) -> Result<String, TurnError> {
        let answered = Client::connect(&self.path, Client::ORDER_TIMEOUT)
            .and_then(|mut client| client.ask::<OrderResult>(command));
        match answered {
            Ok(done) => Ok(done.text),
            Err(why @ ClientError::Fault(_)) => Err(TurnError::Refused(why.to_string())),
            Err(why) => Err(TurnError::Lost(why.to_string())),
        }
    }
}

impl Source for DaemonSource {
    fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
        self.mailbox.take(wait)
    }

    fn turn(&mut self, turn: Turn) -> Result<String, TurnError> {
        match turn {
            Turn::Policy { name, settings } => self.ask(ControlCommand::SetPolicy { name, settings }),
            Turn::Pause { release } => self.ask(ControlCommand::Pause { release }),
            Turn::Resume => self.ask(ControlCommand::Resume),
            Turn::Load { .. } => {
                Err(TurnError::Unsupported("the load of a real host cannot be changed here".to_owned()))
            }
            Turn::Speed { .. } | Turn::Stop | Turn::Play | Turn::Seek { .. } => {
                Err(TurnError::Unsupported("the time of a daemon cannot be changed".to_owned()))
            }
            knob => {
                let settings = {
                    let last = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let lost = || TurnError::Lost("no step of the daemon was seen yet".to_owned());
                    let inventory = last.inventory.clone().ok_or_else(lost)?;
                    by_hand::settings(&knob, &last.knobs, &last.tenants, &inventory)?
                };
                let name = by_hand::POLICY.to_owned();
                self.ask(ControlCommand::SetPolicy { name, settings: settings.unwrap_or_default() })
            }
        }
    }

    fn info(&self) -> SourceInfo {
        let mode = self.shared.lock().unwrap_or_else(PoisonError::into_inner).mode;
        SourceInfo {
            kind: SourceKind::Daemon,
            name: self.path.display().to_string(),
            live: true,
            abilities: Abilities {
                policies: self.policies.clone(),
                pause: true,
                knobs: mode == Some(DaemonMode::Manage),
                ..Abilities::default()
            },
            speed: None,
            stopped: false,
            length_s: None,
            place_s: None,
            loads: Vec::new(),
        }
    }
}

/// Reads the stream until the source is dropped.
fn follow(
    path: &Path,
    mut client: Option<Client>,
    mailbox: &Mailbox,
    last: &Mutex<LastStep>,
    ended: &Receiver<()>,
) {
    let mut pause = FIRST_PAUSE;
    let is_over =
        |wait| !matches!(ended.recv_timeout(wait), Err(crossbeam_channel::RecvTimeoutError::Timeout));
    loop {
        let why = match client.take().map_or_else(|| Client::connect(path, Client::TIMEOUT), Ok) {
            Ok(client) => read(client, path, mailbox, last, &mut pause, &is_over),
            Err(why) => why.to_string(),
        };
        if is_over(Duration::ZERO) {
            return;
        }
        mailbox.put(SourceEvent::Lost { why });
        if is_over(pause) {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Reads from one connection; returns why it ended.
fn read(
    mut client: Client,
    path: &Path,
    mailbox: &Mailbox,
    last: &Mutex<LastStep>,
    pause: &mut Duration,
    is_over: &impl Fn(Duration) -> bool,
) -> String {
    let mut reader = StreamReader::default();
    if let Err(why) = client.send(ControlCommand::Steps) {
        return why.to_string();
    }
    loop {
        let line = match client.receive::<StreamLine<'static>>() {
            Ok(Some(line)) => line,
            Ok(None) => return format!("{}: the daemon has ended", path.display()),
            Err(why) => return why.to_string(),
        };
        let line = match reader.read(line) {
            Ok(line) => line,
            Err(why) => return format!("{}: the daemon sent a line that cannot be: {why}", path.display()),
        };
        *pause = FIRST_PAUSE;
        if is_over(Duration::ZERO) {
            return "the source was closed".to_owned();
        }
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        match line {
            StreamLine::Header(header) => {
                let period = Duration::from_nanos(header.period_ns);
                client.set_timeout(period.saturating_mul(SILENT_PERIODS).max(SILENCE));
                last.mode = Some(header.mode);
                last.inventory = Some(header.inventory.clone());
                mailbox.put(SourceEvent::Begin(header));
            }
            StreamLine::Step(step) => {
                last.tenants = step.groups.as_deref().unwrap_or_default().to_vec();
                last.knobs = step.record.knobs.clone();
                mailbox.put(SourceEvent::Step(step));
            }
        }
    }
}
