//! Sweeps: hit rates over ways, rings, packet sizes and rates (ddio-bench s4.4 to s5.2, Figs. 5 to 8).
//!
//! Ways and rings are knobs of the host; sizes and rates are parameters of an adjustable load, if there is one. A sweep
//! that is not possible says why. Must not know how a load is made.

use crate::experiment::{MeasurementTimes, ProbeError, ProbeExperiment};
use crate::stats;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use waykeeper_host::{Host, Interval, Knob, KnobKind, KnobOutcome, PortCounter};
use waykeeper_units::WayMask;

/// The swept parameter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweptParameter {
    /// Number of DCA ways.
    Ways,
    /// Descriptors of each RX ring.
    Ring,
    /// Bytes of a packet.
    PacketBytes,
    /// Offered load of each NIC, Gb/s.
    OfferedGbps,
}

impl SweptParameter {
    /// All parameters.
    pub const ALL: [SweptParameter; 4] = [
        SweptParameter::Ways,
        SweptParameter::Ring,
        SweptParameter::PacketBytes,
        SweptParameter::OfferedGbps,
    ];

    /// Title of an axis.
    pub fn title(self) -> &'static str {
        match self {
            SweptParameter::Ways => "DCA ways",
            SweptParameter::Ring => "RX ring, descriptors",
            SweptParameter::PacketBytes => "packet, bytes",
            SweptParameter::OfferedGbps => "offered load, Gb/s",
        }
    }

    /// Its values, from the papers' figures (ddio-bench Figs. 5 to 8).
    fn values(self, quick: bool) -> Vec<f64> {
        let all: &[f64] = match self {
            SweptParameter::Ways => &[],
            SweptParameter::Ring => &[128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0],
            SweptParameter::PacketBytes => &[64.0, 128.0, 256.0, 512.0, 1024.0, 1500.0],
            SweptParameter::OfferedGbps => &[10.0, 20.0, 40.0, 60.0, 80.0, 100.0],
        };
        let every = if quick { 2 } else { 1 };
        all.iter().rev().step_by(every).rev().copied().collect()
    }
}

/// An adjustable load: a server with it, made anew for every point.
pub trait AdjustableLoad {
    /// The parameters that it has.
    fn parameters(&self) -> Vec<SweptParameter>;

    /// A server with one parameter of the load set; all else has default values.
    ///
    /// # Errors
    /// The load's error for an invalid value.
    fn with(&mut self, dial: SweptParameter, value: f64) -> Result<Box<dyn Host + '_>, ProbeError>;
}

/// A point of a sweep.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The parameter's value.
    pub value: f64,
    /// Share of device writes that hit, 0 to 1.
    pub write_hit: Option<f64>,
    /// Standard error of `write_hit`.
    pub write_hit_error: f64,
    /// Share of device reads that hit.
    pub read_hit: Option<f64>,
    /// Bytes per second that devices write to the host.
    pub inbound_bytes_per_s: Option<f64>,
}

/// A sweep, or the reason why there is none.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoadSweep {
    /// The swept parameter.
    pub dial: SweptParameter,
    /// The results, in the order of values.
    pub points: Vec<Point>,
    /// Refused values with reasons; or why the parameter cannot be set.
    pub notes: Vec<String>,
}

/// Number of waits, for the progress bar.
pub fn waits(ways: u32, parameters: usize, quick: bool) -> u64 {
    let others = SweptParameter::Ring.values(quick).len() as u64;
    2 * (u64::from(ways) + others * parameters as u64)
}

fn point(value: f64, samples: &[Interval]) -> Point {
    let mean = |of: &dyn Fn(&Interval) -> Option<f64>| {
        stats::mean(&samples.iter().filter_map(of).collect::<Vec<f64>>())
    };
    let write = mean(&|sample| Some(1.0 - sample.socket.dca_write_miss_ratio()?));
    let bytes =
        mean(&|sample| sample.ports.values().map(|port| port[PortCounter::InboundBytes].value()).sum());
    Point {
        value,
        write_hit: write.map(|mean| mean.value),
        write_hit_error: write.map_or(0.0, |mean| mean.error),
        read_hit: mean(&|sample| Some(1.0 - sample.socket.dca_read_miss_ratio()?)).map(|mean| mean.value),
        inbound_bytes_per_s: bytes.map(|mean| mean.value),
    }
}

