//! The range and the unit of every number in a chip file, in one list. What relates two numbers is checked beside it
//! (spec.rs).

use crate::MAX_CORES;
use crate::line::LineTag;
use toml::{Table, Value};
use waykeeper_units::quantity::{COUNT, GB_PER_S, GHZ, NS, Unit};

/// A number of a chip file.
struct Number {
    /// Dotted key.
    key: &'static str,
    least: f64,
    most: f64,
    unit: Unit,
    is_whole: bool,
}

const fn number(key: &'static str, least: f64, most: f64, unit: Unit) -> Number {
    Number { key, least, most, unit, is_whole: false }
}

const fn whole(key: &'static str, least: f64, most: f64) -> Number {
    Number { key, least, most, unit: COUNT, is_whole: true }
}

/// All numbers. Latencies and bandwidths have ranges that every machine sold since 2010 is well within.
const NUMBERS: &[Number] = &[
    whole("cores", 1.0, MAX_CORES as f64),
    number("ghz", 0.5, 10.0, GHZ),
    number("core_to_core_factor", 0.1, 100.0, COUNT),
    // CPUID leaf 1: 4 bits of family plus 8 of extended family where the former are 15.
    whole("identity.family", 1.0, 270.0),
    whole("identity.model", 0.0, 255.0),
    whole("identity.stepping", 0.0, 15.0),
    whole("mlc.sets", 16.0, (1_u32 << u32::SET_BITS) as f64),
    whole("mlc.ways", 2.0, 16.0),
    whole("llc.slices", 1.0, <u32 as LineTag>::SLICES as f64),
    whole("llc.sets", 16.0, 262_144.0),
    whole("llc.ways", 1.0, 32.0),
    whole("llc.clos", 1.0, 255.0),
    whole("llc.min_ways", 1.0, 32.0),
    number("dependent.mlc_ns", 0.5, 10_000.0, NS),
    number("dependent.llc_ns", 0.5, 10_000.0, NS),
    number("dependent.memory_ns", 0.5, 10_000.0, NS),
    number("streaming.mlc_ns", 0.1, 10_000.0, NS),
    number("streaming.llc_ns", 0.1, 10_000.0, NS),
    number("streaming.memory_ns", 0.1, 10_000.0, NS),
    whole("dram.channels", 1.0, 64.0),
    whole("dram.capacity_gib", 1.0, 64.0),
    number("dram.channel_gb_per_s", 0.5, 500.0, GB_PER_S),
    number("dram.load_slope", 0.0, 10.0, COUNT),
    number("dram.max_utilisation", 0.0, 0.99, COUNT),
];

impl Number {
    fn holds(&self, value: f64) -> bool {
        (self.least..=self.most).contains(&value) && (!self.is_whole || value.fract() == 0.0)
    }

    /// What is accepted, with the unit that was probably meant.
    fn wanted(&self, value: f64) -> String {
        let Number { least, most, unit, is_whole, .. } = self;
        let kind = if *is_whole { "a whole number from " } else { "" };
        format!(
            "{kind}{least} to {most}{}{}",
            unit.after_number(),
            unit.meant(value, |value| self.holds(value))
        )
    }
}

