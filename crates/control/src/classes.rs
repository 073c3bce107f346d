//! Maps groups' masks to classes of service (CLOS): groups with equal masks share one.
//!
//! Real hardware has few classes (16 on the Gold 6140, 4 on some); a plan that needs more cannot be applied. Must not
//! know a host.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_units::{ClosId, GroupId, WayMask};

/// One class of service and its groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Class {
    /// Its id; 0 is the root class.
    pub clos: ClosId,
    /// Its mask.
    pub mask: WayMask,
    /// Groups in it, in order; the root class may have none.
    pub groups: Vec<GroupId>,
}

/// Why masks cannot be mapped to the classes of a chip.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassesError {
    /// More distinct masks than classes.
    #[error(
        "{needed} classes of service are needed but the chip has {available}: {masks} distinct masks, and \
         the root class, which keeps all ways for cores without a tenant; give some workloads equal masks"
    )]
    TooMany {
        /// Classes needed, root class included.
        needed: usize,
        /// Classes there are, root class included.
        available: u32,
        /// Distinct masks other than the root class's.
        masks: usize,
    },
}

/// Maps `masks` to at most `clos_count` classes of a chip with `ways` ways.
///
/// The root class keeps all ways, since idle cores and the kernel's own work use it; groups whose mask is all ways are
/// in it too. The other classes are numbered in order of their first group.
///
/// # Errors
/// [`ClassesError::TooMany`] when there are more distinct masks than classes.
pub fn classes(
    masks: &BTreeMap<GroupId, WayMask>,
    ways: u32,
    clos_count: u32,
) -> Result<Vec<Class>, ClassesError> {
    let mut all = vec![Class { clos: ClosId(0), mask: WayMask::full(ways), groups: Vec::new() }];
    for (group, mask) in masks {
        match all.iter_mut().find(|class| class.mask == *mask) {
            Some(class) => class.groups.push(*group),
            None => {
                // Above 256 classes the id wraps, but the check below then refuses the count: no chip has that many.
                let clos = ClosId(all.len() as u8);
                all.push(Class { clos, mask: *mask, groups: vec![*group] });
            }
        }
    }
    if all.len() > clos_count.min(256) as usize {
        let masks = all.len() - 1;
        return Err(ClassesError::TooMany { needed: all.len(), available: clos_count, masks });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(bits: &[u32]) -> BTreeMap<GroupId, WayMask> {
        (0..).zip(bits).map(|(id, bits)| (GroupId(id), WayMask::from_bits(*bits))).collect()
    }

    #[test]
    fn equal_masks_share_a_class_and_all_ways_is_the_root_class() {
        let all = classes(&masks(&[0x7ff, 0x00c, 0x1ff, 0x00c, 0x004]), 11, 4).unwrap();
        let plain: Vec<(u8, u32, Vec<u32>)> = all
            .iter()
            .map(|class| {
                (class.clos.0, class.mask.bits(), class.groups.iter().map(|group| group.0).collect())
            })
            .collect();
        assert_eq!(
            plain,
            [(0, 0x7ff, vec![0]), (1, 0x00c, vec![1, 3]), (2, 0x1ff, vec![2]), (3, 0x004, vec![4])]
        );
    }

    #[test]
    fn the_root_class_counts_even_when_empty() {
        assert_eq!(classes(&masks(&[]), 11, 1).unwrap().len(), 1);
        assert_eq!(classes(&masks(&[0x600, 0x180]), 11, 3).unwrap().len(), 3);
        let error = classes(&masks(&[0x600, 0x180, 0x7f]), 11, 3).unwrap_err();
        assert_eq!(error, ClassesError::TooMany { needed: 4, available: 3, masks: 3 });
        assert!(
            error
                .to_string()
                .starts_with("4 classes of service are needed but the chip has 3: 3 distinct masks")
        );
    }
}
