//! Every profile of `spec` alone on the simulated Gold 5120, compared with measurements over the size of the LLC, with
//! prefetchers on and off.

use crate::common::curves::{Compared, Point, WAYS, compared, measured};
use crate::common::lock::{Numbers, key, locked};
use std::collections::HashMap;

/// What the curves depend on besides the model.
const SOURCES: &str = concat!(
    include_str!("common/curves.rs"),
    include_str!("../../../../docs/reference/spec2017-skylake-sp.csv")
);

/// Required accuracy: cycles per instruction within 10 %, misses within 15 % or 0.1 per thousand instructions.
const CPI: f64 = 0.10;
const MISSES: (f64, f64) = (0.15, 0.1);

/// Points outside of these bounds: program, prefetchers, ways and number. docs/programs.md has the reasons.
const KNOWN: [(&str, &str, u32, &str); 9] = [
    ("cam4", "off", 4, "misses"),
    ("parest", "off", 2, "cpi"),
    ("parest", "off", 2, "misses"),
    ("parest", "off", 4, "misses"),
    ("parest", "off", 11, "misses"),
    ("parest", "on", 4, "misses"),
    ("xalancbmk", "off", 4, "misses"),
    ("xalancbmk", "on", 2, "misses"),
    ("xalancbmk", "on", 4, "misses"),
];

/// The numbers of a point that are outside of the bounds, named as in `KNOWN`.
fn outside(cpi: f64, mpki: f64, target: &Point) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    if (cpi / target.cpi - 1.0).abs() > CPI {
        wrong.push(("cpi", format!("{cpi:.2} for {:.2}", target.cpi)));
    }
    if (mpki - target.mpki).abs() > (MISSES.0 * target.mpki).max(MISSES.1) {
        wrong.push(("misses", format!("{mpki:.2} for {:.2}", target.mpki)));
    }
    wrong
}

/// Every simulated point: `program/prefetchers/ways/number`.
fn simulated() -> Numbers {
    let numbers = |Compared { name, prefetchers, ways, is, .. }: Compared| {
        let named = |number: &str| format!("{name}/{prefetchers}/{ways}/{number}");
        [(named("cpi"), is.cpi), (named("mpki"), is.mpki)]
    };
    compared().into_iter().flat_map(numbers).collect()
}

#[test]
fn every_program_has_its_measured_curve() {
    let points: HashMap<_, _> = locked(&key("spec curves", SOURCES), simulated).into_iter().collect();
    assert_eq!(points.len(), 23 * 2 * WAYS.len() * 2);
    let curves = measured();
    let mut found = Vec::new();
    for (name, curve) in &curves {
        for (prefetchers, targets) in [("off", &curve.off), ("on", &curve.on)] {
            for (ways, target) in WAYS.into_iter().zip(targets) {
                let number = |number: &str| points[&format!("{name}/{prefetchers}/{ways}/{number}")];
                for (what, text) in outside(number("cpi"), number("mpki"), target) {
                    found.push((name.as_str(), prefetchers, ways, what, text));
                }
            }
        }
    }
    let named: Vec<_> = found.iter().map(|(name, on, ways, what, _)| (*name, *on, *ways, *what)).collect();
    assert_eq!(named, KNOWN, "outside of the bounds (fewer than listed is news as well): {found:#?}");
}
