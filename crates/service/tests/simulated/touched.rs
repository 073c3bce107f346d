//! Another program on the machine: what it does to resctrl and registers, and which value it left where.
//!
//! Must not know what the daemon made of it.

use crate::history::What;
use crate::journaled::is_ours;
use crate::picture::{self, MOUNT, Picture, SWITCH};
use crate::world::State;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_vhost::resctrl::groups::DirOwner;

/// What the other program changed last, by name; `None` if it removed the entry.
#[derive(Default, Debug)]
pub struct Touched {
    /// The values.
    pub values: BTreeMap<String, Option<String>>,
    /// All values that it left at any time.
    pub ever: BTreeSet<(String, String)>,
    /// What the daemon has written since: its original is restored, as for any knob that the daemon wrote last.
    pub overwritten: BTreeSet<String>,
    /// CPUs that it took while the daemon was about to write them, and that the daemon then took without seeing that.
    pub raced: BTreeSet<String>,
    /// Values of registers that the daemon has written at any time.
    pub own: BTreeSet<(String, String)>,
    /// What it changed since the daemon's last wait, during a step.
    pub unseen: BTreeSet<String>,
    /// The CPUs that it gave to its monitoring groups, by the group's name, and that it did not take from them since: when
    /// the daemon is gone they must be watched again.
    pub watched: BTreeMap<String, BTreeSet<String>>,
}

/// The name of another program's monitoring group in an entry of a picture.
fn monitor_of(entry: &str) -> Option<&str> {
    entry.strip_prefix("monitor ")?.split(' ').next().filter(|name| !is_ours(name))
}

impl Touched {
    pub fn note(&mut self, before: &Picture, after: &Picture) {
        for (name, value) in after {
            if before.get(name) != Some(value) {
                self.unseen.insert(name.clone());
                self.overwritten.remove(name);
                self.ever.insert((name.clone(), value.clone()));
                self.values.insert(name.clone(), Some(value.clone()));
            }
        }
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            self.values.insert(name.clone(), None);
        }
        self.note_watched(before, after);
    }

    fn note_watched(&mut self, before: &Picture, after: &Picture) {
        let names = before.keys().chain(after.keys());
        let moved: BTreeSet<&String> =
            names.filter(|name| name.starts_with("CPU ") && before.get(*name) != after.get(*name)).collect();
        self.watched.retain(|monitor, cpus| {
            cpus.retain(|cpu| !moved.contains(cpu));
            after.keys().any(|name| monitor_of(name) == Some(monitor))
        });
        for (name, list) in after.iter().filter(|(name, list)| before.get(*name) != Some(list)) {
            let Some(monitor) = monitor_of(name) else { continue };
            let now = picture::cpus(list).into_iter().map(|cpu| format!("CPU {cpu}"));
            let had = before.get(name).map(|list| picture::cpus(list)).unwrap_or_default();
            for cpu in now.filter(|cpu| !had.iter().any(|had| *cpu == format!("CPU {had}"))) {
                for cpus in self.watched.values_mut() {
                    cpus.remove(&cpu);
                }
                self.watched.entry(monitor.to_owned()).or_default().insert(cpu);
            }
        }
    }
}

const OWNER: DirOwner = DirOwner { mode: 0o755, uid: 0, gid: 0 };

impl State {
    /// The other program acts. What the kernel refuses has no effect.
    pub fn act_outside(&mut self, what: &What) {
        let before = picture::take(&self.files, &self.clock);
        let done = self.try_outside(what);
        if !done.unwrap_or(false) {
            return;
        }
        self.mark("outsider-acted");
        match what {
            What::WatchCpu { .. } => self.mark("watched"),
            What::SwitchCpu { .. } if self.mailbox.is_running() => self.mark("hotplug-seen"),
            _ => {}
        }
        let after = picture::take(&self.files, &self.clock);
        self.touched.note(&before, &after);
    }

    /// Whether the other program changed this during the present step.
    pub fn is_unseen(&self, name: &str) -> bool {
        self.touched.unseen.contains(name)
    }

