//! Restores bits of a register: only those that Waykeeper set and that no other program has changed since.
//!
//! Another program may have taken over a counter while we counted, or may use other bits of the same register. Its
//! bits are not changed. Must not know what a register does.

use super::{Outcome, Registers, reads_back};
use crate::journal::{Claim, OwnershipCheck};

/// How a register is accessed.
pub(super) enum RegisterPath<'a> {
    /// An MSR, through a CPU.
    Msr(u16),
    /// A device's config space, with the width in bytes.
    Pci(&'a str, u8),
}

impl RegisterPath<'_> {
    fn read(&self, registers: &mut impl Registers, at: u32) -> Result<u64, String> {
        match self {
            // All bits set means that the register does not answer: no register has that value.
            RegisterPath::Msr(cpu) => match registers.msr(*cpu, at)? {
                u64::MAX => Err(format!("MSR {at:#x} of CPU {cpu} reads all ones: it does not answer")),
                value => Ok(value),
            },
            RegisterPath::Pci(device, width) => registers.pci(device, offset(at)?, *width).map(u64::from),
        }
    }

    /// Reads twice. One bad reading must not pass for the original value, which would end the journal, and must not
    /// be written back.
    pub fn read_still(&self, registers: &mut impl Registers, at: u32) -> Result<u64, String> {
        match (self.read(registers, at)?, self.read(registers, at)?) {
            (first, second) if first == second => Ok(first),
            (first, second) => Err(format!("the register reads {first:#x} and then {second:#x}")),
        }
    }

    fn write(&self, registers: &mut impl Registers, at: u32, value: u64) -> Result<(), String> {
        match self {
            RegisterPath::Msr(cpu) => registers.set_msr(*cpu, at, value),
            RegisterPath::Pci(device, width) => registers.set_pci(device, offset(at)?, *width, value as u32),
        }
    }

    fn place(&self, at: u32) -> String {
        match self {
            RegisterPath::Msr(cpu) => format!("MSR {at:#x} of CPU {cpu}"),
            RegisterPath::Pci(device, _) => format!("register {at:#x} of PCI device {device}"),
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
    pub ownership: &'a OwnershipCheck,
}

impl Bits<'_> {
    /// Restores them, given the register's value.
    pub fn put_back(
        &self,
        found: u64,
        register_path: &RegisterPath<'_>,
        registers: &mut impl Registers,
    ) -> Result<Outcome, String> {
        let Bits { at, mask, value, .. } = *self;
        // Not written then: a write would disturb a program that counts there now (perf, for one) and taint the
        // kernel.
        if found & mask == value & mask {
            return Ok(Outcome::AsItWas);
        }
        if let Some(taken) = self.taken(found, register_path, registers)? {
            return Ok(Outcome::Left(taken));
        }
        // Bits outside the mask keep their current value.
        register_path.write(registers, at, found & !mask | value & mask)?;
        let now = register_path.read(registers, at)?;
        Ok(if now & mask == value & mask { Outcome::Restored } else { reads_back(&format_args!("{now:#x}")) })
    }

    /// Evidence that another program has changed them: in the bits themselves or in a claim. Bits that are all zero
    /// count as free: the other program has finished.
    fn taken(
        &self,
        found: u64,
        register_path: &RegisterPath<'_>,
        registers: &mut impl Registers,
    ) -> Result<Option<String>, String> {
        let held = found & self.mask;
        if held != 0 && !self.ownership.ours.is_empty() && !self.ownership.ours.contains(&held) {
            return Ok(Some(format!("another program wrote it, it is now {found:#x}")));
        }
        for Claim { at, mask, values } in &self.ownership.claims {
            let held = register_path.read_still(registers, *at)? & mask;
            if held != 0 && !values.contains(&held) {
                let place = register_path.place(*at);
                return Ok(Some(format!("another program wrote {place}, which is now {held:#x}")));
            }
        }
        Ok(None)
    }
}
