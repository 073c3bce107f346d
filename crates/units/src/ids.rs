//! Ids. Each kind is an index into its own table, so each kind has its own type.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(/// A logical CPU, numbered as the kernel numbers it.
    CoreId, u16, "core ");
id!(/// A class of service: the thing a way mask belongs to (hardware.md 7). 0 is the root class.
    ClosId, u8, "CLOS ");
id!(/// A monitored group of cores: one workload or tenant, in the order in which a host met them. None is used twice, and
    /// tenants that come and go every few seconds would use up 16 bits in a day.
    WorkloadId, u32, "group ");
id!(/// An I/O device (NIC or storage array). Index into the inventory's device list.
    DeviceId, u8, "device ");
id!(/// A PCIe root port: the unit at which DCA is switched. Index into the inventory's port list.
    PortId, u8, "port ");
