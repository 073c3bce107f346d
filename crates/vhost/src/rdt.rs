//! What the chip offers for resource control (as CPUID announces it and a kernel finds it), and resctrl's hands on the
//! registers.
//!
//! It must not know resctrl's groups, nor files. Marks: docs/reference/README.md#marks.

use crate::engine::Engine;
use crate::package::{MONITORING_UNIT, Server};
use crate::places::Places;
use crate::programs::{FIRST_PID, pid_of};
use crate::resctrl::description::{Bandwidth, Cache, Cdp, Description, Domain, IoAlloc, Kernel, Monitoring};
use crate::resctrl::hardware::{Event, Hardware, Lines, Monitored, Traffic};
use waykeeper_silicon::ChipSpec;

/// Resource control of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// CPUID announces L3 CAT (leaf 0x10). Haswell has it on a few parts and announces nothing (hardware.md 7.2).
    pub announces_cat: bool,
    /// Classes of L3 CAT; 0: none.
    pub classes: u32,
    /// Classes of bandwidth allocation; 0: none.
    pub bandwidth_classes: u32,
    /// Fewest bits of a mask as resctrl shows it.
    pub min_bits: u32,
    /// Masks may have holes.
    pub sparse: bool,
    /// Ways that hardware also fills (`shareable_bits`).
    pub shareable: u32,
    /// Code and data can be told apart.
    pub apart: bool,
    /// Occupancy is monitored.
    pub occupancy: bool,
    /// Memory traffic is.
    pub traffic: bool,
}

impl Features {
    /// Those of a server's chip; `bandwidth` as the kernel was booted (`rdt=!mba` leaves it out).
    pub fn new(places: &Places, spec: &ChipSpec, bandwidth: bool) -> Features {
        let haswell = places.generation.is_some_and(|generation| generation.id == "hsx");
        let none = spec.llc.clos <= 1 || places.generation.is_none();
        let facts = places.generation.map(|generation| &generation.resctrl);
        let classes = if none { 0 } else { spec.llc.clos };
        // Where no source gives the number of bandwidth classes, 8 as on Skylake; AMD has as many as for the L3 (X).
        let known = facts.and_then(|facts| facts.mba_classes);
        let bandwidth_classes = match known {
            _ if none || haswell || !bandwidth || !has_bandwidth(places) => 0,
            Some(known) => known,
            None if places.is_amd() => classes,
            None => 8,
        };
        let dca = spec.llc.dca_ways.map_or(0, |ways| ways.bits());
        Features {
            announces_cat: !none && !haswell,
            classes,
            bandwidth_classes,
            min_bits: if places.is_amd() { 0 } else { spec.llc.min_ways },
            sparse: spec.llc.sparse_masks,
            // Haswell's driver has 0xc0000 in its text, which is what the chip file calls the ways of devices.
            shareable: facts.and_then(|facts| facts.shareable).map_or(dca, |mask| mask.bits()),
            apart: !none && !haswell,
            occupancy: !none,
            traffic: !none && places.counts_traffic(),
        }
    }

    /// Whether there is anything for resctrl.
    pub fn any(&self) -> bool {
        self.classes > 0 || self.occupancy
    }

    /// What a kernel's resctrl says of it.
    pub fn description(&self, server: &Server, kernel: Kernel) -> Description {
        let (places, spec) = (server.places(), server.bare().spec());
        let domain = |package| Domain {
            id: package as u32,
            cpus: places.cpus_of(package).map(|cpu| cpu as u32).collect(),
        };
        let llc_bytes = spec.llc_bytes();
        let amd = places.is_amd();
        let mlc_bytes = spec.mlc.sets * spec.mlc.ways * 64;
        Description {
            kernel,
            possible_cpus: places.cpus() as u32,
            domains: (0..places.packages).map(domain).collect(),
            l3: (self.classes > 0).then_some(Cache {
                cbm_bits: spec.llc.ways,
                shareable: u64::from(self.shareable),
                min_bits: self.min_bits,
                sparse: self.sparse,
                closids: self.classes,
                size_bytes: llc_bytes,
                cdp: if self.apart { Cdp::Off } else { Cdp::Absent },
                io_alloc: IoAlloc::Absent,
            }),
            mb: (self.bandwidth_classes > 0).then(|| {
                let of = if amd { Bandwidth::amd } else { Bandwidth::intel };
                of(self.bandwidth_classes)
            }),
            smba: None,
            monitoring: self.occupancy.then(|| Monitoring {
                rmids: server.rmids(),
                unit_bytes: MONITORING_UNIT,
                largest_threshold: if amd { mlc_bytes } else { llc_bytes as u32 },
                llc_occupancy: true,
                mbm_total: self.traffic,
                mbm_local: self.traffic,
                configurable: false,
            }),
        }
    }
}

