//! NVMe structures of the kernel's passthrough: the command block for ioctls and io_uring, and the answers of Identify.
//!
//! Sources: include/uapi/linux/nvme_ioctl.h of the kernel; NVM Express Base 2.0 (fig. 275, 280) and NVM Command Set
//! 1.0. Must not know how commands are sent, nor their purpose.

use std::fmt;

/// `_IO('N', 0x40)`: returns the namespace's number.
pub const IOCTL_ID: u32 = 0x4E40;
/// `_IOWR('N', 0x41, struct nvme_admin_cmd)`.
pub const IOCTL_ADMIN_CMD: u32 = 0xC048_4E41;
/// `_IOWR('N', 0x43, struct nvme_passthru_cmd)`.
pub const IOCTL_IO_CMD: u32 = 0xC048_4E43;
/// `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
pub const URING_CMD_IO: u32 = 0xC048_4E80;

/// Maximum blocks of a command: its block count has 16 bits.
pub const MOST_BLOCKS: u64 = 1 << 16;

/// Opcode of the NVM command set: makes writes durable.
pub const FLUSH: u8 = 0x00;
/// The device reads memory.
pub const WRITE: u8 = 0x01;
/// The device writes memory.
pub const READ: u8 = 0x02;
/// Admin opcode: describes a namespace or controller.
const IDENTIFY: u8 = 0x06;
/// Bytes of Identify's answer.
pub const IDENTIFY_BYTES: usize = 4096;

/// `struct nvme_passthru_cmd`, which is also `struct nvme_admin_cmd` and, but for the meaning of the last field,
/// `struct nvme_uring_cmd`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passthru {
    /// The opcode.
    pub opcode: u8,
    /// Flags, for example of fused commands; 0.
    pub flags: u8,
    rsvd1: u16,
    /// The namespace.
    pub nsid: u32,
    /// Command dword 2.
    pub cdw2: u32,
    /// Command dword 3.
    pub cdw3: u32,
    /// Address of metadata; 0 is none.
    pub metadata: u64,
    /// Address of data.
    pub addr: u64,
    /// Bytes of metadata.
    pub metadata_len: u32,
    /// Bytes of data.
    pub data_len: u32,
    /// First LBA, low half.
    pub cdw10: u32,
    /// First LBA, high half.
    pub cdw11: u32,
    /// Bits 0 to 15: number of blocks, zero-based.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Command dword 14.
    pub cdw14: u32,
    /// Command dword 15.
    pub cdw15: u32,
    /// Timeout; 0 is the kernel's default of 30 s.
    pub timeout_ms: u32,
    /// For ioctls: dword 0 of the completion.
    pub result: u32,
}

impl Passthru {
    /// Read or Write of `blocks` (at least 1) from `lba` on. The field is zero-based, which nvme-memload overlooked.
    pub fn transfer(opcode: u8, nsid: u32, lba: u64, blocks: u32, addr: u64, bytes: u32) -> Passthru {
        Passthru {
            opcode,
            nsid,
            addr,
            data_len: bytes,
            cdw10: (lba & 0xFFFF_FFFF) as u32,
            cdw11: (lba >> 32) as u32,
            cdw12: blocks.saturating_sub(1),
            ..Passthru::default()
        }
    }

    /// Flush of a namespace.
    pub fn flush(nsid: u32) -> Passthru {
        Passthru { opcode: FLUSH, nsid, ..Passthru::default() }
    }

    /// Identify; `cns` 0 is the namespace, 1 the controller. `addr` has room for [`IDENTIFY_BYTES`].
    pub fn identify(cns: u32, nsid: u32, addr: u64) -> Passthru {
        let data_len = IDENTIFY_BYTES as u32;
        Passthru { opcode: IDENTIFY, nsid, addr, data_len, cdw10: cns, ..Passthru::default() }
    }

