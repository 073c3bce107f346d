//! A scenario as a mounted host: puts machine, registers and files together.
//!
//! It must not know the meaning of a file, only its path.

use crate::cpu_switches::{CpuSwitches, OnlineDevices};
use crate::cpuid::{Cpuid, CpuidFile};
use crate::faults::Faults;
use crate::fork_records::FullRings;
use crate::host_tasks::HostTasks;
use crate::inodes::locked;
use crate::layout::{Layout, LayoutError};
use crate::machine_clock::{ClockSpeed, MachineClock, MachineThread};
use crate::mount_calls::{MountCalls, MountSwitch};
use crate::mounted::{MountError, Mounted};
use crate::msr::{MsrMap, VirtualMsr};
use crate::node::{Caller, File, Node, Tree, slice};
use crate::package::Server;
use crate::pci;
use crate::proc_mounts::ProcMounts;
use crate::programs::Programs;
use crate::programs::cgroups::Cgroups;
use crate::programs::processes::Processes;
use crate::programs::tasks::AllTasks;
use crate::rdt::{Driver, Features};
use crate::resctrl::description::{Cdp, Kernel};
use crate::resctrl::{SharedResctrl, VirtualResctrl};
use crate::topology::{self, Boot};
use crate::trees::NAME_FILE;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waykeeper_machine::{BareMachine, RunOptions, Scenario, ScenarioError};
use waykeeper_silicon::Sampling;

/// Options that may differ between hosts of the same scenario.
#[derive(Clone)]
pub struct VirtualHostOptions {
    /// The speed of the server's clock.
    pub speed: ClockSpeed,
    /// Seeds and sampling of the model.
    pub run: RunOptions,
    /// The kernel whose resctrl behaviour is imitated.
    pub kernel: Kernel,
    /// Whether resctrl is mounted with `-o cdp`.
    pub cdp: bool,
    /// Whether the kernel was booted with memory bandwidth allocation, if the chip has it. The model does not throttle;
    /// the only effect is fewer classes (8 on Skylake instead of 16).
    pub bandwidth: bool,
    /// Injected faults.
    pub faults: Faults,
    /// The procfs of the machine that serves the tree: its tasks and mounts are shown beside the server's own. `None`
    /// shows only the server's own.
    pub host_proc: Option<PathBuf>,
    /// The name by which `enter` finds this host; `None` takes the scenario's.
    pub name: Option<String>,
    /// The id of this boot, a UUID; `None` takes a random one.
    pub boot_id: Option<String>,
}

impl Default for VirtualHostOptions {
    /// Wall-clock time, seed 1, Linux 6.12, all features of the chip.
    fn default() -> VirtualHostOptions {
        VirtualHostOptions {
            speed: ClockSpeed::Wall(1.0),
            run: RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT },
            kernel: Kernel(6, 12),
            cdp: false,
            bandwidth: true,
            faults: Faults::new(),
            host_proc: Some(PathBuf::from("/proc")),
            name: None,
            boot_id: None,
        }
    }
}

/// Why a scenario cannot be a host.
#[derive(Debug, thiserror::Error)]
pub enum VirtualHostError {
    /// The scenario does not fit simulated memory.
    #[error(transparent)]
    Scenario(Box<ScenarioError>),
    /// Its chip or ports cannot be shown.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The tree cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
}

impl From<ScenarioError> for VirtualHostError {
    fn from(error: ScenarioError) -> VirtualHostError {
        VirtualHostError::Scenario(Box::new(error))
    }
}

/// A mounted host; unmounted and stopped when dropped.
pub struct VirtualHost {
    // Fields are dropped in this order: no client can reach the machine when it stops.
    mounted: Mounted,
    thread: MachineThread,
    clock: MachineClock,
}

impl VirtualHost {
    /// Mounts the host of a scenario on an empty directory and starts its clock.
    ///
    /// # Errors
    /// If the scenario cannot be a host, or the tree cannot be mounted.
    pub fn mount(
        path: impl AsRef<Path>,
        scenario: Arc<Scenario>,
        options: VirtualHostOptions,
    ) -> Result<VirtualHost, VirtualHostError> {
        let faults = options.faults.clone();
        let (tree, clock, thread) = tree(scenario, &options)?;
        let mounted = Mounted::new(tree, path, faults)?;
        Ok(VirtualHost { mounted, thread, clock })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }

    /// The machine.
    pub fn clock(&self) -> &MachineClock {
        &self.clock
    }

    /// Serves until a signal arrives or the tree is unmounted.
    ///
    /// # Errors
    /// If signals cannot be caught.
    pub fn serve(self) -> Result<(), VirtualHostError> {
        let served = self.mounted.serve();
        drop(self.thread);
        Ok(served?)
    }
}

