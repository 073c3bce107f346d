//! Memory: loaded latency and traffic per channel (microarchitecture.md 2).
//!
//! latency x (1 + slope * u / (1 - u)), u = traffic / usable bandwidth, per channel, from the traffic of
//! the last few microseconds. Lines that a channel cannot move in time form a backlog, and an access waits for the
//! backlog before it: in the long run a channel moves no more than its usable bandwidth. Knows lines per channel;
//! the chip's rules decide what reads and writes.
//! Marks: docs/reference/README.md#marks.

use crate::spec::DramSpec;
use crate::table::Table;
use waykeeper_units::LINE_BYTES;

/// Time constant over which a channel's utilisation is averaged: long against a quantum, short against
/// a block transfer (X).
const SMOOTHING_NS: f64 = 10_000.0;

/// The longest wait, ns: cores and devices have a limited number of lines outstanding, so a backlog is limited too.
/// Without this limit, the writes with which programs set up their buffers in zero time would delay all later accesses.
/// Assumption: several times the largest wait that was seen on the fullest channel.
const LONGEST_WAIT_NS: f64 = 10_000.0;

/// The memory channels of a socket.
#[derive(Clone, Debug)]
pub struct Dram {
    spec: DramSpec,
    channels: Table<Channel>,
    /// Idle latency, ns: the unit in which a wait lengthens an access. `None` disables the backlog.
    idle_ns: Option<f64>,
    /// Mean wait over the channels, ns.
    wait_ns: f64,
    /// Sum over time of the mean factor over the channels, ns.
    factor_ns: f64,
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    /// Lines moved since the last tick.
    pending: u32,
    utilisation: f64,
    factor: f64,
    /// Lines that the channel could not move yet.
    backlog: f64,
}

impl Dram {
    /// Idle channels. With an idle latency, ns, accesses wait for the backlog of their channel; without one, traffic
    /// beyond the usable bandwidth has the latency of `max_utilisation`.
    pub(crate) fn new(spec: DramSpec, idle_ns: Option<f64>) -> Dram {
        let idle = Channel { pending: 0, utilisation: 0.0, factor: 1.0, backlog: 0.0 };
        Dram {
            spec,
            channels: Table::filled(spec.channels as usize, idle),
            idle_ns,
            wait_ns: 0.0,
            factor_ns: 0.0,
        }
    }

    /// Channels.
    pub fn channels(&self) -> u32 {
        self.spec.channels
    }

    #[inline(always)]
    pub(crate) fn moved(&mut self, channel: usize) {
        self.channels[channel].pending += 1;
    }

    /// Latency of an access on this channel now, relative to idle.
    #[inline(always)]
    pub fn factor(&self, channel: usize) -> f64 {
        self.channels[channel].factor
    }

    /// Utilisation of a channel, smoothed; above 1 while a backlog builds up.
    pub fn utilisation(&self, channel: usize) -> f64 {
        self.channels[channel].utilisation
    }

    /// Mean wait over the channels, ns, for the present backlogs.
    #[inline(always)]
    pub fn wait_ns(&self) -> f64 {
        self.wait_ns
    }

    /// Mean relative latency over the channels, integrated over time since power-on, ns.
    pub fn factor_ns(&self) -> f64 {
        self.factor_ns
    }

