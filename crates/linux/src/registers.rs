//! Registers through the kernel's files: the msr device of any CPU, the configuration space of any PCI device. Files are
//! opened once and kept.
//!
//! Writing is for what the generation's table lists: counters, the ways of devices, the one bit of a root port (hardware.md
//! 1.4, 2.1). A refusal for want of permission is remembered, because it has an exit code of its own. Must not know why a
//! register is turned.

use crate::cpuinfo;
use crate::msr::{Allowed, Msr, MsrError};
use crate::msr_pmu::{Bank, Place};
use crate::pci::{AddressError, Config, PciAddress, PciError, Writable};
use crate::restore::Registers;
use crate::root::{FileError, Handle, Root};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use waykeeper_generations::{Generation, Space};
use waykeeper_units::CoreId;

/// Register files of one host, opened as they are needed.
#[derive(Debug)]
pub struct RegisterFiles {
    root: Root,
    generation: Option<&'static Generation>,
    counters: Allowed,
    ways: Allowed,
    /// By CPU, and whether it is the one that may write the ways of devices.
    msrs: RefCell<BTreeMap<(u16, bool), Msr>>,
    configs: RefCell<BTreeMap<String, Handle>>,
    denied: Cell<bool>,
}

impl RegisterFiles {
    /// The registers under a root; without a generation they can be read only.
    pub fn new(root: &Root, generation: Option<&'static Generation>) -> RegisterFiles {
        RegisterFiles {
            root: root.clone(),
            generation,
            counters: generation.map_or_else(Allowed::nothing, Allowed::counters),
            ways: generation.map_or_else(Allowed::nothing, Allowed::ddio_ways),
            msrs: RefCell::default(),
            configs: RefCell::default(),
            denied: Cell::new(false),
        }
    }

    /// The registers of the CPU that a root names, for those who know nothing else of it.
    pub fn of(root: &Root) -> RegisterFiles {
        let signature = cpuinfo::identity(root).0;
        RegisterFiles::new(root, signature.and_then(|signature| Generation::find(&signature)))
    }

    /// Whether anything was refused for want of permission or by lockdown.
    pub fn was_denied(&self) -> bool {
        self.denied.get()
    }

    /// An error of an MSR with what would help.
    pub(crate) fn told(&self, error: &MsrError) -> String {
        self.note(matches!(error, MsrError::Permission { .. } | MsrError::Forbidden { .. }));
        match error.remedy() {
            "" => error.to_string(),
            remedy => format!("{error}; {remedy}"),
        }
    }

    fn told_file(&self, error: &FileError) -> String {
        self.note(is_denial(error));
        error.to_string()
    }

    fn told_pci(&self, error: &PciError) -> String {
        self.note(match error {
            PciError::File(error) => is_denial(error),
            _ => matches!(error, PciError::Forbidden { .. } | PciError::Cut { .. }),
        });
        error.to_string()
    }

    fn note(&self, denied: bool) {
        self.denied.set(self.denied.get() || denied);
    }

