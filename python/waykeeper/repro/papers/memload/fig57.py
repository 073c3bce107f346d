"""Thesis Fig. 5.7: hits and misses of DMA over the size of the buffer and what the CPU reads before."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Points, Series, checks, claim
from waykeeper.repro.bands import EFFECT, FAR, FEW, SAME, far_lower, hardly_any, many_times, nearly_all, not_higher

from . import author
from .common import QUIRK, load, name

LARGE = {"workload.load.buffer_blocks": 262144, "workload.load.huge_pages": True}
"""1 GiB from malloc."""
MODES = {
    "small": {},
    "small, once": {"workload.load.touch": "once"},
    "big": LARGE,
    "big, always": LARGE | {"workload.load.touch": "always"},
}
DATA = [("random", "write"), ("single", "write"), ("random", "read"), ("single", "read")]
SECONDS = {"small": 11, "small, once": 11, "big": 11, "big, always": 14}
"""Longer than the commands take; the number of commands ends a run."""
UNUSUAL = 0.001
"""More than the part of single-read's lines that miss in the author's own runs, 306 of 32.5 million (MEMLOAD-F5.7-3)."""
REST = (0.1, 0.75)
"""What reading before leaves of the misses in the author's own runs: less than this of random's, more than this of single's
(MEMLOAD-F5.7-5)."""


class Fig57(Figure):
    id = "memload/fig5.7"
    title = "DMA misses by buffer and caching mode"
    assumes = [
        QUIRK,
        "one worker and as many commands as in the author's script, counted from the first command",
        (
            "the kernel zeroes a page at its first use, which loads it into the LLC; for the large buffer 2 MiB "
            "at a time, as Linux does by default for large allocations with malloc"
        ),
    ]

    def cases(self, quick):
        for pattern, operation in DATA:
            for mode, keys in MODES.items():
                whole = {
                    "workload.load.cores": "0",
                    "workload.load.commands": author.COMMANDS[pattern, operation],
                    "duration_s": SECONDS[mode],
                    "measure_s": SECONDS[mode],
                    "warmup_s": 0.0,
                }
                one = load("Haswell", pattern, operation, **keys, **whole)
                yield Case((mode, pattern, operation), one.scenario, one.overrides, sets=one.sets)

    def panels(self, runs):
        curves = [Series(name(*p), list(MODES), [_misses(runs[(mode, *p)], p[1]) for mode in MODES]) for p in DATA]
        published = [Points(f"{name(*p)}, author", list(MODES), author.misses_a_block(*p)) for p in DATA]
        yield Panel("misses", x="buffer and caching", y="events / block", series=curves, published=published)
        curves = [Series(name(*p), list(MODES), [_hits(runs[(mode, *p)], p[1]) for mode in MODES]) for p in DATA]
        yield Panel("hits", x="buffer and caching", y="events / block", series=curves)

    def _shares(self, runs, mode):
        """Misses divided by hits (which count all accesses), by pattern."""
        return {p: _misses(runs[(mode, *p)], p[1]) / _hits(runs[(mode, *p)], p[1]) for p in DATA}

    @claim(
        "MEMLOAD-F5.7-1",
        MEDIUM,
        "a limit of 10 %; the buffer exceeds the LLC's two device ways, so the model could have missed it",
    )
    def a_small_buffer_fits(self, runs):
        shares = self._shares(runs, "small")
        return checks({f"{name(*p)}: under {FEW.text} miss": hardly_any(share) for p, share in shares.items()})

    @claim(
        "MEMLOAD-F5.7-2",
        WEAK,
        "the runs pass over the small buffer 250 to 3100 times; the first pass cannot move the share",
    )
    def reading_it_once_changes_nothing(self, runs):
        plain, once = self._shares(runs, "small"), self._shares(runs, "small, once")
        return checks(
            {
                f"{name(*p)}: reading the buffer once changes misses by at most {SAME.points}": abs(once[p] - plain[p])
                <= SAME
                for p in DATA
            }
        )

    @claim(
        "MEMLOAD-F5.7-3",
        WEAK,
        "arithmetic of sizes: a buffer of 1 GiB does not fit in an LLC of 20 MiB",
        why="single-read ends before its first pass over the new pages does, and the kernel has zeroed these just before. The "
        "author's own runs have 306 misses of 32.5 million lines for it, contrary to the text",
    )
    def a_big_one_does_not(self, runs):
        small, big = self._shares(runs, "small"), self._shares(runs, "big")
        more = {p: many_times(big[p], small[p]) for p in DATA}
        second = {f"{name(*p)}: as stated": holds for p, holds in more.items() if p != ("single", "read")}
        second[f"single-read: under {UNUSUAL:.1%} miss"] = big["single", "read"] < UNUSUAL
        return checks(
            {f"{name(*p)}: the big buffer misses over twice as much": holds for p, holds in more.items()}, second
        )

    @claim(
        "MEMLOAD-F5.7-4",
        MEDIUM,
        "an ordering with limits of our own; huge pages were added after the author's counts were known",
    )
    def random_misses_more_than_single(self, runs):
        shares = self._shares(runs, "big")
        found = {}
        for op in ("write", "read"):
            found[f"random-{op}: nearly all miss"] = nearly_all(shares["random", op])
            found[f"single-{op} misses over {EFFECT.points} less"] = (
                shares["random", op] - shares["single", op] > EFFECT
            )
        return checks(found)

    @claim(
        "MEMLOAD-F5.7-5",
        MEDIUM,
        "an ordering for four patterns; the model could show the reverse and nothing was fitted on it",
        why="the author's own runs show it for random only. With "
        "single-write the CPU reads the block that the previous command wrote; the second block of a command, "
        "which the CPU does not read, misses: 23.8 and 23.9 %. The author's misses fall from 23.8 to 19.4 %, "
        "by twelve lines per command, perhaps because of the CPU's prefetcher, which is not modelled. "
        "single-read hardly misses, with or without reading before: 0.001 and 0.15 %, the author's 0.001 and "
        "0.001 %",
    )
    def reading_before_helps(self, runs):
        small, big, always = (self._shares(runs, mode) for mode in ("small", "big", "big, always"))
        found = {
            f"{name(*p)}: reading before lowers misses by over {FAR.text}": far_lower(always[p], big[p]) for p in DATA
        }
        found |= {f"{name(*p)}: misses stay above those of the small buffer": always[p] > small[p] for p in DATA}
        random, single = DATA[0::2], DATA[1::2]
        second = {
            f"{name(*p)}: reading before lowers misses by over nine tenths": always[p] < REST[0] * big[p]
            for p in random
        }
        second |= {f"{name(*p)}: misses stay above those of the small buffer": always[p] > small[p] for p in random}
        second |= {f"{name(*p)}: misses fall by less than a quarter": always[p] >= REST[1] * big[p] for p in single}
        return checks(found, second)

    @claim("MEMLOAD-F5.7-6", WEAK, "a rule of the model: on this chip a miss also counts as a hit")
    def hits_are_all_accesses(self, runs):
        found = {}
        for p in DATA:
            hits = [_hits(runs[(mode, *p)], p[1]) for mode in MODES]
            found[f"{name(*p)}: hits are within {SAME.text} in all modes"] = not_higher(max(hits), min(hits))
        return checks(found)


def _event(run, operation, kind):
    event = "itom" if operation == "write" else "pcie_rdcur"
    return getattr(run.system, f"{event}_{kind}_per_s") / run.workload("load").blocks_per_s


def _hits(run, operation):
    return _event(run, operation, "hits")


def _misses(run, operation):
    return _event(run, operation, "misses")
