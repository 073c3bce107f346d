//! Replays recorded sessions with a real kernel's resctrl and compares each answer.
//!
//! The recordings are test vectors (`tests/transcripts`, made in QEMU guests with unmodified Debian kernels). Each
//! implementation under test implements [`Subject`]. This file must not know how the subject is reached.

#![allow(dead_code, reason = "each test binary uses its part")]

use rustix::io::Errno;
use std::fmt::Write;
use waykeeper_vhost::resctrl::description::{
    Bandwidth, Cdp, Domain, IoAllocSupport, Kernel, L3Resource, MonitoringResource, ResctrlDescription,
};

/// The answer of a call: the outcome, or the step that failed (`open`, `write`, nothing) and why.
pub type Answer<T> = Result<T, (&'static str, Errno)>;

/// A resctrl under test, called with paths below its root.
pub trait Subject {
    /// The task that `own` moves.
    fn own_task(&self) -> u32;
    /// Mode with type bits, size, links.
    fn stat(&mut self, path: &str) -> Answer<(u32, u64, u64)>;
    /// Names in a directory.
    fn list(&mut self, path: &str) -> Answer<Vec<String>>;
    /// Content of a file.
    fn read(&mut self, path: &str) -> Answer<String>;
    /// open(O_WRONLY|O_TRUNC) and one write(2).
    fn write(&mut self, path: &str, data: &str) -> Answer<usize>;
    /// open(O_WRONLY).
    fn open_for_writing(&mut self, path: &str) -> Answer<()>;
    fn mkdir(&mut self, path: &str) -> Answer<()>;
    fn rmdir(&mut self, path: &str) -> Answer<()>;
    fn unlink(&mut self, path: &str) -> Answer<()>;
    fn create(&mut self, path: &str) -> Answer<()>;
    fn rename(&mut self, from: &str, to: &str) -> Answer<()>;
    fn chmod(&mut self, path: &str, mode: u32) -> Answer<()>;
}

/// A recorded host: the recording, the operations, the task that recorded it.
pub struct Recorded {
    pub name: &'static str,
    pub text: &'static str,
    pub own_task: u32,
    pub host: ResctrlDescription,
}

/// A known difference, and why it is not our error.
pub struct Explained {
    /// The recording.
    pub recording: &'static str,
    /// The operation as in the recording.
    pub operation: &'static str,
    /// Why.
    #[allow(dead_code, reason = "for the reader")]
    pub why: &'static str,
}

pub const OPERATIONS: &str = include_str!("../../transcripts/ops.txt");

/// The four hosts of the recordings: two sockets of two CPUs.
pub fn recorded() -> Vec<Recorded> {
    let (old, new) = (Kernel(6, 1), Kernel(6, 12));
    vec![
        Recorded {
            name: "intel-linux-6.1",
            text: include_str!("../../transcripts/intel-linux-6.1.txt"),
            own_task: 174,
            host: intel(old),
        },
        Recorded {
            name: "intel-linux-6.12",
            text: include_str!("../../transcripts/intel-linux-6.12.txt"),
            own_task: 174,
            host: intel(new),
        },
        Recorded {
            name: "amd-linux-6.1",
            text: include_str!("../../transcripts/amd-linux-6.1.txt"),
            own_task: 169,
            host: amd(old),
        },
        Recorded {
            name: "amd-linux-6.12",
            text: include_str!("../../transcripts/amd-linux-6.12.txt"),
            own_task: 169,
            host: amd(new),
        },
    ]
}

/// The recorded Intel host: 11 ways, 16 MiB, 16 classes of masks and 8 of bandwidth, 144 RMIDs. The unit of counts
/// follows from its threshold: 100000 is rounded to 90112, and so is 16 MiB / 144 = 116508.
pub fn intel(kernel: Kernel) -> ResctrlDescription {
    ResctrlDescription {
        kernel,
        possible_cpus: 4,
        domains: vec![Domain { id: 0, cpus: vec![0, 1] }, Domain { id: 1, cpus: vec![2, 3] }],
        l3: Some(L3Resource {
            cbm_bits: 11,
            shareable: 0x600,
            min_bits: 1,
            sparse: false,
            closids: 16,
            size_bytes: 16 << 20,
            cdp: Cdp::Off,
            io_alloc: IoAllocSupport::Absent,
        }),
        mb: Some(Bandwidth::intel(8)),
        smba: None,
        monitoring: Some(MonitoringResource {
            rmids: 144,
            unit_bytes: 90112,
            largest_threshold: 16 << 20,
            llc_occupancy: true,
            mbm_total: true,
            mbm_local: true,
            configurable: false,
        }),
    }
}

/// The recorded AMD host: four caches of 32 MiB and 16 ways, 256 RMIDs; the kernel uses the L2's 512 KiB as the size of
/// its cache (2048 bytes per RMID).
pub fn amd(kernel: Kernel) -> ResctrlDescription {
    ResctrlDescription {
        kernel,
        possible_cpus: 4,
        domains: (0..4).map(|id| Domain { id, cpus: vec![id] }).collect(),
        l3: Some(L3Resource {
            cbm_bits: 16,
            shareable: 0,
            min_bits: 0,
            sparse: true,
            closids: 16,
            size_bytes: 32 << 20,
            cdp: Cdp::Off,
            io_alloc: IoAllocSupport::Absent,
        }),
        mb: Some(Bandwidth::amd(16)),
        smba: Some(Bandwidth::amd(16)),
        monitoring: Some(MonitoringResource {
            rmids: 256,
            unit_bytes: 64,
            largest_threshold: 512 << 10,
            llc_occupancy: true,
            mbm_total: true,
            mbm_local: true,
            configurable: true,
        }),
    }
}

/// Operations and answers of a recording.
pub fn steps(text: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(operation) = line.strip_prefix("> ") {
            steps.push((operation.to_owned(), String::new()));
        } else if let (false, Some((_, answer))) = (line.starts_with("# "), steps.last_mut()) {
            answer.push_str(line);
            answer.push('\n');
        }
    }
    steps
}

