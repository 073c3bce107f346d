//! `waykeeper demo` end to end: it shows the daemon at work on a virtual host, restores every knob, and leaves nothing, as
//! root and as another user, also after a kill. Needs root and /dev/fuse.

use crate::common::refused;
use assert_cmd::cargo::cargo_bin;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use waykeeper_testbed::wait_for_some;

/// A small model, so that it keeps up in a debug build.
const SMALL: [&str; 6] = ["demo", "a4-fig5", "--sets", "1/256", "--policy", "a4"];

fn command() -> Command {
    assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
    let mut command = Command::new(cargo_bin("waykeeper"));
    command.arg0("waykeeper").args(SMALL).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Everything that a run could leave behind: mounts that this process sees, and files where they could be.
fn traces() -> (String, Vec<String>) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    // Other tests mount hosts below /tmp at the same time.
    let is_own =
        |line: &&str| line.split(' ').nth(1).is_some_and(|at| at == "/host" || at.starts_with("/run/"));
    let own: String = mounts.lines().filter(is_own).map(|line| line.to_owned() + "\n").collect();
    let mut files: Vec<String> = ["/run", "/"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path().display().to_string())
        .filter(|path| path.ends_with("host") || path.ends_with("waykeeper.toml"))
        .collect();
    files.sort();
    (own, files)
}

/// Reads lines until one contains `words`.
fn until(child: &mut Child, words: &str) -> (String, BufReader<std::process::ChildStdout>) {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        let count = reader.read_line(&mut line).unwrap();
        assert!(count > 0, "it ended before `{words}`: {seen}\n{}", errors(child));
        seen.push_str(&line);
        if line.contains(words) {
            return (seen, reader);
        }
    }
}

fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

fn ended(child: &mut Child) -> Option<i32> {
    wait_for_some("its end", || child.try_wait().unwrap()).code()
}

#[test]
fn it_shows_decisions_and_says_that_every_knob_is_restored() {
    let before = traces();
    let done = command().args(["--for", "4s"]).output().unwrap();
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{shown}\n{}", String::from_utf8_lossy(&done.stderr));
    for wanted in [
        "making the virtual server of a4-fig5 ...\n",
        "starting the daemon ...\n",
        "a4-fig5 on a virtual gold-6140: policy a4 turns its masks and DCA.\n",
        "q ends it. Next: waykeeper demo a4-fig5 --policy default; your host: waykeeper init\n",
        "DCA ways 0x600",
        "worth: ",
        "ending: restoring the knobs ...\n",
        "restored: masks, groups, DDIO ways and DCA of ",
        "unmounted, nothing is left\n",
    ] {
        assert!(shown.contains(wanted), "{wanted}\n{shown}");
    }
    assert_eq!(traces(), before);
}

#[test]
fn each_signal_ends_it_cleanly_and_a_kill_leaves_nothing_mounted() {
    let before = traces();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        // A terminal sends its signals to all processes of a command.
        let mut child = command().process_group(0).spawn().unwrap();
        let (_, mut reader) = until(&mut child, "worth: ");
        kill_process_group(Pid::from_child(&child), signal).unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let code = ended(&mut child);
        if signal == Signal::KILL {
            assert_eq!(code, None);
        } else {
            assert_eq!(code, Some(0), "{signal:?}: {rest}\n{}", errors(&mut child));
            assert!(rest.contains("restored: masks, groups"), "{signal:?}: {rest}");
        }
        assert_eq!(traces(), before, "{signal:?}");
    }
}

/// The process that serves the host, the only child.
fn server_of(child: &Child) -> Pid {
    let path = format!("/proc/{0}/task/{0}/children", child.id());
    let children = std::fs::read_to_string(path).unwrap();
    Pid::from_raw(children.trim().parse().unwrap_or_else(|_| panic!("one child, not `{children}`"))).unwrap()
}

/// A file of procfs for each thread of a process; none if there is no such process.
fn of_threads(pid: Pid, file: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let threads = threads.into_iter().flatten().flatten();
    threads.filter_map(|thread| std::fs::read_to_string(thread.path().join(file)).ok()).collect()
}

/// A process that is killed at the end, also of a test that fails.
struct Killed(Pid);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// The kernel does not end a thread that waits for an answer of the host, also after a SIGKILL: somebody must answer, or be
/// seen to have ended.
#[test]
fn a_kill_ends_it_while_the_host_owes_an_answer() {
    let mut child = command().spawn().unwrap();
    let (_, _reader) = until(&mut child, "worth: ");
    let server = server_of(&child);
    kill_process(server, Signal::STOP).unwrap();
    let _killed = Killed(server);
    let demo = Pid::from_child(&child);
    let waits = |place: &String| place.contains("request_wait_answer") || place.contains("fuse");
    wait_for_some("a thread that waits for the host", || {
        of_threads(demo, "wchan").iter().any(waits).then_some(())
    });
    kill_process(demo, Signal::KILL).unwrap();
    assert_eq!(ended(&mut child), None);
    // Whoever adopts it may be late to collect it.
    let has_ended = |stat: &String| stat.contains(") Z ");
    wait_for_some("the end of the server", || of_threads(server, "stat").iter().all(has_ended).then_some(()));
}

