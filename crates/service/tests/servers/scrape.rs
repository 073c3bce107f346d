//! Metrics over HTTP: checked by Debian's promtool and scraped by a Prometheus.

use super::stage::{Stage, published};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use waykeeper_control::{Worth, WorthUnknown};
use waykeeper_host::Knob;
use waykeeper_service::{
    Listen, Published, PublishedState, ScrapeLimits, Servers, ServersConfig, SocketLimits, orders,
};
use waykeeper_testbed::{PATIENCE, wait_for};
use waykeeper_units::{WayMask, WorkloadId};

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";

/// Head and body of an answer; HTTP/1.0, so that neither side uses chunks.
pub fn exchange(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head.to_ascii_lowercase(), body.to_owned())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn get(address: SocketAddr, path: &str, accept: &str) -> (String, String) {
    exchange(connect(address), &format!("GET {path} HTTP/1.0\r\nAccept: {accept}\r\n\r\n"))
}

/// A published state that does not change, with its metrics.
pub fn still(first: Published) -> (Arc<PublishedState>, Servers) {
    let published_state = Arc::new(PublishedState::new(first));
    let metrics = Some(Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    let servers = Servers::open(
        &ServersConfig { metrics, ..ServersConfig::default() },
        published_state.clone(),
        orders().0,
    );
    (published_state, servers.unwrap())
}

/// Whether `promtool check metrics` succeeds, and its output.
fn promtool(page: &str) -> (bool, String) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("not run: needs promtool");
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let done = promtool.wait_with_output().unwrap();
    (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
}

/// Whether promtool accepts a file, and its output.
pub fn promtool_on(words: &[&str], file: &std::path::Path) -> (bool, String) {
    let done = Command::new("promtool").args(words).arg(file).output().expect("not run: needs promtool");
    (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
}

#[test]
fn promtool_finds_nothing_to_say() {
    let stage = Stage::new(SocketLimits::default(), None);
    let (head, body) = get(stage.metrics(), "/metrics", "*/*");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert_eq!(promtool(&body), (true, String::new()), "{body}");
    // promtool checks non-empty input, and fails for the other format.
    assert!(body.lines().filter(|line| !line.starts_with('#')).count() > 40, "{body}");
    assert!(!promtool(&get(stage.metrics(), "/metrics", OPEN_METRICS).1).0);
}

#[test]
fn what_is_shown_has_its_names_labels_and_raw_values() {
    let (_board, servers) = still(published(10));
    let (_, body) = get(servers.metrics_address().unwrap(), "/metrics", "text/plain");
    let version = format!("waykeeper_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    // After 10 steps of one second each.
    for line in [
        version.as_str(),
        "# TYPE waykeeper_steps_total counter",
        "waykeeper_steps_total 10",
        "waykeeper_blind_steps_total 1",
        "waykeeper_missed_deadlines_total 2",
        "waykeeper_samples_dropped_total{reason=\"backwards\"} 3",
        "waykeeper_unrecorded_steps_total 4",
        "waykeeper_unlogged_lines_total 7",
        "waykeeper_reloads_total{result=\"taken\"} 5",
        "waykeeper_reloads_total{result=\"refused\"} 6",
        "waykeeper_last_reload_successful 1.0",
        "waykeeper_standing_problems{kind=\"counter\"} 1.0",
        "waykeeper_policy_actions_total{policy=\"a4\",action=\"lp-zone-grow\"} 10",
        "waykeeper_policy_state{policy=\"a4\",state=\"steady\"} 1.0",
        "waykeeper_mode{mode=\"manage\"} 1.0",
        "waykeeper_start_time_seconds 1700000000.0",
        "waykeeper_period_seconds 0.02",
        "waykeeper_tenants 2.0",
        "waykeeper_tenant_ways{tenant=\"fio\"} 2.0",
        "waykeeper_class_ways{class=\"waykeeper-fio\"} 2.0",
        "waykeeper_class_ways{class=\"default\"} 7.0",
        "waykeeper_llc_occupancy_bytes{tenant=\"dpdk \\\"rx\\\"\"} 4194304.0",
        "waykeeper_tenant_instructions_total{tenant=\"fio\"} 30000000000",
        "waykeeper_tenant_llc_references_total{tenant=\"fio\"} 100000000",
        "waykeeper_tenant_llc_misses_total{tenant=\"fio\"} 20000000",
        "waykeeper_device_dca_enabled{device=\"0000:3a:00.0\"} 1.0",
        "waykeeper_device_dca_enabled{device=\"0000:4a:00.0\"} 0.0",
        "waykeeper_device_info{device=\"0000:4a:00.0\",name=\"ssd0\",kind=\"storage\"} 1",
        "waykeeper_io_bytes_total{device=\"0000:3a:00.0\",op=\"write\"} 20000000000",
        "waykeeper_io_ways 2.0",
        "waykeeper_io_llc_references_total{op=\"write\"} 400000000",
        "waykeeper_io_llc_misses_total{op=\"write\"} 100000000",
        "waykeeper_memory_bytes_total{op=\"read\",scope=\"socket\"} 50000000000",
        "waykeeper_worth_ratio{priority=\"high\"} 1.125",
        "waykeeper_worth_error_ratio{priority=\"low\"} 0.02",
        "waykeeper_worth_age_seconds 42.0",
        "waykeeper_worth_source{from=\"look\"} 1.0",
        "waykeeper_tenant_worth_ratio{tenant=\"fio\"} 0.9",
        "waykeeper_tenant_worth_error_ratio{tenant=\"dpdk \\\"rx\\\"\"} 0.04",
        "waykeeper_worst_sufferer_ratio{tenant=\"fio\"} 0.9",
        "waykeeper_last_action_timestamp_seconds{place=\"1\",policy=\"a4\",action=\"lp-zone-grow\"} 1700000010.0",
        "waykeeper_last_action_timestamp_seconds{place=\"3\",policy=\"a4\",action=\"lp-zone-grow\"} 1700000008.0",
    ] {
        assert!(body.lines().any(|there| there == line), "`{line}` is not in:\n{body}");
    }
    // A missing value has no series; it is not 0.
    for absent in [
        "waykeeper_llc_occupancy_bytes{tenant=\"fio\"}",
        "waykeeper_io_bytes_total{device=\"0000:4a:00.0\",op=\"read\"}",
        "waykeeper_io_llc_references_total{op=\"read\"}",
        "waykeeper_io_llc_misses_total{op=\"read\"}",
        // No other may use its ways.
        "waykeeper_worst_polluter",
    ] {
        assert!(!body.contains(absent), "`{absent}` is in:\n{body}");
    }
}

#[test]
fn a_worth_that_is_not_known_has_no_series_and_a_polluter_has_one() {
    let mut first = published(10);
    // 2 million misses a second, two of eleven ways of which fio may use.
    first.seen.as_mut().unwrap().knobs.insert(Knob::Mask(WorkloadId(0)), WayMask::full(11));
    let (published_state, servers) = still(first);
    let page = || get(servers.metrics_address().unwrap(), "/metrics", "text/plain").1;
    let series =
        "waykeeper_worst_polluter_lines_per_second{kind=\"tenant\",name=\"dpdk \\\"rx\\\"\",into=\"fio\"} ";
    let value = page().lines().find_map(|line| line.strip_prefix(series)?.parse::<f64>().ok()).unwrap();
    assert!((value - 2e6 * 2.0 / 11.0).abs() < 0.5, "{value}");
    let mut next = published(11);
    next.record.worth = Worth::Unknown(WorthUnknown::LoadChanged);
    published_state.replace(next);
    for absent in ["waykeeper_worth_", "waykeeper_tenant_worth_", "waykeeper_worst_sufferer"] {
        assert!(!page().contains(absent), "`{absent}` is in:\n{}", page());
    }
}

#[test]
fn tenants_that_are_gone_are_gone_and_namesakes_are_distinguished() {
    let (published_state, servers) = still(published(10));
    let page = || get(servers.metrics_address().unwrap(), "/metrics", OPEN_METRICS).1;
    assert!(page().contains("tenant=\"fio\"") && page().ends_with("# EOF\n"));
    let mut next = published(11);
    next.groups.retain(|group| group.id != WorkloadId(1));
    next.classes.retain(|class| !class.tenants.contains(&WorkloadId(1)));
    published_state.replace(next);
    assert!(!page().contains("fio"), "{}", page());
    // The tenant restarts as another process: its counters begin at 0, under a new id.
    let mut next = published(12);
    next.groups[1].id = WorkloadId(2);
    let counters = published(1).snapshot.unwrap().groups[&WorkloadId(1)];
    next.snapshot.as_mut().unwrap().groups.remove(&WorkloadId(1));
    next.snapshot.as_mut().unwrap().groups.insert(WorkloadId(2), counters);
    published_state.replace(next.clone());
    assert!(
        page().contains("waykeeper_tenant_instructions_total{tenant=\"fio\"} 3000000000\n"),
        "{}",
        page()
    );
    next.groups[0].name = "fio".to_owned();
    published_state.replace(next);
    for id in [0, 2] {
        let series = format!("waykeeper_tenant_ways{{tenant=\"fio#{id}\"}}");
        assert_eq!(page().matches(&series).count(), usize::from(id == 0), "{}", page());
        assert!(page().contains(&format!("waykeeper_tenant_instructions_total{{tenant=\"fio#{id}\"}}")));
    }
    let empty = Published { groups: Vec::new(), snapshot: None, seen: None, ..published(13) };
    published_state.replace(empty);
    assert!(!page().contains("waykeeper_tenant_") && page().contains("waykeeper_tenants 0.0"), "{}", page());
}

#[test]
fn the_format_is_the_one_that_is_asked_for_and_all_else_is_refused() {
    let stage = Stage::new(SocketLimits::default(), None);
    let (head, body) = get(stage.metrics(), "/metrics", OPEN_METRICS);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n") && body.contains("# UNIT waykeeper_io_bytes bytes"));
    assert!(get(stage.metrics(), "/", "*/*").0.starts_with("http/1.0 404"));
    let post = "POST /metrics HTTP/1.0\r\nContent-Length: 1000000000\r\n\r\nx";
    let (head, _) = exchange(connect(stage.metrics()), post);
    assert!(head.starts_with("http/1.0 405") && head.contains("allow: get, head"), "{head}");
    let (head, body) = exchange(connect(stage.metrics()), "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("http/1.0 200") && body.is_empty(), "{head}\n{body}");
}

/// A published state that does not change, with these limits.
fn limited(scrapes: ScrapeLimits) -> (Servers, SocketAddr) {
    let metrics = Some(Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    let config = ServersConfig { metrics, scrapes, ..ServersConfig::default() };
    let servers = Servers::open(&config, Arc::new(PublishedState::new(published(1))), orders().0).unwrap();
    let address = servers.metrics_address().unwrap();
    (servers, address)
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn who_does_not_speak_http_does_not_stay() {
    let (_edge, address) =
        limited(ScrapeLimits { head: Duration::from_millis(50), whole: LONG, ..ScrapeLimits::default() });
    let mut mute = connect(address);
    let mut long = connect(address);
    wait_for("a head without end is cut off", || long.write_all(&[b'x'; 4096]).is_err());
    assert_eq!(mute.read(&mut [0; 64]).unwrap_or(0), 0, "hung up on without an answer");
    // Nor can a client that does not finish its request.
    let (_edge, address) =
        limited(ScrapeLimits { head: LONG, whole: Duration::from_millis(50), ..ScrapeLimits::default() });
    let mut slow = connect(address);
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n").unwrap();
    assert_eq!(slow.read(&mut [0; 64]).unwrap_or(0), 0, "hung up on without an answer");
}

#[test]
fn a_client_that_keeps_its_connections_locks_no_other_client_out() {
    // With time limits that do not expire during the test.
    let (_edge, address) = limited(ScrapeLimits { connections: 4, head: LONG, whole: LONG });
    let mut mute: Vec<TcpStream> = (0..50).map(|_| connect(address)).collect();
    let (head, _) = get(address, "/metrics", "*/*");
    assert!(head.starts_with("http/1.0 200"), "{head}");
    // The oldest connections were closed, one after the other.
    for gone in &mut mute[..40] {
        assert_eq!(gone.read(&mut [0; 64]).unwrap_or(0), 0);
    }
}

/// The status line of a request that names this host.
fn status_with(stream: impl Read + Write, host: &str) -> String {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    exchange(stream, &request).0.lines().next().unwrap().to_owned()
}

#[test]
fn a_name_that_leads_here_gets_nothing_and_loopback_does() {
    let (_edge, loopback) = limited(ScrapeLimits::default());
    for host in ["127.0.0.1:19190", "localhost", "[::1]:19190"] {
        assert!(status_with(connect(loopback), host).contains("200"), "{host}");
    }
    // DNS rebinding: the browser of a user of this machine sends the name of the attacker's page.
    for host in ["attacker.example", "attacker.example:19190", "10.0.0.1:19190", ""] {
        let status = status_with(connect(loopback), host);
        assert!(status.contains("421"), "{host}: {status}");
    }
    let absolute =
        "GET http://attacker.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (head, body) = exchange(connect(loopback), absolute);
    assert!(head.starts_with("http/1.1 421"), "{head}");
    assert_eq!(body, "the host `attacker.example` is refused; ask by 127.0.0.1 or localhost\n");
}

#[test]
fn metrics_can_be_had_on_a_socket_in_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let config = ServersConfig { metrics: Some(Listen::Unix(path.clone())), ..ServersConfig::default() };
    let servers = Servers::open(&config, Arc::new(PublishedState::new(published(1))), orders().0).unwrap();
    let (head, body) = exchange(UnixStream::connect(&path).unwrap(), "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("http/1.0 200") && body.contains("waykeeper_steps_total 1\n"), "{head}\n{body}");
    let by_name = status_with(UnixStream::connect(&path).unwrap(), "any.example");
    assert!(by_name.contains("200"), "no browser reaches a file: {by_name}");
    drop(servers);
    assert!(!path.exists());
}

#[test]
fn nothing_but_loopback_is_listened_on() {
    let stage = Stage::new(SocketLimits::default(), None);
    let own: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut listening = Vec::new();
    for file in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // Local address, state (0A: LISTEN) and inode: proc(5).
            if words[3] == "0A" && own.iter().any(|inode| inode == words[9]) {
                listening.push(words[1].to_owned());
            }
        }
    }
    let ours = format!("0100007F:{:04X}", stage.metrics().port());
    assert!(listening.contains(&ours), "{listening:?}");
    assert!(listening.iter().all(|address| address.starts_with("0100007F:")), "{listening:?}");
}

/// Killed at the end of the test.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_prometheus_that_scrapes_knows_the_values() {
    let stage = Stage::new(SocketLimits::default(), None);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n  - job_name: waykeeper\n    \
         static_configs: [ {{ targets: ['{}'] }} ]\n",
        stage.metrics()
    );
    std::fs::write(&config, text).unwrap();
    // A port that was free just before.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let server = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={free}"))
        .stderr(log)
        .stdout(Stdio::null())
        .spawn();
    let _server = Server(server.expect("not run: needs prometheus"));
    let value_of = |query: &str| {
        let stream = TcpStream::connect(free).ok()?;
        let path = format!("/api/v1/query?query={query}");
        let (_, body) = exchange(stream, &format!("GET {path} HTTP/1.0\r\n\r\n"));
        let answer: serde_json::Value = serde_json::from_str(&body).ok()?;
        answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    wait_for("prometheus has scraped", || value_of("waykeeper_tenants").is_some());
    assert_eq!(value_of("up"), Some("1".to_owned()));
    assert_eq!(value_of("waykeeper_tenant_ways{tenant=%22fio%22}"), Some("2".to_owned()));
    assert_eq!(value_of("waykeeper_device_dca_enabled{device=%220000:4a:00.0%22}"), Some("0".to_owned()));
    // The stage takes 50 steps a second, so the counter moves between two scrapes.
    wait_for("it sees the steps go on", || {
        value_of("increase(waykeeper_steps_total[10s])")
            .is_some_and(|steps| steps.parse::<f64>().unwrap() > 0.0)
    });
}
