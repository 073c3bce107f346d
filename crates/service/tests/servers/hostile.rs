//! Hostile clients: they get little, and the daemon is not affected.

use super::stage::{Client, READERS, Stage};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use waykeeper_service::SocketLimits;
use waykeeper_service::protocol::LONGEST_REQUEST;
use waykeeper_testbed::{PATIENCE, wait_for};

/// A client of another user: takes on user and groups, and sends what is given.
const OTHER: &str = r#"
import os, socket, sys, time
path, uid, gid, groups, what = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:]
os.setgroups([int(group) for group in groups.split(",") if group]); os.setgid(gid); os.setuid(uid)

def connect():
    one = socket.socket(socket.AF_UNIX); one.connect(path); return one

if what[0] == "ask":
    for line in what[1:]:
        try: one = connect()
        except OSError as why: print(type(why).__name__); continue
        try: one.sendall(line.encode() + b"\n")
        except BrokenPipeError: pass
        print(one.makefile().readline().rstrip("\n") or "nothing")
elif what[0] == "flood":
    # As many connections as there are to be had, half of them mute, half asking and never reading; others in their place
    # as soon as they are hung up on.
    kept, asked = [], b'{"version":1,"do":"status"}\n' * 100
    print("begins", flush=True)
    while True:
        try:
            one = connect(); one.setblocking(False); kept.append(one)
        except OSError: time.sleep(0.001)
        for index, one in enumerate(kept[-200:]):
            try: one.send(asked if index % 2 else b"{")
            except BlockingIOError: pass
            except OSError: one.close(); kept.remove(one)
"#;

fn as_other(stage: &Stage, gid: u32, groups: &str, what: &[&str]) -> Command {
    assert!(rustix::process::geteuid().is_root(), "not run: needs root: this test becomes other users");
    let mut command = Command::new("python3");
    command.args(["-c", OTHER]).arg(stage.socket()).args(["12345", &gid.to_string(), groups]).args(what);
    command
}

fn answers(command: &mut Command) -> Vec<String> {
    let done = command.output().expect("python3 can be run (package python3)");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
}

const STATUS: &str = r#"{"version":1,"do":"status"}"#;
const ORDERS: [&str; 4] = [
    r#"{"version":1,"do":"set-policy","name":"default"}"#,
    r#"{"version":1,"do":"pause","release":true}"#,
    r#"{"version":1,"do":"resume"}"#,
    r#"{"version":1,"do":"reload"}"#,
];

