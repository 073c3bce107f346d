"""Sweeps: every point once, resumed after a kill, failures apart, on processes and on Dask."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from waiting import PATIENCE_S, until

import waykeeper as wk
from waykeeper import bounded

SPACE = {"workload.reader.working_set": ["1 MiB", "4 MiB", "16 MiB"], "workload.streamer.mask": ["0x7ff", "0x003"]}


def test_a_grid_gives_a_row_per_point_policy_and_workload(tiny, tmp_path):
    result = wk.sweep(SPACE, tiny, ["default", "none"], out=tmp_path / "s", jobs=2, progress=False)
    table = result.to_pandas()
    workloads = table[table.scope == "workload"]
    assert len(workloads) == 6 * 2 * 2 and not result.failures
    assert len(table[table.scope == "system"]) == 6 * 2
    small = workloads[(workloads["workload.reader.working_set"] == "1 MiB") & (workloads.workload == "reader")]
    large = workloads[(workloads["workload.reader.working_set"] == "16 MiB") & (workloads.workload == "reader")]
    assert small.ipc.min() > large.ipc.max()
    assert (tmp_path / "s" / "sweep.parquet").is_file()


def test_what_is_done_is_not_done_again(tiny, tmp_path):
    first = wk.sweep(SPACE, tiny, out=tmp_path / "s", jobs=1, progress=False)
    files = sorted((tmp_path / "s" / "points").iterdir())
    stamps = [file.stat().st_mtime_ns for file in files]
    files[2].unlink()
    again = wk.sweep(SPACE, tiny, out=tmp_path / "s", jobs=1, progress=False)
    assert again.to_arrow().equals(first.to_arrow())
    now = [file.stat().st_mtime_ns for file in files]
    assert [a == b for a, b in zip(stamps, now)] == [True, True, False, True, True, True]


def test_a_folder_holds_one_sweep(tiny, tmp_path):
    wk.sweep({"workload.reader.mask": ["0x3"]}, tiny, out=tmp_path, jobs=1, progress=False)
    with pytest.raises(wk.BadInput, match="another sweep"):
        wk.sweep({"workload.reader.mask": ["0xc"]}, tiny, out=tmp_path, jobs=1, progress=False)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not the manifest of a sweep: Expecting"),
        (" " * (bounded.MOST + 1), "a manifest has at most 67108864 bytes"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tiny, tmp_path, content, says):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(wk.BadInput, match=says):
        wk.sweep({"workload.reader.mask": ["0x3"]}, tiny, out=tmp_path, jobs=1, progress=False)


def test_points_that_fail_are_tried_once_more_and_kept_apart(tiny, tmp_path):
    log = tmp_path / "tries"

    class Picky(wk.Policy):
        name = "picky"

        def start(self, server, workloads):
            with log.open("a") as file:
                file.write("x")
            raise RuntimeError("never")

        def step(self, workloads, seen):
            return None

    result = wk.sweep({"workload.reader.mask": ["0x3"]}, tiny, [Picky], out=tmp_path / "s", jobs=1, progress=False)
    assert [failure["at"] for failure in result.failures] == [{"workload.reader.mask": "0x3"}]
    assert "never" in result.failures[0]["why"] and log.read_text() == "xx"
    assert json.loads((tmp_path / "s" / "failures.jsonl").read_text())["why"] == result.failures[0]["why"]


def test_wrong_keys_and_values_show_before_the_first_run(tiny, tmp_path):
    for space, says in [
        ({"workload.nobody.mask": ["0x3"]}, "nobody"),
        ({"workload.reader.mask": ["0x3", "wide"]}, "wide"),
        ({"workload.reader.mask": "0x3"}, "list"),
        ({"workload.reader.mask": []}, "no point"),
    ]:
        with pytest.raises(wk.BadInput) as caught:
            wk.sweep(space, tiny, out=tmp_path / says, jobs=1, progress=False)
        assert says in str(caught.value)
        assert not list((tmp_path / says / "points").glob("*")) if (tmp_path / says).exists() else True


KILLED = """
import sys
import waykeeper as wk
from distributed import Client, LocalCluster

