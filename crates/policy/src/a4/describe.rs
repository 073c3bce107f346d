//! A4's text for `waykeeper policy describe`. Decides nothing.

use super::Variant;
use super::config::Config;
use crate::Description;
use crate::describe::{StateDescription, lines};

/// The description of `variant` selected as `name` with `config`.
pub(super) fn describe(name: &str, variant: Variant, config: &Config) -> Description {
    let mut knobs = vec!["way mask per workload"];
    if variant.has_selective_dca() {
        knobs.push("DCA per storage root port");
    }
    Description {
        name: name.to_owned(),
        idea: variant.idea().to_owned(),
        source: "A4: I/O-aware LLC management, ISCA 2025, s5-s7".to_owned(),
        inputs: inputs(variant),
        knobs: lines(&knobs),
        settings: config.describe(),
        states: states(variant),
        deviations: lines(DEVIATIONS),
    }
}

fn inputs(variant: Variant) -> Vec<String> {
    let mut inputs = vec!["priority, kind and devices of each workload", "LLC hits and misses per workload"];
    if variant.has_selective_dca() {
        inputs.extend(["DCA write hits and misses, chip-wide", "inbound bytes per root port"]);
    }
    if variant.has_bypass() {
        inputs.extend(["MLC hits and misses per workload", "memory bytes read and written"]);
    }
    lines(&inputs)
}

fn states(variant: Variant) -> Vec<StateDescription> {
    let mut states = vec![
        StateDescription::new("Idle", "no workload runs, or the chip has too few ways; a launch ends it"),
        StateDescription::new(
            "InitMeasure",
            "initial partitions; the initial hit ratio of every HPW is recorded",
        ),
        StateDescription::new(
            "Expand",
            "the LP zone grows way by way until an HPW loses too much, then takes one step back",
        ),
    ];
    if variant.has_bypass() {
        let text = "the trash ways of antagonists shrink until a workload suffers, then take one step back";
        states.push(StateDescription::new("Trash", text));
    }
    states.extend([
        StateDescription::new(
            "Stable",
            "no mask changes; A4 watches for antagonists, phase changes and restorations",
        ),
        StateDescription::new(
            "Revert",
            "initial partitions for revert_interval_s, to measure the hit ratios that the HPWs could have",
        ),
    ]);
    states
}

/// Where this A4 differs from the paper or fills a gap in it.
const DEVIATIONS: &[&str] = &[
    "any launch or exit restarts the search, also that of an LPW (ours)",
    "a hit ratio is judged only at min_llc_refs references or more; an HPW that was idle at the initial record \
     and wakes up is a phase change",
    "the loss of hit ratio is relative and must also pass a guard of percentage points (s5.2 does not say which)",
    "samples within settle_s of a change are discarded; a sample is kept if at most a quarter of it lies there",
    "storage leaks, antagonists in Stable, phase changes and restorations need samples_in_a_row samples in a row",
    "storage workloads behind the same root port are tested and switched together",
    "a port that also carries a NIC, or whose DCA cannot be switched, is never switched; without a port to \
     switch, a storage workload is not tested",
    "the trash ways are unstable only if misses rise, throughput falls or bandwidth rises; each antagonist \
     is judged on its own",
    "a phase change below the initial record also needs a fall below the settled value by hit_point_guard",
    "without an I/O HPW the LP zone leaves the DCA ways and one more alone (the paper gives no cap)",
    "on chips where neither DCA nor inclusive ways are reserved, the LP zone leaves one way to the HPWs",
    "IPC instead of the hit ratio (s5.2) is not offered",
    "the DCA zone is where DCA points at power-on; a DCA way count changed by others is not followed",
    "a restored storage workload is left alone for holdoff_s, and its restoration always restarts the search",
    "a missing counter causes no decision: its test is skipped, and a search step that needs it waits",
    "artifact profile: thresholds only; the artifact's phase test against the settled value alone, its group-wide \
     miss rates and its falls-only storage restoration are not copied",
];
