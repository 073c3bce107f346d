//! The daemon's configuration: the file, the environment and the flags. A NUL byte ends the file; behind it are lines
//! `NAME=VALUE`, the variables of the environment (their prefix is added), and behind the next NUL byte flags `KEY=VALUE`.

use crate::{MemorySystem, one_line};
use waykeeper_service::config::{Config, Flag, Inputs, differences, show};

const FILE: &str = "/etc/waykeeper/waykeeper.toml";

fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.split('\n').filter_map(pair).collect()
}

fn load(file: &[u8], environment: Vec<(String, String)>, flags: Vec<Flag>) -> Option<Config> {
    let system = MemorySystem::default();
    system.put_file(FILE, file);
    let inputs = Inputs { file: None, environment, flags };
    Config::load_on(&system, &inputs).inspect_err(|why| one_line(why)).ok()
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let file = parts.next().unwrap_or_default();
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let environment = pairs(&text()).into_iter().map(|(name, value)| (format!("WAYKEEPER_{name}"), value));
    let environment = environment.collect();
    let flag = |(key, value): (String, String)| Flag { flag: format!("--{key}"), key, value };
    let flags = pairs(&text()).into_iter().map(flag).collect();
    let Some(config) = load(file, environment, flags) else { return };
    let _ = (config.journal_path(), config.socket_path(), config.take_back());
    // What `daemon --check` shows, without the tenants, is a configuration with the same values.
    let again =
        load(show(&config).as_bytes(), Vec::new(), Vec::new()).expect("a configuration as it is shown");
    let differing: Vec<String> =
        differences(&config, &again).into_iter().filter(|it| it.key != "tenant").map(|it| it.text).collect();
    assert!(differing.is_empty(), "{differing:?}");
}
