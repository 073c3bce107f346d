//! The commands that talk to the daemon, against its socket server without a host (the stage of `service`'s own tests):
//! pages, JSON, exit codes, and the errors when another program listens.

use crate::common;
#[path = "../../../service/tests/servers/stage.rs"]
#[allow(dead_code, reason = "the stage is the other tests' too")]
mod stage;

use common::{output, refused};
use serde_json::Value;
use stage::{Client, READERS, Stage};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use waykeeper_service::SocketLimits;

fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_waykeeper")
}

/// Arguments with the stage's socket.
fn at<'a>(arguments: &[&'a str], socket: &'a str) -> Vec<&'a str> {
    [arguments, &["--socket", socket]].concat()
}

#[test]
fn a_status_is_a_page_for_people_and_json_for_programs() {
    let stage = Stage::new(SocketLimits::default(), None);
    stage.moves_on(2);
    let socket = stage.socket().display().to_string();
    let page = output(&at(&["status"], &socket));
    for line in [
        "gold-6140, Linux 6.12; cores 0-17; LLC of 24.8 MiB in 11 ways, 16 classes",
        "DCA ways 0x600; DCA write misses 25.0 %, read misses -; memory reads 5.00 GB/s, writes 1.00 GB/s",
        " tenant      priority  kind        cores  mask   ways   IPC  LLC hits         LLC  devices  same mask",
        " dpdk \"rx\"  high      network-io  0-1    0x7f0     7  1.50    80.0 %  4096.0 KiB  nic0     -",
        " fio         low       storage-io  2-3    0x00c     2  1.50    80.0 %           -  ssd0     -",
        " 0000:3a:00.0  nic0     on   2.00 GB/s  0.50 GB/s",
        " 0000:4a:00.0  ssd0     off  0.64 GB/s          -",
        "  counter: no MBM here",
        "worth: HPWs +12.5 +- 4.0 %, LPWs -10.0 +- 2.0 % since the state as found, looked at 42.0 s ago",
        "sufferer: fio -10.0 +- 2.0 %",
        "polluter: no other fills ways of fio",
    ] {
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.lines().any(|there| squeezed(there) == squeezed(line)), "`{line}` is not in:\n{page}");
    }
    assert!(page.contains("manages, policy a4 in state steady"), "{page}");
    assert!(page.contains(": fio takes a way (DCA write miss ratio 0.25, dmaleak 0.2)"), "{page}");
    // Columns are aligned.
    let starts: Vec<Option<usize>> = page
        .lines()
        .filter(|line| line.contains("-io") || line.contains("IPC"))
        .map(|line| line.find("kind").or(line.find("network-io")).or(line.find("storage-io")))
        .collect();
    assert!(starts.len() == 3 && starts.iter().all(|start| start.is_some() && *start == starts[0]), "{page}");
    let json: Value = serde_json::from_str(&output(&at(&["status", "--json"], &socket))).unwrap();
    assert_eq!((&json["policy"], &json["tenants"][0]["ipc"]), (&Value::from("a4"), &Value::from(1.5)));
    let tenants = output(&at(&["tenants"], &socket));
    assert!(tenants.contains("storage-io") && !tenants.contains("0000:3a:00.0"), "{tenants}");
    let json: Value = serde_json::from_str(&output(&at(&["tenants", "--json"], &socket))).unwrap();
    assert_eq!(json["tenants"][1]["name"], "fio");
}

