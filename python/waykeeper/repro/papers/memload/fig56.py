"""Thesis Fig. 5.6: opcode events, and the events expected from the program's own counts."""

from waykeeper.repro import WEAK, Figure, Panel, Points, Series, checks, claim, number, span
from waykeeper.repro.bands import SIZE, of_size

from . import author
from .common import PATTERNS, QUIRK, load, name


class Fig56(Figure):
    id = "memload/fig5.6"
    title = "Measured and expected events"
    assumes = [
        QUIRK,
        "one worker, which is the program's default",
        (
            "the buffer comes from malloc and does not begin at a page boundary: the data of a command are on one "
            "more page"
        ),
    ]

    def cases(self, quick):
        for pattern, operation in PATTERNS:
            yield load("Haswell", pattern, operation, sets="1/4")

    def panels(self, runs):
        data = PATTERNS[:4]
        ratios = [_over_estimate(runs[("Haswell", *p, 1)], p[1]) for p in data]
        names = [name(*p) for p in data]
        ours, theirs = (Series("ours", names, ratios), Points("author", names, [author.OVER_ESTIMATE[p] for p in data]))
        yield Panel("events with data", x="pattern", y="counter / estimate", series=[ours], published=[theirs])
        control = [p for p in PATTERNS if p[1] == "write"]
        reads = [_reads_a_command(runs[("Haswell", *p, 1)]) for p in control]
        names = [name(*p) for p in control]
        ours, theirs = (
            Series("ours", names, reads),
            Points("author", names, [author.READS_A_COMMAND[p] for p in control]),
        )
        yield Panel("PCIeRdCur without data", x="pattern", y="events / command", series=[ours], published=[theirs])

    def _ratios(self, runs, pattern):
        return [_over_estimate(runs["Haswell", pattern, op, 1], op) for op in ("read", "write")]

    @claim("MEMLOAD-F5.6-1", WEAK, "arithmetic of the block count that is off by one: 32 blocks moved, 31 counted")
    def random_is_near_the_estimate(self, runs):
        ratios = self._ratios(runs, "random")
        return span(min(ratios), max(ratios))

    @claim("MEMLOAD-F5.6-2", WEAK, "arithmetic of the block count that is off by one: 2 blocks moved, 1 counted")
    def single_is_twice_the_estimate(self, runs):
        ratios = self._ratios(runs, "single")
        return span(min(ratios), max(ratios))

    @claim(
        "MEMLOAD-F5.6-3", WEAK, "a rule of the model: a completion is a partial write and counts as RFO, never as ItoM"
    )
    def completions_are_no_whole_lines(self, runs):
        others = [p for p in PATTERNS if p[1] == "read" or p[0] == "flush"]
        return number(max(runs[("Haswell", *p, 1)].system.itom_hits_per_s for p in others))

    @claim("MEMLOAD-F5.6-4", WEAK, "a rule of the model: of a flush the drive reads one line, its command")
    def a_flush_reads_its_command(self, runs):
        return number(_reads_a_command(runs["Haswell", "flush", "write", 1]))

    @claim(
        "MEMLOAD-F5.6-5",
        WEAK,
        "a rule of the model: the drive reads a PRP list of known size if data are on over two pages",
        why="the model's drive reads each line of a list once; the author's may read ahead",
    )
    def writes_of_memory_read_more_than_commands(self, runs):
        # Lists of pages (PRP lists): the thesis did not think of them. "A lot higher" has its size from the author's runs.
        found = {}
        for p in ("random", "single"):
            more, theirs = _reads_a_command(runs["Haswell", p, "write", 1]) - 1, author.READS_A_COMMAND[p, "write"] - 1
            text = f"{p}-write reads {SIZE * theirs:.2g} to {theirs / SIZE:.2g} lines per command besides the command"
            found[text] = of_size(more, theirs)
        return checks(found)


def _over_estimate(run, operation):
    """The data event divided by the thesis's estimate (s5.4.2)."""
    work = run.workload("load")
    if operation == "read":
        return run.system.pcie_rdcur_hits_per_s / (64 * work.blocks_per_s + work.commands_per_s)
    return run.system.itom_hits_per_s / (64 * work.blocks_per_s)


def _reads_a_command(run):
    return run.system.pcie_rdcur_hits_per_s / run.workload("load").commands_per_s
