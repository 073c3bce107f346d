"""The search of the best static layout: its arithmetic, its space, resuming, and what a run makes of the result."""

import json
import re
import subprocess
import sys
from random import Random

import pytest
from waiting import PATIENCE_S

import waykeeper as wk
from waykeeper import best as search
from waykeeper.best_space import Layout, Space

SPACE = Space(ways=11, min_ways=1, workloads=("a", "b"), zones=0, devices=("nic0",), most_dca_ways=11)


class Fixed:
    """A trial whose numbers are given, as Optuna's `FixedTrial`."""

    def __init__(self, values):
        self.values = values

    def suggest_int(self, name, low, high):
        assert low <= self.values[name] <= high, name
        return self.values[name]

    def suggest_categorical(self, name, choices):
        return self.values[name]


@pytest.mark.parametrize("zones", [0, 2])
def test_a_layout_is_drawn_again_from_its_numbers(zones):
    space = Space(**{**SPACE.__dict__, "zones": zones})
    layout = Layout({"a": "0x7f8", "b": "0x3"}, "0x780", {"nic0": False})
    assert space.suggest(Fixed(space.parameters(layout))) == layout


@pytest.mark.parametrize("zones", [0, 2])
def test_a_neighbour_differs_in_one_or_two_numbers_and_is_a_layout(zones):
    space = Space(**{**SPACE.__dict__, "zones": zones})
    numbers = space.parameters(Layout({"a": "0x7f8", "b": "0x3"}, "0x780", {"nic0": False}))
    draw, changes = Random(1), set()
    for _ in range(300):
        other = space.neighbour(numbers, draw)
        changed = [name for name in numbers if numbers[name] != other[name]]
        # A step beyond a bound ends at it, so nothing may change.
        assert len(changed) <= 2 and other.keys() == numbers.keys()
        space.suggest(Fixed(other))
        changes.update(changed)
    assert changes == set(numbers), "every number is changed at times"


def test_a_run_of_ways_ends_at_the_last_way():
    values = {"a first": 9, "a ways": 11, "b first": 0, "b ways": 1, "nic0 dca": True, "dca ways": 2}
    assert SPACE.suggest(Fixed(values)) == Layout({"a": "0x600", "b": "0x1"}, "0x600", {"nic0": True})


def test_few_classes_make_zones(tmp_path):
    mix = wk.Scenario.parse(
        'name = "few"\nchip = "e5-2667v3"\n'
        + "".join(
            f'[[workload]]\nname = "w{i}"\nprogram = "x-mem"\ncores = {i}\nworking_set = "1 MiB"\n' for i in range(5)
        )
    )
    # Haswell has 4 classes; one is the kernel's default group.
    space = Space.of(mix)
    assert (space.zones, space.min_ways, space.devices) == (3, 2, ())
    masks = [hex(0x3 << 2 * index) for index in range(5)]
    numbers = space.parameters(Layout({f"w{i}": mask for i, mask in enumerate(masks)}))
    assert len(set(space.suggest(Fixed(numbers)).masks.values())) <= 3


def test_means_are_those_of_a_run(tiny):
    tiny = tiny.set("policy.fixed", {"masks": {"streamer": "0x003"}})
    run = wk.run(tiny, ["default", "fixed"], progress=False)
    means = search.means(*(search.scores(run.policy(name)) for name in ("default", "fixed")))
    for group, mean in zip(("HPW", "LPW"), means):
        assert mean == pytest.approx(run.policy("fixed").group(group).performance_ratio, rel=1e-12)


