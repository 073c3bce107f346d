//! Whole numbers of the command line: a message names the range. Must not know any option.

use std::fmt::Display;
use std::str::FromStr;

/// A parser of whole numbers from `least` to `most`.
pub fn within<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| {
        let number = text.trim().parse::<T>().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("write a whole number from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_the_range_and_no_number_name_it() {
        let seeds = within(1u32, 10_000);
        assert_eq!((seeds("1"), seeds(" 10000 ")), (Ok(1), Ok(10_000)));
        for wrong in ["-3", "0", "10001", "many", "", "1.5", "99999999999999"] {
            assert_eq!(seeds(wrong), Err("write a whole number from 1 to 10000".to_owned()), "{wrong}");
        }
        assert_eq!(within(0u64, u64::MAX)("18446744073709551615"), Ok(u64::MAX));
    }
}
