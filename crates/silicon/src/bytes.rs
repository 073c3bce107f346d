//! Sixteen bytes, or a set's sixteen tags, as values of one register: each operation is on all lanes at once.
//!
//! Rules on the ways of a set so have no branch to mispredict and store no single byte, which would stall the next
//! load of the set. Must not know what the lanes mean. With AVX2, which .cargo/config.toml asks for, the operations are
//! its instructions; elsewhere the loops of `plain` give the same results.

use crate::simd::LANES;

#[cfg(target_feature = "avx2")]
pub use avx::Bytes;
#[cfg(not(target_feature = "avx2"))]
pub use plain::Bytes;

#[cfg(target_feature = "avx2")]
mod avx {
    use super::LANES;
    use std::arch::x86_64::*;

    /// Calls of intrinsics on values.
    macro_rules! sse {
        ($call:expr) => {
            // SAFETY: this module is built only for processors with AVX2, and none of these has a pointer.
            unsafe { $call }
        };
    }

    /// A byte per lane.
    #[derive(Clone, Copy, Debug)]
    pub struct Bytes(__m128i);

    #[inline(always)]
    fn load<T, const N: usize>(lanes: &[T; N], part: usize) -> __m128i {
        assert!((part + 1) * 16 <= size_of_val(lanes));
        // SAFETY: an unaligned 16-byte load inside the array, which was just checked.
        unsafe { _mm_loadu_si128(lanes.as_ptr().cast::<__m128i>().add(part)) }
    }

    #[inline(always)]
    fn store<T, const N: usize>(lanes: &mut [T; N], part: usize, value: __m128i) {
        assert!((part + 1) * 16 <= size_of_val(lanes));
        // SAFETY: an unaligned 16-byte store inside the array, which was just checked and is of integers.
        unsafe { _mm_storeu_si128(lanes.as_mut_ptr().cast::<__m128i>().add(part), value) }
    }

    impl Bytes {
        #[inline(always)]
        pub fn from_array(lanes: &[u8; LANES]) -> Bytes {
            Bytes(load(lanes, 0))
        }

        #[inline(always)]
        pub fn store(self, lanes: &mut [u8; LANES]) {
            store(lanes, 0, self.0);
        }

        /// The same byte in every lane.
        #[inline(always)]
        pub fn all(byte: u8) -> Bytes {
            Bytes(sse!(_mm_set1_epi8(byte.cast_signed())))
        }

        /// 0xff where a tag is `tag`, else 0.
        #[inline(always)]
        pub fn tags_equal(tags: &[u16; LANES], tag: u16) -> Bytes {
            let tag = sse!(_mm_set1_epi16(tag.cast_signed()));
            let [low, high] = [0, 1].map(|half| sse!(_mm_cmpeq_epi16(load(tags, half), tag)));
            Bytes(sse!(_mm_packs_epi16(low, high)))
        }

        /// Puts `tag` where this is 0xff.
        #[inline(always)]
        pub fn replace_tags(self, tags: &mut [u16; LANES], tag: u16) {
            let tag = sse!(_mm_set1_epi16(tag.cast_signed()));
            let wide = sse!([_mm_unpacklo_epi8(self.0, self.0), _mm_unpackhi_epi8(self.0, self.0)]);
            for (half, mask) in wide.into_iter().enumerate() {
                let kept = load(tags, half);
                store(tags, half, sse!(_mm_blendv_epi8(kept, tag, mask)));
            }
        }

        #[inline(always)]
        pub fn and(self, other: Bytes) -> Bytes {
            Bytes(sse!(_mm_and_si128(self.0, other.0)))
        }

        /// This where `other` is 0 bits.
        #[inline(always)]
        pub fn without(self, other: Bytes) -> Bytes {
            Bytes(sse!(_mm_andnot_si128(other.0, self.0)))
        }

        #[inline(always)]
        pub fn or(self, other: Bytes) -> Bytes {
            Bytes(sse!(_mm_or_si128(self.0, other.0)))
        }

        #[inline(always)]
        pub fn plus(self, other: Bytes) -> Bytes {
            Bytes(sse!(_mm_add_epi8(self.0, other.0)))
        }

        /// The difference, but not below 0.
        #[inline(always)]
        pub fn minus(self, other: Bytes) -> Bytes {
            Bytes(sse!(_mm_subs_epu8(self.0, other.0)))
        }

        /// Bits moved left by `N`; what leaves a byte must be 0.
        #[inline(always)]
        pub fn left<const N: i32>(self) -> Bytes {
            Bytes(sse!(_mm_slli_epi16::<N>(self.0)))
        }

        /// Bits moved right by `N`; the `N` lowest of each byte must be 0 or are found in the byte before.
        #[inline(always)]
        pub fn right<const N: i32>(self) -> Bytes {
            Bytes(sse!(_mm_and_si128(
                _mm_srli_epi16::<N>(self.0),
                _mm_set1_epi8((0xffu8 >> N).cast_signed())
            )))
        }

        /// 0xff where both are equal, else 0.
        #[inline(always)]
        pub fn equal(self, other: Bytes) -> Bytes {
            Bytes(sse!(_mm_cmpeq_epi8(self.0, other.0)))
        }

        /// `yes` where this is 0xff, `no` where it is 0.
        #[inline(always)]
        pub fn select(self, yes: Bytes, no: Bytes) -> Bytes {
            Bytes(sse!(_mm_blendv_epi8(no.0, yes.0, self.0)))
        }

        /// The least byte, in every lane.
        #[inline(always)]
        pub fn least(self) -> Bytes {
            // The lesser of each pair in 16 bits, whose high byte becomes 0.
            let pairs = sse!(_mm_min_epu8(self.0, _mm_srli_epi16::<8>(self.0)));
            Bytes(sse!(_mm_broadcastb_epi8(_mm_minpos_epu16(pairs))))
        }