#[test]
fn a_host_whose_process_ends_is_named() {
    let mut child = command().spawn().unwrap();
    let (_, mut reader) = until(&mut child, "worth: ");
    kill_process(server_of(&child), Signal::KILL).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(ended(&mut child), Some(1), "{rest}");
    let errors = errors(&mut child);
    assert_eq!(errors, "error: the virtual server stopped: its process has ended\n", "{rest}");
}

/// Through script(1), which gives the program a terminal.
#[test]
fn on_a_terminal_it_shows_a_page_and_the_key_q_ends_it() {
    let program = cargo_bin("waykeeper");
    let line = format!("stty rows 24 columns 80; {} {}; stty -a", program.display(), SMALL.join(" "));
    let child = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env("NO_COLOR", "1")
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("not run: needs script: {error}"));
    let mut keys = child.stdin.take().unwrap();
    let (page, mut reader) = until(&mut child, "worth: ");
    assert!(
        page.contains("\x1b[H\x1b[2Ja4-fig5 on a virtual gold-6140: policy a4 turns its masks and DCA."),
        "{page}"
    );
    keys.write_all(b"q").unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(ended(&mut child), Some(0), "{rest}");
    assert!(rest.contains("restored: masks, groups"), "{rest}");
    // The terminal is as before.
    assert!(rest.contains(" icanon ") && rest.contains(" echo "), "{rest}");
    let mut of_the_page = rest.lines().filter_map(|line| line.split_once("\x1b[K"));
    assert!(
        of_the_page.all(|(line, _)| line.replace("\x1b[H", "").replace("\x1b[J", "").chars().count() <= 80),
        "{rest}"
    );
}

#[test]
fn a_closed_pipe_ends_it() {
    let mut child = command().spawn().unwrap();
    drop(until(&mut child, "worth: "));
    assert_eq!(ended(&mut child), Some(0), "{}", errors(&mut child));
}

/// In a mount namespace whose /dev/fuse any user may open, as most distributions have it.
#[test]
fn another_user_needs_only_the_device_and_user_namespaces() {
    let made = Command::new("setpriv")
        .args(["--reuid", "1234", "--regid", "1234", "--clear-groups", "unshare", "-Urm", "true"])
        .status();
    assert!(made.is_ok_and(|status| status.success()), "not run: needs user namespaces and setpriv");
    let script = "mount -t tmpfs none /mnt && mknod /mnt/fuse c 10 229 && chmod 666 /mnt/fuse && \
        mount --bind /mnt/fuse /dev/fuse && exec setpriv --reuid 1234 --regid 1234 --clear-groups \"$@\"";
    let program = tempfile::tempdir().unwrap();
    let copy = program.path().join("waykeeper");
    // By a process of its own, as in the census of `tenants`: no child of another thread inherits a file open for writing.
    let copied = Command::new("cp").arg(cargo_bin("waykeeper")).arg(&copy).status().unwrap();
    assert!(copied.success(), "{copied}");
    std::fs::set_permissions(program.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(&copy)
        .args(SMALL)
        .args(["--for", "3s"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{shown}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(shown.contains("restored: masks, groups"), "{shown}");
    // With a device that is only root's, one line says what is needed.
    let mut command = Command::new(&copy);
    let closed = std::fs::metadata("/dev/fuse").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&closed.permissions());
    if mode & 0o006 != 0o006 {
        let done = command.args(SMALL).uid(1234).gid(1234).output().unwrap();
        let line = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(4), "{line}");
        assert!(line.starts_with("error: cannot open /dev/fuse: ") && line.lines().count() == 1, "{line}");
    }
}

#[test]
fn what_is_wrong_is_one_line_before_anything_is_mounted() {
    refused(&["demo", "a4-fig55"], 2, &["did you mean `a4-fig5`?"]);
    refused(&["demo", "--policy", "waykeper"], 2, &["did you mean `waykeeper`?"]);
    refused(&["demo", "--speed", "0"], 2, &["`--speed` is 0; it must be from 0.001 to 1000"]);
    refused(&["demo", "--for", "0"], 2, &["`0` is not a time above 0"]);
    refused(&["demo", "idio-fig3"], 2, &["the chip `idio` has no table [identity]"]);
}
