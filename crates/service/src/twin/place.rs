//! The CPUs on which the twin's thread runs.
//!
//! Must not know what runs there.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use waykeeper_calibration::ServerDescription;
use waykeeper_units::{CoreId, CoreList};

/// Where a thread may run.
#[derive(Debug)]
pub(super) enum Place {
    /// On CPUs that the configuration names: set once.
    Named,
    /// On those of the daemon's CPUs that no tenant is pinned to.
    Beside {
        /// The CPUs of the daemon.
        own: CoreList,
        /// Where the thread is now.
        now: CoreList,
    },
}

impl Place {
    /// The place of the calling thread, which has the affinity of the daemon; `named` are the CPUs of the configuration.
    ///
    /// # Errors
    /// A CPU that the daemon may not use.
    pub fn take(named: Option<&CoreList>) -> Result<Place, String> {
        let own = sched_getaffinity(None).map(|set| list(&set)).unwrap_or_default();
        let Some(named) = named else { return Ok(Place::Beside { now: own.clone(), own }) };
        if let Some(missing) = named.without(&own).cores().first() {
            return Err(format!("CPU {} is not available to the daemon; {own} are", missing.0));
        }
        pin(named).map_err(|why| format!("the system refuses to pin a thread to CPUs: {why}"))?;
        Ok(Place::Named)
    }

    /// Leaves the cores to which tenants are pinned. Where tenants have all cores, the thread may run on any.
    pub fn leave_tenants(&mut self, server: &ServerDescription) {
        let Place::Beside { own, now } = self else { return };
        let tenants = server.tenants.iter().flat_map(|tenant| tenant.workload.cores.cores()).copied();
        let wanted = free(own, &CoreList::from(tenants.collect::<Vec<_>>()));
        // Nice 19 protects the tenants where the system does not allow it.
        if wanted != *now && pin(&wanted).is_ok() {
            *now = wanted;
        }
    }
}

/// The CPUs without those of tenants; all of them if tenants have every one.
fn free(own: &CoreList, tenants: &CoreList) -> CoreList {
    let free = own.without(tenants);
    if free.is_empty() { own.clone() } else { free }
}

fn pin(cpus: &CoreList) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    for cpu in cpus.cores().iter().filter(|cpu| cpu.index() < CpuSet::MAX_CPU) {
        set.set(cpu.index());
    }
    sched_setaffinity(None, &set)
}

fn list(set: &CpuSet) -> CoreList {
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    cpus.map(|cpu| CoreId(cpu as u16)).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CoreList {
        text.parse().unwrap()
    }

    #[test]
    fn the_cores_of_tenants_are_left_unless_they_have_all() {
        assert_eq!(free(&cpus("0-7"), &cpus("0-2,9")), cpus("3-7"));
        assert_eq!(free(&cpus("0-1"), &cpus("0-17")), cpus("0-1"));
    }

    #[test]
    fn a_named_cpu_is_where_the_thread_runs_and_one_that_is_not_there_is_refused() {
        // On a thread of its own, since it is pinned.
        let test = || {
            let own = list(&sched_getaffinity(None).unwrap());
            let last = CoreList::from(vec![*own.cores().last().unwrap()]);
            assert!(matches!(Place::take(Some(&last)), Ok(Place::Named)));
            assert_eq!(list(&sched_getaffinity(None).unwrap()), last);
            let why = Place::take(Some(&cpus("1023"))).unwrap_err();
            assert_eq!(why, format!("CPU 1023 is not available to the daemon; {last} are"));
        };
        std::thread::spawn(test).join().unwrap();
    }
}
