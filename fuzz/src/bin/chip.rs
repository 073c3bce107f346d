//! Descriptions of chips, and the rules of the model in a scenario.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waykeeper_fuzz::one_line;
use waykeeper_silicon::ChipSpec;

fuzz_target!(|text: &str| {
    match ChipSpec::parse("chip.toml", text) {
        Ok(chip) => assert!(chip.llc_bytes() > 0),
        Err(why) => one_line(&why),
    }
});
