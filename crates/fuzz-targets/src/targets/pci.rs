//! PCI functions in sysfs: their places in the tree, and the bytes of their configuration spaces.

use crate::{host, one_line};
use waykeeper_kernel::pci::{PciConfigSpace, PciTree};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let root = host(data);
    let tree = match PciTree::read(&root) {
        Ok(tree) => tree,
        Err(why) => return one_line(&why),
    };
    tree.unreadable().for_each(|(_, why)| one_line(&why));
    tree.strange().for_each(|why| one_line(&why));
    for device in tree.devices() {
        let address = device.address;
        let _ = tree.above(&root, address).inspect_err(|why| one_line(why));
        let _ = tree.root_port(&root, address).inspect_err(|why| one_line(why));
        let _ = tree.behind(&root, address).inspect_err(|why| one_line(why));
        match PciConfigSpace::open(&root, address) {
            Ok(space) => {
                let _ = space.bridge_buses().inspect_err(|why| one_line(why));
                let _ = space.port_type().inspect_err(|why| one_line(why));
                let _ = space.extended_capabilities().inspect_err(|why| one_line(why));
                let _ = space.check_register(0x180).inspect_err(|why| one_line(why));
            }
            Err(why) => one_line(&why),
        }
    }
}
