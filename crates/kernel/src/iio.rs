//! Maps a root port to its PCIe stack and its part of the stack, whose counters count its bytes.
//!
//! A stack has a root bus; the root port's device number gives the part (hardware.md 4.4). Must not know how the
//! values are read.

use waykeeper_generations::PartMap;

/// The root bus of a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StackBus {
    /// Number of the stack: N of `uncore_iio_N`.
    pub stack: u16,
    /// PCI segment (domain).
    pub segment: u32,
    /// Bus number.
    pub bus: u8,
}

/// The counters of a root port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StackPart {
    /// Number of the stack.
    pub stack: u16,
    /// Part of the stack.
    pub part: u8,
}

/// The stacks in a register that holds one root bus per byte (MSR 0x300 of Skylake-SP); bit `valid` says whether the
/// content is valid. Only the first `stacks` are returned. Such a machine has one segment.
pub fn buses_of_register(value: u64, valid: u8, stacks: u16) -> Vec<StackBus> {
    if value >> valid & 1 == 0 {
        return Vec::new();
    }
    // Seven bytes at most: the eighth holds the valid bit.
    (0..stacks.min(7))
        .map(|stack| StackBus { stack, segment: 0, bus: (value >> (8 * stack)) as u8 })
        .collect()
}

/// The counters of the root port `segment:bus:device`; `None` if no stack has its bus or no part its device number.
pub fn stack_part(
    segment: u32,
    bus: u8,
    device: u8,
    buses: &[StackBus],
    parts: PartMap,
) -> Option<StackPart> {
    let stack = buses.iter().find(|stack| (stack.segment, stack.bus) == (segment, bus))?.stack;
    Some(StackPart { stack, part: parts.part(device)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_skylake_port_is_found_by_bus_and_device() {
        // Bytes 0x00, 0x16, 0x64, 0xb2 for stacks 0 to 3 and the valid bit.
        let value = 0x8000_0000_b264_1600;
        let buses = buses_of_register(value, 63, 6);
        assert_eq!(buses.len(), 6);
        let parts = PartMap { first: 0, last: 3 };
        assert_eq!(stack_part(0, 0x64, 2, &buses, parts), Some(StackPart { stack: 2, part: 2 }));
        assert_eq!(stack_part(0, 0x64, 4, &buses, parts), None, "a stack has four parts");
        assert_eq!(stack_part(0, 0x65, 0, &buses, parts), None, "no stack has this bus");
        assert_eq!(stack_part(1, 0x64, 0, &buses, parts), None, "another segment");
        assert!(buses_of_register(value & (u64::MAX >> 1), 63, 6).is_empty(), "not valid");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn no_register_makes_it_panic(value in any::<u64>(), stacks in any::<u16>()) {
            prop_assert!(buses_of_register(value, 63, stacks).len() <= 7);
        }
    }
}
