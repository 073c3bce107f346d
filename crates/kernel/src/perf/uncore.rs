//! The plan of the uncore: the events of each of the kernel's units, as one group and so one read per unit.
//!
//! The kernel's `format/` files give the bits of a term, the generation's table gives the terms. A unit is opened
//! only on the CPU of the managed package that its `cpumask` names (hardware.md 3.5). Must not open anything.

use super::plan::{PlannedEvent, PlannedGroup, Where};
use crate::cha::SliceEvents;
use crate::event_source::CounterUnit;
use crate::iio::StackPart;
use crate::root::Root;
use crate::uncore::{BoxEvent, memory_events, stack_events};
use waykeeper_generations::{FreeRunningSet, Iio, LlcCounterTable, MemoryCounterTable};
use waykeeper_units::CoreList;

/// Groups, and what cannot be counted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct UncorePlan {
    /// One per unit.
    pub groups: Vec<PlannedGroup>,
    /// What cannot be counted, for the user.
    pub notes: Vec<String>,
}

impl UncorePlan {
    /// Adds a unit with its events, as far as the kernel's driver can encode them.
    fn add(&mut self, unit: &CounterUnit, package: &CoreList, events: Vec<BoxEvent>) {
        let masks = unit.cpumask.as_ref().map(CoreList::cores).unwrap_or_default();
        let Some(cpu) = masks.iter().find(|cpu| package.cores().contains(cpu)) else {
            self.notes.push(format!("{}: no CPU of the managed socket can read it", unit.name));
            return;
        };
        let mut members = Vec::new();
        for BoxEvent { terms, quantity, stands_for } in events {
            match unit.encode(&terms) {
                Ok(event) => {
                    let name = format!("{}/{terms}/", unit.name);
                    members.push(PlannedEvent { name, event, quantity, stands_for });
                }
                Err(why) => {
                    // A sum with a missing part is a wrong number, so nothing of this unit is counted.
                    self.notes.push(why.to_string());
                    return;
                }
            }
        }
        if !members.is_empty() {
            self.groups.push(PlannedGroup { place: Where::Uncore, cpu: cpu.0, members });
        }
    }

    /// Adds device requests at the LLC slices: those of [`cha::slice_events`](crate::cha::slice_events) or
    /// [`cha::device_events`](crate::cha::device_events).
    pub fn add_slices(
        &mut self,
        cache: &LlcCounterTable,
        units: &[CounterUnit],
        package: &CoreList,
        of: SliceEvents,
    ) {
        for (index, unit) in units.iter().enumerate() {
            self.add(unit, package, of(cache, index, units.len()));
        }
    }

    /// Adds bytes at the memory controllers.
    pub fn add_memory(&mut self, memory: &MemoryCounterTable, units: &[CounterUnit], package: &CoreList) {
        for unit in units {
            self.add(unit, package, memory_events(memory));
        }
    }

    /// Adds bytes at the root ports in `parts`, by the port's index: from free-running counters where the kernel
    /// names them, else from programmed ones while any are left.
    pub fn add_ports(
        &mut self,
        root: &Root,
        iio: &Iio,
        parts: &[(u8, StackPart)],
        units: &IioUnits,
        package: &CoreList,
    ) {
        // The kernel's scale of a free-running event is not used: it differs between kernels by a factor of 8, the
        // register does not (hardware.md 4.2). An event that cannot be read counts as not offered; the port is then
        // counted otherwise or noted as missing.
        let running = |place: StackPart, set: &FreeRunningSet| {
            let name = format!("{}{}", set.event.as_ref()?, place.part);
            of_stack(&units.running, place.stack)?.event(root, &name).ok().flatten().map(|event| event.terms)
        };
        let may_program = |stack: u16| of_stack(&units.programmed, stack).is_some();
        for events in stack_events(iio, parts, running, may_program) {
            self.notes.extend(events.missing);
            let stack = events.stack;
            let free = events.running.into_iter();
            let free = free.map(|(terms, quantity, stands_for)| BoxEvent { terms, quantity, stands_for });
            for (units, events) in [(&units.running, free.collect()), (&units.programmed, events.programmed)]
            {
                if let Some(unit) = of_stack(units, stack).filter(|_| !events.is_empty()) {
                    self.add(unit, package, events);
                }
            }
        }
    }
}

/// The units of the PCIe stacks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct IioUnits {
    /// Units whose counters must be programmed.
    pub programmed: Vec<CounterUnit>,
    /// Units with free-running counters.
    pub running: Vec<CounterUnit>,
}

/// The N of `uncore_iio_N`.
pub fn number(unit: &CounterUnit) -> Option<u16> {
    unit.name.rsplit_once('_')?.1.parse().ok()
}

