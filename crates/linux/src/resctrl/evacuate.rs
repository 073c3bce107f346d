//! Monitoring groups that others made in a group of ours: taken out of it before it goes, for they would go with it.
//!
//! From Linux 6.5 on a monitoring group can be given another parent (rename(2), rdtgroup_rename), if it watches no CPUs; so
//! its CPUs are taken from it before and given back after. It must not know why a group goes.

use super::error::{Action, Kind, ResctrlError};
use super::{Group, Resctrl};
use std::fs;
use waykeeper_units::{CoreId, CoreList};

impl Resctrl {
    /// Monitoring groups in a control group of ours whose names do not begin with our prefix: somebody else's.
    ///
    /// # Errors
    /// If the group has gone.
    pub fn others_monitors(&self, group: &Group) -> Result<Vec<Group>, ResctrlError> {
        if group.is_monitor() {
            return Ok(Vec::new());
        }
        let all = self.monitor_groups(group)?;
        Ok(all.into_iter().filter(|monitor| !monitor.name().starts_with(&self.prefix)).collect())
    }

    /// Removes a control group of ours, but never what somebody else made in it: such monitoring groups move to the default
    /// group first, with their tasks and CPUs. Where the kernel cannot do that the group stays, without CPUs and tasks.
    ///
    /// # Errors
    /// As [`Resctrl::remove`]; [`Kind::Foreign`] if the group stays for what is in it.
    pub fn remove_kindly(&self, group: &Group) -> Result<(), ResctrlError> {
        let mut watched = Vec::new();
        for monitor in self.others_monitors(group).unwrap_or_default() {
            match self.move_out(&monitor) {
                Ok(moved) => watched.push(moved),
                Err(error) => {
                    let path = self.directory(group);
                    self.only_ours(group, &path, Action::Remove)?;
                    self.set_cpus(group, &CoreList::default())?;
                    let tasks = self.tasks(group)?;
                    self.assign(&Group::DEFAULT, &tasks)?;
                    let why = format!(
                        "the monitoring group {} in it is somebody else's and cannot be moved ({error}); the group stays, \
                         empty, until that is removed",
                        monitor.name()
                    );
                    return Err(ResctrlError::ours(Kind::Foreign, &path, Action::Remove, why));
                }
            }
        }
        self.remove(group)?;
        // Its CPUs are in the default group again, and whoever watched them may go on; what has another group now stays.
        for (monitor, cpus) in watched {
            let there = self.cpus(&Group::DEFAULT)?;
            let own = self.cpus(&monitor)?;
            let back = cpus.cores().iter().filter(|cpu| there.cores().contains(cpu));
            let all: Vec<CoreId> = back.chain(own.cores()).copied().collect();
            if !all.is_empty() {
                self.set_cpus(&monitor, &CoreList::from(all))?;
            }
        }
        Ok(())
    }

    /// Moves a monitoring group of somebody else's in a group of ours to the default group. The answer is where it is, and
    /// the CPUs that it watched.
    fn move_out(&self, monitor: &Group) -> Result<(Group, CoreList), ResctrlError> {
        let (path, name) = (self.directory(monitor), monitor.name());
        let moved = Group::DEFAULT
            .monitor(name)
            .map_err(|why| ResctrlError::ours(Kind::Refused, &path, Action::Remove, why))?;
        let cpus = self.cpus(monitor)?;
        if !cpus.is_empty() {
            self.set_cpus(monitor, &CoreList::default())?;
        }
        match fs::rename(&path, self.directory(&moved)) {
            Ok(()) => Ok((moved, cpus)),
            Err(error) => {
                if !cpus.is_empty() {
                    // As it was: it stays where it is.
                    self.set_cpus(monitor, &cpus)?;
                }
                Err(ResctrlError::system(&path, Action::Remove, &error))
            }
        }
    }
}
