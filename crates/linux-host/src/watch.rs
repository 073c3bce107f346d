//! The counters of one package, read without managing the host: it makes no group and writes no knob.
//!
//! For a caller that changes one knob by hand and measures the effect. Counting through MSRs programs counters; their
//! originals are journaled first. Must not know which knob is changed.

use super::count;
use super::error::OpenError;
use super::facts::Facts;
use super::inventory;
use super::io_knobs::IoKnobs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use waykeeper_host::{Interval, Snapshot};
use waykeeper_kernel::counting::Counting;
use waykeeper_kernel::host_clock::HostClock;
use waykeeper_kernel::journal::Journal;
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::resctrl::Resctrl;
use waykeeper_kernel::root::Root;
use waykeeper_kernel::system::{self, SharedSystem};
use waykeeper_units::{PortId, WayMask};

/// How often a measurement checks whether it should stop.
const TICK: Duration = Duration::from_millis(50);

/// An observed package.
#[derive(Debug)]
pub struct ObservedPackage {
    counting: Box<dyn Counting>,
    knobs: IoKnobs,
    ports: Vec<(PortId, PciAddress, bool)>,
    system: SharedSystem,
    /// When it was opened, on the system's clock.
    started: Duration,
    /// The clock of the counters, where it may be another than the system's.
    clock: Option<HostClock>,
}

impl ObservedPackage {
    /// Starts counting on a socket.
    ///
    /// # Errors
    /// If something required is missing. No register stays programmed then.
    pub fn open(root: &Root, socket: u16, journal: &mut Journal) -> Result<ObservedPackage, OpenError> {
        let topology = waykeeper_kernel::topology::Topology::read(root)?;
        let core = topology.reader_of(socket).ok_or(OpenError::NoSocket { socket })?;
        let facts = Facts::read(root, core)?;
        let (counting, _) = count::start(root, &facts, None, Some(journal)).map_err(OpenError::Counting)?;
        let info = Resctrl::open(root, GROUP_PREFIX).and_then(|resctrl| resctrl.info()).ok();
        let masks = info.as_ref().and_then(|info| info.l3()).map(|l3| l3.cbm_mask);
        let llc =
            masks.unwrap_or_else(|| WayMask::span(0, facts.l3.as_ref().and_then(|l3| l3.ways).unwrap_or(0)));
        let ports = inventory::ports(&facts);
        let files = RegisterFiles::new(root, facts.generation);
        let knobs = IoKnobs::open(files, facts.generation, llc, (socket, facts.reader), &ports, root, true);
        let system = root.system().clone();
        let clock = count::clock(root, &facts, counting.as_ref());
        let started = system.now();
        Ok(ObservedPackage { counting, knobs, ports, system, started, clock })
    }

    /// The id of a root port in the samples; `None` if it is not this package's or has no NIC or disk.
    pub fn port(&self, address: PciAddress) -> Option<PortId> {
        self.ports.iter().find(|(_, own, is_local)| *own == address && *is_local).map(|(id, _, _)| *id)
    }

    /// Measures several packages at once for `span`, in `slices` intervals of equal length, or until `stop`.
    pub fn slices(
        watches: &mut [&mut ObservedPackage],
        span: Duration,
        slices: u32,
        stop: &AtomicBool,
    ) -> Vec<Vec<Interval>> {
        let system = watches.first().map_or_else(system::real, |watch| watch.system.clone());
        let begun = system.now();
        let mut last: Vec<Snapshot> = watches.iter_mut().map(|watch| watch.sample()).collect();
        let mut found = vec![Vec::new(); watches.len()];
        for slice in 1..=slices {
            loop {
                if stop.load(Ordering::Relaxed) {
                    return found;
                }
                match (span / slices * slice).saturating_sub(system.now().saturating_sub(begun)) {
                    Duration::ZERO => break,
                    left => system.sleep(left.min(TICK)),
                }
            }
            for ((watch, last), found) in watches.iter_mut().zip(&mut last).zip(&mut found) {
                let now = watch.sample();
                found.extend(Interval::between(last, &now));
                *last = now;
            }
        }
        found
    }

    fn sample(&mut self) -> Snapshot {
        let passed = self.system.now().saturating_sub(self.started).as_nanos();
        let at_ns = u64::try_from(passed).unwrap_or(u64::MAX);
        let from_ns = self.clock.as_mut().and_then(|clock| clock.sampled(at_ns));
        let counts = self.counting.count();
        let counters_read = count::read_since(from_ns, self.clock.as_ref());
        // A knob or counter that cannot be read is missing from the sample; the caller reports that.
        let mut unread = Vec::new();
        let knobs = self.knobs.read(&mut unread);
        let ports = self.ports.iter().filter(|(_, _, is_local)| *is_local);
        Snapshot {
            at_ns,
            counters_read,
            groups: Default::default(),
            socket: counts.socket(),
            ports: ports.map(|(id, _, _)| (*id, counts.port(id.0))).collect(),
            knobs,
        }
    }
}
