//! Settings of the policy `waykeeper-search`, each with unit, range and origin of its default.
//!
//! It must not know how the policy uses them.

use crate::PolicyError;
use crate::describe::SettingDescription;
use crate::settings::{Form, refuse_unknown, value};
use toml::Table;

const NAME: &str = "waykeeper-search";

/// One row of the table: key, default, range, unit, meaning, source.
struct Setting {
    key: &'static str,
    default: f64,
    #[cfg(test)]
    high: f64,
    unit: &'static str,
    meaning: &'static str,
    source: &'static str,
    get: fn(&Config) -> f64,
}

macro_rules! kind {
    (Number) => {
        f64
    };
    (Whole) => {
        u32
    };
}

macro_rules! settings {
    ($($key:ident $kind:ident $default:literal $low:literal..$high:literal $unit:literal $meaning:literal $source:literal;)*) => {
        /// The settings.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub(super) struct Config {
            $(#[doc = $meaning] pub $key: kind!($kind),)*
        }

        impl Config {
            /// Reads the settings.
            ///
            /// # Errors
            /// Unknown keys, values of the wrong kind or out of range.
            pub fn read(table: &Table) -> Result<Config, PolicyError> {
                Config::read_of(NAME, table, &[])
            }

            /// The same for another policy that has these settings and `others`, which are not in `table`.
            ///
            /// # Errors
            /// As [`Config::read`].
            pub fn read_of(policy: &str, table: &Table, others: &[&str]) -> Result<Config, PolicyError> {
                let known: Vec<&str> = [$(stringify!($key)),*].iter().chain(others).copied().collect();
                refuse_unknown(policy, table, &known)?;
                let read = |key: &str, form, default: f64, range| {
                    table.get(key).map_or(Ok(default), |found| value(policy, key, found, form, range))
                };
                Ok(Config {
                    $($key: read(stringify!($key), Form::$kind, $default, ($low, $high, $unit))? as kind!($kind),)*
                })
            }
        }

        const SETTINGS: &[Setting] = &[$(Setting {
            key: stringify!($key),
            default: $default,
            #[cfg(test)]
            high: $high,
            unit: $unit,
            meaning: $meaning,
            source: $source,
            get: |config| f64::from(config.$key),
        }),*];
    };
}

settings! {
    llc_cost Number 0.5 0.0..100.0 "" "cost of an LLC hit per packet line, relative to the line's processing" "ours: 5 ns against 10 ns of a line in an MLC";
    memory_cost Number 2.0 0.0..100.0 "" "cost of an LLC miss per packet line, relative to the line's processing" "ours: 10 to 30 ns, some of it hidden";
    lpw_weight Number 0.5 0.0..10.0 "" "weight of the LPWs' progress relative to the HPWs'" "ours";
    memory_weight Number 0.05 0.0..10.0 "" "weight of memory traffic: at 0.05, halving it is worth 3.5 % of progress" "ours";
    min_gain Number 0.01 0.0..1.0 "ratio" "least gain for which a change is kept; twice the noise if that is more" "ours";
    hpw_loss_max Number 0.1 0.0..1.0 "ratio" "largest loss of an HPW's progress relative to the first layout of the phase" "ours; A4 allows 20 % of the LLC hit ratio";
    settle_tolerance Number 0.01 0.0..1.0 "ratio" "the LLC counts as settled when two intervals differ by less" "ours";
    settle_max Whole 4.0 1.0..60.0 "intervals" "longest wait for a settled LLC" "ours: rings take up to 0.3 s of traffic to drain";
    leak_dca_miss Number 0.4 0.0..1.0 "ratio" "DCA write miss ratio above which storage may cause a leak" "A4 Table 1, DMALK_DCA_MS_THR";
    leak_llc_miss Number 0.4 0.0..1.0 "ratio" "LLC miss ratio of a storage workload whose blocks leak" "A4 Table 1, DMALK_LLC_MS_THR";
    leak_io_share Number 0.35 0.0..1.0 "ratio" "share of its device in all inbound bytes above which DCA is switched off" "A4 Table 1, DMALK_IO_TP_THR";
    suspect_io_share Number 0.1 0.0..1.0 "ratio" "share of its device in all inbound bytes above which DCA off is tried and measured" "ours";
    antagonist_miss Number 0.9 0.0..1.0 "ratio" "MLC and LLC miss ratio of a workload that gains nothing from the LLC" "A4 Table 1, ANT_CACHE_MISS_THR";
    ddio_miss Number 0.1 0.0..1.0 "ratio" "DCA write miss ratio above which devices may gain a way" "ours; IAT counts misses per second";
    phase_change Number 0.25 0.0..10.0 "ratio" "relative change of a workload's or a port's traffic that starts a new phase" "ours";
    trials_max Whole 14.0 1.0..1000.0 "" "most layouts tried in one phase" "ours";
    recheck Whole 30.0 1.0..86400.0 "intervals" "time from settling to the first trial that undoes a restriction; doubles after each trial without gain" "ours; A4 looks every 10 s";
}

impl Config {
    /// The settings for `waykeeper policy describe`.
    pub fn describe(&self) -> Vec<SettingDescription> {
        let all = SETTINGS.iter().map(|setting| {
            let about = (setting.unit, setting.meaning, setting.source);
            SettingDescription::new(setting.key, (setting.get)(self), setting.default, about)
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_costs_of_a_packet_line_are_those_that_others_measure_progress_by() {
        let (config, costs) =
            (Config::read(&Table::new()).unwrap(), waykeeper_calibration::FetchCosts::default());
        assert_eq!((config.llc_cost, config.memory_cost), (costs.llc, costs.memory));
    }

    #[test]
    fn every_setting_is_read_by_its_name_and_out_of_range_is_refused() {
        for entry in SETTINGS {
            let high = entry.high;
            let text = format!(
                "{} = {}",
                entry.key,
                if entry.default.fract() == 0.0 && high > 1.5 {
                    format!("{high:.0}")
                } else {
                    format!("{high:?}")
                }
            );
            let read = Config::read(&text.parse().unwrap()).unwrap();
            let said = read.describe().into_iter().find(|said| said.name == entry.key).unwrap();
            assert_eq!(said.value.parse::<f64>().unwrap(), high);
            let beyond = format!("{} = {}", entry.key, high as u64 + 1);
            assert!(Config::read(&beyond.parse().unwrap()).is_err(), "{beyond}");
        }
        let typo = Config::read(&"recheks = 3".parse().unwrap()).unwrap_err();
        assert!(typo.to_string().contains("did you mean `recheck`"), "{typo}");
    }
}
