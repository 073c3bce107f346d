//! The system call perf_event_open, and the read that returns a whole group.
//!
//! Passes the kernel's numbers; must not know what they count.

use crate::counters::Shown;
use crate::event_source::EncodedEvent;
use perf_event_open_sys::bindings as sys;
use rustix::io::Errno;
use std::os::fd::{FromRawFd, OwnedFd};

impl EncodedEvent {
    /// A raw event of a core's PMU: event select and umask.
    pub const fn raw(config: u64) -> EncodedEvent {
        EncodedEvent { pmu: sys::PERF_TYPE_RAW, config: [config, 0, 0] }
    }
}

/// Why an event could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("perf event {name} on CPU {cpu}: {why}{}", remedy(*.why))]
pub struct PerfOpenError {
    /// The event, for messages.
    pub name: String,
    /// The CPU.
    pub cpu: u16,
    /// The system's error.
    pub why: Errno,
}

/// The remedy (hardware.md 6.2; perf_event_open(2)).
fn remedy(why: Errno) -> &'static str {
    match why {
        Errno::ACCESS | Errno::PERM => {
            "; counting a whole CPU needs CAP_PERFMON or kernel.perf_event_paranoid of 0 or less"
        }
        Errno::NOENT | Errno::OPNOTSUPP => {
            "; this kernel does not count it on this CPU (a virtual machine without PMU?)"
        }
        Errno::MFILE => "; raise the limit of open files (ulimit -n)",
        Errno::BUSY => "; another tool holds the counter exclusively",
        _ => "",
    }
}

/// Events on one CPU that are scheduled together and read by one call.
#[derive(Debug)]
pub struct PerfGroup {
    /// The first is the group leader.
    files: Vec<OwnedFd>,
    buffer: Vec<u8>,
}

/// Words before the values: number of events, time enabled, time running.
const HEAD: usize = 3;

impl PerfGroup {
    /// Opens events as one group; `names` are for messages. They count immediately, for all tasks on that CPU.
    ///
    /// # Errors
    /// The first event that the kernel refuses.
    pub fn open(events: &[(&str, EncodedEvent)], cpu: u16) -> Result<PerfGroup, PerfOpenError> {
        let mut files: Vec<OwnedFd> = Vec::with_capacity(events.len());
        for (name, event) in events {
            let leader = files.first().map_or(-1, std::os::fd::AsRawFd::as_raw_fd);
            let file = open(*event, cpu, leader);
            files.push(file.map_err(|why| PerfOpenError { name: (*name).to_owned(), cpu, why })?);
        }
        Ok(PerfGroup { buffer: vec![0; (HEAD + files.len()) * 8], files })
    }

    /// The current values of all events, in order.
    ///
    /// # Errors
    /// The system's error, or `EIO` for an answer of unexpected length (0 bytes: the group could not be scheduled on
    /// the CPU, perf_event_open(2)).
    pub fn read(&mut self) -> Result<impl Iterator<Item = Shown> + '_, Errno> {
        let Some(leader) = self.files.first() else {
            return Err(Errno::BADF);
        };
        let got = rustix::io::read(leader, &mut self.buffer)?;
        let mut words =
            self.buffer.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let head = (words.next(), words.next(), words.next());
        match head {
            (Some(count), Some(enabled_ns), Some(running_ns))
                if got == (HEAD + self.files.len()) * 8 && count == self.files.len() as u64 =>
            {
                Ok(words.map(move |value| Shown { value, enabled_ns, running_ns }))
            }
            _ => Err(Errno::IO),
        }
    }
}

fn open(event: EncodedEvent, cpu: u16, leader: i32) -> Result<OwnedFd, Errno> {
    let mut attr = sys::perf_event_attr::default();
    attr.type_ = event.pmu;
    attr.size = size_of::<sys::perf_event_attr>() as u32;
    attr.config = event.config[0];
    attr.read_format = u64::from(sys::PERF_FORMAT_GROUP)
        | u64::from(sys::PERF_FORMAT_TOTAL_TIME_ENABLED)
        | u64::from(sys::PERF_FORMAT_TOTAL_TIME_RUNNING);
    attr.__bindgen_anon_3.config1 = event.config[1];
    attr.__bindgen_anon_4.config2 = event.config[2];
    // SAFETY: `attr` is a whole, initialised structure of the size it names and outlives the call; the kernel reads it
    // and nothing else. pid -1 with a CPU counts that CPU.
    let fd = unsafe {
        perf_event_open_sys::perf_event_open(
            &raw mut attr,
            -1,
            i32::from(cpu),
            leader,
            sys::PERF_FLAG_FD_CLOEXEC.into(),
        )
    };
    if fd < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel just gave us this descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