def test_a_search_finds_the_layout_that_keeps_the_streamer_apart_and_is_resumed(tiny, tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(tiny.text, encoding="utf-8")
    out = search.default_out(str(file))
    with pytest.raises(wk.BadInput, match="search one with `waykeeper best"):
        wk.run(str(file), ["default", "best"], progress=False)
    options = {"out": out, "lpw_floor": 0.9, "confirm_seeds": 2, "progress": False}
    first = search.best(str(file), trials=8, **options)
    with pytest.raises(wk.BadInput, match="earlier search"):
        search.best(str(file), trials=8, **options)
    more = search.best(str(file), trials=14, resume=True, jobs=2, **options)
    assert first["found"]["trials"] == 8 and more["found"]["trials"] >= 14
    assert json.loads(out.read_text(encoding="utf-8")) == more
    assert more["lpw_mean"] > 0.85 and [seed["seed"] for seed in more["seeds"]] == [1001, 1002]

    run = wk.run(str(file), ["default", "best"], progress=False, seeds=2)
    regret = run.policy("default").regret
    default, best = (run.policy(name).group("HPW").performance_ratio for name in ("default", "best"))
    # Two seeds: the mean of the ratios is near the ratio of the means.
    assert regret["hpw_regret_ratio"] == pytest.approx(1 - default / best, abs=0.01)
    assert regret["knobs_turned"] == 0 and run.policy("best").regret is None
    with pytest.raises(wk.BadInput, match="this layout was searched for"):
        wk.run(wk.Scenario.load(str(file)).set("workload.reader.working_set", "2 MiB"), ["best"], progress=False)


def test_wrong_arguments_are_refused_before_the_search(tiny, tmp_path, capsys):
    for options in ({"lpw_floor": 3.0}, {"trials": 0}, {"seeds": 0}):
        with pytest.raises(wk.BadInput):
            search.best(tiny, out=tmp_path / "x.json", **options)
    assert search.main(["no-such-scenario"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown scenario")
    assert list(tmp_path.iterdir()) == []


CLUSTER = """
import sys
import waykeeper as wk
from distributed import Client, LocalCluster
from waykeeper.best import best

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        found = best(sys.argv[1], out=sys.argv[2], lpw_floor=0.5, trials=9, jobs=2, confirm_seeds=1, engine=client)
        print(found["found"]["trials"])
"""


@pytest.mark.long
def test_a_search_runs_on_dask(tiny, tmp_path):
    file, script = tmp_path / "tiny.toml", tmp_path / "search.py"
    file.write_text(tiny.text, encoding="utf-8")
    script.write_text(CLUSTER, encoding="utf-8")
    words = [sys.executable, str(script), str(file), str(tmp_path / "tiny.best.json")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0 and int(done.stdout) >= 9, done.stderr


def test_a_search_that_is_stopped_keeps_its_trials_and_tries_the_interrupted_layout_again(
    tiny, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "tiny.best.json"
    options = {"out": out, "lpw_floor": 0.5, "trials": 16, "confirm_seeds": 1, "progress": False}
    tried = []
    measure = search.Search.measure

    def interrupted(self, part, layout, seed, base):
        tried.append(layout.settings())
        if len(tried) == 3:
            raise KeyboardInterrupt
        return measure(self, part, layout, seed, base)

    monkeypatch.setattr(search.Search, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search.best(tiny, **options)
    assert len(tried) == 3 and not out.exists()
    kept = capsys.readouterr().err
    assert "has 2 layouts" in kept and kept.endswith("above the floor; continue with --resume\n")
    assert search.best(tiny, resume=True, **options)["found"]["trials"] == 16
    assert tried.count(tried[2]) >= 2


def test_an_interrupt_while_the_best_layouts_are_confirmed_keeps_the_trials(tiny, tmp_path, monkeypatch, capsys):
    options = {"out": tmp_path / "tiny.best.json", "lpw_floor": 0.5, "trials": 4, "confirm_seeds": 1, "progress": False}

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(search, "_confirm", interrupted)
        with pytest.raises(KeyboardInterrupt):
            search.best(tiny, **options)
    assert re.search(
        r"journal has \d+ layouts, \d+ of them above the floor; continue with --resume", capsys.readouterr().err
    )
    found = search.best(tiny, resume=True, **options)
    assert found["found"]["trials"] >= 4


def test_the_place_of_the_layout_is_checked_before_the_search(tiny, tmp_path):
    out = tmp_path / "tiny.best.json"
    out.write_text("theirs")
    options = {"lpw_floor": 0.5, "trials": 1, "confirm_seeds": 1, "progress": False}
    for place, why in ((out, "exists already"), (tmp_path, "is a directory"), (out / "below", "is no folder")):
        with pytest.raises(wk.BadInput, match=why):
            search.best(tiny, out=place, **options)
    assert out.read_text() == "theirs" and not out.with_suffix(".journal").exists()
    out.with_suffix(".journal").write_text("")
    with pytest.raises(wk.BadInput, match="--resume to continue it, or --force to begin again"):
        search.best(tiny, out=out, **options)
    search.best(tiny, out=out, force=True, **options)
    assert '"schema": "waykeeper.best/1"' in out.read_text()
