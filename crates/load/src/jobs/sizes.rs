//! Sizes of a job's commands: `bssplit`, and `bs` with a size for each direction.
//!
//! Knows sizes and shares; must not know keys.

use super::JobDirection;
use super::value::{self, Base};

/// Most sizes of one direction, as in fio (BSSPLIT_MAX).
const MOST_SIZES: usize = 64;

/// Sizes with their shares of the commands, which add up to 1, per direction.
#[derive(Clone, PartialEq, Debug)]
pub struct JobSizes {
    /// Of commands that read the drive.
    pub reads: Vec<(u64, f64)>,
    /// Of commands that write it.
    pub writes: Vec<(u64, f64)>,
}

impl JobSizes {
    /// One size for each direction.
    pub(super) fn of(reads: u64, writes: u64) -> JobSizes {
        JobSizes { reads: vec![(reads, 1.0)], writes: vec![(writes, 1.0)] }
    }

    /// All sizes that a job of this direction has.
    pub fn all(&self, access: JobDirection) -> impl Iterator<Item = u64> {
        let writes = access.writes();
        let reads = self.reads.iter().filter(move |_| writes < 1.0);
        reads.chain(self.writes.iter().filter(move |_| writes > 0.0)).map(|(bytes, _)| *bytes)
    }

    /// Mean bytes of a command.
    pub fn mean_bytes(&self, access: JobDirection) -> f64 {
        let mean =
            |sizes: &[(u64, f64)]| sizes.iter().map(|(bytes, share)| *bytes as f64 * share).sum::<f64>();
        let writes = access.writes();
        (1.0 - writes) * mean(&self.reads) + writes * mean(&self.writes)
    }

    /// The value of `bssplit`: `SIZE/PERCENT:SIZE/PERCENT`, and behind a comma the sizes of writes. Sizes without a
    /// percentage share what is left.
    pub(super) fn parse_split(
        text: &str,
        size: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<JobSizes, String> {
        let mut each = text.split(',');
        let reads = list(each.next().unwrap_or_default(), &size)?;
        // The third list is that of trims, which are not played.
        let writes = each.next().map_or_else(|| Ok(reads.clone()), |text| list(text, &size))?;
        Ok(JobSizes { reads, writes })
    }
}

fn list(text: &str, size: impl Fn(&str) -> Result<u64, String>) -> Result<Vec<(u64, f64)>, String> {
    let wanted = || "sizes with percentages that add up to 100, like 4k/60:64k/40".to_owned();
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (bytes, percent) = part.split_once('/').unwrap_or((part, ""));
        let percent = match percent {
            "" => None,
            text => Some(value::count(text, Base::Decimal, 0, 100).map_err(|_| wanted())?),
        };
        sizes.push((size(bytes)?, percent));
    }
    let given: u64 = sizes.iter().filter_map(|(_, percent)| *percent).sum();
    let open = sizes.iter().filter(|(_, percent)| percent.is_none()).count() as u64;
    if given > 100 || (given < 100 && open == 0) || sizes.len() > MOST_SIZES {
        return Err(wanted());
    }
    let rest = (100 - given) as f64 / open.max(1) as f64;
    let share = |(bytes, percent): (u64, Option<u64>)| {
        (bytes, percent.map_or(rest, |percent| percent as f64) / 100.0)
    };
    Ok(sizes.into_iter().map(share).filter(|(_, share)| *share > 0.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Result<JobSizes, String> {
        JobSizes::parse_split(text, |text| value::bytes(text, Base::Binary, 512, 1 << 20))
    }

    #[test]
    fn shares_are_those_of_the_file() {
        let both = split("4k/60:64k/40").unwrap();
        assert_eq!((&both.reads, &both.writes), (&vec![(4096, 0.6), (65_536, 0.4)], &both.reads));
        // 0.6 x 4 KiB + 0.4 x 64 KiB.
        assert!((both.mean_bytes(JobDirection::Read) - 28_672.0).abs() < 1e-6);
        let each = split("64k/40:1024k/60,1024k/100").unwrap();
        assert_eq!(each.writes, [(1 << 20, 1.0)]);
        assert_eq!(each.all(JobDirection::Write).collect::<Vec<_>>(), [1 << 20]);
        assert_eq!(each.all(JobDirection::Mixed { writes: 0.5 }).count(), 3);
        // What has no percentage shares the rest; a size of 0 % is none.
        assert_eq!(split("4k/50:8k/:16k:32k/0").unwrap().reads, [(4096, 0.5), (8192, 0.25), (16_384, 0.25)]);
        for wrong in ["", "4k/60:64k/30", "4k/101", "4k/x", "x/100", "4k/60/1:8k/40"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }
}
