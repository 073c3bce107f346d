//! Ordinary requests to the control socket.

use super::stage::{Client, READERS, Stage, published};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use waykeeper_kernel::system::real;
use waykeeper_service::protocol::{Answer, AnswerOutcome, DaemonStatus, Id};
use waykeeper_service::recorder::{StreamLine, StreamReader};
use waykeeper_service::{
    Listen, Order, Pause, Published, PublishedState, Servers, ServersConfig, SocketLimits, orders,
};
use waykeeper_testbed::wait_for;

#[test]
fn a_status_has_everything_there_is_to_see() {
    let stage = Stage::new(SocketLimits::default(), None);
    stage.moves_on(3);
    let mut client = Client::at(&stage.socket());
    client.send(r#"{"version":1,"id":"first","do":"status"}"#);
    let text = client.receive();
    let answer: Answer<DaemonStatus> = serde_json::from_str(&text).unwrap();
    let AnswerOutcome::Ok(status) = answer.outcome else { panic!("{text}") };
    assert_eq!((status.policy.as_str(), status.state.as_str()), ("a4", "steady"));
    assert!(status.step > 1 && status.uptime_s > 0.0 && status.age_s >= 0.0);
    assert_eq!(status.host.cores.to_string(), "0-17");
    let reported = status.recent.last().unwrap();
    assert_eq!((reported.action.as_str(), reported.tenant.as_deref()), ("lp-zone-grow", Some("fio")));
    assert_eq!(reported.causes[0].limit.as_deref(), Some("dmaleak"));
    // 3e9 instructions in 2e9 cycles; 8 of 10 million references hit; 10 of 40 million device writes missed.
    let [dpdk, fio] = &status.tenants[..] else { panic!("{text}") };
    assert_eq!((dpdk.ipc, dpdk.llc_hit_ratio, dpdk.ways), (Some(1.5), Some(0.8), Some(7)));
    assert_eq!((dpdk.llc_occupancy_bytes, fio.llc_occupancy_bytes), (Some(4_194_304), None));
    assert_eq!(status.io.dca_write_miss_ratio, Some(0.25));
    let ports: Vec<_> = status.ports.iter().map(|port| (port.dca, port.outbound_bytes_per_s)).collect();
    assert_eq!(ports, [(Some(true), Some(5e8)), (Some(false), None)]);
    assert_eq!((status.totals.reloads, status.totals.reloads_refused), (5, 6));
    // A missing value has no key.
    let plain: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plain["id"], "first");
    assert!(plain["ok"]["tenants"][1].get("llc_occupancy_bytes").is_none());
    assert!(plain["ok"]["io"].get("dca_read_miss_ratio").is_none());
}

