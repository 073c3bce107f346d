//! The table of all configuration keys: name, meaning, how a value is read and shown.
//!
//! Files, environment, flags, `--check` and the list of changes of a reload use this table. Must not know where a value
//! comes from.

use super::{Config, ExternalChanges, PathChoice, Ports, SECOND_NS};
use crate::{DaemonMode, Listen};
use std::path::{Path, PathBuf};
use toml::Value;
use waykeeper_units::quantity::{S, SHARE};
use waykeeper_units::{CoreList, Unit};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Section and name, as in `daemon.period_s`.
    pub path: &'static str,
    /// What it means, for people.
    pub what: &'static str,
    /// Whether it can change while the daemon runs.
    pub live: bool,
    /// Sets a value, or returns what would be valid.
    pub(super) set: fn(&mut Config, &Value) -> Result<(), String>,
    /// The value in force, as it is written in a file.
    pub(super) get: fn(&Config) -> Value,
}

impl Key {
    /// Its section.
    pub fn section(&self) -> &'static str {
        self.path.split('.').next().unwrap_or(self.path)
    }
}

/// Whether a section has this name.
pub(super) fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.section() == name)
}

/// Shortest and longest period, seconds. Below, a sample of a real host takes longer than the period (docs of `make
/// bench`); above, counters of root ports wrap unnoticed. Assumption: both limits.
const PERIOD_S: (f64, f64) = (0.005, 3600.0);

/// Least and largest share of a core for the model. Assumption: with less, an answer is too late to be of use.
const TWIN_SHARE: (f64, f64) = (0.05, 1.0);
/// Shortest and longest time between two looks back, seconds; fewest and most intervals of one, of which the first is not
/// used. Assumptions: more would cost more than the number is worth.
const LOOKS_EVERY_S: (f64, f64) = (10.0, 86_400.0);
const LOOK_STEPS: (u32, u32) = (2, 60);

/// Ports that the list of Prometheus exporters assigns (ecosystem.md 3: 9100-9999 is fully allocated).
const TAKEN_PORTS: std::ops::RangeInclusive<u16> = 9100..=9999;

