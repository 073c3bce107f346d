//! Plans against a small resctrl: every step is legal, all steps reach the desired groups, and after a failed step the
//! next plan does. Must not know files.

use super::super::desired::{CpuDecision, Occupant, Wishes, desired};
use super::super::state::Maker;
use super::*;
use proptest::prelude::*;
use proptest::sample::Index;
use waykeeper_units::{CoreId, WayMask, WorkloadId};

/// CPUs of the machine; tenant n has CPUs 2n and 2n + 1, or one of them.
const CPUS: u16 = 12;
/// Classes besides the default group's: three of ours and another program's.
const CLASSES: usize = 4;

fn ours(name: &str) -> Group {
    Group::control(&format!("wk-{name}")).unwrap()
}

fn theirs() -> Group {
    Group::control("theirs").unwrap()
}

fn watched() -> Group {
    Group::DEFAULT.monitor("watched").unwrap()
}

fn list(cpus: impl IntoIterator<Item = u16>) -> CoreList {
    cpus.into_iter().map(CoreId).collect::<Vec<_>>().into()
}

/// What the kernel holds, by its own rules (fs/resctrl/rdtgroup.c).
#[derive(Clone, PartialEq, Eq, Debug)]
struct Kernel {
    cpus: BTreeMap<Group, CoreList>,
    masks: BTreeMap<Group, WayMask>,
    /// The group of each task.
    tasks: BTreeMap<TenantProcess, Group>,
}

impl Kernel {
    fn new(tasks: impl Iterator<Item = TenantProcess>) -> Kernel {
        let cpus =
            [(Group::DEFAULT, list(0..CPUS)), (watched(), list([1, 11])), (theirs(), CoreList::default())];
        let mut kernel = Kernel {
            cpus: cpus.into(),
            masks: BTreeMap::new(),
            tasks: tasks.map(|task| (task, Group::DEFAULT)).collect(),
        };
        kernel.set_cpus(&theirs(), &list([10])).unwrap();
        kernel
    }

    fn children(&self, group: &Group) -> Vec<Group> {
        self.cpus.keys().filter(|own| own.is_monitor() && own.parent() == *group).cloned().collect()
    }

    fn set_cpus(&mut self, group: &Group, cpus: &CoreList) -> Result<(), String> {
        let before = self.cpus.get(group).cloned().ok_or("there is no such group")?;
        let lost = before.without(cpus);
        if group.is_monitor() {
            if !cpus.without(&self.cpus[&group.parent()]).is_empty() {
                return Err("CPUs outside the control group".to_owned());
            }
            for sibling in self.children(&group.parent()) {
                let left = self.cpus[&sibling].without(cpus);
                self.cpus.insert(sibling, left);
            }
        } else {
            if group.is_default() && !lost.is_empty() {
                return Err("the default group keeps its CPUs".to_owned());
            }
            let others: Vec<Group> = self.cpus.keys().filter(|own| own.parent() != *group).cloned().collect();
            for other in others {
                let left = self.cpus[&other].without(cpus);
                self.cpus.insert(other, left);
            }
            // As the kernel does at each write (linux rdtgroup.c, cpus_ctrl_write).
            for child in self.children(group) {
                self.cpus.insert(child, CoreList::default());
            }
            let default = self.cpus[&Group::DEFAULT].with(&lost);
            self.cpus.insert(Group::DEFAULT, default);
        }
        self.cpus.insert(group.clone(), cpus.clone());
        Ok(())
    }

    fn remove(&mut self, group: &Group) -> Result<(), String> {
        let inside =
            [vec![group.clone()], if group.is_monitor() { vec![] } else { self.children(group) }].concat();
        let place = if group.is_monitor() { group.parent() } else { Group::DEFAULT };
        if !group.is_monitor() {
            self.set_cpus(group, &CoreList::default())?;
        }
        for own in &inside {
            self.cpus.remove(own).ok_or("there is no such group")?;
            self.masks.remove(own);
        }
        self.tasks.values_mut().filter(|task| inside.contains(task)).for_each(|task| *task = place.clone());
        Ok(())
    }

