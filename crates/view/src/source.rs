//! Where steps come from, and what may be turned there. Must not know any source, nor what is drawn.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use waykeeper_host::DeviceKind;
use waykeeper_service::recorder::{Header, RecordedStep};
use waykeeper_units::WayMask;

/// A source of steps.
pub trait Source: Send {
    /// The next event; `None` if there is none within `wait`. A reader that is too slow misses steps and gets the latest.
    fn next(&mut self, wait: Duration) -> Option<SourceEvent>;

    /// Carries out a turn, and returns a line about what was done.
    ///
    /// # Errors
    /// Why it was not carried out.
    fn turn(&mut self, turn: Turn) -> Result<String, TurnError>;

    /// What it is and what it can do at present.
    fn info(&self) -> SourceInfo;

    /// Says whether it has a viewer. A virtual server is paused without one; for other sources nothing changes.
    fn watch(&mut self, _is_watched: bool) {}
}

/// What a source tells.
#[derive(Clone, PartialEq, Debug)]
pub enum SourceEvent {
    /// What the steps that follow share. It comes first, and again when something in it changes.
    Begin(Box<Header>),
    /// A step, with its tenants.
    Step(Box<RecordedStep<'static>>),
    /// The daemon cannot be reached, or part of a recording cannot be read. The source continues by itself.
    Lost {
        /// Why, in one line.
        why: String,
    },
    /// No step follows, except after a turn.
    End,
}

/// What a source is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SourceInfo {
    /// Its kind.
    pub kind: SourceKind,
    /// Name of the socket, the scenario or the folder.
    pub name: String,
    /// Its steps happen now.
    pub live: bool,
    /// What it takes.
    pub abilities: Abilities,
    /// Seconds of its clock per second of wall-clock time, where that can be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Its time was stopped by [`Turn::Stop`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Length of a recording, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length_s: Option<f64>,
    /// Present place in a recording, s from its first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place_s: Option<f64>,
    /// Factors of [`Turn::Load`] that are in force, by device; devices at their own load are absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<(String, f64)>,
}

/// Kinds of sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// A daemon's socket.
    Daemon,
    /// This host, observed without a daemon.
    Host,
    /// A virtual server.
    Scenario,
    /// A recording.
    Recording,
}

/// The turns that a source takes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Abilities {
    /// Another policy; the names of those that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Pause and resume of the policy.
    #[serde(default)]
    pub pause: bool,
    /// Masks, DCA ways, DCA of a device.
    #[serde(default)]
    pub knobs: bool,
    /// Devices whose load can be changed, each with the highest factor that it takes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub loads: BTreeMap<String, f64>,
    /// Speed, stop and play.
    #[serde(default)]
    pub speed: bool,
    /// Places in a recording.
    #[serde(default)]
    pub seek: bool,
}

/// Something that a person turns. Tenants and devices are named.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Turn {
    /// Another policy takes over.
    Policy {
        /// Its name.
        name: String,
        /// Its settings; others have their defaults.
        #[serde(default)]
        settings: toml::Table,
    },
    /// The policy pauses; steps continue.
    Pause {
        /// Knobs are restored during the pause; else they keep their values.
        #[serde(default)]
        release: bool,
    },
    /// The policy resumes.
    Resume,
    /// The ways that a tenant may allocate in.
    Mask {
        /// The tenant.
        tenant: String,
        /// The ways.
        mask: WayMask,
    },
    /// The ways that devices may allocate in.
    DcaWays {
        /// The ways.
        mask: WayMask,
    },
    /// DCA of a device, on all its ports.
    Dca {
        /// The device.
        device: String,
        /// On or off.
        on: bool,
    },
    /// The load of a device of a virtual server: the traffic that is offered to a NIC, the requests that the programs of an
    /// array keep in flight and the rates that limit them.
    Load {
        /// The device.
        device: String,
        /// Relative to that of the scenario, from 0 to what [`Turn::load_most`] says.
        factor: f64,
    },
    /// Seconds of the source's clock per second of wall-clock time.
    Speed {
        /// From [`Turn::SPEED_LEAST`] to [`Turn::SPEED_MOST`].
        factor: f64,
    },
    /// Time stops.
    Stop,
    /// Time continues.
    Play,
    /// A place in a recording.
    Seek {
        /// Seconds from its first step.
        to_s: f64,
    },
}

impl Turn {
    /// Lowest speed: a step of a second takes a quarter of an hour. At a speed near 0 the time of a step has no number.
    pub const SPEED_LEAST: f64 = 0.001;

    /// Highest speed, as of `waykeeper vhost`.
    pub const SPEED_MOST: f64 = 1000.0;

    /// The highest load of a device relative to its scenario. A NIC's line rate limits its load as well. A program has
    /// memory for the requests of its scenario, and no more.
    pub fn load_most(kind: DeviceKind) -> f64 {
        match kind {
            DeviceKind::Network => 10.0,
            DeviceKind::Storage => 1.0,
        }
    }

    /// Checks a speed.
    ///
    /// # Errors
    /// What would be accepted.
    pub fn check_speed(factor: f64) -> Result<f64, TurnError> {
        let (least, most) = (Turn::SPEED_LEAST, Turn::SPEED_MOST);
        if (least..=most).contains(&factor) {
            return Ok(factor);
        }
        let text = format!("speed {factor} is out of range; give a number from {least} to {most}");
        Err(TurnError::Refused(text))
    }
}

/// Why a turn was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TurnError {
    /// The source does not take such turns.
    #[error("{0}")]
    Unsupported(String),
    /// The turn is invalid, or was refused; nothing changed.
    #[error("{0}")]
    Refused(String),
    /// The source cannot be reached.
    #[error("{0}")]
    Lost(String),
}
