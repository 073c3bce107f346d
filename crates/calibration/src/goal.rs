//! What is better: one rule for the model that foresees progress and for the policy that measures it. It must not know
//! layouts, nor where progress comes from.

use serde::{Deserialize, Serialize};
use waykeeper_host::{Priority, WorkloadKind};

/// What is better. Progress is relative to the server as found: 1 is as found.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Goal {
    /// Least progress of LPWs together (geometric mean, weighted by cores).
    pub lpw_floor: f64,
    /// Least progress of each LPW, where HPWs do not gain `gain_per_loss` times what such LPWs lose.
    pub lpw_each: f64,
    /// HPWs must gain so many times what the LPWs below `lpw_each` lose, both weighted by cores.
    pub gain_per_loss: f64,
    /// Least progress of each HPW.
    pub hpw_floor: f64,
    /// What progress of LPWs counts beside that of HPWs, where no floor is in the way.
    pub lpw_weight: f64,
    /// What progress of a workload on a NIC counts beside that of others. Its latency falls by more than its work per
    /// packet: packets also wait for those before them.
    pub latency_weight: f64,
    /// Cost of an LLC hit per packet line of a workload on a NIC, relative to the line's processing: its progress is lines
    /// per second, weighted by the cost of fetching them.
    pub llc_cost: f64,
    /// The same of an LLC miss.
    pub memory_cost: f64,
}

/// Progress of one tenant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TenantProgress {
    /// Its priority.
    pub priority: Priority,
    /// What it does.
    pub kind: WorkloadKind,
    /// Cores that the tenant may use: its weight.
    pub cores: usize,
    /// Progress relative to the server as found, above 0.
    pub ratio: f64,
}

/// How well the tenants' progress serves a goal.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct GoalScore {
    /// Logarithm of HPWs' progress, and of LPWs' by its weight: 0.01 is one per cent better.
    pub value: f64,
    /// What is missing to the floors, as logarithms; 0 where all hold.
    pub shortfall: f64,
}

impl Goal {
    /// Scores the progress of all tenants. Without HPWs, or without LPWs, these count as they were found.
    pub fn score(&self, tenants: impl Iterator<Item = TenantProgress> + Clone) -> GoalScore {
        let weighted = |tenant: &TenantProgress| tenant.cores.max(1) as f64 * tenant.ratio.max(1e-9).ln();
        let counted = |tenant: &TenantProgress| {
            let network = tenant.kind == WorkloadKind::NetworkIo;
            weighted(tenant) * if network { self.latency_weight } else { 1.0 }
        };
        let of = |priority| {
            let all = tenants.clone().filter(move |tenant| tenant.priority == priority);
            let cores: f64 = all.clone().map(|tenant| tenant.cores.max(1) as f64).sum();
            let sum: f64 = all.clone().map(|tenant| weighted(&tenant)).sum();
            (sum, all.map(|tenant| counted(&tenant)).sum::<f64>(), cores)
        };
        let (hpw, hpw_value, hpw_cores) = of(Priority::High);
        let (lpw, lpw_value, lpw_cores) = of(Priority::Low);
        let mean = |sum: f64, cores: f64| if cores > 0.0 { sum / cores } else { 0.0 };
        let together = (self.lpw_floor.ln() - mean(lpw, lpw_cores)).max(0.0);
        let below_each = tenants
            .clone()
            .filter(|tenant| tenant.priority == Priority::Low && tenant.ratio < self.lpw_each)
            .map(|tenant| -weighted(&tenant))
            .sum::<f64>();
        let unpaid = (below_each - hpw.max(0.0) / self.gain_per_loss.max(1e-9)).max(0.0);
        let high = tenants.filter(|tenant| tenant.priority == Priority::High);
        let behind: f64 =
            high.map(|tenant| (self.hpw_floor.ln() - tenant.ratio.max(1e-9).ln()).max(0.0)).sum();
        GoalScore {
            value: mean(hpw_value, hpw_cores) + self.lpw_weight * mean(lpw_value, lpw_cores),
            shortfall: together + mean(unpaid, lpw_cores) + behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: Goal = Goal {
        lpw_floor: 0.97,
        lpw_each: 0.97,
        gain_per_loss: 2.0,
        hpw_floor: 0.9,
        lpw_weight: 0.25,
        latency_weight: 3.0,
        llc_cost: 0.5,
        memory_cost: 2.0,
    };

    fn score(tenants: &[(Priority, usize, f64)]) -> GoalScore {
        GOAL.score(tenants.iter().map(|(priority, cores, ratio)| TenantProgress {
            priority: *priority,
            kind: WorkloadKind::NonIo,
            cores: *cores,
            ratio: *ratio,
        }))
    }

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn the_value_is_the_mean_of_hpws_by_cores_and_a_part_of_that_of_lpws() {
        let low = (Priority::Low, 4, 1.02);
        let it = score(&[(Priority::High, 1, 1.3), (Priority::High, 3, 1.1), low]);
        assert!(is_near(it.value, (1.3_f64.ln() + 3.0 * 1.1_f64.ln()) / 4.0 + 0.25 * 1.02_f64.ln()));
        assert_eq!(it.shortfall, 0.0);
        assert_eq!(score(&[]), GoalScore::default());
    }

    #[test]
    fn progress_on_a_nic_counts_three_times_but_not_for_the_floors() {
        let nic = |priority, ratio| {
            let tenant = TenantProgress { priority, kind: WorkloadKind::NetworkIo, cores: 2, ratio };
            GOAL.score([tenant].into_iter())
        };
        assert!(is_near(nic(Priority::High, 1.1).value, 3.0 * 1.1_f64.ln()));
        assert!(is_near(nic(Priority::Low, 0.96).shortfall, 0.97_f64.ln() - 0.96_f64.ln() - 0.96_f64.ln()));
    }

    #[test]
    fn lpws_together_must_not_fall_below_the_floor_whatever_hpws_gain() {
        let it = score(&[(Priority::High, 1, 2.0), (Priority::Low, 1, 0.95)]);
        assert!(is_near(it.shortfall, 0.97_f64.ln() - 0.95_f64.ln()), "{it:?}");
    }

    #[test]
    fn one_lpw_may_lose_more_where_hpws_gain_twice_as_much() {
        // One LPW core of four loses ln 0.9 = -0.105, the four together -0.026, which the floor of -0.030 allows. HPWs pay
        // it with 0.211 on their two cores, 0.105 each: 11.2 %.
        let lpws = [(Priority::Low, 1, 0.9), (Priority::Low, 3, 1.0)];
        let with = |hpw: f64| score(&[(Priority::High, 2, hpw), lpws[0], lpws[1]]).shortfall;
        assert_eq!(with(1.112), 0.0);
        assert!(is_near(with(1.0), -(0.9_f64.ln()) / 4.0), "{}", with(1.0));
        assert!(with(1.10) > 0.0);
    }

    #[test]
    fn no_hpw_may_lose_more_than_its_floor() {
        let it = score(&[(Priority::High, 1, 0.85), (Priority::High, 1, 1.5)]);
        assert!(is_near(it.shortfall, 0.9_f64.ln() - 0.85_f64.ln()), "{it:?}");
    }
}
