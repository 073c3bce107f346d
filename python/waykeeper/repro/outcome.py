"""Outcomes: the verdict of every claim with our number and the published one, and the totals.

They are written as `claims.json` (schema `waykeeper.fidelity/2`), which the report, the docs and `diff` read.

A claim is evaluated on the means over seeds. It is reproduced only if at least `SHOWN_BY` of the seeds alone reproduce it as well;
otherwise it gets the verdict that so many seeds reach. Totals are given for each strength of check; the headline counts the
strong and the medium ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .. import _native
from .claims import PAPERS, Claim, claims
from .engine import FigureRuns
from .figure import Figure, Judgement, Runs
from .finding import Finding, Missing
from .mistake import Mistake, Mistakes
from .registry import not_simulable
from .strength import Strength
from .verdict import Judged, Verdict, judge

SCHEMA = "waykeeper.fidelity/2"

SHOWN_BY = 0.8
"""Share of the seeds that must reproduce a claim: 4 of 5. A mean over seeds can have a property that no run has."""

MEAN_ONLY = "the mean over seeds shows it, but only"
"""How the explanation of a claim begins whose mean has a property that too few seeds have."""

HEADLINE = (Strength.STRONG, Strength.MEDIUM)
"""The strengths that the headline counts."""


@dataclass
class Outcome:
    """The result for one claim."""

    id: str
    paper: str
    where: str
    kind: str
    metric: str
    claim: str
    unit: str
    verdict: str
    published: str
    why: str
    """The most likely explanation of a mismatch, or the reason why the claim cannot be simulated."""
    figure: str = ""
    ours: str = ""
    ours_low: float | None = None
    ours_high: float | None = None
    deviation: float | None = None
    """Relative deviation, of the worse end of an interval."""
    seeds: int = 0
    """Number of seeds behind our number; 0 if it is calculated without a run."""
    spread: float | None = None
    """Sample standard deviation of our number over the seeds."""
    agreeing: int = 0
    """Number of seeds that alone would give at least this verdict."""
    strength: str = ""
    """How much the check says about the model; empty if the claim cannot be simulated."""
    because: str = ""
    """Why it has this strength."""
    meets: str = ""
    """Which of two published targets ours meets, where the paper's text and a second source differ; empty if there is one target."""


RANK = {
    Verdict.REPRODUCED.value: 0,
    Verdict.SHAPE_ONLY.value: 1,
    Verdict.NOT_REPRODUCED.value: 2,
    Verdict.NOT_TESTED.value: 3,
    Verdict.NOT_SIMULABLE.value: 4,
}


def outcomes(figures: Sequence[Figure], results: Mapping[str, FigureRuns]) -> list[Outcome]:
    """All claims of the figures that were run, in the order of claims.csv.

    Raises `Mistakes` if a check raises an exception other than `Missing`: no verdict follows from a check with a mistake.
    """
    found, mistakes = {}, []
    for figure in figures:
        for judgement in figure.judgements():
            try:
                found[judgement.claim] = _outcome(figure, judgement, results[figure.id])
            except Exception as why:
                mistakes.append(Mistake(f"{figure.id}: the check of claim {judgement.claim}", why))
    if mistakes:
        raise Mistakes(mistakes)
    return [found[name] for name in claims() if name in found]


def skipped() -> list[Outcome]:
    """All claims that cannot be simulated, with the reasons."""
    return [_of(claims()[name], Verdict.NOT_SIMULABLE, reason) for name, reason in not_simulable().items()]


def _outcome(figure: Figure, judgement: Judgement, results: FigureRuns) -> Outcome:
    claim = claims()[judgement.claim]
    finding, judged, missing = _look(figure, judgement, claim, results.mean)
    alone = [_look(figure, judgement, claim, runs) for runs in results.seeds]
    # A claim that is only calculated has no case and no seed.
    seeds = len(results.seeds) if len(results.mean) else 0
    lacking = ""
    if seeds:
        # The verdict that enough seeds reach is that of the last one needed, from the best down.
        ranked = sorted(alone, key=lambda look: RANK[look[1].verdict.value])
        reached = ranked[math.ceil(SHOWN_BY * seeds) - 1]
        if judgement.each_seed:
            finding, judged, missing = reached
        elif judged.verdict is Verdict.REPRODUCED and reached[1].verdict is not Verdict.REPRODUCED:
            showing = sum(one.verdict is Verdict.REPRODUCED for _, one, _ in alone)
            lacking = f"{MEAN_ONLY} {showing} of {seeds} seeds alone do"
            judged, missing = replace(judged, verdict=reached[1].verdict), reached[2]
    values = [one.low for one, _, _ in alone if one is not None and one.low is not None] if seeds else []
    at_least = [one for _, one, _ in alone if RANK[one.verdict.value] <= RANK[judged.verdict.value]]
    off = judged.verdict is not Verdict.REPRODUCED
    absent = finding.absent if finding and judged.verdict is Verdict.NOT_TESTED else ""
    explained = judgement.why if off and not missing else ""
    why = absent or "; ".join(text for text in (missing, lacking, explained) if text)
    return _of(
        claim,
        judged.verdict,
        why,
        figure=figure.id,
        ours=finding.ours() if finding else "",
        ours_low=finding.low if finding else None,
        ours_high=finding.high if finding else None,
        deviation=judged.deviation,
        seeds=seeds,
        spread=statistics.stdev(values) if len(values) > 1 else None,
        agreeing=len(at_least) if seeds else 0,
        strength=judgement.strength.value,
        because=judgement.because,
        meets=_meets(claim, judged, finding, [one for one, _, _ in alone]),
    )


