"""Claims that cannot be simulated, each with the reason."""

REASONS: dict[str, str] = {
    "ISCA25-F7-2": (
        "counters cannot show the share of consumed lines in particular ways, neither the paper's nor ours; the paper "
        "derives the number and does not measure it"
    ),
    "ISCA25-S6-1": (
        "the cost of a daemon is a property of the host, not of the model; `make bench` measures our own "
        "decisions (2 us with 18 cores and 11 tenants)"
    ),
}