fn of_stack(units: &[CounterUnit], stack: u16) -> Option<&CounterUnit> {
    units.iter().find(|unit| number(unit) == Some(stack))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cha::slice_events;
    use crate::counting::{DcaQuantity, SampledQuantity};
    use crate::event_source::EncodedEvent;
    use std::path::Path;
    use waykeeper_generations::{Generation, Pmu};
    use waykeeper_units::CoreId;

    /// A unit as a kernel shows it: the formats of the table, CPUs 0 and 18 of two packages.
    fn unit(pmu: &Pmu, name: &str, kind: u32) -> CounterUnit {
        let format = |(term, field): (&String, &waykeeper_generations::Field)| {
            let format = crate::event_source::TermFormat::parse(Path::new("format"), &field.format).unwrap();
            (term.clone(), format)
        };
        let cpumask = Some(vec![CoreId(0), CoreId(18)].into());
        CounterUnit { name: name.to_owned(), kind, cpumask, formats: pmu.fields.iter().map(format).collect() }
    }

    fn second_package() -> CoreList {
        (18..36).map(CoreId).collect::<Vec<_>>().into()
    }

    #[test]
    fn skylakes_slices_are_one_read_each_on_the_packages_own_cpu() {
        let cache = Generation::by_id("skx").unwrap().cache.as_ref().unwrap();
        let units: Vec<CounterUnit> =
            (0..4).map(|n| unit(&cache.pmu, &format!("uncore_cha_{n}"), 20 + n)).collect();
        let mut plan = UncorePlan::default();
        plan.add_slices(cache, &units, &second_package(), slice_events);
        assert_eq!(plan.notes, [""; 0]);
        assert_eq!(plan.groups.len(), 4);
        assert!(plan.groups.iter().all(|group| group.cpu == 18 && group.place == Where::Uncore));
        let hit = &plan.groups[0].members[0];
        // hardware.md 3.2: event 0x35, umask 0x14; config1 is Filter1 0x49033 from bit 32.
        assert_eq!(hit.event, EncodedEvent { pmu: 20, config: [0x1435, 0x4_9033_0000_0000, 0] });
        assert_eq!((hit.quantity, hit.stands_for), (SampledQuantity::Dca(DcaQuantity::WriteHits), 2.0));
        assert_eq!(plan.groups[3].members[1].quantity, SampledQuantity::Dca(DcaQuantity::ReadMisses));
    }

    #[test]
    fn ice_lakes_slices_hold_four_events() {
        let cache = Generation::by_id("icx").unwrap().cache.as_ref().unwrap();
        let mut plan = UncorePlan::default();
        plan.add_slices(cache, &[unit(&cache.pmu, "uncore_cha_0", 9)], &second_package(), slice_events);
        // hardware.md 3.2: umask 0xcc43fe04 is raw 0x00CC43FE_00000435.
        let miss = &plan.groups[0].members[1];
        assert_eq!(miss.event, EncodedEvent { pmu: 9, config: [0x00cc_43fe_0000_0435, 0, 0] });
        assert_eq!(plan.groups[0].members.len(), 4);
    }

    #[test]
    fn memory_and_ports_without_names_are_programmed_and_what_is_missing_is_reported() {
        let generation = Generation::by_id("skx").unwrap();
        let (memory, iio) = (generation.memory.as_ref().unwrap(), generation.iio.as_ref().unwrap());
        let mut plan = UncorePlan::default();
        plan.add_memory(memory, &[unit(&memory.pmu, "uncore_imc_0", 5)], &second_package());
        let configs: Vec<u64> = plan.groups[0].members.iter().map(|member| member.event.config[0]).collect();
        assert_eq!(configs, [0x304, 0xc04]);
        let units = IioUnits { programmed: vec![unit(&iio.pmu, "uncore_iio_2", 6)], running: vec![] };
        let parts = [
            (0, StackPart { stack: 2, part: 0 }),
            (1, StackPart { stack: 2, part: 1 }),
            (2, StackPart { stack: 3, part: 0 }),
        ];
        plan.add_ports(&Root::at("/nowhere"), iio, &parts, &units, &second_package());
        assert_eq!(plan.groups.len(), 2);
        // hardware.md 4.1: ch_mask from bit 36, fc_mask from 44.
        assert_eq!(plan.groups[1].members[0].event.config[0], 0x7010_0000_0183);
        assert_eq!(plan.notes.len(), 4, "two of port 1, two of port 2: {:?}", plan.notes);
    }

    #[test]
    fn a_unit_of_another_package_or_of_another_kernel_is_reported() {
        let cache = Generation::by_id("skx").unwrap().cache.as_ref().unwrap();
        let mut strange = unit(&cache.pmu, "uncore_cha_0", 9);
        strange.formats.remove("filter_nm");
        let mut plan = UncorePlan::default();
        plan.add_slices(cache, &[strange], &second_package(), slice_events);
        plan.add_slices(
            cache,
            &[unit(&cache.pmu, "uncore_cha_0", 9)],
            &vec![CoreId(40)].into(),
            slice_events,
        );
        assert!(plan.groups.is_empty());
        assert!(plan.notes[0].starts_with("uncore_cha_0 has no term `filter_nm`"), "{:?}", plan.notes);
        assert_eq!(plan.notes[1], "uncore_cha_0: no CPU of the managed socket can read it");
    }
}
