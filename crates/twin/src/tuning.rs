//! What counters do not show of devices, chosen so that the small chip shows what was observed: how many buffers a device
//! goes through, and how far it is ahead of the program. It must not know candidates.

use crate::layout::Layout;
use crate::plant::Plant;
use crate::run::{Counts, Hits, run};
use std::collections::BTreeMap;
use waykeeper_calibration::{DeviceDescription, Observed, ServerDescription};
use waykeeper_host::DeviceKind;
use waykeeper_units::{DeviceId, LINE_BYTES};

/// Buffers and lag of each device.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tuning {
    devices: BTreeMap<DeviceId, Tuned>,
}

/// Both in lines of the real server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Tuned {
    pub buffer_lines: f64,
    pub lag_lines: f64,
}

/// Layouts that are compared, the last ones.
const LAYOUTS: usize = 3;
/// Times that both numbers are changed.
pub(crate) const TURNS: usize = 8;
/// Runs of a tuning at most.
pub(crate) const RUNS: usize = TURNS * LAYOUTS;
/// Change of the logarithm of a number per difference of a ratio. Assumption: found to settle in a few turns.
const STEP: f64 = 4.0;
/// Largest change of a logarithm in a turn.
const MOST: f64 = 0.7;
/// Lag of a NIC at first, as a part of its buffers; of storage, as a part of the LLC. Assumptions.
const NIC_LAG: f64 = 0.1;
const STORAGE_LAG: f64 = 0.1;

impl Tuning {
    /// What is known of a device.
    pub fn of(&self, device: &DeviceDescription) -> Tuned {
        self.devices.get(&device.id).copied().unwrap_or(Tuned {
            buffer_lines: device.buffer_lines.value,
            lag_lines: NIC_LAG * device.buffer_lines.value,
        })
    }

    /// A first guess.
    fn guess(server: &ServerDescription) -> Tuning {
        let llc = server.llc.bytes as f64 / LINE_BYTES as f64;
        let guess = |device: &DeviceDescription| Tuned {
            buffer_lines: device.buffer_lines.value,
            lag_lines: match device.kind {
                DeviceKind::Network => NIC_LAG * device.buffer_lines.value,
                DeviceKind::Storage => STORAGE_LAG * llc,
            },
        };
        Tuning { devices: server.devices.iter().map(|device| (device.id, guess(device))).collect() }
    }

    /// The numbers that come closest to what was observed, with `events` line events per run, and the line events spent.
    pub fn found(server: &ServerDescription, events: u64) -> (Tuning, u64) {
        let moves = |device: &DeviceDescription| device.ports.iter().any(|port| port.inbound_lines > 0.0);
        let mut now = Tuning::guess(server);
        if !server.devices.iter().any(moves) {
            return (now, 0);
        }
        let observed = &server.observed[server.observed.len().saturating_sub(LAYOUTS)..];
        let mut best: Option<(f64, Tuning)> = None;
        let mut spent = 0;
        for _ in 0..TURNS {
            let plant = Plant::new(server, &now);
            let mut off = Off::default();
            for seen in observed {
                let layout = Layout::of(&seen.knobs, server);
                let counts = run(&plant, &layout, events);
                spent += counts.events;
                off.note(&plant, &counts, seen, server, &layout);
            }
            let all = off.square();
            if best.as_ref().is_none_or(|(least, _)| all < *least) {
                best = Some((all, now.clone()));
            }
            now.follow(&off, server);
        }
        (best.map_or(now, |(_, tuning)| tuning), spent)
    }

    fn follow(&mut self, off: &Off, server: &ServerDescription) {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let llc = server.llc.bytes as f64 / LINE_BYTES as f64;
        for (id, tuned) in &mut self.devices {
            if let Some(values) = off.hits.get(id) {
                // Too many hits in the twin: the program reads later.
                tuned.lag_lines *= (STEP * mean(values)).clamp(-MOST, MOST).exp();
            }
            let nic = server.devices.iter().any(|d| d.id == *id && d.kind == DeviceKind::Network);
            if nic && !off.writes.is_empty() {
                // Too many write hits: there are more buffers.
                tuned.buffer_lines *= (STEP * mean(&off.writes)).clamp(-MOST, MOST).exp();
                tuned.buffer_lines = tuned.buffer_lines.clamp(512.0, 4.0 * llc);
            }
            let most = if nic { tuned.buffer_lines } else { 2.0 * llc };
            tuned.lag_lines = tuned.lag_lines.clamp(16.0, most);
        }
    }
}

/// Differences between the small chip and the observations: positive where the chip hits too often.
#[derive(Default)]
struct Off {
    hits: BTreeMap<DeviceId, Vec<f64>>,
    writes: Vec<f64>,
}

impl Off {
    fn note(
        &mut self,
        plant: &Plant,
        counts: &Counts,
        seen: &Observed,
        server: &ServerDescription,
        layout: &Layout,
    ) {
        for (tenant, counted) in plant.tenants.iter().zip(&counts.tenants) {
            let Some(found) = counted.data.iter().copied().sum::<Hits>().ratio() else { continue };
            let Some(there) = seen.tenants.get(&tenant.id) else { continue };
            // Of the references, those to the devices' lines: the others hit.
            let others = (there.references - tenant.data_rate).max(0.0);
            let data = there.references - others;
            if data <= 0.0 {
                continue;
            }
            let wanted = ((there.references * there.hits.value - others) / data).clamp(0.0, 1.0);
            for device in server.devices.iter().filter(|device| device.tenants.contains(&tenant.id)) {
                self.hits.entry(device.id).or_default().push(found - wanted);
            }
        }
        if let Some(wanted) = seen.write_misses {
            let on = |at: &usize| layout.dca.get(&plant.ports[*at]).copied().unwrap_or(true);
            let (hits, misses) = counts
                .writes
                .iter()
                .enumerate()
                .filter(|(at, _)| on(at))
                .fold((0, 0), |sum, (_, writes)| (sum.0 + writes.0, sum.1 + writes.1));
            if hits + misses > 0 {
                self.writes.push(wanted.value - misses as f64 / (hits + misses) as f64);
            }
        }
    }

    fn square(&self) -> f64 {
        self.hits.values().flatten().chain(&self.writes).map(|off| off * off).sum()
    }
}
