//! `[[fault]]`: what goes wrong on the server, and when.
//!
//! Knows faults as data; must not know how they are brought about.

use super::devices::{NicSpec, StorageSpec};
use super::error::ScenarioError;
use super::keys::Keys;
use super::workload::WorkloadSpec;
use waykeeper_silicon::ChipSpec;
use waykeeper_units::{GroupId, PortId, WayMask};

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fault {
    /// From when on, s on the server's clock.
    pub at_s: f64,
    /// Until when; what happens at one moment has no end.
    pub until_s: f64,
    /// What.
    pub kind: FaultKind,
}

/// What can go wrong. A workload is named by its index, whichever group it is at the time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FaultKind {
    /// Nothing at all can be read.
    SampleFails,
    /// A workload's counters read `Unavailable`.
    Unavailable(GroupId),
    /// A workload's counters begin again at zero, as a counter that wraps does.
    CounterRestarts(GroupId),
    /// Masks cannot be written: another tool holds the lock.
    Busy,
    /// A workload's mask takes values, reads them back and does nothing.
    DeadMask(GroupId),
    /// The DCA switch of a root port does so.
    DeadSwitch(PortId),
    /// The register of the DCA ways does so.
    DeadDcaWays,
    /// A workload exits while a plan is being carried out.
    Dies(GroupId),
    /// The host's clock jumps by so many seconds, ahead or back.
    ClockJumps(f64),
    /// Somebody else sets a workload's mask.
    Outsider(GroupId, WayMask),
}

impl FaultKind {
    /// The words of `kind`, in their order.
    pub const NAMES: [&str; 10] = [
        "sample-fails",
        "unavailable",
        "counter-restarts",
        "busy",
        "dead-mask",
        "dead-switch",
        "dead-dca-ways",
        "dies",
        "clock-jumps",
        "outsider",
    ];
}

pub(super) fn read_all(
    keys: &mut Keys<'_>,
    chip: &ChipSpec,
    workloads: &[WorkloadSpec],
    nics: &[NicSpec],
    storage: &[StorageSpec],
) -> Result<Vec<Fault>, ScenarioError> {
    let mut faults = Vec::new();
    let groups: Vec<&str> = workloads.iter().map(|w| w.name.as_str()).collect();
    let devices = nics.iter().map(|n| n.name.as_str()).chain(storage.iter().map(|s| s.name.as_str()));
    let devices: Vec<&str> = devices.collect();
    for (table, line) in keys.tables("fault")? {
        let mut inner = Keys::new(keys.origin(), table, "fault", line);
        let kind = inner.required_choice("kind", &FaultKind::NAMES)?;
        let at_s = inner.optional_number("at_s", 0.0..=86_400.0)?;
        let at_s = at_s.ok_or_else(|| inner.missing("at_s", "the time in s at which it begins"))?;
        let for_s = inner.optional_number("for_s", 0.0..=86_400.0)?;
        let workload = inner.optional_text("workload")?;
        let device = inner.optional_text("device")?;
        let by_s = inner.optional_number("by_s", -86_400.0..=86_400.0)?;
        let mask = inner.mask("mask", chip.llc.ways, chip.llc.min_ways)?;
        let named = |key: &str, name: Option<&String>, names: &[&str]| {
            let wanted = format!("one of {}", names.join(", "));
            let name = name.ok_or_else(|| inner.missing(key, &wanted))?;
            let found = names.iter().position(|known| known == name);
            found.ok_or_else(|| inner.refuse(key, &format!("`{name}`"), &wanted))
        };
        let group = || Ok::<_, ScenarioError>(GroupId(named("workload", workload.as_ref(), &groups)? as u32));
        let kind = match kind.as_str() {
            "sample-fails" => FaultKind::SampleFails,
            "unavailable" => FaultKind::Unavailable(group()?),
            "counter-restarts" => FaultKind::CounterRestarts(group()?),
            "busy" => FaultKind::Busy,
            "dead-mask" => FaultKind::DeadMask(group()?),
            "dead-switch" => FaultKind::DeadSwitch(PortId(named("device", device.as_ref(), &devices)? as u8)),
            "dead-dca-ways" => FaultKind::DeadDcaWays,
            "dies" => FaultKind::Dies(group()?),
            "clock-jumps" => FaultKind::ClockJumps(
                by_s.ok_or_else(|| inner.missing("by_s", "the jump in s; negative is backward"))?,
            ),
            _ => FaultKind::Outsider(
                group()?,
                mask.ok_or_else(|| inner.missing("mask", "the mask that it sets"))?,
            ),
        };
        inner.finish()?;
        faults.push(Fault { at_s, until_s: for_s.map_or(f64::INFINITY, |for_s| at_s + for_s), kind });
    }
    Ok(faults)
}
