//! Checks with counters, as far as they can show it, whether a knob that reads back the wanted value has an effect.
//!
//! Some registers take a value and change nothing (IIO_LLC_WAYS on an Ice Lake, hardware.md 1.2; a root port whose bit
//! a BIOS locks). Two knobs can be checked: a port without DCA causes no DCA writes, and a workload cannot fill more of
//! the LLC than its ways hold. DCA ways cannot be checked (an unchanged hit ratio proves nothing); that takes an
//! experiment. Knows counters and knobs; must not know policy or host.

use crate::record::Problem;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::{Interval, Knob, KnobValues, LlcGeometry, PortCounter, SocketCounter, WorkloadCounter};
use waykeeper_units::{LINE_BYTES, PortId, WayMask, WorkloadId};

/// Consecutive intervals that must show it: one may contain the change itself, and in another the traffic may change.
/// Assumption: two such intervals in a row occur, three hardly.
const CONSECUTIVE_INTERVALS: u32 = 3;
/// A counter must exceed its highest possible value by this factor: CMT and the kind of packets vary by less.
/// Assumption: no source bounds either.
const MARGIN: f64 = 1.1;

/// What was observed so far.
#[derive(Default, Debug)]
pub(crate) struct Effects {
    /// DCA writes per line that devices write, seen while every port had DCA.
    writes_per_line: Option<f64>,
    /// Consecutive intervals with more DCA writes than the ports with DCA can cause.
    too_many: u32,
    /// Ports with DCA off whose switch was observed to have an effect.
    confirmed: BTreeSet<PortId>,
    masks: BTreeMap<WorkloadId, MaskWatch>,
    no_effect: BTreeSet<Knob>,
}

#[derive(Clone, Copy, Debug)]
struct MaskWatch {
    mask: WayMask,
    /// Occupied bytes when the mask came into force: lines stay in ways outside a new mask until they are evicted.
    at_first: f64,
    beyond: u32,
}

impl Effects {
    /// Checks an interval during which `knobs` were in force, and returns a problem for each knob that has no effect.
    pub fn check(
        &mut self,
        seen: &Interval,
        llc: Option<&LlcGeometry>,
        turned: impl Fn(Knob) -> bool,
    ) -> Vec<Problem> {
        let mut problems = self.check_ports(seen, &turned);
        // Without a known LLC no mask was set.
        problems.extend(llc.into_iter().flat_map(|llc| self.check_masks(seen, llc, &turned)));
        problems
    }

    /// Corrects the values read back: a port whose switch has no effect has DCA on.
    pub fn correct(&self, knobs: &mut KnobValues) {
        for knob in self.no_effect.iter().filter(|knob| matches!(knob, Knob::Dca(_))) {
            if knobs.names(*knob) {
                knobs.insert(*knob, true);
            }
        }
    }

    /// If there are more DCA writes than the ports with DCA can cause, they come from a port with DCA off.
    fn check_ports(&mut self, seen: &Interval, turned: &impl Fn(Knob) -> bool) -> Vec<Problem> {
        let writes = seen.socket.sum(SocketCounter::DcaWriteHits, SocketCounter::DcaWriteMisses);
        let Some(writes) = writes.value() else { return Vec::new() };
        let (mut on_lines, mut off_lines, mut off) = (0.0, 0.0, BTreeSet::new());
        for (port, rates) in &seen.ports {
            let Some(bytes) = rates[PortCounter::InboundBytes].value() else { return Vec::new() };
            let lines = bytes / LINE_BYTES as f64;
            // A switch without an effect leaves DCA on.
            if seen.knobs.dca(*port) != Some(false) || self.no_effect.contains(&Knob::Dca(*port)) {
                on_lines += lines;
                continue;
            }
            off.insert(*port);
            if !self.confirmed.contains(port) {
                off_lines += lines;
            }
        }
        self.confirmed.retain(|port| off.contains(port));
        if off.is_empty() {
            self.writes_per_line = (on_lines > 0.0).then_some(writes / on_lines).or(self.writes_per_line);
            self.too_many = 0;
            return Vec::new();
        }
        let Some(ratio) = self.writes_per_line else { return Vec::new() };
        // Enough evidence: half of the lines written by ports without DCA, plus a margin on the other ports' traffic.
        let (expected, doubtful) = (ratio * on_lines, 0.5 * ratio * off_lines);
        if off_lines == 0.0 || writes <= MARGIN * expected + doubtful {
            self.too_many = 0;
            if off_lines > 0.0 {
                self.confirmed.extend(off);
            }
            return Vec::new();
        }
        self.too_many += 1;
        if self.too_many < CONSECUTIVE_INTERVALS {
            return Vec::new();
        }
        self.too_many = 0;
        let suspects: Vec<PortId> = off
            .into_iter()
            .filter(|port| !self.confirmed.contains(port) && turned(Knob::Dca(*port)))
            .collect();
        self.no_effect.extend(suspects.iter().map(|port| Knob::Dca(*port)));
        let problem = |port| Problem::NoEffect {
            knob: Knob::Dca(port).at(false),
            what: "DCA writes of the socket per second".to_owned(),
            expected: expected as u64,
            measured: writes as u64,
        };
        suspects.into_iter().map(problem).collect()
    }

