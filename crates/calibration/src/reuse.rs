//! From hit ratios at several occupancies to a reuse profile. It must not know masks, layouts or other tenants.
//!
//! A profile has sets of lines that are referenced with equal probability, and lines that are referenced once. A line
//! stays in the cache for a time `t` after its last use, and a line that missed is inserted with probability `q`
//! (microarchitecture.md 5: clean lines without proven reuse are mostly dropped). The occupancy fixes `t`, and `t` the hit
//! ratio: the characteristic-time approximation (Che et al. 2002) of a cache with random admission.

use crate::{Estimate, ReuseComponent};

/// Share of missed lines that the LLC takes at their MLC's eviction. Assumption: a quarter of the clean lines
/// (microarchitecture.md 4) and all of the written ones, which are a quarter of all.
const ADMITTED: f64 = 0.25 * 0.75 + 0.25;

/// Hit ratio that is seen while a tenant holds so many lines of the LLC.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Point {
    pub lines: f64,
    pub hits: Estimate,
}

/// Two sets of lines and lines that are referenced once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Profile {
    /// Share of the references, and size in lines, of each set.
    sets: [(f64, f64); 2],
    /// Mean deviation from the points, in hit ratio.
    pub residual: f64,
    /// Relative error of the sets' sizes.
    size_error: f64,
}

/// Fewest lines of a set: 64 KiB. Assumption: a smaller one is in the MLC.
const SMALLEST: f64 = 1024.0;
/// Most lines of a set, as a multiple of the LLC's. Assumption: a larger one looks like lines used once.
const LARGEST: f64 = 16.0;
/// Least error of an observed hit ratio. Assumption: what the approximation and differences between layouts add.
const FLOOR: f64 = 0.01;
/// Steps to the time that a line stays.
const STEPS: usize = 12;
/// With one point: share of the references that the one set has. The share is not known: the point fixes only the hits per
/// line. Assumption: between the set that is just held (the hit ratio itself) and the one that has all references.
fn prior_share(hits: f64) -> f64 {
    (0.85 + 0.15 * hits).min(1.0)
}

impl Profile {
    /// The profile that explains one point: hits in proportion to the lines held.
    pub fn of_one(point: Point, llc_lines: f64) -> Profile {
        let hits = point.hits.value.clamp(0.0, 1.0);
        let share = prior_share(hits);
        // While few of its lines are held, the set has its share of the lines held, as lines used once have theirs.
        let size = if hits > 1e-4 { share * share * point.lines / hits } else { f64::INFINITY };
        let largest = LARGEST * llc_lines;
        let sets = if size >= largest {
            // No more lines than that; a smaller share keeps the hits per line.
            [((hits * largest / point.lines.max(1.0)).min(share), largest), (0.0, SMALLEST)]
        } else {
            [(share, size.max(SMALLEST)), (0.0, SMALLEST)]
        };
        Profile { sets, residual: 0.0, size_error: 0.5 }
    }

