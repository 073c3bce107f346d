//! The engine on a mounted virtual server: however it ends, every knob has its original value.

use crossbeam_channel::{bounded, unbounded};
use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use waykeeper_host::{Applied, Host, HostError, Inventory, Lines, Plan, Snapshot, Workload};
use waykeeper_kernel::system;
use waykeeper_linux_host::Grouping;
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::daemon::{DaemonError, run_and_restore};
use waykeeper_service::engine::{self, ManagedHost, Setup, SignalRequest};
use waykeeper_service::linux::ManagedLinuxHost;
use waykeeper_service::{
    ActiveProblem, LastAction, LifecycleEvent, Order, OrderError, Pause, Published, PublishedClass,
    PublishedState, PublishedStep, Sender, orders, step_queue,
};
use waykeeper_tenants::TenantSpec;
use waykeeper_testbed::{MountedHost, PATIENCE, assert_same_state, wait_for};
use waykeeper_units::WayMask;

/// A host that panics at a given reading of its counters.
struct PanickingHost {
    managed_host: ManagedLinuxHost,
    readings: Cell<u32>,
    at: u32,
    /// How many plans, from now on, it refuses.
    refused_plans: Arc<AtomicU32>,
}

impl PanickingHost {
    fn over(managed_host: ManagedLinuxHost, at: u32) -> PanickingHost {
        PanickingHost { managed_host, readings: Cell::new(0), at, refused_plans: Arc::default() }
    }
}

impl Host for PanickingHost {
    fn inventory(&self) -> &Inventory {
        self.managed_host.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.managed_host.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        self.readings.set(self.readings.get() + 1);
        // Only once, since restoring reads too.
        assert!(self.readings.get() != self.at, "a trapdoor");
        self.managed_host.sample()
    }

    fn partial_writes(&mut self) -> Lines {
        self.managed_host.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.managed_host.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let less = |left: u32| left.checked_sub(1);
        match self.refused_plans.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(HostError::Failed { what: "a plan".to_owned(), why: "it is deaf".to_owned() }),
            Err(_) => self.managed_host.apply(plan),
        }
    }

    fn now_ns(&self) -> u64 {
        self.managed_host.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.managed_host.wait_until(deadline_ns)
    }
}

impl ManagedHost for PanickingHost {
    fn refresh(&mut self) {
        self.managed_host.refresh();
    }

    fn declare(&mut self, tenants: Vec<TenantSpec>) {
        self.managed_host.declare(tenants);
    }

    fn active_problems(&self) -> Vec<ActiveProblem> {
        self.managed_host.active_problems()
    }

    fn groupings(&self) -> Vec<Grouping> {
        self.managed_host.groupings()
    }

    fn classes(&self) -> Vec<PublishedClass> {
        self.managed_host.classes()
    }

    fn take_events(&mut self) -> Vec<String> {
        self.managed_host.take_events()
    }

    fn restore(&mut self) -> Result<(), Vec<String>> {
        self.managed_host.restore()
    }
}

/// The configuration of a machine's tenants under a policy.
fn config(machine: &MountedHost, more: &str) -> (Config, Inputs) {
    let path = machine.folder().join("waykeeper.toml");
    let (root, journal) =
        (machine.root().prefix().display().to_string(), machine.journal().display().to_string());
    let mut text = format!("[daemon]\nperiod_s = 0.02\nroot = {root:?}\njournal = {journal:?}\n{more}\n");
    for tenant in machine.options().tenants {
        write!(text, "[[tenant]]\nname = \"{}\"\ncores = \"{}\"\n", tenant.name, tenant.cores).unwrap();
    }
    std::fs::write(&path, text).unwrap();
    let inputs = Inputs { file: Some(path), ..Inputs::default() };
    (Config::load(&inputs).unwrap_or_else(|error| panic!("{error}")), inputs)
}

const FIXED: &str = "[policy]\nname = \"fixed\"\nsettings.masks = { l2fwd = \"0x600\", scan = \"0x003\" }";

/// An engine's setup, with its published state and the senders of signals and orders.
fn setup(
    config: Config,
    inputs: Inputs,
    host: &impl Host,
) -> (Setup, Arc<PublishedState>, crossbeam_channel::Sender<SignalRequest>, Sender) {
    let published_state =
        Arc::new(PublishedState::new(engine::first(&config, host.inventory(), &system::RealSystem)));
    let (signal_request, signal_requests) = bounded(4);
    let (sender, taken) = orders();
    let setup = Setup {
        system: system::real(),
        config,
        inputs,
        published_state: published_state.clone(),
        step_queues: Vec::new(),
        orders: taken,
        signal_requests,
        pods: None,
        twin: None,
        problem_sources: Vec::new(),
        lifecycle_events: unbounded().0,
        unlogged: Box::new(|| 0),
    };
    (setup, published_state, signal_request, sender)
}

