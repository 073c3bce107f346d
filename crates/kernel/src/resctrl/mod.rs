//! resctrl, the kernel's interface to cache and bandwidth allocation and monitoring, under any root prefix.
//!
//! One [`Resctrl`] is one mount. Every operation is one command to the kernel (or a few reads), and every refusal has
//! the kernel's own reason. [`Resctrl::create`] and [`Resctrl::remove`] accept only groups whose names begin with our
//! prefix. Based on hardware.md 7 and virtual-host.md 3. It must not know why a group exists, nor what is journaled
//! about it.

mod error;
mod evacuate;
mod files;
mod group;
mod info;
mod io_alloc;
mod knobs;
mod lock;
mod monitor;
mod mount_point;
mod schemata;
mod tasks;

pub use error::{Action, ResctrlError, ResctrlErrorKind};
pub use evacuate::Remember;
pub use files::HeldFile;
pub use group::Group;
pub use info::MONITORING;
pub use info::{BandwidthInfo, CacheInfo, GroupLimits, Info, MonitoringInfo};
pub use io_alloc::IoAllocState;
pub use knobs::{ExclusiveWays, GroupMode, HeldCpus, HeldSchemata};
pub use lock::holder_in;
pub(crate) use lock::holder_of;
pub use lock::{FlockGuard, Holder, WriteAccess};
pub use monitor::{Count, HeldCount, MonDomain, MonitorEvent, PARTIAL_COUNTS};
pub use mount_point::REMOUNT_COMMAND;
pub use schemata::{DomainSetting, Resource, ResourceSettings, Schemata, StrangeLine};
pub use tasks::MovedTasks;

use crate::root::Root;
use crate::system::{self, DirEntry, SharedSystem, System};
use rustix::fs::Mode as Permissions;
use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Prefix of the names of Waykeeper's resctrl groups. Groups with other names are never changed.
pub const GROUP_PREFIX: &str = "waykeeper-";

/// Where resctrl is mounted (kernel:Documentation/filesystems/resctrl.rst).
pub const MOUNT: &str = "/sys/fs/resctrl";

/// The kernel's list of locks and their holders. It covers locks on every mount, also of a tree that another program
/// serves.
pub const LOCKS: &str = "/proc/locks";

/// One mounted resctrl.
#[derive(Clone, Debug)]
pub struct Resctrl {
    system: SharedSystem,
    mount: PathBuf,
    locks: PathBuf,
    prefix: String,
}

/// Mounts it there.
pub const MOUNT_COMMAND: &str = "mount -t resctrl resctrl /sys/fs/resctrl";

/// What is wrong where resctrl was mounted and is no longer.
pub fn unmounted() -> String {
    format!("another program unmounted resctrl; run: {MOUNT_COMMAND}")
}

/// What is wrong where resctrl is mounted at another place.
pub fn elsewhere(place: &str) -> String {
    format!("resctrl is mounted at {}, but Waykeeper needs it at {MOUNT}", waykeeper_units::one_line(place))
}

/// The command that makes a mount at another place reachable at ours too.
pub fn bind_command(place: &str) -> String {
    // Without a NUL, which no path has, each word can be quoted.
    let word = shlex::try_quote(place).unwrap_or_default();
    format!("mount --bind {} {MOUNT}", waykeeper_units::one_line(&word))
}

/// Whether a command clears `info/last_cmd_status` before it adds to it (virtual-host.md 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Habit {
    Clears,
    Keeps,
}

impl Resctrl {
    /// Commands whose status replaces the earlier one: schemata, mode, tasks, io_alloc.
    const CLEARS_STATUS: Habit = Habit::Clears;
    /// Commands whose status is appended to the earlier one: cpus, mkdir, max_threshold_occupancy.
    const KEEPS_STATUS: Habit = Habit::Keeps;

