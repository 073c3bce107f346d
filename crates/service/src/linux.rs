//! The Linux host as the engine manages it: its declared or found tenants, the census, and the host's problems.
//!
//! Must not know policies, or whether a kernel serves the host's files.

use crate::config::{Config, ExternalChanges, PathChoice, Ports};
use crate::engine::ManagedHost;
use crate::{ActiveProblem, DaemonMode, PublishedClass};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use waykeeper_host::{Applied, Host, HostError, Inventory, Lines, Plan, Snapshot, Workload};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::system::{self, SharedSystem};
use waykeeper_kernel::text_file::TextFileError;
use waykeeper_linux_host::profile::{MachineProfile, usual_path};
use waykeeper_linux_host::{
    AllowedChanges, DcaLimit, Grouping, HostAccess, LinuxHost, LinuxHostOptions, Managed, OpenError,
};
use waykeeper_tenants::discovery::discover;
use waykeeper_tenants::{About, Census, Note, TenantSpec};
use waykeeper_units::WayMask;

/// The problem of a host whose clock is slow.
const SLOW_CLOCK: &str = "the clock of this host runs slower than the clock of this machine, as that of a virtual host whose \
    model is too slow; rates are per second of the host's clock";

/// Looks after which a daemon without declared tenants searches for tenants again. Assumption: at one look per second, a
/// minute is soon enough for a new unit, and a search costs a few reads for each cgroup.
const SEARCH_EVERY: u32 = 60;

/// A Linux host with its declared tenants, or with those found where none is declared and the host is only observed.
#[derive(Debug)]
pub struct ManagedLinuxHost {
    host: LinuxHost,
    root: Root,
    census: Census,
    /// Looks until the next search; `None` if tenants are declared.
    search_in: Option<u32>,
    /// Only a host that is not managed may have tenants that neither an operator nor a pod declared.
    may_search: bool,
    events: Vec<String>,
    /// The census's lasting problems.
    notes: Vec<Note>,
    postponed: Option<String>,
}

impl ManagedLinuxHost {
    /// Opens the host that a configuration names.
    ///
    /// # Errors
    /// If something is missing or another program holds the host; nothing is set then.
    pub fn open(config: &Config) -> Result<ManagedLinuxHost, OpenError> {
        ManagedLinuxHost::open_on(system::real(), config)
    }

    /// Opens that host on a system.
    ///
    /// # Errors
    /// As [`ManagedLinuxHost::open`].
    pub fn open_on(system: SharedSystem, config: &Config) -> Result<ManagedLinuxHost, OpenError> {
        let root = Root::on(system, &config.root);
        let may_search = config.mode == DaemonMode::Observe && !config.nri.enabled;
        let searches = may_search && config.tenants.is_empty();
        let (specs, found) = if searches { searched(&root) } else { (config.tenants.clone(), None) };
        let options = options(config, &root, &specs)?;
        let host = LinuxHost::open(options)?;
        let events = found.into_iter().chain(host.notes().iter().cloned()).collect();
        Ok(ManagedLinuxHost {
            host,
            root,
            census: Census::new(specs),
            search_in: searches.then_some(SEARCH_EVERY),
            may_search,
            events,
            notes: Vec::new(),
            postponed: None,
        })
    }
}

/// Whether the host of a configuration would be opened.
///
/// # Errors
/// As [`ManagedLinuxHost::open`], for all that is found without a change of the host.
pub fn check_host(config: &Config) -> Result<(), OpenError> {
    let root = config.host_root();
    LinuxHost::check(&options(config, &root, &config.tenants)?)
}

fn options(config: &Config, root: &Root, specs: &[TenantSpec]) -> Result<LinuxHostOptions, OpenError> {
    // A separate census, whose notes are not reported: the first step reports them.
    let here = Census::new(specs.to_vec()).take(root).tenants;
    let first = here.iter().flat_map(|tenant| tenant.cores.cores()).next().copied();
    Ok(LinuxHostOptions {
        managed: config.domain.map(Managed::Domain).or(first.map(Managed::Cpu)),
        access: match config.mode {
            DaemonMode::Manage => HostAccess::Manage,
            DaemonMode::DryRun | DaemonMode::Observe if config.program_counters => HostAccess::Count,
            DaemonMode::DryRun | DaemonMode::Observe => HostAccess::Observe,
        },
        needs_cat: config.mode != DaemonMode::Observe,
        limits: limits(config),
        correct: config.limits.external_changes == ExternalChanges::Correct,
        profile: profile(config, root)?,
        takes_over: config.mode == DaemonMode::Manage,
        ..LinuxHostOptions::new(root.clone(), Vec::new(), config.journal_path())
    })
}

/// What could be tenants on a host where none is declared, and a line about them.
fn searched(root: &Root) -> (Vec<TenantSpec>, Option<String>) {
    let specs = discover(root).specs();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let about = match names.is_empty() {
        true => "no tenant is declared, and none was found".to_owned(),
        false => format!("no tenant is declared; observing those found: {}", names.join(", ")),
    };
    (specs, Some(format!("{about} (`waykeeper init` writes a configuration)")))
}

/// The machine profile that a configuration names, with its file. The usual one may be absent.
fn profile(config: &Config, root: &Root) -> Result<Option<(PathBuf, MachineProfile)>, TextFileError> {
    let (file, must_be) = match &config.profile {
        PathChoice::Off => return Ok(None),
        PathChoice::Usual => (usual_path(root), false),
        PathChoice::At(file) => (file.clone(), true),
    };
    match MachineProfile::read(&file)? {
        Some(profile) => Ok(Some((file, profile))),
        None if must_be => Err(TextFileError::io(&file, io::ErrorKind::NotFound.into())),
        None => Ok(None),
    }
}