#[test]
fn a_panic_in_any_of_the_first_readings_leaves_everything_as_it_was() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    // Before the first knob is set, when it is read back, and in the steps after.
    for at in 1..=6 {
        let (config, inputs) = config(&machine, FIXED);
        let managed_host = ManagedLinuxHost::open(&config).unwrap_or_else(|error| panic!("{error}"));
        let host = PanickingHost::over(managed_host, at);
        let (setup, _, _nudge, _sender) = setup(config, inputs, &host);
        let done = run_and_restore(host, |host| Ok(engine::run(host, setup)?));
        assert!(matches!(&done, Err(DaemonError::Panic(why)) if why.contains("a trapdoor")), "{done:?}");
        assert_same_state(&machine.state(), &found, "after a panic");
        assert!(!machine.journal().exists());
    }
}

#[test]
fn orders_are_answered_within_a_long_period_and_every_step_is_fed() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (mut config, inputs) = config(&machine, FIXED);
    // If the engine answered only at the end of a step, that would take an hour.
    config.period_ns = 3_600_000_000_000;
    let (step_queue, steps) = step_queue(4096);
    let (tell, lifecycle_events) = unbounded();
    let (orders, running) = thread::scope(|scope| {
        let (reported, hear) = bounded(1);
        let running = scope.spawn(move || {
            let managed_host = ManagedLinuxHost::open(&config).unwrap_or_else(|error| panic!("{error}"));
            let (mut setup, published_state, signal_request, sender) = setup(config, inputs, &managed_host);
            setup.step_queues.push(step_queue);
            setup.lifecycle_events = tell;
            reported.send((published_state, signal_request, sender)).unwrap();
            run_and_restore(managed_host, |host| Ok(engine::run(host, setup)?))
        });
        let (published_state, signal_request, sender): (
            Arc<PublishedState>,
            crossbeam_channel::Sender<SignalRequest>,
            Sender,
        ) = hear.recv().unwrap();
        wait_for("tenants", || !published_state.read().groups.is_empty());
        let mut replies = vec![sender.ask(Order::Pause(Pause::Hold), PATIENCE)];
        assert_eq!(published_state.read().paused, Some(Pause::Hold));
        let settings = "masks = { fio = \"0x00c\" }".parse().unwrap();
        replies.push(sender.ask(Order::SetPolicy { name: "fixed".to_owned(), settings }, PATIENCE));
        let bad =
            sender.ask(Order::SetPolicy { name: "a44".to_owned(), settings: toml::Table::new() }, PATIENCE);
        assert!(bad.unwrap_err().to_string().contains("did you mean `a4`?"));
        replies.push(sender.ask(Order::Resume, PATIENCE));
        assert_eq!((published_state.read().paused, published_state.read().settings.len()), (None, 1));
        replies.push(sender.ask(Order::Pause(Pause::Release), PATIENCE));
        replies.push(sender.ask(Order::Resume, PATIENCE));
        replies.push(sender.ask(Order::Reload, PATIENCE));
        signal_request.send(SignalRequest::Stop).unwrap();
        (replies, running.join().unwrap())
    });
    running.unwrap_or_else(|error| panic!("{error}"));
    let reported: Vec<String> =
        orders.into_iter().map(|reply| reply.unwrap_or_else(|why| panic!("{why}"))).collect();
    assert_eq!(reported[0], "the policy is paused; the knobs keep their values");
    assert_eq!(reported[1], "the policy is paused: fixed takes over at `waykeeper resume`");
    assert_eq!(reported[2], "resumed: policy fixed starts anew with masks={ fio = \"0x00c\" }");
    assert_eq!(reported[3], "the policy is paused; the knobs are restored to their original values");
    assert_eq!(reported[4], "resumed: policy fixed starts anew with masks={ fio = \"0x00c\" }");
    // The test's period differs from the file's.
    assert_eq!(reported[5], "daemon.period_s is 0.02, was 3600.0");
    assert_same_state(&machine.state(), &found, "after a stop");
    // The start, a replaced policy, a release and its end: each once. Changes that set no knob are not sent to the
    // step queue.
    let fed: Vec<_> = steps.iter().map(|step| (step.step, step.paused, first_event(&step))).collect();
    let (follows, restored) = ("policy-replaced".to_owned(), "restored".to_owned());
    let release = (0, Some(Pause::Release), restored.clone());
    let wanted = [(0, None, String::new()), (0, None, follows.clone()), release, (0, None, follows)];
    let between = fed.iter().take_while(|(step, ..)| *step == 0).cloned().collect::<Vec<_>>();
    assert_eq!(between, wanted, "{fed:?}");
    // Then the steps of the shorter period, and the final restore.
    assert_eq!(fed.last().map(|(_, _, event)| event), Some(&restored), "{fed:?}");
    let lifecycle_events: Vec<LifecycleEvent> = lifecycle_events.iter().collect();
    assert_eq!(lifecycle_events, [LifecycleEvent::Started, LifecycleEvent::Loading, LifecycleEvent::Loaded]);
}

