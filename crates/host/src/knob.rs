//! A knob and its setting: which knobs there are, the settings that they take, how they are shown and written.
//!
//! One place for a new knob: its variant of [`Knob`] and of [`KnobKind`], and an arm in each function of this file and of
//! `knobs.rs` that the compiler then names. Must not know how a knob is turned.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// A knob, whatever its setting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Knob {
    /// Allocation mask of a workload (CAT).
    Mask(WorkloadId),
    /// Ways devices may allocate in (IIO_LLC_WAYS).
    DcaWays,
    /// DCA of a root port.
    Dca(PortId),
    /// Descriptors of each RX ring of the NIC behind a root port.
    RxRing(PortId),
    /// The most packets a worker may take from such a ring at one poll.
    RxBurst(PortId),
}

impl Knob {
    /// Whether a setting is of the type that this knob takes.
    fn takes(self, setting: Setting) -> bool {
        match self {
            Knob::Mask(_) | Knob::DcaWays => matches!(setting, Setting::Ways(_)),
            Knob::Dca(_) => matches!(setting, Setting::Switch(_)),
            Knob::RxRing(_) | Knob::RxBurst(_) => matches!(setting, Setting::Count(_)),
        }
    }

    /// Its kind.
    pub fn kind(self) -> KnobKind {
        match self {
            Knob::Mask(_) => KnobKind::Mask,
            Knob::DcaWays => KnobKind::DcaWays,
            Knob::Dca(_) => KnobKind::Dca,
            Knob::RxRing(_) => KnobKind::RxRing,
            Knob::RxBurst(_) => KnobKind::RxBurst,
        }
    }

    /// The knob at this setting.
    pub fn at(self, setting: impl Into<Setting>) -> KnobSetting {
        KnobSetting { knob: self, setting: setting.into() }
    }

    /// The workload whose knob it is; `None` for knobs of devices and of the socket.
    pub fn workload(self) -> Option<WorkloadId> {
        match self {
            Knob::Mask(workload) => Some(workload),
            Knob::DcaWays | Knob::Dca(_) | Knob::RxRing(_) | Knob::RxBurst(_) => None,
        }
    }

    /// The root port whose knob it is; `None` for knobs of workloads and of the socket.
    pub fn port(self) -> Option<PortId> {
        match self {
            Knob::Dca(port) | Knob::RxRing(port) | Knob::RxBurst(port) => Some(port),
            Knob::Mask(_) | Knob::DcaWays => None,
        }
    }
}

/// Knobs of one kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnobKind {
    /// Allocation masks.
    Mask,
    /// The DCA ways.
    DcaWays,
    /// DCA of root ports.
    Dca,
    /// RX rings.
    RxRing,
    /// RX bursts.
    RxBurst,
}

impl fmt::Display for KnobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KnobKind::Mask => "mask",
            KnobKind::DcaWays => "DCA ways",
            KnobKind::Dca => "DCA",
            KnobKind::RxRing => "RX ring",
            KnobKind::RxBurst => "RX burst",
        })
    }
}

/// The setting of a knob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(untagged)]
pub enum Setting {
    /// LLC ways.
    Ways(WayMask),
    /// On or off.
    Switch(bool),
    /// A number of descriptors or packets.
    Count(u32),
}

impl Setting {
    /// The ways; `None` if it is something else.
    pub fn ways(self) -> Option<WayMask> {
        if let Setting::Ways(mask) = self { Some(mask) } else { None }
    }

    /// The switch; `None` if it is something else.
    pub fn switch(self) -> Option<bool> {
        if let Setting::Switch(on) = self { Some(on) } else { None }
    }

    /// The number; `None` if it is something else.
    pub fn count(self) -> Option<u32> {
        if let Setting::Count(count) = self { Some(count) } else { None }
    }
}

impl From<WayMask> for Setting {
    fn from(mask: WayMask) -> Setting {
        Setting::Ways(mask)
    }
}

impl From<bool> for Setting {
    fn from(on: bool) -> Setting {
        Setting::Switch(on)
    }
}

impl From<u32> for Setting {
    fn from(count: u32) -> Setting {
        Setting::Count(count)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Ways(mask) => mask.fmt(f),
            Setting::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Setting::Count(count) => count.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Setting, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Setting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a way mask as a string, true, false or a number")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Setting, E> {
                text.parse().map(Setting::Ways).map_err(E::custom)
            }

