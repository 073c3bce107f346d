//! Dividing a run of ways among workloads by cores: largest remainder with a floor, fully deterministic.
//!
//! It must not know more of a workload than its id and number of cores.

use waykeeper_host::Workload;
use waykeeper_units::WayMask;

/// One contiguous run of ways and its workloads.
pub(crate) struct Partition<'a> {
    /// The ways.
    pub mask: WayMask,
    /// Its workloads, in order of id.
    pub members: Vec<&'a Workload>,
}

/// Divides `free` (contiguous or empty) among `groups`, at least `min_ways` each, into at most `limit` parts.
///
/// Parts get ways from the left, in order of their smallest group id. If there are more groups than possible parts, the
/// two parts with the fewest cores are merged until they fit. Empty if not even one part fits.
pub(crate) fn partition<'a>(
    groups: &[&'a Workload],
    free: WayMask,
    min_ways: u32,
    limit: u32,
) -> Vec<Partition<'a>> {
    let parts_max = (free.count() / min_ways).min(limit) as usize;
    if groups.is_empty() || parts_max == 0 {
        return Vec::new();
    }
    let mut parts: Vec<Vec<&Workload>> = groups.iter().map(|group| vec![*group]).collect();
    while parts.len() > parts_max {
        merge_lightest(&mut parts);
    }
    for part in &mut parts {
        part.sort_by_key(|group| group.id);
    }
    parts.sort_by_key(|part| part[0].id);
    let weights: Vec<u64> = parts.iter().map(|part| cores(part)).collect();
    let counts = apportion(&weights, free.count(), min_ways);
    let mut top = free.highest().map_or(0, |way| way + 1);
    let masks = counts.into_iter().map(|count| {
        top -= count;
        WayMask::span(top, count)
    });
    masks.zip(parts).map(|(mask, members)| Partition { mask, members }).collect()
}

/// Cores of a part.
fn cores(part: &[&Workload]) -> u64 {
    part.iter().map(|group| group.cores.len() as u64).sum()
}

/// Merges the part with the fewest cores into the one with the second fewest; of equals the later one is merged.
fn merge_lightest(parts: &mut Vec<Vec<&Workload>>) {
    let lightest = |parts: &[Vec<&Workload>]| {
        let by_weight = parts.iter().enumerate().rev().min_by_key(|(_, part)| cores(part));
        by_weight.map(|(index, _)| index).expect("there are at least two parts")
    };
    let first = parts.remove(lightest(parts));
    let second = lightest(parts);
    parts[second].extend(first);
}

/// Splits `total` ways by `weights`, at least `floor` to each; `total >= floor * weights.len()`.
///
/// A part whose exact share is below the floor gets the floor and leaves the division. The rest is divided by largest
/// remainder, ties to the earlier. If all weights are 0, all count the same.
fn apportion(weights: &[u64], total: u32, floor: u32) -> Vec<u32> {
    debug_assert!(u64::from(total) >= u64::from(floor) * weights.len() as u64);
    let all_weightless = weights.iter().all(|weight| *weight == 0);
    let weight = |index: usize| if all_weightless { 1 } else { weights[index] };
    let mut open: Vec<usize> = (0..weights.len()).collect();
    let mut counts = vec![floor; weights.len()];
    let mut left = u64::from(total);
    loop {
        let sum: u64 = open.iter().map(|index| weight(*index)).sum();
        let short = |index: &usize| left * weight(*index) < u64::from(floor) * sum || sum == 0;
        let floored = open.iter().filter(|index| short(index)).count();
        if floored == 0 {
            break;
        }
        open.retain(|index| !short(index));
        left -= u64::from(floor) * floored as u64;
    }
    let sum: u64 = open.iter().map(|index| weight(*index)).sum();
    let mut given = 0;
    for index in &open {
        counts[*index] = (left * weight(*index) / sum) as u32;
        given += u64::from(counts[*index]);
    }
    let mut by_remainder = open.clone();
    by_remainder.sort_by_key(|index| (std::cmp::Reverse(left * weight(*index) % sum), *index));
    for index in by_remainder.into_iter().take((left - given) as usize) {
        counts[index] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_remainder_by_hand() {
        // 11 ways, cores 4:4:1:1:1. Quotas 4, 4, 1, 1, 1.
        assert_eq!(apportion(&[4, 4, 1, 1, 1], 11, 1), [4, 4, 1, 1, 1]);
        // 11 ways, 4:4:2. Quotas 4.4, 4.4, 2.2: floors 4, 4, 2, one left, first of the equal remainders.
        assert_eq!(apportion(&[4, 4, 2], 11, 1), [5, 4, 2]);
        // 11 ways, 16:1:1. Quotas 9.78, .61, .61: two floored, the first takes the rest.
        assert_eq!(apportion(&[16, 1, 1], 11, 1), [9, 1, 1]);
        assert_eq!(apportion(&[0, 0], 11, 1), [6, 5]);
        assert_eq!(apportion(&[0, 3], 11, 2), [2, 9]);
    }

    #[test]
    fn flooring_one_can_push_another_under_the_floor() {
        // 6 ways, floor 2, 10:3:1. Quotas 4.3, 1.3, .4: both small ones floored, 2 left for the large one.
        assert_eq!(apportion(&[10, 3, 1], 6, 2), [2, 2, 2]);
    }

    #[test]
    fn every_split_is_exact_and_keeps_the_floor() {
        for total in 1..=20u32 {
            for seed in 0..400u64 {
                let parts = 1 + (seed % 5) as usize;
                let weights: Vec<u64> = (0..parts as u64).map(|i| (seed * 7 + i * 13) % 9).collect();
                for floor in 1..=2 {
                    if total >= floor * parts as u32 {
                        let counts = apportion(&weights, total, floor);
                        assert_eq!(counts.iter().sum::<u32>(), total, "{weights:?}");
                        assert!(counts.iter().all(|count| *count >= floor), "{weights:?}");
                    }
                }
            }
        }
    }
}
