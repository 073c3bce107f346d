//! A4's thresholds and intervals, by the paper's own names, in the two profiles `paper` and `artifact`.
//!
//! It must not know counters or masks. A threshold marked "0 = not tested" is off at 0. A row has one default for both
//! profiles, or a second one for the profile `artifact`.

use crate::describe::SettingDescription;
use crate::settings::{choice, refuse_unknown};
use crate::thresholds::{Threshold, describe_choice, thresholds};
use crate::{Cause, PolicyError};
use toml::Table;

/// The source of the defaults where paper and artifact differ (algorithms.md 3.2-3.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Profile {
    /// The ISCA 2025 paper, with our resolutions where it is silent.
    Paper,
    /// The authors' published scripts.
    Artifact,
}

thresholds! {
    /// Every threshold and interval of A4. Each field says its unit, default and source.
    pub(super) struct Config {
        /// Which profile the defaults came from.
        profile: Profile
    }

    /// Largest relative loss of any HPW's LLC hit ratio before the LP zone steps back; also what counts as
    /// a phase change.
    hpw_llc_hit_thr: Ratio [0.20], range 0.0, 1.0, "s5.2, Table 1 (HPW_LLC_HIT_THR)";
    /// A hit-ratio loss must also be larger than this, so that the noise of ratios of a few percent does
    /// not stop the search.
    hit_point_guard: Points [0.05], range 0.0, 1.0, "artifact; the paper has none";
    /// A hit ratio must move this far from its settled value to be a phase change.
    phase_point_guard: Points [0.10], range 0.0, 1.0, "artifact; the paper has none";
    /// Chip-wide DCA write miss ratio above which I/O lines are evicted too often.
    dmalk_dca_ms_thr: Ratio [0.40], range 0.0, 1.0, "s5.4, Table 1 (DMALK_DCA_MS_THR)";
    /// LLC miss ratio of a storage workload above which its DMA leaks.
    dmalk_llc_ms_thr: Ratio [0.40], range 0.0, 1.0, "s5.4, Table 1 (DMALK_LLC_MS_THR)";
    /// Share of all inbound I/O bytes above which a storage workload causes the leak.
    dmalk_io_tp_thr: Ratio [0.35], range 0.0, 1.0, "s5.4, Table 1 (DMALK_IO_TP_THR)";
    /// MLC miss ratio above which, together with ant_llc_miss_thr, a non-I/O workload is an antagonist.
    ant_mlc_miss_thr: Ratio [0.90, artifact 0.80], range 0.0, 1.0, "s5.5, Table 1 (ANT_CACHE_MISS_THR)";
    /// LLC miss ratio above which, together with ant_mlc_miss_thr, a non-I/O workload is an antagonist.
    ant_llc_miss_thr: Ratio [0.90], range 0.0, 1.0, "s5.5, Table 1 (ANT_CACHE_MISS_THR)";
    /// Fewest LLC references at which a workload's ratios are used; with fewer the workload counts as idle.
    min_llc_refs: PerSecond [1e5], range 0.0, 1e12, "ours";
    /// Monitoring samples in a row that must show an antagonist, a phase change or a restoration.
    samples_in_a_row: Samples [2.0], range 1.0, 100.0, "ours, to ignore start-up transients";
    /// Monitoring interval of the control loop; timers tolerate a twentieth of it.
    monitor_interval_s: Seconds [1.0], range 0.001, 3600.0, "s5.6, s6";
    /// Time between two changes of the LP zone or of the trash ways.
    expand_interval_s: Seconds [2.0], range 0.001, 3600.0, "s5.2, s6";
    /// Time after a change whose samples are discarded.
    settle_s: Seconds [1.0, artifact 0.0], range 0.0, 3600.0, "ours; the artifact averages all samples";
    /// Stable time after which the initial partitions are tried again.
    stable_interval_s: Seconds [10.0], range 0.001, 86400.0, "s5.6, Table 1";
    /// How long the initial partitions are tried.
    revert_interval_s: Seconds [1.0], range 0.001, 3600.0, "s5.6, Table 1";
    /// Whether the initial partitions are tried again at all.
    revert: Switch [1.0, artifact 0.0], range 0.0, 1.0, "s5.6; not implemented in the artifact";
    /// Relative rise of an antagonist's LLC miss ratio that stops the trash ways from shrinking
    /// (0 = not tested).
    bypass_llc_miss_thr: Ratio [0.10, artifact 0.05], range 0.0, 1.0, "s5.5";
    /// Relative rise of an antagonist's MLC miss ratio that stops the shrinking (0 = not tested).
    bypass_mlc_miss_thr: Ratio [0.0, artifact 0.05], range 0.0, 1.0, "artifact only";
    /// Relative fall of a storage antagonist's throughput that stops the shrinking (0 = not tested).
    bypass_storage_thr: Ratio [0.10, artifact 0.30], range 0.0, 1.0, "s5.5";
    /// Relative fall of network throughput that stops the shrinking (0 = not tested).
    bypass_network_thr: Ratio [0.0, artifact 0.01], range 0.0, 1.0, "artifact only";
    /// Relative rise of memory bandwidth that stops the shrinking (0 = not tested).
    bypass_memory_thr: Ratio [0.10], range 0.0, 1.0, "s5.5";
    /// Fewest trash ways.
    trash_min_ways: Ways [1.0, artifact 2.0], range 1.0, 32.0, "s5.5 (way[8] alone); artifact 0x00c";
    /// Relative change of an antagonist's LLC miss ratio, up or down, that restores its priority.
    restore_llc_miss_thr: Ratio [0.10, artifact 0.05], range 0.0, 1.0, "ours; s5.6 gives no size";
    /// Relative change of an antagonist's MLC miss ratio that restores its priority (0 = not tested).
    restore_mlc_miss_thr: Ratio [0.0, artifact 0.10], range 0.0, 1.0, "artifact only";
    /// Relative change of a storage antagonist's throughput, up or down, that restores its priority.
    restore_storage_thr: Ratio [0.30], range 0.0, 1.0, "artifact (falls only); s5.6 gives no size";
    /// Time after a restoration during which a storage workload is not tested again.
    holdoff_s: Seconds [10.0], range 0.0, 86400.0, "ours";
    /// The search also stops when the DCA write miss ratio exceeds this multiple of its initial value
    /// (0 = not tested).
    expand_dca_stop: Factor [0.0], range 0.0, 1000.0, "artifact, deprecated there";
    /// Keep LPWs off the inclusive ways even when no I/O HPW runs.
    lpw_never_inclusive: Switch [0.0, artifact 1.0], range 0.0, 1.0, "artifact; s5.2 starts at way[9:10]";
}

