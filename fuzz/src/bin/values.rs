//! Values that users and kernels write in one word: lists of CPUs, masks, sizes, addresses, devices, events.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waykeeper_fuzz::{one_line, rereads};
use waykeeper_generations::Terms;
use waykeeper_kernel::dca_ways::Wanted;
use waykeeper_kernel::pci::PciAddress;
use waykeeper_service::Listen;
use waykeeper_silicon::Sampling;
use waykeeper_tenants::DeviceName;
use waykeeper_units::{CoreList, WayMask, parse_size};

fuzz_target!(|text: &str| {
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
});
