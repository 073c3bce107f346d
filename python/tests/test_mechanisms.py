"""The mechanisms of the model: their keys, the claims that they move, the command and its page."""

import json
from dataclasses import replace
from functools import partial

import pytest

import waykeeper as wk
from waykeeper.repro import STRONG, Case, Figure, claim, mechanisms, number
from waykeeper.repro.__main__ import main
from waykeeper.repro.claims import claims
from waykeeper.repro.engine import run_figures, scenario_of
from waykeeper.repro.mechanisms import REMOVED, Change, Mechanism, Off, Reference, compare, document, effective
from waykeeper.repro.outcome import Outcome
from waykeeper.repro.registry import figures, not_simulable
from waykeeper.repro.report import write_docs, write_mechanisms

KNOWN = mechanisms.mechanisms()


def outcome(name, verdict="reproduced", low=None, high=None, spread=None, figure="a4/made-up", why=""):
    """An outcome with a number, or with the interval from `low` to `high`."""
    one = claims()[name]
    return Outcome(
        id=name, paper="a4", where=one.where, kind=one.kind, metric=one.metric, claim=one.text, unit=one.unit,
        verdict=verdict, published=one.published(), why=why, figure=figure, ours="" if low is None else f"{low:g}",
        ours_low=low, ours_high=low if high is None else high, spread=spread, seeds=2,
    )  # fmt: skip


ONE = "ISCA25-F12-1"


def change(on, off):
    """What happened to a named claim."""
    (found,) = compare([ONE], [on], [off])
    return found.change


def test_mechanisms_have_different_names_and_name_claims_that_exist():
    assert len(KNOWN) == len(mechanisms.MECHANISMS)
    for mechanism in KNOWN.values():
        assert mechanism.off and mechanism.about and not mechanism.about.endswith(".")
        assert bool(mechanism.claims()) != bool(mechanism.reason), mechanism.id
    assert KNOWN["spin"].claims() == [f"ISCA25-F7-{n}" for n in (1, 2, 3, 4)] + ["ISCA25-F14-1"]
    with pytest.raises(ValueError, match="names ISCA25-F99-"):
        replace(KNOWN["spin"], named=("ISCA25-F99-*",)).claims()


def test_a_verdict_is_gained_if_it_is_better_with_the_mechanism():
    assert change(outcome(ONE), outcome(ONE, "shape only")) is Change.GAINED
    assert change(outcome(ONE, "not reproduced"), outcome(ONE, "shape only")) is Change.LOST
    assert change(outcome(ONE), outcome(ONE)) is Change.NONE


@pytest.mark.parametrize(
    ("on", "off", "spread", "moved"),
    [
        (100, 89, 0, True),  # 11 % of what it is with every mechanism on
        (100, 111, None, True),
        (100, 91, 0, False),  # 9 %
        (100, 80, 19, True),
        (100, 80, 21, False),  # within the spread over the seeds
        (0, 0.001, 0, True),
        (0, 1e-12, 0, False),
        (100, None, 0, True),
        (None, None, None, False),
        (-100, 100, 0, True),
    ],
)
def test_a_number_moves_by_more_than_a_tenth_and_its_spread(on, off, spread, moved):
    wanted = Change.NUMBER if moved else Change.NONE
    assert change(outcome(ONE, low=on, spread=spread), outcome(ONE, low=off)) is wanted
    assert change(outcome(ONE, low=on), outcome(ONE, low=off, spread=spread)) is wanted


def test_either_end_of_an_interval_may_move():
    assert change(outcome(ONE, low=10, high=20), outcome(ONE, low=10, high=30)) is Change.NUMBER
    assert change(outcome(ONE, low=10, high=20), outcome(ONE, low=10, high=21)) is Change.NONE


