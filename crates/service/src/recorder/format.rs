//! The format of a segment: a header, then one entry per step.
//!
//! A segment is a file of JSON lines in zstd frames (`zstdcat SEGMENT | jq` reads it). Each frame holds whole lines and
//! has a checksum, so it is valid completely or not at all. The first line is the [`Header`], each other one an
//! [`RecordedStep`]. Must not know the disk.

use super::check::check_numbers;
use crate::{ActiveProblem, DaemonMode, Pause, Published, Worst};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;
use waykeeper_control::StepRecord;
use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_linux_host::Grouping;
use zstd::zstd_safe::CParameter;

/// The value of [`Header::format`].
pub const FORMAT: &str = "waykeeper-recording";

/// The version that is written.
pub const VERSION: u32 = 2;

/// The oldest version that can be read. In version 1 entries do not list the tenants that share a class of service.
pub const OLDEST: u32 = 1;

/// Suffix of a segment's name.
pub const SUFFIX: &str = ".jsonl.zst";

/// Longest line, bytes: a hundred times the longest of a server with 64 tenants on 64 cores (33 KB, measured).
pub(crate) const LINE_MOST: usize = 4 << 20;

/// Most bytes that one frame unpacks to. Writers end a frame well before it; a larger one is a decompression bomb.
pub(crate) const FRAME_MOST: usize = 4 * LINE_MOST;

/// Compression level: zstd's default. A step costs microseconds on the recorder's thread.
const LEVEL: i32 = 3;

/// The data that all steps of a segment share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// From [`OLDEST`] to [`VERSION`].
    pub version: u32,
    /// The program that wrote it, with its version.
    pub build: String,
    /// When the daemon started; steps are counted from here.
    #[serde(with = "moment")]
    pub started: SystemTime,
    /// The daemon's mode.
    pub mode: DaemonMode,
    /// The current policy.
    pub policy: String,
    /// Its settings, as they were given.
    pub settings: Arc<toml::Table>,
    /// Time between two steps, nanoseconds.
    pub period_ns: u64,
    /// The host's inventory.
    pub inventory: Arc<Inventory>,
}

impl Header {
    /// The header of a segment that begins with this step.
    pub fn of(step: &Published) -> Header {
        Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            build: concat!("waykeeper ", env!("CARGO_PKG_VERSION")).to_owned(),
            started: step.started,
            mode: step.mode,
            policy: step.policy.clone(),
            settings: step.settings.clone(),
            period_ns: step.period_ns,
            inventory: step.inventory.clone(),
        }
    }

    /// True if a step fits under this header.
    pub fn covers(&self, step: &Published) -> bool {
        (self.started, self.mode, self.period_ns) == (step.started, step.mode, step.period_ns)
            && self.policy == step.policy
            && self.settings == step.settings
            && self.inventory == step.inventory
    }
}

/// One step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordedStep<'a> {
    /// Its number, from 0 for the start.
    pub step: u64,
    /// When, as wall-clock time.
    #[serde(with = "moment")]
    pub at: SystemTime,
    /// Whether and how the policy was paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The tenants; absent if equal to those of the entry before. The first entry of a segment has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Cow<'a, [Workload]>>,
    /// The tenants without a class of service of their own; absent if equal to those of the entry before. The first
    /// entry of a segment has them, except in version 1, where they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groupings: Option<Cow<'a, [Grouping]>>,
    /// What the policy saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Cow<'a, Interval>>,
    /// The loop's record.
    pub record: Cow<'a, StepRecord>,
    /// The tenant that lost most since the state as found, and what filled most of its ways. Absent in recordings of earlier
    /// builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    /// Problems that lasted.
    #[serde(default, rename = "standing", skip_serializing_if = "<[ActiveProblem]>::is_empty")]
    pub active_problems: Cow<'a, [ActiveProblem]>,
}

impl RecordedStep<'_> {
    /// The entry of a step with its tenants, which nothing borrows.
    pub fn whole(step: &Published) -> RecordedStep<'static> {
        RecordedStep {
            step: step.step,
            at: step.at,
            paused: step.paused,
            groups: Some(Cow::Owned(step.groups.clone())),
            groupings: Some(Cow::Owned(step.groupings.clone())),
            seen: step.seen.clone().map(Cow::Owned),
            record: Cow::Owned(writable(&step.record).into_owned()),
            worst: Some(Worst::of(step)),
            active_problems: Cow::Owned(step.active_problems.clone()),
        }
    }

    /// The entry of a step; `before` is what the segment has last.
    pub(crate) fn of<'a>(step: &'a Published, before: Option<&WrittenTenants>) -> RecordedStep<'a> {
        let groups = before.is_none_or(|before| before.groups != step.groups);
        let groupings = before.is_none_or(|before| before.groupings != step.groupings);
        RecordedStep {
            step: step.step,
            at: step.at,
            paused: step.paused,
            groups: groups.then_some(Cow::Borrowed(step.groups.as_slice())),
            groupings: groupings.then_some(Cow::Borrowed(step.groupings.as_slice())),
            seen: step.seen.as_ref().map(Cow::Borrowed),
            record: writable(&step.record),
            worst: Some(Worst::of(step)),
            active_problems: Cow::Borrowed(&step.active_problems),
        }
    }
}

