"""Thesis Fig. 5.5: RFO hits and commands."""

from waykeeper.repro import WEAK, Figure, Panel, Series, claim, span

from .common import PATTERNS, QUIRK, load, name


class Fig55(Figure):
    id = "memload/fig5.5"
    title = "Partial writes are completions: RFO hits and commands"
    assumes = [QUIRK, "one worker, which is the program's default"]

    def cases(self, quick):
        for pattern, operation in PATTERNS:
            yield load("Haswell", pattern, operation, sets="1/4")

    def panels(self, runs):
        names = [name(*p) for p in PATTERNS]
        rates = [[get(runs[("Haswell", *p, 1)]) / 1e3 for p in PATTERNS] for get in (_commands, _rfo)]
        curves = [Series("commands", names, rates[0]), Series("RFO hits", names, rates[1])]
        yield Panel("completions", x="pattern", y="thousand/s", series=curves)

    @claim("MEMLOAD-F5.5-1", WEAK, "a rule of the model: each command has one completion, which counts as one RFO")
    def a_partial_write_a_command(self, runs):
        ratios = [_rfo(runs[("Haswell", *p, 1)]) / _commands(runs[("Haswell", *p, 1)]) for p in PATTERNS]
        return span(min(ratios), max(ratios))


def _commands(run):
    return run.workload("load").commands_per_s


def _rfo(run):
    return run.system.rfo_hits_per_s
