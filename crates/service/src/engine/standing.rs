//! What is not as it should be and lasts: who begins and who ends, so that each is told once at both ends.
//!
//! Must not know how a problem comes about.

use crate::Standing;
use crate::log::named;
use std::collections::BTreeSet;
use waykeeper_control::{Knob, Problem, Record};
use waykeeper_host::{Group, KnobValues, Plan};

/// Most of them that are shown; a host in such trouble needs no longer list. Assumption: some three for each of 64 tenants.
const MOST: usize = 200;

/// What began and what ended since the list was last made. What the log tells by other words is not in it: how a knob's
/// trouble began stands there as the step's problem.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// New.
    pub begun: Vec<Standing>,
    /// No longer so.
    pub ended: Vec<Standing>,
}

/// Kinds whose beginning and end the log tells in words of its own: a refused configuration at each refusal, blindness with
/// the reason.
pub(super) const TOLD_ELSEWHERE: [&str; 2] = ["config", "blind"];

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Standings {
    /// As last shown.
    now: BTreeSet<Standing>,
    /// What became of knobs that do not stand as wanted.
    knobs: Vec<(Knob, Standing)>,
    /// Why the last configuration was refused, and what else was said that lasts.
    pub config: Option<Standing>,
}

impl Standing {
    /// A tenant that is declared and not here: no trouble unless somebody misses it.
    pub(crate) const ABSENT: &'static str = "absent";

    pub(crate) fn new(kind: &str, text: impl Into<String>) -> Standing {
        Standing { kind: kind.to_owned(), text: text.into() }
    }
}

impl Standings {
    /// Takes in a step.
    pub fn note(&mut self, record: &Record, groups: &[Group]) {
        let alive = |knob: Knob| match knob {
            Knob::Mask(group, _) => groups.iter().any(|own| own.id == group),
            _ => true,
        };
        let is_over = |kind: &str, knob: Knob| {
            // A dead knob stays dead; one that stands as wanted, or that nobody wants any more, is no trouble.
            !alive(knob)
                || kind != "no-effect"
                    && (reads(knob, &record.knobs)
                        || !record.desired.is_empty() && !wants(knob, &record.desired))
        };
        self.knobs.retain(|(knob, standing)| !is_over(&standing.kind, *knob));
        for problem in &record.problems {
            let (kind, knob) = match problem {
                Problem::Refused { knob, .. } | Problem::ReadsBack { knob, .. } => ("refused", *knob),
                Problem::Busy { knob, .. } => ("busy", *knob),
                Problem::Outsider { knob, left: true, .. } => ("outsider", *knob),
                Problem::NoEffect { knob, .. } => ("no-effect", *knob),
                _ => continue,
            };
            self.knobs.retain(|(own, _)| !same_place(*own, knob));
            self.knobs.push((knob, Standing::new(kind, named(&problem.to_string(), groups))));
        }
    }

    /// Another policy is in charge: what was refused to the last one counts no more.
    pub fn forget_knobs(&mut self) {
        self.knobs.retain(|(_, standing)| standing.kind == "no-effect");
    }

    /// The list to show, and what is new in it and what is no longer.
    pub fn list(&mut self, others: Vec<Standing>) -> (Vec<Standing>, News) {
        let knobs = self.knobs.iter().map(|(_, standing)| standing.clone());
        let mut next: BTreeSet<Standing> = knobs.chain(self.config.clone()).chain(others).collect();
        if next.len() > MOST {
            let more = Standing::new("more", "more problems than this list holds");
            next = next.into_iter().take(MOST).chain([more]).collect();
        }
        let elsewhere = |one: &&Standing| !TOLD_ELSEWHERE.contains(&one.kind.as_str());
        let is_knob = |one: &&Standing| self.knobs.iter().any(|(_, own)| own == *one);
        let begun =
            next.difference(&self.now).filter(elsewhere).filter(|one| !is_knob(one)).cloned().collect();
        // Who comes is told as that.
        let ended = self.now.difference(&next).filter(elsewhere).filter(|one| one.kind != Standing::ABSENT);
        let ended = ended.cloned().collect();
        self.now.clone_from(&next);
        (next.into_iter().collect(), News { begun, ended })
    }
}

fn same_place(one: Knob, other: Knob) -> bool {
    match (one, other) {
        (Knob::Mask(one, _), Knob::Mask(other, _)) => one == other,
        (Knob::DcaWays(_), Knob::DcaWays(_)) => true,
        (Knob::Dca(one, _), Knob::Dca(other, _))
        | (Knob::RxRing(one, _), Knob::RxRing(other, _))
        | (Knob::RxBurst(one, _), Knob::RxBurst(other, _)) => one == other,
        _ => false,
    }
}

fn reads(knob: Knob, knobs: &KnobValues) -> bool {
    match knob {
        Knob::Mask(group, mask) => knobs.masks.get(&group) == Some(&mask),
        Knob::DcaWays(mask) => knobs.dca_ways == Some(mask),
        Knob::Dca(port, on) => knobs.dca.get(&port) == Some(&on),
        Knob::RxRing(port, ring) => knobs.rx_ring.get(&port) == Some(&ring),
        Knob::RxBurst(port, burst) => knobs.rx_burst.get(&port) == Some(&burst),
    }
}

fn wants(knob: Knob, desired: &Plan) -> bool {
    match knob {
        Knob::Mask(group, mask) => desired.masks.get(&group) == Some(&mask),
        Knob::DcaWays(mask) => desired.dca_ways == Some(mask),
        Knob::Dca(port, on) => desired.dca.get(&port) == Some(&on),
        Knob::RxRing(port, ring) => desired.rx_ring.get(&port) == Some(&ring),
        Knob::RxBurst(port, burst) => desired.rx_burst.get(&port) == Some(&burst),
    }
}
