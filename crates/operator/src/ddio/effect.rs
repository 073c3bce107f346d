//! Judges whether a knob that reads back as wanted has an effect, from the LLC's counters before and after.
//!
//! Two experiments (hardware.md 1.4, 2.2). Other DCA ways change the share of device writes that miss. A port without
//! DCA causes no DCA writes. Both need traffic; without it the verdict says that nothing can be judged. Arithmetic on
//! intervals; must not know how they were measured or which register was written.

use statrs::distribution::{ContinuousCDF, StudentsT};
use std::fmt;
use waykeeper_host::{Interval, PortCounter, SocketCounter};
use waykeeper_units::{LINE_BYTES, PortId};

/// Fewest device writes per second that count as traffic: 6.4 MB/s. Assumption: idle NICs and disks write far less.
pub const LOAD_PER_S: f64 = 100_000.0;
/// Probability with which chance moves the share of misses by less than the limit for an effect: that of three
/// standard errors of a normal distribution (assumption). With few samples their spread is uncertain, so the limit
/// uses Student's t.
const CONFIDENCE: f64 = 0.9973;
/// The smallest change that counts as an effect, so that noise of a very steady load does not. Assumption: ways and
/// ports move the share by far more than half a point.
const LEAST_MOVE: f64 = 0.005;
/// Factor by which writes may exceed those caused by ports with DCA (as `control::effect`). Assumption: as there.
const MARGIN: f64 = 1.1;

/// The result of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub enum EffectVerdict {
    /// The counters changed as the knob should change them.
    Seen(String),
    /// There was traffic, and the counters did not change as they should.
    NotSeen(String),
    /// No judgement is possible, for this reason.
    NotJudged(String),
}

impl fmt::Display for EffectVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EffectVerdict::Seen(what) => write!(f, "the effect is seen: {what}"),
            EffectVerdict::NotSeen(what) => write!(f, "no effect is seen: {what}"),
            EffectVerdict::NotJudged(why) => write!(f, "the effect cannot be judged: {why}"),
        }
    }
}

/// Mean of the slices' values, its standard error, and the number of values.
struct Estimate {
    mean: f64,
    error: f64,
    count: f64,
}

fn estimate(values: &[f64]) -> Option<Estimate> {
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some(Estimate { mean, error: (variance / count).sqrt(), count })
}

/// The largest difference of two means by chance, with the probability `CONFIDENCE`: Student's t test with pooled
/// variance. With equal numbers of values, as here, it also holds for unequal variances.
fn chance(one: &Estimate, other: &Estimate) -> f64 {
    let freedom = one.count + other.count - 2.0;
    let squares = |estimate: &Estimate| estimate.error.powi(2) * estimate.count * (estimate.count - 1.0);
    let variance = (squares(one) + squares(other)) / freedom;
    let error = (variance * (1.0 / one.count + 1.0 / other.count)).sqrt();
    // `estimate` needs at least two values, so the degrees of freedom are positive.
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * error)
}

/// Device writes per second in a slice of time.
fn writes(slice: &Interval) -> Option<f64> {
    slice.socket.sum(SocketCounter::DcaWriteHits, SocketCounter::DcaWriteMisses).value()
}

/// The slices in which device writes were counted. A counter has no value in a slice in which its clock hardly moved, as
/// on a virtual host that is behind; the others say enough.
fn counted(slices: &[Interval]) -> Vec<Interval> {
    slices.iter().filter(|slice| writes(slice).is_some()).cloned().collect()
}

/// Mean device writes per second, or why nothing can be judged.
fn load(slices: &[Interval], when: &str) -> Result<f64, EffectVerdict> {
    let rates: Option<Vec<f64>> = slices.iter().map(writes).collect();
    let Some(rates) = rates.filter(|rates| !rates.is_empty()) else {
        return Err(EffectVerdict::NotJudged(
            "hits and misses of device writes cannot be counted here".to_owned(),
        ));
    };
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    if mean < LOAD_PER_S {
        let why = format!(
            "devices wrote {mean:.0} lines a second {when}, less than {LOAD_PER_S:.0}; put traffic on them"
        );
        return Err(EffectVerdict::NotJudged(why));
    }
    Ok(mean)
}

