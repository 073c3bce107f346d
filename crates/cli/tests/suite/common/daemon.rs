//! A `waykeeper daemon` of the real program on a mounted host, alone or under strace.
//!
//! Must not know what a test does with it.
#![allow(dead_code, reason = "each test program uses some of it")]

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_testbed::{MountedHost, PATIENCE};

/// The daemon's configuration, journal and socket.
pub struct Setup {
    pub config: PathBuf,
    pub journal: PathBuf,
    pub socket: PathBuf,
}

impl Setup {
    /// A policy that sets masks and DCA ways. The journal is in `state`.
    pub fn new(machine: &MountedHost, state: &Path) -> Setup {
        let socket = machine.folder().join("socket");
        Setup::with(machine, state.join("journal"), socket, "[metrics]\nlisten = \"off\"\n")
    }

    /// The same with given paths, and `more` at the end of the section of the socket.
    pub fn with(machine: &MountedHost, journal: PathBuf, socket: PathBuf, more: &str) -> Setup {
        let mut text = format!(
            "{more}[policy]\nname = \"fixed\"\n[policy.settings]\ndca_ways = \"0x700\"\n\
             [policy.settings.masks]"
        );
        for (number, tenant) in machine.tenants.iter().enumerate() {
            let _ = write!(text, "\n{} = \"{:#x}\"", tenant.name, 0x3 << (2 * number));
        }
        let setup = Setup { config: machine.folder().join("waykeeper.toml"), journal, socket };
        setup.write(machine, &text);
        setup
    }

    /// The machine's own journal, and `more` from line 7 on.
    pub fn plain(machine: &MountedHost, more: &str) -> Setup {
        let [config, socket] = ["waykeeper.toml", "socket"].map(|name| machine.folder().join(name));
        let setup = Setup { config, journal: machine.journal(), socket };
        setup.write(machine, more);
        setup
    }

    /// Writes another configuration for the same host.
    pub fn write(&self, machine: &MountedHost, more: &str) {
        std::fs::write(&self.config, self.text(machine, more)).expect("a file beside the tree");
    }

    /// The text of a configuration: the host's paths, `more` after the section of the socket, then the machine's
    /// tenants.
    pub fn text(&self, machine: &MountedHost, more: &str) -> String {
        let mut text = format!(
            "[daemon]\nperiod_s = 0.05\nroot = {:?}\njournal = {:?}\n[socket]\npath = {:?}\n{more}\n",
            machine.root().prefix(),
            self.journal,
            self.socket,
        );
        for tenant in &machine.tenants {
            let priority = if tenant.priority == Priority::High { "high" } else { "low" };
            let kind = match tenant.kind {
                WorkloadKind::NonIo => "non-io",
                WorkloadKind::NetworkIo => "network-io",
                WorkloadKind::StorageIo => "storage-io",
            };
            let devices: Vec<String> =
                tenant.devices.iter().map(|device| format!("{:?}", device.to_string())).collect();
            let _ = writeln!(
                text,
                "[[tenant]]\nname = {:?}\npriority = {priority:?}\nkind = {kind:?}\ncores = {:?}\ndevices = [{}]",
                tenant.name,
                tenant.cores.to_string(),
                devices.join(", "),
            );
        }
        text
    }

