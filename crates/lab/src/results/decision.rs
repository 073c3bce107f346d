//! Records of a policy's actions during a run: decisions, and the way map over time.
//!
//! It uses names instead of ids, because a result is read without the host that numbered them. Must not know any
//! particular policy.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use waykeeper_host::{Applied, KnobKind, KnobOutcome, KnobSetting, KnobValues, Plan, RootPort, Workload};
use waykeeper_policy::{Cause, Decision};
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// One action of a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// When, in controller seconds since the start of the run.
    pub at_s: f64,
    /// The state the policy was in afterwards, by the paper's name.
    pub state: String,
    /// A stable machine name, for example `lp-zone-grow`.
    pub action: String,
    /// The workload it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// One readable line.
    pub text: String,
    /// The numbers behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRecord>,
    /// The knobs set at that time. If several records have the same time, they are in the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knobs: Vec<KnobRecord>,
}

/// One number behind a decision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CauseRecord {
    /// What was measured.
    pub what: String,
    /// Its value; ratios are 0..1.
    #[serde(default, skip_serializing_if = "super::metrics::not_available")]
    pub value: Option<f64>,
    /// The threshold it was compared with, by its own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_name: Option<String>,
    /// That threshold's value.
    #[serde(default, skip_serializing_if = "super::metrics::not_available")]
    pub limit: Option<f64>,
}

impl CauseRecord {
    /// The records of a decision's causes.
    pub(crate) fn all(causes: &[Cause]) -> Vec<CauseRecord> {
        let record = |cause: &Cause| CauseRecord {
            what: cause.what.clone(),
            value: Some(cause.value),
            limit_name: cause.limit.as_ref().map(|(name, _)| name.clone()),
            limit: cause.limit.as_ref().map(|(_, value)| *value),
        };
        causes.iter().map(record).collect()
    }
}

/// A knob, its wanted value and the outcome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnobRecord {
    /// Which kind.
    pub knob: KnobKind,
    /// The group or the port's PCI address; absent for the DCA ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The wanted value: a mask in hex, `on` or `off`, or a number.
    pub value: String,
    /// `applied`, `refused: ...` or `reads back ...`; absent without an answer of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// The names of a host's ids.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// All workloads of the scenario, running or not.
    pub groups: &'a [Workload],
    /// The root ports.
    pub ports: &'a [RootPort],
}

impl Names<'_> {
    fn group(&self, id: WorkloadId) -> String {
        self.groups
            .iter()
            .find(|group| group.id == id)
            .map_or_else(|| id.to_string(), |group| group.name.clone())
    }

    fn port(&self, id: PortId) -> String {
        self.ports
            .iter()
            .find(|port| port.id == id)
            .map_or_else(|| id.to_string(), |port| port.address.clone())
    }
}

impl DecisionRecord {
    /// Records of a decision and the host's answers: one per event, and one with action `knobs` if knobs were set
    /// without an event.
    pub fn of(at_s: f64, decision: &Decision, applied: &Applied, names: Names<'_>) -> Vec<DecisionRecord> {
        let record =
            |action: &str, group: Option<String>, text: &str, causes: Vec<CauseRecord>| DecisionRecord {
                at_s,
                state: decision.state.clone(),
                action: action.to_owned(),
                group,
                text: text.to_owned(),
                causes,
                knobs: Vec::new(),
            };
        let mut records: Vec<DecisionRecord> = decision
            .events
            .iter()
            .map(|event| {
                record(&event.action, event.group.clone(), &event.text, CauseRecord::all(&event.causes))
            })
            .collect();
        let knobs = knob_records(&decision.plan, applied, names);
        if records.is_empty() && !knobs.is_empty() {
            records.push(record("knobs", None, "knobs turned", Vec::new()));
        }
        if let Some(first) = records.first_mut() {
            first.knobs = knobs;
        }
        records
    }
}

fn knob_records(plan: &Plan, applied: &Applied, names: Names<'_>) -> Vec<KnobRecord> {
    let record = |KnobSetting { knob, setting }: KnobSetting| KnobRecord {
        knob: knob.kind(),
        target: knob.workload().map(|id| names.group(id)).or_else(|| knob.port().map(|id| names.port(id))),
        value: setting.to_string(),
        outcome: applied.get(knob).map(outcome),
    };
    plan.settings().map(record).collect()
}

