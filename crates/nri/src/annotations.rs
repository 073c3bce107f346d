//! What the annotations and the environment of pods say about caches: ours, and those of other agents.
//!
//! Ours are `waykeeper.io/KEY`. Other agents' name a class of service: goresctrl v0.13.0 (pkg/rdt/kubernetes.go), the NRI
//! plugins (docs of resource-policy, cache control), Koordinator (apis/extension, `AnnotationResctrl`). Must not know which
//! classes there are, nor devices.

use serde::Deserialize;
use serde::de::value::{Error as WordError, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::collections::BTreeMap;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_tenants::DeviceName;
use waykeeper_units::{Likeness, nearest, shown};

/// Prefix of our annotations.
const OURS: &str = "waykeeper.io/";
/// What we read behind the prefix.
const KEYS: [&str; 5] = ["manage", "priority", "kind", "devices", "mask"];

/// Koordinator's annotation of a pod: ranges of the LLC in percent, as JSON.
const KOORDINATOR: &str = "node.koordinator.sh/resctrl";
/// An annotation of a container with its class.
const CLASS_OF_CONTAINER: &str = "io.kubernetes.cri.rdt-class";
/// Prefixes of annotations of a pod: behind them is `pod` or `container.NAME`.
const CLASSES: [&str; 2] = ["rdt.resources.beta.kubernetes.io/", "rdtclass.resource-policy.nri.io/"];

/// Most annotations that are kept, and the longest value, bytes. Assumption: a pod has one for each container.
const ANNOTATIONS_MOST: usize = 64;
const VALUE_MOST: usize = 2048;

/// Begin of the variables in which device plugins give PCI addresses (k8snetworkplumbingwg/sriov-network-device-plugin);
/// those that end in `_INFO` have JSON.
const ADDRESSES: &str = "PCIDEVICE_";

/// What our annotations of a pod ask for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodWish {
    /// `waykeeper.io/manage = "false"`: the pod is left alone.
    pub is_left_alone: bool,
    /// Whether it is to be protected.
    pub priority: Option<Priority>,
    /// What it does.
    pub kind: Option<WorkloadKind>,
    /// Its devices.
    pub devices: Vec<DeviceName>,
    /// Its first ways.
    pub mask: Option<String>,
}

/// The annotations that concern caches, as many as a pod can have use for.
pub fn relevant(all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_ours = |key: &String| {
        key.starts_with(OURS)
            || key == KOORDINATOR
            || key == CLASS_OF_CONTAINER
            || CLASSES.iter().any(|prefix| key.starts_with(prefix))
    };
    let mut kept: BTreeMap<String, String> =
        all.into_iter().filter(|(key, _)| is_ours(key)).take(ANNOTATIONS_MOST).collect();
    for value in kept.values_mut() {
        // One that is cut is not valid, so it is refused with its first characters.
        let end = (0..=VALUE_MOST).rev().find(|end| value.is_char_boundary(*end)).unwrap_or(0);
        value.truncate(end);
    }
    kept
}

/// PCI addresses in an environment.
pub fn addresses(environment: &[String]) -> impl Iterator<Item = String> {
    let pairs = environment.iter().filter_map(|variable| variable.split_once('='));
    let values = pairs.filter(|(name, _)| name.starts_with(ADDRESSES) && !name.ends_with("_INFO"));
    let each = values.flat_map(|(_, value)| value.split(','));
    each.map(str::trim).filter(|address| (1..=32).contains(&address.len())).map(str::to_owned)
}

/// Reads our annotations.
///
/// # Errors
/// The first that is not valid, and what would be.
pub fn wish(annotations: &BTreeMap<String, String>) -> Result<PodWish, String> {
    let mut wish = PodWish::default();
    for (key, value) in annotations {
        let Some(name) = key.strip_prefix(OURS) else { continue };
        let refuse = |wanted: &str| format!("annotation {key} = `{}`: {wanted}", shown(value));
        match name {
            "manage" => match value.as_str() {
                "true" => wish.is_left_alone = false,
                "false" => wish.is_left_alone = true,
                _ => return Err(refuse("write `true` or `false`")),
            },
            "priority" => wish.priority = Some(word(value).ok_or_else(|| refuse("write `high` or `low`"))?),
            "kind" => {
                let kind = word(value);
                wish.kind = Some(kind.ok_or_else(|| refuse("write `network-io`, `storage-io` or `non-io`"))?);
            }
            "devices" => {
                let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
                let names: Result<Vec<DeviceName>, _> = names.map(str::parse).collect();
                wish.devices = names.map_err(|why| refuse(&why.to_string()))?;
            }
            "mask" => wish.mask = Some(value.clone()),
            _ => {
                let near = nearest(name, KEYS, Likeness::Edits);
                let hint = near.map_or_else(
                    || format!("; known are {}", KEYS.map(|key| format!("{OURS}{key}")).join(", ")),
                    |near| format!("; did you mean `{OURS}{near}`?"),
                );
                return Err(format!("unknown annotation `{}`{hint}", shown(key)));
            }
        }
    }
    Ok(wish)
}

/// A word of an enumeration of the seam.
fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    let text: StrDeserializer<'_, WordError> = text.into_deserializer();
    T::deserialize(text).ok()
}

/// The class of service that annotations choose for a container, with the annotation; in the order of goresctrl
/// (ContainerClassFromAnnotations).
pub fn class<'a>(
    pod: &'a BTreeMap<String, String>,
    container: &'a BTreeMap<String, String>,
    name: &str,
) -> Option<(String, &'a str)> {
    let own = container.get(CLASS_OF_CONTAINER).map(|class| (CLASS_OF_CONTAINER.to_owned(), class.as_str()));
    let of = |scope: &str| {
        CLASSES.iter().find_map(|prefix| {
            let key = format!("{prefix}{scope}");
            pod.get(&key).map(|class| (key, class.as_str()))
        })
    };
    let found = own.or_else(|| of(&format!("container.{name}"))).or_else(|| of("pod"));
    found.filter(|(_, class)| !class.is_empty())
}

