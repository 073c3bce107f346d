"""The checks of sweeps on a cluster: python3 -m fleet.sweeps (`run.py` has the packages of Python that it needs).

`waykeeper run --shard` as an array of jobs, and `waykeeper.sweep` on workers that dask-jobqueue starts, on a real Slurm with two nodes.
Both must give what one process gives, also when a job or a worker is killed. This module must not know how Slurm is started.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from clients.testbed import checks, tools
from clients.testbed.checks import Failed, Report, expect
from fleet.slurm import Slurm
from fleet.waiting import until

MATURIN = "maturin==1.16.0"

SHARDS = 8

SEEDS = int(os.environ.get("FLEET_SEEDS", "24"))
"""Seeds of each point. With 24 a job takes seconds, so that runs a second and core can be compared; with fewer it mostly starts."""

RUN = ("run", "a4-fig5", "--seeds", str(SEEDS), "--sets", "1/32")
"""A sweep: with 24 seeds half a minute of one core."""

RUNS = 20 * SEEDS
"""Its simulations: 20 points under one policy."""

FIGURES = ("run", "idio/text", "--quick", "--seeds", "1")
"""What the reproduction suite runs: six claims."""

COUNT = 6
"""Checks of this module."""


def run(report: Report) -> None:
    """All checks."""
    with tempfile.TemporaryDirectory(prefix="waykeeper-sweeps-") as made, Slurm() as slurm:
        folder = Path(made)
        report.client("Slurm", tools.run(["sbatch", "--version"], environment=slurm.environment).split()[-1])
        whole = folder / "whole"
        began = time.monotonic()
        tools.run([tools.waykeeper(), *RUN, "--threads", "2", "--out", whole])
        alone = time.monotonic() - began
        report.check(
            "shards: an array of jobs has the bytes of one process", lambda: array(slurm, folder, whole, alone)
        )
        report.check("shards: a killed job continues with what it kept", lambda: killed(slurm, folder, whole))
        module = module_in(folder)
        report.check("dask: a sweep on Slurm's workers is that of one process", lambda: dask(slurm, folder, module, ""))
        report.check("dask: so is one whose worker is killed", lambda: dask(slurm, folder, module, "kill"))
        report.check(
            "dask: a figure of the reproduction suite is that of one machine", lambda: suite(slurm, folder, module)
        )
        report.check("dask: no job is left", lambda: until(lambda: jobs(slurm), lambda: not jobs(slurm).strip()))
    report.count(COUNT)


def array(slurm: Slurm, folder: Path, whole: Path, alone: float) -> None:
    """Shards write beside each other; the command with --resume joins them and runs nothing."""
    shared = folder / "shared"
    if not slurm.ends(slurm.submit(shard(shared), SHARDS), SHARDS):
        raise Failed(f"a job failed: {slurm.logs()[-1000:]}")
    busy = sum(int(number) for number in re.findall(r"^job_ns (\d+)", slurm.logs(), re.M)) / 1e9
    print(
        f"shards: {RUNS / busy:.2f} runs a second and core in jobs, {RUNS / alone / 2:.2f} in one process with two threads"
    )
    joined(shared, whole)


def killed(slurm: Slurm, folder: Path, whole: Path) -> None:
    """One job is killed after its first run; the same array started again runs the rest."""
    shared = folder / "killed"
    first = slurm.submit(shard(shared), SHARDS)
    until("no run was kept", lambda: any((shared / ".runs").glob("*.json.gz")), pause_s=0.02)
    victims = tools.run(["pgrep", "-f", "waykeeper run .*--shard"]).split()
    os.kill(int(victims[0]), signal.SIGKILL)
    if slurm.ends(first, SHARDS):
        raise Failed("the killed job was not noticed, so this check shows nothing")
    expect(tools.run(["sh", "-c", f"cat {slurm.folder}/job-*.log"]), "runs have ended")
    before = len(list((shared / ".runs").glob("*.json.gz")))
    if not slurm.ends(slurm.submit(shard(shared), SHARDS), SHARDS):
        raise Failed(slurm.logs()[-1000:])
    after = len(list((shared / ".runs").glob("*.json.gz")))
    if after <= before:
        raise Failed(f"{before} runs before, {after} after: the killed job had ended")
    joined(shared, whole)


def shard(shared: Path) -> str:
    """The script of one job."""
    words = " ".join(str(word) for word in (tools.waykeeper(), *RUN, "--threads", "1", "--out", shared))
    return (
        f"began=$(date +%s%N)\n{words} --shard $SLURM_ARRAY_TASK_ID/{SHARDS} || exit\n"
        "echo job_ns $(($(date +%s%N) - began))"
    )


def joined(shared: Path, whole: Path) -> None:
    """The result of the shards, compared file by file but for the wall-clock time."""
    kept = len(list((shared / ".runs").glob("*.json.gz")))
    if kept != RUNS:
        raise Failed(f"the shards kept {kept} runs of {RUNS}")
    tools.run([tools.waykeeper(), *RUN, "--out", shared, "--resume"])
    names = sorted(path.name for path in whole.iterdir())
    if names != sorted(path.name for path in shared.iterdir()):
        raise Failed(f"{names} are not {sorted(path.name for path in shared.iterdir())}")
    for name in names:
        one, other = (timeless(place / name) for place in (shared, whole))
        if one != other:
            raise Failed(f"{name} differs")


def timeless(path: Path) -> list[str]:
    """A file without the wall-clock time of the run."""
    return [line for line in path.read_text().splitlines() if "wall_s" not in line]


def module_in(folder: Path) -> Path:
    """Our Python package, from a wheel: the one that WAYKEEPER_WHEEL names, else one that is built. A folder for PYTHONPATH."""
    wheel = os.environ.get("WAYKEEPER_WHEEL")
    if not wheel:
        words = [tools.python(MATURIN), "-m", "maturin", "build", "--quiet", "--profile", "dev", "--locked"]
        tools.run([*words, "--out", folder], folder=tools.REPOSITORY / "python")
        (wheel,) = folder.glob("waykeeper-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "module")
    return folder / "module"


SCENARIO = """
name = "small"
duration_s = 20
warmup_s = 5
measure_s = 15
time_factor = 200
[[nic]]
name = "nic0"
[[workload]]
name = "dpdk"
program = "dpdk-t"
cores = "0-1"
priority = "high"
[[workload]]
name = "scan"
program = "x-mem"
cores = "2"
working_set = "4M"
"""

CLUSTER = """
from dask_jobqueue import SLURMCluster


