//! The registers that control DCA, as data: which values IIO_LLC_WAYS (MSR 0xC8B) accepts, and whether root ports can
//! be switched.
//!
//! Knows the effect of a write on the register; must not know what devices do with the ways.
//! Marks: docs/reference/README.md#marks.

use serde::{Deserialize, Serialize};
use waykeeper_units::WayMask;

/// How the registers of a generation answer (hardware.md 1.2 and 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DcaRegisters {
    /// Smallest value that IIO_LLC_WAYS accepts, as a number: Haswell accepts every value from here on.
    pub lowest: WayMask,
    /// Bits that cannot be cleared; no bit where there are none.
    pub kept: WayMask,
    /// Whether a value must be one run of ways.
    pub contiguous: bool,
    /// Value read before the first write, where it differs from the ways that devices write to: Haswell's ways are said
    /// to be 18 and 19, and its register to read 0x60000 (hardware.md 1.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<WayMask>,
    /// False where the register accepts values and devices still use the ways of power-on (one report of Ice Lake).
    pub acts: bool,
    /// Whether root ports have a bit that makes their writes bypass the LLC (perfctrlsts_0, bit 7).
    pub port_switch: bool,
}

/// Why IIO_LLC_WAYS refused a value; software sees a fault (EIO).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// There is no such register.
    #[error("this chip has no DCA and no register for its ways")]
    Absent,
    /// A number outside the accepted range.
    #[error("{wanted} is outside what the register takes, {lowest} to {highest}")]
    Range {
        /// The value written.
        wanted: WayMask,
        /// The smallest.
        lowest: WayMask,
        /// The largest.
        highest: WayMask,
    },
    /// Ways with a hole between them, where one run is required.
    #[error("{0} has holes; on this chip the register takes one run of ways")]
    Holes(WayMask),
}

impl DcaRegisters {
    /// What the register holds after `wanted` was written to it when it held `before`, on a chip with `ways` ways.
    ///
    /// A value that would clear a kept bit changes nothing. The sources say only that these bits cannot be
    /// unset (ddio-bench s4.4); that the whole write is ignored rather than a fault raised is our choice (X).
    ///
    /// # Errors
    /// A value the register faults on.
    pub fn write(self, before: WayMask, wanted: WayMask, ways: u32) -> Result<WayMask, RegisterError> {
        let highest = WayMask::full(ways);
        if wanted.bits() > highest.bits() || wanted.is_empty() {
            return Err(RegisterError::Range { wanted, lowest: self.lowest, highest });
        }
        if self.contiguous && !wanted.is_contiguous() {
            return Err(RegisterError::Holes(wanted));
        }
        if !self.kept.minus(wanted).is_empty() {
            return Ok(before);
        }
        if wanted < self.lowest {
            return Err(RegisterError::Range { wanted, lowest: self.lowest, highest });
        }
        Ok(wanted)
    }

    /// Refuses registers that cannot hold the chip's own value at power-on: key, value, what is accepted.
    pub(crate) fn check(self, at_power_on: WayMask, ways: u32) -> Result<(), (&'static str, String, String)> {
        match self.write(at_power_on, at_power_on, ways) {
            Ok(_) if self.kept.minus(at_power_on).is_empty() => Ok(()),
            Ok(_) => {
                Err(("dca.kept", self.kept.to_string(), format!("within `llc.dca_ways` ({at_power_on})")))
            }
            Err(why) => {
                let wanted = format!("such that `llc.dca_ways` is legal ({why})");
                Err(("dca.lowest", self.lowest.to_string(), wanted))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChipSpec;

    fn after(chip: &str, before: u32, wanted: u32) -> Result<u32, RegisterError> {
        let chip = ChipSpec::built_in(chip).unwrap();
        let registers = chip.dca.ok_or(RegisterError::Absent)?;
        let [before, wanted] = [before, wanted].map(WayMask::from_bits);
        registers.write(before, wanted, chip.llc.ways).map(WayMask::bits)
    }

    #[test]
    fn skylake_grows_to_the_right_and_never_loses_the_two_ways_of_power_on() {
        // ddio-bench s4.4: 0x600 up to 0x7ff, consecutive ones.
        for legal in [0x600, 0x700, 0x7e0, 0x7ff] {
            assert_eq!(after("gold-6140", 0x600, legal), Ok(legal));
        }
        // One default bit or both cleared: the write is ignored.
        for ignored in [0x400, 0x200, 0x300, 0x003] {
            assert_eq!(after("gold-6140", 0x700, ignored), Ok(0x700), "{ignored:#x}");
        }
        assert_eq!(after("gold-6140", 0x600, 0x680), Err(RegisterError::Holes(WayMask::from_bits(0x680))));
        assert!(matches!(after("gold-6140", 0x600, 0xe00), Err(RegisterError::Range { .. })));
        assert!(matches!(after("gold-6140", 0x600, 0), Err(RegisterError::Range { .. })));
    }

    #[test]
    fn haswell_takes_any_number_from_its_lowest_value_on() {
        // ddio-bench s4.4: any value in [0x60000, 0xFFFFF].
        for legal in [0x60000, 0x60001, 0x80000, 0xa5a5a, 0xfffff] {
            assert_eq!(after("e5-2667v3", 0xc0000, legal), Ok(legal));
        }
        for refused in [0x5ffff, 0x00003, 0x100000] {
            assert!(matches!(after("e5-2667v3", 0xc0000, refused), Err(RegisterError::Range { .. })));
        }
    }

    #[test]
    fn a_chip_without_dca_has_no_register() {
        assert_eq!(after("e3-1230", 0x600, 0x600), Err(RegisterError::Absent));
    }

    #[test]
    fn a_chip_whose_registers_contradict_it_is_refused() {
        let good = ChipSpec::built_in_text("gold-6140").unwrap();
        let error = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            ChipSpec::parse("my.toml", &good.replace(from, to)).unwrap_err().to_string()
        };
        assert!(error("kept = \"0x600\"", "kept = \"0x700\"").contains("`dca.kept` is 0x700"));
        assert!(error("lowest = \"0x600\"", "lowest = \"0x700\"").contains("`dca.lowest` is 0x700"));
        assert!(error("dca_ways = \"0x600\"", "").contains("`dca` is there"));
    }
}
