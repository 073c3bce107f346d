//! Results of a probe run, as values and as rows of a report.
//!
//! Must not know how they were measured, nor where they are shown.

use crate::ports::{PortVerdict, Reach, Switch};
use crate::register::{RegisterEffect, RegisterVerdict};
use crate::sensitivity::{AppVerdict, Sensitivity};
use crate::slide::{Slide, SlideSample};
use crate::stats;
use crate::sweep::LoadSweep;
use crate::verdict::{Confidence, ProbeAnswer, ProbeVerdict};
use serde::{Deserialize, Serialize};
use waykeeper_host::{Inventory, Platform};
use waykeeper_units::WayMask;

/// A quantity over the windows of a slide.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// Short name, part of file and element names.
    pub id: String,
    /// Its title.
    pub title: String,
    /// One line per position of the other groups: window, mean and standard error, 0 to 1.
    pub lines: Vec<Vec<(WayMask, f64, f64)>>,
}

impl Curve {
    /// The curve of one quantity of a slide.
    pub fn of(id: &str, title: &str, slide: &Slide, number: impl Fn(&SlideSample) -> Option<f64>) -> Curve {
        let placed = slide.placed(number);
        let stages = placed.iter().map(|one| one.stage + 1).max().unwrap_or(0);
        let line = |stage: usize| {
            let of_stage = placed.iter().filter(|one| one.stage == stage);
            let points = of_stage.filter_map(|one| {
                let mean = stats::mean(&one.samples)?;
                Some((one.position, mean.value, mean.error))
            });
            points.collect()
        };
        Curve { id: id.to_owned(), title: title.to_owned(), lines: (0..stages).map(line).collect() }
    }
}

/// All answers of a run; procedures that were not requested are missing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Findings {
    /// The machine.
    pub platform: Platform,
    /// Ways of its LLC.
    pub llc_ways: u32,
    /// The ways that device writes allocate in.
    pub dca_ways: Option<ProbeVerdict<WayMask>>,
    /// The ways that lines move to when cores read them; `None` inside if there are none.
    pub inclusive_ways: Option<ProbeVerdict<Option<WayMask>>>,
    /// The register of the DCA ways.
    pub register: Option<RegisterVerdict>,
    /// Root ports.
    pub ports: Vec<PortVerdict>,
    /// Applications.
    pub sensitivity: Vec<AppVerdict>,
    /// Sweeps.
    pub sweeps: Vec<LoadSweep>,
    /// Curves of the slides.
    pub curves: Vec<Curve>,
    /// Failed procedures, and why.
    pub failures: Vec<String>,
}

/// One row of the report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The question.
    pub question: String,
    /// The answer, or `cannot tell`.
    pub answer: String,
    /// `high`, `moderate` or empty.
    pub confidence: String,
    /// What a register or a table reports.
    pub register: String,
    /// The measured numbers; or why there is no answer and what would help. A sentence each.
    pub evidence: Vec<String>,
}

impl Row {
    fn of<T>(question: String, verdict: &ProbeVerdict<T>, word: impl Fn(&T) -> String) -> Row {
        let (answer, mut evidence) = match &verdict.answer {
            ProbeAnswer::Found(value) => (word(value), Vec::new()),
            ProbeAnswer::CannotTell { why, help } => {
                let help = Some(format!("what would help: {help}")).filter(|_| !help.is_empty());
                ("cannot tell".to_owned(), std::iter::once(why.clone()).chain(help).collect())
            }
        };
        evidence.extend(verdict.evidence.iter().cloned());
        let confidence = match verdict.confidence {
            Confidence::None => "",
            Confidence::Moderate => "moderate",
            Confidence::High => "high",
        };
        let register = verdict.register.clone().unwrap_or_default();
        Row { question, answer, confidence: confidence.to_owned(), register, evidence }
    }
}

impl Findings {
    /// Empty findings for this machine.
    pub fn of(inventory: &Inventory) -> Findings {
        Findings {
            platform: inventory.platform.clone(),
            llc_ways: inventory.known_llc().ways,
            dca_ways: None,
            inclusive_ways: None,
            register: None,
            ports: Vec::new(),
            sensitivity: Vec::new(),
            sweeps: Vec::new(),
            curves: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Whether there is any result: an answer, a range of accepted values, or a point of a sweep.
    pub fn found_anything(&self) -> bool {
        self.rows().iter().any(|row| row.answer != "cannot tell")
            || self.sweeps.iter().any(|sweep| !sweep.points.is_empty())
    }

    /// The rows of the report.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        if let Some(verdict) = &self.dca_ways {
            rows.push(Row::of("DCA ways".to_owned(), verdict, WayMask::to_string));
        }
        if let Some(verdict) = &self.inclusive_ways {
            let word =
                |ways: &Option<WayMask>| ways.map_or_else(|| "none".to_owned(), |ways| ways.to_string());
            rows.push(Row::of("inclusive ways".to_owned(), verdict, word));
        }
        if let Some(register) = &self.register {
            let word = |register: &RegisterEffect| {
                match register {
                    RegisterEffect::Acts => "acts",
                    RegisterEffect::NoEffect => "dead: it reads back but has no effect",
                    RegisterEffect::Absent => "cannot be set here",
                }
                .to_owned()
            };
            rows.push(Row::of("register of the DCA ways".to_owned(), &register.acts, word));
            let floor = Row::of("values that register accepts".to_owned(), &register.floor, |floor| {
                let kept = if floor.kept.is_empty() {
                    "keeps no way".to_owned()
                } else {
                    format!("keeps {}", floor.kept)
                };
                format!("{} to {} ways, from {} on, {kept}", floor.fewest, floor.most, floor.least)
            });
            rows.push(floor);
        }
        for port in &self.ports {
            let name = match port.devices.is_empty() {
                true => port.address.clone(),
                false => format!("{} ({})", port.address, port.devices.join(", ")),
            };
            let word = |switch: &Switch| {
                match switch {
                    Switch::Acts => "acts",
                    Switch::NoEffect => "dead: it reads back but has no effect",
                    Switch::Absent => "cannot be set here",
                }
                .to_owned()
            };
            rows.push(Row::of(format!("DCA switch of {name}"), &port.switch, word));
            let word = |reach: &Reach| {
                match reach {
                    Reach::ThisLlc => "into this LLC",
                    Reach::Past => "past this LLC: remote",
                }
                .to_owned()
            };
            rows.push(Row::of(format!("target of {name}'s writes"), &port.reach, word));
        }
        for app in &self.sensitivity {
            let word = |sensitivity: &Sensitivity| match sensitivity {
                Sensitivity::Low => "Low".to_owned(),
                Sensitivity::High => "High".to_owned(),
            };
            rows.push(Row::of(format!("sensitivity of {} to DCA", app.name), &app.sensitivity, word));
        }
        rows
    }
}
