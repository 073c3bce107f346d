//! The end of the program: exit codes, and the one line with the reason. Must not know any subcommand.

use std::fmt::Display;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use waykeeper_inputs::{InputError, RecordError};
use waykeeper_lab::files::OutError;
use waykeeper_lab::registry::RegistryError;
use waykeeper_lab::runner::RunError;
use waykeeper_machine::ScenarioError;
use waykeeper_output_file::is_link_loop;
use waykeeper_policy::PolicyError;
use waykeeper_silicon::SpecError;
use waykeeper_units::message;

/// It failed.
pub const FAILED: u8 = 1;
/// The command line or an input file is wrong.
pub const BAD_INPUT: u8 = 2;
/// The platform lacks what is needed.
pub const UNSUPPORTED: u8 = 3;
/// The user lacks a permission, or a file system is read-only.
pub const NOT_PERMITTED: u8 = 4;
/// Another program manages it, or none is left: no classes of service, no room on a disk.
pub const CONFLICT: u8 = 5;
/// The knob was set and has no effect.
pub const NO_EFFECT: u8 = 6;
/// The user interrupted it.
pub const INTERRUPTED: u8 = 130;

/// The failure with which the program ends.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// One line; none if everything is printed already.
    line: Option<String>,
}

impl Failure {
    /// Ends with `code` and prints `why`, which may repeat what a file contains.
    pub fn new(code: u8, why: impl Display) -> Failure {
        Failure { code, line: Some(message(&why.to_string())) }
    }

    /// The command line or an input file is wrong.
    pub fn bad_input(why: impl Display) -> Failure {
        Failure::new(BAD_INPUT, why)
    }

    /// A failure that is printed already.
    pub fn reported() -> Failure {
        Failure { code: FAILED, line: None }
    }

    /// Ends with `code` and prints nothing: the command that ran under us has printed its error.
    pub fn silent(code: u8) -> Failure {
        Failure { code, line: None }
    }

    /// Wrong inputs, each of which is printed already.
    pub fn reported_bad_input() -> Failure {
        Failure { code: BAD_INPUT, line: None }
    }

    /// A read or a write that failed.
    pub fn io(what: impl Display, why: &io::Error) -> Failure {
        Failure::new(io_code(why), format!("{what}: {why}"))
    }

    /// The same with a prefix that names its subject.
    #[must_use]
    pub fn about(self, what: impl Display) -> Failure {
        Failure { line: self.line.map(|line| format!("{what}: {line}")), ..self }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// The line, without its `error: `.
    pub fn line(&self) -> &str {
        self.line.as_deref().unwrap_or_default()
    }

    /// Prints the line without waiting for a reader: for a service, which must end.
    #[must_use]
    pub fn printed_nonblocking(self) -> Failure {
        self.line.into_iter().for_each(|line| print_nonblocking(format!("error: {line}")));
        Failure::silent(self.code)
    }

    /// Prints the line and returns the exit code.
    pub fn leave(self) -> ExitCode {
        if let Some(line) = self.line {
            eprint_line(&format!("error: {line}"));
        }
        ExitCode::from(self.code)
    }
}

/// A line on standard error, or several. What they repeat of a file is made harmless. A failure to write cannot be reported.
pub fn eprint_line(text: &str) {
    let lines: Vec<String> = text.split('\n').map(message).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}

/// One receiver per line that a thread is still writing.
static UNWRITTEN: Mutex<Vec<Receiver<()>>> = Mutex::new(Vec::new());

/// How long the end of the program waits for these threads.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes a line on standard error without waiting: a full pipe or a blocked terminal must not keep the caller from
/// restoring knobs. [`flush_stderr`] waits for it briefly at the end.
fn print_nonblocking(line: String) {
    let written = write_on_thread(io::stderr(), line);
    UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).extend(written);
}

/// Writes a line on its own thread; the receiver gets a message when it is written. Without a thread the line is lost.
fn write_on_thread(mut out: impl Write + Send + 'static, line: String) -> Option<Receiver<()>> {
    let (written, receiver) = channel();
    let thread = std::thread::Builder::new().name("waykeeper-words".to_owned());
    let spawned = thread.spawn(move || {
        let _ = writeln!(out, "{line}");
        // The receiver may be dropped.
        let _ = written.send(());
    });
    spawned.ok().map(|_| receiver)
}

