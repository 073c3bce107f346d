//! The file of experiments: its keys, and what they must be.
//!
//! Refuses what a run could not do, with file, experiment, key and what is accepted.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use waykeeper_units::{one_line, shown};

/// Name and text of every file that comes with the program, in the order in which results are shown.
const SHIPPED: [(&str, &str); 3] = [
    ("emr-h200.toml", include_str!("../../../experiments/emr-h200.toml")),
    ("emr-h100.toml", include_str!("../../../experiments/emr-h100.toml")),
    ("emr-h100-cores.toml", include_str!("../../../experiments/emr-h100-cores.toml")),
];

/// Experiments of one machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// One line for people.
    pub about: String,
    /// Where the measured values are from.
    pub source: String,
    /// Capacity of one LLC way of the machine that was measured, MiB. Sizes are scaled by the ratio of the chip's own.
    pub way_mib: f64,
    /// Which of the random layouts of memory the machine had, if that is known; else each machine has another.
    pub(crate) layout: Option<u64>,
    pub(crate) pace: Pace,
    pub(crate) neighbours: Option<Neighbours>,
    /// MiB of each piece of memory.
    pub(crate) regions: BTreeMap<String, f64>,
    /// The experiments, in order.
    #[serde(rename = "experiment")]
    pub experiments: Vec<MeasuredExperiment>,
}

/// How long steps take that no latency of the chip says. The neighbours go on meanwhile.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pace {
    /// Of the device, in both directions, GB/s (10^9 bytes).
    pub device_gb_per_s: f64,
    /// From the call to the first byte, and from the last byte to the return, us.
    pub device_start_us: f64,
    /// Per line that is flushed, ns.
    pub flush_ns: f64,
    /// From the last step to the middle of the sample, us.
    pub sample_us: f64,
}

/// What other tenants of the chip do all the time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Neighbours {
    /// Their devices write, GB/s.
    pub device_gb_per_s: f64,
    /// Their cores read and never again, GB/s.
    pub stream_gb_per_s: f64,
    /// Their cores read at random,
    pub reuse_gb_per_s: f64,
    /// from so much memory, MiB.
    pub reuse_mib: f64,
}

/// One experiment: the same steps for each row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredExperiment {
    /// Its name; unique in its file.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// What `x` is, with its unit.
    pub x: String,
    /// Of the loads that the LLC serves, the share that the threshold of the measurement took for hits.
    #[serde(default = "one")]
    pub llc_hits_seen: f64,
    pub(crate) steps: Vec<Step>,
    pub(crate) sample: Sample,
    /// `x` and the measured share of hits.
    pub rows: Vec<(f64, f64)>,
}

fn one() -> f64 {
    1.0
}

/// A number, or the `x` of the row.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Quantity {
    Number(f64),
    Name(String),
}

impl Quantity {
    pub fn of(&self, x: f64) -> f64 {
        match self {
            Quantity::Number(number) => *number,
            Quantity::Name(_) => x,
        }
    }
}

fn nothing() -> Quantity {
    Quantity::Number(0.0)
}

fn once() -> Quantity {
    Quantity::Number(1.0)
}

/// A part of a region.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    pub region: String,
    /// Where it starts, MiB.
    #[serde(default = "nothing")]
    pub at: Quantity,
    pub mib: Quantity,
}

/// Cores go over a part of a region.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Walk {
    pub region: String,
    #[serde(default = "nothing")]
    pub at: Quantity,
    /// MiB a core.
    pub mib: Quantity,
    /// So many cores at once, each in the part after that of the core before it.
    #[serde(default = "once")]
    pub cores: Quantity,
    #[serde(default = "once")]
    pub passes: Quantity,
    /// In one random order instead of that of the addresses.
    #[serde(default)]
    pub random: bool,
}

/// One step of a trial.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum Step {
    /// Lines leave all caches.
    Flush(Part),
    /// The device writes whole lines, in order.
    DeviceWrite(Part),
    /// The device reads, in order.
    DeviceRead(Part),
    /// Cores read a load per line.
    Read(Walk),
    /// Cores write a store per line.
    Write(Walk),
    /// Nothing of ours happens.
    Wait(Wait),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    pub us: Quantity,
}

