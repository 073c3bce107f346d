"""Policies written in Python: they see what others see, and what they answer is done."""

import pytest

import waykeeper as wk


class Corner(wk.Policy):
    """LPWs get two ways, HPWs one, which is too little."""

    name = "corner"
    seen: list = []

    def start(self, server, workloads):
        Corner.seen = [server, workloads]
        return wk.Plan(masks={workload: 0x010 if workload.high else 0x00C for workload in workloads})

    def step(self, workloads, seen):
        Corner.seen.append(seen)


def test_a_policy_sees_counters_and_its_masks_are_set(tiny):
    result = wk.run(tiny, ["default", Corner])
    server, workloads, *intervals = Corner.seen
    assert (server.ways, server.all_ways, server.inclusive_ways, server.dca_ways) == (11, 0x7FF, 0x003, 0x600)
    assert [(w.name, w.high, w.kind) for w in workloads] == [("reader", True, "non-io"), ("streamer", False, "non-io")]
    last = intervals[-1]
    reader, streamer = workloads
    assert last.mask(streamer) == 0x00C and last.mask(reader) == 0x010
    assert last.of(streamer).llc_miss_ratio > 0.9
    assert 0 < last.of(reader).ipc < 4 and last.socket.memory_read_bytes > 0
    assert last.of(99).ipc is None and last.of(99).why_missing("cycles") == "absent"
    with pytest.raises(AttributeError, match="llc_hits"):
        _ = last.of(reader).llc_hit
    assert result.policy("corner").way_map[-1]["masks"]["streamer"] == "0x00c"
    # 1 MiB of MLC and 2.25 MiB of LLC do not hold 4 MiB.
    ratios = [result.policy(name).workload("reader").llc_hit_ratio for name in ("default", "corner")]
    assert ratios[1] < 0.9 < ratios[0]


def test_what_a_policy_raises_comes_back(tiny):
    class Broken(wk.Policy):
        name = "broken"

        def step(self, workloads, seen):
            raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        wk.run(tiny, [Broken])


@pytest.mark.parametrize("taken", ["default", "a4", "best"])
def test_a_policy_does_not_take_the_place_of_a_built_in_one(tiny, taken):
    class Mine(wk.Policy):
        name = taken

    with pytest.raises(wk.BadInput, match=f"the name {taken} is that of a built-in policy"):
        wk.run(tiny, [Mine], progress=False)


def test_a_policy_that_cannot_be_made_is_reported(tiny):
    class Needs(wk.Policy):
        name = "needs"

        def __init__(self, limit):
            self.limit = limit

        def step(self, workloads, seen):
            return None

    with pytest.raises(TypeError, match="limit"):
        wk.run(tiny, [Needs])
    with_setting = wk.Scenario.parse(tiny.text + "[policy.needs]\nlimit = 3\n")
    assert "needs" in wk.run(with_setting, [Needs]).policies


@pytest.mark.parametrize("answer", [3, {"masks": {}}, "0x3"])
def test_an_answer_of_the_wrong_kind_is_refused(tiny, answer):
    class Odd(wk.Policy):
        name = "odd"

        def step(self, workloads, seen):
            return answer

    with pytest.raises(TypeError, match="Decision"):
        wk.run(tiny, [Odd])


def test_a_mask_the_chip_refuses_is_in_the_timeline(tiny):
    class Holes(wk.Policy):
        name = "holes"

        def step(self, workloads, seen):
            return wk.Decision(wk.Plan(masks={workloads[0]: 0b101}), "Trying", [wk.Event("try", "a mask with holes")])

    decisions = wk.run(tiny, [Holes]).policy("holes").decisions
    assert decisions[0]["state"] == "Trying"
    outcomes = [knob["outcome"] for decision in decisions for knob in decision.get("knobs", [])]
    assert any("refused" in outcome for outcome in outcomes), decisions


def test_a_policy_without_step_is_refused(tiny):
    class Empty(wk.Policy):
        name = "empty"

    with pytest.raises(NotImplementedError, match="step"):
        wk.run(tiny, [Empty])


@pytest.mark.long
def test_a_policy_of_thirty_lines_beats_default_on_the_flagship():
    import runpy
    from pathlib import Path

    file = Path(__file__).parents[1] / "examples" / "trash_ways.py"
    policy = runpy.run_path(str(file))["TrashWays"]
    body = file.read_text().split("class TrashWays")[1].split("if __name__")[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 30
    result = wk.run("a4-hpw-heavy", ["default", policy], duration_s=40, warmup_s=20)
    assert result.policy("trash-ways").group("HPW").performance_ratio > 1.05
    assert result.policy("trash-ways").group("LPW").performance_ratio > 0.95