/// Names of the profiles, as `profile` takes them.
const PROFILES: [(&str, Profile); 2] = [("paper", Profile::Paper), ("artifact", Profile::Artifact)];

impl Config {
    /// All defaults of a profile.
    pub fn of(profile: Profile) -> Config {
        Config::defaults(profile, profile == Profile::Artifact)
    }

    /// Reads a table for the policy called `policy`.
    ///
    /// # Errors
    /// An unknown key or profile, a value of the wrong kind or out of range.
    pub fn read(policy: &str, table: &Table) -> Result<Config, PolicyError> {
        let mut accepted: Vec<&str> = vec!["profile"];
        accepted.extend(SETTINGS.iter().map(|setting| setting.name));
        refuse_unknown(policy, table, &accepted)?;
        let usual = (Profile::Paper, "a profile's name");
        let mut config = Config::of(choice(policy, table, "profile", usual, &PROFILES)?);
        SETTINGS.iter().try_for_each(|setting| setting.read(policy, table, &mut config))?;
        Ok(config)
    }

    /// All settings with the values in force.
    pub fn describe(&self) -> Vec<SettingDescription> {
        let name = match self.profile {
            Profile::Paper => PROFILES[0].0,
            Profile::Artifact => PROFILES[1].0,
        };
        let meaning = "source of the defaults where paper and artifact differ";
        let profile = describe_choice("profile", name, PROFILES[0].0, meaning);
        let defaults = Config::of(self.profile);
        let rest = SETTINGS.iter().map(|setting| setting.describe(self, &defaults));
        std::iter::once(profile).chain(rest).collect()
    }

