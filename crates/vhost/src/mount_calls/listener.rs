//! seccomp_unotify(2): which calls wait for an answer, and how an answer is given.
//!
//! It must not know what the calls are about.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Calls that wait: those with which a program can see or change mounts.
const CALLS: [libc::c_long; 7] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_mount,
    libc::SYS_umount2,
];

/// A jump for each call, the loads and jumps before them, and the two ends.
const LENGTH: usize = CALLS.len() + 5;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// The architecture whose numbers [`CALLS`] are (linux include/uapi/linux/audit.h: AUDIT_ARCH_X86_64).
const ARCHITECTURE: u32 = 0xc000_003e;

/// The filter. Programs of other architectures are not affected.
fn filter() -> [libc::sock_filter; LENGTH] {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let (wait, allow) = (LENGTH - 1, LENGTH - 2);
    let mut steps = [step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW); LENGTH];
    // The offsets of `arch` and `nr` in struct seccomp_data.
    steps[0] = step(LOAD, 0, 0, 4);
    steps[1] = step(EQUAL, 0, (allow - 2) as u8, ARCHITECTURE);
    steps[2] = step(LOAD, 0, 0, 0);
    for (at, call) in (3..).zip(CALLS) {
        steps[at] = step(EQUAL, (wait - at - 1) as u8, 0, call as u32);
    }
    steps[wait] = step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF);
    steps
}

/// Lets the calls of this thread and of all its descendants wait for answers through the descriptor that it returns.
/// Makes system calls only, so that it can be used between fork and exec.
///
/// # Errors
/// EACCES without CAP_SYS_ADMIN in the own user namespace, EBUSY if the calls wait for another program already, EINVAL
/// before Linux 5.5.
pub fn install() -> Result<OwnedFd, Errno> {
    let mut steps = filter();
    let program = libc::sock_fprog { len: LENGTH as u16, filter: steps.as_mut_ptr() };
    // Without the last flag (Linux 5.19) a signal interrupts a call that waits; programs in Go send many.
    let killable = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    for flags in [killable, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER] {
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the kernel reads `program` and its steps, which live until the call has returned.
        let file = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
        if file >= 0 {
            // SAFETY: the kernel just gave us this descriptor, and no other code has it.
            return Ok(unsafe { OwnedFd::from_raw_fd(file as i32) });
        }
        let why = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
        if why != Errno::INVAL {
            return Err(why);
        }
    }
    Err(Errno::INVAL)
}

/// A call that waits.
#[derive(Debug)]
pub struct Call {
    /// Names it in the answer.
    pub id: u64,
    /// The thread that calls.
    pub pid: u32,
    /// Number of the call.
    pub number: libc::c_long,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What happens to a call.
#[derive(Debug)]
pub enum CallAnswer {
    /// The kernel executes it.
    Continue,
    /// It returns 0.
    Done,
    /// It fails.
    Failed(Errno),
    /// It returns a new descriptor of a file that can only be read.
    File {
        /// The content.
        content: Vec<u8>,
        /// Whether exec(2) closes it.
        close_on_exec: bool,
    },
}

impl From<Result<(), Errno>> for CallAnswer {
    fn from(outcome: Result<(), Errno>) -> CallAnswer {
        outcome.map_or_else(CallAnswer::Failed, |()| CallAnswer::Done)
    }
}

/// The end that answers.
pub struct CallListener(OwnedFd);

impl CallListener {
    /// With the descriptor of [`install`].
    pub fn new(file: OwnedFd) -> CallListener {
        CallListener(file)
    }

    /// Waits for a call. `None` when no process is left that could call.
    pub fn next(&self) -> Option<Call> {
        loop {
            let mut files = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut files, None) {
                Err(Errno::INTR) => continue,
                Err(_) => return None,
                Ok(_) => {}
            }
            if files[0].revents().contains(PollFlags::HUP) {
                return None;
            }
            // SAFETY: all fields are integers; the kernel wants the structure zeroed.
            let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the request writes this structure, which outlives the call.
            let outcome =
                unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) };
            // ENOENT: the caller was killed meanwhile.
            if outcome == 0 {
                let (number, arguments) = (libc::c_long::from(call.data.nr), call.data.args);
                return Some(Call { id: call.id, pid: call.pid, number, arguments });
            }
        }
    }

    /// Answers a call. A caller that is gone needs no answer.
    pub fn answer(&self, id: u64, answer: CallAnswer) {
        let (error, flags) = match answer {
            CallAnswer::Continue => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            CallAnswer::Done => (0, 0),
            CallAnswer::Failed(errno) => (-errno.raw_os_error(), 0),
            CallAnswer::File { content, close_on_exec } => match self.give(id, &content, close_on_exec) {
                Ok(()) => return,
                Err(errno) => (-errno.raw_os_error(), 0),
            },
        };
        let mut response = libc::seccomp_notif_resp { id, val: 0, error, flags };
        // SAFETY: the request reads this structure, which outlives the call.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) };
    }

    fn give(&self, id: u64, content: &[u8], close_on_exec: bool) -> Result<(), Errno> {
        let memory = rustix::fs::memfd_create(c"mounts", MemfdFlags::CLOEXEC)?;
        let mut writer = File::from(memory);
        writer.write_all(content).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let reader = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut added = libc::seccomp_notif_addfd {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: reader.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: the request reads this structure, which outlives the call; `reader` is open until then.
        let file =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw mut added) };
        if file < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter decides for a call.
    fn decided(architecture: u32, number: u32) -> u32 {
        let steps = filter();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = steps[at];
            match step.code {
                LOAD => loaded = if step.k == 0 { number } else { architecture },
                EQUAL => at += usize::from(if loaded == step.k { step.jt } else { step.jf }),
                _ => return step.k,
            }
            at += 1;
        }
    }

    #[test]
    fn only_calls_about_mounts_wait() {
        for number in 0..600 {
            let waits = CALLS.contains(&libc::c_long::from(number));
            let expected = if waits { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(decided(ARCHITECTURE, number), expected, "call {number}");
            // i386: the same numbers are other calls.
            assert_eq!(decided(0x4000_0003, number), libc::SECCOMP_RET_ALLOW);
        }
    }
}