    fn run(&mut self, step: &AllocationStep) -> Result<(), String> {
        match step {
            AllocationStep::Make(group) => {
                let classes = self.cpus.keys().filter(|own| !own.is_monitor() && !own.is_default()).count();
                if self.cpus.contains_key(group) {
                    return Err("it exists".to_owned());
                }
                if !group.is_monitor() && classes == CLASSES {
                    return Err("out of classes".to_owned());
                }
                if !self.cpus.contains_key(&group.parent()) && group.is_monitor() {
                    return Err("no control group".to_owned());
                }
                self.cpus.insert(group.clone(), CoreList::default());
            }
            AllocationStep::Remove(group) => self.remove(group)?,
            AllocationStep::Mask(group, mask) => {
                self.cpus.get(group).ok_or("there is no such group")?;
                self.masks.insert(group.clone(), *mask);
            }
            AllocationStep::Cpus(group, cpus) => self.set_cpus(group, cpus)?,
            AllocationStep::Move(group, _, tasks) => {
                self.cpus.get(group).ok_or("there is no such group")?;
                for task in tasks {
                    if group.is_monitor() && self.tasks[task].parent() != group.parent() {
                        return Err("the task is in another control group".to_owned());
                    }
                    self.tasks.insert(*task, group.clone());
                }
            }
        }
        Ok(())
    }

    /// Each CPU is in one control group and in at most one monitoring group, which is in that one.
    fn check(&self) {
        for cpu in 0..CPUS {
            let inside: Vec<&Group> = self
                .cpus
                .iter()
                .filter(|(_, cpus)| cpus.contains(CoreId(cpu)))
                .map(|(group, _)| group)
                .collect();
            let control: Vec<_> = inside.iter().filter(|group| !group.is_monitor()).collect();
            assert_eq!(control.len(), 1, "CPU {cpu} is in {inside:?}");
            assert!(
                inside.len() <= 2 && inside.iter().all(|group| group.parent() == **control[0]),
                "{inside:?}"
            );
        }
    }

    /// What an observation reads. The groups of tasks are known from `record` only.
    fn observed(&self, record: &AllocationState) -> AllocationState {
        let known = |(group, cpus): (&Group, &CoreList)| {
            let maker = match group {
                own if own.is_default() => Maker::Unknown,
                own if *own == theirs() || *own == watched() => Maker::Other,
                _ => Maker::Waykeeper(None),
            };
            (
                group.clone(),
                Known { mask: self.masks.get(group).copied(), ..Known::read(maker, cpus.clone()) },
            )
        };
        AllocationState { groups: self.cpus.iter().map(known).collect(), processes: record.processes.clone() }
    }
}

/// A tenant: its CPUs of its two, its class (none: the default group), whether it leads that, its processes.
type Drawn = (u8, Option<u8>, bool, u8);

fn wishes(drawn: &[Option<Drawn>], masks: &[u32], corrects: bool) -> Wishes {
    let mut wishes = Wishes::default();
    for (id, drawn) in (0u16..).zip(drawn) {
        let Some((cpus, class, leads, processes)) = drawn else { continue };
        let class = class.map_or(Group::DEFAULT, |class| ours(&class.to_string()));
        let leads =
            *leads && !class.is_default() && wishes.occupants.iter().all(|other| other.class != class);
        wishes.occupants.push(Occupant {
            id: WorkloadId(id.into()),
            cpus: list((0..2).filter(|bit| cpus & 1 << bit != 0).map(|bit| 2 * id + bit)),
            processes: (0..*processes).map(|own| process(id, own)).collect(),
            monitor: (!leads).then(|| class.monitor(&format!("wk-{id}")).unwrap()),
            class,
        });
    }
    for (class, mask) in masks.iter().enumerate().filter(|(_, mask)| **mask > 0) {
        wishes.masks.insert(ours(&class.to_string()), WayMask::from_bits(*mask));
    }
    if corrects {
        for own in &wishes.occupants {
            let decision = CpuDecision { corrects, ..CpuDecision::default() };
            wishes.decisions.insert(own.class.clone(), decision);
        }
    }
    wishes
}