/// What is looked at after the steps: every simulated line of a part, by the cores that walked it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sample {
    pub region: String,
    #[serde(default = "nothing")]
    pub at: Quantity,
    /// MiB a core.
    pub mib: Quantity,
    #[serde(default = "once")]
    pub cores: Quantity,
}

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// It could not be read.
    #[error("{}: {why}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Not TOML, or not the keys that experiments have.
    #[error("{file}: {}", one_line(.why))]
    Syntax {
        /// The file.
        file: String,
        /// The line and the parser's message.
        why: String,
    },
    /// A value that no run could use.
    #[error("{file}: `{key}` is {}; it must be {wanted}", shown(.value))]
    Value {
        /// The file.
        file: String,
        /// Experiment and key.
        key: String,
        /// The value found.
        value: String,
        /// What is accepted.
        wanted: String,
    },
    /// The memory of the chip is too small.
    #[error("{file}: its regions and neighbours need more memory than the chip has: {why}")]
    Memory {
        /// The file.
        file: String,
        /// What was asked for, and what there is.
        why: waykeeper_silicon::OutOfMemory,
    },
}

impl ExperimentFile {
    /// The files that come with the program, by name.
    pub fn shipped() -> Vec<(String, ExperimentFile)> {
        let parsed = |(name, text): (&str, &str)| {
            let file = ExperimentFile::parse(name, text);
            (name.to_owned(), file.expect("a test parses every file that comes with the program"))
        };
        SHIPPED.map(parsed).into()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or [`ExperimentFile::parse`] refuses it.
    pub fn read(path: &Path) -> Result<ExperimentFile, ExperimentError> {
        let text = waykeeper_bounded_read::text(path, "a file of experiments");
        let text =
            text.map_err(|why| ExperimentError::Read { path: path.to_owned(), why: why.to_string() })?;
        ExperimentFile::parse(&path.display().to_string(), &text)
    }

    /// The experiments of a text; `file` is for error messages.
    ///
    /// # Errors
    /// Syntax, unknown keys, and values that no run could use, each with file and key.
    pub fn parse(file: &str, text: &str) -> Result<ExperimentFile, ExperimentError> {
        let syntax = |error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let at =
                before.map_or_else(String::new, |text| format!("line {}: ", text.matches('\n').count() + 1));
            ExperimentError::Syntax { file: file.to_owned(), why: format!("{at}{}", error.message().trim()) }
        };
        let parsed: ExperimentFile = toml::from_str(text).map_err(syntax)?;
        let refused = |(key, value, wanted): Refusal| ExperimentError::Value {
            file: file.to_owned(),
            key,
            value,
            wanted,
        };
        parsed.check().map_err(refused)?;
        Ok(parsed)
    }

    /// Cores that the experiments use.
    pub(crate) fn cores(&self) -> usize {
        self.experiments.iter().map(MeasuredExperiment::cores).max().unwrap_or(1)
    }

    fn check(&self) -> Result<(), Refusal> {
        within("way_mib", self.way_mib, 0.01, 1024.0)?;
        let Pace { device_gb_per_s, device_start_us, flush_ns, sample_us } = self.pace;
        within("pace.device_gb_per_s", device_gb_per_s, 0.001, 10_000.0)?;
        within("pace.device_start_us", device_start_us, 0.0, 1e6)?;
        within("pace.flush_ns", flush_ns, 0.0, 1e6)?;
        within("pace.sample_us", sample_us, 0.0, 1e6)?;
        if let Some(near) = self.neighbours {
            within("neighbours.device_gb_per_s", near.device_gb_per_s, 0.0, 1000.0)?;
            within("neighbours.stream_gb_per_s", near.stream_gb_per_s, 0.0, 1000.0)?;
            within("neighbours.reuse_gb_per_s", near.reuse_gb_per_s, 0.0, 1000.0)?;
            within("neighbours.reuse_mib", near.reuse_mib, 0.01, MOST_MIB)?;
        }
        for (name, mib) in &self.regions {
            within(&format!("regions.{name}"), *mib, 0.01, MOST_MIB)?;
        }
        if self.experiments.is_empty() {
            return Err(("experiment".into(), "empty".into(), "one or more".into()));
        }
        for (number, experiment) in self.experiments.iter().enumerate() {
            if self.experiments[..number].iter().any(|other| other.name == experiment.name) {
                let wanted = "a name that no other experiment of the file has";
                return Err(("experiment.name".into(), experiment.name.clone(), wanted.into()));
            }
            experiment.check(&self.regions).map_err(|(key, value, wanted)| {
                (format!("experiment {}: {key}", experiment.name), value, wanted)
            })?;
        }
        Ok(())
    }
}

