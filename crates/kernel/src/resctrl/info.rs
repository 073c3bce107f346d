//! `info/`: which resources this kernel divides on this CPU, their formats and limits.
//!
//! hardware.md 7.1, 7.4 and 8.1. A missing directory means that the resource is absent; in a directory, only the files
//! that every kernel has are required. It must not know which machine this is: masks and widths are read from the
//! kernel, not taken from a table.

use super::Resctrl;
use super::error::{ResctrlError, shown};
use super::files;
use super::io_alloc::IoAllocState;
use super::monitor::MonitorEvent;
use super::schemata::{Resource, decimal, hex_mask};
use crate::system::System;
use std::collections::BTreeMap;
use std::path::Path;
use waykeeper_units::WayMask;

/// A cache that CAT divides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheInfo {
    /// Number of classes of this resource, including the default one; with CDP the kernel has already halved it.
    pub num_closids: u32,
    /// All ways that a mask may have.
    pub cbm_mask: WayMask,
    /// Fewest ways that a mask may have; 0 on AMD, where mask 0 is legal.
    pub min_cbm_bits: u32,
    /// Ways that other agents fill too (a CPUID constant, hardware.md 1.3); `None` on kernels before 4.14.
    pub shareable_bits: Option<WayMask>,
    /// Whether masks may have holes; `None` on kernels before 6.7, which do not report it.
    pub sparse_masks: Option<bool>,
    /// Whether devices have a mask of their own; `None` on kernels without that file.
    pub io_alloc: Option<IoAllocState>,
}

/// A bandwidth that MBA limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BandwidthInfo {
    /// Number of classes of this resource, including the default one.
    pub num_closids: u32,
    /// Smallest setting.
    pub min_bandwidth: u64,
    /// Step: other settings are rounded up to it.
    pub bandwidth_gran: u64,
    /// Whether the delay grows linearly with the setting; `None` where the kernel does not report it.
    pub delay_linear: Option<bool>,
    /// Which thread's setting counts on a core: `max` or `per-thread`; `None` where the kernel does not report it.
    pub thread_throttle_mode: Option<String>,
}

/// What can be monitored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitoringInfo {
    /// Groups that can be monitored at the same time, control and monitoring groups together.
    pub num_rmids: u32,
    /// Counted events. Names that end in `_config` are files that configure a counter, and are left out.
    pub events: Vec<MonitorEvent>,
    /// Counters can be configured (AMD's BMEC): the features whose name ends in `_config`.
    pub configurable: Vec<MonitorEvent>,
    /// How counters are assigned to groups, if the kernel (6.18 and later) reports it: the mode in brackets in
    /// `mbm_assign_mode`.
    pub assign_mode: Option<String>,
}

/// All of `info/`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// Caches by resource: L3, or L3CODE and L3DATA with CDP, L2.
    pub caches: BTreeMap<Resource, CacheInfo>,
    /// Bandwidths by resource: MB, SMBA.
    pub bandwidths: BTreeMap<Resource, BandwidthInfo>,
    /// Monitoring of the L3; `None` if there is none.
    pub monitoring: Option<MonitoringInfo>,
    /// Directories that this code does not know.
    pub unknown: Vec<String>,
    /// What is there but cannot be understood, as of a newer kernel: a whole resource, or one of the files that only some
    /// kernels have. It counts as absent.
    pub strange: Vec<ResctrlError>,
}

/// How many groups the hardware's CLOSIDs and RMIDs allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// Most control groups at the same time, including the default one.
    pub closids: u32,
    /// Most control and monitoring groups together at the same time; `None` without monitoring.
    pub rmids: Option<u32>,
}

/// The directory of the L3's monitoring.
pub const MONITORING: &str = "L3_MON";

/// The kernel keeps its free classes in 32 bits (closid_free_map, up to 6.7), and no x86 CPU has more.
const MOST_CLOSIDS: u32 = 32;

impl Info {
    /// The L3's format; with CDP that of its data half (both halves have the same, resctrl.rst).
    pub fn l3(&self) -> Option<&CacheInfo> {
        self.caches.get(&Resource::L3).or_else(|| self.caches.get(&Resource::L3Data))
    }

