//! Finds the DCA ways and the inclusive ways from slides: a co-runner's effect on device writes, and the others' effect
//! on it (ddio-bench s4.1 and s4.2, as A4 s3.1 explains them).
//!
//! A co-runner in a DCA way evicts device lines, so more device writes miss. In an inclusive way it does not, but lines
//! that an application reads move there and evict the co-runner's. Judges slides; must not know how they were measured.

use crate::slide::{Slide, SlideSample};
use crate::stats::{self, Deviation, Placed, PositionClass};
use crate::verdict::{Confidence, ProbeVerdict};
use waykeeper_operator::ddio::LOAD_PER_S;
use waykeeper_units::WayMask;

/// Minimum increase of the miss share of device writes. Assumption: four times the threshold of `ddio`, because many
/// positions are compared.
const LEAST_WRITE_MISS: f64 = 0.02;
/// Minimum increase of the miss share of the co-runner's references. Assumption: as for device writes.
const LEAST_SLIDER_MISS: f64 = 0.02;
/// An application with at least this many LLC references per line that devices write reads its payload. One that reads
/// headers of 1-KiB packets has a sixteenth, with its descriptors about an eighth (on the virtual chips). Assumption:
/// above that eighth, far below an application that reads the whole payload.
const READS_PAYLOAD: f64 = 0.2;

const MORE_TRAFFIC: &str = "put traffic on a device: a NIC at several Gb/s, or reads of an SSD";

/// Raised ways of a slide, if single ways can be distinguished.
enum Ways {
    Raised(WayMask),
    Unclear(String),
}

/// Derives raised ways from raised windows. A way is raised if all windows with it are; at the ends of the LLC wide
/// windows cannot distinguish the last ways.
fn ways_of(slide: &Slide, deviations: &[Deviation<WayMask>]) -> Ways {
    if let Some(unclear) = deviations.iter().find(|one| one.class == PositionClass::Unclear) {
        let rose = 100.0 * unclear.above;
        return Ways::Unclear(format!(
            "window {} rose by {rose:.1} points, which is neither clearly raised nor clearly quiet",
            unclear.position
        ));
    }
    let all = deviations.iter().fold(WayMask::EMPTY, |all, one| all.or(one.position));
    let quiet = deviations.iter().filter(|one| one.class == PositionClass::Quiet);
    let raised = all.minus(quiet.fold(WayMask::EMPTY, |quiet, one| quiet.or(one.position)));
    let rose = deviations.iter().any(|one| one.class == PositionClass::Raised);
    if rose && raised.is_empty() {
        return Ways::Unclear(format!(
            "windows of {} ways rose, but no way is only in raised windows",
            slide.width
        ));
    }
    Ways::Raised(raised)
}

fn curve_words(what: &str, deviations: &[Deviation<WayMask>]) -> String {
    let of = |class| deviations.iter().filter(move |one| one.class == class);
    let windows: Vec<String> =
        of(PositionClass::Raised).map(|one| format!("{} +{:.1}", one.position, 100.0 * one.above)).collect();
    let quiet = of(PositionClass::Quiet).map(|one| one.above).fold(0.0, f64::max);
    match windows.is_empty() {
        true => format!("{what}: no window is more than {:.1} points above the rest", 100.0 * quiet),
        false => format!(
            "{what}, points above the rest: {}; elsewhere at most {:.1}",
            windows.join(", "),
            100.0 * quiet
        ),
    }
}

/// Checks that device writes can be judged; returns their mean per second.
fn check_writes(slide: &Slide) -> Result<f64, ProbeVerdict<WayMask>> {
    let writes = slide.all(|sample| sample.writes);
    let Some(mean) = stats::mean(&writes) else {
        let help = "a CPU with DDIO counters, and perf or the msr driver (see `waykeeper doctor`)";
        return Err(ProbeVerdict::cannot_tell(
            "this host cannot count hits and misses of device writes",
            help,
        ));
    };
    if mean.value < LOAD_PER_S {
        let why = format!(
            "devices wrote {:.0} lines per second into the LLC, fewer than {LOAD_PER_S:.0}: they are idle or \
             write directly to memory",
            mean.value
        );
        return Err(ProbeVerdict::cannot_tell(why, MORE_TRAFFIC));
    }
    Ok(mean.value)
}

