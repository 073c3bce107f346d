//! A policy from a file in the daemon: it runs in a process of its own, and the control thread waits for each of its
//! decisions at most until a deadline.
//!
//! A decision that is late is dropped; a process that is dead, or late for too long, is started again with backoff. Until
//! there is a decision again the knobs keep their values. Each of these is reported once. A thread of its own
//! (`file_policy/worker.rs`) has the process. Must not know the host.

mod loaded;
#[cfg(test)]
mod tests;
mod worker;

pub use loaded::{FilePolicyChoice, LoadedPolicy};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use loaded::Trouble;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Plan, Workload};
use waykeeper_policy::{Cause, Decision, Description, Event, Policy};
use waykeeper_units::one_line;
use worker::{Order, Told, Worker};

/// Intervals in a row without a decision after which the process is ended. Assumption: one that was late that often is
/// late for good.
const MOST_LATE: u32 = 10;

/// Most events of a decision, and most characters of a text in it: recorder, log and clients get each. Assumption: a person
/// reads no more of one interval.
const MOST_EVENTS: usize = 64;
const LONGEST_TEXT: usize = 300;
/// Most different actions of a policy: each is a series of the metrics. Assumption: our policies have at most 20.
const MOST_ACTIONS: usize = 32;
/// The action of events beyond these.
const OTHER_ACTION: &str = "other";

/// The state while the process starts.
const STARTING: &str = "starting";
/// The state while decisions are late.
const LATE: &str = "late";
/// The state while there is no process.
const DEAD: &str = "dead";

/// A policy from a file. Dropping it ends its process.
pub struct FilePolicy {
    name: String,
    idea: String,
    orders: Sender<Order>,
    told: Receiver<Told>,
    deadline_ns: Arc<AtomicU64>,
    trouble: Trouble,
    /// Number of the last order.
    number: u64,
    /// The order whose answer has not come yet.
    awaited: Option<u64>,
    /// Whether the process that runs now has started the policy.
    has_started: bool,
    /// What was reported last: [`LATE`] or [`DEAD`]; `None` while all is well.
    reported: Option<&'static str>,
    /// Intervals in a row whose decision was late.
    late: u32,
    /// Intervals in a row without a decision.
    without: u32,
    actions: BTreeSet<String>,
}

