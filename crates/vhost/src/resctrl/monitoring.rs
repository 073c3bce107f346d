//! Monitoring: counters of groups, RMIDs and their quarantine before reuse, and `max_threshold_occupancy`.
//!
//! Like linux monitor.c. The kernel checks once a second which quarantined RMIDs have few enough lines left in the
//! cache; here this is checked when one is needed. It must not know what makes the counters change.

use super::VirtualResctrl;
use super::description::Kernel;
use super::groups::GroupId;
use super::hardware::{Monitored, RmidEvent};
use super::numbers::{c_string, kstrtou32, kstrtoull, strim};
use super::places::InfoFile;
use rustix::io::Errno;
use std::collections::VecDeque;

/// Kinds of traffic that AMD's events can count (linux resctrl.rst: bits 0 to 6).
const EVENT_KINDS: u32 = 0x7f;

/// The initial kinds of `mbm_local_bytes`: local reads, local writes, local slow memory (recorded).
const LOCAL_KINDS: u32 = 0x15;

/// RMIDs that no group holds.
#[derive(Debug, Default)]
pub(super) struct Rmids {
    /// In order of release, the earliest first.
    free: VecDeque<u32>,
    /// Released, but with more bytes in the cache than the threshold.
    limbo: VecDeque<u32>,
}

impl Rmids {
    pub fn new(count: u32) -> Self {
        // RMID 0 always belongs to the default group.
        Rmids { free: (1..count).collect(), limbo: VecDeque::new() }
    }
}

impl VirtualResctrl {
    /// The events that have files.
    pub(super) fn events(&self) -> Vec<RmidEvent> {
        let Some(monitoring) = self.host.monitoring else { return Vec::new() };
        [
            (monitoring.llc_occupancy, RmidEvent::LlcOccupancy),
            (monitoring.mbm_total, RmidEvent::MbmTotalBytes),
            (monitoring.mbm_local, RmidEvent::MbmLocalBytes),
        ]
        .into_iter()
        .filter_map(|(there, event)| there.then_some(event))
        .collect()
    }

    pub(super) fn events_are_configurable(&self) -> bool {
        self.host.kernel >= Kernel::SLOW_MEMORY && self.host.monitoring.is_some_and(|it| it.configurable)
    }

    pub(super) fn take_rmid(&mut self) -> Result<u32, Errno> {
        if self.host.monitoring.is_none() {
            return Ok(0);
        }
        self.recheck_limbo();
        self.rmids.free.pop_front().ok_or_else(|| {
            self.status.puts("Out of RMIDs\n");
            if self.rmids.limbo.is_empty() { Errno::NOSPC } else { Errno::BUSY }
        })
    }

    pub(super) fn release_rmid(&mut self, rmid: u32) {
        if self.host.monitoring.is_some() {
            self.rmids.limbo.push_back(rmid);
            self.recheck_limbo();
        }
    }

    /// Quarantined RMIDs with at most the threshold in every domain become free (`add_rmid_to_limbo`).
    fn recheck_limbo(&mut self) {
        let counts_occupancy = self.host.monitoring.is_some_and(|it| it.llc_occupancy);
        for rmid in std::mem::take(&mut self.rmids.limbo) {
            let dirty = counts_occupancy
                && self.host.domains.iter().any(|domain| {
                    match self.hardware.monitor(domain.id, rmid, RmidEvent::LlcOccupancy) {
                        Monitored::Value(bytes) => bytes > u64::from(self.threshold),
                        Monitored::Unavailable | Monitored::Error => true,
                    }
                });
            if dirty { self.rmids.limbo.push_back(rmid) } else { self.rmids.free.push_back(rmid) }
        }
    }

    /// Counts a new group's traffic from now on (`resctrl_arch_reset_rmid`).
    pub(super) fn count_from_here(&mut self, rmid: u32) {
        for event in self.events().into_iter().filter(|event| *event != RmidEvent::LlcOccupancy) {
            for domain in &self.host.domains {
                let before = match self.hardware.monitor(domain.id, rmid, event) {
                    Monitored::Value(bytes) => bytes,
                    Monitored::Unavailable | Monitored::Error => 0,
                };
                self.counted_before.insert((domain.id, rmid, event), before);
            }
        }
    }

