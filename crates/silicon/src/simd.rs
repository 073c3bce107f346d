//! Compares all tags or states of a set at once. Must not know what they mean.
//!
//! One comparison of sixteen lanes costs the same as one of a single lane, and the absence of an early
//! exit leaves nothing to mispredict (performance.md 1: twice as fast as a scan). On x86-64 this is SSE2,
//! which every such CPU has, so the same binary gives the same results everywhere; elsewhere the plain
//! loop below is what the compiler vectorises as it can.

/// Lanes compared at once.
pub const LANES: usize = 16;

/// Bit i is set where `lanes[i] == value`.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn eq_u16(lanes: &[u16; LANES], value: u16) -> u32 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    };
    let halves = lanes.as_ptr().cast::<__m128i>();
    // SAFETY: the array is 32 bytes, two unaligned 16-byte loads from its start stay inside it; SSE2 is
    // part of x86-64.
    let packed = unsafe {
        let wanted = _mm_set1_epi16(value.cast_signed());
        let low = _mm_cmpeq_epi16(_mm_loadu_si128(halves), wanted);
        let high = _mm_cmpeq_epi16(_mm_loadu_si128(halves.add(1)), wanted);
        _mm_movemask_epi8(_mm_packs_epi16(low, high))
    };
    packed.cast_unsigned()
}

/// Bit i is set where `lanes[i] == value`.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn eq_u16(lanes: &[u16; LANES], value: u16) -> u32 {
    lanes.iter().enumerate().fold(0, |bits, (i, lane)| bits | u32::from(*lane == value) << i)
}

/// Bit i is set where `lanes[i] == value`.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn eq_u32(lanes: &[u32; LANES], value: u32) -> u32 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
        _mm_set1_epi32,
    };
    let quarters = lanes.as_ptr().cast::<__m128i>();
    // SAFETY: the array is 64 bytes, four unaligned 16-byte loads from its start stay inside it; SSE2 is part of
    // x86-64.
    let packed = unsafe {
        let wanted = _mm_set1_epi32(value.cast_signed());
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| _mm_cmpeq_epi32(_mm_loadu_si128(quarters.add(i)), wanted));
        _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d)))
    };
    packed.cast_unsigned()
}

/// Bit i is set where `lanes[i] == value`.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn eq_u32(lanes: &[u32; LANES], value: u32) -> u32 {
    lanes.iter().enumerate().fold(0, |bits, (i, lane)| bits | u32::from(*lane == value) << i)
}

/// Bit i is set where `lanes[i] & and == value`.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn eq_masked_u8(lanes: &[u8; LANES], and: u8, value: u8) -> u32 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    // SAFETY: one unaligned 16-byte load from a 16-byte array; SSE2 is part of x86-64.
    let bits = unsafe {
        let all = _mm_loadu_si128(lanes.as_ptr().cast::<__m128i>());
        let kept = _mm_and_si128(all, _mm_set1_epi8(and.cast_signed()));
        _mm_movemask_epi8(_mm_cmpeq_epi8(kept, _mm_set1_epi8(value.cast_signed())))
    };
    bits.cast_unsigned()
}

/// Bit i is set where `lanes[i] & and == value`.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn eq_masked_u8(lanes: &[u8; LANES], and: u8, value: u8) -> u32 {
    lanes.iter().enumerate().fold(0, |bits, (i, lane)| bits | u32::from(lane & and == value) << i)
}

/// Adds `amount` to every lane whose `mask` byte is 0xff; the others, whose byte is 0, are unchanged.
///
/// Intrinsics, because the compiler vectorises a loop over sixteen bytes or splits it into single bytes depending on
/// what is inlined around it, and byte stores stall the vector load of the next access to the set (measured: 115
/// against 185 M accesses/s on plain x86-64).
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub fn add_where(lanes: &mut [u8; LANES], mask: &[u8; LANES], amount: u8) {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_storeu_si128,
    };
    let place = lanes.as_mut_ptr().cast::<__m128i>();
    // SAFETY: unaligned 16-byte accesses to 16-byte arrays, one of them exclusively borrowed; SSE2 is part of
    // x86-64.
    unsafe {
        let wanted = _mm_loadu_si128(mask.as_ptr().cast::<__m128i>());
        let added = _mm_and_si128(_mm_set1_epi8(amount.cast_signed()), wanted);
        _mm_storeu_si128(place, _mm_add_epi8(_mm_loadu_si128(place), added));
    }
}

/// Adds `amount` to every lane whose `mask` byte is 0xff; the others, whose byte is 0, stay.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
pub fn add_where(lanes: &mut [u8; LANES], mask: &[u8; LANES], amount: u8) {
    for (lane, byte) in lanes.iter_mut().zip(mask) {
        *lane = lane.wrapping_add(amount & byte);
    }
}

/// Prefetches the cache line at `at`. A hint: changes no result.
#[inline(always)]
pub fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching a valid reference reads nothing the program can observe.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_is_compared() {
        for lane in 0..LANES {
            let mut tags = [7u16; LANES];
            tags[lane] = 0x8001;
            assert_eq!(eq_u16(&tags, 0x8001), 1 << lane);
            assert_eq!(eq_u16(&tags, 7), 0xffff & !(1 << lane));
            let mut tags = [7u32; LANES];
            tags[lane] = 0x8000_0001;
            assert_eq!(eq_u32(&tags, 0x8000_0001), 1 << lane);
            assert_eq!(eq_u32(&tags, 7), 0xffff & !(1 << lane));
            let mut states = [0b1100u8; LANES];
            states[lane] = 0b1111;
            assert_eq!(eq_masked_u8(&states, 3, 3), 1 << lane);
            let mut mask = [0u8; LANES];
            mask[lane] = 0xff;
            states[lane] = 0xfe;
            add_where(&mut states, &mask, 3);
            assert_eq!(states, std::array::from_fn(|i| if i == lane { 1 } else { 0b1100 }));
        }
    }
}
