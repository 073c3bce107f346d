//! The simulated machine: agents take turns in short quanta of simulated time.
//!
//! In each quantum: NICs receive, NICs send, SSDs move data, then every core runs to the quantum's end on
//! its own clock (microarchitecture.md 7). Knows when things start, change and stop; must not know a policy.
//! Marks: docs/reference/README.md#marks.

use crate::bus::Bus;
use crate::coverage::{Coverage, Gap};
use crate::idio::Controller;
use crate::launch::{Launches, label};
use crate::mailbox::Mailbox;
use crate::meter::Meter;
use crate::nic::{Classifier, Fetch, Function, MempoolSpec, Nic, Queue, Spread, Steering, Traffic, Window};
use crate::programs::{Blueprint, Core, Program, Site};
use crate::pulse::Pulse;
use crate::random::Stream;
use crate::scenario::{Scenario, ScenarioError, WorkloadSpec};
use crate::ssd::Array;
use std::sync::Arc;
use waykeeper_host::Priority;
use waykeeper_silicon::{
    AddressMap, Chip, ChipSpec, DcaMode, Lent, OutOfMemory, Placement, Region, Sampling,
};
use waykeeper_units::WayMask;

/// Requests a YCSB client keeps in flight (X: threads of the client).
const REQUESTS_IN_FLIGHT: u32 = 8;

/// Descriptors of a virtual port's rings: QEMU's maximum for virtio-net, and the value in OVS's guide.
const PORT_RING: u32 = 1024;

/// Buffers that a switch's send queue uses in turn: a mempool cache returns the buffer freed last, in bulks of 32.
/// Assumption: DPDK's caches move as many as a burst of 32 uses.
const OUTLET_RING: u32 = 32;

/// How a scenario is run: what may differ between runs of the same scenario.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Seed of everything random in the machine.
    pub seed: u64,
    /// Seed of the choice of sampled sets.
    pub sample_seed: u64,
    /// Which part of the sets is simulated.
    pub sampling: Sampling,
}

/// A thread on a core.
#[derive(Clone, Debug)]
struct Thread {
    program: Box<dyn Program>,
    core: Core,
    workload: usize,
}

/// A change at a given time.
#[derive(Clone, Debug)]
enum Change {
    Start(usize),
    Phase(usize, Option<Arc<dyn Blueprint>>),
    Priority(usize, Priority),
    Stop(usize),
    Traffic(usize, usize),
    /// Ways in which devices may allocate, set by the scenario.
    DcaWays(WayMask),
}

/// The virtual server without its `Host`.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) scenario: Arc<Scenario>,
    options: RunOptions,
    memory: AddressMap,
    pub(crate) bus: Bus,
    threads: Vec<Thread>,
    /// Clock and counters of cores whose thread has ended.
    pub(crate) parked: Vec<Core>,
    changes: Vec<(f64, Change)>,
    mailbox_of: Vec<Option<usize>>,
    /// First virtual port of each tenant; its threads' follow.
    port_of: Vec<Option<usize>>,
    pub(crate) launches: Launches,
    /// Lines of a core are charged to the workload that starts on it; otherwise to the group set for the core before.
    pub(crate) charges_workloads: bool,
    /// The present priority of each workload.
    pub(crate) priorities: Vec<Priority>,
    /// Memory given to each workload and device.
    coverage: Coverage,
    /// IDIO's controller, if a NIC leaves the placement of its packets to it.
    idio: Option<Controller>,
    now_ns: f64,
    /// Time by which changes were brought forward, ns.
    forward_ns: f64,
    /// When the last program with a start delay begins, ns.
    delays_until_ns: f64,
    pub(crate) pulse: Pulse,
}