/// The limits in the host's types.
fn limits(config: &Config) -> AllowedChanges {
    let limits = &config.limits;
    AllowedChanges {
        masks: limits.masks,
        dca_ways: limits.dca_ways,
        dca: match &limits.dca_ports {
            Ports::All => DcaLimit::All,
            Ports::Only(ports) if ports.is_empty() => DcaLimit::None,
            Ports::Only(ports) => DcaLimit::Only(ports.clone()),
        },
        max_classes: limits.classes,
        // In mode `observe` no tenant is moved, so all CPUs count.
        cpus: limits.cpus.clone().filter(|_| config.mode != DaemonMode::Observe),
    }
}

impl Host for ManagedLinuxHost {
    fn inventory(&self) -> &Inventory {
        self.host.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.host.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let sampled = self.host.sample();
        self.events.extend(self.host.complaints());
        sampled
    }

    fn partial_writes(&mut self) -> Lines {
        self.host.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.host.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.host.apply(plan)
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.host.wait_until(deadline_ns)
    }
}

impl ManagedHost for ManagedLinuxHost {
    fn refresh(&mut self) {
        self.place();
        self.count();
    }

    fn place(&mut self) {
        if let Some(left) = &mut self.search_in {
            *left = left.saturating_sub(1);
            if *left == 0 {
                *left = SEARCH_EVERY;
                self.census.replace(discover(&self.root).specs());
            }
        }
        let roster = self.census.take(&self.root);
        self.notes = roster.standing;
        let changes = self.host.place_tenants(roster.tenants);
        self.postponed = changes.postponed;
        let groups = self.host.workloads();
        for id in changes.arrived {
            let name = groups.iter().find(|group| group.id == id).map(|group| group.name.as_str());
            self.events.extend(name.map(|name| format!("tenant {name} appeared")));
        }
        // An absent tenant has a note with the reason, which replaces this line.
        let is_absent = |name: &str| {
            let about = |note: &Note| note.about == About::Absent && note.tenant.as_deref() == Some(name);
            self.notes.iter().any(about)
        };
        let gone = changes.left.into_iter().filter(|(_, name)| !is_absent(name));
        let gone: Vec<String> = gone.map(|(_, name)| format!("tenant {name} ended")).collect();
        self.events.extend(gone);
    }

    fn count(&mut self) {
        self.host.count_tenants();
    }

    fn declare(&mut self, tenants: Vec<TenantSpec>) {
        let searches = self.may_search && tenants.is_empty();
        self.search_in = searches.then_some(SEARCH_EVERY);
        let (specs, found) = if searches { searched(&self.root) } else { (tenants, None) };
        self.events.extend(found);
        self.census.replace(specs);
    }

    fn active_problems(&self) -> Vec<ActiveProblem> {
        let refused = self.host.refused().into_iter();
        let refused =
            refused.map(|own| ActiveProblem::new("tenant", format!("tenant {}: {}", own.tenant, own.why)));
        let grouped = self.host.groupings().into_iter().map(|own| {
            let with =
                if own.with.is_empty() { String::new() } else { format!(" with {}", own.with.join(", ")) };
            let place = if own.in_default { "the default group" } else { "one class" };
            ActiveProblem::new("grouping", format!("tenant {} is in {place}{with}: {}", own.tenant, own.why))
        });
        let postponed = self
            .postponed
            .iter()
            .map(|why| ActiveProblem::new("tenant", format!("some tenants wait for the next step: {why}")));
        let notes = self.notes.iter().map(|note| {
            let kind = if note.about == About::Absent { ActiveProblem::ABSENT } else { "tenant" };
            ActiveProblem::new(kind, note.to_string())
        });
        let disturbed = self.host.external_changes().into_iter();
        let disturbed = disturbed.map(|own| ActiveProblem::new("outsider", own.to_string()));
        let slow = self.host.has_slow_clock().then(|| ActiveProblem::new("slow-clock", SLOW_CLOCK));
        let unproved = self.host.unproved().iter();
        let unproved = unproved.map(|line| ActiveProblem::new("journal", line.clone()));
        unproved
            .chain(refused)
            .chain(slow)
            .chain(grouped)
            .chain(postponed)
            .chain(notes)
            .chain(disturbed)
            .collect()
    }

    fn groupings(&self) -> Vec<Grouping> {
        self.host.groupings()
    }

    fn classes(&self) -> Vec<PublishedClass> {
        self.host.classes().into_iter().map(|(name, tenants)| PublishedClass { name, tenants }).collect()
    }

    fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn time_left(&self, deadline_ns: u64) -> Duration {
        self.host.time_left(deadline_ns)
    }

    fn has_postponed(&self) -> bool {
        self.postponed.is_some()
    }

    fn originals_taken_over(&mut self) -> Plan {
        self.host.originals_taken_over()
    }

    fn awaits_tenants(&self) -> bool {
        self.host.awaits_tenants()
    }

    fn memory_taken_over(&mut self) -> Option<(serde_json::Value, Duration)> {
        self.host.memory_taken_over()
    }

    fn hand_over(&mut self, until: Duration, memory: Option<serde_json::Value>) -> Result<(), Vec<String>> {
        self.host.hand_over(until, memory).map_err(|why| vec![why.to_string()])
    }

    fn restore(&mut self) -> Result<(), Vec<String>> {
        match self.host.close() {
            Err(why) => Err(vec![why.to_string()]),
            Ok(report) => match report.remaining() {
                done if done.is_empty() => Ok(()),
                left => Err(left),
            },
        }
    }
}