    /// The resources that together are the L3: one, or code and data with CDP.
    pub fn l3_resources(&self) -> Vec<Resource> {
        let all = [Resource::L3, Resource::L3Code, Resource::L3Data];
        all.into_iter().filter(|resource| self.caches.contains_key(resource)).collect()
    }

    /// True if code and data have masks of their own.
    pub fn has_cdp(&self) -> bool {
        self.caches.contains_key(&Resource::L3Code)
    }

    /// Why a resource (or its monitoring, `L3_MON`) is absent although its directory is there.
    pub fn trouble_with(&self, directory: &str) -> Option<&ResctrlError> {
        let is_in =
            |path: &Path| path.parent().and_then(Path::file_name).is_some_and(|name| name == directory);
        self.strange.iter().find(|error| is_in(&error.path))
    }

    /// Why the L3's masks are absent, or lack what a newer kernel describes with other words.
    pub fn l3_trouble(&self) -> Option<&ResctrlError> {
        let all = [Resource::L3, Resource::L3Code, Resource::L3Data];
        all.iter().find_map(|resource| self.trouble_with(resource.name()))
    }

    /// Classes for groups beside the default one: io_alloc takes one while it is enabled (hardware.md 8.1).
    pub fn classes_for_groups(&self) -> u32 {
        let devices = self.l3().is_some_and(|l3| l3.io_alloc == Some(IoAllocState::Enabled));
        self.limits().closids.saturating_sub(1 + u32::from(devices))
    }

    /// Most groups: the minimum over the resources (hardware.md 7.4).
    pub fn limits(&self) -> GroupLimits {
        let caches = self.caches.values().map(|cache| cache.num_closids);
        let all = caches.chain(self.bandwidths.values().map(|bandwidth| bandwidth.num_closids));
        // Without any resource there is only the default class.
        let closids = all.min().unwrap_or(1).min(MOST_CLOSIDS);
        GroupLimits { closids, rmids: self.monitoring.as_ref().map(|monitoring| monitoring.num_rmids) }
    }

    /// The accepted settings of this resource, for error messages.
    pub fn accepted(&self, resource: &Resource) -> String {
        if let Some(cache) = self.caches.get(resource) {
            let holes = if cache.sparse_masks == Some(true) { "" } else { "contiguous " };
            let least = cache.min_cbm_bits;
            return format!("{holes}masks within {:x} of at least {least} bits", cache.cbm_mask.bits());
        }
        if let Some(bandwidth) = self.bandwidths.get(resource) {
            return format!(
                "{resource} from {} in steps of {}",
                bandwidth.min_bandwidth, bandwidth.bandwidth_gran
            );
        }
        let names: Vec<&str> = self.caches.keys().chain(self.bandwidths.keys()).map(Resource::name).collect();
        format!("one of the resources {}", names.join(", "))
    }
}

impl Resctrl {
    /// Reads all of `info/`. What cannot be understood is in [`Info::strange`], and does not affect the rest.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn info(&self) -> Result<Info, ResctrlError> {
        let mut info = Info::default();
        let mut reader = Reader { system: self.system(), strange: Vec::new() };
        for name in self.list(&self.info_path(""))? {
            let directory = self.info_path(&name);
            if !self.system().is_dir(&directory) {
                continue;
            }
            let resource = Resource::from(name.as_str());
            let read = match &resource {
                Resource::Mb | Resource::Smba => {
                    reader.bandwidth(&directory).map(|own| _ = info.bandwidths.insert(resource, own))
                }
                _ if resource.is_cache() => {
                    reader.cache(&directory).map(|own| _ = info.caches.insert(resource, own))
                }
                _ if name == MONITORING => {
                    reader.monitoring(&directory).map(|own| info.monitoring = Some(own))
                }
                _ => {
                    info.unknown.push(name);
                    Ok(())
                }
            };
            reader.strange.extend(read.err());
        }
        info.strange = reader.strange;
        Ok(info)
    }

    /// The usage of each way of a cache, by domain: one letter per way, from the highest bit down (hardware.md 7.1).
    ///
    /// # Errors
    /// If the file cannot be read or is malformed. `None` where the kernel has no such file.
    pub fn bit_usage(&self, resource: &Resource) -> Result<Option<BTreeMap<u32, String>>, ResctrlError> {
        let path = self.info_path(resource.name()).join("bit_usage");
        let Some(text) = files::read_if_there(self.system(), &path)? else { return Ok(None) };
        parse_bit_usage(&text).map(Some).map_err(|why| ResctrlError::malformed(&path, why))
    }
}

