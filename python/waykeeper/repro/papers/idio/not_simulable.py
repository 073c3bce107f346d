"""Claims that cannot be simulated, each with the reason."""

_STACK = "the effect arises in the kernel's TCP stack, which is not modelled (algorithms.md 4.5); our programs only copy and look up"

REASONS: dict[str, str] = {
    name: _STACK for name in ("CAL20-F1-3", "CAL20-T1-1", "CAL20-T1-2", "CAL20-T1-3", "CAL20-T1-4")
}
