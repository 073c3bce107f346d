//! Times in answers and logs. A clock may be wrong by any amount: before 1970 where a board has no battery, beyond 9999
//! where a file lies. Must not read a clock.

use std::time::{Duration, SystemTime};

/// 400 years, after which the Gregorian calendar repeats: 146097 days.
const CYCLE: Duration = Duration::from_secs(146_097 * 24 * 3600);
/// The first millisecond after 9999, which RFC 3339 cannot write.
const END: Duration = Duration::from_secs(253_402_300_800);

/// A time in RFC 3339 (UTC), to the millisecond. Times before 1570 and after 9999 are shown as the nearest time between.
pub fn plain_time(at: SystemTime) -> String {
    let last = SystemTime::UNIX_EPOCH + END - Duration::from_millis(1);
    let at = at.clamp(SystemTime::UNIX_EPOCH - CYCLE, last);
    if at >= SystemTime::UNIX_EPOCH {
        return humantime::format_rfc3339_millis(at).to_string();
    }
    // humantime writes no time before 1970.
    let later = humantime::format_rfc3339_millis(at + CYCLE).to_string();
    let (year, rest) = later.split_at(4);
    let year = year.parse::<u32>().unwrap_or_default().saturating_sub(400);
    format!("{year:04}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_shown() {
        let epoch = SystemTime::UNIX_EPOCH;
        let ms = Duration::from_millis;
        let times = [
            (epoch + ms(1), "1970-01-01T00:00:00.001Z"),
            (epoch - ms(1), "1969-12-31T23:59:59.999Z"),
            // 365 days of 1969 and the last 307 of 1968, a leap year, whose 29 February is the 60th of 366 days.
            (epoch - Duration::from_secs(672 * 86_400), "1968-02-29T00:00:00.000Z"),
            (epoch - CYCLE, "1570-01-01T00:00:00.000Z"),
            (epoch - 3 * CYCLE, "1570-01-01T00:00:00.000Z"),
            (epoch + END - ms(1), "9999-12-31T23:59:59.999Z"),
            (epoch + 2 * END, "9999-12-31T23:59:59.999Z"),
        ];
        for (at, wanted) in times {
            assert_eq!(plain_time(at), wanted);
        }
    }
}