    /// Finds the mount under a root prefix. `prefix` begins the names of our groups.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::NotMounted`] with the remedy, if there is none.
    pub fn open(root: &Root, prefix: &str) -> Result<Resctrl, ResctrlError> {
        let mount = root.path(MOUNT);
        let absent =
            |why: &str| Err(ResctrlError::ours(ResctrlErrorKind::NotMounted, &mount, Action::List, why));
        match root.system().metadata(&mount.join("info")) {
            Ok(_) => Ok(Resctrl::on(root.system().clone(), &mount, Path::new(LOCKS), prefix)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ResctrlError::system(&mount.join("info"), Action::List, &error))
            }
            Err(_) => match Resctrl::mounted_at(root) {
                Ok(Some(place)) => absent(&format!("{}; run: {}", elsewhere(&place), bind_command(&place))),
                _ if root.system().is_dir(&mount) => {
                    absent(&format!("resctrl is not mounted; run: {MOUNT_COMMAND}"))
                }
                _ => absent(
                    "this kernel offers no resctrl: the CPU has no RDT or PQoS, a hypervisor hides it, or the kernel \
                     is built without CONFIG_X86_CPU_RESCTRL",
                ),
            },
        }
    }

    /// Checks that it is still mounted.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::NotMounted`] with the remedy.
    pub fn check_mounted(&self) -> Result<(), ResctrlError> {
        match self.system.metadata(&self.mount.join("info")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ResctrlError::ours(ResctrlErrorKind::NotMounted, &self.mount, Action::List, unmounted()))
            }
            // What else is wrong is said by what reads a file.
            _ => Ok(()),
        }
    }

    /// A mount at any path on this machine, without checking it.
    pub fn at(mount: &Path, locks: &Path, prefix: &str) -> Resctrl {
        Resctrl::on(system::real(), mount, locks, prefix)
    }

    /// A mount at any path on a system, without checking it.
    pub fn on(system: SharedSystem, mount: &Path, locks: &Path, prefix: &str) -> Resctrl {
        let (mount, locks) = (mount.to_path_buf(), locks.to_path_buf());
        Resctrl { system, mount, locks, prefix: prefix.to_owned() }
    }

    /// The system that has the files.
    fn system(&self) -> &dyn System {
        self.system.as_ref()
    }

    /// The mount's directory.
    pub fn mount_point(&self) -> &Path {
        &self.mount
    }

    /// The prefix of our groups' names.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn directory(&self, group: &Group) -> PathBuf {
        group.directory(&self.mount)
    }

    fn info_path(&self, resource: &str) -> PathBuf {
        let mut path = self.mount.join("info");
        if !resource.is_empty() {
            path.push(resource);
        }
        path
    }

    /// Our control group of this name: the prefix and `name`.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::Refused`] if no group can have that name.
    pub fn own(&self, name: &str) -> Result<Group, ResctrlError> {
        Group::control(&format!("{}{name}", self.prefix))
            .map_err(|why| ResctrlError::ours(ResctrlErrorKind::Refused, &self.mount, Action::Make, why))
    }

    /// True if the group's name, or its control group's, begins with our prefix.
    pub fn is_ours(&self, group: &Group) -> bool {
        let ours = |group: &Group| !group.name().is_empty() && group.name().starts_with(&self.prefix);
        !self.prefix.is_empty() && (ours(group) || ours(&group.parent()))
    }

    /// All control groups except the default one, ours and others', by name.
    ///
    /// # Errors
    /// If the mount cannot be listed.
    pub fn control_groups(&self) -> Result<Vec<Group>, ResctrlError> {
        self.groups_in(&self.mount, |name| Group::control(name).ok())
    }

    /// The monitoring groups of a control group, by name.
    ///
    /// # Errors
    /// If the group is gone. Without monitoring the list is empty.
    pub fn monitor_groups(&self, parent: &Group) -> Result<Vec<Group>, ResctrlError> {
        let directory = self.directory(parent).join("mon_groups");
        match self.groups_in(&directory, |name| parent.monitor(name).ok()) {
            Err(error) if error.errno == Some(libc::ENOENT) && self.has(parent) => Ok(Vec::new()),
            other => other,
        }
    }

    fn groups_in(
        &self,
        directory: &Path,
        group: impl Fn(&str) -> Option<Group>,
    ) -> Result<Vec<Group>, ResctrlError> {
        let names = self.entries(directory)?;
        let is_group = |name: &&OsString| self.system.is_dir(&directory.join(name));
        Ok(names.iter().filter(is_group).filter_map(|name| group(&group::as_text(name))).collect())
    }

    /// True if the group exists now.
    pub fn has(&self, group: &Group) -> bool {
        self.system.is_dir(&self.directory(group))
    }

    /// Distinguishes a group from a later one of the same name: its directory's inode. `None` if the group does not
    /// exist.
    pub fn identity(&self, group: &Group) -> Option<u64> {
        self.system.metadata(&self.directory(group)).ok().map(|found| found.inode)
    }

    /// Makes one of our groups. The kernel assigns a CLOSID (to a control group), an RMID and masks.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::Foreign`] for a name without our prefix, [`ResctrlErrorKind::Exists`],
    /// [`ResctrlErrorKind::Exhausted`] (no CLOSID or RMID left), [`ResctrlErrorKind::Busy`] (all RMIDs in limbo).
    pub fn create(&self, group: &Group) -> Result<(), ResctrlError> {
        let path = self.directory(group);
        self.only_ours(group, &path, Action::Make)?;
        let before = self.last_status();
        self.system.make_dir(&path, Permissions::from_raw_mode(0o777)).map_err(|error| {
            let error = ResctrlError::system(&path, Action::Make, &error);
            self.with_status(error, Some(before))
        })
    }

    /// Removes one of our groups. Its tasks and CPUs return to its parent at once; its RMID becomes free after a while.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::Foreign`] for a name without our prefix, [`ResctrlErrorKind::Gone`] if another program has
    /// removed it.
    pub fn remove(&self, group: &Group) -> Result<(), ResctrlError> {
        let path = self.directory(group);
        self.only_ours(group, &path, Action::Remove)?;
        self.system.remove_dir(&path).map_err(|error| ResctrlError::system(&path, Action::Remove, &error))
    }

    fn only_ours(&self, group: &Group, path: &Path, action: Action) -> Result<(), ResctrlError> {
        if self.is_ours(group) {
            return Ok(());
        }
        let why = format!(
            "Waykeeper did not make this group: the names of its groups begin with `{}`",
            self.prefix
        );
        Err(ResctrlError::ours(ResctrlErrorKind::Foreign, path, action, why))
    }

    /// The kernel's message about the last command, by lines. Empty if it cannot be read: it is only read after another
    /// failure.
    pub fn last_status(&self) -> Vec<String> {
        let text = files::read(self.system(), &self.mount.join("info/last_cmd_status"), files::MOST_BYTES)
            .unwrap_or_default();
        match text.trim_end() {
            "" | "ok" => Vec::new(),
            text => text.lines().map(error::shown).collect(),
        }
    }

    /// One command: opens, writes once, closes. After a refusal the error has the kernel's reason and the accepted
    /// values.
    fn write(
        &self,
        path: &Path,
        text: &str,
        habit: Habit,
        accepted: impl FnOnce() -> String,
    ) -> Result<(), ResctrlError> {
        let before = (habit == Habit::Keeps).then(|| self.last_status());
        let result = files::open_for_commands(self.system(), path)
            .and_then(|file| files::command(file.as_ref(), text));
        result.map_err(|error| {
            let error = ResctrlError::system(path, Action::Write(text.to_owned()), &error);
            let error = self.with_status(error, before);
            if error.kind == ResctrlErrorKind::Refused { error.expecting(accepted()) } else { error }
        })
    }

    /// Adds the kernel's reason. `before` is the status before the command, for commands that append to it.
    fn with_status(&self, mut error: ResctrlError, before: Option<Vec<String>>) -> ResctrlError {
        // Only resctrl's own commands return these errors. Other errors leave the status of an earlier command: the
        // file could not be opened, the group is gone, the text was longer than a page.
        const WITH_REASON: [i32; 5] = [libc::EINVAL, libc::ENOSPC, libc::EBUSY, libc::ERANGE, libc::EPERM];
        if !error.errno.is_some_and(|errno| WITH_REASON.contains(&errno)) {
            return error;
        }
        let now = self.last_status();
        let before = before.unwrap_or_default();
        let new = now.strip_prefix(before.as_slice()).unwrap_or(&now);
        if !new.is_empty() {
            error.status = Some(new.join("; "));
        }
        error
    }

    /// The names in a directory that are text, in order.
    fn list(&self, directory: &Path) -> Result<Vec<String>, ResctrlError> {
        Ok(self.entries(directory)?.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    /// All names in a directory, in order.
    fn entries(&self, directory: &Path) -> Result<Vec<OsString>, ResctrlError> {
        let mut names = Vec::new();
        let mut visit = |entry: DirEntry| {
            names.push(entry.name);
            ControlFlow::Continue(())
        };
        let listed = self.system.list(directory, &mut visit);
        listed.map_err(|error| ResctrlError::system(directory, Action::List, &error))?;
        names.sort_unstable();
        Ok(names)
    }
}
