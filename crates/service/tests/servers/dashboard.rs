//! The Grafana dashboards and the rules in `dist/` against a real Prometheus that scrapes a daemon: every query has rows.

use super::scrape::{Server, exchange, promtool_on, still};
use super::stage::published;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use waykeeper_host::Knob;
use waykeeper_service::Published;
use waykeeper_testbed::wait_for;
use waykeeper_units::{WayMask, WorkloadId};

fn dist(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(file)
}

/// The state after so many steps; both tenants may use all ways, so that there is a polluter.
fn shared_ways(step: u64) -> Published {
    let mut now = published(step);
    if let Some(seen) = &mut now.seen {
        for id in [WorkloadId(0), WorkloadId(1)] {
            seen.knobs.insert(Knob::Mask(id), WayMask::full(11));
        }
    }
    now
}

/// A query of Prometheus, with everything but letters and digits escaped.
fn escaped(query: &str) -> String {
    query
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// The number of rows that Prometheus answers with, or its error.
fn rows(prometheus: SocketAddr, query: &str) -> Result<usize, String> {
    let stream = TcpStream::connect(prometheus).map_err(|why| why.to_string())?;
    let path = format!("/api/v1/query?query={}", escaped(query));
    let (_, body) = exchange(stream, &format!("GET {path} HTTP/1.0\r\n\r\n"));
    let answer: Value = serde_json::from_str(&body).map_err(|why| format!("{why}: {body}"))?;
    match answer["data"]["result"].as_array() {
        Some(rows) => Ok(rows.len()),
        None => Err(answer["error"].to_string()),
    }
}

/// Every query of the dashboard's panels and annotations, with values for Grafana's variables.
fn dashboard_queries(dashboard: &Value, instance: &str) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = dashboard["annotations"]["list"].as_array().unwrap();
    let filled = |own: &Value| {
        let query = own["expr"].as_str().unwrap();
        let query = query.replace("$instance", instance).replace("$__rate_interval", "10s");
        let query = query.replace("$__interval", "10s");
        assert!(!query.contains('$'), "a variable of Grafana that this test does not know: {query}");
        query
    };
    targets.chain(annotations).map(filled).collect()
}

/// The recorded series of the rules' file, by name.
fn recorded(rules: &str) -> Vec<&str> {
    rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect()
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let (ok, said) = promtool_on(&["check", "rules"], &dist("prometheus/waykeeper.rules.yml"));
    assert!(ok, "{said}");
    let (ok, said) = promtool_on(&["test", "rules"], &dist("prometheus/waykeeper.test.yml"));
    assert!(ok, "{said}");
}

#[test]
fn each_alert_of_the_rules_is_tested() {
    let rules = std::fs::read_to_string(dist("prometheus/waykeeper.rules.yml")).unwrap();
    let tests = std::fs::read_to_string(dist("prometheus/waykeeper.test.yml")).unwrap();
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names.into_iter().chain(recorded(&rules)) {
        assert!(tests.contains(name), "no test of {name}");
    }
}

#[test]
fn every_query_of_the_dashboards_and_every_rule_has_rows() {
    let (board, servers) = still(shared_ways(10));
    let metrics = servers.metrics_address().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\n\
         scrape_configs:\n  - job_name: waykeeper\n    static_configs: [ {{ targets: ['{metrics}'] }} ]\n",
        dist("prometheus/waykeeper.rules.yml").display()
    );
    std::fs::write(&config, text).unwrap();
    // A port that was free just before.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let server = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={free}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _server = Server(server.expect("not run: needs prometheus"));
    let rules = std::fs::read_to_string(dist("prometheus/waykeeper.rules.yml")).unwrap();
    let mut queries = Vec::new();
    for (name, at_least) in [("host", 20), ("fleet", 12)] {
        let dashboard = std::fs::read_to_string(dist(&format!("grafana/waykeeper-{name}.json"))).unwrap();
        let own = dashboard_queries(&serde_json::from_str(&dashboard).unwrap(), &metrics.to_string());
        assert!(own.len() >= at_least, "{own:?}");
        queries.extend(own);
    }
    queries.extend(recorded(&rules).into_iter().map(str::to_owned));
    let mut step = 10;
    for query in queries {
        wait_for(&format!("{query} has rows"), || {
            step += 1;
            board.replace(shared_ways(step));
            match rows(free, &query) {
                Ok(count) => count > 0,
                // Prometheus is starting.
                Err(why) if why.contains("refused") || why.contains("Unavailable") => false,
                Err(why) => panic!("{query}: {why}"),
            }
        });
    }
    // A metric that does not exist has none: the check above can fail.
    assert_eq!(rows(free, "waykeeper_no_such_metric"), Ok(0));
}