impl Machine {
    /// Builds the machine of a scenario at time 0.
    ///
    /// # Errors
    /// If working sets and buffers do not fit simulated memory.
    pub fn new(scenario: Arc<Scenario>, options: RunOptions) -> Result<Machine, ScenarioError> {
        let spec = &scenario.chip;
        let seed = options.seed;
        let mut memory = AddressMap::new(spec, options.sampling, seed, options.sample_seed);
        let mut chip = Chip::new(spec, options.sampling, seed);
        set_initial_knobs(&scenario, &mut chip);
        let mut bus = Bus::new(spec, chip);
        bus.meters = vec![Meter::default(); scenario.workloads.len()];
        bus.teams = vec![None; scenario.workloads.len()];
        let failed = |name: &str, why: OutOfMemory| ScenarioError::Memory {
            file: scenario.name.clone(),
            workload: name.to_owned(),
            why,
        };
        let mut coverage = Coverage::default();
        for (index, nic) in scenario.nics.iter().enumerate() {
            bus.nics
                .push(build_nic(&scenario, &mut memory, index, seed).map_err(|why| failed(&nic.name, why))?);
            coverage.add(&nic.name, memory.handed_out());
        }
        for (index, array) in scenario.storage.iter().enumerate() {
            let stream = Stream::new(seed, &array.name);
            bus.arrays.push(Array::new(scenario.nics.len() + index, array.array, stream));
        }
        let mailbox_of =
            build_mailboxes(&scenario, &mut memory, &mut bus).map_err(|why| failed("redis", why))?;
        coverage.add("redis", memory.handed_out());
        let port_of =
            build_ports(&scenario, &mut memory, &mut bus).map_err(|why| failed("a switch's ports", why))?;
        coverage.add("a switch's ports", memory.handed_out());
        let changes = timeline(&scenario);
        let mut machine = Machine {
            launches: Launches::new(scenario.workloads.len()),
            charges_workloads: true,
            priorities: scenario.workloads.iter().map(|w| w.priority).collect(),
            parked: (0..spec.cores as usize).map(|id| Core { id, ..Core::default() }).collect(),
            scenario: scenario.clone(),
            options,
            memory,
            bus,
            threads: Vec::new(),
            changes,
            mailbox_of,
            port_of,
            coverage,
            idio: steers(&scenario)
                .then(|| Controller::new(spec.cores as usize, f64::from(options.sampling.factor()))),
            now_ns: 0.0,
            forward_ns: 0.0,
            delays_until_ns: 0.0,
            pulse: Pulse::default(),
        };
        machine.make_changes()?;
        Ok(machine)
    }

    /// Simulated time, ns.
    pub fn now_ns(&self) -> f64 {
        self.now_ns
    }

    /// Real lines per sampled line, nominal.
    pub fn scale(&self) -> f64 {
        f64::from(self.options.sampling.factor())
    }

