//! Statistics of repeated samples: means with errors, confidence intervals, and positions that differ from the others.
//!
//! Means and quantiles are from statrs, a maintained library without dependencies of its own (its heavier features are
//! off), which saves a table of Student's t. Must not know what was sampled.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

/// Probability that a confidence interval contains the true value: 99 %. Assumption: several dozen comparisons of a run
/// give less than one false alarm at it.
pub const CONFIDENCE: f64 = 0.99;

/// A position is raised if it is this many standard errors above the quiet level (assumption: 3 of 1000 do by chance
/// beyond 3).
pub const SIGMAS: f64 = 5.0;
/// Raised positions are separated from quiet ones by the widest gap between neighbours, as a ratio. The lower value
/// counts as at least `threshold / GAP`, so that a gap between two noise values does not count. Below this ratio
/// positions are `Unclear`. Assumption: on the virtual chips the gap is 2.9 to 9.
pub const GAP: f64 = 2.5;

/// A raised position reaches at least this fraction of the highest. Assumption: on the virtual chips DCA ways reach
/// 0.5, and inclusive ways, where a co-runner also affects devices, a third.
pub const RAISED: f64 = 0.40;

/// A mean and its standard error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error; 0 for a single sample.
    pub error: f64,
    /// Number of samples.
    pub samples: usize,
}

/// The mean of samples; `None` without samples.
pub fn mean(samples: &[f64]) -> Option<Mean> {
    let count = samples.len();
    if count == 0 {
        return None;
    }
    let error = if count < 2 { 0.0 } else { samples.std_dev() / (count as f64).sqrt() };
    Some(Mean { value: samples.mean(), error, samples: count })
}

/// Half the width of the confidence interval around a mean; `None` below two samples.
pub fn margin(mean: &Mean) -> Option<f64> {
    margin_at(mean, CONFIDENCE)
}

/// The same for another confidence, 0 to 1.
pub fn margin_at(mean: &Mean, confidence: f64) -> Option<f64> {
    let freedom = mean.samples.checked_sub(1).filter(|freedom| *freedom > 0)?;
    let t = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    Some(t.inverse_cdf(0.5 + confidence / 2.0) * mean.error)
}

/// The median; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// Samples at one of several positions, in one of several stages.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed<P> {
    /// The position.
    pub position: P,
    /// Index of the stage: positions are compared only with those of the same stage.
    pub stage: usize,
    /// The samples.
    pub samples: Vec<f64>,
}

/// Class of a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PositionClass {
    /// Like most others.
    Quiet,
    /// Clearly above the others.
    Raised,
    /// Neither.
    Unclear,
}

/// A position with its difference from the quiet ones.
#[derive(Clone, PartialEq, Debug)]
pub struct Deviation<P> {
    /// The position.
    pub position: P,
    /// Difference from the quiet level, in the unit of the samples; the mean over stages.
    pub above: f64,
    /// Standard error of the difference.
    pub error: f64,
    /// Its class.
    pub class: PositionClass,
}

/// Classifies positions as raised if they are above the quiet level by more than noise and more than `least`.
///
/// The quiet level of a stage is the median of the lower half of its positions, so fewer than half of them may be
/// raised. The error is pooled over all positions, because a few samples of one position estimate their spread badly.
/// `None` unless every position has two samples.
pub fn find_deviations<P: Copy + PartialEq>(placed: &[Placed<P>], least: f64) -> Option<Vec<Deviation<P>>> {
    let means: Vec<Mean> = placed.iter().filter_map(|one| mean(&one.samples)).collect();
    if means.len() != placed.len() || means.iter().any(|mean| mean.samples < 2) {
        return None;
    }
    let pooled = (means.iter().map(|mean| mean.error.powi(2)).sum::<f64>() / means.len() as f64).sqrt();
    let stages = placed.iter().map(|one| one.stage).max()? + 1;
    let quiet: Vec<f64> = (0..stages)
        .map(|stage| {
            let of_stage = placed.iter().zip(&means).filter(|(one, _)| one.stage == stage);
            let mut values: Vec<f64> = of_stage.map(|(_, mean)| mean.value).collect();
            values.sort_by(f64::total_cmp);
            median(&values[..values.len().div_ceil(2)]).unwrap_or(0.0)
        })
        .collect();
    let mut all: Vec<(P, Vec<f64>)> = Vec::new();
    for (one, mean) in placed.iter().zip(&means) {
        let above = mean.value - quiet[one.stage];
        match all.iter_mut().find(|(position, _)| *position == one.position) {
            Some((_, values)) => values.push(above),
            None => all.push((one.position, vec![above])),
        }
    }
    let mut deviations: Vec<Deviation<P>> = all
        .into_iter()
        .map(|(position, values)| {
            let above = values.iter().sum::<f64>() / values.len() as f64;
            Deviation {
                position,
                above,
                error: pooled / (values.len() as f64).sqrt(),
                class: PositionClass::Quiet,
            }
        })
        .collect();
    classify(&mut deviations, (SIGMAS * pooled).max(least));
    Some(deviations)
}

