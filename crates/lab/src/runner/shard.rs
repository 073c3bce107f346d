//! A share of an experiment's simulations, so that the jobs of an array run one experiment together. Each shard keeps what
//! it has simulated; an experiment that reads the kept runs of all shards has the result of one that was not divided. Must
//! not know how jobs are started nor which folder they share.

use super::carry_out::Collected;
use super::{Experiment, RunError, RunWatcher, cohort};
use std::fmt;
use std::str::FromStr;

/// Most shards: a larger number is probably a typing error (ours).
const MOST_SHARDS: usize = 100_000;

/// Shard `index` of `count`, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Shard {
    /// The number of shards.
    pub fn count(self) -> usize {
        self.count
    }
}

impl FromStr for Shard {
    type Err = String;

    /// Reads `I/N`.
    ///
    /// # Errors
    /// What is accepted, in a line.
    fn from_str(text: &str) -> Result<Shard, String> {
        let parts =
            text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        let (index, count): (usize, usize) = parts.ok_or("write I/N, like 3/100: shard 3 of 100")?;
        if !(1..=MOST_SHARDS).contains(&count) {
            return Err(format!("N is {count}; it must be 1 to {MOST_SHARDS}"));
        }
        if !(1..=count).contains(&index) {
            return Err(format!("I is {index}; it must be 1 to {count}"));
        }
        Ok(Shard { index, count })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// What a shard has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardOutcome {
    /// Simulations of the shard.
    pub runs: usize,
    /// Those that have ended, now or before. Fewer than `runs` if the stop flag was set.
    pub ended: usize,
    /// Those that ended now and could not be kept; they are lost.
    pub lost: usize,
}

impl Experiment {
    /// The simulations of a shard, as a flag for each of [`Experiment::runs`]. Simulations that share a server until their
    /// policies set different knobs are in one shard, so that dividing costs no work. Which they are does not depend on
    /// what is kept already.
    pub fn shard_members(&self, shard: Shard) -> Vec<bool> {
        let mut members = vec![false; self.jobs()];
        let cohorts = self.cohorts(usize::MAX, |_| true);
        for cohort in cohorts.iter().skip(shard.index - 1).step_by(shard.count) {
            cohort.iter().for_each(|index| members[*index] = true);
        }
        members
    }

    /// Most shards that have simulations.
    pub fn most_shards(&self) -> usize {
        self.cohorts(usize::MAX, |_| true).len()
    }

    /// Runs the simulations of a shard that are not kept yet, and keeps each that ends.
    ///
    /// # Errors
    /// [`RunError`] of the first simulation, in the plan's order, that failed. [`RunError::Plan`] before the first
    /// simulation if one of them could not be found again by what determines it.
    pub fn run_shard(&self, shard: Shard, watcher: &dyn RunWatcher) -> Result<ShardOutcome, RunError> {
        let members = self.shard_members(shard);
        self.check_kept()?;
        let before = self.written();
        let collected = self.simulate(watcher, cohort::most(self.plan.sampling), &|index| members[index])?;
        let Collected { results, points, simulated, .. } = collected;
        let mut outcome =
            ShardOutcome { runs: members.iter().filter(|is_member| **is_member).count(), ended: 0, lost: 0 };
        for (index, result) in results.into_iter().enumerate().filter(|(index, _)| members[*index]) {
            match result {
                Some(Err(RunError::Interrupted)) => {}
                Some(Err(why)) => return Err(why),
                Some(Ok(_)) => outcome.ended += 1,
                // The result of a complete point has it.
                None => outcome.ended += usize::from(points[index / self.jobs_per_point()].is_some()),
            }
        }
        outcome.lost = simulated.saturating_sub((self.written() - before) as usize);
        Ok(outcome)
    }

    /// Simulations that were kept since the folder was opened.
    fn written(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.written())
    }

    /// A simulation that no hash identifies is lost when the shard ends.
    fn check_kept(&self) -> Result<(), RunError> {
        let jobs = self.job_list();
        let nameless = jobs.iter().enumerate().find(|(at, job)| self.identity(*at, job).is_none());
        match nameless {
            None => Ok(()),
            Some((_, job)) => Err(RunError::Plan {
                what: "the policy of a shard",
                value: job.policy.to_owned(),
                wanted: "one whose runs can be kept, which needs a folder for them and a policy that a text identifies".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_read_as_it_is_written_or_refused_with_what_is_accepted() {
        for text in ["1/1", "3/100", "100/100"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("3", "write I/N"),
            ("a/b", "write I/N"),
            ("0/4", "I is 0; it must be 1 to 4"),
            ("5/4", "I is 5; it must be 1 to 4"),
            ("1/0", "N is 0"),
            ("1/100001", "it must be 1 to 100000"),
        ] {
            let why = text.parse::<Shard>().unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
