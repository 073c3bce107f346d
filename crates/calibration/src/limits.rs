//! Which layouts a server can have, from its inventory. It must not know which are good.

use crate::LayoutLimits;
use waykeeper_host::{Inventory, Support};
use waykeeper_units::WayMask;

/// The layouts that a server's knobs allow.
pub fn limits(inventory: &Inventory) -> LayoutLimits {
    let llc = inventory.known_llc();
    let dca_ways = match (inventory.dca_ways_default, &inventory.dca_ways_switch) {
        (Some(default), Support::Yes) => wider(default, llc.ways),
        _ => Vec::new(),
    };
    let switches = inventory.ports.iter().filter(|port| port.dca_switch == Support::Yes).map(|port| port.id);
    LayoutLimits {
        min_ways: llc.min_ways.max(1),
        most_classes: llc.clos_count.max(1),
        dca_ways,
        switches: switches.collect(),
    }
}

/// The ways at power-on with more ways to their right: the values that every generation with such a register takes
/// (hardware.md 1.2).
fn wider(default: WayMask, ways: u32) -> Vec<WayMask> {
    let Some((low, high)) = default.lowest().zip(default.highest()) else { return Vec::new() };
    if !default.is_contiguous() || high >= ways {
        return vec![default];
    }
    (0..=low).rev().map(|low| WayMask::span(low, high - low + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dca_ways_grow_to_the_right() {
        let masks = wider(WayMask::from_bits(0x600), 11);
        assert_eq!(masks.len(), 10);
        assert_eq!(masks[..3], [0x600, 0x700, 0x780].map(WayMask::from_bits));
        assert_eq!(masks[9], WayMask::full(11));
    }
}
