//! The virtual host of the demonstration, in a process of its own, and what that process tells about it.
//!
//! Must not know the daemon.

use crate::exit::{self, Failure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use waykeeper_machine::Scenario;
use waykeeper_vhost::apart::Apart;
use waykeeper_vhost::virtual_host::{VirtualHost, VirtualHostOptions};

/// Time between two reports.
const EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A line of the host's process about the host.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Report {
    /// It is mounted.
    Mounted,
    /// It cannot be mounted: exit code and line.
    Refused(u8, String),
    /// By how much the model is behind its clock, ns of the server's clock.
    Lag(u64),
    /// The model stopped, for this reason.
    Stopped(String),
}

impl Report {
    fn line(&self) -> String {
        let one_line = |text: &str| text.replace('\n', " ");
        match self {
            Report::Mounted => "mounted\n".to_owned(),
            Report::Refused(code, why) => format!("refused {code} {}\n", one_line(why)),
            Report::Lag(ns) => format!("lag {ns}\n"),
            Report::Stopped(why) => format!("stopped {}\n", one_line(why)),
        }
    }

    fn parse(line: &str) -> Option<Report> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "mounted" => Some(Report::Mounted),
            "refused" => {
                let (code, why) = rest.split_once(' ')?;
                Some(Report::Refused(code.parse().ok()?, why.to_owned()))
            }
            "lag" => Some(Report::Lag(rest.parse().ok()?)),
            "stopped" => Some(Report::Stopped(rest.to_owned())),
            _ => None,
        }
    }
}

/// What is known of the host.
#[derive(Debug, Default)]
struct Known {
    lag_ns: u64,
    failure: Option<String>,
}

/// The host. It is unmounted when this is dropped.
pub struct DemoHost {
    path: PathBuf,
    known: Arc<Mutex<Known>>,
    process: Apart,
}

impl DemoHost {
    /// Starts to mount the host of a scenario on an empty directory. The process must have one thread. Also returns what
    /// waits until the host is mounted.
    pub fn start(
        path: &Path,
        scenario: Arc<Scenario>,
        options: VirtualHostOptions,
    ) -> Result<(DemoHost, impl FnOnce() -> Result<(), Failure> + Send + 'static), Failure> {
        let mounted = path.to_owned();
        let serve = move |asked, reports| {
            let _line = PanicLine;
            serve(&mounted, scenario, options, &asked, reports);
        };
        let (process, reports) =
            Apart::start(serve).map_err(|why| Failure::io("cannot start the process of the host", &why))?;
        let known = Arc::new(Mutex::new(Known::default()));
        let (sender, first) = channel();
        let follower = known.clone();
        std::thread::spawn(move || follow(reports, &follower, &sender));
        let is_mounted = move || match first.recv() {
            Ok(Report::Mounted) => Ok(()),
            Ok(Report::Refused(code, why)) => Err(Failure::new(code, why)),
            _ => Err(Failure::new(exit::FAILED, "the process of the virtual server has ended")),
        };
        Ok((DemoHost { path: path.to_owned(), known, process }, is_mounted))
    }

    /// Unmounts it.
    pub fn end(self) -> Result<(), Failure> {
        let failure =
            || Failure::new(exit::FAILED, "the process of the virtual server did not end as it should");
        if self.process.end() { Ok(()) } else { Err(failure()) }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// By how much the model is behind its clock, ns of the server's clock.
    pub fn lag_ns(&self) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).lag_ns
    }

    /// Why the server stopped, if it did.
    pub fn failure(&self) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }
}

/// Waits at the end of the host's process for the line about a panic, which another thread writes.
struct PanicLine;

impl Drop for PanicLine {
    fn drop(&mut self) {
        exit::flush_stderr();
    }
}

/// Reads the reports until there are no more.
fn follow(reports: PipeReader, known: &Mutex<Known>, first: &Sender<Report>) {
    let lines = BufReader::new(reports).lines().map_while(Result::ok);
    for report in lines.filter_map(|line| Report::parse(&line)) {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        match report {
            Report::Lag(lag_ns) => known.lag_ns = lag_ns,
            Report::Stopped(why) => known.failure = Some(why),
            // The waiting side may have given up.
            report => drop(first.send(report)),
        }
    }
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.failure.get_or_insert_with(|| "its process has ended".to_owned());
}

/// Mounts and serves the host until the other end of `asked` is closed.
fn serve(
    path: &Path,
    scenario: Arc<Scenario>,
    options: VirtualHostOptions,
    asked: &PipeReader,
    mut reports: PipeWriter,
) {
    // A reader that has ended needs no report.
    let mut tell = |report: Report| drop(reports.write_all(report.line().as_bytes()));
    let host = match VirtualHost::mount(path, scenario, options) {
        Ok(host) => host,
        Err(why) => {
            let failure = Failure::from(why);
            return tell(Report::Refused(failure.code(), failure.line().to_owned()));
        }
    };
    tell(Report::Mounted);
    loop {
        // Nothing is ever written into it: it is ready once it is closed.
        match poll(&mut [PollFd::new(asked, PollFlags::IN)], Some(&EVERY)) {
            Ok(0) | Err(Errno::INTR) => {}
            _ => return,
        }
        tell(match host.clock().failure() {
            Some(why) => Report::Stopped(why.to_owned()),
            None => Report::Lag(host.clock().lag_ns()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_line() {
        let all = [
            Report::Mounted,
            Report::Refused(4, "cannot open /dev/fuse: no".to_owned()),
            Report::Lag(1_000_000_000),
            Report::Stopped("out of memory".to_owned()),
        ];
        for report in all {
            assert_eq!(Report::parse(report.line().trim_end()), Some(report));
        }
        assert_eq!(Report::Stopped("two\nlines".to_owned()).line(), "stopped two lines\n");
        assert_eq!(
            (Report::parse("lag"), Report::parse("refused x y"), Report::parse("")),
            (None, None, None)
        );
    }

    /// The reports end without a word if the process is killed.
    #[test]
    fn a_process_that_ends_is_a_failure() {
        let (reports, mut written) = std::io::pipe().unwrap();
        let (known, (sender, first)) = (Mutex::new(Known::default()), channel());
        written.write_all(b"mounted\nlag 7\n").unwrap();
        drop(written);
        follow(reports, &known, &sender);
        let known = known.into_inner().unwrap();
        assert_eq!((known.lag_ns, known.failure.as_deref()), (7, Some("its process has ended")));
        assert_eq!(first.try_recv(), Ok(Report::Mounted));
    }
}
