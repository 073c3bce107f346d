//! `waykeeper daemon` as an operator has it: signals, files, orders, and a host that is as it was found in the end.

mod common;

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use waykeeper_stand::{Machine, same};

/// Long enough for a machine that does much else; what is waited for is there in milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon at work, and what it told so far.
struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
    config: PathBuf,
    socket: PathBuf,
}

impl Daemon {
    /// Starts one on a machine; `more` stands in front of its tenants.
    fn start(machine: &Machine, more: &str, args: &[&str]) -> Daemon {
        let config = machine.folder().join("waykeeper.toml");
        std::fs::write(&config, text(machine, more)).unwrap();
        let socket = machine.folder().join("socket");
        let mut child = command(machine, &config, &socket).args(args).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (stderr, lines) = (child.stderr.take().unwrap(), log.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Daemon { child, log, config, socket }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until something is so.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Daemon) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{what}: the daemon ended with {status}\n{}", self.log());
            }
            assert!(begun.elapsed() < PATIENCE, "{what} never came about\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn until_told(&mut self, words: &str) {
        self.until(words, |daemon| daemon.log().contains(words));
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Asks through the socket.
    fn ask(&mut self, mut words: Value) -> Value {
        self.until("a socket", |daemon| UnixStream::connect(&daemon.socket).is_ok());
        words["version"] = json!(1);
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(format!("{words}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits for its end; the exit code.
    fn end(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended already is not there to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(machine: &Machine, config: &Path, socket: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("waykeeper"));
    command.arg("daemon").arg("--config").arg(config).arg("--root").arg(machine.root().prefix());
    command.arg("--journal").arg(machine.journal()).arg("--set");
    command.arg(format!("socket.path={}", socket.display())).env_remove("RUST_BACKTRACE");
    command
}

/// A configuration with the machine's tenants.
fn text(machine: &Machine, more: &str) -> String {
    let mut text = format!("[daemon]\nperiod_s = 0.05\n{more}\n");
    for tenant in machine.options().tenants {
        let devices: Vec<String> = tenant.devices.iter().map(ToString::to_string).collect();
        let priority = if tenant.priority == waykeeper_host::Priority::High { "high" } else { "low" };
        write!(
            text,
            "[[tenant]]\nname = \"{}\"\npriority = \"{priority}\"\ncores = \"{}\"\ndevices = {devices:?}\n",
            tenant.name, tenant.cores
        )
        .unwrap();
    }
    text
}

const FIXED: &str =
    "[policy]\nname = \"fixed\"\n[policy.settings]\nmasks = { l2fwd = \"0x600\", scan = \"0x003\" }";

/// Masks of three CPUs, as resctrl shows them.
fn masks(machine: &Machine) -> [String; 3] {
    [0, 2, 3].map(|cpu| machine.mask_of(cpu))
}

#[test]
fn a_daemon_lives_through_reloads_orders_and_pauses_and_leaves_everything_as_it_was() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let mut daemon = Daemon::start(&machine, FIXED, &[]);
    daemon.until("fixed masks", |_| masks(&machine) != before);
    let fixed = masks(&machine);
    assert_ne!(fixed[0], fixed[2]);

    // A bad file changes nothing, and says why.
    std::fs::write(&daemon.config, text(&machine, "[polcy]\nname = \"a4\"")).unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_told("unknown section [polcy]; did you mean `policy`?");
    assert_eq!(masks(&machine), fixed);
    let moved = text(&machine, FIXED).replace("[daemon]", "[daemon]\nmode = \"observe\"");
    std::fs::write(&daemon.config, moved).unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_told("daemon.mode is \"observe\", was \"manage\": that cannot change while the daemon runs");

    // A good one is taken.
    let other = FIXED.replace("0x600", "0x700");
    std::fs::write(&daemon.config, text(&machine, &other)).unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until("other masks", |_| masks(&machine)[0] != fixed[0]);

    let refused = daemon.ask(json!({"do": "set-policy", "name": "fixd"}));
    assert!(refused["error"]["text"].as_str().unwrap().contains("did you mean `fixed`?"), "{refused}");
    let settings = json!({"masks": {"fio": "0x00c"}});
    let set = daemon.ask(json!({"do": "set-policy", "name": "fixed", "settings": settings}));
    assert_eq!(set["ok"]["text"], "fixed follows fixed");
    daemon.until("the masks of the order", |_| {
        masks(&machine)[1] != fixed[1] && masks(&machine)[0] == before[0]
    });

    let held = masks(&machine);
    assert!(daemon.ask(json!({"do": "pause"}))["ok"].is_object());
    assert_eq!(masks(&machine), held);
    assert!(daemon.ask(json!({"do": "pause", "release": true}))["ok"].is_object());
    assert_eq!(masks(&machine), before);
    assert!(daemon.ask(json!({"do": "resume"}))["ok"].is_object());
    daemon.until("the masks from before the pause", |_| masks(&machine) == held);
    let status = daemon.ask(json!({"do": "status"}));
    assert_eq!(status["ok"]["policy"], "fixed", "{status}");

    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
    same(&machine.state(), &found, "after SIGTERM");
    assert!(!machine.journal().exists() && !daemon.socket.exists());
}

#[test]
fn status_finds_the_daemon_of_a_root_and_says_who_shares_a_class() {
    let machine = Machine::new("gold-6140");
    let args = ["--set", "socket.path=usual", "--set", "limits.classes=2"];
    let mut daemon = Daemon::start(&machine, "[policy]\nname = \"none\"", &args);
    let status = || {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("waykeeper"));
        let output =
            command.args(["status", "--json", "--root"]).arg(machine.root().prefix()).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    daemon.until("three tenants", |_| {
        status().is_some_and(|status| status["tenants"].as_array().is_some_and(|all| all.len() == 3))
    });
    let status = status().unwrap();
    let tenants = status["tenants"].as_array().unwrap();
    // Two classes for three: who has none of its own is with another, or alone in the default group.
    let grouped: Vec<&Value> = tenants.iter().filter(|tenant| tenant["grouped_why"].is_string()).collect();
    assert!(!grouped.is_empty() && grouped.len() < 3, "{status}");
    for tenant in &grouped {
        let why = tenant["grouped_why"].as_str().unwrap();
        assert!(why.contains("the 2 classes of service") || why.contains("there are 2 classes"), "{why}");
        let told = |one: &&Value| one["text"].as_str().unwrap().contains(tenant["name"].as_str().unwrap());
        let standing = status["standing"].as_array().unwrap().iter().find(told).unwrap();
        assert_eq!(standing["kind"], "grouping", "{status}");
    }
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_does_not_notice() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let mut first = Daemon::start(&machine, FIXED, &[]);
    first.until("fixed masks", |_| masks(&machine) != before);
    let fixed = masks(&machine);
    let second = command(&machine, &first.config, &machine.folder().join("second")).output().unwrap();
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(5), "{told}");
    assert!(told.contains("another waykeeper") && told.lines().count() == 1, "{told}");
    assert_eq!(masks(&machine), fixed);
    first.signal(rustix::process::Signal::INT);
    assert_eq!(first.end(), 0, "{}", first.log());
    same(&machine.state(), &found, "after SIGINT");
}

#[test]
fn a_dry_run_and_an_observer_write_nothing() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    for (mode, told) in [("--dry-run", "would: mask 0x600 of l2fwd"), ("--observe", "taking charge")] {
        let mut daemon = Daemon::start(&machine, FIXED, &[mode]);
        daemon.until_told(told);
        let status = daemon.ask(json!({"do": "status"}));
        assert_eq!(status["ok"]["mode"], mode.trim_start_matches('-'), "{status}");
        let step = status["ok"]["step"].as_u64().unwrap();
        while daemon.ask(json!({"do": "status"}))["ok"]["step"].as_u64().unwrap() < step + 3 {}
        same(&machine.state(), &found, mode);
        assert!(!machine.journal().exists(), "{mode} journals");
        daemon.signal(rustix::process::Signal::TERM);
        assert_eq!(daemon.end(), 0, "{}", daemon.log());
        same(&machine.state(), &found, mode);
    }
}

#[test]
fn a_killed_daemon_is_cleaned_up_after_by_the_next() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    let before = masks(&machine);
    let mut first = Daemon::start(&machine, FIXED, &[]);
    first.until("fixed masks", |_| masks(&machine) != before);
    first.signal(rustix::process::Signal::KILL);
    first.end();
    assert_ne!(masks(&machine), before);
    let mut next = Daemon::start(&machine, "[policy]\nname = \"none\"", &[]);
    // What the first one left is brought back before that is said; groups that go must not be looked at.
    next.until_told("taking charge");
    assert_eq!(masks(&machine), before);
    next.signal(rustix::process::Signal::TERM);
    assert_eq!(next.end(), 0, "{}", next.log());
    same(&machine.state(), &found, "after the second one's end");
}

#[test]
fn what_cannot_be_is_told_in_one_line_and_nothing_is_touched() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    let config = machine.folder().join("waykeeper.toml");
    let told = |more: &str, args: &[&str]| {
        std::fs::write(&config, text(&machine, more)).unwrap();
        let output =
            command(&machine, &config, &machine.folder().join("socket")).args(args).output().unwrap();
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.code(),
            line.lines().last().unwrap_or_default().replace(&*config.to_string_lossy(), "FILE"),
        )
    };
    let (code, line) = told("[policy]\nname = \"a44\"", &[]);
    assert_eq!(
        (code, line.starts_with("error: FILE:4: unknown policy `a44`; did you mean `a4`?")),
        (Some(2), true),
        "{line}"
    );
    let (code, line) = told("", &["--set", "daemon.perid_s=1"]);
    assert_eq!(
        (code, &*line),
        (Some(2), "error: --set: unknown key `daemon.perid_s`; did you mean `daemon.period_s`?")
    );
    // Only the host knows who is there.
    let (code, line) = told("[policy]\nname = \"fixed\"\nsettings.masks = { lfwd = \"0x3\" }", &[]);
    let wanted = "FILE:5: fixed: there is no workload `lfwd`; did you mean `l2fwd`?";
    assert_eq!((code, line.contains(wanted)), (Some(2), true), "{line}");
    let (code, line) = told("[socket]\ngroup = \"no-such-group\"", &[]);
    assert_eq!((code, line.contains("there is no group `no-such-group`")), (Some(2), true), "{line}");
    same(&machine.state(), &found, "after refusals");
    let empty = tempfile::tempdir().unwrap();
    let output =
        command(&machine, &config, &machine.folder().join("socket")).arg("--root").arg(empty.path()).output();
    assert_eq!(output.unwrap().status.code(), Some(2), "a flag given twice");
}

#[test]
fn check_prints_what_is_in_force_and_where_it_was_said() {
    let machine = Machine::new("gold-6140");
    let config = machine.folder().join("waykeeper.toml");
    std::fs::write(&config, text(&machine, FIXED)).unwrap();
    let mut check = command(&machine, &config, Path::new("/x"));
    let output = check.arg("--check").env("WAYKEEPER_LIMITS_CLASSES", "4").output().unwrap();
    assert!(output.status.success());
    let told = String::from_utf8(output.stdout).unwrap();
    let line = |key: &str| {
        let line = told.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key}: {told}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ").replace(&*config.to_string_lossy(), "FILE")
    };
    assert_eq!(line("period_s"), "period_s = 0.05 # FILE:2");
    assert_eq!(line("classes"), "classes = 4 # environment WAYKEEPER_LIMITS_CLASSES");
    assert_eq!(line("path"), "path = \"/x\" # --set");
    assert_eq!(line("# tenant l2fwd"), "# tenant l2fwd # FILE:7");
    assert!(!machine.journal().exists());
}
