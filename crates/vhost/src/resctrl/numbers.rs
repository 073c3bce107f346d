//! Number parsing as in the kernel: `kstrtoul` and similar functions (linux lib/kstrtox.c), with their rules for
//! spaces.
//!
//! It must not know what the numbers mean.

use rustix::io::Errno;

/// White space as the kernel's `isspace` defines it within ASCII.
fn is_space(letter: char) -> bool {
    letter.is_ascii_whitespace() || letter == '\x0b'
}

/// `strim`.
pub(super) fn strim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The bytes of a write as C sees them: up to the first NUL.
pub(crate) fn c_string(data: &[u8]) -> String {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    String::from_utf8_lossy(&data[..end]).into_owned()
}

/// `kstrtoull`: one number and at most one newline. Base 0 takes `0x` and a leading `0`; base 16 takes `0x` too.
/// EINVAL for anything else, ERANGE for what does not fit.
pub(super) fn kstrtoull(text: &str, base: u32) -> Result<u64, Errno> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let bytes = text.as_bytes();
    let hex = bytes.len() > 1 && bytes[0] == b'0' && bytes[1].eq_ignore_ascii_case(&b'x');
    let base = match base {
        0 if hex && bytes.get(2).is_some_and(u8::is_ascii_hexdigit) => 16,
        0 if bytes.first() == Some(&b'0') => 8,
        0 => 10,
        base => base,
    };
    let digits = if base == 16 && hex { &text[2..] } else { text };
    let end = digits.find(|letter: char| !letter.is_digit(base)).unwrap_or(digits.len());
    if end == 0 {
        return Err(Errno::INVAL);
    }
    let value = u64::from_str_radix(&digits[..end], base).map_err(|_| Errno::RANGE)?;
    let rest = &digits[end..];
    if rest.is_empty() || rest == "\n" { Ok(value) } else { Err(Errno::INVAL) }
}

/// `kstrtou32`.
pub(super) fn kstrtou32(text: &str, base: u32) -> Result<u32, Errno> {
    u32::try_from(kstrtoull(text, base)?).map_err(|_| Errno::RANGE)
}

/// `kstrtoint`.
pub(super) fn kstrtoint(text: &str, base: u32) -> Result<i32, Errno> {
    let value = match text.strip_prefix('-') {
        Some(positive) => -i128::from(kstrtoull(positive.strip_prefix('+').map_or(positive, |_| "x"), base)?),
        None => i128::from(kstrtoull(text, base)?),
    };
    i32::try_from(value).map_err(|_| Errno::RANGE)
}

/// `kstrtobool`: checks the first letter, and after an `o` the second.
pub(crate) fn kstrtobool(text: &str) -> Result<bool, Errno> {
    let mut letters = text.bytes().map(|letter| letter.to_ascii_lowercase());
    match letters.next() {
        Some(b'y' | b't' | b'1') => Ok(true),
        Some(b'n' | b'f' | b'0') => Ok(false),
        Some(b'o') => match letters.next() {
            Some(b'n') => Ok(true),
            Some(b'f') => Ok(false),
            _ => Err(Errno::INVAL),
        },
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        assert_eq!(kstrtoull("7f", 16), Ok(0x7f));
        assert_eq!(kstrtoull("0x7F\n", 16), Ok(0x7f));
        assert_eq!(kstrtoull("+12", 10), Ok(12));
        assert_eq!(kstrtoull("010", 0), Ok(8));
        assert_eq!(kstrtoull("0x10", 0), Ok(16));
        assert_eq!(kstrtoull("0", 0), Ok(0));
        for wrong in ["", "+", "0x", "x", " 1", "1 ", "1\n\n", "-1", "++1"] {
            assert_eq!(kstrtoull(wrong, 10), Err(Errno::INVAL), "{wrong:?}");
        }
        assert_eq!(kstrtoull("0x", 16), Err(Errno::INVAL));
        assert_eq!(kstrtoull("18446744073709551615", 10), Ok(u64::MAX));
        assert_eq!(kstrtoull("18446744073709551616", 10), Err(Errno::RANGE));
        assert_eq!(kstrtou32("99999999999", 0), Err(Errno::RANGE));
        assert_eq!(kstrtoint("-1", 0), Ok(-1));
        assert_eq!(kstrtoint("-+1", 0), Err(Errno::INVAL));
        assert_eq!(kstrtoint("-2147483648", 0), Ok(i32::MIN));
        assert_eq!(kstrtoint("2147483648", 0), Err(Errno::RANGE));
        assert_eq!(kstrtobool("on\n"), Ok(true));
        assert_eq!(kstrtobool("Off"), Ok(false));
        assert_eq!(kstrtobool("maybe"), Err(Errno::INVAL));
        assert_eq!(strim(" \t a b\x0b\n"), "a b");
        assert_eq!(c_string(b"12\x003"), "12");
    }
}
