//! What the loop knows of each knob: one record with its original setting, the setting wanted, the setting in force, the
//! owner and the retries.
//!
//! The loop compares what is wanted with what reads back and turns the difference. A knob that another program turns is
//! restored a few times and then left to that program. Must not know the policy, the host or time.

use crate::record::Problem;
use std::collections::BTreeMap;
use waykeeper_host::{Applied, Knob, KnobOutcome, KnobValues, Plan, Setting};
use waykeeper_units::WorkloadId;

/// The longest pause between two tries with a busy machine, in steps: the lock of another tool or a full disk may last,
/// and a quarter of a minute of seconds is soon enough after it ends. Assumption.
const LONGEST_PAUSE: u64 = 16;

/// The records of all knobs that were read, wanted or turned.
#[derive(Debug)]
pub(crate) struct Knobs {
    /// Times a knob is restored after another program turned it, before it is left to that program.
    take_back: u32,
    records: BTreeMap<Knob, KnobRecord>,
    /// The loop looks back: the layout as found is to be in force, whatever the policy wants.
    looks_back: bool,
}

/// One knob.
#[derive(Default, Debug)]
struct KnobRecord {
    /// What it read before the loop turned it.
    original: Option<Setting>,
    /// What the policy in charge wants: what it named last.
    wanted: Option<Setting>,
    /// What it read at the end of the last step, if that was as wanted.
    in_force: Option<Setting>,
    owner: Owner,
    /// Times another program turned it under the policy in charge.
    disputes: u32,
    /// The setting that the machine did not take.
    refused: Option<Refusal>,
}

/// Whose setting a knob has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Owner {
    /// The loop never turned it, or left it to another program.
    #[default]
    Others,
    /// The policy in charge.
    Policy,
    /// A policy that was replaced: the knob returns to its original setting unless the policy in charge wants another.
    Predecessor,
}

/// A setting that the machine did not take. It is not tried again until another is wanted, unless the machine was busy.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    setting: Setting,
    /// For a busy machine.
    retry: Option<Retry>,
}

/// When a busy machine is asked again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    /// Steps since it was asked last.
    pause: u64,
    /// First step in which it is asked again.
    step: u64,
}

impl KnobRecord {
    fn leave_to_others(&mut self) {
        (self.owner, self.original) = (Owner::Others, None);
    }
}

impl Knobs {
    /// No knob is known yet. A knob is restored `take_back` times after another program turned it.
    pub fn new(take_back: u32) -> Knobs {
        Knobs { take_back, records: BTreeMap::new(), looks_back: false }
    }

    fn record(&mut self, knob: Knob) -> &mut KnobRecord {
        self.records.entry(knob).or_default()
    }

    /// The loop begins with knobs that an earlier one turned and left in force; `originals` are their settings before
    /// that. If the policy names no knob at first, it decides from what is in force: they stay until it names them. A
    /// policy that begins with a layout of its own replaces the earlier one: the knobs that it does not name return to
    /// their original settings.
    pub fn take_over(&mut self, originals: &Plan, first: &Plan) {
        for (knob, original) in originals.iter() {
            let record = self.record(knob);
            record.original = Some(*original);
            record.owner = if first.is_empty() { Owner::Policy } else { Owner::Predecessor };
        }
    }

    /// Takes in a reading: a knob that the loop has not turned reads as its original setting.
    pub fn observe(&mut self, read: &KnobValues) {
        for (knob, setting) in read.iter() {
            let record = self.record(knob);
            if record.owner == Owner::Others {
                record.original = Some(*setting);
            }
        }
    }

