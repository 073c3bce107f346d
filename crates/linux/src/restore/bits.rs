//! Bits of a register that go back to what they were: only ours, and only as long as nobody else has taken them.
//!
//! A tool may have taken a counter over while we counted, or somebody may use other bits of the same register. What is
//! his stays as he made it. Must not know what a register is good for.

use super::{Outcome, Registers, reads_back};
use crate::journal::{Claim, Hold};

/// How a register is reached.
pub(super) enum Door<'a> {
    /// An MSR, through a CPU.
    Msr(u16),
    /// So many bytes of a device's config space.
    Pci(&'a str, u8),
}

impl Door<'_> {
    fn read(&self, registers: &mut impl Registers, at: u32) -> Result<u64, String> {
        match self {
            // No register has all bits set: it does not answer.
            Door::Msr(cpu) => match registers.msr(*cpu, at)? {
                u64::MAX => Err(format!("MSR {at:#x} of CPU {cpu} reads all ones: it does not answer")),
                value => Ok(value),
            },
            Door::Pci(device, width) => registers.pci(device, offset(at)?, *width).map(u64::from),
        }
    }

    /// What it reads twice: one bad answer must neither pass for the original, which would end the journal, nor be written
    /// back.
    pub fn read_still(&self, registers: &mut impl Registers, at: u32) -> Result<u64, String> {
        match (self.read(registers, at)?, self.read(registers, at)?) {
            (first, second) if first == second => Ok(first),
            (first, second) => Err(format!("the register reads {first:#x} and then {second:#x}")),
        }
    }

    fn write(&self, registers: &mut impl Registers, at: u32, value: u64) -> Result<(), String> {
        match self {
            Door::Msr(cpu) => registers.set_msr(*cpu, at, value),
            Door::Pci(device, width) => registers.set_pci(device, offset(at)?, *width, value as u32),
        }
    }

    fn place(&self, at: u32) -> String {
        match self {
            Door::Msr(cpu) => format!("MSR {at:#x} of CPU {cpu}"),
            Door::Pci(device, _) => format!("register {at:#x} of PCI device {device}"),
        }
    }
}

fn offset(at: u32) -> Result<u16, String> {
    u16::try_from(at).map_err(|_| format!("offset {at:#x} is beyond any config space"))
}

/// Bits of one register.
pub(super) struct Bits<'a> {
    pub at: u32,
    pub mask: u64,
    pub value: u64,
    pub hold: &'a Hold,
}

impl Bits<'_> {
    /// Puts them back, given what the register holds.
    pub fn put_back(
        &self,
        found: u64,
        door: &Door<'_>,
        registers: &mut impl Registers,
    ) -> Result<Outcome, String> {
        let Bits { at, mask, value, .. } = *self;
        // Not written then: whoever counts there by now (perf, for one) would be disturbed, and the kernel tainted.
        if found & mask == value & mask {
            return Ok(Outcome::AsItWas);
        }
        if let Some(taken) = self.taken(found, door, registers)? {
            return Ok(Outcome::Left(taken));
        }
        // The bits that are not ours stay as they are now, whoever has changed them.
        door.write(registers, at, found & !mask | value & mask)?;
        let now = door.read(registers, at)?;
        Ok(if now & mask == value & mask { Outcome::Restored } else { reads_back(&format_args!("{now:#x}")) })
    }

    /// Who shows that they are somebody else's by now: the bits themselves, or what claims them. Zeros are nobody's: whoever
    /// was there has gone.
    fn taken(
        &self,
        found: u64,
        door: &Door<'_>,
        registers: &mut impl Registers,
    ) -> Result<Option<String>, String> {
        let held = found & self.mask;
        if held != 0 && !self.hold.ours.is_empty() && !self.hold.ours.contains(&held) {
            return Ok(Some(format!("another program wrote it, it is now {found:#x}")));
        }
        for Claim { at, mask, values } in &self.hold.claims {
            let held = door.read_still(registers, *at)? & mask;
            if held != 0 && !values.contains(&held) {
                let place = door.place(*at);
                return Ok(Some(format!("another program wrote {place}, which is now {held:#x}")));
            }
        }
        Ok(None)
    }
}