    /// The bytes for a submission entry of io_uring, which has room for 80.
    pub fn to_sqe(self) -> [u8; 80] {
        let mut bytes = [0; 80];
        let [o, f] = [self.opcode, self.flags];
        bytes[0] = o;
        bytes[1] = f;
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        put(4, self.nsid);
        put(8, self.cdw2);
        put(12, self.cdw3);
        put(32, self.metadata_len);
        put(36, self.data_len);
        put(40, self.cdw10);
        put(44, self.cdw11);
        put(48, self.cdw12);
        put(52, self.cdw13);
        put(56, self.cdw14);
        put(60, self.cdw15);
        put(64, self.timeout_ms);
        bytes[16..24].copy_from_slice(&self.metadata.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.addr.to_ne_bytes());
        bytes
    }
}

/// Answer of Identify Namespace (CNS 0).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of a block's data.
    pub lba_bytes: u32,
    /// Bytes of its metadata.
    pub metadata_bytes: u16,
}

impl Namespace {
    /// Parses the answer; `None` if it is invalid.
    pub fn parse(answer: &[u8; IDENTIFY_BYTES]) -> Option<Namespace> {
        let word = |at: usize| answer.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        // NSZE; FLBAS, whose bits 5 and 6 are the upper two bits of the format's number; LBAF0 and following.
        let blocks = word(0)?;
        let flbas = answer[26];
        let format = usize::from(flbas & 0xF | (flbas >> 1) & 0x30);
        let at = 128 + 4 * format;
        let metadata_bytes = u16::from_le_bytes([answer[at], answer[at + 1]]);
        let lba_bytes = 1u32.checked_shl(u32::from(answer[at + 2])).filter(|bytes| *bytes >= 512)?;
        Some(Namespace { blocks, lba_bytes, metadata_bytes })
    }
}

/// Answer of Identify Controller (CNS 1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// The serial number, without padding.
    pub serial: String,
    /// The model.
    pub model: String,
    /// Maximum bytes of a command, for pages of 4096 bytes; `None` is no limit.
    pub max_bytes: Option<u64>,
}

impl Controller {
    /// Parses the answer.
    pub fn parse(answer: &[u8; IDENTIFY_BYTES]) -> Controller {
        let text = |from: usize, to: usize| String::from_utf8_lossy(&answer[from..to]).trim().to_owned();
        // MDTS: a power of two of the minimum page, which is in a register only; 4 KiB on all devices so far.
        let max_bytes = match answer[77] {
            0 => None,
            mdts => 4096u64.checked_shl(u32::from(mdts)),
        };
        Controller { serial: text(4, 24), model: text(24, 64), max_bytes }
    }

    /// Maximum bytes of a command with blocks of `lba_bytes`: the block count has 16 bits, and the bits above are
    /// flags.
    pub fn most_bytes(&self, lba_bytes: u32) -> u64 {
        let by_number = u64::from(lba_bytes) << 16;
        self.max_bytes.map_or(by_number, |most| most.min(by_number))
    }
}

/// A completion's status field: the error code of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvmeStatus(pub u16);

