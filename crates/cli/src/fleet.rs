//! `waykeeper fleet plan`: what each policy would be worth on nodes, by what their daemons recorded. Must not know how a
//! policy's worth is found (`lab::foreseen`) nor the format of a recording (`service`).

mod table;

use crate::exit::{self, Failure};
use crate::progress::PartBar;
use crate::run::assignment;
use crate::{interrupt, out};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use waykeeper_lab::foreseen::{CounterLog, ForeseenWorth, PredictedServer, SeenPhase};
use waykeeper_policy::build;
use waykeeper_service::protocol::{WorthRatio, plain_time};
use waykeeper_service::recorder::{Item, RecordingReader};

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper fleet plan rack1/*           what a4, iat and waykeeper would be worth on each node
  waykeeper fleet plan rack1/* --json    the same for programs, one line per node";

const PLAN_EXAMPLES: &str = "\
Examples:
  This node, by what its daemon recorded
    waykeeper fleet plan /var/lib/waykeeper/recorder
  Several nodes, whose recordings were copied into one directory each
    waykeeper fleet plan rack1/*
  A name for a node; other policies; a setting of one
    waykeeper fleet plan db-7=/tmp/rec --policy isolate --policy a4 --set a4.stable_interval_s=5

A daemon with `mode = \"observe\"` and `recorder.dir` changes nothing and records what the plan
needs; ten minutes are enough. Of each recording the longest time with the same tenants under the
same load counts. A model of the node is made of its counters, and each policy manages that model
for two minutes. HPW and LPW are the change of progress of high- and low-priority tenants, relative
to the layout in force at the end of that time, with two standard errors.

The exit code is 0 if every node was planned, and 1 if the recording of one says too little.";

/// Policies that are compared if none is named.
const POLICIES: [&str; 3] = ["a4", "iat", "waykeeper"];

/// What to do with nodes.
#[derive(Subcommand, Debug)]
pub enum FleetCommand {
    /// Predict what each policy would be worth on nodes, by what their daemons recorded
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
}

/// Arguments of `fleet plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// The recording of a node: a segment, the directory with all segments, or a directory with `recorder` in it. A node
    /// has the directory's name, or NAME
    #[arg(value_name = "[NAME=]NODE", required = true)]
    nodes: Vec<OsString>,
    /// Policy to plan with; may be given several times [default: a4, iat, waykeeper]
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Setting of a policy, such as a4.stable_interval_s=5; may be given several times
    #[arg(long, value_name = "POLICY.KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String, toml::Value)>,
    /// Print one JSON object per node and line instead of a table
    #[arg(long)]
    json: bool,
}

/// `POLICY.KEY=VALUE`.
fn setting(text: &str) -> Result<(String, String, toml::Value), String> {
    let read = assignment(text).ok();
    let read = read.and_then(|(key, value)| {
        key.split_once('.').map(|(policy, key)| (policy.to_owned(), key.to_owned(), value))
    });
    read.ok_or_else(|| "write POLICY.KEY=VALUE, like a4.stable_interval_s=5".to_owned())
}

/// Runs the subcommand.
pub fn fleet(command: FleetCommand) -> Result<(), Failure> {
    let FleetCommand::Plan(args) = command;
    plan(&args)
}

/// A node, as the user named it.
struct Node {
    name: String,
    recording: PathBuf,
}

/// The plan of a node, as JSON.
#[derive(Serialize, Debug)]
struct NodePlan {
    node: String,
    recording: String,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<Seen>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<PolicyPlan>,
}

/// What a plan is based on.
#[derive(Serialize, Debug)]
struct Seen {
    chip: String,
    /// Intervals of the longest phase, and of the whole recording.
    intervals: u64,
    recorded_intervals: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// Different layouts that were seen.
    layouts: usize,
    tenants: usize,
}

/// What a policy would be worth on a node.
#[derive(Serialize, Debug)]
struct PolicyPlan {
    policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hpw: Option<WorthRatio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lpw: Option<WorthRatio>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tenants: BTreeMap<String, WorthRatio>,
    /// Different layouts in the last 30 s; 1 for a policy that has settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    layouts: Option<usize>,
    /// Masks of the tenants, the DCA ways, and devices without DCA at the end.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    masks: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dca_ways: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dca_off: Vec<String>,
    verdict: table::PlanVerdict,
}

fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let nodes = nodes(&args.nodes)?;
    let policies = policies(args)?;
    // Every path is opened before the first node is planned.
    for node in &nodes {
        let first = RecordingReader::open(&node.recording)?.next();
        if let Some(Item::Unreadable(why)) = first.filter(|_| node.recording.is_file()) {
            return Err(Failure::bad_input(why));
        }
    }
    let stop = interrupt::listen()?;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(nodes.len());
    let next = AtomicUsize::new(0);
    let mut plans: BTreeMap<usize, NodePlan> = BTreeMap::new();
    let mut shown = 0;
    let bar = PartBar::new();
    let mut printed = Ok(true);
    thread::scope(|scope| {
        let (done, planned) = mpsc::channel();
        for _ in 0..threads {
            let (done, nodes, policies, stop, next) = (done.clone(), &nodes, &policies, &stop, &next);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(node) = nodes.get(index) else { return };
                    if let Some(plan) = planned_node(node, policies, stop)
                        && done.send((index, plan)).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(done);
        bar.show(0, nodes.len() as u64, "planning nodes");
        for (index, plan) in planned {
            plans.insert(index, plan);
            bar.show(plans.len() as u64, nodes.len() as u64, "planning nodes");
            while let Some(plan) = plans.get(&shown).filter(|_| args.json && matches!(printed, Ok(true))) {
                printed = line(plan);
                shown += 1;
            }
            if !matches!(printed, Ok(true)) {
                // No reader is left.
                next.store(nodes.len(), Ordering::Relaxed);
            }
        }
    });
    bar.clear();
    if !printed? {
        return Ok(());
    }
    let plans: Vec<NodePlan> = plans.into_values().collect();
    if args.json {
        // After Ctrl-C there may be nodes behind one that is missing.
        plans.iter().skip(shown).try_for_each(|plan| line(plan).map(|_| ()))?;
    } else {
        out::text(&table::page(&plans))?;
    }
    let is_planned = |plan: &&NodePlan| plan.policies.iter().any(|policy| policy.why.is_none());
    let planned = plans.iter().filter(is_planned).count();
    if stop.load(Ordering::Relaxed) {
        let why = format!("interrupted; {planned} of {} nodes are planned", nodes.len());
        return Err(Failure::new(exit::INTERRUPTED, why));
    }
    if planned < nodes.len() {
        let why = format!("{} of {} nodes could not be planned", nodes.len() - planned, nodes.len());
        return Err(Failure::new(exit::FAILED, why));
    }
    Ok(())
}

/// Prints a plan as a line; false if the pipe is closed.
fn line(plan: &NodePlan) -> Result<bool, Failure> {
    let json = serde_json::to_string(plan);
    let json =
        json.map_err(|why| Failure::new(exit::FAILED, format!("cannot write the plan as JSON: {why}")))?;
    out::text_while_open(&(json + "\n"))
}

/// Usual name of a recorder's folder, also of a copy of it below the folder of a node.
const RECORDER: &str = "recorder";

/// The nodes; each has a name of its own.
fn nodes(words: &[OsString]) -> Result<Vec<Node>, Failure> {
    let mut names = BTreeSet::new();
    let mut nodes = Vec::new();
    for word in words {
        let bytes = word.as_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=').filter(|at| !bytes[..*at].contains(&b'/'));
        let (name, path) = match equals {
            Some(at) => {
                let name = String::from_utf8_lossy(&bytes[..at]).into_owned();
                (name, Path::new(OsStr::from_bytes(&bytes[at + 1..])))
            }
            None => {
                let path = Path::new(word);
                // `rack1/db-7/recorder` and `rack1/db-7` are both the node db-7.
                let is_recorder = path.file_name().is_some_and(|name| name == RECORDER);
                let named = if is_recorder { path.parent().unwrap_or(path) } else { path };
                let name = named.file_name().map(|name| name.to_string_lossy().into_owned());
                (name.unwrap_or_else(|| word.display().to_string()), path)
            }
        };
        let word = word.display();
        if name.is_empty() || path.as_os_str().is_empty() {
            return Err(Failure::bad_input(format!("{word}: write the path of a recording, or NAME=PATH")));
        }
        if !names.insert(name.clone()) {
            return Err(Failure::bad_input(format!(
                "{word}: another node is called {name}; give each a name of its own, like {name}-2={}",
                path.display()
            )));
        }
        let inner = path.join(RECORDER);
        nodes.push(Node { name, recording: if inner.is_dir() { inner } else { path.to_owned() } });
    }
    Ok(nodes)
}

/// The policies with their settings, each of them legal.
fn policies(args: &PlanArgs) -> Result<Vec<(String, toml::Table)>, Failure> {
    let default = || POLICIES.map(str::to_owned).to_vec();
    let names = if args.policy.is_empty() { default() } else { args.policy.clone() };
    let mut policies: Vec<(String, toml::Table)> = Vec::new();
    for name in names {
        if !policies.iter().any(|(known, _)| *known == name) {
            policies.push((name, toml::Table::new()));
        }
    }
    for (name, key, value) in &args.set {
        let Some((_, settings)) = policies.iter_mut().find(|(known, _)| known == name) else {
            let known: Vec<&str> = policies.iter().map(|(name, _)| name.as_str()).collect();
            let known = known.join(", ");
            return Err(Failure::bad_input(format!(
                "--set {name}.{key}: {name} is not planned with; {known} are"
            )));
        };
        if settings.insert(key.clone(), value.clone()).is_some() {
            return Err(Failure::bad_input(format!("--set {name}.{key}: it is given twice")));
        }
    }
    for (name, settings) in &policies {
        build(name, settings)?;
    }
    Ok(policies)
}

/// Plans a node; `None` after an interrupt.
fn planned_node(node: &Node, policies: &[(String, toml::Table)], stop: &AtomicBool) -> Option<NodePlan> {
    let mut plan = NodePlan {
        node: node.name.clone(),
        recording: node.recording.display().to_string(),
        why: None,
        seen: None,
        policies: Vec::new(),
    };
    let (recorded_intervals, phase) = match read(node, stop)? {
        Ok(read) => read,
        Err(why) => return Some(NodePlan { why: Some(why), ..plan }),
    };
    let description = &phase.description;
    plan.seen = Some(Seen {
        chip: description.chip.clone(),
        intervals: phase.intervals,
        recorded_intervals,
        from: phase.from.map(plain_time),
        to: phase.to.map(plain_time),
        layouts: description.observed.len(),
        tenants: description.tenants.len(),
    });
    let server = match PredictedServer::new(&phase) {
        Ok(server) => server,
        Err(why) => return Some(NodePlan { why: Some(why.to_string()), ..plan }),
    };
    for (policy, settings) in policies {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        plan.policies.push(match server.worth(policy, settings) {
            Ok(worth) => policy_plan(policy, &worth, &phase),
            Err(why) => PolicyPlan::unknown(policy, why.to_string()),
        });
    }
    Some(plan)
}

/// The intervals of a recording, and its longest phase; `None` after an interrupt.
fn read(node: &Node, stop: &AtomicBool) -> Option<Result<(u64, SeenPhase), String>> {
    let reader = match RecordingReader::open(&node.recording) {
        Ok(reader) => reader,
        Err(why) => return Some(Err(why.to_string())),
    };
    let mut log: Option<CounterLog> = None;
    let (mut intervals, mut unreadable) = (0, None);
    for item in reader {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        match item {
            Item::Segment { header, .. } => match &mut log {
                Some(log) => log.begin(&header.inventory),
                None => log = Some(CounterLog::new(&header.inventory)),
            },
            Item::Entry(entry) => {
                let (Some(log), Some(groups), Some(seen)) = (&mut log, &entry.groups, &entry.seen) else {
                    continue;
                };
                log.observe(Some(entry.at), groups, seen);
                intervals += 1;
            }
            Item::Unreadable(why) => unreadable = Some(why),
        }
    }
    let phase = log.and_then(CounterLog::longest);
    Some(phase.map(|phase| (intervals, phase)).ok_or_else(|| {
        unreadable.unwrap_or_else(|| {
            format!(
                "of {intervals} intervals, no three in turn have the same load and layout and the counters of \
                 tenants (instructions, cycles, LLC hits and misses)"
            )
        })
    }))
}

fn policy_plan(policy: &str, worth: &ForeseenWorth, phase: &SeenPhase) -> PolicyPlan {
    let tenants = &phase.description.tenants;
    let name =
        |id| tenants.iter().find(|tenant| tenant.workload.id == id).map(|tenant| &tenant.workload.name);
    let devices = phase.inventory.devices.iter();
    let is_off = |device: &&waykeeper_host::Device| {
        device.ports.iter().any(|port| worth.knobs.dca(*port) == Some(false))
    };
    let (hpw, lpw) = (worth.hpw.map(WorthRatio::from), worth.lpw.map(WorthRatio::from));
    PolicyPlan {
        policy: policy.to_owned(),
        why: None,
        hpw,
        lpw,
        tenants: tenants
            .iter()
            .zip(&worth.tenants)
            .map(|(tenant, progress)| (tenant.workload.name.clone(), WorthRatio::from(*progress)))
            .collect(),
        layouts: Some(worth.layouts),
        masks: worth
            .knobs
            .masks()
            .filter_map(|(id, mask)| Some((name(id)?.clone(), mask.to_string())))
            .collect(),
        dca_ways: worth.knobs.dca_ways().map(|mask| mask.to_string()),
        dca_off: devices.filter(is_off).map(|device| device.name.clone()).collect(),
        verdict: table::PlanVerdict::of(hpw, lpw),
    }
}

impl PolicyPlan {
    fn unknown(policy: &str, why: String) -> PolicyPlan {
        PolicyPlan {
            policy: policy.to_owned(),
            why: Some(why),
            hpw: None,
            lpw: None,
            tenants: BTreeMap::new(),
            layouts: None,
            masks: BTreeMap::new(),
            dca_ways: None,
            dca_off: Vec::new(),
            verdict: table::PlanVerdict::Unknown,
        }
    }
}
