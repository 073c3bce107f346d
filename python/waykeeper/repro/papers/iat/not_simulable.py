"""Claims that cannot be simulated, each with the reason."""

REASONS: dict[str, str] = {
    "ISCA21-F14-4": (
        "YCSB's mixes D, E and F, with which the claim compares A, B and C, insert or scan records, which the model's stores "
        "cannot"
    ),
    "ISCA21-F15-3": (
        "on a server each counter costs the daemon a system call; the virtual server's counters are variables in memory, so "
        "the share of polling in the daemon's time cannot be measured"
    ),
    "ISCA21-F15-2": (
        "the time grows with the number of cores because pqos reads registers of each core; the virtual server's "
        "registers are variables in memory"
    ),
    "ISCA21-S6D-1": (
        "the daemon runs outside the virtual server and uses no time of a simulated core, so no program shares a "
        "core with it"
    ),
}
