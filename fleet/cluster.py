"""A Kubernetes cluster of this machine: etcd, the API server, controllers, the scheduler, and nodes that kwok plays.

No container runs. The API server refuses privileged containers, which is its default. This module must not know what is checked.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from clients.testbed import tools
from clients.testbed.checks import Failed
from clients.testbed.ports import free_ports
from fleet import programs
from fleet.waiting import ended

SECONDS = 120
"""Longest wait for a program to answer, on a busy machine."""

TOKEN = "of-this-cluster-only"

CONTROLLERS = "daemonset-controller,serviceaccount-controller,garbage-collector-controller,namespace-controller"
"""Those that the objects of the chart need."""

CONNECTION = """
apiVersion: v1
kind: Config
clusters: [{{name: fleet, cluster: {{server: "https://127.0.0.1:{port}", insecure-skip-tls-verify: true}}}}]
users: [{{name: fleet, user: {{token: "{token}"}}}}]
contexts: [{{name: fleet, context: {{cluster: fleet, user: fleet}}}}]
current-context: fleet
"""


class Cluster:
    """A control plane with a folder of its own."""

    def __enter__(self) -> Cluster:
        self.commands = programs.kubernetes()
        self.made = tempfile.TemporaryDirectory(prefix="waykeeper-fleet-cluster-")
        self.folder = Path(self.made.name)
        self.connection = self.folder / "connection.yaml"
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start()
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

    def kubectl(self, *words: str | Path, given: str | None = None) -> str:
        """The output of a command of kubectl that must succeed."""
        return self.run([self.commands / "kubectl", *words], given)

    def run(self, words: Sequence[str | Path], given: str | None = None) -> str:
        """The output of a client of the API server that must succeed."""
        done = self.attempt(words, given)
        if done.returncode != 0:
            raise Failed(
                f"{' '.join(map(str, words[:6]))}: ended with {done.returncode}: {done.stderr.strip()[-2000:]}"
            )
        return done.stdout

    def attempt(self, words: Sequence[str | Path], given: str | None = None) -> subprocess.CompletedProcess[str]:
        """A client of the API server: its output and exit status."""
        environment = {**os.environ, "KUBECONFIG": str(self.connection), "HOME": str(self.folder)}
        return subprocess.run(
            [str(word) for word in words],
            env=environment,
            input=given or "",
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    def objects(self, kind: str, *words: str) -> list[dict[str, Any]]:
        """Objects of a kind in all namespaces."""
        return json.loads(self.kubectl("get", kind, "--all-namespaces", "--output", "json", *words))["items"]

    def create(self, objects: list[dict[str, Any]]) -> None:
        """Creates objects."""
        self.kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def _start(self) -> None:
        store, peer, port, controllers, scheduler = free_ports(5)
        self.connection.write_text(CONNECTION.format(port=port, token=TOKEN))
        self.connection.chmod(0o600)
        tokens, key = self.folder / "tokens.csv", self.folder / "accounts.key"
        tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        tools.run([programs.openssl(), "genrsa", "-out", key, "2048"])
        clients, peers = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peer}"
        self._run(
            programs.etcd(),
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            # Nothing has to outlast this run.
            "--unsafe-no-fsync",
        )
        self._run(
            self.commands / "kube-apiserver",
            f"--etcd-servers={clients}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder}/certificates",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
        )
        self._wait_until_ready()
        client = [f"--kubeconfig={self.connection}", "--leader-elect=false"]
        self._run(
            self.commands / "kube-controller-manager",
            *client,
            f"--secure-port={controllers}",
            f"--cert-dir={self.folder}/certificates",
            f"--controllers={CONTROLLERS}",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
        )
        self._run(
            self.commands / "kube-scheduler",
            *client,
            f"--secure-port={scheduler}",
            f"--cert-dir={self.folder}/certificates",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
        )
        kwok, stages = programs.kwok()
        files = [word for stage in stages for word in ("--config", str(stage))]
        self._run(kwok, f"--kubeconfig={self.connection}", "--manage-all-nodes=true", *files)

    def _run(self, program: Path, *words: str) -> None:
        with open(self.folder / f"{program.name}.log", "ab") as log:
            process = subprocess.Popen([program, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + SECONDS
        while self.attempt([self.commands / "kubectl", "get", "--raw=/readyz"]).returncode != 0:
            if time.monotonic() > end or any(process.poll() is not None for process in self.processes):
                raise Failed(f"the API server is not ready: {self.logs()}")
            time.sleep(0.5)

    def logs(self) -> str:
        """The ends of all programs' logs."""
        return "".join(f"\n{log.name}: {log.read_text(errors='replace')[-600:]}" for log in self.folder.glob("*.log"))
