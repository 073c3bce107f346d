//! `doctor` on virtual hosts of five chips and on every recorded machine: what is said of each is a snapshot.

#[path = "hardware/machine.rs"]
#[allow(dead_code, reason = "the recordings are read by other tests too")]
mod machine;
mod told;

use machine::Machine;
use std::sync::Arc;
use told::told;
use waykeeper_linux::doctor;
use waykeeper_linux::root::Root;
use waykeeper_machine::ScenarioSource;
use waykeeper_vhost::engine::Pace;
use waykeeper_vhost::virtual_host::{Options, VirtualHost};

const SCENARIO: &str = r#"
name = "host"
duration_s = 1
warmup_s = 0.1
measure_s = 0.1

[[nic]]
name = "nic0"

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0-1"
"#;

fn virtual_host(chip: &str) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("chip = \"{chip}\"\n{SCENARIO}");
    let source = ScenarioSource::parse("host", &text, None).unwrap_or_else(|error| panic!("{error}"));
    let scenario = Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")));
    let options = Options { pace: Pace::Held, ..Options::default() };
    let host = VirtualHost::mount(folder.path(), scenario, options).unwrap_or_else(|error| panic!("{error}"));
    let report = doctor::examine(&Root::at(host.path()));
    let told = told(host.path(), &report);
    drop(host);
    insta::assert_snapshot!(format!("vhost-{chip}"), told);
}

#[test]
fn a_skylake() {
    virtual_host("gold-6140");
}

#[test]
fn an_ice_lake() {
    virtual_host("gold-5320");
}

#[test]
fn a_sapphire_rapids() {
    virtual_host("gold-6430");
}

#[test]
fn an_epyc() {
    virtual_host("epyc-9554");
}

#[test]
fn a_haswell() {
    virtual_host("e5-2630v3");
}

#[test]
fn every_recorded_machine() {
    for name in Machine::names() {
        let machine = Machine::recorded(&name);
        let report = doctor::examine(&machine.root);
        insta::assert_snapshot!(format!("recorded-{name}"), told(machine.root.prefix(), &report));
    }
}
