//! Values that users and kernels write in one word: lists of CPUs, masks, sizes, addresses, devices, events.

use crate::{one_line, rereads};
use waykeeper_generations::Terms;
use waykeeper_kernel::dca_ways::Wanted;
use waykeeper_kernel::pci::PciAddress;
use waykeeper_service::Listen;
use waykeeper_silicon::Sampling;
use waykeeper_tenants::DeviceName;
use waykeeper_units::{CoreList, WayMask, parse_size};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    rereads::<CoreList>(text);
    rereads::<WayMask>(text);
    rereads::<PciAddress>(text);
    rereads::<Terms>(text);
    rereads::<DeviceName>(text);
    rereads::<Wanted>(text);
    rereads::<Listen>(text);
    rereads::<Sampling>(text);
    match parse_size(text) {
        Ok(bytes) => assert_eq!(parse_size(&bytes.to_string()), Ok(bytes)),
        Err(why) => one_line(&why),
    }
}
