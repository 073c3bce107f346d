//! The same procedures on a virtual host, through `linux-host`: they must not differ from the server in process.

use crate::chips;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use waykeeper_linux_host::profile::MachineIdentity;
use waykeeper_machine::ScenarioSource;
use waykeeper_probe::experiment::MeasurementTimes;
use waykeeper_probe::findings::Findings;
use waykeeper_probe::ports::{Reach, Switch};
use waykeeper_probe::procedures::{self, ProbeOptions, Procedure};
use waykeeper_probe::register::RegisterEffect;
use waykeeper_probe::roles::Named;
use waykeeper_silicon::ChipSpec;
use waykeeper_testbed::{MountedHost, manual_clock};
use waykeeper_units::WayMask;

/// A machine with a Skylake's identity and other registers.
fn machine(changes: &[(&str, &str)]) -> MountedHost {
    let folder = tempfile::tempdir().unwrap();
    let spec = ChipSpec::built_in_text("gold-6140").unwrap().to_owned();
    let spec = changes.iter().fold(spec, |spec, (from, to)| {
        assert!(spec.contains(from), "{from}");
        spec.replace(from, to)
    });
    std::fs::write(folder.path().join("chip.toml"), spec).unwrap();
    let text = format!("chip = \"chip.toml\"\n{}", chips::SCENARIO);
    let source = ScenarioSource::parse("probe", &text, Some(folder.path().to_owned())).unwrap();
    let scenario = source.read().unwrap_or_else(|error| panic!("{error}"));
    MountedHost::with(Arc::new(scenario), manual_clock(32))
}

/// Runs procedures; afterwards the machine's state must be unchanged.
fn probe(machine: &MountedHost, procedures: &[Procedure]) -> Findings {
    let before = machine.state();
    let options = ProbeOptions {
        procedures: procedures.to_vec(),
        named: Named::default(),
        pace: MeasurementTimes::QUICK,
        quick: true,
    };
    let mut host = machine.on_model_clock();
    let found = procedures::run(&mut host, None, &options, &AtomicBool::new(false), &|_| ()).unwrap();
    assert!(host.host.close().unwrap().is_complete());
    waykeeper_testbed::assert_same_state(&machine.state(), &before, "after a probe");
    found
}

#[test]
fn a_host_of_files_is_found_out_as_a_server_in_process_is() {
    let machine = machine(&[
        ("dca_ways = \"0x600\"", "dca_ways = \"0x700\""),
        ("lowest = \"0x600\"", "lowest = \"0x700\""),
        ("kept = \"0x600\"", "kept = \"0x700\""),
    ]);
    let found = probe(
        &machine,
        &[Procedure::DcaWays, Procedure::InclusiveWays, Procedure::Register, Procedure::Ports],
    );
    let ways = found.dca_ways.as_ref().unwrap();
    assert_eq!(ways.value(), Some(&WayMask::from_bits(0x700)), "{ways:?}");
    let inclusive = found.inclusive_ways.as_ref().unwrap();
    assert_eq!(inclusive.value(), Some(&Some(WayMask::from_bits(0x003))), "{inclusive:?}");
    let register = found.register.as_ref().unwrap();
    assert_eq!(register.acts.value(), Some(&RegisterEffect::Acts), "{register:?}");
    // The table of this CPU allows two ways; this register has three fixed ones.
    assert_eq!(
        register.floor.value().map(|floor| floor.kept),
        Some(WayMask::from_bits(0x700)),
        "{register:?}"
    );
    assert_eq!(found.ports.len(), 2);
    for port in &found.ports {
        assert_eq!(
            (port.switch.value(), port.reach.value()),
            (Some(&Switch::Acts), Some(&Reach::ThisLlc)),
            "{port:?}"
        );
    }
    let host = machine.open();
    let identity = MachineIdentity::of(
        waykeeper_host::Host::inventory(&host),
        waykeeper_linux_host::profile::microcode(&machine.root()),
    );
    assert!(
        identity.cpu.contains("6140") && identity.microcode.is_some() && identity.ports.len() == 2,
        "{identity:?}"
    );
}

#[test]
fn a_register_that_reads_back_and_does_nothing_is_found_out_through_files() {
    let found = probe(&machine(&[("acts = true", "acts = false")]), &[Procedure::Register]);
    let register = found.register.unwrap();
    assert_eq!(register.acts.value(), Some(&RegisterEffect::NoEffect), "{register:?}");
}
