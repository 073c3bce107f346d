//! What a tenant's MLCs hold, as far as it decides what their victims are: a bounded store of lines with their origin.
//!
//! The line that was stored longest leaves first. Knows origins and marks of ways; must not know sets, rates or owners.

use crate::sets::{WayNumber, below};

/// Where a line of an MLC came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A hit in the LLC: it has proven reuse.
    Reused,
    /// Memory, and it was written since.
    Written,
    /// Memory.
    Clean,
    /// A device's write that the core found in the LLC: newer than memory.
    Device,
    /// A device's write that the core read from memory.
    Lost,
}

impl Origin {
    fn is_device(self) -> bool {
        matches!(self, Origin::Device | Origin::Lost)
    }
}

/// A line of an MLC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldLine {
    pub origin: Origin,
    /// The LLC set to which it belongs.
    pub set: u32,
    /// Its copy in the inclusive ways, by its mark.
    pub copy: Option<(WayNumber, u32)>,
}

/// The lines of all MLCs of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct HeldLines {
    lines: Vec<Option<HeldLine>>,
    /// Places without a line.
    free: Vec<u32>,
    oldest: u32,
    devices: usize,
}

/// How often a random place is looked at for a device's line. With one line in eight from a device, 95 % of the searches
/// succeed.
const TRIES: u32 = 24;

impl HeldLines {
    pub fn new(capacity: usize) -> HeldLines {
        let capacity = capacity.max(1);
        let free = (0..capacity as u32).rev().collect();
        HeldLines { lines: vec![None; capacity], free, oldest: 0, devices: 0 }
    }

    /// Lines that devices wrote.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// Stores a line. Returns the one that has to leave.
    pub fn store(&mut self, line: HeldLine) -> Option<HeldLine> {
        self.devices += usize::from(line.origin.is_device());
        if let Some(place) = self.free.pop() {
            self.lines[place as usize] = Some(line);
            return None;
        }
        let place = self.oldest;
        self.oldest = if place + 1 == self.lines.len() as u32 { 0 } else { place + 1 };
        let leaves = self.lines[place as usize].replace(line);
        self.devices -= usize::from(leaves.is_some_and(|line| line.origin.is_device()));
        leaves
    }

    /// Takes out a device's line, for one random number after another.
    pub fn take_device(&mut self, mut random: impl FnMut() -> u32) -> Option<HeldLine> {
        let place = self.device_place(&mut random)?;
        self.devices -= 1;
        self.free.push(place);
        self.lines[place as usize].take()
    }

    /// The place of a device's line, for one random number after another.
    fn device_place(&self, random: &mut impl FnMut() -> u32) -> Option<u32> {
        if self.devices == 0 {
            return None;
        }
        (0..TRIES)
            .map(|_| below(random(), self.lines.len() as u32))
            .find(|place| self.lines[*place as usize].is_some_and(|line| line.origin.is_device()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(origin: Origin, set: u32) -> HeldLine {
        HeldLine { origin, set, copy: None }
    }

    #[test]
    fn the_line_that_was_stored_longest_leaves_and_a_place_that_was_freed_is_used_first() {
        let mut held = HeldLines::new(2);
        assert_eq!(held.store(line(Origin::Clean, 1)), None);
        assert_eq!(held.store(line(Origin::Device, 2)), None);
        assert_eq!(held.store(line(Origin::Reused, 3)), Some(line(Origin::Clean, 1)));
        assert_eq!(held.devices(), 1);
        let mut numbers = [0_u32, u32::MAX].into_iter().cycle();
        assert_eq!(held.take_device(|| numbers.next().unwrap()), Some(line(Origin::Device, 2)));
        assert_eq!((held.devices(), held.store(line(Origin::Lost, 4))), (0, None));
        assert_eq!(held.devices(), 1);
    }
}