    /// A counter's file: a control group includes its monitoring groups; one value that can be read is enough.
    pub(super) fn counter_show(&mut self, group: GroupId, domain: u32, event: RmidEvent) -> String {
        let members = [group].into_iter().chain(self.children(group));
        let rmids: Vec<u32> = members.map(|member| self.groups[&member].rmid).collect();
        let unit = self.host.monitoring.map_or(1, |it| u64::from(it.unit_bytes.max(1)));
        let (mut sum, mut counted, mut failure) = (0u64, false, Monitored::Value(0));
        for rmid in rmids {
            match self.hardware.monitor(domain, rmid, event) {
                Monitored::Value(bytes) => {
                    let before = self.counted_before.get(&(domain, rmid, event)).copied().unwrap_or(0);
                    sum = sum.wrapping_add(bytes.saturating_sub(before) / unit * unit);
                    counted = true;
                }
                refused => failure = refused,
            }
        }
        match failure {
            Monitored::Error if !counted => "Error\n".to_owned(),
            Monitored::Unavailable if !counted => "Unavailable\n".to_owned(),
            _ => format!("{sum}\n"),
        }
    }

    /// Rounded down to whole counts.
    pub(super) fn round_threshold(&self, bytes: u32) -> u32 {
        let unit = self.host.monitoring.map_or(1, |it| it.unit_bytes.max(1));
        bytes / unit * unit
    }

    pub(super) fn threshold_write(&mut self, data: &[u8]) -> Result<(), Errno> {
        let bytes = kstrtou32(&c_string(data), 0)?;
        if self.host.monitoring.is_none_or(|it| bytes > it.largest_threshold) {
            return Err(Errno::INVAL);
        }
        self.threshold = self.round_threshold(bytes);
        Ok(())
    }

    pub(super) fn monitoring_show(&self, file: InfoFile) -> String {
        let Some(monitoring) = self.host.monitoring else { return String::new() };
        match file {
            InfoFile::NumRmids => format!("{}\n", monitoring.rmids),
            InfoFile::MaxThresholdOccupancy => format!("{}\n", self.threshold),
            InfoFile::MbmTotalBytesConfig => self.event_kinds_show(RmidEvent::MbmTotalBytes),
            InfoFile::MbmLocalBytesConfig => self.event_kinds_show(RmidEvent::MbmLocalBytes),
            _ => {
                let configurable = self.events_are_configurable();
                let line = |event: RmidEvent| {
                    let config = configurable && event != RmidEvent::LlcOccupancy;
                    let second = if config { format!("{}_config\n", event.name()) } else { String::new() };
                    format!("{}\n{second}", event.name())
                };
                self.events().into_iter().map(line).collect()
            }
        }
    }

    fn event_kinds(&self, domain: u32, event: RmidEvent) -> u32 {
        let first = if event == RmidEvent::MbmTotalBytes { EVENT_KINDS } else { LOCAL_KINDS };
        self.event_kinds.get(&(domain, event)).copied().unwrap_or(first)
    }

    fn event_kinds_show(&self, event: RmidEvent) -> String {
        let domain = |id: u32| format!("{id}=0x{:02x}", self.event_kinds(id, event));
        self.host.domains.iter().map(|it| domain(it.id)).collect::<Vec<_>>().join(";") + "\n"
    }

    /// `mbm_*_bytes_config`: `0=0x33;1=0x15`. Each domain takes effect when it is parsed; changed events restart at 0.
    pub(super) fn event_kinds_write(&mut self, event: RmidEvent, data: &[u8]) -> Result<(), Errno> {
        let line = super::schemata::line(data)?;
        self.status.clear();
        for part in line.split(';') {
            if part.is_empty() {
                break;
            }
            let (id, kinds) =
                strim(part).split_once('=').map_or((strim(part), None), |(id, it)| (id, Some(it)));
            let Ok(id) = kstrtoull(id, 10) else {
                self.status.puts("Missing '=' or non-numeric domain id\n");
                return Err(Errno::INVAL);
            };
            let Some(kinds) = kinds.and_then(|kinds| kstrtoull(kinds, 16).ok()) else {
                self.status.puts("Non-numeric event configuration value\n");
                return Err(Errno::INVAL);
            };
            if kinds & u64::from(EVENT_KINDS) != kinds {
                self.status
                    .printf(&format!("Invalid event configuration: max valid mask is 0x{EVENT_KINDS:02x}\n"));
                return Err(Errno::INVAL);
            }
            let domain = self.host.domains.iter().find(|it| u64::from(it.id) == id).ok_or(Errno::INVAL)?.id;
            if u64::from(self.event_kinds(domain, event)) == kinds {
                continue;
            }
            self.event_kinds.insert((domain, event), kinds as u32);
            self.hardware.set_event_kinds(domain, event, kinds as u32);
            for rmid in 0..self.host.monitoring.map_or(0, |it| it.rmids) {
                if let Monitored::Value(bytes) = self.hardware.monitor(domain, rmid, event) {
                    self.counted_before.insert((domain, rmid, event), bytes);
                }
            }
        }
        Ok(())
    }
}
