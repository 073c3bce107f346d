//! A scenario as a mounted host: files for the manager under test, and the model behind them for the test.
//!
//! Needs root and /dev/fuse. Must not know what is tested.

use crate::state::{HostState, Watched, groups};
use crate::{SCENARIO, manual_clock, scenario, tenants};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use waykeeper_kernel::journal::Journal;
use waykeeper_kernel::pci::PciTree;
use waykeeper_kernel::root::{Handle, Root};
use waykeeper_linux_host::{
    LinuxHost, LinuxHostOptions, OpenError, RestoreScope, adopt_orphans, restore_journal,
};
use waykeeper_machine::Scenario;
use waykeeper_tenants::Tenant;
use waykeeper_units::{CoreId, CoreList};
use waykeeper_vhost::faults::Faults;
use waykeeper_vhost::package::Server;
use waykeeper_vhost::virtual_host::{self, VirtualHost};

/// A mounted host. It is unmounted before its folder is removed.
pub struct MountedHost {
    vhost: VirtualHost,
    /// Injects faults into its files.
    pub faults: Faults,
    /// The scenario's workloads, as an operator would declare them.
    pub tenants: Vec<Tenant>,
    scenario: Arc<Scenario>,
    watched: Watched,
    classes: BTreeMap<String, String>,
    folder: tempfile::TempDir,
}

impl std::fmt::Debug for MountedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("root", &self.vhost.path()).finish_non_exhaustive()
    }
}

impl MountedHost {
    /// [`SCENARIO`] on a chip, its clock held, one set in 16 simulated.
    pub fn new(chip: &str) -> MountedHost {
        MountedHost::with(scenario(chip, SCENARIO), manual_clock(16))
    }

