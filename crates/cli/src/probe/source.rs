//! The probed host: a scenario's virtual server in this process, or the host under a root prefix. Only this file knows
//! which.

use super::RunArgs;
use super::load_command::LoadCommand;
use crate::devices::{addresses, of_device_file};
use crate::exit::{self, Failure};
use crate::restore::{host_at, journal_at};
use crate::run::change;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waykeeper_host::{Host, Priority, WorkloadKind};
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::resctrl::ResctrlErrorKind;
use waykeeper_kernel::root::Root;
use waykeeper_kernel::text_file;
use waykeeper_lab::registry;
use waykeeper_linux_host::profile;
use waykeeper_linux_host::{LinuxHost, LinuxHostOptions, OpenError};
use waykeeper_machine::{FaultyServer, RunOptions, ScenarioSource, VirtualServer};
use waykeeper_probe::experiment::ProbeError;
use waykeeper_probe::sweep::{AdjustableLoad, SweptParameter};
use waykeeper_service::config::tenants_in;
use waykeeper_tenants::{Census, DeviceName, Tenant};
use waykeeper_units::CoreList;

/// The probed host, with its load.
pub struct ProbedHost {
    host: Opened,
    load: Option<ScenarioLoad>,
    load_command: Option<LoadCommand>,
}

enum Opened {
    Virtual(Box<FaultyServer>),
    Linux(Box<LinuxHost>, Root),
}

impl ProbedHost {
    /// Opens the host that the arguments name.
    pub fn open(args: &RunArgs) -> Result<ProbedHost, Failure> {
        match &args.root {
            None => scenario(args),
            Some(root) => linux(root, args),
        }
    }

    /// The host.
    pub fn host(&self) -> &dyn Host {
        match &self.host {
            Opened::Virtual(server) => &**server,
            Opened::Linux(host, _) => &**host,
        }
    }

    /// The host, to set its knobs.
    pub fn host_mut(&mut self) -> &mut dyn Host {
        match &mut self.host {
            Opened::Virtual(server) => &mut **server,
            Opened::Linux(host, _) => &mut **host,
        }
    }

    /// The load, if it can be set.
    pub fn take_load(&mut self) -> Option<ScenarioLoad> {
        self.load.take()
    }

    /// The microcode version, if the kernel reports it.
    pub fn microcode(&self) -> Option<String> {
        match &self.host {
            Opened::Virtual(_) => None,
            Opened::Linux(_, root) => profile::microcode(root),
        }
    }

    /// The file in which the daemon and doctor look for this host's profile.
    pub fn profile_path(&self) -> Option<PathBuf> {
        match &self.host {
            Opened::Virtual(_) => None,
            Opened::Linux(_, root) => Some(profile::usual_path(root)),
        }
    }

    /// The command. Drop it after the host was released, which ends it.
    pub fn take_load_command(&mut self) -> Option<LoadCommand> {
        self.load_command.take()
    }

    /// Releases the host and restores its knobs.
    pub fn close(mut self) -> Result<(), Failure> {
        let left = match &mut self.host {
            Opened::Virtual(_) => Vec::new(),
            Opened::Linux(host, _) => host.close()?.remaining(),
        };
        match left.first() {
            None => Ok(()),
            Some(_) => Err(Failure::new(
                exit::FAILED,
                format!(
                    "{}; the original values stay in the journal: try `waykeeper restore`",
                    left.join("; ")
                ),
            )),
        }
    }
}

fn scenario(args: &RunArgs) -> Result<ProbedHost, Failure> {
    let mut source = registry::open(&args.scenario)?;
    for (key, value) in &args.set {
        change(&mut source, key, value)?;
    }
    let options = RunOptions { seed: args.seed, sample_seed: args.seed, sampling: args.sets };
    let server = server(&source, options)?;
    let nics = source.read()?.nics.iter().map(|nic| nic.name.clone()).collect();
    let load = Some(ScenarioLoad { source, nics, options });
    Ok(ProbedHost { host: Opened::Virtual(Box::new(server)), load, load_command: None })
}

fn server(source: &ScenarioSource, options: RunOptions) -> Result<FaultyServer, Failure> {
    Ok(FaultyServer::new(VirtualServer::new(Arc::new(source.read()?), options)?))
}

/// A scenario whose keys can be set; each setting builds a new server.
pub struct ScenarioLoad {
    source: ScenarioSource,
    nics: Vec<String>,
    options: RunOptions,
}

impl AdjustableLoad for ScenarioLoad {
    fn parameters(&self) -> Vec<SweptParameter> {
        if self.nics.is_empty() {
            Vec::new()
        } else {
            vec![SweptParameter::PacketBytes, SweptParameter::OfferedGbps]
        }
    }

