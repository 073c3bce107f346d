//! Reads and writes registers through kernel files: the msr device of any CPU and the configuration space of any PCI
//! device. Files are opened once and kept open.
//!
//! Only registers in the generation's table are written: counters, the DCA ways, the DCA switch bit of a root port
//! (hardware.md 1.4, 2.1). A lack of permission is remembered, because it has its own exit code. Must not know why a
//! register is written.

use super::{RegisterAddress, RegisterIo};
use crate::cpuinfo::CpuIdentity;
use crate::msr::{Allowed, MsrDevice, MsrError};
use crate::pci::{AddressError, PciAddress, PciConfigSpace, PciError, Writable};
use crate::root::{FileError, Handle, Root};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::btree_map::{BTreeMap, Entry};
use waykeeper_generations::{AddressSpace, Generation, MemoryCounterTable};
use waykeeper_units::CoreId;

/// Register files of one host, opened on first use.
#[derive(Debug)]
pub struct RegisterFiles {
    root: Root,
    generation: Option<&'static Generation>,
    allowed: Allowed,
    msrs: RefCell<BTreeMap<CoreId, MsrDevice>>,
    configs: RefCell<BTreeMap<String, Handle>>,
    denied: Cell<bool>,
}

impl RegisterFiles {
    /// The registers under a root; without a generation they can only be read.
    pub fn new(root: &Root, generation: Option<&'static Generation>) -> RegisterFiles {
        RegisterFiles {
            root: root.clone(),
            generation,
            allowed: generation.map_or_else(Allowed::nothing, Allowed::all),
            msrs: RefCell::default(),
            configs: RefCell::default(),
            denied: Cell::new(false),
        }
    }

    /// The registers of the CPU under a root, with the generation found from its signature.
    pub fn of(root: &Root) -> RegisterFiles {
        RegisterFiles::new(root, CpuIdentity::read(root, 0).generation())
    }

    /// Whether any access failed for lack of permission or because of kernel lockdown.
    pub fn was_denied(&self) -> bool {
        self.denied.get()
    }

    fn reported_file(&self, error: &FileError) -> String {
        self.note(is_denial(error));
        error.to_string()
    }

    fn reported_pci(&self, error: &PciError) -> String {
        self.note(match error {
            PciError::File(error) => is_denial(error),
            _ => matches!(error, PciError::Forbidden { .. } | PciError::Cut { .. }),
        });
        error.to_string()
    }

    fn note(&self, denied: bool) {
        self.denied.set(self.denied.get() || denied);
    }

    /// Acts on the msr device of a CPU. The text of an error has its remedy.
    fn with_msr<T>(
        &self,
        cpu: CoreId,
        act: impl FnOnce(&MsrDevice) -> Result<T, MsrError>,
    ) -> Result<T, String> {
        let mut msrs = self.msrs.borrow_mut();
        let done = match msrs.entry(cpu) {
            Entry::Occupied(entry) => act(entry.get()),
            Entry::Vacant(entry) => MsrDevice::open(&self.root, cpu.0, self.allowed.clone())
                .and_then(|msr| act(entry.insert(msr))),
        };
        done.map_err(|error| {
            self.note(matches!(error, MsrError::Permission { .. } | MsrError::Forbidden { .. }));
            error.with_remedy()
        })
    }