def test_claims_that_moved_come_first_and_named_ones_are_never_left_out():
    names = ["ISCA25-F5-1", "ISCA25-F5-2", "ISCA25-F12-1", "ISCA25-F12-2"]
    on = [outcome(name, low=1.0) for name in names[:3]]
    off = [outcome("ISCA25-F5-1", low=1.0), outcome("ISCA25-F5-2", "not reproduced", low=1.0)]
    found = compare(["ISCA25-F5-1", "ISCA25-F12-1", "ISCA25-F12-2"], on, off)
    assert [(one.id, one.named, one.change) for one in found] == [
        ("ISCA25-F5-2", False, Change.GAINED),
        ("ISCA25-F5-1", True, Change.NONE),
        ("ISCA25-F12-1", True, Change.NO_RUN),
        ("ISCA25-F12-2", True, Change.NOT_ASKED),
    ]
    assert [one.moved for one in found] == [True, False, False, False]


def test_claims_of_a_figure_with_failed_runs_are_not_compared():
    (found,) = compare([ONE], [outcome(ONE)], [outcome(ONE, "not reproduced")], {"a4/made-up"})
    assert found.change is Change.FAILED and not found.moved
    assert compare([], [outcome(ONE)], [outcome(ONE, "not reproduced")], {"a4/made-up"}) == []


def test_a_named_claim_that_cannot_be_simulated_is_reported():
    (found,) = compare([next(iter(not_simulable()))], [], [])
    assert found.change is Change.NOT_SIMULABLE and found.named and not found.moved


def test_a_verdict_that_too_few_seeds_show_is_marked():
    why = "the mean over seeds shows it, but only 1 of 2 seeds alone do; the drives limit it"
    (found,) = compare([ONE], [outcome(ONE, "not reproduced", low=1.0, why=why)], [outcome(ONE, low=1.0)])
    assert found.on_ours == "1; the mean over seeds shows it, but only 1 of 2 seeds alone do"
    assert found.off_ours == "1" and found.change is Change.LOST


def off(mechanism, scenario):
    """A scenario's tables with a mechanism off."""
    return effective(KNOWN[mechanism].switch_off(scenario))


PACKETS = {
    "name": "packets",
    "nic": [{"name": "nic0"}, {"name": "nic1"}],
    "workload": [
        {"name": "reader", "program": "dpdk-t", "cores": "0-1", "nic": "nic0"},
        {"name": "forwarder", "program": "l2fwd", "cores": "2-3", "nic": "nic1"},
    ],
}


def test_the_clock_key_is_set_only_for_programs_that_have_it():
    packets = wk.Scenario.from_dict(PACKETS)
    reader, forwarder = off("spin", packets)["workload"]
    assert reader["clock_cycles"] == 0 and "clock_cycles" not in forwarder
    # The program that a case sets counts, not that of the text.
    reader, forwarder = off("spin", packets.update({"workload.forwarder.program": "fastclick"}))["workload"]
    assert reader["clock_cycles"] == 0 and forwarder["clock_cycles"] == 0
    neither = packets.update({"workload.reader.program": "testpmd"})
    assert KNOWN["spin"].switch_off(neither) is neither
    KNOWN["spin"].switch_off(packets).check()


def test_a_phase_that_sets_a_key_again_is_changed_too():
    phases = [{"at_s": 1, "clock_cycles": 90}, {"at_s": 2, "delay_ns": 10}]
    packets = wk.Scenario.from_dict(PACKETS).update({"workload.reader.phase": phases})
    reader = off("spin", packets)["workload"][0]
    assert reader["phase"] == [{"at_s": 1, "clock_cycles": 0}, {"at_s": 2, "delay_ns": 10}]


def test_a_removed_key_leaves_scenarios_without_it_as_they_are():
    packets = wk.Scenario.from_dict(PACKETS)
    assert KNOWN["rss-draw"].switch_off(packets) is packets
    drawn = packets.update({"nic.nic1.rss_seed": 3, "nic.nic1.ring": 64})
    assert off("rss-draw", drawn)["nic"] == [{"name": "nic0"}, {"name": "nic1", "ring": 64}]
    no_rule = Mechanism("rule", "a rule", (Off("model.p_force", REMOVED),))
    assert no_rule.switch_off(packets) is packets
    assert "p_force" not in effective(no_rule.switch_off(packets.set("model.p_force", 0.5)))["model"]


