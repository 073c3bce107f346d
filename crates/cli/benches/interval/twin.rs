//! The control step beside a twin that always has a question, against the same step without one, in alternation: on a
//! machine that others use too, both meet the same load.
//!
//! Must not know what the twin is asked.

use crate::life;
use hdrhistogram::Histogram;
use rustix::thread::ClockId;
use rustix::time::clock_gettime;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use waykeeper_control::{ControlConfig, Loop, Predictor};
use waykeeper_linux_host::LinuxHostOptions;
use waykeeper_service::engine::ManagedHost;
use waykeeper_service::linux::ManagedLinuxHost;
use waykeeper_service::twin::{Twin, TwinConfig, TwinState, TwinStatus};

/// The policy that asks.
const POLICY: &str = "waykeeper";
/// Rounds of both, steps in a round, and the pause between two steps.
const ROUNDS: usize = 5;
const STEPS: usize = 300;
const PAUSE: Duration = Duration::from_millis(20);
/// The twin's share of a core.
const SHARE: f64 = 0.2;

/// Keeps the loop's last question, and answers none: with and without a twin the policy decides the same.
#[derive(Clone, Default)]
struct Tap(Arc<Mutex<Option<LayoutQuestion>>>);

type LayoutQuestion = waykeeper_calibration::LayoutQuestion;

impl Predictor for Tap {
    fn ask(&mut self, question: LayoutQuestion) {
        *self.0.lock().expect("no panic") = Some(question);
    }

    fn answer(&mut self) -> Option<waykeeper_calibration::LayoutAnswer> {
        None
    }
}

/// Wall-clock and CPU time of the control thread's steps, ns.
struct Times([Histogram<u64>; 2]);

impl Times {
    fn new() -> Times {
        Times([(); 2].map(|()| Histogram::new(3).expect("three digits")))
    }

    fn note(&mut self, work: impl FnOnce()) {
        let (begun, cpu) = (Instant::now(), thread_ns());
        work();
        let spent = [begun.elapsed().as_nanos() as u64, thread_ns() - cpu];
        for (histogram, ns) in self.0.iter_mut().zip(spent) {
            histogram.record(ns).expect("it grows by itself");
        }
    }

    fn p99_us(&self) -> [f64; 2] {
        self.0.each_ref().map(|histogram| histogram.value_at_quantile(0.99) as f64 / 1e3)
    }
}

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Measures both. `pass` advances the host's clock by nanoseconds: as many as have passed, since counters of a host whose
/// clock is slow are not used.
pub fn beside_and_alone(folder: &Path, options: &LinuxHostOptions, pass: impl Fn(u64)) {
    let config = life::loaded(folder, options, POLICY);
    let asked = Tap::default();
    let (mut beside, mut alone) = (Times::new(), Times::new());
    let (mut lasted, mut computed) = (Duration::ZERO, Duration::ZERO);
    for round in 0..2 * ROUNDS {
        let with = round % 2 == 1;
        let mut host = ManagedLinuxHost::open(&config).unwrap_or_else(|error| panic!("{error}"));
        host.refresh();
        let policy = waykeeper_policy::build(POLICY, &toml::Table::new()).expect("a policy");
        let mut looping = Loop::start(&mut host, policy, ControlConfig::every(1)).expect("a loop");
        looping.set_predictor(Box::new(asked.clone()));
        let wanted = TwinConfig { share: SHARE, cores: None, period_ns: 1_000_000_000 };
        let (mut twin, _) = Twin::start(wanted).expect("a thread").expect("any CPU");
        let mut passed = Instant::now();
        // When each piece of work was seen first: from the first to the last are whole pieces, each with its rest.
        let mut pieces: Vec<(Instant, TwinStatus)> = Vec::new();
        for _ in 0..STEPS {
            // The first round has none until the policy has asked.
            if let (true, Some(question)) = (with, asked.0.lock().expect("no panic").clone()) {
                twin.predictor.answer();
                twin.predictor.ask(question);
            }
            std::thread::sleep(PAUSE);
            let now = Instant::now();
            pass((now - passed).as_nanos() as u64);
            passed = now;
            let times = if with { &mut beside } else { &mut alone };
            times.note(|| {
                looping.host().refresh();
                looping.step().expect("a step");
            });
            let status = (twin.show)();
            let is_next = pieces.last().is_none_or(|(_, before)| status.answers > before.answers);
            if with && status.state == TwinState::Computing && is_next {
                pieces.push((Instant::now(), status));
            }
        }
        if let ([(begun, first), ..], Some((ended, last))) = (&pieces[..], pieces.last()) {
            lasted += *ended - *begun;
            computed += last.cpu - first.cpu;
        }
        drop(looping);
        while (twin.show)().state == TwinState::Computing {
            std::thread::sleep(PAUSE);
        }
        host.restore().unwrap_or_else(|left| panic!("{left:?}"));
    }
    let (with, without) = (beside.p99_us(), alone.p99_us());
    for (index, what) in ["wall", "CPU"].iter().enumerate() {
        println!(
            "{:<28}p99 of a step, {what}: {:.0} us, without {:.0} us, ratio {:.2}",
            "beside the twin",
            with[index],
            without[index],
            with[index] / without[index]
        );
    }
    println!(
        "{:<28}{:.3} of a core of at most {SHARE}",
        "the twin",
        computed.as_secs_f64() / lasted.as_secs_f64()
    );
}