    fn with_config<T>(
        &self,
        device: &str,
        act: impl FnOnce(&Handle) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let mut configs = self.configs.borrow_mut();
        let handle = match configs.entry(device.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let path = format!("/sys/bus/pci/devices/{device}/config");
                let switch = self.generation.and_then(Writable::dca_switch);
                // Written only on generations that have a register to write there.
                entry.insert(match switch.is_some() || self.channels().is_some() {
                    true => self.root.open_write(path)?,
                    false => self.root.open_read(path)?,
                })
            }
        };
        act(handle)
    }

    /// The memory channels of this generation and their registers, if these are in configuration space.
    fn channels(&self) -> Option<(&'static MemoryCounterTable, &'static waykeeper_generations::RegisterMap)> {
        let memory = self.generation?.memory.as_ref()?;
        let registers = memory.pmu.registers.as_ref()?;
        (registers.space == AddressSpace::PciConfig).then_some((memory, registers))
    }

    /// Reads 1 to 8 bytes of a device's configuration space, little endian, with one system call.
    ///
    /// # Errors
    /// The kernel's refusal, or a configuration space that is too short.
    pub fn read_config(&self, device: &str, offset: u16, bytes: u8) -> Result<u64, FileError> {
        let mut value = [0; 8];
        let part = &mut value[..usize::from(bytes.min(8))];
        self.with_config(device, |config| config.read_exact_at(part, offset.into()))?;
        Ok(u64::from_le_bytes(value))
    }

    /// Reads a register of a device, if the device answers: a removed device reads all ones (PCIe base specification,
    /// 2.3.2), or zeros, which a register may hold but a device's identity may not. A field shorter than 32 bits is
    /// judged by its whole word.
    fn read_live(&self, device: &str, offset: u16, bytes: u8) -> Result<u64, String> {
        let read = |offset: u16, bytes: u8| {
            self.read_config(device, offset, bytes).map_err(|error| self.reported_file(&error))
        };
        let (first, width) = if bytes < 4 { (offset & !3, 4) } else { (offset, bytes) };
        let answer = read(first, width)?;
        if answer == u64::MAX >> (64 - 8 * u32::from(width.min(8))) {
            return Err(format!("PCI device {device} reads all ones: it does not answer"));
        }
        if answer == 0 && width == 4 && matches!(read(0, 4)?, 0 | 0xffff_ffff) {
            return Err(format!("PCI device {device} has no identity: it does not answer"));
        }
        let field = u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)));
        Ok(answer >> (8 * u32::from(offset - first)) & field)
    }

    /// Writes 1 to 8 bytes of it with one system call. The caller checks that the register may be written.
    fn write_config(&self, device: &str, offset: u16, bytes: u8, value: u64) -> Result<(), FileError> {
        let value = value.to_le_bytes();
        self.with_config(device, |config| config.write_at(&value[..usize::from(bytes.min(8))], offset.into()))
    }

    /// Writes one byte of a root port. Only the DCA switch bit may change, and only if no capability header is at
    /// this offset (hardware.md 2.1).
    ///
    /// # Errors
    /// In words: not this generation's switch, not a root port, a header at the offset, or the kernel's refusal.
    fn write_switch(&self, port: &str, offset: u16, found: u8, value: u8) -> Result<(), String> {
        let switch = self.generation.and_then(Writable::dca_switch);
        let Some(switch) = switch.filter(|switch| {
            switch.bit().offset == offset && (found ^ value) & !(1 << switch.bit().bit) == 0
        }) else {
            return Err(format!(
                "offset {offset:#x} of {port} is not a switch that Waykeeper may write on this CPU"
            ));
        };
        let turned = PciConfigSpace::open_write(&self.root, parsed(port)?)
            .and_then(|config| config.turn(switch, switch.bit().of(value)));
        turned.map(drop).map_err(|error| self.reported_pci(&error))
    }

    /// Writes a control word of a memory channel's counters.
    fn write_channel(&self, device: &str, offset: u16, bytes: u8, value: u64) -> Result<(), String> {
        let id = self.read_config(device, 0, 4).map_err(|error| self.reported_file(&error))?;
        let is_listed = self.channels().is_some_and(|(memory, registers)| {
            memory.pci_devices.contains(&[id as u16, (id >> 16) as u16])
                && registers.written(0, memory.pmu.counters).contains(&u32::from(offset))
        });
        if !is_listed {
            return Err(format!(
                "offset {offset:#x} of {device} is not a counter register that Waykeeper may write on this \
                 CPU"
            ));
        }
        self.write_config(device, offset, bytes, value).map_err(|error| self.reported_file(&error))
    }
}

fn is_denial(error: &FileError) -> bool {
    matches!(error.errno(), Some(Errno::ACCESS | Errno::PERM))
}

fn parsed(address: &str) -> Result<PciAddress, String> {
    address.parse().map_err(|error: AddressError| error.to_string())
}

impl RegisterIo for RegisterFiles {
    fn read(&self, register: &RegisterAddress) -> Result<u64, String> {
        match register {
            RegisterAddress::Msr { cpu, address } => self.with_msr(*cpu, |msr| msr.read(*address)),
            RegisterAddress::Pci { device, offset, bytes } => self.read_live(device, *offset, *bytes),
        }
    }

    fn write(&self, register: &RegisterAddress, value: u64) -> Result<(), String> {
        match register {
            RegisterAddress::Msr { cpu, address } => self.with_msr(*cpu, |msr| msr.write(*address, value)),
            RegisterAddress::Pci { device, offset, bytes: 1 } => {
                let found = self.read_live(device, *offset, 1)?;
                self.write_switch(device, *offset, found as u8, value as u8)
            }
            RegisterAddress::Pci { device, offset, bytes } => {
                self.write_channel(device, *offset, *bytes, value)
            }
        }
    }
}
