"""The suite itself: every claim once, runs kept and shared, outcomes, report, diff."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from waykeeper.repro import (
    MEDIUM,
    STRONG,
    WEAK,
    Case,
    Figure,
    Panel,
    Points,
    Series,
    absent,
    checks,
    claim,
    number,
    registry,
)
from waykeeper.repro.__main__ import main
from waykeeper.repro.claims import PAPERS, claims
from waykeeper.repro.curves import about_equal, crossing, falling, rising, spread_ratio
from waykeeper.repro.engine import mean, run_figures
from waykeeper.repro.figure import CaseRun, Runs
from waykeeper.repro.finding import CaseFailed, NotAvailable
from waykeeper.repro.mistake import Mistakes
from waykeeper.repro.outcome import SCHEMA, changes, document, outcomes, score, skipped
from waykeeper.repro.report import write, write_docs


def test_every_claim_is_looked_at_once_or_has_a_reason():
    assert len(claims()) == 327
    assert registry.problems() == []
    judged = {judgement.claim for figure in registry.figures().values() for judgement in figure.judgements()}
    assert judged | set(registry.not_simulable()) == set(claims())
    assert all(len(reason) > 20 for reason in registry.not_simulable().values())


def test_a_claim_dropped_by_mistake_is_noticed(monkeypatch):
    reasons = dict(registry.not_simulable())
    dropped, doubled = list(reasons)[0], next(iter(claims()))
    del reasons[dropped]
    monkeypatch.setattr(registry, "not_simulable", lambda: {**reasons, doubled: "twice", "ATC20-NONE": "unknown"})
    problems = "\n".join(registry.problems())
    assert "strength" not in problems
    assert f"claim {dropped}" in problems and f"claim {doubled} is evaluated more than once" in problems
    assert "ATC20-NONE" in problems


def test_claims_that_need_no_hardware_are_judged():
    for name, reason in registry.not_simulable().items():
        assert claims()[name].hardware_only or "cannot" in reason or "would" in reason or "host" in reason, name


@pytest.mark.parametrize("quick", [True, False])
def test_every_figure_has_a_grid_that_can_be_read(quick):
    from waykeeper.repro.engine import _job

    for figure in registry.figures().values():
        assert figure.id.split("/")[0].replace("-", "_") in {folder for folder, _ in PAPERS.values()}
        cases = list(figure.cases(quick))
        keys = [case.key for case in cases]
        assert len(keys) == len(set(keys)), figure.id
        for case in cases:
            _job(case, 1).scenario.check()


class MadeUp(Figure):
    """Two claims on two runs of milliseconds."""

    id = "a4/made-up"
    title = "made up"
    assumes = ["nothing"]

    def cases(self, quick):
        for size in ("1 MiB", "16 MiB") if quick else ("1 MiB", "4 MiB", "16 MiB"):
            yield Case(size, SCENARIO, {"workload.reader.working_set": size})

    def panels(self, runs):
        sizes = runs.keys()
        hits = [runs[size].workload("reader").mlc_hit_ratio for size in sizes]
        yield Panel("hits", "working set", "ratio", [Series("ours", sizes, hits)], [Points("paper", sizes, hits)])
        yield Panel("lines", "MiB", "ratio", [Series("ours", [1, 16], hits[:2])], log_x=True)

    @claim("ISCA25-F5-2", STRONG, "the hit ratio may rise or fall")
    def larger_sets_hit_less(self, runs):
        return checks({"falls": falling([runs[size].workload("reader").mlc_hit_ratio for size in runs.keys()])})

    @claim("ISCA25-F12-1", WEAK, "a number of this test", why="it is made up")
    def a_number(self, runs):
        return number(100 * runs["1 MiB"].workload("reader").mlc_hit_ratio)

    @claim(
        "ISCA25-F12-2",
        MEDIUM,
        "a number that the model does not give without a device",
        why="not said: it is not tested",
    )
    def no_number(self, runs):
        return number(runs["1 MiB"].system.dca_write_hit_ratio)


SCENARIO = {
    "name": "made up",
    "policies": ["none"],
    "duration_s": 0.02,
    "warmup_s": 0.01,
    "measure_s": 0.01,
    "time_factor": 1,
    "interval_s": 0.01,
    "workload": [{"name": "reader", "program": "x-mem", "cores": "0", "working_set": "1 MiB"}],
}


@pytest.fixture
def made_up(tmp_path):
    figure = MadeUp()
    results = run_figures([figure], quick=True, seeds=3, jobs=1, cache=tmp_path / "runs", progress=False)
    return figure, results, tmp_path


def test_runs_are_kept_and_used_again(made_up):
    figure, results, folder = made_up
    files = {file: file.stat().st_mtime_ns for file in (folder / "runs").iterdir()}
    assert len(files) == 6 and len(results[figure.id].seeds) == 3
    again = run_figures([figure], quick=False, seeds=3, jobs=1, cache=folder / "runs", progress=False)
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in files.items())
    assert len(list((folder / "runs").iterdir())) == 9
    assert again[figure.id].mean["1 MiB"] == results[figure.id].mean["1 MiB"]


def test_outcomes_tell_seeds_spread_and_why(made_up):
    figure, results, _ = made_up
    found = {outcome.id: outcome for outcome in outcomes([figure], results)}
    shape, off, lacking = (found[f"ISCA25-{name}"] for name in ("F5-2", "F12-1", "F12-2"))
    assert shape.verdict == "reproduced" and shape.seeds == 3 and shape.agreeing == 3 and shape.why == ""
    assert off.verdict == "not reproduced" and off.why == "it is made up" and off.spread is not None
    assert off.ours_low == off.ours_high and off.published == "-58 percent change"
    assert lacking.verdict == "not tested" and lacking.ours == "" and lacking.agreeing == 3
    assert lacking.why == "the model gives no dca_write_hit_ratio of the socket in case '1 MiB'"
    total = score(list(found.values()))
    assert counts(total) == {"simulable": 3, "tested": 2, "reproduced": 1, "not_reproduced": 1, "not_tested": 1}
    assert counts(total["strengths"]["strong"]) == {"simulable": 1, "tested": 1, "reproduced": 1}
    assert counts(total["strengths"]["medium"]) == {"simulable": 1, "not_tested": 1}
    assert counts(total["strengths"]["weak"]) == {"simulable": 1, "tested": 1, "not_reproduced": 1}
    assert counts(total["headline"]) == {"simulable": 2, "tested": 1, "reproduced": 1, "not_tested": 1}


def counts(row):
    """The counts of a row that are not zero."""
    return {name: count for name, count in row.items() if isinstance(count, int) and count}


def test_a_claim_about_a_removal_is_not_tested_where_ours_lacks_the_effect(made_up):
    figure, results, _ = made_up

    class Removal(MadeUp):
        id = "a4/made-up"

        @claim("ISCA25-F5-2", MEDIUM, "an ordering of two policies")
        def larger_sets_hit_less(self, runs):
            return absent("default loses 0.3 %, the paper has 7 %")

    (found,) = [outcome for outcome in outcomes([Removal()], results) if outcome.id == "ISCA25-F5-2"]
    assert found.verdict == "not tested" and found.why == "default loses 0.3 %, the paper has 7 %"
    assert counts(score([found])["headline"]) == {"simulable": 1, "not_tested": 1}


@pytest.mark.parametrize(
    ("seeds", "showing", "verdict"),
    [(5, 5, "reproduced"), (5, 4, "reproduced"), (5, 3, "not reproduced"), (5, 0, "not reproduced"),
     (3, 3, "reproduced"), (3, 2, "not reproduced"), (10, 8, "reproduced"), (10, 7, "not reproduced")],
)  # fmt: skip
def test_what_a_mean_shows_counts_only_if_four_of_five_seeds_show_it(made_up, seeds, showing, verdict):
    _, results, _ = made_up
    one = results["a4/made-up"]
    runs = [Runs({key: one.mean[key] for key in one.mean}) for _ in range(seeds)]
    which = {id(each): seed < showing for seed, each in enumerate(runs)}

    class Mean(MadeUp):
        id = "a4/made-up"

        @claim("ISCA25-F5-2", STRONG, "it depends on the seed")
        def larger_sets_hit_less(self, runs):
            return checks({"so": which.get(id(runs), True)})

    (found,) = [
        outcome
        for outcome in outcomes([Mean()], {"a4/made-up": replace(one, seeds=runs)})
        if outcome.id == "ISCA25-F5-2"
    ]
    assert found.verdict == verdict
    assert found.why == (
        "" if verdict == "reproduced" else f"the mean over seeds shows it, but only {showing} of {seeds} seeds alone do"
    )


@pytest.mark.parametrize(
    ("second", "ours", "meets"),
    [((10, 10), 2.5, "the text"), ((10, 10), 12, "artifact"), ((3, 3), 2.6, "both"), ((20, 20), 6, "neither")],
)
def test_a_claim_with_two_targets_says_which_ours_meets(made_up, monkeypatch, second, ours, meets):
    _, results, _ = made_up
    one = replace(claims()["ATC20-F3-2"], second_low=second[0], second_high=second[1])
    assert one.published() == f"2.5 ratio; artifact: {second[0]} ratio"
    monkeypatch.setitem(claims(), one.id, one)

    class Two(MadeUp):
        id = "a4/made-up"

        @claim("ATC20-F3-2", MEDIUM, "a number of this test")
        def a_ratio(self, runs):
            return number(ours)

    (found,) = [outcome for outcome in outcomes([Two()], results) if outcome.id == one.id]
    assert found.meets == meets


def test_every_second_target_has_a_source_and_a_note():
    for one in claims().values():
        if one.second_low is not None or one.second_high is not None:
            assert one.second_source, one.id
        if one.second_source:
            assert one.notes, one.id


@pytest.mark.parametrize(("flags", "verdict"), [((1, 1, 1), "reproduced"), ((1, 1, 0), "not reproduced")])
def test_a_claim_may_be_judged_on_each_seed(made_up, flags, verdict):
    _, results, _ = made_up
    seeds = {id(runs): bool(flag) for runs, flag in zip(results["a4/made-up"].seeds, flags, strict=True)}

    class Each(MadeUp):
        id = "a4/made-up"

        @claim("ISCA25-F5-2", STRONG, "it depends on the seed", each_seed=True)
        def larger_sets_hit_less(self, runs):
            return checks({"so": seeds.get(id(runs), False)})

    (found,) = outcomes([Each()], results)
    assert found.verdict == verdict and found.agreeing == 3


def test_a_case_that_cannot_run_is_reported_and_the_rest_continues(tmp_path):
    class Failing(MadeUp):
        id = "a4/failing"

        def cases(self, quick):
            yield Case("1 MiB", SCENARIO)
            yield Case("bad", SCENARIO, {"workload.reader.working_set": "no size"})

        @claim("ISCA25-F12-1", WEAK, "a number of this test", why="not said: it is not tested")
        def a_number(self, runs):
            return number(100 * runs["bad"].workload("reader").mlc_hit_ratio)

        @claim("ISCA25-F5-2", STRONG, "the hit ratio may rise or fall")
        def larger_sets_hit_less(self, runs):
            return checks({"falls": falling([runs[size].workload("reader").mlc_hit_ratio for size in runs.keys()])})

        @claim("ISCA25-F12-2", MEDIUM, "a case that can run")
        def no_number(self, runs):
            return number(100 * (runs["1 MiB"].workload("reader").mlc_hit_ratio - 1))

    results = run_figures([Failing()], quick=True, seeds=1, jobs=1, cache=tmp_path, progress=False)
    (line,) = results["a4/failing"].failures
    assert "case 'bad'" in line and "no size" in line
    runs = results["a4/failing"].mean
    assert runs["1 MiB"].workload("reader").mlc_hit_ratio is not None and "bad" in runs
    with pytest.raises(CaseFailed, match="case 'bad' failed: .*no size"):
        runs["bad"]
    found = {outcome.id: outcome for outcome in outcomes([Failing()], results)}
    asked, all_of_them, other = (found[f"ISCA25-{name}"] for name in ("F12-1", "F5-2", "F12-2"))
    # A check that goes through the whole grid would go through a part of it.
    for one in (asked, all_of_them):
        assert one.verdict == "not tested" and one.why.startswith("case 'bad' failed: ") and "no size" in one.why
    assert other.verdict != "not tested" and other.ours_low is not None


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda runs: runs["nowhere"], "KeyError: \"no case 'nowhere'"),
        (lambda runs: runs["1 MiB"].workload("writer"), "KeyError"),
        (lambda runs: number(runs["1 MiB"].workload("reader").hit_ratio), "no number is called 'hit_ratio'"),
        (lambda runs: None > 0.5, "TypeError: '>' not supported between instances of 'NoneType' and 'float'"),
        (lambda runs: 1 / 0, "ZeroDivisionError"),
        (lambda runs: [][0], "IndexError"),
        (lambda runs: checks({"it is higher": True}), "ValueError: ISCA25-F12-1 has a published number"),
    ],
)
def test_a_mistake_in_a_check_is_an_error_and_no_verdict(made_up, monkeypatch, capsys, mistake, says):
    _, _, folder = made_up

    class Mistaken(MadeUp):
        id = "a4/made-up"

        @claim("ISCA25-F12-1", WEAK, "a mistake of this test", why="it is made up")
        def a_number(self, runs):
            return mistake(runs)

    results = run_figures([Mistaken()], quick=True, seeds=1, jobs=1, cache=folder / "runs", progress=False)
    with pytest.raises(Mistakes) as raised:
        outcomes([Mistaken()], results)
    assert says in str(raised.value) and "ISCA25-F12-1" in str(raised.value) and len(raised.value.mistakes) == 1

    # The command fails; the simulations are kept, and no record has a verdict.
    monkeypatch.setattr("waykeeper.repro.__main__.figures", lambda: {"a4/made-up": Mistaken()})
    assert main(["run", "a4/made-up", "--quick", "--jobs", "1", "--out", str(folder)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: a4/made-up: the check of claim ISCA25-F12-1: ") and says in error
    assert "finished simulations are kept" in error and not (folder / "claims.json").exists()
    assert len(list((folder / "runs").iterdir())) == 6


def test_a_mistake_in_the_panels_is_an_error_after_all_else_is_written(made_up):
    figure, results, folder = made_up

    class Undrawn(MadeUp):
        id = "a4/undrawn"

        def panels(self, runs):
            return [None + 1]

    class Lacking(MadeUp):
        id = "a4/lacking"

        def panels(self, runs):
            yield Panel("hits", "", "", [Series("ours", [1], [runs["1 MiB"].system.dca_write_hit_ratio])])

    figures = [Undrawn(), Lacking(), figure]
    results = {one.id: results[figure.id] for one in figures}
    with pytest.raises(Mistakes, match="a4/undrawn: the panels: TypeError"):
        write(folder, document(outcomes([figure], results), True, 3), figures, results)
    assert (folder / "claims.json").is_file() and (folder / "figures" / "a4-made-up.png").is_file()
    page = (folder / "report.html").read_text()
    assert "could not be drawn: the model gives no dca_write_hit_ratio of the socket" in page


def test_what_the_model_does_not_give_is_told_from_zero_and_from_a_wrong_name():
    values = {"workloads": {"w": {"ipc": 0.0}}, "system": {}}
    run = CaseRun({"policies": {"none": values}, "msl_gbps": None}, ("key", 1))
    assert run.workload("w").ipc == 0 and "ipc" in run.workload("w") and run.policy("none").workloads["w"]["ipc"] == 0
    for read in (
        lambda: run.workload("w").llc_hit_ratio,
        lambda: run.workload("w")["llc_hit_ratio"],
        lambda: run.policy("none").workloads["w"].llc_hit_ratio,
    ):
        with pytest.raises(NotAvailable, match=r"the model gives no llc_hit_ratio of w in case \('key', 1\)"):
            read()
    assert run.workload("w").get("llc_hit_ratio") is None and "llc_hit_ratio" not in run.workload("w")
    with pytest.raises(NotAvailable, match="the lowest load"):
        assert run.msl_gbps
    with pytest.raises(KeyError, match="hit_ratios"):
        run.workload("w").get("hit_ratios")


def test_the_report_holds_every_claim_once_and_pictures(made_up):
    figure, results, folder = made_up
    record = document([*outcomes([figure], results), *skipped()], True, 3)
    page = write(folder, record, [figure], results)
    html = page.read_text()
    for name in [*registry.not_simulable(), "ISCA25-F5-2"]:
        assert html.count(f'<tr id="{name}">') == 1
    pictures = list((folder / "figures").iterdir())
    assert sorted(picture.suffix for picture in pictures) == [".pdf", ".png"]
    assert (folder / "claims.json").is_file()
    for path in write_docs(folder, record):
        assert path.stat().st_size > 1000
    assert json.loads((folder / "fidelity.json").read_text())["total"]["simulable"] == 3


def test_pictures_are_the_same_bytes_again(made_up):
    figure, results, folder = made_up
    record = document(outcomes([figure], results), True, 3)
    bytes_of = []
    for name in ("a", "b"):
        write(folder / name, record, [figure], results)
        bytes_of.append([file.read_bytes() for file in sorted((folder / name / "figures").iterdir())])
    assert bytes_of[0] == bytes_of[1]


def test_diff_tells_what_got_worse():
    def record(verdict):
        claim = {"id": "ISCA25-F5-2", "verdict": verdict, "ours": "x", "published": ""}
        return {"claims": [claim]}

    assert changes(record("reproduced"), record("reproduced")) == []
    (worse,) = changes(record("reproduced"), record("shape only"))
    assert worse["worse"] and worse["was"] == "reproduced"
    (better,) = changes(record("not reproduced"), record("shape only"))
    assert not better["worse"]


def test_means_are_over_numbers_all_have():
    first = {"a": 1.0, "b": {"c": 2}, "d": "text", "e": [1], "f": 3.0}
    second = {"a": 3.0, "b": {"c": 3}, "d": "other", "e": [2]}
    assert mean([first, second]) == {"a": 2.0, "b": {"c": 2.5}, "d": "text", "e": [1]}


def test_words_about_curves():
    assert rising([1, 2, 3]) and not rising([1, 2, 1.5]) and rising([1, 2, 1.99, 3], 0.01)
    assert not rising([1]) and not rising([2, 2])
    assert falling([3, 2, 1]) and not falling([1, 2])
    assert about_equal([1, 1.04], 0.05) and not about_equal([1, 1.2], 0.05) and not about_equal([], 1)
    assert crossing([0, 10], [0, 100], 25) == 2.5 and crossing([0, 1], [0, 1], 5) is None
    assert spread_ratio([2, 4]) == 2 and spread_ratio([0, 1]) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "a4/fig99"], "a4/fig"),
        (["run", "a4/fig5", "--scheduler", "/nowhere.json"], "/nowhere.json: no such file"),
        (["run", "a4/fig5", "--scheduler", "carrier://pigeon"], "no Dask scheduler answers"),
        (["report", "--out", "/nowhere"], "/nowhere"),
        (["diff", "/nowhere/a.json", "/nowhere/b.json"], "/nowhere/a.json"),
    ],
)
def test_bad_usage_ends_with_2_and_one_line(arguments, says, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and says in error


def test_a_record_that_is_none_is_refused(tmp_path, capsys):
    path = tmp_path / "claims.json"
    path.write_text('{"schema": "other"}')
    assert main(["diff", str(path), str(path)]) == 2
    assert "waykeeper.fidelity/2" in capsys.readouterr().err


def test_the_command_runs_a_figure_and_reports_it(tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "waykeeper.repro"]
    subprocess.run([*command, "run", "idio/text", "--quick", "--seeds", "1", "--out", out], check=True, cwd=tmp_path)
    record = json.loads((out / "claims.json").read_text())
    assert record["total"]["simulable"] == 6 and record["total"]["not_reproduced"] == 0
    shown = subprocess.run([*command, "report", "--out", out], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert "idio" in shown.stdout
    refused = subprocess.run(
        [*command, "report", "--out", out, "--docs", tmp_path], cwd=tmp_path, capture_output=True, text=True
    )
    assert refused.returncode == 2 and "quick" in refused.stderr
    (out / "claims.json").write_text(json.dumps(record | {"quick": False}))
    refused = subprocess.run(
        [*command, "report", "--out", out, "--docs", tmp_path], cwd=tmp_path, capture_output=True, text=True
    )
    assert refused.returncode == 2 and "6 of 327 claims" in refused.stderr
    listing = subprocess.run([*command, "list"], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert "a4/fig5" in listing.stdout and "problem" not in listing.stdout


ON_A_CLUSTER = """
import os, signal, sys, threading, time
from pathlib import Path
from distributed import Client, LocalCluster
from waykeeper.repro.__main__ import main