    fn with_msr<T>(
        &self,
        cpu: u16,
        address: u32,
        act: impl FnOnce(&Msr) -> Result<T, MsrError>,
    ) -> Result<T, MsrError> {
        let is_ways = self.ways.permits(address);
        let mut msrs = self.msrs.borrow_mut();
        let msr = match msrs.entry((cpu, is_ways)) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let allowed = if is_ways { &self.ways } else { &self.counters };
                entry.insert(Msr::open(&self.root, cpu, allowed.clone())?)
            }
        };
        act(msr)
    }

    /// Reads an MSR.
    ///
    /// # Errors
    /// [`MsrError`], by what can be done about it.
    pub fn read_msr(&self, cpu: CoreId, address: u32) -> Result<u64, MsrError> {
        self.with_msr(cpu.0, address, |msr| msr.read(address))
    }

    /// Writes an MSR of the generation's list.
    ///
    /// # Errors
    /// [`MsrError`], by what can be done about it.
    pub fn write_msr(&self, cpu: CoreId, address: u32, value: u64) -> Result<(), MsrError> {
        self.with_msr(cpu.0, address, |msr| msr.write(address, value))
    }

    fn with_config<T>(
        &self,
        device: &str,
        act: impl FnOnce(&Handle) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let mut configs = self.configs.borrow_mut();
        let handle = match configs.entry(device.to_owned()) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(self.root.open_write(format!("/sys/bus/pci/devices/{device}/config"))?)
            }
        };
        act(handle)
    }

    /// Reads 1 to 8 bytes of a device's configuration space, the lowest first: one system call.
    ///
    /// # Errors
    /// The kernel's refusal, or a space that ends before.
    pub fn read_config(&self, device: &str, offset: u16, bytes: u8) -> Result<u64, FileError> {
        let mut value = [0; 8];
        let part = &mut value[..usize::from(bytes.min(8))];
        self.with_config(device, |config| config.read_exact_at(part, offset.into()))?;
        Ok(u64::from_le_bytes(value))
    }

    /// Writes 1 to 8 bytes of it: one system call. What may be written is the caller's business.
    fn write_config(&self, device: &str, offset: u16, bytes: u8, value: u64) -> Result<(), FileError> {
        let value = value.to_le_bytes();
        self.with_config(device, |config| config.write_at(&value[..usize::from(bytes.min(8))], offset.into()))
    }

    /// Writes one byte of a root port, in which only the switch of DCA may change, and only where no capability header
    /// lies (hardware.md 2.1).
    ///
    /// # Errors
    /// In words: not this generation's switch, no root port, a header there, or the kernel's refusal.
    pub fn write_switch(&self, port: &str, offset: u16, found: u8, value: u8) -> Result<(), String> {
        let switch = self.generation.and_then(Writable::dca_switch);
        let Some(switch) = switch.filter(|switch| {
            switch.bit().offset == offset && (found ^ value) & !(1 << switch.bit().bit) == 0
        }) else {
            return Err(format!(
                "offset {offset:#x} of {port} is not a switch that Waykeeper may write on this CPU"
            ));
        };
        let turned = Config::open_write(&self.root, parsed(port)?)
            .and_then(|config| config.turn(switch, switch.bit().of(value)));
        turned.map(drop).map_err(|error| self.told_pci(&error))
    }

    /// Writes a control word of a memory channel's counters.
    fn write_channel(&self, device: &str, offset: u16, bytes: u8, value: u64) -> Result<(), String> {
        let memory = self.generation.and_then(|generation| generation.memory.as_ref());
        let registers = memory.and_then(|memory| memory.pmu.registers.as_ref());
        let listed = registers.zip(memory).is_some_and(|(registers, memory)| {
            registers.space == Space::PciConfig
                && registers.written(0, memory.pmu.counters).contains(&u32::from(offset))
        });
        let id = self.read_config(device, 0, 4).map_err(|error| self.told_file(&error))?;
        let (vendor, number) = (id as u16, (id >> 16) as u16);
        if !listed || !memory.is_some_and(|memory| memory.pci_devices.contains(&[vendor, number])) {
            return Err(format!(
                "offset {offset:#x} of {device} is not a counter register that Waykeeper may write on this \
                 CPU"
            ));
        }
        self.write_config(device, offset, bytes, value).map_err(|error| self.told_file(&error))
    }
}

/// A value of `bytes` bytes, unless it is of ones alone: so answers a device that is gone (PCIe base specification, 2.3.2).
fn answered(device: &str, value: u64, bytes: u8) -> Result<u64, String> {
    match value == u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8))) {
        true => Err(format!("PCI device {device} reads all ones: it does not answer")),
        false => Ok(value),
    }
}

fn is_denial(error: &FileError) -> bool {
    matches!(error.errno(), Some(Errno::ACCESS | Errno::PERM))
}

fn parsed(address: &str) -> Result<PciAddress, String> {
    address.parse().map_err(|error: AddressError| error.to_string())
}

impl Bank for RegisterFiles {
    fn read(&self, place: &Place) -> Result<u64, String> {
        match place {
            Place::Msr { cpu, address } => self.read_msr(*cpu, *address).map_err(|error| self.told(&error)),
            Place::Pci { device, offset, bytes } => {
                let value =
                    self.read_config(device, *offset, *bytes).map_err(|error| self.told_file(&error))?;
                answered(device, value, *bytes)
            }
        }
    }

    fn write(&self, place: &Place, value: u64) -> Result<(), String> {
        match place {
            Place::Msr { cpu, address } => {
                self.write_msr(*cpu, *address, value).map_err(|error| self.told(&error))
            }
            Place::Pci { device, offset, bytes } => self.write_channel(device, *offset, *bytes, value),
        }
    }
}

impl Registers for &RegisterFiles {
    fn msr(&mut self, cpu: u16, register: u32) -> Result<u64, String> {
        self.read_msr(CoreId(cpu), register).map_err(|error| self.told(&error))
    }

    fn set_msr(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), String> {
        self.write_msr(CoreId(cpu), register, value).map_err(|error| self.told(&error))
    }

    fn pci(&mut self, address: &str, offset: u16, width: u8) -> Result<u32, String> {
        // A byte may well be of ones alone, or of zeros; the identity of a device is neither.
        let identity = self.read_config(address, 0, 4).map_err(|error| self.told_file(&error))?;
        if identity == 0 {
            return Err(format!("PCI device {address} has no identity: it does not answer"));
        }
        answered(address, identity, 4)?;
        let value =
            self.read_config(address, offset, width.min(4)).map_err(|error| self.told_file(&error))?;
        Ok(value as u32)
    }

    fn set_pci(&mut self, address: &str, offset: u16, width: u8, value: u32) -> Result<(), String> {
        if width == 1 {
            let found = self.pci(address, offset, 1)?;
            return self.write_switch(address, offset, found as u8, value as u8);
        }
        self.write_channel(address, offset, width.min(4), value.into())
    }
}
