//! A process that runs a policy: its start, the lines to it and from it, and its end.
//!
//! Three threads wait for the pipes, so that a caller never does: one writes calls, one reads answers, one reads what the
//! policy prints. The process ends when its standard input is closed, also if this program was killed. Must not know what
//! an answer means.

use crate::PolicyFileError;
use crate::file::PolicyFile;
use crate::wire::{self, OpenedPolicy, PolicyAnswer, PolicyCall};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use toml::{Table, Value};

/// What the process runs.
pub(crate) const PROGRAM: &str = include_str!("../../../python/waykeeper/policy_process.py");

/// What Python runs first: it reads the program from standard input, and no byte of the calls behind it. As an argument the
/// whole program would fill the screen of `ps`. `python3 -c` searches modules in the working directory first: there a
/// policy named `json.py` would take the place of Python's own module.
const BEGIN: &str = "\
import sys
sys.path = [folder for folder in sys.path if folder]
with open(0, 'rb', 0, closefd=False) as pipe:
    size, text = int(pipe.readline()), b''
    while len(text) < size: text += pipe.read(size - len(text)) or exit()
exec(text)";
/// What a policy is, for the process.
pub(crate) const OWN_POLICY: &str = include_str!("../../../python/waykeeper/own_policy.py");

/// Longest answer, bytes. Assumption: masks and events of a thousand workloads have a few hundred KiB.
const LONGEST_ANSWER: u64 = 1 << 20;
/// Longest line that a policy prints, bytes; the rest of it is another line.
const LONGEST_PRINTED: u64 = 4096;
/// Longest name of a policy: it is a key of scenarios, a label of metrics and a word of commands (assumption).
const LONGEST_NAME: usize = 64;
/// How long Python may take to start and to run the file. Assumption: imports from a slow disk take less.
pub(crate) const OPENING: Duration = Duration::from_secs(30);
/// How often the flag that stops a start is looked at (ours: a user does not notice it).
const LOOK: Duration = Duration::from_millis(50);
/// How long an ended process may take until its exit status is known (assumption).
const ENDING: Duration = Duration::from_secs(1);

/// The ids under which a process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserIds {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

/// Takes a line that a policy printed.
pub type Printed = Arc<dyn Fn(&str) + Send + Sync>;

/// Which Python runs a policy, and what the policy may do.
#[derive(Clone)]
pub struct Interpreter {
    /// The program: a path, or a name that is searched in `PATH`.
    pub program: PathBuf,
    /// Whether the process runs with an empty environment, gives way to other programs, and may write no file, start no
    /// process or thread, gain no privilege and import no module beside the file.
    pub confined: bool,
    /// The user of the process; `None` is this program's. Another one needs `CAP_SETUID` and `CAP_SETGID`.
    pub user: Option<UserIds>,
    /// Takes what the policy prints.
    pub printed: Printed,
    /// The setting that names another program, for messages.
    pub setting: &'static str,
    /// Set when the user wants no more of it: the wait for its start ends.
    pub stop: Arc<AtomicBool>,
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter")
            .field("program", &self.program)
            .field("confined", &self.confined)
            .finish()
    }
}

/// What a file says about its policy.
pub type Described = OpenedPolicy;

/// A line from the process, or its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// A line.
    Line(Vec<u8>),
    /// A line that is too long; no more are read.
    TooLong,
    /// The process closed its standard output.
    End,
}

/// A running policy. Dropping it ends the process.
#[derive(Debug)]
pub struct PolicyProcess {
    file: String,
    program: PathBuf,
    setting: &'static str,
    child: Option<Child>,
    /// Closed to end the process.
    calls: Option<Sender<Vec<u8>>>,
    answers: Receiver<Incoming>,
    last_printed: Arc<Mutex<Option<String>>>,
    /// Closed when all that it printed was read.
    printed_all: Receiver<()>,
    /// Number of the last call.
    number: u64,
}

