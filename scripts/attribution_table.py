"""Scores the attribution on all built-in scenarios against the virtual server's truth and writes docs/attribution.md's tables.

    python3 scripts/attribution_table.py --raw DIR [--seed N] [--evaluate]

Records each scenario under each policy into DIR, one file per run (an hour on one core), and keeps what is there. `--evaluate`
scores what was recorded and records nothing. Must not know how an attribution is found.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "target/debug/examples"
DOCS = ROOT / "docs/attribution.md"
POLICIES = ("default", "a4", "iat", "waykeeper")
LONG_S = 30.0
"""Scenarios without phases are recorded for this long: later intervals repeat the earlier ones."""
COUNTS = "true claimed both true2 claimed2 both2 untold untold_pairs banded within victims largest".split()

Counts = dict[str, int]


def half(scenario: str) -> str:
    """The half of a scenario, by the first byte of the SHA-256 of its name."""
    return "held out" if hashlib.sha256(scenario.encode()).digest()[0] % 2 else "tuning"


def policies(text: str) -> tuple[str, ...]:
    """The policies for a scenario's text; `none` too where the scenario itself sets masks or DCA."""
    own = re.search(r"^(mask|dca_ways|dca_off) = ", text, re.M)
    return ("none", *POLICIES) if own else POLICIES


def settings(text: str) -> list[str]:
    """Keys that shorten a scenario."""
    duration = re.search(r"^duration_s = ([0-9.]+)", text, re.M)
    if duration is None or float(duration[1]) <= LONG_S or "phase]]" in text:
        return []
    return [f"duration_s={LONG_S:.0f}", "measure_s=10", "warmup_s=10"]


def record(raw: Path, seed: int) -> None:
    """Records the runs that are not in `raw`."""
    for file in sorted((ROOT / "scenarios").glob("*.toml")):
        text = file.read_text()
        points = subprocess.run(
            [EXAMPLES / "record", "--points", file], check=True, capture_output=True, text=True
        ).stdout.split("\n")[:-1]
        for index, point in enumerate(points):
            keys = [key for key in point.split("\t") if key]
            for policy in policies(text):
                out = raw / f"{file.stem}.{index}.{policy}.{seed}.jsonl"
                if not out.exists():
                    words = [file, policy, str(seed), out, *keys, *settings(text)]
                    subprocess.run([EXAMPLES / "record", *words], check=True)


def evaluate(raw: Path, seed: int) -> dict[tuple[str, str], Counts]:
    """The counts per scenario and policy."""
    files = sorted(raw.glob(f"*.{seed}.jsonl"))
    found = subprocess.run([EXAMPLES / "evaluate", *files], check=True, capture_output=True, text=True)
    cells: dict[tuple[str, str], Counts] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for line in found.stdout.split("\n")[:-1]:
        scenario, _, policy, _, _, *numbers = line.split("\t")
        cell = cells[scenario, policy]
        for key, number in zip(COUNTS, numbers, strict=True):
            cell[key] += int(number)
    return cells


def ratio(part: int, whole: int) -> float | None:
    """A ratio; none of nothing."""
    return part / whole if whole else None


def shown(value: float | None) -> str:
    """A ratio for a table."""
    return "-" if value is None else f"{value:.2f}"


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are there."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def summary(cells: dict[tuple[str, str], Counts]) -> str:
    """Means over scenarios and policies, and over all pairs, for each half and for all."""
    rows = [
        "| scenarios | runs | precision | recall | at a share of 0.2 | over all pairs | largest polluter right | in the band |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in ("tuning", "held out", "all"):
        of = [cell for (scenario, _), cell in cells.items() if name in ("all", half(scenario))]
        total = {key: sum(cell[key] for cell in of) for key in COUNTS}
        means = [
            shown(mean([ratio(cell[f"both{at}"], cell[f"{what}{at}"]) for cell in of]))
            for at in ("", "2")
            for what in ("claimed", "true")
        ]
        pooled = [shown(ratio(total["both"], total[what])) for what in ("claimed", "true")]
        largest, band = ratio(total["largest"], total["victims"]), ratio(total["within"], total["banded"])
        rows.append(
            f"| {name} | {len(of)} | {means[0]} | {means[1]} | {means[2]}, {means[3]} | {pooled[0]}, {pooled[1]} "
            f"| {shown(largest)} | {shown(band)} |"
        )
    return "\n".join(rows)


def table(cells: dict[tuple[str, str], Counts]) -> str:
    """A row per scenario, and per policy `precision, recall (true pairs)`."""
    names = ("none", *POLICIES)
    rows = [f"| scenario | half | {' | '.join(names)} |", "| --- | --- |" + " --- |" * len(names)]
    silent = []
    for scenario in sorted({scenario for scenario, _ in cells}):
        of = {policy: cells[scenario, policy] for policy in names if (scenario, policy) in cells}
        if not any(cell["true"] or cell["claimed"] for cell in of.values()):
            silent.append(scenario)
            continue
        texts = []
        for policy in names:
            cell = of.get(policy)
            if cell is None or not (cell["true"] or cell["claimed"]):
                texts.append("-")
                continue
            precision, recall = (shown(ratio(cell["both"], cell[what])) for what in ("claimed", "true"))
            texts.append(f"{precision}, {recall} ({cell['true']})")
        rows.append(f"| {scenario} | {half(scenario)} | {' | '.join(texts)} |")
    none = f"No true pair and no claimed one under any policy: {', '.join(silent)}."
    return "\n".join([*rows, "", none])


def write(parts: dict[str, str]) -> None:
    """Puts each part between its marks in the page."""
    text = DOCS.read_text()
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{part}\n{end}{rest.split(end)[1]}"
    DOCS.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--raw", type=Path, required=True, help="folder of the recorded runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true", help="record nothing")
    given = parser.parse_args()
    build = ["cargo", "build", "--locked", "-p", "waykeeper-attribution", "--examples"]
    subprocess.run(build, check=True, cwd=ROOT)
    given.raw.mkdir(parents=True, exist_ok=True)
    if not given.evaluate:
        record(given.raw, given.seed)
    cells = evaluate(given.raw, given.seed)
    if not cells:
        print(f"{given.raw}: no recorded run of seed {given.seed}", file=sys.stderr)
        return 2
    write({"summary": summary(cells), "table": table(cells)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
