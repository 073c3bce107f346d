//! `[[fault]]`: the faults of a scenario and their times.
//!
//! Knows faults as data; must not know how they are injected.

use super::devices::{NicSpec, StorageSpec};
use super::error::ScenarioError;
use super::keys::{Keys, LATEST_S};
use super::workload::WorkloadSpec;
use waykeeper_silicon::ChipSpec;
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// One fault.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fault {
    /// Start, s on the server's clock.
    pub at_s: f64,
    /// End, s on the server's clock; infinite without `for_s`, and ignored by momentary faults.
    pub until_s: f64,
    /// Kind of fault.
    pub kind: FaultKind,
}

/// Kinds of faults. Workloads are named by index, not by current group.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FaultKind {
    /// The sample of all counters fails.
    SampleFails,
    /// A workload's counters read `Unavailable`.
    Unavailable(WorkloadId),
    /// A workload's counters restart at zero, as after a wrap.
    CounterRestarts(WorkloadId),
    /// Masks cannot be written: another tool holds resctrl's lock.
    Busy,
    /// A workload's mask accepts writes and reads them back, but has no effect.
    DeadMask(WorkloadId),
    /// The same for the DCA switch of a root port.
    DeadSwitch(PortId),
    /// The same for the register of the DCA ways.
    DeadDcaWays,
    /// A workload exits while a plan is applied.
    Dies(WorkloadId),
    /// The host's clock jumps by this many seconds, forward or backward.
    ClockJumps(f64),
    /// External change: another program sets a workload's mask.
    Outsider(WorkloadId, WayMask),
}

impl FaultKind {
    /// The names of the key `kind`, in the order of the variants.
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
        let at_s = inner.optional_number("at_s", 0.0..=LATEST_S)?;
        let at_s = at_s.ok_or_else(|| inner.missing("at_s", "the time in s at which it begins"))?;
        let for_s = inner.optional_number("for_s", 0.0..=LATEST_S)?;
        let workload = inner.optional_text("workload")?;
        let device = inner.optional_text("device")?;
        let by_s = inner.optional_number("by_s", -LATEST_S..=LATEST_S)?;
        let mask = inner.mask("mask", chip.llc.ways, chip.llc.min_ways, chip.llc.sparse_masks)?;
        let named = |key: &str, name: Option<&String>, names: &[&str]| {
            let wanted = format!("one of {}", names.join(", "));
            let name = name.ok_or_else(|| inner.missing(key, &wanted))?;
            let found = names.iter().position(|known| known == name);
            found.ok_or_else(|| inner.refuse(key, &format!("`{name}`"), &wanted))
        };
        let group =
            || Ok::<_, ScenarioError>(WorkloadId(named("workload", workload.as_ref(), &groups)? as u32));
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
