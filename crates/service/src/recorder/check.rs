//! Checks the content of a segment. A recording may come from any source, and policies rely on a host's guarantees: ids
//! are indices, masks fit, names exist. Must not read files.

use super::format::{FORMAT, Header, OLDEST, RecordedStep, VERSION};
use crate::Worst;
use std::collections::BTreeSet;
use waykeeper_calibration::{Candidate, Estimate, LayoutAnswer};
use waykeeper_control::Worth;
use waykeeper_host::{Inventory, Knob, KnobValues, Plan, Workload};
use waykeeper_units::{PortId, WayMask};

/// Most tenants of a step: ten times the RMIDs of any processor.
const GROUPS_MOST: usize = 4096;
/// Most layouts of an answer: more than a policy looks at.
const LAYOUTS_MOST: usize = 1024;
/// Largest number of an answer: progress a million times as large as now.
const PROGRESS_MOST: f64 = 1e6;
/// Longest name or text, bytes.
const TEXT_MOST: usize = 4096;

/// Checks a header.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn header(header: &Header) -> Result<(), String> {
    if header.format != FORMAT {
        return Err(format!("it is not a {FORMAT}"));
    }
    if !(OLDEST..=VERSION).contains(&header.version) {
        return Err(format!("it has version {}; versions {OLDEST} to {VERSION} can be read", header.version));
    }
    if header.period_ns == 0 {
        return Err("its period is 0".to_owned());
    }
    for text in [&header.policy, &header.build] {
        short(text)?;
    }
    inventory(&header.inventory)
}

fn inventory(inventory: &Inventory) -> Result<(), String> {
    if let Some(llc) = &inventory.llc {
        if !(1..=WayMask::MOST).contains(&llc.ways) || !(1..=llc.ways).contains(&llc.min_ways) {
            return Err(format!(
                "an LLC of {} ways with masks of at least {} ways is impossible",
                llc.ways, llc.min_ways
            ));
        }
        if llc.clos_count == 0 || llc.bytes == 0 {
            return Err("an LLC without classes or without bytes is impossible".to_owned());
        }
        llc.inclusive_ways.map_or(Ok(()), |mask| fits(mask, llc.ways))?;
    }
    inventory.dca_ways_default.map_or(Ok(()), |mask| fits(mask, most_ways(inventory)))?;
    let devices = inventory.devices.iter().map(|device| device.id.index());
    let ports = inventory.ports.iter().map(|port| port.id.index());
    if !devices.eq(0..inventory.devices.len()) || !ports.eq(0..inventory.ports.len()) {
        return Err("its devices or ports are not numbered from 0".to_owned());
    }
    for device in &inventory.devices {
        short(&device.name)?;
        device.ports.iter().try_for_each(|id| port(*id, inventory))?;
    }
    for dial in inventory.ports.iter().flat_map(|port| [&port.rx_ring, &port.rx_burst]) {
        if dial.low > dial.high {
            return Err(format!("a range from {} to {} is impossible", dial.low, dial.high));
        }
    }
    [&inventory.platform.chip, &inventory.platform.host].into_iter().try_for_each(|text| short(text))
}

/// Checks an entry under its header.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn entry(entry: &RecordedStep<'_>, inventory: &Inventory) -> Result<(), String> {
    if let Some(groups) = &entry.groups {
        tenants(groups, inventory)?;
    }
    let groupings = entry.groupings.iter().flat_map(|all| all.iter());
    let mut names = groupings.flat_map(|own| [&own.tenant, &own.why].into_iter().chain(&own.with));
    names.try_for_each(|text| short(text))?;
    let record = &entry.record;
    if let Some(seen) = &entry.seen {
        if seen.from_ns >= seen.to_ns {
            return Err(format!("an interval from {} to {} ns is impossible", seen.from_ns, seen.to_ns));
        }
        seen.ports.keys().try_for_each(|id| port(*id, inventory))?;
        knobs(&seen.knobs, inventory)?;
    }
    knobs(&record.knobs, inventory)?;
    plan(&record.wanted, inventory)?;
    record.answer.as_ref().map_or(Ok(()), |answer| check_answer(answer, inventory))?;
    worth(&record.worth)?;
    entry.worst.as_ref().map_or(Ok(()), worst)?;
    let events = record.events.iter().flat_map(|event| [&event.action, &event.text]);
    let active_problems = entry.active_problems.iter().flat_map(|problem| [&problem.kind, &problem.text]);
    events.chain(active_problems).chain([&record.state]).try_for_each(|text| short(text))
}

