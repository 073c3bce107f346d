//! What the operator allows Waykeeper to change. A forbidden knob is marked in the inventory, so that policies know,
//! and requests for it are refused.
//!
//! Must not know what the machine supports.

use super::facts::Facts;
use crate::profile::MachineProfile;
use std::collections::BTreeMap;
use waykeeper_host::{Inventory, Knob, Support};
use waykeeper_kernel::pci::PciAddress;
use waykeeper_tenants::Tenant;
use waykeeper_units::{CoreId, CoreList, PortId};

/// Whether a host is managed or only observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostAccess {
    /// Managed: tenants get groups, and knobs are written.
    #[default]
    Manage,
    /// Counted: counter registers are programmed where perf does not count the host, and restored at the end. Otherwise as
    /// observed.
    Count,
    /// Observed: no group, register or journal is written, and every request for a knob is refused. Counters are perf's
    /// and free-running ones. Masks and occupancy are those of existing groups.
    Observe,
}

/// Root ports whose DCA may be switched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DcaLimit {
    /// All.
    #[default]
    All,
    /// None.
    None,
    /// Ports with these addresses, and ports of devices with these addresses.
    Only(Vec<PciAddress>),
}

/// What may be changed; by default everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedChanges {
    /// Way masks of tenants. If false, tenants get monitoring groups but no class of service.
    pub masks: bool,
    /// The DCA ways.
    pub dca_ways: bool,
    /// DCA per root port.
    pub dca: DcaLimit,
    /// Most classes of service besides the default group's; `None`: all free ones.
    pub max_classes: Option<u32>,
    /// CPUs that may be moved into groups; `None`: all.
    pub cpus: Option<CoreList>,
}

impl Default for AllowedChanges {
    fn default() -> AllowedChanges {
        AllowedChanges { masks: true, dca_ways: true, dca: DcaLimit::All, max_classes: None, cpus: None }
    }
}

/// Why each knob is forbidden, if it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Restrictions {
    observes: bool,
    masks: Option<&'static str>,
    ways: Option<&'static str>,
    ports: BTreeMap<PortId, &'static str>,
    cpus: Option<CoreList>,
}

const MASKS: &str = "the configuration forbids setting masks (limits)";
const WAYS: &str = "the configuration forbids setting the ways of devices (limits)";
const PORT: &str = "the configuration forbids switching DCA of this port (limits)";
const NO_EFFECT: &str = "the machine profile says that this knob takes values without effect";
const OBSERVED: &str = "Waykeeper only observes this host and sets no knobs";

impl Restrictions {
    pub fn new(limits: &AllowedChanges, access: HostAccess, facts: &Facts) -> Restrictions {
        let may = |index: usize, address: PciAddress| match &limits.dca {
            DcaLimit::All => true,
            DcaLimit::None => false,
            DcaLimit::Only(list) => {
                let mut behind = facts.devices.iter().filter(|device| device.port == index);
                list.contains(&address) || behind.any(|device| list.contains(&device.address))
            }
        };
        let ports = (0..=u8::MAX).zip(facts.ports.iter().enumerate());
        let forbidden = ports.filter(|(_, (index, port))| !may(*index, port.address));
        Restrictions {
            observes: access != HostAccess::Manage,
            masks: (!limits.masks).then_some(MASKS),
            ways: (!limits.dca_ways).then_some(WAYS),
            ports: forbidden.map(|(id, _)| (PortId(id), PORT)).collect(),
            cpus: limits.cpus.clone(),
        }
    }

    /// Why a knob may not be set.
    pub fn refusal(&self, knob: Knob) -> Option<&'static str> {
        let configured = match knob {
            Knob::Mask(_) => self.masks,
            Knob::DcaWays => self.ways,
            Knob::Dca(port) => self.ports.get(&port).copied(),
            Knob::RxRing(_) | Knob::RxBurst(_) => None,
        };
        self.observes.then_some(OBSERVED).or(configured)
    }

    /// Marks configured limits in the inventory. A knob that cannot be set anyway keeps its own reason. Observation is
    /// not marked: a policy on an observed host should request what it would request on a managed one.
    pub fn show(&self, inventory: &mut Inventory) {
        let bar = |support: &mut Support, why: Option<&'static str>| {
            if let (Some(why), false) = (why, matches!(support, Support::No(_))) {
                *support = Support::No(why.to_owned());
            }
        };
        bar(&mut inventory.dca_ways_switch, self.ways);
        for port in &mut inventory.ports {
            bar(&mut port.dca_switch, self.ports.get(&port.id).copied());
        }
    }

    /// Uses a machine profile: a knob that the probe found without effect becomes read-only, and requests for it are
    /// refused.
    pub fn use_profile(&mut self, profile: &MachineProfile, inventory: &mut Inventory) {
        let before = inventory.clone();
        profile.apply_to(inventory);
        if inventory.dca_ways_switch != before.dca_ways_switch {
            self.ways = Some(NO_EFFECT);
        }
        let ports = inventory.ports.iter().zip(&before.ports);
        let dead = ports.filter(|(now, before)| now.dca_switch != before.dca_switch);
        self.ports.extend(dead.map(|(port, _)| (port.id, NO_EFFECT)));
    }

    /// Why a tenant's CPUs may not be moved, if they may not.
    pub fn tenant(&self, tenant: &Tenant) -> Option<String> {
        let allowed = self.cpus.as_ref()?;
        let cores = tenant.cores.cores().iter();
        let forbidden: Vec<CoreId> = cores.filter(|core| !allowed.cores().contains(core)).copied().collect();
        (!forbidden.is_empty()).then(|| {
            let forbidden = CoreList::from(forbidden);
            format!("the configuration forbids moving CPUs {forbidden}, it allows only {allowed} (limits)")
        })
    }
}
