//! Effect of each root port's DCA switch, and whether its devices' writes reach this LLC (hardware.md 2; ddio-bench
//! s4.3).
//!
//! The switch is set to on and off alternately; `ddio` of the crate `operator` judges its effect. If a port's switch has no
//! effect, the other switches are set to off: the device writes that the LLC still counts are from ports without an
//! effective switch. Must not know sliding masks.

use crate::experiment::{ProbeError, ProbeExperiment};
use crate::stats;
use crate::verdict::{Confidence, ProbeVerdict};
use serde::{Deserialize, Serialize};
use waykeeper_host::{Interval, Knob, KnobOutcome, PortCounter};
use waykeeper_operator::ddio::{self, LOAD_PER_S};
use waykeeper_units::{LINE_BYTES, PortId};

/// If the writes bypass this LLC, it may count at most this share of them. Assumption: completions and descriptors are
/// a tenth of the lines of small packets.
const PAST: f64 = 0.10;
/// If the writes reach this LLC, it must count at least this share of them. Assumption: DMA leak and partial writes
/// take less than half.
const INTO: f64 = 0.50;

/// Effect of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Writes bypass the LLC while it is off.
    Acts,
    /// It accepts values and reads them back, without an effect on writes.
    #[serde(rename = "dead")]
    NoEffect,
    /// The host has none for this port, or does not allow setting it.
    Absent,
}

/// Target of the devices' writes while DCA is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The LLC of this socket.
    ThisLlc,
    /// Not this LLC: the devices are attached to another socket.
    Past,
}

/// The results for a port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortVerdict {
    /// The port.
    pub port: PortId,
    /// Its PCI address.
    pub address: String,
    /// Names of the devices behind it.
    pub devices: Vec<String>,
    /// Effect of its switch.
    pub switch: ProbeVerdict<Switch>,
    /// Target of its devices' writes.
    pub reach: ProbeVerdict<Reach>,
}

/// Number of waits, for the progress bar.
pub fn waits(ports: usize, rounds: u32) -> u64 {
    (4 * ports as u64 + 2) * u64::from(rounds)
}

/// Measurements of a port.
struct Seen {
    id: PortId,
    on: Vec<Interval>,
    off: Vec<Interval>,
    /// The host's reason why it cannot be switched.
    refused: Option<String>,
    switch: ProbeVerdict<Switch>,
}

/// Measures every root port.
///
/// # Errors
/// Host errors; an interrupt.
pub fn measure(experiment: &mut ProbeExperiment<'_>) -> Result<Vec<PortVerdict>, ProbeError> {
    let ports = experiment.inventory().ports.clone();
    let mut seen: Vec<Seen> = Vec::new();
    for port in &ports {
        seen.push(switched(experiment, port.id)?);
    }
    let rest = rest(experiment, &seen)?;
    let mut verdicts = Vec::new();
    for (port, one) in ports.iter().zip(seen) {
        let reach = reach(&one, &rest).beside(Some(match port.socket {
            u8::MAX => "the host does not report its socket".to_owned(),
            socket => format!("the host reports socket {socket}"),
        }));
        let behind = experiment.inventory().devices.iter().filter(|device| device.ports.contains(&port.id));
        let stood = experiment.original_knobs().dca(port.id);
        let register = stood.map(|on| format!("it was {} at the start", if on { "on" } else { "off" }));
        verdicts.push(PortVerdict {
            port: port.id,
            address: port.address.clone(),
            devices: behind.map(|device| device.name.clone()).collect(),
            switch: one.switch.beside(register),
            reach,
        });
    }
    Ok(verdicts)
}

/// Measures a port with DCA on and off alternately; afterwards it is on, if it can be switched.
fn switched(experiment: &mut ProbeExperiment<'_>, id: PortId) -> Result<Seen, ProbeError> {
    let mut seen = Seen { id, on: Vec::new(), off: Vec::new(), refused: None, switch: absent("") };
    for _ in 0..experiment.pace().rounds {
        for on in [true, false] {
            if let Some(why) = turn(experiment, id, on)? {
                seen.switch = absent(&why);
                seen.refused = Some(why);
                return Ok(seen);
            }
            let sample = experiment.settle_and_sample()?;
            if on { seen.on.push(sample) } else { seen.off.push(sample) }
        }
    }
    // On again, so that the next port is measured with this one on.
    turn(experiment, id, true)?;
    seen.switch = match ddio::of_ports(&seen.on, &seen.off, &[id], false) {
        ddio::EffectVerdict::Seen(what) => ProbeVerdict::found(Switch::Acts, Confidence::High, vec![what]),
        ddio::EffectVerdict::NotSeen(what) => {
            ProbeVerdict::found(Switch::NoEffect, Confidence::High, vec![what])
        }
        ddio::EffectVerdict::NotJudged(why) => {
            ProbeVerdict::cannot_tell(why, "traffic on the devices behind this port")
        }
    };
    Ok(seen)
}

