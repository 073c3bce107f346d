//! The ring and its reader on real directories. Tests with full disks need root (a small tmpfs).

use super::format::FRAME_MOST;
use super::ring::RecordingRing;
use super::*;
use crate::published_state::tests::published;
use crate::{Published, Worst, step_queue};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::SystemTime;
use tempfile::TempDir;
use waykeeper_calibration::Estimate;
use waykeeper_control::{Problem, Worth, WorthEstimate, WorthSource};
use waykeeper_host::{Priority, Workload, WorkloadKind};
use waykeeper_kernel::system;
use waykeeper_linux_host::Grouping;
use waykeeper_units::{CoreList, WorkloadId};

fn group(id: u32) -> Workload {
    Workload {
        id: WorkloadId(id),
        name: format!("tenant-{id}"),
        priority: Priority::Low,
        kind: WorkloadKind::NonIo,
        cores: CoreList::from(Vec::new()),
        devices: Vec::new(),
        stack: false,
        mask: None,
    }
}

fn grouping(tenant: &str) -> Grouping {
    let why = "classes are short".to_owned();
    Grouping { tenant: tenant.to_owned(), with: vec!["tenant-1".to_owned()], in_default: false, why }
}

/// Step `number`, a second after the one before; every tenth step adds a tenant. The problem's text does not compress.
fn step(number: u64, noise: usize) -> Published {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + (state % 90) as u8)
    };
    let why = (0..noise).map(|_| random()).collect();
    let mut step = published();
    step.step = number;
    step.at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_337_700 + number);
    step.at_clock = Duration::from_secs(number);
    step.groups = (0..=number / 10 % 7).map(|id| group(id as u32)).collect();
    // Every twentieth step the first tenant starts or stops sharing a class.
    let shares = number / 20 % 2 == 1;
    step.groupings = shares.then(|| grouping("tenant-0")).into_iter().collect();
    step.record.at_ns = number * 1_000_000_000;
    step.record.state = "Default".to_owned();
    // The first tenant loses more with every step.
    step.record.worth = Worth::Known(WorthEstimate {
        from: WorthSource::AsFound,
        age_s: number as f64,
        hpw: None,
        lpw: None,
        tenants: [(WorkloadId(0), Estimate { value: 0.9 / (number + 1) as f64, error: 0.001 })].into(),
    });
    step.record.problems.push(Problem::Sample(why));
    step
}

fn config(directory: &Path, most_bytes: u64) -> RecorderConfig {
    RecorderConfig { most_bytes, flush_steps: 10, ..RecorderConfig::in_directory(directory) }
}

fn record(config: &RecorderConfig, steps: impl IntoIterator<Item = u64>, noise: usize) {
    let mut ring = RecordingRing::new(system::real(), config.clone());
    steps.into_iter().for_each(|number| ring.record(&step(number, noise)));
    ring.finish();
    assert_eq!(ring.active_problem(), None);
}

