"""The chart on a real API server with controllers, a scheduler and nodes that kwok plays: python3 -m fleet.installed (needs PyYAML).

It is installed, upgraded, rolled back and removed. This module must not know how objects are rendered or programs are built.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clients.testbed import checks
from clients.testbed.checks import Failed, Report
from fleet import programs
from fleet.chart import CHART, KUSTOMIZE, METRICS, NAME, NAMESPACE, VARIANTS, Chart
from fleet.cluster import Cluster
from fleet.manifests import Tree, comparable, configuration
from fleet.waiting import until

NODES = int(os.environ.get("FLEET_NODES", "1000"))

LABEL = "feature.node.kubernetes.io/cpu-rdt.RDTL3CA"

CANARY = "waykeeper.io/canary"
"""The label of nodes that a second release manages."""

NO_CANARY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": CANARY, "operator": "DoesNotExist"}]}]
        }
    }
}
"""The affinity with which the first release leaves them."""


def nodes() -> list[Tree]:
    """Nodes of which three in four have the label of RDT, and every eighth a taint."""
    made = []
    for number in range(NODES):
        labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        if number % 4:
            labels[LABEL] = "true"
        node: Tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number:04}", "labels": labels}}
        if number % 8 == 1:
            node["spec"] = {"taints": [{"key": "for", "value": "databases", "effect": "NoSchedule"}]}
        size = {"cpu": "32", "memory": "256Gi", "pods": "110"}
        node["status"] = {"capacity": size, "allocatable": size}
        made.append(node)
    return made


class Installation:
    """The chart in a cluster."""

    def __init__(self, chart: Chart, cluster: Cluster) -> None:
        self.chart, self.cluster = chart, cluster
        self.matching = sorted(one["metadata"]["name"] for one in nodes() if LABEL in one["metadata"]["labels"])

    def helm(self, *words: str | Path) -> str:
        """A command of Helm on the cluster."""
        return self.cluster.run([self.chart.helm, *words, "--namespace", NAMESPACE])

    def validated(self) -> None:
        """Fails unless the API server accepts all objects, and refuses one that is wrong."""
        self.cluster.kubectl("create", "namespace", NAMESPACE)
        for values in VARIANTS.values():
            self.cluster.kubectl(
                "apply", "--dry-run=server", "--validate=strict", "-f", "-", given=self.chart.text(values)
            )
        wrong = (
            self.chart.text({})
            .replace("allowPrivilegeEscalation: false", "")
            .replace("privileged: false", "privileged: true")
        )
        done = self.cluster.attempt([self.cluster.commands / "kubectl", "apply", "--dry-run=server", "-f", "-"], wrong)
        if done.returncode == 0 or "privileged" not in done.stderr:
            raise Failed(f"a privileged pod is not refused: {done.stderr}")

    def pods(self) -> list[Tree]:
        """The daemon's pods that are not about to end."""
        found = self.cluster.objects("pods", "--selector", "app.kubernetes.io/name=waykeeper")
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def modes(self) -> dict[str, str]:
        """The mode in the configuration of each release."""
        found = self.cluster.objects("configmaps", "--selector", "app.kubernetes.io/name=waykeeper")
        return {
            one["metadata"]["labels"]["app.kubernetes.io/instance"]: configuration(comparable([one]))["daemon"]["mode"]
            for one in found
        }

    def digests(self) -> set[str]:
        """The digests of the configurations with which pods were started."""
        return {one["metadata"]["annotations"]["checksum/config"] for one in self.pods()}

    def rolled_out(self) -> None:
        """Waits until each matching node has one pod that is ready, and no other node has any."""
        self.are_on({NAME: self.matching})

    def are_on(self, nodes: dict[str, list[str]]) -> None:
        """Waits until each DaemonSet has one pod that is ready on each of its nodes, and there is no other pod."""
        for name in nodes:
            self.cluster.kubectl("--namespace", NAMESPACE, "rollout", "status", f"daemonset/{name}", "--timeout=600s")
        wanted = sorted((name, node) for name, own in nodes.items() for node in own)

        def places() -> list[tuple[str, str]]:
            owned = (
                (one["metadata"]["ownerReferences"][0]["name"], one["spec"].get("nodeName")) for one in self.pods()
            )
            return sorted((name, node or "none") for name, node in owned)

        until("the pods are not on exactly their nodes", lambda: places() == wanted, pause_s=1)

    def install(self) -> None:
        """Installs."""
        values = self.chart.values({"updateStrategy": {"maxUnavailable": "20%"}})
        self.helm("install", NAME, CHART, "--create-namespace", "--values", values)
        self.rolled_out()
        self.first = self.digests()
        if len(self.first) != 1 or self.modes() != {NAME: "observe"}:
            raise Failed(f"{self.first}, {self.modes()}")

    def has_no_right(self) -> None:
        """Fails if the daemon's account may do anything but what every account may."""
        account = f"--as=system:serviceaccount:{NAMESPACE}:{NAME}"
        for verb, kind in [("get", "pods"), ("list", "nodes"), ("watch", "configmaps"), ("create", "events")]:
            done = self.cluster.attempt([self.cluster.commands / "kubectl", "auth", "can-i", verb, kind, account])
            if done.stdout.strip() != "no":
                raise Failed(f"{verb} {kind}: {done.stdout}{done.stderr}")

    def upgrade(self) -> None:
        """Upgrades to another configuration: all pods are new."""
        values = self.chart.values(
            METRICS | {"config": {"daemon": {"mode": "manage"}}, "updateStrategy": {"maxUnavailable": "20%"}}
        )
        self.helm("upgrade", NAME, CHART, "--values", values)
        self.rolled_out()
        if (
            self.modes() != {NAME: "manage"}
            or self.digests() & self.first
            or not self.cluster.objects("servicemonitors")
        ):
            raise Failed(f"{self.modes()}, {self.digests()}")

    def roll_back(self) -> None:
        """Returns to the first revision: the pods have the first configuration again."""
        self.helm("rollback", NAME, "1")
        self.rolled_out()
        if self.modes() != {NAME: "observe"} or self.digests() != self.first or self.cluster.objects("servicemonitors"):
            raise Failed(f"{self.modes()}, {self.digests()}")

    def canary(self) -> None:
        """A second release manages nodes with a label, and the first leaves them; then the second is removed, and the label."""
        chosen, others = self.matching[::10], [node for at, node in enumerate(self.matching) if at % 10]
        self.cluster.kubectl("label", "node", *chosen, f"{CANARY}=true")
        name = f"{NAME}-canary"
        self.helm("upgrade", NAME, CHART, "--reuse-values", "--set-json", f"affinity={json.dumps(NO_CANARY)}")
        key = CANARY.replace(".", "\\.")
        words = ["--set", "config.daemon.mode=manage", "--set-string", f"nodeSelector.{key}=true"]
        self.helm("install", name, CHART, "--values", self.chart.values({}), *words)
        self.are_on({NAME: others, name: chosen})
        if self.modes() != {NAME: "observe", name: "manage"}:
            raise Failed(str(self.modes()))
        self.helm("uninstall", name)
        self.cluster.kubectl("label", "node", *chosen, f"{CANARY}-")
        self.rolled_out()

    def gone(self) -> None:
        """Waits until nothing of ours is left."""
        kinds = "daemonsets,pods,configmaps,services,serviceaccounts,servicemonitors,nodefeaturerules"

        def is_left() -> list[Any]:
            return self.cluster.objects(kinds, "--selector", "app.kubernetes.io/name=waykeeper")

        until("objects are left", lambda: not is_left(), seconds=300, pause_s=1)

    def remove(self) -> None:
        """Removes the chart."""
        self.helm("uninstall", NAME)
        self.gone()

    def kustomize(self) -> None:
        """Applies the Kustomize files with the ServiceMonitor, and deletes them."""
        folder = KUSTOMIZE / "overlays/monitoring"
        self.cluster.kubectl("apply", "--kustomize", folder)
        self.rolled_out()
        self.cluster.kubectl("delete", "--kustomize", folder, "--timeout=300s")
        self.gone()