    /// Regions of programs and devices that the sample covers badly.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        self.coverage.gaps(self.options.sampling)
    }

    /// Whether a workload runs.
    pub(crate) fn alive(&self, workload: usize) -> bool {
        self.launches.of(workload).is_some()
    }

    /// When the next change of the scenario is due, ns of simulated time.
    pub(crate) fn next_change_ns(&self) -> Option<f64> {
        self.changes.last().map(|(at, _)| *at)
    }

    /// True if nothing changes at a fixed time before `until_ns`: no change of the scenario, no delayed start, and no
    /// program with a schedule of its own.
    pub(crate) fn is_quiet_until(&self, until_ns: f64) -> bool {
        let scheduled = |workload: &WorkloadSpec| workload.blueprint.has_schedule();
        self.next_change_ns().is_none_or(|at| at > until_ns)
            && self.delays_until_ns <= self.now_ns
            && !self.scenario.workloads.iter().any(scheduled)
    }

    /// Brings every change of the scenario forward by so many ns: the server's clock passed this time without the
    /// machine.
    pub(crate) fn bring_forward(&mut self, by_ns: f64) {
        self.forward_ns += by_ns;
        self.changes.iter_mut().for_each(|(at, _)| *at -= by_ns);
    }

    /// The state of a core, whether a thread runs on it or not.
    pub(crate) fn core(&self, id: usize) -> Core {
        self.threads.iter().map(|t| t.core).find(|core| core.id == id).unwrap_or(self.parked[id])
    }

    /// Runs until simulated time reaches `until_ns`.
    ///
    /// # Errors
    /// If a program that starts on the way does not fit simulated memory, or the observer ends it.
    pub fn run_until(&mut self, until_ns: f64) -> Result<(), ScenarioError> {
        let quantum = self.scenario.quantum_ns;
        let scale = self.scale();
        while self.now_ns < until_ns {
            let mut end = (self.now_ns + quantum).min(until_ns);
            if let Some((at, _)) = self.changes.last() {
                end = end.min(*at).max(self.now_ns);
            }
            let span = end - self.now_ns;
            if span > 0.0 {
                self.quantum(end);
                self.bus.memory.chip.dram_mut().tick(span, scale);
            }
            self.now_ns = end;
            if let Some(idio) = &mut self.idio {
                idio.advance(&mut self.bus.memory.chip, end);
            }
            self.make_changes()?;
            self.pulse.beat(span)?;
        }
        Ok(())
    }

    fn quantum(&mut self, end_ns: f64) {
        let from_ns = self.now_ns;
        let bus = &mut self.bus;
        for nic in &mut bus.nics {
            nic.receive(&mut bus.memory.chip, &mut bus.meters, end_ns);
            nic.transmit(&mut bus.memory.chip, &mut bus.meters, from_ns, end_ns);
        }
        for array in &mut bus.arrays {
            array.advance(&mut bus.memory.chip, end_ns);
        }
        for thread in &mut self.threads {
            thread.program.run(&mut self.bus, &mut thread.core, end_ns);
        }
    }

    /// Makes every change that is due.
    fn make_changes(&mut self) -> Result<(), ScenarioError> {
        while self.changes.last().is_some_and(|(at, _)| *at <= self.now_ns) {
            let (_, change) = self.changes.pop().expect("there is a last one");
            let scenario = self.scenario.clone();
            match change {
                Change::Start(workload) => {
                    self.launch(workload)?;
                }
                Change::Phase(workload, blueprint) => {
                    if let Some(blueprint) = blueprint.filter(|_| self.alive(workload)) {
                        self.park(workload);
                        let run = self.launches.runs(workload) - 1;
                        let lent = self.start(workload, &blueprint, 0.0, run)?;
                        if let Some(launch) = self.launches.of_mut(workload) {
                            launch.lent.append(lent);
                        }
                    }
                }
                Change::Stop(workload) => self.stop(workload),
                Change::Priority(workload, priority) => self.priorities[workload] = priority,
                Change::DcaWays(mask) => {
                    let chip = &mut self.bus.memory.chip;
                    chip.set_dca_ways(mask).expect("the scenario reader checked the mask");
                }
                Change::Traffic(nic, phase) => {
                    let spec = &scenario.nics[nic].phases[phase].traffic;
                    self.bus.nics[nic].traffic.change(spec, self.now_ns);
                }
            }
        }
        Ok(())
    }

    /// A workload starts, for the first time or again.
    fn launch(&mut self, workload: usize) -> Result<(), ScenarioError> {
        let scenario = self.scenario.clone();
        let spec = &scenario.workloads[workload];
        let run = self.launches.runs(workload);
        if run > 0 {
            // A new process keeps nothing of its predecessor's settings.
            self.priorities[workload] = spec.priority;
            if self.charges_workloads {
                set_mask(spec, &scenario.chip, &mut self.bus.memory.chip);
            }
        }
        for (at, change) in spec.every_s.map_or_else(Vec::new, |_| run_of(&scenario, workload, run + 1)) {
            let at = at - self.forward_ns;
            // After the changes that are already due at the same moment.
            let place = self.changes.partition_point(|(due, _)| *due > at);
            self.changes.insert(place, (at, change));
        }
        self.delays_until_ns = self.delays_until_ns.max(self.now_ns + spec.start_delay_ms * 1e6);
        let free = self.memory.free_bytes();
        let lent = self.start(workload, &spec.blueprint, spec.start_delay_ms, run)?;
        let busy = spec.cores.cores().iter().map(|core| self.parked[core.index()].busy_ns).collect();
        self.launches.start(workload, self.now_ns, free - self.memory.free_bytes(), busy, lent);
        Ok(())
    }

    /// A workload exits.
    pub(crate) fn stop(&mut self, workload: usize) {
        self.park(workload);
        let queues = self.bus.nics.iter_mut().flat_map(|nic| &mut nic.queues);
        let windows =
            queues.filter(|queue| queue.workload == workload).filter_map(|queue| queue.window.as_mut());
        windows.for_each(Window::close);
        let Some(launch) = self.launches.exit(workload) else { return };
        // Repeated runs would otherwise use up the memory and queues of any machine.
        if self.scenario.workloads[workload].every_s.is_some() {
            for array in &mut self.bus.arrays {
                array.close(workload);
            }
            self.memory.take_back(launch.lent);
        }
    }

    /// Removes a workload's threads from their cores.
    fn park(&mut self, workload: usize) {
        let (gone, kept) = self.threads.drain(..).partition(|thread| thread.workload == workload);
        self.threads = kept;
        let gone: Vec<Thread> = gone;
        for thread in gone {
            self.parked[thread.core.id] = thread.core;
        }
    }

    /// See `BareMachine::footprint`.
    pub(crate) fn footprint(&self) -> [u64; 3] {
        let arrays: usize = self.bus.arrays.iter().map(Array::footprint).sum();
        [self.memory.free_bytes(), self.changes.len() as u64, arrays as u64]
    }

    /// The ports of each tenant of a switch.
    fn tenants_of(&self, switch: usize) -> Vec<std::ops::Range<usize>> {
        let name = &self.scenario.workloads[switch].name;
        let tenants = self.scenario.workloads.iter().zip(&self.port_of);
        let mine = tenants.filter(|(tenant, _)| tenant.switch.as_ref() == Some(name));
        mine.filter_map(|(tenant, first)| first.map(|first| first..first + tenant.cores.len())).collect()
    }

    fn start(
        &mut self,
        workload: usize,
        blueprint: &Arc<dyn Blueprint>,
        start_delay_ms: f64,
        run: u32,
    ) -> Result<Lent, ScenarioError> {
        let scenario = self.scenario.clone();
        let spec = &scenario.workloads[workload];
        let name = label(spec, run);
        if spec.every_s.is_some() {
            self.memory.lend();
        }
        let mut shared: Option<Arc<Region>> = None;
        self.bus.teams[workload] = None;
        let tenants = self.tenants_of(workload);
        self.memory.set_pages(spec.pages);
        for (thread, core) in spec.cores.cores().iter().enumerate() {
            let mut site = Site {
                memory: &mut self.memory,
                bus: &mut self.bus,
                seed: self.options.seed,
                name: &name,
                workload,
                thread: thread + queues_before(&scenario, workload),
                threads: spec.cores.len(),
                nic: spec.nic,
                array: spec.storage,
                mailbox: self.mailbox_of[workload],
                port: self.port_of[workload].map(|first| first + thread),
                tenants: &tenants,
                shared: &mut shared,
                work_from_ns: self.now_ns + start_delay_ms * 1e6,
                start_ns: self.now_ns,
            };
            let program = blueprint.build(&mut site).map_err(|why| ScenarioError::Memory {
                file: scenario.name.clone(),
                workload: spec.name.clone(),
                why,
            })?;
            let mut core = self.parked[core.index()];
            core.clock_ns = core.clock_ns.max(self.now_ns);
            if self.charges_workloads {
                self.bus.memory.chip.set_group(core.id, workload as u8 + 1);
            }
            self.threads.push(Thread { program, core, workload });
        }
        self.memory.set_pages(None);
        self.coverage.add(&spec.name, self.memory.handed_out());
        // Cores run in the order of their numbers, not of their starts.
        self.threads.sort_by_key(|thread| thread.core.id);
        Ok(self.memory.lent())
    }
}

