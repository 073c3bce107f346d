"""Compares the speed of two builds of the program: runs of the flagship, A and B in turn, so that a noisy machine cancels.

A run is `waykeeper run --policy P --seeds 1 --threads 1`, for each policy and round once with A and once with B, and in every
second round B first. A run's time is the processor's user time. The speed-up is the median of the rounds' ratios; their
smallest and largest are the spread. `same` says whether A and B printed the same results, byte for byte but for the time.

With --callgrind, Valgrind also counts the instructions of a run. Those of a run of 4 s less those of one of 2 s are
those of simulating: the start-up is in both. Time and instructions are of this machine; nothing here asserts them. Knows
nothing of the model.

    python3 scripts/bench_ab.py old/waykeeper target/release/waykeeper
    python3 scripts/bench_ab.py --callgrind --json old new -- --sets 1/64
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

POLICIES = ["default", "a4", "waykeeper"]
# A smaller difference is not called clear. Assumption: a program against itself differed by up to 1 % here.
CLEAR = 0.02
# A run under Valgrind, in seconds of the server's clock: it takes some fifty times as long there.
COUNTED_S = 4


@dataclass
class Timing:
    """The user times of A and of B, a pair per round."""

    policy: str
    rounds: list[tuple[float, float]] = field(default_factory=list)
    same: bool = True

    def medians(self) -> tuple[float, float]:
        """Median user times of A and B."""
        a, b = zip(*self.rounds)
        return statistics.median(a), statistics.median(b)

    def speedups(self) -> list[float]:
        """How many times as fast B was, per round."""
        return [a / b for a, b in self.rounds]


@dataclass
class Instructions:
    """Instructions per simulated second of A and of B."""

    policy: str
    a: float
    b: float


def per_simulated_s(whole: tuple[int, float], half: tuple[int, float]) -> float:
    """Instructions per simulated second from a whole and a shorter run, each its instructions and simulated seconds."""
    return (whole[0] - half[0]) / (whole[1] - half[1])


def total(timings: list[Timing]) -> Timing:
    """All policies as one: per round the sums of their times."""
    sums = [
        (sum(a for a, _ in pairs), sum(b for _, b in pairs)) for pairs in zip(*(timing.rounds for timing in timings))
    ]
    return Timing("all", sums, all(timing.same for timing in timings))


def verdict(timing: Timing) -> str:
    """One sentence: which is faster, if every round shows it and the median is clear."""
    ratios = timing.speedups()
    least, middle, most = min(ratios), statistics.median(ratios), max(ratios)
    spread = f"(rounds {least:.2f} to {most:.2f})"
    results = "same results" if timing.same else "different results"
    if least > 1 and middle >= 1 + CLEAR:
        return f"B is {middle:.2f} times as fast as A {spread}, {results}"
    if most < 1 and middle <= 1 - CLEAR:
        return f"B is slower: {middle:.2f} times as fast as A {spread}, {results}"
    return f"no clear difference: B is {middle:.2f} times as fast as A {spread}, {results}"


def aligned(rows: list[list[str]]) -> str:
    """Rows as lines: the first column to the left, all others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *rest = (
            cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))
        )
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join(lines)


def table(timings: list[Timing], counts: list[Instructions]) -> str:
    """A row per policy, and one for all."""
    heads = ["policy", "A user s", "B user s", "speed-up", "least", "most", "same"]
    if counts:
        heads += ["A Ginstr/sim s", "B Ginstr/sim s", "A/B"]
    rows = [heads]
    for timing in [*timings, total(timings)]:
        ratios, medians = timing.speedups(), timing.medians()
        row = [timing.policy, f"{medians[0]:.3f}", f"{medians[1]:.3f}"]
        row += [f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios))]
        row.append("yes" if timing.same else "no")
        if counts:
            count = next((count for count in counts if count.policy == timing.policy), None)
            row += (
                [f"{count.a / 1e9:.3f}", f"{count.b / 1e9:.3f}", f"{count.a / count.b:.2f}"] if count else ["", "", ""]
            )
        rows.append(row)
    return aligned(rows)