fn process(tenant: u16, number: u8) -> TenantProcess {
    TenantProcess::at(u32::from(100 + 10 * tenant) + u32::from(number), 1)
}

fn all_processes() -> impl Iterator<Item = TenantProcess> {
    (0..CPUS / 2).flat_map(|tenant| (0..2).map(move |own| process(tenant, own)))
}

fn drawn() -> impl Strategy<Value = Vec<Option<Drawn>>> {
    let tenant = (0u8..4, prop::option::of(0u8..3), any::<bool>(), 0u8..3);
    prop::collection::vec(prop::option::of(tenant), usize::from(CPUS / 2))
}

fn masks() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0u32..4, 3)
}

/// What another program does to the groups.
#[derive(Clone, Debug)]
enum Disturbance {
    Takes(u16),
    Adds(u16, Index),
    Removes(Index),
}

fn disturbance() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        (0..CPUS).prop_map(Disturbance::Takes),
        (0..CPUS, any::<Index>()).prop_map(|(cpu, group)| Disturbance::Adds(cpu, group)),
        any::<Index>().prop_map(Disturbance::Removes),
    ]
}

fn disturb(kernel: &mut Kernel, record: &mut AllocationState, disturbance: &Disturbance) {
    let own: Vec<Group> = kernel.cpus.keys().filter(|own| own.name().starts_with("wk-")).cloned().collect();
    match disturbance {
        Disturbance::Takes(cpu) => {
            let all = kernel.cpus[&theirs()].with(&list([*cpu]));
            kernel.set_cpus(&theirs(), &all).unwrap();
        }
        Disturbance::Adds(cpu, index) if !own.is_empty() => {
            let group = index.get(&own);
            let all = kernel.cpus[group].with(&list([*cpu]));
            // The kernel may refuse it.
            let _ = kernel.set_cpus(group, &all);
        }
        Disturbance::Removes(index) if !own.is_empty() => {
            kernel.remove(index.get(&own)).unwrap();
            record.remove(index.get(&own));
        }
        _ => {}
    }
}

/// Takes the steps of a plan, all legal. With `fails_at`, that step fails, half done.
fn take(kernel: &mut Kernel, record: &mut AllocationState, wishes: &Wishes, fails_at: Option<usize>) {
    let mut state = kernel.observed(record);
    let plan = plan(&state, &desired(wishes, &state));
    for (number, step) in plan.steps().enumerate() {
        if fails_at == Some(number) {
            if let AllocationStep::Move(group, tenant, tasks) = step {
                kernel
                    .run(&AllocationStep::Move(group.clone(), *tenant, tasks[..tasks.len() / 2].to_vec()))
                    .unwrap();
                state.processes.extend(tasks.iter().map(|task| (*task, None)));
            }
            break;
        }
        kernel.run(step).unwrap_or_else(|why| panic!("{step:?}: {why}\n{plan:#?}\n{kernel:#?}"));
        state.advance(step);
        kernel.check();
        assert_eq!(state, kernel.observed(&state), "{step:?}");
    }
    *record = state;
}

