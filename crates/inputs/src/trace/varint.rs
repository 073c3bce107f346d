//! LEB128 varints and zigzag: small numbers in few bytes.

/// Appends a number, seven bits a byte, lowest first, the top bit set on all but the last byte.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front; none if the bytes end within it or it exceeds 64 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        // The tenth byte holds bit 63 alone.
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A signed number as an unsigned one, small for small magnitudes.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn comes_back(values in prop::collection::vec(any::<u64>().prop_flat_map(|v| (0..64u32).prop_map(move |s| v >> s)), 0..20)) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| put(&mut bytes, *value));
            let mut rest = bytes.as_slice();
            for value in &values {
                prop_assert_eq!(take(&mut rest), Some(*value));
                prop_assert_eq!(zigzag(unzigzag(*value)), *value);
            }
            prop_assert_eq!(take(&mut rest), None);
        }
    }

    #[test]
    fn known_bytes() {
        // 300 = 0b10_0101100: low seven bits 0x2c with the top bit, then 2.
        let mut bytes = Vec::new();
        put(&mut bytes, 300);
        assert_eq!(bytes, [0xac, 0x02]);
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
        assert_eq!(take(&mut [0xff; 9].as_slice()), None);
        assert_eq!(take(&mut [0xff; 11].as_slice()), None);
        assert_eq!(
            take(&mut [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1].as_slice()),
            Some(u64::MAX)
        );
    }
}
