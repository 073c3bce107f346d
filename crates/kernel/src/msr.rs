//! The msr device: model-specific registers of one CPU, 8 bytes at the register's number as offset.
//!
//! Every register may be read. Only registers on an [`Allowed`] list, made from the generation's table, may be
//! written, whatever a caller asks. The device never ends, so it is read 8 bytes at a time. The kernel's errors are
//! distinguished by their remedy (hardware.md 10). Must not know why a register is read or written.

use crate::root::{FileError, Handle, Root};
use rustix::io::Errno;
use waykeeper_generations::Generation;

/// Registers that may be written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allowed(Vec<u32>);

impl Allowed {
    /// No register: the device is opened for reading only.
    pub fn nothing() -> Allowed {
        Allowed::default()
    }

    /// Only the DDIO way register (IIO_LLC_WAYS), if it is confirmed to act on this generation.
    pub fn ddio_ways(generation: &Generation) -> Allowed {
        let ways = &generation.dca.ways;
        let register = ways.register.as_ref().filter(|_| ways.evidence.may_write());
        Allowed(register.map(|register| register.msr).into_iter().collect())
    }

    /// Only the registers of the generation's counters.
    pub fn counters(generation: &Generation) -> Allowed {
        Allowed(generation.counter_msrs())
    }

    /// The DDIO way register and the counters' registers.
    pub fn all(generation: &Generation) -> Allowed {
        let (Allowed(mut all), Allowed(ways)) =
            (Allowed::counters(generation), Allowed::ddio_ways(generation));
        all.extend(ways);
        all.sort_unstable();
        Allowed(all)
    }

    /// Whether a register may be written.
    pub fn permits(&self, address: u32) -> bool {
        self.0.binary_search(&address).is_ok()
    }

    /// Whether no register may be written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Why a register could not be read or written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MsrError {
    /// This CPU has no such register, or does not accept the value (`EIO`: the kernel caught the fault).
    #[error("CPU {cpu} has no MSR {address:#x} or does not take the value")]
    NotThere {
        /// CPU.
        cpu: u16,
        /// Register.
        address: u32,
    },
    /// The kernel forbids the write (`EPERM`).
    #[error("the kernel forbids writing MSR {address:#x} of CPU {cpu}")]
    Forbidden {
        /// CPU.
        cpu: u16,
        /// Register.
        address: u32,
    },
    /// The CPU is offline or does not exist (`ENXIO`, or its file is missing).
    #[error("CPU {cpu} is offline or does not exist")]
    Offline {
        /// CPU.
        cpu: u16,
    },
    /// No permission to open the device (`EACCES`, or `EPERM` at open).
    #[error("no permission to open {path}")]
    Permission {
        /// The device.
        path: String,
    },
    /// No CPU has an msr device.
    #[error("{path} does not exist: the module msr is not loaded")]
    NoModule {
        /// The device.
        path: String,
    },
    /// The register is not on the list of registers that may be written.
    #[error("MSR {address:#x} is not on the list of registers that Waykeeper may write")]
    NotAllowed {
        /// Register.
        address: u32,
    },
    /// Any other error.
    #[error(transparent)]
    File(#[from] FileError),
}

impl MsrError {
    /// The message with the remedy, if there is one.
    pub fn with_remedy(&self) -> String {
        match self.remedy() {
            "" => self.to_string(),
            remedy => format!("{self}; {remedy}"),
        }
    }

    /// The remedy; empty if there is none.
    pub fn remedy(&self) -> &'static str {
        match self {
            MsrError::NotThere { .. } | MsrError::NotAllowed { .. } | MsrError::File(_) => "",
            MsrError::Forbidden { .. } => {
                "boot without kernel lockdown (usually: Secure Boot off) and with msr.allow_writes=on"
            }
            MsrError::Offline { .. } => "bring the CPU online: echo 1 > /sys/devices/system/cpu/cpuN/online",
            MsrError::Permission { .. } => {
                "run as root, or with CAP_SYS_RAWIO and the right to open the device"
            }
            MsrError::NoModule { .. } => "modprobe msr",
        }
    }
}

/// The msr device of one CPU, held open.
#[derive(Debug)]
pub struct MsrDevice {
    cpu: u16,
    handle: Handle,
    allowed: Allowed,
}

impl MsrDevice {
    /// Opens the device of a CPU; writable only if `allowed` is not empty.
    ///
    /// # Errors
    /// [`MsrError`], by its remedy.
    pub fn open(root: &Root, cpu: u16, allowed: Allowed) -> Result<MsrDevice, MsrError> {
        let path = format!("/dev/cpu/{cpu}/msr");
        let opened = if allowed.is_empty() { root.open_read(&path) } else { root.open_write(&path) };
        let shown = || root.path(&path).display().to_string();
        match opened {
            Ok(handle) => Ok(MsrDevice { cpu, handle, allowed }),
            Err(error) => Err(match error.errno() {
                Some(Errno::NXIO) => MsrError::Offline { cpu },
                Some(Errno::ACCESS | Errno::PERM) => MsrError::Permission { path: shown() },
                Some(Errno::NOENT | Errno::NOTDIR) if any_device(root) => MsrError::Offline { cpu },
                Some(Errno::NOENT | Errno::NOTDIR) => MsrError::NoModule { path: shown() },
                // The kernel returns this for a CPU without MSRs.
                Some(Errno::IO) => MsrError::NotThere { cpu, address: 0 },
                _ => MsrError::File(error),
            }),
        }
    }

    /// The CPU.
    pub fn cpu(&self) -> u16 {
        self.cpu
    }