/// The groups are as wished, and no step is left.
fn reached(kernel: &Kernel, record: &AllocationState, wishes: &Wishes) {
    let state = kernel.observed(record);
    let desired = desired(wishes, &state);
    assert_eq!(plan(&state, &desired), AllocationPlan::default());
    for (group, cpus) in &desired.groups {
        assert_eq!(kernel.cpus.get(group), Some(cpus), "{group}");
    }
    for (group, mask) in &desired.masks {
        assert_eq!(kernel.masks.get(group), Some(mask), "{group}");
    }
    let expected = kernel.cpus.keys().filter(|own| own.name().starts_with("wk-"));
    assert!(expected.eq(desired.groups.keys()));
    let home = |task: &TenantProcess| {
        let mut all = desired.processes.iter();
        all.find(|(_, tasks)| tasks.contains(task)).map_or(Group::DEFAULT, |((group, _), _)| group.clone())
    };
    for (task, group) in &kernel.tasks {
        assert_eq!(*group, home(task), "{task:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// From any state that plans, other programs and failed steps lead to, a plan reaches the desired groups.
    #[test]
    fn every_plan_is_legal_and_reaches_what_is_desired(
        rounds in prop::collection::vec(
            (drawn(), masks(), any::<bool>(), prop::collection::vec(disturbance(), 0..3), prop::option::of(0usize..12)),
            1..5,
        ),
    ) {
        let mut kernel = Kernel::new(all_processes());
        let mut record = AllocationState::default();
        for (drawn, masks, corrects, disturbances, fails_at) in rounds {
            let wishes = wishes(&drawn, &masks, corrects);
            if fails_at.is_some() {
                take(&mut kernel, &mut record, &wishes, fails_at);
            }
            disturbances.iter().for_each(|own| disturb(&mut kernel, &mut record, own));
            take(&mut kernel, &mut record, &wishes, None);
            reached(&kernel, &record, &wishes);
        }
    }

    /// A CPU that moves from one class to another is never in the default group.
    #[test]
    fn tenants_change_classes_directly(a in drawn(), b in drawn(), masks in masks()) {
        let mut kernel = Kernel::new(all_processes());
        let mut record = AllocationState::default();
        // All three classes exist before and after, so none is removed.
        let with_all = |drawn: &[Option<Drawn>]| {
            let wishes = wishes(drawn, &masks, true);
            let kept = (0..3).map(|class| ours(&class.to_string())).collect();
            Wishes { kept, ..wishes }
        };
        for class in 0..3 {
            let step = AllocationStep::Make(ours(&class.to_string()));
            kernel.run(&step).unwrap();
        }
        take(&mut kernel, &mut record, &with_all(&a), None);
        let state = kernel.observed(&record);
        let wanted = desired(&with_all(&b), &state);
        let in_class = |cpus: &BTreeMap<Group, CoreList>| {
            let classes = cpus.iter().filter(|(group, _)| !group.is_monitor() && group.name().starts_with("wk-"));
            classes.fold(CoreList::default(), |all, (_, cpus)| all.with(cpus))
        };
        let both = in_class(&kernel.cpus).common(&in_class(&wanted.groups));
        for step in plan(&state, &wanted).steps() {
            kernel.run(step).unwrap();
            prop_assert!(kernel.cpus[&Group::DEFAULT].common(&both).is_empty(), "{step:?}");
        }
    }
}

#[test]
fn a_class_has_its_mask_before_a_tenant_enters_and_after_the_others_left() {
    let (first, second) = (ours("0"), ours("1"));
    let tenant = |id: u32, class: &Group| Occupant {
        id: WorkloadId(id),
        cpus: list([id as u16]),
        processes: Vec::new(),
        class: class.clone(),
        monitor: None,
    };
    let mask = WayMask::from_bits;
    let before = Wishes { occupants: vec![tenant(0, &first), tenant(1, &second)], ..Wishes::default() };
    let mut kernel = Kernel::new(std::iter::empty());
    let mut record = AllocationState::default();
    take(&mut kernel, &mut record, &before, None);
    // Tenant 0 joins 1, and tenant 2 gets the first class.
    let after = Wishes {
        occupants: vec![tenant(0, &second), tenant(1, &second), tenant(2, &first)],
        masks: [(first.clone(), mask(0x0f0)), (second.clone(), mask(0x00f))].into(),
        ..Wishes::default()
    };
    let state = kernel.observed(&record);
    let plan = plan(&state, &desired(&after, &state));
    let steps = [
        AllocationStep::Mask(second.clone(), mask(0x00f)),
        AllocationStep::Cpus(second, list([0, 1])),
        AllocationStep::Mask(first.clone(), mask(0x0f0)),
        AllocationStep::Cpus(first, list([2])),
    ];
    assert_eq!((plan.releases, plan.fills), (vec![], steps.to_vec()));
}
