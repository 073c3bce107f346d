//! Groups of perf events: the types of a plan, and the plan of a core.
//!
//! A group is read by one call and scheduled as a whole, so it must fit the free counters: a larger group would never
//! run. Plain data; must not open anything.

use crate::counting::{CoreEventPlan, SampledQuantity};
use crate::event_source::EncodedEvent;
use waykeeper_generations::CoreCounterTable;
use waykeeper_units::CoreId;

/// The part of the package that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// A logical CPU.
    Core,
    /// The uncore of the package.
    Uncore,
}

/// One event.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedEvent {
    /// Its name, for messages.
    pub name: String,
    /// In the kernel's form.
    pub event: EncodedEvent,
    /// What it counts.
    pub quantity: SampledQuantity,
    /// The factor for its count.
    pub stands_for: f64,
}

/// Events that are scheduled together and read by one call.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedGroup {
    /// Core or uncore.
    pub place: Where,
    /// The CPU to open them on.
    pub cpu: u16,
    /// The events.
    pub members: Vec<PlannedEvent>,
}

/// The groups of one core: one if its events fit, else two that take turns and are scaled by the kernel's times.
/// `watchdog` says whether the NMI watchdog runs: it occupies the fixed cycle counter, so cycles need a general
/// counter. Events without an encoding in the table are left out.
pub fn core_groups(
    counters: &CoreCounterTable,
    events: &CoreEventPlan,
    cpu: CoreId,
    watchdog: bool,
) -> Vec<PlannedGroup> {
    let mut members = Vec::new();
    let mut general = 0;
    for (name, index) in events.names().iter().zip(0u8..) {
        let Some(event) = counters.events.get(name) else { continue };
        let place =
            |word: u64, (name, value): (&str, u64)| Some(word | counters.fields.get(name)?.place(value)?);
        let Some(config) = event.terms.iter().try_fold(0, place) else { continue };
        // Fixed counter 1 counts cycles on every generation that has one (hardware.md 6.1).
        let is_fixed = event.fixed.is_some_and(|fixed| !(watchdog && fixed == 1));
        general += usize::from(!is_fixed);
        let quantity = SampledQuantity::Core(cpu, index);
        members.push(PlannedEvent {
            name: name.clone(),
            event: EncodedEvent::raw(config),
            quantity,
            stands_for: 1.0,
        });
    }
    let group = |members| PlannedGroup { place: Where::Core, cpu: cpu.0, members };
    if general <= usize::from(counters.counters) {
        return vec![group(members)];
    }
    // References and misses of one cache are adjacent in the list, so the second half keeps its pairs together.
    let second = members.split_off(members.len() - general / 2);
    vec![group(members), group(second)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_generations::Generation;

    fn shape(id: &str, watchdog: bool) -> Vec<Vec<(String, u64)>> {
        let counters = &Generation::by_id(id).unwrap().core;
        let groups = core_groups(counters, &CoreEventPlan::of(counters), CoreId(7), watchdog);
        assert!(groups.iter().all(|group| group.cpu == 7 && group.place == Where::Core));
        let members =
            |group: PlannedGroup| group.members.into_iter().map(|m| (m.name, m.event.config[0])).collect();
        groups.into_iter().map(members).collect()
    }

    #[test]
    fn skylakes_six_events_are_one_read() {
        let named = |name: &str, config| (name.to_owned(), config);
        // hardware.md 6.1 and 6.2: event in the low byte, umask above it.
        assert_eq!(
            shape("skx", false),
            [[
                named("INST_RETIRED.ANY", 0xc0),
                named("CPU_CLK_UNHALTED.THREAD", 0x3c),
                named("LONGEST_LAT_CACHE.REFERENCE", 0x4f2e),
                named("LONGEST_LAT_CACHE.MISS", 0x412e),
                named("L2_RQSTS.REFERENCES", 0xff24),
                named("L2_RQSTS.MISS", 0x3f24),
            ]]
        );
    }

    #[test]
    fn with_the_watchdog_four_counters_are_too_few_for_one_group_and_two_take_turns() {
        let groups = shape("skx", true);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2]);
        assert_eq!(groups[1][0].0, "L2_RQSTS.REFERENCES");
        // Eight counters hold all events.
        assert_eq!(shape("spr", true).len(), 1);
    }

    #[test]
    fn no_generation_needs_more_than_two_reads_a_core_nor_a_group_that_never_fits() {
        for generation in Generation::all() {
            for watchdog in [false, true] {
                let groups = shape(&generation.id, watchdog);
                assert!((1..=2).contains(&groups.len()), "{}", generation.id);
                let counters = &generation.core;
                for group in groups {
                    let general = group.iter().filter(|(name, _)| {
                        counters.events[name].fixed.is_none_or(|fixed| watchdog && fixed == 1)
                    });
                    assert!(general.count() <= usize::from(counters.counters), "{}", generation.id);
                }
            }
        }
    }
}
