//! Configuration space of one function: `config` in sysfs (linux:drivers/pci/pci-sysfs.c, hardware.md 2.5).
//!
//! Short reads are detected. The only write is one byte, at an offset that the generation's table confirms and that
//! has no capability header. Must not know why a register is read or written.

use super::{PciAddress, PciError};
use crate::root::{FileError, Handle, Root};
use rustix::io::Errno;
use waykeeper_generations::{Generation, RegisterBit};

/// Every user can read offsets below this.
const PUBLIC: u64 = 64;
/// Offset of extended configuration space (PCIe base specification, 7.2).
const EXTENDED: u16 = 0x100;
/// Id of the PCI Express capability (PCIe base specification, 7.5.3).
const PCI_EXPRESS: u8 = 0x10;

/// Device/port type of a root port in the PCI Express capability.
pub(super) const ROOT_PORT: u8 = 4;

/// The only bit that may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writable(RegisterBit);

impl Writable {
    /// The DCA switch of root ports, if it is confirmed to act on this generation (hardware.md 2.1).
    pub fn dca_switch(generation: &Generation) -> Option<Writable> {
        let port = &generation.dca.port;
        port.allocating.filter(|_| port.evidence.may_write()).map(Writable)
    }

    /// The bit's offset and number.
    pub fn bit(self) -> RegisterBit {
        self.0
    }
}

/// A capability in the extended space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability {
    /// Offset of its header.
    pub offset: u16,
    /// Its id.
    pub id: u16,
}

/// Configuration space of one function, kept open.
#[derive(Debug)]
pub struct PciConfigSpace {
    device: PciAddress,
    handle: Handle,
    size: u64,
}

impl PciConfigSpace {
    /// Opens it for reading only.
    ///
    /// # Errors
    /// [`PciError::NoDevice`], or the kernel's refusal.
    pub fn open(root: &Root, device: PciAddress) -> Result<PciConfigSpace, PciError> {
        PciConfigSpace::opened(device, root.open_read(PciConfigSpace::path(device)))
    }

    /// Opens it for reading and writing.
    ///
    /// # Errors
    /// [`PciError::NoDevice`], [`PciError::Forbidden`], or another refusal.
    pub fn open_write(root: &Root, device: PciAddress) -> Result<PciConfigSpace, PciError> {
        PciConfigSpace::opened(device, root.open_write(PciConfigSpace::path(device)))
    }

    fn path(device: PciAddress) -> String {
        format!("/sys/bus/pci/devices/{device}/config")
    }

    fn opened(device: PciAddress, opened: Result<Handle, FileError>) -> Result<PciConfigSpace, PciError> {
        match opened {
            Ok(handle) => {
                let size = handle.size();
                Ok(PciConfigSpace { device, handle, size })
            }
            Err(error) if error.is_absent() => Err(PciError::NoDevice(device)),
            Err(error) if error.errno() == Some(Errno::PERM) => Err(PciError::Forbidden { device }),
            Err(error) => Err(error.into()),
        }
    }

    /// The function.
    pub fn device(&self) -> PciAddress {
        self.device
    }

    fn read<const N: usize>(&self, offset: u16) -> Result<[u8; N], PciError> {
        let mut bytes = [0; N];
        let device = self.device;
        match self.handle.read_at(&mut bytes, offset.into())? {
            done if done == N => Ok(bytes),
            _ if u64::from(offset) + N as u64 > self.size && self.size > PUBLIC => {
                Err(PciError::NotExtended { device, offset, size: self.size })
            }
            _ => Err(PciError::Cut { device, offset, shown: PUBLIC }),
        }
    }