fn tenants(groups: &[Workload], inventory: &Inventory) -> Result<(), String> {
    if groups.len() > GROUPS_MOST {
        return Err(format!("{} tenants are more than {GROUPS_MOST}", groups.len()));
    }
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for group in groups {
        if !ids.insert(group.id) || !names.insert(&group.name) {
            return Err(format!("{} or its name appears twice", group.id));
        }
        short(&group.name)?;
        if let Some(device) = group.devices.iter().find(|id| id.index() >= inventory.devices.len()) {
            return Err(format!("{} has {device}, which does not exist", group.id));
        }
        group.mask.map_or(Ok(()), |mask| fits(mask, most_ways(inventory)))?;
    }
    Ok(())
}

fn check_answer(answer: &LayoutAnswer, inventory: &Inventory) -> Result<(), String> {
    check_numbers(answer)?;
    candidates(answer).try_for_each(|layout| knobs(&layout.plan, inventory))
}

/// Checks what does not depend on a host: how many layouts an answer has, and its numbers.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_numbers(answer: &LayoutAnswer) -> Result<(), String> {
    let layouts = answer.best.len().max(answer.asked.len());
    if layouts > LAYOUTS_MOST {
        return Err(format!("an answer with {layouts} layouts has more than {LAYOUTS_MOST}"));
    }
    for layout in candidates(answer) {
        if layout.tenants.len() > GROUPS_MOST {
            return Err(format!("progress of {} tenants is more than {GROUPS_MOST}", layout.tenants.len()));
        }
        let mut all = layout.tenants.values().chain([&layout.hpw, &layout.lpw]);
        all.try_for_each(progress)?;
    }
    Ok(())
}

fn candidates(answer: &LayoutAnswer) -> impl Iterator<Item = &Candidate> {
    answer.best.iter().chain(&answer.asked)
}

fn progress(estimate: &Estimate) -> Result<(), String> {
    let Estimate { value, error } = estimate;
    let is_possible = |number: &f64| (0.0..=PROGRESS_MOST).contains(number);
    if is_possible(value) && is_possible(error) {
        return Ok(());
    }
    Err(format!("progress {value} with an error of {error} is impossible"))
}

fn knobs(knobs: &KnobValues, inventory: &Inventory) -> Result<(), String> {
    let mut masks = knobs.values().filter_map(|setting| setting.ways());
    masks.try_for_each(|mask| fits(mask, most_ways(inventory)))?;
    plan(knobs, inventory)
}

fn plan(plan: &Plan, inventory: &Inventory) -> Result<(), String> {
    plan.knobs().filter_map(Knob::port).try_for_each(|id| port(id, inventory))
}

fn worth(worth: &Worth) -> Result<(), String> {
    let Some(known) = worth.known() else { return Ok(()) };
    let all = known.tenants.values().chain(&known.hpw).chain(&known.lpw);
    let is_fine =
        |it: &Estimate| it.value.is_finite() && it.value > 0.0 && it.error.is_finite() && it.error >= 0.0;
    match all.into_iter().find(|it| !is_fine(it)) {
        Some(it) => Err(format!("progress of {} with an error of {} is impossible", it.value, it.error)),
        None if !known.age_s.is_finite() => Err(format!("an age of {} s is impossible", known.age_s)),
        None => Ok(()),
    }
}

fn worst(worst: &Worst) -> Result<(), String> {
    let Worst { sufferer, no_sufferer, polluter, no_polluter } = worst;
    let names = sufferer.iter().map(|own| &own.tenant);
    let names = names.chain(polluter.iter().flat_map(|own| [&own.name, &own.into]));
    names.chain(no_sufferer).chain(no_polluter).try_for_each(|text| short(text))?;
    let numbers = sufferer.iter().flat_map(|own| [own.ratio, own.error]);
    let mut numbers = numbers.chain(polluter.iter().map(|own| own.lines_per_s));
    match numbers.find(|number| !number.is_finite() || *number < 0.0) {
        Some(number) => Err(format!("{number} of the worst sufferer or polluter is impossible")),
        None => Ok(()),
    }
}

fn port(id: PortId, inventory: &Inventory) -> Result<(), String> {
    if id.index() < inventory.ports.len() { Ok(()) } else { Err(format!("{id} does not exist")) }
}

