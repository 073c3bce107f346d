//! Settings of every policy, as TOML.

use crate::one_line;
use waykeeper_policy::{build, registry};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(settings) = text.parse::<toml::Table>() else { return };
    for entry in registry() {
        match build(entry.name, &settings) {
            Ok(policy) => _ = policy.describe(),
            Err(why) => one_line(&why),
        }
    }
}
