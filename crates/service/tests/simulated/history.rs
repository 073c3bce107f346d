//! What happens to a host and its daemon: a list of events that a seed makes, or that a file has.
//!
//! Must not know how an event is carried out.

use crate::scenarios::DAY;
use serde::{Deserialize, Serialize};

/// A small generator of numbers (splitmix64): the same on every machine and in every version.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed ^ 0x5bf0_3635_dee3_9d21)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// What happens.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum What {
    /// From now on an operation fails with this error number.
    Refuse { path: String, operation: String, calls: u64, errno: i32 },
    /// Reads return at most so many bytes.
    ShortRead { path: String, calls: u64, most: usize },
    /// Writes take at most so many bytes and change nothing.
    ShortWrite { path: String, calls: u64, most: usize },
    /// Reads return this instead.
    Garbage { path: String, calls: u64, text: String },
    /// All faults end.
    Lift,
    /// The configuration file gets another list of tenants, and the daemon is asked to read it.
    Declare { variant: u64, by_signal: bool },
    /// An order.
    SetPolicy { name: String },
    /// An order.
    Pause { release: bool },
    /// An order.
    Resume,
    /// The order to leave the knobs to the next process, if this one ends within so many milliseconds.
    HandOver { ms: u64 },
    /// Another program makes a control group.
    MakeGroup { name: String },
    /// Another program makes a monitoring group in the nth control group.
    MakeMonitor { group: u64, name: String },
    /// Another program's monitoring group in the nth control group gets one more CPU of that group.
    WatchCpu { group: u64, cpu: u64 },
    /// Another program removes its own group.
    RemoveGroup { name: String },
    /// Another program removes the nth of Waykeeper's groups.
    RemoveOurs { group: u64 },
    /// Another program writes the mask of the nth control group.
    WriteMask { group: u64, mask: u32 },
    /// Another program takes a CPU into the nth group of its own.
    TakeCpu { group: u64, cpu: u64 },
    /// Another program moves the nth task into the nth control group.
    MoveTask { group: u64, task: u64 },
    /// Another program sets the DCA ways.
    SetWays { mask: u32 },
    /// Another program switches DCA of the nth root port.
    SwitchPort { port: u64 },
    /// Another program holds resctrl's lock for a time. Its rights are root's, another user's, or unknown.
    HoldLock { ms: u64, rights: u64 },
    /// A person switches the nth CPU off, or on again. CPU 0 stays on.
    SwitchCpu { cpu: u64 },
    /// The wall clock jumps.
    Jump { seconds: i64 },
    /// The process is killed. With `lose`, what was not synced is lost; of an appended tail `torn` 256ths survive.
    Kill { lose: bool, torn: u8 },
    /// The machine reboots: registers and resctrl are as after power-on, and what was not synced is lost. /run is lost
    /// too, unless it is on a disk.
    Reboot { keeps_run: bool },
    /// The process is told to end.
    Stop,
}

