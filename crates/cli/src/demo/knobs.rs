//! The knobs of a host as text, to compare the host after a run with that before.
//!
//! Must not know who turned them.

use crate::exit::Failure;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::resctrl::{GROUP_PREFIX, MOUNT, Resctrl, ResctrlError};
use waykeeper_kernel::root::{FileError, Root};
use waykeeper_operator::ddio::survey;

/// Values by name.
#[derive(Debug, PartialEq)]
pub struct FoundKnobs {
    values: BTreeMap<String, String>,
    ports: usize,
}

impl FoundKnobs {
    /// Reads masks and CPUs of the resctrl groups, the DDIO ways, and DCA of the root ports.
    pub fn read(root: &Root) -> Result<FoundKnobs, Failure> {
        let mut values = BTreeMap::new();
        if let Ok(resctrl) = Resctrl::open(root, GROUP_PREFIX) {
            let mut folders = vec![String::new()];
            let groups = resctrl
                .control_groups()
                .map_err(|why: ResctrlError| Failure::new(crate::exit::FAILED, why))?;
            folders.extend(groups.iter().map(|group| format!("/{group}")));
            for folder in folders {
                for file in ["schemata", "cpus_list"] {
                    let path = format!("{MOUNT}{folder}/{file}");
                    let read = |why: FileError| Failure::new(crate::exit::FAILED, why);
                    let text = root.read_optional(&path).map_err(read)?;
                    values.insert(path, text.unwrap_or_default().trim().replace('\n', " "));
                }
            }
        }
        let survey = survey(root);
        for socket in &survey.sockets {
            let mask = socket.mask.map_or_else(|| "-".to_owned(), |mask| mask.to_string());
            values.insert(format!("DDIO ways of socket {}", socket.socket), mask);
        }
        for port in &survey.ports {
            let dca = port.dca.map_or("-", |on| if on { "on" } else { "off" });
            values.insert(format!("DCA of root port {}", port.address), dca.to_owned());
        }
        Ok(FoundKnobs { values, ports: survey.ports.len() })
    }

    /// What is as it was, in words; else the differences.
    pub fn compared_with(&self, before: &FoundKnobs) -> Result<String, String> {
        let keys: BTreeSet<&String> = self.values.keys().chain(before.values.keys()).collect();
        let of = |knobs: &FoundKnobs, key: &str| {
            knobs.values.get(key).cloned().unwrap_or_else(|| "absent".to_owned())
        };
        let different: Vec<String> = keys
            .into_iter()
            .filter(|key| self.values.get(*key) != before.values.get(*key))
            .map(|key| format!("{key} is {}, was {}", of(self, key), of(before, key)))
            .collect();
        match different.is_empty() {
            true => Ok(format!(
                "masks, groups, DDIO ways and DCA of {} root ports of the virtual host are as found",
                self.ports
            )),
            false => Err(format!("knobs of the virtual host are not as found: {}", different.join("; "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_named() {
        let knobs = |values: &[(&str, &str)]| FoundKnobs {
            values: values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ports: 1,
        };
        let before = knobs(&[("a", "1"), ("b", "2")]);
        assert!(before.compared_with(&before).is_ok());
        let after = knobs(&[("a", "3"), ("c", "4")]);
        assert_eq!(
            after.compared_with(&before).unwrap_err(),
            "knobs of the virtual host are not as found: a is 3, was 1; b is absent, was 2; c is 4, was absent"
        );
    }
}
