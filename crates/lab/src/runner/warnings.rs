//! Warnings that the runner knows of: memory that the sampled sets cover badly, and intervals that are too short.
//!
//! One sentence for the regions of one owner and size, over all seeds and policies of a result. Must not know how a gap
//! is found or how a report shows a warning. Those that follow from a result alone are found in `results`.

use crate::best::BEST_POLICY;
use crate::results::{Warning, WarningKey, warning};
use crate::show;
use indexmap::IndexMap;
use waykeeper_machine::{Gap, NicSpec, Scenario, TrafficSpec, WorkloadSpec};
use waykeeper_silicon::Sampling;

/// The sentences for the gaps of several simulations with the same sampling; of several seeds, of the one with the
/// largest deviation.
pub(super) fn of_gaps(gaps: impl IntoIterator<Item = Gap>, sampling: Sampling) -> Vec<Warning> {
    let nominal = |gap: &Gap| gap.regions as f64 * f64::from(gap.region_lines) / f64::from(sampling.factor());
    let off = |gap: &Gap| (gap.sampled as f64 / nominal(gap) - 1.0).abs();
    let mut worst: IndexMap<(String, u32), Gap> = IndexMap::new();
    for gap in gaps {
        let key = (gap.owner.clone(), gap.region_lines);
        match worst.get_mut(&key) {
            Some(other) if off(other) >= off(&gap) => {}
            Some(other) => *other = gap,
            None => drop(worst.insert(key, gap)),
        }
    }
    worst.values().map(|gap| sentence(gap, nominal(gap), sampling)).collect()
}

/// The warnings that follow from a scenario alone, if one of the policies acts on what it sees.
pub(super) fn of_scenario(scenario: &Scenario, policies: &[String]) -> Vec<Warning> {
    let acts = |name: &String| {
        let built = waykeeper_policy::build(name, &toml::Table::new());
        // A policy of the caller is not in the registry; it may act.
        name != BEST_POLICY && built.map_or(true, |policy| policy.describe().states.len() > 1)
    };
    let short = || warning::short_intervals(scenario.interval_s, scenario.time_factor);
    let mut found: Vec<Warning> = scenario.nics.iter().filter_map(of_capture).collect();
    found.extend(scenario.workloads.iter().filter_map(of_job));
    if policies.iter().any(acts) {
        found.extend(short());
    }
    found
}

/// What the job file of a workload says that has no effect here.
fn of_job(workload: &WorkloadSpec) -> Option<Warning> {
    let notes = workload.blueprint.notes();
    (!notes.is_empty()).then(|| Warning {
        key: WarningKey::JobFile,
        text: format!("the job file of {}: {}", show::name(&workload.name), show::plain(&notes.join("; "))),
        advice: "remove the lines, or read their effect as above".to_owned(),
    })
}

/// What had to be changed of the captures of a NIC so that its wire can deliver them.
fn of_capture(nic: &NicSpec) -> Option<Warning> {
    let all = std::iter::once(&nic.traffic).chain(nic.phases.iter().map(|phase| &phase.traffic));
    let mut parts: Vec<String> = Vec::new();
    for traffic in all {
        let TrafficSpec::Capture { capture, gbps, line_gbps } = traffic else { continue };
        let (delayed, most_ns) = traffic.delayed_by_the_line();
        let odd = &capture.oddities;
        let of_file = [
            (capture.merged, "are longer than a frame and come as several"),
            (odd.reordered, "are out of order in the file and sorted by time"),
            (odd.longer_than_said, "have more bytes than their length says; the bytes count"),
            (odd.shorter_than_a_frame, "are shorter than a frame and padded"),
            (odd.undeclared_fcs, "end in a frame check sequence, which does not count"),
            (odd.empty, "have no bytes and are left out"),
            (odd.outgoing, "were sent by the capturing host and are left out"),
            (odd.copies, "have the bytes of one just before them, as where two interfaces see a packet"),
            (odd.without_time, "have no time and come with the one before them"),
        ];
        let changed = of_file.into_iter().filter(|(count, _)| *count > 0);
        let mut of_this: Vec<String> =
            changed.map(|(count, what)| format!("{count} of {} packets {what}", capture.recorded)).collect();
        if delayed > 0 {
            of_this.push(format!(
                "{delayed} of {} frames come later than recorded, up to {} us, since the line carries {line_gbps} Gb/s",
                capture.packets.len(),
                show::digits(most_ns / 1e3)
            ));
        }
        if let (Some(gap), None) = (capture.gap, gbps) {
            of_this.push(format!(
                "no packet comes for {:.6} s between packets {} and {}, far longer than all else: a wrong time, or a pause",
                gap.ns as f64 * 1e-9,
                gap.after_packet,
                gap.before_packet
            ));
        }
        let of_times = (odd.are_nanoseconds, "its times are nanoseconds, though it says microseconds");
        let of_end =
            (odd.is_cut_off, "the file ends within a packet or its compression, and what is whole counts");
        of_this.extend([of_times, of_end].into_iter().filter(|(is, _)| *is).map(|(_, what)| what.to_owned()));
        // Phases usually play the capture of the NIC itself.
        parts.extend(of_this.into_iter().filter(|part| !parts.contains(part)).collect::<Vec<_>>());
    }
    let name = &nic.name;
    (!parts.is_empty()).then(|| Warning {
        key: WarningKey::CaptureChanged,
        text: format!(
            "the capture of {} is not what a wire delivers: {}",
            show::name(name),
            parts.join("; ")
        ),
        advice: format!(
            "`waykeeper capture info` shows the file; `--set nic.{}.offered_gbps=N` plays it at a rate",
            show::plain(name)
        ),
    })
}

fn sentence(gap: &Gap, nominal: f64, sampling: Sampling) -> Warning {
    let Gap { owner, regions, region_lines, sampled, mended_by } = gap;
    let what = match regions {
        1 => format!("a region of {region_lines} lines of {owner}"),
        more => format!("{more} regions of {region_lines} lines of {owner}"),
    };
    let effect = match sampled {
        0 => "hit ratios and times lack its accesses there",
        _ => "hit ratios have its accesses there with a wrong weight",
    };
    Warning {
        key: WarningKey::SampleGap,
        text: format!(
            "{sampling} of the sets has {sampled} lines instead of {nominal:.1} of {what}: {effect}"
        ),
        advice: format!("`--sets {mended_by}` covers them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(owner: &str, sampled: u64) -> Gap {
        let mended_by = Sampling::DEFAULT;
        Gap { owner: owner.to_owned(), regions: 4, region_lines: 64, sampled, mended_by }
    }

    #[test]
    fn of_several_seeds_the_worst_is_reported() {
        let sampling = Sampling::one_in(128).unwrap();
        // Two lines are nominal: four are off by 1, none as well, five by 1.5.
        let reported = of_gaps([gap("fio", 4), gap("fio", 5), gap("fio", 0), gap("nic0", 0)], sampling);
        let texts: Vec<String> = reported.iter().map(Warning::to_string).collect();
        assert_eq!(
            texts,
            [
                "1/128 of the sets has 5 lines instead of 2.0 of 4 regions of 64 lines of fio: hit ratios have its \
                 accesses there with a wrong weight; `--sets 1/32` covers them",
                "1/128 of the sets has 0 lines instead of 2.0 of 4 regions of 64 lines of nic0: hit ratios and times \
                 lack its accesses there; `--sets 1/32` covers them",
            ]
        );
        assert!(of_gaps([], sampling).is_empty());
    }
}