def test_rules_and_knobs_are_set_where_they_have_an_effect(tiny):
    packets = wk.Scenario.from_dict(PACKETS)
    assert off("spare-unread", packets)["model"] == {"copies_spare_io": False}
    assert KNOWN["spare-unread"].switch_off(tiny) is tiny  # no device
    for without_inclusive_ways in ("idio", "e5-2667v3"):
        other = packets.set("chip", without_inclusive_ways)
        assert KNOWN["spare-unread"].switch_off(other) is other
    assert off("dram-backlog", tiny)["model"] == {"dram_backlog": False}
    assert KNOWN["prefetchers"].switch_off(packets) is packets
    mix = wk.Scenario.load("a4-hpw-heavy")
    assert mix.to_dict()["knobs"]["prefetchers"] is False and KNOWN["prefetchers"].switch_off(mix) is mix
    knobs = off("prefetchers", mix.set("knobs.prefetchers", True))["knobs"]
    assert knobs == mix.to_dict()["knobs"]


def test_keys_that_were_set_are_in_the_effective_tables():
    packets = wk.Scenario.from_dict(PACKETS).update(
        {"nic[nic0].ring": 64, "workload.reader.delay_ns": 1.5, "policy.a4.t1": 2, "knobs.dca_off": ["nic1"]}
    )
    tables = effective(packets)
    assert tables["nic"][0]["ring"] == 64 and tables["workload"][0]["delay_ns"] == 1.5
    assert tables["policy"] == {"a4": {"t1": 2}} and tables["knobs"] == {"dca_off": ["nic1"]}
    assert packets.to_dict() == PACKETS


@pytest.mark.long
def test_every_case_can_be_read_with_each_mechanism_off():
    for figure in figures().values():
        for case in figure.cases(True):
            scenario = scenario_of(case)
            same = wk.Scenario.from_dict(effective(scenario), scenario.folder)
            assert {**same.check(), "file": ""} == {**scenario.check(), "file": ""}, figure.id
            for mechanism in KNOWN.values():
                changed = mechanism.switch_off(scenario)
                if changed != scenario:
                    changed.check()


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
PROGRAM = {"name": "reader", "program": "spec", "cores": "0", "benchmark": "lbm"}


class Reader(Figure):
    """A walk through memory, which prefetchers do not concern, and a SPEC program, which they do."""

    id = "a4/made-up"
    title = "made up"

    def cases(self, quick):
        yield Case("x-mem", SCENARIO)
        yield Case("spec", SCENARIO, {"workload": [PROGRAM]})

    @claim("ISCA25-F12-1", STRONG, "a number of this test", why="it is made up")
    def walk(self, runs):
        return number(runs["x-mem"].workload("reader").mlc_hit_ratio)

    @claim("ISCA25-F12-2", STRONG, "a number of this test", why="it is made up")
    def program(self, runs):
        return number(runs["spec"].workload("reader").ipc)


@pytest.fixture
def run(tmp_path):
    return partial(run_figures, quick=True, seeds=2, jobs=1, cache=tmp_path / "runs", progress=False)


