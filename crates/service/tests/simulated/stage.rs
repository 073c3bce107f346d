//! A simulated machine, what it was before its first process, and what must hold when no process manages it any more.
//!
//! Must not know where a history comes from, nor what the processes do.

use crate::daemon::write_config;
use crate::history::{History, What};
use crate::journaled::is_ours;
use crate::picture::{self, Picture, SWITCH};
use crate::scenarios;
use crate::system::Simulated;
use crate::world::{PREFIX, World};
use std::collections::BTreeSet;
use std::sync::Arc;
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::root::Root;
use waykeeper_testbed::{HostState, Watched};

/// The machine of a history.
pub struct Stage {
    pub world: World,
    /// The root of its files, past all faults.
    pub root: Root,
    /// Its knobs before the first process.
    pub original: Picture,
    pub watched: Watched,
    /// Its other registers before the first process.
    pub registers: HostState,
}

impl Stage {
    /// The machine before the first process, with the configuration on its disk.
    pub fn new(history: &History) -> Stage {
        let world = World::new(history.clone(), scenarios::scenario(history.scenario));
        for path in ["/etc", "/etc/waykeeper", "/run", "/var", "/var/log"] {
            // The disk is new and has none of them.
            let _ = world.lock().disk.make_dir(path);
        }
        write_config(&world, history.tenants);
        let root = Root::on(Arc::new(Simulated::observer(&world)), PREFIX);
        let clock = world.lock().clock.clone();
        let original = picture::take(&world.lock().files, &clock);
        let places = clock.with(|server| {
            let layout = server.layout();
            (layout.generation, layout.cpus() as u16, layout.packages as u16, layout.cores as u16)
        });
        let (generation, cpus, packages, cores) = places.unwrap_or_else(|why| panic!("the model: {why}"));
        let own: BTreeSet<u16> = (0..cpus).collect();
        let firsts: Vec<u16> = (0..packages).map(|package| package * cores).collect();
        let watched = Watched::new(&root, generation, cpus, &own, &firsts);
        let registers = other_registers(&watched, &root);
        Stage { world, root, original, watched, registers }
    }

