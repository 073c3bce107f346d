//! Numbers in messages: as many digits as a reader needs. It must not know what a number means.

/// A number with at most four significant digits, without an exponent: `0.4123`, `12.35`, `33120000`. Never `-0`.
pub fn four_digits(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    // The exponent of the rounded number: 9.9996 becomes 10.
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    if rounded == 0.0 {
        return "0".to_owned();
    }
    let decimals = 3 - rounded.abs().log10().floor() as i32;
    let text = format!("{rounded:.0$}", usize::try_from(decimals).unwrap_or(0));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_at_most_four_significant_digits() {
        let numbers = [
            (0.410_000_1, "0.41"),
            (-0.006_324_623_828_925, "-0.006325"),
            (0.999_96, "1"),
            (9.999_6, "10"),
            (12.345, "12.35"),
            (2.0, "2"),
            (1234.56, "1235"),
            (33_123_456.0, "33120000"),
            (9_999_600.0, "10000000"),
            (1e-7, "0.0000001"),
            (0.0, "0"),
            (-0.0, "0"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in numbers {
            assert_eq!(four_digits(value), text, "{value:?}");
        }
        assert_eq!(four_digits(f64::NAN), "NaN");
    }

    #[test]
    fn what_is_shown_is_within_half_of_the_fourth_digit() {
        for step in -400..400 {
            let value = 1.2345 * 1.07_f64.powi(step);
            let shown: f64 = four_digits(value).parse().unwrap();
            assert!((shown - value).abs() <= value * 0.5e-3, "{value} {shown}");
        }
    }
}
