//! Monitoring groups that others made in a group of ours: taken out of it before it goes, for they would go with it.
//!
//! From Linux 6.5 on a monitoring group can be given another parent (rename(2), rdtgroup_rename), if it watches no CPUs; so
//! its CPUs are taken from it before and given back after. It must not know why a group goes, nor how CPUs are remembered.

use super::error::{Action, Kind, ResctrlError};
use super::{Group, Resctrl};
use std::fs;
use waykeeper_units::{CoreId, CoreList};

/// Is told a group's CPUs before they are taken from it, and may refuse that with a reason.
pub type Remember<'a> = dyn FnMut(&Group, &CoreList) -> Result<(), String> + 'a;

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
    /// `remember` is told what a group watches before that is taken from it, for where the group is and for where it will
    /// be; what it refuses is not taken.
    ///
    /// # Errors
    /// As [`Resctrl::remove`]; [`Kind::Foreign`] if the group stays for what is in it. If it cannot be told whether there is
    /// anything in it, it stays as it is.
    pub fn remove_kindly(&self, group: &Group, remember: &mut Remember<'_>) -> Result<(), ResctrlError> {
        let mut moved = Vec::new();
        let mut stuck = None;
        for monitor in self.others_monitors(group)? {
            match self.move_out(&monitor, remember) {
                Ok(place) => moved.push(place),
                Err(error) => {
                    stuck = Some((monitor, error));
                    break;
                }
            }
        }
        let removed = match stuck {
            None => self.remove(group),
            Some((monitor, error)) => Err(self.empty(group, &error).err().unwrap_or_else(|| {
                let why = format!(
                    "the monitoring group {} in it was made by another program and cannot be moved \
                     ({error}); the group stays, empty, until that one is removed",
                    monitor.name()
                );
                ResctrlError::ours(Kind::Foreign, &self.directory(group), Action::Remove, why)
            })),
        };
        // Its CPUs are in the default group again, and whoever watched them may go on.
        let watched = moved.into_iter().map(|(monitor, cpus)| self.watch_again(&monitor, &cpus));
        let watched = watched.fold(Ok(()), Result::and);
        removed.and(watched)
    }

    /// Takes all CPUs and tasks out of a group that has to stay.
    fn empty(&self, group: &Group, error: &ResctrlError) -> Result<(), ResctrlError> {
        self.only_ours(group, &self.directory(group), Action::Remove)?;
        // One whose CPUs could not be remembered keeps them, and so does the group that it is in.
        if error.kind == Kind::Unremembered {
            return Err(error.clone());
        }
        self.set_cpus(group, &CoreList::default())?;
        let tasks = self.tasks(group)?;
        self.assign(&Group::DEFAULT, &tasks).map(drop)
    }

    /// Gives a monitoring group of the default group the CPUs that it watched; what has another group now stays there.
    fn watch_again(&self, monitor: &Group, cpus: &CoreList) -> Result<(), ResctrlError> {
        let there = self.cpus(&Group::DEFAULT)?;
        let own = self.cpus(monitor)?;
        let back = cpus.cores().iter().filter(|cpu| there.cores().contains(cpu));
        let all = CoreList::from(back.chain(own.cores()).copied().collect::<Vec<CoreId>>());
        if all == own { Ok(()) } else { self.set_cpus(monitor, &all) }
    }

    /// Moves a monitoring group of somebody else's in a group of ours to the default group. The answer is where it is, and
    /// the CPUs that it watched.
    fn move_out(
        &self,
        monitor: &Group,
        remember: &mut Remember<'_>,
    ) -> Result<(Group, CoreList), ResctrlError> {
        let (path, name) = (self.directory(monitor), monitor.name());
        let moved = Group::DEFAULT
            .monitor(name)
            .map_err(|why| ResctrlError::ours(Kind::Refused, &path, Action::Remove, why))?;
        let cpus = self.cpus(monitor)?;
        if !cpus.is_empty() {
            let kept = remember(&moved, &cpus).and_then(|()| remember(monitor, &cpus));
            kept.map_err(|why| ResctrlError::ours(Kind::Unremembered, &path, Action::Remove, why))?;
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