fn absent(why: &str) -> ProbeVerdict<Switch> {
    ProbeVerdict::found(Switch::Absent, Confidence::High, vec![format!("the host does not switch it: {why}")])
}

/// Switches a port; returns why it failed, or `None` if the value was applied.
fn turn(experiment: &mut ProbeExperiment<'_>, id: PortId, on: bool) -> Result<Option<String>, ProbeError> {
    let applied = experiment.switch([id], on)?;
    Ok(match applied.get(Knob::Dca(id)) {
        Some(KnobOutcome::Applied) => None,
        Some(KnobOutcome::Refused(why) | KnobOutcome::Busy(why)) => Some(why.clone()),
        Some(KnobOutcome::ReadsBack(now)) => Some(format!("{now} reads back")),
        None => Some("the host reported no result".to_owned()),
    })
}

/// Measurements with all effective switches off.
struct Rest {
    /// Device writes per second in the LLC; `None` if they are not counted.
    writes: Option<f64>,
    /// Ports without an effective switch whose bytes are counted, with the lines per second that their devices write.
    ports: Vec<(PortId, f64)>,
    /// Ports without a byte counter.
    blind: Vec<PortId>,
}

fn rest(experiment: &mut ProbeExperiment<'_>, seen: &[Seen]) -> Result<Rest, ProbeError> {
    let acts = |one: &&Seen| one.switch.value() == Some(&Switch::Acts);
    let acting: Vec<PortId> = seen.iter().filter(acts).map(|one| one.id).collect();
    if acting.len() == seen.len() {
        return Ok(Rest { writes: None, ports: Vec::new(), blind: Vec::new() });
    }
    experiment.switch(acting.iter().copied(), false)?;
    experiment.settle()?;
    let mut samples = Vec::new();
    for _ in 0..experiment.pace().rounds {
        samples.push(experiment.sample()?);
    }
    experiment.switch(acting, true)?;
    let writes: Option<Vec<f64>> = samples.iter().map(crate::slide::writes).collect();
    let writes = writes.and_then(|writes| stats::mean(&writes)).map(|mean| mean.value);
    let mut rest = Rest { writes, ports: Vec::new(), blind: Vec::new() };
    for one in seen.iter().filter(|one| !acts(one)) {
        match lines(&samples, one.id) {
            Some(lines) => rest.ports.push((one.id, lines)),
            None => rest.blind.push(one.id),
        }
    }
    Ok(rest)
}

fn lines(samples: &[Interval], port: PortId) -> Option<f64> {
    let bytes = |sample: &Interval| sample.ports.get(&port)?[PortCounter::InboundBytes].value();
    let lines: Option<Vec<f64>> =
        samples.iter().map(|sample| Some(bytes(sample)? / LINE_BYTES as f64)).collect();
    Some(stats::mean(&lines?)?.value)
}

fn reach(one: &Seen, rest: &Rest) -> ProbeVerdict<Reach> {
    if one.switch.value() == Some(&Switch::Acts) {
        let evidence = one.switch.evidence.clone();
        return ProbeVerdict::found(Reach::ThisLlc, Confidence::High, evidence);
    }
    let Some(writes) = rest.writes else {
        return ProbeVerdict::cannot_tell(
            "this host cannot count hits and misses of device writes",
            "see the remedies of `waykeeper doctor`",
        );
    };
    let Some((_, own)) = rest.ports.iter().find(|(port, _)| *port == one.id) else {
        let why = "this socket cannot count the bytes of this port";
        return ProbeVerdict::cannot_tell(why, "probe from the other socket, with tenants on its cores");
    };
    if *own < LOAD_PER_S {
        let why = format!("its devices wrote {own:.0} lines per second, fewer than {LOAD_PER_S:.0}");
        return ProbeVerdict::cannot_tell(why, "traffic on the devices behind this port");
    }
    let busy: f64 = rest.ports.iter().map(|(_, lines)| lines).sum();
    let what = format!(
        "with the other ports' DCA off the LLC counted {:.2} million device writes per second, of {:.2} \
         million lines that {} wrote",
        writes / 1e6,
        busy / 1e6,
        if rest.ports.len() > 1 { "these ports" } else { "it" }
    );
    let refused = one.refused.iter().map(|why| format!("its DCA cannot be switched: {why}"));
    let smallest =
        rest.ports.iter().map(|(_, lines)| *lines).filter(|lines| *lines >= LOAD_PER_S).fold(busy, f64::min);
    if writes <= PAST * smallest {
        let evidence = std::iter::once(what).chain(refused).collect();
        return ProbeVerdict::found(Reach::Past, Confidence::Moderate, evidence)
            .with(["DCA that the BIOS has switched off would look the same".to_owned()]);
    }
    if writes >= busy - INTO * smallest {
        return ProbeVerdict::found(Reach::ThisLlc, Confidence::Moderate, vec![what]);
    }
    ProbeVerdict::cannot_tell(
        "several ports have traffic, and the counts may come from any of them",
        "traffic on one of them at a time",
    )
    .with([what])
}
