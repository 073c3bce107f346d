//! Scenarios: TOML files that describe the virtual server, its load and a run.
//!
//! Reading checks everything that needs no machine: keys, ranges, cores claimed twice, masks that the chip would
//! refuse, captures and traces. Must not know policies, except names and settings.

mod cgroup;
mod chip;
mod devices;
mod error;
mod faults;
mod inputs;
mod keys;
mod sweep;
mod workload;

pub use chip::ChipFile;
pub use devices::{NicPhase, NicSpec, StorageSpec};
pub use error::ScenarioError;
pub use faults::{Fault, FaultKind};
pub use inputs::{CapturedPacket, CapturedTraffic};
pub use keys::{Keys, LATEST_S, SHORTEST_RUN_S};
pub use sweep::{SweptKey, shown};
pub use workload::{WorkloadPhase, WorkloadSpec};

use inputs::InputFiles;
use keys::Origin;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::{Table, Value};
use waykeeper_silicon::{ChipSpec, MAX_DEVICES, Rules};
use waykeeper_units::{CoreId, Unit, WayMask};

/// A scenario, read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// What it reproduces, for example `A4 Fig. 5`; empty if nothing.
    pub paper: String,
    /// The chip, with the rules of `[model]`.
    pub chip: ChipSpec,
    /// Length of a simulation step, ns.
    pub quantum_ns: f64,
    /// Length of a run on the server's clock, s.
    pub duration_s: f64,
    /// Time at the start without results, s. The control loop already runs.
    pub warmup_s: f64,
    /// Length of the measured interval at the end of the run, s.
    pub measure_s: f64,
    /// Seconds of the server's clock per second of simulated traffic.
    pub time_factor: f64,
    /// The policy's monitoring interval, s.
    pub interval_s: f64,
    /// Policies to compare, in order.
    pub policies: Vec<String>,
    /// Settings per policy.
    pub policy_settings: Table,
    /// DCA ways from the start; `None` leaves the chip's default.
    pub dca_ways: Option<WayMask>,
    /// Names of devices whose DCA is off from the start.
    pub dca_off: Vec<String>,
    /// Whether the cores' hardware prefetchers are on at the start.
    pub prefetchers: bool,
    /// Knob changes by an operator during the run, independent of the policy.
    pub knob_phases: Vec<KnobPhase>,
    /// NICs.
    pub nics: Vec<NicSpec>,
    /// Storage arrays.
    pub storage: Vec<StorageSpec>,
    /// Workloads.
    pub workloads: Vec<WorkloadSpec>,
    /// Swept keys; empty for a single run.
    pub sweeps: Vec<SweptKey>,
    /// Faults.
    pub faults: Vec<Fault>,
}

/// A knob change by an operator during the run.
#[derive(Clone, Copy, Debug)]
pub struct KnobPhase {
    /// When, s on the server's clock.
    pub at_s: f64,
    /// DCA ways from then on.
    pub dca_ways: WayMask,
}

/// A scenario's text and origin, from which it can be read again with changed keys.
#[derive(Clone, Debug)]
pub struct ScenarioSource {
    file: String,
    text: Arc<str>,
    folder: Option<PathBuf>,
    table: Table,
    /// Keys that were set, in order.
    changed: Vec<String>,
    /// Captures and traces; each file is read once for all clones that read scenarios at a time.
    inputs: InputFiles,
}

impl ScenarioSource {
    /// A scenario file.
    ///
    /// # Errors
    /// If it cannot be read or is not TOML.
    pub fn open(path: &Path) -> Result<ScenarioSource, ScenarioError> {
        let text = waykeeper_bounded_read::text(path, "a scenario")
            .map_err(|why| ScenarioError::unreadable(path, why))?;
        let folder = path.parent().map(Path::to_owned);
        ScenarioSource::parse(&path.display().to_string(), &text, folder)
    }