        /// Lane 0.
        #[inline(always)]
        pub fn first(self) -> u8 {
            sse!(_mm_cvtsi128_si32(self.0)).cast_unsigned() as u8
        }
    }
}

#[cfg(any(test, not(target_feature = "avx2")))]
mod plain {
    use super::LANES;
    use std::array::from_fn;

    /// A byte per lane.
    #[derive(Clone, Copy, Debug)]
    pub struct Bytes([u8; LANES]);

    const fn mask(set: bool) -> u8 {
        if set { 0xff } else { 0 }
    }

    impl Bytes {
        pub fn from_array(lanes: &[u8; LANES]) -> Bytes {
            Bytes(*lanes)
        }

        pub fn store(self, lanes: &mut [u8; LANES]) {
            *lanes = self.0;
        }

        pub fn all(byte: u8) -> Bytes {
            Bytes([byte; LANES])
        }

        pub fn tags_equal(tags: &[u16; LANES], tag: u16) -> Bytes {
            Bytes(from_fn(|lane| mask(tags[lane] == tag)))
        }

        pub fn replace_tags(self, tags: &mut [u16; LANES], tag: u16) {
            *tags = from_fn(|lane| if self.0[lane] == 0 { tags[lane] } else { tag });
        }

        fn with(self, other: Bytes, of: impl Fn(u8, u8) -> u8) -> Bytes {
            Bytes(from_fn(|lane| of(self.0[lane], other.0[lane])))
        }

        pub fn and(self, other: Bytes) -> Bytes {
            self.with(other, |one, other| one & other)
        }

        pub fn without(self, other: Bytes) -> Bytes {
            self.with(other, |one, other| one & !other)
        }

        pub fn or(self, other: Bytes) -> Bytes {
            self.with(other, |one, other| one | other)
        }

        pub fn plus(self, other: Bytes) -> Bytes {
            self.with(other, u8::wrapping_add)
        }

        pub fn minus(self, other: Bytes) -> Bytes {
            self.with(other, u8::saturating_sub)
        }

        pub fn left<const N: i32>(self) -> Bytes {
            Bytes(self.0.map(|byte| byte << N))
        }

        pub fn right<const N: i32>(self) -> Bytes {
            Bytes(self.0.map(|byte| byte >> N))
        }

        pub fn equal(self, other: Bytes) -> Bytes {
            self.with(other, |one, other| mask(one == other))
        }

        pub fn select(self, yes: Bytes, no: Bytes) -> Bytes {
            self.and(yes).or(no.without(self))
        }

        pub fn least(self) -> Bytes {
            Bytes::all(self.0.into_iter().fold(u8::MAX, u8::min))
        }

        pub fn first(self) -> u8 {
            self.0[0]
        }
    }
}

#[cfg(all(test, target_feature = "avx2"))]
mod tests {
    use super::{LANES, avx, plain};

    /// The same expression in both.
    macro_rules! agree {
        ($one:expr, $other:expr, $bytes:ident, $a:ident, $b:ident, $value:expr) => {{
            let results = [
                {
                    use avx::Bytes as $bytes;
                    let ($a, $b) = ($bytes::from_array(&$one), $bytes::from_array(&$other));
                    let mut lanes = [0; LANES];
                    $value.store(&mut lanes);
                    lanes
                },
                {
                    use plain::Bytes as $bytes;
                    let ($a, $b) = ($bytes::from_array(&$one), $bytes::from_array(&$other));
                    let mut lanes = [0; LANES];
                    $value.store(&mut lanes);
                    lanes
                },
            ];
            assert_eq!(results[0], results[1], "{}", stringify!($value));
        }};
    }

    #[test]
    fn the_instructions_do_what_the_loops_do() {
        for seed in 0..256usize {
            let one: [u8; LANES] =
                std::array::from_fn(|lane| (seed * 37 + lane * 101 + lane * lane * 7) as u8);
            let other: [u8; LANES] = std::array::from_fn(|lane| (seed * 11 + lane * 59) as u8);
            let low = one.map(|byte| byte & 0x0f);
            agree!(one, other, Bytes, a, b, a.and(b));
            agree!(one, other, Bytes, a, b, a.without(b));
            agree!(one, other, Bytes, a, b, a.or(b));
            agree!(one, other, Bytes, a, b, a.plus(b));
            agree!(one, other, Bytes, a, b, a.minus(b));
            agree!(one, other, Bytes, a, b, a.right::<1>().or(b.right::<4>()));
            agree!(low, other, Bytes, a, b, a.left::<4>().or(b));
            agree!(one, low, Bytes, a, b, a.equal(b).or(a.equal(a.least())));
            agree!(one, other, Bytes, a, b, a.minus(b).equal(Bytes::all(0)).select(a, b));
            agree!(one, other, Bytes, a, b, a.least().or(Bytes::all(b.first())));
            let tags: [u16; LANES] =
                std::array::from_fn(|lane| u16::from(one[lane]) << 8 | u16::from(other[lane]));
            agree!(one, other, Bytes, a, _b, Bytes::tags_equal(&tags, tags[seed % LANES]).and(a));
            let chosen: [u8; LANES] = std::array::from_fn(|lane| if one[lane] > 99 { 0xff } else { 0 });
            let (mut fast, mut slow) = (tags, tags);
            avx::Bytes::from_array(&chosen).replace_tags(&mut fast, 0x8001);
            plain::Bytes::from_array(&chosen).replace_tags(&mut slow, 0x8001);
            assert_eq!(fast, slow);
        }
    }
}
