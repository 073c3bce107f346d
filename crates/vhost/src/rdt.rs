//! The chip's resource control, as CPUID announces it and a kernel finds it, and the driver that writes resctrl's
//! decisions to the registers.
//!
//! It must not know resctrl's groups, nor files. Marks: docs/reference/README.md#marks.

use crate::layout::Layout;
use crate::machine_clock::MachineClock;
use crate::package::{MONITORING_UNIT, Server};
use crate::programs::{FIRST_PID, pid_of};
use crate::resctrl::description::{
    Bandwidth, Cdp, Domain, IoAllocSupport, Kernel, L3Resource, MonitoringResource, ResctrlDescription,
};
use crate::resctrl::hardware::{Hardware, LimitedTraffic, MaskedLines, Monitored, RmidEvent};
use waykeeper_silicon::ChipSpec;

/// Resource control of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// CPUID announces L3 CAT (leaf 0x10). Some Haswell parts have it without announcing it (hardware.md 7.2).
    pub announces_cat: bool,
    /// Classes of L3 CAT; 0 without it.
    pub classes: u32,
    /// Classes of bandwidth allocation; 0 without it.
    pub bandwidth_classes: u32,
    /// Fewest bits of a mask as resctrl shows it.
    pub min_bits: u32,
    /// Masks may have holes.
    pub sparse: bool,
    /// Ways that hardware also fills (`shareable_bits`).
    pub shareable: u32,
    /// Whether code and data can have separate masks.
    pub cdp: bool,
    /// Whether occupancy is monitored.
    pub occupancy: bool,
    /// Whether memory traffic is monitored.
    pub traffic: bool,
}

impl Features {
    /// The features of a server's chip; `bandwidth` as the kernel was booted (false for `rdt=!mba`).
    pub fn new(layout: &Layout, spec: &ChipSpec, bandwidth: bool) -> Features {
        let haswell = layout.generation.is_some_and(|generation| generation.id == "hsx");
        let none = spec.llc.clos <= 1 || layout.generation.is_none();
        let facts = layout.generation.map(|generation| &generation.resctrl);
        let classes = if none { 0 } else { spec.llc.clos };
        // If no source gives the number of bandwidth classes, 8 as on Skylake; AMD has as many as for the L3 (X).
        let known = facts.and_then(|facts| facts.mba_classes);
        let bandwidth_classes = match known {
            _ if none || haswell || !bandwidth || !has_bandwidth(layout) => 0,
            Some(known) => known,
            None if layout.is_amd() => classes,
            None => 8,
        };
        let dca = spec.llc.dca_ways.map_or(0, |ways| ways.bits());
        Features {
            announces_cat: !none && !haswell,
            classes,
            bandwidth_classes,
            min_bits: if layout.is_amd() { 0 } else { spec.llc.min_ways },
            sparse: spec.llc.sparse_masks,
            // Haswell's driver has 0xc0000 as a constant, which the chip file has as the DCA ways.
            shareable: facts.and_then(|facts| facts.shareable).map_or(dca, |mask| mask.bits()),
            cdp: !none && !haswell,
            occupancy: !none,
            traffic: !none && layout.counts_traffic(),
        }
    }

    /// Whether resctrl has anything to manage.
    pub fn any(&self) -> bool {
        self.classes > 0 || self.occupancy
    }

