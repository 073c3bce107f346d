//! Masks that another program wrote past resctrl, into the CPU's registers (pqos in MSR mode, PerfSpect): resctrl still
//! shows the mask that it set (hardware.md 7.5).
//!
//! Only a register's number says which class it belongs to, and the kernel tells no group's number. So a mask counts as
//! in force if any register has it; the default group's class is number 0. Reads only.

use super::LinuxHost;
use super::allocation::ExternalChange;
use waykeeper_kernel::msr::{Allowed, MsrDevice, MsrError};
use waykeeper_units::WayMask;

/// IA32_L3_QOS_MASK_0; with CDP a class has two registers (hardware.md 7.5).
const FIRST_MASK: u32 = 0xc90;

impl LinuxHost {
    /// Compares the groups' masks with the registers in each thorough sample, where registers can be read.
    pub(super) fn look_behind_masks(&mut self) {
        if self.allocation.is_thorough() && !self.allocation.only_observes() {
            // Without MSRs nothing is known of them.
            let masks = self.mask_registers().unwrap_or_default();
            let found = match masks.is_empty() {
                true => Vec::new(),
                false => changed(&self.allocation.masks_of_groups(), &masks),
            };
            self.allocation.note_masks_behind(found);
        }
    }

    fn mask_registers(&self) -> Result<Vec<WayMask>, MsrError> {
        let msr = MsrDevice::open(&self.root, self.facts.reader.0, Allowed::nothing())?;
        // The upper half is reserved.
        let read = |number| Ok(WayMask::from_bits(msr.read(FIRST_MASK + number)? as u32));
        (0..self.allocation.mask_registers()).map(read).collect()
    }
}

/// The groups whose masks no register has. The first group is the default one, whose class is number 0.
fn changed(groups: &[(String, WayMask)], registers: &[WayMask]) -> Vec<ExternalChange> {
    let is_behind = |(index, (_, mask)): &(usize, &(String, WayMask))| match index {
        0 => registers.first() != Some(mask),
        _ => !registers.contains(mask),
    };
    let change = |(_, (group, mask)): (usize, &(String, WayMask))| ExternalChange::MaskBehind {
        group: group.clone(),
        mask: *mask,
    };
    groups.iter().enumerate().filter(is_behind).map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_that_no_register_has_was_changed_behind_resctrl() {
        let mask = WayMask::from_bits;
        let groups = [("(default)".to_owned(), mask(0x7ff)), ("waykeeper-fio".to_owned(), mask(0x7f0))];
        let found = |registers: &[u32]| {
            let registers: Vec<WayMask> = registers.iter().copied().map(mask).collect();
            changed(&groups, &registers).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(&[0x7ff, 0x7ff, 0x7f0]), [""; 0]);
        let fio = "resctrl shows mask 0x7f0 for group waykeeper-fio, but no register has it: another program wrote the \
                   masks past resctrl";
        assert_eq!(found(&[0x7ff, 0x003, 0x003]), [fio]);
        // Another class may have the default group's mask, but class 0 does not.
        assert_eq!(found(&[0x00f, 0x7ff, 0x7f0]).len(), 1);
    }
}
