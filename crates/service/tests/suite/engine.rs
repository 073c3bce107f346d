//! The engine on a mounted virtual server: however it ends, every knob has its original value.

use crossbeam_channel::{bounded, unbounded};
use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use waykeeper_host::{Applied, Group, Host, HostError, Inventory, Lines, Plan, Snapshot};
use waykeeper_linux::host::Grouping;
use waykeeper_linux::tenants::TenantSpec;
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::daemon::{DaemonError, in_charge};
use waykeeper_service::engine::{self, ManagedHost, Nudge, Setup};
use waykeeper_service::linux::Keeper;
use waykeeper_service::{
    Board, Class, Moment, Order, OrderError, Pause, Published, Sender, Standing, feed, orders,
};
use waykeeper_testbed::{Machine, assert_same_state};
use waykeeper_units::WayMask;

const PATIENCE: Duration = Duration::from_secs(60);

/// A host that panics at a given reading of its counters.
struct Trapdoor {
    keeper: Keeper,
    readings: Cell<u32>,
    at: u32,
    /// How many plans, from now on, it refuses.
    deaf: Arc<AtomicU32>,
}

impl Trapdoor {
    fn over(keeper: Keeper, at: u32) -> Trapdoor {
        Trapdoor { keeper, readings: Cell::new(0), at, deaf: Arc::default() }
    }
}

impl Host for Trapdoor {
    fn inventory(&self) -> &Inventory {
        self.keeper.inventory()
    }

    fn groups(&self) -> Vec<Group> {
        self.keeper.groups()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        self.readings.set(self.readings.get() + 1);
        // Only once, since restoring reads too.
        assert!(self.readings.get() != self.at, "a trapdoor");
        self.keeper.sample()
    }

    fn partial_writes(&mut self) -> Lines {
        self.keeper.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.keeper.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let less = |left: u32| left.checked_sub(1);
        match self.deaf.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(HostError::Failed { what: "a plan".to_owned(), why: "it is deaf".to_owned() }),
            Err(_) => self.keeper.apply(plan),
        }
    }

    fn now_ns(&self) -> u64 {
        self.keeper.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.keeper.wait_until(deadline_ns)
    }
}

impl ManagedHost for Trapdoor {
    fn refresh(&mut self) {
        self.keeper.refresh();
    }

    fn declare(&mut self, tenants: Vec<TenantSpec>) {
        self.keeper.declare(tenants);
    }

    fn standing(&self) -> Vec<Standing> {
        self.keeper.standing()
    }

    fn groupings(&self) -> Vec<Grouping> {
        self.keeper.groupings()
    }

    fn classes(&self) -> Vec<Class> {
        self.keeper.classes()
    }

    fn told(&mut self) -> Vec<String> {
        self.keeper.told()
    }

    fn give_back(&mut self) -> Result<(), Vec<String>> {
        self.keeper.give_back()
    }
}

/// The configuration of a machine's tenants under a policy.
fn config(machine: &Machine, more: &str) -> (Config, Inputs) {
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

/// An engine's setup, with its board and the senders of signals and orders.
fn setup(
    config: Config,
    inputs: Inputs,
    host: &impl Host,
) -> (Setup, Arc<Board>, crossbeam_channel::Sender<Nudge>, Sender) {
    let board = Arc::new(Board::new(engine::first(&config, host.inventory())));
    let (nudge, nudges) = bounded(4);
    let (sender, taken) = orders();
    let setup = Setup {
        config,
        inputs,
        board: board.clone(),
        feeds: Vec::new(),
        orders: taken,
        nudges,
        watched: Vec::new(),
        moments: unbounded().0,
        unlogged: Box::new(|| 0),
    };
    (setup, board, nudge, sender)
}

#[test]
fn a_panic_in_any_of_the_first_readings_leaves_everything_as_it_was() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    // Before the first knob is set, when it is read back, and in the steps after.
    for at in 1..=6 {
        let (config, inputs) = config(&machine, FIXED);
        let keeper = Keeper::open(&config).unwrap_or_else(|error| panic!("{error}"));
        let host = Trapdoor::over(keeper, at);
        let (setup, _, _nudge, _sender) = setup(config, inputs, &host);
        let done = in_charge(host, |host| Ok(engine::run(host, setup)?));
        assert!(matches!(&done, Err(DaemonError::Panic(why)) if why.contains("a trapdoor")), "{done:?}");
        assert_same_state(&machine.state(), &found, "after a panic");
        assert!(!machine.journal().exists());
    }
}

