"""Scenarios: values that can be changed, compared, sent elsewhere; messages that name what is wrong."""

import pickle

import pytest

import waykeeper as wk


def test_built_in_scenarios_chips_and_policies_are_listed():
    assert wk.scenarios()[0] == "a4-hpw-heavy"
    assert {"a4", "iat", "waykeeper"} <= set(wk.policies())
    assert wk.chip("gold-6140")["llc"]["ways"] == 11
    assert wk.policy("a4")["name"] == "a4"
    assert wk.rules()["directory_ways"] == 12


def test_setting_a_key_makes_another_scenario(tiny):
    changed = tiny.set("workload.reader.working_set", "8 MiB")
    assert changed != tiny and changed.digest() != tiny.digest()
    assert tiny.set("workload.reader.working_set", "8 MiB") == changed
    assert tiny.check()["workloads"][0]["name"] == "reader"


def test_a_scenario_travels(tiny):
    changed = tiny.set("workload.reader.mask", "0x3")
    assert pickle.loads(pickle.dumps(changed)) == changed
    again = wk.Scenario.from_dict(tiny.to_dict())
    assert again.check() == tiny.check()


def test_a_sweep_is_left_out_of_a_point():
    figure = wk.Scenario.load("a4-fig5")
    assert figure.check()["sweep"] == ["knobs.dca_off", "workload.fio.block"]
    assert figure.point().check()["sweep"] == []


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s: wk.Scenario.load("a4-hpw-heavi"), "did you mean `a4-hpw-heavy`"),
        (lambda s: wk.Scenario.load("/nowhere/x.toml"), "/nowhere/x.toml"),
        (lambda s: wk.Scenario.load("/dev/zero"), "a scenario has at most 1048576 bytes, this file has more"),
        (lambda s: wk.Scenario.parse("name ="), "<text>"),
        (lambda s: s.set("workload.nobody.cores", 3), "nobody"),
        (lambda s: s.set("workload.reader.working_set", "8 bananas").check(), "8 bananas"),
        (lambda s: s.set("durations_s", 3).check(), "duration_s"),
        (lambda s: s.set("workload.reader.mask", object()), "object"),
        (lambda s: wk.run(wk.Scenario.load("a4-fig5").set("workload.fio.block", "64k")), "is swept over 4k, 8k"),
        (lambda s: wk.chip("gold-6141"), "gold-6140"),
        (lambda s: wk.policy("a5"), "a4"),
    ],
)
def test_what_is_wrong_is_named(tiny, make, says):
    with pytest.raises((wk.BadInput, TypeError)) as caught:
        make(tiny)
    assert says in str(caught.value)


def test_a_notebook_shows_a_table_and_escapes_names(tiny):
    named = wk.Scenario.parse(tiny.text.replace('"reader"', '"<b>reader"'))
    assert "&lt;b&gt;reader" in named._repr_html_()


def test_a_message_repeats_the_beginning_of_a_long_value(tiny):
    with pytest.raises(wk.BadInput, match="KiB, MiB or GiB") as raised:
        wk.Scenario.parse(tiny.text.replace("4 MiB", "x" * 200_000), "tiny.toml").check()
    assert len(str(raised.value)) < 1000
