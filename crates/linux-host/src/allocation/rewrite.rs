//! External changes to what a group has besides CPUs and tasks, which a correction writes again: its mode, its shares of
//! what no policy sets, and the mask of its class where no register has it any more.
//!
//! A thorough sample finds them. A correction ends the report; the next look says what is true then. Must not know policies.

use super::external::ExternalChange;
use super::{Allocation, Class, GroupsError};
use waykeeper_kernel::resctrl::{Group, GroupMode, ResctrlErrorKind, ResourceSettings, Schemata};
use waykeeper_units::WayMask;

impl ExternalChange {
    /// The group in which a correction writes something again.
    fn rewritten(&self) -> Option<&str> {
        match self {
            ExternalChange::ModeChanged { group, .. }
            | ExternalChange::SharesChanged { group, .. }
            | ExternalChange::MaskBehind { group, .. } => Some(group),
            _ => None,
        }
    }
}

impl Allocation {
    /// Our groups that are not shareable. A file that cannot be read is reported where the group's others are.
    pub(super) fn changed_modes(&self) -> Vec<ExternalChange> {
        let of = |class: &Class| match self.resctrl.mode(&class.group) {
            Ok(GroupMode::Shareable) | Err(_) => None,
            Ok(mode) => {
                Some(ExternalChange::ModeChanged { group: class.group.to_string(), mode: mode.name() })
            }
        };
        self.classes.values().filter_map(of).collect()
    }

