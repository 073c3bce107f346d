"""Running in process: same seed, same result; tables, pictures, errors."""

import io
import json
import sys

import pyarrow as pa
import pytest

import waykeeper as wk


def test_the_same_seed_gives_the_same_result_on_any_number_of_threads(tiny):
    one = wk.run(tiny, ["default", "isolate"], seeds=2, threads=1)
    two = wk.run(tiny, ["default", "isolate"], seeds=2, threads=4)
    assert one == two
    assert wk.run(tiny, ["default", "isolate"], seed=7) != one


def test_results_are_tables(tiny):
    result = wk.run(tiny, ["default", "isolate"])
    table = result.to_arrow()
    assert table.num_rows == 4 and table.column("llc_hit_ratio").type == pa.float64()
    frame = result.to_pandas().set_index(["policy", "workload"])
    assert (
        frame.loc[("default", "reader"), "llc_hit_ratio"] == result.policy("default").workload("reader").llc_hit_ratio
    )
    assert result.to_polars().height == 4
    # What is not available is null, not zero: X-Mem has no packets to drop.
    assert "drops_per_s" not in table.column_names and result.policy("default").workload("reader").drops_per_s is None
    series = result.timeseries()
    assert set(series.column("policy").to_pylist()) == {"default", "isolate"}
    assert result.systems().num_rows == 2
    evictions = result.evictions().to_pylist()
    assert {(row["by"], row["of"], row["reason"]) for row in evictions} >= {("streamer", "streamer", "mlc-victim")}
    assert len(evictions) == sum(len(result.policy(name).evictions) for name in ("default", "isolate"))


def test_results_survive_json(tiny):
    result = wk.run(tiny)
    again = wk.load(result.to_json())
    assert again == result
    with pytest.raises(ValueError, match="time series"):
        again.timeseries()
    with pytest.raises(wk.BadInput, match="schema"):
        wk.load(json.dumps({"schema": "other/1"}))
    with pytest.raises(wk.BadInput):
        wk.load("not json")


def test_pictures_and_pages(tiny, tmp_path):
    result = wk.run(tiny, ["default", "isolate"])
    svg = result.way_map("isolate")._repr_svg_()
    assert svg.lstrip().startswith("<svg") and "</svg>" in svg
    page = result.report(tmp_path / "report.html")
    assert page == (tmp_path / "report.html").read_text() and "isolate" in page
    assert "isolate" in result._repr_html_()
    with pytest.raises(wk.BadInput, match="isolate"):
        result.way_map("a4")


def test_a_scenario_that_sweeps_gives_a_curve(tiny):
    text = tiny.text + '[[sweep]]\nkey = "workload.reader.working_set"\nvalues = ["1 MiB", "16 MiB"]\n'
    curve = wk.run(wk.Scenario.parse(text))
    assert isinstance(curve, wk.Curve) and curve.keys == ["workload.reader.working_set"]
    first, last = (run.policy("default").workload("reader").mlc_hit_ratio for _, run in curve.points)
    assert first > last
    assert curve.to_arrow().num_rows == 4


def test_what_the_caller_got_wrong_is_said(tiny):
    for arguments, says in [
        (dict(policies=["a5"]), "a4"),
        (dict(sets="1/3"), "sets"),
        (dict(seeds=0), "seeds"),
        (dict(duration_s=-1.0), "duration"),
        (dict(policies=[wk.Policy()]), "the class"),
    ]:
        with pytest.raises(wk.BadInput) as caught:
            wk.run(tiny, **arguments)
        assert says in str(caught.value), arguments


def test_what_a_policy_is_worth_by_its_own_counters(tiny):
    # `default` turns no knob: the layout as found is in force, so it is worth nothing.
    worth = wk.run(tiny).policy("default").worth
    assert worth["from"] == "unchanged" and worth["hpw"] == {"ratio": 1.0, "error": 0.0}
    assert worth["look_intervals"] == 0 and "unknown" not in worth
    masks = '[policy.fixed.masks]\nreader = "0x003"\n'
    fixed = wk.Scenario.parse(tiny.text.replace('policies = ["default"]', 'policies = ["fixed"]') + masks)
    worth = wk.run(fixed, duration_s=4.0).policy("fixed").worth
    assert "knobs" in worth["unknown"] and "hpw" not in worth
    worth = wk.run(fixed, duration_s=4.0, looks_every_s=1.0).policy("fixed").worth
    assert worth["from"] == "look" and worth["look_intervals"] > 5 and worth["hpw"]["ratio"] < 1
    with pytest.raises(wk.BadInput, match="between two looks"):
        wk.run(tiny, looks_every_s=0.0)