impl PolicyProcess {
    /// Starts a process and calls for the file's policy without waiting for the answer. The second part is the number of
    /// the last of these calls.
    ///
    /// # Errors
    /// A program that cannot be started, and settings that cannot be passed on.
    pub fn begin(
        file: &PolicyFile,
        with: &Interpreter,
        settings: Option<&Table>,
    ) -> Result<(PolicyProcess, u64), PolicyFileError> {
        let name = file.shown();
        if let Some((key, found)) = settings.and_then(not_finite) {
            return Err(PolicyFileError::Setting { file: name, key, found });
        }
        let mut process = PolicyProcess::start(name, with)?;
        // The file's folder, as Python has it for a script.
        let folder = std::path::absolute(&file.path).ok();
        let folder = folder.as_deref().and_then(Path::parent).and_then(Path::to_str);
        let open = PolicyCall::Open {
            file: &file.shown(),
            text: &file.text,
            policy_class: file.class.as_deref(),
            own_policy: OWN_POLICY,
            folder: folder.filter(|_| !with.confined),
            confined: with.confined,
        };
        let mut last = process.call(&open);
        if let Some(settings) = settings {
            last = process.call(&PolicyCall::Create { settings });
        }
        Ok((process, last))
    }

    /// The same, and waits for the answers. Without settings the policy is not made.
    ///
    /// # Errors
    /// Everything that can be wrong with the file.
    pub fn open(
        file: &PolicyFile,
        with: &Interpreter,
        settings: Option<&Table>,
    ) -> Result<(PolicyProcess, Described), PolicyFileError> {
        let until = Instant::now() + OPENING;
        let (mut process, last) = PolicyProcess::begin(file, with, settings)?;
        let mut described = None;
        let failed = |why: PolicyFileError| match why {
            // Before the first answer it is not known to be Python.
            PolicyFileError::Ended { .. } | PolicyFileError::Answer { .. } => {
                let why = match &why {
                    PolicyFileError::Ended { how, last: Some(last), .. } => {
                        format!("it ended ({how}): {last}")
                    }
                    PolicyFileError::Ended { how, .. } => format!("it ended ({how})"),
                    _ => "it answered with something else".to_owned(),
                };
                PolicyFileError::NotPython { program: with.program.clone(), why }
            }
            why => why,
        };
        loop {
            let result = process.wait_unless(&with.stop, until);
            let (number, answer) = if described.is_none() { result.map_err(failed)? } else { result? };
            if let PolicyAnswer::Opened(opened) = answer {
                check_name(&process.file, &opened.name)?;
                described = Some(opened);
            }
            if number >= last {
                break;
            }
        }
        match described {
            Some(described) => Ok((process, described)),
            None => Err(process.unexpected("it did not open the file")),
        }
    }

    /// Makes the policy with these settings, and waits.
    ///
    /// # Errors
    /// Settings that the policy refuses.
    pub fn create(&mut self, settings: &Table) -> Result<(), PolicyFileError> {
        if let Some((key, found)) = not_finite(settings) {
            return Err(PolicyFileError::Setting { file: self.file.clone(), key, found });
        }
        let number = self.call(&PolicyCall::Create { settings });
        match self.wait(Instant::now() + OPENING, OPENING)? {
            (answered, PolicyAnswer::Created {}) if answered == number => Ok(()),
            _ => Err(self.unexpected("it did not make the policy")),
        }
    }