if __name__ == "__main__":
    out = Path(sys.argv[1])
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        with Client(address) as client:
            client.wait_for_workers(2)
            victim = next(iter(client.run(os.getpid).values()))

        def strike():
            while not list(out.glob("runs/*")):
                time.sleep(0.01)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=strike)
        killer.start()
        command = ["run", "idio/text", "--quick", "--seeds", "1", "--scheduler", address, "--out", str(out)]
        status = main(command)
        killer.join()
    sys.exit(status)
"""


@pytest.mark.long
def test_on_a_cluster_whose_worker_is_killed_the_record_is_that_of_one_machine(tmp_path):
    script = tmp_path / "cluster.py"
    script.write_text(ON_A_CLUSTER)
    here = [
        sys.executable,
        "-m",
        "waykeeper.repro",
        "run",
        "idio/text",
        "--quick",
        "--seeds",
        "1",
        "--out",
        tmp_path / "one",
    ]
    subprocess.run(here, check=True, cwd=tmp_path)
    done = subprocess.run([sys.executable, script, tmp_path / "two"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one, two = (json.loads((tmp_path / name / "claims.json").read_text()) for name in ("one", "two"))
    assert one == two


def test_the_published_score_holds_every_claim_once():
    from pathlib import Path

    record = json.loads((Path(__file__).parents[2] / "docs" / "fidelity.json").read_text())
    assert [claim["id"] for claim in record["claims"]] == list(claims())
    assert record["schema"] == SCHEMA and not record["quick"] and record["seeds"] >= 5
    for one in record["claims"]:
        simulable = one["verdict"] != "not simulable"
        assert (one["strength"] != "" and one["because"] != "") == simulable, one["id"]
    verdicts = [claim["verdict"] for claim in record["claims"]]
    total = record["total"]
    assert total["reproduced"] == verdicts.count("reproduced") and total["simulable"] + total["not_simulable"] == 327
    # Whatever is not reproduced is explained.
    assert all(claim["why"] for claim in record["claims"] if claim["verdict"] != "reproduced")


def test_the_hit_ratio_of_a_group_is_its_hits_over_its_accesses():
    from types import SimpleNamespace

    from waykeeper.repro.papers.a4.mixes import hits

    # 100 accesses with 90 hits and 900 with 90: 180 of 1000, where the mean of the ratios is 50 %.
    numbers = {
        "a": SimpleNamespace(llc_misses_per_s=10.0, llc_hit_ratio=0.9),
        "b": SimpleNamespace(llc_misses_per_s=810.0, llc_hit_ratio=0.1),
        "idle": SimpleNamespace(llc_misses_per_s=0.0, llc_hit_ratio=1.0),
    }
    run = SimpleNamespace(policy=lambda _: SimpleNamespace(workload=numbers.__getitem__))
    assert hits(run, "a4", ["a", "b", "idle"]) == pytest.approx(0.18)
    assert hits(run, "a4", ["a"]) == pytest.approx(0.9)


def test_an_antagonist_counts_while_it_is_one_in_the_measured_interval():
    from types import SimpleNamespace

    from waykeeper.repro.papers.a4.mixes import antagonists

    log = [
        (20, "storage-antagonist", "taken back"),
        (25, "storage-antagonist", "kept"),
        (30, "storage-restored", "taken back"),
        (40, "non-io-antagonist", "ends while measured"),
        (61, "restored", "ends while measured"),
        (65, "storage-antagonist", "begins while measured"),
    ]
    decisions = [{"at_s": at_s, "action": action, "group": group} for at_s, action, group in log]
    policy = SimpleNamespace(decisions=[*decisions, {"at_s": 5, "action": "revert"}])
    run = SimpleNamespace(head={"measured_from_s": 60.0}, policy=lambda _: policy)
    assert antagonists(run, "a4") == ({"kept", "begins while measured"}, {"ends while measured"})


@pytest.mark.parametrize(
    ("gains_s", "leaves_s", "ours"), [(6, 16, 1), (7, 16, 2), (6, 18, 3), (None, 16, None), (6, None, None)]
)
def test_iat_reacts_only_if_container_4_gains_ways_and_then_leaves_those_of_ddio(gains_s, leaves_s, ours):
    from types import SimpleNamespace

    figure = registry.figures()["iat/fig11"]
    steps = [(0, "0x180", "0x600"), (5.5, "0x060", "0x600"), (15, None, "0x780")]
    steps += [(gains_s, "0x1e0", "0x600")] if gains_s else []
    steps += [(leaves_s, "0x078", "0x780")] if leaves_s else []
    way_map, mask = [], ""
    for from_s, new, wide in sorted(steps, key=lambda step: step[0]):
        mask = new or ("0x1e0" if gains_s else "0x180")
        way_map.append({"from_s": float(from_s), "masks": {"container4": mask}, "dca_ways": wide})
    run = SimpleNamespace(policy=lambda _: SimpleNamespace(way_map=way_map))
    assert figure.reaction({"run": run}).low == ours


def test_seeds_whose_ways_change_at_other_times_have_curves_with_the_same_points():
    from types import SimpleNamespace

    figure, drawn = registry.figures()["iat/fig11"], []
    for steps in ([(0, 2.5), (2.5, 4)], [(0, 1), (1, 3), (3, 4)]):
        way_map = [
            {"from_s": first, "to_s": last, "masks": {"container4": hex(2 ** (1 + index) - 1)}, "dca_ways": "0x600"}
            for index, (first, last) in enumerate(steps)
        ]
        run = SimpleNamespace(policy=lambda _, way_map=way_map: SimpleNamespace(way_map=way_map))
        (panel,) = figure.panels({"run": run})
        drawn.append([(list(series.x), list(series.y)) for series in panel.series])
    assert drawn[0] == [([0, 1, 2, 3, 4], [1, 1, 1, 2, 2]), ([0, 1, 2, 3, 4], [2] * 5)]
    assert drawn[1][0] == ([0, 1, 2, 3, 4], [1, 2, 2, 3, 3])
