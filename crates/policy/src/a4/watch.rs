//! The states after the search: Stable and Revert (algorithms.md 3.5, 3.6, 3.8, 3.9).
//!
//! In Stable every sample is tested, and a finding counts after several samples in a row. A sample without the needed
//! counters restarts the count, so that missing counters never cause a decision. It must not know how counters are
//! read.

use super::detect::{self, hit_ratio, lost_hits, moved, percent, phase_changed};
use super::machine::{Machine, State};
use super::measure::Window;
use super::workloads::event;
use crate::{Cause, Event};
use waykeeper_host::{Interval, Priority};
use waykeeper_units::WorkloadId;

impl Machine {
    /// Stable: no knob changes; tests each sample for a reason to search again or to revert.
    pub(super) fn stable(&mut self, seen: &Interval, log: &mut Vec<Event>) {
        if self.gather(seen) {
            let sample = Window::of(seen);
            self.keep_hits(&sample, seen);
            // Antagonists come first: when storage starts to leak, HPWs lose hits in the same samples. The antagonist
            // must be flagged before the new search starts.
            let storage = self.find_leaks(&sample, seen.to_ns, log);
            let non_io_antagonists = self.find_non_io_antagonists(&sample, log);
            let restored = self.restore_storage(&sample, seen.to_ns, log)
                | self.restore_non_io_antagonists(&sample, seen, log);
            if storage || non_io_antagonists || restored || self.find_phase_change(&sample, log) {
                return self.reset(Some(seen.to_ns), log);
            }
        }
        let asks = self.config.revert != 0.0 && !self.workloads.high().is_empty();
        if asks && self.is_due(seen, self.config.stable_interval_s) {
            log.push(event("revert", None, "back to the initial partitions for one measurement".to_owned()));
            self.enter(State::Revert, Some(seen.to_ns));
        }
    }

    /// Revert: measures the hit ratios that HPWs could have under the initial partitions (algorithms.md 3.8 case 3).
    pub(super) fn revert(&mut self, seen: &Interval, log: &mut Vec<Event>) {
        // The try is too short for a settling time: every sample counts.
        self.window.add(seen);
        if !self.is_due(seen, self.config.revert_interval_s) {
            return;
        }
        let high = self.workloads.high();
        for id in &high {
            if let Some((reason, causes)) = self.attainable_differs(*id) {
                log.push(Event {
                    causes,
                    ..event("revert-changed", Some(&self.workloads.name(*id)), reason)
                });
                return self.reset(Some(seen.to_ns), log);
            }
        }
        for id in high {
            let attainable = hit_ratio(&self.config, &self.window, id);
            if let Some(member) = self.workloads.members.get_mut(&id) {
                member.hit_initial = attainable.or(member.hit_initial);
            }
        }
        let text = format!("the initial partitions are not better; back to LP zone {}", self.lp_text());
        log.push(event("revert-unchanged", None, text));
        self.enter(State::Stable, Some(seen.to_ns));
    }

    /// Reason and causes if the hit ratio that an HPW could have differs from its present one or from its record.
    fn attainable_differs(&self, id: WorkloadId) -> Option<(String, Vec<Cause>)> {
        let member = self.workloads.members.get(&id)?;
        let name = &member.group.name;
        let attainable = hit_ratio(&self.config, &self.window, id)?;
        if let Some(now) = member.hit_last
            && let Some(causes) = lost_hits(&self.config, name, attainable, now)
        {
            let (could, has) = (percent(attainable), percent(now));
            return Some((format!("{name} could hit {could} but hits {has}"), causes));
        }
        let initial = member.hit_initial?;
        let causes = detect::moved_hits(&self.config, name, initial, attainable)?;
        let (could, record) = (percent(attainable), percent(initial));
        Some((format!("{name} could hit {could}, its initial record says {record}"), causes))
    }

    /// Stores the hit ratios that later tests compare with.
    fn keep_hits(&mut self, sample: &Window, seen: &Interval) {
        let settled = self.is_measured(seen);
        for id in self.workloads.high() {
            let last = hit_ratio(&self.config, sample, id);
            let average = hit_ratio(&self.config, &self.window, id);
            let Some(member) = self.workloads.members.get_mut(&id) else { continue };
            member.hit_last = last.or(member.hit_last);
            if settled && member.hit_settled.is_none() {
                member.hit_settled = average;
            }
        }
    }