#[test]
fn orders_are_answered_within_a_long_period_and_every_step_is_fed() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    let (mut config, inputs) = config(&machine, FIXED);
    // If the engine answered only at the end of a step, that would take an hour.
    config.period_ns = 3_600_000_000_000;
    let (feed, steps) = feed(4096);
    let (tell, moments) = unbounded();
    let (orders, running) = thread::scope(|scope| {
        let (told, hear) = bounded(1);
        let running = scope.spawn(move || {
            let keeper = Keeper::open(&config).unwrap_or_else(|error| panic!("{error}"));
            let (mut setup, board, nudge, sender) = setup(config, inputs, &keeper);
            setup.feeds.push(feed);
            setup.moments = tell;
            told.send((board, nudge, sender)).unwrap();
            in_charge(keeper, |host| Ok(engine::run(host, setup)?))
        });
        let (board, nudge, sender): (Arc<Board>, crossbeam_channel::Sender<Nudge>, Sender) =
            hear.recv().unwrap();
        let begun = Instant::now();
        while board.read().groups.is_empty() && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        let mut replies = vec![sender.ask(Order::Pause(Pause::Hold), PATIENCE)];
        assert_eq!(board.read().paused, Some(Pause::Hold));
        let settings = "masks = { fio = \"0x00c\" }".parse().unwrap();
        replies.push(sender.ask(Order::SetPolicy { name: "fixed".to_owned(), settings }, PATIENCE));
        let bad =
            sender.ask(Order::SetPolicy { name: "a44".to_owned(), settings: toml::Table::new() }, PATIENCE);
        assert!(bad.unwrap_err().to_string().contains("did you mean `a4`?"));
        replies.push(sender.ask(Order::Resume, PATIENCE));
        assert_eq!((board.read().paused, board.read().settings.len()), (None, 1));
        replies.push(sender.ask(Order::Pause(Pause::Release), PATIENCE));
        replies.push(sender.ask(Order::Resume, PATIENCE));
        replies.push(sender.ask(Order::Reload, PATIENCE));
        nudge.send(Nudge::Stop).unwrap();
        (replies, running.join().unwrap())
    });
    running.unwrap_or_else(|error| panic!("{error}"));
    let told: Vec<String> =
        orders.into_iter().map(|reply| reply.unwrap_or_else(|why| panic!("{why}"))).collect();
    assert_eq!(told[0], "the policy is paused; the knobs keep their values");
    assert_eq!(told[1], "policy fixed takes over when the pause ends");
    assert_eq!(told[2], "policy fixed replaces fixed");
    assert_eq!(told[3], "the policy is paused; the knobs are restored to their original values");
    assert_eq!(told[4], "policy fixed replaces fixed");
    // The test's period differs from the file's.
    assert_eq!(told[5], "daemon.period_s is 0.02, was 3600.0");
    assert_same_state(&machine.state(), &found, "after a stop");
    // The start, a replaced policy, a release and its end: each once. Changes that set no knob are not sent to the
    // feed.
    let fed: Vec<_> = steps.iter().map(|step| (step.step, step.paused, first_event(&step))).collect();
    let (follows, restored) = ("policy-replaced".to_owned(), "restored".to_owned());
    let release = (0, Some(Pause::Release), restored.clone());
    let wanted = [(0, None, String::new()), (0, None, follows.clone()), release, (0, None, follows)];
    let between = fed.iter().take_while(|(step, ..)| *step == 0).cloned().collect::<Vec<_>>();
    assert_eq!(between, wanted, "{fed:?}");
    // Then the steps of the shorter period, and the final restore.
    assert_eq!(fed.last().map(|(_, _, event)| event), Some(&restored), "{fed:?}");
    let moments: Vec<Moment> = moments.iter().collect();
    assert_eq!(moments, [Moment::Stands, Moment::Loading, Moment::Loaded]);
}

#[test]
fn a_release_says_which_knobs_did_not_come_back_and_tries_them_again() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    let (config, inputs) = config(&machine, FIXED);
    let (told, hear) = bounded(1);
    let running = thread::spawn(move || {
        let host = Trapdoor::over(Keeper::open(&config).unwrap_or_else(|error| panic!("{error}")), u32::MAX);
        let (setup, _, nudge, sender) = setup(config, inputs, &host);
        told.send((host.deaf.clone(), nudge, sender)).unwrap();
        in_charge(host, |host| Ok(engine::run(host, setup)?))
    });
    let (deaf, nudge, sender): (_, crossbeam_channel::Sender<Nudge>, Sender) = hear.recv().unwrap();
    // Answers come between two steps, so the knobs are set by now.
    assert!(sender.ask(Order::Resume, PATIENCE).is_ok());
    let turned = machine.state();
    assert_ne!(turned, found);
    // The loop tries three times to restore.
    deaf.store(3, Ordering::SeqCst);
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
    nudge.send(Nudge::Stop).unwrap();
    running.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert_same_state(&machine.state(), &found, "after a stop");
}

/// The first event of a step.
fn first_event(step: &Published) -> String {
    step.record.events.first().map(|event| event.action.clone()).unwrap_or_default()
}