if __name__ == "__main__":
    scenario = wk.Scenario.load(sys.argv[1])
    space = {"workload.reader.working_set": list(range(65536, 65536 + 200 * 4096, 4096))}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        result = wk.sweep(space, scenario, out=sys.argv[2], engine=client, progress=False)
        print(result.to_arrow().num_rows, len(result.failures))
"""


@pytest.mark.long
def test_two_hundred_points_on_dask_survive_a_kill(tiny, tmp_path):
    scenario, script, out = tmp_path / "tiny.toml", tmp_path / "sweep.py", tmp_path / "out"
    scenario.write_text(tiny.text)
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(scenario), str(out)]
    running = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    points = out / "points"

    def has_twenty_points():
        assert running.poll() is None
        return len(list(points.glob("*.parquet"))) >= 20

    until("twenty points", has_twenty_points)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    kept = {file: file.stat().st_mtime_ns for file in points.glob("*.parquet")}
    assert 20 <= len(kept) < 200
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    # Two workloads and the socket at each of two hundred points.
    assert done.stdout.split() == ["600", "0"]
    assert len(list(points.glob("*.parquet"))) == 200
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in kept.items())


def test_a_mistake_leaves_no_trace_and_the_folder_free(tiny, tmp_path):
    with pytest.raises(wk.BadInput, match="isolate"):
        wk.sweep({"workload.reader.mask": ["0x3"]}, tiny, ["isolat"], out=tmp_path / "s", jobs=1, progress=False)
    with pytest.raises(wk.BadInput, match="wide"):
        wk.sweep({"workload.reader.mask": ["wide"]}, tiny, out=tmp_path / "s", jobs=1, progress=False)
    assert not (tmp_path / "s").exists()
    assert wk.sweep({"workload.reader.mask": ["0x3"]}, tiny, out=tmp_path / "s", jobs=1, progress=False).failures == []


def test_an_edited_policy_is_another_one(tiny, tmp_path):
    def policy(body):
        file = tmp_path / "mine.py"
        file.write_text(f"import waykeeper as wk\nclass Mine(wk.Policy):\n    name = 'mine'\n{body}")
        import importlib.util
        import linecache

        linecache.clearcache()
        spec = importlib.util.spec_from_file_location("mine", file)
        module = importlib.util.module_from_spec(spec)
        sys.modules["mine"] = module
        spec.loader.exec_module(module)
        return module.Mine

    space = {"workload.reader.mask": ["0x3"]}
    first = policy("    def step(self, workloads, seen):\n        return None\n")
    wk.sweep(space, tiny, [first], out=tmp_path / "s", jobs=1, progress=False)
    edited = policy("    def step(self, workloads, seen):\n        raise ValueError('edited')\n")
    with pytest.raises(wk.BadInput, match="another sweep"):
        wk.sweep(space, tiny, [edited], out=tmp_path / "s", jobs=1, progress=False)


def test_ctrl_c_ends_a_sweep_at_once_and_it_continues(tiny, tmp_path):
    script = tmp_path / "sweep.py"
    script.write_text(
        "import waykeeper as wk\n"
        "if __name__ == '__main__':\n"
        f"    s = wk.Scenario.parse({tiny.text!r})\n"
        # The first point takes milliseconds, each other one hours.
        f"    wk.sweep({{'duration_s': [0.4] + [86400] * 7}}, s, out={str(tmp_path / 'out')!r}, jobs=2)\n"
    )
    running = subprocess.Popen([sys.executable, str(script)], start_new_session=True, stderr=subprocess.PIPE)

    def has_a_point():
        assert running.poll() is None
        return list((tmp_path / "out" / "points").glob("*.parquet"))

    until("a point", has_a_point)
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(timeout=PATIENCE_S) != 0
    assert re.search(r"stopped; .*out has 1 of 8 points; the same call continues", running.stderr.read().decode())


def test_the_folder_of_a_sweep_is_checked_before_the_first_run(tiny, tmp_path):
    (tmp_path / "file").write_text("theirs")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(wk.BadInput, match="is no folder"):
            wk.sweep({"workload.reader.mask": ["0x3"]}, tiny, out=out, jobs=1, progress=False)
    assert (tmp_path / "file").read_text() == "theirs"
