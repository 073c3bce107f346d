//! Settings of the policy `waykeeper`, each with its unit, its range and where its default comes from.
//!
//! Knows numbers; must not know what is done with them.

use crate::PolicyError;
use crate::describe::SettingDescription;
use crate::settings::{number, refuse_unknown, whole};
use toml::Table;

const NAME: &str = "waykeeper";

/// The settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Config {
    pub llc_cost: f64,
    pub memory_cost: f64,
    pub lpw_weight: f64,
    pub memory_weight: f64,
    pub min_gain: f64,
    pub hpw_loss_max: f64,
    pub settle_tolerance: f64,
    pub settle_max: u32,
    pub leak_dca_miss: f64,
    pub leak_llc_miss: f64,
    pub leak_io_share: f64,
    pub suspect_io_share: f64,
    pub antagonist_miss: f64,
    pub ddio_miss: f64,
    pub phase_change: f64,
    pub trials_max: u32,
    pub recheck: u32,
}

/// One number of the configuration: key, default, range, unit, meaning, source.
struct Entry {
    key: &'static str,
    default: f64,
    range: (f64, f64),
    unit: &'static str,
    meaning: &'static str,
    source: &'static str,
    value: fn(&mut Config) -> Slot<'_>,
}

enum Slot<'a> {
    Number(&'a mut f64),
    Whole(&'a mut u32),
}

macro_rules! entries {
    ($($key:ident $slot:ident $default:literal $low:literal..$high:literal $unit:literal $meaning:literal $source:literal;)*) => {
        const ENTRIES: &[Entry] = &[$(Entry {
            key: stringify!($key),
            default: $default,
            range: ($low, $high),
            unit: $unit,
            meaning: $meaning,
            source: $source,
            value: |config| Slot::$slot(&mut config.$key),
        }),*];
    };
}

entries! {
    llc_cost Number 0.5 0.0..100.0 "" "cost of an LLC hit per packet line against the line's own work" "ours: 5 ns against 10 ns of a line in an MLC";
    memory_cost Number 2.0 0.0..100.0 "" "cost of an LLC miss per packet line, likewise" "ours: 10 to 30 ns, some of it hidden";
    lpw_weight Number 0.5 0.0..10.0 "" "what LPWs' progress counts against HPWs'" "ours";
    memory_weight Number 0.05 0.0..10.0 "" "what memory traffic counts: at 0.05 half of it is worth 3.5 % of progress" "ours";
    min_gain Number 0.01 0.0..1.0 "ratio" "a change is kept if it gains this much, or twice the noise" "ours";
    hpw_loss_max Number 0.1 0.0..1.0 "ratio" "no HPW may lose more of its progress than this against the open LLC" "ours; A4 allows 20 % of the LLC hit ratio";
    settle_tolerance Number 0.01 0.0..1.0 "ratio" "two intervals that differ by less show a settled LLC" "ours";
    settle_max Whole 4.0 1.0..60.0 "intervals" "longest wait for that" "ours: rings take up to 0.3 s of traffic to drain";
    leak_dca_miss Number 0.4 0.0..1.0 "ratio" "DCA writes that miss, above which storage may be the cause" "A4 Table 1, DMALK_DCA_MS_THR";
    leak_llc_miss Number 0.4 0.0..1.0 "ratio" "LLC miss ratio of a storage workload whose blocks leak" "A4 Table 1, DMALK_LLC_MS_THR";
    leak_io_share Number 0.35 0.0..1.0 "ratio" "its device's share of all inbound bytes" "A4 Table 1, DMALK_IO_TP_THR";
    suspect_io_share Number 0.1 0.0..1.0 "ratio" "the same, from which on DCA off is tried and measured" "ours";
    antagonist_miss Number 0.9 0.0..1.0 "ratio" "MLC and LLC miss ratio of a workload that gains nothing from the LLC" "A4 Table 1, ANT_CACHE_MISS_THR";
    ddio_miss Number 0.1 0.0..1.0 "ratio" "DCA writes that miss, above which devices may get another way" "ours; IAT counts misses per second";
    phase_change Number 0.25 0.0..10.0 "ratio" "change of a workload's or a port's own traffic that is another phase" "ours";
    trials_max Whole 14.0 1.0..1000.0 "" "most layouts tried in one phase" "ours";
    recheck Whole 30.0 1.0..86400.0 "intervals" "from settling to the first look at what was taken away; doubles each time nothing came of it" "ours; A4 looks every 10 s";
}

impl Default for Config {
    fn default() -> Config {
        Config::read(&Table::new()).expect("the defaults are in their ranges")
    }
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// Unknown keys, values of the wrong kind or out of range.
    pub fn read(table: &Table) -> Result<Config, PolicyError> {
        let keys: Vec<&str> = ENTRIES.iter().map(|entry| entry.key).collect();
        refuse_unknown(NAME, table, &keys)?;
        let mut config = Config {
            llc_cost: 0.0,
            memory_cost: 0.0,
            lpw_weight: 0.0,
            memory_weight: 0.0,
            min_gain: 0.0,
            hpw_loss_max: 0.0,
            settle_tolerance: 0.0,
            settle_max: 0,
            leak_dca_miss: 0.0,
            leak_llc_miss: 0.0,
            leak_io_share: 0.0,
            suspect_io_share: 0.0,
            antagonist_miss: 0.0,
            ddio_miss: 0.0,
            phase_change: 0.0,
            trials_max: 0,
            recheck: 0,
        };
        for entry in ENTRIES {
            let (low, high) = entry.range;
            match (entry.value)(&mut config) {
                Slot::Number(slot) => {
                    *slot = number(NAME, table, entry.key, entry.default, (low, high, entry.unit))?;
                }
                Slot::Whole(slot) => {
                    let range = (low as u32, high as u32, entry.unit);
                    *slot = whole(NAME, table, entry.key, entry.default as u32, range)?;
                }
            }
        }
        Ok(config)
    }

    /// What `waykeeper policy describe` says of them.
    pub fn describe(&self) -> Vec<SettingDescription> {
        let mut copy = *self;
        let all = ENTRIES.iter().map(|entry| {
            let value = match (entry.value)(&mut copy) {
                Slot::Number(value) => *value,
                Slot::Whole(value) => f64::from(*value),
            };
            SettingDescription::new(
                entry.key,
                value,
                entry.default,
                (entry.unit, entry.meaning, entry.source),
            )
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_read_by_its_name_and_out_of_range_is_refused() {
        for entry in ENTRIES {
            let high = entry.range.1;
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
