//! Text in UTF-16, which no reader here takes and PowerShell's `>` writes. Must not know any format.

/// True for ASCII in UTF-16 of either byte order, with its mark or without it, by its first five letters.
///
/// With five of them it is no record of ChampSim either, whose bytes 8 and 9 are 0 or 1.
pub fn is_utf_16(first: &[u8]) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let rest = first.strip_prefix(b"\xff\xfe").or_else(|| first.strip_prefix(b"\xfe\xff")).unwrap_or(first);
    let pairs = || rest.chunks_exact(2).take(5);
    let all = |place: usize| pairs().all(|pair| is_letter(pair[place]) && pair[1 - place] == 0);
    pairs().count() == 5 && (all(0) || all(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_in_utf_16_is_known_by_its_zeros() {
        for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            let wide: Vec<u8> = "\u{feff}a,b,c".encode_utf16().flat_map(bytes).collect();
            assert!(is_utf_16(&wide) && is_utf_16(&wide[2..]));
            assert!(!is_utf_16(&wide[..10]), "too short to tell");
        }
        for other in [&b"read 1000 8"[..], b"", &[0; 64], b"\xff\xferead 1000 8", b"a\0b\0c\0d\0\x01\0"] {
            assert!(!is_utf_16(other), "{other:?}");
        }
    }
}
