//! Device names in declarations: a PCI address, an interface, or virtual functions of either.
//!
//! Parses names only. Must not know which function a name means now; the census finds that out.

use super::glob::Glob;
use std::fmt;
use std::str::FromStr;
use waykeeper_kernel::pci::{AddressError, PciAddress};

/// Longest name of an interface: the kernel has 15 bytes for a network interface (IFNAMSIZ) and 32 for a disk
/// (DISK_NAME_LEN).
const LONGEST: usize = 31;

/// A device as declared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceName {
    /// A PCI function.
    Address(PciAddress),
    /// A network interface or an NVMe device: `eth0`, `nvme0`, `nvme0n1`.
    Interface(String),
    /// Virtual functions (SR-IOV) of a device: `0000:5e:00.0/vf3`, `ens1f0/vf*`.
    Functions {
        /// The physical function, as an address or an interface; never virtual functions again.
        physical: Box<DeviceName>,
        /// The numbers of the virtual functions.
        numbers: Glob,
    },
}

/// Why a text is not a device name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceNameError {
    /// It has colons and is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// It cannot be the name of an interface.
    #[error(
        "`{}` names no device; write an address like 0000:3a:00.0, an interface like eth0 or nvme0, or virtual \
         functions like 3a:00.0/vf3 or 3a:00.0/vf*", .0.escape_debug()
    )]
    Name(String),
    /// The numbers of virtual functions are not a glob.
    #[error("{0}")]
    Functions(String),
}

impl DeviceName {
    /// Whether it may be several devices.
    pub fn is_wild(&self) -> bool {
        matches!(self, DeviceName::Functions { numbers, .. } if numbers.is_wild())
    }
}

fn single(text: &str) -> Result<DeviceName, DeviceNameError> {
    if text.contains(':') {
        return Ok(DeviceName::Address(text.parse()?));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    let is_name = (1..=LONGEST).contains(&text.len()) && text.chars().all(plain);
    if !is_name || text.chars().all(|c| c == '.') {
        return Err(DeviceNameError::Name(text.to_owned()));
    }
    Ok(DeviceName::Interface(text.to_owned()))
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<DeviceName, DeviceNameError> {
        let Some((physical, function)) = text.split_once('/') else {
            return single(text);
        };
        let whole = |why| match why {
            DeviceNameError::Name(_) => DeviceNameError::Name(text.to_owned()),
            other => other,
        };
        let physical = Box::new(single(physical).map_err(whole)?);
        let numbers = function.strip_prefix("vf").ok_or_else(|| DeviceNameError::Name(text.to_owned()))?;
        let numbers = Glob::new(numbers).map_err(DeviceNameError::Functions)?;
        // A text that is neither digits nor a glob would match no number.
        if !numbers.is_wild() && numbers.text().parse::<u16>().is_err() {
            return Err(DeviceNameError::Name(text.to_owned()));
        }
        Ok(DeviceName::Functions { physical, numbers })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Address(address) => address.fmt(f),
            DeviceName::Interface(name) => f.write_str(name),
            DeviceName::Functions { physical, numbers } => write!(f, "{physical}/vf{numbers}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reported(text: &str) -> String {
        text.parse::<DeviceName>().map_or_else(|why| why.to_string(), |name| name.to_string())
    }

    #[test]
    fn addresses_interfaces_and_virtual_functions() {
        assert_eq!(reported("5E:00.0"), "0000:5e:00.0");
        assert_eq!(reported("eth0"), "eth0");
        assert_eq!(reported("0000:5e:00.0/vf3"), "0000:5e:00.0/vf3");
        assert_eq!(reported("ens1f0/vf*"), "ens1f0/vf*");
        assert!("5e:00.0/vf[0-3]".parse::<DeviceName>().unwrap().is_wild());
        assert!(!"5e:00.0/vf3".parse::<DeviceName>().unwrap().is_wild());
    }

    #[test]
    fn what_names_no_device_is_refused() {
        assert!(reported("5e:0.0.0").contains("is not a PCI address"));
        for bad in ["", "..", "a b", "eth0/1", "eth0/vf", "eth0/vfx", "a/vf1/vf2", "eth0/vf-1"] {
            let error = bad.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains("names no device") || error.contains("matches nothing"), "{bad}: {error}");
        }
        assert!(reported("../vf1").starts_with("`../vf1` names no device"));
        assert!(reported("5e:00.0/vf[0").contains("unclosed character class"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn no_name_makes_it_panic_and_each_is_written_as_it_is_read(text in "\\PC{0,30}|[a-f0-9:./vf*\\[\\]-]{0,16}") {
            if let Ok(name) = text.parse::<DeviceName>() {
                prop_assert_eq!(name.to_string().parse::<DeviceName>(), Ok(name));
            }
        }
    }
}