/// Waits until all these lines are written, at most [`FLUSH_TIMEOUT`].
pub fn flush_stderr() {
    let until = Instant::now() + FLUSH_TIMEOUT;
    let all = std::mem::take(&mut *UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner));
    for written in all {
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// A panic is a bug of ours: one line for the user, the backtrace on request. Unwinding restores knobs, so it must not
/// wait for these lines.
pub fn print_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let what = payload.downcast_ref::<&str>().copied();
    let what = what.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
    let mut text = format!(
        "error: bug in waykeeper: {what}{place}; please report it with the command line (RUST_BACKTRACE=1 \
         prints a backtrace)"
    );
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
        text = format!("{text}\n{}", std::backtrace::Backtrace::force_capture());
    }
    print_nonblocking(text);
}

/// The exit code of a read or a write that failed.
pub fn io_code(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => NOT_PERMITTED,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CONFLICT,
        // A name that is too long, or links that lead to each other.
        io::ErrorKind::InvalidFilename => BAD_INPUT,
        _ if is_link_loop(error) => BAD_INPUT,
        // An error of ours, not of the system: nothing with this name can be read or written.
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory if error.raw_os_error().is_none() => {
            BAD_INPUT
        }
        _ => FAILED,
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Failure {
        Failure::bad_input(error)
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Failure {
        Failure::bad_input(error)
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Failure {
        Failure::bad_input(error)
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Failure {
        Failure::bad_input(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let code = match &error {
            error if error.is_bad_input() => BAD_INPUT,
            error if error.is_unsupported() => UNSUPPORTED,
            _ => FAILED,
        };
        Failure::new(code, error)
    }
}

impl From<OutError> for Failure {
    fn from(error: OutError) -> Failure {
        let code = match &error {
            OutError::Directory { source, .. } | OutError::Write { source, .. } => io_code(source),
            _ => FAILED,
        };
        Failure::new(code, error)
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Failure {
        let code = match &error {
            InputError::Write { source, .. } => io_code(source),
            _ => BAD_INPUT,
        };
        Failure::new(code, error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Failure {
        match error {
            RecordError::NoValgrind { .. } => Failure::new(UNSUPPORTED, error),
            RecordError::NoCommand | RecordError::NotStarted { .. } | RecordError::Nothing { .. } => {
                Failure::bad_input(error)
            }
            RecordError::Output(error) => error.into(),
            RecordError::Start { .. } | RecordError::Lost { .. } | RecordError::Text { .. } => {
                Failure::new(FAILED, error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// As the table in docs/daemon.md and the help say, in every command.
    #[test]
    fn a_full_disk_a_read_only_one_and_a_bad_name_have_a_code_each() {
        use rustix::io::Errno;
        let of = |errno: Errno| io_code(&errno.into());
        assert_eq!([Errno::NOSPC, Errno::DQUOT].map(of), [CONFLICT; 2]);
        assert_eq!([Errno::ROFS, Errno::ACCESS, Errno::PERM].map(of), [NOT_PERMITTED; 3]);
        assert_eq!([Errno::NAMETOOLONG, Errno::LOOP].map(of), [BAD_INPUT; 2]);
        // The system's own says nothing about the name that was given.
        assert_eq!([Errno::IO, Errno::INVAL, Errno::ISDIR].map(of), [FAILED; 3]);
        assert_eq!(io_code(&io::Error::new(io::ErrorKind::IsADirectory, "it is a directory")), BAD_INPUT);
    }

    #[test]
    fn output_without_a_reader_delays_no_writer() {
        let (mut reads, mut writes) = io::pipe().unwrap();
        let flags = rustix::fs::fcntl_getfl(&writes).unwrap();
        rustix::fs::fcntl_setfl(&writes, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut filled = 0;
        while let Ok(count) = writes.write(&[b'.'; 4096]) {
            filled += count;
        }
        rustix::fs::fcntl_setfl(&writes, flags).unwrap();
        // The call returns although the pipe is full; the line is written when the pipe is read.
        let written = write_on_thread(writes, "a word".to_owned()).unwrap();
        assert!(written.try_recv().is_err());
        let mut text = String::new();
        reads.read_to_string(&mut text).unwrap();
        assert_eq!(&text[filled..], "a word\n");
        written.recv().unwrap();
    }
}
