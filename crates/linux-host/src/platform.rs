//! What a host must have before anything on it is changed: an L3 that the kernel knows, and its ways. One that is only
//! observed may lack both. `doctor` asks the same question that the start of a daemon asks.
//!
//! Reads only. Must not know tenants beyond the core that selects the managed L3.

use super::error::OpenError;
use super::facts::Facts;
use super::tenant_set;
use super::{HostAccess, LinuxHost, LinuxHostOptions};
use std::path::Path;
use waykeeper_kernel::resctrl::{CacheInfo, GROUP_PREFIX, Info, LOCKS, MOUNT, Resctrl};
use waykeeper_units::{CoreId, WayMask};

/// The managed L3, and the way to its masks.
pub(super) struct Platform {
    pub facts: Facts,
    pub resctrl: Resctrl,
    /// Empty where resctrl is not mounted.
    pub info: Info,
    /// `None` where the kernel shows no L3, or not how many ways it has: such a host can only be observed.
    pub l3: Option<CacheInfo>,
}

impl Platform {
    /// Reads it. Without CAT (`needs_cat` is false) the ways are those of the cache, of which no mask exists.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn read(options: &LinuxHostOptions) -> Result<Platform, OpenError> {
        let LinuxHostOptions { root, needs_cat, .. } = options;
        let needs_cat = *needs_cat;
        let facts = Facts::read_managed(root, options.managed, options.first_core())?;
        let cpu = facts.reader.0;
        if needs_cat && facts.l3.is_none() {
            return Err(OpenError::NoL3 { cpu });
        }
        let opened = Resctrl::open(root, GROUP_PREFIX).and_then(|resctrl| Ok((resctrl.info()?, resctrl)));
        let (info, resctrl) = match opened {
            Ok(opened) => opened,
            Err(why) if needs_cat => return Err(why.into()),
            Err(_) => {
                let mount = root.path(MOUNT);
                let absent = Resctrl::on(root.system().clone(), &mount, Path::new(LOCKS), GROUP_PREFIX);
                (Info::default(), absent)
            }
        };
        let shown = facts.l3.as_ref();
        if needs_cat && shown.is_some_and(|l3| l3.id.is_none()) {
            return Err(OpenError::NoL3Id { cpu });
        }
        if options.access == HostAccess::Manage {
            Resctrl::check_writable(root)?;
        }
        let no_cat = || info.l3_trouble().map_or(OpenError::NoCat, |why| why.clone().into());
        let whole = |ways| CacheInfo {
            num_closids: 1,
            cbm_mask: WayMask::full(ways),
            min_cbm_bits: 1,
            shareable_bits: None,
            sparse_masks: None,
            io_alloc: None,
        };
        let l3 = match info.l3() {
            Some(l3) => shown.map(|_| l3.clone()),
            None if needs_cat => return Err(no_cat()),
            None => shown.and_then(|l3| l3.ways).filter(|ways| (1..=WayMask::MOST).contains(ways)).map(whole),
        };
        Ok(Platform { facts, resctrl, info, l3 })
    }
}

impl LinuxHost {
    /// What [`LinuxHost::open`] checks before it changes anything. Locks, journals and counters are not asked for.
    ///
    /// # Errors
    /// Why the host would not be opened.
    pub fn check(options: &LinuxHostOptions) -> Result<(), OpenError> {
        let platform = Platform::read(options)?;
        tenant_set::check(&platform.facts, platform.l3.as_ref(), &options.tenants)
    }
}

impl LinuxHostOptions {
    /// The first tenant's first core, which selects the L3 where none is named.
    pub(super) fn first_core(&self) -> Option<CoreId> {
        self.tenants.iter().flat_map(|tenant| tenant.cores.cores().first()).next().copied()
    }
}
