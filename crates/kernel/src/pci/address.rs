//! PCI addresses in the format of the kernel and lspci: `0000:3a:00.0`.
//!
//! Must not know whether a device exists.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use waykeeper_units::shown;

/// The address of a PCI function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciAddress {
    /// Domain (segment). 16 bits on hardware; 32 bits behind Intel VMD, whose domains start at 0x10000.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

/// A text that is not a PCI address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{}` is not a PCI address; write domain:bus:device.function like 0000:3a:00.0, or 3a:00.0", shown(.0))]
pub struct AddressError(pub String);

impl FromStr for PciAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<PciAddress, AddressError> {
        let bad = || AddressError(text.to_owned());
        let hex = |digits: &str, most: usize, limit: u32| {
            let plain =
                !digits.is_empty() && digits.len() <= most && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let number = plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten();
            number.filter(|number| *number <= limit).ok_or_else(bad)
        };
        let (rest, function) = text.rsplit_once('.').ok_or_else(bad)?;
        let mut parts = rest.rsplit(':');
        let (device, bus) = (parts.next().ok_or_else(bad)?, parts.next().ok_or_else(bad)?);
        let domain = parts.next().unwrap_or("0");
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(PciAddress {
            domain: hex(domain, 8, u32::MAX)?,
            bus: hex(bus, 2, 0xff)? as u8,
            device: hex(device, 2, 31)? as u8,
            function: hex(function, 1, 7)? as u8,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

impl Serialize for PciAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<PciAddress, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The functions on a path of sysfs, from the root bus down. Behind VMD a root bus is below an endpoint of another
/// domain, so only the part after the last root bus counts.
pub fn functions_on(path: &Path) -> Vec<PciAddress> {
    let mut functions = Vec::new();
    for part in path.iter().filter_map(|part| part.to_str()) {
        match part.strip_prefix("pci") {
            Some(bus) if bus.contains(':') => functions.clear(),
            // Only addresses have two colons, as `0000:3a:00.0`.
            _ if part.matches(':').count() == 2 => functions.extend(part.parse::<PciAddress>()),
            _ => {}
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_are_read() {
        let address: PciAddress = "3a:1f.7".parse().unwrap();
        assert_eq!(address, "0000:3a:1f.7".parse().unwrap());
        assert_eq!("10000:e1:00.0".parse::<PciAddress>().unwrap().to_string(), "10000:e1:00.0");
        for bad in
            ["", "3a", "3a:00", "3a:20.0", "3a:00.8", "100:00.0", "0:0:3a:00.0", "+a:00.0", ":00.0", "3a:00."]
        {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn what_is_written_is_read(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse::<PciAddress>(), Ok(address));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*|[0-9a-f:.]{0,14}") {
            let _ = text.parse::<PciAddress>();
        }
    }
}
