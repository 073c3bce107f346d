//! What the operator wants of the daemon: defaults, files, environment and flags, one over the other.
//!
//! Every value knows where it came from, and every mistake names that place, the key, the value and what would be taken.
//! Reads files and nothing else: whether a policy or a tenant fits the host is found out where the host is known.

mod error;
mod files;
mod keys;
mod layers;
mod show;

pub use error::ConfigError;
pub use keys::{KEYS, Key};
pub use layers::{Flag, Inputs, Source, Stated};
pub use show::{differences, show};

use crate::{EdgeConfig, Listen, Mode};
use std::path::{Path, PathBuf};
use toml::Table;
use waykeeper_linux::journal::usual_path;
use waykeeper_linux::pci::PciAddress;
use waykeeper_linux::root::Root;
use waykeeper_linux::tenants::TenantSpec;
use waykeeper_units::CoreList;

/// Where the configuration lies unless somebody names another file; `conf.d/*.toml` beside it are read after it.
pub const USUAL_FILE: &str = "/etc/waykeeper/waykeeper.toml";

/// Nanoseconds of a second.
const SECOND_NS: f64 = 1e9;

/// Everything that can be said.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Time between two steps, nanoseconds (A4 and IAT: 1 s).
    pub period_ns: u64,
    /// What the daemon may do.
    pub mode: Mode,
    /// The root prefix of the host.
    pub root: PathBuf,
    /// The journal's file, if not the usual one of that host.
    pub journal: Option<PathBuf>,
    /// The machine profile to go by.
    pub profile: Place,
    /// The id of the L3 to manage; `None`: that of the first tenant that has cores.
    pub domain: Option<u32>,
    /// Steps in a row in which neither counters nor masks could be read before the daemon gives up.
    pub blind_steps: u64,
    /// The policy.
    pub policy: PolicyChoice,
    /// What may be touched.
    pub limits: Limits,
    /// The control socket.
    pub socket: SocketChoice,
    /// Where metrics are served; `None`: nowhere.
    pub metrics: Option<Listen>,
    /// The flight recorder.
    pub recorder: RecorderChoice,
    /// The log.
    pub log: LogChoice,
    /// Who is looked after, in the order of the files.
    pub tenants: Vec<TenantSpec>,
    /// Where each of these was said.
    pub stated: Stated,
}

/// A policy and its settings.
#[derive(Clone, PartialEq, Debug)]
pub struct PolicyChoice {
    /// Its name.
    pub name: String,
    /// Its settings; what is not named has the policy's default.
    pub settings: Table,
}

/// What may be touched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Way masks of tenants.
    pub masks: bool,
    /// The ways devices may fill.
    pub dca_ways: bool,
    /// The root ports whose DCA may be switched.
    pub dca_ports: Ports,
    /// CPUs whose tenants may be managed; `None`: all.
    pub cpus: Option<CoreList>,
    /// Most classes of service to take, besides the default group's; `None`: as many as are free.
    pub classes: Option<u32>,
    /// What becomes of a knob of ours that somebody else turns.
    pub outsiders: Outsiders,
}

/// Root ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ports {
    /// All of them.
    All,
    /// These; none if empty.
    Only(Vec<PciAddress>),
}

/// What becomes of a knob or a place of ours that somebody else turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outsiders {
    /// It is told, and theirs.
    Leave,
    /// It is told and put back; a knob at most [`ControlConfig::TAKE_BACK`](waykeeper_control::ControlConfig::TAKE_BACK)
    /// times.
    Correct,
}

/// The control socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketChoice {
    /// Where it lies.
    pub path: Place,
    /// The group that may read through it; `None`: root alone.
    pub group: Option<String>,
}

/// A file or folder that may be left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// There is none.
    Off,
    /// The usual one of that host.
    Usual,
    /// This one.
    At(PathBuf),
}

/// The flight recorder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecorderChoice {
    /// Where it keeps its files; `None`: nothing is recorded.
    pub dir: Option<PathBuf>,
    /// Hours that are kept.
    pub keep_hours: u32,
    /// Most MiB of disk that it fills.
    pub keep_mib: u32,
}

/// The log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogChoice {
    /// What is told: a level, or directives as `tracing-subscriber` takes them.
    pub level: String,
    /// One JSON object a line.
    pub json: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            period_ns: 1_000_000_000,
            mode: Mode::Manage,
            root: PathBuf::from("/"),
            journal: None,
            profile: Place::Usual,
            domain: None,
            blind_steps: 30,
            policy: PolicyChoice { name: "waykeeper".to_owned(), settings: Table::new() },
            limits: Limits {
                masks: true,
                dca_ways: true,
                dca_ports: Ports::All,
                cpus: None,
                classes: None,
                outsiders: Outsiders::Leave,
            },
            socket: SocketChoice { path: Place::Usual, group: None },
            metrics: None,
            recorder: RecorderChoice { dir: None, keep_hours: 24, keep_mib: 256 },
            log: LogChoice { level: "info".to_owned(), json: false },
            tenants: Vec::new(),
            stated: Stated::default(),
        }
    }
}

impl Config {
    /// Reads everything there is to read.
    ///
    /// # Errors
    /// The first thing wrong.
    pub fn load(inputs: &Inputs) -> Result<Config, ConfigError> {
        layers::load(inputs)
    }

    /// The host.
    pub fn host_root(&self) -> Root {
        Root::at(&self.root)
    }

    /// The journal of that host.
    pub fn journal_path(&self) -> PathBuf {
        self.journal.clone().unwrap_or_else(|| usual_path(&self.host_root()))
    }

    /// The control socket of that host, if there is to be one.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match &self.socket.path {
            Place::Off => None,
            Place::Usual => Some(usual_socket(&self.host_root())),
            Place::At(path) => Some(path.clone()),
        }
    }

    /// How often a knob is taken back from somebody else.
    pub fn take_back(&self) -> u32 {
        match self.limits.outsiders {
            Outsiders::Leave => 0,
            Outsiders::Correct => waykeeper_control::ControlConfig::TAKE_BACK,
        }
    }

    /// Seconds between two steps.
    pub fn period_s(&self) -> f64 {
        self.period_ns as f64 / SECOND_NS
    }
}

/// The control socket of the host under `root` unless somebody names another: [`EdgeConfig::SOCKET`], and for a tree
/// elsewhere one beside it of the same name as that host's usual journal.
pub fn usual_socket(root: &Root) -> PathBuf {
    let journal = usual_path(root);
    let tree =
        journal.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("journal-"));
    let usual = Path::new(EdgeConfig::SOCKET);
    tree.map_or_else(|| usual.to_owned(), |tree| usual.with_file_name(format!("{tree}.sock")))
}

#[cfg(test)]
mod tests;