def _meets(claim: Claim, judged: Judged, finding: Finding | None, alone: Sequence[Finding | None]) -> str:
    """Which of a claim's two targets ours meets: the second one by the same bands, for the mean and for enough seeds alone."""
    if not claim.second_source or finding is None or finding.absent:
        return ""
    text = judged.verdict is Verdict.REPRODUCED
    showing = sum(_meets_second(claim, one) for one in alone)
    second = _meets_second(claim, finding) and showing >= math.ceil(SHOWN_BY * len(alone))
    if text == second:
        return "both" if text else "neither"
    return "the text" if text else claim.second_source


def _meets_second(claim: Claim, finding: Finding | None) -> bool:
    if finding is None or finding.absent:
        return False
    if finding.second:
        return all(finding.second.values())
    return judge(claim.second(), finding).verdict is Verdict.REPRODUCED


def _look(figure: Figure, judgement: Judgement, claim: Claim, runs: Runs) -> tuple[Finding | None, Judged, str]:
    """A claim's finding and verdict. If a run failed or the model gives no value, the claim is not tested, and the text says why."""
    try:
        finding = judgement.judge(figure, runs)
    except Missing as why:
        return None, Judged(Verdict.NOT_TESTED), str(why)
    return finding, judge(claim, finding), ""


def _of(claim: Claim, verdict: Verdict, why: str, **found: Any) -> Outcome:
    """A claim's outcome: the text of the claim and the finding."""
    return Outcome(
        id=claim.id,
        paper=claim.paper,
        where=claim.where,
        kind=claim.kind,
        metric=claim.metric,
        claim=claim.text,
        unit=claim.unit,
        verdict=verdict.value,
        published=claim.published(),
        why=why,
        **found,
    )


def score(found: Sequence[Outcome]) -> dict[str, Any]:
    """Number of claims per verdict, for all, per strength, and for the headline.

    `simulable` is the number of all others than `not simulable`; `tested` leaves out `not tested` as well.
    """
    counted = [outcome for outcome in found if outcome.strength in {strength.value for strength in HEADLINE}]
    return {
        **_counts(found),
        "strengths": {
            strength.value: _counts([outcome for outcome in found if outcome.strength == strength.value])
            for strength in Strength
        },
        "headline": _counts(counted),
    }


def _counts(found: Sequence[Outcome]) -> dict[str, int]:
    counts = {verdict.value.replace(" ", "_"): 0 for verdict in Verdict}
    for outcome in found:
        counts[outcome.verdict.replace(" ", "_")] += 1
    simulable = len(found) - counts["not_simulable"]
    return {"simulable": simulable, "tested": simulable - counts["not_tested"], **counts}


def document(found: Sequence[Outcome], quick: bool, seeds: int) -> dict[str, Any]:
    """The complete record."""
    folders = [folder for folder, _ in PAPERS.values()]
    order = {name: index for index, name in enumerate(claims())}
    found = sorted(found, key=lambda outcome: order[outcome.id])
    return {
        "schema": SCHEMA,
        "version": _native.__version__,
        "quick": quick,
        "seeds": seeds,
        "total": score(found),
        "papers": {
            paper: score([outcome for outcome in found if outcome.paper == paper])
            for paper in folders
            if any(outcome.paper == paper for outcome in found)
        },
        "claims": [asdict(outcome) for outcome in found],
    }


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Claims whose verdict differs between two records; those that got worse come first."""
    before = {claim["id"]: claim for claim in old["claims"]}
    found = []
    for claim in new["claims"]:
        was = before.get(claim["id"])
        if was is not None and was["verdict"] != claim["verdict"]:
            found.append(
                {
                    "id": claim["id"],
                    "was": was["verdict"],
                    "is": claim["verdict"],
                    "was_ours": was["ours"],
                    "ours": claim["ours"],
                    "published": claim["published"],
                    "worse": RANK[claim["verdict"]] > RANK[was["verdict"]],
                }
            )
    return sorted(found, key=lambda change: not change["worse"])
