//! The lines of the pipes, one JSON array a line: `[number, {call: ...}]` to the policy, `[number, {answer: ...}]` back.
//!
//! An answer is checked like any other input: unknown keys and wrong types are refused. Must not know processes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_host::{Interval, Inventory, Knob, Plan, Workload};
use waykeeper_policy::{Cause, Decision, Event};
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// A call of the policy.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyCall<'a> {
    /// Run the file and find its policy.
    Open {
        /// Its name in messages.
        file: &'a str,
        /// Its text.
        text: &'a str,
        /// The class; `None` is the only one.
        policy_class: Option<&'a str>,
        /// The text of `own_policy.py`, which defines what a policy is.
        own_policy: &'a str,
        /// The folder from which it may import modules.
        folder: Option<&'a str>,
        /// Whether the process gives up what a policy does not need.
        confined: bool,
    },
    /// Make the policy.
    Create {
        /// Its settings.
        settings: &'a toml::Table,
    },
    /// [`Policy::start`](waykeeper_policy::Policy::start).
    Start {
        /// The server.
        inventory: &'a Inventory,
        /// The workloads that run.
        workloads: &'a [Workload],
    },
    /// [`Policy::step`](waykeeper_policy::Policy::step).
    Step {
        /// The workloads that run.
        workloads: &'a [Workload],
        /// What was counted.
        seen: &'a Interval,
        /// How many classes of service there are now, if that has changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        classes: Option<u32>,
    },
}

/// An answer of the policy.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum PolicyAnswer {
    /// To [`PolicyCall::Open`].
    Opened(OpenedPolicy),
    /// To [`PolicyCall::Create`].
    Created {},
    /// To [`PolicyCall::Start`] and [`PolicyCall::Step`].
    #[serde(deserialize_with = "decision")]
    Decision(Decision),
    /// To any of them: what was raised, with file and line.
    Error(String),
}

/// What the file says about its policy.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedPolicy {
    /// Its name.
    pub name: String,
    /// The first line of its description.
    pub idea: String,
    /// Whether it imported modules beside the file.
    pub imports_beside: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireDecision {
    plan: WirePlan,
    state: String,
    events: Vec<WireEvent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePlan {
    masks: BTreeMap<WorkloadId, WayMask>,
    dca_ways: Option<WayMask>,
    dca: BTreeMap<PortId, bool>,
    rx_ring: BTreeMap<PortId, u32>,
    rx_burst: BTreeMap<PortId, u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireEvent {
    action: String,
    group: Option<String>,
    text: String,
    causes: Vec<WireCause>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCause {
    what: String,
    value: f64,
    limit: Option<(String, f64)>,
}

fn decision<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Decision, D::Error> {
    let WireDecision { plan, state, events } = WireDecision::deserialize(from)?;
    let mut knobs = Plan::of_masks(plan.masks);
    if let Some(ways) = plan.dca_ways {
        knobs.insert(Knob::DcaWays, ways);
    }
    knobs.extend(plan.dca.into_iter().map(|(port, on)| (Knob::Dca(port), on)));
    knobs.extend(plan.rx_ring.into_iter().map(|(port, entries)| (Knob::RxRing(port), entries)));
    knobs.extend(plan.rx_burst.into_iter().map(|(port, packets)| (Knob::RxBurst(port), packets)));
    let events = events.into_iter().map(|WireEvent { action, group, text, causes }| Event {
        action,
        group,
        text,
        causes: causes
            .into_iter()
            .map(|WireCause { what, value, limit }| Cause { what, value, limit })
            .collect(),
    });
    Ok(Decision { plan: knobs, state, events: events.collect() })
}

/// A call with its number, as a line.
pub(crate) fn line(number: u64, call: &PolicyCall<'_>) -> Vec<u8> {
    let mut line = serde_json::to_vec(&(number, call)).expect("its keys are texts and numbers");
    line.push(b'\n');
    line
}

impl PolicyAnswer {
    /// An answer with the number of its call.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn parse(line: &[u8]) -> Result<(u64, PolicyAnswer), String> {
        serde_json::from_slice(line).map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str =
        r#"{"masks":{"2":"0x00c"},"dca_ways":"0x600","dca":{"1":false},"rx_ring":{"0":512},"rx_burst":{}}"#;

    fn with(plan: &str, rest: &str) -> Result<(u64, PolicyAnswer), String> {
        PolicyAnswer::parse(format!(r#"[7, {{"decision":{{"plan":{plan}{rest}}}}}]"#).as_bytes())
    }

    #[test]
    fn a_decision_is_read_as_it_was_written() {
        let event = r#"{"action":"a","group":null,"text":"b","causes":[{"what":"c","value":0.1,"limit":["d",1e-3]}]}"#;
        let (number, answer) = with(PLAN, &format!(r#","state":"Watch","events":[{event}]"#)).unwrap();
        let plan = Plan::of_masks([(WorkloadId(2), WayMask::from_bits(0x00c))])
            .with(Knob::DcaWays, WayMask::from_bits(0x600))
            .with(Knob::Dca(PortId(1)), false)
            .with(Knob::RxRing(PortId(0)), 512);
        let causes = vec![Cause { what: "c".to_owned(), value: 0.1, limit: Some(("d".to_owned(), 1e-3)) }];
        let event = Event { action: "a".to_owned(), group: None, text: "b".to_owned(), causes };
        let decision = Decision { plan, state: "Watch".to_owned(), events: vec![event] };
        assert_eq!((number, answer), (7, PolicyAnswer::Decision(decision)));
    }

    #[test]
    fn an_answer_with_unknown_keys_or_wrong_types_is_refused() {
        for (from, to, why) in [
            (r#""0x00c""#, "12", "invalid type: integer `12`"),
            (r#""dca_ways""#, r#""dca_wayz""#, "unknown field `dca_wayz`"),
            ("false", "0", "invalid type: integer `0`, expected a boolean"),
            ("\"2\"", "\"two\"", "invalid value: expected key to be a number"),
            ("512", "-1", "invalid value: integer `-1`"),
            (",\"rx_burst\":{}", "", "missing field `rx_burst`"),
        ] {
            let said = with(&PLAN.replacen(from, to, 1), r#","state":"","events":[]"#).unwrap_err();
            assert!(said.starts_with(why), "{to}: {said}");
        }
        assert!(
            with(PLAN, r#","state":"","events":[],"more":1"#)
                .unwrap_err()
                .starts_with("unknown field `more`")
        );
        assert!(
            PolicyAnswer::parse(b"hello").is_err() && PolicyAnswer::parse(br#"[1, {"decided":{}}]"#).is_err()
        );
    }
}