    /// Storage antagonists (algorithms.md 3.5): their ports lose DCA, they move to the LP zone. True if any was found.
    fn find_leaks(&mut self, sample: &Window, now_ns: u64, log: &mut Vec<Event>) -> bool {
        if !self.variant.has_selective_dca() {
            return false;
        }
        let mut found = false;
        for at in 0..self.workloads.units.len() {
            let unit = &self.workloads.units[at];
            let ports = unit.ports.intersection(&self.wiring.switchable).copied().collect();
            let tested = !unit.flagged && now_ns >= unit.holdoff_until_ns && !unit.ports.is_disjoint(&ports);
            let causes = if tested {
                detect::leaks(&self.config, sample, unit, &self.wiring.known_ports)
            } else {
                None
            };
            let throughput = sample.inbound(&unit.ports);
            let names = self.workloads.names(&unit.members);
            let alone = (unit.members.len() == 1).then_some(names.as_str());
            let event = causes.map(|causes| {
                let text = self.leak_text(&names, &self.wiring.addresses(&ports), &causes);
                Event { causes, ..event("storage-antagonist", alone, text) }
            });
            let unit = &mut self.workloads.units[at];
            unit.leak_streak = if event.is_some() { unit.leak_streak + 1 } else { 0 };
            if let Some(event) = event
                && f64::from(unit.leak_streak) >= self.config.samples_in_a_row
            {
                (unit.flagged, unit.throughput, unit.restore_streak) = (true, throughput, 0);
                log.push(event);
                found = true;
            }
        }
        found
    }

    fn leak_text(&self, names: &str, addresses: &str, causes: &[Cause]) -> String {
        let value = |at: usize| causes.get(at).map_or(String::new(), |cause| percent(cause.value));
        let config = &self.config;
        format!(
            "DCA off on port {addresses}: {names} leaks (DCA write miss {} > {}, LLC miss {} > {}, storage {} of \
             inbound > {})",
            value(0),
            percent(config.dmalk_dca_ms_thr),
            value(1),
            percent(config.dmalk_llc_ms_thr),
            value(2),
            percent(config.dmalk_io_tp_thr),
        )
    }

    /// Non-I/O antagonists (algorithms.md 3.6). True if any was found.
    fn find_non_io_antagonists(&mut self, sample: &Window, log: &mut Vec<Event>) -> bool {
        let ids: Vec<WorkloadId> = self.workloads.members.keys().copied().collect();
        let mut found = false;
        for id in ids {
            let causes = self.non_io_antagonist(sample, id);
            let needed = self.config.samples_in_a_row;
            let Some(member) = self.workloads.members.get_mut(&id) else { continue };
            member.antagonist_streak = if causes.is_some() { member.antagonist_streak + 1 } else { 0 };
            if let Some(causes) = causes
                && f64::from(member.antagonist_streak) >= needed
            {
                self.flag_non_io_antagonist(sample, id, causes, log);
                found = true;
            }
        }
        found
    }

    /// Storage antagonists whose throughput changed get their class and DCA back (algorithms.md 3.9). True if any did:
    /// DCA affects all workloads, so the search starts again.
    fn restore_storage(&mut self, sample: &Window, now_ns: u64, log: &mut Vec<Event>) -> bool {
        let mut restored = false;
        let thr = ("restore_storage_thr", self.config.restore_storage_thr);
        for at in 0..self.workloads.units.len() {
            let unit = &self.workloads.units[at];
            let now = sample.inbound(&unit.ports);
            if !unit.flagged {
                continue;
            }
            let names = self.workloads.names(&unit.members);
            let addresses = self.wiring.addresses(&unit.ports);
            let compared = unit.throughput.zip(now);
            let what = format!("storage throughput of {names} changed");
            let cause = compared.and_then(|(base, now)| moved(&self.config, what, base, now, thr));
            let alone = (unit.members.len() == 1).then(|| names.clone());
            let unit = &mut self.workloads.units[at];
            // A unit whose workloads changed has no reference value until now.
            unit.throughput = unit.throughput.or(now);
            unit.restore_streak = if cause.is_some() { unit.restore_streak + 1 } else { 0 };
            if let Some(cause) = cause
                && f64::from(unit.restore_streak) >= self.config.samples_in_a_row
            {
                (unit.flagged, unit.throughput, unit.leak_streak, unit.restore_streak) = (false, None, 0, 0);
                unit.holdoff_until_ns = now_ns.saturating_add((self.config.holdoff_s * 1e9) as u64);
                let text = format!(
                    "DCA on again on port {addresses}: throughput of {names} changed by {} > {}",
                    percent(cause.value),
                    percent(thr.1)
                );
                let causes = vec![cause];
                log.push(Event { causes, ..event("storage-restored", alone.as_deref(), text) });
                restored = true;
            }
        }
        restored
    }

