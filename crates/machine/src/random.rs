//! Random streams and samplers that never change: the same seed gives the same numbers on every machine and with
//! every version of every library.
//!
//! Samplers are ours because a distribution crate may change its algorithm between majors, and because
//! the logarithm of the C library may differ in its last bit between CPUs (ecosystem.md 2).

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A random stream of one agent.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream of the agent called `label` in a run with this seed. Streams of different labels are independent, so
    /// that an additional agent does not change another agent's numbers.
    pub fn new(seed: u64, label: &str) -> Stream {
        // FNV-1a over the label; the generator's own seeding mixes the rest.
        let hash = label
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Stream(Xoshiro256PlusPlus::seed_from_u64(mixed(seed) ^ hash))
    }

    /// Uniform 32 bits.
    #[inline(always)]
    pub fn bits(&mut self) -> u32 {
        (self.0.next_u64() >> 32) as u32
    }

    /// Uniform in `0..n`; 0 for `n == 0`.
    #[inline(always)]
    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.bits()) * u64::from(n)) >> 32) as u32
    }

    /// Uniform in `[0, 1)`.
    #[inline(always)]
    pub fn unit(&mut self) -> f64 {
        f64::from(self.bits()) * (1.0 / 4_294_967_296.0)
    }

    /// True with probability `p`.
    #[inline(always)]
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Exponential with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(1.0 - self.unit())
    }

    /// Uniform in `mean * (1 - spread) .. mean * (1 + spread)`.
    pub fn around(&mut self, mean: f64, spread: f64) -> f64 {
        mean * (1.0 + spread * (2.0 * self.unit() - 1.0))
    }

    /// A random order of `0..n`.
    pub fn permutation(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        for last in (1..n).rev() {
            let other = self.below(last + 1);
            order.swap(last as usize, other as usize);
        }
        order
    }
}

/// Spreads neighbouring seeds over all 64 bits (Stafford's variant 13 of the murmur finaliser). A plain multiple of
/// the golden ratio is unsuitable: the generator seeds itself by steps of that number, and the
/// streams of neighbouring seeds would be one stream, shifted.
fn mixed(seed: u64) -> u64 {
    let x = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Natural logarithm by exponent split and the artanh series: the same bits on every machine, within
/// 1e-12 of the true value.
fn ln(x: f64) -> f64 {
    debug_assert!(x > 0.0 && x.is_finite());
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mut mantissa = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let series = (0..10).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    2.0 * t * series + f64::from(exponent) * std::f64::consts::LN_2
}

/// Zipf over `0..n` with exponent `theta`, as YCSB draws keys (0.99 there): inverse of the cumulative
/// table, by binary search.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// The table for `n` items; item 0 is the most popular.
    pub fn new(n: u32, theta: f64) -> Zipf {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=n.max(1))
            .map(|rank| {
                sum += exp(-theta * ln(f64::from(rank)));
                sum
            })
            .collect();
        for value in &mut cumulative {
            *value /= sum;
        }
        Zipf { cumulative }
    }

    /// One item.
    pub fn draw(&self, stream: &mut Stream) -> u32 {
        let at = stream.unit();
        self.cumulative.partition_point(|c| *c <= at).min(self.cumulative.len() - 1) as u32
    }
}

/// e^x for x <= 0 by splitting off powers of two; same bits on every machine.
fn exp(x: f64) -> f64 {
    let k = (x / std::f64::consts::LN_2).round();
    let rest = x - k * std::f64::consts::LN_2;
    let series = (1..=16).rev().fold(1.0, |sum, i| 1.0 + sum * rest / f64::from(i));
    let power = (k as i64 + 1023).max(0) as u64;
    series * f64::from_bits(power << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_agree_with_the_library() {
        for i in 1..2000 {
            let x = f64::from(i) * 0.37;
            assert!((ln(x) - x.ln()).abs() < 1e-11, "{x}");
            assert!((exp(-x / 100.0) / (-x / 100.0).exp() - 1.0).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn samplers_have_their_means() {
        let mut stream = Stream::new(7, "test");
        let n = 200_000;
        let mean = (0..n).map(|_| stream.exponential(5.0)).sum::<f64>() / f64::from(n);
        assert!((mean - 5.0).abs() < 0.05, "{mean}");
        // Zipf(0.99) over 100: P(0) = 1 / H where H = sum 1/k^0.99 = 5.2936.
        let zipf = Zipf::new(100, 0.99);
        let first = (0..n).filter(|_| zipf.draw(&mut stream) == 0).count() as f64 / f64::from(n);
        let h: f64 = (1..=100).map(|k| f64::from(k).powf(-0.99)).sum();
        assert!((first - 1.0 / h).abs() < 0.005, "{first} {h}");
    }

    #[test]
    fn labels_give_unrelated_streams_and_seeds_repeat() {
        let draw = |seed, label| Stream::new(seed, label).bits();
        assert_eq!(draw(1, "nic0"), draw(1, "nic0"));
        assert_ne!(draw(1, "nic0"), draw(1, "nic1"));
        assert_ne!(draw(1, "nic0"), draw(2, "nic0"));
        // No stream is another one shifted: the first eight draws of 64 seeds are all different.
        let mut all: Vec<u32> = (0..64)
            .flat_map(|seed| {
                let mut stream = Stream::new(seed, "nic0");
                std::iter::repeat_with(move || stream.bits()).take(8)
            })
            .collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
