//! Places: the address of each directory and file of resctrl, and its attributes.
//!
//! Group ids are not reused, so a place never means something else later. Its number encodes it, so no table is kept
//! for removed groups. It must not know contents.

use super::VirtualResctrl;
use super::description::{Cdp, IoAllocSupport, Kernel};
use super::groups::GroupId;
use super::hardware::{LimitedTraffic, MaskedLines, RmidEvent};
use crate::node::OpenAccess;
use rustix::io::Errno;

/// A directory or file of resctrl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The directory of a group; the default group's is the root.
    Group(GroupId),
    /// A file in a group's directory.
    GroupFile(GroupId, GroupFile),
    /// `mon_groups`.
    MonGroups(GroupId),
    /// `mon_data`.
    MonData(GroupId),
    /// `mon_data/mon_L3_NN`.
    MonDomain(GroupId, u32),
    /// A counter file in that directory.
    Counter(GroupId, u32, RmidEvent),
    /// `info`.
    Info,
    /// `info/last_cmd_status`.
    LastCmdStatus,
    /// A directory in `info`.
    InfoFolder(Folder),
    /// A file in such a directory.
    InfoFile(Folder, InfoFile),
}

/// A directory in `info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Folder {
    /// `L3`, `L3CODE`, `L3DATA`.
    Cache(MaskedLines),
    /// `MB`, `SMBA`.
    Bandwidth(LimitedTraffic),
    /// `L3_MON`.
    Monitoring,
}

/// A file of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "named as the files are")]
pub enum GroupFile {
    Cpus,
    CpusList,
    Mode,
    Schemata,
    Size,
    Tasks,
}

/// A file in one of the directories in `info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "named as the files are")]
pub enum InfoFile {
    BandwidthGran,
    BitUsage,
    CbmMask,
    DelayLinear,
    IoAlloc,
    IoAllocCbm,
    MaxThresholdOccupancy,
    MbmLocalBytesConfig,
    MbmTotalBytesConfig,
    MinBandwidth,
    MinCbmBits,
    MonFeatures,
    NumClosids,
    NumRmids,
    ShareableBits,
    SparseMasks,
    ThreadThrottleMode,
}

impl InfoFile {
    const ALL: [InfoFile; 17] = [
        InfoFile::BandwidthGran,
        InfoFile::BitUsage,
        InfoFile::CbmMask,
        InfoFile::DelayLinear,
        InfoFile::IoAlloc,
        InfoFile::IoAllocCbm,
        InfoFile::MaxThresholdOccupancy,
        InfoFile::MbmLocalBytesConfig,
        InfoFile::MbmTotalBytesConfig,
        InfoFile::MinBandwidth,
        InfoFile::MinCbmBits,
        InfoFile::MonFeatures,
        InfoFile::NumClosids,
        InfoFile::NumRmids,
        InfoFile::ShareableBits,
        InfoFile::SparseMasks,
        InfoFile::ThreadThrottleMode,
    ];

    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            InfoFile::BandwidthGran => "bandwidth_gran",
            InfoFile::BitUsage => "bit_usage",
            InfoFile::CbmMask => "cbm_mask",
            InfoFile::DelayLinear => "delay_linear",
            InfoFile::IoAlloc => "io_alloc",
            InfoFile::IoAllocCbm => "io_alloc_cbm",
            InfoFile::MaxThresholdOccupancy => "max_threshold_occupancy",
            InfoFile::MbmLocalBytesConfig => "mbm_local_bytes_config",
            InfoFile::MbmTotalBytesConfig => "mbm_total_bytes_config",
            InfoFile::MinBandwidth => "min_bandwidth",
            InfoFile::MinCbmBits => "min_cbm_bits",
            InfoFile::MonFeatures => "mon_features",
            InfoFile::NumClosids => "num_closids",
            InfoFile::NumRmids => "num_rmids",
            InfoFile::ShareableBits => "shareable_bits",
            InfoFile::SparseMasks => "sparse_masks",
            InfoFile::ThreadThrottleMode => "thread_throttle_mode",
        }
    }

    fn writable(self) -> bool {
        use InfoFile::*;
        matches!(
            self,
            IoAlloc | IoAllocCbm | MaxThresholdOccupancy | MbmLocalBytesConfig | MbmTotalBytesConfig
        )
    }
}

impl GroupFile {
    const ALL: [GroupFile; 6] = [
        GroupFile::Cpus,
        GroupFile::CpusList,
        GroupFile::Mode,
        GroupFile::Schemata,
        GroupFile::Size,
        GroupFile::Tasks,
    ];