    /// Compares a reading with what was in force at the end of the last step: a knob that differs was turned by another
    /// program. After too many of these changes the knob is left to that program, and the setting found is its original
    /// one from then on. A knob that is missing from the reading is compared with the next one.
    pub fn external_changes(&mut self, read: &KnobValues) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (knob, record) in &mut self.records {
            let Some(in_force) = record.in_force else { continue };
            let Some(found) = read.get(*knob).filter(|found| **found != in_force) else { continue };
            record.in_force = None;
            record.disputes += 1;
            let other_stays = record.disputes > self.take_back;
            if other_stays {
                let setting = record.wanted.unwrap_or(in_force);
                record.refused = Some(Refusal { setting, retry: None });
                (record.owner, record.original) = (Owner::Others, Some(*found));
            }
            problems.push(Problem::ExternalChange {
                knob: knob.at(in_force),
                found: knob.at(*found),
                other_stays,
            });
        }
        problems
    }

    /// Takes in what the policy names. Returns everything that is wanted now: what the policy named before, and the
    /// original settings of its predecessor's knobs that it does not name.
    pub fn want(&mut self, plan: &Plan) -> Plan {
        for (knob, setting) in plan.iter() {
            self.record(knob).wanted = Some(*setting);
        }
        self.looks_back = false;
        let mut all = Plan::default();
        for (knob, record) in &mut self.records {
            if let Some(setting) = record.wanted {
                if record.owner == Owner::Predecessor {
                    record.owner = Owner::Policy;
                }
                all.insert(*knob, setting);
            } else if record.owner == Owner::Predecessor {
                all.extend(record.original.map(|original| (*knob, original)));
            }
        }
        all
    }

    /// Begins a look back, which ends with the next call of [`Knobs::want`]. Returns what is wanted in it: of every knob
    /// that the policy turned the original setting.
    pub fn look_back(&mut self) -> Plan {
        self.looks_back = true;
        let wanted = |(knob, record): (&Knob, &KnobRecord)| {
            let original = record.original.filter(|_| record.owner != Owner::Others);
            Some((*knob, original.or(record.wanted)?))
        };
        let mut all = Plan::default();
        all.extend(self.records.iter().filter_map(wanted));
        all
    }

    /// Whether the original settings are to be in force until the next call of [`Knobs::want`].
    pub fn looks_back(&self) -> bool {
        self.looks_back
    }

    /// The layout as found, given what reads back now: of every knob that the loop turned the original setting.
    pub fn as_found(&self, read: &KnobValues) -> KnobValues {
        let turned = self.records.iter().filter(|(_, record)| record.owner != Owner::Others);
        let originals = turned.filter_map(|(knob, record)| Some((*knob, record.original?)));
        let mut all = read.clone();
        all.extend(originals.filter(|(knob, _)| read.names(*knob)));
        all
    }

    /// The part of `wanted` to turn in this step: what does not read back as wanted, without what the machine refused. A
    /// busy machine is asked again after a pause, also for another setting.
    pub fn due(&mut self, wanted: &Plan, read: &KnobValues, step: u64) -> Plan {
        let mut plan = Plan::default();
        let looks_back = self.looks_back;
        for (knob, setting) in wanted.iter() {
            let record = self.record(knob);
            let may_turn = record.refused.is_none_or(|refusal| match refusal.retry {
                Some(retry) => retry.step <= step,
                None => refusal.setting != *setting,
            });
            if read.get(knob) == Some(setting) {
                // In a look back this is not the setting that the machine refused.
                if !looks_back {
                    record.refused = None;
                }
            } else if may_turn {
                plan.insert(knob, *setting);
            }
        }
        plan
    }

    /// Notes that a plan is about to be turned. Returns the knobs that the loop had not turned before.
    pub fn turning(&mut self, plan: &Plan) -> Vec<Knob> {
        let mut first = Vec::new();
        for knob in plan.knobs() {
            let record = self.record(knob);
            if record.owner == Owner::Others {
                record.owner = Owner::Policy;
                first.push(knob);
            }
        }
        first
    }

    /// Takes in the report on knobs that were turned for the first time: one that the machine refused or was too busy to
    /// turn, and that does not read otherwise than before, is still not the loop's.
    pub fn give_up(&mut self, first: &[Knob], applied: &Applied, read: &KnobValues) {
        for knob in first {
            let not_turned =
                matches!(applied.get(*knob), Some(KnobOutcome::Refused(_) | KnobOutcome::Busy(_)));
            let record = self.record(*knob);
            if not_turned && read.get(*knob) == record.original.as_ref() {
                record.owner = Owner::Others;
            }
        }
    }

    /// Takes in the report on `plan` and what then read back, and says what went wrong. `read` is `None` if nothing
    /// could be read: then only the report counts.
    ///
    /// If a host reports a knob as applied and another setting reads back, this is a problem: otherwise the knob would
    /// be turned at every step without a message. The write was lost, or another program turned the knob after it: what
    /// reads back is not the loop's, and is its original setting from then on.
    pub fn note(
        &mut self,
        plan: &Plan,
        applied: &Applied,
        read: Option<&KnobValues>,
        step: u64,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        for knob in plan.settings() {
            let record = self.record(knob.knob);
            let in_force = read.and_then(|read| read.setting(knob.knob));
            let problem = match applied.get(knob.knob) {
                Some(KnobOutcome::Applied) if read.is_none() || in_force == Some(knob) => {
                    record.refused = None;
                    continue;
                }
                Some(KnobOutcome::Applied) => {
                    if let Some(found) = in_force {
                        (record.owner, record.original) = (Owner::Others, Some(found.setting));
                    }
                    let found =
                        in_force.map_or_else(|| "nothing".to_owned(), |found| found.setting.to_string());
                    Problem::ReadsBack { knob, found, in_force }
                }
                Some(KnobOutcome::Refused(why)) => Problem::Refused { knob, why: why.clone(), in_force },
                Some(KnobOutcome::ReadsBack(found)) => {
                    Problem::ReadsBack { knob, found: found.clone(), in_force }
                }
                Some(KnobOutcome::Busy(why)) => {
                    let last = record.refused.and_then(|refusal| refusal.retry);
                    // Exponential backoff without an end: a lock that is held for a minute delays the knob, no more.
                    let pause = last.map_or(1, |retry| (2 * retry.pause).min(LONGEST_PAUSE));
                    let retry = Some(Retry { pause, step: step + pause });
                    record.refused = Some(Refusal { setting: knob.setting, retry });
                    problems.extend(last.is_none().then(|| Problem::Busy { knob, why: why.clone() }));
                    continue;
                }
                None => {
                    let why = "the host reported no result".to_owned();
                    Problem::Refused { knob, why, in_force }
                }
            };
            record.refused = Some(Refusal { setting: knob.setting, retry: None });
            problems.push(problem);
        }
        problems
    }

    /// The end of a step: what reads back as wanted is in force, and another reading in the next step is an external
    /// change. A knob that is missing from the reading keeps its setting in force.
    pub fn confirm(&mut self, read: &KnobValues) {
        for (knob, record) in &mut self.records {
            let returned = record.original.filter(|_| record.owner == Owner::Predecessor);
            let looked_at = record.original.filter(|_| self.looks_back && record.owner != Owner::Others);
            let found = read.get(*knob).copied().or(record.in_force);
            let expected = looked_at.or(record.wanted).or(returned);
            record.in_force = expected.filter(|expected| found == Some(*expected));
        }
    }

    /// True if the policy in charge turned the knob.
    pub fn is_turned(&self, knob: Knob) -> bool {
        self.records.get(&knob).is_some_and(|record| record.owner == Owner::Policy)
    }

    /// Another policy takes over and has named nothing yet: each of its knobs is restored `take_back` times anew. Returns
    /// how many knobs its predecessor turned.
    pub fn hand_over(&mut self) -> usize {
        let mut turned = 0;
        for record in self.records.values_mut() {
            (record.wanted, record.in_force, record.disputes) = (None, None, 0);
            if record.owner == Owner::Policy {
                turned += 1;
                record.owner = if record.original.is_some() { Owner::Predecessor } else { Owner::Others };
            }
        }
        turned
    }

    /// Forgets what the machine refused: everything is tried again.
    pub fn forget_refusals(&mut self) {
        self.records.values_mut().for_each(|record| record.refused = None);
    }

    /// Every knob was to return to its original setting, and `read` is what reads back. A knob that has its original
    /// setting is the loop's no more. Returns the others with their original settings: the next plan restores them.
    pub fn settle(&mut self, read: &KnobValues) -> Plan {
        // The plan that restores a knob names it, so it counts as the policy's.
        self.hand_over();
        let mut left = Plan::default();
        for (knob, record) in &mut self.records {
            match record.original.filter(|_| record.owner == Owner::Predecessor) {
                Some(original) if read.get(*knob) != Some(&original) => left.insert(*knob, original),
                _ => record.leave_to_others(),
            }
        }
        left
    }

    /// Forgets knobs of groups that have ended.
    pub fn keep_groups(&mut self, alive: impl Fn(WorkloadId) -> bool) {
        self.records.retain(|knob, _| knob.workload().is_none_or(&alive));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_units::{PortId, WayMask};

    const MASK: Knob = Knob::Mask(WorkloadId(0));
    const DCA: Knob = Knob::Dca(PortId(1));

    fn plan(bits: u32, on: bool) -> Plan {
        Plan::from([(MASK, WayMask::from_bits(bits))]).with(DCA, on)
    }

    fn knobs() -> Knobs {
        Knobs::new(3)
    }

    #[test]
    fn knobs_that_read_back_as_wanted_are_not_turned() {
        let read = KnobValues::from([(MASK, WayMask::from_bits(0x00c))]);
        let left = knobs().due(&plan(0x00c, false), &read, 1);
        assert_eq!(left, Plan::from([(DCA, false)]));
    }

    #[test]
    fn a_refused_value_is_reported_once_and_tried_again_only_after_another() {
        let (mut knobs, nothing) = (knobs(), KnobValues::default());
        let mut answer = Applied::from([(MASK, KnobOutcome::Refused("no".to_owned()))]);
        answer.insert(DCA, KnobOutcome::Applied);
        let wanted = plan(0x00c, false);
        assert_eq!(knobs.note(&wanted, &answer, None, 1).len(), 1);
        assert!(!knobs.due(&wanted, &nothing, 1).names(MASK));
        assert!(knobs.due(&plan(0x01c, false), &nothing, 1).names(MASK));
        // It reads back after all (another program set it): forgotten, so a later loss is repaired.
        let read = KnobValues::from([(MASK, WayMask::from_bits(0x00c))]);
        knobs.due(&wanted, &read, 1);
        assert!(knobs.due(&wanted, &nothing, 1).names(MASK));
    }

    #[test]
    fn silence_about_a_knob_is_not_success() {
        assert_eq!(knobs().note(&plan(0x00c, true), &Applied::default(), None, 1).len(), 2);
    }

    #[test]
    fn a_busy_machine_is_asked_again_at_growing_distances_for_ever() {
        let (mut knobs, nothing) = (knobs(), KnobValues::default());
        let wanted = Plan::from([(MASK, WayMask::from_bits(0x00c))]);
        let mut answer = Applied::from([(MASK, KnobOutcome::Busy("locked".to_owned()))]);
        let (mut tried, mut reported) = (Vec::new(), Vec::new());
        for step in 1..=80 {
            let turn = knobs.due(&wanted, &nothing, step);
            if turn.names(MASK) {
                tried.push(step);
                reported.extend(knobs.note(&turn, &answer, None, step).iter().map(ToString::to_string));
            }
        }
        // 1, then 1, 2, 4, 8 and from then on 16 steps later.
        assert_eq!(tried, [1, 2, 4, 8, 16, 32, 48, 64, 80]);
        assert_eq!(reported, ["mask 0x00c of group 0 is retried later: locked"]);
        // The lock is free: the mask is set, and the next time the problem is reported again and retried at once.
        answer.insert(MASK, KnobOutcome::Applied);
        assert_eq!(knobs.note(&wanted, &answer, None, 80), []);
        assert!(knobs.due(&wanted, &nothing, 81).names(MASK));
    }

    #[test]
    fn a_knob_that_another_program_turns_between_the_write_and_the_reading_is_left_to_it() {
        let mut knobs = knobs();
        knobs.observe(&plan(0x7ff, true));
        let wanted = knobs.want(&plan(0x00c, false));
        knobs.turning(&wanted);
        let applied = Applied::from([(MASK, KnobOutcome::Applied), (DCA, KnobOutcome::Applied)]);
        let read = plan(0x600, false);
        let problems = knobs.note(&wanted, &applied, Some(&read), 1);
        assert!(matches!(problems[..], [Problem::ReadsBack { .. }]), "{problems:?}");
        knobs.confirm(&read);
        // At the end only DCA returns, which the loop has turned.
        assert_eq!(knobs.hand_over(), 1);
        assert_eq!(knobs.want(&Plan::default()), Plan::from([(DCA, true)]));
    }

    #[test]
    fn after_a_policy_is_replaced_its_knobs_return_unless_the_new_one_names_them() {
        let mut knobs = knobs();
        let found = plan(0x7ff, true);
        knobs.observe(&found);
        let first = knobs.want(&plan(0x00c, false));
        knobs.turning(&first);
        knobs.observe(&first);
        assert_eq!(knobs.hand_over(), 2);
        // The new policy names the mask only: DCA returns.
        let second = knobs.want(&Plan::from([(MASK, WayMask::from_bits(0x030))]));
        assert_eq!(second, plan(0x030, true));
        // At the end both return; DCA did not.
        knobs.hand_over();
        assert_eq!(knobs.want(&Plan::default()), found);
        let stuck = plan(0x7ff, false);
        assert_eq!(knobs.settle(&stuck), Plan::from([(DCA, true)]));
        assert_eq!(knobs.want(&Plan::default()), Plan::from([(DCA, true)]), "the next plan restores it");
        assert_eq!(knobs.settle(&found), Plan::default());
    }

    #[test]
    fn knobs_that_were_taken_over_return_to_what_they_were_before_both_loops() {
        let (found, in_force) = (plan(0x7ff, true), plan(0x00c, false));
        let taken_over = |first: &Plan| {
            let mut knobs = knobs();
            knobs.take_over(&found, first);
            knobs.observe(&in_force);
            let wanted = knobs.want(first);
            let due = knobs.due(&wanted, &in_force, 1);
            (knobs, due)
        };
        // A policy that names no knob leaves all as they are.
        let (mut knobs, due) = taken_over(&Plan::default());
        assert_eq!(due, Plan::default());
        assert_eq!(knobs.as_found(&in_force), found);
        knobs.hand_over();
        assert_eq!(knobs.want(&Plan::default()), found);
        // One that names the same mask leaves it, and DCA returns.
        let (mut knobs, due) = taken_over(&Plan::from([(MASK, WayMask::from_bits(0x00c))]));
        assert_eq!(due, Plan::default().with(DCA, true));
        knobs.hand_over();
        assert_eq!(knobs.want(&Plan::default()), found);
    }

    #[test]
    fn a_knob_that_another_program_keeps_turning_is_left_to_it() {
        let mut knobs = Knobs::new(1);
        knobs.observe(&plan(0x7ff, true));
        let (ours, theirs) = (plan(0x00c, false), plan(0x003, false));
        for stays in [false, true] {
            let wanted = knobs.want(&ours);
            knobs.turning(&wanted);
            knobs.confirm(&ours);
            let problems = knobs.external_changes(&theirs);
            assert!(
                matches!(problems[..], [Problem::ExternalChange { other_stays, .. }] if other_stays == stays),
                "{problems:?}"
            );
        }
        knobs.observe(&theirs);
        assert_eq!(knobs.due(&ours, &theirs, 9), Plan::default());
        knobs.hand_over();
        assert_eq!(knobs.want(&Plan::default()), Plan::from([(DCA, true)]), "the mask is not restored");
    }
}
