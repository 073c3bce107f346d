"""Statements of the thesis's text about commands, counters and formulas, checked with runs of the model."""

import math

from waykeeper.repro import MEDIUM, WEAK, Figure, checks, claim, number, span

from .common import PATTERNS, load, scaling


class Text(Figure):
    id = "memload/text"
    title = "Commands, completions and formulas"

    def cases(self, quick):
        yield from (case for case in scaling() if case.key[1:3] == ("single", "write"))
        for pattern, operation in PATTERNS:
            if (pattern, operation) != ("single", "write"):
                yield load("Haswell", pattern, operation)

    @claim("MEMLOAD-S2-1", WEAK, "restates two constants: commands of 64 bytes and completions of 16 bytes")
    def a_command_and_a_completion(self, runs):
        # A flush moves nothing else: what is read of it is its command, what remains of its bytes the completion.
        run = runs["Haswell", "flush", "write", 1]
        work = run.workload("load")
        read = 64 * run.system.pcie_rdcur_hits_per_s / work.commands_per_s
        return span(work.transfer_bytes_per_s / work.commands_per_s - read, read)

    @claim("MEMLOAD-S2-2", WEAK, "arithmetic of the scenario's 32 blocks of 4096 bytes a command")
    def largest_transfer(self, runs):
        run = runs["Haswell", "random", "write", 1]
        return number(run.system.inbound_bytes_per_s / run.workload("load").commands_per_s)

    @claim("MEMLOAD-S2-3", WEAK, "a rule of the model: each counted event is a line of 64 bytes")
    def an_event_is_a_line(self, runs):
        system = runs["Haswell", "random", "write", 1].system
        return number(system.inbound_bytes_per_s / system.itom_hits_per_s)

    @claim("MEMLOAD-F5.1-9", WEAK, "restates the formula by which the model counts the load's bytes")
    def bandwidth_is_blocks_and_80_bytes_a_command(self, runs):
        found = {}
        for pattern, operation in PATTERNS:
            work = runs["Haswell", pattern, operation, 1].workload("load")
            wanted = 4096 * work.blocks_per_s + 80 * work.commands_per_s
            found[f"{pattern}-{operation}"] = math.isclose(work.transfer_bytes_per_s, wanted)
        return checks(found)

    @claim(
        "MEMLOAD-S4.2-1",
        MEDIUM,
        "an upper bound; the rate follows from the data sheet's latency, which was not fitted on it",
        why="in ours each worker has a core, and a command takes 21 us for any number of workers; in the author's "
        "runs it takes 10.2 us with one worker and 27 us with eight",
    )
    def commands_a_second(self, runs):
        single = [key for key in runs if key[1:3] == ("single", "write")]
        return number(max(runs[key].workload("load").commands_per_s for key in single))