/// Reads a `bit_usage` file: `0=XXSSSSSSSSS;1=XXSSSSSSSSS`.
pub(super) fn parse_bit_usage(text: &str) -> Result<BTreeMap<u32, String>, String> {
    let bad = || format!("expected a map like 0=XXSSSSSSSSS;1=XXSSSSSSSSS, not `{}`", shown(text));
    let mut usage = BTreeMap::new();
    for part in text.strip_suffix('\n').unwrap_or(text).split(';') {
        let (id, letters) = part.split_once('=').ok_or_else(bad)?;
        let id = decimal(id).and_then(|id| u32::try_from(id).ok()).ok_or_else(bad)?;
        let known = !letters.is_empty()
            && letters.len() <= 32
            && letters.bytes().all(|byte| b"0HSXEP".contains(&byte));
        if !known || usage.insert(id, letters.to_owned()).is_some() {
            return Err(bad());
        }
    }
    Ok(usage)
}

/// Reads the directories of `info/`, and keeps what it could not understand.
struct Reader<'a> {
    system: &'a dyn System,
    strange: Vec<ResctrlError>,
}

impl Reader<'_> {
    fn cache(&mut self, directory: &Path) -> Result<CacheInfo, ResctrlError> {
        let mask = directory.join("cbm_mask");
        let cbm_mask = self.needed(&mask, hex_mask)?;
        if cbm_mask.is_empty() {
            return Err(ResctrlError::malformed(&mask, "expected at least one way, not `0`"));
        }
        Ok(CacheInfo {
            num_closids: self.needed(&directory.join("num_closids"), at_least_one)?,
            cbm_mask,
            min_cbm_bits: self.needed(&directory.join("min_cbm_bits"), number)?,
            shareable_bits: self.optional(&directory.join("shareable_bits"), hex_mask),
            sparse_masks: self.optional(&directory.join("sparse_masks"), flag),
            io_alloc: self.optional(&directory.join("io_alloc"), IoAllocState::parse),
        })
    }

    fn bandwidth(&mut self, directory: &Path) -> Result<BandwidthInfo, ResctrlError> {
        let word = |text: &str| match text.trim_end() {
            mode @ ("max" | "per-thread" | "undefined") => Ok(mode.to_owned()),
            _ => Err(format!("expected max, per-thread or undefined, not `{}`", shown(text))),
        };
        Ok(BandwidthInfo {
            num_closids: self.needed(&directory.join("num_closids"), at_least_one)?,
            min_bandwidth: self.needed(&directory.join("min_bandwidth"), number)?.into(),
            bandwidth_gran: self.needed(&directory.join("bandwidth_gran"), at_least_one)?.into(),
            delay_linear: self.optional(&directory.join("delay_linear"), flag),
            thread_throttle_mode: self.optional(&directory.join("thread_throttle_mode"), word),
        })
    }

    fn monitoring(&mut self, directory: &Path) -> Result<MonitoringInfo, ResctrlError> {
        let path = directory.join("mon_features");
        let (features, wrong) = self.needed(&path, parse_features)?;
        self.strange.extend(wrong.map(|why| ResctrlError::malformed(&path, why)));
        let (configurable, events): (Vec<_>, Vec<_>) =
            features.iter().partition(|feature| feature.ends_with("_config"));
        let event = |name: &&String| MonitorEvent::from(name.strip_suffix("_config").unwrap_or(name));
        Ok(MonitoringInfo {
            num_rmids: self.needed(&directory.join("num_rmids"), at_least_one)?,
            events: events.iter().map(event).collect(),
            configurable: configurable.iter().map(event).collect(),
            assign_mode: self.optional(&directory.join("mbm_assign_mode"), parse_assign_mode),
        })
    }

    /// Reads a file that every kernel has in such a directory.
    fn needed<T>(&self, path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, ResctrlError> {
        let text = files::read(self.system, path, files::MOST_BYTES)?;
        parse(&text).map_err(|why| ResctrlError::malformed(path, why))
    }

    /// Reads a file that only some kernels have. A newer kernel may write other words into it.
    fn optional<T>(&mut self, path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let read = files::read_if_there(self.system, path).and_then(|text| {
            let parsed = text.map(|text| parse(&text)).transpose();
            parsed.map_err(|why| ResctrlError::malformed(path, why))
        });
        read.unwrap_or_else(|why| {
            self.strange.push(why);
            None
        })
    }
}

