"""Claims that cannot be simulated, each with the reason."""

REASONS: dict[str, str] = {
    "ISCA21-F15-2": "how the time grows with cores is that of pqos reading registers of each; the virtual server's are memory",
    "ISCA21-S6D-1": "the daemon runs outside the virtual server: it takes no time of a simulated core, so nobody shares one with it",
}
