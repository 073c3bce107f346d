//! Globs over names of cgroups, units and programs: the first line is the glob, the others are names.

use crate::one_line;
use waykeeper_tenants::{CgroupSelector, Glob};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let first = lines.next().unwrap_or_default();
    let names: Vec<&str> = lines.take(8).collect();
    match Glob::new(first) {
        Ok(glob) => {
            let again = Glob::new(glob.text()).expect("the text of a glob");
            for name in &names {
                assert_eq!(glob.matches(name), again.matches(name));
                assert!(glob.is_wild() || !glob.matches(name) || first == *name);
            }
        }
        Err(why) => one_line(&why),
    }
    for made in [CgroupSelector::path(first), CgroupSelector::slice(first), CgroupSelector::unit(first)] {
        match made {
            Ok(selector) => {
                let _ = selector.may_repeat_names();
                names.iter().for_each(|name| _ = selector.glob().matches(name));
            }
            Err(why) => one_line(&why),
        }
    }
}
