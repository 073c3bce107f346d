//! Maps groups' masks to classes of service (CLOS): groups with equal masks share one.
//!
//! Real hardware has few classes (16 on the Gold 6140, 4 on some); a plan that needs more cannot be applied. Must not
//! know a host.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_host::own_class_masks;
use waykeeper_units::{ClosId, WayMask, WorkloadId};

/// One class of service and its groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Class {
    /// Its id; 0 is the root class.
    pub clos: ClosId,
    /// Its mask.
    pub mask: WayMask,
    /// Groups in it, in order; the root class may have none.
    pub groups: Vec<WorkloadId>,
}

/// Why masks cannot be mapped to the classes of a chip.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassesError {
    /// More distinct masks than classes.
    #[error(
        "{needed} classes of service are needed but the chip has {available}: {masks} distinct masks, and \
         the root class, which keeps {root} for cores without a tenant; give some workloads equal masks"
    )]
    TooMany {
        /// Classes needed, root class included.
        needed: usize,
        /// Classes there are, root class included.
        available: u32,
        /// Distinct masks other than the root class's.
        masks: usize,
        /// The root class's mask.
        root: WayMask,
    },
}

/// Maps `masks` to at most `clos_count` classes, one of which is the root class with the mask `root`.
///
/// Idle cores and the kernel's own work use the root class, which keeps its mask; groups with the same mask are in it
/// too. The other classes are numbered in order of their first group.
///
/// # Errors
/// [`ClassesError::TooMany`] when there are more distinct masks than classes.
pub fn classes(
    masks: &BTreeMap<WorkloadId, WayMask>,
    root: WayMask,
    clos_count: u32,
) -> Result<Vec<Class>, ClassesError> {
    let mut all = vec![Class { clos: ClosId(0), mask: root, groups: Vec::new() }];
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
    let own = own_class_masks(masks.values().copied(), Some(root)).len();
    if own + 1 > clos_count.min(256) as usize {
        return Err(ClassesError::TooMany { needed: own + 1, available: clos_count, masks: own, root });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: WayMask = WayMask::from_bits(0x7ff);

    fn masks(bits: &[u32]) -> BTreeMap<WorkloadId, WayMask> {
        (0..).zip(bits).map(|(id, bits)| (WorkloadId(id), WayMask::from_bits(*bits))).collect()
    }

    #[test]
    fn equal_masks_share_a_class_and_all_ways_is_the_root_class() {
        let all = classes(&masks(&[0x7ff, 0x00c, 0x1ff, 0x00c, 0x004]), FULL, 4).unwrap();
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
        assert_eq!(classes(&masks(&[]), FULL, 1).unwrap().len(), 1);
        assert_eq!(classes(&masks(&[0x600, 0x180]), FULL, 3).unwrap().len(), 3);
        let error = classes(&masks(&[0x600, 0x180, 0x7f]), FULL, 3).unwrap_err();
        assert_eq!(error, ClassesError::TooMany { needed: 4, available: 3, masks: 3, root: FULL });
        assert!(
            error
                .to_string()
                .starts_with("4 classes of service are needed but the chip has 3: 3 distinct masks")
        );
    }

    #[test]
    fn a_root_class_without_all_ways_holds_the_groups_with_its_mask_and_no_others() {
        let root = WayMask::from_bits(0x0ff);
        let all = classes(&masks(&[0x7ff, 0x0ff]), root, 2).unwrap();
        assert_eq!((all[0].mask, &all[0].groups[..]), (root, &[WorkloadId(1)][..]));
        assert_eq!((all[1].mask, &all[1].groups[..]), (FULL, &[WorkloadId(0)][..]));
        let error = classes(&masks(&[0x7ff, 0x003]), root, 2).unwrap_err();
        assert_eq!(error, ClassesError::TooMany { needed: 3, available: 2, masks: 2, root });
    }
}