/// Key, value, what is accepted.
type Refusal = (String, String, String);

/// Largest piece of memory, MiB.
const MOST_MIB: f64 = 65_536.0;

fn within(key: &str, value: f64, least: f64, most: f64) -> Result<(), Refusal> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err((key.to_owned(), value.to_string(), format!("a number from {least} to {most}")))
}

impl MeasuredExperiment {
    /// Cores that it uses, in the row with the most.
    pub(crate) fn cores(&self) -> usize {
        let walked = self.steps.iter().filter_map(|step| match step {
            Step::Read(walk) | Step::Write(walk) => Some(&walk.cores),
            _ => None,
        });
        let all = walked.chain([&self.sample.cores]);
        all.flat_map(|cores| self.rows.iter().map(|(x, _)| cores.of(*x) as usize)).max().unwrap_or(1)
    }

    fn check(&self, regions: &BTreeMap<String, f64>) -> Result<(), Refusal> {
        within("llc_hits_seen", self.llc_hits_seen, 0.01, 1.0)?;
        if self.rows.is_empty() {
            return Err(("rows".into(), "empty".into(), "one or more of [x, share of hits]".into()));
        }
        for (x, measured) in &self.rows {
            within("rows", *measured, 0.0, 1.0)?;
            for step in &self.steps {
                step.check(*x, regions)?;
            }
            let Sample { region, at, mib, cores } = &self.sample;
            fits("sample", region, regions, (at, mib, cores), *x)?;
        }
        Ok(())
    }
}

impl Step {
    fn check(&self, x: f64, regions: &BTreeMap<String, f64>) -> Result<(), Refusal> {
        match self {
            Step::Flush(part) | Step::DeviceWrite(part) | Step::DeviceRead(part) => {
                fits("steps", &part.region, regions, (&part.at, &part.mib, &once()), x)
            }
            Step::Read(walk) | Step::Write(walk) => {
                named("steps.passes", &walk.passes)?;
                within("steps.passes", walk.passes.of(x), 0.0, 1000.0)?;
                fits("steps", &walk.region, regions, (&walk.at, &walk.mib, &walk.cores), x)
            }
            Step::Wait(wait) => {
                named("steps.us", &wait.us)?;
                within("steps.us", wait.us.of(x), 0.0, 10e6)
            }
        }
    }
}

/// The only name of a quantity is `x`.
fn named(key: &str, quantity: &Quantity) -> Result<(), Refusal> {
    match quantity {
        Quantity::Name(name) if name != "x" => {
            Err((key.to_owned(), format!("{name:?}"), "a number, or \"x\" for that of the row".into()))
        }
        _ => Ok(()),
    }
}

/// A part is within its region.
fn fits(
    key: &str,
    region: &str,
    regions: &BTreeMap<String, f64>,
    (at, mib, cores): (&Quantity, &Quantity, &Quantity),
    x: f64,
) -> Result<(), Refusal> {
    let Some(whole) = regions.get(region) else {
        let known: Vec<&str> = regions.keys().map(String::as_str).collect();
        return Err((format!("{key}.region"), region.to_owned(), format!("one of {}", known.join(", "))));
    };
    for (name, quantity) in [("at", at), ("mib", mib), ("cores", cores)] {
        named(&format!("{key}.{name}"), quantity)?;
    }
    within(&format!("{key}.at"), at.of(x), 0.0, *whole)?;
    within(&format!("{key}.cores"), cores.of(x), 1.0, 250.0)?;
    let most = (whole - at.of(x)) / cores.of(x).floor();
    within(&format!("{key}.mib"), mib.of(x), 0.0, most)
}