impl What {
    /// Whether it is a fault of files, which lasts until it is lifted.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            What::Refuse { .. } | What::ShortRead { .. } | What::ShortWrite { .. } | What::Garbage { .. }
        )
    }

    /// Whether another program or person does it.
    pub fn is_of_another_program(&self) -> bool {
        matches!(
            self,
            What::MakeGroup { .. }
                | What::MakeMonitor { .. }
                | What::WatchCpu { .. }
                | What::RemoveGroup { .. }
                | What::RemoveOurs { .. }
                | What::WriteMask { .. }
                | What::TakeCpu { .. }
                | What::MoveTask { .. }
                | What::SetWays { .. }
                | What::SwitchPort { .. }
                | What::HoldLock { .. }
                | What::SwitchCpu { .. }
                | What::Reboot { .. }
        )
    }

    /// Its name, for the count of what happened.
    pub fn name(&self) -> &'static str {
        match self {
            What::Refuse { .. } => "refuse",
            What::ShortRead { .. } => "short-read",
            What::ShortWrite { .. } => "short-write",
            What::Garbage { .. } => "garbage",
            What::Lift => "lift",
            What::Declare { .. } => "declare",
            What::SetPolicy { .. } => "set-policy",
            What::Pause { .. } => "pause",
            What::Resume => "resume",
            What::HandOver { .. } => "hand-over",
            What::MakeGroup { .. } => "make-group",
            What::MakeMonitor { .. } => "make-monitor",
            What::WatchCpu { .. } => "watch-cpu",
            What::RemoveGroup { .. } => "remove-group",
            What::RemoveOurs { .. } => "remove-ours",
            What::WriteMask { .. } => "write-mask",
            What::TakeCpu { .. } => "take-cpu",
            What::MoveTask { .. } => "move-task",
            What::SetWays { .. } => "set-ways",
            What::SwitchPort { .. } => "switch-port",
            What::HoldLock { .. } => "hold-lock",
            What::SwitchCpu { .. } => "hotplug",
            What::Jump { .. } => "jump",
            What::Kill { .. } => "kill",
            What::Reboot { .. } => "reboot",
            What::Stop => "stop",
        }
    }

    /// All names.
    pub const NAMES: [&str; 26] = [
        "refuse",
        "short-read",
        "short-write",
        "garbage",
        "lift",
        "declare",
        "set-policy",
        "pause",
        "resume",
        "hand-over",
        "make-group",
        "make-monitor",
        "watch-cpu",
        "remove-group",
        "remove-ours",
        "write-mask",
        "take-cpu",
        "move-task",
        "set-ways",
        "switch-port",
        "hold-lock",
        "hotplug",
        "jump",
        "kill",
        "reboot",
        "stop",
    ];
}

/// An event: it happens right before the `calls`th system call of the daemon after the clock has reached `at_ms`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds of the simulated clock since the start.
    pub at_ms: u64,
    /// System calls of the daemon after that.
    pub calls: u64,
    /// What happens.
    pub what: What,
}

/// A history, as a file has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct History {
    /// The seed that made it.
    pub seed: u64,
    /// Index of the scenario.
    pub scenario: u64,
    /// The policy at the start.
    pub policy: String,
    /// Reaction to external changes: leave or correct.
    pub outsiders: String,
    /// The list of tenants at the start.
    pub tenants: u64,
    /// Whether steps are recorded.
    pub recorder: bool,
    /// Whether the last word has `waykeeper restore`, else a start and a stop.
    pub ends_with_restore: bool,
    /// When the last process is told to end, ms.
    pub end_ms: u64,
    /// The daemon's period, ms.
    #[serde(default = "short_period")]
    pub period_ms: u64,
    /// How long after a question the twin answers, ms of the simulated clock; absent: no twin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin_delay_ms: Option<u64>,
    /// Most starts of the daemon; a host that cannot be opened would otherwise never end.
    #[serde(default = "few_starts")]
    pub most_starts: u32,
    /// The events, in order.
    pub events: Vec<Event>,
}

fn short_period() -> u64 {
    50
}

fn few_starts() -> u32 {
    8
}

/// Lists of tenants.
pub const TENANT_LISTS: u64 = 8;

/// Names of other programs' groups.
const FOREIGN: [&str; 3] = ["pqos-a", "mon-b", "waykeepers"];

/// Paths at which faults strike: every kind of file that the daemon uses.
const PATHS: [&str; 22] = [
    "host/sys/fs/resctrl/schemata",
    "host/sys/fs/resctrl/*/schemata",
    "host/sys/fs/resctrl/cpus*",
    "host/sys/fs/resctrl/*/cpus*",
    "host/sys/fs/resctrl/*/tasks",
    "host/sys/fs/resctrl/*tasks",
    "host/sys/fs/resctrl/waykeeper-*",
    "host/sys/fs/resctrl",
    "host/sys/fs/resctrl/info/*",
    "host/sys/fs/resctrl/*llc_occupancy",
    "host/sys/fs/resctrl/*mbm*",
    "host/dev/cpu/*/msr",
    "host/sys/bus/pci/devices/*/config",
    "host/sys/devices/*config",
    "host/proc/*stat*",
    "host/proc/*",
    "host/sys/fs/cgroup*",
    "host/sys/devices/system/cpu/online",
    "run/waykeeper/journal",
    "run/waykeeper/*",
    "var/log/waykeeper*",
    "*",
];