/// The ways that devices allocate in, from a slide of the co-runner with the most LLC misses.
pub fn dca_ways(slide: &Slide) -> ProbeVerdict<WayMask> {
    let writes = match check_writes(slide) {
        Ok(writes) => writes,
        Err(verdict) => return verdict,
    };
    let placed = slide.placed(|sample| sample.write_miss);
    let Some(deviations) = stats::find_deviations(&placed, LEAST_WRITE_MISS) else {
        return ProbeVerdict::cannot_tell("too few samples", "a longer run, without --quick");
    };
    let shares = slide.all(|sample| sample.write_miss);
    let (low, high) =
        (shares.iter().copied().fold(1.0, f64::min), shares.iter().copied().fold(0.0, f64::max));
    let evidence = vec![
        curve_words("share of device writes that miss", &deviations),
        format!(
            "{:.1} million device writes per second, {:.1} to {:.1} % of them missed",
            writes / 1e6,
            100.0 * low,
            100.0 * high
        ),
    ];
    let help = "more pressure: a co-runner that streams through more data than the LLC holds, and traffic \
                that fills the DCA ways without overflowing them many times";
    match ways_of(slide, &deviations) {
        Ways::Unclear(why) => ProbeVerdict::cannot_tell(why, help).with(evidence),
        Ways::Raised(ways) if ways.is_empty() => {
            let why = "the co-runner evicts no device lines in any window";
            ProbeVerdict::cannot_tell(why, help).with(evidence)
        }
        Ways::Raised(ways) => {
            let odd = (!ways.is_contiguous()).then(|| "the ways are not next to each other".to_owned());
            let at_end = slide.width > 1 && ambiguous_end(slide, &deviations, ways);
            let edge = at_end.then(|| {
                format!("windows of {} ways cannot distinguish the last ways of the LLC", slide.width)
            });
            let sure = odd.is_none() && edge.is_none();
            let confidence = if sure { Confidence::High } else { Confidence::Moderate };
            ProbeVerdict::found(ways, confidence, evidence).with(odd).with(edge)
        }
    }
}

/// Whether the raised ways include an end of the LLC and may come from windows raised by one way only.
fn ambiguous_end(slide: &Slide, deviations: &[Deviation<WayMask>], ways: WayMask) -> bool {
    let all = deviations.iter().fold(WayMask::EMPTY, |all, one| all.or(one.position));
    let at_end = ways.lowest() == all.lowest() || ways.highest() == all.highest();
    at_end && ways.count() <= slide.width
}

