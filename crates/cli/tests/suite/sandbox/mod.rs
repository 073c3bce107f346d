//! A whole run of the daemon with only the rights that `dist/waykeeper.service` gives it: its capabilities, no new
//! privileges, a file system in which only the named paths are writable, and the system calls that it names.
//!
//! systemd itself does not run; setpriv, unshare, mount and seccomp do its work. The kernel drivers' own checks
//! (whether a process may open an MSR, or read PCI configuration beyond byte 64) do not happen on files of a virtual
//! host. Needs root, /dev/fuse, and Debian's util-linux and systemd.

use crate::common::daemon;
mod filter;
mod unit;

use daemon::{Daemon, Setup};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use unit::{Places, Unit, enter};
use waykeeper_testbed::{HostState, MountedHost, assert_same_state};

/// A host, systemd's directories beside it, and its state before any daemon.
struct Field {
    unit: Unit,
    machine: MountedHost,
    places: Places,
    setup: Setup,
    group: (String, u32),
    metrics: SocketAddrV4,
    systemd: (PathBuf, UnixDatagram),
    found: HostState,
}

impl Field {
    fn new() -> Field {
        let unit = Unit::shipped();
        let machine = MountedHost::new("gold-6140");
        // Other users need access to the socket.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(machine.folder(), open).expect("the folder is ours");
        let places = Places::make(&unit, machine.folder());
        let group = a_group();
        // A port that was free just now, on an address of loopback that only this process uses.
        let [.., high, low] = std::process::id().to_be_bytes();
        let own = Ipv4Addr::new(127, 77, high, low);
        let free = TcpListener::bind((own, 0)).and_then(|listener| listener.local_addr());
        let metrics = SocketAddrV4::new(own, free.expect("loopback").port());
        let more = format!(
            "group = {:?}\n[metrics]\nlisten = \"{metrics}\"\n[recorder]\ndir = {:?}\n",
            group.0,
            places.state.join("recorder"),
        );
        let (journal, socket) = (places.runtime.join("journal"), places.runtime.join("socket"));
        let setup = Setup::with(&machine, journal, socket, &more);
        let path = machine.folder().join("notify");
        let systemd = UnixDatagram::bind(&path).expect("a socket beside the tree");
        systemd.set_read_timeout(Some(waykeeper_testbed::PATIENCE)).expect("a time");
        let found = machine.state();
        Field { unit, machine, places, setup, group, metrics, systemd: (path, systemd), found }
    }

    /// The prefix of a command that runs it with the unit's rights.
    fn enter(&self, capabilities: &[String]) -> Vec<String> {
        enter(&self.unit, capabilities, self.machine.root().prefix(), &self.places, self.group.1)
    }

    /// Runs another command with the same rights.
    fn within(&self, command: &[&str]) -> Output {
        let words = self.enter(&self.unit.capabilities());
        let done = Command::new(&words[0]).args(&words[1..]).args(command).output();
        done.unwrap_or_else(|error| panic!("{}: {error}", words[0]))
    }

    /// Waits until systemd's socket receives a notification.
    fn hears(&self, wanted: &str) {
        let mut word = [0; 4096];
        loop {
            let length = self.systemd.1.recv(&mut word).unwrap_or_else(|why| panic!("{wanted}: {why}"));
            if String::from_utf8_lossy(&word[..length]).contains(wanted) {
                return;
            }
        }
    }

