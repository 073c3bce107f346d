//! How many classes of service masks need. The control loop and every host count them by this rule.
//!
//! Must not know which class a group gets.

use std::collections::BTreeSet;
use waykeeper_units::WayMask;

/// The masks that need a class of service of their own: the distinct ones that differ from the root class's mask. `None`:
/// that mask is not known, so every mask counts.
pub fn own_class_masks(masks: impl IntoIterator<Item = WayMask>, root: Option<WayMask>) -> BTreeSet<WayMask> {
    masks.into_iter().filter(|mask| Some(*mask) != root).collect()
}
