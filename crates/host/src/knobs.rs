//! What is said of each of some knobs: a plan, the settings read back, the report on a plan. One map serves all three.
//!
//! Must not know how a knob is turned, nor what a knob is beyond its kind.

use crate::knob::{Knob, KnobKind, KnobSetting, Setting, check};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, btree_map};
use std::ops::Index;
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// Something about each of some knobs: a plan, the values read back, the report on a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knobs<T>(BTreeMap<Knob, T>);

/// Knobs to turn and their new settings. Knobs that it does not name are not touched.
pub type Plan = Knobs<Setting>;

/// The settings that knobs read back; a knob that cannot be read is absent.
pub type KnobValues = Knobs<Setting>;

/// The report on a plan: one outcome per knob named in it.
pub type Applied = Knobs<KnobOutcome>;

/// The outcome of one knob.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnobOutcome {
    /// It reads back the wanted value.
    Applied,
    /// The host refused the value; with the host's message.
    Refused(String),
    /// The host could not take any value now; with the host's message (EBUSY, a lock held by another tool).
    Busy(String),
    /// The write succeeded but another value reads back.
    ReadsBack(String),
}

impl<T> Default for Knobs<T> {
    fn default() -> Knobs<T> {
        Knobs(BTreeMap::new())
    }
}

impl<T> Knobs<T> {
    /// True if no knob is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Knobs named.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What is said of a knob.
    pub fn get(&self, knob: Knob) -> Option<&T> {
        self.0.get(&knob)
    }

    /// Whether a knob is named.
    pub fn names(&self, knob: Knob) -> bool {
        self.0.contains_key(&knob)
    }

    /// Names a knob, or says something else of it.
    pub fn insert(&mut self, knob: Knob, said: impl Into<T>) {
        self.0.insert(knob, said.into());
    }

    /// The same with one more knob.
    #[must_use]
    pub fn with(mut self, knob: Knob, said: impl Into<T>) -> Knobs<T> {
        self.insert(knob, said);
        self
    }

    /// Names a knob no more. Returns what was said of it.
    pub fn remove(&mut self, knob: Knob) -> Option<T> {
        self.0.remove(&knob)
    }

    /// Keeps the knobs for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(Knob, &T) -> bool) {
        self.0.retain(|knob, said| keep(*knob, said));
    }

    /// Knobs in order: masks, DCA ways, DCA, RX rings, RX bursts.
    pub fn iter(&self) -> impl Iterator<Item = (Knob, &T)> {
        self.0.iter().map(|(knob, said)| (*knob, said))
    }

    /// The knobs of one kind.
    pub fn of_kind(&self, kind: KnobKind) -> impl Iterator<Item = (Knob, &T)> {
        self.iter().filter(move |(knob, _)| knob.kind() == kind)
    }

    /// The knobs named, in the same order.
    pub fn knobs(&self) -> impl Iterator<Item = Knob> + '_ {
        self.0.keys().copied()
    }

    /// What is said of each, in the same order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }
}

impl Knobs<Setting> {
    /// These masks and nothing else.
    pub fn of_masks(masks: impl IntoIterator<Item = (WorkloadId, WayMask)>) -> Knobs<Setting> {
        Knobs::default().with_masks(masks)
    }

    /// The same with these masks.
    #[must_use]
    pub fn with_masks(mut self, masks: impl IntoIterator<Item = (WorkloadId, WayMask)>) -> Knobs<Setting> {
        self.extend(masks.into_iter().map(|(group, mask)| (Knob::Mask(group), mask)));
        self
    }

    /// DCA of these ports and nothing else.
    pub fn of_dca(ports: impl IntoIterator<Item = (PortId, bool)>) -> Knobs<Setting> {
        ports.into_iter().map(|(port, on)| (Knob::Dca(port), on)).collect()
    }

    /// The knob at its setting, if it is named.
    pub fn setting(&self, knob: Knob) -> Option<KnobSetting> {
        self.get(knob).map(|setting| knob.at(*setting))
    }

