//! The policy's text for `waykeeper policy describe`. Decides nothing.

use super::config::{NAME, TwinConfig};
use crate::Description;
use crate::describe::{StateDescription, lines};

pub(super) fn describe(config: &TwinConfig) -> Description {
    Description {
        name: NAME.to_owned(),
        idea: "Measures the layout as found, describes the server from its counters, and asks a model of this server \
               what other layouts would bring. The best one is put in force and measured; it is kept if HPWs, and LPWs by \
               their weight, gain more than noise, no HPW loses more than hpw_loss_max, and LPWs lose no more than \
               lpw_loss_max. One LPW may lose more where HPWs gain gain_per_loss times as much. What was measured refines \
               the description for the next question. Where no clear gain is foreseen and HPWs miss the LLC, it measures \
               HPWs apart from LPWs once, since a model cannot tell what a program that never hits would do with more ways."
            .to_owned(),
        source: "ours".to_owned(),
        inputs: lines(&[
            "LLC hits and misses, MLC hits and misses, instructions, cycles and occupancy per workload",
            "DCA write hits and misses of the socket",
            "bytes per root port",
            "memory bytes of the socket",
            "the model's answers",
        ]),
        knobs: lines(&["way mask per workload", "DDIO ways", "DCA per root port"]),
        settings: config.describe(),
        states: vec![
            StateDescription::new("Look", "measures the layout in force until two intervals agree"),
            StateDescription::new("Ask", "waits for the model's answer; the layout in force stays"),
            StateDescription::new("Try", "measures a layout that the model proposes, and keeps or drops it"),
            StateDescription::new("Stable", "nothing better is foreseen; watches for a new phase"),
            StateDescription::new("Return", "puts the layout as found back, before it searches by measured steps"),
            StateDescription::new(
                "Measured",
                "there is no model, no answer came, or HPWs were foreseen wrongly: the search of the policy waykeeper-search \
                 decides until workloads start or end",
            ),
        ],
        deviations: Vec::new(),
    }
}
