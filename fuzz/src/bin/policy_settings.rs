//! Settings of every policy, as TOML.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waykeeper_fuzz::one_line;
use waykeeper_policy::{build, registry};

fuzz_target!(|text: &str| {
    let Ok(settings) = text.parse::<toml::Table>() else { return };
    for entry in registry() {
        match build(entry.name, &settings) {
            Ok(policy) => _ = policy.describe(),
            Err(why) => one_line(&why),
        }
    }
});
