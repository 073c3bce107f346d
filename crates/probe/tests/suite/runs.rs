//! Runs of procedures: the restored state, the end of a run, and other answers.

use crate::chips;

use chips::{on_stand, server};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use waykeeper_host::{
    Applied, CountersRead, Host, HostError, Inventory, KnobValues, Lines, Plan, Snapshot, Workload,
};
use waykeeper_machine::FaultyServer;
use waykeeper_probe::experiment::{MeasurementTimes, ProbeError, ProbeExperiment};
use waykeeper_probe::findings::Findings;
use waykeeper_probe::ports::Switch;
use waykeeper_probe::procedures::{self, ProbeOptions, Procedure};
use waykeeper_probe::roles::{self, Named};
use waykeeper_probe::sensitivity::{self, Sensitivity};
use waykeeper_probe::sweep::{AdjustableLoad, SweptParameter};
use waykeeper_units::WayMask;

fn knobs(host: &mut dyn Host) -> KnobValues {
    host.sample().unwrap().knobs
}

fn options(procedures: &[Procedure]) -> ProbeOptions {
    let pace = MeasurementTimes { settle_ns: 100_000_000, sample_ns: 100_000_000, rounds: 2 };
    ProbeOptions { procedures: procedures.to_vec(), named: Named::default(), pace, quick: true }
}

fn run(host: &mut FaultyServer, procedures: &[Procedure]) -> Result<Findings, ProbeError> {
    procedures::run(host, None, &options(procedures), &AtomicBool::new(false), &|_| ())
}

#[test]
fn whatever_was_turned_is_as_it_was_found() {
    // A server with non-default masks, ways and switch.
    let set = [
        ("cores = \"4\"", "cores = \"4\"\nmask = \"0x0f0\""),
        (
            "\n[[nic]]\nname = \"nic0\"",
            "\n[knobs]\ndca_ways = \"0x700\"\ndca_off = [\"nic1\"]\n\n[[nic]]\nname = \"nic0\"",
        ),
    ];
    let mut host = server("gold-6140", &[], &set);
    let before = knobs(&mut host);
    let findings = run(&mut host, &Procedure::ALL).unwrap();
    assert_eq!(knobs(&mut host), before);
    assert!(findings.failures.is_empty() && findings.found_anything(), "{:?}", findings.failures);
    assert_eq!(findings.ports[1].switch.register.as_deref(), Some("it was off at the start"));
    assert_eq!(findings.sweeps.iter().map(|sweep| sweep.dial).collect::<Vec<_>>(), SweptParameter::ALL);
    assert!(findings.sweeps[2].notes[0].starts_with("not varied"), "{:?}", findings.sweeps[2]);
}

#[test]
fn an_interrupt_ends_it_and_brings_everything_back() {
    let mut host = server("gold-6140", &[], &[]);
    let before = knobs(&mut host);
    // Interrupts at the first wait, during a slide, and late.
    for after in [1, 20, 60] {
        let (stop, waits) = (AtomicBool::new(false), AtomicU64::new(0));
        let reported = |_| {
            if waits.fetch_add(1, Ordering::Relaxed) + 1 == after {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let ended = procedures::run(&mut host, None, &options(&Procedure::ALL), &stop, &reported);
        assert!(matches!(ended, Err(ProbeError::Interrupted)), "{after}: {ended:?}");
        assert_eq!(knobs(&mut host), before, "{after}");
    }
}

#[test]
fn a_panic_brings_everything_back() {
    let mut host = server("gold-6140", &[], &[]);
    let before = knobs(&mut host);
    let stop = AtomicBool::new(false);
    let broken = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut reported = |_: u64| {};
        let mut experiment =
            ProbeExperiment::new(&mut host, MeasurementTimes::QUICK, &stop, &mut reported).unwrap();
        experiment.set_ways(WayMask::from_bits(0x7f0)).unwrap();
        experiment.switch([waykeeper_units::PortId(0)], false).unwrap();
        panic!("on purpose");
    }));
    assert!(broken.is_err());
    assert_eq!(knobs(&mut host), before);
}

#[test]
fn counters_that_cannot_be_read_spoil_an_answer_and_not_the_run() {
    let end = "working_set = \"3 MiB\"";
    let dark = format!("{end}\n[[fault]]\nkind = \"unavailable\"\nworkload = \"chase\"\nat_s = 0");
    let mut host = server("gold-6140", &[], &[(end, &dark)]);
    let found = run(&mut host, &[Procedure::DcaWays, Procedure::InclusiveWays]).unwrap();
    assert!(found.dca_ways.unwrap().value().is_some());
    let why = found.inclusive_ways.unwrap();
    assert!(
        why.reason().is_some_and(|why| why.contains("this host cannot count misses of the co-runner")),
        "{why:?}"
    );
    // If masks cannot be written, the answer has the host's reason.
    let busy = format!("{end}\n[[fault]]\nkind = \"busy\"\nat_s = 0");
    let mut host = server("gold-6140", &[], &[(end, &busy)]);
    let found = run(&mut host, &[Procedure::DcaWays]).unwrap().dca_ways.unwrap();
    assert!(found.reason().is_some_and(|why| why.contains("device or resource busy")), "{found:?}");
}

/// A server whose own clock lags behind the host's and catches up at each fifth wait, as a virtual host on a busy machine.
struct Lagging {
    server: FaultyServer,
    now_ns: u64,
    waits: u32,
}

