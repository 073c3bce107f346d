"""Counts of the author's own runs: github lluchs/nvme-memload-benchmarks, the data behind the thesis's figures.

Data only, no evaluation. Hosts: i30pc80 is the Haswell, i30pc74 the Sandy Bridge.
"""

from .common import MIB

SECONDS = 10
COUNTED = {"single": 1, "random": 31}
"""Blocks that the program counts per command of a pattern."""

BLOCKS = {
    "Haswell": {
        ("single", "read"): [518834, 879113, 1093304, 1164166, 1224272, 1218047, 1234050, 1229366],
        ("single", "write"): [981646, 1722988, 2372318, 2693801, 2774083, 2837444, 2901694, 2958521],
        ("random", "read"): [1809687, 1941437, 1947854, 1936291, 1943917, 1940941, 1945715, 1944940],
        ("random", "write"): [5856830, 7930389, 7935194, 7941549, 7942541, 7951066, 7959963, 7960242],
    },
    "Sandy Bridge": {
        ("single", "read"): [363456, 628808, 876256, 1057700, 1135506, 1172384, 1195748, 1213890],
        ("single", "write"): [594847, 1197611, 1776812, 1811404, 1811500, 1811522, 1811514, 1811509],
        ("random", "read"): [1141978, 1378601, 1330923, 1345431, 1347539, 1334457, 1325405, 1329063],
        ("random", "write"): [2912140, 3553034, 3553251, 3553251, 3553251, 3553375, 3553220, 3552755],
    },
}
"""Blocks counted in ten seconds with 1 to 8 workers: memload/runs/*/benchmark1.tsv (Figs. 5.1, 5.2)."""
FLUSHES = {
    "Haswell": [705040, 1345642, 1989329, 5254613, 5444865, 5369391, 5595682, 5575979],
    "Sandy Bridge": [515566, 1025262, 1726512, 2421936, 5231246, 5590983, 5595596, 5597992],
}

OVER_ESTIMATE = {
    ("random", "write"): 204800000 / 198400000,
    ("single", "write"): 64000000 / 32000000,
    ("random", "read"): 102700369 / 99250000,
    ("single", "read"): 32500634 / 16250000,
}
"""Data events divided by the estimate: pcm/data/bandwidth-dominant.dat (Fig. 5.6a)."""
READS_A_COMMAND = {
    ("random", "write"): 560359 / 100000,
    ("single", "write"): 1326329 / 500000,
    ("flush", "write"): 368160 / 350000,
}
"""PCIeRdCur events per command of patterns that read no data: pcm/data/bandwidth-other.dat (Fig. 5.6b)."""

COMMANDS = {
    ("random", "write"): 100000,
    ("single", "write"): 500000,
    ("random", "read"): 50000,
    ("single", "read"): 250000,
}
"""Commands of one worker in a run of Fig. 5.7: pcm/run_caching.sh."""
MISSES = {
    ("random", "write"): [549795, 931025, 202656204, 5946937],
    ("single", "write"): [749862, 112235, 15227587, 12410802],
    ("random", "read"): [180445, 267768, 101034960, 2985451],
    ("single", "read"): [61409, 105909, 306, 366],
}
"""Miss events in Fig. 5.7, in the order: small; small, once; big; big, always (pcm/runs/caching.tsv)."""


def commands(machine, pattern, operation):
    """Commands per second over the number of workers."""
    if pattern == "flush":
        return [count / SECONDS for count in FLUSHES[machine]]
    return [count / COUNTED[pattern] / SECONDS for count in BLOCKS[machine][pattern, operation]]


def mib(machine, pattern, operation):
    """MiB per second by the thesis's formula, over the number of workers."""
    blocks = COUNTED.get(pattern, 0)
    return [rate * (4096 * blocks + 80) / MIB for rate in commands(machine, pattern, operation)]


def misses_a_block(pattern, operation):
    """Miss events per counted block, in the order of `MISSES`."""
    blocks = COMMANDS[pattern, operation] * COUNTED[pattern]
    return [count / blocks for count in MISSES[pattern, operation]]