    /// Non-I/O antagonists whose miss ratios changed lose the flag (algorithms.md 3.9). True if one of them is an HPW
    /// again; an LPW only moves back to the LP zone.
    fn restore_non_io_antagonists(&mut self, sample: &Window, seen: &Interval, log: &mut Vec<Event>) -> bool {
        let ids: Vec<WorkloadId> = self.workloads.members.keys().copied().collect();
        let mut high_restored = false;
        for id in ids {
            let now = self.misses(sample, id);
            let config = &self.config;
            let Some(member) = self.workloads.members.get_mut(&id) else { continue };
            let Some(before) = member.antagonist else { continue };
            let name = member.group.name.clone();
            let llc_thr = ("restore_llc_miss_thr", config.restore_llc_miss_thr);
            let mlc_thr = ("restore_mlc_miss_thr", config.restore_mlc_miss_thr);
            let llc = before.llc.zip(now.llc);
            let mlc = before.mlc.zip(now.mlc);
            let llc = llc
                .and_then(|(a, b)| moved(config, format!("LLC miss ratio of {name} changed"), a, b, llc_thr));
            let mlc = mlc
                .and_then(|(a, b)| moved(config, format!("MLC miss ratio of {name} changed"), a, b, mlc_thr));
            let cause = llc.or(mlc);
            member.restore_streak = if cause.is_some() { member.restore_streak + 1 } else { 0 };
            if let Some(cause) = cause
                && f64::from(member.restore_streak) >= config.samples_in_a_row
            {
                (member.antagonist, member.antagonist_streak, member.restore_streak) = (None, 0, 0);
                let high = member.group.priority == Priority::High;
                let class = if high { "HPW" } else { "LPW" };
                let text = format!("{name} is an {class} again: {} by {}", cause.what, percent(cause.value));
                log.push(Event { causes: vec![cause], ..event("restored", Some(&name), text) });
                high_restored |= high;
                self.changed_ns = Some(seen.to_ns);
            }
        }
        high_restored
    }

    /// Phase changes of HPWs (algorithms.md 3.8 case 2). True if any was found.
    fn find_phase_change(&mut self, sample: &Window, log: &mut Vec<Event>) -> bool {
        for id in self.workloads.high() {
            let now = hit_ratio(&self.config, sample, id);
            let Some(member) = self.workloads.members.get(&id) else { continue };
            let name = member.group.name.clone();
            let (initial, settled) = (member.hit_initial, member.hit_settled);
            let found = now.and_then(|now| match initial {
                Some(_) => phase_changed(&self.config, &name, initial, settled, now).map(|causes| {
                    (format!("{name} hits {}, {}", percent(now), record_text(initial, settled)), causes)
                }),
                None => Some(self.woke_up(sample, id, &name)),
            });
            let Some(member) = self.workloads.members.get_mut(&id) else { continue };
            member.phase_streak = if found.is_some() { member.phase_streak + 1 } else { 0 };
            if let Some((text, causes)) = found
                && f64::from(member.phase_streak) >= self.config.samples_in_a_row
            {
                log.push(Event {
                    causes,
                    ..event("phase-change", Some(&name), format!("phase change: {text}"))
                });
                return true;
            }
        }
        false
    }

    /// Event for an HPW that was idle at the initial record: no hit ratio of it was considered in the search.
    fn woke_up(&self, sample: &Window, id: WorkloadId, name: &str) -> (String, Vec<Cause>) {
        let references = sample.llc_references(id).unwrap_or(0.0);
        let cause = self.config.cause(format!("LLC references of {name}"), references, "min_llc_refs");
        (format!("{name} was idle at the initial record and is active now"), vec![cause])
    }
}

/// The reference values of a phase change, for messages.
fn record_text(initial: Option<f64>, settled: Option<f64>) -> String {
    let text = |value: Option<f64>| value.map_or("unknown".to_owned(), percent);
    format!("after {} in the initial record and {} when it settled", text(initial), text(settled))
}