/// Values that entries contain only when they change.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct WrittenTenants {
    pub groups: Vec<Workload>,
    pub groupings: Vec<Grouping>,
}

/// The record without causes that have numbers that JSON cannot write (infinities, not-a-number), and without an answer that
/// has one.
pub fn writable(record: &StepRecord) -> Cow<'_, StepRecord> {
    let finite = |cause: &waykeeper_policy::Cause| {
        cause.value.is_finite() && cause.limit.as_ref().is_none_or(|(_, limit)| limit.is_finite())
    };
    let is_sound = record.answer.as_ref().is_none_or(|answer| check_numbers(answer).is_ok());
    if is_sound && record.events.iter().all(|event| event.causes.iter().all(finite)) {
        return Cow::Borrowed(record);
    }
    let mut record = record.clone();
    record.answer = record.answer.filter(|_| is_sound);
    record.events.iter_mut().for_each(|event| event.causes.retain(finite));
    Cow::Owned(record)
}

/// Packs whole lines into a frame.
///
/// # Errors
/// If zstd fails, which means out of memory.
pub(crate) fn frame(lines: &[u8]) -> io::Result<Vec<u8>> {
    let mut packer = zstd::bulk::Compressor::new(LEVEL)?;
    packer.set_parameter(CParameter::ChecksumFlag(true))?;
    packer.compress(lines)
}

/// Name of a segment: `0000000042-20261122T085500Z.jsonl.zst`. Names sort in the order of writing, whatever the clock
/// does; the time is for people.
pub(crate) fn name(number: u64, at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let whole = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(since.as_secs().min(LAST_SECOND));
    let time = humantime::format_rfc3339_seconds(whole).to_string().replace(['-', ':'], "");
    format!("{number:010}-{time}{SUFFIX}")
}

/// The number in a segment's name; `None` for any other file.
pub(crate) fn number(name: &str) -> Option<u64> {
    let (number, time) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (day, clock) = time.strip_suffix('Z')?.split_once('T')?;
    let shaped = number.len() >= 10 && day.len() == 8 && clock.len() == 6;
    (shaped && [number, day, clock].into_iter().all(digits)).then(|| number.parse().ok()).flatten()
}

/// The time in a segment's name, to the second.
pub(crate) fn began(name: &str) -> Option<SystemTime> {
    number(name)?;
    let (_, time) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let part = |range: std::ops::Range<usize>| time.get(range);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(9..11)?, part(11..13)?, part(13..15)?);
    humantime::parse_rfc3339(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")).ok()
}

/// The last second that RFC 3339 can write, 9999-12-31T23:59:59Z.
pub(crate) const LAST_SECOND: u64 = 253_402_300_799;

/// Times as RFC 3339 in UTC, to the nanosecond.
pub(crate) mod moment {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _, ser::Error as _};
    use std::time::SystemTime;

    pub fn serialize<S: Serializer>(moment: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        let since = moment.duration_since(SystemTime::UNIX_EPOCH).map_err(S::Error::custom)?;
        if since.as_secs() > super::LAST_SECOND {
            return Err(S::Error::custom("the clock is beyond the year 9999"));
        }
        serializer.collect_str(&humantime::format_rfc3339_nanos(*moment))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn names_sort_by_number_and_nothing_else_is_a_segment() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_337_700);
        assert_eq!(name(42, at), "0000000042-20261122T085500Z.jsonl.zst");
        assert_eq!(number(&name(42, at)), Some(42));
        assert_eq!(number(&name(12_345_678_901, at)), Some(12_345_678_901));
        for other in ["42-20261122T085500Z.jsonl.zst", "0000000042.jsonl.zst", "notes.txt", ".jsonl.zst", ""]
        {
            assert_eq!(number(other), None, "{other}");
        }
        assert_eq!(began(&name(42, at)), Some(at));
        assert_eq!(began("0000000042-20269922T085500Z.jsonl.zst"), None);
        // Later times are written as the last second of RFC 3339.
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(LAST_SECOND + 1);
        assert_eq!(name(1, far), "0000000001-99991231T235959Z.jsonl.zst");
    }

    #[test]
    fn causes_that_json_cannot_write_are_left_out() {
        let cause = |value| waykeeper_policy::Cause { what: "ratio".to_owned(), value, limit: None };
        let event = waykeeper_policy::Event {
            action: "x".to_owned(),
            group: None,
            text: String::new(),
            causes: vec![cause(f64::INFINITY), cause(0.5), cause(f64::NAN)],
        };
        let record = StepRecord { events: vec![event], ..StepRecord::default() };
        assert_eq!(writable(&record).events[0].causes, [cause(0.5)]);
        assert!(matches!(writable(&StepRecord::default()), Cow::Borrowed(_)));
        let wrong = waykeeper_calibration::Candidate {
            plan: waykeeper_host::Plan::default(),
            tenants: std::collections::BTreeMap::new(),
            hpw: waykeeper_calibration::Estimate { value: f64::NAN, error: 0.0 },
            lpw: waykeeper_calibration::Estimate::exact(1.0),
        };
        let answer = waykeeper_calibration::LayoutAnswer {
            question: 1,
            simulated: 1,
            best: vec![wrong],
            asked: Vec::new(),
        };
        let record = StepRecord { answer: Some(answer), ..StepRecord::default() };
        assert_eq!(writable(&record).answer, None);
    }
}