impl FilePolicy {
    /// Starts a process for a policy with these settings, which the caller has tried before.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(loaded: &LoadedPolicy, settings: &Table) -> io::Result<FilePolicy> {
        let (orders, to_do) = unbounded();
        let (tell, told) = unbounded();
        let interpreter = loaded.interpreter_that_logs();
        let worker = Worker::new(loaded.file.clone(), interpreter, settings.clone(), to_do, tell);
        std::thread::Builder::new().name("waykeeper-policy".to_owned()).spawn(move || worker.run())?;
        loaded.trouble.clear();
        Ok(FilePolicy {
            name: loaded.described.name.clone(),
            idea: loaded.described.idea.clone(),
            orders,
            told,
            deadline_ns: loaded.deadline_ns.clone(),
            trouble: loaded.trouble.clone(),
            number: 0,
            awaited: None,
            has_started: false,
            reported: None,
            late: 0,
            without: 0,
            actions: BTreeSet::new(),
        })
    }

    /// Sends an order and waits for its decision until the deadline. `None`: there is none, or not yet.
    fn decision_of(&mut self, order: impl FnOnce(u64) -> Order, events: &mut Vec<Event>) -> Option<Decision> {
        self.number += 1;
        self.awaited = Some(self.number);
        // The thread ends only with this policy.
        let _ = self.orders.send(order(self.number));
        let until = Instant::now() + self.deadline();
        loop {
            match self.told.recv_deadline(until) {
                Ok(told) => {
                    if let Some(decision) = self.hear(told, events) {
                        return Some(decision);
                    }
                    // The process is gone.
                    self.awaited?;
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.died("its thread ended", None, events);
                    return None;
                }
            }
        }
    }

    /// What the thread tells. Returns the decision of the present order, or of the start, which is never too late.
    fn hear(&mut self, told: Told, events: &mut Vec<Event>) -> Option<Decision> {
        match told {
            Told::Started(decision) => {
                (self.has_started, self.awaited) = (true, None);
                Some(decision)
            }
            Told::Decided(number, decision) => {
                let is_present = self.awaited == Some(number);
                self.awaited = self.awaited.filter(|awaited| *awaited != number);
                is_present.then_some(decision)
            }
            Told::Died(why, pause) => {
                self.died(&why, Some(pause), events);
                None
            }
        }
    }

    fn deadline(&self) -> Duration {
        Duration::from_nanos(self.deadline_ns.load(Ordering::Relaxed))
    }

    /// The process is dead; reports it once for each process.
    fn died(&mut self, why: &str, pause: Option<Duration>, events: &mut Vec<Event>) {
        (self.awaited, self.has_started, self.late) = (None, false, 0);
        self.reported = Some(DEAD);
        let again = pause.map_or_else(String::new, |pause| {
            format!(", and it is started again in {} s", pause.as_secs_f64())
        });
        let text = format!("policy {}: {}; the knobs keep their values{again}", self.name, one_line(why));
        self.trouble.set(&text);
        events.push(Event { action: "policy-dead".to_owned(), group: None, text, causes: Vec::new() });
    }

    /// The decision of this interval was late.
    fn is_late(&mut self, events: &mut Vec<Event>) {
        self.late += 1;
        if self.late > MOST_LATE {
            let why = format!("it was late for more than {MOST_LATE} intervals");
            // The thread ends the process and tells when it is started again.
            let _ = self.orders.send(Order::GiveUp(why));
            (self.awaited, self.has_started) = (None, false);
            return;
        }
        if self.reported.is_none() {
            self.reported = Some(LATE);
            let ms = self.deadline().as_secs_f64() * 1e3;
            let text =
                format!("policy {} has not decided in {ms} ms; the knobs keep their values", self.name);
            self.trouble.set(&text);
            let cause = Cause { what: "deadline, ms".to_owned(), value: ms, limit: None };
            events.push(Event { action: "policy-late".to_owned(), group: None, text, causes: vec![cause] });
        }
    }

    /// The decision for the loop, after the events about the process.
    fn decide(
        &mut self,
        decision: Option<Decision>,
        mut events: Vec<Event>,
        groups: &[Workload],
    ) -> Decision {
        let Some(mut decision) = decision else {
            self.without += 1;
            let state = self.reported.unwrap_or(STARTING).to_owned();
            return Decision { plan: Plan::default(), state, events };
        };
        if self.reported.take().is_some() {
            self.trouble.clear();
            let text = format!("policy {} decides again", self.name);
            let what = "intervals without a decision".to_owned();
            let cause = Cause { what, value: f64::from(self.without), limit: None };
            events.push(Event { action: "policy-back".to_owned(), group: None, text, causes: vec![cause] });
        }
        (self.late, self.without) = (0, 0);
        // A decision of the start may be older than the end of a workload.
        let is_alive = |id| groups.iter().any(|group| group.id == id);
        decision.plan.retain(|knob, _| knob.workload().is_none_or(is_alive));
        decision.state = short(&decision.state);
        decision.events.truncate(MOST_EVENTS);
        for Event { action, group, text, causes } in &mut decision.events {
            *action = self.bounded_action(action);
            *text = short(text);
            *group = group.take().map(|group| short(&group));
            causes.truncate(MOST_EVENTS);
            causes.iter_mut().for_each(|cause| cause.what = short(&cause.what));
        }
        decision.events.splice(0..0, events);
        decision
    }

    /// An action that can be a label of the metrics.
    fn bounded_action(&mut self, action: &str) -> String {
        let action = short(action);
        if self.actions.contains(&action) || self.actions.len() < MOST_ACTIONS {
            self.actions.insert(action.clone());
            return action;
        }
        OTHER_ACTION.to_owned()
    }
}

impl Drop for FilePolicy {
    fn drop(&mut self) {
        self.trouble.clear();
    }
}

impl Policy for FilePolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> Description {
        let (name, idea) = (self.name.clone(), self.idea.clone());
        Description { name, idea, source: "a file".to_owned(), ..Description::default() }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let mut events = Vec::new();
        let (inventory, workloads) = (Arc::new(inventory.clone()), groups.to_vec());
        let decision = self.decision_of(|_| Order::Start(inventory, workloads), &mut events);
        self.decide(decision, events, groups)
    }

    fn classes(&mut self, clos_count: u32) {
        // A worker that has ended reads no order; its death is reported.
        let _ = self.orders.send(Order::Classes(clos_count));
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let mut events = Vec::new();
        let mut decision = None;
        // What came since the last interval: a start that took longer, a late decision, which is dropped, a death.
        let present = if self.has_started { self.awaited.take() } else { None };
        let mut is_busy = present.is_some();
        while let Ok(told) = self.told.try_recv() {
            is_busy &= !matches!(&told, Told::Decided(number, _) if Some(*number) == present);
            is_busy &= !matches!(&told, Told::Died(..));
            decision = self.hear(told, &mut events).or(decision);
        }
        if decision.is_none() && self.has_started {
            if is_busy {
                self.awaited = present;
                self.is_late(&mut events);
            } else {
                let (workloads, seen) = (groups.to_vec(), Box::new(seen.clone()));
                decision = self.decision_of(|number| Order::Step(number, workloads, seen), &mut events);
                if decision.is_none() && self.awaited.is_some() {
                    self.is_late(&mut events);
                }
            }
        } else if decision.is_none() {
            let _ = self.orders.send(Order::Workloads(groups.to_vec()));
        }
        self.decide(decision, events, groups)
    }
}

/// A text of the file in one line of bounded length.
fn short(text: &str) -> String {
    one_line(&text.chars().take(LONGEST_TEXT).collect::<String>())
}
