//! One virtual server for several control loops, as long as their requests are the same.
//!
//! The loops take turns. The first advances the server; the next get the recorded answers as long as their requests are
//! the same. At its first different request a loop gets a copy of the server as it was before that request. So each
//! loop reads exactly what it would read alone. Must not know policies or results.

use waykeeper_host::{Applied, Host, HostError, Inventory, Lines, Plan, Snapshot, Workload};
use waykeeper_machine::{FaultyServer, VirtualServer};
use waykeeper_units::WayMask;

/// A state in the history of a server: after the same requests in the same order.
#[derive(Debug)]
struct HistoryNode {
    /// The server; none once it has advanced to a later node and no other loop can need it here.
    server: Option<FaultyServer>,
    now_ns: u64,
    groups: Vec<Workload>,
    /// The counters, once they were read: a second reading at the same node reads the same and changes nothing.
    sample: Option<Result<Snapshot, HostError>>,
    /// Plans that were applied: the answer and the node after it.
    applied: Vec<(Plan, Result<Applied, HostError>, usize)>,
    /// Deadlines that were waited for: the answer, the time it took on the server's clock, ns, and the node after it.
    waited: Vec<(u64, Result<(), HostError>, u64, usize)>,
    /// A loop ended its turn at this node and will continue from it.
    continues_here: bool,
}

/// The history during one step of a group of loops: a tree of nodes, the first is the root.
#[derive(Debug)]
pub(super) struct SharedStep {
    nodes: Vec<HistoryNode>,
    /// Loops whose turn has not begun.
    to_come: usize,
}

impl SharedStep {
    /// A step that begins with `server`, for so many loops.
    pub fn new(server: FaultyServer, loops: usize) -> SharedStep {
        let mut step = SharedStep { nodes: Vec::new(), to_come: loops };
        step.add(server);
        step
    }

    /// The server at a node at which a loop ended its turn; each can be taken once.
    pub fn take(&mut self, node: usize) -> FaultyServer {
        self.nodes[node].server.take().expect("a node from which a loop continues keeps its server")
    }

    fn add(&mut self, server: FaultyServer) -> usize {
        self.nodes.push(HistoryNode {
            now_ns: server.now_ns(),
            groups: server.workloads(),
            server: Some(server),
            sample: None,
            applied: Vec::new(),
            waited: Vec::new(),
            continues_here: false,
        });
        self.nodes.len() - 1
    }

    /// Takes the server of a node to change it; a copy if another loop may need it unchanged.
    fn leave(&mut self, node: usize) -> FaultyServer {
        let node = &mut self.nodes[node];
        let server =
            if self.to_come > 0 || node.continues_here { node.server.clone() } else { node.server.take() };
        server.expect("a node keeps its server while a loop may come to it")
    }
}

/// Time that a loop has advanced since the last query, in ns of the server's clock.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Passed {
    /// All of that time.
    pub ns: u64,
    /// The part that had already been simulated for another loop.
    pub shared_ns: u64,
    /// Traffic that was simulated for it, in ns of simulated time.
    pub simulated_ns: u64,
}

/// The host of one loop. It has a server only during the loop's turn; at other times every request fails.
#[derive(Default, Debug)]
pub(super) struct SharedHost {
    /// The server's inventory, from the first turn on.
    inventory: Option<Inventory>,
    step: Option<SharedStep>,
    at: usize,
    passed: Passed,
}

impl SharedHost {
    /// Begins the loop's turn at the root of `step`.
    pub fn enter(&mut self, mut step: SharedStep) {
        step.to_come -= 1;
        let root = step.nodes[0].server.as_ref();
        self.inventory = self.inventory.take().or_else(|| root.map(|server| server.inventory().clone()));
        (self.step, self.at) = (Some(step), 0);
    }

    /// Ends the loop's turn. Returns the step and the node that the loop has reached; `continues_here` says whether it
    /// continues from there.
    pub fn leave(&mut self, continues_here: bool) -> (SharedStep, usize) {
        let mut step = self.step.take().expect("the loop's turn has begun");
        step.nodes[self.at].continues_here |= continues_here;
        (step, self.at)
    }

    /// The loop's server, to read its measurements. Only during the loop's turn.
    pub fn server(&self) -> &VirtualServer {
        let node = self.step.as_ref().map(|step| &step.nodes[self.at]);
        let server = node.and_then(|node| node.server.as_ref());
        server.expect("a loop has a server during its turn").server()
    }

    /// The time advanced since the last call.
    pub fn passed(&mut self) -> Passed {
        std::mem::take(&mut self.passed)
    }
}

fn no_server() -> HostError {
    HostError::Failed { what: "using the virtual server".to_owned(), why: "the run has ended".to_owned() }
}

impl Host for SharedHost {
    fn inventory(&self) -> &Inventory {
        self.inventory.as_ref().expect("a loop starts in its first turn")
    }

    fn workloads(&self) -> Vec<Workload> {
        self.step.as_ref().map_or_else(Vec::new, |step| step.nodes[self.at].groups.clone())
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let Some(step) = &mut self.step else { return Err(no_server()) };
        let HistoryNode { server, sample, .. } = &mut step.nodes[self.at];
        let read = || server.as_mut().expect("a node that was not read has its server").sample();
        sample.get_or_insert_with(read).clone()
    }

    fn partial_writes(&mut self) -> Lines {
        // A loop does not read them, so a shared server keeps no answer.
        Lines::UNSUPPORTED
    }

    fn root_mask(&mut self) -> WayMask {
        // That of the virtual server, which has no tool that changes it.
        WayMask::full(self.inventory().known_llc().ways)
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let Some(step) = &mut self.step else { return Err(no_server()) };
        let known = step.nodes[self.at].applied.iter().find(|(applied, ..)| applied == plan);
        if let Some((_, answer, after)) = known {
            self.at = *after;
            return answer.clone();
        }
        let mut server = step.leave(self.at);
        let answer = server.apply(plan);
        let after = step.add(server);
        step.nodes[self.at].applied.push((plan.clone(), answer.clone(), after));
        self.at = after;
        answer
    }

    fn now_ns(&self) -> u64 {
        self.step.as_ref().map_or(0, |step| step.nodes[self.at].now_ns)
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        let Some(step) = &mut self.step else { return Err(no_server()) };
        let known = step.nodes[self.at].waited.iter().find(|(waited, ..)| *waited == deadline_ns);
        if let Some((_, answer, span_ns, after)) = known {
            self.passed.ns += span_ns;
            self.passed.shared_ns += span_ns;
            self.at = *after;
            return answer.clone();
        }
        let mut server = step.leave(self.at);
        // On the server's own clock: the clock of the seam may jump.
        let before_ns = server.server().now_ns();
        let before_s = server.server().simulated_s();
        let answer = server.wait_until(deadline_ns);
        let span_ns = server.server().now_ns() - before_ns;
        let simulated_s = server.server().simulated_s() - before_s;
        let after = step.add(server);
        step.nodes[self.at].waited.push((deadline_ns, answer.clone(), span_ns, after));
        self.at = after;
        self.passed.ns += span_ns;
        self.passed.simulated_ns += (simulated_s * 1e9) as u64;
        answer
    }
}
