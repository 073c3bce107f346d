"""Claims that cannot be simulated, each with the reason."""

REASONS: dict[str, str] = {
    "ISCA25-F7-2": "the share of consumed lines that lie in particular ways would need a look into the cache, which neither "
    "the paper's counters nor ours give; the paper derives the figure, it does not measure it",
    "ISCA25-S6-1": "what a daemon costs is the host's, not the model's; `make bench` measures our own decisions (2 us at 18 cores "
    "and 11 tenants)",
}
