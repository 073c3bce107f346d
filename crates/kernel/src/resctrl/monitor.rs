//! `mon_data`: a group's counts in each domain, and the four reasons for a missing number.
//!
//! hardware.md 7.1 and 7.4. Byte counts are running totals, occupancy is a snapshot. It must not know how counts are
//! used.

use super::Resctrl;
use super::error::{ResctrlError, shown};
use super::files::{self, HeldFile};
use super::group::Group;
use super::schemata::decimal;
use crate::topology::L3;
use std::fmt;
use waykeeper_host::Reading;

/// Why counts of an L3 are wrong where [`Resctrl::counts_only_a_part`].
pub const PARTIAL_COUNTS: &str = "sub-NUMA clustering is on, and this kernel counts only a part of each L3 (Linux 6.11 and later count all of it)";

/// A counted event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MonitorEvent {
    /// Bytes of the group's lines in the L3, a snapshot.
    LlcOccupancy,
    /// Bytes between L3 and memory, running total.
    MbmTotal,
    /// The part of it with the domain's own memory, running total.
    MbmLocal,
    /// An event that a later kernel has added.
    Other(String),
}

impl MonitorEvent {
    /// The file's name.
    pub fn name(&self) -> &str {
        match self {
            MonitorEvent::LlcOccupancy => "llc_occupancy",
            MonitorEvent::MbmTotal => "mbm_total_bytes",
            MonitorEvent::MbmLocal => "mbm_local_bytes",
            MonitorEvent::Other(name) => name,
        }
    }
}

impl From<&str> for MonitorEvent {
    fn from(name: &str) -> MonitorEvent {
        match name {
            "llc_occupancy" => MonitorEvent::LlcOccupancy,
            "mbm_total_bytes" => MonitorEvent::MbmTotal,
            "mbm_local_bytes" => MonitorEvent::MbmLocal,
            other => MonitorEvent::Other(other.to_owned()),
        }
    }
}

/// Where an event is counted: an L3, or with sub-NUMA clustering one node of it (kernel 6.11 and later).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MonDomain {
    /// Id of the L3, as in schemata.
    pub l3: u32,
    /// Id of the sub-NUMA node; `None` is the whole L3.
    pub node: Option<u32>,
}

impl fmt::Display for MonDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `%02d` in the kernel (mkdir_mondata_subdir).
        write!(f, "mon_L3_{:02}", self.l3)?;
        self.node.map_or(Ok(()), |node| write!(f, "/mon_sub_L3_{node:02}"))
    }
}

/// A counter's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// A number, including zero.
    Value(u64),
    /// `Unavailable`: no number at this moment.
    Unavailable,
    /// `Error`: the hardware does not count this.
    Error,
    /// `Unassigned`: no hardware counter is assigned to it (counter-assign mode).
    Unassigned,
    /// The group or the domain is gone.
    Gone,
}

impl Count {
    /// Parses the text of a counter's file.
    ///
    /// # Errors
    /// If it is neither a number nor one of the three words.
    pub fn parse(text: &str) -> Result<Count, String> {
        match text.strip_suffix('\n').unwrap_or(text) {
            "Unavailable" => Ok(Count::Unavailable),
            "Error" => Ok(Count::Error),
            "Unassigned" => Ok(Count::Unassigned),
            number => decimal(number).map(Count::Value).ok_or_else(|| {
                format!("expected a number, Unavailable, Error or Unassigned, not `{}`", shown(text))
            }),
        }
    }

    /// The seam's reading: a counter that exists and has no number now is unavailable, for any reason.
    pub fn reading(self) -> Reading<u64> {
        match self {
            Count::Value(value) => Reading::Value(value),
            Count::Unavailable | Count::Error | Count::Unassigned => Reading::Unavailable,
            Count::Gone => Reading::Absent,
        }
    }
}

/// A counter that is read at every interval.
#[derive(Debug)]
pub struct HeldCount {
    file: HeldFile,
}