/// All keys, in the order in which they are shown. `policy.settings` and `tenant` are separate lists.
pub const KEYS: &[Key] = &[
    Key {
        path: "daemon.period_s",
        what: "seconds between two samples of the counters",
        live: true,
        set: |config, value| {
            let seconds = within(value, PERIOD_S, ("seconds", S))?;
            config.period_ns = (seconds * SECOND_NS).round() as u64;
            Ok(())
        },
        get: |config| Value::Float(config.period_s()),
    },
    Key {
        path: "daemon.mode",
        what: "manage turns knobs, dry-run only logs what it would turn, observe only samples counters",
        live: false,
        set: |config, value| word(value, MODES).map(|mode| config.mode = mode),
        get: |config| word_of(config.mode, MODES),
    },
    Key {
        path: "daemon.program_counters",
        what: "whether counter registers may be programmed in the modes dry-run and observe where perf does not count \
               the host; they are restored at the end",
        live: false,
        set: |config, value| switch(value).map(|on| config.program_counters = on),
        get: |config| Value::Boolean(config.program_counters),
    },
    Key {
        path: "daemon.root",
        what: "directory where the host's file tree begins",
        live: false,
        set: |config, value| path(value).map(|path| config.root = path),
        get: |config| shown(&config.root),
    },
    Key {
        path: "daemon.journal",
        what: "journal of original knob values; `usual` is the host's own in /run/waykeeper",
        live: false,
        set: |config, value| {
            config.journal = match value.as_str() {
                Some("usual") => None,
                // The journal's lock file has this suffix.
                Some(name) if name.ends_with(".lock") => {
                    return Err("`usual`, or a path that does not end in .lock".to_owned());
                }
                _ => Some(path(value).map_err(|wanted| format!("`usual`, or {wanted}"))?),
            };
            Ok(())
        },
        get: |config| config.journal.as_ref().map_or(text("usual"), shown),
    },
    Key {
        path: "daemon.profile",
        what: "machine profile that `waykeeper probe` wrote; `usual` is the host's own if it exists, `off` \
               uses none",
        live: false,
        set: |config, value| path_choice(value).map(|choice| config.profile = choice),
        get: |config| path_choice_of(&config.profile),
    },
    Key {
        path: "daemon.domain",
        what: "id of the L3 to manage, as in resctrl's schemata; `auto` is the L3 of the first tenant with cores",
        live: false,
        set: |config, value| {
            config.domain = match value.as_str() {
                Some("auto") => None,
                _ => Some(whole(value, 0, u32::MAX).map_err(|wanted| format!("`auto`, or {wanted}"))?),
            };
            Ok(())
        },
        get: |config| config.domain.map_or(text("auto"), |id| Value::Integer(id.into())),
    },
    Key {
        path: "daemon.blind_steps",
        what: "the daemon ends after this many steps in a row without readable counters or masks",
        live: true,
        set: |config, value| whole(value, 1, 1_000_000).map(|steps| config.blind_steps = u64::from(steps)),
        get: |config| Value::Integer(config.blind_steps as i64),
    },
    Key {
        path: "policy.name",
        what: "policy that decides; `waykeeper policy list` lists the policies",
        live: true,
        set: |config, value| string(value, "the name of a policy").map(|name| config.policy.name = name),
        get: |config| text(&config.policy.name),
    },
    Key {
        path: "policy.file",
        what: "file of your own policy in Python, or `off`; FILE.py:CLASS is one of several in it. It is the policy unless \
               policy.name is given",
        live: true,
        set: |config, value| {
            config.file_policy.file = match value.as_str() {
                Some("off") => None,
                _ => {
                    path(value).map_err(|wanted| format!("`off`, or {wanted}"))?;
                    value.as_str().map(str::to_owned)
                }
            };
            Ok(())
        },
        get: |config| config.file_policy.file.as_deref().map_or(text("off"), text),
    },
    Key {
        path: "policy.python",
        what: "program that runs that file: Python 3.10 or later",
        live: true,
        set: |config, value| path(value).map(|path| config.file_policy.python = path),
        get: |config| shown(&config.file_policy.python),
    },
    Key {
        path: "policy.deadline_ms",
        what: "milliseconds that a decision of that file may take; `auto` is a fifth of the period",
        live: true,
        set: |config, value| {
            config.file_policy.deadline_ms = match value.as_str() {
                Some("auto") => None,
                _ => Some(whole(value, 1, 60_000).map_err(|wanted| format!("`auto`, or {wanted}"))?),
            };
            Ok(())
        },
        get: |config| config.file_policy.deadline_ms.map_or(text("auto"), |ms| Value::Integer(ms.into())),
    },
    Key {
        path: "twin.enabled",
        what: "whether a model of this server answers what other layouts would bring; only some policies ask",
        live: false,
        set: |config, value| switch(value).map(|on| config.twin.enabled = on),
        get: |config| Value::Boolean(config.twin.enabled),
    },
    Key {
        path: "twin.share",
        what: "most CPU time of that model, as a share of one core",
        live: false,
        set: |config, value| {
            config.twin.share = within(value, TWIN_SHARE, ("a number", SHARE))?;
            Ok(())
        },
        get: |config| Value::Float(config.twin.share),
    },
    Key {
        path: "twin.cores",
        what: "CPUs on which that model may run: `auto` are those that no tenant is pinned to, or a list like 0-3,8",
        live: false,
        set: |config, value| {
            let wanted = "`auto`, or CPUs like 0-3,8";
            config.twin.cores = match string(value, wanted)?.as_str() {
                "auto" => None,
                list => {
                    let cpus: CoreList = list.parse().map_err(|_| wanted.to_owned())?;
                    Some(Some(cpus).filter(|cpus| !cpus.is_empty()).ok_or_else(|| wanted.to_owned())?)
                }
            };
            Ok(())
        },
        get: |config| config.twin.cores.as_ref().map_or(text("auto"), |cpus| text(&cpus.to_string())),
    },
    Key {
        path: "worth.looks",
        what: "whether the layout as found may be put back for a few steps now and then, to measure what the policy \
               is worth",
        live: true,
        set: |config, value| switch(value).map(|on| config.worth.looks = on),
        get: |config| Value::Boolean(config.worth.looks),
    },
    Key {
        path: "worth.every_s",
        what: "shortest time between two of these looks, seconds",
        live: true,
        set: |config, value| {
            let seconds = within(value, LOOKS_EVERY_S, ("seconds", S))?;
            config.worth.look_back.every_ns = (seconds * SECOND_NS).round() as u64;
            Ok(())
        },
        get: |config| Value::Float(config.worth.look_back.every_ns as f64 / SECOND_NS),
    },
    Key {
        path: "worth.look_steps",
        what: "steps of a look",
        live: true,
        set: |config, value| {
            whole(value, LOOK_STEPS.0, LOOK_STEPS.1).map(|steps| config.worth.look_back.intervals = steps)
        },
        get: |config| Value::Integer(i64::from(config.worth.look_back.intervals)),
    },
    Key {
        path: "limits.masks",
        what: "whether way masks may be changed",
        live: false,
        set: |config, value| switch(value).map(|on| config.limits.masks = on),
        get: |config| Value::Boolean(config.limits.masks),
    },
    Key {
        path: "limits.dca_ways",
        what: "whether the ways that devices fill may be changed",
        live: false,
        set: |config, value| switch(value).map(|on| config.limits.dca_ways = on),
        get: |config| Value::Boolean(config.limits.dca_ways),
    },
    Key {
        path: "limits.dca_ports",
        what: "root ports whose DCA may be switched: all, none, or a list of their addresses",
        live: false,
        set: |config, value| ports(value).map(|ports| config.limits.dca_ports = ports),
        get: |config| match &config.limits.dca_ports {
            Ports::All => text("all"),
            Ports::Only(ports) if ports.is_empty() => text("none"),
            Ports::Only(ports) => Value::Array(ports.iter().map(|port| text(&port.to_string())).collect()),
        },
    },
    Key {
        path: "limits.cpus",
        what: "CPUs whose tenants may be managed: all, or a list like 0-3,8",
        live: false,
        set: |config, value| {
            let wanted = "all, or CPUs like 0-3,8";
            config.limits.cpus = match string(value, wanted)?.as_str() {
                "all" => None,
                list => Some(list.parse().map_err(|_| wanted.to_owned())?),
            };
            Ok(())
        },
        get: |config| config.limits.cpus.as_ref().map_or(text("all"), |cpus| text(&cpus.to_string())),
    },
    Key {
        path: "limits.classes",
        what: "most classes of service to use: all that are free, or a number",
        live: false,
        set: |config, value| {
            config.limits.classes = match value.as_str() {
                Some("all") => None,
                // resctrl's closids fit a byte on every chip (hardware.md 9).
                _ => Some(whole(value, 0, 255).map_err(|wanted| format!("all, or {wanted}"))?),
            };
            Ok(())
        },
        get: |config| config.limits.classes.map_or(text("all"), |classes| Value::Integer(i64::from(classes))),
    },
    Key {
        path: "limits.outsiders",
        what: "reaction when another program changes a managed knob: leave its value, or correct it a few times",
        live: false,
        set: |config, value| word(value, EXTERNAL_CHANGES).map(|what| config.limits.external_changes = what),
        get: |config| word_of(config.limits.external_changes, EXTERNAL_CHANGES),
    },
    Key {
        path: "socket.path",
        what: "path of the control socket; `usual` is the host's own in /run/waykeeper, `off` opens none",
        live: false,
        set: |config, value| path_choice(value).map(|choice| config.socket.path = choice),
        get: |config| path_choice_of(&config.socket.path),
    },
    Key {
        path: "socket.group",
        what: "group whose members may read through the socket; `none` allows only root. Without CAP_CHOWN \
               the daemon must be a member",
        live: false,
        set: |config, value| {
            let name = string(value, "the name of a group, or `none`")?;
            config.socket.group = Some(name).filter(|name| name != "none");
            Ok(())
        },
        get: |config| config.socket.group.as_deref().map_or(text("none"), text),
    },
    Key {
        path: "metrics.listen",
        what: "address for Prometheus, such as 127.0.0.1:19190 or unix:/run/waykeeper/metrics.sock; `off` \
               serves no metrics",
        live: false,
        set: |config, value| listen(value).map(|address| config.metrics = address),
        get: |config| config.metrics.as_ref().map_or(text("off"), |address| text(&address.to_string())),
    },
    Key {
        path: "recorder.dir",
        what: "directory of the flight recorder's files; `off` records nothing",
        live: false,
        set: |config, value| {
            config.recorder.dir = match value.as_str() {
                Some("off") => None,
                _ => Some(path(value).map_err(|wanted| format!("`off`, or {wanted}"))?),
            };
            Ok(())
        },
        get: |config| config.recorder.dir.as_ref().map_or(text("off"), shown),
    },
    Key {
        path: "recorder.keep_hours",
        what: "hours after which the recorder deletes a step",
        live: false,
        set: |config, value| whole(value, 1, 8760).map(|hours| config.recorder.keep_hours = hours),
        get: |config| Value::Integer(i64::from(config.recorder.keep_hours)),
    },
    Key {
        path: "recorder.keep_mib",
        what: "most MiB of disk that the recorder uses",
        live: false,
        set: |config, value| whole(value, 1, 1 << 20).map(|mib| config.recorder.keep_mib = mib),
        get: |config| Value::Integer(i64::from(config.recorder.keep_mib)),
    },
    Key {
        path: "nri.enabled",
        what: "whether pods of Kubernetes become tenants, as a plugin of the container runtime (NRI) reports them",
        live: false,
        set: |config, value| switch(value).map(|on| config.nri.enabled = on),
        get: |config| Value::Boolean(config.nri.enabled),
    },
    Key {
        path: "nri.socket",
        what: "the container runtime's socket for its plugins",
        live: false,
        set: |config, value| path(value).map(|path| config.nri.plugin.socket = path),
        get: |config| shown(&config.nri.plugin.socket),
    },
    Key {
        path: "nri.name",
        what: "name of the plugin in the container runtime's log",
        live: false,
        set: |config, value| {
            let wanted = "1 to 64 letters, digits, `-`, `_`, `.` and `+`";
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
            let is_name = |name: &String| (1..=64).contains(&name.len()) && name.chars().all(is_plain);
            let name = Some(string(value, wanted)?).filter(is_name);
            config.nri.plugin.name = name.ok_or_else(|| wanted.to_owned())?;
            Ok(())
        },
        get: |config| text(&config.nri.plugin.name),
    },
    Key {
        path: "nri.index",
        what: "place of the plugin among those of the container runtime, which calls the lowest first",
        live: false,
        set: |config, value| whole(value, 0, 99).map(|index| config.nri.plugin.index = index),
        get: |config| Value::Integer(config.nri.plugin.index.into()),
    },
    Key {
        path: "log.level",
        what: "error, warn, info, debug or trace, or directives of tracing-subscriber",
        live: false,
        set: |config, value| string(value, "a level such as info").map(|level| config.log.level = level),
        get: |config| text(&config.log.level),
    },
    Key {
        path: "log.format",
        what: "text, or json for programs",
        live: false,
        set: |config, value| word(value, FORMATS).map(|json| config.log.json = json),
        get: |config| word_of(config.log.json, FORMATS),
    },
];