    /// A cause: `value`, compared with one of the thresholds.
    ///
    /// # Panics
    /// If there is no setting called `threshold`.
    pub fn cause(&self, what: String, value: f64, threshold: &str) -> Cause {
        Threshold::cause(SETTINGS, self, what, value, threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Form;

    fn read(text: &str) -> Result<Config, String> {
        Config::read("a4", &text.parse().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_papers_values_are_the_defaults() {
        // A4 Table 1 and algorithms.md 3.2.
        let config = read("").unwrap();
        assert_eq!(config.hpw_llc_hit_thr, 0.20);
        assert_eq!(
            [config.dmalk_dca_ms_thr, config.dmalk_llc_ms_thr, config.dmalk_io_tp_thr],
            [0.4, 0.4, 0.35]
        );
        assert_eq!([config.ant_mlc_miss_thr, config.ant_llc_miss_thr], [0.9, 0.9]);
        assert_eq!(
            [config.expand_interval_s, config.stable_interval_s, config.revert_interval_s],
            [2.0, 10.0, 1.0]
        );
    }

    #[test]
    fn the_artifact_profile_differs_where_the_scripts_do_and_single_values_win() {
        let config = read("profile = \"artifact\"\ntrash_min_ways = 3").unwrap();
        assert_eq!([config.ant_mlc_miss_thr, config.bypass_storage_thr, config.revert], [0.8, 0.3, 0.0]);
        assert_eq!(config.trash_min_ways, 3.0);
    }

    #[test]
    fn every_default_lies_in_its_own_range() {
        for setting in SETTINGS {
            for value in [Profile::Paper, Profile::Artifact].map(|of| (setting.get)(&Config::of(of))) {
                assert!((setting.low..=setting.high).contains(&value), "{}", setting.name);
                assert!(setting.unit.form() != Form::Whole || value.fract() == 0.0, "{}", setting.name);
            }
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refusal = |text| read(text).unwrap_err();
        assert!(
            refusal("hpw_llc_hit_thrr = 0.1")
                .contains("did you mean `hpw_llc_hit_thr`?; accepted are profile, ")
        );
        assert_eq!(
            refusal("hpw_llc_hit_thr = 20"),
            "a4: `hpw_llc_hit_thr` = 20 is out of range; give ratio 0..1 from 0 to 1; 20 % are 0.2"
        );
        assert!(refusal("settle_s = nan").contains("out of range"));
        assert_eq!(
            refusal("trash_min_ways = 1.5"),
            "a4: `trash_min_ways` must be a whole number, not a float 1.5"
        );
        assert_eq!(refusal("revert = 1"), "a4: `revert` must be true or false, not an integer 1");
        assert_eq!(
            refusal("profile = \"papper\""),
            "a4: `profile` cannot be `papper`; did you mean `paper`?; accepted are paper, artifact"
        );
        assert!(refusal("profile = 4").contains("must be a profile's name"));
    }

    #[test]
    fn the_description_shows_values_beside_defaults() {
        let rows = read("revert = false\nsettle_s = 2").unwrap().describe();
        let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!((row("revert").value.as_str(), row("revert").default.as_str()), ("false", "true"));
        assert_eq!((row("settle_s").value.as_str(), row("settle_s").unit.as_str()), ("2", "s"));
        assert_eq!(row("profile").value, "\"paper\"");
    }
}
