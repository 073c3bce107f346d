//! The texts of decisions about layouts. Decides nothing.

use super::super::server::Server;
use crate::Cause;
use waykeeper_calibration::{Candidate, Estimate};
use waykeeper_host::{Knob, Plan, Setting};

/// The differences of two layouts, in words.
pub(super) fn changes(server: &Server, before: &Plan, after: &Plan) -> String {
    let (groups, inventory) = (&server.groups, &server.inventory);
    let changed = after.settings().filter(|setting| before.setting(setting.knob) != Some(*setting));
    let said: Vec<String> = changed
        .map(|changed| match (changed.knob, changed.setting) {
            (Knob::Mask(id), setting) => {
                let name =
                    groups.iter().find(|g| g.id == id).map_or_else(|| id.to_string(), |g| g.name.clone());
                format!("{name} {setting}")
            }
            (Knob::Dca(port), Setting::Switch(on)) => {
                let device = inventory.devices.iter().find(|device| device.ports.contains(&port));
                let name = device.map_or_else(|| port.to_string(), |device| device.name.clone());
                format!("DCA {} for {name}", if on { "on" } else { "off" })
            }
            _ => changed.to_string(),
        })
        .collect();
    if said.is_empty() { "nothing changes".to_owned() } else { said.join(", ") }
}

/// `HPWs +12.0 %, LPWs -1.0 %`.
pub(super) fn percents(hpw: f64, lpw: f64) -> String {
    format!("HPWs {:+.1} %, LPWs {:+.1} %", 100.0 * hpw, 100.0 * lpw)
}

/// `HPWs +12.0 +- 4.0 %, LPWs -1.0 +- 0.5 %`.
pub(super) fn expected(candidate: &Candidate) -> String {
    let percent = |it: Estimate| format!("{:+.1} +- {:.1} %", 100.0 * (it.value - 1.0), 100.0 * it.error);
    format!("HPWs {}, LPWs {}", percent(candidate.hpw), percent(candidate.lpw))
}

/// What is foreseen of a layout, as the causes of a decision; none where nothing is.
pub(super) fn causes(candidate: &Candidate) -> Vec<Cause> {
    let cause = |what: &str, value| Cause { what: what.to_owned(), value, limit: None };
    if !candidate.hpw.error.is_finite() {
        return Vec::new();
    }
    vec![
        cause("foreseen progress of HPWs", candidate.hpw.value),
        cause("its error", candidate.hpw.error),
        cause("foreseen progress of LPWs", candidate.lpw.value),
    ]
}