/// The steps' numbers, the number of segments, and what was lost.
fn read(path: &Path) -> (Vec<u64>, usize, Vec<String>) {
    let (mut steps, mut segments, mut lost) = (Vec::new(), 0, Vec::new());
    for item in RecordingReader::open(path).unwrap() {
        match item {
            Item::Segment { .. } => segments += 1,
            Item::Entry(entry) => steps.push(entry.step),
            Item::Unreadable(why) => lost.push(why),
        }
    }
    (steps, segments, lost)
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn on_disk(directory: &Path) -> u64 {
    let sizes = files(directory).into_iter().map(|path| fs::metadata(path).unwrap());
    sizes.map(|about| about.len().max(about.blocks() * 512)).sum()
}

#[test]
fn what_was_recorded_reads_back_to_the_last_number() {
    let directory = TempDir::new().unwrap();
    let config = config(directory.path(), 1 << 20);
    record(&config, 0..95, 50);
    let mut seen = 0;
    for item in RecordingReader::open(directory.path()).unwrap() {
        match item {
            Item::Unreadable(why) => panic!("{why}"),
            Item::Segment { header, .. } => {
                assert!(header.covers(&step(0, 50)));
                assert_eq!(header.build, concat!("waykeeper ", env!("CARGO_PKG_VERSION")));
            }
            Item::Entry(entry) => {
                let wanted = step(seen, 50);
                assert_eq!(entry.at, wanted.at);
                assert_eq!(*entry.record, wanted.record);
                assert_eq!(entry.worst, Some(Worst::of(&wanted)));
                assert_eq!(entry.groups.as_deref(), Some(wanted.groups.as_slice()));
                assert_eq!(entry.groupings.as_deref(), Some(wanted.groupings.as_slice()));
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 95);
}

/// A segment of these lines.
fn segment(path: &Path, lines: &[serde_json::Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, format::frame(text.as_bytes()).unwrap()).unwrap();
}

#[test]
fn a_recording_of_version_1_is_read_and_does_not_tell_who_shares_a_class() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("0000000001-20261122T085500Z.jsonl.zst");
    let mut header = serde_json::to_value(Header::of(&step(0, 1))).unwrap();
    let entry = |number| serde_json::to_value(RecordedStep::of(&step(number, 1), None)).unwrap();
    let mut entries: Vec<_> = (0..3).map(entry).collect();
    let groupings = |path: &Path| {
        let items: Vec<_> = RecordingReader::open(path).unwrap().collect();
        items
            .into_iter()
            .filter_map(|item| match item {
                Item::Entry(entry) => Some(Ok(entry.groupings.is_some())),
                Item::Unreadable(why) => Some(Err(why)),
                Item::Segment { .. } => None,
            })
            .collect::<Vec<_>>()
    };
    let all = |header: &serde_json::Value, entries: &[serde_json::Value]| {
        segment(&path, &[std::slice::from_ref(header), entries].concat());
        groupings(&path)
    };
    assert_eq!(all(&header, &entries), [Ok(true), Ok(true), Ok(true)]);
    for entry in &mut entries {
        entry.as_object_mut().unwrap().remove("groupings").unwrap();
    }
    let lost = all(&header, &entries);
    assert!(
        matches!(&lost[..], [Err(why)] if why.contains("does not list the tenants that share a class")),
        "{lost:?}"
    );
    header["version"] = 1.into();
    assert_eq!(all(&header, &entries), [Ok(false), Ok(false), Ok(false)]);
    for (version, why) in [(0, "it has version 0; versions 1 to 2 can be read"), (3, "it has version 3")] {
        header["version"] = version.into();
        let lost = all(&header, &entries);
        assert!(matches!(&lost[..], [Err(reported)] if reported.contains(why)), "{lost:?}");
    }
}

#[test]
fn a_recorder_that_is_killed_loses_what_waits_and_no_more() {
    let directory = TempDir::new().unwrap();
    let mut ring = RecordingRing::new(system::real(), config(directory.path(), 1 << 20));
    (0..95).for_each(|number| ring.record(&step(number, 50)));
    // Dropped without `finish`, as after a kill -9: the last five steps are only in memory.
    drop(ring);
    assert_eq!(read(directory.path()), ((0..90).collect(), 1, Vec::new()));
}

#[test]
fn a_torn_tail_loses_only_its_frame_and_is_reported() {
    let directory = TempDir::new().unwrap();
    record(&config(directory.path(), 1 << 20), 0..30, 20);
    let file = files(directory.path()).remove(0);
    let whole = fs::read(&file).unwrap();
    let mut unnoticed = 0;
    for length in 0..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let (steps, segments, lost) = read(&file);
        unnoticed += usize::from(lost.is_empty());
        assert!(steps.len() % 10 == 0 && steps.iter().copied().eq(0..steps.len() as u64), "{length}");
        assert!(steps.len() < 30 && segments <= 1);
        // A cut between two frames cannot be noticed; any other is reported.
        let said = lost.iter().all(|why| why.contains("cut off") || why.contains("the file is empty"));
        assert!(said && lost.len() <= 1, "{length}: {lost:?}");
        let told_or_between = lost.len() == 1 || (segments == 1 && length > 0);
        assert!(told_or_between, "{length}");
    }
    assert_eq!(unnoticed, 3, "only after the header, the first and the second frame nothing is missing");
}

#[test]
fn damage_in_one_segment_does_not_cost_another() {
    let directory = TempDir::new().unwrap();
    let config = config(directory.path(), 1 << 20);
    record(&config, 0..30, 20);
    record(&config, 30..60, 20);
    let first = files(directory.path()).remove(0);
    let mut bytes = fs::read(&first).unwrap();
    let middle = bytes.len() - 10;
    bytes[middle] ^= 1;
    fs::write(&first, bytes).unwrap();
    let (steps, segments, lost) = read(directory.path());
    assert_eq!(steps, (0..20).chain(30..60).collect::<Vec<_>>());
    assert_eq!((segments, lost.len()), (2, 1));
    assert!(lost[0].contains("damaged from byte"), "{lost:?}");
}

#[test]
fn the_ring_never_exceeds_its_size_also_across_restarts_and_the_oldest_is_removed_first() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ring");
    let config = config(&path, 1 << 20);
    let mut next = 0;
    for life in 0..12 {
        let mut ring = RecordingRing::new(system::real(), config.clone());
        for number in next..next + 150 {
            ring.record(&step(number, 2000));
            assert!(on_disk(&path) <= 1 << 20, "life {life}, step {number}: {} bytes", on_disk(&path));
        }
        // Every third ring is dropped without `finish`.
        if life % 3 != 0 {
            ring.finish();
        }
        assert_eq!(ring.active_problem(), None);
        assert_eq!((ring.files(), ring.bytes() <= 1 << 20), (files(&path).len(), true));
        next += 150;
    }
    let (steps, _, lost) = read(&path);
    assert_eq!(lost, Vec::<String>::new());
    // 2 KB of noise per step: a MiB holds some 500 of the 1800, the last ones.
    assert!((300..700).contains(&steps.len()), "{}", steps.len());
    assert_eq!(steps.last(), Some(&(next - 1)));
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn what_is_older_than_allowed_is_removed() {
    let directory = TempDir::new().unwrap();
    let keep = Duration::from_secs(1600);
    let config = RecorderConfig { keep, ..config(directory.path(), 1 << 20) };
    record(&config, 0..4000, 10);
    let (steps, _, _) = read(directory.path());
    // Segments last 100 s. The oldest is deleted when all of it is older than 1600 s.
    assert_eq!(steps.last(), Some(&3999));
    assert!((1600..=1800).contains(&steps.len()), "{}", steps.len());
}

#[test]
fn a_clock_that_is_set_makes_no_recording_older() {
    let directory = TempDir::new().unwrap();
    let keep = Duration::from_secs(1600);
    let config = RecorderConfig { keep, ..config(directory.path(), 1 << 20) };
    let mut ring = RecordingRing::new(system::real(), config);
    let set_in_1000 = |number: u64| {
        let years = if number < 1000 { 0 } else { 10 * 365 * 86_400 };
        let own = step(number, 10);
        Published { at: own.at + Duration::from_secs(years), ..own }
    };
    (0..1500).for_each(|number| ring.record(&set_in_1000(number)));
    ring.finish();
    assert_eq!(read(directory.path()).0, (0..1500).collect::<Vec<_>>());
    // They still age.
    (1500..4000).for_each(|number| ring.record(&set_in_1000(number)));
    ring.finish();
    let (steps, _, _) = read(directory.path());
    assert!((1600..=1800).contains(&steps.len()), "{}", steps.len());
}

#[test]
fn a_crash_loop_leaves_a_bounded_number_of_files() {
    let directory = TempDir::new().unwrap();
    let config = config(directory.path(), 64 << 20);
    for life in 0..1100 {
        record(&config, life..life + 1, 10);
    }
    assert_eq!(files(directory.path()).len(), 1024);
    assert_eq!(read(directory.path()).0, (76..1100).collect::<Vec<_>>());
}

#[test]
fn only_owner_and_group_get_at_it_and_other_files_are_left_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("var/recorder");
    record(&config(&path, 1 << 20), 0..5, 10);
    fs::write(path.join("notes.txt"), "mine").unwrap();
    record(&config(&path, 1 << 20), 5..9, 10);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o750);
    let segments = files(&path);
    assert_eq!(segments.len(), 3);
    assert!(segments[..2].iter().all(|file| mode(file) == 0o640));
    assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
    assert_eq!(read(&path).0, (0..9).collect::<Vec<_>>());
    // In a directory that all users may write, any user could put a segment or a link.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let mut ring = RecordingRing::new(system::real(), config(&path, 1 << 20));
    ring.record(&step(9, 10));
    let problem = ring.active_problem().unwrap().text;
    assert!(problem.contains("/recorder can be written by other users (mode 0777)"), "{problem}");
    // Nothing is made in such a directory either.
    let mut ring = RecordingRing::new(system::real(), config(&path.join("new"), 1 << 20));
    ring.record(&step(9, 10));
    let problem = ring.active_problem().unwrap().text;
    assert!(problem.contains("/recorder can be written by other users (mode 0777)"), "{problem}");
    assert!(!path.join("new").exists());
}

