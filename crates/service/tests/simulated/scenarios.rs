//! The machines of the simulation: a chip of four cores with two slices, so that a start takes few system calls, and
//! programs that come and go. The server's clock runs fast against the traffic, so that a step costs little.
//!
//! Must not know what happens on them.

use crate::history::History;
use std::sync::{Arc, OnceLock};
use waykeeper_machine::{Scenario, ScenarioSource};

/// One cache set in so many is simulated.
pub const ONE_SET_IN: u32 = 64;

/// Number of scenarios.
pub const NUMBER: usize = 4;

/// The scenario of a whole day: programs come and go once in minutes.
pub const DAY: u64 = 3;

const HEAD: &str = r#"
chip = "gold-6134"
name = "simulated"
duration_s = 60
warmup_s = 0.1
measure_s = 0.1
time_factor = 1000
memory_channels = 1

[[nic]]
name = "nic0"
ring = 64
offered_gbps = 2

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0"
priority = "high"
"#;

/// What differs: programs that last, that end, and that come again and again.
const TAILS: [&str; NUMBER] = [
    "[[workload]]\nname = \"scan\"\nprogram = \"x-mem\"\ncores = \"1-2\"\nworking_set = \"1M\"\n",
    "[[workload]]\nname = \"scan\"\nprogram = \"x-mem\"\ncores = \"1\"\nworking_set = \"1M\"\nstop_s = 0.4\n\
     [[workload]]\nname = \"late\"\nprogram = \"x-mem\"\ncores = \"2\"\nworking_set = \"1M\"\nstart_s = 0.2\n",
    "[[workload]]\nname = \"scan\"\nprogram = \"x-mem\"\ncores = \"1\"\nworking_set = \"1M\"\nstart_s = 0.1\n\
     stop_s = 0.25\nevery_s = 0.3\n\
     [[workload]]\nname = \"late\"\nprogram = \"x-mem\"\ncores = \"2-3\"\nworking_set = \"1M\"\n",
    "[[workload]]\nname = \"scan\"\nprogram = \"x-mem\"\ncores = \"1\"\nworking_set = \"1M\"\nstart_s = 10\n\
     stop_s = 60\nevery_s = 97\n\
     [[workload]]\nname = \"late\"\nprogram = \"x-mem\"\ncores = \"2-3\"\nworking_set = \"1M\"\nstart_s = 100\n\
     stop_s = 300\nevery_s = 411\n",
];

/// A scenario. It is read once, and shared by all seeds.
pub fn scenario(index: u64) -> Arc<Scenario> {
    static ALL: OnceLock<Vec<Arc<Scenario>>> = OnceLock::new();
    let all = ALL.get_or_init(|| TAILS.iter().map(|tail| read(tail)).collect());
    all[index as usize % NUMBER].clone()
}

fn read(tail: &str) -> Arc<Scenario> {
    let source = ScenarioSource::parse("simulated", &format!("{HEAD}\n{tail}"), None);
    let source = source.unwrap_or_else(|error| panic!("{error}"));
    let mut scenario = source.read().unwrap_or_else(|error| panic!("{error}"));
    scenario.chip.cores = 4;
    scenario.chip.llc.slices = 2;
    scenario.chip.llc.clos = 5;
    Arc::new(scenario)
}

/// The tenants of a configuration.
pub fn tenants(list: u64) -> &'static str {
    match list {
        0 => {
            "[[tenant]]\nname = \"a\"\npriority = \"high\"\ncores = \"0\"\n[[tenant]]\nname = \"b\"\ncores = \"1-2\"\n"
        }
        1 => {
            "[[tenant]]\nname = \"a\"\npriority = \"high\"\nprocess = \"l2fwd\"\n\
              [[tenant]]\nname = \"b\"\nprocess = \"scan\"\n[[tenant]]\nname = \"c\"\nprocess = \"late\"\n"
        }
        2 => {
            "[[tenant]]\nname = \"a\"\npriority = \"high\"\ncores = \"0-1\"\n\
              [[tenant]]\nname = \"c\"\npids = [5000000, 5000001]\n"
        }
        3 => {
            "[[tenant]]\nname = \"b\"\npriority = \"high\"\ncores = \"1\"\n[[tenant]]\nname = \"d\"\ncores = \"3\"\n\
              [[tenant]]\nname = \"a\"\ncores = \"0\"\n[[tenant]]\nname = \"c\"\ncores = \"2\"\n"
        }
        4 => "[[tenant]]\nname = \"{name}\"\ncgroup = \"tenants.slice/*.service\"\n",
        5 => "[[tenant]]\nname = \"b\"\npriority = \"high\"\ncores = \"0-2\"\n",
        6 => "[[tenant]]\nname = \"w-{name}\"\nprocess = \"*\"\n",
        _ => "",
    }
}

/// The text of a configuration file.
pub fn config(history: &History, list: u64) -> String {
    let History { policy, outsiders, recorder, period_ms, .. } = history;
    // A policy refuses settings of a tenant that is not declared.
    let masks = [("a", "0x600"), ("b", "0x003")];
    let declared = |name: &str| tenants(list).contains(&format!("name = \"{name}\""));
    let masks = masks.into_iter().filter(|(name, _)| declared(name));
    let masks: Vec<String> = masks.map(|(name, mask)| format!("{name} = \"{mask}\"")).collect();
    let settings = match policy.as_str() {
        "fixed" => format!("settings.masks = {{ {} }}\n", masks.join(", ")),
        _ => String::new(),
    };
    let recorder = if *recorder { "[recorder]\ndir = \"/var/log/waykeeper\"\n" } else { "" };
    let period_s = *period_ms as f64 / 1000.0;
    format!(
        "[daemon]\nperiod_s = {period_s}\nroot = \"/host\"\nprofile = \"off\"\nblind_steps = 5\n\
         [policy]\nname = \"{policy}\"\n{settings}[limits]\noutsiders = \"{outsiders}\"\n\
         [socket]\npath = \"off\"\n{recorder}{}",
        tenants(list)
    )
}
