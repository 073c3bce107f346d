//! `doctor` on virtual hosts of five chips and on every recorded machine, each report a snapshot.

#[allow(dead_code, reason = "the recordings are read by other tests too")]
use crate::hardware::machine;
use crate::reported;

use machine::Machine;
use reported::reported;
use waykeeper_operator::doctor;

fn virtual_host(chip: &str) {
    let host = waykeeper_testbed::MountedHost::new(chip);
    let report = doctor::examine(&host.root());
    let reported = reported(host.root().prefix(), &report);
    drop(host);
    insta::assert_snapshot!(format!("vhost-{chip}"), reported);
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
        insta::assert_snapshot!(format!("recorded-{name}"), reported(machine.root.prefix(), &report));
    }
}
