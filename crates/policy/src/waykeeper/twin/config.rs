//! Settings of the policy `waykeeper`: those of `waykeeper-search`, and its own. It must not know how they are used.

use super::super::config::Config;
use crate::PolicyError;
use crate::describe::SettingDescription;
use crate::settings::{Form, value};
use toml::Table;
use waykeeper_calibration::Goal;

pub(super) const NAME: &str = "waykeeper";

/// The settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct TwinConfig {
    /// The settings of `waykeeper`.
    pub measured: Config,
    /// Largest loss of LPWs together since the state as found, and of each LPW for which HPWs do not gain
    /// `gain_per_loss` times as much.
    pub lpw_loss_max: f64,
    /// HPWs must gain so many times what LPWs with a larger loss lose, weighted by cores.
    pub gain_per_loss: f64,
    /// What progress of a workload on a NIC counts beside that of others.
    pub latency_weight: f64,
    /// Mean error of predictions above which a tenant counts as not predictable.
    pub prediction_error_max: f64,
    /// Most questions in a phase.
    pub questions_max: u32,
    /// Most answers that are tried per question.
    pub tries_max: u32,
}

/// The setting of `waykeeper` whose default differs: HPWs come first, and floors protect LPWs.
const LPW_WEIGHT: (&str, f64) = ("lpw_weight", 0.1);

/// One row of the table of its own settings: key, form, default, range and unit, meaning, source.
type Row = (&'static str, Form, f64, (f64, f64, &'static str), &'static str, &'static str);

const ROWS: [Row; 6] = [
    (
        "lpw_loss_max",
        Form::Number,
        0.03,
        (0.0, 1.0, "ratio"),
        "largest loss of LPWs together since the state as found, and of each for which HPWs do not gain enough",
        "ours",
    ),
    (
        "gain_per_loss",
        Form::Number,
        2.0,
        (0.0, 100.0, ""),
        "HPWs must gain so many times what LPWs with a larger loss lose, weighted by cores",
        "ours",
    ),
    (
        "latency_weight",
        Form::Number,
        3.0,
        (0.0, 100.0, ""),
        "what progress of a workload on a NIC counts: its latency falls by more than its work per packet",
        "ours: 1 / (1 - load) of a queue whose core is busy for two thirds",
    ),
    (
        "prediction_error_max",
        Form::Number,
        0.08,
        (0.0, 10.0, "ratio"),
        "mean error of predicted progress above which a tenant counts as not predictable",
        "ours",
    ),
    ("questions_max", Form::Whole, 3.0, (1.0, 100.0, ""), "most questions in a phase", "ours"),
    ("tries_max", Form::Whole, 1.0, (1.0, 100.0, ""), "most layouts tried per question", "ours"),
];

impl TwinConfig {
    /// Reads the settings.
    ///
    /// # Errors
    /// Unknown keys, values of the wrong kind or out of range.
    pub fn read(table: &Table) -> Result<TwinConfig, PolicyError> {
        let read = |index: usize| {
            let (key, form, default, range, ..) = ROWS[index];
            table.get(key).map_or(Ok(default), |found| value(NAME, key, found, form, range))
        };
        let own = [read(0)?, read(1)?, read(2)?, read(3)?, read(4)?, read(5)?];
        let keys = ROWS.map(|row| row.0);
        let mut rest = table.clone();
        keys.iter().for_each(|key| _ = rest.remove(*key));
        rest.entry(LPW_WEIGHT.0).or_insert(toml::Value::Float(LPW_WEIGHT.1));
        Ok(TwinConfig {
            measured: Config::read_of(NAME, &rest, &keys)?,
            lpw_loss_max: own[0],
            gain_per_loss: own[1],
            latency_weight: own[2],
            prediction_error_max: own[3],
            questions_max: own[4] as u32,
            tries_max: own[5] as u32,
        })
    }

    /// The goal of questions, and of what is measured.
    pub fn goal(&self) -> Goal {
        let TwinConfig { measured, lpw_loss_max, gain_per_loss, latency_weight, .. } = *self;
        Goal {
            lpw_floor: 1.0 - lpw_loss_max,
            lpw_each: 1.0 - lpw_loss_max,
            gain_per_loss,
            hpw_floor: 1.0 - measured.hpw_loss_max,
            lpw_weight: measured.lpw_weight,
            latency_weight,
            llc_cost: measured.llc_cost,
            memory_cost: measured.memory_cost,
        }
    }

    /// The settings for `waykeeper policy describe`.
    pub fn describe(&self) -> Vec<SettingDescription> {
        let values = [
            self.lpw_loss_max,
            self.gain_per_loss,
            self.latency_weight,
            self.prediction_error_max,
            self.questions_max.into(),
            self.tries_max.into(),
        ];
        let own = ROWS.iter().zip(values).map(|((key, _, default, range, meaning, source), value)| {
            SettingDescription::new(key, value, *default, (range.2, meaning, source))
        });
        let shared = self.measured.describe().into_iter().map(|setting| {
            let default =
                if setting.name == LPW_WEIGHT.0 { LPW_WEIGHT.1.to_string() } else { setting.default.clone() };
            SettingDescription { default, ..setting }
        });
        own.chain(shared).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_settings_and_those_of_waykeeper_are_read_and_others_refused() {
        let table = "lpw_loss_max = 0.1\ntries_max = 5\nmin_gain = 0.5".parse().unwrap();
        let config = TwinConfig::read(&table).unwrap();
        assert_eq!((config.lpw_loss_max, config.tries_max, config.measured.min_gain), (0.1, 5, 0.5));
        assert_eq!(TwinConfig::read(&Table::new()).unwrap().gain_per_loss, 2.0);
        let refused = |text: &str| TwinConfig::read(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(
            refused("lpw_loss = 0.1").contains("did you mean `lpw_loss_max`"),
            "{}",
            refused("lpw_loss = 0.1")
        );
        assert!(refused("lpw_loss_max = 2.0").contains("waykeeper"), "{}", refused("lpw_loss_max = 2.0"));
    }
}