    fn name(self) -> &'static str {
        match self {
            GroupFile::Cpus => "cpus",
            GroupFile::CpusList => "cpus_list",
            GroupFile::Mode => "mode",
            GroupFile::Schemata => "schemata",
            GroupFile::Size => "size",
            GroupFile::Tasks => "tasks",
        }
    }
}

impl Folder {
    const ALL: [Folder; 6] = [
        Folder::Cache(MaskedLines::All),
        Folder::Cache(MaskedLines::Code),
        Folder::Cache(MaskedLines::Data),
        Folder::Bandwidth(LimitedTraffic::Memory),
        Folder::Bandwidth(LimitedTraffic::SlowMemory),
        Folder::Monitoring,
    ];

    /// The directory's name, which is also the resource's name in schemata (except L3_MON).
    pub fn name(self) -> &'static str {
        match self {
            Folder::Cache(MaskedLines::All) => "L3",
            Folder::Cache(MaskedLines::Code) => "L3CODE",
            Folder::Cache(MaskedLines::Data) => "L3DATA",
            Folder::Bandwidth(LimitedTraffic::Memory) => "MB",
            Folder::Bandwidth(LimitedTraffic::SlowMemory) => "SMBA",
            Folder::Monitoring => "L3_MON",
        }
    }
}

impl RmidEvent {
    const ALL: [RmidEvent; 3] = [RmidEvent::LlcOccupancy, RmidEvent::MbmTotalBytes, RmidEvent::MbmLocalBytes];

    /// The counter's file.
    pub fn name(self) -> &'static str {
        match self {
            RmidEvent::LlcOccupancy => "llc_occupancy",
            RmidEvent::MbmTotalBytes => "mbm_total_bytes",
            RmidEvent::MbmLocalBytes => "mbm_local_bytes",
        }
    }
}

/// Bits of a place's number for the group. At a thousand new groups per second they last twelve days.
const GROUP_BITS: u32 = 30;
/// Bits of an index into one of three lists: named files and directories, the domains in `mon_data`, the counters in
/// them. An L3's id is a few bits of an APIC id; [`EVENT_BITS`] leave 19 for it.
const INDEX_BITS: u32 = 21;
/// Bits for the list.
const LIST_BITS: u32 = 2;
/// Bits of a counter's index for the event.
const EVENT_BITS: u32 = 2;

/// The lists.
const NAMED: u64 = 0;
const DOMAINS: u64 = 1;
const COUNTERS: u64 = 2;

/// Where in the first list the files of a group, the directories of `info` and the files in those begin; before them
/// are five single places.
const GROUP_FILES: u64 = 5;
const FOLDERS: u64 = GROUP_FILES + GroupFile::ALL.len() as u64;
const INFO_FILES: u64 = FOLDERS + Folder::ALL.len() as u64;

/// An element of a list, or `None` if the index is too large.
fn nth<T: Copy>(all: &[T], index: u64) -> Option<T> {
    all.get(usize::try_from(index).ok()?).copied()
}

impl Place {
    /// The root.
    pub const ROOT: Place = Place::Group(GroupId::DEFAULT);

    /// All numbers of places are below this.
    pub const END: u64 = 1 << (GROUP_BITS + LIST_BITS + INDEX_BITS);

    /// Its number, which encodes it: no other place has it, now or later.
    pub fn number(self) -> u64 {
        let folder = |folder: Folder| Folder::ALL.iter().position(|own| *own == folder).unwrap_or(0) as u64;
        let (list, index) = match self {
            Place::Group(_) => (NAMED, 0),
            Place::MonGroups(_) => (NAMED, 1),
            Place::MonData(_) => (NAMED, 2),
            Place::Info => (NAMED, 3),
            Place::LastCmdStatus => (NAMED, 4),
            Place::GroupFile(_, file) => (NAMED, GROUP_FILES + file as u64),
            Place::InfoFolder(own) => (NAMED, FOLDERS + folder(own)),
            Place::InfoFile(own, file) => {
                (NAMED, INFO_FILES + folder(own) * InfoFile::ALL.len() as u64 + file as u64)
            }
            Place::MonDomain(_, domain) => (DOMAINS, u64::from(domain)),
            Place::Counter(_, domain, event) => (COUNTERS, u64::from(domain) << EVENT_BITS | event as u64),
        };
        let group = self.group().unwrap_or(GroupId::DEFAULT).0;
        (group << LIST_BITS | list) << INDEX_BITS | index & ((1 << INDEX_BITS) - 1)
    }

