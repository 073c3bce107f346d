//! A device's configuration space, with the behaviour of its `config` file.
//!
//! Source: linux drivers/pci/pci-sysfs.c (hardware.md 2.5, virtual-host.md 4): 64 bytes for unprivileged users, short
//! reads at the end, EFBIG for writes past it, short writes across it; writes to read-only fields are ignored. A field
//! may be a register of the machine. It must not know which devices exist.

use crate::machine_clock::MachineClock;
use crate::node::{Caller, File};
use crate::package::{Server, Uncore};
use crate::pmu::boxes::BoxRegister;
use rustix::io::Errno;
use std::sync::{Mutex, PoisonError};

/// Bytes of an extended configuration space.
pub const SIZE: usize = 4096;

/// Bytes that every user may read.
const HEADER: usize = 64;

/// A field that is a register of the machine.
#[derive(Clone, Copy, Debug)]
pub enum MachineField {
    /// perfctrlsts_0 of a root port, by the port's index.
    Port(usize),
    /// A register of a memory channel's counters: package, channel, register.
    Channel(usize, usize, BoxRegister),
}

impl MachineField {
    /// Its bytes: counters have eight, of which 48 bits count; others have four.
    fn len(self) -> usize {
        if matches!(self, MachineField::Channel(_, _, BoxRegister::Count(_))) { 8 } else { 4 }
    }

    fn read(self, server: &Server) -> u64 {
        match self {
            MachineField::Port(port) => u64::from(server.port_register(port)),
            MachineField::Channel(package, channel, register) => {
                server.read_box(package, Uncore::Memory, channel, register).unwrap_or(0)
            }
        }
    }

    fn write(self, server: &mut Server, value: u64) {
        match self {
            MachineField::Port(port) => server.write_port_register(port, value as u32),
            MachineField::Channel(package, channel, register) => {
                // A write to a register that the box does not have is ignored, as for any read-only field.
                let _ = server.write_box(package, Uncore::Memory, channel, register, value);
            }
        }
    }
}

/// The content of a configuration space at power-on.
#[derive(Clone, Debug)]
pub struct ConfigSpaceContent {
    bytes: Vec<u8>,
    writable: Vec<u8>,
    machine_fields: Vec<(usize, MachineField)>,
}

impl ConfigSpaceContent {
    /// A device: vendor, device, class (24 bits), revision, header type 0. Command and interrupt line are writable.
    pub fn new(vendor: u16, device: u16, class: u32, revision: u8) -> ConfigSpaceContent {
        let mut space =
            ConfigSpaceContent { bytes: vec![0; SIZE], writable: vec![0; SIZE], machine_fields: Vec::new() };
        space.put(0x00, &vendor.to_le_bytes());
        space.put(0x02, &device.to_le_bytes());
        // Memory space and bus master are on.
        space.put(0x04, &0x0006_u16.to_le_bytes());
        space.put(0x08, &[revision]);
        space.put(0x09, &class.to_le_bytes()[..3]);
        space.allow(0x04, &0x0547_u16.to_le_bytes());
        space.allow(0x0c, &[0xff]);
        space.allow(0x3c, &[0xff]);
        space
    }

    /// Makes it a bridge with these buses.
    pub fn bridge(mut self, primary: u8, secondary: u8, subordinate: u8) -> ConfigSpaceContent {
        self.put(0x0e, &[1]);
        self.put(0x18, &[primary, secondary, subordinate]);
        // Windows whose base is above their limit are closed: I/O, memory, prefetchable memory.
        self.put(0x1c, &[0xf0, 0x00]);
        self.put(0x20, &[0xf0, 0xff, 0x00, 0x00]);
        self.put(0x24, &[0xf1, 0xff, 0x01, 0x00]);
        self.allow(0x3e, &[0xff]);
        self
    }

