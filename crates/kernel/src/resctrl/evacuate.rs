//! Moves other programs' monitoring groups out of our group before it is removed; otherwise they would be removed with
//! it.
//!
//! Since Linux 6.5 a monitoring group can be moved to another parent (rename(2), rdtgroup_rename) if it has no CPUs, so
//! its CPUs are taken from it before and returned after. It must not know why a group is removed, nor how CPUs are
//! recorded.

use super::error::{Action, ResctrlError, ResctrlErrorKind};
use super::{Group, Resctrl};
use waykeeper_units::{CoreId, CoreList};

/// Records a group's CPUs before they are taken from it, or refuses with a reason.
pub type Remember<'a> = dyn FnMut(&Group, &CoreList) -> Result<(), String> + 'a;

impl Resctrl {
    /// Other programs' monitoring groups in one of our control groups: their names do not begin with our prefix.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn others_monitors(&self, group: &Group) -> Result<Vec<Group>, ResctrlError> {
        if group.is_monitor() {
            return Ok(Vec::new());
        }
        let all = self.monitor_groups(group)?;
        Ok(all.into_iter().filter(|monitor| !monitor.name().starts_with(&self.prefix)).collect())
    }

    /// Removes one of our control groups. Other programs' monitoring groups in it first move to the default group, with
    /// their tasks and CPUs. Where the kernel cannot move them our group stays, without CPUs and tasks.
    ///
    /// `remember` gets a monitoring group's CPUs before they are taken from it, once for its old and once for its new
    /// place. If it refuses, no CPU is taken and our group keeps its CPUs and tasks.
    ///
    /// # Errors
    /// As [`Resctrl::remove`]; [`ResctrlErrorKind::Foreign`] if the group stays because of a monitoring group. If its
    /// monitoring groups cannot be listed, nothing is changed.
    pub fn remove_keeping_monitors(
        &self,
        group: &Group,
        remember: &mut Remember<'_>,
    ) -> Result<(), ResctrlError> {
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
                ResctrlError::ours(ResctrlErrorKind::Foreign, &self.directory(group), Action::Remove, why)
            })),
        };
        // Its CPUs are in the default group again, so the moved monitoring groups can have theirs back.
        let watched = moved.into_iter().map(|(monitor, cpus)| self.watch_again(&monitor, &cpus));
        let watched = watched.fold(Ok(()), Result::and);
        removed.and(watched)
    }

    /// Takes all CPUs and tasks out of a group that has to stay.
    fn empty(&self, group: &Group, error: &ResctrlError) -> Result<(), ResctrlError> {
        self.only_ours(group, &self.directory(group), Action::Remove)?;
        // A monitoring group whose CPUs could not be recorded keeps them, and so does our group around it.
        if error.kind == ResctrlErrorKind::Unremembered {
            return Err(error.clone());
        }
        self.set_cpus(group, &CoreList::default())?;
        let tasks = self.tasks(group)?;
        self.assign(&Group::DEFAULT, &tasks).map(drop)
    }

    /// Returns CPUs to a monitoring group of the default group, except those that are in another control group now.
    fn watch_again(&self, monitor: &Group, cpus: &CoreList) -> Result<(), ResctrlError> {
        let there = self.cpus(&Group::DEFAULT)?;
        let own = self.cpus(monitor)?;
        let back = cpus.cores().iter().filter(|cpu| there.cores().contains(cpu));
        let all = CoreList::from(back.chain(own.cores()).copied().collect::<Vec<CoreId>>());
        if all == own { Ok(()) } else { self.set_cpus(monitor, &all) }
    }

    /// Moves another program's monitoring group from our group to the default group. Returns its new place, and the
    /// CPUs that it had.
    fn move_out(
        &self,
        monitor: &Group,
        remember: &mut Remember<'_>,
    ) -> Result<(Group, CoreList), ResctrlError> {
        let (path, name) = (self.directory(monitor), monitor.name());
        let moved = Group::DEFAULT
            .monitor(name)
            .map_err(|why| ResctrlError::ours(ResctrlErrorKind::Refused, &path, Action::Remove, why))?;
        let cpus = self.cpus(monitor)?;
        if !cpus.is_empty() {
            let kept = remember(&moved, &cpus).and_then(|()| remember(monitor, &cpus));
            kept.map_err(|why| {
                ResctrlError::ours(ResctrlErrorKind::Unremembered, &path, Action::Remove, why)
            })?;
            self.set_cpus(monitor, &CoreList::default())?;
        }
        match self.system.rename(&path, &self.directory(&moved)) {
            Ok(()) => Ok((moved, cpus)),
            Err(error) => {
                if !cpus.is_empty() {
                    // It stays where it is, with its CPUs.
                    self.set_cpus(monitor, &cpus)?;
                }
                Err(ResctrlError::system(&path, Action::Remove, &error))
            }
        }
    }
}
