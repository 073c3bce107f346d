//! `waykeeper status --watch`: the status after every step, also after a restart of the daemon.
//!
//! When the connection is lost, it is made again with growing pauses, and a note says so. Must not know how a status is
//! shown.

use super::view::Screen;
use super::{StatusArgs, page, view};
use crate::exit::{self, Failure};
use crate::out;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};
use waykeeper_service::protocol::{ControlCommand, DaemonStatus, ProtocolErrorKind};
use waykeeper_service::{Client, ClientError};

/// Longest wait for the next step: a few periods, and a busy machine's delay.
const STEPS: f64 = 3.0;

/// First and longest pause between two tries to connect again. Assumption: a restart takes a second, and a user waits for
/// five.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Frames after a new connection that say so.
const TOLD: u32 = 10;

/// Shows the status that `client` sends, until Ctrl-C or until the reader of standard output is gone.
pub fn watch(mut client: Client, args: &StatusArgs) -> Result<(), Failure> {
    let mut frames = Frames::new(args);
    loop {
        let why = match follow(&mut client, &mut frames)? {
            Ended::Reader => return Ok(()),
            Ended::Daemon(why) => why,
        };
        match again(args, &mut frames, why)? {
            Some(other) => client = other,
            None => return Ok(()),
        }
    }
}

/// Why no further status is shown.
enum Ended {
    /// The reader of standard output is gone.
    Reader,
    /// The daemon, or the connection to it; with the reason.
    Daemon(String),
}

/// Shows every status of a connection.
fn follow(client: &mut Client, frames: &mut Frames<'_>) -> Result<Ended, Failure> {
    if let Err(why) = client.send(ControlCommand::Watch) {
        return Ok(Ended::Daemon(why.to_string()));
    }
    loop {
        let status: DaemonStatus = match client.receive() {
            Ok(Some(status)) => status,
            Ok(None) => return Ok(Ended::Daemon("the daemon has ended".to_owned())),
            Err(ClientError::Fault(fault)) if !passes(fault.kind) => {
                return Err(ClientError::Fault(fault).into());
            }
            Err(why) => return Ok(Ended::Daemon(why.to_string())),
        };
        let longest = Duration::from_secs(3600);
        let step = Duration::try_from_secs_f64(STEPS * status.period_s).unwrap_or(longest).min(longest);
        client.set_timeout(Client::TIMEOUT + step);
        if !frames.show(status)? {
            return Ok(Ended::Reader);
        }
    }
}

/// Whether an error of the daemon may be gone at the next try.
fn passes(kind: ProtocolErrorKind) -> bool {
    use ProtocolErrorKind::{Busy, Ending, Late, TooSlow};
    matches!(kind, Busy | Ending | Late | TooSlow)
}

/// Connects again; `None` if the reader of standard output is gone.
fn again(args: &StatusArgs, frames: &mut Frames<'_>, mut why: String) -> Result<Option<Client>, Failure> {
    let since = Instant::now();
    let mut pause = PAUSES.0;
    loop {
        let wait = if pause < Duration::from_secs(1) {
            "at once".to_owned()
        } else {
            format!("every {} s", pause.as_secs())
        };
        if !frames.lost(&why, &wait)? {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSES.1);
        match args.socket.connect(Client::TIMEOUT) {
            Ok(client) => {
                frames.back(since.elapsed());
                return Ok(Some(client));
            }
            Err(other) => why = other.line().to_owned(),
        }
    }
}

/// What is on the screen, or was written.
struct Frames<'a> {
    args: &'a StatusArgs,
    last: Option<DaemonStatus>,
    size: Option<(usize, usize)>,
    /// Whether a note says that the daemon cannot be reached.
    is_lost: bool,
    /// A note, and for how many frames more it is shown.
    note: Option<(String, u32)>,
}

impl Frames<'_> {
    fn new(args: &StatusArgs) -> Frames<'_> {
        Frames { args, last: None, size: None, is_lost: false, note: None }
    }

    /// Shows a status; false if the reader is gone.
    fn show(&mut self, status: DaemonStatus) -> Result<bool, Failure> {
        if std::mem::take(&mut self.is_lost) && self.args.screen().is_none() {
            exit::eprint_line("the daemon is back");
        }
        let shown = match (self.args.json, self.args.screen()) {
            (true, _) => serde_json::to_string(&status).map(|text| text + "\n").map_err(|why| {
                Failure::new(exit::FAILED, format!("cannot write the result as JSON: {why}"))
            })?,
            (false, Some(screen)) => {
                let note = self.note.as_ref().map(|(note, _)| note.clone());
                self.frame(&status, note.as_deref(), screen)
            }
            (false, None) => page::status(&status) + "\n",
        };
        self.note = self.note.take().and_then(|(note, left)| Some((note, left.checked_sub(1)?)));
        self.last = Some(status);
        out::text_while_open(&shown)
    }

    /// Says that the daemon cannot be reached; false if the reader is gone.
    fn lost(&mut self, why: &str, wait: &str) -> Result<bool, Failure> {
        let note = format!("trying again {wait}: {why}");
        let was_lost = std::mem::replace(&mut self.is_lost, true);
        match (self.args.screen(), self.last.take()) {
            (Some(screen), Some(last)) => {
                let frame = self.frame(&last, Some(&note), screen);
                self.last = Some(last);
                out::text_while_open(&frame)
            }
            (_, last) => {
                self.last = last;
                if !was_lost {
                    exit::eprint_line(&format!("{why}; waiting until it is back"));
                }
                Ok(has_reader())
            }
        }
    }

    /// The connection is there again.
    fn back(&mut self, after: Duration) {
        let note = format!("the daemon is back, after {:.1} s", after.as_secs_f64());
        self.note = Some((note, TOLD));
    }

    /// A frame over the one before: each line replaces one (ECMA-48: cursor home, erase to the end of the line, of the
    /// screen). A terminal of another size is erased first.
    fn frame(&mut self, status: &DaemonStatus, note: Option<&str>, screen: Screen) -> String {
        let size = Some((screen.columns, screen.rows));
        let erase = if std::mem::replace(&mut self.size, size) == size { "" } else { "\x1b[2J" };
        // Erased before it is written: behind a full line the cursor is still on its last column.
        let lines = view::view(status, note, screen)
            .lines()
            .fold(String::new(), |text, line| text + "\x1b[K" + line + "\n");
        format!("\x1b[H{erase}{lines}\x1b[J")
    }
}

/// Whether standard output is read by another program; false only for a pipe that was closed.
fn has_reader() -> bool {
    let stdout = std::io::stdout();
    let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
    let polled = poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    !(polled.is_ok() && ends[0].revents().contains(PollFlags::ERR))
}
