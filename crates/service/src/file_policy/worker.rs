//! The thread that has the process of a policy: it starts it, passes orders on, and starts it again with backoff.
//!
//! It waits for orders, for the process and for the clock at once. Must not know deadlines of decisions or the loop.

use crate::backoff::Backoff;
use crossbeam_channel::{Receiver, Sender, at, never, select};
use std::sync::Arc;
use std::time::{Duration, Instant};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_policy::Decision;
use waykeeper_policy_process::{Incoming, Interpreter, PolicyAnswer, PolicyCall, PolicyFile, PolicyProcess};

/// The first and the longest pause before a process is started again. Assumption: as of the twin.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long a process may take to start the policy (assumption: imports from a slow disk take less).
const STARTING: Duration = Duration::from_secs(30);

/// An order of the control thread.
#[derive(Debug)]
pub(super) enum Order {
    /// Start the policy.
    Start(Arc<Inventory>, Vec<Workload>),
    /// The workloads for the next start.
    Workloads(Vec<Workload>),
    /// There are so many classes of service now.
    Classes(u32),
    /// Decide about an interval.
    Step(u64, Vec<Workload>, Box<Interval>),
    /// End the process, for this reason, and start it again.
    GiveUp(String),
}

/// What the thread tells.
#[derive(Debug)]
pub(super) enum Told {
    /// The policy started, with its initial knobs.
    Started(Decision),
    /// Its decision about the interval with this number.
    Decided(u64, Decision),
    /// The process is gone: why, and when it is started again.
    Died(String, Duration),
}

/// A running process.
struct Running {
    process: PolicyProcess,
    /// The call that starts the policy.
    start: u64,
    /// The number of the order that it works on, and of its call.
    works_on: Option<(u64, u64)>,
}

pub(super) struct Worker {
    file: PolicyFile,
    interpreter: Interpreter,
    settings: Table,
    orders: Receiver<Order>,
    tell: Sender<Told>,
    server: Option<Arc<Inventory>>,
    workloads: Vec<Workload>,
    /// The number of classes, for the next step, if it has changed.
    classes: Option<u32>,
    running: Option<Running>,
    /// When the process was started.
    since: Instant,
    /// When a process is started, or is to have started the policy.
    timer: Option<Instant>,
    backoff: Backoff,
}

impl Worker {
    pub fn new(
        file: PolicyFile,
        interpreter: Interpreter,
        settings: Table,
        orders: Receiver<Order>,
        tell: Sender<Told>,
    ) -> Worker {
        Worker {
            file,
            interpreter,
            settings,
            orders,
            tell,
            server: None,
            workloads: Vec::new(),
            classes: None,
            running: None,
            since: Instant::now(),
            timer: None,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    /// Works until the policy is dropped.
    pub fn run(mut self) {
        loop {
            let incoming =
                self.running.as_ref().map_or_else(never, |running| running.process.incoming().clone());
            let timer = self.timer.map_or_else(never, at);
            select! {
                recv(self.orders) -> order => match order {
                    Ok(order) => self.carry_out(order),
                    Err(_) => return,
                },
                recv(incoming) -> line => self.take(&line.unwrap_or(Incoming::End)),
                recv(timer) -> _ => match self.running {
                    Some(_) => self.died(&format!("it did not start in {} s", STARTING.as_secs())),
                    None => self.launch(),
                },
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Start(server, workloads) => {
                (self.server, self.workloads) = (Some(server), workloads);
                self.launch();
            }
            Order::Workloads(workloads) => self.workloads = workloads,
            Order::Classes(clos_count) => {
                // A process that is started again begins with it.
                if let Some(llc) = self.server.as_mut().and_then(|server| Arc::make_mut(server).llc.as_mut())
                {
                    llc.clos_count = clos_count;
                }
                self.classes = Some(clos_count);
            }
            Order::Step(number, workloads, seen) => {
                self.workloads = workloads;
                // Without a process its death is reported already.
                if let Some(running) = &mut self.running {
                    let classes = self.classes.take();
                    let call = PolicyCall::Step { workloads: &self.workloads, seen: &seen, classes };
                    running.works_on = Some((number, running.process.call(&call)));
                }
            }
            Order::GiveUp(why) => {
                if self.running.is_some() {
                    self.died(&why);
                }
            }
        }
    }

    /// Starts a process and the policy in it.
    fn launch(&mut self) {
        let Some(server) = self.server.clone() else { return };
        (self.since, self.timer) = (Instant::now(), Some(Instant::now() + STARTING));
        match PolicyProcess::begin(&self.file, &self.interpreter, Some(&self.settings)) {
            Ok((mut process, _)) => {
                let start =
                    process.call(&PolicyCall::Start { inventory: &server, workloads: &self.workloads });
                // The server that it starts with has their present number.
                self.classes = None;
                self.running = Some(Running { process, start, works_on: None });
            }
            Err(why) => self.died(&why.to_string()),
        }
    }

    /// Takes a line of the process.
    fn take(&mut self, incoming: &Incoming) {
        let Some(running) = &mut self.running else { return };
        let is_starting = self.timer.is_some();
        let told = match running.process.read(incoming) {
            Ok((_, PolicyAnswer::Opened(_) | PolicyAnswer::Created {})) if is_starting => return,
            Ok((call, PolicyAnswer::Decision(decision))) if is_starting && call == running.start => {
                self.timer = None;
                Ok(Told::Started(decision))
            }
            Ok((call, answer)) => match (running.works_on.take(), answer) {
                (Some((number, expected)), PolicyAnswer::Decision(decision)) if expected == call => {
                    Ok(Told::Decided(number, decision))
                }
                _ => Err(running.process.unexpected("it answers another call")),
            },
            Err(why) => Err(why),
        };
        match told {
            // The policy may be dropped.
            Ok(told) => drop(self.tell.send(told)),
            Err(why) => self.died(&why.to_string()),
        }
    }

    /// Ends the process, if it still runs, and plans the next one.
    fn died(&mut self, why: &str) {
        self.running = None;
        let pause = self.backoff.pause_after(self.since.elapsed());
        self.timer = Some(Instant::now() + pause);
        let _ = self.tell.send(Told::Died(why.to_owned(), pause));
    }
}
