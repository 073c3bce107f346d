//! Recording: with a stand-in for valgrind that writes lackey's text, and with the real one.

use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use waykeeper_inputs::{Ended, RecordError, RecordOptions, Recording, Trace, Window, record};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out.wkt")
    }

    /// A script that replaces valgrind; descriptor 3 is the trace.
    fn valgrind(&self, body: &str) -> PathBuf {
        let path = self.folder.path().join("valgrind");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn record(&self, valgrind: &Path, window: Window) -> Result<Recording, RecordError> {
        let options = RecordOptions { window, valgrind: valgrind.to_owned(), ..RecordOptions::default() };
        record(
            &words(&["/usr/bin/thing", "-x"]),
            &self.output(),
            &options,
            &mut |_| ControlFlow::Continue(()),
        )
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

const THREE: &str = r"printf '==1== hi\nI  400000,4\n L 1000,8\nI  400004,4\n S 2000,8\nI  400008,4\n' >&3";

#[test]
fn a_program_that_ends_passes_its_status_on() {
    let place = Place::new();
    let valgrind = place
        .valgrind(&format!("case \"$*\" in *--log-fd=3*--*thing*-x) ;; *) exit 9;; esac\n{THREE}\nexit 7"));
    let recording = place.record(&valgrind, Window::default()).unwrap();
    let Ended::Exited(status) = recording.ended else { panic!("{recording:?}") };
    assert_eq!(status.code(), Some(7));
    assert_eq!((recording.info.summary.instructions, recording.info.summary.records), (3, 2));
    assert_eq!(recording.info.source, "thing -x");
    let trace = Trace::read(&place.output(), &Window::default()).unwrap();
    assert_eq!(
        trace.records.iter().map(|r| (r.line, r.instructions)).collect::<Vec<_>>(),
        [(0x40, 1), (0x80, 1)]
    );
    assert_eq!(trace.tail_instructions, 1);
}

/// A server that writes without end: it must be stopped.
#[test]
fn a_server_is_stopped_when_the_window_is_full() {
    let place = Place::new();
    let pid = place.folder.path().join("pid");
    let body = format!(
        "echo $$ > {}\ntrap 'exit 3' TERM\nwhile :; do printf 'I  400000,4\\n L 1000,8\\nI  400004,4\\n S 2000,8\\n' >&3; done",
        pid.display()
    );
    let valgrind = place.valgrind(&body);
    let window = Window { skip_instructions: 100, max_instructions: Some(1000), max_records: None };
    let recording = place.record(&valgrind, window).unwrap();
    assert_eq!(recording.ended, Ended::Full);
    assert_eq!(recording.info.summary.instructions, 1000);
    let pid = fs::read_to_string(pid).unwrap();
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "the server must be gone");
}

#[test]
fn a_program_that_only_waits_can_be_left() {
    let place = Place::new();
    let valgrind = place.valgrind(&format!("{THREE}\nsleep 60\ntouch \"$0.woke\""));
    let options = RecordOptions { valgrind, ..RecordOptions::default() };
    let recording = record(&words(&["thing"]), &place.output(), &options, &mut |progress| {
        if progress.instructions == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(recording.unwrap().ended, Ended::Asked);
    assert!(!place.folder.path().join("valgrind.woke").exists(), "its end was waited for");
}

/// The program ends, but a daemon that it started holds the pipe.
#[test]
fn a_daemon_left_behind_does_not_hold_the_recording() {
    let place = Place::new();
    let valgrind = place.valgrind(&format!("{THREE}\nsleep 60 &\necho $! > \"$0.pid\"\nexit 0"));
    let recording = place.record(&valgrind, Window::default()).unwrap();
    assert!(matches!(recording.ended, Ended::Exited(status) if status.success()));
    // The daemon still runs, so its end was not waited for.
    let pid = fs::read_to_string(place.folder.path().join("valgrind.pid")).unwrap();
    assert!(std::process::Command::new("kill").arg(pid.trim()).status().unwrap().success());
}

/// A child that is seen while it lives, and one that ends at once.
#[test]
fn processes_that_are_not_recorded_are_said() {
    let place = Place::new();
    let fifo = place.folder.path().join("valgrind.fifo");
    let valgrind = place
        .valgrind(&format!("mkfifo \"$0.fifo\"\n{THREE}\ncat \"$0.fifo\"\necho '==1== Exit code: 0' >&3"));
    let options = RecordOptions { valgrind, ..RecordOptions::default() };
    // The child reads until the other end is closed, which is some looks after it was opened.
    let (mut open, mut looks) = (None, 0);
    let recording = record(&words(&["thing"]), &place.output(), &options, &mut |progress| {
        if progress.instructions == 3 && looks == 0 {
            open = Some(fs::OpenOptions::new().write(true).open(&fifo).unwrap());
        }
        looks += usize::from(open.is_some());
        if looks == 5 {
            open = None;
        }
        ControlFlow::Continue(())
    });
    let unrecorded = recording.unwrap().unrecorded;
    assert!(
        unrecorded.started.contains(&"cat".to_owned()) && unrecorded.replaced_by.is_none(),
        "{unrecorded:?}"
    );

    // Whether it is seen or not, it was waited for.
    let short = place.valgrind(&format!("{THREE}\n/bin/true\necho '==1== Exit code: 0' >&3"));
    let short = place.record(&short, Window::default()).unwrap().unrecorded;
    assert!(short.sentences().concat().starts_with("started "), "{short:?}");
    let alone = place.valgrind(&format!("{THREE}\necho '==1== Exit code: 0' >&3"));
    assert_eq!(place.record(&alone, Window::default()).unwrap().unrecorded.sentences(), [""; 0]);
}

#[test]
fn a_program_that_becomes_another_one_is_said() {
    let place = Place::new();
    let valgrind = place.valgrind(&format!("{THREE}\nexec 3>&-\nexec sleep 0.1"));
    let unrecorded = place.record(&valgrind, Window::default()).unwrap().unrecorded;
    assert_eq!(unrecorded.replaced_by.as_deref(), Some("sleep"));
    assert_eq!(unrecorded.sentences(), ["became sleep (exec), which is not recorded; record it directly"]);
    // A program that a signal ends writes no exit code either.
    let killed = place.valgrind(&format!("{THREE}\nkill -KILL $$"));
    assert_eq!(place.record(&killed, Window::default()).unwrap().unrecorded.replaced_by, None);
}

#[test]
fn errors_are_reported_and_leave_no_file() {
    let place = Place::new();
    let all = Window::default();
    let refused = |valgrind: &Path, window| {
        let text = place.record(valgrind, window).unwrap_err().to_string();
        assert!(
            !place.output().exists() && fs::read_dir(place.folder.path()).unwrap().count() <= 1,
            "{text}"
        );
        text
    };
    let text = refused(Path::new("/nowhere/valgrind"), all);
    assert_eq!(text, "cannot run /nowhere/valgrind: not found; install Debian package valgrind");
    let text = refused(&place.valgrind("echo valgrind: thing: command not found >&2; exit 127"), all);
    assert!(text.contains("`/usr/bin/thing -x` did not start") && text.contains("127"), "{text}");
    let text = refused(&place.valgrind("printf 'I  400000,4\\nwhat is this\\n' >&3; sleep 60"), all);
    assert!(text.contains("line 2 of lackey's output for `/usr/bin/thing -x` is `what is this`"), "{text}");
    let text = refused(&place.valgrind(THREE), Window { skip_instructions: 50, ..all });
    assert!(
        text.contains("ended after 3 instructions (exit status: 0), before the recorded window began"),
        "{text}"
    );
    let error = record(&[], &place.output(), &RecordOptions::default(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(error, Err(RecordError::NoCommand)));
}

#[test]
fn the_real_valgrind_records_a_real_program() {
    let found = std::process::Command::new("valgrind").arg("--version").output();
    assert!(found.is_ok_and(|done| done.status.success()), "not run: needs valgrind");
    let place = Place::new();
    let window = Window { skip_instructions: 20_000, max_instructions: Some(50_000), max_records: None };
    let recording = place.record(Path::new("valgrind"), window);
    assert!(matches!(recording, Err(RecordError::NotStarted { .. })), "there is no /usr/bin/thing");
    let options = RecordOptions { window, ..RecordOptions::default() };
    let recording =
        record(&words(&["sleep", "60"]), &place.output(), &options, &mut |_| ControlFlow::Continue(()));
    let recording = recording.unwrap();
    assert_eq!((recording.ended, recording.info.summary.instructions), (Ended::Full, 50_000));
    assert!(recording.info.lines > 100);
    let all = RecordOptions { l1_filter: true, ..RecordOptions::default() };
    let run = |command: &[&str]| {
        record(&words(command), &place.output(), &all, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    let wrapper = run(&["sh", "-c", "/bin/true; exec true"]).unrecorded;
    assert_eq!(wrapper.replaced_by.as_deref(), Some("true"), "{wrapper:?}");
    assert!(wrapper.sentences().concat().starts_with("started "), "{wrapper:?}");
    let recording = run(&["true"]);
    assert_eq!(recording.unrecorded.sentences(), [""; 0]);
    assert!(
        matches!(recording.ended, Ended::Exited(status) if status.success()) && recording.info.l1_filtered
    );
}
