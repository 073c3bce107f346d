//! Why a host could not be opened. Must not know the options.

use super::allocation::GroupsError;
use waykeeper_host::HostError;
use waykeeper_kernel::journal::JournalError;
use waykeeper_kernel::resctrl::{ResctrlError, ResctrlErrorKind};
use waykeeper_kernel::root::FileError;
use waykeeper_kernel::text_file::TextFileError;
use waykeeper_units::CoreList;

/// Why a host could not be opened. What the attempt changed has been restored, or is still in the journal.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A kernel file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// resctrl.
    #[error(transparent)]
    Resctrl(#[from] ResctrlError),
    /// The tenants' resctrl groups could not be made.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The machine profile.
    #[error(transparent)]
    Profile(#[from] TextFileError),
    /// Counters cannot be programmed because their originals cannot be journaled.
    #[error("{0}")]
    Counting(String),
    /// A tenant of the start was refused.
    #[error("tenant {tenant}: {why}")]
    Tenant {
        /// The tenant.
        tenant: String,
        /// Why.
        why: String,
    },
    /// There is no L3 with this id.
    #[error("there is no L3 with the id {domain}; there are {known}")]
    NoDomain {
        /// Its id, as in resctrl's schemata.
        domain: u32,
        /// Ids there are.
        known: String,
    },
    /// No CPU of this socket is online.
    #[error("no CPU of socket {socket} is online")]
    NoSocket {
        /// The socket.
        socket: u16,
    },
    /// The kernel does not share out the L3.
    #[error("resctrl offers no L3 allocation here; `waykeeper doctor` shows what is missing")]
    NoCat,
    /// A CPU whose L3 is to be managed.
    #[error("CPU {cpu} is offline or does not exist")]
    NoCpu {
        /// The CPU.
        cpu: u16,
    },
    /// No cache of the managed kind.
    #[error(
        "the kernel shows no L3 cache of CPU {cpu} (sys/devices/system/cpu/cpu{cpu}/cache); a virtual machine may have none"
    )]
    NoL3 {
        /// The CPU.
        cpu: u16,
    },
    /// The L3 cannot be found in resctrl.
    #[error("the kernel gives no id for the L3 cache of CPU {cpu}; resctrl's masks are per cache id")]
    NoL3Id {
        /// The CPU.
        cpu: u16,
    },
    /// A tenant's cores are not where the others' are.
    #[error(
        "cores {cores} of tenant {tenant} are not on the managed L3 (CPUs {managed}); one waykeeper process \
         manages one L3"
    )]
    Elsewhere {
        /// The tenant.
        tenant: String,
        /// Those of its cores.
        cores: CoreList,
        /// The CPUs of the managed L3.
        managed: CoreList,
    },
    /// A tenant's device is not there.
    #[error("device {device} of tenant {tenant} is not behind a root port here{why}; there are {known}")]
    NoDevice {
        /// The tenant.
        tenant: String,
        /// The device.
        device: String,
        /// Why it was not found where it is, in brackets; empty if there is nothing to say.
        why: String,
        /// Devices there are.
        known: String,
    },
    /// A tenant's mask is not possible on this cache.
    #[error("mask of tenant {tenant}: {why}")]
    Mask {
        /// The tenant.
        tenant: String,
        /// What is wrong with it.
        why: String,
    },
    /// Knobs that an earlier run changed could not be restored.
    #[error(
        "an earlier run left knobs changed, and they could not be restored: {why}; see `waykeeper restore`"
    )]
    Leftovers {
        /// The knobs and why.
        why: String,
    },
}

impl OpenError {
    /// True if this platform lacks what a host needs, as far as Waykeeper can tell. Nothing failed and nothing was changed.
    pub fn is_unsupported(&self) -> bool {
        match self {
            OpenError::NoCat
            | OpenError::NoL3 { .. }
            | OpenError::NoL3Id { .. }
            | OpenError::NoSocket { .. } => true,
            OpenError::Resctrl(error) | OpenError::Groups(GroupsError::Resctrl(error)) => {
                error.kind == ResctrlErrorKind::NotMounted
            }
            _ => false,
        }
    }
}

impl From<OpenError> for HostError {
    /// In the seam's words: what the platform lacks, or what failed.
    fn from(error: OpenError) -> HostError {
        let why = error.to_string();
        if error.is_unsupported() {
            return HostError::Unsupported { what: "managing this host".to_owned(), why };
        }
        HostError::Failed { what: "starting to manage this host".to_owned(), why }
    }
}
