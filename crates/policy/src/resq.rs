//! ResQ as a baseline: RX rings whose buffers fit into the DCA ways, and cores that never allocate there.
//!
//! Its admission and scheduling from profiles are outside our scope (algorithms.md 6.3). Reads no counter; must not
//! know how a ring is resized.

use crate::default::dca_on_everywhere;
use crate::describe::{SettingDescription, StateDescription, lines};
use crate::isolate::{Partition, partition};
use crate::knobs::{RefusedKnobs, no_switch};
use crate::settings::{refuse_unknown, whole};
use crate::ways::widest_run;
use crate::{Cause, Decision, Description, Event, Policy, PolicyError};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Knob, Plan, RootPort, Support, Workload};
use waykeeper_units::{LINE_BYTES, WayMask, four_digits};

/// One line for the list of policies.
pub(crate) const IDEA: &str = "RX rings that fit the DCA ways, a slice of the other ways per workload (ResQ)";

const NAME: &str = "resq";
/// ResQ counts buffers of the largest packet, whatever the size of the received ones. algorithms.md 6.3.
const MTU_BYTES: u32 = 1500;
/// Fewest descriptors a queue keeps (algorithms.md 6.3).
const MIN_DESCRIPTORS: u32 = 64;

/// Builds it. Settings `mtu_bytes` and `min_descriptors`.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    refuse_unknown(NAME, settings, &["mtu_bytes", "min_descriptors"])?;
    let mtu_bytes = whole(NAME, settings, "mtu_bytes", MTU_BYTES, (64, 9216, "bytes"))?;
    let min_descriptors =
        whole(NAME, settings, "min_descriptors", MIN_DESCRIPTORS, (1, 32_768, "descriptors"))?;
    Ok(Box::new(Resq { mtu_bytes, min_descriptors, ..Resq::default() }))
}

#[derive(Default)]
struct Resq {
    mtu_bytes: u32,
    min_descriptors: u32,
    inventory: Option<Inventory>,
    /// The DCA ways that the plan is computed for.
    dca_ways: WayMask,
    groups: Vec<Workload>,
    plan: Plan,
    refused: RefusedKnobs,
}

impl Resq {
    /// Computes the plan for the workloads alive and the DCA ways in force.
    fn lay_out(&mut self) -> Vec<Event> {
        let Some(inventory) = &self.inventory else { return Vec::new() };
        let mut plan = Plan::of_dca(dca_on_everywhere(inventory));
        let mut events = self.size_rings(inventory, &mut plan);
        let llc = inventory.known_llc();
        // One class belongs to the root group, which keeps all ways for unmanaged cores.
        let most = llc.clos_count.saturating_sub(1).max(1);
        let outside = widest_run(WayMask::full(llc.ways).minus(self.dca_ways));
        let all: Vec<&Workload> = self.groups.iter().collect();
        for Partition { mask, members } in partition(&all, outside, llc.min_ways.max(1), most) {
            let names: Vec<&str> = members.iter().map(|group| group.name.as_str()).collect();
            let text = format!("{} get {mask}, outside the DCA ways {}", names.join(", "), self.dca_ways);
            let cores: usize = members.iter().map(|group| group.cores.len()).sum();
            let causes = vec![cause("pinned cores", cores as f64)];
            events.push(event("slice", text, causes));
            plan.extend(members.iter().map(|group| (Knob::Mask(group.id), mask)));
        }
        // Knobs that the machine refused before are left out: it will refuse them again.
        self.refused.leave_out(&mut plan);
        self.plan = plan;
        events
    }

    /// Descriptors per queue so that all packet buffers in flight fit the DCA ways.
    fn size_rings(&self, inventory: &Inventory, plan: &mut Plan) -> Vec<Event> {
        let nics: Vec<(&RootPort, u32)> =
            inventory.ports.iter().filter_map(|port| self.queues(port)).collect();
        let queues: u32 = nics.iter().map(|(_, queues)| queues).sum();
        if queues == 0 || self.dca_ways.is_empty() {
            return Vec::new();
        }
        let way_bytes = inventory.known_llc().bytes / u64::from(inventory.known_llc().ways);
        let dca_bytes = way_bytes * u64::from(self.dca_ways.count());
        let buffer_bytes = u64::from(self.mtu_bytes).div_ceil(LINE_BYTES) * LINE_BYTES;
        let fit = (dca_bytes / buffer_bytes / u64::from(queues)).min(u64::from(u32::MAX / 2)) as u32;
        let ring = power_of_two_up_to(fit).max(self.min_descriptors.next_power_of_two());
        let mib = four_digits(dca_bytes as f64 / f64::from(1 << 20));
        let mut events = Vec::new();
        for (port, _) in nics {
            if let Some(why) = no_switch(&port.rx_ring.switch) {
                let text = format!("RX rings of {} stay unchanged: {why}", port.address);
                events.push(event("ring-unavailable", text, Vec::new()));
                continue;
            }
            // At most what the port accepts; a range that is already small enough is kept.
            let ring = ring.min(power_of_two_up_to(port.rx_ring.high)).max(port.rx_ring.low);
            plan.insert(Knob::RxRing(port.id), ring);
            let text = format!("{queues} queues share {mib} MiB of DCA ways: {ring} descriptors each");
            let causes = vec![
                cause("bytes of the DCA ways", dca_bytes as f64),
                cause("bytes of a buffer", buffer_bytes as f64),
                cause("queues", f64::from(queues)),
            ];
            events.push(event("ring-size", text, causes));
        }
        events
    }

