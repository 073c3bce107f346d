//! fixed: masks and DCA as an operator sets them by hand with pqos and setpci, and nothing else.
//!
//! Reads no counter and sets only the knobs that its settings name.

use crate::describe::{SettingDescription, StateDescription, lines};
use crate::knobs::{RefusedKnobs, no_switch, switchable_ports};
use crate::settings::{nearest, refuse_unknown, wrong_type};
use crate::{Decision, Description, Event, Policy, PolicyError};
use std::collections::BTreeMap;
use toml::{Table, Value};
use waykeeper_host::{Interval, Inventory, Knob, LlcGeometry, Plan, Workload};
use waykeeper_units::{MaskError, WayMask};

/// One line for the list of policies.
pub(crate) const IDEA: &str =
    "way masks and DCA set by hand, per workload and device; all else stays unchanged";

const NAME: &str = "fixed";
/// The widest mask that any chip here accepts; used only to parse a mask before the chip is known.
const WIDEST: u32 = 32;

/// Builds it. Settings `masks` (workload to way mask), `dca` (device to true or false) and `dca_ways`.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    refuse_unknown(NAME, settings, &["masks", "dca", "dca_ways"])?;
    let mut fixed = Fixed::default();
    for (workload, value) in table(settings, "masks", "a table of workload name = \"mask\"")? {
        let key = format!("masks.{workload}");
        let text = value.as_str().ok_or_else(|| wrong_type(NAME, &key, "a mask like \"0x180\"", value))?;
        WayMask::parse(text, WIDEST).map_err(|source| bad_mask(workload, source))?;
        fixed.masks.insert(workload.clone(), text.to_owned());
    }
    for (device, value) in table(settings, "dca", "a table of device name = true or false")? {
        let key = format!("dca.{device}");
        let on = value.as_bool().ok_or_else(|| wrong_type(NAME, &key, "true or false", value))?;
        fixed.dca.insert(device.clone(), on);
    }
    if let Some(value) = settings.get("dca_ways") {
        let text =
            value.as_str().ok_or_else(|| wrong_type(NAME, "dca_ways", "a mask like \"0x700\"", value))?;
        WayMask::parse(text, WIDEST).map_err(bad_ways)?;
        fixed.dca_ways = Some(text.to_owned());
    }
    Ok(Box::new(fixed))
}

/// The entries of a table in the settings; none if the key is absent.
fn table<'a>(
    settings: &'a Table,
    key: &str,
    wanted: &str,
) -> Result<Vec<(&'a String, &'a Value)>, PolicyError> {
    let Some(value) = settings.get(key) else { return Ok(Vec::new()) };
    let table = value.as_table().ok_or_else(|| wrong_type(NAME, key, wanted, value))?;
    Ok(table.iter().collect())
}

fn bad_mask(workload: &str, source: MaskError) -> PolicyError {
    PolicyError::BadMask { policy: NAME.to_owned(), workload: workload.to_owned(), source }
}

fn bad_ways(why: MaskError) -> PolicyError {
    PolicyError::NoKnob { policy: NAME.to_owned(), key: "dca_ways".to_owned(), why: why.to_string() }
}

#[derive(Default)]
struct Fixed {
    masks: BTreeMap<String, String>,
    dca: BTreeMap<String, bool>,
    dca_ways: Option<String>,
    llc: Option<LlcGeometry>,
    /// The knobs that do not depend on the workloads.
    plan: Plan,
    refused: RefusedKnobs,
}

impl Fixed {
    fn mask(&self, workload: &str, llc: LlcGeometry) -> Option<Result<WayMask, PolicyError>> {
        let text = self.masks.get(workload)?;
        let mask = WayMask::parse(text, llc.ways).and_then(|mask| llc.check(mask));
        Some(mask.map_err(|source| bad_mask(workload, source)))
    }

