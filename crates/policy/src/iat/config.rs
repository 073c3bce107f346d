//! IAT's thresholds by the paper's own names (Table II, lower case), and those that the paper leaves open.
//!
//! One table generates the struct, the reader, the range checks and the description. It must not know counters or
//! masks. All values are `f64`; counts are whole numbers, switches are 0 or 1.

use crate::describe::SettingDescription;
use crate::settings::{self, Form, refuse_unknown};
use crate::{Cause, PolicyError};
use toml::{Table, Value};

/// How closely IAT keeps to the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// As published.
    Faithful,
    /// With the ping-pong guard of algorithms.md 2.4.
    Guarded,
}

/// What a value means and how it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Ratio,
    Factor,
    PerSecond,
    PerCycle,
    Ways,
    Intervals,
    Switch,
}

impl Unit {
    fn text(self) -> &'static str {
        match self {
            Unit::Ratio => "ratio 0..1",
            Unit::Factor => "factor",
            Unit::PerSecond => "1/s",
            Unit::PerCycle => "instructions per cycle",
            Unit::Ways => "ways",
            Unit::Intervals => "intervals",
            Unit::Switch => "true or false",
        }
    }

    fn form(self) -> Form {
        match self {
            Unit::Ways | Unit::Intervals => Form::Whole,
            Unit::Switch => Form::Switch,
            _ => Form::Number,
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Unit::Switch => (value != 0.0).to_string(),
            _ => value.to_string(),
        }
    }
}

/// Which policies accept a setting: IAT alone, or also the baselines that read only core counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    Iat,
    All,
}

/// One row of the table.
struct Setting {
    name: &'static str,
    scope: Scope,
    unit: Unit,
    default: f64,
    low: f64,
    high: f64,
    source: &'static str,
    meaning: &'static [&'static str],
    get: fn(&Config) -> f64,
    set: fn(&mut Config, f64),
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+
       $name:ident: $scope:ident $unit:ident, $default:literal, range $low:literal, $high:literal,
       $source:literal;)+) => {
        /// Every threshold of IAT. Each field says its unit, default and source.
        #[derive(Clone, PartialEq, Debug)]
        pub(crate) struct Config {
            /// How closely it keeps to the paper.
            pub mode: Mode,
            $($(#[doc = $doc])+
              #[doc = concat!("\n\nUnit ", stringify!($unit), ", default ", $default, ", source: ", $source, ".")]
              pub $name: f64,)+
        }

        impl Default for Config {
            fn default() -> Config {
                Config { mode: Mode::Faithful, $($name: $default),+ }
            }
        }

        const SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($name),
            scope: Scope::$scope,
            unit: Unit::$unit,
            default: $default,
            low: $low,
            high: $high,
            source: $source,
            meaning: &[$($doc),+],
            get: |config| config.$name,
            set: |config, value| config.$name = value,
        }),+];
    };
}

settings! {
    /// Relative change of an event from one interval to the next above which it counts as changed.
    threshold_stable: All Ratio, 0.03, range 0.0, 1.0, "s4.B, Table II (THRESHOLD_STABLE)";
    /// DDIO misses above which the DDIO ways are too few.
    threshold_miss_low: Iat PerSecond, 1e6, range 0.0, 1e12, "s4.C, Table II (THRESHOLD_MISS_LOW)";
    /// Fewest DDIO ways.
    ddio_ways_min: Iat Ways, 1.0, range 1.0, 32.0, "s4.C, Table II (DDIO_WAYS_MIN)";
    /// Most DDIO ways.
    ddio_ways_max: Iat Ways, 6.0, range 1.0, 32.0, "s4.C, Table II (DDIO_WAYS_MAX)";
    /// Fewest DDIO ways that the machine accepts, if more than ddio_ways_min.
    ddio_ways_floor: Iat Ways, 2.0, range 1.0, 32.0, "ddio-bench s4.4: the two default bits cannot be cleared";
    /// A fall of DDIO misses to this share of their number on entering the state is severe.
    severe_fall: Iat Ratio, 0.5, range 0.0, 1.0, "ours; s4.C gives no size";
    /// Lower bound of IPC in comparisons: a smaller value counts as this one.
    ipc_floor: All PerCycle, 0.01, range 0.0, 10.0, "ours, against noise of idle tenants";
    /// Lower bound of LLC references and misses in comparisons: smaller values count as this one.
    llc_floor: All PerSecond, 1e4, range 0.0, 1e12, "ours, against noise of idle tenants";
    /// Lower bound of DDIO hits and misses in comparisons, as a share of threshold_miss_low.
    ddio_floor_share: Iat Ratio, 0.05, range 0.0, 1.0, "ours, against noise of idle devices";
    /// Whether tenants gain and lose ways; if false, IAT only sizes the DDIO ways and shuffles.
    tenant_sizing: Iat Switch, 1.0, range 0.0, 1.0, "s6.C runs applications with it off";
    /// Whether DDIO gains and loses ways; if false, IAT follows the number that others set.
    ddio_sizing: Iat Switch, 1.0, range 0.0, 1.0, "s6.B sets the DDIO ways of Figs. 10 and 11 by hand";
    /// Guarded mode: time without another reclaim below a way count whose reclaim had to be undone.
    guard_intervals: Iat Intervals, 10.0, range 1.0, 1e6, "ours";
    /// Guarded mode: factor by which that time grows at each further undone reclaim.
    guard_backoff: Iat Factor, 2.0, range 1.0, 100.0, "ours: under a steady load IAT must settle";
}