def test_a_case_that_a_mechanism_does_not_change_runs_once(run, tmp_path):
    prefetchers = replace(KNOWN["prefetchers"], named=("ISCA25-F12-1", "ISCA25-F12-2"))
    reference = Reference([Reader()], True, run)
    kept = {file.name for file in (tmp_path / "runs").iterdir()}
    assert len(kept) == 4
    effect = reference.without(prefetchers)
    assert (effect.changed, effect.cases, effect.failures) == (1, 2, [])
    # The two seeds of the SPEC program, without prefetchers; the walk's runs are those with every mechanism on.
    assert len(kept & {file.name for file in (tmp_path / "runs").iterdir()}) == 4
    assert len(list((tmp_path / "runs").iterdir())) == 6
    assert {one.id: one.change for one in effect.compared} == {
        "ISCA25-F12-1": Change.NONE,
        "ISCA25-F12-2": Change.NUMBER,
    }
    reference.without(replace(prefetchers, id="again"))
    assert len(list((tmp_path / "runs").iterdir())) == 6


def test_a_figure_that_a_mechanism_does_not_change_is_not_run_again(run):
    reference = Reference([Reader()], True, run)
    reference._run = None
    effect = reference.without(replace(KNOWN["spin"], named=("ISCA25-F12-1",)))
    assert effect.changed == 0 and [one.change for one in effect.compared] == [Change.NO_RUN]


def test_a_simulation_that_fails_without_a_mechanism_is_reported_and_moves_nothing(run):
    broken = Mechanism("broken", "a rule out of range", (Off("model.p_force", 7),), ("ISCA25-F12-1",))
    effect = Reference([Reader()], True, run).without(broken)
    assert len(effect.failures) == 2 and all("p_force" in line for line in effect.failures)
    assert [one.change for one in effect.compared] == [Change.FAILED]


def test_the_page_has_one_row_and_one_table_per_mechanism(run, tmp_path):
    reference = Reference([Reader()], True, run)
    named = replace(KNOWN["prefetchers"], named=("ISCA25-F12-2",))
    unnamed = replace(KNOWN["spin"], named=(), reason="it is a test")
    record = document([reference.without(named), reference.without(unnamed)], [], False, 2)
    row = record["mechanisms"][0]
    assert (row["named"], row["named_moved"], row["others_moved"]) == (1, 1, 0)
    assert json.loads(json.dumps(record)) == record
    page = write_mechanisms(tmp_path, record).read_text()
    assert "full grids with 2 seeds of\nall figures" in page
    assert "| [prefetchers](#prefetchers) | 1 | 1 | 0 | 0 | 0 |" in page and "## `prefetchers`" in page
    assert "`knobs.prefetchers=false` (program `spec`), which changes 1 of 2 cases" in page
    assert page.count("| ISCA25-F12-2 ") == 1
    assert "No claim is named: it is a test." in page and "It moves no claim." in page


def test_the_page_of_the_claims_links_to_that_of_the_mechanisms_if_there_is_one(tmp_path):
    from waykeeper.repro.outcome import document, skipped

    record = document(skipped(), False, 5)
    assert "fidelity-mechanisms.md" not in write_docs(tmp_path, record)[0].read_text()
    (tmp_path / "fidelity-mechanisms.md").touch()
    assert "(fidelity-mechanisms.md)" in write_docs(tmp_path, record)[0].read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mechanisms", "spinn"], "no mechanism `spinn`, did you mean `spin`?"),
        (["mechanisms", "spin", "--only", "a4/fig99"], "no figure or paper `a4/fig99`"),
        (["mechanisms", "--docs", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_bad_usage_is_refused_before_anything_runs(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ") and shown.err.count("\n") == 1 and says in shown.err
    assert shown.out == "" and list(tmp_path.iterdir()) == []


def test_the_command_prints_a_table_and_its_record(tmp_path, capsys):
    arguments = ["mechanisms", "prefetchers", "--only", "idio/text", "--quick", "--seeds", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "prefetchers" in shown and "it moves no claim" in shown and "the figure was not run: ISCA21-F12-1" in shown
    assert main([*arguments, "--json", "--docs", str(tmp_path)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["schema"] == mechanisms.SCHEMA and record["figures"] == ["idio/text"]
    assert [row["id"] for row in record["mechanisms"]] == ["prefetchers"]
    assert (tmp_path / "fidelity-mechanisms.md").is_file()