    fn start(file: String, with: &Interpreter) -> Result<PolicyProcess, PolicyFileError> {
        let mut command = Command::new(&with.program);
        command.arg("-B").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if with.confined {
            command.arg("-s").env_clear().current_dir("/");
            // Libraries of numpy start a thread per core, and a confined process may start none.
            command.env("OPENBLAS_NUM_THREADS", "1").env("OMP_NUM_THREADS", "1");
        }
        // Ctrl-C is for this program, which ends the process.
        command.process_group(0);
        // The order of sets is the same in every run.
        command.env("PYTHONHASHSEED", "0").args(["-c", BEGIN, &file]);
        if let Some(UserIds { user, group }) = with.user {
            command.uid(user).gid(group);
        }
        let spawned = if with.confined { spawn_without_privileges(command) } else { command.spawn() };
        let mut child = spawned.map_err(|why| match with.user {
            Some(UserIds { user, .. }) if why.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                PolicyFileError::NoUser { user, why }
            }
            _ => PolicyFileError::NoPython { program: with.program.clone(), why, setting: with.setting },
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let last_printed = Arc::new(Mutex::new(None));
        let (prints, printed_all) = bounded::<()>(0);
        let (calls, to_write) = unbounded();
        // There is a receiver.
        let _ = calls.send(format!("{}\n{PROGRAM}", PROGRAM.len()).into_bytes());
        let (tell, answers) = bounded(4);
        let process = PolicyProcess {
            file,
            program: with.program.clone(),
            setting: with.setting,
            child: Some(child),
            calls: Some(calls),
            answers,
            last_printed: last_printed.clone(),
            printed_all,
            number: 0,
        };
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(process.unexpected("it has no pipes"));
        };
        let printed = with.printed.clone();
        let started = thread("waykeeper-calls", move || write_calls(stdin, &to_write))
            .and_then(|()| thread("waykeeper-answers", move || read_answers(stdout, &tell)))
            .and_then(|()| {
                thread("waykeeper-prints", move || {
                    read_printed(stderr, &last_printed, &printed);
                    drop(prints);
                })
            });
        match started {
            Ok(()) => Ok(process),
            Err(why) => Err(process.unexpected(&format!("no thread can be started for it: {why}"))),
        }
    }

    /// Sends a call without waiting. Returns its number, which its answer has too.
    pub fn call(&mut self, call: &PolicyCall<'_>) -> u64 {
        self.number += 1;
        if let Some(calls) = &self.calls {
            // If the process has ended, the thread that reads answers says so.
            let _ = calls.send(wire::line(self.number, call));
        }
        self.number
    }

    /// The lines from the process, to wait for with others; [`PolicyProcess::read`] reads each.
    pub fn incoming(&self) -> &Receiver<Incoming> {
        &self.answers
    }

    /// The answer in a line, with the number of its call.
    ///
    /// # Errors
    /// The end of the process, a line that is no answer, an exception of the policy.
    pub fn read(&mut self, incoming: &Incoming) -> Result<(u64, PolicyAnswer), PolicyFileError> {
        match incoming {
            Incoming::Line(line) => match PolicyAnswer::parse(line) {
                Ok((_, PolicyAnswer::Error(why))) => Err(PolicyFileError::Raised(self.with_remedy(why))),
                Ok(answer) => Ok(answer),
                Err(why) => Err(self.unexpected(&why)),
            },
            Incoming::TooLong => Err(self.unexpected(&format!("it is longer than {LONGEST_ANSWER} bytes"))),
            Incoming::End => Err(self.ended()),
        }
    }

    /// An exception with what to do about it: a module may be installed for another Python.
    fn with_remedy(&self, why: String) -> String {
        if !why.contains(": ModuleNotFoundError: ") {
            return why;
        }
        let (program, setting) = (self.program.display(), self.setting);
        format!("{why}; install it for `{program}`, or name a Python that has it in {setting}")
    }