impl Host for Lagging {
    fn inventory(&self) -> &Inventory {
        self.server.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.server.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let counted_ns = self.server.now_ns();
        let counters_read = Some(CountersRead { from_ns: counted_ns, to_ns: counted_ns });
        Ok(Snapshot { at_ns: self.now_ns, counters_read, ..self.server.sample()? })
    }

    fn partial_writes(&mut self) -> Lines {
        self.server.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.server.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.server.apply(plan)
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.now_ns = deadline_ns;
        self.waits += 1;
        if self.waits.is_multiple_of(5) { self.server.wait_until(deadline_ns) } else { Ok(()) }
    }
}

#[test]
fn a_sample_lasts_until_the_counters_of_a_host_that_lags_have_counted() {
    let mut host = Lagging { server: server("gold-6140", &[], &[]), now_ns: 0, waits: 0 };
    let stop = AtomicBool::new(false);
    let found =
        procedures::run(&mut host, None, &options(&[Procedure::Ports]), &stop, &|_| ()).unwrap().ports;
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|port| port.switch.value() == Some(&Switch::Acts)), "{found:#?}");
}

#[test]
fn without_a_co_runner_it_is_said_what_would_help() {
    let mut host = server("gold-6140", &[], &[]);
    let named = Named { io: None, victim: Some("chas".to_owned()) };
    let error = roles::check(&host.workloads(), &named).unwrap_err().to_string();
    assert_eq!(error, "unknown tenant `chas`; known are headers, payloads, scan, chase");
    let cast = on_stand(&mut host, |experiment| {
        roles::cast(experiment, &Named { io: None, victim: Some("chase".into()) })
    });
    let cast = cast.unwrap().unwrap();
    assert_eq!(cast.highest_miss_corunner, cast.victim);
    let text = chips::SCENARIO.split("[[workload]]\nname = \"scan\"").next().unwrap();
    let mut host = chips::scenario_server(&format!("chip = \"gold-6140\"\n{text}"), None);
    let found = run(&mut host, &[Procedure::DcaWays]).unwrap().dca_ways.unwrap();
    assert!(found.reason().is_some_and(|why| why.contains("no co-runner")), "{found:?}");
}

#[test]
fn an_application_that_reads_what_devices_write_feels_dca_and_one_that_reads_headers_does_not() {
    // One core that reads every line at the highest rate it can: memory is slower than the cache.
    let full = [("offered_gbps = 60", "offered_gbps = 100"), ("cores = \"2-3\"", "cores = \"2\"")];
    let found = on_stand(&mut server("gold-6140", &[], &full), |experiment| {
        sensitivity::measure(experiment).unwrap()
    });
    let by_name: BTreeMap<&str, _> = found.iter().map(|app| (app.name.as_str(), app)).collect();
    let level = |name: &str| by_name[name].sensitivity.value().copied();
    assert_eq!(level("payloads"), Some(Sensitivity::High), "{found:#?}");
    assert_eq!(level("headers"), Some(Sensitivity::Low), "{found:#?}");
    let icelake =
        on_stand(&mut server("gold-5320", &[], &[]), |experiment| sensitivity::measure(experiment).unwrap());
    assert!(
        icelake
            .iter()
            .all(|app| app.sensitivity.reason().is_some_and(|why| why.contains("cannot be switched here")))
    );
}

/// A load with an adjustable rate: reads the scenario again for each value.
struct Rates;

impl AdjustableLoad for Rates {
    fn parameters(&self) -> Vec<SweptParameter> {
        vec![SweptParameter::OfferedGbps]
    }

    fn with(&mut self, _: SweptParameter, value: f64) -> Result<Box<dyn Host + '_>, ProbeError> {
        if value > 90.0 {
            return Err(ProbeError::Load("more than the line takes".to_owned()));
        }
        let rate = format!("offered_gbps = {value}");
        Ok(Box::new(server("gold-6140", &[], &[("offered_gbps = 60", &rate)])))
    }
}

#[test]
fn hit_rates_fall_with_load_and_rise_with_ways() {
    let mut host = server("gold-6140", &[], &[]);
    // The caches are cold at first.
    host.wait_until(4_000_000_000).unwrap();
    let stop = AtomicBool::new(false);
    let options = ProbeOptions { pace: MeasurementTimes::QUICK, ..options(&[Procedure::Sweeps]) };
    let found = procedures::run(&mut host, Some(&mut Rates), &options, &stop, &|_| ()).unwrap();
    let ways = &found.sweeps[0];
    let hits: Vec<f64> = ways.points.iter().map(|point| point.write_hit.unwrap()).collect();
    assert_eq!(ways.points.len(), 10, "two to eleven ways: {:?}", ways.notes);
    assert!(hits.last().unwrap() > &(hits[0] + 0.1), "{hits:?}");
    assert_eq!(ways.notes.len(), 1, "one way alone: {:?}", ways.notes);
    let rings = &found.sweeps[1];
    assert!(rings.points.first().unwrap().write_hit > rings.points.last().unwrap().write_hit, "{rings:?}");
    let rates = &found.sweeps[3];
    // Quick: 20, 60 and 100 Gb/s, and the last is refused.
    assert_eq!(rates.points.iter().map(|point| point.value).collect::<Vec<_>>(), [20.0, 60.0]);
    assert_eq!(rates.notes, ["100: more than the line takes"]);
    assert!(rates.points[0].inbound_bytes_per_s < rates.points[1].inbound_bytes_per_s);
}
