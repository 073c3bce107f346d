//! What the control thread shows: one value, replaced whole after each step, that anybody reads without waiting.
//!
//! Knows what is shown, not who looks at it, nor over which wire.

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;
use waykeeper_control::{Record, Summary};
use waykeeper_host::{Group, Interval, Inventory, Snapshot};
use waykeeper_linux::host::Grouping;
use waykeeper_units::GroupId;

/// What the daemon may do to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Turns knobs.
    Manage,
    /// Decides and says what it would turn; writes nothing.
    DryRun,
    /// Watches; no policy is asked and nothing is written.
    Observe,
}

/// How a pause treats the knobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pause {
    /// They stay as the policy left them.
    Hold,
    /// They went back to what was found.
    Release,
}

/// Something that is not as it should be and lasts: told when it begins, shown as long as it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// A stable machine name of its kind, for example `counter`, `tenant`, `config`, `outsider`.
    pub kind: String,
    /// One readable line.
    pub text: String,
}

/// A class of service with tenants in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Class {
    /// Name of its group in resctrl, `default` for the default one.
    pub name: String,
    /// Who is in it.
    pub tenants: Vec<GroupId>,
}

/// Counts since the daemon started; they only grow.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Steps, blind ones, missed deadlines.
    pub summary: Summary,
    /// What policies did, by policy and action.
    pub actions: BTreeMap<String, BTreeMap<String, u64>>,
    /// Samples of which something could not be used, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Steps that the recorder had no room for.
    pub unrecorded: u64,
    /// Lines of the log that were lost because whoever reads it is too slow.
    #[serde(default)]
    pub unlogged: u64,
    /// Configurations that were taken, and those that were refused.
    pub reloads: [u64; 2],
}

/// Everything that is shown.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Published {
    /// Number of the step, from 0 for the start.
    pub step: u64,
    /// When, on everybody's clock.
    pub at: SystemTime,
    /// When the daemon started.
    pub started: SystemTime,
    /// What it may do.
    pub mode: Mode,
    /// Whether the policy is held back at present.
    pub paused: Option<Pause>,
    /// The policy in charge.
    pub policy: String,
    /// The settings it was built with, as the configuration or an order gave them; what is not there has its default.
    pub settings: Arc<toml::Table>,
    /// Time between two steps, nanoseconds.
    pub period_ns: u64,
    /// What the host has.
    pub inventory: Arc<Inventory>,
    /// The tenants alive now.
    pub groups: Vec<Group>,
    /// Those of them without a class of service of their own.
    #[serde(default)]
    pub groupings: Vec<Grouping>,
    /// The classes of service that tenants are in; none where nobody is given one.
    #[serde(default)]
    pub classes: Vec<Class>,
    /// All counters, cumulative, as last read.
    pub snapshot: Option<Snapshot>,
    /// Rates over the last interval; `None` if nothing could be read in it.
    pub seen: Option<Interval>,
    /// What was decided and done.
    pub record: Record,
    /// What is not as it should be at present.
    pub standing: Vec<Standing>,
    /// Counts.
    pub totals: Totals,
}

/// Where the latest [`Published`] hangs.
#[derive(Debug)]
pub struct Board(ArcSwap<Published>);

impl Board {
    /// A board that shows this first.
    pub fn new(first: Published) -> Board {
        Board(ArcSwap::from_pointee(first))
    }

    /// What it shows now. Never waits.
    pub fn read(&self) -> Arc<Published> {
        self.0.load_full()
    }

    /// Shows something else, and hands it back as it is shown. Never waits.
    pub fn show(&self, next: Published) -> Arc<Published> {
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

    /// A daemon that has just started on a host with nobody on it.
    pub(crate) fn published() -> Published {
        let inventory = Inventory {
            platform: Platform { chip: "gold-6140".to_owned(), host: "Linux 6.12".to_owned() },
            cores: Vec::new(),
            llc: LlcGeometry {
                ways: 11,
                min_ways: 1,
                bytes: 25_952_256,
                clos_count: 16,
                inclusive_ways: None,
            },
            dca_ways_default: Some(WayMask::from_bits(0x600)),
            dca_ways_switch: Support::Yes,
            devices: Vec::new(),
            ports: Vec::new(),
        };
        Published {
            step: 0,
            at: SystemTime::UNIX_EPOCH,
            started: SystemTime::UNIX_EPOCH,
            mode: Mode::Manage,
            paused: None,
            policy: "default".to_owned(),
            settings: Arc::default(),
            period_ns: 1_000_000_000,
            inventory: Arc::new(inventory),
            groups: Vec::new(),
            groupings: Vec::new(),
            classes: Vec::new(),
            snapshot: None,
            seen: None,
            record: Record::default(),
            standing: Vec::new(),
            totals: Totals::default(),
        }
    }

    #[test]
    fn the_board_shows_the_latest_and_old_readings_stay_whole() {
        let board = Board::new(published());
        let before = board.read();
        board.show(Published { step: 1, ..published() });
        assert_eq!((before.step, board.read().step), (0, 1));
        // What is shown can be written down and read again: socket and recorder do.
        let text = serde_json::to_string(&*before).unwrap();
        assert_eq!(serde_json::from_str::<Published>(&text).unwrap(), *before);
    }
}
