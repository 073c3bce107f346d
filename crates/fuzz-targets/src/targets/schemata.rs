//! The schemata of a resctrl group, as the kernel shows them and as we write them.

use crate::one_line;
use waykeeper_kernel::resctrl::Schemata;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Schemata::parse(text) {
        Ok(schemata) => {
            let written = schemata.to_string();
            assert_eq!(Schemata::parse(&written), Ok(schemata), "{written:?}");
        }
        Err(why) => one_line(&why),
    }
}
