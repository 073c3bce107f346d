//! The cost of an interval: census, reading counters, policy, writing knobs; then the CPU time of an hour and the
//! memory of a daemon. With 18 cores and 11 tenants, and with 128 and 64; through files as the daemon does it, and in
//! process.
//!
//! Through files no simulation runs during the measurement: the clock of the virtual server is stopped, that of the
//! large one is a table. CPU time is the daemon's own, because on a real host the kernel serves the files. One of the
//! four parts is the policy's time alone; the bench of `waykeeper-linux-host` counts the reads of a sample. The argument
//! `twin` measures only the control step beside a twin, `viewers` only that beside viewers that read nothing. `steps SOCKET
//! CORES TENANTS` is a daemon for `scripts/view_cost.py`.

// The figures are the output of this program.
#![allow(clippy::print_stdout)]

mod life;
mod metered;
mod twin;
mod viewers;

use hdrhistogram::Histogram;
use metered::{MeteredHost, MeteredPolicy, Spent};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use waykeeper_control::{ControlConfig, Loop};
use waykeeper_host::Host;
use waykeeper_linux_host::LinuxHostOptions;
use waykeeper_machine::{RunOptions, Scenario, ScenarioSource, VirtualServer};
use waykeeper_service::engine::ManagedHost;
use waykeeper_service::linux::ManagedLinuxHost;
use waykeeper_silicon::Sampling;
use waykeeper_testbed::{LargeServer, MS, MountedHost, SyntheticHost, manual_clock};

/// Steps that are measured, after a tenth as many to warm up.
const STEPS: u64 = 500;
/// `none` is the cost without a policy.
const POLICIES: [&str; 4] = ["none", "a4", "iat", "waykeeper"];
/// Share of the sets that the model simulates; its time is not measured.
const ONE_IN: u32 = 256;
/// Cycles of the large server's cores.
const CYCLES_PER_NS: u64 = 2;

fn main() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let scenario: Arc<Scenario> =
        Arc::new(ScenarioSource::open(&path).expect("the flagship").read().expect("the flagship"));
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == "steps") {
        return serve_steps(&arguments[place + 1..], scenario);
    }
    if arguments.iter().any(|argument| argument == "viewers") {
        return beside_viewers(&LargeServer::new());
    }
    println!("{STEPS} steps each; us, median (p99)\n");
    println!("{:<28}{:>20}{:>20}{:>20}{:>20}", "", "who is there", "reading", "deciding", "turning");

    let machine = MountedHost::with(scenario.clone(), manual_clock(ONE_IN));
    machine.run_to(MS);
    if arguments.iter().any(|argument| argument == "twin") {
        return twin::beside_and_alone(machine.folder(), &machine.options(), |ns| machine.run(ns));
    }
    for policy in POLICIES {
        // Without changing counters no policy would decide anything.
        through_files(
            &format!("files, 18/11, {policy}"),
            machine.folder(),
            &machine.options(),
            policy,
            || {
                machine.run(MS / 20);
            },
        );
    }
    let large = LargeServer::new();
    for policy in POLICIES {
        through_files(&format!("files, 128/64, {policy}"), &large.folder(), &large.options(), policy, || {
            large.pass(50_000_000);
        });
    }
    for policy in POLICIES {
        let sampling = Sampling::one_in(ONE_IN).expect("a power of two");
        let options = RunOptions { seed: 1, sample_seed: 1, sampling };
        let server = VirtualServer::new(scenario.clone(), options).expect("the flagship");
        in_process(&format!("in process, 18/11, {policy}"), server, MS / 20, policy);
    }
    for policy in POLICIES {
        in_process(
            &format!("in process, 128/64, {policy}"),
            SyntheticHost::new(128, 64),
            1_000_000_000,
            policy,
        );
    }

    println!("\nthe control step beside a twin that always computes");
    twin::beside_and_alone(machine.folder(), &machine.options(), |ns| machine.run(ns));

    beside_viewers(&large);

    println!("\na daemon at one step a second");
    let config = life::config(machine.folder(), &machine.options(), "a4");
    tell("18/11, a4", &life::live(&config, || machine.run(MS / 20)));
    let config = life::config(&large.folder(), &large.options(), "a4");
    tell("128/64, a4", &life::live(&config, || large.pass(CYCLES_PER_NS * 100_000_000)));
}