/// Queue number of a packet workload's first core: workloads on one NIC share its queues in order.
fn queues_before(scenario: &Scenario, workload: usize) -> usize {
    let nic = scenario.workloads[workload].nic;
    let earlier = &scenario.workloads[..workload];
    match nic {
        None => 0,
        Some(_) => earlier.iter().filter(|w| w.nic == nic).map(|w| w.cores.len()).sum(),
    }
}

/// True if IDIO's status registers place some NIC's packets.
fn steers(scenario: &Scenario) -> bool {
    let dynamic = |steering: &Steering| steering.placement == Placement::Dynamic;
    scenario.nics.iter().any(|nic| nic.steering.as_ref().is_some_and(dynamic))
}

fn set_initial_knobs(scenario: &Scenario, chip: &mut Chip) {
    if let Some(mask) = scenario.dca_ways {
        chip.set_dca_ways(mask).expect("the scenario reader checked the mask");
    }
    let remote = scenario.nics.iter().map(|nic| (&nic.name, nic.remote));
    let remote = remote.chain(scenario.storage.iter().map(|array| (&array.name, array.remote)));
    for (device, (name, remote)) in remote.enumerate() {
        let off = scenario.dca_off.contains(name);
        let mode = match (remote, off) {
            (true, _) => DcaMode::Remote,
            (false, true) => DcaMode::Off,
            (false, false) => DcaMode::On,
        };
        chip.set_dca(device, mode);
    }
    for workload in &scenario.workloads {
        set_mask(workload, &scenario.chip, chip);
    }
    for core in 0..scenario.chip.cores as usize {
        chip.set_prefetchers(core, scenario.prefetchers);
    }
}

