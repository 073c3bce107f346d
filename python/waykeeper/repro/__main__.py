"""`python -m waykeeper.repro`: lists the figures of the reproduction suite, runs them and writes the report; shows which claims each
mechanism of the model moves.

Exit codes: 0 success, 1 a simulation failed, a figure's code has a mistake or (`diff`) a verdict got worse, 2 bad usage,
130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from .. import bounded
from .._native import BadInput
from ..outputs import check_folder
from . import report
from .claims import PAPERS, claims
from .engine import QUICK_SEEDS, SEEDS, run_figures
from .figure import Figure
from .mechanisms import Reference, mechanisms
from .mechanisms import document as effects_document
from .mistake import Mistakes
from .outcome import RANK, SCHEMA, changes, document, outcomes, skipped
from .registry import figures, not_simulable, problems

EXAMPLES = """\
examples:
  python -m waykeeper.repro list
  python -m waykeeper.repro run a4/fig5 ddio-bench/fig6 --quick
  python -m waykeeper.repro run all --quick --out repro-out
  python -m waykeeper.repro run all --scheduler tcp://head:8786 --out /shared/repro-out
  python -m waykeeper.repro report --out repro-out --docs docs
  python -m waykeeper.repro diff old/claims.json repro-out/claims.json
  python -m waykeeper.repro mechanisms spin --only a4/fig7
  python -m waykeeper.repro mechanisms --docs docs
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m waykeeper.repro",
        description="Run every figure of the five papers on the virtual server and compare with the published numbers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="list the figures and the claims that cannot be simulated")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    running = commands.add_parser("run", help="run figures and write the report")
    running.add_argument("ids", nargs="+", metavar="ID", help="a figure (a4/fig5), a paper (a4), or all")
    running.add_argument(
        "--quick", action="store_true", help=f"reduced grids and {QUICK_SEEDS} seeds instead of {SEEDS}"
    )
    running.add_argument("--seeds", type=_count, help="number of seeds per case (overrides --quick)")
    running.add_argument("--jobs", type=_count, help="simulations that run in parallel (one per core)")
    running.add_argument(
        "--scheduler",
        metavar="ADDRESS|FILE",
        help="run on a Dask cluster instead: its scheduler, like tcp://host:8786, or the scheduler's file; "
        "the workers must have this package and share the folder of --out",
    )
    running.add_argument("--out", type=Path, default=Path("repro-out"), help="folder of runs and report (repro-out)")
    running.add_argument("--json", action="store_true", help="print the record as JSON instead of a table")
    reporting = commands.add_parser("report", help="show the last run, and write the pages of docs/")
    reporting.add_argument("--out", type=Path, default=Path("repro-out"), help="folder of runs and report (repro-out)")
    reporting.add_argument("--docs", type=Path, help="folder to write fidelity.md and fidelity.json to")
    differing = commands.add_parser("diff", help="compare the verdicts of two records")
    differing.add_argument("old", type=Path)
    differing.add_argument("new", type=Path)
    differing.add_argument("--json", action="store_true", help="print JSON instead of lines")
    moving = commands.add_parser(
        "mechanisms",
        help="switch each mechanism of the model off and show which claims move",
        description="Switch each mechanism of the model off, run the figures again, and show which claims move.",
        epilog="mechanisms:\n" + "\n".join(f"  {name:<13} {one.about}" for name, one in mechanisms().items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    moving.add_argument("ids", nargs="*", metavar="ID", help="a mechanism (all)")
    moving.add_argument("--only", nargs="+", metavar="FIGURE", default=[], help="only these figures or papers (all)")
    moving.add_argument("--quick", action="store_true", help="reduced grids")
    moving.add_argument("--seeds", type=_count, default=QUICK_SEEDS, help=f"number of seeds per case ({QUICK_SEEDS})")
    moving.add_argument("--jobs", type=_count, help="simulations that run in parallel (one per core)")
    moving.add_argument("--out", type=Path, default=Path("repro-out"), help="folder of runs (repro-out)")
    moving.add_argument("--docs", type=Path, help=f"folder to write {report.MECHANISMS} to")
    moving.add_argument("--json", action="store_true", help="print the record as JSON instead of a table")
    given = parser.parse_args(arguments)
    command = {"list": _list, "run": _run, "report": _report, "diff": _diff, "mechanisms": _mechanisms}[given.command]
    try:
        return command(given)
    except _Usage as why:
        print(f"error: {why}", file=sys.stderr)
        return 2
    except Mistakes as why:
        for mistake in why.mistakes:
            print(f"error: {mistake}", file=sys.stderr)
        print("finished simulations are kept; correct the figure and run the same command again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; finished simulations are kept, the same command continues", file=sys.stderr)
        return 130


class _Usage(Exception):
    """A usage error."""


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: it must be at least 1")
    return value


def _list(given: argparse.Namespace) -> int:
    rows = [
        {
            "id": figure.id,
            "title": figure.title,
            "claims": [judgement.claim for judgement in figure.judgements()],
            "strengths": {judgement.claim: judgement.strength.value for judgement in figure.judgements()},
        }
        for figure in figures().values()
    ]
    if given.json:
        print(json.dumps({"figures": rows, "not_simulable": not_simulable(), "problems": problems()}, indent=1))
        return 0
    width = max(len(row["id"]) for row in rows)
    for row in rows:
        print(f"{row['id']:<{width}}  {len(row['claims']):>3} claims  {row['title']}")
    print(f"\n{len(not_simulable())} claims cannot be simulated; --json and the report give the reasons")
    for problem in problems():
        print(f"problem: {problem}")
    return 0


def _run(given: argparse.Namespace) -> int:
    chosen = _chosen(given.ids)
    _check_out(given.out)
    seeds = given.seeds or (QUICK_SEEDS if given.quick else SEEDS)
    with _cluster(given.scheduler) as engine:
        results = run_figures(
            chosen, quick=given.quick, seeds=seeds, jobs=given.jobs, cache=given.out / "runs", engine=engine
        )
    found = outcomes(chosen, results)
    if given.ids == ["all"]:
        found += skipped()
    else:
        found += [outcome for outcome in skipped() if outcome.paper in _folders(given.ids)]
    record = document(found, given.quick, seeds)
    page = report.write(given.out, record, chosen, results)
    if given.json:
        print(json.dumps(record, indent=1))
    else:
        _show(record)
    failures = [f"{figure_id}: {line}" for figure_id, runs in results.items() for line in runs.failures]
    for line in failures:
        print(f"failed: {line}", file=sys.stderr)
    print(f"wrote {page}", file=sys.stderr)
    return 1 if failures else 0


CONNECT_S = 30
"""Longest wait for a scheduler: Dask's own default (`distributed.comm.timeouts.connect`)."""


def _cluster(scheduler: str | None) -> AbstractContextManager[Any]:
    """A client of a Dask cluster; `None` without a scheduler."""
    if scheduler is None:
        return nullcontext()
    try:
        from distributed import Client
    except ImportError as why:
        raise _Usage(f"--scheduler needs Dask ({why}): pip install 'waykeeper[dask]'") from why
    where = {"address": scheduler} if "://" in scheduler else {"scheduler_file": scheduler}
    if "scheduler_file" in where and not Path(scheduler).is_file():
        raise _Usage(
            f"--scheduler {scheduler}: no such file; write tcp://HOST:PORT or the path of the scheduler's file"
        )
    try:
        return Client(**where, timeout=CONNECT_S)
    except (OSError, TimeoutError, ValueError) as why:
        raise _Usage(f"--scheduler {scheduler}: no Dask scheduler answers: {why}") from why


def _check_out(folder: Path) -> None:
    try:
        check_folder("--out", folder)
    except BadInput as why:
        raise _Usage(str(why)) from why


def _folders(ids: list[str]) -> set[str]:
    return {name.replace("-", "_") for name in ids}


def _chosen(ids: list[str]) -> list[Figure]:
    everything = figures()
    if ids == ["all"]:
        return list(everything.values())
    chosen: list[Figure] = []
    for name in ids:
        hits = [figure for figure in everything.values() if name in (figure.id, figure.id.split("/")[0])]
        if not hits:
            hint = _hint(name, [*everything, *(folder for folder, _ in PAPERS.values())])
            raise _Usage(f"no figure or paper `{name}`{hint} `list` prints all; `all` selects all")
        chosen += [figure for figure in hits if figure not in chosen]
    return chosen


def _hint(name: str, known: Iterable[str]) -> str:
    """The nearest known name as a question, or the sign before the next clause."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean `{near[0]}`?" if near else ";"


def _report(given: argparse.Namespace) -> int:
    record = _record(given.out / "claims.json")
    _show(record)
    if given.docs is not None:
        if record["quick"]:
            raise _Usage(f"{given.out} has a quick run; --docs needs a full run (`run all`)")
        if len(record["claims"]) < len(claims()):
            raise _Usage(f"{given.out} has {len(record['claims'])} of {len(claims())} claims; --docs needs `run all`")
        for path in report.write_docs(given.docs, record):
            print(f"wrote {path}", file=sys.stderr)
    return 0


def _diff(given: argparse.Namespace) -> int:
    found = changes(_record(given.old), _record(given.new))
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        for change in found:
            word = "worse " if change["worse"] else "better"
            print(
                f"{word}  {change['id']}: {change['was']} ({change['was_ours']}) -> {change['is']} ({change['ours']})"
            )
        if not found:
            print("no verdict changed")
    return 1 if any(change["worse"] for change in found) else 0


def _mechanisms(given: argparse.Namespace) -> int:
    known = mechanisms()
    for name in given.ids:
        if name not in known:
            raise _Usage(f"no mechanism `{name}`{_hint(name, known)} there are {', '.join(known)}")
    if given.docs is not None and not given.docs.is_dir():
        raise _Usage(f"{given.docs} is not a folder; --docs needs the folder to write {report.MECHANISMS} to")
    _check_out(given.out)
    chosen = [one for name, one in known.items() if name in given.ids or not given.ids]
    figures = _chosen(given.only or ["all"])
    run = partial(run_figures, quick=given.quick, seeds=given.seeds, jobs=given.jobs, cache=given.out / "runs")
    print(f"every mechanism on: {len(figures)} figures", file=sys.stderr)
    reference = Reference(figures, given.quick, run)
    effects = []
    for mechanism in chosen:
        print(f"without {mechanism.id}: {mechanism.about}", file=sys.stderr)
        effects.append(reference.without(mechanism))
    record = effects_document(effects, given.only, given.quick, given.seeds)
    if given.json:
        print(json.dumps(record, indent=1))
    else:
        _show_effects(record)
    if given.docs is not None:
        print(f"wrote {report.write_mechanisms(given.docs, record)}", file=sys.stderr)
    failures = [("every mechanism on", line) for line in reference.failures]
    failures += [(f"without {effect.mechanism.id}", line) for effect in effects for line in effect.failures]
    for what, line in failures:
        print(f"failed: {what}: {line}", file=sys.stderr)
    return 1 if failures else 0


def _show_effects(record: Any) -> None:
    heads = ["changed_cases", "named", "named_moved", "others_moved", "gained", "lost"]
    print(f"{'mechanism':<14}" + "".join(f"{head.replace('_', ' '):>16}" for head in heads))
    for row in record["mechanisms"]:
        print(f"{row['id']:<14}" + "".join(f"{row[head]:>16}" for head in heads))
    for row in record["mechanisms"]:
        print(f"\n{row['id']}: without it -> with it")
        for claim in row["claims"]:
            if claim["moved"]:
                named = "named" if claim["named"] else ""
                moved = f"{claim['off']} ({claim['off_ours']}) -> {claim['on']} ({claim['on_ours']})"
                print(f"  {named:<5}  {claim['change']:<14}  {claim['id']}: {moved}")
        if not any(claim["moved"] for claim in row["claims"]):
            print("  it moves no claim")
        still: dict[str, list[str]] = {}
        for claim in row["claims"]:
            if not claim["moved"]:
                still.setdefault(claim["change"], []).append(claim["id"])
        for why, names in still.items():
            print(f"  named  {why}: {', '.join(names)}")


def _record(path: Path) -> Any:
    try:
        record = json.loads(bounded.text(path, "a record of the suite"))
    except OSError as why:
        raise _Usage(f"cannot read {path}: {why.strerror}; `run` writes it") from why
    except ValueError as why:
        raise _Usage(f"{path} is not JSON: {why}") from why
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise _Usage(f"{path} is not a record of the suite; its schema must be {SCHEMA}")
    return record


def _show(record: Any) -> None:
    heads = ["simulable", "reproduced", "shape_only", "not_reproduced", "not_tested", "not_simulable"]
    total, headline = record["total"], record["total"]["headline"]
    rows = [
        *record["papers"].items(),
        ("all", total),
        *((f"  {name}", row) for name, row in total["strengths"].items()),
    ]
    print(f"{'paper, check':<14}" + "".join(f"{head.replace('_', ' '):>16}" for head in heads))
    for name, score in rows:
        print(f"{name:<14}" + "".join(f"{score[head]:>16}" for head in heads))
    if headline["simulable"]:
        share = 100 * headline["reproduced"] / headline["simulable"]
        print(
            f"strong and medium checks: {headline['reproduced']} of {headline['simulable']} claims are reproduced "
            f"({share:.0f} %), {headline['shape_only']} in shape only"
        )
    worst = [claim for claim in record["claims"] if RANK[claim["verdict"]] in (1, 2)]
    for claim in sorted(worst, key=lambda claim: -RANK[claim["verdict"]]):
        published = f", published {claim['published']}" if claim["published"] else ""
        print(
            f"{claim['verdict']:<15} {claim['strength']:<7} {claim['id']:<16} {claim['ours'] or claim['why']}{published}"
        )


if __name__ == "__main__":
    sys.exit(main())
