"""Shared by A4's figures: masks in the paper's numbering, and metrics calculated from results."""


def way(first, last):
    """The mask of the paper's way[first:last] of an 11-way LLC; the paper counts ways from the left."""
    return hex(((1 << (last - first + 1)) - 1) << (10 - last))


SLIDES = [way(first, first + 1) for first in range(10)]
"""Masks of two ways, from way[0:1] to way[9:10]."""
PLACES = [f"{first}:{first + 1}" for first in range(10)]


def miss(run, workload):
    """LLC miss ratio, %."""
    return 100 * (1 - run.workload(workload).llc_hit_ratio)


def memory(run):
    """Memory traffic, GB/s."""
    return (run.system.memory_read_bytes_per_s + run.system.memory_write_bytes_per_s) / 1e9


def change(new, old=1.0):
    """Change of a number, or of a ratio, %."""
    return 100 * (new / old - 1)
