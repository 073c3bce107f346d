"""One table of bands: no figure has a band of its own, and each function takes its limit from the table."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import waykeeper.repro
from waykeeper.repro import bands
from waykeeper.repro.bands import EFFECT, FAR, SAME, TABLE

PAPERS = Path(waykeeper.repro.__file__).parent / "papers"

PLACES_AND_COUNTS = {
    "a4/fig03.py": {"index > 1"},
    "a4/fig05.py": {"kib > 32", "kib >= 128", 'key[0] != "depth"'},
    "a4/fig06.py": {"kib >= 128", "kib >= 16"},
    "a4/fig13a.py": {"len(slower) > len(names(run)) / 2"},
    "a4/fig13b.py": {"len(ports[0]) == 1"},
    "ddio_bench/common.py": {"count == 1"},
    "ddio_bench/fig03.py": {"starts == 2"},
    "ddio_bench/fig08.py": {"rate <= 75"},
    "ddio_bench/fig10.py": {"n >= 4"},
    "ddio_bench/fig11.py": {"count == 2"},
    "ddio_bench/fig12.py": {"ways > 2"},
    "ddio_bench/path.py": {'abs(_accesses(runs["classic", size]) / (2 * lines + 5) - 1) <= ABSOLUTE'},
    "ddio_bench/text.py": {"all_of_it / 1024 < _ddio_mib()"},
    "iat/fig03.py": {"first <= 256"},
    "iat/fig08.py": {"len(grown) > 1"},
    "iat/fig09.py": {"containers == 2", "count > 2"},
    "iat/fig10.py": {'_ways(run.way_map[-1]["masks"][name]) < 2'},
    "idio/text.py": {
        "[size / 2**20 for size in sizes] == [2.5, 1.375]",
        '[chip["llc"]["ways"] for chip in (old, new)] == [20, 11]',
        "mlcs[1] == 4 * mlcs[0] == 2**20",
    },
}
"""The only comparisons with a number: places on a grid, counts, and sizes that the claim itself states."""

SOURCE = re.compile(r"\b(ATC20|ISCA21|MEMLOAD|CAL20|ISCA25)-[A-Z0-9.]+|\bTable [IV\d]+\b")
"""What the text of a figure's constant names if the constant is a published number."""

CURVES = ("rising", "falling", "about_equal")


def own_bands(text, allowed=frozenset()):
    """Places where a figure compares with a number that is neither in `allowed` nor a constant with a source."""
    tree = ast.parse(text)
    constants, sourced = set(), set()
    for node, after in zip(tree.body, [*tree.body[1:], None]):
        if isinstance(node, ast.Assign) and any(map(_is_number, ast.walk(node.value))):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            constants |= names
            doc = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            sourced |= names if SOURCE.search(str(doc)) else set()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if any(isinstance(one, (ast.In, ast.NotIn)) for one in node.ops):
                continue
            terms = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CURVES:
            terms = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in vars(bands):
            # A band's function may compare with 1: numbers relative to another.
            terms = node.args
        else:
            continue
        source = " ".join(ast.get_source_segment(text, node).split())
        if source in allowed:
            continue
        for term in terms:
            for part in _terms(term):
                if _is_number(part) and part.value not in (0, 1, 100):
                    found.append(f"{node.lineno}: {source}: {part.value}")
                if isinstance(part, ast.Name) and part.id in constants - sourced and isinstance(node, ast.Compare):
                    if not all(isinstance(one, ast.NotEq) for one in node.ops):
                        found.append(f"{node.lineno}: {source}: {part.id} names no claim or table that it is from")
    return found