    /// A scenario's text; `file` is for messages, `folder` for the paths in it.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn parse(file: &str, text: &str, folder: Option<PathBuf>) -> Result<ScenarioSource, ScenarioError> {
        let table = text.parse::<Table>().map_err(|error| ScenarioError::Syntax {
            file: file.to_owned(),
            at: error::place(text, error.span()),
            why: error::syntax(error.message()) + &error::quotes_hint(text, error.span()),
        })?;
        Ok(ScenarioSource {
            file: file.to_owned(),
            text: text.into(),
            folder,
            table,
            changed: Vec::new(),
            inputs: InputFiles::default(),
        })
    }

    /// The file's text, without the keys that were set.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Its keys, those that were set included.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The file that a path in the scenario means.
    pub fn path_of(&self, path: &str) -> PathBuf {
        self.folder.as_deref().map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
    }

    /// Sets a dotted key, as a sweep does: `workload.fio.block`, or `workload[fio].block`.
    ///
    /// # Errors
    /// If the scenario has no such table or element.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<(), ScenarioError> {
        let why = |why| ScenarioError::Nowhere { file: self.file.clone(), key: key.to_owned(), why };
        sweep::set(&mut self.table, key, value).map_err(why)?;
        self.changed.push(key.to_owned());
        Ok(())
    }

    /// The same scenario without its sweep.
    pub fn without_sweep(&self) -> ScenarioSource {
        let mut source = self.clone();
        source.table.remove("sweep");
        source
    }

    /// Checks that no key of `sweeps`, the sweeps of this scenario, was also set.
    ///
    /// # Errors
    /// If one was, because the sweep would silently replace its value.
    pub fn check_sweeps(&self, sweeps: &[SweptKey]) -> Result<(), ScenarioError> {
        let both = |sweep: &&SweptKey| self.changed.iter().any(|key| sweep::is_same(key, &sweep.key));
        match sweeps.iter().find(both) {
            None => Ok(()),
            Some(sweep) => Err(ScenarioError::Swept {
                file: self.file.clone(),
                key: sweep.key.clone(),
                values: sweep.values.iter().map(shown).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The position of a key, for a message about its value: `mine.toml:8: `policies``.
    pub fn place(&self, key: &str) -> String {
        let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
        let line = Keys::new(self.origin(), &self.table, path, None).line_of(last);
        format!("{}:{line} `{key}`", self.file)
    }

    fn origin(&self) -> Origin<'_> {
        Origin { file: &self.file, text: &self.text, folder: self.folder.as_deref(), inputs: &self.inputs }
    }

    /// Reads and checks the scenario.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn read(&self) -> Result<Scenario, ScenarioError> {
        read(Keys::new(self.origin(), &self.table, "", None)).map_err(|error| self.without_line_if_set(error))
    }

    /// The value of a key that was set is not in the file: the error names no line of it.
    fn without_line_if_set(&self, mut error: ScenarioError) -> ScenarioError {
        if let ScenarioError::Value { at, key, .. }
        | ScenarioError::UnknownKey { at, key, .. }
        | ScenarioError::NamedInput { at, key, .. } = &mut error
            && self.changed.iter().any(|changed| sweep::is_same(changed, key))
        {
            " as it was set (`--set`, a sweep, an argument),".clone_into(at);
        }
        error
    }
}

/// Most policies of a scenario: several times as many as there are (ours).
const MOST_POLICIES: usize = 64;

/// Keys at the top level of a scenario.
const TOP: [&str; 19] = [
    "name",
    "about",
    "paper",
    "chip",
    "memory_channels",
    "duration_s",
    "warmup_s",
    "measure_s",
    "time_factor",
    "interval_s",
    "policies",
    "policy",
    "model",
    "knobs",
    "nic",
    "storage",
    "workload",
    "sweep",
    "fault",
];

fn read(mut keys: Keys<'_>) -> Result<Scenario, ScenarioError> {
    // First, so that a mistyped [[nic]] is reported as an unknown key and not as a missing NIC.
    keys.only(&TOP)?;
    let mut chip = read_chip(&mut keys)?;
    // As if memory modules were removed: the remaining channels keep their bandwidth.
    chip.dram.channels = keys.count("memory_channels", 1..=chip.dram.channels, chip.dram.channels)?;
    let quantum_ns = read_model(&mut keys, &mut chip)?;
    let nics = devices::read_nics(&mut keys, &chip)?;
    let storage = devices::read_storage(&mut keys)?;
    let workloads = workload::read_all(&mut keys, &chip, &nics, &storage)?;
    let Knobs { dca_ways, dca_off, prefetchers, phases: knob_phases } =
        read_knobs(&mut keys, &chip, &nics, &storage)?;
    let sweeps = read_sweeps(&mut keys)?;
    let faults = faults::read_all(&mut keys, &chip, &workloads, &nics, &storage)?;
    let policies = match keys.list("policies")? {
        None => vec!["default".to_owned(), "waykeeper".to_owned()],
        Some([]) => return Err(keys.refuse("policies", &"[]", "a list of one policy name at least")),
        Some(list) if list.len() > MOST_POLICIES => {
            let found = format!("a list of {} names", list.len());
            return Err(keys.refuse("policies", &found, &format!("at most {MOST_POLICIES} names")));
        }
        Some(list) => list
            .iter()
            .map(|v| v.as_str().map(str::to_owned).ok_or_else(|| keys.refuse("policies", v, "policy names")))
            .collect::<Result<_, _>>()?,
    };
    let scenario = Scenario {
        name: keys.required_text("name", "a short name")?,
        about: keys.optional_text("about")?.unwrap_or_default(),
        paper: keys.optional_text("paper")?.unwrap_or_default(),
        // 70, 10 and 10 s, with an interval of 1 s: A4 s6 (algorithms.md 3.12). 20: microarchitecture.md 9.
        duration_s: keys.number("duration_s", SHORTEST_RUN_S..=LATEST_S, 70.0)?,
        warmup_s: keys.number("warmup_s", 0.0..=LATEST_S, 10.0)?,
        measure_s: keys.number("measure_s", 0.0005..=LATEST_S, 10.0)?,
        time_factor: keys.number("time_factor", 1.0..=1000.0, 20.0)?,
        interval_s: keys.number("interval_s", 0.001..=3600.0, 1.0)?,
        policy_settings: keys.table("policy")?.cloned().unwrap_or_default(),
        chip,
        quantum_ns,
        policies,
        dca_ways,
        dca_off,
        prefetchers,
        knob_phases,
        nics,
        storage,
        workloads,
        sweeps,
        faults,
    };
    if scenario.warmup_s + scenario.measure_s > scenario.duration_s + 1e-9 {
        let wanted = format!("at least warmup_s + measure_s = {}", scenario.warmup_s + scenario.measure_s);
        return Err(keys.refuse("duration_s", &scenario.duration_s, &wanted));
    }
    check_devices(&mut keys, &scenario)?;
    keys.finish()?;
    Ok(scenario)
}

fn read_chip(keys: &mut Keys<'_>) -> Result<ChipSpec, ScenarioError> {
    let name = keys.optional_text("chip")?.unwrap_or_else(|| "gold-6140".to_owned());
    let opened = ChipFile::open(&name, keys.origin().folder);
    opened.map(|chip| chip.spec).map_err(|error| match chip::wanted(&error, &name) {
        Some(wanted) => keys.refuse("chip", &format!("`{name}`"), &wanted),
        None => error,
    })
}

/// `[model]`: the quantum, and what differs from the chip's rules.
fn read_model(keys: &mut Keys<'_>, chip: &mut ChipSpec) -> Result<f64, ScenarioError> {
    // microarchitecture.md 7.
    let mut quantum_ns = 4000.0;
    let Some(table) = keys.table("model")? else {
        return Ok(quantum_ns);
    };
    let mut table = table.clone();
    if let Some(value) = table.remove("quantum_ns") {
        let quantum = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
        let is_legal = |quantum: f64| (10.0..=100_000.0).contains(&quantum);
        quantum_ns = quantum.filter(|quantum| is_legal(*quantum)).ok_or_else(|| {
            let meant =
                quantum.map(|given| Unit::of_key("quantum_ns").meant(given, is_legal)).unwrap_or_default();
            keys.refuse("model.quantum_ns", &value, &format!("a number from 10 to 100000 ns{meant}"))
        })?;
    }
    let rules = chip.rules.with(&table).map_err(|error| wrong_rule(keys, &table, &error))?;
    rules.check().map_err(|(key, value, wanted)| keys.refuse(&format!("model.{key}"), &value, wanted))?;
    chip.rules = rules;
    Ok(quantum_ns)
}

/// The error for a table that is no rule set: its first wrong key, with what is accepted.
fn wrong_rule(keys: &Keys<'_>, table: &Table, error: &toml::de::Error) -> ScenarioError {
    let of =
        |key: &String, value: &Value| Table::from_iter([(key.clone(), value.clone())]).try_into::<Rules>();
    let wrong = table.iter().find_map(|(key, value)| Some((key, value, of(key, value).err()?)));
    match wrong.filter(|(_, _, why)| !why.message().starts_with("unknown field")) {
        None => keys.refuse("model", &error.message(), "keys of the rule set"),
        Some((key, value, why)) => {
            // A number that every type of a rule holds, and no range, is refused with the range.
            let range = of(key, &Value::Integer(255)).ok().and_then(|rules| rules.check().err());
            let expected = || why.message().rsplit_once("expected ").map_or(why.message(), |(_, what)| what);
            let wanted = range.map_or_else(expected, |(_, _, wanted)| wanted);
            keys.refuse(&format!("model.{key}"), value, wanted)
        }
    }
}

/// Knob values before any policy acts, and later changes by an operator.
struct Knobs {
    dca_ways: Option<WayMask>,
    dca_off: Vec<String>,
    prefetchers: bool,
    phases: Vec<KnobPhase>,
}

/// `[knobs]`.
fn read_knobs(
    keys: &mut Keys<'_>,
    chip: &ChipSpec,
    nics: &[NicSpec],
    storage: &[StorageSpec],
) -> Result<Knobs, ScenarioError> {
    let Some(table) = keys.table("knobs")? else {
        return Ok(Knobs { dca_ways: None, dca_off: Vec::new(), prefetchers: true, phases: Vec::new() });
    };
    let mut knobs = Keys::new(keys.origin(), table, "knobs", None);
    let dca_ways = knobs.mask("dca_ways", chip.llc.ways, 1, false)?;
    if let (Some(mask), None) = (dca_ways, chip.llc.dca_ways) {
        return Err(knobs.refuse("dca_ways", &mask, "absent: this chip has no DCA"));
    }
    let names = nics.iter().map(|n| n.name.as_str()).chain(storage.iter().map(|s| s.name.as_str()));
    let names: Vec<&str> = names.collect();
    let mut off = Vec::new();
    for value in knobs.list("dca_off")?.unwrap_or_default() {
        match value.as_str().filter(|name| names.contains(name)) {
            Some(name) => off.push(name.to_owned()),
            None => return Err(knobs.refuse("dca_off", value, &format!("names of {}", names.join(", ")))),
        }
    }
    let prefetchers = knobs.flag("prefetchers", true)?;
    let mut phases = Vec::new();
    for (table, line) in knobs.tables("phase")? {
        let mut inner = Keys::new(knobs.origin(), table, "knobs.phase", line);
        let at_s = inner.optional_number("at_s", 0.0..=LATEST_S)?;
        let at_s = at_s.ok_or_else(|| inner.missing("at_s", "the time of the change, s"))?;
        let mask = inner.mask("dca_ways", chip.llc.ways, 1, false)?;
        let mask = mask.ok_or_else(|| inner.missing("dca_ways", "ways from then on"))?;
        if chip.llc.dca_ways.is_none() {
            return Err(inner.refuse("dca_ways", &mask, "absent: this chip has no DCA"));
        }
        inner.finish()?;
        phases.push(KnobPhase { at_s, dca_ways: mask });
    }
    knobs.finish()?;
    Ok(Knobs { dca_ways, dca_off: off, prefetchers, phases })
}

fn read_sweeps(keys: &mut Keys<'_>) -> Result<Vec<SweptKey>, ScenarioError> {
    let mut sweeps = Vec::new();
    for (table, line) in keys.tables("sweep")? {
        let mut inner = Keys::new(keys.origin(), table, "sweep", line);
        sweeps.push(SweptKey::read(&mut inner)?);
        inner.finish()?;
    }
    if sweeps.len() > 2 {
        return Err(keys.refuse("sweep", &format!("{} tables", sweeps.len()), "one or two [[sweep]] tables"));
    }
    let points: usize = sweeps.iter().map(|sweep| sweep.values.len()).product();
    if points > sweep::MOST_POINTS {
        let counts: Vec<String> = sweeps.iter().map(|sweep| sweep.values.len().to_string()).collect();
        let found = format!("{points} points ({} values)", counts.join(" x "));
        return Err(keys.refuse("sweep", &found, &format!("at most {} points", sweep::MOST_POINTS)));
    }
    Ok(sweeps)
}

/// Checks that devices are not too many, that their names are unique, that cores are claimed once, and that `imbalance` has
/// enough queues and no shares.
fn check_devices(keys: &mut Keys<'_>, scenario: &Scenario) -> Result<(), ScenarioError> {
    for (index, (nic, (table, line))) in scenario.nics.iter().zip(keys.tables("nic")?).enumerate() {
        let users = || scenario.workloads.iter().filter(|w| w.nic == Some(index));
        let queues: usize = users().map(|w| w.cores.len()).sum();
        let inner = Keys::new(keys.origin(), table, &format!("nic[{}]", nic.name), line);
        match nic.imbalance {
            Some(imbalance) if imbalance > queues as f64 => {
                let wanted = format!("1 to {queues}: it has a queue per core of the workloads that use it");
                return Err(inner.refuse("imbalance", &imbalance, &wanted));
            }
            Some(imbalance) if users().any(|w| w.share.is_some()) => {
                let wanted = "absent: its workloads have shares";
                return Err(inner.refuse("imbalance", &imbalance, wanted));
            }
            _ => {}
        }
    }
    let count = scenario.nics.len() + scenario.storage.len();
    if count > MAX_DEVICES {
        let wanted = format!("at most {MAX_DEVICES}, which the chip tells apart");
        return Err(keys.refuse("nic", &format!("{count} devices together with `storage`"), &wanted));
    }
    let mut names: Vec<&str> = scenario.nics.iter().map(|nic| nic.name.as_str()).collect();
    names.extend(scenario.storage.iter().map(|array| array.name.as_str()));
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(keys.refuse("name", &format!("`{}` twice", pair[0]), "a different name for each device"));
    }
    let mut claimed: Vec<(CoreId, &str)> = Vec::new();
    for (workload, (table, line)) in scenario.workloads.iter().zip(keys.tables("workload")?) {
        for core in workload.cores.cores() {
            if let Some((_, other)) = claimed.iter().find(|(claimed, _)| claimed == core) {
                let inner = Keys::new(keys.origin(), table, &format!("workload[{}]", workload.name), line);
                let value = format!("`{}`, and {core} belongs to `{other}`", workload.cores);
                return Err(inner.refuse("cores", &value, "cores that no other workload has"));
            }
            claimed.push((*core, &workload.name));
        }
    }
    Ok(())
}
