//! Times on the command line. Must not know what takes that long.

use std::time::Duration;

/// A time above 0; a number without a unit is in seconds, as in nvme-memload and fio.
pub fn above_zero(text: &str) -> Result<Duration, String> {
    let wanted = || format!("`{text}` is not a time above 0; write seconds (10) or a unit (500ms, 2m)");
    let time = parsed(text).ok_or_else(wanted)?;
    if time.is_zero() { Err(wanted()) } else { Ok(time) }
}

/// A time, 0 included.
pub fn any(text: &str) -> Result<Duration, String> {
    parsed(text).ok_or_else(|| format!("`{text}` is not a time; write seconds (10), a unit (500ms, 2m) or 0"))
}

fn parsed(text: &str) -> Option<Duration> {
    match text.parse::<f64>() {
        Ok(s) => Duration::try_from_secs_f64(s).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_seconds_and_units_are_taken() {
        assert_eq!(above_zero("10"), Ok(Duration::from_secs(10)));
        assert_eq!(any("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(any("0"), Ok(Duration::ZERO));
        for bad in ["", "-1", "ten", "1 fortnight", "inf"] {
            assert!(any(bad).is_err() && above_zero(bad).is_err(), "{bad}");
        }
        assert!(above_zero("0").unwrap_err().contains("`0` is not a time above 0"));
    }
}
