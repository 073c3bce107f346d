//! IAT's thresholds by the paper's own names (Table II, lower case), and those that the paper leaves open.
//!
//! It must not know counters or masks.

use crate::describe::SettingDescription;
use crate::settings::{choice, refuse_unknown};
use crate::thresholds::{Threshold, describe_choice, thresholds};
use crate::{Cause, PolicyError};
use toml::Table;

/// How closely IAT keeps to the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// As published.
    Faithful,
    /// With the ping-pong guard of algorithms.md 2.4.
    Guarded,
}

thresholds! {
    /// Every threshold of IAT. Each field says its unit, default and source.
    pub(crate) struct Config {
        /// How closely it keeps to the paper.
        mode: Mode
    }

    /// Relative change of an event from one interval to the next above which it counts as changed.
    threshold_stable: Ratio [0.03], range 0.0, 1.0, "s4.B, Table II (THRESHOLD_STABLE)";
    /// DDIO misses above which the DDIO ways are too few.
    threshold_miss_low: PerSecond [1e6], range 0.0, 1e12, "s4.C, Table II (THRESHOLD_MISS_LOW)";
    /// Fewest DDIO ways.
    ddio_ways_min: Ways [1.0], range 1.0, 32.0, "s4.C, Table II (DDIO_WAYS_MIN)";
    /// Most DDIO ways.
    ddio_ways_max: Ways [6.0], range 1.0, 32.0, "s4.C, Table II (DDIO_WAYS_MAX)";
    /// Fewest DDIO ways that the machine accepts, if more than ddio_ways_min.
    ddio_ways_floor: Ways [2.0], range 1.0, 32.0, "ddio-bench s4.4: the two default bits cannot be cleared";
    /// A fall of DDIO misses to this share of their number on entering the state is severe.
    severe_fall: Ratio [0.5], range 0.0, 1.0, "ours; s4.C gives no size";
    /// Lower bound of IPC in comparisons: a smaller value counts as this one.
    ipc_floor: PerCycle [0.01], range 0.0, 10.0, "ours, against noise of idle tenants";
    /// Lower bound of LLC references and misses in comparisons: smaller values count as this one.
    llc_floor: PerSecond [1e4], range 0.0, 1e12, "ours, against noise of idle tenants";
    /// Lower bound of DDIO hits and misses in comparisons, as a share of threshold_miss_low.
    ddio_floor_share: Ratio [0.05], range 0.0, 1.0, "ours, against noise of idle devices";
    /// Whether tenants gain and lose ways; if false, IAT only sizes the DDIO ways and shuffles.
    tenant_sizing: Switch [1.0], range 0.0, 1.0, "s6.C runs applications with it off";
    /// Whether DDIO gains and loses ways; if false, IAT follows the number that others set.
    ddio_sizing: Switch [1.0], range 0.0, 1.0, "s6.B sets the DDIO ways of Figs. 10 and 11 by hand";
    /// Guarded mode: time without another reclaim below a way count whose reclaim had to be undone.
    guard_intervals: Intervals [10.0], range 1.0, 1e6, "ours";
    /// Guarded mode: factor by which that time grows at each further undone reclaim.
    guard_backoff: Factor [2.0], range 1.0, 100.0, "ours: under a steady load IAT must settle";
}

/// The settings that baselines accept that read only core counters.
const CORE_SIDE: [&str; 3] = ["threshold_stable", "ipc_floor", "llc_floor"];

/// Names of the modes, as `mode` takes them.
const MODES: [(&str, Mode); 2] = [("faithful", Mode::Faithful), ("guarded", Mode::Guarded)];

impl Default for Config {
    fn default() -> Config {
        Config::defaults(Mode::Faithful, false)
    }
}

/// The thresholds that a core-side baseline accepts.
fn core_side() -> impl Iterator<Item = &'static Threshold<Config>> {
    SETTINGS.iter().filter(|setting| CORE_SIDE.contains(&setting.name))
}

impl Config {
    /// Reads IAT's settings.
    ///
    /// # Errors
    /// An unknown key or mode, a value of the wrong kind or out of range.
    pub fn read(policy: &str, table: &Table) -> Result<Config, PolicyError> {
        let mut accepted: Vec<&str> = vec!["mode"];
        accepted.extend(SETTINGS.iter().map(|setting| setting.name));
        refuse_unknown(policy, table, &accepted)?;
        let mut config = Config::default();
        SETTINGS.iter().try_for_each(|setting| setting.read(policy, table, &mut config))?;
        config.mode = choice(policy, table, "mode", (Mode::Faithful, "a mode's name"), &MODES)?;
        Ok(config)
    }