/// Samples at each point of a sweep. Assumption: the second shows whether the first was steady.
const SAMPLES: usize = 2;

fn measure(experiment: &mut ProbeExperiment<'_>) -> Result<Vec<Interval>, ProbeError> {
    experiment.settle()?;
    (0..SAMPLES).map(|_| experiment.sample()).collect()
}

/// Hit rates over the number of DCA ways, counted from the left (hardware.md 1.2).
///
/// # Errors
/// Host errors; an interrupt.
pub fn ways(experiment: &mut ProbeExperiment<'_>) -> Result<LoadSweep, ProbeError> {
    let mut sweep = LoadSweep { dial: SweptParameter::Ways, points: Vec::new(), notes: Vec::new() };
    if experiment.original_knobs().dca_ways().is_none() {
        sweep.notes.push("not varied: the register of the DCA ways cannot be read here".to_owned());
        return Ok(sweep);
    }
    let all = experiment.inventory().known_llc().ways;
    for count in 1..=all {
        let mask = WayMask::span(all - count, count);
        match experiment.set_ways(mask)?.remove(Knob::DcaWays) {
            Some(KnobOutcome::Applied) => {
                let samples = measure(experiment)?;
                sweep.points.push(point(count.into(), &samples));
            }
            Some(KnobOutcome::Refused(why) | KnobOutcome::Busy(why)) => {
                sweep.notes.push(format!("{mask}: {why}"))
            }
            Some(KnobOutcome::ReadsBack(now)) => sweep.notes.push(format!("{mask}: {now} reads back")),
            None => sweep.notes.push(format!("{mask}: the host reported no result")),
        }
    }
    Ok(sweep)
}

/// Hit rates over the ring size, on a host that can resize rings at run time.
///
/// # Errors
/// Host errors; an interrupt.
pub fn rings(experiment: &mut ProbeExperiment<'_>, quick: bool) -> Result<LoadSweep, ProbeError> {
    let mut sweep = LoadSweep { dial: SweptParameter::Ring, points: Vec::new(), notes: Vec::new() };
    let rings: Vec<Knob> =
        experiment.original_knobs().of_kind(KnobKind::RxRing).map(|(knob, _)| knob).collect();
    if rings.is_empty() {
        sweep.notes.push("not varied: this host cannot set RX rings".to_owned());
        return Ok(sweep);
    }
    for ring in SweptParameter::Ring.values(quick) {
        let applied = experiment.set_knobs(&rings.iter().map(|knob| (*knob, ring as u32)).collect())?;
        let refused = applied.values().find_map(|outcome| match outcome {
            KnobOutcome::Applied => None,
            KnobOutcome::Refused(why) | KnobOutcome::Busy(why) | KnobOutcome::ReadsBack(why) => {
                Some(why.clone())
            }
        });
        match refused {
            Some(why) => sweep.notes.push(format!("{ring}: {why}")),
            None => {
                let samples = measure(experiment)?;
                sweep.points.push(point(ring, &samples));
            }
        }
    }
    Ok(sweep)
}

/// Hit rates over a parameter of the load.
///
/// # Errors
/// Errors of load or host; an interrupt.
pub fn load(
    load: &mut dyn AdjustableLoad,
    dial: SweptParameter,
    pace: MeasurementTimes,
    quick: bool,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(u64),
) -> Result<LoadSweep, ProbeError> {
    let mut sweep = LoadSweep { dial, points: Vec::new(), notes: Vec::new() };
    for value in dial.values(quick) {
        let mut host = match load.with(dial, value) {
            Ok(host) => host,
            Err(ProbeError::Load(why)) => {
                sweep.notes.push(format!("{value}: {why}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut experiment = ProbeExperiment::new(&mut *host, pace, stop, on_progress)?;
        // The caches of a new server are cold.
        experiment.settle()?;
        let samples = measure(&mut experiment)?;
        sweep.points.push(point(value, &samples));
    }
    Ok(sweep)
}

/// The sweep of a parameter that cannot be set.
pub fn no_parameter(dial: SweptParameter) -> LoadSweep {
    let notes = vec![
        "not varied: the probe can set only a scenario's load; this host's traffic comes from other programs"
            .to_owned(),
    ];
    LoadSweep { dial, points: Vec::new(), notes }
}
