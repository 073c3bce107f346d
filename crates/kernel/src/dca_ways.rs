//! The masks that the DDIO register accepts: the rules of its generation, applied to a request (hardware.md 1.2,
//! 1.4).
//!
//! Arithmetic on masks. Must not know how the register is read or written.

use std::fmt;
use std::str::FromStr;
use waykeeper_generations::{Evidence, Generation, WayRegister};
use waykeeper_units::{WayMask, shown};

/// Why the register does not get a value.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum WaysError {
    /// A value that must not be written to the register.
    #[error("DDIO ways cannot be {wanted}: {why}; accepted: {accepted}")]
    BadMask {
        /// The value given.
        wanted: String,
        /// The rule it breaks.
        why: String,
        /// The accepted values.
        accepted: String,
    },
    /// The platform does not have the register, or too little is known about it to write it.
    #[error("{WHAT} is not supported here: {0}")]
    Unsupported(String),
}

/// The requested value: a number of ways, or a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// A number of ways; the rules determine which.
    Count(u32),
    /// These ways.
    Mask(WayMask),
}

impl FromStr for Wanted {
    type Err = String;

    /// `4` is a number of ways, `0x780` a mask.
    fn from_str(text: &str) -> Result<Wanted, String> {
        let bad = || format!("`{}` is neither a number of ways like 4 nor a mask like 0x780", shown(text));
        if text.starts_with("0x") || text.starts_with("0X") {
            return text.parse().map(Wanted::Mask).map_err(|_| bad());
        }
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        text.parse().map(Wanted::Count).map_err(|_| bad())
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Count(count) => write!(f, "{count}"),
            Wanted::Mask(mask) => write!(f, "{mask}"),
        }
    }
}

/// The certainty that a register has an effect, in words.
pub fn words(standing: Evidence) -> &'static str {
    match standing {
        Evidence::Confirmed => "is known to act",
        Evidence::Claimed => "is claimed to act, but no test has confirmed it",
        Evidence::AnswersWithoutEffect => "takes values without effect",
        Evidence::Unknown => "is not known to act",
        Evidence::Absent => "does not exist",
    }
}

const WHAT: &str = "setting the DDIO ways";

/// The way register of a generation, if it may be written.
///
/// # Errors
/// [`WaysError::Unsupported`] with what is known about it.
pub fn may_write(generation: &Generation) -> Result<&WayRegister, WaysError> {
    let switch = &generation.dca.ways;
    switch.register.as_ref().filter(|_| switch.evidence.may_write()).ok_or_else(|| {
        let why = match switch.evidence {
            Evidence::Absent => format!("{}: {}", generation.name, switch.note),
            standing => format!(
                "on {} the register {}: {}; it is only read",
                generation.name,
                words(standing),
                switch.note
            ),
        };
        WaysError::Unsupported(why)
    })
}

/// The mask to write, if this generation's register accepts it.
///
/// `llc_ways` is the width of the LLC's masks, `now` the register's value.
///
/// # Errors
/// [`WaysError::Unsupported`] if the register must not be written, [`WaysError::BadMask`] if it must not get this
/// value.
pub fn plan(
    generation: &Generation,
    llc_ways: u32,
    now: WayMask,
    wanted: Wanted,
) -> Result<WayMask, WaysError> {
    let register = may_write(generation)?;
    let all = WayMask::span(0, llc_ways);
    if now.is_empty() || !now.minus(all).is_empty() {
        let why = format!(
            "the register holds {now}, which is not a mask of an LLC with {llc_ways} ways; it is left \
             unchanged"
        );
        return Err(WaysError::Unsupported(why));
    }
    // If the power-on value is unknown, the current value is kept.
    let kept = register.default.unwrap_or(now);
    let accepted = accepted(register, llc_ways, kept);
    let bad =
        |why: String| WaysError::BadMask { wanted: wanted.to_string(), why, accepted: accepted.clone() };
    match wanted {
        Wanted::Count(count) => register
            .with_ways(count, llc_ways, kept)
            .ok_or_else(|| bad(format!("the register takes no mask of {count} ways"))),
        Wanted::Mask(mask) => match broken(register, llc_ways, kept, mask) {
            Some(why) => Err(bad(why)),
            None => Ok(mask),
        },
    }
}