/// The control step with 128 cores and 64 tenants: its counters cost no simulation, so its clock is right also on a busy
/// machine.
fn beside_viewers(large: &LargeServer) {
    println!("\nthe control step beside viewers that read nothing, 128/64");
    viewers::beside_and_alone(&large.folder(), &large.options(), |ns| large.pass(CYCLES_PER_NS * ns));
}

/// A daemon with steps of the flagship on 18 cores with 11 tenants, else of a host of the given size.
fn serve_steps(arguments: &[String], flagship: Arc<Scenario>) {
    let [socket, cores, tenants] = arguments else { panic!("give SOCKET CORES TENANTS") };
    let socket = Path::new(socket);
    let number = |text: &str| text.parse::<u16>().unwrap_or_else(|why| panic!("{text}: {why}"));
    match (number(cores), number(tenants)) {
        (18, 11) => {
            let sampling = Sampling::one_in(ONE_IN).expect("a power of two");
            let options = RunOptions { seed: 1, sample_seed: 1, sampling };
            let mut server = VirtualServer::new(flagship, options).expect("the flagship");
            viewers::daemon(socket, &mut server);
        }
        (cores, tenants) => viewers::daemon(socket, &mut SyntheticHost::new(cores, tenants)),
    }
}

fn tell(name: &str, life: &life::Life) {
    println!("{name:<28}{:.1} s of CPU an hour, {} KiB resident", life.cpu_s, life.resident_kib);
}

/// The times of each part over all steps, ns.
struct Steps([Histogram<u64>; 4]);

impl Steps {
    fn new() -> Steps {
        Steps(std::array::from_fn(|_| Histogram::new(3).expect("three digits")))
    }

    fn add(&mut self, parts: [u64; 4]) {
        for (histogram, part) in self.0.iter_mut().zip(parts) {
            histogram.record(part).expect("it grows by itself");
        }
    }

    fn print(&self, name: &str) {
        let us = |ns: u64| ns as f64 / 1e3;
        let cell = |histogram: &Histogram<u64>| {
            format!(
                "{:.1} ({:.1})",
                us(histogram.value_at_quantile(0.5)),
                us(histogram.value_at_quantile(0.99))
            )
        };
        let [who, reading, deciding, turning] = self.0.each_ref().map(cell);
        println!("{name:<28}{who:>20}{reading:>20}{deciding:>20}{turning:>20}");
    }
}

/// Steps of a managed_host, as the daemon's control thread takes them. `pass` advances the host's clock.
fn through_files(name: &str, folder: &Path, options: &LinuxHostOptions, policy: &str, pass: impl Fn()) {
    let config = life::loaded(folder, options, policy);
    let mut managed_host = ManagedLinuxHost::open(&config).unwrap_or_else(|error| panic!("{error}"));
    managed_host.refresh();
    let mut host = MeteredHost { host: managed_host, spent: Arc::default() };
    // A period of 1 ns: the steps follow each other without waiting.
    steps(name, &mut host, 1, policy, |host| {
        pass();
        let begun = Instant::now();
        host.host.refresh();
        begun.elapsed().as_nanos() as u64
    });
    host.host.restore().unwrap_or_else(|left| panic!("{left:?}"));
}

/// Steps on a host in process, whose clock advances while the loop waits.
fn in_process(name: &str, host: impl Host, period_ns: u64, policy: &str) {
    let mut host = MeteredHost { host, spent: Arc::default() };
    steps(name, &mut host, period_ns, policy, |_| 0);
}

fn steps<H: Host>(
    name: &str,
    host: &mut MeteredHost<H>,
    period_ns: u64,
    policy: &str,
    mut look: impl FnMut(&mut MeteredHost<H>) -> u64,
) {
    let spent: Arc<Spent> = host.spent.clone();
    let policy = waykeeper_policy::build(policy, &toml::Table::new()).expect("a policy");
    let policy = Box::new(MeteredPolicy { policy, spent: spent.clone() });
    let mut looping = Loop::start(host, policy, ControlConfig::every(period_ns)).expect("a loop");
    let mut steps = Steps::new();
    for number in 0..STEPS + STEPS / 10 {
        let looked = look(looping.host());
        spent.take();
        looping.step().expect("a step");
        let parts = spent.take();
        if number >= STEPS / 10 {
            steps.add([looked, parts.sampling, parts.deciding, parts.turning]);
        }
    }
    steps.print(name);
}
