"""A Slurm of this machine: its controller, two nodes with one CPU each, and munge, all in a folder of their own.

No service is started. This module must not know what is checked.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from clients.testbed import tools
from clients.testbed.ports import free_ports
from fleet import programs
from fleet.waiting import ended, until

NODES = ("node1", "node2")

NOT_ENDED = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED"}
"""States of jobs that have not ended."""

CONFIG = """\
ClusterName=fleet
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
MinJobAge=3600
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """The running Slurm. Use it with `with`; its clients need `environment`."""

    def __enter__(self) -> Slurm:
        commands = programs.slurm()
        self.made = tempfile.TemporaryDirectory(prefix="waykeeper-slurm-")
        self.folder = Path(self.made.name)
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(commands)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self.processes):
            ended(process)
        self.made.cleanup()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client of this Slurm."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def submit(self, script: str, tasks: int) -> str:
        """Submits a shell script as an array of jobs with one CPU each, `SLURM_ARRAY_TASK_ID` from 1; the array's number."""
        path = self.folder / "job.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        words = ["sbatch", "--parsable", f"--array=1-{tasks}", "--cpus-per-task=1", "--no-requeue"]
        words += [f"--output={self.folder}/job-%a.log", path]
        return tools.run(words, environment=self.environment).strip()

    def ends(self, array: str, tasks: int) -> bool:
        """Waits until all jobs of an array have ended; whether there were so many and each of them ended with 0.

        `sbatch --wait` would look only every half minute (MAX_WAIT_SLEEP_TIME of Slurm's src/sbatch/sbatch.c).
        """
        states: list[str] = []

        def have_ended() -> bool:
            shown = tools.run(["scontrol", "--oneliner", "show", "job", array], environment=self.environment)
            states[:] = re.findall(r"\bJobState=(\w+)", shown)
            return not NOT_ENDED.intersection(states)

        until(lambda: f"jobs run on: {states}", have_ended, seconds=600, pause_s=0.2)
        return states == ["COMPLETED"] * tasks

    def logs(self) -> str:
        """What the jobs printed."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("job-*.log")))

    def _start(self, commands: dict[str, Path]) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        # The folder belongs to this check alone; munge's rules for the folders of a service do not apply to it.
        self.folder.chmod(0o755)
        munge = [
            commands["munged"],
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={self.folder}/munge.sock",
        ]
        munge += [f"--{name}-file={self.folder}/munge.{name}" for name in ("pid", "log", "seed")]
        self._run(munge)
        until("munged made no socket", (self.folder / "munge.sock").exists)
        ports = free_ports(1 + len(NODES))
        host = socket.gethostname()
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=4000"
            for node, port in zip(NODES, ports[1:], strict=True)
        ]
        config = CONFIG.format(host=host, port=ports[0], folder=self.folder, nodes="\n".join(nodes))
        (self.folder / "slurm.conf").write_text(config)
        (self.folder / "state").mkdir()
        self._run([commands["slurmctld"], "-D"])
        for node in NODES:
            (self.folder / f"spool-{node}").mkdir()
            self._run([commands["slurmd"], "-D", "-N", node])
        until(self._why, lambda: self._states() == ["idle"] * len(NODES))

    def _run(self, words: list[str]) -> None:
        log = (self.folder / f"{Path(words[0]).name}-{len(self.processes)}.out").open("wb")
        with log:
            self.processes.append(
                subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _states(self) -> list[str]:
        words = ["sinfo", "--noheader", "--Node", "--format=%T"]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        return done.stdout.split()

    def _why(self) -> str:
        logs = [path.read_text(errors="replace")[-600:] for path in sorted(self.folder.glob("*.log"))]
        return f"nodes are {self._states()}:\n" + "\n".join(logs)
