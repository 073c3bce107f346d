//! Sizes as users write them: `64`, `32k`, `4M`, `2 MiB`, `1.5 GiB`. All binary, as cache and block sizes are, and in upper
//! or lower case, as fio reads them: `1m`, `1 MB` and `1 MiB` are the same.

use crate::shown;

/// Why a size was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a size; write bytes or use KiB, MiB, GiB, like 32KiB or 4MiB", shown(.0))]
pub struct SizeError(String);

/// Bytes in `text`. `k`, `K`, `KB` and `KiB` all mean 1024 (fio and X-Mem write them so), likewise M and G.
///
/// # Errors
/// Anything that is not a non-negative number with one of these suffixes, and anything over 2^53 bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let bad = || SizeError(text.to_owned());
    let t = text.trim();
    let split = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
    let (number, unit) = t.split_at(split);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(bad()),
    };
    let bytes = number * factor;
    if !(0.0..=9_007_199_254_740_992.0).contains(&bytes) || bytes.fract() != 0.0 {
        return Err(bad());
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary() {
        assert_eq!(parse_size("64"), Ok(64));
        assert_eq!(parse_size("32k"), Ok(32 << 10));
        assert_eq!(parse_size("2 MiB"), Ok(2 << 20));
        for megabyte in ["1m", "1M", "1 mb", "1MB", "1 MB", "1MiB"] {
            assert_eq!(parse_size(megabyte), Ok(1 << 20), "{megabyte}");
        }
        assert_eq!(parse_size("1.5GiB"), Ok(3 << 29));
        for bad in ["", "M", "-1", "1.3", "4 parsecs", "1e400", "nan", "9999999999G"] {
            assert!(parse_size(bad).is_err(), "{bad} should be refused");
        }
    }
}