fn outcome(outcome: &KnobOutcome) -> String {
    match outcome {
        KnobOutcome::Applied => "applied".to_owned(),
        KnobOutcome::Refused(why) => format!("refused: {why}"),
        KnobOutcome::Busy(why) => format!("busy: {why}"),
        KnobOutcome::ReadsBack(value) => format!("reads back {value}"),
    }
}

/// The masks between two times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WayMapSlice {
    /// Start, in controller seconds since the start of the run.
    pub from_s: f64,
    /// End.
    pub to_s: f64,
    /// Allocation mask per workload.
    pub masks: IndexMap<String, WayMask>,
    /// Ways devices may allocate in; absent when it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_ways: Option<WayMask>,
    /// Root ports with DCA off, by PCI address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dca_off_ports: Vec<String>,
}

/// Collects the way map of a run from the knobs' values read back at every interval; equal successive values become one
/// slice.
#[derive(Clone, Debug, Default)]
pub struct WayMapBuilder {
    slices: Vec<WayMapSlice>,
}

impl WayMapBuilder {
    /// Adds the knobs' values from `at_s` on. Times must not decrease.
    pub fn push(&mut self, at_s: f64, knobs: &KnobValues, names: Names<'_>) {
        let off = knobs.dca_by_port().filter(|(_, on)| !on).map(|(id, _)| names.port(id));
        let slice = WayMapSlice {
            from_s: at_s,
            to_s: at_s,
            masks: knobs.masks().map(|(id, mask)| (names.group(id), mask)).collect(),
            dca_ways: knobs.dca_ways(),
            dca_off_ports: off.collect(),
        };
        if let Some(last) = self.slices.last_mut() {
            debug_assert!(last.from_s <= at_s, "the way map is recorded in order of time");
            last.to_s = at_s;
            let same = last.masks == slice.masks
                && last.dca_ways == slice.dca_ways
                && last.dca_off_ports == slice.dca_off_ports;
            if same {
                return;
            }
            if last.from_s == at_s {
                self.slices.pop();
            }
        }
        self.slices.push(slice);
    }

    /// The map, its last slice ending at `to_s`.
    pub fn finish(mut self, to_s: f64) -> Vec<WayMapSlice> {
        if let Some(last) = self.slices.last_mut() {
            last.to_s = to_s;
        }
        self.slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_host::Knob;
    use waykeeper_policy::Event;

    #[test]
    fn a_decision_is_written_with_names_causes_and_what_the_host_said() {
        let plan =
            Plan::of_masks([(WorkloadId(7), WayMask::from_bits(0x1c))]).with(Knob::Dca(PortId(0)), false);
        let event = Event {
            action: "dca-off".into(),
            group: Some("fio".into()),
            text: "DCA off for nvme0".into(),
            causes: vec![Cause { what: "leak ratio".into(), value: 0.4, limit: Some(("T3".into(), 0.3)) }],
        };
        let decision = Decision { plan, state: "Expand".into(), events: vec![event.clone(), event] };
        let applied = Applied::from([(Knob::Mask(WorkloadId(7)), KnobOutcome::ReadsBack("0x01f".into()))]);
        let records = DecisionRecord::of(3.0, &decision, &applied, Names { groups: &[], ports: &[] });
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].causes[0].limit_name.as_deref(), Some("T3"));
        // An id without a name is written as the id, and an outcome exists only with an answer of the host.
        assert_eq!(records[0].knobs[0].target.as_deref(), Some("group 7"));
        assert_eq!(records[0].knobs[0].outcome.as_deref(), Some("reads back 0x01f"));
        assert_eq!((records[0].knobs[1].value.as_str(), &records[0].knobs[1].outcome), ("off", &None));
        assert!(records[1].knobs.is_empty());
    }

    #[test]
    fn equal_neighbours_of_the_way_map_are_one_slice() {
        let names = Names { groups: &[], ports: &[] };
        let knobs = |bits| KnobValues::of_masks([(WorkloadId(0), WayMask::from_bits(bits))]);
        let mut map = WayMapBuilder::default();
        for (at_s, bits) in [(0.0, 0x7ff), (1.0, 0x7ff), (2.0, 0x003), (2.0, 0x007), (3.0, 0x007)] {
            map.push(at_s, &knobs(bits), names);
        }
        let slices = map.finish(5.0);
        let spans: Vec<_> = slices.iter().map(|s| (s.from_s, s.to_s, s.masks["group 0"].bits())).collect();
        assert_eq!(spans, [(0.0, 2.0, 0x7ff), (2.0, 5.0, 0x007)]);
    }
}
