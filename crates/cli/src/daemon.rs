//! `waykeeper daemon`: the service in the foreground, its configuration, its log.
//!
//! Must not contain the daemon's logic, which is in `waykeeper_service`.

use crate::exit::{self, Failure};
use crate::{out, restore};
use clap::Args;
use std::path::PathBuf;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use waykeeper_kernel::resctrl::{ResctrlError, ResctrlErrorKind};
use waykeeper_kernel::system;
use waykeeper_kernel::text_file::TextFileError;
use waykeeper_linux_host::{GroupsError, OpenError};
use waykeeper_service::config::{self, Config, ConfigError, Flag, Inputs, USUAL_FILE};
use waykeeper_service::daemon::{self, DaemonError};
use waykeeper_service::linux::check_host;
use waykeeper_service::{DaemonMode, ServersError, SocketFileError};

const EXAMPLES: &str = "\
Examples:
  waykeeper daemon                             manage this host by /etc/waykeeper/waykeeper.toml
  waykeeper daemon --observe                   only watch; without declared tenants those it finds
  waykeeper daemon --dry-run                   log what the policy would turn, and write nothing
  waykeeper daemon --config my.toml --check    print each value in force and where it was set
  waykeeper daemon --root /mnt/vhost --policy a4 --set daemon.period_s=0.1    manage a virtual host