/// Gives a workload's cores the mask with which it starts.
fn set_mask(workload: &WorkloadSpec, spec: &ChipSpec, chip: &mut Chip) {
    let mask = workload.mask.unwrap_or(WayMask::full(spec.llc.ways));
    for core in workload.cores.cores() {
        chip.set_core_mask(core.index(), mask).expect("the scenario reader checked the mask");
    }
}

fn build_nic(
    scenario: &Scenario,
    memory: &mut AddressMap,
    index: usize,
    seed: u64,
) -> Result<Nic, OutOfMemory> {
    let spec = &scenario.nics[index];
    memory.set_pages(spec.pages);
    let users = scenario.workloads.iter().enumerate().filter(|(_, w)| w.nic == Some(index));
    let owners: Vec<usize> = users.flat_map(|(i, w)| std::iter::repeat_n(i, w.cores.len())).collect();
    let stream = Stream::new(seed, &spec.name);
    let spread = spread(scenario, index, owners.len() as u32);
    let rss = Stream::new(spec.rss_seed.unwrap_or(seed), &format!("{} rss", spec.name));
    let mut nic = Nic::new(index, spec.gbps, Traffic::new(&spec.traffic, spread, stream, rss));
    nic.link_gb_per_s = spec.link_gb_per_s;
    let dependent = scenario.chip.dependent;
    nic.fetch = spec.read_window.map(|bytes| Fetch::new(bytes, dependent.memory_ns - dependent.llc_ns));
    // The queues have equal parts of one mempool.
    let mempool =
        spec.mempool.map(|pool| MempoolSpec { buffers: pool.buffers / owners.len() as u32, ..pool });
    for owner in &owners {
        let mut queue = Queue::pooled(memory, spec.ring, *owner, mempool)?;
        queue.outside_ns = spec.outside_ns;
        if spec.self_invalidate {
            queue.invalidate_released();
        }
        queue.cold = spec.warm_buffers;
        nic.queues.push(queue);
    }
    let users = scenario.workloads.iter().filter(|w| w.nic == Some(index));
    let cores = users.flat_map(|w| w.cores.cores().iter().map(|core| core.index()));
    nic.classifier = spec.steering.as_ref().map(|steering| Classifier::new(steering, cores.collect()));
    let switched = |owner: &&usize| scenario.workloads.iter().any(|w| is_tenant_of(w, scenario, **owner));
    for owner in owners.iter().filter(switched) {
        nic.outlets.push(Queue::new(memory, OUTLET_RING, *owner)?);
    }
    memory.set_pages(None);
    Ok(nic)
}

fn is_tenant_of(tenant: &WorkloadSpec, scenario: &Scenario, switch: usize) -> bool {
    tenant.switch.as_ref() == Some(&scenario.workloads[switch].name)
}

