"""Puts the curves of the shipped traces on standard input into the table of docs/programs.md.

`make curves` pipes the example `trace_curves` of crates/machine into it. Knows nothing of the model.
"""

import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs/programs.md"
START, END = "<!-- traces: written by make curves -->", "<!-- end of traces -->"
WAYS = (2, 4, 8, 11)
HEADS = ["program", "footprint, MiB", "`cpi`", "`mlp`"]
HEADS += [f"CPI at {WAYS[0]} ways"] + [f"at {ways}" for ways in WAYS[1:]]
HEADS += [f"misses at {WAYS[0]} ways"] + [f"at {ways}" for ways in WAYS[1:]]


def main() -> None:
    """Replaces what is between the two marks; the rest of the page stays as it is."""
    rows = sys.stdin.read()
    if not rows:
        sys.exit("no curves on standard input")
    table = f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}\n{rows}"
    before, rest = PAGE.read_text().split(START)
    PAGE.write_text(before + START + "\n" + table + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
