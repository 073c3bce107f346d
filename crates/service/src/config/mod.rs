//! The daemon's configuration: defaults, files, environment and flags, merged in this order.
//!
//! Every value keeps its source, and every error names the source, the key, the value and what would be valid. Must not
//! know the host: the engine checks whether a policy or a tenant fits it.

mod error;
mod files;
mod keys;
mod layers;
mod places;
mod show;

pub use error::ConfigError;
pub use keys::{KEYS, Key};
pub use layers::{Flag, Inputs, Sources, ValueSource, tenants_in};
pub use show::{differences, show};

use crate::{DaemonMode, FilePolicyChoice, Listen, ServersConfig};
use std::path::{Path, PathBuf};
use toml::Table;
use waykeeper_control::LookBack;
use waykeeper_kernel::journal::usual_path;
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::root::Root;
use waykeeper_kernel::system::{RealSystem, System};
use waykeeper_nri::PluginConfig;
use waykeeper_tenants::TenantSpec;
use waykeeper_units::CoreList;

/// The usual configuration file; `conf.d/*.toml` beside it are read after it.
pub const USUAL_FILE: &str = "/etc/waykeeper/waykeeper.toml";

/// Nanoseconds per second.
const SECOND_NS: f64 = 1e9;

/// All values of a configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Time between two steps, nanoseconds (A4 and IAT: 1 s).
    pub period_ns: u64,
    /// What the daemon may do.
    pub mode: DaemonMode,
    /// Whether a daemon that manages nothing may program counter registers where perf does not count the host.
    pub program_counters: bool,
    /// The root prefix of the host.
    pub root: PathBuf,
    /// The journal's file; with `None` the usual one of that host.
    pub journal: Option<PathBuf>,
    /// The machine profile to use.
    pub profile: PathChoice,
    /// The id of the L3 to manage; with `None` that of the first tenant that has cores.
    pub domain: Option<u32>,
    /// The daemon ends after this many consecutive steps in which neither counters nor masks could be read.
    pub blind_steps: u64,
    /// The policy.
    pub policy: PolicyChoice,
    /// The policy's file, if it is not a built-in policy.
    pub file_policy: FilePolicyChoice,
    /// The model of this server that answers the policy's questions.
    pub twin: TwinChoice,
    /// How it is measured what the policy is worth.
    pub worth: WorthChoice,
    /// Which knobs may be set.
    pub limits: ConfigLimits,
    /// The control socket.
    pub socket: SocketChoice,
    /// Where metrics are served; with `None` nowhere.
    pub metrics: Option<Listen>,
    /// The flight recorder.
    pub recorder: RecorderChoice,
    /// The plugin of the container runtime.
    pub nri: NriChoice,
    /// The log.
    pub log: LogChoice,
    /// The declared tenants, in the order of the files.
    pub tenants: Vec<TenantSpec>,
    /// The source of each value.
    pub sources: Sources,
}

/// A policy and its settings.
#[derive(Clone, PartialEq, Debug)]
pub struct PolicyChoice {
    /// Its name.
    pub name: String,
    /// Its settings; a setting that is not named has the policy's default.
    pub settings: Table,
}

/// The model of this server that answers a policy's questions.
#[derive(Clone, PartialEq, Debug)]
pub struct TwinChoice {
    /// Whether it answers at all.
    pub enabled: bool,
    /// Most CPU time, as a share of one core, 0..1.
    pub share: f64,
    /// CPUs of this machine on which it may run; with `None` those that no tenant is pinned to.
    pub cores: Option<CoreList>,
}

/// How it is measured what the policy is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorthChoice {
    /// Whether the layout as found may be looked at.
    pub looks: bool,
    /// How often and how long.
    pub look_back: LookBack,
}

impl WorthChoice {
    /// The looks that are allowed.
    pub fn allowed(&self) -> Option<LookBack> {
        self.looks.then_some(self.look_back)
    }
}

/// Which knobs may be set, and how many resources used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigLimits {
    /// Way masks of tenants.
    pub masks: bool,
    /// The ways that devices may fill.
    pub dca_ways: bool,
    /// The root ports whose DCA may be switched.
    pub dca_ports: Ports,
    /// CPUs whose tenants may be managed; with `None` all.
    pub cpus: Option<CoreList>,
    /// Most classes of service to use, besides the default group's; with `None` all that are free.
    pub classes: Option<u32>,
    /// Reaction to an external change of a managed knob.
    pub external_changes: ExternalChanges,
}

/// Root ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ports {
    /// All of them.
    All,
    /// Only these.
    Only(Vec<PciAddress>),
}