def _is_number(node):
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _terms(node):
    """A term and its parts, without indices, keys and what is passed to functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.Subscript) and child is node.slice:
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") not in (
            "abs",
            "min",
            "max",
            "sum",
            "all",
            "any",
        ):
            continue
        yield from _terms(child)


@pytest.mark.parametrize("path", sorted(PAPERS.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_figure_has_a_band_of_its_own(path):
    name = f"{path.parent.name}/{path.name}"
    assert own_bands(path.read_text(encoding="utf-8"), PLACES_AND_COUNTS.get(name, frozenset())) == []


def test_the_list_of_places_and_counts_has_only_what_is_there():
    for name, comparisons in PLACES_AND_COUNTS.items():
        tree = ast.parse(text := (PAPERS / name).read_text(encoding="utf-8"))
        there = {
            " ".join(ast.get_source_segment(text, node).split())
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare)
        }
        assert comparisons <= there, (name, comparisons - there)


@pytest.mark.parametrize(
    "text",
    [
        "misses > 1.05 * quiet",
        "0.9 * full >= value",
        "abs(new / old - 1) < 0.05",
        "gain > 3",
        "read / 2 <= write",
        "warm > cold + 20",
        "rising(curve, 0.02)",
        "falling(curve, slack=0.01)",
        "about_equal(values, 1 / 3)",
        "higher(new, 0.9 * old)",
        "RAISED = 1.4\nmisses > RAISED * quiet",
        'RAISED = 1.4\n"""Our choice."""\nmisses > RAISED * quiet',
    ],
)
def test_a_band_of_its_own_is_noticed(text):
    assert own_bands(text)


@pytest.mark.parametrize(
    "text",
    [
        "higher(new, old)",
        "same(part, 1)",
        "nearly_all(hits / 100)",
        'runs["T5", 0.9] == runs["T5", 0.95]',
        "rising(curve, EFFECT)",
        'SHARE = 5.0\n"""Not sensitive up to here (Table 2, ATC20-T2-9), %."""\nchange > SHARE',
    ],
)
def test_what_is_no_band_passes(text):
    assert own_bands(text) == []


def test_every_band_has_a_meaning_and_a_reason_and_is_in_the_table_once():
    there = {name.lower(): value for name, value in vars(bands).items() if isinstance(value, bands.Band)}
    assert there == TABLE
    for name, band in TABLE.items():
        assert len(band.meaning) > 20 and len(band.reason) > 5 and 0 < band < 1, name
    assert (EFFECT.text, SAME.points, FAR.percent) == ("2 %", "5 points", 10)


@pytest.mark.parametrize(
    ("function", "yes", "no"),
    [
        # Of 100: an effect is over 2, the same is up to 5, about the same up to 10, far is over 10.
        (bands.higher, (102.1, 100), (101.9, 100)),
        (bands.lower, (97.9, 100), (98.1, 100)),
        (bands.far_higher, (110.1, 100), (109.9, 100)),
        (bands.far_lower, (89.9, 100), (90.1, 100)),
        (bands.not_higher, (104.9, 100), (105.1, 100)),
        (bands.not_lower, (95.1, 100), (94.9, 100)),
        (bands.raised, (105.1, 100), (104.9, 100)),
        (bands.lowered, (94.9, 100), (95.1, 100)),
        (bands.same, (95.1, 100), (94.9, 100)),
        (bands.alike, (90.1, 100), (89.9, 100)),
        (bands.nearly_all, (0.91,), (0.9,)),
        (bands.hardly_any, (0.09,), (0.1,)),
        (bands.some, (0.11,), (0.1,)),
        (bands.most, (0.51,), (0.5,)),
        (bands.many_times, (201, 100), (200, 100)),
        (bands.of_size, (200, 100), (201, 100)),
        (bands.of_size, (50, 100), (49, 100)),
        # Of a negative number the distance counts, not the ratio.
        (bands.higher, (-97.9, -100), (-98.1, -100)),
        (bands.not_lower, (-104.9, -100), (-105.1, -100)),
    ],
)  # fmt: skip
def test_each_function_has_the_limit_of_its_band(function, yes, no):
    assert function(*yes) and not function(*no)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_raised_is_the_opposite_of_not_higher_and_needs_an_effect(value, other):
    assert bands.raised(value, other) is not bands.not_higher(value, other)
    assert bands.lowered(value, other) is not bands.not_lower(value, other)
    assert bands.same(value, other) == (bands.not_higher(value, other) and bands.not_lower(value, other))
    if bands.raised(value, other):
        assert bands.higher(value, other)