    /// The description that a kernel's resctrl would have.
    pub fn description(&self, server: &Server, kernel: Kernel) -> ResctrlDescription {
        let (layout, spec) = (server.layout(), server.bare().spec());
        let domain = |package| Domain {
            id: package as u32,
            cpus: layout.cpus_of(package).map(|cpu| cpu as u32).collect(),
        };
        let llc_bytes = spec.llc_bytes();
        let amd = layout.is_amd();
        let mlc_bytes = spec.mlc.sets * spec.mlc.ways * 64;
        ResctrlDescription {
            kernel,
            possible_cpus: layout.cpus() as u32,
            domains: (0..layout.packages).map(domain).collect(),
            l3: (self.classes > 0).then_some(L3Resource {
                cbm_bits: spec.llc.ways,
                shareable: u64::from(self.shareable),
                min_bits: self.min_bits,
                sparse: self.sparse,
                closids: self.classes,
                size_bytes: llc_bytes,
                cdp: if self.cdp { Cdp::Off } else { Cdp::Absent },
                io_alloc: IoAllocSupport::Absent,
            }),
            mb: (self.bandwidth_classes > 0).then(|| {
                let of = if amd { Bandwidth::amd } else { Bandwidth::intel };
                of(self.bandwidth_classes)
            }),
            smba: None,
            monitoring: self.occupancy.then(|| MonitoringResource {
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

/// Bandwidth allocation exists from Skylake on (Intel) and from Zen 2 on (AMD) (SDM vol. 3, 17.19; hardware.md 8.1, 9).
fn has_bandwidth(layout: &Layout) -> bool {
    layout.generation.is_some_and(|generation| !matches!(generation.id.as_str(), "hsx" | "bdx"))
}

/// The driver: writes resctrl's decisions to the registers.
pub struct Driver(MachineClock);

impl Driver {
    /// A driver of this server.
    pub fn new(clock: MachineClock) -> Driver {
        Driver(clock)
    }

    /// A stopped machine keeps its registers: resctrl cannot report that here, but the next read of a counter fails.
    fn act(&self, act: impl FnOnce(&mut Server)) {
        let _ = self.0.with(act);
    }
}

impl Hardware for Driver {
    fn set_mask(&mut self, domain: u32, closid: u32, lines: MaskedLines, mask: u64) {
        self.act(|server| {
            let package = domain as usize;
            let (class, cdp) = (closid as usize, lines != MaskedLines::All);
            server.set_cdp(package, cdp);
            let number = match lines {
                MaskedLines::All => class,
                MaskedLines::Data => 2 * class,
                MaskedLines::Code => 2 * class + 1,
            };
            // resctrl checked the mask with the same chip's rules.
            let _ = server.set_mask(package, number, mask);
        });
    }

    fn set_bandwidth(&mut self, domain: u32, closid: u32, traffic: LimitedTraffic, value: u32) {
        self.act(|server| {
            if traffic == LimitedTraffic::Memory {
                // Intel's register holds the reduction in percent (linux core.c: mba_wrmsr_intel).
                let amd = server.layout().is_amd();
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

    /// Tasks of the host on which the tree is mounted do not run on the machine's cores: only the scenario's programs
    /// have an effect.
    fn set_task(&mut self, task: u32, closid: u32, rmid: u32) {
        if task < FIRST_PID {
            return;
        }
        self.act(|server| {
            let thread = server.bare().processes().iter().find_map(|process| {
                let place = task.checked_sub(pid_of(process.first_thread))?;
                (place < process.busy_ns.len() as u32).then_some(process.first_thread + u64::from(place))
            });
            // A thread that has exited meanwhile has no class.
            let _ = thread.and_then(|thread| server.set_thread(thread, closid, rmid));
        });
    }

    /// No chip has it, and resctrl does not call this where it is absent.
    fn set_io_alloc(&mut self, _: Option<u32>) {}

    fn set_event_kinds(&mut self, _: u32, _: RmidEvent, _: u32) {}

    fn monitor(&mut self, domain: u32, rmid: u32, event: RmidEvent) -> Monitored {
        let package = domain as usize;
        let read = self.0.with(|server| match event {
            RmidEvent::LlcOccupancy => server.occupancy(package, rmid),
            RmidEvent::MbmTotalBytes | RmidEvent::MbmLocalBytes => server.traffic(package, rmid),
        });
        read.map_or(Monitored::Error, |bytes| {
            // The register counts in units.
            Monitored::Value(bytes / u64::from(MONITORING_UNIT) * u64::from(MONITORING_UNIT))
        })
    }
}
