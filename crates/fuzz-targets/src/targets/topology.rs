//! CPUs, caches and nodes in sysfs, /proc/cpuinfo and the cpuid device of a host.

use crate::{host, one_line};
use waykeeper_kernel::cpuinfo::CpuIdentity;
use waykeeper_kernel::topology::{Presence, Topology};
use waykeeper_units::CoreId;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let root = host(data);
    match Topology::read(&root) {
        Ok(topology) => {
            for socket in topology.sockets() {
                assert!(topology.reader_of(socket).is_some());
                assert!(topology.cores_of(socket) <= topology.cpus_of(socket).len());
            }
        }
        Err(why) => one_line(&why),
    }
    if let Err(why) = Presence::of(&root, CoreId(3)) {
        one_line(&why);
    }
    let identity = CpuIdentity::read(&root, 0);
    let _ = (identity.signature(), identity.generation(), identity.brand());
}