/// Separates the raised from the quiet positions by the widest gap.
fn classify<P>(deviations: &mut [Deviation<P>], threshold: f64) {
    let mut above: Vec<f64> = deviations.iter().map(|one| one.above).collect();
    above.sort_by(f64::total_cmp);
    // Lower values count as this: a quiet position may have any value below it.
    let floor = threshold / GAP;
    let gap = |pair: &[f64]| pair[1] / pair[0].max(floor);
    let least = threshold.max(RAISED * above.last().copied().unwrap_or(0.0));
    let widest = above.windows(2).filter(|pair| pair[1] >= least).max_by(|a, b| gap(a).total_cmp(&gap(b)));
    let Some(widest) = widest else { return };
    let is_clear = gap(widest) >= GAP;
    for one in deviations.iter_mut() {
        one.class = match one.above >= widest[1] {
            true if is_clear => PositionClass::Raised,
            false if is_clear || one.above < threshold => PositionClass::Quiet,
            _ => PositionClass::Unclear,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(stage: usize, values: &[f64]) -> Vec<Placed<usize>> {
        let samples = |value: f64| vec![value - 0.001, value, value + 0.001];
        values
            .iter()
            .enumerate()
            .map(|(position, v)| Placed { position, stage, samples: samples(*v) })
            .collect()
    }

    fn classes(placed: &[Placed<usize>], least: f64) -> String {
        let deviations = find_deviations(placed, least).unwrap();
        let letter = |class| match class {
            PositionClass::Quiet => 'q',
            PositionClass::Raised => 'R',
            PositionClass::Unclear => '?',
        };
        deviations.iter().map(|one| letter(one.class)).collect()
    }

    #[test]
    fn a_mean_knows_its_error_and_its_interval() {
        // 1, 2, 3, 4: deviation 1.29, error 0.645; t(0.995; 3) = 5.841 (any table).
        let four = mean(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((four.value - 2.5).abs() < 1e-12 && (four.error - 0.645_497).abs() < 1e-6);
        assert!((margin(&four).unwrap() - 5.841 * 0.645_497).abs() < 1e-3);
        assert_eq!(mean(&[]), None);
        assert_eq!(margin(&mean(&[1.0]).unwrap()), None);
        assert_eq!(
            [median(&[3.0, 1.0, 2.0]), median(&[1.0, 4.0]), median(&[])],
            [Some(2.0), Some(2.5), None]
        );
    }

    #[test]
    fn an_outlier_exceeds_chance_and_the_smallest_difference() {
        assert_eq!(classes(&placed(0, &[0.3, 0.3, 0.3, 0.3, 0.3, 0.42, 0.41]), 0.02), "qqqqqRR");
        // The same noise without a peak: 5 errors of 0.0006 are 0.003, and the least is 0.02.
        assert_eq!(classes(&placed(0, &[0.3, 0.31, 0.3, 0.305, 0.3]), 0.02), "qqqqq");
        // 12 and 6 points above the rest: both are raised. With 4 points the lower one is not.
        assert_eq!(classes(&placed(0, &[0.3, 0.304, 0.3, 0.3, 0.3, 0.36, 0.42]), 0.02), "qqqqqRR");
        assert_eq!(classes(&placed(0, &[0.3, 0.304, 0.3, 0.3, 0.3, 0.34, 0.42]), 0.02), "qqqqqqR");
        // 10, 4.5, 2.2 and 1 points: the widest gap is 2.2, so those above the least are unclear.
        assert_eq!(
            classes(&placed(0, &[0.3, 0.3, 0.3, 0.3, 0.3, 0.31, 0.322, 0.345, 0.4]), 0.02),
            "qqqqqq???"
        );
    }

    #[test]
    fn places_are_held_against_those_of_their_stage() {
        // Another level, half the height: position 1 is raised in both stages, position 0 in neither.
        let mut both = placed(0, &[0.30, 0.42, 0.30, 0.30, 0.30]);
        both.extend(placed(1, &[0.10, 0.16, 0.10, 0.10, 0.10]));
        let deviations = find_deviations(&both, 0.02).unwrap();
        assert!((deviations[1].above - 0.09).abs() < 1e-9 && deviations[1].class == PositionClass::Raised);
        assert!(deviations[0].class == PositionClass::Quiet && deviations[0].error < 0.0005);
    }

    #[test]
    fn one_sample_says_nothing_of_its_error() {
        let single = [Placed { position: 0, stage: 0, samples: vec![1.0] }];
        assert_eq!(find_deviations(&single, 0.1), None);
    }
}
