"""The table over many scenarios: its arithmetic, by hand, and that a comparison continues."""

import importlib.util
import math
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/compare_policies.py"


@pytest.fixture(scope="module")
def compare():
    spec = importlib.util.spec_from_file_location("compare_policies", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entry(hpw, lpw=1.0, regret=None, settled=None, knobs=0):
    return {"hpw": hpw, "lpw": lpw, "regret": regret, "settled_intervals": settled, "knobs_turned": knobs}


def test_rows_are_means_over_seeds_and_a_run_that_never_settled_counts_as_infinite(compare):
    row = compare.row_of(
        [entry(1.1, 0.9, 0.02, 5.0, 10), entry(1.3, 1.0, 0.04, None, 20), entry(1.2, 1.1, 0.03, 9.0, 30)]
    )
    assert (
        row["hpw"] == pytest.approx(1.2) and row["lpw"] == pytest.approx(1.0) and row["regret"] == pytest.approx(0.03)
    )
    # The median of 5, infinite and 9.
    assert row["settled"] == 9.0 and row["knobs_turned"] == 20
    assert compare.row_of([entry(1.0)])["settled"] == 0.0, "it turned nothing"
    assert math.isinf(compare.row_of([entry(1.0, knobs=3)])["settled"])


def test_a_policy_is_compared_with_the_better_rival_of_each_scenario(compare):
    rows = {
        "one": {"iat": entry(1.1), "a4-d": entry(1.2), "waykeeper": entry(1.32)},
        "two": {"iat": entry(1.5), "a4-d": entry(1.0), "waykeeper": entry(1.35)},
    }
    ratios = [compare.against_rivals(row, "waykeeper") for row in rows.values()]
    # 1.32 / 1.2 and 1.35 / 1.5; the geometric mean is the root of 0.99.
    assert ratios == pytest.approx([1.1, 0.9]) and compare.geometric(ratios) == pytest.approx(math.sqrt(0.99))


def test_a_comparison_continues_and_refuses_unknown_words(compare, tiny, tmp_path, capsys):
    file = tmp_path / "tiny.toml"
    file.write_text(tiny.text, encoding="utf-8")
    words = [str(file), "--policy", "default", "--policy", "isolate", "--out", str(tmp_path / "c")]
    assert compare.main([*words, "--seeds", "1"]) == 0
    (first,) = (tmp_path / "c/runs").glob("*.json")
    stamp = first.stat().st_mtime_ns
    assert compare.main([*words, "--seeds", "2"]) == 0
    assert len(list((tmp_path / "c/runs").glob("*.json"))) == 2 and first.stat().st_mtime_ns == stamp
    assert "over 1 scenarios" in capsys.readouterr().out
    assert compare.main([str(file), "--policy", "no-such", "--out", str(tmp_path / "d")]) == 2
    assert capsys.readouterr().err.startswith("error: unknown policy") and not (tmp_path / "d").exists()