    /// A device's subsystem (header type 0).
    pub fn subsystem(mut self, vendor: u16, device: u16) -> ConfigSpaceContent {
        self.put(0x2c, &vendor.to_le_bytes());
        self.put(0x2e, &device.to_le_bytes());
        self
    }

    /// Adds the PCI Express capability at `at`: kind of port, link of 8 GT/s times 16.
    pub fn express(mut self, at: u8, kind: u8) -> ConfigSpaceContent {
        self.put(0x06, &0x0010_u16.to_le_bytes());
        self.put(0x34, &[at]);
        let place = usize::from(at);
        self.put(place, &[0x10, 0x00]);
        self.put(place + 2, &(2 | u16::from(kind) << 4).to_le_bytes());
        self.put(place + 0x0c, &(3_u32 | 16 << 4).to_le_bytes());
        self.put(place + 0x12, &(3_u16 | 16 << 4).to_le_bytes());
        self
    }

    /// Sets bytes, read-only.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets a dword, read-only.
    pub fn dword(mut self, at: usize, value: u32) -> ConfigSpaceContent {
        self.put(at, &value.to_le_bytes());
        self
    }

    /// Adds a field that is a register of the machine.
    pub fn machine_field(mut self, at: usize, field: MachineField) -> ConfigSpaceContent {
        self.machine_fields.push((at, field));
        self
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    /// Two bytes at power-on.
    pub fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// A dword at power-on.
    pub fn dword_at(&self, at: usize) -> u32 {
        u32::from(self.word(at)) | u32::from(self.word(at + 2)) << 16
    }
}

/// The `config` file of a device.
pub struct ConfigFile {
    clock: MachineClock,
    space: Mutex<ConfigSpaceContent>,
}

impl ConfigFile {
    /// The file of a space.
    pub fn new(clock: MachineClock, space: ConfigSpaceContent) -> ConfigFile {
        ConfigFile { clock, space: Mutex::new(space) }
    }

    fn touched(space: &ConfigSpaceContent, start: usize, end: usize) -> Vec<(usize, MachineField)> {
        let within = |(at, field): &&(usize, MachineField)| *at < end && start < at + field.len();
        space.machine_fields.iter().filter(within).copied().collect()
    }
}

/// Copies into `to`, which begins at `start`, the overlapping part of `bytes`, which begin at `at`.
fn overlay(to: &mut [u8], start: usize, at: usize, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        if let Some(place) = (at + index).checked_sub(start).and_then(|place| to.get_mut(place)) {
            *place = *byte;
        }
    }
}

impl File for ConfigFile {
    fn read(&self, offset: u64, len: usize, caller: Caller) -> Result<Vec<u8>, Errno> {
        let size = if caller.is_privileged() { SIZE } else { HEADER };
        let start = usize::try_from(offset).unwrap_or(SIZE).min(size);
        let end = start.saturating_add(len).min(size);
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = space.bytes[start..end].to_vec();
        for (at, field) in Self::touched(&space, start, end) {
            let value = self.clock.with(|server| field.read(server))?;
            overlay(&mut bytes, start, at, &value.to_le_bytes()[..field.len()]);
        }
        Ok(bytes)
    }

    fn write(&self, offset: u64, data: &[u8], _: Caller) -> Result<usize, Errno> {
        let start = usize::try_from(offset).unwrap_or(SIZE);
        if start >= SIZE {
            return Err(Errno::FBIG);
        }
        let end = start.saturating_add(data.len()).min(SIZE);
        let data = &data[..end - start];
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, byte) in (start..end).zip(data) {
            let mask = space.writable[at];
            space.bytes[at] = space.bytes[at] & !mask | byte & mask;
        }
        for (at, field) in Self::touched(&space, start, end) {
            self.clock.with(|server| {
                let mut bytes = field.read(server).to_le_bytes();
                overlay(&mut bytes[..field.len()], at, start, data);
                field.write(server, u64::from_le_bytes(bytes));
            })?;
        }
        Ok(data.len())
    }

    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn mode(&self) -> u32 {
        0o644
    }
}