#[test]
fn a_wall_clock_before_1970_changes_neither_answers_nor_ages() {
    let folder = tempfile::tempdir().unwrap();
    let config = ServersConfig { socket: Some(folder.path().join("s")), ..ServersConfig::default() };
    let clock = real().now();
    let back = |seconds| clock.saturating_sub(Duration::from_secs(seconds));
    let lied = Published {
        at: SystemTime::UNIX_EPOCH - Duration::from_millis(1),
        at_clock: back(1),
        started_clock: back(3),
        ..published(7)
    };
    let state = Arc::new(PublishedState::new(published(6)));
    let _servers = Servers::open(&config, state.clone(), orders().0).unwrap();
    let ask = || Client::at(&folder.path().join("s")).ask(r#"{"version":1,"do":"status"}"#);
    assert_eq!(ask()["ok"]["step"], 6);
    state.replace(lied);
    let status = ask();
    assert_eq!((&status["ok"]["step"], &status["ok"]["at"]), (&json!(7), &json!("1969-12-31T23:59:59.999Z")));
    let [age, up] = ["age_s", "uptime_s"].map(|key| status["ok"][key].as_f64().unwrap());
    assert!(age >= 1.0 && up >= 3.0 && up - age < 2.001, "{age} {up}");
    // The socket's thread polls the state too; it answers later as well.
    wait_for("a later answer", || {
        state.replace(Published { step: 8, ..(*state.read()).clone() });
        ask()["ok"]["step"] == 8
    });
}

#[test]
fn one_connection_serves_many_requests_and_a_bad_one_spoils_none() {
    let stage = Stage::new(SocketLimits::default(), None);
    let mut client = Client::at(&stage.socket());
    let tenants = client.ask(r#"{"version":1,"do":"tenants"}"#);
    assert_eq!(tenants["ok"]["tenants"][1]["mask"], "0x00c");
    assert_eq!(client.ask("rubbish")["error"]["kind"], "bad-request");
    assert_eq!(client.ask(r#"{"version":9,"id":4}"#)["error"]["supported"], json!([1]));
    let policy = client.ask(r#"{"version":1,"id":5,"do":"policy"}"#);
    assert_eq!((&policy["id"], &policy["ok"]["policy"]), (&json!(5), &json!("a4")));
    assert_eq!(policy["ok"]["settings"], json!({ "stable_interval_s": 5 }));
    // Two requests at once, in two pieces, are answered in order.
    client
        .stream()
        .write_all(b"{\"version\":1,\"id\":1,\"do\":\"policy\"}\n{\"version\":1,\"id\":2,")
        .unwrap();
    assert_eq!(serde_json::from_str::<Value>(&client.receive()).unwrap()["id"], 1);
    assert_eq!(client.ask(r#""do":"policy"}"#)["id"], 2);
    // A client that has shut down its sending half still gets the answer.
    client.send(r#"{"version":1,"id":3,"do":"policy"}"#);
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert!(client.receive().contains("\"id\":3"));
    assert_eq!(client.receive(), "");
}

#[test]
fn orders_arrive_and_their_answers_come_back() {
    let stage = Stage::new(SocketLimits::default(), None);
    let mut client = Client::at(&stage.socket());
    let set = r#"{"version":1,"do":"set-policy","name":"iat","settings":{"period":2,"name":"x"}}"#;
    assert!(client.ask(set)["ok"]["text"].as_str().unwrap().starts_with("done: SetPolicy"));
    let unknown = client.ask(r#"{"version":1,"do":"set-policy","name":"a5"}"#);
    assert_eq!(unknown["error"], json!({ "kind": "refused", "text": "unknown policy `a5`" }));
    for order in ["pause", "resume", "reload"] {
        assert!(client.ask(&format!(r#"{{"version":1,"do":"{order}"}}"#))["ok"].is_object());
    }
    assert!(client.ask(r#"{"version":1,"do":"pause","release":true}"#)["ok"].is_object());
    assert!(client.ask(r#"{"version":1,"do":"hand-over","within_s":2.5}"#)["ok"].is_object());
    for wrong in ["0", "-1", "86401", "1e300"] {
        let answer = client.ask(&format!(r#"{{"version":1,"do":"hand-over","within_s":{wrong}}}"#));
        let text = answer["error"]["text"].as_str().unwrap_or_default();
        assert!(text.contains("give a number above 0, at most 86400"), "{answer}");
    }
    // No order ends the daemon.
    assert_eq!(client.ask(r#"{"version":1,"do":"stop"}"#)["error"]["kind"], "bad-request");
    let settings = "period = 2\nname = \"x\"".parse().unwrap();
    let orders = stage.end();
    assert_eq!(orders[0], Order::SetPolicy { name: "iat".to_owned(), settings });
    let rest = [Order::Pause(Pause::Hold), Order::Resume, Order::Reload, Order::Pause(Pause::Release)];
    assert_eq!(orders[2..6], rest);
    assert_eq!(orders[6..], [Order::HandOver(Duration::from_millis(2500))]);
}

#[test]
fn a_daemon_that_takes_no_orders_refuses_them_by_name() {
    let stage = Stage::new(SocketLimits { orders: 0, ..SocketLimits::default() }, None);
    let mut client = Client::at(&stage.socket());
    assert_eq!(client.ask(r#"{"version":1,"do":"reload"}"#)["error"]["kind"], "busy");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let (sender, waiting) = orders();
    drop(waiting);
    let config = ServersConfig { socket: Some(socket.clone()), ..ServersConfig::default() };
    let _edge = Servers::open(&config, stage.published_state.clone(), sender).unwrap();
    assert_eq!(Client::at(&socket).ask(r#"{"version":1,"do":"resume"}"#)["error"]["kind"], "ending");
}

#[test]
fn a_watch_follows_the_steps_until_the_daemon_ends() {
    let mut stage = Stage::new(SocketLimits::default(), None);
    let mut client = Client::at(&stage.socket());
    client.send(r#"{"version":1,"id":8,"do":"watch"}"#);
    let mut last = 0;
    for _ in 0..5 {
        let status: Value = serde_json::from_str(&client.receive()).unwrap();
        let step = status["ok"]["step"].as_u64().unwrap();
        assert!(step > last && status["id"] == 8);
        last = step;
    }
    let mut second = Client::at(&stage.socket());
    second.send(r#"{"version":1,"do":"watch"}"#);
    second.receive();
    second.send(r#"{"version":1,"do":"status"}"#);
    let mut rest = String::new();
    second.stream().read_to_string(&mut rest).unwrap();
    assert!(rest.contains("takes no more requests"), "{rest}");
    stage.close();
    wait_for("the daemon hangs up", || client.receive().is_empty());
    assert!(!stage.socket().exists());
}

#[test]
fn the_stream_has_a_header_once_and_then_every_step_with_its_counters() {
    let stage = Stage::new(SocketLimits::default(), None);
    let mut client = Client::at(&stage.socket());
    client.send(r#"{"version":1,"id":9,"do":"steps"}"#);
    let mut reader = StreamReader::default();
    let mut last = None;
    for number in 0..6 {
        let text = client.receive();
        let answer: Answer<StreamLine<'static>> = serde_json::from_str(&text).unwrap();
        assert_eq!(answer.id, Some(Id::Number(9)));
        let AnswerOutcome::Ok(line) = answer.outcome else { panic!("{text}") };
        match reader.read(line).unwrap() {
            StreamLine::Header(header) => {
                assert_eq!((number, header.policy.as_str(), header.period_ns), (0, "a4", 20_000_000));
            }
            StreamLine::Step(step) => {
                // The line lists the tenants once; the reader adds them to every step.
                assert_eq!(
                    text.contains("\"stack\"") || text.contains("\"groups\":["),
                    number == 1,
                    "{text}"
                );
                assert_eq!(step.groups.unwrap().len(), 2);
                assert!(last.is_none_or(|last| step.step > last), "{last:?} {}", step.step);
                last = Some(step.step);
            }
        }
    }
    assert!(last.is_some());
    // As a watch, it takes no further request.
    client.send(r#"{"version":1,"do":"status"}"#);
    let mut rest = String::new();
    client.stream().read_to_string(&mut rest).unwrap();
    assert!(rest.contains("takes no more requests"), "{rest}");
}

#[test]
fn the_socket_belongs_to_its_group_and_is_removed_with_the_daemon() {
    let mut stage = Stage::new(SocketLimits::default(), Some(READERS.0));
    let meta = std::fs::symlink_metadata(stage.socket()).unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, meta.gid()), (0o660, READERS.1));
    stage.close();
    assert!(!stage.socket().exists());
}

#[test]
fn what_cannot_be_opened_leaves_nothing_open() {
    let stage = Stage::new(SocketLimits::default(), None);
    let folder = tempfile::tempdir().unwrap();
    let open = |config: ServersConfig| {
        let error =
            Servers::open(&config, stage.published_state.clone(), orders().0).unwrap_err().to_string();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{error}");
        error
    };
    let socket = Some(folder.path().join("s"));
    let group = Some("no-such-group".to_owned());
    let error = open(ServersConfig { socket: socket.clone(), group, ..ServersConfig::default() });
    assert!(error.starts_with("group `no-such-group` does not exist; create it"), "{error}");
    let group = Some("nogroup".to_owned());
    let error = open(ServersConfig { socket: socket.clone(), group, ..ServersConfig::default() });
    assert!(error.starts_with("group `nogroup` cannot be trusted"), "{error}");
    let metrics = Some(Listen::Tcp(stage.metrics()));
    let error = open(ServersConfig { socket: socket.clone(), metrics, ..ServersConfig::default() });
    assert!(error.starts_with(&format!("cannot serve metrics on {}", stage.metrics())), "{error}");
    let error = open(ServersConfig { socket: Some(stage.socket()), ..ServersConfig::default() });
    assert!(error.contains("another program listens on this socket"), "{error}");
}
