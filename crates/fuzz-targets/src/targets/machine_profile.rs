//! Machine profiles, which `waykeeper probe` writes and the daemon reads.

use crate::one_line;
use std::path::Path;
use waykeeper_linux_host::profile::MachineProfile;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = Path::new("profile.toml");
    match MachineProfile::parse(file, text) {
        Ok(profile) => {
            let written = profile.to_string();
            let again = MachineProfile::parse(file, &written).expect("a profile that we wrote");
            assert_eq!(again, profile, "{written}");
        }
        Err(why) => one_line(&why),
    }
}