/// The most ways that a mask may name: those of the LLC where they are known.
fn most_ways(inventory: &Inventory) -> u32 {
    inventory.llc.map_or(WayMask::MOST, |llc| llc.ways)
}

fn fits(mask: WayMask, ways: u32) -> Result<(), String> {
    if mask.minus(WayMask::full(ways)).is_empty() {
        return Ok(());
    }
    Err(format!("mask {mask} does not fit an LLC of {ways} ways"))
}

fn short(text: &str) -> Result<(), String> {
    if text.len() <= TEXT_MOST { Ok(()) } else { Err(format!("a text of {} bytes is too long", text.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published_state::tests::published;
    use crate::{Polluter, PolluterKind, Sufferer};
    use std::collections::BTreeMap;
    use waykeeper_units::WorkloadId;

    /// An answer whose only layout has this mask, and such progress of HPWs.
    fn answer(mask: u32, value: f64, error: f64) -> LayoutAnswer {
        let hpw = Estimate { value, error };
        let plan = Plan::of_masks([(WorkloadId(0), WayMask::from_bits(mask))]);
        let tenants = BTreeMap::from([(WorkloadId(0), hpw)]);
        let layout = Candidate { plan, tenants, hpw, lpw: Estimate::exact(1.0) };
        LayoutAnswer { question: 1, simulated: 10, best: vec![layout], asked: Vec::new() }
    }

    #[test]
    fn a_worst_sufferer_and_polluter_have_possible_numbers_and_short_names() {
        let polluter = |lines_per_s| Worst {
            polluter: Some(Polluter {
                kind: PolluterKind::Tenant,
                name: "lbm".to_owned(),
                lines_per_s,
                into: "redis".to_owned(),
            }),
            ..Worst::default()
        };
        assert_eq!(worst(&polluter(0.5)), Ok(()));
        assert!(worst(&polluter(-1.0)).unwrap_err().starts_with("-1 of the worst sufferer or polluter"));
        assert!(worst(&polluter(f64::INFINITY)).is_err());
        let sufferer = |tenant: String, error| Worst {
            sufferer: Some(Sufferer { tenant, ratio: 0.5, error }),
            ..Worst::default()
        };
        assert_eq!(worst(&sufferer("redis".to_owned(), 0.0)), Ok(()));
        assert!(worst(&sufferer("redis".to_owned(), f64::NAN)).is_err());
        assert!(worst(&sufferer("x".repeat(TEXT_MOST + 1), 0.0)).unwrap_err().contains("too long"));
        let why = Worst { no_polluter: Some("y".repeat(TEXT_MOST + 1)), ..Worst::default() };
        assert!(worst(&why).unwrap_err().contains("too long"));
    }

    #[test]
    fn an_answer_has_possible_numbers_and_layouts_that_fit_and_is_not_endless() {
        // Eleven ways.
        let inventory = published().inventory;
        let check = |answer: &LayoutAnswer| check_answer(answer, &inventory);
        assert_eq!(check(&answer(0x7ff, 1.1, 0.02)), Ok(()));
        assert_eq!(
            check(&answer(0xfff, 1.1, 0.02)).unwrap_err(),
            "mask 0xfff does not fit an LLC of 11 ways"
        );
        let why = |value, error| check(&answer(0x3, value, error)).unwrap_err();
        assert_eq!(why(-0.5, 0.0), "progress -0.5 with an error of 0 is impossible");
        assert_eq!(why(2e6, 0.0), "progress 2000000 with an error of 0 is impossible");
        assert_eq!(why(1.0, f64::INFINITY), "progress 1 with an error of inf is impossible");
        assert!(why(f64::NAN, 0.0).starts_with("progress NaN"));
        assert!(why(1.0, -0.1).contains("an error of -0.1 is impossible"));
        let mut endless = answer(0x3, 1.0, 0.0);
        endless.best = vec![endless.best[0].clone(); LAYOUTS_MOST + 1];
        assert_eq!(check(&endless).unwrap_err(), "an answer with 1025 layouts has more than 1024");
        let mut port = answer(0x3, 1.0, 0.0);
        port.asked = port.best.clone();
        port.asked[0].plan.insert(Knob::Dca(PortId(9)), false);
        assert!(check(&port).unwrap_err().ends_with("does not exist"));
    }
}