/// Judges a change of DCA ways: did the share of device writes that miss change by more than it varies by itself?
pub fn of_ways(before: &[Interval], after: &[Interval]) -> EffectVerdict {
    let (before, after) = (&counted(before)[..], &counted(after)[..]);
    for (slices, when) in [(before, "before the change"), (after, "after the change")] {
        if let Err(verdict) = load(slices, when) {
            return verdict;
        }
    }
    let shares = |slices: &[Interval]| {
        let shares: Vec<f64> =
            slices.iter().filter_map(|slice| slice.socket.dca_write_miss_ratio()).collect();
        estimate(&shares)
    };
    let (Some(before), Some(after)) = (shares(before), shares(after)) else {
        return EffectVerdict::NotJudged(
            "the time was too short to see how much the share of misses varies".to_owned(),
        );
    };
    let moved = (after.mean - before.mean).abs();
    let needed = chance(&before, &after).max(LEAST_MOVE);
    let what = format!(
        "{:.1} % of device writes missed the LLC before, {:.1} % after (a difference of {:.1} points is \
         needed to judge)",
        100.0 * before.mean,
        100.0 * after.mean,
        100.0 * needed
    );
    if moved > needed {
        return EffectVerdict::Seen(what);
    }
    // If nothing misses, or nothing hits, other ways need not change the share: the writes fit before and after, or
    // neither.
    if before.mean <= needed || before.mean >= 1.0 - needed {
        return EffectVerdict::NotJudged(format!(
            "{what}; a share near 0 or 100 % need not move, whatever the ways"
        ));
    }
    EffectVerdict::NotSeen(what)
}

/// Combines the verdicts of several sockets: no effect on one socket means no effect.
pub fn together(verdicts: Vec<(u16, EffectVerdict)>) -> EffectVerdict {
    if let [(_, only)] = verdicts.as_slice() {
        return only.clone();
    }
    let all = verdicts.iter().map(|(socket, verdict)| format!("socket {socket}: {verdict}"));
    let all = all.collect::<Vec<_>>().join("; ");
    let any = |is: fn(&EffectVerdict) -> bool| verdicts.iter().any(|(_, verdict)| is(verdict));
    if any(|verdict| matches!(verdict, EffectVerdict::NotSeen(_))) {
        EffectVerdict::NotSeen(all)
    } else if any(|verdict| matches!(verdict, EffectVerdict::Seen(_))) {
        EffectVerdict::Seen(all)
    } else {
        EffectVerdict::NotJudged(all)
    }
}