/// Names of the modes, as `mode` takes them.
const MODES: [(&str, Mode); 2] = [("faithful", Mode::Faithful), ("guarded", Mode::Guarded)];

impl Config {
    /// Reads IAT's settings.
    ///
    /// # Errors
    /// An unknown key or mode, a value of the wrong kind or out of range.
    pub fn read(policy: &str, table: &Table) -> Result<Config, PolicyError> {
        let mut config = Config::read_scope(policy, table, |_| true, &["mode"])?;
        config.mode = settings::choice(policy, table, "mode", (Mode::Faithful, "a mode's name"), &MODES)?;
        Ok(config)
    }

    /// Reads the settings of a baseline that reads only core counters.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn read_core_side(policy: &str, table: &Table) -> Result<Config, PolicyError> {
        Config::read_scope(policy, table, |scope| scope == Scope::All, &[])
    }

    fn read_scope(
        policy: &str,
        table: &Table,
        takes: fn(Scope) -> bool,
        others: &[&str],
    ) -> Result<Config, PolicyError> {
        let taken = || SETTINGS.iter().filter(move |setting| takes(setting.scope));
        let accepted: Vec<&str> = others.iter().copied().chain(taken().map(|setting| setting.name)).collect();
        refuse_unknown(policy, table, &accepted)?;
        let mut config = Config::default();
        for setting in taken() {
            if let Some(value) = table.get(setting.name) {
                (setting.set)(&mut config, setting.read(policy, value)?);
            }
        }
        Ok(config)
    }

    /// All settings of IAT with the values in force.
    pub fn describe(&self) -> Vec<SettingDescription> {
        let name = if self.mode == Mode::Faithful { MODES[0].0 } else { MODES[1].0 };
        let mode = SettingDescription {
            name: "mode".to_owned(),
            value: format!("\"{name}\""),
            default: format!("\"{}\"", MODES[0].0),
            unit: "name".to_owned(),
            meaning: "guarded: a reclaim that had to be undone is not tried again for guard_intervals"
                .to_owned(),
            source: "ours".to_owned(),
        };
        std::iter::once(mode).chain(SETTINGS.iter().map(|setting| setting.describe(self))).collect()
    }

    /// The settings of a core-side baseline.
    pub fn describe_core_side(&self) -> Vec<SettingDescription> {
        let taken = SETTINGS.iter().filter(|setting| setting.scope == Scope::All);
        taken.map(|setting| setting.describe(self)).collect()
    }

    /// A cause: `value`, compared with one of the thresholds.
    ///
    /// # Panics
    /// If there is no setting called `threshold`.
    pub fn cause(&self, what: impl Into<String>, value: f64, threshold: &str) -> Cause {
        let setting = SETTINGS.iter().find(|setting| setting.name == threshold).expect("a setting of IAT");
        Cause { what: what.into(), value, limit: Some((threshold.to_owned(), (setting.get)(self))) }
    }

    /// Lower bound of DDIO counts in comparisons: smaller counts count as this one.
    pub fn ddio_floor(&self) -> f64 {
        self.ddio_floor_share * self.threshold_miss_low
    }
}

impl Setting {
    fn describe(&self, config: &Config) -> SettingDescription {
        SettingDescription {
            name: self.name.to_owned(),
            value: self.unit.show((self.get)(config)),
            default: self.unit.show(self.default),
            unit: self.unit.text().to_owned(),
            meaning: self.meaning.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
            source: self.source.to_owned(),
        }
    }

    fn read(&self, policy: &str, value: &Value) -> Result<f64, PolicyError> {
        settings::value(policy, self.name, value, self.unit.form(), (self.low, self.high, self.unit.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!((setting.low..=setting.high).contains(&setting.default), "{}", setting.name);
            assert!(setting.unit.form() != Form::Whole || setting.default.fract() == 0.0, "{}", setting.name);
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
