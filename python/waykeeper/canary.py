"""Nodes that are managed beside nodes that are only observed, from the metrics of both in one Prometheus.

    python -m waykeeper.canary --prometheus http://prometheus:9090 --since 2026-11-20T08:00:00+00:00

For each node it takes the mean of a window after the change and of a window as long before, so that nodes may differ. The change of
the managed nodes is compared with that of the observed ones: what else changed in the fleet changed on both. This module must
not know how a node is managed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

SCHEMA = "waykeeper.canary/1"
CONFIDENCE = 0.95
SECONDS = 30
"""Longest wait for an answer of Prometheus."""
MOST_BYTES = 64 << 20
"""Longest answer that is read."""
DAY_S = 86_400
BEGIN_S = 600
"""What a policy may need to find its layout after the change: not measured (ours)."""


@dataclass(frozen=True)
class Measure:
    """What is compared: `query` gives one number per instance; `$window` is a duration of PromQL."""

    name: str
    query: str
    more_is_better: bool


def _per_tenant(over: str, under: str, priority: str, one_minus: bool = False) -> str:
    """The ratio of two counters of the tenants of a priority, summed per instance, over the window."""

    def total(counter: str) -> str:
        of = f'on (instance, job, tenant) group_left () waykeeper_tenant_info{{priority="{priority}"}}'
        return f"sum by (instance) (increase(waykeeper_tenant_{counter}_total[$window]) * {of})"

    ratio = f"{total(over)} / ({total(under)} > 0)"
    return f"1 - {ratio}" if one_minus else ratio


MEASURES = (
    Measure("HPW instructions per cycle", _per_tenant("instructions", "cycles", "high"), True),
    Measure("LPW instructions per cycle", _per_tenant("instructions", "cycles", "low"), True),
    Measure("HPW LLC hit ratio", _per_tenant("llc_misses", "llc_references", "high", one_minus=True), True),
    Measure("LPW LLC hit ratio", _per_tenant("llc_misses", "llc_references", "low", one_minus=True), True),
    Measure(
        "DCA write misses",
        'sum by (instance) (increase(waykeeper_io_llc_misses_total{op="write"}[$window]))'
        ' / (sum by (instance) (increase(waykeeper_io_llc_references_total{op="write"}[$window])) > 0)',
        False,
    ),
    Measure("memory traffic", "sum by (instance) (rate(waykeeper_memory_bytes_total[$window]))", False),
)


class CanaryError(Exception):
    """Prometheus cannot be asked, or has too little; the message says what would be needed."""


@dataclass(frozen=True)
class Compared:
    """One line of the table. Changes are factors: 1.02 is 2 % more after than before."""

    measure: str
    managed: int
    """Nodes with a number before and after."""
    observed: int
    managed_change: float | None
    observed_change: float | None
    ratio: float | None
    """The managed nodes' change over the observed ones'."""
    low: float | None
    high: float | None
    verdict: str


Ask = Callable[[str, float], Mapping[str, float]]
"""An instant query at a time: a number per instance."""


def compare(ask: Ask, since_s: float, until_s: float) -> list[Compared]:
    """Compares the nodes that are managed at `until_s` with those that are observed then. `since_s` is the time of the change, in
    seconds since 1970. The windows are what is left after the first minutes, and as much before the change.

    Raises CanaryError if a kind of node is missing or the windows are shorter than the first minutes.
    """
    window_s = until_s - since_s - BEGIN_S
    if window_s < BEGIN_S:
        raise CanaryError(f"{until_s - since_s:.0f} s since the change; at least {2 * BEGIN_S} s are needed")
    kinds = {mode: ask(f'waykeeper_mode{{mode="{mode}"}} == 1', until_s) for mode in ("manage", "observe")}
    for mode, nodes in kinds.items():
        if len(nodes) < 2:
            raise CanaryError(f"{len(nodes)} nodes have the mode {mode}; at least 2 are needed for an interval")
    lines = []
    for measure in MEASURES:
        query = measure.query.replace("$window", f"{window_s:.0f}s")
        before, after = ask(query, since_s), ask(query, until_s)
        changes = {mode: _changes(before, after, nodes) for mode, nodes in kinds.items()}
        lines.append(_compared(measure, changes["manage"], changes["observe"]))
    return lines


def _changes(before: Mapping[str, float], after: Mapping[str, float], nodes: Mapping[str, float]) -> list[float]:
    """The logarithms of each node's change."""
    pairs = ((before.get(node, 0.0), after.get(node, 0.0)) for node in sorted(nodes))
    return [math.log(new / old) for old, new in pairs if old > 0 and new > 0 and math.isfinite(new / old)]


