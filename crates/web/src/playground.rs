//! Virtual servers that a page may start: built-in scenarios, and the one that the user named at the start.
//!
//! A page names scenarios, never paths. Must not know HTTP.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use waykeeper_lab::registry::{self, BUILT_IN, BuiltIn, RegistryError};
use waykeeper_machine::{Scenario, ScenarioError};
use waykeeper_view::{LiveError, LiveScenario, LiveSetup, Source};

/// Nice value of playgrounds: with as many as there may be, the page, the main source and other programs get three times
/// their share of a core.
const NICE: i32 = 5;

/// A scenario that can be started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ScenarioEntry {
    /// Its name.
    pub name: String,
    /// What it shows, in one line.
    pub about: String,
}

/// What a page asks for.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaygroundWish {
    /// Name of the scenario.
    pub scenario: String,
    /// Policy at the start.
    pub policy: String,
    /// Seed of the random numbers.
    #[serde(default = "one")]
    pub seed: u64,
    /// Seconds of the server's clock per second of wall-clock time.
    #[serde(default = "normal")]
    pub speed: f64,
}

fn one() -> u64 {
    1
}

fn normal() -> f64 {
    1.0
}

/// Why no virtual server starts.
#[derive(Debug, thiserror::Error)]
pub enum PlaygroundError {
    /// Not in the list.
    #[error("unknown scenario `{0}`; the list of the page has all that can be started")]
    Unknown(String),
    /// It cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// It is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// It does not run.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// The scenarios that can be started.
#[derive(Debug, Default)]
pub struct Scenarios {
    entries: Vec<ScenarioEntry>,
    own: Option<Arc<Scenario>>,
}

impl Scenarios {
    /// The built-in ones whose inputs are on this machine, after the user's own.
    pub fn with_built_in(own: Option<Arc<Scenario>>) -> Scenarios {
        // Without reading captures and traces, which takes seconds.
        let is_here = |scenario: &&BuiltIn| registry::open(scenario.name).is_ok();
        let built_in = BUILT_IN.iter().filter(is_here).map(|scenario| {
            let table: toml::Table = scenario.text.parse().unwrap_or_default();
            let about = table.get("about").and_then(toml::Value::as_str).unwrap_or_default();
            ScenarioEntry { name: scenario.name.to_owned(), about: about.to_owned() }
        });
        let entry = |own: &Arc<Scenario>| ScenarioEntry { name: own.name.clone(), about: own.about.clone() };
        let mut entries: Vec<ScenarioEntry> = own.iter().map(entry).collect();
        let own_name = own.as_ref().map(|own| own.name.as_str());
        entries.extend(built_in.filter(|entry| Some(entry.name.as_str()) != own_name));
        Scenarios { entries, own }
    }

    /// The list for the page.
    pub fn list(&self) -> &[ScenarioEntry] {
        &self.entries
    }

    /// The policies that a virtual server can run under.
    pub fn policies() -> Vec<&'static str> {
        waykeeper_policy::registry().iter().map(|entry| entry.name).collect()
    }

    /// Starts a virtual server, which holds `held` until its memory is given back.
    ///
    /// # Errors
    /// [`PlaygroundError`].
    pub fn open(
        &self,
        wish: &PlaygroundWish,
        held: impl Send + 'static,
    ) -> Result<Box<dyn Source>, PlaygroundError> {
        if !self.entries.iter().any(|entry| entry.name == wish.scenario) {
            let name = wish.scenario.chars().filter(|letter| !letter.is_control()).take(100).collect();
            return Err(PlaygroundError::Unknown(name));
        }
        let scenario = match &self.own {
            Some(own) if own.name == wish.scenario => own.clone(),
            _ => Arc::new(registry::open(&wish.scenario)?.read()?),
        };
        let (seed, speed) = (wish.seed, wish.speed);
        let setup = LiveSetup { seed, speed, nice: NICE, ..LiveSetup::new(scenario, &wish.policy) };
        Ok(Box::new(LiveScenario::start_holding(setup, held)?))
    }
}
