//! The window of a sender that waits for acknowledgements: its limit on frames in flight and in the socket.
//!
//! A frame that does not fit waits at the sender. When the program has copied one, the next arrives a round trip
//! outside the host later. The window starts small and grows by a frame per acknowledged frame, TCP's slow
//! start; there is no other congestion control. Knows frames and times, must not know bytes or caches.
//! Marks: docs/reference/README.md#marks.

use std::collections::VecDeque;

/// Frames that a sender sends before its first acknowledgement (RFC 6928).
const INITIAL_FRAMES: u32 = 10;

/// The window of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Frames that fit into the receiver's buffer.
    most: u32,
    /// Frames that the sender may send now.
    room: u32,
    /// Frames written to the host and not acknowledged.
    out: u32,
    /// Times at which frames that acknowledgements permit reach the receiver's port, ns, ascending.
    acknowledged_ns: VecDeque<f64>,
    round_trip_ns: f64,
}

impl Window {
    /// A window of `most` frames; the sender is a round trip away.
    pub(crate) fn new(most: u32, round_trip_ns: f64) -> Window {
        let acknowledged_ns = VecDeque::with_capacity(most as usize);
        Window { most, room: INITIAL_FRAMES.min(most), out: 0, acknowledged_ns, round_trip_ns }
    }

    /// True if a frame may arrive at `at_ns`; else the sender keeps it.
    #[inline]
    pub(crate) fn admits(&mut self, at_ns: f64) -> bool {
        while self.acknowledged_ns.front().is_some_and(|due| *due <= at_ns) {
            self.acknowledged_ns.pop_front();
            self.out -= 1;
            self.room = (self.room + 1).min(self.most);
        }
        self.out < self.room
    }

    /// A frame was written to the host.
    #[inline]
    pub(crate) fn arrived(&mut self) {
        self.out += 1;
    }

    /// The program has copied a frame.
    #[inline]
    pub(crate) fn copied(&mut self, now_ns: f64) {
        self.acknowledged_ns.push_back(now_ns + self.round_trip_ns);
    }

    /// The program has exited: its sender stops.
    pub(crate) fn close(&mut self) {
        (self.most, self.room) = (0, 0);
    }

    /// Frames not acknowledged.
    #[cfg(test)]
    pub(crate) fn out(&self) -> u32 {
        self.out
    }

    /// Acknowledgements that have not reached the sender.
    #[cfg(test)]
    pub(crate) fn acknowledgements(&self) -> u32 {
        self.acknowledged_ns.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames that arrive at `at_ns` until the sender has to wait.
    fn burst(window: &mut Window, at_ns: f64) -> u32 {
        let mut count = 0;
        while window.admits(at_ns) {
            window.arrived();
            count += 1;
        }
        count
    }

    #[test]
    fn acknowledgements_clock_the_sender() {
        let mut window = Window::new(25, 1000.0);
        assert_eq!(burst(&mut window, 0.0), 10);
        // Four are copied at 500: their acknowledgements act at 1500. Each permits two frames.
        (0..4).for_each(|_| window.copied(500.0));
        assert_eq!((burst(&mut window, 1499.0), burst(&mut window, 1500.0)), (0, 8));
        // All 14 that are not acknowledged: at most 25 may be.
        (0..14).for_each(|_| window.copied(2000.0));
        assert_eq!((burst(&mut window, 3000.0), window.out()), (25, 25));
        // From now on each acknowledgement permits one frame.
        (0..5).for_each(|_| window.copied(3000.0));
        assert_eq!(burst(&mut window, 4000.0), 5);
        window.close();
        (0..25).for_each(|_| window.copied(5000.0));
        assert_eq!((burst(&mut window, 9000.0), window.out()), (0, 0));
    }
}
