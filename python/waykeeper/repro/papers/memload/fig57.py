"""Thesis Fig. 5.7: hits and misses of DMA by size of the buffer and by what the CPU reads beforehand."""

from waykeeper.repro import Case, Figure, Panel, Series, checks, claim

from .common import BIG, QUIRK, load, name

MODES = {
    "small": {},
    "small, once": {"workload.load.touch": "once"},
    "big": BIG,
    "big, always": BIG | {"workload.load.touch": "always"},
}
DATA = [("random", "write"), ("single", "write"), ("random", "read"), ("single", "read")]


class Fig57(Figure):
    id = "memload/fig5.7"
    title = "DMA misses by buffer and caching mode"
    assumes = [
        QUIRK,
        "one worker, the program's default",
        "pages of the small buffer are zeroed by the kernel when they are first used, which brings them into the LLC",
    ]

    def cases(self, quick):
        for pattern, operation in DATA:
            for mode, keys in MODES.items():
                one = load("Haswell", pattern, operation, **keys)
                yield Case((mode, pattern, operation), one.scenario, one.overrides, sets="1/8")

    def panels(self, runs):
        for what, title in ((_misses, "misses"), (_hits, "hits")):
            curves = [Series(name(*p), list(MODES), [what(runs[(mode, *p)], p[1]) for mode in MODES]) for p in DATA]
            yield Panel(title, x="buffer and caching", y="events / block", series=curves)

    def _shares(self, runs, mode):
        """Misses over hits, which are all accesses, by pattern."""
        return {p: _misses(runs[(mode, *p)], p[1]) / _hits(runs[(mode, *p)], p[1]) for p in DATA}

    @claim("MEMLOAD-F5.7-1")
    def a_small_buffer_fits(self, runs):
        shares = self._shares(runs, "small")
        return checks({f"{name(*p)}: under 5 % miss": share < 0.05 for p, share in shares.items()})

    @claim("MEMLOAD-F5.7-2")
    def reading_it_once_changes_nothing(self, runs):
        plain, once = self._shares(runs, "small"), self._shares(runs, "small, once")
        return checks({f"{name(*p)}: within 2 points": abs(once[p] - plain[p]) < 0.02 for p in DATA})

    @claim("MEMLOAD-F5.7-3")
    def a_big_one_does_not(self, runs):
        small, big = self._shares(runs, "small"), self._shares(runs, "big")
        return checks({f"{name(*p)}: ten times as many, a quarter or more": _many(small[p], big[p]) for p in DATA})

    @claim(
        "MEMLOAD-F5.7-4",
        why="single-write hits the block that the command before moved too; a device's read that misses leaves no line "
        "in the LLC (Intel's DDIO primer), so single-read misses that block again",
    )
    def random_misses_more_than_single(self, runs):
        shares = self._shares(runs, "big")
        found = {}
        for op in ("write", "read"):
            found[f"random-{op}: over 90 % miss"] = shares["random", op] > 0.9
            found[f"single-{op} misses less"] = shares["single", op] < shares["random", op] - 0.05
        return checks(found)

    @claim(
        "MEMLOAD-F5.7-5",
        why="with one worker the CPU reads the block that the command before brought in, and the second block, which "
        "it does not read, misses: half of single-write's lines either way. With eight workers none of them do",
    )
    def reading_before_helps(self, runs):
        small, big, always = (self._shares(runs, mode) for mode in ("small", "big", "big, always"))
        found = {f"{name(*p)}: under three quarters": always[p] < 0.75 * big[p] for p in DATA}
        found |= {f"{name(*p)}: above the small buffer": always[p] > small[p] for p in DATA}
        return checks(found)

    @claim("MEMLOAD-F5.7-6")
    def hits_are_all_accesses(self, runs):
        found = {}
        for p in DATA:
            hits = [_hits(runs[(mode, *p)], p[1]) for mode in MODES]
            found[f"{name(*p)}: within 2 % in every mode"] = max(hits) <= 1.02 * min(hits)
        return checks(found)


def _many(small, big):
    return big > 0.25 and big > 10 * small


def _event(run, operation, kind):
    event = "itom" if operation == "write" else "pcie_rdcur"
    return getattr(run.system, f"{event}_{kind}_per_s") / run.workload("load").blocks_per_s


def _hits(run, operation):
    return _event(run, operation, "hits")


def _misses(run, operation):
    return _event(run, operation, "misses")