    /// The shares of our groups that are not those that they had when they were made.
    pub(super) fn changed_shares(&self) -> Vec<ExternalChange> {
        let of = |class: &Class| {
            let (found, had) = self.shares_lost(&class.group)?;
            let text = |lines: &[ResourceSettings]| {
                lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let group = class.group.to_string();
            Some(ExternalChange::SharesChanged { group, found: text(&found), had: text(&had) })
        };
        self.classes.values().filter_map(of).collect()
    }

    /// The shares that another program changed: as they are, and as they were. `None` if there are none, or if they cannot
    /// be read.
    fn shares_lost(&self, group: &Group) -> Option<(Vec<ResourceSettings>, Vec<ResourceSettings>)> {
        let shares = &self.held.get(group)?.shares;
        let now = self.resctrl.schemata(group).ok()?;
        let (mut found, mut had) = (Vec::new(), Vec::new());
        for line in shares {
            // A domain whose CPUs are all offline is not listed.
            let changed = now.differing(line).into_iter().filter_map(|(id, had, now)| Some((id, had, now?)));
            let (is, was): (Vec<_>, Vec<_>) = changed.map(|(id, had, now)| ((id, now), (id, had))).unzip();
            if !is.is_empty() {
                found.push(ResourceSettings::new(line.resource.clone(), is));
                had.push(ResourceSettings::new(line.resource.clone(), was));
            }
        }
        (!found.is_empty()).then_some((found, had))
    }

    /// What a group's schemata has besides the masks that policies set.
    pub(super) fn shares_in(&self, schemata: Schemata) -> Vec<ResourceSettings> {
        let mut lines = schemata.lines;
        for line in lines.iter_mut().filter(|line| self.chip.resources.contains(&line.resource)) {
            line.domains.retain(|(id, _)| *id != self.chip.domain);
        }
        lines.retain(|line| !line.domains.is_empty());
        lines
    }

    /// The masks that no register has, as of this sample.
    pub fn note_masks_behind(&mut self, found: Vec<ExternalChange>) {
        self.external.masks_behind = found;
    }

    /// Drops what was found in a group that is ours no longer.
    pub(super) fn forget_rewritten(&mut self, group: &Group) {
        let name = group.to_string();
        self.external.seldom.retain(|own| own.rewritten() != Some(&name));
        self.external.masks_behind.retain(|own| own.rewritten() != Some(&name));
    }

    /// A mask was written: the kernel wrote the register, unless it showed this mask before.
    pub(super) fn mask_is_written(&mut self, group: &Group, written: WayMask) {
        let name = group.to_string();
        self.external.masks_behind.retain(|own| match own {
            ExternalChange::MaskBehind { group, mask } => *group != name || *mask == written,
            _ => true,
        });
    }

    /// Whether something is to be written again in a group that is a class of ours.
    pub(super) fn has_to_rewrite(&self) -> bool {
        let is_class = |name: &str| self.classes.values().any(|class| class.group.to_string() == name);
        let may = |group: &str| self.external.may_correct(group) && is_class(group);
        self.external_changes().filter_map(ExternalChange::rewritten).any(may)
    }

    /// Writes again what another program changed in a group of ours. The default group's register stays as it is:
    /// the journal has no original of it.
    pub(super) fn rewrite(&mut self, group: &Group) -> Result<(), GroupsError> {
        if group.is_default() {
            return Ok(());
        }
        if !self.state.has_ours(group) || self.was_replaced(group) {
            return Err(GroupsError::Gone(group.clone()));
        }
        let name = group.to_string();
        let is_own = |change: &&ExternalChange| change.rewritten() == Some(&name);
        for change in self.external_changes().filter(is_own).cloned().collect::<Vec<_>>() {
            match change {
                ExternalChange::ModeChanged { .. } => self.resctrl.set_mode(group, GroupMode::Shareable)?,
                ExternalChange::SharesChanged { .. } => {
                    if let Some((_, had)) = self.shares_lost(group) {
                        self.resctrl.set_schemata(group, &had)?;
                    }
                }
                ExternalChange::MaskBehind { .. } => {
                    // Since the sample a policy or another program may have set another one.
                    let mask = self.mask(group).map_err(GroupsError::ReadsBack)?;
                    self.force_mask(group, mask)?;
                }
                _ => continue,
            }
            self.external.seldom.retain(|own| *own != change);
            self.external.masks_behind.retain(|own| *own != change);
        }
        Ok(())
    }

    /// Writes a mask into the registers. The kernel writes no register for a mask that it takes to be in force (linux
    /// ctrlmondata.c, resctrl_arch_update_domains), so another mask is written first.
    fn force_mask(&mut self, group: &Group, mask: WayMask) -> Result<(), GroupsError> {
        let mut refusal = None;
        for other in neighbours(mask, self.chip.ways, self.chip.least_ways) {
            match self.write_mask(group, other) {
                // It may have a way that another group's mode keeps.
                Err(GroupsError::Resctrl(error)) if error.kind == ResctrlErrorKind::Busy => {
                    refusal = Some(error);
                }
                written => return written.and_then(|()| self.write_mask(group, mask)),
            }
        }
        // To write the mask alone would write no register.
        let none = || {
            let why = "and there is no other mask that could be written before it";
            GroupsError::ReadsBack(format!("no register has mask {mask}, {why}"))
        };
        Err(refusal.map_or_else(none, GroupsError::Resctrl))
    }
}

/// Masks with one way less or more, without new holes, as far as the CPU accepts them: those with less come first.
fn neighbours(mask: WayMask, ways: WayMask, least: u32) -> Vec<WayMask> {
    let way = |number: Option<u32>| number.map_or(WayMask::EMPTY, |number| WayMask::span(number, 1));
    let (low, high) = (mask.lowest(), mask.highest());
    let above = way(high.and_then(|high| high.checked_add(1)).filter(|way| ways.contains(*way)));
    let below = way(low.and_then(|low| low.checked_sub(1)).filter(|way| ways.contains(*way)));
    let others = [mask.minus(way(high)), mask.minus(way(low)), mask.or(above), mask.or(below)];
    others.into_iter().filter(|other| *other != mask && other.count() >= least.max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_mask_are_masks_that_the_cpu_accepts() {
        let of = |bits: u32, least: u32| {
            let found = neighbours(WayMask::from_bits(bits), WayMask::full(11), least);
            found.into_iter().map(WayMask::bits).collect::<Vec<_>>()
        };
        assert_eq!(of(0x7ff, 1), [0x3ff, 0x7fe]);
        assert_eq!(of(0x0f0, 1), [0x070, 0x0e0, 0x1f0, 0x0f8]);
        assert_eq!(of(0x600, 2), [0x700]);
        assert_eq!(of(0x001, 1), [0x003]);
    }
}
