//! What each root port's switch does, and whether what its devices write reaches this LLC at all (hardware.md 2;
//! ddio-bench s4.3).
//!
//! Switched on and off in turn; the verdict on the switch is `ddio`'s own. A port whose switch does not act is looked at
//! with all others switched off: what the LLC still sees of device writes is its. Must not know sliding masks.

use crate::stand::{ProbeError, Stand};
use crate::stats;
use crate::verdict::{Confidence, Verdict};
use serde::{Deserialize, Serialize};
use waykeeper_host::{Interval, KnobOutcome};
use waykeeper_linux::ddio::{self, LOAD_PER_S};
use waykeeper_units::{LINE_BYTES, PortId};

/// Of what a port's devices write at most this share may be seen in an LLC that they write past. Assumption: completions and
/// descriptors are a tenth of the lines of small packets.
const PAST: f64 = 0.10;
/// ... and at least this share in one that they write into. Assumption: DMA leak and partial writes take less than half.
const INTO: f64 = 0.50;

/// What a switch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Writes go past the LLC while it is off.
    Acts,
    /// It takes values and reads them back, and writes go where they went.
    Dead,
    /// The host has none for this port, or does not let it be turned.
    Absent,
}

/// Where the devices' writes go while DCA is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Into the LLC of this socket.
    ThisLlc,
    /// Past it: the devices hang on another socket.
    Past,
}

/// What was found out about a port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortVerdict {
    /// The port.
    pub port: PortId,
    /// Its PCI address.
    pub address: String,
    /// Names of the devices behind it.
    pub devices: Vec<String>,
    /// What its switch does.
    pub switch: Verdict<Switch>,
    /// Where its devices' writes go.
    pub reach: Verdict<Reach>,
}

/// Waits that it takes, for the bar.
pub fn waits(ports: usize, rounds: u32) -> u64 {
    (4 * ports as u64 + 2) * u64::from(rounds)
}

/// A port while it is looked at.
struct Seen {
    id: PortId,
    on: Vec<Interval>,
    off: Vec<Interval>,
    /// Why it cannot be turned, in the host's words.
    refused: Option<String>,
    switch: Verdict<Switch>,
}

