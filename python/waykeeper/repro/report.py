"""The report: figures as PNG and PDF, one page with all figures and claims, and the pages for `docs/`.

This module uses outcomes and drawings; it must not depend on how figures were run.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from .. import outputs
from .claims import PAPERS
from .engine import FigureRuns
from .figure import Figure, Panel
from .finding import Missing
from .mistake import Mistake, Mistakes

TITLES = dict(PAPERS.values())
MECHANISMS = "fidelity-mechanisms.md"
"""Name of the page about the model's mechanisms."""


def write(out: Path, record: Mapping[str, Any], figures: Sequence[Figure], results: Mapping[str, FigureRuns]) -> Path:
    """Writes `claims.json`, the drawings and `report.html` into `out`; returns the path of the page.

    Raises `Mistakes`, after it has written all others, if the panels of a figure raise an exception other than `Missing`.
    """
    from jinja2 import Environment

    from .draw import draw

    out.mkdir(parents=True, exist_ok=True)
    outputs.write(out / "claims.json", json.dumps(record, indent=1) + "\n")
    drawn, mistakes = [], []
    for figure in figures:
        about = {"figure": figure, "picture": None, "failures": results[figure.id].failures, "broken": ""}
        try:
            panels = with_spread(figure, results[figure.id])
        except Missing as why:
            about["broken"], panels = f"could not be drawn: {why}", []
        except Exception as why:
            mistakes.append(Mistake(f"{figure.id}: the panels", why))
            about["broken"], panels = f"could not be drawn: {mistakes[-1]}", []
        if panels:
            path = out / "figures" / figure.id.replace("/", "-")
            path.parent.mkdir(exist_ok=True)
            draw(panels, f"{figure.id}: {figure.title}", path)
            about["picture"] = f"figures/{path.name}"
        drawn.append(about)
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    page = out / "report.html"
    outputs.write(page, template.render(record=record, drawn=drawn, titles=TITLES))
    if mistakes:
        raise Mistakes(mistakes)
    return page


def with_spread(figure: Figure, results: FigureRuns) -> list[Panel]:
    """A figure's panels with the means, and the standard deviation over the seeds at each point."""
    panels = list(figure.panels(results.mean))
    if len(results.seeds) < 2:
        return panels
    per_seed = [list(figure.panels(runs)) for runs in results.seeds]
    return [
        replace(
            panel,
            series=[
                replace(series, spread=_spread([seed[at].series[which].y for seed in per_seed]))
                for which, series in enumerate(panel.series)
            ],
        )
        for at, panel in enumerate(panels)
    ]


def _spread(curves: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The standard deviation at each point; `None` where a seed has no number."""
    points = zip(*curves, strict=True)
    return [None if None in values else statistics.stdev(values) for values in points]  # type: ignore[type-var]


def write_docs(folder: Path, record: Mapping[str, Any]) -> list[Path]:
    """Writes `fidelity.md` and `fidelity.json` of a full run into `folder`. The page links to that of the mechanisms if there is
    one."""
    page, data = folder / "fidelity.md", folder / "fidelity.json"
    mechanisms = MECHANISMS if (folder / MECHANISMS).is_file() else ""
    outputs.write(page, _page("fidelity.md", record=record, titles=TITLES, mechanisms=mechanisms))
    outputs.write(data, json.dumps(record, indent=1) + "\n")
    return [page, data]


def write_mechanisms(folder: Path, record: Mapping[str, Any]) -> Path:
    """Writes the page about the model's mechanisms into `folder`."""
    page = folder / MECHANISMS
    outputs.write(page, _page("mechanisms.md", record=record))
    return page


def _page(template: str, **values: Any) -> str:
    """A page of `docs/` from the template of that name."""
    from jinja2 import Environment

    environment = Environment(autoescape=False, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    return environment.from_string(files(__package__).joinpath(template).read_text(encoding="utf-8")).render(**values)