#[test]
fn another_user_in_the_group_reads_and_orders_nothing() {
    let stage = Stage::new(SocketLimits::default(), Some(READERS.0));
    let what = [&["ask", STATUS][..], &ORDERS].concat();
    // As primary group, and as one of several others.
    for (gid, groups) in [(READERS.1, ""), (12345, "12346,60")] {
        let answers = answers(&mut as_other(&stage, gid, groups, &what));
        assert!(answers[0].contains(r#""ok":{"waykeeper""#), "{answers:?}");
        for answer in &answers[1..] {
            assert!(
                answer.contains(r#""error":{"kind":"not-permitted","text":"only root and the daemon's own user may give orders"#),
                "{answer}"
            );
        }
        assert_eq!(answers.len(), 5);
    }
    assert!(stage.end().is_empty(), "an order of theirs was carried out");
}

#[test]
fn another_user_is_kept_out_by_the_mode_and_by_what_the_kernel_says_of_it() {
    let stage = Stage::new(SocketLimits::default(), Some(READERS.0));
    let what = [&["ask", STATUS][..], &ORDERS].concat();
    let others = |stage: &Stage| answers(&mut as_other(stage, 12345, "12346", &what));
    assert_eq!(others(&stage), ["PermissionError"; 5]);
    // Even if the file's mode lets every user connect.
    std::fs::set_permissions(stage.socket(), std::fs::Permissions::from_mode(0o777)).unwrap();
    for answer in others(&stage) {
        assert!(
            answer.contains(r#""error":{"kind":"not-permitted","text":"only root and members"#),
            "{answer}"
        );
    }
    // Without a readers' group, no group gives a right.
    let closed = Stage::new(SocketLimits::default(), None);
    std::fs::set_permissions(closed.socket(), std::fs::Permissions::from_mode(0o777)).unwrap();
    for answer in answers(&mut as_other(&closed, READERS.1, "0,60", &what)) {
        assert!(answer.contains("not-permitted"), "{answer}");
    }
    assert!(stage.end().is_empty() && closed.end().is_empty());
}

/// Killed at the end of the test.
struct Attacker(Child);

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_flood_of_readers_leaves_root_its_answers_and_the_board_its_pace() {
    let limits = SocketLimits { write: Duration::from_millis(500), ..SocketLimits::default() };
    let stage = Stage::new(limits, Some(READERS.0));
    let before = resident_bytes();
    let attackers: Vec<Attacker> = (0..2)
        .map(|_| {
            let mut command = as_other(&stage, READERS.1, "", &["flood"]);
            let mut child = command.stdout(Stdio::piped()).spawn().expect("python3 can be run");
            let mut begins = [0; 7];
            child.stdout.as_mut().unwrap().read_exact(&mut begins).unwrap();
            Attacker(child)
        })
        .collect();
    const ROUNDS: usize = 8;
    for _ in 0..ROUNDS {
        stage.moves_on(5);
        let answer = Client::at(&stage.socket()).ask(STATUS);
        assert_eq!(answer["ok"]["policy"], "a4", "{answer}");
        let done = Client::at(&stage.socket()).ask(r#"{"version":1,"do":"resume"}"#);
        assert!(done["ok"].is_object(), "{done}");
    }
    drop(attackers);
    // A connection holds one request and one answer, and connections are limited: megabytes, constant over time.
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more than before the flood");
    assert_eq!(stage.end().len(), ROUNDS);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn who_connects_and_says_nothing_or_half_a_line_is_hung_up_on() {
    let short = Duration::from_millis(100);
    let stage = Stage::new(SocketLimits { idle: short, ..SocketLimits::default() }, None);
    let mut mute = Client::at(&stage.socket());
    let idle = mute.receive();
    assert!(idle.contains(r#""kind":"too-slow","text":"no request was sent within 0.1 s"#), "{idle}");
    assert_eq!(mute.receive(), "");
    let stage = Stage::new(SocketLimits { line: short, ..SocketLimits::default() }, None);
    let mut half = Client::at(&stage.socket());
    half.stream().write_all(b"{\"version\":1,").unwrap();
    let slow = half.receive();
    assert!(
        slow.contains(r#""kind":"too-slow","text":"no complete request was sent within 0.1 s"#),
        "{slow}"
    );
    assert_eq!(half.receive(), "");
    // Single bytes do not extend the limit, which is for the whole line.
    let mut trickle = UnixStream::connect(stage.socket()).unwrap();
    wait_for("a trickle ends", || {
        std::thread::sleep(Duration::from_millis(20));
        trickle.write_all(b" ").is_err()
    });
}

#[test]
fn a_line_without_end_is_cut_off() {
    let stage = Stage::new(SocketLimits::default(), None);
    // More than the kernel holds for a connection: a client that sends it all before it reads still gets the answer.
    for length in [LONGEST_REQUEST, 4 * LONGEST_REQUEST, 1 << 20] {
        let mut client = Client::at(&stage.socket());
        client.stream().write_all(&vec![b'x'; length]).unwrap();
        let _ = client.stream().write_all(b"\n");
        let answer = client.receive();
        let wanted = r#""kind":"too-long","text":"a request is at most 16384 bytes long"#;
        assert!(answer.contains(wanted), "{length} bytes: {answer}");
        assert_eq!(client.receive(), "", "and the connection is closed");
    }
    let mut client = Client::at(&stage.socket());
    let fits = format!("{STATUS}{}", " ".repeat(LONGEST_REQUEST - STATUS.len() - 1));
    assert!(client.ask(&fits)["ok"].is_object());
}

#[test]
fn garbage_is_answered_line_by_line() {
    let stage = Stage::new(SocketLimits { burst: 1e6, ..SocketLimits::default() }, None);
    let mut client = Client::at(&stage.socket());
    let garbage: [&[u8]; 8] = [
        b"\n",
        b"\0\0\0\n",
        b"\xff\xfe\xfd\n",
        b"GET /metrics HTTP/1.1\r\n",
        b"{\"version\":1e400}\n",
        b"{\"version\":1,\"do\":{\"do\":\"status\"}}\n",
        b"{\"version\":1,\"do\":\"status\",\"do\\u0000\":1}\n",
        b"\xe2\x80\xae{\"version\":1,\"do\":\"status\"}\n",
    ];
    for line in garbage {
        client.stream().write_all(line).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&client.receive()).unwrap();
        assert!(answer["error"]["text"].is_string(), "{line:?}: {answer}");
    }
    assert!(client.ask(STATUS)["ok"].is_object());
}

#[test]
fn who_asks_and_never_reads_is_hung_up_on() {
    let limits = SocketLimits { write: Duration::from_millis(100), burst: 1e6, ..SocketLimits::default() };
    let stage = Stage::new(limits, None);
    let mut deaf = UnixStream::connect(stage.socket()).unwrap();
    deaf.set_write_timeout(Some(PATIENCE)).unwrap();
    wait_for("the daemon hangs up", || deaf.write_all(format!("{STATUS}\n").as_bytes()).is_err());
    let mut watcher = UnixStream::connect(stage.socket()).unwrap();
    watcher.write_all(b"{\"version\":1,\"do\":\"watch\"}\n").unwrap();
    // The kernel buffers what fits; then the daemon closes the connection, not the client.
    stage.moves_on(100);
    assert_eq!(Client::at(&stage.socket()).ask(STATUS)["ok"]["policy"], "a4");
    drop(watcher);
}

#[test]
fn two_hundred_half_open_connections_are_a_few_and_give_way() {
    let limits = SocketLimits { idle: Duration::from_millis(300), ..SocketLimits::default() };
    let stage = Stage::new(limits, None);
    let connect = || Client::at(&stage.socket());
    let mut all: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = connect();
            let _ = client.stream().shutdown(Shutdown::Read);
            client
        })
        .collect();
    // All connections are root's, so root itself must wait.
    wait_for("there is room again", || {
        let mut client = connect();
        let _ = client.stream().write_all(format!("{STATUS}\n").as_bytes());
        let mut text = String::new();
        let _ = client.stream().shutdown(Shutdown::Write);
        let _ = client.stream().read_to_string(&mut text);
        text.contains("\"ok\"")
    });
    stage.moves_on(3);
    all.clear();
    wait_for("they are closed", || open_files(Path::new("/proc/self/fd")) < 200);
}

fn open_files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn one_user_has_a_few_connections_and_gets_an_error_for_more() {
    assert!(rustix::process::geteuid().is_root(), "not run: needs root: the user is 0 in the answer");
    let stage = Stage::new(SocketLimits { per_uid: 2, ..SocketLimits::default() }, None);
    let mut kept: Vec<Client> = (0..2).map(|_| Client::at(&stage.socket())).collect();
    for client in &mut kept {
        assert!(client.ask(STATUS)["ok"].is_object());
    }
    // A user who may give orders has further connections for these, and learns from another request who has the others.
    let mut beyond = Client::at(&stage.socket());
    let refusal = beyond.ask(STATUS);
    assert_eq!(refusal["error"]["kind"], "busy");
    let own = std::process::id();
    let why = format!(
        "user 0 has 2 connections already (process {own}); close one; until then only orders are taken"
    );
    assert_eq!(refusal["error"]["text"], why.as_str());
    assert_eq!(beyond.receive(), "", "and the connection is closed");
    kept.pop();
    wait_for("the place is free again", || {
        let mut client = Client::at(&stage.socket());
        let _ = client.stream().write_all(format!("{STATUS}\n").as_bytes());
        client.receive().contains("\"ok\"")
    });
}

#[test]
fn watchers_of_root_lock_no_order_out() {
    let stage = Stage::new(SocketLimits::default(), None);
    let per_uid = SocketLimits::default().per_uid;
    let mut watchers: Vec<Client> = (0..per_uid).map(|_| Client::at(&stage.socket())).collect();
    for watcher in &mut watchers {
        watcher.send(r#"{"version":1,"do":"watch"}"#);
        assert!(watcher.receive().contains("\"ok\""));
    }
    let released = Client::at(&stage.socket()).ask(r#"{"version":1,"id":7,"do":"pause","release":true}"#);
    assert_eq!((&released["id"], &released["ok"]["text"]), (&7.into(), &"done: Pause(Release)".into()));
    // A further watcher learns who watches already, with its own id.
    let refusal = Client::at(&stage.socket()).ask(r#"{"version":1,"id":"w","do":"watch"}"#);
    assert_eq!((&refusal["id"], &refusal["error"]["kind"]), (&"w".into(), &"busy".into()));
    assert!(
        refusal["error"]["text"].as_str().unwrap().contains(&std::process::id().to_string()),
        "{refusal}"
    );
    // Nor do connections on which nothing is sent, which have taken the places for orders too.
    let silent: Vec<Client> =
        (0..2 * SocketLimits::default().for_orders).map(|_| Client::at(&stage.socket())).collect();
    wait_for("a silent connection makes room", || {
        let mut client = Client::at(&stage.socket());
        let _ = client.stream().write_all(b"{\"version\":1,\"do\":\"resume\"}\n");
        client.receive().contains("done: Resume")
    });
    for watcher in &mut watchers {
        assert!(watcher.receive().contains("\"ok\""), "a watcher has lost its connection");
    }
    drop(silent);
    assert_eq!(stage.end().len(), 2);
}

#[test]
fn who_is_refused_can_read_why_after_it_has_asked() {
    let stage = Stage::new(SocketLimits { connections: 0, for_orders: 0, ..SocketLimits::default() }, None);
    let mut client = Client::at(&stage.socket());
    // The refusal is there before anything is asked. Looking at it does not take it.
    let peeked = rustix::net::recv(client.stream(), &mut [0; 1][..], rustix::net::RecvFlags::PEEK);
    assert_eq!(peeked.unwrap().1, 1);
    stage.moves_on(2);
    client.stream().write_all(format!("{STATUS}\n").as_bytes()).unwrap();
    assert!(
        client.receive().contains(r#""kind":"busy","text":"0 connections are open already; try again later"#)
    );
    assert_eq!(client.receive(), "");
}