/// Replays a recording; fails on unexplained differences and on explained ones that do not occur.
pub fn replay(recording: &Recorded, subject: &mut dyn Subject, explained: &[Explained]) {
    let steps = steps(recording.text);
    let operations: Vec<&str> = OPERATIONS.lines().filter(|line| !line.starts_with("# ")).collect();
    let recorded: Vec<&str> = steps.iter().map(|(operation, _)| operation.as_str()).collect();
    assert_eq!(recorded, operations, "{} is not a recording of ops.txt", recording.name);
    assert_eq!(operations.len(), 219, "operations went missing");
    let mut differences = Vec::new();
    let mut met = vec![false; explained.len()];
    for (operation, expected) in &steps {
        let answer = perform(subject, operation, recording.own_task);
        if answer == *expected {
            continue;
        }
        let known =
            explained.iter().position(|it| it.recording == recording.name && it.operation == operation);
        match known {
            Some(known) => met[known] = true,
            None => differences.push(format!("> {operation}\nrecorded:\n{expected}answered:\n{answer}")),
        }
    }
    assert!(differences.is_empty(), "{}:\n{}", recording.name, differences.join("\n"));
    for (it, met) in explained.iter().zip(met) {
        assert!(
            met || it.recording != recording.name,
            "{} no longer differs: {}",
            it.operation,
            recording.name
        );
    }
}

/// The name of an error number, as in the recordings.
pub fn name(errno: Errno) -> String {
    let names = [
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::SRCH, "ESRCH"),
        (Errno::IO, "EIO"),
        (Errno::TOOBIG, "E2BIG"),
        (Errno::ACCESS, "EACCES"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::RANGE, "ERANGE"),
    ];
    names
        .iter()
        .find(|(known, _)| *known == errno)
        .map_or_else(|| format!("{errno}"), |(_, name)| (*name).to_owned())
}

fn failure((step, errno): (&str, Errno)) -> String {
    if step.is_empty() { format!("{}\n", name(errno)) } else { format!("{step} {}\n", name(errno)) }
}

fn done(answer: Answer<()>) -> String {
    answer.map_or_else(failure, |()| "ok\n".to_owned())
}

/// Performs one operation and returns what the recorder would have written.
fn perform(subject: &mut dyn Subject, operation: &str, recorded_task: u32) -> String {
    let (verb, rest) = operation.split_once(' ').expect("an operation has a verb and a path");
    let (path, text) = rest.split_once(' ').map_or((rest, ""), |(path, text)| (path, text));
    match verb {
        "r" => {
            subject.read(path).map_or_else(failure, |content| as_recorded(subject, &content, recorded_task))
        }
        "w" => {
            let data = text.replace("\\n", "\n");
            let first = match subject.write(path, &data) {
                Ok(taken) => format!("wrote {taken}\n"),
                Err(error) if error.0 == "open" => return failure(error),
                Err(error) => failure(error),
            };
            let status = subject.read("info/last_cmd_status").expect("the status can be read");
            format!("{first}  status: {}", as_recorded(subject, &status, recorded_task))
        }
        "mk" => done(subject.mkdir(path)),
        "rm" => done(subject.rmdir(path)),
        "un" => done(subject.unlink(path)),
        "cr" => done(subject.create(path)),
        "mv" => done(subject.rename(path, text)),
        "ch" => done(subject.chmod(path, u32::from_str_radix(text, 8).expect("an octal mode"))),
        "ow" => done(subject.open_for_writing(path)),
        "st" => subject
            .stat(path)
            .map_or_else(failure, |(mode, size, links)| format!("{mode:o} size={size} nlink={links}\n")),
        "ls" => match subject.list(path) {
            Err(error) => failure(error),
            Ok(mut names) => {
                names.sort();
                let mut text = String::new();
                for entry in names {
                    let (mode, ..) =
                        subject.stat(&format!("{path}/{entry}")).expect("what is listed is there");
                    let _ = writeln!(text, "  {mode:o} {entry}");
                }
                text
            }
        },
        "own" => {
            let task = format!("{}\n", subject.own_task());
            match subject.write(&tasks(path), &task) {
                Ok(_) => "moved self\n".to_owned(),
                Err((_, errno)) => failure(("", errno)),
            }
        }
        "has" => {
            let own = subject.own_task().to_string();
            let listed = subject.read(&tasks(path)).expect("tasks can be read");
            let present = listed.lines().any(|line| line == own);
            format!("self {}\n", if present { "present" } else { "absent" })
        }
        _ => panic!("{operation}: unknown verb"),
    }
}

fn tasks(group: &str) -> String {
    if group == "." { "tasks".to_owned() } else { format!("{group}/tasks") }
}

/// Replaces our own task by the recorder's.
fn as_recorded(subject: &dyn Subject, text: &str, recorded_task: u32) -> String {
    text.replace(&format!("task {}\n", subject.own_task()), &format!("task {recorded_task}\n"))
}