#[test]
fn two_do_not_record_in_one_directory() {
    let directory = TempDir::new().unwrap();
    let mut first = RecordingRing::new(system::real(), config(directory.path(), 1 << 20));
    first.record(&step(0, 10));
    let mut second = RecordingRing::new(system::real(), config(directory.path(), 1 << 20));
    second.record(&step(0, 10));
    let problem = second.active_problem().unwrap();
    assert_eq!(problem.kind, "recorder");
    assert!(problem.text.contains("another waykeeper records into it"), "{problem:?}");
    drop(first);
    second.record(&step(59, 10));
    assert_eq!(second.lost(), 2, "within the minute it is not tried");
    second.record(&step(60, 10));
    assert_eq!(second.active_problem(), None);
}

/// A tmpfs of a few pages, unmounted at the end.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(kib: u32) -> SmallDisk {
        let at = TempDir::new().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        let size = std::ffi::CString::new(format!("size={kib}k")).unwrap();
        rustix::mount::mount("tmpfs", at.path(), "tmpfs", flags, size.as_c_str())
            .expect("not run: needs root: it mounts a tmpfs");
        SmallDisk(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_stops_the_recording_with_a_message_until_there_is_space() {
    let disk = SmallDisk::new(64);
    let config = config(&disk.0.path().join("ring"), 1 << 20);
    let mut ring = RecordingRing::new(system::real(), config.clone());
    for number in 0..60 {
        ring.record(&step(number, 2000));
        // A failure within the last frame would leave steps waiting.
        assert!(number < 59 || ring.active_problem().is_some());
    }
    let problem = ring.active_problem().expect("64 KiB hold about 30 steps of 2 KB");
    assert!(problem.text.contains("No space left on device"), "{problem:?}");
    let (before, _, lost) = read(&config.directory);
    assert_eq!(lost, Vec::<String>::new(), "what was torn is cut off");
    assert!(before.len() >= 10 && before.iter().copied().eq(0..before.len() as u64));
    assert_eq!(ring.lost(), 60 - before.len() as u64, "nothing is lost without being counted");
    // Free some space.
    files(&config.directory).iter().for_each(|file| fs::remove_file(file).unwrap());
    for number in 200..215 {
        ring.record(&step(number, 100));
    }
    ring.finish();
    assert_eq!(ring.active_problem(), None);
    assert_eq!(read(&config.directory).0, (200..215).collect::<Vec<_>>());
}

#[test]
fn a_recorder_on_its_thread_writes_the_feed_and_a_bad_path_stops_no_thread() {
    let directory = TempDir::new().unwrap();
    let (sender, steps) = step_queue(8);
    let recorder = Recorder::start(config(&directory.path().join("a"), 1 << 20), steps).unwrap();
    for number in 0..25 {
        let next = Arc::new(step(number, 10));
        while !sender.offer(next.clone()) {
            std::thread::yield_now();
        }
    }
    drop(sender);
    let status = recorder.join();
    assert_eq!((status.files, status.lost, status.active_problem), (1, 0, None));
    assert_eq!(read(&directory.path().join("a")).0.len(), 25);

    fs::write(directory.path().join("b"), "a file").unwrap();
    let (sender, steps) = step_queue(8);
    let recorder = Recorder::start(config(&directory.path().join("b"), 1 << 20), steps).unwrap();
    (0..5).for_each(|number| assert!(sender.offer(Arc::new(step(number, 10)))));
    drop(sender);
    let status = recorder.join();
    assert_eq!(status.lost, 5);
    assert!(status.active_problem.unwrap().text.contains("not a directory"));
}

/// A text in the place of a recording is called by its name, also if it is named like a segment.
#[test]
fn a_file_of_another_tool_is_not_called_damaged() {
    let directory = TempDir::new().unwrap();
    for name in ["pqos.csv", "0000000001-20261122T085500Z.jsonl.zst"] {
        let file = directory.path().join(name);
        fs::write(&file, "Time,Core,IPC,LLC Misses,LLC[KB]\n2026-11-22 08:00:00,0,1.2,3k,4\n").unwrap();
        let why = RecordingReader::open(&file).unwrap_err().to_string();
        let wanted =
            format!("{} is a CSV of pqos, not a recording of the daemon; a daemon with", file.display());
        assert!(why.starts_with(&wanted), "{why}");
    }
}

#[test]
fn bombs_and_liars_are_turned_away() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("0000000001-20261122T085500Z.jsonl.zst");
    let lost = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let (steps, segments, lost) = read(&file);
        assert_eq!((steps.len(), segments, lost.len()), (0, 0, 1), "{lost:?}");
        lost[0].rsplit_once(".zst: ").unwrap().1.to_owned()
    };
    // Four times as many blanks as a frame may have, packed into a few KB.
    let bomb = zstd::encode_all(std::io::repeat(b' ').take(4 * FRAME_MOST as u64), 3).unwrap();
    assert!(bomb.len() < 100_000);
    assert!(lost(&bomb).contains("unpacks to more than"));
    // A frame that needs a window of 1 GiB.
    let mut wide = zstd::Encoder::new(Vec::new(), 1).unwrap();
    wide.window_log(30).unwrap();
    std::io::Write::write_all(&mut wide, &[b'x'; 100]).unwrap();
    assert!(lost(&wide.finish().unwrap()).contains("damaged from byte 0"));
    let pack = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
    assert!(lost(&pack("no newline")).contains("does not end"));
    assert!(lost(&pack("{}\n")).contains("does not begin like a recording: data error"));
    let deep = "[".repeat(100_000) + "\n";
    assert!(lost(&pack(&deep)).contains("does not begin like a recording"));
    let header = Header::of(&step(0, 0));
    let other = |change: fn(&mut Header)| {
        let mut header = header.clone();
        change(&mut header);
        lost(&pack(&(serde_json::to_string(&header).unwrap() + "\n")))
    };
    assert_eq!(other(|header| header.version = 3), "it has version 3; versions 1 to 2 can be read");
    assert_eq!(other(|header| header.format = "diary".to_owned()), "it is not a waykeeper-recording");
    assert!(
        other(|header| Arc::make_mut(&mut header.inventory).llc.as_mut().unwrap().ways = 200)
            .contains("200 ways")
    );
    assert!(
        other(|header| Arc::make_mut(&mut header.inventory).llc.as_mut().unwrap().ways = 4)
            .contains("does not fit")
    );
}

use std::io::Read;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_a_file_holds_the_reader_ends_and_does_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000), packed in any::<bool>(),
    ) {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("x");
        let bytes = if packed { zstd::encode_all(bytes.as_slice(), 1).unwrap() } else { bytes };
        fs::write(&file, bytes).unwrap();
        // A few bytes may be a text, which the reader refuses as a whole.
        let is_empty = RecordingReader::open(&file)
            .map_or(true, |items| items.into_iter().all(|item| !matches!(item, Item::Entry(_))));
        prop_assert!(is_empty);
    }

    #[test]
    fn a_changed_byte_is_noticed_or_harmless(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let directory = TempDir::new().unwrap();
        record(&config(directory.path(), 1 << 20), 0..20, 20);
        let file = files(directory.path()).remove(0);
        let mut bytes = fs::read(&file).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fs::write(&file, bytes).unwrap();
        let (steps, _, _) = read(&file);
        prop_assert!(steps.iter().copied().eq(0..steps.len() as u64));
    }
}