    /// The place of a number, whether its group still exists or not; `None` for numbers that no place has.
    pub fn of_number(number: u64) -> Option<Place> {
        if number >= Place::END {
            return None;
        }
        let index = number & ((1 << INDEX_BITS) - 1);
        let group = GroupId(number >> (LIST_BITS + INDEX_BITS));
        let domain = |index: u64| u32::try_from(index).ok();
        match number >> INDEX_BITS & ((1 << LIST_BITS) - 1) {
            DOMAINS => Some(Place::MonDomain(group, domain(index)?)),
            COUNTERS => {
                let event = nth(&RmidEvent::ALL, index & ((1 << EVENT_BITS) - 1))?;
                Some(Place::Counter(group, domain(index >> EVENT_BITS)?, event))
            }
            NAMED => match index {
                0 => Some(Place::Group(group)),
                1 => Some(Place::MonGroups(group)),
                2 => Some(Place::MonData(group)),
                3 => Some(Place::Info),
                4 => Some(Place::LastCmdStatus),
                GROUP_FILES..FOLDERS => {
                    Some(Place::GroupFile(group, nth(&GroupFile::ALL, index - GROUP_FILES)?))
                }
                FOLDERS..INFO_FILES => Some(Place::InfoFolder(nth(&Folder::ALL, index - FOLDERS)?)),
                _ => {
                    let (index, each) = (index - INFO_FILES, InfoFile::ALL.len() as u64);
                    let folder = nth(&Folder::ALL, index / each)?;
                    Some(Place::InfoFile(folder, nth(&InfoFile::ALL, index % each)?))
                }
            },
            _ => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(self) -> bool {
        use Place::*;
        matches!(self, Group(_) | MonGroups(_) | MonData(_) | MonDomain(..) | Info | InfoFolder(_))
    }

    /// The group it belongs to; `info` belongs to none.
    pub(super) fn group(self) -> Option<GroupId> {
        match self {
            Place::Group(group)
            | Place::GroupFile(group, _)
            | Place::MonGroups(group)
            | Place::MonData(group)
            | Place::MonDomain(group, _)
            | Place::Counter(group, ..) => Some(group),
            Place::Info | Place::LastCmdStatus | Place::InfoFolder(_) | Place::InfoFile(..) => None,
        }
    }
}

/// The fields of stat(2) except the size, which is always 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Whether it is a directory.
    pub directory: bool,
    /// Permission bits.
    pub mode: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// 1 for files; for directories 2 plus one for each directory in it.
    pub links: u32,
}

/// Changes by chmod(2) and chown(2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl VirtualResctrl {
    /// ENODEV for a file of a removed group (linux fs/kernfs: no active reference), and for all but the mount point
    /// while resctrl is not mounted.
    pub fn present(&self, place: Place) -> Result<(), Errno> {
        match place.group() {
            _ if !self.mounted && place != Place::ROOT => Err(Errno::NODEV),
            Some(group) if !self.groups.contains_key(&group) => Err(Errno::NODEV),
            _ => Ok(()),
        }
    }

    /// The entries of a directory, sorted by name. Empty for files and removed groups.
    pub fn list(&self, folder: Place) -> Vec<(String, Place)> {
        if self.present(folder).is_err() {
            return Vec::new();
        }
        let mut entries = match folder {
            Place::Group(id) => self.entries_of_group(id),
            Place::MonGroups(id) => {
                let child = |child: &GroupId| (self.groups[child].name.clone(), Place::Group(*child));
                self.children(id).iter().map(child).collect()
            }
            Place::MonData(id) => {
                let named = |domain: u32| (format!("mon_L3_{domain:02}"), Place::MonDomain(id, domain));
                self.host.domains.iter().map(|domain| named(domain.id)).collect()
            }
            Place::MonDomain(id, domain) => {
                let named = |event: RmidEvent| (event.name().to_owned(), Place::Counter(id, domain, event));
                self.events().into_iter().map(named).collect()
            }
            Place::Info => {
                let mut entries = vec![("last_cmd_status".to_owned(), Place::LastCmdStatus)];
                entries.extend(
                    self.folders().into_iter().map(|it| (it.name().to_owned(), Place::InfoFolder(it))),
                );
                entries
            }
            Place::InfoFolder(it) => self
                .info_files(it)
                .into_iter()
                .map(|file| (file.name().to_owned(), Place::InfoFile(it, file)))
                .collect(),
            Place::GroupFile(..) | Place::Counter(..) | Place::LastCmdStatus | Place::InfoFile(..) => {
                Vec::new()
            }
        };
        entries.sort();
        entries
    }

