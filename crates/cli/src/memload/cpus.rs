//! The CPUs of a load, and those of the command that is measured beside it.
//!
//! It knows which CPUs share a core; must not know what runs on them.

use crate::exit::{self, Failure};
use crate::pinned;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::Serialize;
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Topology;
use waykeeper_units::{CoreId, CoreList};

/// The CPUs of both.
#[derive(Debug, Serialize)]
pub struct Cpus {
    /// CPUs of the load.
    pub load: Vec<u32>,
    /// CPUs of the command.
    pub command: Vec<u32>,
}

impl Cpus {
    /// CPUs of the command as a list; all of them are below [`CpuSet::MAX_CPU`].
    pub fn command_list(&self) -> CoreList {
        self.command.iter().map(|cpu| CoreId(*cpu as u16)).collect::<Vec<_>>().into()
    }
}

/// Checks that the requested CPUs are available.
pub fn there(asked: &[u32]) -> Result<(), Failure> {
    if asked.is_empty() {
        return Ok(());
    }
    let list: Vec<CoreId> = asked.iter().map(|cpu| CoreId(u16::try_from(*cpu).unwrap_or(u16::MAX))).collect();
    pinned::can_be_had(&list.into(), "--cpus")
}

/// The load gets the requested CPUs, else the last one. The command gets the others, except those that share a core
/// with the load: sharing a core slows the command without any cache effect.
pub fn share(asked: &[u32]) -> Result<Cpus, Failure> {
    there(asked)?;
    let mine = sched_getaffinity(None)
        .map_err(|why| Failure::io("cannot read which CPUs may be used", &why.into()))?;
    let mine: Vec<u32> = (0..CpuSet::MAX_CPU).filter(|cpu| mine.is_set(*cpu)).map(|cpu| cpu as u32).collect();
    let cores = Topology::read(&Root::at("/")).map(|topology| {
        let cores = topology.online().map(|(_, place)| place.siblings.cores());
        cores.map(|core| core.iter().map(|cpu| u32::from(cpu.0)).collect()).collect()
    });
    let cores: Vec<Vec<u32>> = cores.unwrap_or_else(|why| {
        exit::eprint_line(&format!("cannot read which CPUs share a core: {why}"));
        Vec::new()
    });
    match parted(&mine, asked, &cores) {
        None => {
            let why = "the load uses all CPUs that may be used here, and none is left for the command";
            Err(Failure::new(exit::UNSUPPORTED, why))
        }
        Some((cpus, shared)) => {
            if shared {
                exit::eprint_line(
                    "the command shares its core with the load, because no other core is free; this slows it \
                     down as well",
                );
            }
            Ok(cpus)
        }
    }
}

/// Divides the CPUs; true if the two must share a core. `None` if no CPU is left for the command.
fn parted(mine: &[u32], asked: &[u32], cores: &[Vec<u32>]) -> Option<(Cpus, bool)> {
    let load = if asked.is_empty() { mine.last().copied().into_iter().collect() } else { asked.to_vec() };
    let others: Vec<u32> = mine.iter().copied().filter(|cpu| !load.contains(cpu)).collect();
    let beside_load =
        |cpu: &u32| cores.iter().any(|core| core.contains(cpu) && load.iter().any(|of| core.contains(of)));
    let apart: Vec<u32> = others.iter().copied().filter(|cpu| !beside_load(cpu)).collect();
    let shared = apart.is_empty();
    let command = if shared { others } else { apart };
    (!command.is_empty()).then_some((Cpus { load, command }, shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_core_with_the_load_is_not_the_commands() {
        let reported = |mine: &[u32], asked: &[u32], cores: &[Vec<u32>]| {
            parted(mine, asked, cores).map(|(cpus, shared)| (cpus.load, cpus.command, shared))
        };
        let cores = [vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]];
        let mine: Vec<u32> = (0..8).collect();
        assert_eq!(reported(&mine, &[], &cores), Some((vec![7], vec![0, 1, 2, 4, 5, 6], false)));
        assert_eq!(reported(&mine, &[0, 5], &cores), Some((vec![0, 5], vec![2, 3, 6, 7], false)));
        // One core for both, and no known topology.
        assert_eq!(reported(&[0, 1], &[], &[vec![0, 1]]), Some((vec![1], vec![0], true)));
        assert_eq!(reported(&[0, 1], &[], &[]), Some((vec![1], vec![0], false)));
        assert_eq!(reported(&[3], &[], &[]), None);
    }
}
