//! Descriptions of chips, and the rules of the model in a scenario.

use crate::one_line;
use waykeeper_silicon::ChipSpec;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match ChipSpec::parse("chip.toml", text) {
        Ok(chip) => assert!(chip.llc_bytes() > 0),
        Err(why) => one_line(&why),
    }
}
