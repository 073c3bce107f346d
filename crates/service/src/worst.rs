//! The worst sufferer and the worst polluter: who lost most since the state as found, and who fills most of its ways.
//!
//! The sufferer is the tenant with the least progress since the state as found, if it lost more than the standard error. The
//! polluter is the other tenant, or the port with other devices, that brings most lines per second into the ways that the
//! sufferer may use; without a sufferer, into the ways that HPWs may use. A tenant brings its LLC misses, a device with DCA
//! its writes that hit no cache (by the miss ratio of all devices together). Lines are counted for the part of its ways that
//! the others may use too. Lines that an MLC evicts into the LLC are not counted, as no counter has them per tenant.
//!
//! A function of the published step alone; it must not know its readers.

use crate::Published;
use serde::{Deserialize, Serialize};
use waykeeper_control::Worth;
use waykeeper_host::{Interval, PortCounter, Priority, RootPort, Workload, WorkloadCounter};
use waykeeper_units::{LINE_BYTES, WayMask};

/// Who lost most, and who fills most of its ways.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Worst {
    /// The tenant that lost most since the state as found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sufferer: Option<Sufferer>,
    /// Why there is none, or why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_sufferer: Option<String>,
    /// What fills most of the ways that the sufferer may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polluter: Option<Polluter>,
    /// Why there is none, or why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_polluter: Option<String>,
}

/// The tenant that lost most.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sufferer {
    /// Its name.
    pub tenant: String,
    /// Its progress relative to that under the layout as found, below 1.
    pub ratio: f64,
    /// The standard error of that.
    pub error: f64,
}

/// What fills most ways of others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Polluter {
    /// A tenant, or the devices behind a root port.
    pub kind: PolluterKind,
    /// The tenant's name, or the devices' names.
    pub name: String,
    /// Lines per second that it brings into ways that the others may use.
    pub lines_per_s: f64,
    /// The sufferer, or `HPWs`: whose ways these are.
    pub into: String,
}

/// Who fills ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolluterKind {
    /// A tenant, by what its cores read from memory.
    Tenant,
    /// Devices behind a root port, by what they write into the LLC.
    Device,
}

/// Whose ways are looked at where no tenant is known to suffer.
const HPWS: &str = "HPWs";

impl Worst {
    /// That of a published step.
    pub fn of(published: &Published) -> Worst {
        let sufferer = sufferer(published);
        let victims: Vec<&Workload> = match &sufferer {
            Ok((group, _)) => vec![*group],
            Err(_) => published.groups.iter().filter(|group| group.priority == Priority::High).collect(),
        };
        let into = sufferer.as_ref().map_or(HPWS, |(group, _)| group.name.as_str());
        let (polluter, no_polluter) = split(polluter(published, &victims, into));
        let (sufferer, no_sufferer) = split(sufferer.map(|(_, sufferer)| sufferer));
        Worst { sufferer, no_sufferer, polluter, no_polluter }
    }
}

fn split<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(why) => (None, Some(why)),
    }
}

fn sufferer(published: &Published) -> Result<(&Workload, Sufferer), String> {
    let known = match &published.record.worth {
        Worth::Known(known) => known,
        Worth::Unknown(why) => return Err(format!("cannot tell: {why}")),
    };
    let losses = published.groups.iter().filter_map(|group| Some((group, *known.tenants.get(&group.id)?)));
    let losses = losses.filter(|(_, progress)| progress.value + progress.error < 1.0);
    let worst = losses.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
    let (group, progress) = worst.ok_or("no tenant lost more than the error")?;
    Ok((group, Sufferer { tenant: group.name.clone(), ratio: progress.value, error: progress.error }))
}

/// What brings most lines into the ways of `victims`, which are named `into`.
fn polluter(published: &Published, victims: &[&Workload], into: &str) -> Result<Polluter, String> {
    if victims.is_empty() {
        return Err("there is no HPW".to_owned());
    }
    let seen = published.seen.as_ref().ok_or(match published.step {
        0 => "the first interval has not ended",
        _ => "cannot tell: no counter could be read",
    })?;
    let mut all = Vec::new();
    for group in &published.groups {
        let others = ways_of(seen, victims.iter().filter(|victim| victim.id != group.id))?;
        let mask = mask_of(seen, group)?;
        if mask.overlaps(others) {
            let misses = seen.groups.get(&group.id).and_then(|of| of[WorkloadCounter::LlcMisses].value());
            let misses =
                misses.ok_or_else(|| format!("cannot tell: LLC misses of {} cannot be read", group.name))?;
            all.push((PolluterKind::Tenant, group.name.clone(), misses * part(mask, others)));
        }
    }
    for port in &published.inventory.ports {
        let devices: Vec<_> =
            published.inventory.devices.iter().filter(|device| device.ports.contains(&port.id)).collect();
        let serves = |victim: &Workload| devices.iter().any(|device| victim.devices.contains(&device.id));
        let others = ways_of(seen, victims.iter().filter(|victim| !serves(victim)))?;
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        let name = if names.is_empty() { port.address.clone() } else { names.join(", ") };
        if let Some(lines) = device_lines(published, seen, port, others, &name)? {
            all.push((PolluterKind::Device, name, lines));
        }
    }
    let filling = all.into_iter().filter(|(_, _, lines_per_s)| *lines_per_s > 0.0);
    let most = filling.max_by(|(_, _, a), (_, _, b)| a.total_cmp(b));
    let (kind, name, lines_per_s) = most.ok_or_else(|| format!("no other fills ways of {into}"))?;
    // Digits behind the point would only make recordings longer.
    Ok(Polluter { kind, name, lines_per_s: lines_per_s.round(), into: into.to_owned() })
}

