//! Declarations of tenants.

use crate::one_line;
use std::path::Path;
use waykeeper_tenants::{clash, parse};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse(Path::new("tenants.toml"), text) {
        Ok(specs) => assert!(clash(&specs).is_none(), "an accepted file has no clash"),
        Err(why) => one_line(&why),
    }
}
