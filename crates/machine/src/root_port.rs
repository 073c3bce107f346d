//! A root port's register perfctrlsts_0 (PCI config offset 0x180), as software reads and writes it.
//!
//! Bit 7 decides whether an ordinary device write allocates in the LLC; the published programs change this bit alone
//! (hardware.md 2.2). Knows bits; must not know how a chip handles a write. Marks: docs/reference/README.md#marks.

/// Bit 7, set at power-on: writes allocate. hardware.md 2.1.
const USE_ALLOCATING_FLOW_WR: u32 = 1 << 7;
/// Bit 3, clear at power-on: no-snoop writes are handled separately.
const NO_SNOOP_OP_WR_EN: u32 = 1 << 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PerfCtrlSts(u32);

impl PerfCtrlSts {
    pub(crate) const POWER_ON: PerfCtrlSts = PerfCtrlSts(USE_ALLOCATING_FLOW_WR);

    /// The register after a write of `value`: bits 3 and 7, which hardware.md 2.1 names, are kept; all others are 0
    /// (X).
    pub(crate) fn written(value: u32) -> PerfCtrlSts {
        PerfCtrlSts(value & (USE_ALLOCATING_FLOW_WR | NO_SNOOP_OP_WR_EN))
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The register with DCA on or off, as ddio-bench's change-ddio.c writes it: bit 7 only, the others unchanged.
    pub(crate) fn with_dca(self, on: bool) -> PerfCtrlSts {
        let rest = self.0 & !USE_ALLOCATING_FLOW_WR;
        PerfCtrlSts(if on { rest | USE_ALLOCATING_FLOW_WR } else { rest })
    }

    /// Whether ordinary writes (neither no-snoop nor hinted) allocate in the LLC: bit 7 decides. Bit 3 affects only
    /// no-snoop writes, which the model's devices do not send.
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
