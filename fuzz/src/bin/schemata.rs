//! The schemata of a resctrl group, as the kernel shows them and as we write them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waykeeper_fuzz::one_line;
use waykeeper_kernel::resctrl::Schemata;

fuzz_target!(|text: &str| {
    match Schemata::parse(text) {
        Ok(schemata) => {
            let written = schemata.to_string();
            assert_eq!(Schemata::parse(&written), Ok(schemata), "{written:?}");
        }
        Err(why) => one_line(&why),
    }
});