    /// Waits for the next answer until then; `waited` is for the message.
    ///
    /// # Errors
    /// As [`PolicyProcess::read`], and no answer in time.
    pub fn wait(&mut self, until: Instant, waited: Duration) -> Result<(u64, PolicyAnswer), PolicyFileError> {
        match self.answers.recv_deadline(until) {
            Ok(incoming) => self.read(&incoming),
            Err(RecvTimeoutError::Timeout) => Err(PolicyFileError::Late { file: self.file.clone(), waited }),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// The same while the process starts, which may take seconds, unless the flag is set.
    fn wait_unless(
        &mut self,
        stop: &AtomicBool,
        until: Instant,
    ) -> Result<(u64, PolicyAnswer), PolicyFileError> {
        while !stop.load(Ordering::Relaxed) {
            let look = until.min(Instant::now() + LOOK);
            match self.wait(look, OPENING) {
                Err(PolicyFileError::Late { .. }) if look < until => {}
                // Whatever a signal to all processes of a terminal made of it.
                Err(_) if stop.load(Ordering::Relaxed) => break,
                result => return result,
            }
        }
        Err(PolicyFileError::Interrupted)
    }

    /// The error of an answer that is none of those that were called for.
    pub fn unexpected(&self, why: &str) -> PolicyFileError {
        PolicyFileError::Answer { file: self.file.clone(), why: why.to_owned() }
    }

    /// How the process ended. One that only closed its pipes is ended.
    fn ended(&mut self) -> PolicyFileError {
        self.calls = None;
        let mut how = "it closed its standard output".to_owned();
        if let Some(child) = &mut self.child {
            let until = Instant::now() + ENDING;
            while Instant::now() < until {
                match child.try_wait() {
                    Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                    Ok(Some(status)) => {
                        how = status.to_string();
                        break;
                    }
                    Err(why) => {
                        how = why.to_string();
                        break;
                    }
                }
            }
        }
        // What it printed last may not have been read yet. A process that it started may keep the pipe open.
        let _ = self.printed_all.recv_timeout(ENDING);
        let last = self.last_printed.lock().unwrap_or_else(PoisonError::into_inner).take();
        PolicyFileError::Ended { file: self.file.clone(), how, last }
    }
}

impl Drop for PolicyProcess {
    /// Does not wait for the process. Without permission to end it (another user's, without `CAP_KILL`) the end of its
    /// standard input ends it.
    fn drop(&mut self) {
        self.calls = None;
        if let Some(mut child) = self.child.take() {
            // It leads a group, in which its own processes are; they would stay.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.kill();
            // Its exit status is fetched, so that it does not stay as a zombie.
            let _ = thread("waykeeper-reap", move || drop(child.wait()));
        }
    }
}

/// Spawns from a thread that has given up what a child could inherit: ambient capabilities, and new privileges from the
/// programs that it runs.
fn spawn_without_privileges(mut command: Command) -> io::Result<Child> {
    let spawn = move || {
        // Kernels before 4.3 have no ambient capabilities.
        let _ = rustix::thread::clear_ambient_capability_set();
        rustix::thread::set_no_new_privs(true)?;
        command.spawn()
    };
    let spawned = std::thread::Builder::new().name("waykeeper-spawn".to_owned()).spawn(spawn)?.join();
    spawned.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Writes calls until there are no more, and then closes the pipe.
fn write_calls(mut stdin: ChildStdin, calls: &Receiver<Vec<u8>>) {
    // A process that has ended takes no more; the thread that reads answers says so.
    while let Ok(call) = calls.recv() {
        if stdin.write_all(&call).is_err() {
            return;
        }
    }
}

fn read_answers(stdout: impl Read, tell: &Sender<Incoming>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let incoming = match (&mut stdout).take(LONGEST_ANSWER).read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => Incoming::Line(line),
            Ok(_) if line.len() as u64 == LONGEST_ANSWER => Incoming::TooLong,
            // A line without its end is cut off.
            Ok(_) | Err(_) => Incoming::End,
        };
        let is_last = !matches!(incoming, Incoming::Line(_));
        if tell.send(incoming).is_err() || is_last {
            return;
        }
    }
}

fn read_printed(stderr: impl Read, last: &Mutex<Option<String>>, printed: &Printed) {
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut stderr).take(LONGEST_PRINTED).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !text.is_empty() {
            printed(text);
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
        }
    }
}

/// The first number among settings that JSON cannot hold.
fn not_finite(settings: &Table) -> Option<(String, f64)> {
    fn within(value: &Value) -> Option<f64> {
        match value {
            Value::Float(number) => Some(*number).filter(|number| !number.is_finite()),
            Value::Array(values) => values.iter().find_map(within),
            Value::Table(values) => values.values().find_map(within),
            _ => None,
        }
    }
    settings.iter().find_map(|(key, value)| Some((key.clone(), within(value)?)))
}

fn check_name(file: &str, name: &str) -> Result<(), PolicyFileError> {
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_fine) {
        return Ok(());
    }
    Err(PolicyFileError::Name { file: file.to_owned(), name: name.to_owned(), most: LONGEST_NAME })
}