const MODES: &[(&str, DaemonMode)] =
    &[("manage", DaemonMode::Manage), ("dry-run", DaemonMode::DryRun), ("observe", DaemonMode::Observe)];
const EXTERNAL_CHANGES: &[(&str, ExternalChanges)] =
    &[("leave", ExternalChanges::Leave), ("correct", ExternalChanges::Correct)];
const FORMATS: &[(&str, bool)] = &[("text", false), ("json", true)];

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn shown(path: impl AsRef<Path>) -> Value {
    text(&path.as_ref().display().to_string())
}

/// A number in a range; the error names the unit that was probably meant.
fn within(value: &Value, (low, high): (f64, f64), (what, unit): (&str, Unit)) -> Result<f64, String> {
    let is_within = |number: f64| (low..=high).contains(&number);
    let number = value.as_float().or(value.as_integer().map(|whole| whole as f64));
    number.filter(|number| is_within(*number)).ok_or_else(|| {
        let meant = number.map(|number| unit.meant(number, is_within)).unwrap_or_default();
        format!("{what} from {low} to {high}{meant}")
    })
}

fn string(value: &Value, wanted: &str) -> Result<String, String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned).ok_or_else(|| wanted.to_owned())
}

fn switch(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "true or false".to_owned())
}

fn whole(value: &Value, low: u32, high: u32) -> Result<u32, String> {
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
    let number = number.filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("a whole number from {low} to {high}"))
}

