//! A layout of the LLC: ways of each workload class and of devices, DCA per port. It must not know counters or why a
//! layout is chosen.

use crate::ways::widest_run;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use waykeeper_host::{Inventory, Knob, Plan, Priority, Support, Workload, WorkloadKind};
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// One set of values for all knobs that the policy may set.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Layout {
    /// All workloads have all ways; there is no LP zone and no trash way.
    pub open: bool,
    /// Ways of the LP zone (A4 s5.2).
    pub lp_ways: u32,
    /// HPWs without a device have no DCA ways (A4 s5.3).
    pub hp_clear: bool,
    /// Number of ways in which devices may allocate, from the left (IAT s4.D).
    pub dca_ways: u32,
    /// Workloads that gain nothing from the LLC; their mask is the trash way (A4 s5.5).
    pub trash: BTreeSet<WorkloadId>,
    /// Ports without DCA (A4 s5.4).
    pub dca_off: BTreeSet<PortId>,
}

/// The limits of a chip and its devices.
#[derive(Clone, Debug)]
pub(super) struct ChipLimits {
    ways: u32,
    min_ways: u32,
    inclusive: WayMask,
    /// DCA ways at power-on, or as set by hand; `None` without DCA.
    dca_default: Option<WayMask>,
    /// Whether the policy can change the number of DCA ways.
    pub can_size_dca: bool,
    /// The policy has set the DCA ways; from then on they are part of its plan.
    dca_set_by_us: bool,
    /// Ports whose DCA can be switched.
    pub switches: BTreeSet<PortId>,
}

impl ChipLimits {
    pub fn new(inventory: &Inventory) -> ChipLimits {
        let llc = inventory.known_llc();
        let full = WayMask::full(llc.ways);
        let default = inventory.dca_ways_default.map(|mask| mask.and(full)).filter(|mask| !mask.is_empty());
        // Only DCA ways at the left end, growing to the right, are supported.
        let leftmost =
            default.is_some_and(|mask| mask == WayMask::span(llc.ways - mask.count(), mask.count()));
        let switches = inventory.ports.iter().filter(|port| port.dca_switch == Support::Yes);
        ChipLimits {
            ways: llc.ways,
            min_ways: llc.min_ways.max(1),
            inclusive: llc.inclusive_ways.unwrap_or(WayMask::EMPTY).and(full),
            dca_default: default,
            can_size_dca: leftmost && inventory.dca_ways_switch == Support::Yes,
            dca_set_by_us: false,
            switches: switches.map(|port| port.id).collect(),
        }
    }

    /// Adopts DCA ways that another program set, if the policy has not set them itself; true if so.
    pub fn adopt_dca(&mut self, found: WayMask) -> bool {
        let new = !self.dca_set_by_us && self.dca_default.is_some_and(|mask| mask != found);
        if new {
            self.can_size_dca &= found == WayMask::span(self.ways - found.count(), found.count());
            self.dca_default = Some(found);
        }
        new
    }

    /// Records that the DCA ways belong to the plan once a layout with another number of them was in force.
    pub fn note_in_force(&mut self, layout: &Layout) {
        self.dca_set_by_us |= layout.dca_ways != self.dca_least();
    }

    pub fn dca_least(&self) -> u32 {
        self.dca_default.map_or(0, WayMask::count)
    }

    /// Most DCA ways: half of the LLC, as IAT's limit of 6 of 11 (algorithms.md 2.2).
    pub fn dca_most(&self) -> u32 {
        if self.can_size_dca { self.dca_least().max(self.ways.div_ceil(2)) } else { self.dca_least() }
    }

    fn dca_mask(&self, ways: u32) -> WayMask {
        match self.dca_default {
            None => WayMask::EMPTY,
            Some(mask) if ways == mask.count() => mask,
            Some(_) => WayMask::span(self.ways - ways, ways),
        }
    }

    /// The ways that LPWs may have: neither DCA nor inclusive ways.
    fn standard(&self, dca_ways: u32) -> WayMask {
        let outside = widest_run(WayMask::full(self.ways).minus(self.dca_mask(dca_ways)));
        let standard = widest_run(outside.minus(self.inclusive));
        if standard.count() >= self.min_ways { standard } else { outside }
    }

    /// Most ways of the LP zone beside so many DCA ways. On a chip without inclusive ways one way stays for HPWs.
    pub fn lp_most(&self, dca_ways: u32) -> u32 {
        let standard = self.standard(dca_ways).count();
        let own = u32::from(self.inclusive.is_empty());
        standard.saturating_sub(own).max(self.min_ways)
    }

    pub fn lp_least(&self) -> u32 {
        self.min_ways
    }

    /// The LLC as it is at power-on.
    pub fn open(&self) -> Layout {
        Layout {
            open: true,
            lp_ways: self.lp_most(self.dca_least()),
            hp_clear: false,
            dca_ways: self.dca_least(),
            trash: BTreeSet::new(),
            dca_off: BTreeSet::new(),
        }
    }

