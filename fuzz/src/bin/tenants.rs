//! Declarations of tenants.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use waykeeper_fuzz::one_line;
use waykeeper_tenants::{clash, parse};

fuzz_target!(|text: &str| {
    match parse(Path::new("tenants.toml"), text) {
        Ok(specs) => assert!(clash(&specs).is_none(), "an accepted file has no clash"),
        Err(why) => one_line(&why),
    }
});