/// The first number, in the order of the list, that is none or out of its range: key, value, what is accepted. A key that is
/// missing is none.
pub(crate) fn check(chip: &Table) -> Result<(), (&'static str, String, String)> {
    for number in NUMBERS {
        let mut keys = number.key.split('.');
        let first = keys.next().and_then(|key| chip.get(key));
        let Some(found) = first.and_then(|first| keys.try_fold(first, |table, key| table.get(key))) else {
            continue;
        };
        let value = match found {
            Value::Integer(value) => *value as f64,
            // The reader of the chip takes no float for a count.
            Value::Float(value) if number.is_whole => {
                return Err((number.key, found.to_string(), number.wanted(*value)));
            }
            Value::Float(value) => *value,
            other => {
                return Err((
                    number.key,
                    other.to_string(),
                    number.wanted(f64::NAN) + if other.is_str() { ", without quotes" } else { "" },
                ));
            }
        };
        if !number.holds(value) {
            return Err((number.key, found.to_string(), number.wanted(value)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ChipSpec;

    /// The dotted keys of all numbers of a table.
    fn keys(table: &Value, path: &str, into: &mut Vec<String>) {
        for (key, value) in table.as_table().into_iter().flatten() {
            let path = format!("{path}{key}");
            match value {
                Value::Float(_) | Value::Integer(_) => into.push(path),
                _ => keys(value, &format!("{path}."), into),
            }
        }
    }

    #[test]
    fn every_number_of_a_chip_has_a_range_and_every_range_a_number() {
        let mut found = Vec::new();
        for name in ChipSpec::built_in_names() {
            let chip: toml::Table = ChipSpec::built_in_text(name).unwrap().parse().unwrap();
            keys(&Value::Table(chip), "", &mut found);
        }
        found.sort_unstable();
        found.dedup();
        // Those of `[rules]` are checked by `Rules::check`, which a scenario's `[model]` needs as well.
        found.retain(|key| !key.starts_with("rules."));
        let mut listed: Vec<&str> = NUMBERS.iter().map(|number| number.key).collect();
        listed.sort_unstable();
        assert_eq!(found, listed);
    }

    #[test]
    fn the_unit_that_was_meant_is_named() {
        let good = ChipSpec::built_in_text("gold-6140").unwrap();
        let error = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            ChipSpec::parse("my.toml", &good.replacen(from, to, 1)).unwrap_err().to_string()
        };
        for (from, to, said) in [
            ("ghz = 2.3", "ghz = 2300", "`ghz` is 2300; it must be 0.5 to 10 GHz; 2300 MHz are 2.3 GHz"),
            ("ghz = 2.3", "ghz = 2.3e9", "2300000000 Hz are 2.3 GHz"),
            ("ghz = 2.3", "ghz = 0", "`ghz` is 0; it must be 0.5 to 10 GHz"),
            ("ghz = 2.3", "ghz = nan", "`ghz` is nan; it must be 0.5 to 10 GHz"),
            (
                "channel_gb_per_s = 17.5",
                "channel_gb_per_s = 17500",
                "0.5 to 500 GB/s; 17500 MB/s are 17.5 GB/s",
            ),
            ("memory_ns = 98.0", "memory_ns = 0.098", "0.5 to 10000 ns; 0.098 us are 98 ns"),
            ("memory_ns = 98.0", "memory_ns = 98000", "0.5 to 10000 ns; 98000 ps are 98 ns"),
            (
                "memory_ns = 98.0",
                "memory_ns = inf",
                "`dependent.memory_ns` is inf; it must be 0.5 to 10000 ns",
            ),
            ("cores = 18", "cores = 0", "`cores` is 0; it must be a whole number from 1 to 250"),
            // What the type of the number cannot hold.
            ("clos = 16", "clos = -1", "`llc.clos` is -1; it must be a whole number from 1 to 255"),
            (
                "cores = 18",
                "cores = 5000000000",
                "`cores` is 5000000000; it must be a whole number from 1 to 250",
            ),
            ("cores = 18", "cores = 17.5", "`cores` is 17.5; it must be a whole number from 1 to 250"),
            ("cores = 18", "cores = nan", "`cores` is nan; it must be a whole number from 1 to 250"),
            (
                "cores = 18",
                "cores = \"18\"",
                "`cores` is \"18\"; it must be a whole number from 1 to 250, without quotes",
            ),
            ("ghz = 2.3", "ghz = [2]", "`ghz` is [2]; it must be 0.5 to 10 GHz"),
        ] {
            let error = error(from, to);
            assert!(error.ends_with(said) || error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_level_that_is_further_away_is_not_faster() {
        let good = ChipSpec::built_in_text("gold-6140").unwrap();
        for (from, to, said) in [
            (
                "llc_ns = 31.0",
                "llc_ns = 310",
                "`dependent.llc_ns` is 310; it must be at most dependent.memory_ns (98)",
            ),
            (
                "mlc_ns = 6.5",
                "mlc_ns = 65",
                "`dependent.mlc_ns` is 65; it must be at most dependent.llc_ns (31)",
            ),
            (
                "llc_ns = 5.5",
                "llc_ns = 12",
                "`streaming.llc_ns` is 12; it must be at most streaming.memory_ns (11.5)",
            ),
        ] {
            let error = ChipSpec::parse("my.toml", &good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.ends_with(said), "{error}");
        }
    }
}
