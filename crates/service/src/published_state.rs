//! The published state of the control thread: one value, replaced after each step, that any thread reads without
//! waiting.
//!
//! Must not know its readers or how they send it.

use crate::twin::TwinStatus;
use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use waykeeper_calibration::Candidate;
use waykeeper_control::{LoopSummary, StepRecord};
use waykeeper_host::{Interval, Inventory, Snapshot, Workload};
use waykeeper_linux_host::Grouping;
use waykeeper_units::WorkloadId;

/// How much the daemon may change on the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DaemonMode {
    /// Sets knobs.
    Manage,
    /// Decides and logs which knobs it would set; sets none.
    DryRun,
    /// Samples counters; runs no policy and sets no knob.
    Observe,
}

/// How a pause treats the knobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pause {
    /// They keep their values.
    Hold,
    /// They are restored to their original values.
    Release,
}

/// A problem that lasts: logged when it begins, shown until it ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ActiveProblem {
    /// A stable name of its kind, for example `counter`, `tenant`, `config`, `outsider`.
    pub kind: String,
    /// One readable line.
    pub text: String,
}

/// A class of service with tenants in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PublishedClass {
    /// Name of its group in resctrl, `default` for the default one.
    pub name: String,
    /// The tenants in it.
    pub tenants: Vec<WorkloadId>,
}

/// A step in which knobs were turned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastAction {
    /// Its number.
    pub step: u64,
    /// When, as wall-clock time.
    pub at: SystemTime,
    /// The policy at that time.
    pub policy: String,
    /// The stable name of what was done first in this step; `knobs-turned` where the policy gives no reason.
    pub action: String,
    /// What was done, in one line.
    pub text: String,
}

impl LastAction {
    /// Actions that are kept.
    pub const KEPT: usize = 3;
}

/// Counts since the daemon started; they only grow.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PublishedTotals {
    /// Steps, steps without readable counters, missed deadlines.
    pub summary: LoopSummary,
    /// Actions of policies, by policy and action.
    pub actions: BTreeMap<String, BTreeMap<String, u64>>,
    /// Samples with an unusable value, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Steps that the recorder dropped because its queue was full.
    pub unrecorded: u64,
    /// Log lines that were lost because the log's reader is too slow.
    #[serde(default)]
    pub unlogged: u64,
    /// Configurations that were accepted, and those that were refused.
    pub reloads: [u64; 2],
}

/// The published state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Published {
    /// Number of the step, from 0 for the start.
    pub step: u64,
    /// When, as wall-clock time.
    pub at: SystemTime,
    /// When the daemon started.
    pub started: SystemTime,
    /// The time of `at` on the monotonic clock, which does not jump.
    #[serde(default)]
    pub at_clock: Duration,
    /// The time of `started` on that clock.
    #[serde(default)]
    pub started_clock: Duration,
    /// The mode.
    pub mode: DaemonMode,
    /// Whether and how the policy is paused.
    pub paused: Option<Pause>,
    /// If the daemon is stopped before this time of the monotonic clock, it leaves its knobs to the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hands_over_until: Option<Duration>,
    /// The current policy.
    pub policy: String,
    /// The policy of the configuration's file, which need not be the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_policy: Option<String>,
    /// The settings it was built with, from the configuration or an order; others have their defaults.
    pub settings: Arc<toml::Table>,
    /// Time between two steps, nanoseconds.
    pub period_ns: u64,
    /// What the host has.
    pub inventory: Arc<Inventory>,
    /// The tenants alive now.
    pub groups: Vec<Workload>,
    /// Those of them without a class of service of their own.
    #[serde(default)]
    pub groupings: Vec<Grouping>,
    /// The classes of service with tenants in them; empty where tenants get no class.
    #[serde(default)]
    pub classes: Vec<PublishedClass>,
    /// All counters, cumulative, as last read.
    pub snapshot: Option<Snapshot>,
    /// Rates over the last interval; `None` if nothing could be read in it.
    pub seen: Option<Interval>,
    /// The loop's record of the step.
    pub record: StepRecord,
    /// The model that answers the policy's questions; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<TwinStatus>,
    /// What a policy that sets no knob would do, and what that would bring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Candidate>,
    /// The last steps in which knobs were turned, at most [`LastAction::KEPT`], oldest first.
    #[serde(default)]
    pub last_actions: Vec<LastAction>,
    /// Problems that last.
    #[serde(rename = "standing")]
    pub active_problems: Vec<ActiveProblem>,
    /// Counts.
    pub totals: PublishedTotals,
}

/// Holds the latest [`Published`].
#[derive(Debug)]
pub struct PublishedState(ArcSwap<Published>);

impl PublishedState {
    /// A published state with this first content.
    pub fn new(first: Published) -> PublishedState {
        PublishedState(ArcSwap::from_pointee(first))
    }

    /// The present content. Never waits.
    pub fn read(&self) -> Arc<Published> {
        self.0.load_full()
    }

    /// Replaces the content and returns it. Never waits.
    pub fn replace(&self, next: Published) -> Arc<Published> {
        let next = Arc::new(next);
        self.0.store(next.clone());
        next
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use waykeeper_host::{LlcGeometry, Platform, Support};
    use waykeeper_units::WayMask;

    /// A daemon that has just started on a host without tenants.
    pub(crate) fn published() -> Published {
        let inventory = Inventory {
            platform: Platform { chip: "gold-6140".to_owned(), host: "Linux 6.12".to_owned() },
            cores: Vec::new(),
            llc: Some(LlcGeometry::plain(11, 25_952_256, 16)),
            dca_ways_default: Some(WayMask::from_bits(0x600)),
            dca_ways_switch: Support::Yes,
            devices: Vec::new(),
            ports: Vec::new(),
        };
        Published {
            step: 0,
            at: SystemTime::UNIX_EPOCH,
            started: SystemTime::UNIX_EPOCH,
            at_clock: Duration::ZERO,
            started_clock: Duration::ZERO,
            mode: DaemonMode::Manage,
            paused: None,
            hands_over_until: None,
            policy: "default".to_owned(),
            file_policy: None,
            settings: Arc::default(),
            period_ns: 1_000_000_000,
            inventory: Arc::new(inventory),
            groups: Vec::new(),
            groupings: Vec::new(),
            classes: Vec::new(),
            snapshot: None,
            seen: None,
            record: StepRecord::default(),
            twin: None,
            advice: None,
            last_actions: Vec::new(),
            active_problems: Vec::new(),
            totals: PublishedTotals::default(),
        }
    }

    #[test]
    fn the_board_shows_the_latest_and_old_readings_stay_whole() {
        let published_state = PublishedState::new(published());
        let before = published_state.read();
        published_state.replace(Published { step: 1, ..published() });
        assert_eq!((before.step, published_state.read().step), (0, 1));
        // The value survives serialisation, which socket and recorder use.
        let text = serde_json::to_string(&*before).unwrap();
        assert_eq!(serde_json::from_str::<Published>(&text).unwrap(), *before);
    }
}