    /// The entry `name` of a directory.
    pub fn lookup(&self, folder: Place, name: &str) -> Option<Place> {
        self.list(folder).into_iter().find(|(entry, _)| entry == name).map(|(_, place)| place)
    }

    fn entries_of_group(&self, id: GroupId) -> Vec<(String, Place)> {
        if !self.mounted {
            return Vec::new();
        }
        let controls = self.groups[&id].parent.is_none();
        let mut files = vec![GroupFile::Cpus, GroupFile::CpusList, GroupFile::Tasks];
        if controls && self.can_allocate() {
            files.extend([GroupFile::Mode, GroupFile::Schemata, GroupFile::Size]);
        }
        let mut entries: Vec<_> =
            files.into_iter().map(|file| (file.name().to_owned(), Place::GroupFile(id, file))).collect();
        if self.host.monitoring.is_some() {
            entries.push(("mon_data".to_owned(), Place::MonData(id)));
            if controls {
                entries.push(("mon_groups".to_owned(), Place::MonGroups(id)));
            }
        }
        if id == GroupId::DEFAULT {
            entries.push(("info".to_owned(), Place::Info));
            let control_groups =
                self.groups.iter().filter(|(id, it)| it.parent.is_none() && **id != GroupId::DEFAULT);
            entries.extend(control_groups.map(|(id, group)| (group.name.clone(), Place::Group(*id))));
        }
        entries
    }

    fn folders(&self) -> Vec<Folder> {
        let mut folders: Vec<Folder> = self.schemas.iter().map(|schema| schema.folder).collect();
        folders.extend(self.host.monitoring.map(|_| Folder::Monitoring));
        folders
    }

    fn info_files(&self, folder: Folder) -> Vec<InfoFile> {
        use InfoFile::*;
        let kernel = self.host.kernel;
        match folder {
            Folder::Cache(_) => {
                let mut files = vec![BitUsage, CbmMask, MinCbmBits, NumClosids, ShareableBits];
                files.extend((kernel >= Kernel::SPARSE_MASKS).then_some(SparseMasks));
                if self
                    .host
                    .l3
                    .is_some_and(|cache| cache.io_alloc != super::description::IoAllocSupport::Absent)
                {
                    files.extend([IoAlloc, IoAllocCbm]);
                }
                files
            }
            Folder::Bandwidth(traffic) => {
                let mut files = vec![BandwidthGran, DelayLinear, MinBandwidth, NumClosids];
                let throttle = self.bandwidth(traffic).and_then(|bandwidth| bandwidth.throttle);
                files.extend(throttle.map(|_| ThreadThrottleMode));
                files
            }
            Folder::Monitoring => {
                let mut files = vec![MaxThresholdOccupancy, MonFeatures, NumRmids];
                let events = self.events();
                if self.events_are_configurable() {
                    files.extend(events.contains(&RmidEvent::MbmTotalBytes).then_some(MbmTotalBytesConfig));
                    files.extend(events.contains(&RmidEvent::MbmLocalBytes).then_some(MbmLocalBytesConfig));
                }
                files
            }
        }
    }

    /// The fields of stat(2); ENODEV for a removed group.
    pub fn attributes(&self, place: Place) -> Result<Attributes, Errno> {
        self.present(place)?;
        let group = place.group().unwrap_or(GroupId::DEFAULT);
        // Directories have the mode of their group.
        let owner = self.groups[&group].owner;
        let mode = match place {
            _ if place.is_directory() => owner.mode,
            Place::GroupFile(_, GroupFile::Size) | Place::Counter(..) | Place::LastCmdStatus => 0o444,
            Place::GroupFile(..) => 0o644,
            Place::InfoFile(_, file) if file.writable() => 0o644,
            _ => 0o444,
        };
        let links = if place.is_directory() {
            2 + self.list(place).iter().filter(|(_, entry)| entry.is_directory()).count() as u32
        } else {
            1
        };
        let change = self.changes.get(&place).copied().unwrap_or_default();
        Ok(Attributes {
            directory: place.is_directory(),
            mode: change.mode.unwrap_or(mode),
            uid: change.uid.unwrap_or(owner.uid),
            gid: change.gid.unwrap_or(owner.gid),
            links,
        })
    }