/// The rule that a mask breaks, if it breaks one.
fn broken(register: &WayRegister, llc_ways: u32, kept: WayMask, mask: WayMask) -> Option<String> {
    let fewest = register.lowest.map_or(1, WayMask::count);
    if mask.is_empty() {
        return Some(
            "the mask is empty; to keep devices out of the LLC use `waykeeper ddio off DEVICE`".to_owned(),
        );
    }
    if !mask.minus(WayMask::span(0, llc_ways)).is_empty() {
        return Some(format!("the LLC has {llc_ways} ways"));
    }
    if mask.count() < fewest {
        return Some(format!("it has {} of at least {fewest} ways", mask.count()));
    }
    if register.contiguous && !mask.is_contiguous() {
        return Some("it has holes".to_owned());
    }
    if register.keeps_default && !kept.minus(mask).is_empty() {
        return Some(format!("it lacks ways of {kept}, which cannot be cleared"));
    }
    if let Some(lowest) = register.lowest.filter(|lowest| mask.bits() < lowest.bits()) {
        return Some(format!("it is below {lowest}, the smallest value that the register takes"));
    }
    None
}

fn accepted(register: &WayRegister, llc_ways: u32, kept: WayMask) -> String {
    let fewest = register.lowest.map_or(1, WayMask::count);
    let form = if register.contiguous { "contiguous masks" } else { "masks" };
    let holding = if register.keeps_default { format!(" that contain {kept}") } else { String::new() };
    let low = register.lowest.map(|lowest| format!(" from {lowest} up")).unwrap_or_default();
    format!("{fewest} to {llc_ways} ways, or {form}{holding}{low}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn generation(id: &str) -> &'static Generation {
        Generation::by_id(id).unwrap()
    }

    fn mask(bits: u32) -> WayMask {
        WayMask::from_bits(bits)
    }

    fn skylake(wanted: &str) -> Result<WayMask, String> {
        plan(generation("skx"), 11, mask(0x600), wanted.parse().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn so_many_ways_are_the_topmost_ones() {
        // hardware.md 1.2: ddio-bench's seven ways are 0x7f0.
        assert_eq!(skylake("7"), Ok(mask(0x7f0)));
        assert_eq!(skylake("2"), Ok(mask(0x600)));
        assert_eq!(skylake("11"), Ok(mask(0x7ff)));
        for none in ["0", "1", "12", "4000000000"] {
            assert!(skylake(none).unwrap_err().contains("2 to 11 ways"), "{none}");
        }
    }

    #[test]
    fn a_mask_that_the_register_must_not_get_is_refused_with_the_rule() {
        assert_eq!(skylake("0x780"), Ok(mask(0x780)));
        for (wanted, why) in [
            ("0x0", "the mask is empty"),
            ("0x680", "has holes"),
            ("0x400", "1 of at least 2 ways"),
            ("0x3c0", "lacks ways of 0x600"),
            ("0xe00", "the LLC has 11 ways"),
        ] {
            let error = skylake(wanted).unwrap_err();
            assert!(
                error.contains(why) && error.contains("contiguous masks that contain 0x600"),
                "{wanted}: {error}"
            );
        }
    }

    #[test]
    fn a_register_that_does_not_act_is_not_written() {
        let icelake = plan(generation("icx"), 12, mask(0xc00), Wanted::Count(4)).unwrap_err().to_string();
        assert!(
            icelake.contains("takes values without effect") && icelake.contains("only read"),
            "{icelake}"
        );
        for id in ["spr", "emr", "gnr", "zen4", "zen5", "bdx"] {
            let refused = plan(generation(id), 16, mask(0xc000), Wanted::Count(4));
            assert!(matches!(refused, Err(WaysError::Unsupported(_))), "{id}");
        }
        for odd in [0, 0x800] {
            let refused = plan(generation("skx"), 11, mask(odd), Wanted::Count(4));
            assert!(matches!(refused, Err(WaysError::Unsupported(_))), "{odd:#x}");
        }
    }

    #[test]
    fn what_is_wanted_is_read_as_ways_or_mask() {
        assert_eq!("4".parse(), Ok(Wanted::Count(4)));
        assert_eq!("0x780".parse(), Ok(Wanted::Mask(mask(0x780))));
        for bad in ["", "780h", "-1", "+4", "0xx", "0x", "4.5", "99999999999"] {
            assert!(bad.parse::<Wanted>().is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn whatever_is_planned_keeps_the_rules(bits in 0u32..0x1000, count in 0u32..14, by_mask: bool) {
            let wanted = if by_mask { Wanted::Mask(mask(bits)) } else { Wanted::Count(count) };
            if let Ok(planned) = plan(generation("skx"), 11, mask(0x600), wanted) {
                prop_assert!(planned.is_contiguous() && planned.bits() & 0x600 == 0x600 && planned.bits() <= 0x7ff);
            }
        }
    }
}