impl fmt::Display for NvmeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bits 0 to 7 status code, 8 to 10 its type (NVM Express Base 2.0, fig. 92 on).
        let (kind, code) = (self.0 >> 8 & 7, self.0 & 0xFF);
        let name = match (kind, code) {
            (0, 0x01) => "the device does not know the command",
            (0, 0x02) => "a field of the command is invalid",
            (0, 0x04) => "data transfer error",
            (0, 0x06) => "internal error of the device",
            (0, 0x07) => "aborted by request",
            (0, 0x0B) => "no such namespace or format",
            (0, 0x20) => "the namespace is write protected",
            (0, 0x80) => "LBA out of range",
            (0, 0x81) => "capacity exceeded",
            (0, 0x82) => "the namespace is not ready",
            (1, 0x82) => "write to a read-only range",
            (2, 0x80) => "write fault of the medium",
            (2, 0x81) => "unrecovered read error of the medium",
            (3, 0x70 | 0x71) => "the path to the device is gone",
            _ => "see its data sheet",
        };
        write!(f, "NVMe status {kind:#x}/{code:#04x}: {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn the_command_block_is_the_kernels() {
        // 72 bytes, as the size field of the ioctl numbers says: bits 16 to 29 of 0xC0484E43 are 0x48.
        assert_eq!(size_of::<Passthru>(), 72);
        for number in [IOCTL_ADMIN_CMD, IOCTL_IO_CMD, URING_CMD_IO] {
            assert_eq!((number >> 16 & 0x3FFF) as usize, size_of::<Passthru>());
        }
        assert_eq!(offset_of!(Passthru, nsid), 4);
        assert_eq!(offset_of!(Passthru, metadata), 16);
        assert_eq!(offset_of!(Passthru, addr), 24);
        assert_eq!(offset_of!(Passthru, data_len), 36);
        assert_eq!(offset_of!(Passthru, cdw10), 40);
        assert_eq!(offset_of!(Passthru, timeout_ms), 64);
        assert_eq!(offset_of!(Passthru, result), 68);
    }

    #[test]
    fn a_transfer_counts_blocks_from_zero_and_splits_the_lba() {
        let read = Passthru::transfer(READ, 3, 0x1_2345_6789_ABCD, 8, 0xDEAD_0000, 32768);
        assert_eq!((read.cdw10, read.cdw11, read.cdw12), (0x6789_ABCD, 0x1_2345, 7));
        let bytes = read.to_sqe();
        assert_eq!((bytes[0], bytes[4], bytes[48]), (2, 3, 7));
        assert_eq!(u64::from_ne_bytes(bytes[24..32].try_into().unwrap()), 0xDEAD_0000);
        assert_eq!(u32::from_ne_bytes(bytes[36..40].try_into().unwrap()), 32768);
        assert_eq!(u32::from_ne_bytes(bytes[44..48].try_into().unwrap()), 0x1_2345);
        assert!(bytes[64..].iter().all(|byte| *byte == 0));
        let flush = Passthru::flush(1).to_sqe();
        assert_eq!((flush[0], flush[4], flush[36]), (0, 1, 0));
    }

    #[test]
    fn identify_is_read_where_the_standard_has_it() {
        let mut answer = [0; IDENTIFY_BYTES];
        answer[..8].copy_from_slice(&524_288u64.to_le_bytes());
        // Format 1 of two: 4096 bytes, 8 of metadata.
        answer[26] = 1;
        answer[128..136].copy_from_slice(&[0, 0, 9, 0, 8, 0, 12, 0]);
        let namespace = Namespace::parse(&answer);
        assert_eq!(namespace, Some(Namespace { blocks: 524_288, lba_bytes: 4096, metadata_bytes: 8 }));
        answer[26] = 5;
        assert_eq!(Namespace::parse(&answer), None, "a format of no bytes");
        // Bits 5 and 6 of FLBAS: format 16 + 1.
        answer[26] = 0x21;
        answer[128 + 68..128 + 72].copy_from_slice(&[0, 0, 9, 0]);
        assert_eq!(Namespace::parse(&answer).unwrap().lba_bytes, 512);

        let mut answer = [0; IDENTIFY_BYTES];
        answer[4..24].copy_from_slice(b"wk0001              ");
        answer[24..64].copy_from_slice(b"QEMU NVMe Ctrl                          ");
        answer[77] = 7;
        let controller = Controller::parse(&answer);
        assert_eq!((controller.serial.as_str(), controller.model.as_str()), ("wk0001", "QEMU NVMe Ctrl"));
        assert_eq!(controller.max_bytes, Some(512 << 10));
        assert_eq!(controller.most_bytes(512), 512 << 10);
        answer[77] = 0;
        let controller = Controller::parse(&answer);
        assert_eq!(controller.max_bytes, None);
        // 65536 blocks are 65535 zero-based, the maximum of 16 bits.
        let bytes = controller.most_bytes(512);
        assert_eq!(bytes, 32 << 20);
        assert_eq!(Passthru::transfer(READ, 1, 0, (bytes / 512) as u32, 0, bytes as u32).cdw12, 0xFFFF);
    }

    #[test]
    fn a_status_is_named() {
        assert_eq!(NvmeStatus(0x4080).to_string(), "NVMe status 0x0/0x80: LBA out of range");
        assert_eq!(
            NvmeStatus(0x0281).to_string(),
            "NVMe status 0x2/0x81: unrecovered read error of the medium"
        );
    }
}