    /// A workload whose lines grow beyond what its ways hold allocates in other ways too.
    fn check_masks(
        &mut self,
        seen: &Interval,
        llc: &LlcGeometry,
        turned: &impl Fn(Knob) -> bool,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.masks.retain(|group, _| seen.groups.contains_key(group));
        self.no_effect
            .retain(|knob| knob.workload().is_none_or(|workload| seen.groups.contains_key(&workload)));
        for (group, rates) in &seen.groups {
            let (Some(mask), Some(bytes)) =
                (seen.knobs.mask(*group), rates[WorkloadCounter::OccupancyBytes].value())
            else {
                continue;
            };
            let watch = self.masks.entry(*group).or_insert(MaskWatch { mask, at_first: bytes, beyond: 0 });
            if watch.mask != mask {
                *watch = MaskWatch { mask, at_first: bytes, beyond: 0 };
                self.no_effect.remove(&Knob::Mask(*group));
            }
            // Lines read from the MLCs of other cores move to the inclusive ways, whatever the mask (A4 s3.1).
            let ways = mask.or(llc.inclusive_ways.unwrap_or(WayMask::EMPTY)).count();
            let most = llc.bytes as f64 * f64::from(ways) / f64::from(llc.ways);
            let grew = bytes > watch.at_first + (MARGIN - 1.0) * most;
            watch.beyond = if grew && bytes > MARGIN * most { watch.beyond + 1 } else { 0 };
            let knob = Knob::Mask(*group);
            if watch.beyond >= CONSECUTIVE_INTERVALS && turned(knob) && self.no_effect.insert(knob) {
                problems.push(Problem::NoEffect {
                    knob: knob.at(mask),
                    what: "LLC occupancy, bytes".to_owned(),
                    expected: most as u64,
                    measured: bytes as u64,
                });
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_host::{PortRates, Reading, SocketRates, WorkloadRates};

    /// 11 ways of 1 MB.
    const LLC: LlcGeometry = LlcGeometry {
        ways: 11,
        min_ways: 1,
        bytes: 11_000_000,
        clos_count: 16,
        sparse_masks: false,
        inclusive_ways: Some(WayMask::from_bits(0x003)),
    };

    /// Ports 0 and 1 write a and b million lines per second, and w million DCA writes per second are counted; group 0
    /// occupies `bytes` with the mask `mask`.
    fn interval(lines: [f64; 2], on: [bool; 2], writes: f64, mask: u32, bytes: u64) -> Interval {
        let ports =
            lines.map(|lines| PortRates::of([(PortCounter::InboundBytes, Reading::Value(lines * 64e6))]));
        let group = WorkloadRates::of([(WorkloadCounter::OccupancyBytes, Reading::Value(bytes as f64))]);
        Interval {
            from_ns: 0,
            to_ns: 1_000_000_000,
            groups: [(WorkloadId(0), group)].into(),
            socket: SocketRates::of([
                (SocketCounter::DcaWriteHits, Reading::Value(writes * 0.75e6)),
                (SocketCounter::DcaWriteMisses, Reading::Value(writes * 0.25e6)),
            ]),
            ports: (0..).map(PortId).zip(ports).collect(),
            knobs: KnobValues::of_dca((0..).map(PortId).zip(on))
                .with(Knob::Mask(WorkloadId(0)), WayMask::from_bits(mask)),
        }
    }

    fn problems(effects: &mut Effects, seen: &Interval, times: usize) -> Vec<String> {
        let all = (0..times).flat_map(|_| effects.check(seen, Some(&LLC), |_| true));
        all.map(|problem| problem.to_string()).collect()
    }

    #[test]
    fn a_port_whose_switch_acts_takes_its_writes_along_and_nothing_is_said() {
        let mut effects = Effects::default();
        // 30 million lines and 33 million writes: a tenth more, for completions.
        assert!(problems(&mut effects, &interval([10.0, 20.0], [true, true], 33.0, 0x7ff, 0), 1).is_empty());
        assert!(problems(&mut effects, &interval([10.0, 20.0], [true, false], 11.0, 0x7ff, 0), 9).is_empty());
        // Smaller packets cause more completions: 1.5 writes per line do not come from the other port.
        assert!(problems(&mut effects, &interval([10.0, 20.0], [true, false], 15.0, 0x7ff, 0), 9).is_empty());
    }

    #[test]
    fn a_port_that_continues_to_write_into_the_llc_is_named_once_after_three_intervals() {
        let mut effects = Effects::default();
        problems(&mut effects, &interval([10.0, 20.0], [true, true], 33.0, 0x7ff, 0), 1);
        let ineffective = interval([10.0, 20.0], [true, false], 33.0, 0x7ff, 0);
        assert!(problems(&mut effects, &ineffective, 2).is_empty());
        let text = "DCA off on port 1 reads back but has no effect: DCA writes of the socket per second is 33000000; \
                    with an effect it would be at most 11000000";
        assert_eq!(problems(&mut effects, &ineffective, 9), [text]);
        let mut knobs = ineffective.knobs.clone();
        effects.correct(&mut knobs);
        let both = [(PortId(0), true), (PortId(1), true)];
        assert!(knobs.dca_by_port().eq(both), "a policy sees what acts");
    }

    #[test]
    fn a_port_seen_to_act_is_not_suspected_for_another() {
        let mut effects = Effects::default();
        problems(&mut effects, &interval([10.0, 10.0], [true, true], 20.0, 0x7ff, 0), 1);
        problems(&mut effects, &interval([10.0, 10.0], [true, false], 10.0, 0x7ff, 0), 1);
        let reported = problems(&mut effects, &interval([10.0, 10.0], [false, false], 10.0, 0x7ff, 0), 5);
        assert!(reported.len() == 1 && reported[0].starts_with("DCA off on port 0 "), "{reported:?}");
    }

    #[test]
    fn a_workload_that_grows_beyond_its_ways_shows_a_dead_mask_and_old_lines_do_not() {
        let mut effects = Effects::default();
        // Six full ways, then two ways: nothing evicts the lines. 0x030 and the inclusive ways hold 4 MB.
        assert!(problems(&mut effects, &interval([0.0; 2], [true; 2], 0.0, 0x7e0, 6_000_000), 1).is_empty());
        assert!(problems(&mut effects, &interval([0.0; 2], [true; 2], 0.0, 0x030, 6_000_000), 5).is_empty());
        assert!(problems(&mut effects, &interval([0.0; 2], [true; 2], 0.0, 0x030, 4_300_000), 5).is_empty());
        // A new workload that starts empty and fills 7 MB.
        let mut effects = Effects::default();
        problems(&mut effects, &interval([0.0; 2], [true; 2], 0.0, 0x030, 0), 1);
        let reported = problems(&mut effects, &interval([0.0; 2], [true; 2], 0.0, 0x030, 7_000_000), 5);
        let text = "mask 0x030 of group 0 reads back but has no effect: LLC occupancy, bytes is 7000000; \
                    with an effect it would be at most 4000000";
        assert_eq!(reported, [text]);
    }

    #[test]
    fn knobs_that_the_loop_did_not_turn_are_not_checked() {
        let mut effects = Effects::default();
        problems(&mut effects, &interval([10.0, 20.0], [true, true], 33.0, 0x7ff, 0), 1);
        let ineffective = interval([10.0, 20.0], [true, false], 33.0, 0x030, 9_000_000);
        assert!((0..9).all(|_| effects.check(&ineffective, Some(&LLC), |_| false).is_empty()));
    }
}