/// Judges a switch of DCA at `ports`: do their writes stop (or start again) reaching the LLC as DCA writes?
///
/// The side on which these ports have DCA, before or after, gives the DCA writes per line that devices write; the
/// other side is compared with it.
pub fn of_ports(before: &[Interval], after: &[Interval], ports: &[PortId], on: bool) -> EffectVerdict {
    let (before, after) = (&counted(before)[..], &counted(after)[..]);
    let (with, without) = if on { (after, before) } else { (before, after) };
    let (when_on, when_off) = if on { ("after", "before") } else { ("before", "after") };
    let lines = |slices: &[Interval], wanted: &dyn Fn(PortId) -> bool| -> Option<f64> {
        let mut sum = 0.0;
        for slice in slices {
            for (port, rates) in &slice.ports {
                if wanted(*port) {
                    sum += rates[PortCounter::InboundBytes].value()? / LINE_BYTES as f64;
                }
            }
        }
        Some(sum / slices.len().max(1) as f64)
    };
    let mean = |slices: &[Interval]| -> Option<f64> {
        let rates = slices.iter().map(writes).collect::<Option<Vec<f64>>>()?;
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    };
    let (Some(writes_on), Some(writes_off)) = (mean(with), mean(without)) else {
        return EffectVerdict::NotJudged(
            "hits and misses of device writes cannot be counted here".to_owned(),
        );
    };
    let is_turned = |port: PortId| ports.contains(&port);
    // A port without DCA on a side causes no DCA writes there, so its lines are not expected.
    let has_dca =
        |slices: &[Interval], port: PortId| slices.iter().all(|slice| slice.knobs.dca(port) != Some(false));
    let counted = (
        lines(with, &|port| is_turned(port) || has_dca(with, port)),
        lines(without, &|port| !is_turned(port) && has_dca(without, port)),
        lines(without, &is_turned),
    );
    let (Some(all_lines), Some(other_lines), Some(own_lines)) = counted else {
        return EffectVerdict::NotJudged("the bytes of the root ports cannot be counted here".to_owned());
    };
    if own_lines < LOAD_PER_S || all_lines < LOAD_PER_S {
        let why = format!(
            "devices behind the port wrote {own_lines:.0} lines a second, less than {LOAD_PER_S:.0}; put traffic on them"
        );
        return EffectVerdict::NotJudged(why);
    }
    let ratio = writes_on / all_lines;
    let expected = ratio * other_lines;
    let what = format!(
        "{:.2} million DCA writes a second with DCA ({when_on}), {:.2} without ({when_off}); other ports cause {:.2}",
        writes_on / 1e6,
        writes_off / 1e6,
        expected / 1e6
    );
    // Losing half of the port's own writes is a clear sign, if it exceeds the other ports' traffic.
    if writes_off <= MARGIN * expected + 0.5 * ratio * own_lines {
        EffectVerdict::Seen(what)
    } else {
        EffectVerdict::NotSeen(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use waykeeper_host::{KnobValues, PortRates, Reading, SocketRates};

    /// A slice with this many million hits and misses per second, and inbound GB/s of ports 0 and 1.
    fn slice(hits: f64, misses: f64, inbound: [f64; 2], dca: [bool; 2]) -> Interval {
        let socket = SocketRates::of([
            (SocketCounter::DcaWriteHits, Reading::Value(hits * 1e6)),
            (SocketCounter::DcaWriteMisses, Reading::Value(misses * 1e6)),
        ]);
        let port = |gb: f64| PortRates::of([(PortCounter::InboundBytes, Reading::Value(gb * 1e9))]);
        let knobs = KnobValues::of_dca([(PortId(0), dca[0]), (PortId(1), dca[1])]);
        Interval {
            from_ns: 0,
            to_ns: 1,
            groups: BTreeMap::new(),
            socket,
            ports: BTreeMap::from([(PortId(0), port(inbound[0])), (PortId(1), port(inbound[1]))]),
            knobs,
        }
    }

    fn shares(misses: [f64; 4]) -> Vec<Interval> {
        misses.map(|share| slice(10.0 * (1.0 - share), 10.0 * share, [0.64, 0.0], [true; 2])).to_vec()
    }

    #[test]
    fn a_share_that_moves_more_than_by_itself_is_an_effect() {
        let before = shares([0.30, 0.31, 0.29, 0.30]);
        assert!(matches!(of_ways(&before, &shares([0.20, 0.21, 0.19, 0.20])), EffectVerdict::Seen(_)));
        // Standard errors are 0.0041 each, 0.0058 together, with 6 degrees of freedom. Student's t is 4.90 there, so
        // chance moves the share by 2.8 points at most, and it moved by 1.
        let same = of_ways(&before, &shares([0.31, 0.32, 0.30, 0.31]));
        let EffectVerdict::NotSeen(text) = same else { panic!("{same:?}") };
        assert_eq!(
            text,
            "30.0 % of device writes missed the LLC before, 31.0 % after (a difference of 2.8 points is \
             needed to judge)"
        );
        // A load without any variation still has to change by half a point.
        let still = shares([0.3; 4]);
        assert!(matches!(of_ways(&still, &shares([0.304; 4])), EffectVerdict::NotSeen(_)));
        assert!(matches!(of_ways(&still, &shares([0.306; 4])), EffectVerdict::Seen(_)));
    }

    #[test]
    fn a_share_that_has_nowhere_to_go_says_nothing() {
        for end in [0.0, 0.003, 0.998, 1.0] {
            let same = of_ways(&shares([end; 4]), &shares([end; 4]));
            let EffectVerdict::NotJudged(text) = same else { panic!("{end}: {same:?}") };
            assert!(text.contains("a share near 0 or 100 %"), "{text}");
        }
        // Away from 0, or towards the middle, it is judged as usual.
        assert!(matches!(of_ways(&shares([0.0; 4]), &shares([0.01; 4])), EffectVerdict::Seen(_)));
        assert!(matches!(of_ways(&shares([0.01; 4]), &shares([0.01; 4])), EffectVerdict::NotSeen(_)));
    }

    #[test]
    fn a_knob_that_is_dead_on_one_socket_is_reported() {
        let (seen, dead) = (EffectVerdict::Seen("up".into()), EffectVerdict::NotSeen("still".into()));
        let idle = EffectVerdict::NotJudged("idle".into());
        assert_eq!(together(vec![(1, dead.clone())]), dead);
        let both = together(vec![(0, seen.clone()), (1, dead)]);
        assert!(
            matches!(&both, EffectVerdict::NotSeen(text) if text.contains("socket 1: no effect is seen: still"))
        );
        assert!(matches!(together(vec![(0, idle.clone()), (1, seen)]), EffectVerdict::Seen(_)));
        assert!(matches!(together(vec![(0, idle.clone()), (1, idle)]), EffectVerdict::NotJudged(_)));
    }

    #[test]
    fn without_traffic_or_counters_nothing_is_said() {
        let idle = vec![slice(0.01, 0.01, [0.0; 2], [true; 2]); 4];
        let EffectVerdict::NotJudged(text) = of_ways(&shares([0.3; 4]), &idle) else { panic!() };
        assert!(text.contains("20000 lines a second after the change"), "{text}");
        let mut blind = shares([0.3; 4]);
        blind.iter_mut().for_each(|slice| slice.socket[SocketCounter::DcaWriteHits] = Reading::Unavailable);
        assert!(matches!(of_ways(&blind, &shares([0.3; 4])), EffectVerdict::NotJudged(_)));
        assert!(matches!(of_ports(&blind, &blind, &[PortId(0)], false), EffectVerdict::NotJudged(_)));
        assert!(matches!(of_ways(&[], &[]), EffectVerdict::NotJudged(_)));
        assert!(matches!(of_ports(&idle, &idle, &[PortId(0)], false), EffectVerdict::NotJudged(_)));
    }

    #[test]
    fn a_slice_without_counts_is_left_out() {
        let mut before = shares([0.30, 0.31, 0.29, 0.30]);
        before[2].socket[SocketCounter::DcaWriteHits] = Reading::Unavailable;
        assert!(matches!(of_ways(&before, &shares([0.20, 0.21, 0.19, 0.20])), EffectVerdict::Seen(_)));
        let mut off = vec![slice(0.0, 0.0, [0.64, 0.0], [false, true]); 2];
        off[0].socket[SocketCounter::DcaWriteMisses] = Reading::Unavailable;
        assert!(matches!(of_ports(&before, &off, &[PortId(0)], false), EffectVerdict::Seen(_)));
    }

    #[test]
    fn a_port_without_dca_causes_no_dca_writes() {
        // 0.64 GB/s are 10 million lines a second at each port, and each is one DCA write.
        let before = vec![slice(15.0, 5.0, [0.64, 0.64], [true; 2])];
        let off = [false, true];
        let acts = vec![slice(7.0, 3.0, [0.64, 0.64], off)];
        let dead = vec![slice(15.0, 5.0, [0.64, 0.64], off)];
        assert!(matches!(of_ports(&before, &acts, &[PortId(0)], false), EffectVerdict::Seen(_)));
        let EffectVerdict::NotSeen(text) = of_ports(&before, &dead, &[PortId(0)], false) else { panic!() };
        assert_eq!(
            text,
            "20.00 million DCA writes a second with DCA (before), 20.00 without (after); other ports cause 10.00"
        );
        // And switched on again.
        assert!(matches!(of_ports(&acts, &before, &[PortId(0)], true), EffectVerdict::Seen(_)));
        assert!(matches!(of_ports(&dead, &before, &[PortId(0)], true), EffectVerdict::NotSeen(_)));
    }
}