    /// Everything is as it was, except what the other program changed last.
    pub fn compare(&self, when: &str) {
        let Stage { world, original, registers, watched, root } = self;
        let (mut registers, mut now_registers) = (registers.clone(), other_registers(watched, root));
        let mut state = world.lock();
        let online = picture::online(&state.files);
        let is_on = |name: &str| {
            let cpu = name.strip_prefix("CPU ").and_then(|rest| rest.split(' ').next()?.parse::<u16>().ok());
            cpu.is_none_or(|cpu| online.contains(&cpu))
        };
        // Those of a CPU that was off when the daemon restored stay in the journal, also if it is on since.
        let away = if when == "in the end" { BTreeSet::new() } else { state.journaled().away() };
        let is_there =
            |name: &String| is_on(name) && !away.iter().any(|cpu| name.starts_with(&format!("CPU {cpu} ")));
        [&mut registers, &mut now_registers].into_iter().for_each(|all| all.retain(|name, _| is_there(name)));
        let now = picture::take(&state.files, &state.clock);
        let mut wrong = Vec::new();
        // A register that reads a wrong value of eight bytes at every reading cannot be told from one that another program
        // took: it stays as it is.
        let is_misread = state.history.events.iter().any(|event| {
            matches!(&event.what, What::Garbage { path, calls: 0, text } if path.ends_with("msr") && text.len() >= 8)
        });
        if now_registers != registers && !is_misread {
            wrong.push(waykeeper_testbed::state_difference(&registers, &now_registers));
        }
        let names: BTreeSet<&String> =
            original.keys().chain(now.keys()).chain(state.touched.values.keys()).collect();
        let (mut kept, mut reverted) = (0, 0);
        let corrects = state.history.outsiders == "correct";
        // With `outsiders = "correct"` another program's value is undone, at the latest by the restore at the end. Otherwise
        // a register must have been written by a policy since.
        let written = |name: &str| {
            let register = name == picture::WAYS_NAME || name.starts_with("port ");
            corrects || register && state.touched.overwritten.contains(name)
        };
        let was_left = |name: &str, found: Option<&String>| {
            found.is_some_and(|found| state.touched.ever.contains(&(name.to_owned(), found.clone())))
        };
        for name in names {
            let found = now.get(name);
            if name.starts_with("task ") {
                let group = found.map_or("", String::as_str);
                let touched = state.touched.values.get(name).cloned().flatten();
                // A task of a program that ended is gone; a new one is in its parent's group.
                if !group.is_empty() && touched.as_deref() != Some(group) {
                    wrong.push(format!("{name} is in {group:?}"));
                }
                continue;
            }
            if name.contains(GROUP_PREFIX) {
                if found.is_some() {
                    wrong.push(format!("{name} is there: {found:?}"));
                }
                continue;
            }
            let before = original.get(name).filter(|_| is_on(name));
            // Which CPUs it has then is checked below.
            if name.starts_with("monitor ") && name.ends_with(" of default") && found.is_some() {
                continue;
            }
            // The daemon moves another program's monitoring group out of its own before it removes that.
            let moved = name.strip_suffix("default").filter(|rest| rest.starts_with("monitor ")).is_some_and(
                |rest| {
                    state
                        .touched
                        .values
                        .iter()
                        .any(|(other, value)| other.starts_with(rest) && value.is_some())
                },
            );
            if moved {
                continue;
            }
            match state.touched.values.get(name) {
                None if found == before => {}
                None => wrong.push(format!("{name} is {found:?}, was {before:?}")),
                Some(touched) if found == touched.as_ref() => kept += 1,
                // What the other program did to one of Waykeeper's groups ended with the group.
                Some(Some(group)) if name.starts_with("CPU ") && is_ours(group) && found == before => {}
                // The other program took the CPU between the daemon's reading and its write, without resctrl's lock.
                Some(Some(_)) if found == before && state.touched.raced.contains(name) => reverted += 1,
                // Where another program sets a value that the daemon wrote too, the register does not say who wrote it: it
                // counts as the daemon's, after a kill also for the next start. So does a value that changed and is back: it
                // may have been misread meanwhile.
                Some(Some(touched))
                    if (found == before || was_left(name, found))
                        && state.touched.own.contains(&(name.clone(), touched.clone())) =>
                {
                    reverted += 1;
                }
                // The daemon wrote it later, and restored what it had found before its first write: the first value, or an
                // earlier one of the other program.
                Some(_) if written(name) && (found == before || was_left(name, found)) => reverted += 1,
                Some(touched) => {
                    wrong.push(format!(
                        "{name} is {found:?}, was {before:?}, and another program left {touched:?}"
                    ));
                }
            }
        }
        for (monitor, cpus) in &state.touched.watched {
            let has = |name: &String| name.starts_with(&format!("monitor {monitor} of "));
            let Some((name, list)) = now.iter().find(|(name, _)| has(name)) else {
                wrong
                    .push(format!("the monitoring group {monitor} is gone, and its owner did not remove it"));
                continue;
            };
            let list = picture::cpus(list);
            let lost = cpus.iter().find(|cpu| !list.iter().any(|own| **cpu == format!("CPU {own}")));
            wrong.extend(lost.map(|cpu| format!("{name} has lost {cpu}, which no other program took")));
        }
        if kept > 0 {
            state.mark("kept");
        }
        if reverted > 0 {
            state.mark("reverted");
        }
        wrong.into_iter().for_each(|text| state.violation(format!("{when}: {text}")));
    }
}

/// The registers that no other program touches here.
pub fn other_registers(watched: &Watched, root: &Root) -> HostState {
    let mut registers = watched.state(root);
    let switch = format!(" {:#x}", SWITCH.0);
    registers.retain(|name, _| {
        // The class of a CPU has a number that depends on the history; the picture has its group. The picture also has
        // the DCA ways and switches.
        let pictured = name.starts_with("/sys/fs/resctrl")
            || name.ends_with("MSR 0xc8f")
            || name.ends_with("MSR 0xc8b")
            || name.starts_with("PCI") && name.ends_with(&switch);
        !pictured
    });
    registers
}