const OPERATIONS: [&str; 9] = ["any", "open", "read", "write", "list", "make", "remove", "rename", "change"];

/// EIO, EBUSY, ENOSPC, EINVAL, EACCES, ENODEV, ENOENT.
const ERRORS: [i32; 7] = [5, 16, 28, 22, 13, 19, 2];

const TEXTS: [&str; 6] = ["", "\n", "garbage\n", "0\n", "L3:0=zz\n", "4294967296 -1 \u{fffd}\n"];

/// Policies that a history starts with or sets.
const POLICIES: [&str; 6] = ["waykeeper-search", "waykeeper", "a4", "iat", "fixed", "isolate"];

/// Longest time until the twin answers, in periods: more than a policy waits.
const LONGEST_DELAY: u64 = 12;

impl History {
    /// The history of a seed.
    pub fn of(seed: u64) -> History {
        let mut dice = Dice::new(seed);
        let end_ms = 300 + dice.below(900);
        let number = 2 + dice.below(10);
        // A quarter of the histories have no faults of files: what then differs has no excuse.
        let faults = !dice.once_in(4);
        let mut events: Vec<Event> = Vec::new();
        for _ in 0..number {
            let at_ms = dice.below(end_ms);
            let calls = if dice.once_in(3) { 0 } else { dice.below(400) };
            let what = one(&mut dice, faults);
            let lasts = what.is_fault();
            events.push(Event { at_ms, calls, what });
            if lasts {
                let at_ms = at_ms + dice.below(400);
                events.push(Event { at_ms, calls: 0, what: What::Lift });
            }
        }
        add_hand_overs(seed, end_ms, &mut events);
        events.sort_by_key(|event| (event.at_ms, event.calls));
        History {
            seed,
            scenario: dice.below(3),
            policy: (*dice.pick(&POLICIES)).to_owned(),
            outsiders: (*dice.pick(&["leave", "correct"])).to_owned(),
            tenants: dice.below(TENANT_LISTS),
            recorder: dice.once_in(4),
            ends_with_restore: dice.once_in(2),
            end_ms,
            period_ms: short_period(),
            twin_delay_ms: (!dice.once_in(8)).then(|| dice.below(LONGEST_DELAY * short_period())),
            most_starts: few_starts(),
            events,
        }
    }

    /// Whether all that differs is the daemon's own work: no other program acts, and no reading lies.
    pub fn has_no_other_program(&self) -> bool {
        let lies = |what: &What| matches!(what, What::Garbage { .. } | What::ShortRead { .. });
        !self.events.iter().any(|event| event.what.is_of_another_program() || lies(&event.what))
    }

    /// A day of a seed: tenants and CPUs that come and go, policies, pauses, kills and faults of files, about one event in
    /// 20 s, and no other program: what then differs in the end has no excuse.
    pub fn lasting(seed: u64, minutes: u64) -> History {
        let mut dice = Dice::new(seed);
        let end_ms = minutes * 60_000;
        let mut events: Vec<Event> = Vec::new();
        let mut at_ms = 0;
        while at_ms < end_ms {
            at_ms += 1 + dice.below(40_000);
            let what = loop {
                let what = one(&mut dice, true);
                let is_own = !what.is_of_another_program() || matches!(what, What::SwitchCpu { .. });
                if is_own && what != What::Stop {
                    break what;
                }
            };
            let lasts = what.is_fault();
            events.push(Event { at_ms, calls: dice.below(400), what });
            if lasts {
                at_ms += dice.below(10_000);
                events.push(Event { at_ms, calls: 0, what: What::Lift });
            }
        }
        History {
            seed,
            scenario: DAY,
            policy: (*dice.pick(&POLICIES)).to_owned(),
            outsiders: "leave".to_owned(),
            tenants: 1,
            recorder: true,
            ends_with_restore: false,
            end_ms,
            period_ms: 1000,
            twin_delay_ms: Some(1500),
            most_starts: u32::MAX,
            events,
        }
    }
}