    /// Reads a register: one system call.
    ///
    /// # Errors
    /// [`MsrError::NotThere`] if the CPU has no such register.
    pub fn read(&self, address: u32) -> Result<u64, MsrError> {
        let mut bytes = [0; 8];
        self.handle
            .read_exact_at(&mut bytes, u64::from(address))
            .map_err(|error| self.reported(error, address))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes a register: one system call.
    ///
    /// # Errors
    /// [`MsrError::NotAllowed`] before anything is written; otherwise the kernel's refusal.
    pub fn write(&self, address: u32, value: u64) -> Result<(), MsrError> {
        if !self.allowed.permits(address) {
            return Err(MsrError::NotAllowed { address });
        }
        self.handle
            .write_at(&value.to_le_bytes(), u64::from(address))
            .map_err(|error| self.reported(error, address))
    }

    fn reported(&self, error: FileError, address: u32) -> MsrError {
        let cpu = self.cpu;
        match error.errno() {
            Some(Errno::IO) => MsrError::NotThere { cpu, address },
            Some(Errno::PERM) => MsrError::Forbidden { cpu, address },
            // The CPU was taken offline while its device was open.
            Some(Errno::NXIO) => MsrError::Offline { cpu },
            _ => MsrError::File(error),
        }
    }
}

fn any_device(root: &Root) -> bool {
    let cpus = root.list("/dev/cpu").unwrap_or_default();
    cpus.iter().any(|cpu| root.exists(format!("/dev/cpu/{cpu}/msr")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// A sparse file is the device; registers less than 8 apart would overlap, so the tests use none.
    fn machine() -> (tempfile::TempDir, Root, std::fs::File) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("dev/cpu/0")).unwrap();
        std::fs::create_dir_all(folder.path().join("dev/cpu/1")).unwrap();
        let path = folder.path().join("dev/cpu/0/msr");
        let file = std::fs::OpenOptions::new().create_new(true).read(true).write(true).open(path).unwrap();
        file.write_at(&0x600u64.to_le_bytes(), 0xc8b).unwrap();
        let root = Root::at(folder.path());
        (folder, root, file)
    }

    fn generation(id: &str) -> &'static Generation {
        Generation::by_id(id).unwrap()
    }

    #[test]
    fn only_what_is_allowed_is_written() {
        let (_keep, root, _) = machine();
        let msr = MsrDevice::open(&root, 0, Allowed::ddio_ways(generation("skx"))).unwrap();
        assert_eq!(msr.read(0xc8b), Ok(0x600));
        msr.write(0xc8b, 0x7f0).unwrap();
        assert_eq!(msr.read(0xc8b), Ok(0x7f0));
        for other in [0xc90, 0xc8f, 0xe00, 0x1a4, 0x38f] {
            assert_eq!(msr.write(other, 1), Err(MsrError::NotAllowed { address: other }));
        }
        let reader = MsrDevice::open(&root, 0, Allowed::nothing()).unwrap();
        assert_eq!(reader.write(0xc8b, 0x600), Err(MsrError::NotAllowed { address: 0xc8b }));
        assert_eq!(reader.read(0xc8b), Ok(0x7f0));
    }

    #[test]
    fn the_list_is_the_generations() {
        // hardware.md 1.2 and 1.4: on these generations the register is not known to act, so it is never written.
        for id in ["bdx", "icx", "spr", "emr", "gnr", "zen4", "zen5"] {
            assert!(Allowed::ddio_ways(generation(id)).is_empty(), "{id}");
        }
        let counters = Allowed::counters(generation("skx"));
        // Core event select, fixed control, CHA 0's box control and Filter1, IIO stack 5's control 3.
        for address in [0x186, 0x38d, 0x38f, 0xe00, 0xe06, 0xae0 + 8 + 3] {
            assert!(counters.permits(address), "{address:#x}");
        }
        for address in [0xc8b, 0xc90, 0xc8f, 0xc8d, 0x10, 0x1a4, 0xb00] {
            assert!(!counters.permits(address), "{address:#x}");
        }
    }

    #[test]
    fn what_is_missing_is_distinguished() {
        let (_keep, root, _) = machine();
        let error = MsrDevice::open(&root, 1, Allowed::nothing()).unwrap_err();
        assert_eq!(error, MsrError::Offline { cpu: 1 }, "another CPU has its device");
        let empty = tempfile::tempdir().unwrap();
        let error = MsrDevice::open(&Root::at(empty.path()), 0, Allowed::nothing()).unwrap_err();
        assert!(matches!(error, MsrError::NoModule { .. }));
        assert_eq!(error.remedy(), "modprobe msr");
        let msr = MsrDevice::open(&root, 0, Allowed::nothing()).unwrap();
        assert!(matches!(msr.read(0x10_0000), Err(MsrError::File(FileError::Short { .. }))));
    }

    #[test]
    fn the_kernels_refusals_have_a_cause_and_a_remedy() {
        let (_keep, root, _) = machine();
        let msr = MsrDevice::open(&root, 0, Allowed::nothing()).unwrap();
        let refused = |errno| {
            let error =
                FileError::Refused { path: "x".into(), operation: crate::root::FileOperation::Write, errno };
            msr.reported(error, 0xc8b)
        };
        assert_eq!(refused(Errno::IO), MsrError::NotThere { cpu: 0, address: 0xc8b });
        assert_eq!(refused(Errno::NXIO), MsrError::Offline { cpu: 0 });
        let forbidden = refused(Errno::PERM);
        assert_eq!(forbidden.to_string(), "the kernel forbids writing MSR 0xc8b of CPU 0");
        assert!(
            forbidden.remedy().contains("lockdown") && forbidden.remedy().contains("msr.allow_writes=on")
        );
        assert!(matches!(refused(Errno::NOSPC), MsrError::File(_)));
    }
}