            fn visit_bool<E>(self, on: bool) -> Result<Setting, E> {
                Ok(Setting::Switch(on))
            }

            fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<Setting, E> {
                u32::try_from(count).map(Setting::Count).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A knob and a setting of it. In JSON `{"mask": [0, "0x00c"]}`, `{"dca-ways": "0x600"}` and so on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KnobSetting {
    /// The knob.
    pub knob: Knob,
    /// Its setting.
    pub setting: Setting,
}

impl KnobSetting {
    /// The setting as a number, and what that number is.
    pub fn number(self) -> (&'static str, f64) {
        let number = match self.setting {
            Setting::Ways(mask) => f64::from(mask.count()),
            Setting::Switch(on) => f64::from(u8::from(on)),
            Setting::Count(count) => f64::from(count),
        };
        let what = match self.knob {
            Knob::Mask(_) => "ways of the mask",
            Knob::DcaWays => "DCA ways",
            Knob::Dca(_) => "DCA switch",
            Knob::RxRing(_) => "RX ring descriptors",
            Knob::RxBurst(_) => "RX burst packets",
        };
        (what, number)
    }
}

impl fmt::Display for KnobSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = self.setting;
        match self.knob {
            Knob::Mask(group) => write!(f, "mask {setting} of {group}"),
            Knob::DcaWays => write!(f, "DCA ways {setting}"),
            Knob::Dca(port) => write!(f, "DCA {setting} on {port}"),
            Knob::RxRing(port) => write!(f, "RX ring of {setting} on {port}"),
            Knob::RxBurst(port) => write!(f, "RX burst of {setting} on {port}"),
        }
    }
}

/// How a [`KnobSetting`] is written down.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Knob", rename_all = "kebab-case")]
enum Written {
    Mask(WorkloadId, Setting),
    DcaWays(Setting),
    Dca(PortId, Setting),
    RxRing(PortId, Setting),
    RxBurst(PortId, Setting),
}

impl Serialize for KnobSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let setting = self.setting;
        let written = match self.knob {
            Knob::Mask(group) => Written::Mask(group, setting),
            Knob::DcaWays => Written::DcaWays(setting),
            Knob::Dca(port) => Written::Dca(port, setting),
            Knob::RxRing(port) => Written::RxRing(port, setting),
            Knob::RxBurst(port) => Written::RxBurst(port, setting),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KnobSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KnobSetting, D::Error> {
        let (knob, setting) = match Written::deserialize(deserializer)? {
            Written::Mask(group, setting) => (Knob::Mask(group), setting),
            Written::DcaWays(setting) => (Knob::DcaWays, setting),
            Written::Dca(port, setting) => (Knob::Dca(port), setting),
            Written::RxRing(port, setting) => (Knob::RxRing(port), setting),
            Written::RxBurst(port, setting) => (Knob::RxBurst(port), setting),
        };
        check(knob, setting)?;
        Ok(KnobSetting { knob, setting })
    }
}

/// An error if a knob does not take a setting.
pub(crate) fn check<E: serde::de::Error>(knob: Knob, setting: Setting) -> Result<(), E> {
    if knob.takes(setting) { Ok(()) } else { Err(E::custom(format!("{knob:?} does not take {setting}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_and_its_setting_are_written_as_one_value() {
        for (setting, text, shown) in [
            (
                Knob::Mask(WorkloadId(0)).at(WayMask::from_bits(12)),
                r#"{"mask":[0,"0x00c"]}"#,
                "mask 0x00c of group 0",
            ),
            (Knob::DcaWays.at(WayMask::from_bits(0x600)), r#"{"dca-ways":"0x600"}"#, "DCA ways 0x600"),
            (Knob::Dca(PortId(1)).at(false), r#"{"dca":[1,false]}"#, "DCA off on port 1"),
            (Knob::RxRing(PortId(1)).at(64), r#"{"rx-ring":[1,64]}"#, "RX ring of 64 on port 1"),
            (Knob::RxBurst(PortId(1)).at(8), r#"{"rx-burst":[1,8]}"#, "RX burst of 8 on port 1"),
        ] {
            assert_eq!(serde_json::to_string(&setting).unwrap(), text);
            assert_eq!(serde_json::from_str::<KnobSetting>(text).unwrap(), setting);
            assert_eq!(setting.to_string(), shown);
        }
    }
}