    /// The first layout, before any counter was read: zones if both classes exist, with half of the largest LP zone.
    ///
    /// Not the open LLC: rings that fill in it stay full, since their buffers no longer fit the DCA ways (A4 Fig. 6).
    pub fn first(&self, groups: &[Workload]) -> Layout {
        let any = |priority: Priority| groups.iter().any(|group| group.priority == priority);
        let open = self.open();
        if !any(Priority::High) || !any(Priority::Low) {
            return open;
        }
        let lp_ways = self.lp_most(open.dca_ways).div_ceil(2);
        self.fitted(Layout { open: false, lp_ways, hp_clear: has_io_hpw(groups), ..open })
    }

    /// The layout within the limits of this chip.
    pub fn fitted(&self, mut layout: Layout) -> Layout {
        layout.dca_ways = layout.dca_ways.clamp(self.dca_least(), self.dca_most());
        layout.lp_ways = layout.lp_ways.clamp(self.lp_least(), self.lp_most(layout.dca_ways));
        layout.dca_off.retain(|port| self.switches.contains(port));
        if layout.open {
            // Fields without effect get fixed values, so that equal layouts compare as equal.
            layout.lp_ways = self.lp_most(layout.dca_ways);
            layout.hp_clear = false;
            layout.trash.clear();
        }
        layout
    }

    /// The knobs of a layout.
    pub fn plan(&self, layout: &Layout, groups: &[Workload]) -> Plan {
        let masks = groups.iter().map(|group| (group.id, self.mask(layout, group)));
        let dca = self.switches.iter().map(|port| (*port, !layout.dca_off.contains(port)));
        let mut plan = Plan::of_dca(dca).with_masks(masks);
        // The operator may set DCA ways by hand as long as this policy has not turned them.
        if self.dca_set_by_us && self.can_size_dca {
            plan.insert(Knob::DcaWays, self.dca_mask(layout.dca_ways));
        }
        plan
    }

    fn mask(&self, layout: &Layout, group: &Workload) -> WayMask {
        let all = WayMask::full(self.ways);
        if layout.open {
            return all;
        }
        let right = self.standard(layout.dca_ways).lowest().unwrap_or(0);
        if layout.trash.contains(&group.id) {
            return WayMask::span(right, self.min_ways);
        }
        if group.priority == Priority::Low {
            return WayMask::span(right, layout.lp_ways);
        }
        let clear = layout.hp_clear && group.kind == WorkloadKind::NonIo && !group.stack;
        let outside = widest_run(all.minus(self.dca_mask(layout.dca_ways)));
        if clear && outside.count() >= self.min_ways { outside } else { all }
    }
}

/// True if an HPW uses a device.
pub(super) fn has_io_hpw(groups: &[Workload]) -> bool {
    groups.iter().any(|group| group.priority == Priority::High && group.kind != WorkloadKind::NonIo)
}

impl Layout {
    /// The differences from `before`, in words.
    pub fn changes(&self, before: &Layout, groups: &[Workload], inventory: &Inventory) -> String {
        let mut said = Vec::new();
        let name = |id: &WorkloadId| {
            groups
                .iter()
                .find(|group| group.id == *id)
                .map_or_else(|| id.to_string(), |group| group.name.clone())
        };
        if self.open != before.open {
            said.push(if self.open {
                "all workloads may use all ways".to_owned()
            } else {
                "zones".to_owned()
            });
        }
        if !self.open && (self.lp_ways != before.lp_ways || before.open) {
            said.push(format!("LP zone of {} ways", self.lp_ways));
        }
        if self.dca_ways != before.dca_ways {
            said.push(format!("{} DCA ways", self.dca_ways));
        }
        if self.hp_clear != before.hp_clear {
            let verb = if self.hp_clear { "leave" } else { "may use" };
            said.push(format!("HPWs without I/O {verb} the DCA ways"));
        }
        let names = |ids: Vec<&WorkloadId>| ids.into_iter().map(name).collect::<Vec<_>>().join(", ");
        let (into, out) = (
            names(self.trash.difference(&before.trash).collect()),
            names(before.trash.difference(&self.trash).collect()),
        );
        if !into.is_empty() {
            said.push(format!("{into} into the trash way"));
        }
        if !out.is_empty() && !self.open {
            said.push(format!("{out} out of the trash way"));
        }
        let device = |port: &PortId| {
            let found = inventory.devices.iter().find(|device| device.ports.contains(port));
            found.map_or_else(|| port.to_string(), |device| device.name.clone())
        };
        said.extend(
            self.dca_off.difference(&before.dca_off).map(|port| format!("DCA off for {}", device(port))),
        );
        said.extend(
            before.dca_off.difference(&self.dca_off).map(|port| format!("DCA on for {}", device(port))),
        );
        if said.is_empty() { "nothing changes".to_owned() } else { said.join(", ") }
    }
}