    /// Any scenario, with any options.
    ///
    /// # Panics
    /// If it cannot be mounted.
    pub fn with(scenario: Arc<Scenario>, options: virtual_host::VirtualHostOptions) -> MountedHost {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("a temporary directory: {error}"));
        let mount = folder.path().join("host");
        std::fs::create_dir(&mount).unwrap_or_else(|error| panic!("{}: {error}", mount.display()));
        let faults = options.faults.clone();
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let vhost = VirtualHost::mount(&mount, scenario.clone(), options);
        let vhost = vhost.unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {error}"));
        let root = Root::at(vhost.path());
        let tenants = tenants(&root, &scenario);
        let places = vhost.clock().with(|server| {
            let places = server.layout();
            (places.generation, places.cpus(), places.packages, places.cores)
        });
        let (generation, cpus, packages, cores) = places.unwrap_or_else(|why| panic!("the model: {why}"));
        let own = tenants.iter().flat_map(|tenant| tenant.cores.cores()).map(|core| core.0);
        // The tenants' cores, and one core without a tenant.
        let own: BTreeSet<u16> = own.chain([cpus as u16 - 1]).collect();
        let firsts: Vec<u16> = (0..packages).map(|package| (package * cores) as u16).collect();
        let watched = Watched::new(&root, generation, cpus as u16, &own, &firsts);
        let tree = PciTree::read(&root).unwrap_or_else(|error| panic!("{error}"));
        let classes =
            tree.devices().map(|device| (device.address.to_string(), format!("{:06x}", device.class)));
        let classes = classes.collect();
        MountedHost { vhost, faults, tenants, scenario, watched, classes, folder }
    }

    /// The root of its file tree.
    pub fn root(&self) -> Root {
        Root::at(self.vhost.path())
    }

    /// The path of its journal, beside the tree.
    pub fn journal(&self) -> PathBuf {
        self.folder.path().join("state/journal")
    }

    /// A temporary folder beside the tree, for a test's own files.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// The scenario.
    pub fn scenario(&self) -> &Arc<Scenario> {
        &self.scenario
    }

    /// Classes of its PCI devices, as six hex digits, by address.
    pub fn classes(&self) -> &BTreeMap<String, String> {
        &self.classes
    }

    /// Advances a held clock to a time, ns.
    pub fn run_to(&self, clock_ns: u64) {
        self.vhost.clock().run_until(clock_ns).unwrap_or_else(|why| panic!("the model: {why}"));
    }

    /// Advances a held clock by a time, ns.
    pub fn run(&self, ns: u64) {
        self.run_to(self.now_ns() + ns);
    }

    /// The server's clock, ns.
    pub fn now_ns(&self) -> u64 {
        self.vhost.clock().now_ns()
    }

    /// Gives access to the model.
    pub fn with_model<R>(&self, use_model: impl FnOnce(&mut Server) -> R) -> R {
        self.vhost.clock().with(use_model).unwrap_or_else(|why| panic!("the model: {why}"))
    }

    /// Options for managing it.
    pub fn options(&self) -> LinuxHostOptions {
        LinuxHostOptions::new(self.root(), self.tenants.clone(), self.journal())
    }

    /// Starts to manage it.
    ///
    /// # Errors
    /// The error of [`LinuxHost::open`].
    pub fn try_open(&self) -> Result<LinuxHost, OpenError> {
        LinuxHost::open(self.options())
    }

    /// Starts to manage it.
    ///
    /// # Panics
    /// With the error of [`LinuxHost::open`].
    pub fn open(&self) -> LinuxHost {
        self.try_open().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts to manage it on its own clock, which must be held.
    ///
    /// # Panics
    /// As [`MountedHost::open`].
    pub fn on_model_clock(&self) -> crate::ModelClockHost<'_> {
        crate::ModelClockHost::new(self.open(), self)
    }

    /// Does what `waykeeper restore` does.
    ///
    /// # Errors
    /// The knobs that could not be restored (empty for a general error), and why; then what cannot be proved.
    pub fn restore(&self) -> Result<(), Vec<(String, String)>> {
        let root = self.root();
        let alone = |error: &dyn std::fmt::Display| vec![(String::new(), error.to_string())];
        let mut journal = Journal::open(&self.journal(), &root).map_err(|error| alone(&error))?;
        let report = restore_journal(&root, &mut journal, RestoreScope::All);
        let mut report = report.map_err(|error| alone(&error))?;
        let known = journal.originals().to_vec();
        adopt_orphans(&root, &mut journal, &known, &mut report).map_err(|error| alone(&error))?;
        let failures = report.failures().map(|(knob, why)| (knob.to_string(), why.to_owned()));
        let failures = failures.chain(report.unproved.iter().map(|line| (String::new(), line.clone())));
        let failures: Vec<(String, String)> = failures.collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// Restores, and returns the failures in one line; empty if there are none.
    pub fn restore_failures(&self) -> String {
        let failures = self.restore().err().into_iter().flatten();
        failures.map(|(knob, why)| format!("{knob}: {why}")).collect::<Vec<_>>().join("; ")
    }

    /// Everything that could have been changed. Faults must be removed first.
    pub fn state(&self) -> HostState {
        self.watched.state(&self.root())
    }

    /// The value of an MSR, if the CPU has it.
    pub fn try_msr(&self, cpu: u16, address: u32) -> Option<u64> {
        self.watched.msr(cpu, address)
    }

    /// The value of an MSR.
    ///
    /// # Panics
    /// If the CPU has no such register.
    pub fn msr(&self, cpu: u16, address: u32) -> u64 {
        self.try_msr(cpu, address).unwrap_or_else(|| panic!("CPU {cpu} has no MSR {address:#x}"))
    }

    /// Writes an MSR, as another tool would.
    ///
    /// # Panics
    /// If the CPU refuses it.
    pub fn set_msr(&self, cpu: u16, address: u32, value: u64) {
        self.watched.set_msr(cpu, address, value);
    }

    /// The configuration space of a device, for another tool to read and write.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn config(&self, device: &str) -> &Handle {
        self.watched.config(device)
    }

    /// Makes a resctrl group, as another tool would.
    ///
    /// # Panics
    /// If no class is left.
    pub fn make_foreign_group(&self, name: &str) -> PathBuf {
        let group = self.root().path(format!("/sys/fs/resctrl/{name}"));
        std::fs::create_dir(&group).unwrap_or_else(|error| panic!("{}: {error}", group.display()));
        group
    }

    /// The mask of the first L3 in force for a CPU, from the group that has the CPU, without leading zeros.
    ///
    /// # Panics
    /// If no group has it.
    pub fn mask_of(&self, cpu: u16) -> String {
        let state = groups(&self.root());
        let own = |(path, list): &(&String, &String)| {
            let list: CoreList = list.trim().parse().unwrap_or_default();
            path.ends_with("cpus_list") && !path.contains("mon_groups") && list.cores().contains(&CoreId(cpu))
        };
        let group = state.iter().find(own).map(|(path, _)| path.replace("cpus_list", "schemata"));
        let schemata = group.and_then(|group| state.get(&group));
        let line = schemata.and_then(|text| text.lines().find_map(|line| line.trim().strip_prefix("L3:0=")));
        let line = line.unwrap_or_else(|| panic!("no group has CPU {cpu}"));
        line.split(';').next().unwrap_or_default().trim_start_matches('0').to_owned()
    }
}