    /// Every knob at its setting.
    pub fn settings(&self) -> impl Iterator<Item = KnobSetting> + '_ {
        self.iter().map(|(knob, setting)| knob.at(*setting))
    }

    /// Allocation mask of a workload.
    pub fn mask(&self, workload: WorkloadId) -> Option<WayMask> {
        self.get(Knob::Mask(workload))?.ways()
    }

    /// Allocation masks, by workload.
    pub fn masks(&self) -> impl Iterator<Item = (WorkloadId, WayMask)> + '_ {
        self.iter().filter_map(|(knob, setting)| Some((knob.workload()?, setting.ways()?)))
    }

    /// Ways devices may allocate in.
    pub fn dca_ways(&self) -> Option<WayMask> {
        self.get(Knob::DcaWays)?.ways()
    }

    /// DCA of a root port.
    pub fn dca(&self, port: PortId) -> Option<bool> {
        self.get(Knob::Dca(port))?.switch()
    }

    /// DCA, by root port.
    pub fn dca_by_port(&self) -> impl Iterator<Item = (PortId, bool)> + '_ {
        self.iter().filter_map(|(knob, setting)| match knob {
            Knob::Dca(port) => Some((port, setting.switch()?)),
            _ => None,
        })
    }

    /// Descriptors of each RX ring behind a root port.
    pub fn rx_ring(&self, port: PortId) -> Option<u32> {
        self.get(Knob::RxRing(port))?.count()
    }

    /// The most packets at one poll of a ring behind a root port.
    pub fn rx_burst(&self, port: PortId) -> Option<u32> {
        self.get(Knob::RxBurst(port))?.count()
    }
}

impl Knobs<KnobOutcome> {
    /// True if every knob reads back the wanted value.
    pub fn is_complete(&self) -> bool {
        self.values().all(|outcome| *outcome == KnobOutcome::Applied)
    }
}

impl<T> Index<Knob> for Knobs<T> {
    type Output = T;

    /// # Panics
    /// If the knob is not named.
    fn index(&self, knob: Knob) -> &T {
        &self.0[&knob]
    }
}

impl<T, S: Into<T>> FromIterator<(Knob, S)> for Knobs<T> {
    fn from_iter<I: IntoIterator<Item = (Knob, S)>>(entries: I) -> Knobs<T> {
        Knobs(entries.into_iter().map(|(knob, said)| (knob, said.into())).collect())
    }
}

impl<T, S: Into<T>> Extend<(Knob, S)> for Knobs<T> {
    fn extend<I: IntoIterator<Item = (Knob, S)>>(&mut self, entries: I) {
        self.0.extend(entries.into_iter().map(|(knob, said)| (knob, said.into())));
    }
}

impl<T, S: Into<T>, const N: usize> From<[(Knob, S); N]> for Knobs<T> {
    fn from(entries: [(Knob, S); N]) -> Knobs<T> {
        entries.into_iter().collect()
    }
}

impl FromIterator<KnobSetting> for Knobs<Setting> {
    fn from_iter<I: IntoIterator<Item = KnobSetting>>(settings: I) -> Knobs<Setting> {
        settings.into_iter().map(|KnobSetting { knob, setting }| (knob, setting)).collect()
    }
}

impl<T> IntoIterator for Knobs<T> {
    type Item = (Knob, T);
    type IntoIter = btree_map::IntoIter<Knob, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// How [`Knobs`] are written down: a section per kind of knob.
#[derive(Serialize, Deserialize)]
struct Sections<T> {
    masks: BTreeMap<WorkloadId, T>,
    dca_ways: Option<T>,
    dca: BTreeMap<PortId, T>,
    rx_ring: BTreeMap<PortId, T>,
    rx_burst: BTreeMap<PortId, T>,
}

impl<T: Serialize> Serialize for Knobs<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let empty = BTreeMap::new;
        let mut sections = Sections {
            masks: BTreeMap::new(),
            dca_ways: None,
            dca: empty(),
            rx_ring: empty(),
            rx_burst: empty(),
        };
        for (knob, said) in self.iter() {
            match knob {
                Knob::Mask(group) => drop(sections.masks.insert(group, said)),
                Knob::DcaWays => sections.dca_ways = Some(said),
                Knob::Dca(port) => drop(sections.dca.insert(port, said)),
                Knob::RxRing(port) => drop(sections.rx_ring.insert(port, said)),
                Knob::RxBurst(port) => drop(sections.rx_burst.insert(port, said)),
            }
        }
        sections.serialize(serializer)
    }
}