/// Reaction to an external change of a managed knob or of a tenant's resctrl group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExternalChanges {
    /// Report it and accept the other value.
    Leave,
    /// Report it and correct it; a knob at most
    /// [`ControlConfig::TAKE_BACK`](waykeeper_control::ControlConfig::TAKE_BACK) times.
    Correct,
}

/// The control socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketChoice {
    /// Its path.
    pub path: PathChoice,
    /// The group whose members may read through it; with `None` only root.
    pub group: Option<String>,
}

/// A file or folder that may be absent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathChoice {
    /// None.
    Off,
    /// The usual path of that host.
    Usual,
    /// This path.
    At(PathBuf),
}

/// The flight recorder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecorderChoice {
    /// Directory of its files; with `None` nothing is recorded.
    pub dir: Option<PathBuf>,
    /// Hours for which a step is kept.
    pub keep_hours: u32,
    /// Most MiB of disk that it uses.
    pub keep_mib: u32,
}

/// The plugin of the container runtime, which makes pods tenants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NriChoice {
    /// Whether it is used.
    pub enabled: bool,
    /// The runtime's socket, and what the plugin calls itself.
    pub plugin: PluginConfig,
}

/// The log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogChoice {
    /// A level, or directives of `tracing-subscriber`.
    pub level: String,
    /// Whether to write JSON, one object per line.
    pub json: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            period_ns: 1_000_000_000,
            mode: DaemonMode::Manage,
            program_counters: false,
            root: PathBuf::from("/"),
            journal: None,
            profile: PathChoice::Usual,
            domain: None,
            blind_steps: 30,
            policy: PolicyChoice { name: "waykeeper".to_owned(), settings: Table::new() },
            file_policy: FilePolicyChoice::default(),
            twin: TwinChoice { enabled: true, share: 0.2, cores: None },
            worth: WorthChoice { looks: false, look_back: LookBack::default() },
            limits: ConfigLimits {
                masks: true,
                dca_ways: true,
                dca_ports: Ports::All,
                cpus: None,
                classes: None,
                external_changes: ExternalChanges::Leave,
            },
            socket: SocketChoice { path: PathChoice::Usual, group: None },
            metrics: None,
            recorder: RecorderChoice { dir: None, keep_hours: 24, keep_mib: 256 },
            nri: NriChoice {
                enabled: false,
                plugin: PluginConfig {
                    socket: PathBuf::from(PluginConfig::SOCKET),
                    name: PluginConfig::NAME.to_owned(),
                    index: PluginConfig::INDEX,
                    wait: PluginConfig::WAIT,
                    stall: PluginConfig::STALL,
                },
            },
            log: LogChoice { level: "info".to_owned(), json: false },
            tenants: Vec::new(),
            sources: Sources::default(),
        }
    }
}

impl Config {
    /// Reads all sources, with the files of this machine.
    ///
    /// # Errors
    /// The first error found.
    pub fn load(inputs: &Inputs) -> Result<Config, ConfigError> {
        Config::load_on(&RealSystem, inputs)
    }

    /// Reads all sources, with the files of a system.
    ///
    /// # Errors
    /// The first error found.
    pub fn load_on(system: &dyn System, inputs: &Inputs) -> Result<Config, ConfigError> {
        layers::load(system, inputs)
    }

    /// The root of the host's file tree.
    pub fn host_root(&self) -> Root {
        Root::at(&self.root)
    }

    /// The journal of that host.
    pub fn journal_path(&self) -> PathBuf {
        self.journal.clone().unwrap_or_else(|| usual_path(&self.host_root()))
    }

    /// The control socket of that host, if one is wanted.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match &self.socket.path {
            PathChoice::Off => None,
            PathChoice::Usual => Some(usual_socket(&self.host_root())),
            PathChoice::At(path) => Some(path.clone()),
        }
    }

    /// How many external changes of a knob are corrected.
    pub fn take_back(&self) -> u32 {
        match self.limits.external_changes {
            ExternalChanges::Leave => 0,
            ExternalChanges::Correct => waykeeper_control::ControlConfig::TAKE_BACK,
        }
    }

    /// Seconds between two steps.
    pub fn period_s(&self) -> f64 {
        self.period_ns as f64 / SECOND_NS
    }
}

/// The control socket of the host under `root` unless the configuration names another: [`ServersConfig::SOCKET`], and
/// for another root one beside it with the name of that host's usual journal.
pub fn usual_socket(root: &Root) -> PathBuf {
    let journal = usual_path(root);
    let tree =
        journal.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("journal-"));
    let usual = Path::new(ServersConfig::SOCKET);
    tree.map_or_else(|| usual.to_owned(), |tree| usual.with_file_name(format!("{tree}.sock")))
}

#[cfg(test)]
mod tests;
