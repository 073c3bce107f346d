//! Memory: loaded latency and traffic per channel (microarchitecture.md 2).
//!
//! latency x (1 + slope * u / (1 - u)), u = traffic / usable bandwidth, per channel, from the traffic of
//! the last few microseconds. Knows lines per channel; the chip's rules decide what reads and writes.
//! Marks: docs/reference/README.md#marks.

use crate::spec::DramSpec;
use crate::table::Table;
use waykeeper_units::LINE_BYTES;

/// Time constant over which a channel's utilisation is averaged: long against a quantum, short against
/// a block transfer (X).
const SMOOTHING_NS: f64 = 10_000.0;

/// The memory channels of a socket.
#[derive(Clone, Debug)]
pub struct Dram {
    spec: DramSpec,
    channels: Table<Channel>,
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    /// Lines moved since the last tick.
    pending: u32,
    utilisation: f64,
    factor: f64,
}

impl Dram {
    pub(crate) fn new(spec: DramSpec) -> Dram {
        let idle = Channel { pending: 0, utilisation: 0.0, factor: 1.0 };
        Dram { spec, channels: Table::filled(spec.channels as usize, idle) }
    }

    /// Channels.
    pub fn channels(&self) -> u32 {
        self.spec.channels
    }

    #[inline(always)]
    pub(crate) fn moved(&mut self, channel: usize) {
        self.channels[channel].pending += 1;
    }

    /// How much longer than idle an access on this channel takes now.
    #[inline(always)]
    pub fn factor(&self, channel: usize) -> f64 {
        self.channels[channel].factor
    }

    /// Utilisation 0..1 of a channel, smoothed.
    pub fn utilisation(&self, channel: usize) -> f64 {
        self.channels[channel].utilisation
    }

    /// Ends a quantum of `span_ns` in which every counted line stood for `scale` real ones.
    pub fn tick(&mut self, span_ns: f64, scale: f64) {
        let lines_per_ns = self.spec.channel_gb_per_s / LINE_BYTES as f64;
        let weight = span_ns / (span_ns + SMOOTHING_NS);
        for channel in self.channels.entries_mut() {
            let used = f64::from(channel.pending) * scale / (lines_per_ns * span_ns);
            channel.pending = 0;
            channel.utilisation += weight * (used - channel.utilisation);
            let u = channel.utilisation.min(self.spec.max_utilisation);
            channel.factor = 1.0 + self.spec.load_slope * u / (1.0 - u);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_grows_with_load_as_the_formula_says() {
        let spec = DramSpec { channels: 2, channel_gb_per_s: 16.0, load_slope: 0.12, max_utilisation: 0.95 };
        let mut dram = Dram::new(spec);
        // 16 GB/s is 0.25 lines/ns: 125 lines in 1000 ns are u = 0.5 on channel 0.
        for _ in 0..2000 {
            for _ in 0..125 {
                dram.moved(0);
            }
            dram.tick(1000.0, 1.0);
        }
        assert!((dram.utilisation(0) - 0.5).abs() < 1e-6);
        assert!((dram.factor(0) - 1.12).abs() < 1e-6); // 1 + 0.12 * 0.5 / 0.5
        assert_eq!(dram.factor(1), 1.0);
        // Beyond the cap the factor stays at 1 + 0.12 * 0.95 / 0.05 = 3.28.
        for _ in 0..2000 {
            for _ in 0..1000 {
                dram.moved(0);
            }
            dram.tick(1000.0, 1.0);
        }
        assert!((dram.factor(0) - 3.28).abs() < 1e-9);
    }
}
