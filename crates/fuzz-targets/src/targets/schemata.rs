//! The schemata of a resctrl group, as the kernel shows them and as we write them.

use crate::one_line;
use waykeeper_kernel::resctrl::Schemata;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Schemata::parse(text) {
        Ok(schemata) => {
            let written = schemata.to_string();
            let again = Schemata::parse(&written).map(|schemata| schemata.lines);
            assert_eq!(again, Ok(schemata.lines), "{written:?}");
            schemata.strange.iter().for_each(|line| one_line(&line.why));
        }
        Err(why) => one_line(&why),
    }
}