fn flag(text: &str) -> Result<bool, String> {
    match text.trim_end() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("expected 0 or 1, not `{}`", shown(text))),
    }
}

/// Reads `mon_features`: one name per line, at least one. Returns the names, and what is wrong with the first line that is
/// none.
pub(super) fn parse_features(text: &str) -> Result<(Vec<String>, Option<String>), String> {
    if text.trim().is_empty() {
        return Err("it is empty; expected one feature a line, like llc_occupancy".to_owned());
    }
    let is_name = |name: &&str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let (names, wrong): (Vec<&str>, Vec<&str>) = text.lines().partition(is_name);
    let wrong = wrong
        .first()
        .map(|line| format!("expected one feature a line, like llc_occupancy, not `{}`", shown(line)));
    match (names.is_empty(), wrong) {
        (true, Some(why)) => Err(why),
        (_, wrong) => Ok((names.into_iter().map(str::to_owned).collect(), wrong)),
    }
}

/// Reads `mbm_assign_mode`: one mode per line, the one in force in brackets (resctrl.rst of 6.18).
fn parse_assign_mode(text: &str) -> Result<String, String> {
    let in_force = text.lines().find_map(|line| line.trim().strip_prefix('[')?.strip_suffix(']'));
    in_force.map(str::to_owned).ok_or_else(|| format!("expected a mode in brackets, not `{}`", shown(text)))
}

fn number(text: &str) -> Result<u32, String> {
    let value = decimal(text).and_then(|value| u32::try_from(value).ok());
    value.ok_or_else(|| format!("expected a decimal number, not `{}`", shown(text)))
}