/// Lines per second that the devices behind a port bring into `others`; `None` if they can reach none of these ways.
fn device_lines(
    published: &Published,
    seen: &Interval,
    port: &RootPort,
    others: WayMask,
    name: &str,
) -> Result<Option<f64>, String> {
    // Without DCA the device writes into memory.
    if seen.knobs.dca(port.id) == Some(false) || others.is_empty() {
        return Ok(None);
    }
    let ways = seen.knobs.dca_ways().or(published.inventory.dca_ways_default);
    let ways = ways.ok_or("cannot tell: the DCA ways cannot be read")?;
    if !ways.overlaps(others) {
        return Ok(None);
    }
    let written = seen.ports.get(&port.id).and_then(|of| of[PortCounter::InboundBytes].value());
    let written = written.ok_or_else(|| format!("cannot tell: writes of {name} cannot be read"))?;
    if written == 0.0 {
        return Ok(None);
    }
    let missed = seen.socket.dca_write_miss_ratio();
    let missed = missed.ok_or("cannot tell: DCA write misses cannot be read")?;
    Ok(Some(written / LINE_BYTES as f64 * missed * part(ways, others)))
}

/// The ways that any of these tenants may use.
fn ways_of<'a>(seen: &Interval, groups: impl Iterator<Item = &'a &'a Workload>) -> Result<WayMask, String> {
    let mut ways = WayMask::EMPTY;
    for group in groups {
        ways = ways.or(mask_of(seen, group)?);
    }
    Ok(ways)
}

fn mask_of(seen: &Interval, group: &Workload) -> Result<WayMask, String> {
    seen.knobs.mask(group.id).ok_or_else(|| format!("cannot tell: the mask of {} cannot be read", group.name))
}

