//! The registers of a host for those who bring knobs back or turn them by hand: [`RegisterFiles`] with two things more.
//!
//! A switch of a root port is turned only after a look at the capability chain (hardware.md 2.1), and a refusal for want
//! of permission is remembered, because it has an exit code of its own. Must not know why a register is turned.

use super::survey::identity;
use crate::host::RegisterFiles;
use crate::msr::MsrError;
use crate::pci::{AddressError, Config, PciAddress, PciError, Writable};
use crate::restore::Registers;
use crate::root::Root;
use rustix::io::Errno;
use waykeeper_generations::Generation;
use waykeeper_units::CoreId;

/// The registers of the host under a root prefix. On hardware that no table describes they can be read only.
#[derive(Debug)]
pub struct RootRegisters<'r> {
    root: &'r Root,
    generation: Option<&'static Generation>,
    files: RegisterFiles,
    denied: bool,
}

impl<'r> RootRegisters<'r> {
    /// The registers of this host.
    pub fn new(root: &'r Root) -> RootRegisters<'r> {
        let generation = identity(root).0.and_then(|signature| Generation::find(&signature));
        RootRegisters { root, generation, files: RegisterFiles::new(root, generation), denied: false }
    }

    /// Whether anything was refused for want of permission or by lockdown.
    pub fn was_denied(&self) -> bool {
        self.denied
    }

    /// An error with what to do about it.
    fn told_msr(&mut self, error: &MsrError) -> String {
        self.denied |= matches!(error, MsrError::Permission { .. } | MsrError::Forbidden { .. });
        match error.remedy() {
            "" => error.to_string(),
            remedy => format!("{error}; {remedy}"),
        }
    }

    fn told_pci(&mut self, error: &PciError) -> String {
        let errno = match error {
            PciError::File(error) => error.errno(),
            _ => None,
        };
        self.denied |= errno == Some(Errno::ACCESS)
            || matches!(error, PciError::Forbidden { .. } | PciError::Cut { .. });
        error.to_string()
    }
}

impl Registers for RootRegisters<'_> {
    fn msr(&mut self, cpu: u16, register: u32) -> Result<u64, String> {
        let read = self.files.read_msr(CoreId(cpu), register);
        read.map_err(|error| self.told_msr(&error))
    }

    fn set_msr(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), String> {
        let written = self.files.write_msr(CoreId(cpu), register, value);
        written.map_err(|error| self.told_msr(&error))
    }

    fn pci(&mut self, address: &str, offset: u16, width: u8) -> Result<u32, String> {
        if width != 1 {
            return (&self.files).pci(address, offset, width);
        }
        let config = Config::open(self.root, parsed(address)?);
        let byte = config.and_then(|config| config.byte(offset));
        byte.map(u32::from).map_err(|error| self.told_pci(&error))
    }

    fn set_pci(&mut self, address: &str, offset: u16, width: u8, value: u32) -> Result<(), String> {
        // Words are controls of counters: those have a list of their own.
        if width != 1 {
            return (&self.files).set_pci(address, offset, width, value);
        }
        let changed = self.pci(address, offset, width)? ^ value;
        let switch =
            self.generation.and_then(|own| Some((Writable::dca_switch(own)?, own.dca.port.allocating?)));
        let own = switch.filter(|(_, bit)| bit.offset == offset && changed & !(1 << bit.bit) == 0);
        let Some((writable, bit)) = own else {
            return Err(format!(
                "bits {changed:#x} at {offset:#x} of {address} are not on the list of what may be written on this CPU"
            ));
        };
        let config = Config::open_write(self.root, parsed(address)?);
        let turned = config.and_then(|config| config.turn(writable, bit.of(value.to_le_bytes()[0])));
        turned.map(drop).map_err(|error| self.told_pci(&error))
    }
}

fn parsed(address: &str) -> Result<PciAddress, String> {
    address.parse().map_err(|error: AddressError| error.to_string())
}