def two_jobs(folder):
    cluster = SLURMCluster(
        cores=1, processes=1, memory="2GB", walltime="00:20:00", interface="lo",
        log_directory=folder, local_directory=folder, scheduler_options={"dashboard_address": None},
    )
    cluster.scale(jobs=2)
    return cluster
"""

SUITE = """
import sys
from cluster import two_jobs
from waykeeper.repro.__main__ import main

if __name__ == "__main__":
    folder, *words = sys.argv[1:]
    with two_jobs(folder) as cluster:
        sys.exit(main([*words, "--out", folder + "/cluster", "--scheduler", cluster.scheduler_address]))
"""

SWEEP = """
import glob, os, signal, sys, threading, time
import waykeeper as wk
from cluster import two_jobs
from distributed import Client


def main():
    folder, kill = sys.argv[1], sys.argv[2] == "kill"
    space = {"nic.nic0.packet_bytes": [64, 256, 512, 1024, 1500], "nic.nic0.ring": [256, 512, 1024, 2048]}
    scenario = folder + "/small.toml"
    arguments = dict(policies=["default", "a4"], sets="1/64", progress=False)
    alone = wk.sweep(space, scenario, out=folder + "/alone", **arguments)
    with two_jobs(folder) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        struck = []
        if kill:
            def strike():
                while not glob.glob(folder + "/cluster/**/*.parquet", recursive=True):
                    time.sleep(0.02)
                pid = next(iter(client.run(os.getpid).values()))
                os.kill(pid, signal.SIGKILL)
                struck.append(pid)
            thread = threading.Thread(target=strike)
            thread.start()
        result = wk.sweep(space, scenario, out=folder + "/cluster", engine=client, **arguments)
        if kill:
            thread.join()
    assert not result.failures, result.failures
    assert result.to_arrow().equals(alone.to_arrow()), "the tables differ"
    print(f"{result.to_arrow().num_rows} rows alike, {len(struck)} workers killed")


if __name__ == "__main__":
    main()
"""


def folder_with(place: Path, files: dict[str, str]) -> Path:
    """A new folder with these files."""
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text)
    return place


def dask(slurm: Slurm, folder: Path, module: Path, what: str) -> None:
    """A sweep on two workers that are jobs of Slurm, beside the same sweep in processes of this machine."""
    place = folder_with(folder / f"dask-{what}", {"cluster.py": CLUSTER, "sweep.py": SWEEP, "small.toml": SCENARIO})
    environment = slurm.environment | {"PYTHONPATH": str(module)}
    text = tools.run([sys.executable, place / "sweep.py", place, what or "no"], environment=environment)
    expect(text, "rows alike", f"{int(bool(what))} workers killed")


def suite(slurm: Slurm, folder: Path, module: Path) -> None:
    """Figures of the reproduction suite on two workers that are jobs of Slurm, beside the same ones on this machine."""
    place = folder_with(folder / "suite", {"cluster.py": CLUSTER, "suite.py": SUITE})
    environment = slurm.environment | {"PYTHONPATH": str(module)}
    tools.run([sys.executable, place / "suite.py", place, *FIGURES], environment=environment)
    tools.run([sys.executable, "-m", "waykeeper.repro", *FIGURES, "--out", place / "alone"], environment=environment)
    one, other = (json.loads((place / name / "claims.json").read_text()) for name in ("alone", "cluster"))
    if one != other or not one["total"]["simulable"]:
        raise Failed(f"{other['total']}, and alone {one['total']}")


def jobs(slurm: Slurm) -> str:
    """The jobs that Slurm still has."""
    return tools.run(["squeue", "--noheader"], environment=slurm.environment)


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