    /// The profile that explains all points best, from this one on.
    pub fn fitted(self, points: &[Point], llc_lines: f64) -> Profile {
        let prior = self;
        let mut best = (self, cost(&self, &prior, points));
        let both = self.split();
        for start in [self, both] {
            let mut at = (start, cost(&start, &prior, points));
            let mut step = 1.0;
            while step > 0.05 {
                let before = at.1;
                for which in 0..4 {
                    for sign in [1.0, -1.0] {
                        let tried = at.0.moved(which, sign * step, llc_lines);
                        let tried = (tried, cost(&tried, &prior, points));
                        if tried.1 < at.1 {
                            at = tried;
                        }
                    }
                }
                if at.1 > before - 0.01 {
                    step /= 2.0;
                }
            }
            if at.1 < best.1 {
                best = at;
            }
        }
        let mut found = best.0;
        let off =
            points.iter().map(|point| (found.hits_at(point.lines) - point.hits.value).powi(2)).sum::<f64>();
        found.residual = (off / points.len() as f64).sqrt();
        // How far the points reach says how well the sizes are known.
        let (low, high) = points.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), point| {
            (low.min(point.lines), high.max(point.lines))
        });
        let reach = (high.max(1.0) / low.max(1.0)).log2();
        found.size_error = (0.5 / (1.0 + reach)).max(0.1);
        found
    }

    /// The same hits per line with a second, smaller set.
    fn split(self) -> Profile {
        let [(share, size), _] = self.sets;
        Profile { sets: [(share * 0.7, size * 1.2), (share * 0.2, (size / 8.0).max(SMALLEST))], ..self }
    }

    fn moved(mut self, which: usize, by: f64, llc_lines: f64) -> Profile {
        let (share, size) = &mut self.sets[which / 2];
        if which.is_multiple_of(2) {
            *share = (*share + 0.2 * by).clamp(0.0, 1.0);
        } else {
            *size = (*size * by.exp2()).clamp(SMALLEST, LARGEST * llc_lines);
        }
        let sum = self.sets[0].0 + self.sets[1].0;
        if sum > 1.0 {
            self.sets.iter_mut().for_each(|set| set.0 /= sum);
        }
        self
    }

    /// Hit ratio with so many lines held.
    pub fn hits_at(&self, lines: f64) -> f64 {
        let once = (1.0 - self.sets[0].0 - self.sets[1].0).max(0.0);
        // Held lines grow with the time that a line stays, ever more slowly: Newton's steps from below never pass the time
        // at which so many are held.
        let mut time = lines / ADMITTED;
        let mut hits = 0.0;
        for _ in 0..STEPS {
            let (mut held, mut slope) = (once * ADMITTED * time, once * ADMITTED);
            hits = 0.0;
            for (share, size) in self.sets {
                let (resident, growth) = resident(share * time / size);
                held += size * resident;
                slope += share * growth;
                hits += share * resident;
            }
            let missing = lines - held;
            if missing <= 1e-3 * lines || slope * time < 1e-6 * lines {
                break;
            }
            time += missing / slope;
        }
        hits
    }

    /// As a part of a description.
    pub fn components(&self) -> Vec<ReuseComponent> {
        let error = |share: f64| Estimate { value: share, error: (share * self.size_error * 0.5).min(0.3) };
        let sets = self.sets.iter().filter(|(share, _)| *share > 1e-3).map(|(share, size)| ReuseComponent {
            share: error(*share),
            lines: Some(Estimate { value: *size, error: size * self.size_error }),
        });
        let mut all: Vec<ReuseComponent> = sets.collect();
        let once = (1.0 - all.iter().map(|set| set.share.value).sum::<f64>()).max(0.0);
        all.push(ReuseComponent { share: error(once), lines: None });
        all
    }
}

/// Share of a set's lines that are in the cache, if each of them is referenced `uses` times on average while a line stays;
/// and how fast it grows with `uses`.
fn resident(uses: f64) -> (f64, f64) {
    let gone = (-uses).exp();
    let known = gone + ADMITTED * (1.0 - gone);
    (ADMITTED * (1.0 - gone) / known, ADMITTED * gone / (known * known))
}

fn cost(profile: &Profile, prior: &Profile, points: &[Point]) -> f64 {
    let off = points.iter().map(|point| {
        let error = point.hits.error.hypot(FLOOR);
        ((profile.hits_at(point.lines) - point.hits.value) / error).powi(2)
    });
    // A weak pull towards what one point alone says, so that points close together do not decide the shape.
    let pull: f64 = profile
        .sets
        .iter()
        .zip(&prior.sets)
        .map(|(is, was)| ((is.0 - was.0) / 0.5).powi(2) + ((is.1 / was.1).log2() / 6.0).powi(2))
        .sum();
    off.sum::<f64>() + 0.1 * pull
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLC: f64 = 400_000.0;

    fn point(lines: f64, hits: f64) -> Point {
        Point { lines, hits: Estimate { value: hits, error: 0.002 } }
    }

    #[test]
    fn one_point_says_hits_in_proportion_to_lines() {
        // A quarter of the hits with 20,000 lines: half of them with 10,000.
        let profile = Profile::of_one(point(20_000.0, 0.25), LLC);
        assert!((profile.hits_at(20_000.0) - 0.25).abs() < 0.03, "{}", profile.hits_at(20_000.0));
        assert!((profile.hits_at(10_000.0) - 0.125).abs() < 0.03, "{}", profile.hits_at(10_000.0));
    }

    #[test]
    fn a_set_that_is_held_as_a_whole_hits_always() {
        // 10,000 lines held of 10,500 with 98 % of hits: a uniform set of that size and little else.
        let first = point(5_000.0, 0.48);
        let points = [first, point(10_000.0, 0.97), point(30_000.0, 1.0)];
        let profile = Profile::of_one(first, LLC).fitted(&points, LLC);
        for at in points {
            let found = profile.hits_at(at.lines);
            assert!((found - at.hits.value).abs() < 0.05, "{} lines: {found}", at.lines);
        }
    }

    #[test]
    fn a_program_that_does_not_gain_from_more_lines_is_mostly_a_stream() {
        let points = [point(10_000.0, 0.10), point(40_000.0, 0.11), point(160_000.0, 0.11)];
        let profile = Profile::of_one(points[0], LLC).fitted(&points, LLC);
        assert!(profile.residual < 0.02, "{profile:?}");
        assert!(profile.hits_at(300_000.0) < 0.2, "{}", profile.hits_at(300_000.0));
    }
}