def test_a_note_of_the_plan_is_a_warning(tiny):
    with pytest.warns(UserWarning, match="more than once"):
        wk.run(tiny, ["default", "default"])


def test_the_load_that_is_sustained():
    # A worker of 1000 ns a packet of 1024 bytes on the wire sustains about 8 Gb/s.
    scenario = {
        "name": "worker",
        "policies": ["none"],
        "chip": "idio",
        "duration_s": 0.006,
        "warmup_s": 0.002,
        "measure_s": 0.004,
        "time_factor": 1,
        "interval_s": 0.002,
        "model": {"quantum_ns": 500},
        "nic": [{"name": "nic0", "gbps": 20, "packet_bytes": 1000, "outside_us": 0}],
        "workload": [
            {
                "name": "worker",
                "program": "dpdk-nt",
                "cores": "0",
                "base_ns": 1000,
                "burst_ns": 0,
                "delay_ns": 0,
                "stall_us": 0,
            }
        ],
    }
    knee = wk.find_load(scenario)
    lossless = wk.find_load(scenario, zero_loss=True)
    assert 7.9 <= knee.gbps <= 8.2
    assert lossless.gbps >= knee.gbps and lossless.values["criterion"] == "zero-loss"


def test_progress_is_reported_and_a_progress_function_may_raise(tiny, capfd):
    from waykeeper import _native

    seen = []
    long = tiny.update({"duration_s": 60, "measure_s": 1})
    options = dict(
        policies=[],
        seed=1,
        seeds=1,
        sample_seed=None,
        sets="1/32",
        extrapolate=False,
        duration_s=None,
        warmup_s=None,
        time_factor=None,
        looks_every_s=None,
        threads=1,
    )
    _native.run(long.source(), options, [], seen.append)
    assert seen == sorted(seen) and 0 < seen[-1] <= 1

    def stop(part):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _native.run(long.update({"duration_s": 80_000}).source(), options, [], stop)


def test_a_run_writes_nothing_where_it_is_not_asked(tiny, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    wk.run(tiny, progress=False)
    assert list(tmp_path.iterdir()) == [] and capfd.readouterr() == ("", "")


def test_a_run_that_is_kept_goes_on_and_is_not_made_twice(tiny, tmp_path):
    kept = tmp_path / "runs"
    whole = wk.run(tiny, ["default", "isolate"], seeds=2, progress=False)
    assert not kept.exists()
    wk.run(tiny, ["default"], seeds=2, keep=kept, progress=False)
    stamps = {file: file.stat().st_mtime_ns for file in kept.iterdir()}
    assert len(stamps) == 2
    again = wk.run(tiny, ["default", "isolate"], seeds=2, keep=kept, progress=False)
    assert len(list(kept.iterdir())) == 4
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in stamps.items())

    def timeless(run):
        return {key: value for key, value in json.loads(run.to_json()).items() if key != "wall_s"}

    assert timeless(again) == timeless(whole)
    assert again.timeseries().equals(whole.timeseries())
    damaged = next(iter(stamps))
    damaged.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="is ignored and runs again"):
        assert timeless(wk.run(tiny, ["default", "isolate"], seeds=2, keep=kept, progress=False)) == timeless(whole)
    (tmp_path / "file").write_text("")
    with pytest.raises(wk.BadInput, match="keep: .*file/runs cannot be made"):
        wk.run(tiny, keep=tmp_path / "file/runs", progress=False)


def test_a_dumb_terminal_gets_no_bar(monkeypatch):
    from waykeeper.running import shows_progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    for term, shown in (("xterm", True), ("dumb", False)):
        monkeypatch.setenv("TERM", term)
        assert (shows_progress(None), shows_progress(True), shows_progress(False)) == (shown, True, False)


def test_a_series_has_names_as_they_are(tiny):
    # The CSV files of `run --out` are for spreadsheets: there an apostrophe keeps such a name from being evaluated.
    named = wk.Scenario.parse(tiny.text.replace('"reader"', '"=1+1"'), "tiny.toml")
    names = wk.run(named, progress=False).timeseries().column("name").to_pylist()
    assert "=1+1" in names and "'=1+1" not in names
