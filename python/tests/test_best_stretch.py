"""What a trial of a search runs: the last state of a scenario, and the whole scenario where that cannot be told."""

import pytest

import waykeeper as wk
from waykeeper import best as search
from waykeeper.best_stretch import MEASURE_S, SHORT_MEASURE_S, WARMUP_S, last_state, stretch

PHASED = """
name = "phased"
duration_s = 40
warmup_s = 10
measure_s = 10
[[nic]]
name = "nic0"
offered_gbps = 40
packet_bytes = 512
phase = [{ at_s = 12, offered_part = 0.5 }]
[[workload]]
name = "fwd"
program = "l2fwd"
cores = "0"
priority = "high"
[[workload]]
name = "reader"
program = "x-mem"
cores = "1"
working_set = "1 MiB"
pattern = "random"
phase = [{ at_s = 14, working_set = "8 MiB" }, { at_s = 12, working_set = "4 MiB" }]
[[workload]]
name = "late"
program = "spec"
benchmark = "lbm"
cores = "2"
start_s = 13
"""


def test_the_last_state_has_the_values_of_the_last_phases_and_no_times():
    state = last_state(wk.Scenario.parse(PHASED).to_dict())
    # Half of 40 Gb/s; the reader's later phase is the one at 14 s.
    assert state["nic"] == [{"name": "nic0", "offered_gbps": 20.0, "packet_bytes": 512}]
    assert [workload.get("working_set") for workload in state["workload"]] == [None, "8 MiB", None]
    assert not any(key in table for table in state["workload"] for key in ("phase", "start_s"))


def test_a_change_that_the_measured_stretch_may_feel_keeps_the_whole_scenario():
    # Measured from 30 s on; a change at 25 s is 5 s before.
    for changed in (
        PHASED.replace("start_s = 13", "start_s = 26"),
        PHASED.replace("at_s = 14", "at_s = 31"),
        PHASED.replace("start_s = 13", "stop_s = 20"),
        PHASED.replace("offered_gbps = 40\n", ""),
        PHASED + '[[fault]]\nkind = "sample-fails"\nat_s = 5\n',
    ):
        scenario = wk.Scenario.parse(changed)
        assert stretch(scenario).scenario is scenario and stretch(scenario).duration_s is None
    assert last_state(wk.Scenario.parse(PHASED.replace("start_s = 13", "start_s = 25")).to_dict())
    assert stretch(wk.Scenario.parse(PHASED).set("nic.nic0.ring", 512)).duration_s is None, "changed keys are unknown"


def test_a_scenario_without_changes_is_run_for_a_short_time():
    tables = wk.Scenario.load("a4-hpw-heavy").to_dict()
    short, long = stretch(wk.Scenario.load("a4-hpw-heavy"), short=True), stretch(wk.Scenario.load("a4-hpw-heavy"))
    assert last_state(tables) == tables and long.scenario.file == "a4-hpw-heavy"
    assert long.describe() == {"warmup_s": WARMUP_S, "measure_s": MEASURE_S}
    assert short.describe()["measure_s"] == SHORT_MEASURE_S and short.duration_s < long.duration_s


def test_the_stretch_scores_what_the_end_of_the_whole_scenario_scores():
    scenario = wk.Scenario.parse(PHASED)
    part = stretch(scenario)
    options = {"threads": 1, "progress": False}
    whole = search.scores(wk.run(scenario, ["default"], **options).policy("default"))
    run = wk.run(part.scenario, ["default"], warmup_s=part.warmup_s, duration_s=part.duration_s, **options)
    end = search.scores(run.policy("default"))
    # 20 to 30 seconds after the last change, and 5: other random numbers, the same server.
    assert {name: entry[3] for name, entry in end.items()} == pytest.approx(
        {name: entry[3] for name, entry in whole.items()}, rel=0.02
    )