impl HeldCount {
    /// Reads the counter with one system call.
    ///
    /// # Errors
    /// If it cannot be read or is malformed. If its group is gone, it returns [`Count::Gone`].
    pub fn read(&self) -> Result<Count, ResctrlError> {
        let mut buffer = [0; 64];
        let line = match self.file.read_line(&mut buffer) {
            Err(error) if error.is_gone() => return Ok(Count::Gone),
            other => other?,
        };
        if !line.ends_with('\n') {
            // A truncated number would be a wrong one.
            let why = format!("expected one line, not `{}`", shown(line));
            return Err(ResctrlError::malformed(self.file.path(), why));
        }
        Count::parse(line).map_err(|why| ResctrlError::malformed(self.file.path(), why))
    }
}

impl Resctrl {
    /// The domains in which a group is counted, in order of ids. Empty without monitoring.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn monitor_domains(&self, group: &Group) -> Result<Vec<MonDomain>, ResctrlError> {
        let top = self.directory(group).join("mon_data");
        let mut domains = Vec::new();
        let names = match self.list(&top) {
            Err(error) if error.errno == Some(libc::ENOENT) && self.has(group) => Vec::new(),
            other => other?,
        };
        for name in names {
            // Directories of packages (mon_PERF_PKG_NN of later kernels) are not caches.
            let Some(l3) = id(&name, "mon_L3_") else { continue };
            domains.push(MonDomain { l3, node: None });
            for node in self.list(&top.join(&name))? {
                if let Some(node) = id(&node, "mon_sub_L3_") {
                    domains.push(MonDomain { l3, node: Some(node) });
                }
            }
        }
        domains.sort_unstable();
        Ok(domains)
    }

    /// Whether the counts of an L3 leave a part of it out ([`PARTIAL_COUNTS`]): with sub-NUMA clustering each node has
    /// counters of its own, which the kernel adds up only if it also lists each (resctrl.rst, `mon_sub_L3_YY`).
    pub fn counts_only_a_part(&self, l3: &L3) -> bool {
        let own = |domain: &MonDomain| Some(domain.l3) == l3.id;
        let domains = self.monitor_domains(&Group::DEFAULT).unwrap_or_default();
        let mut nodes = domains.iter().filter(|domain| own(domain)).map(|domain| domain.node);
        l3.clusters() > 1 && domains.iter().any(own) && nodes.all(|node| node.is_none())
    }

    /// Reads one counter once. `None`: this machine does not count the event.
    ///
    /// # Errors
    /// If it cannot be read or is malformed.
    pub fn count(
        &self,
        group: &Group,
        domain: MonDomain,
        event: &MonitorEvent,
    ) -> Result<Option<Count>, ResctrlError> {
        self.hold_count(group, domain, event)?.map(|held| held.read()).transpose()
    }

    /// Opens one counter to read it at every interval. `None`: this machine does not count the event.
    ///
    /// # Errors
    /// If it exists and cannot be opened, or if the group is gone.
    pub fn hold_count(
        &self,
        group: &Group,
        domain: MonDomain,
        event: &MonitorEvent,
    ) -> Result<Option<HeldCount>, ResctrlError> {
        let directory = self.directory(group).join("mon_data").join(domain.to_string());
        match HeldFile::open(&self.system, directory.join(event.name())) {
            Ok(file) => Ok(Some(HeldCount { file })),
            // If only the file is missing, the event is not counted; if the directory is missing, the group is gone.
            Err(error) if error.errno == Some(libc::ENOENT) && self.system.is_dir(&directory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The occupancy in bytes below which a removed group's RMID is reused; `None` without occupancy.
    ///
    /// # Errors
    /// If the file cannot be read or has no number.
    pub fn max_threshold_occupancy(&self) -> Result<Option<u64>, ResctrlError> {
        let path = self.info_path(super::MONITORING).join("max_threshold_occupancy");
        let Some(text) = files::read_if_there(self.system(), &path)? else { return Ok(None) };
        let why = || ResctrlError::malformed(&path, format!("expected bytes, not `{}`", shown(&text)));
        decimal(&text).ok_or_else(why).map(Some)
    }

    /// Sets that threshold, and returns the value read back; the kernel rounds it down to the counter's unit.
    ///
    /// # Errors
    /// If the kernel refuses the value.
    pub fn set_max_threshold_occupancy(&self, bytes: u64) -> Result<Option<u64>, ResctrlError> {
        let path = self.info_path(super::MONITORING).join("max_threshold_occupancy");
        self.write(&path, &format!("{bytes}\n"), Resctrl::KEEPS_STATUS, || {
            "bytes, at most the size of an L3".to_owned()
        })?;
        self.max_threshold_occupancy()
    }
}

/// The number at the end of a directory's name.
fn id(name: &str, prefix: &str) -> Option<u32> {
    decimal(name.strip_prefix(prefix)?).and_then(|id| u32::try_from(id).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    #[test]
    fn numbers_and_the_lack_of_them() {
        assert_eq!(Count::parse("0\n"), Ok(Count::Value(0)));
        assert_eq!(Count::parse("18446744073709551615\n"), Ok(Count::Value(u64::MAX)));
        assert_eq!(Count::parse("Unavailable\n"), Ok(Count::Unavailable));
        assert_eq!(Count::parse("Error\n"), Ok(Count::Error));
        assert_eq!(Count::parse("Unassigned\n"), Ok(Count::Unassigned));
        for text in ["", "\n", "-1\n", "1 2\n", "unavailable\n", "0x10\n", "18446744073709551616\n", "1\n2\n"]
        {
            let error = Count::parse(text).unwrap_err();
            assert!(error.contains("Unavailable, Error or Unassigned"), "{text:?}: {error}");
        }
        assert_eq!(Count::Error.reading(), Reading::Unavailable);
        assert_eq!(Count::Gone.reading(), Reading::Absent);
    }

    #[test]
    fn domains_have_the_kernels_names() {
        assert_eq!(MonDomain { l3: 3, node: None }.to_string(), "mon_L3_03");
        assert_eq!(MonDomain { l3: 0, node: Some(1) }.to_string(), "mon_L3_00/mon_sub_L3_01");
        assert_eq!(id("mon_L3_100", "mon_L3_"), Some(100));
        assert_eq!(id("mon_PERF_PKG_00", "mon_L3_"), None);
        assert_eq!(id("mon_L3_x", "mon_L3_"), None);
    }

    /// Sub-NUMA clustering as in resctrl.rst of 6.11, ids with a gap, and a package's directory of later kernels.
    #[test]
    fn nodes_of_a_clustered_l3_are_domains_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let resctrl = Resctrl::at(folder.path(), Path::new("/proc/locks"), "wk-");
        let at = |place: &str, text: &str| {
            let directory = folder.path().join("mon_data").join(place);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("llc_occupancy"), text).unwrap();
        };
        at("mon_L3_16", "Unassigned\n");
        at("mon_L3_00", "300\n");
        at("mon_L3_00/mon_sub_L3_01", "200\n");
        at("mon_L3_00/mon_sub_L3_00", "100");
        at("mon_PERF_PKG_00", "1.5\n");
        let domains = resctrl.monitor_domains(&Group::DEFAULT).unwrap();
        let named: Vec<String> = domains.iter().map(MonDomain::to_string).collect();
        assert_eq!(named, ["mon_L3_00", "mon_L3_00/mon_sub_L3_00", "mon_L3_00/mon_sub_L3_01", "mon_L3_16"]);
        let count = |domain| resctrl.count(&Group::DEFAULT, domain, &MonitorEvent::LlcOccupancy);
        assert_eq!(count(domains[0]), Ok(Some(Count::Value(300))));
        assert_eq!(count(domains[2]), Ok(Some(Count::Value(200))));
        assert_eq!(count(domains[3]), Ok(Some(Count::Unassigned)));
        // A number without its newline may be truncated.
        let error = count(domains[1]).unwrap_err();
        assert!(error.to_string().contains("expected one line, not `100`"), "{error}");
        assert_eq!(resctrl.count(&Group::DEFAULT, domains[0], &MonitorEvent::MbmTotal), Ok(None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_number_reads_back(number: u64) {
            prop_assert_eq!(Count::parse(&format!("{number}\n")), Ok(Count::Value(number)));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,30}") {
            let _ = Count::parse(&text);
        }
    }
}