/// Bandwidth allocation came with Skylake on Intel and with Zen 2 on AMD (SDM vol. 3, 17.19; hardware.md 8.1, 9).
fn has_bandwidth(places: &Places) -> bool {
    places.generation.is_some_and(|generation| !matches!(generation.id.as_str(), "hsx" | "bdx"))
}

/// The driver: what resctrl decides goes into the registers.
pub struct Driver(Engine);

impl Driver {
    /// A driver of this server.
    pub fn new(engine: Engine) -> Driver {
        Driver(engine)
    }

    /// A machine that stopped keeps its registers: resctrl has no way to report that here, the next read of a
    /// counter does.
    fn act(&self, act: impl FnOnce(&mut Server)) {
        let _ = self.0.with(act);
    }
}

impl Hardware for Driver {
    fn set_mask(&mut self, domain: u32, closid: u32, lines: Lines, mask: u64) {
        self.act(|server| {
            let package = domain as usize;
            let (class, apart) = (closid as usize, lines != Lines::All);
            server.set_apart(package, apart);
            let number = match lines {
                Lines::All => class,
                Lines::Data => 2 * class,
                Lines::Code => 2 * class + 1,
            };
            // resctrl checked it by the rules it read from the same chip.
            let _ = server.set_mask(package, number, mask);
        });
    }

    fn set_bandwidth(&mut self, domain: u32, closid: u32, traffic: Traffic, value: u32) {
        self.act(|server| {
            if traffic == Traffic::Memory {
                // Intel's register holds what is taken away, in percent (linux core.c: mba_wrmsr_intel).
                let amd = server.places().is_amd();
                let delay = if amd { u64::from(value) } else { 100 - u64::from(value.min(100)) };
                let _ = server.set_delay(domain as usize, closid as usize, delay);
            }
        });
    }

    fn set_cpu(&mut self, cpu: u32, closid: u32, rmid: u32) {
        self.act(|server| {
            let _ = server.set_cpu(cpu as usize, closid, rmid);
        });
    }

    /// The tasks of the host that the tree is mounted on do not run on the machine's cores: only those of the scenario's
    /// programs have an effect.
    fn set_task(&mut self, task: u32, closid: u32, rmid: u32) {
        if task < FIRST_PID {
            return;
        }
        self.act(|server| {
            let thread = server.bare().processes().iter().find_map(|process| {
                let place = task.checked_sub(pid_of(process.first_thread))?;
                (place < process.busy_ns.len() as u32).then_some(process.first_thread + u64::from(place))
            });
            // A thread that has exited meanwhile has no class any more.
            let _ = thread.and_then(|thread| server.set_thread(thread, closid, rmid));
        });
    }

    /// No chip of ours has it, and resctrl does not ask where it is absent.
    fn set_io_alloc(&mut self, _: Option<u32>) {}

    fn set_event_kinds(&mut self, _: u32, _: Event, _: u32) {}

    fn monitor(&mut self, domain: u32, rmid: u32, event: Event) -> Monitored {
        let package = domain as usize;
        let read = self.0.with(|server| match event {
            Event::LlcOccupancy => server.occupancy(package, rmid),
            Event::MbmTotalBytes | Event::MbmLocalBytes => server.traffic(package, rmid),
        });
        read.map_or(Monitored::Error, |bytes| {
            // The register counts in units.
            Monitored::Value(bytes / u64::from(MONITORING_UNIT) * u64::from(MONITORING_UNIT))
        })
    }
}
