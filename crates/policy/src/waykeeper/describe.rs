//! The policy's text for `waykeeper policy describe`. Decides nothing.

use super::config::Config;
use crate::Description;
use crate::describe::{StateDescription, lines};

pub(super) fn describe(config: &Config) -> Description {
    Description {
        name: "waykeeper-search".to_owned(),
        idea: "First tries the layout that the counters suggest, then single steps: zones, DCA off for \
               storage that leaks, a trash way for antagonists, DDIO ways by demand. A step is kept if the \
               measured progress of all workloads, weighted, gains more than noise and no HPW loses more than \
               hpw_loss_max; otherwise the next step is tried. The best layout of a phase is remembered."
            .to_owned(),
        source: "ours, after A4 s5 and IAT s4".to_owned(),
        inputs: lines(&[
            "LLC hits and misses, MLC hits and misses, instructions and cycles per workload",
            "DCA write hits and misses of the socket",
            "bytes per root port",
            "memory bytes of the socket",
        ]),
        knobs: lines(&["way mask per workload", "DDIO ways", "DCA per root port"]),
        settings: config.describe(),
        states: vec![
            StateDescription::new("Look", "measures the layout in force until two intervals agree"),
            StateDescription::new(
                "Try",
                "measures another layout in the same way, keeps or drops it, and tries the next",
            ),
            StateDescription::new(
                "Stable",
                "no layout is left to try; watches for a new phase and, at doubling intervals, tries to undo \
                 one restriction",
            ),
        ],
        deviations: lines(&[
            "A4: the LP zone is found by measured gain, not by growing until an HPW loses 20 % of its hit ratio; the open LLC is \
             a candidate too; there is no revert every ten seconds",
            "IAT: DDIO ways grow when writes miss, and the growth is kept if it gains progress; there is no \
             state for each direction of change",
        ]),
    }
}