    /// One byte.
    ///
    /// # Errors
    /// [`PciError::Cut`], [`PciError::NotExtended`], or the kernel's refusal.
    pub fn byte(&self, offset: u16) -> Result<u8, PciError> {
        self.read::<1>(offset).map(|[byte]| byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// As [`PciConfigSpace::byte`].
    pub fn word(&self, offset: u16) -> Result<u16, PciError> {
        self.read(offset).map(u16::from_le_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// As [`PciConfigSpace::byte`].
    pub fn dword(&self, offset: u16) -> Result<u32, PciError> {
        self.read(offset).map(u32::from_le_bytes)
    }

    /// First and last bus behind a bridge (secondary and subordinate). `None` if the function is not a bridge.
    ///
    /// # Errors
    /// As [`PciConfigSpace::byte`].
    pub fn bridge_buses(&self) -> Result<Option<(u8, u8)>, PciError> {
        // Header type 1 is a bridge; bit 7 only says that the device has more functions.
        if self.byte(0x0e)? & 0x7f != 1 {
            return Ok(None);
        }
        Ok(Some((self.byte(0x19)?, self.byte(0x1a)?)))
    }

    /// Device/port type of the PCI Express capability; 4 is a root port. `None` without that capability.
    ///
    /// # Errors
    /// As [`PciConfigSpace::byte`], or a chain with a loop.
    pub fn port_type(&self) -> Result<Option<u8>, PciError> {
        // Status bit 4: there is a capability list.
        if self.word(0x06)? & 0x10 == 0 {
            return Ok(None);
        }
        let mut at = self.byte(0x34)? & 0xfc;
        // 48 headers of 4 bytes fit between 0x40 and 0x100.
        for _ in 0..48 {
            if at < 0x40 {
                return Ok(None);
            }
            let [id, next] = self.word(at.into())?.to_le_bytes();
            if id == PCI_EXPRESS {
                return Ok(Some((self.word(u16::from(at) + 2)? >> 4 & 0xf) as u8));
            }
            at = next & 0xfc;
        }
        Err(PciError::BrokenChain { device: self.device, offset: at.into() })
    }

    /// Capabilities in the extended space, in the order of their chain.
    ///
    /// # Errors
    /// As [`PciConfigSpace::byte`], or a chain with a loop or outside the extended space.
    pub fn extended_capabilities(&self) -> Result<Vec<Capability>, PciError> {
        let mut found: Vec<Capability> = Vec::new();
        let mut at = EXTENDED;
        loop {
            let header = self.dword(at)?;
            // All zeros or all ones at the start: there are no capabilities (PCIe base specification, 7.6.1).
            if at == EXTENDED && (header == 0 || header == u32::MAX) {
                return Ok(found);
            }
            found.push(Capability { offset: at, id: (header & 0xffff) as u16 });
            let next = (header >> 20) as u16;
            if next == 0 {
                return Ok(found);
            }
            if next < EXTENDED || next & 3 != 0 || found.iter().any(|known| known.offset == next) {
                return Err(PciError::BrokenChain { device: self.device, offset: at });
            }
            at = next;
        }
    }

    /// Refuses an offset in the extended space that has a capability header (hardware.md 2.1: Ice Lake's 0x180).
    ///
    /// # Errors
    /// [`PciError::CapabilityThere`], or why the chain cannot be followed.
    pub fn check_register(&self, offset: u16) -> Result<(), PciError> {
        let header = self.extended_capabilities()?.into_iter().find(|known| known.offset == offset & !3);
        match header {
            Some(Capability { id, .. }) => Err(PciError::CapabilityThere { device: self.device, offset, id }),
            None => Ok(()),
        }
    }

    /// Reads a bit.
    ///
    /// # Errors
    /// As [`PciConfigSpace::byte`].
    pub fn bit(&self, bit: RegisterBit) -> Result<bool, PciError> {
        Ok(bit.of(self.byte(bit.offset)?))
    }

    /// Sets the writable bit: reads its byte, writes it with the bit changed, and returns the bit as read again.
    ///
    /// # Errors
    /// [`PciError::NoRootPort`] and [`PciError::CapabilityThere`] before anything is written; otherwise the kernel's
    /// refusal.
    pub fn turn(&self, writable: Writable, on: bool) -> Result<bool, PciError> {
        let Writable(bit) = writable;
        if self.port_type()? != Some(ROOT_PORT) {
            let why = "it is not a root port itself, and only root ports have the switch".to_owned();
            return Err(PciError::NoRootPort { device: self.device, why });
        }
        self.check_register(bit.offset)?;
        // The other bits of the byte are written as they were read, so they are read twice.
        let (found, again) = (self.byte(bit.offset)?, self.byte(bit.offset)?);
        if found != again {
            return Err(PciError::Unsteady { device: self.device, offset: bit.offset, found, again });
        }
        let byte = bit.set(found, on);
        self.handle.write_at(&[byte], bit.offset.into()).map_err(|error| match error.errno() {
            Some(Errno::PERM) => PciError::Forbidden { device: self.device },
            _ => PciError::File(error),
        })?;
        self.bit(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn function(bytes: &[u8]) -> (tempfile::TempDir, PciConfigSpace) {
        let device: PciAddress = "0000:3a:00.0".parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("sys/bus/pci/devices/0000:3a:00.0");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("config"), bytes).unwrap();
        let config = PciConfigSpace::open_write(&Root::at(folder.path()), device).unwrap();
        (folder, config)
    }

    fn root_port() -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[0x06] = 0x10;
        bytes[0x0e] = 1;
        bytes[0x19..0x1b].copy_from_slice(&[0x3b, 0x3d]);
        bytes[0x34] = 0x40;
        bytes[0x40..0x42].copy_from_slice(&[0x0d, 0x90]);
        bytes[0x90..0x94].copy_from_slice(&[0x10, 0xe0, 0x42, 0x01]);
        // AER at 0x100, then ACS at 0x148; 0x180 is perfctrlsts.
        bytes[0x100..0x104].copy_from_slice(&0x1481_0001u32.to_le_bytes());
        bytes[0x148..0x14c].copy_from_slice(&0x0001_000du32.to_le_bytes());
        bytes[0x180] = 0x80;
        bytes
    }

    fn writable(id: &str) -> Option<Writable> {
        Writable::dca_switch(Generation::by_id(id).unwrap())
    }

    #[test]
    fn the_switch_turns_its_bit_and_no_other() {
        let mut bytes = root_port();
        bytes[0x180] = 0x8b;
        let (_keep, config) = function(&bytes);
        let switch = writable("skx").unwrap();
        assert_eq!(config.turn(switch, false), Ok(false));
        assert_eq!(config.byte(0x180), Ok(0x0b));
        assert_eq!(config.turn(switch, true), Ok(true));
        assert_eq!(config.byte(0x180), Ok(0x8b));
    }

    #[test]
    fn what_is_no_root_port_has_no_switch() {
        let mut bytes = root_port();
        bytes[0x92] = 0x62;
        let (_keep, config) = function(&bytes);
        let error = config.turn(writable("skx").unwrap(), false).unwrap_err();
        assert!(matches!(error, PciError::NoRootPort { .. }), "a switch's downstream port");
        assert_eq!(config.byte(0x180), Ok(0x80));
    }

    #[test]
    fn it_is_confirmed_on_skylake_only() {
        for id in ["hsx", "bdx", "icx", "spr", "emr", "gnr", "zen4", "zen5"] {
            assert_eq!(writable(id), None, "{id}");
        }
    }

    #[test]
    fn a_capability_header_is_never_written() {
        // hardware.md 2.1: Ice Lake's root port holds 0x1901000b at 0x180.
        let mut bytes = root_port();
        bytes[0x148..0x14c].copy_from_slice(&0x1801_000du32.to_le_bytes());
        bytes[0x180..0x184].copy_from_slice(&0x1901_000bu32.to_le_bytes());
        let (_keep, config) = function(&bytes);
        let error = config.turn(writable("skx").unwrap(), false).unwrap_err();
        let device = config.device();
        assert_eq!(error, PciError::CapabilityThere { device, offset: 0x180, id: 0x000b });
        assert_eq!(config.dword(0x180), Ok(0x1901_000b));
    }

    #[test]
    fn a_port_tells_its_type_and_its_buses() {
        let (_keep, config) = function(&root_port());
        assert_eq!((config.port_type(), config.bridge_buses()), (Ok(Some(4)), Ok(Some((0x3b, 0x3d)))));
        let mut bytes = root_port();
        bytes[0x91] = 0x40;
        bytes[0x90] = 0x01;
        assert!(matches!(function(&bytes).1.port_type(), Err(PciError::BrokenChain { .. })));
        let (_keep, endpoint) = function(&[0; 256]);
        assert_eq!((endpoint.port_type(), endpoint.bridge_buses()), (Ok(None), Ok(None)));
    }

    #[test]
    fn cut_and_small_spaces_are_distinguished() {
        let (_keep, cut) = function(&root_port()[..64]);
        assert!(matches!(cut.port_type(), Err(PciError::Cut { offset: 0x40, shown: 64, .. })));
        assert_eq!(cut.bridge_buses(), Ok(Some((0x3b, 0x3d))), "every user can read the first 64 bytes");
        let (_keep, small) = function(&root_port()[..256]);
        assert!(matches!(
            small.turn(writable("skx").unwrap(), false),
            Err(PciError::NotExtended { size: 256, .. })
        ));
    }

    #[test]
    fn a_chain_in_circles_is_broken() {
        let mut bytes = root_port();
        bytes[0x148..0x14c].copy_from_slice(&0x1001_000du32.to_le_bytes());
        let error = function(&bytes).1.extended_capabilities().unwrap_err();
        assert!(matches!(error, PciError::BrokenChain { offset: 0x148, .. }));
        bytes[0x100..0x104].fill(0);
        assert_eq!(function(&bytes).1.extended_capabilities(), Ok(vec![]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_bytes_make_it_panic_or_go_on_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..4097)) {
            let (_keep, config) = function(&bytes);
            let _ = (config.port_type(), config.bridge_buses(), config.extended_capabilities());
        }
    }
}