#[test]
fn a_release_says_which_knobs_did_not_come_back_and_tries_them_again() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (config, inputs) = config(&machine, FIXED);
    let (reported, hear) = bounded(1);
    let running = thread::spawn(move || {
        let host = PanickingHost::over(
            ManagedLinuxHost::open(&config).unwrap_or_else(|error| panic!("{error}")),
            u32::MAX,
        );
        let (setup, _, signal_request, sender) = setup(config, inputs, &host);
        reported.send((host.refused_plans.clone(), signal_request, sender)).unwrap();
        run_and_restore(host, |host| Ok(engine::run(host, setup)?))
    });
    let (refused_plans, signal_request, sender): (_, crossbeam_channel::Sender<SignalRequest>, Sender) =
        hear.recv().unwrap();
    // Answers come between two steps, so the knobs are set by now.
    assert!(sender.ask(Order::Resume, PATIENCE).is_ok());
    let turned = machine.state();
    assert_ne!(turned, found);
    // The loop tries three times to restore.
    refused_plans.store(3, Ordering::SeqCst);
    let why = sender.ask(Order::Pause(Pause::Release), PATIENCE).unwrap_err();
    let wanted =
        "could not be restored: mask 0x7ff of group 0 (l2fwd); mask 0x7ff of group 2 (scan); knobs could not";
    assert!(matches!(&why, OrderError::Incomplete(text) if text.contains(wanted)), "{why}");
    assert_same_state(&machine.state(), &turned, "after a release that failed");
    let again = sender.ask(Order::Pause(Pause::Release), PATIENCE);
    assert_eq!(again.as_deref(), Ok("the policy is paused; the knobs are restored to their original values"));
    assert_ne!(machine.state(), turned);
    let more = sender.ask(Order::Pause(Pause::Release), PATIENCE);
    assert_eq!(
        more.as_deref(),
        Ok("the policy is paused already; the knobs are restored to their original values")
    );
    signal_request.send(SignalRequest::Stop).unwrap();
    running.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert_same_state(&machine.state(), &found, "after a stop");
}

/// The first event of a step.
fn first_event(step: &Published) -> String {
    step.record.events.first().map(|event| event.action.clone()).unwrap_or_default()
}

#[test]
fn a_reload_allows_looks_and_forbids_them_again_and_one_puts_the_layout_as_found_back() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (config, inputs) = config(&machine, FIXED);
    let file = inputs.file.clone().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let (step_queue, steps) = step_queue(65_536);
    let (reported, hear) = bounded(1);
    let running = thread::spawn(move || {
        let managed_host = ManagedLinuxHost::open(&config).unwrap_or_else(|error| panic!("{error}"));
        let (mut setup, published_state, signal_request, sender) = setup(config, inputs, &managed_host);
        setup.step_queues.push(step_queue);
        reported.send((published_state, signal_request, sender)).unwrap();
        run_and_restore(managed_host, |host| Ok(engine::run(host, setup)?))
    });
    let (published_state, signal_request, sender): (
        Arc<PublishedState>,
        crossbeam_channel::Sender<SignalRequest>,
        Sender,
    ) = hear.recv().unwrap();
    let until = |what: &str, is_so: &dyn Fn(&Published) -> bool| {
        wait_for(what, || is_so(&published_state.read()));
    };
    // Ten quiet steps: without permission no look begins.
    until("ten steps", &|step| step.step >= 10);
    std::fs::write(&file, format!("{text}[worth]\nlooks = true\nevery_s = 3600\nlook_steps = 4\n")).unwrap();
    let allowed = sender.ask(Order::Reload, PATIENCE).unwrap();
    let wanted =
        "worth.looks is true, was false; worth.every_s is 3600.0, was 600.0; worth.look_steps is 4, was 3";
    assert_eq!(allowed, wanted);
    let has_looked = |step: &Published| {
        let is_end = |action: &LastAction| action.action == "look-back-ends";
        step.last_actions.iter().any(is_end) && !step.record.look_back
    };
    until("the end of a look", &has_looked);
    std::fs::write(&file, &text).unwrap();
    let forbidden = sender.ask(Order::Reload, PATIENCE).unwrap();
    assert!(forbidden.starts_with("worth.looks is false, was true; "), "{forbidden}");
    let last = published_state.read().step;
    until("ten steps more", &|step| step.step >= last + 10);
    let actions: Vec<String> =
        published_state.read().last_actions.iter().map(|action| action.action.clone()).collect();
    signal_request.send(SignalRequest::Stop).unwrap();
    running.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert_same_state(&machine.state(), &found, "after a stop");
    // The first action set the masks, then the look turned them twice.
    assert_eq!(actions, ["knobs-turned", "look-back", "look-back-ends"]);
    let steps: Vec<_> = steps.iter().collect();
    let look: Vec<&PublishedStep> = steps.iter().filter(|step| step.record.look_back).collect();
    let events: Vec<String> = look.iter().map(|step| first_event(step)).collect();
    // It begins, is in force for four steps of which the last ends it, and one step has lines of both layouts.
    assert_eq!(events, ["look-back", "", "", "", "look-back-ends", ""]);
    let mask_of = |step: &PublishedStep| {
        let group = step.groups.iter().find(|group| group.name == "l2fwd").unwrap();
        step.record.knobs.mask(group.id).unwrap().bits()
    };
    assert_eq!(
        look.iter().map(|step| mask_of(step)).collect::<Vec<_>>(),
        [0x7ff, 0x7ff, 0x7ff, 0x7ff, 0x600, 0x600]
    );
}