    /// chmod(2) and chown(2); `None` keeps a value.
    pub fn change(
        &mut self,
        place: Place,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Errno> {
        self.present(place)?;
        let change = self.changes.entry(place).or_default();
        change.mode = mode.map(|mode| mode & 0o7777).or(change.mode);
        change.uid = uid.or(change.uid);
        change.gid = gid.or(change.gid);
        Ok(())
    }

    /// The path of a place below the root, for messages and patterns; `None` for a removed group.
    pub fn path(&self, place: Place) -> Option<String> {
        self.present(place).ok()?;
        let group_path = |id: GroupId| {
            let group = &self.groups[&id];
            match group.parent {
                None => group.name.clone(),
                Some(parent) => format!("{}/mon_groups/{}", self.groups[&parent].name, group.name),
            }
        };
        let base = group_path(place.group().unwrap_or(GroupId::DEFAULT));
        let rest = match place {
            Place::Group(_) => String::new(),
            Place::GroupFile(_, file) => file.name().to_owned(),
            Place::MonGroups(_) => "mon_groups".to_owned(),
            Place::MonData(_) => "mon_data".to_owned(),
            Place::MonDomain(_, domain) => format!("mon_data/mon_L3_{domain:02}"),
            Place::Counter(_, domain, event) => format!("mon_data/mon_L3_{domain:02}/{}", event.name()),
            Place::Info => "info".to_owned(),
            Place::LastCmdStatus => "info/last_cmd_status".to_owned(),
            Place::InfoFolder(folder) => format!("info/{}", folder.name()),
            Place::InfoFile(folder, file) => format!("info/{}/{}", folder.name(), file.name()),
        };
        Some([base, rest].join("/").trim_matches('/').to_owned())
    }

    /// Whether resctrl can allocate anything.
    pub(super) fn can_allocate(&self) -> bool {
        !self.schemas.is_empty()
    }

    /// Whether code and data of the L3 have separate masks.
    pub(super) fn cdp(&self) -> bool {
        self.host.l3.is_some_and(|cache| cache.cdp == Cdp::On)
    }

    /// Whether the chip has ways for devices.
    pub(super) fn has_io_alloc(&self) -> bool {
        self.host.l3.is_some_and(|cache| cache.io_alloc == IoAllocSupport::Supported)
    }
}

impl VirtualResctrl {
    /// open(2): a file without a read or write bit cannot be opened that way, not even by root (linux
    /// fs/kernfs/file.c).
    pub fn open(&self, place: Place, access: OpenAccess) -> Result<(), Errno> {
        let mode = self.attributes(place)?.mode;
        let refused = access.write && mode & 0o222 == 0 || access.read && mode & 0o444 == 0;
        if refused { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// unlink(2), link(2) and symlink(2): kernfs does not support them. Always an error.
    pub fn unlink(&self, folder: Place, name: &str) -> Errno {
        self.present(folder).err().unwrap_or(match self.lookup(folder, name) {
            Some(_) => Errno::PERM,
            None => Errno::NOENT,
        })
    }

    /// open(2) with O_CREAT of a new name: kernfs creates no files. Always an error.
    pub fn create(&self, folder: Place) -> Errno {
        self.present(folder).err().unwrap_or(Errno::ACCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_places_number_says_which_place_it_is() {
        let mut all = vec![Place::Info, Place::LastCmdStatus];
        for group in [0, 1, 10_000, (1 << GROUP_BITS) - 1].map(GroupId) {
            all.extend([Place::Group(group), Place::MonGroups(group), Place::MonData(group)]);
            all.extend(GroupFile::ALL.map(|file| Place::GroupFile(group, file)));
            for domain in [0, 1, 3, 0x7ffff] {
                all.push(Place::MonDomain(group, domain));
                all.extend(RmidEvent::ALL.map(|event| Place::Counter(group, domain, event)));
            }
        }
        for folder in Folder::ALL {
            all.push(Place::InfoFolder(folder));
            all.extend(InfoFile::ALL.map(|file| Place::InfoFile(folder, file)));
        }
        let numbers: BTreeSet<u64> = all.iter().map(|place| place.number()).collect();
        assert_eq!(numbers.len(), all.len(), "no two have one");
        assert!(numbers.iter().all(|number| *number < Place::END));
        for place in all {
            assert_eq!(Place::of_number(place.number()), Some(place));
        }
        // The lists have the order of the declarations, on which the numbers depend.
        assert!(InfoFile::ALL.iter().zip(0..).all(|(file, index)| *file as u64 == index));
        assert!(GroupFile::ALL.iter().zip(0..).all(|(file, index)| *file as u64 == index));
        for none in [(1 << INDEX_BITS) - 1, 3 << INDEX_BITS, COUNTERS << INDEX_BITS | 3, Place::END, u64::MAX]
        {
            assert_eq!(Place::of_number(none), None, "{none:#x}");
        }
    }
}