/// The part of `mask` that is in `others`.
fn part(mask: WayMask, others: WayMask) -> f64 {
    f64::from(mask.and(others).count()) / f64::from(mask.count().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published_state::tests::published;
    use std::sync::Arc;
    use waykeeper_calibration::Estimate;
    use waykeeper_control::{StepRecord, WorthEstimate, WorthSource, WorthUnknown};
    use waykeeper_host::{
        Device, DeviceKind, Dial, Inventory, Knob, KnobValues, PortRates, Reading, SocketCounter,
        SocketRates, Support, WorkloadKind, WorkloadRates,
    };
    use waykeeper_units::{DeviceId, PortId, WorkloadId};

    const NAMES: [&str; 3] = ["redis", "lbm", "fio"];

    /// redis (HPW) in six ways with progress `ratio`, lbm in all eleven ways with 11 million misses, fio in two ways outside
    /// with 90 million; a NIC that writes 20 million lines, half of which hit no cache, into two ways of redis.
    fn step(ratio: f64) -> Published {
        let group = |id: u32| Workload {
            id: WorkloadId(id),
            name: NAMES[id as usize].to_owned(),
            priority: if id == 0 { Priority::High } else { Priority::Low },
            kind: WorkloadKind::NonIo,
            cores: Default::default(),
            devices: Vec::new(),
            stack: false,
            mask: None,
        };
        let misses = |m: f64| WorkloadRates::of([(WorkloadCounter::LlcMisses, Reading::Value(m * 1e6))]);
        let masks = [0x7e0, 0x7ff, 0x003].map(WayMask::from_bits);
        let knobs = KnobValues::of_masks((0..).map(WorkloadId).zip(masks))
            .with(Knob::DcaWays, WayMask::from_bits(0x600))
            .with(Knob::Dca(PortId(0)), true);
        let seen = Interval {
            from_ns: 0,
            to_ns: 1_000_000_000,
            groups: (0..).map(WorkloadId).zip([5.0, 11.0, 90.0].map(misses)).collect(),
            socket: SocketRates::of([
                (SocketCounter::DcaWriteHits, Reading::Value(7.0)),
                (SocketCounter::DcaWriteMisses, Reading::Value(7.0)),
            ]),
            ports: [(PortId(0), PortRates::of([(PortCounter::InboundBytes, Reading::Value(20e6 * 64.0))]))]
                .into(),
            knobs,
        };
        let port = RootPort {
            id: PortId(0),
            address: "0000:3a:00.0".to_owned(),
            socket: 0,
            dca_switch: Support::Yes,
            rx_ring: Dial::absent("none"),
            rx_burst: Dial::absent("none"),
        };
        let nic = Device {
            id: DeviceId(0),
            name: "nic0".to_owned(),
            kind: DeviceKind::Network,
            ports: vec![PortId(0)],
        };
        let first = published();
        let inventory = Inventory { devices: vec![nic], ports: vec![port], ..(*first.inventory).clone() };
        let worth = Worth::Known(WorthEstimate {
            from: WorthSource::Look,
            age_s: 1.0,
            hpw: None,
            lpw: None,
            tenants: [(WorkloadId(0), Estimate { value: ratio, error: 0.02 })].into(),
        });
        Published {
            groups: (0..3).map(group).collect(),
            inventory: Arc::new(inventory),
            seen: Some(seen),
            record: StepRecord { worth, ..StepRecord::default() },
            ..first
        }
    }

    fn polluter_of(step: &Published) -> (String, f64, String) {
        let it = Worst::of(step).polluter.expect("there is one");
        (it.name, it.lines_per_s, it.into)
    }

    #[test]
    fn the_polluter_brings_most_lines_into_ways_of_the_sufferer() {
        let mut step = step(0.9);
        let worst = Worst::of(&step);
        assert_eq!(worst.sufferer, Some(Sufferer { tenant: "redis".to_owned(), ratio: 0.9, error: 0.02 }));
        // Half of 20 million lines, both ways in redis's. lbm: 6 of 11 ways of 11 million are 6 million. fio has no way
        // there.
        assert_eq!(polluter_of(&step), ("nic0".to_owned(), 10e6, "redis".to_owned()));
        // With DCA off, writes fill no way.
        let seen = step.seen.as_mut().unwrap();
        seen.knobs.insert(Knob::Dca(PortId(0)), false);
        assert_eq!(polluter_of(&step), ("lbm".to_owned(), 6e6, "redis".to_owned()));
        // The NIC of the sufferer itself brings what it is to read.
        step.seen.as_mut().unwrap().knobs.insert(Knob::Dca(PortId(0)), true);
        step.groups[0].devices = vec![DeviceId(0)];
        assert_eq!(polluter_of(&step).0, "lbm");
    }

    #[test]
    fn without_a_loss_beyond_the_error_the_ways_of_hpws_count() {
        let mut step = step(0.99);
        let worst = Worst::of(&step);
        assert_eq!(
            (worst.sufferer, worst.no_sufferer.as_deref()),
            (None, Some("no tenant lost more than the error"))
        );
        assert_eq!(polluter_of(&step).2, "HPWs");
        step.record.worth = Worth::Unknown(WorthUnknown::LoadChanged);
        let why = Worst::of(&step).no_sufferer.unwrap();
        assert_eq!(why, "cannot tell: the load changed since the layout as found was measured");
        // An HPW may pollute another one, but not itself.
        step.groups[1].priority = Priority::High;
        assert_eq!(polluter_of(&step), ("fio".to_owned(), 90e6, "HPWs".to_owned()));
        step.groups.iter_mut().for_each(|group| group.priority = Priority::Low);
        assert_eq!(Worst::of(&step).no_polluter.as_deref(), Some("there is no HPW"));
    }

    #[test]
    fn where_a_counter_or_a_knob_is_missing_it_cannot_tell() {
        let why = |change: &dyn Fn(&mut Published)| {
            let mut step = step(0.9);
            change(&mut step);
            let worst = Worst::of(&step);
            assert_eq!(worst.polluter, None);
            worst.no_polluter.unwrap()
        };
        let seen = |change: fn(&mut Interval)| why(&|step| change(step.seen.as_mut().unwrap()));
        assert_eq!(why(&|step| (step.seen, step.step) = (None, 1)), "cannot tell: no counter could be read");
        assert_eq!(why(&|step| (step.seen, step.step) = (None, 0)), "the first interval has not ended");
        let text = seen(|seen| seen.groups.retain(|id, _| *id != WorkloadId(1)));
        assert_eq!(text, "cannot tell: LLC misses of lbm cannot be read");
        let text = seen(|seen| seen.ports.clear());
        assert_eq!(text, "cannot tell: writes of nic0 cannot be read");
        let text = seen(|seen| seen.socket = SocketRates::of([]));
        assert_eq!(text, "cannot tell: DCA write misses cannot be read");
        let text = seen(|seen| seen.knobs.retain(|knob, _| knob != Knob::Mask(WorkloadId(2))));
        assert_eq!(text, "cannot tell: the mask of fio cannot be read");
        // Nothing else may use its ways.
        let alone = seen(|seen| {
            seen.knobs.insert(Knob::Mask(WorkloadId(1)), WayMask::from_bits(0x003));
            seen.knobs.insert(Knob::DcaWays, WayMask::from_bits(0x018));
        });
        assert_eq!(alone, "no other fills ways of redis");
    }
}
