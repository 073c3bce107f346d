//! Restores bits of a register: only those that Waykeeper set and that no other program has changed since.
//!
//! Another program may have taken over a counter while we counted, or may use other bits of the same register. Its
//! bits are not changed. Must not know what a register does.

use super::{RestoreOutcome, reads_back};
use crate::journal::{Claim, OriginalBits};
use crate::registers::{RegisterAddress, RegisterIo};

fn read(registers: &dyn RegisterIo, register: &RegisterAddress) -> Result<u64, String> {
    match (register, registers.read(register)?) {
        // All bits set means that the register does not answer: no register has that value.
        (RegisterAddress::Msr { .. }, u64::MAX) => {
            Err(format!("{register} reads all ones: it does not answer"))
        }
        (_, value) => Ok(value),
    }
}

/// Reads twice. One bad reading must not pass for the original value, which would end the journal, and must not be
/// written back.
pub(super) fn read_still(registers: &dyn RegisterIo, register: &RegisterAddress) -> Result<u64, String> {
    match (read(registers, register)?, read(registers, register)?) {
        (first, second) if first == second => Ok(first),
        (first, second) => Err(format!("the register reads {first:#x} and then {second:#x}")),
    }
}

/// Restores bits, given their register's value.
pub(super) fn put_back(
    bits: &OriginalBits<'_>,
    found: u64,
    registers: &dyn RegisterIo,
) -> Result<RestoreOutcome, String> {
    let OriginalBits { address, mask, value, .. } = bits;
    // Not written then: a write would disturb a program that counts there now (perf, for one) and taint the kernel.
    if found & mask == value & mask {
        return Ok(RestoreOutcome::AsItWas);
    }
    if let Some(taken) = taken(bits, found, registers)? {
        return Ok(RestoreOutcome::Left(taken));
    }
    // Bits outside the mask keep their current value.
    registers.write(address, found & !mask | value & mask)?;
    let now = read(registers, address)?;
    Ok(if now & mask == value & mask {
        RestoreOutcome::Restored
    } else {
        reads_back(&format_args!("{now:#x}"))
    })
}

/// Evidence that another program has changed them: in the bits themselves or in a claim. Bits that are all zero count as
/// free: the other program has finished.
fn taken(bits: &OriginalBits<'_>, found: u64, registers: &dyn RegisterIo) -> Result<Option<String>, String> {
    let held = found & bits.mask;
    if held != 0 && !bits.ownership.ours.is_empty() && !bits.ownership.ours.contains(&held) {
        return Ok(Some(format!("another program wrote it, it is now {found:#x}")));
    }
    for Claim { at, mask, values } in &bits.ownership.claims {
        let claimed = bits.address.beside(*at)?;
        let held = read_still(registers, &claimed)? & mask;
        if held != 0 && !values.contains(&held) {
            return Ok(Some(format!("another program wrote {claimed}, which is now {held:#x}")));
        }
    }
    Ok(None)
}
