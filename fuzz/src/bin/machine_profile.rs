//! Machine profiles, which `waykeeper probe` writes and the daemon reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use waykeeper_fuzz::one_line;
use waykeeper_linux_host::profile::MachineProfile;

fuzz_target!(|text: &str| {
    let file = Path::new("profile.toml");
    match MachineProfile::parse(file, text) {
        Ok(profile) => {
            let written = profile.to_string();
            let again = MachineProfile::parse(file, &written).expect("a profile that we wrote");
            assert_eq!(again, profile, "{written}");
        }
        Err(why) => one_line(&why),
    }
});
