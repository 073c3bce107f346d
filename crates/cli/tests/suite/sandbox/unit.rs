//! The settings of `dist/waykeeper.service` that remove rights, and the same done by hand: capabilities, a read-only
//! file system, and the allowed system calls.
//!
//! Must not know what runs under it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings of the unit's `[Service]` that are not done by hand here, and why not. A setting in neither list fails the
/// tests: it may remove a right that the daemon needs.
const NOT_DONE: [&str; 30] = [
    // Start and end of the service, not its rights.
    "Type",
    "NotifyAccess",
    "ExecStart",
    "ExecReload",
    "ExecStopPost",
    "Restart",
    "RestartSec",
    "RestartPreventExitStatus",
    "WatchdogSec",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "OOMScoreAdjust",
    "User",
    "RuntimeDirectoryMode",
    "RuntimeDirectoryPreserve",
    "StateDirectoryMode",
    "ConfigurationDirectory",
    "RemoveIPC",
    "KeyringMode",
    // The device cgroup and the firewall of a service need systemd. The virtual host's MSRs are files.
    "DevicePolicy",
    "DeviceAllow",
    "IPAddressDeny",
    "IPAddressAllow",
    // The virtual host is below /tmp, the program may be below a home folder.
    "ProtectHome",
    "PrivateTmp",
    // Covered by the read-only file system or by removed capabilities.
    "ProtectControlGroups",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectClock",
    "ProtectHostname",
];

/// Settings that are done by hand.
const DONE: [&str; 19] = [
    "SupplementaryGroups",
    "CapabilityBoundingSet",
    "AmbientCapabilities",
    "NoNewPrivileges",
    "ProtectSystem",
    "ProtectKernelTunables",
    "ReadWritePaths",
    "RuntimeDirectory",
    "StateDirectory",
    "UMask",
    "RestrictAddressFamilies",
    "MemoryDenyWriteExecute",
    "RestrictRealtime",
    "RestrictNamespaces",
    "RestrictSUIDSGID",
    "LockPersonality",
    "SystemCallArchitectures",
    "SystemCallFilter",
    "SystemCallErrorNumber",
];

/// The unit's `[Service]`: the values of each setting, with those of repeated lines joined.
pub struct Unit(BTreeMap<String, Vec<String>>);

impl Unit {
    /// Reads the shipped unit.
    pub fn shipped() -> Unit {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/waykeeper.service");
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (_, service) = text.split_once("[Service]\n").expect("the unit has a section Service");
        let (service, _) = service.split_once("\n[").expect("and another one after it");
        let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in service.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{path}: {line}"));
            let known = NOT_DONE.contains(&key) || DONE.contains(&key);
            assert!(known, "{path}: {line}: these tests neither do it by hand nor say why not");
            settings.entry(key.to_owned()).or_default().extend(value.split_whitespace().map(str::to_owned));
        }
        Unit(settings)
    }

    /// The values of a setting that the tests rely on.
    pub fn values(&self, key: &str) -> &[String] {
        self.0.get(key).unwrap_or_else(|| panic!("dist/waykeeper.service has no {key}= any more"))
    }

    fn says(&self, key: &str, value: &str) {
        assert_eq!(self.values(key), [value.to_owned()], "{key}");
    }

    /// Its capabilities, with setpriv's names.
    pub fn capabilities(&self) -> Vec<String> {
        let names = self.values("CapabilityBoundingSet").iter();
        names.map(|name| name.strip_prefix("CAP_").expect("a capability").to_lowercase()).collect()
    }

    /// Every allowed system call, with groups expanded as systemd does.
    pub fn calls(&self) -> BTreeSet<String> {
        let reported = Command::new("systemd-analyze").args(["--no-pager", "syscall-filter"]).output();
        let reported = reported.unwrap_or_else(|error| panic!("not run: needs systemd-analyze: {error}"));
        assert!(reported.status.success(), "{}", String::from_utf8_lossy(&reported.stderr));
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut group = String::new();
        for line in String::from_utf8_lossy(&reported.stdout).lines() {
            match (line.strip_prefix("    "), line.trim_start()) {
                (_, comment) if comment.is_empty() || comment.starts_with('#') => {}
                (None, name) => group = name.to_owned(),
                (Some(_), member) => groups.entry(group.clone()).or_default().push(member.to_owned()),
            }
        }
        let mut open = self.values("SystemCallFilter").to_vec();
        let mut calls = BTreeSet::new();
        while let Some(name) = open.pop() {
            if name.starts_with('@') {
                open.extend(groups.get(&name).unwrap_or_else(|| panic!("systemd knows no {name}")).clone());
            } else {
                assert!(!name.starts_with('~'), "{name}: a list of what is not let through");
                calls.insert(name);
            }
        }
        assert!(calls.len() > 200, "{calls:?}");
        calls
    }
}

/// Folders in place of systemd's, below a folder of the test.
pub struct Places {
    pub runtime: PathBuf,
    pub state: PathBuf,
}

impl Places {
    /// Creates them, as systemd does before a start.
    pub fn make(unit: &Unit, below: &Path) -> Places {
        let make = |key: &str, top: &str| {
            let path = below.join(top).join(&unit.values(key)[0]);
            std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            path
        };
        Places { runtime: make("RuntimeDirectory", "run"), state: make("StateDirectory", "lib") }
    }
}

/// Makes the named paths writable and all others read-only, except /dev and /proc themselves, and then executes the
/// command.
const ENTER: &str = r#"
set -eu
writable=
while [ "$1" != -- ]; do mount --bind "$1" "$1"; writable="$writable $1"; shift; done
shift
for place in $(cut -d' ' -f5 /proc/self/mountinfo); do
    case " $writable /proc /dev " in *" $place "*) continue ;; esac
    # Another test's mount may have ended by now. What matters is looked at from inside.
    mount -o remount,bind,ro "$place" 2>/dev/null || :
done
umask "$UMASK"
exec "$@"
"#;

/// The prefix of a command that gives it only the unit's rights, on a host whose tree begins at `root`.
pub fn enter(unit: &Unit, capabilities: &[String], root: &Path, places: &Places, group: u32) -> Vec<String> {
    unit.says("NoNewPrivileges", "yes");
    unit.says("ProtectSystem", "strict");
    unit.says("ProtectKernelTunables", "yes");
    assert!(unit.values("AmbientCapabilities").is_empty());
    let named = unit.values("ReadWritePaths").iter().map(|path| {
        let path = path.strip_prefix("-/").expect("a path that need not be there");
        root.join(path)
    });
    // ProtectSystem=strict leaves out /dev, /proc and /sys; ProtectKernelTunables adds /sys and /proc/sys.
    let left = ["dev", "proc"].map(|top| root.join(top));
    let own = [places.runtime.clone(), places.state.clone()];
    let writable = named.chain(left).chain(own).filter(|path| path.exists());
    let umask = format!("UMASK={}", unit.values("UMask")[0]);
    let mut words: Vec<String> = ["env", &umask, "unshare", "--mount", "--propagation", "private"]
        .into_iter()
        .chain(["sh", "-c", ENTER, "sandbox"])
        .map(str::to_owned)
        .collect();
    words.extend(writable.map(|path| path.to_str().expect("ASCII").to_owned()));
    words.extend(
        ["--", "setpriv", "--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all"].map(str::to_owned),
    );
    words.push(format!("--groups={group}"));
    let more: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    words.push(format!("--bounding-set=-all{more}"));
    words.push("--".to_owned());
    words
}