impl<T> From<Sections<T>> for Knobs<T> {
    fn from(sections: Sections<T>) -> Knobs<T> {
        let Sections { masks, dca_ways, dca, rx_ring, rx_burst } = sections;
        let masks = masks.into_iter().map(|(group, said)| (Knob::Mask(group), said));
        let dca_ways = dca_ways.into_iter().map(|said| (Knob::DcaWays, said));
        let by_port = |of: fn(PortId) -> Knob, section: BTreeMap<PortId, T>| {
            section.into_iter().map(move |(port, said)| (of(port), said))
        };
        let ports = by_port(Knob::Dca, dca).chain(by_port(Knob::RxRing, rx_ring));
        Knobs(masks.chain(dca_ways).chain(ports).chain(by_port(Knob::RxBurst, rx_burst)).collect())
    }
}

impl<'de> Deserialize<'de> for Knobs<Setting> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Knobs<Setting>, D::Error> {
        let knobs = Knobs::from(Sections::<Setting>::deserialize(deserializer)?);
        knobs.iter().try_for_each(|(knob, setting)| check(knob, *setting))?;
        Ok(knobs)
    }
}

impl<'de> Deserialize<'de> for Knobs<KnobOutcome> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Knobs<KnobOutcome>, D::Error> {
        Sections::deserialize(deserializer).map(Knobs::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::of_masks([(WorkloadId(2), WayMask::from_bits(0x00c))])
            .with(Knob::DcaWays, WayMask::from_bits(0x600))
            .with(Knob::Dca(PortId(1)), false)
            .with(Knob::RxRing(PortId(0)), 512)
            .with(Knob::RxBurst(PortId(0)), 16)
    }

    #[test]
    fn a_plan_is_written_in_sections_and_read_again() {
        let text = r#"{"masks":{"2":"0x00c"},"dca_ways":"0x600","dca":{"1":false},"rx_ring":{"0":512},"rx_burst":{"0":16}}"#;
        assert_eq!(serde_json::to_string(&plan()).unwrap(), text);
        assert_eq!(serde_json::from_str::<Plan>(text).unwrap(), plan());
        let empty = r#"{"masks":{},"dca_ways":null,"dca":{},"rx_ring":{},"rx_burst":{}}"#;
        assert_eq!(serde_json::to_string(&Plan::default()).unwrap(), empty);
        assert_eq!(serde_json::from_str::<Plan>(empty).unwrap(), Plan::default());
    }

    #[test]
    fn a_setting_of_the_wrong_type_is_refused() {
        let text = r#"{"masks":{"2":true},"dca_ways":null,"dca":{},"rx_ring":{},"rx_burst":{}}"#;
        let error = serde_json::from_str::<Plan>(text).unwrap_err().to_string();
        assert!(error.starts_with("Mask(WorkloadId(2)) does not take on"), "{error}");
        assert!(serde_json::from_str::<KnobSetting>(r#"{"dca":[1,7]}"#).is_err());
    }

    #[test]
    fn a_report_is_written_in_the_same_sections() {
        let applied = Applied::from([
            (Knob::DcaWays, KnobOutcome::Applied),
            (Knob::Dca(PortId(1)), KnobOutcome::Refused("no".to_owned())),
        ]);
        let text =
            r#"{"masks":{},"dca_ways":"applied","dca":{"1":{"refused":"no"}},"rx_ring":{},"rx_burst":{}}"#;
        assert_eq!(serde_json::to_string(&applied).unwrap(), text);
        assert_eq!(serde_json::from_str::<Applied>(text).unwrap(), applied);
        assert!(!applied.is_complete());
    }

    #[test]
    fn accessors_read_what_was_put_in() {
        let plan = plan();
        assert_eq!(plan.mask(WorkloadId(2)), Some(WayMask::from_bits(0x00c)));
        assert_eq!(plan.dca_ways(), Some(WayMask::from_bits(0x600)));
        assert_eq!((plan.dca(PortId(1)), plan.dca(PortId(0))), (Some(false), None));
        assert_eq!((plan.rx_ring(PortId(0)), plan.rx_burst(PortId(0))), (Some(512), Some(16)));
        assert_eq!(plan.settings().collect::<Plan>(), plan);
    }
}