/// Workloads with a share of a NIC's traffic have virtual functions; the others' share is the number of their queues.
fn spread(scenario: &Scenario, nic: usize, queues: u32) -> Spread {
    if let Some(imbalance) = scenario.nics[nic].imbalance {
        return Spread::uneven(queues, imbalance);
    }
    let users = || scenario.workloads.iter().filter(|w| w.nic == Some(nic));
    if users().all(|w| w.share.is_none()) {
        return Spread::Rss(queues);
    }
    let mut first = 0;
    let functions = users().map(|w| {
        let queues = w.cores.len() as u32;
        first += queues;
        Function { first: first - queues, queues, weight: w.share.unwrap_or(f64::from(queues)) }
    });
    Spread::Functions(functions.collect())
}

/// A virtual port for every thread of every tenant of a switch.
fn build_ports(
    scenario: &Scenario,
    memory: &mut AddressMap,
    bus: &mut Bus,
) -> Result<Vec<Option<usize>>, OutOfMemory> {
    let mut port_of = vec![None; scenario.workloads.len()];
    for (index, workload) in scenario.workloads.iter().enumerate() {
        if workload.switch.is_some() {
            port_of[index] = Some(bus.ports.len());
            for _ in 0..workload.cores.len() {
                bus.ports.push(Queue::port(memory, PORT_RING, index)?);
            }
        }
    }
    Ok(port_of)
}

/// One mailbox per redis client, shared with its server.
fn build_mailboxes(
    scenario: &Scenario,
    memory: &mut AddressMap,
    bus: &mut Bus,
) -> Result<Vec<Option<usize>>, OutOfMemory> {
    let mut mailbox_of = vec![None; scenario.workloads.len()];
    for (client, workload) in scenario.workloads.iter().enumerate() {
        let Some(peer) = &workload.peer else {
            continue;
        };
        let server = scenario.workloads.iter().position(|w| w.name == *peer);
        let server = server.expect("the scenario reader checked the peer");
        bus.mailboxes.push(Mailbox::new(memory, REQUESTS_IN_FLIGHT)?);
        mailbox_of[client] = Some(bus.mailboxes.len() - 1);
        mailbox_of[server] = Some(bus.mailboxes.len() - 1);
    }
    Ok(mailbox_of)
}

/// The changes of one run of a workload, which repeats each `every_s`: its start, its phases, its exit.
fn run_of(scenario: &Scenario, index: usize, run: u32) -> Vec<(f64, Change)> {
    let workload = &scenario.workloads[index];
    let at = |seconds: f64| {
        let ns = match workload.every_s {
            None => seconds * 1e9,
            // Whole ns, so that 0.01 s and five times 0.05 s are 0.26 s and not a bit more.
            Some(every) => (seconds * 1e9).round() + (every * 1e9).round() * f64::from(run),
        };
        ns / scenario.time_factor
    };
    let mut changes = vec![(at(workload.start_s), Change::Start(index))];
    for phase in &workload.phases {
        changes.push((at(phase.at_s), Change::Phase(index, phase.blueprint.clone())));
        changes.push((at(phase.at_s), Change::Priority(index, phase.priority)));
    }
    changes.extend(workload.stop_s.map(|stop| (at(stop), Change::Stop(index))));
    changes
}

/// All changes of a scenario, the next one last; of workloads that repeat, those of the first run.
fn timeline(scenario: &Scenario) -> Vec<(f64, Change)> {
    let at = |seconds: f64| seconds * 1e9 / scenario.time_factor;
    let mut changes = Vec::new();
    for index in 0..scenario.workloads.len() {
        changes.extend(run_of(scenario, index, 0));
    }
    for (index, nic) in scenario.nics.iter().enumerate() {
        for (phase, spec) in nic.phases.iter().enumerate() {
            changes.push((at(spec.at_s), Change::Traffic(index, phase)));
        }
    }
    for phase in &scenario.knob_phases {
        changes.push((at(phase.at_s), Change::DcaWays(phase.dca_ways)));
    }
    // Stable, so that changes of one moment happen in the order of the file.
    changes.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut rest = changes.as_mut_slice();
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|c| c.0 == first.0).count();
        rest[..same].reverse();
        rest = &mut rest[same..];
    }
    changes
}
