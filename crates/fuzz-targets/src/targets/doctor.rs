//! Everything that `waykeeper doctor` reads of a host.

use crate::{host, one_line};
use waykeeper_operator::doctor::examine;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    for check in examine(&host(data)).checks {
        one_line(&check.name);
        one_line(&check.value);
        check.remedy.iter().for_each(|remedy| one_line(remedy));
    }
}