/// The inclusive ways, from a slide of the co-runner that is most sensitive to others, and the DCA ways.
pub fn inclusive_ways(slide: &Slide, dca: &ProbeVerdict<WayMask>) -> ProbeVerdict<Option<WayMask>> {
    let Some(dca_ways) = dca.value().copied() else {
        let why = format!("the DCA ways are not known: {}", dca.reason().unwrap_or_default());
        return ProbeVerdict::cannot_tell(why, "find the DCA ways first; their row says how");
    };
    let placed = slide.placed(|sample| sample.slider_miss);
    let Some(deviations) = stats::find_deviations(&placed, 0.0) else {
        let help = "LLC hit and miss counters of the co-runner, and a co-runner that makes LLC references";
        return ProbeVerdict::cannot_tell("this host cannot count misses of the co-runner", help);
    };
    let level = |ways: WayMask, inside: bool| {
        let of = deviations.iter().filter(move |one| one.position.overlaps(ways) == inside);
        of.map(|one| one.above).fold(0.0, f64::max)
    };
    let per_line = references_per_line(slide);
    let reading = per_line.map(|ratio| {
        format!("the I/O applications look up {ratio:.2} lines for each line that devices write")
    });
    // Windows with a DCA way are excluded, because devices raise them.
    let other: Vec<_> = placed.iter().filter(|one| !one.position.overlaps(dca_ways)).cloned().collect();
    let Some(mut deviations_other) = stats::find_deviations(&other, LEAST_SLIDER_MISS) else {
        return ProbeVerdict::cannot_tell("no window is free of DCA ways", "");
    };
    classify_again(&other, &mut deviations_other);
    let mut evidence = vec![curve_words(
        "share of the co-runner's references that miss, outside the DCA ways",
        &deviations_other,
    )];
    evidence.extend(reading);
    evidence.push(format!("in the DCA ways {:.1} points more miss", 100.0 * level(dca_ways, true)));
    let reads = per_line.is_some_and(|ratio| ratio >= READS_PAYLOAD);
    let help = "an I/O application that reads the payload that devices write, and a co-runner whose data \
                just fit its ways";
    match ways_of(slide, &deviations_other) {
        Ways::Unclear(why) => ProbeVerdict::cannot_tell(why, help).with(evidence),
        Ways::Raised(ways) if !ways.is_empty() => {
            let confidence =
                if ways.is_contiguous() && reads { Confidence::High } else { Confidence::Moderate };
            ProbeVerdict::found(Some(ways), confidence, evidence)
        }
        Ways::Raised(_) if !reads => {
            let why = "no window differs, and the I/O applications read too few of the lines that devices \
                       write to show an effect";
            ProbeVerdict::cannot_tell(why, help).with(evidence)
        }
        // The DCA ways are the control: a co-runner without extra misses there is not sensitive enough.
        Ways::Raised(_) if level(dca_ways, true) < LEAST_SLIDER_MISS => {
            let why = "no window differs, but this co-runner has no extra misses even in the DCA ways";
            ProbeVerdict::cannot_tell(why, help).with(evidence)
        }
        Ways::Raised(_) => ProbeVerdict::found(None, Confidence::Moderate, evidence),
    }
}

/// Copies of lines that cores read go to the inclusive way with the best victim, so the effect in the other inclusive
/// ways is much smaller. Repeats the classification without the raised windows: a newly raised window counts if it is
/// next to a raised one.
fn classify_again(placed: &[Placed<WayMask>], deviations: &mut [Deviation<WayMask>]) {
    loop {
        let raised = deviations.iter().filter(|one| one.class == PositionClass::Raised);
        let raised = raised.fold(WayMask::EMPTY, |all, one| all.or(one.position));
        let beside = WayMask::from_bits(raised.bits() << 1 | raised.bits() >> 1);
        let is_raised = |position: WayMask| {
            deviations.iter().any(|one| one.position == position && one.class == PositionClass::Raised)
        };
        let left: Vec<_> = placed.iter().filter(|one| !is_raised(one.position)).cloned().collect();
        let again = stats::find_deviations(&left, LEAST_SLIDER_MISS).unwrap_or_default();
        let more: Vec<_> = again.iter().filter(|one| one.class == PositionClass::Raised).collect();
        if raised.is_empty() || more.is_empty() {
            return;
        }
        for one in deviations.iter_mut().filter(|one| more.iter().any(|more| more.position == one.position)) {
            one.class =
                if one.position.overlaps(beside) { PositionClass::Raised } else { PositionClass::Unclear };
        }
        if deviations.iter().any(|one| one.class == PositionClass::Unclear) {
            return;
        }
    }
}

/// LLC references of the I/O applications per line that devices write.
fn references_per_line(slide: &Slide) -> Option<f64> {
    let per_line = |sample: &SlideSample| {
        let (references, writes) = (sample.io_references?, sample.writes?);
        (writes > 0.0).then(|| references / writes)
    };
    stats::mean(&slide.all(per_line)).map(|mean| mean.value)
}