    /// All actions of a daemon, one after the other, and its end.
    fn live(&self, mut daemon: Daemon) {
        let asked = |daemon: &Daemon, words: Value| daemon.ask(words).expect("it serves");
        if !daemon.in_charge() {
            panic!("{:?}", daemon.end());
        }
        self.hears("READY=1");
        // The policy of the file: masks of tenants and the DCA ways.
        let turned = self.machine.state();
        let mask = |cpu| self.machine.mask_of(cpu);
        let first = mask(0);
        assert_ne!(turned, self.found);
        assert_eq!(self.machine.msr(0, 0xc8b), 0x700);
        // Another policy, which also switches DCA of a port.
        let settings = json!({"masks": {"l2fwd": "0x00c"}, "dca": {"nic0": false}});
        let set = asked(&daemon, json!({"do": "set-policy", "name": "fixed", "settings": settings}));
        assert!(set["ok"]["text"].as_str().unwrap().starts_with("policy fixed starts anew with "), "{set}");
        assert_ne!(mask(0), first);
        assert_ne!(self.machine.state(), turned);
        let held = mask(0);
        assert!(asked(&daemon, json!({"do": "pause", "release": true}))["ok"].is_object());
        assert_ne!(mask(0), held);
        assert!(asked(&daemon, json!({"do": "resume"}))["ok"].is_object());
        assert_eq!(mask(0), held);
        let text = std::fs::read_to_string(&self.setup.config).expect("we wrote it");
        std::fs::write(&self.setup.config, text.replace("period_s = 0.05", "period_s = 0.04")).expect("ours");
        daemon.signal(Signal::HUP);
        self.hears("RELOADING=1");
        self.hears("READY=1");
        let status = asked(&daemon, json!({"do": "status"}));
        assert_eq!(status["ok"]["period_s"], 0.04, "{status}");
        assert_eq!(status["ok"]["tenants"].as_array().map(Vec::len), Some(self.machine.tenants.len()));
        std::fs::write(&self.setup.config, text).expect("ours");
        // A member of the group may read, but not send orders.
        let socket = self.setup.socket.to_str().expect("ASCII");
        let member = |words: &[&str]| {
            let group = format!("--regid={}", self.group.1);
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", &group, "--clear-groups", "--"]);
            command.arg(env!("CARGO_BIN_EXE_waykeeper")).args(words).args(["--socket", socket]);
            command.output().expect("setpriv is there")
        };
        let reads = member(&["status"]);
        assert!(reads.status.success(), "{}", String::from_utf8_lossy(&reads.stderr));
        assert_eq!(member(&["pause"]).status.code(), Some(4), "not permitted");
        let mut metrics = String::new();
        let mut stream = TcpStream::connect(self.metrics).expect("metrics on loopback");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        stream.read_to_string(&mut metrics).expect("it answers");
        assert!(metrics.contains("# TYPE waykeeper_"), "{metrics}");
        daemon.signal(Signal::TERM);
        self.hears("STOPPING=1");
        let (status, said) = daemon.end();
        assert!(status.success(), "{said}");
        let wrong =
            said.lines().filter(|line| line.contains("Permission denied") || line.contains("not permitted"));
        assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&str>::new());
        self.nothing_is_left("after a whole life");
        self.recorded();
    }

    /// The recording includes events between steps.
    fn recorded(&self) {
        let folder = self.places.state.join("recorder");
        let replay = Command::new(env!("CARGO_BIN_EXE_waykeeper")).arg("replay").arg(&folder).output();
        let replay = replay.expect("the program is built");
        let reported = String::from_utf8_lossy(&replay.stdout).into_owned();
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
        assert!(reported.contains("policy-replaced") && reported.contains("restored"), "{reported}");
        std::fs::remove_dir_all(&folder).expect("it is there");
    }

    fn nothing_is_left(&self, after: &str) {
        assert_same_state(&self.machine.state(), &self.found, after);
        assert!(!self.setup.journal.exists(), "{after}: the journal is empty and gone");
    }
}

/// A group of this system other than root's, instead of the one that sysusers.d makes.
fn a_group() -> (String, u32) {
    let groups = std::fs::read_to_string("/etc/group").expect("every system has /etc/group");
    let group = groups.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let id = fields.get(2)?.parse().ok().filter(|id| *id != 0)?;
        Some((fields[0].to_owned(), id))
    });
    group.expect("a group besides root in /etc/group")
}

#[test]
fn the_sandbox_is_one() {
    let field = Field::new();
    let reported = field.within(&["cat", "/proc/self/status"]);
    let reported = String::from_utf8_lossy(&reported.stdout).into_owned();
    let line = |key: &str| {
        let line = reported
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap_or_else(|| panic!("{key}: {reported}"));
        line.trim().to_owned()
    };
    // CAP_DAC_OVERRIDE 1, CAP_SYS_RAWIO 17, CAP_SYS_PTRACE 19, CAP_SYS_ADMIN 21, CAP_PERFMON 38 (linux/capability.h).
    let numbers =
        [("dac_override", 1), ("sys_rawio", 17), ("sys_ptrace", 19), ("sys_admin", 21), ("perfmon", 38)];
    let number =
        |name: &String| numbers.iter().find(|(own, _)| own == name).map(|(_, number)| 1_u64 << number);
    let granted =
        field.unit.capabilities().iter().map(|name| number(name).expect("one of these")).sum::<u64>();
    for key in ["CapEff:", "CapPrm:", "CapBnd:"] {
        assert_eq!(u64::from_str_radix(&line(key), 16), Ok(granted), "{key}");
    }
    assert_eq!(
        (line("CapInh:"), line("CapAmb:"), line("NoNewPrivs:")),
        ("0".repeat(16), "0".repeat(16), "1".into())
    );
    let host = field.machine.root().prefix().to_owned();
    let writes = |path: PathBuf| {
        let path = path.to_str().expect("ASCII").to_owned();
        field.within(&["sh", "-c", "mkdir \"$1\" && rmdir \"$1\"", "try", &path])
    };
    for path in
        [field.machine.folder().join("x"), host.join("sys/bus/x"), PathBuf::from("/etc/waykeeper-test")]
    {
        let done = writes(path.clone());
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && why.contains("Read-only file system"), "{}: {why}", path.display());
    }
    for path in [host.join("sys/fs/resctrl/x"), field.places.runtime.join("x"), field.places.state.join("x")]
    {
        let done = writes(path.clone());
        assert!(done.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&done.stderr));
    }
    field.nothing_is_left("after a look around");
}