def _compared(measure: Measure, managed: list[float], observed: list[float]) -> Compared:
    """Welch's interval of the difference of two means, on logarithms."""

    def change(logarithms: list[float]) -> float | None:
        return math.exp(statistics.fmean(logarithms)) if logarithms else None

    counts = (measure.name, len(managed), len(observed), change(managed), change(observed))
    if min(len(managed), len(observed)) < 2:
        return Compared(*counts, None, None, None, "too few nodes have it")
    parts = [statistics.variance(group) / len(group) for group in (managed, observed)]
    difference = statistics.fmean(managed) - statistics.fmean(observed)
    half = 0.0
    if sum(parts) > 0:
        spread = sum(part**2 / (len(group) - 1) for part, group in zip(parts, (managed, observed), strict=True))
        half = student(1 - (1 - CONFIDENCE) / 2, sum(parts) ** 2 / spread) * math.sqrt(sum(parts))
    low, high = math.exp(difference - half), math.exp(difference + half)
    verdict = "cannot tell" if low <= 1 <= high else "better" if (low > 1) == measure.more_is_better else "worse"
    return Compared(*counts, math.exp(difference), low, high, verdict)


def student(probability: float, freedom: float) -> float:
    """The quantile of Student's distribution for a probability above a half, by bisection of its integral (Simpson's rule)."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def density(at: float) -> float:
        return scale * (1 + at * at / freedom) ** (-(freedom + 1) / 2)

    def below(limit: float) -> float:
        steps = 2000
        width = limit / steps
        inner = sum(density(index * width) * (4 if index % 2 else 2) for index in range(1, steps))
        return 0.5 + width / 3 * (density(0) + inner + density(limit))

    low, high = 0.0, 2.0
    while below(high) < probability and high < 1000:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < probability else (low, middle)
    return high


def prometheus(address: str) -> Ask:
    """Asks a Prometheus at an address such as http://localhost:9090."""

    def ask(query: str, at_s: float) -> dict[str, float]:
        words = urllib.parse.urlencode({"query": query, "time": f"{at_s:.3f}"})
        try:
            with urllib.request.urlopen(f"{address.rstrip('/')}/api/v1/query?{words}", timeout=SECONDS) as answer:
                text = answer.read(MOST_BYTES)
        except urllib.error.HTTPError as why:
            raise CanaryError(f"{address}: {why.code}: {why.read(500).decode(errors='replace')}") from None
        except (OSError, ValueError) as why:
            raise CanaryError(f"{address} cannot be asked: {why}") from None
        try:
            rows = json.loads(text)["data"]["result"]
            found = {row["metric"]["instance"]: float(row["value"][1]) for row in rows}
        except (KeyError, TypeError, IndexError, ValueError):
            raise CanaryError(f"{address}: no answer of Prometheus: {text[:200].decode(errors='replace')}") from None
        return {node: value for node, value in found.items() if math.isfinite(value)}

    return ask


def table(lines: Sequence[Compared]) -> str:
    """The table for a terminal, the verdict last."""

    def factor(value: float | None) -> str:
        return "-" if value is None else f"x{value:.3f}"

    head = ("", "managed", "change", "observed", "change", "managed over observed", "95 % interval", "verdict")
    rows = [head]
    for one in lines:
        interval = "-" if one.low is None else f"{factor(one.low)} to {factor(one.high)}"
        changes = (str(one.managed), factor(one.managed_change), str(one.observed), factor(one.observed_change))
        rows.append((one.measure, *changes, factor(one.ratio), interval, one.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    ends = (0, len(head) - 1)

    def line(row: tuple[str, ...]) -> str:
        cells = (cell.ljust(width) if at in ends else cell.rjust(width)
                 for at, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        return "  ".join(cells).rstrip()

    return "\n".join(line(row) for row in rows)


def moment(text: str) -> datetime:
    """A time with its zone, as `date --iso-8601=seconds` prints it."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("no zone")
    return at


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m waykeeper.canary", description="Compare managed nodes with observed ones, from Prometheus.",
        epilog="example: python -m waykeeper.canary --prometheus http://localhost:9090 --since $(date -Is -d '2 hours ago')",
    )  # fmt: skip
    parser.add_argument("--prometheus", required=True, metavar="URL", help="the address of Prometheus")
    parser.add_argument(
        "--since", required=True, metavar="TIME", help="when the managed nodes began: 2026-11-20T08:00:00+00:00"
    )
    parser.add_argument("--until", metavar="TIME", help="end of the comparison [now]")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code: 0 compared, 1 Prometheus cannot be asked or has too little, 2 a wrong argument."""
    options = _parser().parse_args(words)
    times = []
    for name in ("since", "until"):
        text = getattr(options, name)
        try:
            times.append(datetime.now(UTC) if text is None else moment(text))
        except ValueError:
            print(
                f"error: --{name} {text}: write a time with its zone, like 2026-11-20T08:00:00+00:00", file=sys.stderr
            )
            return 2
    since, until = times
    if not options.prometheus.startswith(("http://", "https://")):
        print(f"error: --prometheus {options.prometheus}: write an address like http://localhost:9090", file=sys.stderr)
        return 2
    try:
        lines = compare(prometheus(options.prometheus), since.timestamp(), until.timestamp())
    except CanaryError as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    if options.json:
        result: dict[str, Any] = {"schema": SCHEMA, "since": since.isoformat(), "until": until.isoformat(),
                                  "confidence": CONFIDENCE, "measures": [asdict(line) for line in lines]}  # fmt: skip
        print(json.dumps(result, indent=2))
    else:
        print(table(lines))
        if until.timestamp() - since.timestamp() < DAY_S:
            print(
                "\nless than a day: load that changes over the day differs between the two windows, on all nodes alike"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
