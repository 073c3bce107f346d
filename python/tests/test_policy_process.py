"""A policy in a process of its own sees what it sees in this one, and its decisions are the same."""

import json
import subprocess
import sys
from importlib import resources

import waykeeper as wk

CLASS = '''
from waykeeper import Decision, Event, Plan, Policy


class Told(Policy):
    """Uses every part of what it sees."""

    name = "told"

    def start(self, server, workloads):
        self.ways = server.all_ways
        return Plan(masks={w: server.all_ways for w in workloads}, dca_ways=server.dca_ways)

    def step(self, workloads, seen):
        events = [
            Event("saw", f"{w.name}: {seen.mask(w)} {w.ports}", w.name, [("IPC", seen.of(w).ipc or 0.0)])
            for w in workloads
        ]
        events.append(Event("saw", f"{seen.at_s} {seen.dca_ways}", None, [("bytes", seen.socket.memory_read_bytes)]))
        return Decision(Plan(masks={workloads[0]: self.ways >> 1}), str(self.settings), events)
'''


def in_a_process(text, settings, calls):
    """The answers of a process to calls."""
    files = resources.files(wk)
    opening = {
        "file": "told.py",
        "text": text,
        "policy_class": None,
        "own_policy": (files / "own_policy.py").read_text(),
        "folder": None,
        "confined": False,
    }
    calls = [("open", opening), ("create", {"settings": settings}), *calls]
    command = [sys.executable, "-c", (files / "policy_process.py").read_text()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        answers = []
        for number, (call, arguments) in enumerate(calls):
            print(json.dumps([number, {call: arguments}]), file=process.stdin, flush=True)
            answers.append(json.loads(process.stdout.readline()))
        # The end of its input ends it.
        process.stdin.close()
        assert process.stdout.read() == "" and process.wait(60) == 0
    return answers


def test_decisions_in_a_process_are_those_of_a_class_in_python(tiny):
    """Every call of a real run is made again over the pipes, and answered with the same text."""
    space = {"__name__": "told"}
    exec(CLASS, space)
    calls, decisions = [], []

    class Recorded(space["Told"]):
        def _start(self, inventory, groups):
            calls.append(("start", {"inventory": inventory, "workloads": groups}))
            decisions.append(super()._start(inventory, groups))
            return decisions[-1]

        def _step(self, groups, seen):
            calls.append(("step", {"workloads": groups, "seen": seen}))
            decisions.append(super()._step(groups, seen))
            return decisions[-1]

    settings = {"limit": 0.1, "words": ["a"]}
    scenario = wk.Scenario.parse(tiny.text + '[policy.told]\nlimit = 0.1\nwords = ["a"]\n')
    wk.run(scenario, [Recorded])
    answers = in_a_process(CLASS, settings, calls)
    told = [answer["decision"] for _, answer in answers[2:]]
    assert answers[0][1] == {
        "opened": {"name": "told", "idea": "Uses every part of what it sees.", "imports_beside": False}
    }
    assert len(calls) == 5 and told == json.loads(json.dumps(decisions))


def test_a_cause_must_be_a_finite_number(tiny):
    class Odd(wk.Policy):
        name = "odd"

        def step(self, workloads, seen):
            return wk.Decision(events=[wk.Event("a", "b", None, [("c", float("nan"))])])

    try:
        wk.run(tiny, [Odd])
    except ValueError as why:
        assert "finite" in str(why)
    else:
        raise AssertionError("it was taken")
