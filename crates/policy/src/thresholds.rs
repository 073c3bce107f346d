//! Thresholds of policies that follow a paper: one table per policy gives the struct, the reader, the range checks and
//! the description.
//!
//! All values are `f64`; counts are whole numbers, switches are 0 or 1. It must not know any threshold or policy.

use crate::describe::SettingDescription;
use crate::settings::{self, Form};
use crate::{Cause, PolicyError};
use toml::Table;

/// What a value means and how it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// 0..1.
    Ratio,
    /// A difference of two ratios: 0.05 is five percentage points.
    Points,
    /// A multiple.
    Factor,
    /// Seconds.
    Seconds,
    /// Events per second.
    PerSecond,
    /// Instructions per cycle.
    PerCycle,
    /// A whole number of ways.
    Ways,
    /// A whole number of monitoring samples.
    Samples,
    /// A whole number of intervals.
    Intervals,
    /// true or false.
    Switch,
}

impl Unit {
    fn text(self) -> &'static str {
        match self {
            Unit::Ratio => "ratio 0..1",
            Unit::Points => "difference of ratios 0..1",
            Unit::Factor => "factor",
            Unit::Seconds => "s",
            Unit::PerSecond => "1/s",
            Unit::PerCycle => "instructions per cycle",
            Unit::Ways => "ways",
            Unit::Samples => "samples",
            Unit::Intervals => "intervals",
            Unit::Switch => "true or false",
        }
    }

    /// How TOML writes the value.
    pub(crate) fn form(self) -> Form {
        match self {
            Unit::Ways | Unit::Samples | Unit::Intervals => Form::Whole,
            Unit::Switch => Form::Switch,
            _ => Form::Number,
        }
    }

    /// The value in TOML syntax.
    fn show(self, value: f64) -> String {
        match self {
            Unit::Switch => (value != 0.0).to_string(),
            _ => value.to_string(),
        }
    }
}

/// One threshold of the configuration `C`.
pub(crate) struct Threshold<C> {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) source: &'static str,
    pub(crate) meaning: &'static [&'static str],
    pub(crate) get: fn(&C) -> f64,
    pub(crate) set: fn(&mut C, f64),
}

impl<C> Threshold<C> {
    /// The threshold with the value of `config`, beside the one of `defaults`.
    pub(crate) fn describe(&self, config: &C, defaults: &C) -> SettingDescription {
        SettingDescription {
            name: self.name.to_owned(),
            value: self.unit.show((self.get)(config)),
            default: self.unit.show((self.get)(defaults)),
            unit: self.unit.text().to_owned(),
            meaning: self.meaning.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
            source: self.source.to_owned(),
        }
    }

    /// Reads the threshold into `config` if `table` has it.
    ///
    /// # Errors
    /// A value of the wrong kind or out of range.
    pub(crate) fn read(&self, policy: &str, table: &Table, config: &mut C) -> Result<(), PolicyError> {
        if let Some(value) = table.get(self.name) {
            let range = (self.low, self.high, self.unit.text());
            (self.set)(config, settings::value(policy, self.name, value, self.unit.form(), range)?);
        }
        Ok(())
    }

    /// A cause: `value`, compared with one of `thresholds`.
    ///
    /// # Panics
    /// If none of them is called `name`.
    pub(crate) fn cause(thresholds: &[Self], config: &C, what: String, value: f64, name: &str) -> Cause {
        let found = thresholds.iter().find(|threshold| threshold.name == name).expect("a known threshold");
        Cause { what, value, limit: Some((name.to_owned(), (found.get)(config))) }
    }
}

/// The setting that selects one of some words: its key, its value, the usual value and its meaning.
pub(crate) fn describe_choice(name: &str, value: &str, usual: &str, meaning: &str) -> SettingDescription {
    let quoted = |word: &str| format!("\"{word}\"");
    SettingDescription::new(name, quoted(value), quoted(usual), ("name", meaning, "ours"))
}

/// A struct with one field per threshold, and the list `SETTINGS`.
///
/// The field in braces selects between defaults. A row has one default, or a second one with the name of its profile.
macro_rules! thresholds {
    ($(#[$about:meta])*
     $vis:vis struct $config:ident { $(#[$choice_about:meta])* $choice:ident: $choices:ty }
     $($(#[doc = $doc:literal])+
       $name:ident: $unit:ident [$default:literal $(, $profile:ident $other:literal)?],
       range $low:literal, $high:literal, $source:literal;)+) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug)]
        $vis struct $config {
            $(#[$choice_about])*
            pub $choice: $choices,
            $($(#[doc = $doc])+
              #[doc = concat!("\n\nUnit ", stringify!($unit), ", default ", $default,
                              $(" (", stringify!($profile), " profile ", $other, ")",)?
                              ", source: ", $source, ".")]
              pub $name: f64,)+
        }

        impl $config {
            /// All defaults; if `second`, the second one of each row that has two.
            fn defaults($choice: $choices, second: bool) -> $config {
                let pick = |defaults: &[f64]| defaults[usize::from(second).min(defaults.len() - 1)];
                $config { $choice, $($name: pick(&[$default $(, $other)?])),+ }
            }
        }

        const SETTINGS: &[$crate::thresholds::Threshold<$config>] = &[$($crate::thresholds::Threshold {
            name: stringify!($name),
            unit: $crate::thresholds::Unit::$unit,
            low: $low,
            high: $high,
            source: $source,
            meaning: &[$($doc),+],
            get: |config| config.$name,
            set: |config, value| config.$name = value,
        }),+];
    };
}
pub(crate) use thresholds;
