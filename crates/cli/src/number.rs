//! Numbers of the command line: a message names the range. Must not know any option.

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

/// A parser of seconds from `least` to `most`, in which a fraction may be given.
pub fn seconds(
    least: f64,
    most: f64,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.trim().parse::<f64>().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("write seconds from {least} to {most}, like 30 or 0.5"))
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

    #[test]
    fn seconds_outside_the_range_and_no_number_name_it() {
        let day = seconds(0.001, 86_400.0);
        assert_eq!((day("0.001"), day(" 86400 ")), (Ok(0.001), Ok(86_400.0)));
        for wrong in ["0", "-1", "86400.1", "1s", "nan", "inf", ""] {
            let wanted = "write seconds from 0.001 to 86400, like 30 or 0.5".to_owned();
            assert_eq!(day(wrong), Err(wanted), "{wrong}");
        }
    }
}
