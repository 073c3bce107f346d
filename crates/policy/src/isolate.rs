//! Isolate: fixed, disjoint, contiguous way masks in proportion to pinned cores; DCA on for all (A4 s6).
//!
//! The strongest isolation with CAT alone. As the baseline for it, it must not know DCA ways or inclusive ways. It
//! reads no counter; masks change only when a workload starts or ends.

pub(crate) mod shares;

use crate::default::dca_on_everywhere;
use crate::describe::{SettingDescription, StateDescription, lines};
use crate::settings::{nearest, refuse_unknown, wrong_type};
use crate::ways::widest_run;
use crate::{Cause, Decision, Description, Event, Policy, PolicyError};
pub(crate) use shares::{Partition, partition};
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};
use waykeeper_host::{Interval, Inventory, LlcGeometry, Plan, Workload};
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// One line for the list of policies.
pub(crate) const IDEA: &str = "fixed disjoint way masks in proportion to pinned cores, DCA on for all";

/// The widest mask that any chip here accepts; used only to parse a mask before the chip is known.
const WIDEST: u32 = 32;

/// Builds it. Setting `masks`: a table, workload name to way mask.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    refuse_unknown("isolate", settings, &["masks"])?;
    let mut fixed = BTreeMap::new();
    if let Some(value) = settings.get("masks") {
        let wanted = "a table of workload name = \"mask\"";
        let table = value.as_table().ok_or_else(|| wrong_type("isolate", "masks", wanted, value))?;
        for (workload, mask) in table {
            fixed.insert(workload.clone(), mask_text(workload, mask)?);
        }
    }
    Ok(Box::new(Isolate { fixed, ..Isolate::default() }))
}

/// The text of a mask that can be parsed; whether the chip accepts it is checked at start.
fn mask_text(workload: &str, value: &Value) -> Result<String, PolicyError> {
    let key = format!("masks.{workload}");
    let text = value.as_str().ok_or_else(|| wrong_type("isolate", &key, "a mask like \"0x180\"", value))?;
    match WayMask::parse(text, WIDEST) {
        Ok(_) => Ok(text.to_owned()),
        Err(source) => {
            Err(PolicyError::BadMask { policy: "isolate".to_owned(), workload: workload.to_owned(), source })
        }
    }
}

/// State: the settings, the chip, and the masks given to the workloads alive.
#[derive(Default)]
struct Isolate {
    fixed: BTreeMap<String, String>,
    llc: Option<LlcGeometry>,
    /// Most partitions: one class belongs to the root group, which keeps all ways for unmanaged cores.
    partitions_max: u32,
    dca: BTreeMap<PortId, bool>,
    groups: Vec<Workload>,
    masks: BTreeMap<WorkloadId, WayMask>,
}

impl Isolate {
    /// Computes all masks for `groups` and logs them.
    fn lay_out(&mut self, groups: &[Workload]) -> Vec<Event> {
        self.groups = groups.to_vec();
        let Some(llc) = self.llc else { return Vec::new() };
        let mut events = Vec::new();
        self.masks = self.fixed_masks(groups, &llc, &mut events);
        let taken = self.masks.values().fold(WayMask::EMPTY, |all, mask| all.or(*mask));
        let rest: Vec<&Workload> =
            groups.iter().filter(|group| !self.masks.contains_key(&group.id)).collect();
        let distinct = self.masks.values().collect::<BTreeSet<_>>().len() as u32;
        let free = widest_run(WayMask::full(llc.ways).minus(taken));
        let limit = self.partitions_max.saturating_sub(distinct);
        for Partition { mask, members } in partition(&rest, free, llc.min_ways.max(1), limit) {
            let names: Vec<&str> = members.iter().map(|group| group.name.as_str()).collect();
            let text = format!("{} get {mask} ({} ways)", names.join(", "), mask.count());
            let cores = members.iter().map(|group| group.cores.len() as f64).sum();
            let group = (names.len() == 1).then(|| names[0].to_owned());
            let causes = vec![Cause { what: "pinned cores".to_owned(), value: cores, limit: None }];
            events.push(Event { action: "isolate".to_owned(), group, text, causes });
            self.masks.extend(members.iter().map(|group| (group.id, mask)));
        }
        // No ways are left beside the masks set by hand: the other workloads get all ways, like unmanaged cores.
        for group in rest {
            self.masks.entry(group.id).or_insert_with(|| WayMask::full(llc.ways));
        }
        events
    }

