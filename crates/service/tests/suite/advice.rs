//! A daemon that may set no knob, under a policy that can advise: on the virtual server in process, whose counters can be
//! read without setting anything.

use crossbeam_channel::{bounded, unbounded};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use waykeeper_calibration::{Candidate, Estimate, LayoutAnswer, LayoutQuestion, TenantDescription};
use waykeeper_control::Predictor;
use waykeeper_host::{
    Applied, Host, HostError, Inventory, KnobValues, Lines, Plan, Priority, Snapshot, Workload,
};
use waykeeper_kernel::system;
use waykeeper_linux_host::Grouping;
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_service::config::{Config, Inputs, PolicyChoice};
use waykeeper_service::dry_run::DryRun;
use waykeeper_service::engine::{self, ManagedHost, Setup, SignalRequest};
use waykeeper_service::protocol::DaemonStatus;
use waykeeper_service::twin::{ShowTwin, Twin, TwinStatus};
use waykeeper_service::{
    ActiveProblem, DaemonMode, Order, Published, PublishedClass, PublishedState, Sender, orders,
};
use waykeeper_tenants::TenantSpec;
use waykeeper_testbed::{PATIENCE, wait_for_some};
use waykeeper_units::WayMask;

/// The virtual server with its workloads as tenants.
struct InProcess(VirtualServer);

impl Host for InProcess {
    fn inventory(&self) -> &Inventory {
        self.0.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.0.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        self.0.sample()
    }

    fn partial_writes(&mut self) -> Lines {
        self.0.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.0.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.0.apply(plan)
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.0.wait_until(deadline_ns)
    }
}

impl ManagedHost for InProcess {
    fn refresh(&mut self) {}

    fn declare(&mut self, _: Vec<TenantSpec>) {}

    fn active_problems(&self) -> Vec<ActiveProblem> {
        Vec::new()
    }

    fn groupings(&self) -> Vec<Grouping> {
        Vec::new()
    }

    fn classes(&self) -> Vec<PublishedClass> {
        Vec::new()
    }

    fn take_events(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Its clock advances only while it is waited for.
    fn time_left(&self, _: u64) -> Duration {
        Duration::ZERO
    }

    fn restore(&mut self) -> Result<(), Vec<String>> {
        Ok(())
    }
}

fn server() -> InProcess {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let scenario = ScenarioSource::open(&file).unwrap().read().unwrap();
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: "1/256".parse().unwrap() };
    InProcess(VirtualServer::new(Arc::new(scenario), options).unwrap())
}

/// Runs a daemon over a host until it is stopped; the knobs at its end.
fn run<H: ManagedHost>(
    mut host: H,
    mode: DaemonMode,
    report: &crossbeam_channel::Sender<(
        Arc<PublishedState>,
        crossbeam_channel::Sender<SignalRequest>,
        Sender,
    )>,
) -> KnobValues {
    let policy = PolicyChoice { name: "waykeeper".to_owned(), settings: toml::Table::new() };
    let config = Config { mode, policy, ..Config::default() };
    let first = engine::first(&config, host.inventory(), &system::RealSystem);
    let published_state = Arc::new(PublishedState::new(first));
    let (signal_request, signal_requests) = bounded(4);
    let (sender, taken) = orders();
    let show: ShowTwin = Arc::new(TwinStatus::default);
    let setup = Setup {
        system: system::real(),
        config,
        inputs: Inputs::default(),
        published_state: published_state.clone(),
        step_queues: Vec::new(),
        orders: taken,
        signal_requests,
        pods: None,
        twin: Some(Twin { predictor: Box::new(OneAnswer(None)), show }),
        problem_sources: Vec::new(),
        lifecycle_events: unbounded().0,
        unlogged: Box::new(|| 0),
    };
    report.send((published_state, signal_request, sender)).unwrap();
    engine::run(&mut host, setup).unwrap_or_else(|error| panic!("{error}"));
    host.sample().unwrap().knobs
}

/// Foresees that fewer ways for `scan` serve the HPWs, whatever is asked.
struct OneAnswer(Option<LayoutQuestion>);

impl Predictor for OneAnswer {
    fn ask(&mut self, question: LayoutQuestion) {
        self.0 = Some(question);
    }

    fn answer(&mut self) -> Option<LayoutAnswer> {
        let question = self.0.take()?;
        let scan = question.server.tenants.iter().find(|tenant| tenant.workload.name == "bwaves")?;
        let (hpw, lpw) = (Estimate { value: 1.12, error: 0.04 }, Estimate { value: 0.99, error: 0.005 });
        let of = |tenant: &TenantDescription| match tenant.workload.priority {
            Priority::High => (tenant.workload.id, hpw),
            Priority::Low => (tenant.workload.id, lpw),
        };
        let plan = Plan::of_masks([(scan.workload.id, WayMask::from_bits(0x003))]);
        let best = Candidate { plan, tenants: question.server.tenants.iter().map(of).collect(), hpw, lpw };
        let (question, asked) = (question.number, Vec::new());
        Some(LayoutAnswer { question, simulated: 100, best: vec![best], asked })
    }
}

#[test]
fn a_daemon_that_may_set_nothing_says_what_it_would_set_and_what_that_would_bring() {
    for mode in [DaemonMode::Observe, DaemonMode::DryRun] {
        let (report, reported) = bounded(1);
        let running = thread::spawn(move || {
            let found = server().0.sample().unwrap().knobs;
            let left = match mode {
                DaemonMode::DryRun => run(DryRun::over(server()), mode, &report),
                _ => run(server(), mode, &report),
            };
            assert_eq!(left, found);
        });
        let (published_state, signal_request, sender) = reported.recv().unwrap();
        let published: Arc<Published> = wait_for_some("advice", || {
            Some(published_state.read()).filter(|published| published.advice.is_some())
        });
        assert_eq!((published.policy.as_str(), published.record.state.as_str()), ("waykeeper", "Advise"));
        assert!(published.record.applied.is_empty() && published.record.wanted.is_empty());
        let status = DaemonStatus::of(&published, Vec::new(), published.at_clock);
        let advice = status.advice.unwrap();
        assert_eq!((advice.hpw_progress, advice.lpw_error), (1.12, 0.005));
        assert_eq!(advice.knobs.len(), 1, "{advice:?}");
        assert!(advice.knobs[0].contains("0x003") && advice.knobs[0].contains("bwaves"), "{advice:?}");
        assert!(status.twin.is_some());
        let events = &published.totals.actions["waykeeper"];
        assert_eq!(events.get("advise"), Some(&1), "{events:?}");
        let order = Order::SetPolicy { name: "a4".to_owned(), settings: toml::Table::new() };
        let reply = sender.ask(order, PATIENCE);
        match mode {
            DaemonMode::Observe => {
                let why = reply.unwrap_err().to_string();
                assert!(why.contains("policy a4 cannot tell what it would do without knobs"), "{why}");
            }
            _ => assert_eq!(reply.as_deref(), Ok("policy a4 replaces waykeeper, with its default settings")),
        }
        signal_request.send(SignalRequest::Stop).unwrap();
        running.join().unwrap();
    }
}