#[test]
fn everything_works_with_the_units_rights() {
    let field = Field::new();
    let notify = [("NOTIFY_SOCKET", field.systemd.0.as_path())];
    let words = field.enter(&field.unit.capabilities());
    field.live(field.setup.start_through(&words, &notify));
    // Runs what ExecStopPost= does after a kill, with the same rights.
    let mut daemon = field.setup.start_through(&words, &notify);
    assert!(daemon.in_charge(), "{:?}", daemon.end());
    daemon.signal(Signal::KILL);
    daemon.end();
    assert!(field.setup.journal.exists());
    let after = field.unit.values("ExecStopPost").to_vec();
    assert_eq!(after[0], "/usr/bin/waykeeper");
    let config = format!("WAYKEEPER_CONFIG={}", field.setup.config.display());
    let mut words = vec!["env", config.as_str(), env!("CARGO_BIN_EXE_waykeeper")];
    words.extend(after[1..].iter().map(String::as_str));
    let done = field.within(&words);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    field.nothing_is_left("after restore");
}

/// The virtual host's files need only one capability. So no other action of the daemon needs another one, such as
/// CAP_CHOWN to give files away.
#[test]
fn only_drivers_ask_for_more_than_passing_over_modes() {
    let field = Field::new();
    let notify = [("NOTIFY_SOCKET", field.systemd.0.as_path())];
    field.live(field.setup.start_through(&field.enter(&["dac_override".to_owned()]), &notify));
}

/// The configured group must be one of the unit's groups.
#[test]
fn a_group_that_the_daemon_is_not_in_is_refused_with_what_it_takes() {
    let field = Field::new();
    let capabilities = field.unit.capabilities();
    let words =
        enter(&field.unit, &capabilities, field.machine.root().prefix(), &field.places, field.group.1 + 1);
    let (status, said) = field.setup.start_through(&words, &[]).end();
    assert_eq!(status.code(), Some(4), "{said}");
    let wanted = "must be a member of that group (SupplementaryGroups= of its unit)";
    assert!(said.lines().last().is_some_and(|line| line.contains(wanted)), "{said}");
    field.nothing_is_left("after a refusal");
}

#[test]
fn without_skipping_modes_there_are_no_groups_and_that_is_reported() {
    let field = Field::new();
    let capabilities = field.unit.capabilities();
    let left: Vec<String> = capabilities.iter().filter(|name| *name != "dac_override").cloned().collect();
    assert_eq!(left.len() + 1, capabilities.len());
    let before = field.machine.mask_of(0);
    let mut daemon = field.setup.start_through(&field.enter(&left), &[]);
    assert!(daemon.in_charge(), "{:?}", daemon.end());
    assert_eq!((field.machine.mask_of(0), field.machine.msr(0, 0xc8b)), (before, 0x700));
    let status = daemon.ask(json!({"do": "status"})).expect("it serves");
    let standing = status["ok"]["standing"].to_string();
    assert!(standing.contains("ermi"), "{standing}");
    daemon.signal(Signal::TERM);
    let (status, said) = daemon.end();
    assert!(status.success(), "{said}");
    field.nothing_is_left("after a life without groups");
}

/// Forbidden calls kill the daemon here, so that none remains unnoticed.
#[test]
fn a_whole_life_under_the_filter_of_system_calls() {
    let field = Field::new();
    let mut words = field.enter(&field.unit.capabilities());
    words.extend(filter::under(&field.unit, field.machine.folder()));
    let under = |command: &[&str]| {
        let done = Command::new(&words[0]).args(&words[1..]).args(command).output();
        done.unwrap_or_else(|error| panic!("{}: {error}", words[0]))
    };
    // Proof that the filters work: two are listed, and calls that root could otherwise make kill the process.
    let reported = under(&["cat", "/proc/self/status"]);
    let reported = String::from_utf8_lossy(&reported.stdout).into_owned();
    assert!(reported.contains("Seccomp:\t2\n") && reported.contains("Seccomp_filters:\t2\n"), "{reported}");
    let place = field.places.runtime.to_str().expect("ASCII");
    for forbidden in [&["mount", "-t", "tmpfs", "x", place][..], &["unshare", "--net", "true"]] {
        let killed = under(forbidden).status;
        // The status is that of the executed command: SIGSYS is 31.
        assert_eq!(killed.signal(), Some(31), "{forbidden:?}: {killed}");
    }
    field.live(field.setup.start_through(&words, &[("NOTIFY_SOCKET", field.systemd.0.as_path())]));
}
