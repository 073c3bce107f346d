//! What the counters of an observed host say about managing it: how much device data misses the LLC, whose masks overlap
//! the ways that devices fill, who misses, and what the twin advises.
//!
//! Must not know how the host is observed, nor how its lines are printed.

use crate::protocol::DaemonStatus;
use std::collections::BTreeMap;
use waykeeper_host::Priority;
use waykeeper_units::{WayMask, four_digits};

/// Tenants that are named among those that miss most.
const NAMED: usize = 3;

/// Steps of one host, summed up.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    steps: u64,
    last: Option<DaemonStatus>,
    misses: BTreeMap<String, Misses>,
    in_bytes: Mean,
    write_miss: Mean,
    read_miss: Mean,
    memory_bytes: Mean,
}

/// References and misses per second, each summed over steps.
#[derive(Clone, Copy, Debug, Default)]
struct Misses {
    references: f64,
    misses: f64,
    steps: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.sum += value;
            self.count += 1;
        }
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl Observation {
    /// Adds a status; the same step twice counts once.
    pub fn add(&mut self, status: &DaemonStatus) {
        let is_new = self.last.as_ref().is_none_or(|last| last.step != status.step);
        self.last = Some(status.clone());
        if !is_new || status.step == 0 {
            return;
        }
        self.steps += 1;
        let inbound: Vec<f64> = status.ports.iter().filter_map(|port| port.inbound_bytes_per_s).collect();
        self.in_bytes.add((!inbound.is_empty()).then(|| inbound.iter().sum()));
        self.write_miss.add(status.io.dca_write_miss_ratio);
        self.read_miss.add(status.io.dca_read_miss_ratio);
        let memory = (status.io.memory_read_bytes_per_s, status.io.memory_write_bytes_per_s);
        self.memory_bytes.add(memory.0.map(|read| read + memory.1.unwrap_or(0.0)));
        for tenant in &status.tenants {
            if let (Some(ratio), Some(references)) = (tenant.llc_hit_ratio, tenant.llc_references_per_s) {
                let own = self.misses.entry(tenant.name.clone()).or_default();
                own.references += references;
                own.misses += references * (1.0 - ratio);
                own.steps += 1;
            }
        }
    }

    /// Steps with counters or without.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether any tenant's cache counters were read.
    pub fn has_counters(&self) -> bool {
        !self.misses.is_empty()
    }

    /// What managing this host would be worth, a line each.
    pub fn findings(&self) -> Vec<String> {
        let Some(last) = &self.last else { return vec!["no step was observed".to_owned()] };
        let mut lines = vec![self.devices(), overlap(last), self.who_misses()];
        lines.extend(worth(last));
        lines
    }

    fn devices(&self) -> String {
        let percent = |ratio: f64| format!("{:.0} %", 100.0 * ratio);
        let gigabytes = |bytes: f64| format!("{} GB/s", four_digits(bytes / 1e9));
        let Some(inbound) = self.in_bytes.value() else {
            return "devices: their traffic is not known".to_owned();
        };
        let mut line = format!("devices: they write {}", gigabytes(inbound));
        match self.write_miss.value() {
            Some(ratio) => line
                .push_str(&format!("; {} of these lines are in no cache when they arrive", percent(ratio))),
            None => line.push_str("; how many of these lines the LLC keeps is not known"),
        }
        if let Some(ratio) = self.read_miss.value() {
            line.push_str(&format!(", {} of what they read comes from memory", percent(ratio)));
        }
        if let Some(memory) = self.memory_bytes.value() {
            line.push_str(&format!("; memory carries {}", gigabytes(memory)));
        }
        line
    }

    fn who_misses(&self) -> String {
        if self.misses.is_empty() {
            return "who misses: not known, no cache counter of a tenant was read".to_owned();
        }
        let mut all: Vec<(&str, f64, f64)> = self
            .misses
            .iter()
            .map(|(name, own)| {
                let ratio = if own.references > 0.0 { own.misses / own.references } else { 0.0 };
                (name.as_str(), own.misses / own.steps as f64, ratio)
            })
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let total: f64 = all.iter().map(|(_, misses, _)| misses).sum();
        let named =
            all.iter().take(NAMED).filter(|(_, misses, _)| *misses > 0.0).map(|(name, misses, ratio)| {
                let share = 100.0 * misses / total;
                format!(
                    "{name} has {share:.0} % of all misses ({} M/s, {:.0} % of its references)",
                    four_digits(misses / 1e6),
                    100.0 * ratio
                )
            });
        let named: Vec<String> = named.collect();
        if named.is_empty() {
            "who misses: no tenant".to_owned()
        } else {
            format!("who misses: {}", named.join("; "))
        }
    }
}

/// Whose masks overlap the ways that devices fill.
fn overlap(last: &DaemonStatus) -> String {
    let Some(dca) = last.io.dca_ways else {
        return "masks and DCA ways: which ways devices fill is not known".to_owned();
    };
    let masks: Vec<(&str, Priority, WayMask)> = last
        .tenants
        .iter()
        .filter_map(|tenant| Some((tenant.name.as_str(), tenant.priority, tenant.mask?)))
        .collect();
    if masks.is_empty() {
        return format!("masks and DCA ways: devices fill {dca}; the masks of the tenants are not known");
    }
    let overlaps: Vec<&(&str, Priority, WayMask)> =
        masks.iter().filter(|(_, _, mask)| !mask.and(dca).is_empty()).collect();
    let low = overlaps.iter().filter(|(_, priority, _)| *priority == Priority::Low).count();
    let same = masks.iter().all(|(_, _, mask)| *mask == masks[0].2);
    let shared = if same && masks.len() > 1 {
        format!("; all have the same mask {}", masks[0].2)
    } else {
        String::new()
    };
    match overlaps.len() {
        0 => format!("masks and DCA ways: no tenant may allocate in {dca}, which devices fill{shared}"),
        count => format!(
            "masks and DCA ways: {count} of {} tenants, {low} of them of low priority, may evict device data from {dca}{shared}",
            masks.len()
        ),
    }
}