/// Half of the histories have orders to hand over, each with a stop soon after it. The time that the next process has is
/// often enough and sometimes not.
fn add_hand_overs(seed: u64, end_ms: u64, events: &mut Vec<Event>) {
    // Numbers of their own: the other events of a seed are those of the histories in `found`.
    let mut dice = Dice::new(seed ^ 0x6861_6e64_6f76_6572);
    if dice.once_in(2) {
        return;
    }
    for _ in 0..1 + dice.below(3) {
        let at_ms = dice.below(end_ms);
        events.push(Event { at_ms, calls: 0, what: What::HandOver { ms: 150 + dice.below(1500) } });
        events.push(Event { at_ms: at_ms + 1, calls: 0, what: What::Stop });
    }
}

fn one(dice: &mut Dice, faults: bool) -> What {
    let kind = if faults && dice.once_in(2) { dice.below(6) } else { 6 + dice.below(29) };
    let calls = if dice.once_in(3) { 0 } else { 1 + dice.below(6) };
    match kind {
        0..=2 => What::Refuse {
            path: (*dice.pick(&PATHS)).to_owned(),
            operation: (*dice.pick(&OPERATIONS)).to_owned(),
            calls,
            errno: *dice.pick(&ERRORS),
        },
        3 => What::ShortRead { path: (*dice.pick(&PATHS)).to_owned(), calls, most: dice.below(20) as usize },
        4 => What::ShortWrite { path: (*dice.pick(&PATHS)).to_owned(), calls, most: dice.below(6) as usize },
        5 => What::Garbage {
            path: (*dice.pick(&PATHS)).to_owned(),
            calls,
            text: (*dice.pick(&TEXTS)).to_owned(),
        },
        6..=8 => What::Declare { variant: dice.below(TENANT_LISTS), by_signal: dice.once_in(2) },
        9 | 10 => What::SetPolicy { name: (*dice.pick(&POLICIES)).to_owned() },
        11 => What::Pause { release: dice.once_in(2) },
        12 => What::Resume,
        13 | 14 => What::MakeGroup { name: (*dice.pick(&FOREIGN)).to_owned() },
        15 => What::MakeMonitor { group: dice.below(6), name: (*dice.pick(&["watch", "m1"])).to_owned() },
        16 => What::RemoveGroup { name: (*dice.pick(&FOREIGN)).to_owned() },
        17 => What::RemoveOurs { group: dice.below(4) },
        18 | 19 => What::WriteMask { group: dice.below(6), mask: 1 + dice.below(0x7ff) as u32 },
        20 => What::TakeCpu { group: dice.below(3), cpu: dice.below(4) },
        21 => What::MoveTask { group: dice.below(6), task: dice.below(8) },
        22 => What::SetWays { mask: *dice.pick(&[0x600, 0x700, 0x780, 0x7c0, 0x7ff]) },
        23 => What::SwitchPort { port: dice.below(2) },
        24 => What::HoldLock { ms: dice.below(600), rights: dice.below(3) },
        25 => What::Jump { seconds: *dice.pick(&[-7200, -1, 1, 3600, 90_000]) },
        26..=28 => What::Kill { lose: dice.once_in(2), torn: dice.next() as u8 },
        29 | 30 => What::SwitchCpu { cpu: dice.below(3) },
        31 | 32 => What::WatchCpu { group: dice.below(6), cpu: dice.below(4) },
        33 => What::Reboot { keeps_run: dice.once_in(2) },
        _ => What::Stop,
    }
}