    /// Ends a quantum of `span_ns`; each counted line represents `scale` real ones.
    pub fn tick(&mut self, span_ns: f64, scale: f64) {
        let DramSpec { load_slope, max_utilisation, channel_gb_per_s, .. } = self.spec;
        let lines_per_ns = channel_gb_per_s / LINE_BYTES as f64;
        let weight = span_ns / (span_ns + SMOOTHING_NS);
        let (mut waits_ns, mut factors) = (0.0, 0.0);
        // The table's entries beyond the channels count for no mean.
        for channel in &mut self.channels.entries_mut()[..self.spec.channels as usize] {
            let used = f64::from(channel.pending) * scale / (lines_per_ns * span_ns);
            channel.pending = 0;
            channel.utilisation += weight * (used - channel.utilisation);
            let u = channel.utilisation.min(max_utilisation);
            channel.factor = 1.0 + load_slope * u / (1.0 - u);
            if let Some(idle_ns) = self.idle_ns {
                // From the smoothed traffic: the sampled lines of one quantum are noisy, and noise alone would build up
                // a backlog. Over time smoothed and counted lines are the same number.
                let excess = (channel.utilisation - max_utilisation) * lines_per_ns * span_ns;
                channel.backlog = (channel.backlog + excess).clamp(0.0, LONGEST_WAIT_NS * lines_per_ns);
                let wait_ns = channel.backlog / lines_per_ns;
                channel.factor += wait_ns / idle_ns;
                waits_ns += wait_ns;
            }
            factors += channel.factor;
        }
        self.wait_ns = waits_ns / f64::from(self.spec.channels);
        self.factor_ns += span_ns * factors / f64::from(self.spec.channels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_grows_with_load_as_the_formula_says() {
        let spec = DramSpec {
            channels: 2,
            capacity_gib: None,
            channel_gb_per_s: 16.0,
            load_slope: 0.12,
            max_utilisation: 0.95,
        };
        let mut dram = Dram::new(spec, None);
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
        // One more microsecond at 1.12 and 1: 1060 ns in the mean.
        let before = dram.factor_ns();
        (0..125).for_each(|_| dram.moved(0));
        dram.tick(1000.0, 1.0);
        assert!((dram.factor_ns() - before - 1060.0).abs() < 1e-3);
        // Beyond the cap the factor stays at 1 + 0.12 * 0.95 / 0.05 = 3.28.
        for _ in 0..2000 {
            for _ in 0..1000 {
                dram.moved(0);
            }
            dram.tick(1000.0, 1.0);
        }
        assert!((dram.factor(0) - 3.28).abs() < 1e-9);
    }

    #[test]
    fn idle_channels_of_any_number_have_a_mean_factor_of_one() {
        // The table of six channels has eight entries.
        for channels in [1, 2, 6, 8] {
            let spec = DramSpec {
                channels,
                capacity_gib: None,
                channel_gb_per_s: 16.0,
                load_slope: 0.12,
                max_utilisation: 0.95,
            };
            let mut dram = Dram::new(spec, Some(100.0));
            dram.tick(1000.0, 1.0);
            assert_eq!(dram.factor_ns(), 1000.0, "{channels} channels");
        }
    }

    #[test]
    fn a_backlog_grows_by_what_the_channel_cannot_move_and_is_worked_off() {
        let spec = DramSpec {
            channels: 2,
            capacity_gib: None,
            channel_gb_per_s: 16.0,
            load_slope: 0.12,
            max_utilisation: 0.75,
        };
        let mut dram = Dram::new(spec, Some(100.0));
        let tick = |dram: &mut Dram, lines: u32| {
            (0..lines).for_each(|_| dram.moved(0));
            dram.tick(1000.0, 1.0);
        };
        // 0.25 lines/ns, three quarters of them usable: 187.5 lines in 1000 ns. With 187 nothing ever waits.
        (0..2000).for_each(|_| tick(&mut dram, 187));
        assert!((dram.factor(0) - (1.0 + 0.12 * 0.748 / 0.252)).abs() < 1e-3);
        assert_eq!(dram.wait_ns(), 0.0);
        // With 250 the smoothed traffic soon is 250, and each tick leaves 62.5 lines, 250 ns, behind.
        (0..45).for_each(|_| tick(&mut dram, 250));
        let before = dram.factor(0);
        tick(&mut dram, 250);
        // Smoothed traffic is within 1.5 % of it by then.
        assert!(((dram.factor(0) - before) / (250.0 / 100.0) - 1.0).abs() < 0.1);
        assert_eq!(dram.factor(1), 1.0, "the other channel is idle");
        // Until the wait is as long as it may get.
        (0..2000).for_each(|_| tick(&mut dram, 250));
        let wait_ns = 2.0 * dram.wait_ns();
        assert!((wait_ns - LONGEST_WAIT_NS).abs() < 1e-6, "{wait_ns}");
        // Idle, the channel works it off at its usable rate.
        let ticks = (wait_ns / 750.0) as usize;
        (0..ticks + 100).for_each(|_| tick(&mut dram, 0));
        assert_eq!(dram.wait_ns(), 0.0);
        assert!((dram.factor(0) - 1.0).abs() < 1e-3);
    }
}
