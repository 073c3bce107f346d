"""Thesis Fig. 5.2: NVMe commands per second over the number of workers."""

from waykeeper.repro import WEAK, Figure, Panel, Points, Series, checks, claim, knee
from waykeeper.repro.bands import SAME, SIZE, not_higher, same

from . import author
from .common import DRIVE, MACHINES, PATTERNS, QUIRK, WORKERS, curve, name, saturated, scaling


class Fig52(Figure):
    id = "memload/fig5.2"
    title = "Command rate over the number of workers"
    assumes = [DRIVE, QUIRK]

    def cases(self, quick):
        yield from scaling()

    def panels(self, runs):
        for machine in MACHINES:
            curves = [Series(name(*p), WORKERS, self._thousands(runs, machine, *p)) for p in PATTERNS]
            thousands = {p: [rate / 1e3 for rate in author.commands(machine, *p)] for p in PATTERNS}
            published = [Points(f"{name(*p)}, author", WORKERS, thousands[p]) for p in PATTERNS]
            yield Panel(f"commands, {machine}", x="workers", y="thousand/s", series=curves, published=published)

    def _thousands(self, runs, machine, pattern, operation):
        return [value / 1e3 for value in curve(runs, machine, pattern, operation, "commands_per_s")]

    def _highest(self, runs, machine):
        return {p: max(self._thousands(runs, machine, *p)) for p in PATTERNS}

    @claim(
        "MEMLOAD-F5.2-1",
        WEAK,
        "arithmetic of 32 against 2 blocks a command and the drive's rates; \"few\" is at most twice the share of the author's runs",
        why="our drive writes the data sheet's 0.9 GB/s with large commands too; the author's wrote less",
    )
    def random_sends_few(self, runs):
        found = {}
        for m in MACHINES:
            theirs = _share({p: max(author.commands(m, *p)) for p in PATTERNS})
            most = theirs / SIZE
            found[f"{m}: random sends at most {most:.2g} of the commands of every other pattern"] = (
                _share(self._highest(runs, m)) <= most
            )
        return checks(found)

    @claim(
        "MEMLOAD-F5.2-2",
        WEAK,
        "the same drive with the same write rate limits both machines; no cache effect can move it. The author's rates differ "
        "by 1 % with eight workers and by 43 % with one",
        why="the same drive limits both machines, so only the links can make a difference",
    )
    def single_read_is_the_drives(self, runs):
        highest = [self._highest(runs, m)["single", "read"] for m in MACHINES]
        return checks(
            {
                f"the highest command rates of both machines are within {SAME.text}": not_higher(
                    max(highest), min(highest)
                )
            }
        )

    @claim(
        "MEMLOAD-F5.2-3",
        WEAK,
        "same finding as MEMLOAD-F5.1-4: the command rate is the bandwidth divided by a constant",
        why="see Fig. 5.1: a command takes 24 us in the model and 16.8 us in the author's runs, so five workers "
        "fill the link instead of three",
    )
    def single_write_starts_alike_and_caps(self, runs):
        old, new = (self._thousands(runs, m, "single", "write") for m in ("Sandy Bridge", "Haswell"))
        alike = same(old[0], new[0])
        return knee(saturated(old), alike and not_higher(old[-1], old[-2]))

    @claim(
        "MEMLOAD-F5.2-4",
        WEAK,
        "arithmetic of command sizes and of the scenario's rates for reading and writing the drive",
    )
    def flush_and_single_write_send_most(self, runs):
        found = {}
        for m in MACHINES:
            best = self._highest(runs, m)
            first = [best.pop(("flush", "write")), best.pop(("single", "write"))]
            found[f"{m}: flush and single-write are above all others"] = min(first) > max(best.values())
        return checks(found)


def _share(highest):
    """Highest command rate of random over the lowest of the other patterns."""
    random = max(rate for (pattern, _), rate in highest.items() if pattern == "random")
    return random / min(rate for (pattern, _), rate in highest.items() if pattern != "random")