    /// The masks set by hand whose workload is alive and that the chip accepts.
    fn fixed_masks(
        &self,
        groups: &[Workload],
        llc: &LlcGeometry,
        events: &mut Vec<Event>,
    ) -> BTreeMap<WorkloadId, WayMask> {
        let mut masks = BTreeMap::new();
        for (name, text) in &self.fixed {
            let Some(group) = groups.iter().find(|group| group.name == *name) else {
                let hint = nearest(name, groups.iter().map(|group| group.name.as_str()));
                let hint = hint.map(|near| format!("; the nearest is `{near}`")).unwrap_or_default();
                let text = format!("no workload is called `{name}`, its mask {text} waits{hint}");
                events.push(Event { action: "mask-waits".to_owned(), group: None, text, causes: Vec::new() });
                continue;
            };
            let legal = WayMask::parse(text, llc.ways).and_then(|mask| llc.check(mask));
            let (action, text) = match legal {
                Ok(mask) => {
                    masks.insert(group.id, mask);
                    ("isolate", format!("{name} gets {mask} ({} ways), set by hand", mask.count()))
                }
                Err(error) => ("mask-illegal", format!("mask of {name} is not used: {error}")),
            };
            let group = Some(name.clone());
            events.push(Event { action: action.to_owned(), group, text, causes: Vec::new() });
        }
        masks
    }

    fn decide(&self, events: Vec<Event>) -> Decision {
        let plan = Plan::of_dca(self.dca.clone()).with_masks(self.masks.clone());
        Decision { plan, state: "Isolate".to_owned(), events }
    }
}

impl Policy for Isolate {
    fn name(&self) -> &str {
        "isolate"
    }

    fn describe(&self) -> Description {
        let pairs: Vec<String> =
            self.fixed.iter().map(|(name, mask)| format!("{name} = \"{mask}\"")).collect();
        Description {
            name: "isolate".to_owned(),
            idea: "Every workload has ways of its own, in proportion to its share of the pinned cores."
                .to_owned(),
            source: "A4 s6 (Isolate)".to_owned(),
            inputs: lines(&["pinned cores of each workload"]),
            knobs: lines(&["way mask per workload", "DCA per root port (on)"]),
            settings: vec![SettingDescription {
                name: "masks".to_owned(),
                value: format!("{{ {} }}", pairs.join(", ")),
                default: "{  }".to_owned(),
                unit: "way mask per workload name".to_owned(),
                meaning: "masks set by hand; the other workloads share the widest run of ways left over"
                    .to_owned(),
                source: "A4 s7.1 fixes DPDK-T to way[2:3] and FIO to way[4:6]".to_owned(),
            }],
            states: vec![StateDescription::new(
                "Isolate",
                "masks change only when a workload starts or ends",
            )],
            deviations: lines(&[
                "the paper does not give the rounding or the order: largest remainder with a floor of one way, \
                 in order of workload id from the leftmost way (ours)",
                "more workloads than ways, or than classes of service: the smallest share one partition (ours)",
            ]),
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.llc = Some(inventory.known_llc());
        self.classes(inventory.known_llc().clos_count);
        self.dca = dca_on_everywhere(inventory);
        let events = self.lay_out(groups);
        self.decide(events)
    }

    fn classes(&mut self, clos_count: u32) {
        self.partitions_max = clos_count.saturating_sub(1).max(1);
        // The next step lays the ways out again.
        self.groups.clear();
    }

    fn step(&mut self, groups: &[Workload], _seen: &Interval) -> Decision {
        let events = if self.groups == groups { Vec::new() } else { self.lay_out(groups) };
        self.decide(events)
    }
}
