//! Where and why a replayed policy decides differently: the first difference with both policies' reasons, steps by kind of
//! difference, and a row per knob. Must not know where the recording is or how results are shown.

use super::{Compared, Side, differing};
use crate::log;
use crate::naming::HostNames;
use crate::protocol::plain_time;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::SystemTime;
use waykeeper_host::{Knob, Plan};

/// The differences of all steps so far.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct DifferenceSummary {
    /// Steps in which both policies decided.
    pub compared: u64,
    /// Steps in which they decided differently.
    pub differ: u64,
    /// The first of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstDifference>,
    /// Steps with a difference of each kind: `state`, `events`, or a kind of knob.
    pub kinds: BTreeMap<String, u64>,
    /// Per knob, by its name with that of its workload or device.
    pub knobs: BTreeMap<String, KnobDifference>,
    /// Number of events of each action in steps that differ, as recorded and as replayed.
    pub actions: [BTreeMap<String, u64>; 2],
}

/// The first step that differs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FirstDifference {
    /// When.
    pub at: String,
    /// The step's number.
    pub step: u64,
    /// Knobs: name, recorded value, replayed value.
    pub knobs: Vec<[String; 3]>,
    /// The recorded policy's state and reasons.
    pub recorded: Why,
    /// The replayed policy's.
    pub replayed: Why,
}

/// A policy's state after a step, and what it did in it and why.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Why {
    /// The state.
    pub state: String,
    /// One line per event: action, text, causes.
    pub reasons: Vec<String>,
}

/// How a knob differs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KnobDifference {
    /// Steps in which it does.
    pub steps: u64,
    /// The first of these: when, and both values.
    pub first_at: String,
    /// The recorded value then; `-` if the policy named none.
    pub recorded: String,
    /// The replayed value then.
    pub replayed: String,
}

impl DifferenceSummary {
    /// Adds a step.
    pub fn add(&mut self, at: SystemTime, compared: &Compared, names: &HostNames<'_>) {
        self.compared += 1;
        if compared.agrees() {
            return;
        }
        self.differ += 1;
        let Compared { step, recorded, replayed } = compared;
        let knobs: Vec<Knob> = differing(&recorded.wanted, &replayed.wanted).collect();
        let mut kinds: Vec<String> = knobs.iter().map(|knob| knob.kind().to_string()).collect();
        kinds.dedup();
        kinds.extend((recorded.state != replayed.state).then(|| "state".to_owned()));
        kinds.extend((recorded.events != replayed.events).then(|| "events".to_owned()));
        for kind in kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
        for knob in knobs {
            let [name, then, now] = row(knob, &recorded.wanted, &replayed.wanted, names);
            let first =
                || KnobDifference { steps: 0, first_at: plain_time(at), recorded: then, replayed: now };
            self.knobs.entry(name).or_insert_with(first).steps += 1;
        }
        for (actions, side) in self.actions.iter_mut().zip([recorded, replayed]) {
            for event in &side.events {
                *actions.entry(event.action.clone()).or_default() += 1;
            }
        }
        if self.first.is_none() {
            self.first = Some(FirstDifference {
                at: plain_time(at),
                step: *step,
                knobs: super::differences(&recorded.wanted, &replayed.wanted, names),
                recorded: Why::of(recorded, names),
                replayed: Why::of(replayed, names),
            });
        }
    }
}

impl Why {
    fn of(side: &Side, names: &HostNames<'_>) -> Why {
        let reasons = side.events.iter().map(|event| {
            let group = event.group.as_ref().map(|group| format!(" {group}")).unwrap_or_default();
            let causes = log::causes(&event.causes, names);
            let causes = if causes.is_empty() { causes } else { format!(" ({causes})") };
            format!("{}{group}: {}{causes}", event.action, names.text(&event.text))
        });
        Why { state: side.state.clone(), reasons: reasons.collect() }
    }
}

/// A knob's name and both values; `-` where a policy names none.
pub(super) fn row(knob: Knob, recorded: &Plan, replayed: &Plan, names: &HostNames<'_>) -> [String; 3] {
    let place = match knob {
        Knob::Mask(id) => format!("mask of {}", names.workload(id)),
        Knob::DcaWays => "DCA ways".to_owned(),
        Knob::Dca(port) | Knob::RxRing(port) | Knob::RxBurst(port) => {
            format!("{} of {}", knob.kind(), names.port(port))
        }
    };
    let text = |plan: &Plan| plan.get(knob).map_or_else(|| "-".to_owned(), ToString::to_string);
    [place, text(recorded), text(replayed)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use waykeeper_policy::{Cause, Event};
    use waykeeper_units::{PortId, WayMask, WorkloadId};

    fn side(state: &str, mask: u32, dca: Option<bool>, actions: &[&str]) -> Side {
        let event = |action: &&str| Event {
            action: (*action).to_owned(),
            group: Some("fio".to_owned()),
            text: "fio gets less".to_owned(),
            causes: vec![Cause { what: "LLC hit ratio".to_owned(), value: 0.123_456, limit: None }],
        };
        let mut wanted = Plan::of_masks([(WorkloadId(3), WayMask::from_bits(mask))]);
        if let Some(on) = dca {
            wanted = wanted.with(Knob::Dca(PortId(0)), on);
        }
        Side { state: state.to_owned(), events: actions.iter().map(event).collect(), wanted }
    }

    #[test]
    fn the_first_difference_has_its_reasons_and_all_are_counted() {
        let names = HostNames::recorded(None, &[]);
        let mut summary = DifferenceSummary::default();
        let steps = [
            (side("Stable", 0x3, None, &[]), side("Stable", 0x3, None, &[])),
            (side("Stable", 0x3, None, &[]), side("Stable", 0x7, None, &["grow"])),
            (side("Stable", 0x3, None, &["shrink"]), side("Low", 0xf, Some(false), &["grow", "dca-off"])),
        ];
        for (number, (recorded, replayed)) in steps.into_iter().enumerate() {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
            summary.add(at, &Compared { step: number as u64, recorded, replayed }, &names);
        }
        assert_eq!((summary.compared, summary.differ), (3, 2));
        let first = summary.first.as_ref().unwrap();
        assert_eq!((first.step, first.at.as_str()), (1, "1970-01-01T00:00:01.000Z"));
        assert_eq!(first.knobs, [["mask of group 3", "0x003", "0x007"].map(str::to_owned)]);
        assert!(first.recorded.reasons.is_empty());
        assert_eq!(first.replayed.reasons, ["grow fio: fio gets less (LLC hit ratio=0.1235)"]);
        let kinds: Vec<(&str, u64)> =
            summary.kinds.iter().map(|(kind, steps)| (kind.as_str(), *steps)).collect();
        assert_eq!(kinds, [("DCA", 1), ("events", 2), ("mask", 2), ("state", 1)]);
        let mask = &summary.knobs["mask of group 3"];
        assert_eq!((mask.steps, mask.recorded.as_str(), mask.replayed.as_str()), (2, "0x003", "0x007"));
        let dca = &summary.knobs["DCA of port 0"];
        assert_eq!((dca.steps, dca.recorded.as_str(), dca.replayed.as_str()), (1, "-", "off"));
        assert_eq!(summary.actions[0], BTreeMap::from([("shrink".to_owned(), 1)]));
        assert_eq!(summary.actions[1], BTreeMap::from([("dca-off".to_owned(), 1), ("grow".to_owned(), 2)]));
    }
}
