//! The kernel's resctrl as a state machine: every answer, text and refusal of Linux 6.1 and 6.12 on Intel and AMD.
//!
//! Sources: the recordings in `tests/transcripts`, linux arch/x86/kernel/cpu/resctrl at 6.1 and 6.12, hardware.md 7. It
//! must not know files, mounts or FUSE: calls name places, and it answers with bytes or an error number.

pub mod description;
pub mod groups;
pub mod hardware;
pub mod mounting;
pub mod places;
pub mod tasks;

mod cpus;
#[cfg(test)]
pub(crate) mod fixture;
mod hotplug;
mod info;
mod monitoring;
pub(crate) mod numbers;
mod schemata;
mod status;

use crate::node::Caller;
use cpus::Cpus;
use description::ResctrlDescription;
use groups::{DirOwner, Group, GroupId, Mode};
use hardware::{Hardware, RmidEvent};
use monitoring::Rmids;
use places::{Change, Folder, GroupFile, Place};
use rustix::io::Errno;
use schemata::Schema;
use status::Status;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use tasks::{TaskTable, Tasks};

/// Longest write: a page (linux fs/kernfs/file.c, `atomic_write_len`).
const PAGE: usize = 4096;

/// A resctrl shared by the mount, the machine and the tests.
pub type SharedResctrl = Arc<Mutex<VirtualResctrl>>;

/// One host's resctrl.
pub struct VirtualResctrl {
    mounted: bool,
    /// Names that an unmount removed from the root directory and that a cache of names may still have.
    unlisted: Vec<String>,
    host: ResctrlDescription,
    hardware: Box<dyn Hardware>,
    tasks: TaskTable,
    status: Status,
    online: Cpus,
    groups: BTreeMap<GroupId, Group>,
    /// The last id given to a group.
    next_group: u64,
    schemas: Vec<Schema>,
    /// Which classes are taken; as many as the smallest resource has.
    classes: Vec<bool>,
    rmids: Rmids,
    /// `max_threshold_occupancy` in bytes.
    threshold: u32,
    counted_before: HashMap<(u32, u32, RmidEvent), u64>,
    event_kinds: HashMap<(u32, RmidEvent), u32>,
    io_alloc: bool,
    changes: HashMap<Place, Change>,
}

impl VirtualResctrl {
    /// Mounts resctrl on a host: one group with all ways and all bandwidth, nothing of an earlier mount.
    pub fn new(host: ResctrlDescription, hardware: Box<dyn Hardware>, tasks: Box<dyn Tasks>) -> Self {
        let schemas = schemata::schemas(&host);
        let classes = schemata::classes(&schemas);
        let online: BTreeSet<u32> = host.domains.iter().flat_map(|domain| domain.cpus.clone()).collect();
        let root = Group {
            name: String::new(),
            parent: None,
            closid: 0,
            rmid: 0,
            mode: Mode::Shareable,
            cpus: online.clone(),
            owner: DirOwner { mode: 0o555, uid: 0, gid: 0 },
        };
        let rmids = Rmids::new(host.monitoring.map_or(0, |monitoring| monitoring.rmids));
        let mut resctrl = VirtualResctrl {
            mounted: true,
            unlisted: Vec::new(),
            hardware,
            tasks: TaskTable::new(tasks),
            status: Status::default(),
            groups: BTreeMap::from([(GroupId::DEFAULT, root)]),
            next_group: 0,
            schemas,
            classes,
            rmids,
            threshold: 0,
            counted_before: HashMap::new(),
            event_kinds: HashMap::new(),
            io_alloc: false,
            changes: HashMap::new(),
            online,
            host,
        };
        // Each RMID's share of the cache (linux monitor.c: rdt_get_mon_l3_config).
        let share = resctrl.host.monitoring.map_or(0, |it| it.largest_threshold / it.rmids.max(1));
        resctrl.threshold = resctrl.round_threshold(share);
        resctrl.reset_hardware();
        resctrl
    }

    /// Makes it shareable by the mount and the machine.
    pub fn shared(self) -> SharedResctrl {
        Arc::new(Mutex::new(self))
    }

    fn reset_hardware(&mut self) {
        for schema in &self.schemas {
            for (domain, values) in self.host.domains.iter().zip(&schema.values) {
                for (closid, &value) in values.iter().enumerate() {
                    match schema.folder {
                        Folder::Cache(lines) => {
                            self.hardware.set_mask(domain.id, closid as u32, lines, value)
                        }
                        Folder::Bandwidth(traffic) => {
                            self.hardware.set_bandwidth(domain.id, closid as u32, traffic, value as u32);
                        }
                        Folder::Monitoring => {}
                    }
                }
            }
        }
        self.assign_cpus(&self.online.clone(), GroupId::DEFAULT);
        self.tasks.update(self.hardware.as_mut());
        self.count_from_here(0);
    }

    /// The whole content of a file. ENODEV for a removed group, EISDIR for directories.
    pub fn read(&mut self, place: Place) -> Result<Vec<u8>, Errno> {
        self.present(place)?;
        let text = match place {
            Place::GroupFile(group, file) => match file {
                GroupFile::Cpus => self.cpus_show(group, false),
                GroupFile::CpusList => self.cpus_show(group, true),
                GroupFile::Mode => self.mode_show(group),
                GroupFile::Schemata => self.schemata_show(group),
                GroupFile::Size => self.size_show(group),
                GroupFile::Tasks => self.tasks_show(group),
            },
            Place::Counter(group, domain, event) => self.counter_show(group, domain, event),
            Place::LastCmdStatus => self.status.show(),
            Place::InfoFile(folder, file) => self.info_show(folder, file)?,
            _ => return Err(Errno::ISDIR),
        };
        Ok(text.into_bytes())
    }

    /// One write(2), which is one command; the offset is ignored. Accepts all bytes or none.
    pub fn write(&mut self, place: Place, data: &[u8], caller: Caller) -> Result<usize, Errno> {
        if data.len() > PAGE {
            return Err(Errno::TOOBIG);
        }
        self.present(place)?;
        match place {
            Place::GroupFile(group, file) => match file {
                GroupFile::Cpus => self.cpus_write(group, false, data)?,
                GroupFile::CpusList => self.cpus_write(group, true, data)?,
                GroupFile::Mode => self.mode_write(group, data)?,
                GroupFile::Schemata => self.schemata_write(group, data)?,
                GroupFile::Tasks => self.tasks_write(group, data, caller)?,
                GroupFile::Size => return Err(Errno::ACCESS),
            },
            Place::InfoFile(folder, file) => self.info_write(folder, file, data)?,
            _ => return Err(Errno::ACCESS),
        }
        Ok(data.len())
    }
}