    /// The knobs of the devices, or an error for the first that cannot be set.
    fn devices(&self, inventory: &Inventory) -> Result<Plan, PolicyError> {
        let mut plan = Plan::default();
        if let Some(text) = &self.dca_ways {
            if let Some(why) = no_switch(&inventory.dca_ways_switch) {
                let (policy, key) = (NAME.to_owned(), "dca_ways".to_owned());
                return Err(PolicyError::NoKnob { policy, key, why });
            }
            // Which bits are fixed and whether holes are allowed depends on the chip's register.
            let ways = inventory.known_llc().ways;
            let mask = WayMask::parse(text, ways).map_err(bad_ways)?;
            if !mask.minus(WayMask::full(ways)).is_empty() || mask.is_empty() {
                mask.check(ways, 1).map_err(bad_ways)?;
            }
            plan.insert(Knob::DcaWays, mask);
        }
        for (device, on) in &self.dca {
            let ports = switchable_ports(NAME, &format!("dca.{device}"), inventory, device)?;
            plan.extend(ports.into_iter().map(|port| (Knob::Dca(port), *on)));
        }
        Ok(plan)
    }

    fn decide(&self, groups: &[Workload], events: Vec<Event>) -> Decision {
        let llc = self.llc;
        let mask = |group: &Workload| Some((group.id, self.mask(&group.name, llc?)?.ok()?));
        let masks = groups.iter().filter_map(mask);
        Decision { plan: self.plan.clone().with_masks(masks), state: "Fixed".to_owned(), events }
    }
}

impl Policy for Fixed {
    fn name(&self) -> &str {
        NAME
    }

    fn describe(&self) -> Description {
        let masks: Vec<String> =
            self.masks.iter().map(|(name, mask)| format!("{name} = \"{mask}\"")).collect();
        let dca: Vec<String> = self.dca.iter().map(|(name, on)| format!("{name} = {on}")).collect();
        let ways = self.dca_ways.as_ref().map_or_else(|| "not set".to_owned(), |text| format!("\"{text}\""));
        let by_hand = "ours: what pqos -e and -a, setpci and wrmsr 0xc8b set by hand";
        let table = |entries: &[String]| format!("{{ {} }}", entries.join(", "));
        Description {
            name: NAME.to_owned(),
            idea: "Masks and switches that the operator sets stay set; all others keep their values."
                .to_owned(),
            source: "ours; the fixed CAT masks of IAT's baseline".to_owned(),
            inputs: lines(&["names of workloads and devices"]),
            knobs: lines(&["way mask per workload named", "DCA per root port named", "DCA ways if named"]),
            settings: vec![
                SettingDescription::new(
                    "masks",
                    table(&masks),
                    "{  }",
                    ("way mask per workload name", "ways a workload may allocate in", by_hand),
                ),
                SettingDescription::new(
                    "dca",
                    table(&dca),
                    "{  }",
                    (
                        "true or false per device name or root port address",
                        "whether a device writes into the LLC",
                        by_hand,
                    ),
                ),
                SettingDescription::new(
                    "dca_ways",
                    ways,
                    "not set",
                    ("way mask", "ways devices may allocate in", by_hand),
                ),
            ],
            states: vec![StateDescription::new("Fixed", "this policy makes no decisions")],
            deviations: lines(&["a workload's mask is set when the workload is launched, even during a run"]),
        }
    }

    fn check(&self, inventory: &Inventory, workloads: &[&str]) -> Result<(), PolicyError> {
        for name in self.masks.keys() {
            if !workloads.contains(&name.as_str()) {
                return Err(PolicyError::UnknownTarget {
                    policy: NAME.to_owned(),
                    kind: "workload".to_owned(),
                    name: name.clone(),
                    nearest: nearest(name, workloads.iter().copied()),
                    known: workloads.iter().map(|name| (*name).to_owned()).collect(),
                });
            }
            self.mask(name, inventory.known_llc()).transpose()?;
        }
        self.devices(inventory).map(drop)
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.llc = Some(inventory.known_llc());
        let refused = |why: PolicyError| Event {
            action: "setting-refused".to_owned(),
            group: None,
            text: why.to_string(),
            causes: Vec::new(),
        };
        let masks = self.masks.keys().filter_map(|name| self.mask(name, inventory.known_llc())?.err());
        let mut events: Vec<Event> = masks.map(refused).collect();
        self.plan = self.devices(inventory).unwrap_or_else(|why| {
            events.push(refused(why));
            Plan::default()
        });
        self.decide(groups, events)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let events = self.refused.drop_mismatches(&mut self.plan, &seen.knobs);
        self.decide(groups, events)
    }
}
