//! The server as the policy knows it: workloads, inventory, limits, settings. It must not know layouts or decisions.

use super::config::Config;
use super::layout::ChipLimits;
use waykeeper_host::{Interval, Inventory, Workload};

/// What stays from one interval to the next, until workloads start or end or a knob turns out to have no effect.
pub(super) struct Server {
    pub config: Config,
    pub inventory: Inventory,
    pub groups: Vec<Workload>,
    pub limits: ChipLimits,
}

/// Counters, workloads and limits of the server in one interval.
pub(super) struct ServerView<'a> {
    pub groups: &'a [Workload],
    pub seen: &'a Interval,
    pub inventory: &'a Inventory,
    pub limits: &'a ChipLimits,
    pub config: &'a Config,
}

impl Server {
    /// A server with its chip's limits.
    pub fn new(config: Config, inventory: &Inventory, groups: &[Workload]) -> Server {
        let limits = ChipLimits::new(inventory);
        Server { config, inventory: inventory.clone(), groups: groups.to_vec(), limits }
    }

    /// Which workloads started or ended, if `groups` are those alive now.
    pub fn difference(&self, groups: &[Workload]) -> String {
        let names = |all: &[Workload], not_in: &[Workload]| {
            let new = all.iter().filter(|group| !not_in.contains(group));
            new.map(|group| group.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (new, gone) = (names(groups, &self.groups), names(&self.groups, groups));
        match (new.is_empty(), gone.is_empty()) {
            (false, true) => format!("{new} launched"),
            (true, _) => format!("{gone} exited"),
            (false, false) => format!("{new} launched or changed class, {gone} exited or changed class"),
        }
    }

    /// The server with the counters of an interval.
    pub fn view<'a>(&'a self, seen: &'a Interval) -> ServerView<'a> {
        ServerView {
            groups: &self.groups,
            seen,
            inventory: &self.inventory,
            limits: &self.limits,
            config: &self.config,
        }
    }
}