fn at_least_one(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 => Err("expected at least 1, not `0`".to_owned()),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_map_of_ways() {
        let usage = parse_bit_usage("0=XXSSSSSEEEE;16=0H\n").unwrap();
        assert_eq!(usage[&0], "XXSSSSSEEEE");
        assert_eq!(usage[&16], "0H");
        for text in ["", "\n", "0=\n", "0=Q\n", "x=S\n", "0=S;0=S\n", "0=S;\n"] {
            assert!(parse_bit_usage(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn features_and_modes() {
        assert_eq!(parse_features("llc_occupancy\nmbm_total_bytes\n").unwrap().0.len(), 2);
        assert!(parse_features("").unwrap_err().contains("it is empty"));
        // A word of a newer kernel is one feature less.
        let (names, wrong) = parse_features("llc_occupancy\nIO-MBM\n").unwrap();
        assert_eq!(names, ["llc_occupancy"]);
        assert!(wrong.unwrap().contains("not `IO-MBM`"));
        assert!(parse_features("llc occupancy\n").unwrap_err().contains("`llc occupancy`"));
        assert_eq!(parse_assign_mode("[mbm_event]\ndefault\n").unwrap(), "mbm_event");
        assert!(parse_assign_mode("default\n").is_err());
    }

    /// A file tree with a resctrl in it.
    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Resctrl) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join("info").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let resctrl = Resctrl::at(folder.path(), Path::new("/proc/locks"), "wk-");
        (folder, resctrl)
    }

    #[test]
    fn classes_are_the_minimum_and_what_is_absent_is_absent() {
        // Cascade Lake (hardware.md 7.4): MBA's 8 limit L3's 16. An early kernel: no shareable_bits, no sparse_masks.
        let (_keep, resctrl) = tree(&[
            ("L3/num_closids", "16\n"),
            ("L3/cbm_mask", "7ff\n"),
            ("L3/min_cbm_bits", "1\n"),
            ("MB/num_closids", "8\n"),
            ("MB/min_bandwidth", "10\n"),
            ("MB/bandwidth_gran", "10\n"),
            ("NEXT/num_closids", "4\n"),
            ("last_cmd_status", "ok\n"),
        ]);
        let info = resctrl.info().unwrap();
        assert_eq!(info.limits(), GroupLimits { closids: 8, rmids: None });
        let l3 = info.l3().unwrap();
        assert_eq!((l3.shareable_bits, l3.sparse_masks, l3.io_alloc), (None, None, None));
        assert_eq!(info.unknown, ["NEXT"]);
        assert_eq!(info.l3_resources(), [Resource::L3]);
        assert_eq!(resctrl.bit_usage(&Resource::L3), Ok(None));
        assert_eq!(Info::default().limits(), GroupLimits { closids: 1, rmids: None });
    }

    #[test]
    fn what_cannot_be_understood_is_named_and_affects_only_itself() {
        let (keep, resctrl) = tree(&[
            ("L3_MON/mon_features", "\n"),
            ("L3_MON/num_rmids", "0\n"),
            ("L3/num_closids", "16\n"),
            ("L3/cbm_mask", "7ff\n"),
            ("L3/min_cbm_bits", "1\n"),
            ("L3/io_alloc", "on demand\n"),
            ("MB/num_closids", "none\n"),
        ]);
        let info = resctrl.info().unwrap();
        // A newer word in a file that only some kernels have is one value less.
        assert_eq!(info.l3().map(|l3| (l3.num_closids, l3.io_alloc)), Some((16, None)));
        assert_eq!((info.monitoring.as_ref(), info.bandwidths.len(), info.limits().closids), (None, 0, 16));
        assert_eq!(info.strange.len(), 3, "{:?}", info.strange);
        let error = info.trouble_with(MONITORING).unwrap().to_string();
        let path = keep.path().join("info/L3_MON");
        let wanted = "reading: it is empty; expected one feature a line, like llc_occupancy";
        assert_eq!(error, format!("{}: {wanted}", path.join("mon_features").display()));
        assert!(info.trouble_with("MB").unwrap().to_string().contains("decimal number, not `none`"));
        std::fs::write(path.join("mon_features"), "llc_occupancy\nmbm_total_bytes_config\n").unwrap();
        let error = resctrl.info().unwrap().trouble_with(MONITORING).unwrap().to_string();
        assert!(error.contains("num_rmids: reading: expected at least 1, not `0`"), "{error}");
        std::fs::write(path.join("num_rmids"), "256\n").unwrap();
        let monitoring = resctrl.info().unwrap().monitoring.unwrap();
        assert_eq!(
            (monitoring.events, monitoring.configurable),
            (vec![MonitorEvent::LlcOccupancy], vec![MonitorEvent::MbmTotal])
        );
        std::fs::remove_file(path.join("num_rmids")).unwrap();
        assert!(resctrl.info().unwrap().trouble_with(MONITORING).unwrap().is_gone());
        // With CDP the L3 has two directories.
        let (_keep, resctrl) = tree(&[("L3CODE/cbm_mask", "7ff\n"), ("L3DATA/num_closids", "none\n")]);
        let info = resctrl.info().unwrap();
        assert!(info.l3().is_none() && info.trouble_with("L3").is_none());
        assert!(info.l3_trouble().unwrap().to_string().contains("L3CODE"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_text_makes_them_panic(text in "[0-9a-fHSXEP=;\\[\\]\n\u{0}-\u{ff}]{0,40}") {
            let _ = (parse_bit_usage(&text), parse_features(&text), parse_assign_mode(&text));
            let _ = (number(&text), at_least_one(&text));
        }
    }
}