#[test]
fn a_watch_prints_a_line_a_step_until_its_reader_has_seen_enough() {
    let stage = Stage::new(SocketLimits::default(), None);
    let mut child = Command::new(binary())
        .args(["status", "--watch", "--json", "--socket"])
        .arg(stage.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut step = || {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["step"].as_u64().unwrap()
    };
    let (first, second) = (step(), step());
    assert!(second > first);
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_watch_survives_a_restart_of_the_daemon_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let mut first = Stage::new(SocketLimits::default(), None);
    symlink(first.socket(), &socket).unwrap();
    let mut child = Command::new(binary())
        .args(["status", "--watch", "--json", "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut step = || {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["step"].as_u64().unwrap()
    };
    step();
    let ended_at = first.published_state.read().step;
    first.close();
    assert_eq!(notes.next().unwrap().unwrap(), "the daemon has ended; waiting until it is back");
    let second = Stage::new(SocketLimits::default(), None);
    std::fs::remove_file(&socket).unwrap();
    symlink(second.socket(), &socket).unwrap();
    assert_eq!(notes.next().unwrap().unwrap(), "the daemon is back");
    // The first daemon did not come as far.
    while step() < ended_at + 100 {}
    // Its reader goes while no daemon is there: it does not wait for one any longer.
    drop(second);
    assert_eq!(notes.next().unwrap().unwrap(), "the daemon has ended; waiting until it is back");
    drop(lines);
    assert!(child.wait().unwrap().success());
}

/// What `waykeeper` shows on a terminal of 80 columns and 24 rows.
fn on_terminal(words: &str, environment: &[(&str, &str)]) -> String {
    let command = format!("stty cols 80 rows 24 && exec {} {words}", binary());
    let done = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env_remove("NO_COLOR")
        .env("TERM", "xterm-256color")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("not run: needs script");
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{text}");
    text.replace("\r\n", "\n")
}

#[test]
fn on_a_terminal_the_status_has_its_size_and_colours_where_they_are_welcome() {
    let stage = Stage::new(SocketLimits::default(), None);
    stage.moves_on(2);
    let socket = stage.socket().display().to_string();
    let coloured = on_terminal(&format!("status --socket {socket}"), &[]);
    assert!(coloured.contains("\x1b[32mHPWs +12.5 +- 4.0 %\x1b[0m"), "{coloured:?}");
    let plain = on_terminal(&format!("status --socket {socket}"), &[("NO_COLOR", "1")]);
    assert!(!plain.contains('\x1b') && plain.lines().count() < 24, "{plain}");
    assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
    for line in [
        "worth: HPWs +12.5 +- 4.0 %, LPWs -10.0 +- 2.0 %, looked at 42.0 s ago",
        "sufferer: fio -10.0 +- 2.0 %",
        "polluter: no other fills ways of fio",
        "last actions",
    ] {
        assert!(plain.lines().any(|there| there == line), "`{line}` is not in:\n{plain}");
    }
    let dumb = on_terminal(&format!("status --socket {socket}"), &[("TERM", "dumb")]);
    assert!(!dumb.contains('\x1b') && dumb.contains("HPWs +12.5 +- 4.0 %"), "{dumb:?}");
    let whole = on_terminal(&format!("status --details --socket {socket}"), &[("NO_COLOR", "1")]);
    assert!(whole.contains("last decisions") && whole.contains("same mask"), "{whole}");
}

#[test]
fn a_watch_on_a_terminal_draws_over_its_last_frame_and_tells_when_the_daemon_is_gone() {
    let mut stage = Stage::new(SocketLimits::default(), None);
    let command = format!(
        "stty cols 80 rows 24 && exec timeout 600 {} status --watch --socket {}",
        binary(),
        stage.socket().display()
    );
    let mut child = Command::new("script")
        .args(["--quiet", "--flush", "--command", &command, "/dev/null"])
        .env("NO_COLOR", "1")
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("not run: needs script");
    let mut shown = child.stdout.take().unwrap();
    let mut text = String::new();
    let mut until = |what: &str| {
        let mut some = [0; 4096];
        while !text.contains(what) {
            let count = shown.read(&mut some).unwrap();
            assert!(count > 0, "`{what}` is not in:\n{text}");
            text.push_str(&String::from_utf8_lossy(&some[..count]));
        }
        // What follows may be the begin of the next frame.
        let rest = text.split_off(text.find(what).unwrap() + what.len());
        std::mem::replace(&mut text, rest)
    };
    let first = until("\x1b[J");
    // The first frame erases the screen, the next ones only what they do not write over.
    assert!(first.starts_with("\x1b[H\x1b[2J\x1b[Kwaykeeper manages: policy a4"), "{first:?}");
    let next = until("\x1b[J");
    assert!(!next.contains("\x1b[2J") && next.contains("\x1b[H"), "{next:?}");
    stage.close();
    let gone = until("! trying again at once: the daemon has ended");
    assert!(!gone.contains("panicked"), "{gone}");
    until("no daemon at ");
    // Ctrl-C, as the terminal would send it.
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process_group(group, rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
}

#[test]
fn orders_say_what_came_of_them_and_end_as_they_should() {
    let stage = Stage::new(SocketLimits::default(), None);
    let socket = stage.socket().display().to_string();
    assert_eq!(output(&at(&["pause"], &socket)), "done: Pause(Hold)\n");
    assert_eq!(output(&at(&["pause", "--release"], &socket)), "done: Pause(Release)\n");
    assert_eq!(output(&at(&["resume"], &socket)), "done: Resume\n");
    assert_eq!(output(&at(&["reload"], &socket)), "done: Reload\n");
    assert_eq!(output(&at(&["hand-over"], &socket)), "done: HandOver(60s)\n");
    assert_eq!(output(&at(&["hand-over", "--within", "10m"], &socket)), "done: HandOver(600s)\n");
    refused(&at(&["hand-over", "--within", "25h"], &socket), 2, &["--within", "`25h` is longer than a day"]);
    let set = output(&at(&["policy", "set", "iat", "--set", "period=2", "--set", "name=x"], &socket));
    assert!(set.contains("Integer(2)") && set.contains("String(\"x\")"), "{set}");
    refused(&at(&["policy", "set", "a5"], &socket), 2, &["unknown policy `a5`"]);
    refused(&at(&["policy", "set", "a4", "--set", "x"], &socket), 2, &["write KEY=VALUE"]);
    refused(&at(&["policy", "set", "a4", "--set", "x=1", "--set", "x=2"], &socket), 2, &["given twice"]);
    // Programs of root that watch lock no order out, and a query names them.
    let watchers: Vec<Client> = (0..SocketLimits::default().per_uid)
        .map(|_| {
            let mut watcher = Client::at(&stage.socket());
            watcher.send(r#"{"version":1,"do":"watch"}"#);
            assert!(watcher.receive().contains("\"ok\""));
            watcher
        })
        .collect();
    assert_eq!(output(&at(&["pause", "--release"], &socket)), "done: Pause(Release)\n");
    let holder = format!("connections already (process {}); close one", std::process::id());
    refused(&at(&["status"], &socket), 5, &[&holder]);
    drop(watchers);
    let busy = Stage::new(SocketLimits { orders: 0, ..SocketLimits::default() }, None);
    refused(&at(&["resume"], &busy.socket().display().to_string()), 5, &["orders are waiting already"]);
    refused(&at(&["status"], "/nonexistent/s"), 3, &["no daemon at /nonexistent/s", "--socket"]);
}

#[test]
fn another_user_may_read_if_in_the_group_and_gets_errors_that_name_what_is_not_permitted() {
    let stage = Stage::new(SocketLimits::default(), Some(READERS.0));
    // Other users may lack access to the build folder.
    let program = stage.folder.path().join("waykeeper");
    // Another process copies it: a file that this process opened for writing cannot be run while a child of another
    // test has inherited the descriptor.
    assert!(Command::new("cp").arg(binary()).arg(&program).status().unwrap().success());
    let run = |gid: u32, arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).arg("--socket").arg(stage.socket()).uid(12345).gid(gid);
        let done = command.output().expect("not run: needs root: this test becomes another user");
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    assert_eq!(run(READERS.1, &["status"]), (Some(0), String::new()));
    let (code, text) = run(READERS.1, &["pause"]);
    assert_eq!(
        (code, text.as_str()),
        (Some(4), "error: only root and the daemon's own user may give orders; other users may read\n")
    );
    let (code, text) = run(12345, &["status"]);
    assert!(
        code == Some(4) && text.contains("only root and members of the daemon's group"),
        "{code:?} {text}"
    );
    assert!(stage.end().is_empty());
}

#[test]
fn something_else_that_listens_is_named_and_nothing_of_it_steers_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let answers: [&[u8]; 3] =
        [b"\x1b]0;owned\x07\n", b"{\"version\":1,\"ok\":{\"text\":\"\\u001b[2Jgone\"}}\n", b""];
    let server = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
            stream.write_all(answer).unwrap();
        }
    });
    let socket = path.display().to_string();
    refused(&at(&["status"], &socket), 1, &["is not a waykeeper daemon"]);
    assert_eq!(output(&at(&["resume"], &socket)), "?[2Jgone\n");
    refused(&at(&["tenants"], &socket), 1, &["closed the connection without an answer"]);
    server.join().unwrap();
}