/// The files of a scenario's host and the machine behind them, not mounted.
///
/// # Errors
/// If the scenario cannot be a host.
pub fn tree(
    scenario: Arc<Scenario>,
    options: &VirtualHostOptions,
) -> Result<(Tree, MachineClock, MachineThread), VirtualHostError> {
    let layout = Layout::new(&scenario)?;
    let spec = scenario.chip.clone();
    let name = options.name.clone().unwrap_or_else(|| scenario.name.clone());
    let features = Features::new(&layout, &spec, options.bandwidth);
    let bare = BareMachine::new(scenario.clone(), options.run)?;
    let server = Server::new(bare, layout.clone(), features.bandwidth_classes);
    let map = Arc::new(MsrMap::new(&server));
    let devices = pci::devices(&server);
    let cpuid = Arc::new(Cpuid::new(&layout, &spec, features, server.rmids()));
    let mut description = features.description(&server, options.kernel);
    if let Some(l3) = description.l3.as_mut().filter(|l3| options.cdp && l3.cdp != Cdp::Absent) {
        l3.cdp = Cdp::On;
    }
    let (clock, thread) = MachineClock::start(server, options.speed);

    let mut tree = Tree::new();
    let boot = Boot {
        kernel: options.kernel,
        command_line: command_line(&layout, features),
        id: options.boot_id.clone().unwrap_or_else(boot_id),
    };
    let switches = CpuSwitches::new(layout.cpus());
    topology::add(&mut tree, &layout, &spec, features, &boot, &switches);
    for cpu in 0..layout.cpus() {
        if cpu > 0 {
            tree.appears(&format!("dev/cpu/{cpu}"), OnlineDevices(switches.clone(), cpu));
        }
        tree.file(&format!("dev/cpu/{cpu}/msr"), VirtualMsr::new(clock.clone(), map.clone(), cpu));
        tree.file(&format!("dev/cpu/{cpu}/cpuid"), CpuidFile::new(cpuid.clone(), cpu));
    }
    pci::add(&mut tree, devices, &layout, &clock);
    let programs = Programs::new(clock.clone(), scenario, switches.clone());
    tree.add_dynamic("proc", Processes::new(programs.clone(), layout.cpus(), layout.packages));
    tree.add_dynamic("sys/fs/cgroup", Cgroups::new(programs.clone(), layout.cpus(), layout.packages));
    let resctrl = features.any().then(|| {
        let mut host = options.host_proc.clone().map(HostTasks::new);
        let forks = host.as_mut().map(HostTasks::record_forks);
        let driver = Box::new(Driver::new(clock.clone()));
        let tasks = Box::new(AllTasks::new(host, programs));
        let shared = VirtualResctrl::new(description, driver, tasks).shared();
        if let Some(forks) = forks {
            tree.text("waykeeper/forks", forks_followed(forks.as_ref().err().copied()));
            if let Ok(rings) = forks {
                read_full_rings(rings, &shared);
            }
        }
        shared
    });
    if let Some(shared) = &resctrl {
        switches.connect(shared);
        tree.add("sys/fs/resctrl", Node::Resctrl(shared.clone()));
        tree.file("waykeeper/resctrl", MountSwitch::new(shared.clone()));
        tree.file("waykeeper/calls", MountCalls::new(shared.clone()));
    }
    tree.file("proc/mounts", ProcMounts::new(options.host_proc.clone(), resctrl));
    tree.text(NAME_FILE, format!("{name}\n"));
    tree.file("waykeeper/clock", Clock(clock.clone()));
    Ok((tree, clock, thread))
}

/// The kernel disables CAT and monitoring on Skylake unless its command line enables them (hardware.md 7.2).
fn command_line(layout: &Layout, features: Features) -> String {
    let base = "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro quiet";
    let asks = layout.generation.is_some_and(|generation| generation.id == "skx");
    match features.bandwidth_classes > 0 {
        _ if !asks => base.to_owned(),
        true => format!("{base} rdt=cmt,mbmtotal,mbmlocal,l3cat,l3cdp,mba"),
        false => format!("{base} rdt=cmt,mbmtotal,mbmlocal,l3cat,l3cdp,!mba"),
    }
}

/// A random boot id (version 4 UUID), from the kernel of this machine.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let id = id.trim();
    if id.len() == 36 {
        return id.to_owned();
    }
    // Without procfs: the time, since the id only has to differ between starts.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("00000000-0000-4000-8000-{:012x}", now.as_nanos() & 0xffff_ffff_ffff)
}

/// `waykeeper/forks`: whether the forks of this machine's processes are recorded. No kernel has this file.
fn forks_followed(refused: Option<Errno>) -> String {
    refused.map_or_else(|| "recorded\n".to_owned(), |why| format!("listed perf_event_open: {why}\n"))
}

/// Starts a thread that reads the records of forks when their rings fill. It ends with the resctrl.
fn read_full_rings(mut rings: FullRings, resctrl: &SharedResctrl) {
    let resctrl = Arc::downgrade(resctrl);
    std::thread::spawn(move || {
        while rings.wait() {
            let Some(resctrl) = resctrl.upgrade() else { return };
            locked(&resctrl).follow_forks();
        }
    });
}

/// `waykeeper/clock`: the server's clock and the model's lag, both in ns. No kernel has this file.
struct Clock(MachineClock);

impl File for Clock {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        let stopped = self.0.failure().map_or_else(String::new, |why| format!("stopped {why}\n"));
        let text = format!("clock_ns {}\nlag_ns {}\n{stopped}", self.0.now_ns(), self.0.lag_ns());
        Ok(slice(text.as_bytes(), offset, len))
    }
}
