"""Claims that cannot be simulated, each with the reason."""

_STACK = (
    "the effect arises in a TCP stack on gem5 whose costs the paper does not give (algorithms.md 4.5); our kernel's receive path has those "
    "of Linux on a Xeon, and memcached only copies and looks up"
)

REASONS: dict[str, str] = {name: _STACK for name in ("CAL20-T1-1", "CAL20-T1-2", "CAL20-T1-3", "CAL20-T1-4")}
