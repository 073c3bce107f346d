//! A `waykeeper daemon` of the real program on a mounted host, alone or with strace between it and the kernel.
//!
//! Must not know what is tried on it.
#![allow(dead_code, reason = "each test program uses some of it")]

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_stand::Machine;

/// Longer than anything here takes on a machine that has other things to do, too.
const PATIENCE: Duration = Duration::from_secs(120);

/// What it is started with: a configuration beside the host.
pub struct Setup {
    pub config: PathBuf,
    pub journal: PathBuf,
    pub socket: PathBuf,
}

impl Setup {
    /// A policy that turns every knob there is: masks, DCA ways, DCA of a port. The journal is in `state`.
    pub fn new(machine: &Machine, state: &Path) -> Setup {
        let socket = machine.folder().join("socket");
        Setup::with(machine, state.join("journal"), socket, "[metrics]\nlisten = \"off\"\n")
    }

    /// The same with places of its own, and `more` at the end of the section of the socket.
    pub fn with(machine: &Machine, journal: PathBuf, socket: PathBuf, more: &str) -> Setup {
        let mut text = format!(
            "[daemon]\nroot = {:?}\njournal = {journal:?}\nperiod_s = 0.05\n[socket]\npath = {socket:?}\n\
             {more}[policy]\nname = \"fixed\"\n[policy.settings]\ndca_ways = \"0x700\"\n\
             [policy.settings.masks]\n",
            machine.root().prefix(),
        );
        for (number, tenant) in machine.tenants.iter().enumerate() {
            let _ = writeln!(text, "{} = \"{:#x}\"", tenant.name, 0x3 << (2 * number));
        }
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
        let config = machine.folder().join("waykeeper.toml");
        std::fs::write(&config, text).unwrap_or_else(|error| panic!("{}: {error}", config.display()));
        Setup { config, journal, socket }
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

    /// Starts it by way of another command, which becomes it.
    pub fn start_through(&self, command: &[String], environment: &[(&str, &Path)]) -> Daemon {
        self.spawn(&[command, &self.words()].concat(), environment)
    }

    /// Starts it with strace at its side, which is told these words. The daemon is the child, strace the grandchild.
    pub fn start_traced(&self, told: &[&str]) -> Daemon {
        let mut words: Vec<String> = ["strace", "-D", "-f", "-qq"].map(ToOwned::to_owned).to_vec();
        words.extend(told.iter().map(|word| (*word).to_owned()));
        words.push("--".to_owned());
        words.extend(self.words());
        self.spawn(&words, &[])
    }

    fn spawn(&self, words: &[String], environment: &[(&str, &Path)]) -> Daemon {
        let child = Command::new(&words[0])
            .args(&words[1..])
            .env("NO_COLOR", "1")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|error| {
            panic!("{}: {error}; these tests need Debian's packages strace and util-linux (.ci/run installs them)", words[0])
        });
        let stderr = child.stderr.take().expect("it is piped");
        // Read to the end, so that nobody waits for a full pipe.
        let said = std::thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<_>>().join("\n")
        });
        Daemon { child, said: Some(said), socket: self.socket.clone() }
    }

    /// What `waykeeper restore` does, by the program itself.
    pub fn restore(&self, machine: &Machine) {
        let done = Command::new(env!("CARGO_BIN_EXE_waykeeper"))
            .args(["restore", "--root"])
            .arg(machine.root().prefix())
            .arg("--journal")
            .arg(&self.journal)
            .output()
            .expect("the program is built");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

/// A running one. It does not outlive its test.
pub struct Daemon {
    child: Child,
    said: Option<std::thread::JoinHandle<String>>,
    socket: PathBuf,
}

impl Daemon {
    /// Asks through its socket; `None` if it does not serve.
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

    /// Waits until it has turned its knobs, or ended; true if it is in charge.
    pub fn in_charge(&mut self) -> bool {
        self.until(|daemon| daemon.step().is_some_and(|step| step > 0))
    }

    /// Asks it to end.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // It may have ended by itself just now.
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// Waits for its end: how, and what it said.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.until(|_| false);
        let status = self.child.wait().expect("waited for");
        let said = self.said.take().map(|said| said.join().expect("reading goes on to the end"));
        (status, said.unwrap_or_default())
    }

    /// Waits until something is so, or it has ended; true for the former.
    pub fn until(&mut self, mut so: impl FnMut(&Daemon) -> bool) -> bool {
        let start = Instant::now();
        loop {
            if self.child.try_wait().expect("asked").is_some() {
                return false;
            }
            if so(self) {
                return true;
            }
            assert!(start.elapsed() < PATIENCE, "the daemon neither serves nor ends");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It is gone already if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
