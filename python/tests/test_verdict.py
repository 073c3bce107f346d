"""Verdicts on made-up results: what must be reproduced is, what must fail does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waykeeper.repro.bands import lacks
from waykeeper.repro.claims import Claim, claims
from waykeeper.repro.finding import Finding, checks, knee, number, span
from waykeeper.repro.verdict import Verdict, judge

YES, SHAPE, NO = Verdict.REPRODUCED, Verdict.SHAPE_ONLY, Verdict.NOT_REPRODUCED


def claim(kind, low=None, high=None, unit="percent increase"):
    return Claim("ATC20-X-1", "", "", "", "", "made up", low, high, unit, kind, False, "")


@pytest.mark.parametrize(
    ("published", "ours", "verdict"),
    [
        # 30 % published: 15 to 60 is within 0.5 to 2 times.
        ((30, 30), number(30), YES),
        ((30, 30), number(15), YES),
        ((30, 30), number(60), YES),
        ((30, 30), number(14.9), SHAPE),
        ((30, 30), number(60.1), SHAPE),
        ((30, 30), number(-1), NO),
        ((30, 30), number(0), NO),
        ((30, 30), number(None), NO),
        # -58 % is undone by +138 %: +69 to +276 %, so -40.8 to -73.4 %.
        ((-58, -58), number(-41), YES),
        ((-58, -58), number(-73), YES),
        ((-58, -58), number(-40), SHAPE),
        ((-58, -58), number(-74), SHAPE),
        ((-58, -58), number(40), NO),
        ((-58, -58), number(-100), SHAPE),
        # No effect published: up to 5 %.
        ((0, 0), number(4.9), YES),
        ((0, 0), number(-4.9), YES),
        ((0, 0), number(7), SHAPE),
        ((0, 0), number(11), NO),
        ((1.5, 1.5), number(-4), YES),
        # "Up to 30 %": the largest of ours counts.
        ((0, 30), span(3, 40), YES),
        ((0, 30), span(0, 8), SHAPE),
        # An interval over a sweep: both ends.
        ((5, 175), span(4, 200), YES),
        ((5, 175), span(4, 20), SHAPE),
        ((5, 175), span(-10, 200), NO),
        # One number against an interval: its nearest point.
        ((53.6, 111.5), number(80), YES),
        ((53.6, 111.5), number(240), SHAPE),
        # The figure's own view of the shape overrides the sign.
        ((30, 30), number(3, shape=False), NO),
        ((30, 30), number(90, shape=True), SHAPE),
    ],
)
def test_relative_effects(published, ours, verdict):
    assert judge(claim("relative", *published), ours).verdict is verdict


def test_a_ceiling_is_kept_or_not():
    ceiling = replace(claim("relative", 0, 6.4, "percent"), text="at most 6.4% with Redis")
    assert ceiling.is_ceiling and not claim("relative", 0, 6.4).is_ceiling
    assert judge(ceiling, span(0.1, 0.9)).verdict is YES
    assert judge(ceiling, number(6.4)).verdict is YES
    assert judge(ceiling, number(6.5)).verdict is SHAPE
    assert judge(ceiling, number(13)).verdict is NO


def test_claims_that_are_ceilings():
    # "Up to", "almost" and two published numbers are none.
    assert {name for name, one in claims().items() if one.is_ceiling} == {
        "ISCA21-F3-2",
        "ISCA21-F12-3",
        "ISCA21-F13-3",
        "ISCA21-F13-4",
        "ISCA25-F8A-3",
        "ISCA25-F8A-4",
    }


@pytest.mark.parametrize(
    ("published", "ours", "verdict"),
    [
        # A ratio of 2.5 is an effect of 150 %: 1.75 to 4.
        (2.5, 2.5, YES),
        (2.5, 1.75, YES),
        (2.5, 4.0, YES),
        (2.5, 1.7, SHAPE),
        (2.5, 1.0, NO),
        (2.5, 0.5, NO),
        (1.0, 1.04, YES),
        (1.0, 1.2, NO),
    ],
)
def test_a_ratio_is_an_effect_around_one(published, ours, verdict):
    assert judge(claim("relative", published, published, "ratio"), number(ours)).verdict is verdict


@pytest.mark.parametrize(
    ("published", "ours", "verdict"),
    [
        ((40, 40), number(50), YES),
        ((40, 40), number(30), YES),
        ((40, 40), number(50.1), SHAPE),
        ((40, 40), number(81), NO),
        ((40, 40), number(19.9), NO),
        ((40, 40), number(100, shape=True), SHAPE),
        ((40, 40), number(None), NO),
        # A ceiling is met by anything below it, a floor by anything above.
        ((0, 30), number(2), YES),
        ((0, 30), span(0, 30), YES),
        ((0, 30), span(0, 30.1), SHAPE),
        ((0, 30), span(0, 80), NO),
        ((3000, None), number(9000), YES),
        ((3000, None), number(2990), SHAPE),
        ((3000, None), number(1000), NO),
        ((82, 86), span(80, 88), YES),
        ((82, 86), number(84), YES),
        ((82, 86), span(20, 88), NO),
    ],
)
def test_absolute_numbers(published, ours, verdict):
    assert judge(claim("absolute", *published), ours).verdict is verdict


@pytest.mark.parametrize(("ours", "verdict"), [(90, YES), (68, YES), (91, SHAPE), (67, SHAPE), (40, NO)])
def test_a_maximum_is_reached_and_not_exceeded(ours, verdict):
    assert judge(claim("absolute", 90, 90, "Gbps (upper bound)"), number(ours)).verdict is verdict


@pytest.mark.parametrize(("ours", "verdict"), [(23, YES), (18, YES), (17, SHAPE), (38, YES), (53.7, SHAPE), (-5, NO)])
def test_a_ratio_has_one_verdict_in_both_directions(ours, verdict):
    # 30 % less is undone by 42.9 % more: 21.4 to 85.7 %, so 17.6 to 46.2 % less.
    assert judge(claim("relative", 30, 30, "percent reduction"), number(ours)).verdict is verdict
    more, published = 100 / (1 - ours / 100) - 100, 100 / 0.7 - 100
    assert judge(claim("relative", published, published), number(more)).verdict is verdict


@pytest.mark.parametrize(("ours", "verdict"), [(99.2, YES), (95.1, YES), (94.9, SHAPE), (89, NO), (111, NO)])
def test_a_part_of_something_is_an_effect_around_a_hundred(ours, verdict):
    assert judge(claim("relative", 99.2, 99.2, "percent of the oracle"), number(ours)).verdict is verdict


def test_what_a_claim_states_besides_its_number_must_hold():
    assert judge(claim("relative", 30, 30), number(30, holds={"it is the largest": True})).verdict is YES
    assert judge(claim("relative", 30, 30), number(30, holds={"it is the largest": False})).verdict is NO


@pytest.mark.parametrize("kind", ["shape", "ordering"])
def test_shapes_are_exact(kind):
    assert judge(claim(kind), checks({"rises": True, "ends": True})).verdict is YES
    assert judge(claim(kind), checks({"rises": True, "ends": False})).verdict is NO


def test_knees_are_in_place_or_only_there():
    published = claim("shape", 75, 75, "Gbps (knee)")
    assert judge(published, knee(80, True)).verdict is YES
    assert judge(published, knee(40, True)).verdict is SHAPE
    assert judge(published, knee(40, True, step=40)).verdict is YES
    assert judge(published, knee(75, False)).verdict is NO
    assert judge(published, knee(None, True)).verdict is SHAPE
    assert judge(published, knee(75, True, high=90)).verdict is YES
    assert judge(published, knee(75, True, high=95)).verdict is SHAPE
    # At the end of a sweep a quarter would pass any knee: only the grid's step counts.
    assert judge(published, knee(70, True, 5, at_end=True)).verdict is YES
    assert judge(published, knee(69, True, 5, at_end=True)).verdict is SHAPE


def test_a_finding_of_the_wrong_sort_is_a_mistake_of_the_figure():
    with pytest.raises(ValueError, match="needs one"):
        judge(claim("relative", 30, 30), checks({"higher": True}))
    with pytest.raises(ValueError, match="needs checks"):
        judge(claim("ordering"), Finding())
    with pytest.raises(ValueError, match="no statement"):
        checks({})


@given(st.floats(2.1, 500), st.floats(-1000, 1000))
def test_nothing_outside_the_band_is_ever_reproduced(published, ours):
    verdict = judge(claim("relative", published, published), number(ours)).verdict
    assert (verdict is YES) == (0.5 * published <= ours <= 2 * published)
    if ours <= 0:
        assert verdict is NO


@given(st.floats(0.1, 1e6), st.floats(-1e6, 1e6))
def test_absolute_numbers_are_within_a_quarter_or_not_reproduced(published, ours):
    verdict = judge(claim("absolute", published, published, "GB/s"), number(ours)).verdict
    assert (verdict is YES) == (abs(ours - published) <= 0.25 * published)


def test_the_deviation_is_that_of_the_worse_end():
    assert judge(claim("absolute", 40, 40), number(50)).deviation == pytest.approx(0.25)
    assert judge(claim("relative", 50, 100), span(50, 200)).deviation == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ours", "published", "is_lacking"),
    [(9.9, 20, True), (10, 20, False), (-30, 20, True), (1.9, None, True), (2, None, False)],
)
def test_less_than_half_of_a_published_effect_is_none(ours, published, is_lacking):
    assert lacks(ours, published) is is_lacking