fn path(value: &Value) -> Result<PathBuf, String> {
    let wanted = "an absolute path";
    let path = PathBuf::from(string(value, wanted)?);
    if path.is_absolute() { Ok(path) } else { Err(wanted.to_owned()) }
}

fn word<T: Copy>(value: &Value, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| value.as_str() == Some(word)).map(|(_, meant)| *meant);
    found.ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        known.join(" or ")
    })
}

fn word_of<T: PartialEq>(meant: T, words: &[(&str, T)]) -> Value {
    text(words.iter().find(|(_, known)| *known == meant).map_or("", |(word, _)| word))
}

fn ports(value: &Value) -> Result<Ports, String> {
    let wanted = || "all, none, or a list of PCI addresses of root ports like [\"0000:3a:00.0\"]".to_owned();
    match value {
        Value::String(text) if text == "all" => Ok(Ports::All),
        Value::String(text) if text == "none" => Ok(Ports::Only(Vec::new())),
        Value::Array(list) => {
            let address = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
            list.iter().map(address).collect::<Option<_>>().map(Ports::Only).ok_or_else(wanted)
        }
        _ => Err(wanted()),
    }
}

fn path_choice(value: &Value) -> Result<PathChoice, String> {
    match value.as_str() {
        Some("off") => Ok(PathChoice::Off),
        Some("usual") => Ok(PathChoice::Usual),
        _ => path(value).map(PathChoice::At).map_err(|wanted| format!("`usual`, `off`, or {wanted}")),
    }
}

fn path_choice_of(place: &PathChoice) -> Value {
    match place {
        PathChoice::Off => text("off"),
        PathChoice::Usual => text("usual"),
        PathChoice::At(path) => shown(path),
    }
}

fn listen(value: &Value) -> Result<Option<Listen>, String> {
    let wanted = || {
        let (low, high) = TAKEN_PORTS.into_inner();
        format!(
            "`off`, an address and a port like {}, or `unix:` and an absolute path; ports {low} to {high} \
             belong to other exporters",
            Listen::default()
        )
    };
    let address = string(value, "").map_err(|_| wanted())?;
    if address == "off" {
        return Ok(None);
    }
    match address.parse().map_err(|_| wanted())? {
        Listen::Tcp(address) if TAKEN_PORTS.contains(&address.port()) => Err(wanted()),
        listen => Ok(Some(listen)),
    }
}