    /// A NIC's port with its queues: one per core of the workloads that use it. `None` for a device on another socket,
    /// which never writes into this LLC.
    fn queues<'a>(&self, port: &'a RootPort) -> Option<(&'a RootPort, u32)> {
        let inventory = self.inventory.as_ref()?;
        let behind = |device: &waykeeper_host::Device| {
            device.kind == waykeeper_host::DeviceKind::Network && device.ports.contains(&port.id)
        };
        let device = inventory.devices.iter().find(|device| behind(device))?;
        if matches!(port.dca_switch, Support::No(_)) {
            return None;
        }
        let users = self.groups.iter().filter(|group| group.devices.contains(&device.id));
        let queues: usize = users.map(|group| group.cores.len()).sum();
        (queues > 0).then_some((port, queues as u32))
    }

    fn decide(&self, events: Vec<Event>) -> Decision {
        Decision { plan: self.plan.clone(), state: "Sized".to_owned(), events }
    }
}

/// The largest power of two that is not above `number`; 1 for 0.
fn power_of_two_up_to(number: u32) -> u32 {
    1 << number.checked_ilog2().unwrap_or(0)
}

fn cause(what: &str, value: f64) -> Cause {
    Cause { what: what.to_owned(), value, limit: None }
}

fn event(action: &str, text: String, causes: Vec<Cause>) -> Event {
    Event { action: action.to_owned(), group: None, text, causes }
}

impl Policy for Resq {
    fn name(&self) -> &str {
        NAME
    }

    fn describe(&self) -> Description {
        Description {
            name: NAME.to_owned(),
            idea: "All packet buffers in flight fit the DCA ways, and no core ever allocates there."
                .to_owned(),
            source: "ResQ as ddio-bench s3.1, s4.2, s8.1 and IAT s3.A use it".to_owned(),
            inputs: lines(&[
                "cores and devices of each workload",
                "LLC size and DCA ways",
                "what the knobs read back",
            ]),
            knobs: lines(&[
                "RX ring per NIC port (ethtool -G on a kernel driver; a DPDK program fixes its rings when it starts, \
                 and the inventory then says that there is no such knob)",
                "way mask per workload (outside the DCA ways)",
                "DCA per root port (on)",
            ]),
            settings: vec![
                SettingDescription::new(
                    "mtu_bytes",
                    self.mtu_bytes,
                    MTU_BYTES,
                    (
                        "bytes",
                        "size assumed for every buffer, rounded up to whole lines",
                        "ResQ: MTU-sized buffers; 3072 of 1500 B fit two ways of a Gold 6140",
                    ),
                ),
                SettingDescription::new(
                    "min_descriptors",
                    self.min_descriptors,
                    MIN_DESCRIPTORS,
                    (
                        "descriptors, rounded up to a power of two",
                        "fewest descriptors of a queue, even if they do not fit the DCA ways",
                        "ours",
                    ),
                ),
            ],
            states: vec![StateDescription::new(
                "Sized",
                "rings and slices are fixed; they are laid out again when a workload starts or ends or the \
                 DCA ways change",
            )],
            deviations: lines(&[
                "no admission and no scheduling from profiles",
                "the ring is the limit, not the pool: buffers that wait to be sent are not counted, as ddio-bench s3.1 \
                 criticises",
                "slices are in proportion to pinned cores, largest remainder (ours, as isolate)",
                "where rings cannot be sized, only the slices are applied, and the log says so",
            ]),
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.dca_ways = inventory.dca_ways_default.unwrap_or_default();
        self.inventory = Some(inventory.clone());
        self.groups = groups.to_vec();
        let events = self.lay_out();
        self.decide(events)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let mut events = self.refused.drop_mismatches(&mut self.plan, &seen.knobs);
        let in_force = seen.knobs.dca_ways().unwrap_or(self.dca_ways);
        if in_force != self.dca_ways {
            let text = format!(
                "DCA ways read back as {in_force}, not {}: rings and slices are laid out again",
                self.dca_ways
            );
            let before = cause("DCA ways, laid out for", f64::from(self.dca_ways.count()));
            let now = cause("DCA ways, in force", f64::from(in_force.count()));
            events.push(event("dca-ways-moved", text, vec![before, now]));
        }
        if in_force != self.dca_ways || self.groups != groups {
            self.dca_ways = in_force;
            self.groups = groups.to_vec();
            events.extend(self.lay_out());
        }
        self.decide(events)
    }
}