    fn with(&mut self, dial: SweptParameter, value: f64) -> Result<Box<dyn Host + '_>, ProbeError> {
        let (key, value) = match dial {
            SweptParameter::PacketBytes => ("packet_bytes", toml::Value::Integer(value as i64)),
            SweptParameter::OfferedGbps => ("offered_gbps", toml::Value::Float(value)),
            other => {
                return Err(ProbeError::Load(format!(
                    "a scenario's {} is not a setting of its load; the probe varies packet bytes and offered load",
                    other.title()
                )));
            }
        };
        let mut source = self.source.clone();
        for nic in &self.nics {
            let place = format!("nic.{nic}.{key}");
            source.set(&place, &value).map_err(|why| ProbeError::Load(why.to_string()))?;
        }
        let server =
            server(&source, self.options).map_err(|failure| ProbeError::Load(failure.line().to_owned()))?;
        Ok(Box::new(server))
    }
}

fn linux(prefix: &Path, args: &RunArgs) -> Result<ProbedHost, Failure> {
    let root = host_at(prefix)?;
    let mut tenants = match &args.tenants {
        Some(file) => declared(&root, file)?,
        None => Vec::new(),
    };
    let journal = journal_at(&root, args.journal.as_ref());
    // A load does not help where the host is refused.
    LinuxHost::check(&LinuxHostOptions::new(root.clone(), Vec::new(), journal.clone())).map_err(refused)?;
    let load_command = match &beside(args)? {
        None => None,
        Some(beside) => {
            let wanted = "--cores LIST is needed: the CPUs of the load, for example --cores 8-9";
            let cores = args.cores.clone().ok_or_else(|| Failure::bad_input(wanted))?;
            let devices = addresses(&root, &beside.devices)?;
            let load_command =
                LoadCommand::start(&beside.command, &cores, args.memload.as_ref().map(|_| beside.name))?;
            tenants.push(tenant_of(&load_command, beside, cores, devices));
            Some(load_command)
        }
    };
    if let (true, Some(file)) = (tenants.is_empty(), &args.tenants) {
        let why = format!("{}: none of its tenants is present on that host", file.display());
        return Err(Failure::bad_input(why));
    }
    if tenants.is_empty() {
        let why = "no tenants are given; give --tenants FILE, --memload TARGET, or a command after `--`";
        return Err(Failure::bad_input(why));
    }
    let host = LinuxHost::open(LinuxHostOptions::new(root.clone(), tenants, journal)).map_err(refused)?;
    for note in host.notes() {
        exit::eprint_line(&format!("note: {note}"));
    }
    Ok(ProbedHost { host: Opened::Linux(Box::new(host), root), load: None, load_command })
}

/// The tenants of a file that are present now.
fn declared(root: &Root, file: &Path) -> Result<Vec<Tenant>, Failure> {
    let text = text_file::read(file, "a list of tenants").map_err(Failure::bad_input)?;
    let specs = tenants_in(file, &text).map_err(Failure::bad_input)?;
    let roster = Census::new(specs).take(root);
    for note in &roster.notes {
        exit::eprint_line(&format!("note: {note}"));
    }
    Ok(roster.tenants)
}

/// The command that is started to make load.
struct Beside {
    name: &'static str,
    command: Vec<OsString>,
    does_io: bool,
    devices: Vec<DeviceName>,
}

fn beside(args: &RunArgs) -> Result<Option<Beside>, Failure> {
    if let Some(target) = &args.memload {
        let program = std::env::current_exe().map_err(|why| {
            Failure::new(exit::FAILED, format!("cannot find the path of this program: {why}"))
        })?;
        // Device writes at the target's full rate: the probe looks for lines that devices write.
        let words = ["memload", "--op", "write", "--pattern", "random", "--depth", "32"].map(OsString::from);
        let command =
            [program.into_os_string()].into_iter().chain(words).chain([target.clone().into()]).collect();
        let devices = of_device_file(target).into_iter().collect();
        return Ok(Some(Beside { name: "memload", command, does_io: true, devices }));
    }
    if args.command.is_empty() {
        return Ok(None);
    }
    let command = args.command.clone();
    Ok(Some(Beside { name: "command", command, does_io: args.as_io, devices: args.device.clone() }))
}

fn tenant_of(
    load_command: &LoadCommand,
    beside: &Beside,
    cores: CoreList,
    devices: Vec<PciAddress>,
) -> Tenant {
    Tenant {
        name: beside.name.to_owned(),
        priority: Priority::Low,
        kind: if beside.does_io { WorkloadKind::StorageIo } else { WorkloadKind::NonIo },
        cores,
        pids: vec![load_command.pid()],
        devices,
        stack: false,
        mask: None,
    }
}

fn refused(error: OpenError) -> Failure {
    let code = match &error {
        error if error.is_unsupported() => exit::UNSUPPORTED,
        OpenError::Journal(_) => exit::CONFLICT,
        OpenError::Elsewhere { .. } | OpenError::NoDevice { .. } | OpenError::Tenant { .. } => {
            exit::BAD_INPUT
        }
        OpenError::Resctrl(error) => match error.kind {
            ResctrlErrorKind::Denied => exit::NOT_PERMITTED,
            ResctrlErrorKind::Busy | ResctrlErrorKind::Exhausted | ResctrlErrorKind::Locked => exit::CONFLICT,
            _ => exit::FAILED,
        },
        _ => exit::FAILED,
    };
    Failure::new(code, error)
}