/// The part of the LLC that Koordinator's annotation gives a pod, in percent.
///
/// # Errors
/// If it has no such part, or one that is not possible.
pub fn koordinator_range(pod: &BTreeMap<String, String>) -> Result<Option<(u32, u32)>, String> {
    #[derive(Deserialize)]
    struct Resctrl {
        #[serde(alias = "LLC")]
        llc: Option<Llc>,
    }
    #[derive(Deserialize)]
    struct Llc {
        schemata: Schemata,
    }
    #[derive(Deserialize)]
    struct Schemata {
        range: (u32, u32),
    }
    let Some(text) = pod.get(KOORDINATOR) else { return Ok(None) };
    let refuse = |why: &str| format!("annotation {KOORDINATOR} = `{}`: {why}", shown(text));
    let read: Resctrl = serde_json::from_str(text)
        .map_err(|_| refuse("write JSON like {\"llc\": {\"schemata\": {\"range\": [0, 30]}}}"))?;
    match read.llc.map(|llc| llc.schemata.range) {
        Some((low, high)) if low >= high || high > 100 => {
            Err(refuse("a range is two numbers from 0 to 100, the smaller one first"))
        }
        range => Ok(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn our_annotations_are_read() {
        let all = map(&[
            ("waykeeper.io/priority", "high"),
            ("waykeeper.io/kind", "network-io"),
            ("waykeeper.io/devices", "0000:5e:00.0, nvme0"),
            ("waykeeper.io/mask", "9-10"),
            ("kubernetes.io/config.source", "api"),
        ]);
        let wish = wish(&relevant(all)).unwrap();
        assert_eq!((wish.priority, wish.kind), (Some(Priority::High), Some(WorkloadKind::NetworkIo)));
        assert_eq!(wish.devices, ["0000:5e:00.0".parse().unwrap(), "nvme0".parse().unwrap()]);
        assert_eq!((wish.mask.as_deref(), wish.is_left_alone), (Some("9-10"), false));
    }

    #[test]
    fn mistakes_name_the_annotation_and_what_would_do() {
        let refused = |key: &str, value: &str| wish(&map(&[(key, value)])).unwrap_err();
        assert_eq!(
            refused("waykeeper.io/priority", "top"),
            "annotation waykeeper.io/priority = `top`: write `high` or `low`"
        );
        assert_eq!(
            refused("waykeeper.io/kind", "io"),
            "annotation waykeeper.io/kind = `io`: write `network-io`, `storage-io` or `non-io`"
        );
        assert_eq!(
            refused("waykeeper.io/priorty", "high"),
            "unknown annotation `waykeeper.io/priorty`; did you mean `waykeeper.io/priority`?"
        );
        assert!(refused("waykeeper.io/devices", "5e:0").contains("`5e:0` is not a PCI address"));
        assert!(refused("waykeeper.io/manage", "no").ends_with("write `true` or `false`"));
    }

    #[test]
    fn the_class_of_a_container_is_found_as_goresctrl_finds_it() {
        let pod = map(&[
            ("rdt.resources.beta.kubernetes.io/pod", "silver"),
            ("rdtclass.resource-policy.nri.io/container.db", "gold"),
        ]);
        let named = |container: &[(&str, &str)], name: &str| {
            class(&pod, &map(container), name).map(|(key, class)| format!("{key} {class}"))
        };
        assert_eq!(named(&[], "web").unwrap(), "rdt.resources.beta.kubernetes.io/pod silver");
        assert_eq!(named(&[], "db").unwrap(), "rdtclass.resource-policy.nri.io/container.db gold");
        let own = [(CLASS_OF_CONTAINER, "iron")];
        assert_eq!(named(&own, "db").unwrap(), "io.kubernetes.cri.rdt-class iron");
        assert_eq!(class(&map(&[]), &map(&[]), "db"), None);
    }

    #[test]
    fn koordinators_range_is_read_in_both_spellings() {
        let range = |text: &str| koordinator_range(&map(&[(KOORDINATOR, text)]));
        assert_eq!(range(r#"{"llc": {"schemata": {"range": [0, 30]}}, "mb": {}}"#), Ok(Some((0, 30))));
        assert_eq!(range(r#"{"LLC": {"schemata": {"range": [20, 80]}}}"#), Ok(Some((20, 80))));
        assert_eq!(range(r#"{"mb": {"schemata": {"percent": 20}}}"#), Ok(None));
        assert!(range("{l3:1=80%}").unwrap_err().contains("write JSON like"));
        assert!(range(r#"{"llc": {"schemata": {"range": [30, 30]}}}"#).unwrap_err().contains("0 to 100"));
        assert!(range(r#"{"llc": {"schemata": {"range": [0, 101]}}}"#).unwrap_err().contains("0 to 100"));
    }

    #[test]
    fn addresses_are_those_of_device_plugins() {
        let environment = [
            "PATH=/bin",
            "PCIDEVICE_INTEL_COM_NIC=0000:5e:02.1,0000:5e:02.3",
            "PCIDEVICE_INTEL_COM_NIC_INFO={\"0000:5e:02.1\":{}}",
            "PCIDEVICE_EMPTY=",
        ]
        .map(str::to_owned);
        assert_eq!(addresses(&environment).collect::<Vec<_>>(), ["0000:5e:02.1", "0000:5e:02.3"]);
    }
}
