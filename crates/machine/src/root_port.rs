//! A root port's register perfctrlsts_0 (PCI config offset 0x180), as software reads and writes it.
//!
//! Three bits decide together whether a write of a device goes to the LLC; the published programs turn one of them
//! (hardware.md 2.2). Knows bits; must not know what a chip does with a write.
//! Marks: docs/reference/README.md#marks.

/// Bit 7, set at power-on: writes allocate. hardware.md 2.1.
const USE_ALLOCATING_FLOW_WR: u32 = 1 << 7;
/// Bit 3, clear at power-on: no-snoop writes are treated apart.
const NO_SNOOP_OP_WR_EN: u32 = 1 << 3;

/// The register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PerfCtrlSts(u32);

impl PerfCtrlSts {
    /// As it stands at power-on.
    pub(crate) const POWER_ON: PerfCtrlSts = PerfCtrlSts(USE_ALLOCATING_FLOW_WR);

    /// After `value` was written: bits 3 and 7 are what hardware.md 2.1 names; the others are kept at 0 (X).
    pub(crate) fn written(value: u32) -> PerfCtrlSts {
        PerfCtrlSts(value & (USE_ALLOCATING_FLOW_WR | NO_SNOOP_OP_WR_EN))
    }

    /// What it reads.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The register with DCA on or off, as ddio-bench's change-ddio.c writes it: bit 7 alone, the others as found.
    pub(crate) fn with_dca(self, on: bool) -> PerfCtrlSts {
        let rest = self.0 & !USE_ALLOCATING_FLOW_WR;
        PerfCtrlSts(if on { rest | USE_ALLOCATING_FLOW_WR } else { rest })
    }

    /// Whether writes that are marked in no way allocate in the LLC: bit 7 decides. Bit 3 changes only
    /// no-snoop writes, of which our devices send none.
    pub(crate) fn dca(self) -> bool {
        self.0 & USE_ALLOCATING_FLOW_WR != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_7_alone_is_turned_and_alone_decides() {
        assert_eq!(PerfCtrlSts::POWER_ON.0, 0x80);
        let strict = PerfCtrlSts(USE_ALLOCATING_FLOW_WR | NO_SNOOP_OP_WR_EN);
        assert_eq!(strict.with_dca(false), PerfCtrlSts(NO_SNOOP_OP_WR_EN));
        assert_eq!(strict.with_dca(false).with_dca(true), strict);
        assert_eq!(PerfCtrlSts::written(0xffff_ff7f).bits(), 0x08);
        assert!(strict.dca() && !strict.with_dca(false).dca());
    }
}