/// Looks at every root port.
///
/// # Errors
/// The host; an interrupt.
pub fn look(stand: &mut Stand<'_>) -> Result<Vec<PortVerdict>, ProbeError> {
    let ports = stand.inventory().ports.clone();
    let mut seen: Vec<Seen> = Vec::new();
    for port in &ports {
        seen.push(switched(stand, port.id)?);
    }
    let rest = rest(stand, &seen)?;
    let mut verdicts = Vec::new();
    for (port, one) in ports.iter().zip(seen) {
        let reach = reach(&one, &rest).beside(Some(match port.socket {
            u8::MAX => "the host does not report its socket".to_owned(),
            socket => format!("the host reports socket {socket}"),
        }));
        let behind = stand.inventory().devices.iter().filter(|device| device.ports.contains(&port.id));
        let stood = stand.found().dca.get(&port.id);
        let register = stood.map(|on| format!("it was {} at the start", if *on { "on" } else { "off" }));
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

/// A port on and off in turn; afterwards it is on, if it can be turned.
fn switched(stand: &mut Stand<'_>, id: PortId) -> Result<Seen, ProbeError> {
    let mut seen = Seen { id, on: Vec::new(), off: Vec::new(), refused: None, switch: absent("") };
    for _ in 0..stand.pace().rounds {
        for on in [true, false] {
            if let Some(why) = turn(stand, id, on)? {
                seen.switch = absent(&why);
                seen.refused = Some(why);
                return Ok(seen);
            }
            let look = stand.look()?;
            if on { seen.on.push(look) } else { seen.off.push(look) }
        }
    }
    // What stays off would be nobody's when the next one is looked at.
    turn(stand, id, true)?;
    seen.switch = match ddio::of_ports(&seen.on, &seen.off, &[id], false) {
        ddio::Verdict::Seen(what) => Verdict::found(Switch::Acts, Confidence::High, vec![what]),
        ddio::Verdict::NotSeen(what) => Verdict::found(Switch::Dead, Confidence::High, vec![what]),
        ddio::Verdict::NotJudged(why) => Verdict::cannot_tell(why, "traffic on the devices behind this port"),
    };
    Ok(seen)
}

fn absent(why: &str) -> Verdict<Switch> {
    Verdict::found(Switch::Absent, Confidence::High, vec![format!("the host does not switch it: {why}")])
}

/// Why a port could not be turned; `None` if it reads back as wanted.
fn turn(stand: &mut Stand<'_>, id: PortId, on: bool) -> Result<Option<String>, ProbeError> {
    let applied = stand.switch([id], on)?;
    Ok(match applied.dca.get(&id) {
        Some(KnobOutcome::Applied) => None,
        Some(KnobOutcome::Refused(why) | KnobOutcome::Busy(why)) => Some(why.clone()),
        Some(KnobOutcome::ReadsBack(now)) => Some(format!("{now} reads back")),
        None => Some("the host reported no result".to_owned()),
    })
}

/// What is seen of device writes when all ports whose switch acts are off.
struct Rest {
    /// Device writes a second in the LLC; `None` if they are not counted.
    writes: Option<f64>,
    /// Ports whose switch does not act and that have traffic, with the lines a second that their devices write.
    ports: Vec<(PortId, f64)>,
    /// Ports whose bytes are not counted.
    blind: Vec<PortId>,
}

fn rest(stand: &mut Stand<'_>, seen: &[Seen]) -> Result<Rest, ProbeError> {
    let acts = |one: &&Seen| one.switch.value() == Some(&Switch::Acts);
    let acting: Vec<PortId> = seen.iter().filter(acts).map(|one| one.id).collect();
    if acting.len() == seen.len() {
        return Ok(Rest { writes: None, ports: Vec::new(), blind: Vec::new() });
    }
    stand.switch(acting.iter().copied(), false)?;
    stand.settle()?;
    let mut looks = Vec::new();
    for _ in 0..stand.pace().rounds {
        looks.push(stand.sample()?);
    }
    stand.switch(acting, true)?;
    let writes: Option<Vec<f64>> = looks.iter().map(crate::slide::writes).collect();
    let writes = writes.and_then(|writes| stats::mean(&writes)).map(|mean| mean.value);
    let mut rest = Rest { writes, ports: Vec::new(), blind: Vec::new() };
    for one in seen.iter().filter(|one| !acts(one)) {
        match lines(&looks, one.id) {
            Some(lines) => rest.ports.push((one.id, lines)),
            None => rest.blind.push(one.id),
        }
    }
    Ok(rest)
}

/// Lines a second that devices behind a port write.
fn lines(looks: &[Interval], port: PortId) -> Option<f64> {
    let bytes = |look: &Interval| look.ports.get(&port)?.inbound_bytes.value();
    let lines: Option<Vec<f64>> = looks.iter().map(|look| Some(bytes(look)? / LINE_BYTES as f64)).collect();
    Some(stats::mean(&lines?)?.value)
}

fn reach(one: &Seen, rest: &Rest) -> Verdict<Reach> {
    if one.switch.value() == Some(&Switch::Acts) {
        let evidence = one.switch.evidence.clone();
        return Verdict::found(Reach::ThisLlc, Confidence::High, evidence);
    }
    let Some(writes) = rest.writes else {
        return Verdict::cannot_tell(
            "this host cannot count hits and misses of device writes",
            "see the remedies of `waykeeper doctor`",
        );
    };
    let Some((_, own)) = rest.ports.iter().find(|(port, _)| *port == one.id) else {
        let why = "this socket cannot count the bytes of this port";
        return Verdict::cannot_tell(why, "probe from the other socket, with tenants on its cores");
    };
    if *own < LOAD_PER_S {
        let why = format!("its devices wrote {own:.0} lines per second, fewer than {LOAD_PER_S:.0}");
        return Verdict::cannot_tell(why, "traffic on the devices behind this port");
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
        return Verdict::found(Reach::Past, Confidence::Moderate, evidence)
            .with(["DCA that the BIOS has switched off would look the same".to_owned()]);
    }
    if writes >= busy - INTO * smallest {
        return Verdict::found(Reach::ThisLlc, Confidence::Moderate, vec![what]);
    }
    Verdict::cannot_tell(
        "several ports have traffic, and the counts may come from any of them",
        "traffic on one of them at a time",
    )
    .with([what])
}