def as_json(timings: list[Timing], counts: list[Instructions]) -> dict[str, object]:
    """All that was measured."""
    policies = {}
    for timing in timings:
        a, b = timing.medians()
        policies[timing.policy] = {
            "user_s": {"a": a, "b": b},
            "rounds": timing.rounds,
            "speedup": statistics.median(timing.speedups()),
            "same_results": timing.same,
        }
    for count in counts:
        policies[count.policy]["instructions_per_simulated_s"] = {"a": count.a, "b": count.b}
    whole = total(timings)
    return {
        "schema": "waykeeper.bench-ab/1",
        "policies": policies,
        "speedup": statistics.median(whole.speedups()),
        "verdict": verdict(whole),
    }


def results(text: str) -> dict[str, object]:
    """What a run printed as JSON, without the time that it took."""
    return {key: value for key, value in json.loads(text).items() if key != "wall_s"}


def run(command: list[str]) -> tuple[float, str, str]:
    """User time of a command, and what it printed on both outputs; its failure ends the script."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=out, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        printed = errors.read()
        if child.returncode:
            sys.exit(f"failed: {' '.join(command)}\n{printed.strip()}")
        return usage.ru_utime, out.read(), printed


def counted(command: list[str]) -> tuple[int, float]:
    """Instructions of a run under Valgrind, and its simulated seconds."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    _, text, printed = run([*valgrind, *command])
    found = re.search(r"Collected : (\d+)", printed)
    if not found:
        sys.exit(f"valgrind did not print a count: {printed.strip()}")
    return int(found[1]), results(text)["simulated_s"]


def main() -> None:
    """Measures, then prints the table and the verdict."""
    own, passed = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, passed = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="what follows -- is added to each run")
    parser.add_argument("programs", metavar="PROGRAM", nargs=2, help="A and B")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program and policy [default: 5]")
    parser.add_argument("--policy", action="append", help=f"may be given several times [default: {' '.join(POLICIES)}]")
    parser.add_argument("--duration", type=float, default=20, help="of a run, in s of the server's clock [default: 20]")
    parser.add_argument("--callgrind", action="store_true", help=f"count instructions too, in runs of {COUNTED_S} s")
    parser.add_argument("--json", action="store_true", help="print all that was measured as JSON")
    options = parser.parse_args(own)
    if options.rounds < 1:
        parser.error("--rounds: expected 1 or more")
    for program in options.programs:
        if not shutil.which(program):
            parser.error(f"{program}: no such program")
    if options.callgrind and not shutil.which("valgrind"):
        parser.error("--callgrind: valgrind is not installed; on Debian: apt-get install valgrind")

    def command(program: str, policy: str, duration_s: float) -> list[str]:
        fixed = ["--policy", policy, "--seeds", "1", "--threads", "1", "--json"]
        return [program, "run", *fixed, "--duration", f"{duration_s:g}", "--warmup", f"{duration_s / 2:g}", *passed]

    timings = [Timing(policy) for policy in options.policy or POLICIES]
    for number in range(options.rounds):
        for timing in timings:
            order = (0, 1) if number % 2 == 0 else (1, 0)
            runs = {which: run(command(options.programs[which], timing.policy, options.duration)) for which in order}
            timing.rounds.append((runs[0][0], runs[1][0]))
            timing.same = timing.same and results(runs[0][1]) == results(runs[1][1])
    counts = []
    for timing in timings if options.callgrind else []:
        rates = [
            per_simulated_s(*(counted(command(program, timing.policy, COUNTED_S / part)) for part in (1, 2)))
            for program in options.programs
        ]
        counts.append(Instructions(timing.policy, *rates))
    if options.json:
        print(json.dumps(as_json(timings, counts), indent=1))
    else:
        print(table(timings, counts))
        print(f"verdict, median of {options.rounds} rounds: {verdict(total(timings))}")


if __name__ == "__main__":
    main()