    /// Reads the settings of a baseline that reads only core counters.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn read_core_side(policy: &str, table: &Table) -> Result<Config, PolicyError> {
        refuse_unknown(policy, table, &CORE_SIDE)?;
        let mut config = Config::default();
        core_side().try_for_each(|setting| setting.read(policy, table, &mut config))?;
        Ok(config)
    }

    /// All settings of IAT with the values in force.
    pub fn describe(&self) -> Vec<SettingDescription> {
        let name = if self.mode == Mode::Faithful { MODES[0].0 } else { MODES[1].0 };
        let meaning = "guarded: a reclaim that had to be undone is not tried again for guard_intervals";
        let mode = describe_choice("mode", name, MODES[0].0, meaning);
        let defaults = Config::default();
        let rest = SETTINGS.iter().map(|setting| setting.describe(self, &defaults));
        std::iter::once(mode).chain(rest).collect()
    }

    /// The settings of a core-side baseline.
    pub fn describe_core_side(&self) -> Vec<SettingDescription> {
        let defaults = Config::default();
        core_side().map(|setting| setting.describe(self, &defaults)).collect()
    }

    /// A cause: `value`, compared with one of the thresholds.
    ///
    /// # Panics
    /// If there is no setting called `threshold`.
    pub fn cause(&self, what: impl Into<String>, value: f64, threshold: &str) -> Cause {
        Threshold::cause(SETTINGS, self, what.into(), value, threshold)
    }

    /// Lower bound of DDIO counts in comparisons: smaller counts count as this one.
    pub fn ddio_floor(&self) -> f64 {
        self.ddio_floor_share * self.threshold_miss_low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Form;

    fn read(text: &str) -> Result<Config, String> {
        Config::read("iat", &text.parse().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_papers_values_are_the_defaults() {
        // Table II: 3 %, 1 M/s, 1 and 6 ways.
        let config = read("").unwrap();
        assert_eq!([config.threshold_stable, config.threshold_miss_low], [0.03, 1e6]);
        assert_eq!([config.ddio_ways_min, config.ddio_ways_max], [1.0, 6.0]);
        assert_eq!(config.mode, Mode::Faithful);
        // 5 % of 1 M/s.
        assert_eq!(config.ddio_floor(), 5e4);
    }

    #[test]
    fn every_default_lies_in_its_own_range() {
        for setting in SETTINGS {
            let default = (setting.get)(&Config::default());
            assert!((setting.low..=setting.high).contains(&default), "{}", setting.name);
            assert!(setting.unit.form() != Form::Whole || default.fract() == 0.0, "{}", setting.name);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refusal = |text| read(text).unwrap_err();
        assert!(refusal("threshold_stabel = 0.1").contains("did you mean `threshold_stable`?"));
        assert_eq!(
            refusal("ddio_ways_max = 40"),
            "iat: `ddio_ways_max` = 40 is out of range; give ways from 1 to 32"
        );
        assert_eq!(
            refusal("ddio_ways_max = 1.5"),
            "iat: `ddio_ways_max` must be a whole number, not a float 1.5"
        );
        assert_eq!(
            refusal("tenant_sizing = 1"),
            "iat: `tenant_sizing` must be true or false, not an integer 1"
        );
        assert!(refusal("threshold_stable = nan").contains("out of range"));
        assert_eq!(
            refusal("mode = \"guardd\""),
            "iat: `mode` cannot be `guardd`; did you mean `guarded`?; accepted are faithful, guarded"
        );
        assert!(refusal("mode = 1").contains("must be a mode's name"));
    }

    #[test]
    fn a_core_side_baseline_takes_no_setting_of_the_io_side() {
        let table = |text: &str| text.parse::<Table>().unwrap();
        assert!(Config::read_core_side("core-only", &table("threshold_stable = 0.1")).is_ok());
        let error = Config::read_core_side("core-only", &table("ddio_ways_max = 4")).unwrap_err().to_string();
        assert!(error.ends_with("accepted are threshold_stable, ipc_floor, llc_floor"), "{error}");
    }
}