Later sources override earlier ones: defaults, the configuration file, conf.d/*.toml beside it in
the order of their names, WAYKEEPER_SECTION_KEY in the environment, the command line. [[tenant]]
tables of all files add up. SIGHUP reloads the configuration; one with a mistake is refused and
changes nothing. SIGTERM and Ctrl-C end the daemon and restore every knob. Knobs that a crash left
changed are restored at the next start, or by `waykeeper restore`.";

/// Arguments of `waykeeper daemon`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DaemonArgs {
    /// Configuration file [default: /etc/waykeeper/waykeeper.toml]
    #[arg(long, value_name = "FILE", env = "WAYKEEPER_CONFIG")]
    config: Option<PathBuf>,
    /// Directory where the host's file tree begins [default: the configuration's]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Journal of original knob values [default: the configuration's]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Let the policy decide and log what it would turn, but write no knob (counter registers only with
    /// daemon.program_counters = true, which restores them)
    #[arg(long, conflicts_with = "observe")]
    dry_run: bool,
    /// Sample the counters only: turn no knob; needs no declared tenants, no CAT, and no resctrl
    #[arg(long)]
    observe: bool,
    /// Policy that manages the host [default: the configuration's]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Set a key of the configuration, such as daemon.period_s=0.5; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Print the configuration in force and where each value was set, then exit
    #[arg(long)]
    check: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let wanted = || format!("`{text}` is not KEY=VALUE; write for example daemon.period_s=0.5");
    let (key, value) = text.split_once('=').ok_or_else(wanted)?;
    if key.trim().is_empty() { Err(wanted()) } else { Ok((key.trim().to_owned(), value.trim().to_owned())) }
}

impl DaemonArgs {
    fn inputs(&self) -> Result<Inputs, Failure> {
        let mut flags = Vec::new();
        let mut flag = |flag: &str, key: &str, value: String| {
            flags.push(Flag { flag: flag.to_owned(), key: key.to_owned(), value });
        };
        if let Some(root) = &self.root {
            // The canonical path gives one tree one journal.
            let root = restore::host_at(root)?;
            flag("--root", "daemon.root", root.prefix().display().to_string());
        }
        if let Some(journal) = &self.journal {
            let path = std::path::absolute(journal).map_err(|why| Failure::io("--journal", &why))?;
            flag("--journal", "daemon.journal", path.display().to_string());
        }
        if self.dry_run {
            flag("--dry-run", "daemon.mode", "dry-run".to_owned());
        }
        if self.observe {
            flag("--observe", "daemon.mode", "observe".to_owned());
        }
        if let Some(policy) = &self.policy {
            flag("--policy", "policy.name", policy.clone());
        }
        for (key, value) in &self.set {
            flag("--set", key, value.clone());
        }
        Ok(Inputs { file: self.config.clone(), environment: environment(), flags })
    }
}

/// The environment variables for the configuration; names that are not UTF-8 are left out.
pub fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Runs the daemon.
pub fn daemon(args: DaemonArgs) -> Result<(), Failure> {
    let inputs = args.inputs()?;
    let config = Config::load(&inputs)?.with_file_policy(system::real().as_ref())?;
    config.check_policy()?;
    if let Some(note) = config.unused_file_policy() {
        exit::eprint_line(&format!("note: {note}"));
    }
    if args.check {
        config.check_places(system::real().as_ref())?;
        out::text(&config::show(&config))?;
        // The configuration may be for another machine.
        if let Some(why) = refused_here(&config, &inputs) {
            exit::eprint_line(&format!("warning: the daemon would not start on this host: {why}"));
        }
        return Ok(());
    }
    if let Some(why) = no_tenant(&config, &inputs) {
        // A tenant does not help where the host is refused.
        check_host(&config).map_err(DaemonError::Open)?;
        return Err(Failure::bad_input(why));
    }
    let (log, lost) = start_log(&config)?;
    let unlogged = Box::new(move || lost.dropped_lines() as u64);
    let done = daemon::run(config, inputs, unlogged);
    // The error is the last line, after all lines of the log.
    drop(log);
    done.map_err(|error| Failure::from(error).printed_nonblocking())
}

/// Why a configuration without tenants is refused, if it has none and needs some.
fn no_tenant(config: &Config, inputs: &Inputs) -> Option<String> {
    if !config.tenants.is_empty() || config.mode == DaemonMode::Observe || config.nri.enabled {
        return None;
    }
    let file = inputs.file.clone().unwrap_or_else(|| USUAL_FILE.into());
    let what = if file.exists() {
        "no tenant is declared"
    } else {
        "there is no such file, so no tenant is declared"
    };
    Some(format!(
        "{}: {what}; add a [[tenant]] table with a name and cores, a cgroup, a slice, a unit, a process or \
         devices, let `waykeeper init` write some, or make pods tenants (nri.enabled = true)",
        file.display()
    ))
}

/// Why a start with this configuration would be refused here, as far as that shows without a change of the host.
fn refused_here(config: &Config, inputs: &Inputs) -> Option<String> {
    let host = check_host(config).err().map(|why| why.to_string());
    host.or_else(|| no_tenant(config, inputs))
        .or_else(|| daemon::check_servers(config).err().map(|why| why.to_string()))
}

/// Log lines that may wait for standard error; further lines are dropped. A blocked terminal must not block the control
/// thread.
const LINES: usize = 8192;

/// Starts the log on standard error. It runs until the guard is dropped; the counter counts dropped lines.
fn start_log(config: &Config) -> Result<(WorkerGuard, ErrorCounter), Failure> {
    let filter = EnvFilter::builder().parse(&config.log.level).map_err(|why| {
        let source = config.sources.of("log.level");
        Failure::bad_input(format!(
            "{source}: log.level = \"{}\" is not a log level or directive ({why}); write error, warn, info, \
             debug or trace",
            config.log.level
        ))
    })?;
    let lossy = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES);
    let (writer, guard) = lossy.finish(std::io::stderr());
    let lost = writer.error_counter();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    let started = match config.log.json {
        true => log.json().flatten_event(true).try_init(),
        false => log.with_ansi(false).try_init(),
    };
    started.map_err(|why| Failure::new(exit::FAILED, format!("cannot start logging: {why}")))?;
    Ok((guard, lost))
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(if error.is_denied() { exit::NOT_PERMITTED } else { exit::BAD_INPUT }, error)
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Failure {
        let code = match &error {
            DaemonError::Open(error) => open_code(error),
            DaemonError::Config(_)
            | DaemonError::Servers(ServersError::NoGroup(_) | ServersError::OverflowId(_)) => exit::BAD_INPUT,
            DaemonError::Servers(ServersError::Address { why, .. })
                if why.kind() == std::io::ErrorKind::AddrInUse =>
            {
                exit::CONFLICT
            }
            DaemonError::Servers(ServersError::Address { why, .. } | ServersError::Thread(why)) => {
                exit::io_code(why)
            }
            DaemonError::Servers(ServersError::SocketFile(SocketFileError::InUse(_))) => exit::CONFLICT,
            DaemonError::Servers(ServersError::SocketFile(
                SocketFileError::Io { why, .. } | SocketFileError::Group { why, .. },
            )) => exit::io_code(why),
            DaemonError::Servers(ServersError::SocketFile(_)) => exit::BAD_INPUT,
            _ => exit::FAILED,
        };
        match error {
            DaemonError::Open(OpenError::Journal(error)) => error.into(),
            other => Failure::new(code, other),
        }
    }
}

fn open_code(error: &OpenError) -> u8 {
    match error {
        error if error.is_unsupported() => exit::UNSUPPORTED,
        OpenError::NoDomain { .. }
        | OpenError::Tenant { .. }
        | OpenError::Elsewhere { .. }
        | OpenError::NoDevice { .. }
        | OpenError::Mask { .. } => exit::BAD_INPUT,
        OpenError::Resctrl(error) | OpenError::Groups(GroupsError::Resctrl(error)) => resctrl_code(error),
        OpenError::Profile(TextFileError::Io { why, .. }) => exit::io_code(why),
        OpenError::Profile(_) => exit::BAD_INPUT,
        OpenError::Groups(GroupsError::Foreign { .. }) => exit::CONFLICT,
        OpenError::File(error) => match error.errno().map(|errno| errno.raw_os_error()) {
            // 1 is EPERM, 13 is EACCES.
            Some(1 | 13) => exit::NOT_PERMITTED,
            _ => exit::FAILED,
        },
        _ => exit::FAILED,
    }
}

fn resctrl_code(error: &ResctrlError) -> u8 {
    match error.kind {
        ResctrlErrorKind::Denied => exit::NOT_PERMITTED,
        ResctrlErrorKind::Busy
        | ResctrlErrorKind::Exhausted
        | ResctrlErrorKind::Locked
        | ResctrlErrorKind::Foreign
        | ResctrlErrorKind::Exists => exit::CONFLICT,
        _ => exit::FAILED,
    }
}
