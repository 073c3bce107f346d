//! A resctrl that another program unmounted and mounted again: all groups are gone, and with other options the kernel offers
//! other resources (`cdp`: code and data apart) or other units (`mba_MBps`).
//!
//! It shows itself by other resources, by other options, or by its absence in the sample before. Must not know policies.

use super::external::ExternalChange;
use super::{Allocation, Chip, GroupsError, Held};
use waykeeper_kernel::journal::Journal;
use waykeeper_kernel::resctrl::{Group, Info, Resctrl, Resource, Schemata};
use waykeeper_units::WayMask;

/// The mount that the groups are in.
#[derive(Debug, Default)]
pub(super) struct Mount {
    /// The options that it was made with at the start, and now, as far as they are known.
    options: (Option<String>, Option<String>),
    /// Another program mounted it anew.
    is_new: bool,
}

impl Chip {
    /// Takes over what the kernel offers now.
    fn follow(&mut self, info: &Info) {
        self.resources = info.l3_resources();
        self.ways = info.l3().map_or(WayMask::EMPTY, |l3| l3.cbm_mask);
        self.least_ways = info.l3().map_or(1, |l3| l3.min_cbm_bits);
        self.registers = info.l3().map_or(0, |l3| l3.num_closids) * self.resources.len() as u32;
        self.closids = info.l3().map_or(0, |_| info.classes_for_groups()) as usize;
        self.rmids = info.limits().rmids;
    }
}

impl Allocation {
    /// Records what is mounted at the start.
    pub(super) fn begin_mount(&mut self, info: &Info) {
        self.chip.follow(info);
        let options = Resctrl::made_with(&self.root).ok().flatten();
        self.mount = Mount { options: (options.clone(), options), is_new: false };
    }

    /// Looks whether another program has mounted resctrl anew, and if so reads what it offers now. Without `is_suspect`
    /// it looks only if resctrl was not mounted in the sample before.
    pub(super) fn follow_mount(
        &mut self,
        is_suspect: bool,
        journal: Option<&mut Journal>,
    ) -> Result<(), GroupsError> {
        let was_away = self.external.seldom.contains(&ExternalChange::Unmounted);
        if !self.chip.is_mounted || !(is_suspect || was_away) {
            return Ok(());
        }
        let is_new = was_away || self.offers_others() || self.has_other_options();
        if !is_new || self.resctrl.check_mounted().is_err() {
            return Ok(());
        }
        journal.map_or(Ok(()), Journal::enter_resctrl)?;
        let info = self.resctrl.info()?;
        if !self.only_observes() {
            self.hold_default()?;
        }
        self.chip.follow(&info);
        self.traffic.starts_anew();
        self.begin_limit()?;
        self.mount.options.1 = Resctrl::made_with(&self.root).ok().flatten();
        self.mount.is_new = true;
        Ok(())
    }

    /// Sets the limit of classes by what the kernel offers.
    pub(super) fn begin_limit(&mut self) -> Result<(), GroupsError> {
        match self.only_observes() {
            // Other programs' groups are no limit to what could be set.
            true => self.placement.set_limit(self.chip.closids.min(self.most)),
            false => {
                let own = |group: &Group| self.classes.values().any(|class| class.group == *group);
                let control = self.resctrl.control_groups()?;
                self.limit_classes(control.into_iter().filter(|group| !own(group)).collect());
            }
        }
        Ok(())
    }

    /// Opens the default group's files that are read at every interval.
    pub(super) fn hold_default(&mut self) -> Result<(), GroupsError> {
        let held = Held {
            schemata: Some(self.resctrl.hold_schemata(&Group::DEFAULT)?),
            cpus: Some(self.resctrl.hold_cpus(&Group::DEFAULT)?),
            traffic: self.hold_traffic(&Group::DEFAULT)?,
            ..Held::default()
        };
        self.held.insert(Group::DEFAULT, held);
        Ok(())
    }

    /// Whether the default group, which no program can remove, is gone or has other resources.
    fn offers_others(&self) -> bool {
        let now = match self.held.get(&Group::DEFAULT).and_then(|held| held.schemata.as_ref()) {
            Some(held) => held.read(),
            None => self.resctrl.schemata(&Group::DEFAULT).map(Some),
        };
        let is_absent =
            |now: &Schemata, own: &Resource| now.line(own).is_none() && now.trouble_with(own).is_none();
        now.is_ok_and(|now| now.is_none_or(|now| self.chip.resources.iter().any(|own| is_absent(&now, own))))
    }

    /// Whether the options are others than before. An observed host is asked at each sample, where this would cost too much.
    fn has_other_options(&self) -> bool {
        let options = || Resctrl::made_with(&self.root).ok().flatten();
        !self.only_observes() && options().is_some_and(|own| Some(own) != self.mount.options.1)
    }

    /// The new mount as an external change: while it has other options, or while `is_felt`.
    pub(super) fn mount_change(&mut self, is_felt: bool) -> Option<ExternalChange> {
        let (had, options) = self.mount.options.clone();
        self.mount.is_new &= is_felt || had != options;
        self.mount.is_new.then_some(ExternalChange::Remounted { options, had })
    }
}
