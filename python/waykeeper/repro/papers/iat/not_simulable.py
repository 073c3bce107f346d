"""Claims that cannot be simulated, each with the reason."""

REASONS: dict[str, str] = {
    "ISCA21-F15-2": (
        "the time grows with the number of cores because pqos reads registers of each core; the virtual server's "
        "registers are variables in memory"
    ),
    "ISCA21-S6D-1": (
        "the daemon runs outside the virtual server and uses no time of a simulated core, so no program shares a "
        "core with it"
    ),
}