    /// The daemon as a command, to be waited for.
    pub fn command(&self) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_remove("RUST_BACKTRACE");
        command
    }

    /// The daemon's command line.
    fn words(&self) -> Vec<String> {
        let config = self.config.to_str().expect("a path in ASCII");
        [env!("CARGO_BIN_EXE_waykeeper"), "daemon", "--config", config].map(ToOwned::to_owned).to_vec()
    }

    /// Starts it.
    pub fn start(&self) -> Daemon {
        self.spawn(&self.words(), &[])
    }

    /// Starts it with more arguments.
    pub fn start_with(&self, args: &[&str]) -> Daemon {
        let args: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
        self.spawn(&[self.words(), args].concat(), &[])
    }

    /// Starts it through another command, which executes it.
    pub fn start_through(&self, command: &[String], environment: &[(&str, &Path)]) -> Daemon {
        self.spawn(&[command, &self.words()].concat(), environment)
    }

    /// Starts it under strace with these arguments. The daemon is the child, strace the grandchild.
    pub fn start_traced(&self, arguments: &[&str]) -> Daemon {
        let mut words: Vec<String> = ["strace", "-D", "-f", "-qq"].map(ToOwned::to_owned).to_vec();
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        words.push("--".to_owned());
        words.extend(self.words());
        self.spawn(&words, &[])
    }

    fn spawn(&self, words: &[String], environment: &[(&str, &Path)]) -> Daemon {
        let child = Command::new(&words[0])
            .args(&words[1..])
            .env("NO_COLOR", "1")
            .env_remove("RUST_BACKTRACE")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("not run: needs {}: {error}", words[0]));
        let stderr = child.stderr.take().expect("it is piped");
        let log = Arc::new(Mutex::new(String::new()));
        let lines = log.clone();
        // Read to the end, so that no process blocks on a full pipe.
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().expect("no thread panics with it").push_str(&(line + "\n"));
            }
        });
        Daemon { child, log, reader: Some(reader), socket: self.socket.clone() }
    }

    /// Runs `waykeeper restore` of the real program with only the configuration as argument.
    pub fn restore(&self) {
        let done = Command::new(env!("CARGO_BIN_EXE_waykeeper"))
            .args(["restore", "--config"])
            .arg(&self.config)
            .output()
            .expect("the program is built");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

/// A running daemon and its log so far. It is killed at the end of its test.
pub struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    socket: PathBuf,
}

impl Daemon {
    /// A daemon whose standard error the caller handles.
    pub fn of(mut command: Command, setup: &Setup) -> Daemon {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the program is built");
        Daemon { child, log: Arc::default(), reader: None, socket: setup.socket.clone() }
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("no thread panics with it").clone()
    }

    /// Sends a request to its socket; `None` if it does not serve.
    pub fn ask(&self, mut words: Value) -> Option<Value> {
        words["version"] = json!(1);
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(format!("{words}\n").as_bytes()).ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// Its number of steps, if it serves already.
    fn step(&self) -> Option<u64> {
        self.ask(json!({"do": "status"}))?["ok"]["step"].as_u64()
    }

    /// Waits until it has set its knobs, or ended; true if it is in charge.
    pub fn in_charge(&mut self) -> bool {
        self.until(|daemon| daemon.step().is_some_and(|step| step > 0))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// Waits for its end; returns its status and its log.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.until(|_| false);
        let status = self.child.wait().expect("waited for");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading goes on to the end");
        }
        (status, self.log())
    }

    /// Waits until a condition holds; the daemon must not end meanwhile.
    pub fn comes(&mut self, what: &str, so: impl FnMut(&Daemon) -> bool) {
        assert!(self.until(so), "{what}: the daemon ended\n{}", self.log());
    }

    /// Waits until its log contains `words`.
    pub fn tells(&mut self, words: &str) {
        self.comes(words, |daemon| daemon.log().contains(words));
    }

    /// Sends a request as soon as it serves.
    pub fn answer(&mut self, words: Value) -> Value {
        let mut answer = None;
        self.comes("an answer", |daemon| {
            answer = daemon.ask(words.clone());
            answer.is_some()
        });
        answer.unwrap_or_default()
    }

    /// Ends it by a signal; it must exit with success. Returns its log.
    pub fn ends_by(self, signal: rustix::process::Signal) -> String {
        self.signal(signal);
        let (status, said) = self.end();
        assert!(status.success(), "{status}\n{said}");
        said
    }

    /// Waits until a condition holds, or it has ended; true for the former.
    pub fn until(&mut self, mut so: impl FnMut(&Daemon) -> bool) -> bool {
        let start = Instant::now();
        loop {
            if self.child.try_wait().expect("asked").is_some() {
                return false;
            }
            if so(self) {
                return true;
            }
            assert!(start.elapsed() < PATIENCE, "the daemon neither does it nor ends\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