def timed(report: Report, name: str, act: Callable[[], None]) -> None:
    """Runs a check, and prints the seconds that it took."""
    begun = time.monotonic()
    report.check(name, act)
    print(f"  {time.monotonic() - begun:.1f} s", flush=True)


def run(report: Report) -> None:
    """Runs the checks."""
    report.client("Kubernetes", programs.KUBERNETES)
    with tempfile.TemporaryDirectory(prefix="waykeeper-fleet-chart-") as folder, Cluster() as cluster:
        chart = Chart(Path(folder))
        for file in programs.definitions():
            cluster.kubectl("apply", "--server-side", "-f", file)
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        installation = Installation(chart, cluster)
        timed(report, "the API server accepts all objects, and refuses a privileged pod", installation.validated)
        cluster.create(nodes())
        timed(report, f"{NODES} nodes: one pod on each with the label, none on others", installation.install)
        timed(report, "the daemon's account has no right", installation.has_no_right)
        timed(report, "an upgrade replaces all pods", installation.upgrade)
        timed(report, "a rollback brings the first configuration back", installation.roll_back)
        timed(
            report, "a second release manages a share of the nodes, and leaves them to the first", installation.canary
        )
        timed(report, "nothing is left after the removal", installation.remove)
        timed(report, "Kustomize applies and deletes the same", installation.kustomize)


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