/// The twin's advice, or why there is none.
fn worth(last: &DaemonStatus) -> Vec<String> {
    let percent = |value: f64, error: f64| format!("{:+.1} +- {:.1} %", 100.0 * (value - 1.0), 100.0 * error);
    if let Some(advice) = &last.advice {
        let mut lines = vec![format!(
            "worth: the model of this server foresees HPWs {}, LPWs {} with",
            percent(advice.hpw_progress, advice.hpw_error),
            percent(advice.lpw_progress, advice.lpw_error),
        )];
        lines.extend(advice.knobs.iter().map(|knob| format!("  {knob}")));
        return lines;
    }
    let said = last.recent.iter().rev().find(|event| event.action.contains("advi"));
    let why = match (said, &last.twin) {
        (Some(event), _) => {
            event.text.strip_prefix(crate::replay::DRY_RUN_PREFIX).unwrap_or(&event.text).to_owned()
        }
        (None, None) => "the model of this server is off (twin.enabled)".to_owned(),
        (None, Some(_)) => format!("policy {} has not advised anything yet", last.policy),
    };
    vec![format!("worth: not foreseen, {why}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Advice, PortStatus, TenantStatus};
    use crate::published_state::tests::published;
    use std::time::Duration;
    use waykeeper_host::WorkloadKind;

    fn tenant(name: &str, priority: Priority, mask: u32, hits: f64, references: f64) -> TenantStatus {
        TenantStatus {
            name: name.to_owned(),
            id: 0,
            priority,
            kind: WorkloadKind::NonIo,
            cores: "0".parse().unwrap_or_default(),
            devices: Vec::new(),
            mask: Some(WayMask::from_bits(mask)),
            ways: None,
            ipc: None,
            llc_hit_ratio: Some(hits),
            llc_references_per_s: Some(references),
            llc_occupancy_bytes: None,
            shares_mask_with: Vec::new(),
            grouped_with: Vec::new(),
            grouped_why: None,
        }
    }

    fn status(step: u64) -> DaemonStatus {
        let mut status = DaemonStatus::of(&published(), [], Duration::ZERO);
        let port = |inbound: f64| PortStatus {
            address: "0000:16:00.0".to_owned(),
            devices: Vec::new(),
            kinds: Vec::new(),
            dca: None,
            inbound_bytes_per_s: Some(inbound),
            outbound_bytes_per_s: None,
        };
        status.step = step;
        status.ports = vec![port(1e9 * step as f64), port(2e9)];
        status.io.dca_ways = Some(WayMask::from_bits(0x600));
        status.io.dca_write_miss_ratio = Some(0.2 * step as f64);
        status.tenants = vec![
            tenant("a", Priority::High, 0x7ff, 0.9, 10e6),
            tenant("b", Priority::Low, 0x7ff, 0.25, 20e6),
            tenant("c", Priority::Low, 0x0ff, 0.0, 0.5e6),
        ];
        status
    }

    #[test]
    fn means_are_over_steps_and_each_step_counts_once() {
        let mut observation = Observation::default();
        assert_eq!(observation.findings(), ["no step was observed"]);
        for step in [0, 1, 1, 2] {
            observation.add(&status(step));
        }
        assert_eq!((observation.steps(), observation.has_counters()), (2, true));
        // Steps 1 and 2: (1 + 2 + 2 + 2) / 2 = 3.5 GB/s; (20 + 40) / 2 = 30 %.
        // Misses per second: a 10 M * 0.1 = 1 M, b 20 M * 0.75 = 15 M, c 0.5 M; of 16.5 M b has 91 %, a 6 %, c 3 %.
        // a and b overlap 0x600, c does not.
        assert_eq!(
            observation.findings(),
            [
                "devices: they write 3.5 GB/s; 30 % of these lines are in no cache when they arrive",
                "masks and DCA ways: 2 of 3 tenants, 1 of them of low priority, may evict device data from 0x600",
                "who misses: b has 91 % of all misses (15 M/s, 75 % of its references); a has 6 % of all misses (1 M/s, 10 % \
                 of its references); c has 3 % of all misses (0.5 M/s, 100 % of its references)",
                "worth: not foreseen, the model of this server is off (twin.enabled)",
            ]
        );
    }

    #[test]
    fn advice_comes_with_its_errors_and_knobs_and_unknown_values_say_so() {
        let mut observation = Observation::default();
        let mut status = status(1);
        status.ports.clear();
        status.io.dca_ways = None;
        status.tenants.clear();
        status.advice = Some(Advice {
            knobs: vec!["DCA off on port 1 (nvme0)".to_owned()],
            hpw_progress: 1.044,
            hpw_error: 0.055,
            lpw_progress: 0.99,
            lpw_error: 0.013,
        });
        observation.add(&status);
        assert_eq!(
            observation.findings(),
            [
                "devices: their traffic is not known",
                "masks and DCA ways: which ways devices fill is not known",
                "who misses: not known, no cache counter of a tenant was read",
                "worth: the model of this server foresees HPWs +4.4 +- 5.5 %, LPWs -1.0 +- 1.3 % with",
                "  DCA off on port 1 (nvme0)",
            ]
        );
    }
}