    fn try_outside(&mut self, what: &What) -> Option<bool> {
        let files = &self.files;
        let groups = picture::control_groups(files);
        let nth = |index: u64| groups[(index % groups.len() as u64) as usize].clone();
        let foreign: Vec<&String> =
            groups.iter().filter(|group| !group.is_empty() && !is_ours(group)).collect();
        let mount = self.mount();
        match what {
            What::MakeGroup { name } => Some(files.make_directory(mount, name, OWNER).is_ok()),
            What::MakeMonitor { group, name } => {
                // If its name is taken in the default group, the daemon cannot move it there, and says so: its group
                // stays until another program removes one of the two.
                let taken = |group: &String| {
                    picture::names(files, &picture::in_group(group, "mon_groups")).contains(name)
                };
                if groups.iter().any(taken) {
                    return None;
                }
                let path = picture::in_group(&nth(*group), "mon_groups");
                let above = files.walk(&path, true).ok()?;
                Some(files.make_directory(above, name, OWNER).is_ok())
            }
            What::WatchCpu { group, cpu } => {
                let above = nth(*group);
                let monitors = picture::names(files, &picture::in_group(&above, "mon_groups"));
                let name = monitors.into_iter().find(|name| !is_ours(name))?;
                let all = picture::cpus(&picture::text(files, &picture::in_group(&above, "cpus_list")));
                let more = all.get((*cpu % all.len().max(1) as u64) as usize)?;
                let path = picture::in_group(&above, &format!("mon_groups/{name}/cpus_list"));
                let mut cpus = picture::cpus(&picture::text(files, &path));
                cpus.push(*more);
                let list: Vec<String> = cpus.iter().map(u16::to_string).collect();
                Some(picture::write(files, &path, 0, format!("{}\n", list.join(",")).as_bytes()))
            }
            What::SwitchCpu { cpu } => {
                let number = 1 + cpu % u64::from(self.cores - 1);
                Some(picture::switch_cpu(files, number as u16, None))
            }
            What::RemoveGroup { name } => Some(files.remove_directory(mount, name).is_ok()),
            What::RemoveOurs { group } => {
                let ours: Vec<&String> = groups.iter().filter(|group| is_ours(group)).collect();
                let name = ours.get((*group % ours.len().max(1) as u64) as usize)?;
                Some(files.remove_directory(mount, name).is_ok())
            }
            What::WriteMask { group, mask } => {
                let line = format!("L3:0={mask:x}\n");
                Some(picture::write(files, &picture::in_group(&nth(*group), "schemata"), 0, line.as_bytes()))
            }
            What::TakeCpu { group, cpu } => {
                let name = foreign.get((*group % foreign.len().max(1) as u64) as usize)?;
                let path = picture::in_group(name, "cpus_list");
                let mut cpus = picture::cpus(&picture::text(files, &path));
                cpus.push((*cpu % u64::from(self.cores)) as u16);
                let list: Vec<String> = cpus.iter().map(u16::to_string).collect();
                Some(picture::write(files, &path, 0, format!("{}\n", list.join(",")).as_bytes()))
            }
            What::MoveTask { group, task } => {
                let all: Vec<String> = groups
                    .iter()
                    .flat_map(|group| {
                        let text = picture::text(files, &picture::in_group(group, "tasks"));
                        text.lines().map(str::to_owned).collect::<Vec<String>>()
                    })
                    .collect();
                let task = all.get((*task % all.len().max(1) as u64) as usize)?;
                let path = picture::in_group(&nth(*group), "tasks");
                Some(picture::write(files, &path, 0, format!("{task}\n").as_bytes()))
            }
            What::SetWays { mask } => {
                Some(picture::write(files, "dev/cpu/0/msr", 0xc8b, &u64::from(*mask).to_le_bytes()))
            }
            What::SwitchPort { port } => {
                let ports = picture::ports(files, &self.clock);
                let path = picture::config(ports.get((*port % ports.len().max(1) as u64) as usize)?);
                let byte = *picture::bytes(files, &path, SWITCH.0, 1)?.first()?;
                Some(picture::write(files, &path, SWITCH.0, &[byte ^ SWITCH.1]))
            }
            _ => None,
        }
    }

    /// Whether another program's groups are as it left them.
    pub fn check_foreign(&mut self, original: &Picture) {
        let now = picture::take(&self.files, &self.clock);
        let prefix = "group ";
        let mut wrong = Vec::new();
        let is_foreign = |name: &str| {
            name.strip_prefix(prefix).is_some_and(|rest| !rest.starts_with("default ") && !is_ours(rest))
        };
        let touched = self.touched.values.iter().filter(|(name, _)| is_foreign(name));
        for (name, value) in touched {
            let expected = value.as_ref().or_else(|| original.get(name).filter(|_| value.is_some()));
            if now.get(name) != expected {
                wrong.push(format!("{name} of {MOUNT} is {:?}, not {expected:?}", now.get(name)));
            }
        }
        wrong.into_iter().for_each(|text| self.violation(text));
    }
}
