"""The table over many scenarios: its arithmetic, by hand, and that a comparison continues."""

import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest

import waykeeper as wk

SCRIPT = Path(__file__).parents[2] / "scripts/compare_policies.py"


@pytest.fixture(scope="module")
def compare():
    spec = importlib.util.spec_from_file_location("compare_policies", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module.
    sys.modules["compare_policies"] = module
    spec.loader.exec_module(module)
    return module


def entry(hpw, lpw=1.0, regret=None, settled=None, knobs=0):
    return {"hpw": hpw, "lpw": lpw, "regret": regret, "settled_intervals": settled, "knobs_turned": knobs}


def record(scenario, policy, high, low, seed=101, settled=None, knobs=0):
    """A run with an HPW on one core and an LPW on another."""
    scores = {"h": ["ipc", 1, True, high], "l": ["ipc", 1, False, low]}
    return {"scenario": scenario, "chip": "gold-6140", "policy": policy, "seed": seed, "cpu_s": 1.0, "scores": scores,
            "settled_intervals": settled, "knobs_turned": knobs}  # fmt: skip


def test_rows_are_means_over_seeds_and_a_run_that_never_settled_counts_as_infinite(compare):
    row = compare.row_of(
        [entry(1.1, 0.9, 0.02, 5.0, 10), entry(1.3, 1.0, 0.04, None, 20), entry(1.2, 1.1, 0.03, 9.0, 30)]
    )
    assert (
        row["hpw"] == pytest.approx(1.2) and row["lpw"] == pytest.approx(1.0) and row["regret"] == pytest.approx(0.03)
    )
    # Standard deviation 0.1, divided by the root of 3.
    assert row["hpw_error"] == pytest.approx(0.1 / math.sqrt(3))
    # The median of 5, infinite and 9.
    assert row["settled"] == 9.0 and row["knobs_turned"] == 20
    assert compare.row_of([entry(1.0)])["settled"] == 0.0, "it turned nothing"
    assert compare.row_of([entry(1.0, knobs=3)])["never_settled"]
    assert compare.row_of([]) is None


def test_intervals_count_from_the_last_change_of_the_scenario(compare):
    # Intervals of 2 s: settled 6 s after the change at 22 s; settled at 8 s and left alone at 22 s.
    assert compare.intervals(28.0, 22.0, 2.0) == 3.0 and compare.intervals(8.0, 22.0, 2.0) == 0.0
    assert compare.intervals(None, 22.0, 2.0) is None
    text = (
        'name = "m"\n[[workload]]\nname = "x"\nprogram = "x-mem"\ncores = 0\nworking_set = "1 MiB"\nstart_s = 5\n'
        'stop_s = 90\n[[workload.phase]]\nat_s = 12\nworking_set = "2 MiB"\n'
    )
    assert compare.last_change_s(wk.Scenario.parse(text.replace("stop_s = 90\n", ""))) == 12
    # Measured from 60 s on: an exit at 65 s does not count, one at 50 s does.
    assert compare.last_change_s(wk.Scenario.parse(text.replace("90", "65"))) == 12
    assert compare.last_change_s(wk.Scenario.parse(text.replace("90", "50"))) == 50


def test_a_policy_is_compared_with_the_better_rival_of_each_scenario_and_judged(compare):
    records = [record(name, "default", 1.0, 1.0) for name in ("one", "two")]
    records += [record("one", "iat", 1.1, 1.0, knobs=4), record("one", "a4-d", 1.2, 1.0, knobs=10)]
    records += [record("two", "iat", 1.5, 1.0, knobs=4), record("two", "a4-d", 1.0, 1.0, knobs=20)]
    records += [record("one", "best", 1.5, 1.0), record("two", "best", 1.5, 1.0)]
    records += [record("one", "waykeeper", 1.32, 0.98, settled=4.0, knobs=2)]
    records += [record("two", "waykeeper", 1.35, 0.96, settled=8.0, knobs=4)]
    found = compare.comparison(records, ["default", "iat", "a4-d", "waykeeper"], "waykeeper")
    summary = found["summary"]["waykeeper"]
    # 1.32 / 1.2 = 1.1 and 1.35 / 1.5 = 0.9; the geometric mean is the root of 0.99.
    assert summary["against_rivals"] == pytest.approx(math.sqrt(0.99))
    measured = {bar["name"]: (bar["measured"], bar["met"], bar["worst"]) for bar in found["bars"]}
    rival = "HPW mean / better of iat and a4-d, "
    assert measured[rival + "geometric mean"][1] is False
    assert measured[rival + "lowest"] == (pytest.approx(0.9), False, ("two",))
    assert measured["LPW mean / default, lowest"] == (pytest.approx(0.96), False, ("two",))
    # Best over rival: 1.5 / 1.2 and 1; regrets 1 - 1.32 / 1.5 and 1 - 1.35 / 1.5.
    assert measured["the same of the best layouts known"][0] == pytest.approx(math.sqrt(1.25))
    assert measured["regret, median"] == (pytest.approx(0.11), False, ())
    assert measured["regret, worst"] == (pytest.approx(0.12), False, ("one",))
    assert measured["intervals to settle, median"] == (6.0, False, ())
    assert measured["knobs turned, mean"] == (3.0, True, ()) and found["no_room"] == ["two"]
    text = compare.table(found, ["default", "iat", "a4-d", "waykeeper"], "waykeeper")
    assert "MISSED" in text and "no run of" not in text
    assert compare.comparison(records[:2], ["default"], "waykeeper")["bars"] == []


def test_mixes_have_their_kind(compare):
    # A round of five chips in four is drawn without contention: the mixes 15 to 19.
    kinds = [compare.kind_of(name) for name in ("a4-hpw-heavy", "mix-1-14", "mix-1-15", "mix-7-19", "mix-1-20")]
    assert kinds == ["given", "contended", "other", "other", "contended"]


def test_a_comparison_continues_and_refuses_unknown_words(compare, tiny, tmp_path, capsys):
    file = tmp_path / "tiny.toml"
    file.write_text(tiny.text, encoding="utf-8")
    words = [str(file), "--policy", "default", "--policy", "isolate", "--out", str(tmp_path / "c")]
    assert compare.main([*words, "--seeds", "1"]) == 0
    first = {path: path.stat().st_mtime_ns for path in (tmp_path / "c/runs").glob("*.json")}
    assert {path.name.split(".")[2] for path in first} == {"101"} and len(first) == 2
    assert compare.main([*words, "--seeds", "2", "--again", "isolate"]) == 0
    kept = [path for path, stamp in first.items() if path.stat().st_mtime_ns == stamp]
    assert len(list((tmp_path / "c/runs").glob("*.json"))) == 4 and [".default." in str(path) for path in kept] == [
        True
    ]
    assert "over 1 scenarios" in capsys.readouterr().out
    assert compare.main([*words, "--seeds", "2", "--table-only", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["scenarios"]["tiny"]["policies"]
    run = wk.run(str(file), ["default", "isolate"], seed=101, seeds=2, extrapolate=True, progress=False)
    assert rows["isolate"]["seeds"] == 2
    assert rows["isolate"]["hpw"] == pytest.approx(run.policy("isolate").group("HPW").performance_ratio, rel=1e-9)
    assert compare.main([str(file), "--policy", "no-such", "--out", str(tmp_path / "d")]) == 2
    assert capsys.readouterr().err.startswith("error: unknown policy") and not (tmp_path / "d").exists()
