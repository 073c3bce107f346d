//! Units of the numbers in files, and those in which other tools give the same quantity. A message about a number out of
//! its range names the unit that was probably meant. Must not know any file or range.

/// A unit.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// As messages write it; empty for a count or a ratio.
    pub name: &'static str,
    /// Other units of the quantity, and how many of this one each is.
    others: &'static [(&'static str, f64)],
}

/// A count, or a ratio without a percentage.
pub const COUNT: Unit = Unit { name: "", others: &[] };
/// A share from 0 to 1.
pub const SHARE: Unit = Unit { name: "", others: &[("%", 0.01)] };
/// ChampSim and zsim give MHz, sysfs kHz.
pub const GHZ: Unit = Unit { name: "GHz", others: &[("MHz", 1e-3), ("kHz", 1e-6), ("Hz", 1e-9)] };
/// Memory bandwidth; Intel's mlc prints MB/s.
pub const GB_PER_S: Unit = Unit { name: "GB/s", others: &[("MB/s", 1e-3), ("B/s", 1e-9)] };
/// Rates of networks; ethtool prints Mb/s.
pub const GBPS: Unit = Unit { name: "Gb/s", others: &[("Mb/s", 1e-3), ("kb/s", 1e-6), ("b/s", 1e-9)] };
/// Nanoseconds.
pub const NS: Unit = Unit { name: "ns", others: &[("ps", 1e-3), ("us", 1e3), ("s", 1e9)] };
const US: Unit = Unit { name: "us", others: &[("ns", 1e-3), ("ms", 1e3), ("s", 1e6)] };
const MS: Unit = Unit { name: "ms", others: &[("us", 1e-3), ("s", 1e3), ("ns", 1e-6)] };
/// Seconds.
pub const S: Unit = Unit { name: "s", others: &[("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)] };
const MHZ: Unit = Unit { name: "MHz", others: &[("kHz", 1e-3), ("GHz", 1e3), ("Hz", 1e-6)] };
const PER_S: Unit = Unit { name: "per second", others: &[] };

/// Ends of the names of keys, the longer of two first.
const ENDS: [(&str, Unit); 13] = [
    ("gb_per_s", GB_PER_S),
    ("_per_s", PER_S),
    ("gbps", GBPS),
    ("_ns", NS),
    ("_us", US),
    ("_ms", MS),
    ("_s", S),
    ("_mhz", MHZ),
    ("ghz", GHZ),
    ("_share", SHARE),
    ("_part", SHARE),
    ("_ratio", SHARE),
    ("_thr", SHARE),
];

/// A number is just outside of a range if this factor moves it inside: then its unit is probably right (ours).
const JUST_OUTSIDE: f64 = 1.25;

impl Unit {
    /// The unit of a key, by the end of its name.
    pub fn of_key(key: &str) -> Unit {
        ENDS.iter().find(|(end, _)| key.ends_with(end)).map_or(COUNT, |(_, unit)| *unit)
    }

    /// ` GHz` for a message, nothing for a count.
    pub fn after_number(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!(" {}", self.name) }
    }

    /// `; 2300 MHz are 2.3 GHz`: another unit in which the value is within the range; nothing if there is none, or if the
    /// value is just outside.
    pub fn meant(&self, value: f64, is_within: impl Fn(f64) -> bool) -> String {
        if is_within(value / JUST_OUTSIDE) || is_within(value * JUST_OUTSIDE) {
            return String::new();
        }
        let meant = self.others.iter().find(|(_, of_this)| is_within(here(value, *of_this)));
        meant.map_or_else(String::new, |(other, of_this)| {
            format!("; {value} {other} are {}{}", here(value, *of_this), self.after_number())
        })
    }
}

/// A value of another unit in this one. Twelve digits hide that 0.098 * 1000 is not 98 in binary.
fn here(value: f64, of_this: f64) -> f64 {
    let exact = value * of_this;
    let rounded = (exact * 1e12).round() / 1e12;
    if rounded.is_finite() { rounded } else { exact }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_that_was_meant_is_within_the_range() {
        let meant = |key: &str, value: f64, range: std::ops::RangeInclusive<f64>| {
            Unit::of_key(key).meant(value, |value| range.contains(&value))
        };
        assert_eq!(meant("ghz", 2300.0, 0.5..=10.0), "; 2300 MHz are 2.3 GHz");
        assert_eq!(meant("offered_gbps", 10_000.0, 0.0..=100.0), "; 10000 Mb/s are 10 Gb/s");
        assert_eq!(meant("period_s", 5000.0, 0.005..=3600.0), "; 5000 ms are 5 s");
        assert_eq!(meant("write_share", 30.0, 0.0..=1.0), "; 30 % are 0.3");
        assert_eq!(meant("drive_gb_per_s", 2690.0, 0.01..=64.0), "; 2690 MB/s are 2.69 GB/s");
        // No unit makes it fit; a count has no other unit; no number is no number in any.
        assert_eq!(meant("outside_us", -1.0, 0.0..=1e6), "");
        assert_eq!(meant("depth", 5000.0, 1.0..=1024.0), "");
        assert_eq!(meant("every_s", 86_401.0, 10.0..=86_400.0), "");
        assert_eq!(meant("ghz", f64::NAN, 0.5..=10.0), "");
        assert_eq!(Unit::of_key("commands_per_s").after_number(), " per second");
        assert_eq!(Unit::of_key("flows").after_number(), "");
    }
}
