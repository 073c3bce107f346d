"""The checks of the Helm chart and of the Kustomize files: python3 -m fleet.chart (needs PyYAML).

Lint, refusals, rendered objects, and our program's opinion of each rendered configuration. `installed` has what needs a cluster. This
module must not know how programs are built.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from clients.testbed import checks, tools
from clients.testbed.checks import Failed, Report, expect
from fleet import programs
from fleet.manifests import Tree, comparable, configuration, container, differences

CHART = tools.REPOSITORY / "dist/helm/waykeeper"
KUSTOMIZE = tools.REPOSITORY / "dist/kustomize"

NAME = NAMESPACE = "waykeeper"

METRICS = {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}}

ALL = METRICS | {
    "image": {
        "repository": "registry.example:5000/a/waykeeper",
        "digest": "sha256:" + 64 * "0",
        "pullSecrets": ["key"],
    },
    "config": {
        "daemon": {"mode": "manage", "period_s": 0.5, "domain": 1},
        "policy": {"name": "isolate", "settings": {"masks": {"default.web": "0x3", "backup": "0x4"}}},
        "twin": {"share": 0.1, "cores": "0-1"},
        "limits": {"classes": 4, "outsiders": "correct"},
        "recorder": {"dir": "/var/lib/waykeeper/recorder", "keep_hours": 2},
        "log": {"format": "json"},
    },
    "tenants": [{"name": "backup", "priority": "low", "unit": "backup.service", "cores": "2-3"}],
    "msr": {"enabled": True, "resource": "squat.ai/msr"},
    "pciConfig": {"enabled": True, "ports": ["0000:3a:00.0"]},
    "programPaths": {"enabled": True},
    "nodeFeatureRule": {"enabled": True},
    "updateStrategy": {"maxUnavailable": "10%"},
    "podLabels": {"team": "platform"},
}

VARIANTS: dict[str, Tree] = {
    "default": {},
    "monitoring": METRICS,
    "all": ALL,
    "without NRI": {"config": {"nri": {"enabled": False}}, "serviceAccount": {"create": False}, "tolerations": []},
}

RIGHTS = {
    "default": {"DAC_OVERRIDE", "PERFMON"},
    "monitoring": {"DAC_OVERRIDE", "PERFMON"},
    "all": {"DAC_OVERRIDE", "PERFMON", "SYS_RAWIO", "SYS_ADMIN", "SYS_PTRACE"},
    "without NRI": {"DAC_OVERRIDE", "PERFMON"},
}

WRITABLE = {
    "default": {"/sys/fs/resctrl", "/run/waykeeper"},
    "monitoring": {"/sys/fs/resctrl", "/run/waykeeper"},
    "all": {"/sys/fs/resctrl", "/run/waykeeper", "/sys/devices", "/var/lib/waykeeper"},
    "without NRI": {"/sys/fs/resctrl", "/run/waykeeper"},
}

REFUSED: list[tuple[Tree, list[str]]] = [
    ({"config": {"daemon": {"mode": "mange"}}}, ["/config/daemon/mode", "manage", "dry-run", "observe"]),
    ({"config": {"polcy": {"name": "a4"}}}, ["/config", "polcy"]),
    ({"config": {"limits": {"dca_ways": True}}}, ["/config/limits", "dca_ways"]),
    ({"config": {"metrics": {"listen": "0.0.0.0:19190"}}}, ["/config", "metrics"]),
    ({"config": {"nri": {"index": 100}}}, ["/config/nri/index", "99"]),
    ({"config": {"recorder": {"dir": "/tmp/recorder"}}}, ["/config/recorder/dir", "/var/lib/waykeeper"]),
    ({"msr": {"enabled": True}}, ["/msr/resource"]),
    ({"pciConfig": {"enabled": True, "ports": ["3a"]}}, ["/pciConfig/ports"]),
    ({"metrics": {"serviceMonitor": {"enabled": True}}}, ["/metrics/enabled"]),
    ({"metrics": {"port": 9100}}, ["/metrics/port"]),
    ({"updateStrategy": {"maxUnavailable": 0}}, ["/updateStrategy/maxUnavailable"]),
    ({"appArmorProfile": {"type": "Localhost"}}, ["/appArmorProfile", "localhostProfile"]),
    ({"tenants": [{"name": "a", "priority": "urgent"}]}, ["/tenants/0/priority", "high", "low"]),
    ({"image": {"repository": "waykeeper:1"}}, ["/image/repository"]),
    ({"privileged": True}, ["privileged"]),
]
"""Values that the schema refuses, and parts of the message."""


class Chart:
    """The chart, as Helm renders it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.helm = programs.helm()

    def values(self, values: Tree) -> Path:
        """A file of values; JSON is YAML."""
        path = self.folder / "values.json"
        path.write_text(json.dumps(values))
        return path

    def attempt(self, command: str, values: Tree, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of Helm that needs no cluster."""
        line = [self.helm, command, *words, CHART, "--namespace", NAMESPACE, "--values", self.values(values)]
        environment = {**os.environ, "HOME": str(self.folder)}
        return subprocess.run(
            [str(word) for word in line], env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def text(self, values: Tree) -> str:
        """The rendered objects."""
        done = self.attempt("template", values, NAME)
        if done.returncode != 0:
            raise Failed(done.stderr)
        return done.stdout

    def rendered(self, values: Tree) -> dict[str, Tree]:
        """The rendered objects, comparable."""
        return comparable(yaml.safe_load_all(self.text(values)))


def lint(chart: Chart) -> None:
    """Fails if Helm finds fault with the chart under any of the values."""
    for name, values in VARIANTS.items():
        done = chart.attempt("lint", values, "--strict")
        if done.returncode != 0:
            raise Failed(f"{name}: {done.stdout}{done.stderr}")


def refusals(chart: Chart) -> None:
    """Fails unless each bad value is refused, with its place and what is accepted."""
    for values, parts in REFUSED:
        done = chart.attempt("template", values, NAME)
        if done.returncode == 0:
            raise Failed(f"{values} is accepted")
        expect(done.stderr, *parts)


def rights(chart: Chart) -> None:
    """Fails if a pod has more rights than are listed here."""
    for name, values in VARIANTS.items():
        daemon_set = chart.rendered(values)[f"DaemonSet/{NAME}"]
        pod, own = daemon_set["spec"]["template"]["spec"], container(daemon_set)
        context = own["securityContext"]
        writable = {mount["mountPath"] for mount in own["volumeMounts"] if not mount.get("readOnly")}
        found = {
            "capabilities": (set(context["capabilities"]["add"]), RIGHTS[name]),
            "dropped": (context["capabilities"]["drop"], ["ALL"]),
            "writable": (writable, WRITABLE[name]),
            "privileged": (context["privileged"] or context["allowPrivilegeEscalation"], False),
            "root file system": (context["readOnlyRootFilesystem"], True),
            "seccomp": (context["seccompProfile"], {"type": "RuntimeDefault"}),
            "token": (pod["automountServiceAccountToken"], False),
            "namespaces of the node": ({key for key in pod if key.startswith("host")}, {"hostPID"}),
        }
        for what, (is_there, wanted) in found.items():
            if is_there != wanted:
                raise Failed(f"{name}: {what}: {is_there}, and not {wanted}")
        kinds = {key.split("/")[0] for key in chart.rendered(values)}
        if any("Role" in kind for kind in kinds):
            raise Failed(f"{name}: {kinds}")


def configurations(chart: Chart) -> None:
    """Fails unless our program accepts the configuration of all variants, with the values that the chart was given."""
    for name, values in VARIANTS.items():
        (text,) = (
            one["data"]["waykeeper.toml"]
            for one in yaml.safe_load_all(chart.text(values))
            if one["kind"] == "ConfigMap"
        )
        file = chart.folder / "waykeeper.toml"
        file.write_text(text)
        said = tools.run([tools.waykeeper(), "daemon", "--check", "--config", file])
        own = configuration(chart.rendered(values))
        for section, keys in values.get("config", {}).items():
            for key, value in keys.items():
                if own[section][key] != value:
                    raise Failed(f"{name}: {section}.{key} is {own[section][key]!r}, and not {value!r}")
        expect(said, f'mode = "{own["daemon"]["mode"]}"', f"dca_ways = {json.dumps(name == 'all')}")
        for tenant in values.get("tenants", []):
            expect(said, tenant["name"])


def equal(chart: Chart) -> None:
    """Fails unless Kustomize's objects are those of the chart, besides the namespace."""
    for folder, variant in (("base", "default"), ("overlays/monitoring", "monitoring")):
        plain = comparable(yaml.safe_load_all(tools.run([programs.kustomize(), "build", KUSTOMIZE / folder])))
        plain.pop(f"Namespace/{NAMESPACE}")
        found = list(differences(chart.rendered(VARIANTS[variant]), plain))
        if found:
            raise Failed(f"chart and {folder}: {found}")


def run(report: Report) -> None:
    """Runs the checks."""
    report.client("helm", programs.HELM)
    with tempfile.TemporaryDirectory(prefix="waykeeper-fleet-chart-") as folder:
        chart = Chart(Path(folder))
        report.check("helm lint --strict", lambda: lint(chart))
        report.check(f"{len(REFUSED)} bad values are refused by name", lambda: refusals(chart))
        report.check("a pod has the rights that are listed, and no other", lambda: rights(chart))
        report.check("the daemon accepts every rendered configuration", lambda: configurations(chart))
        report.client("kustomize", programs.KUSTOMIZE)
        report.check("Kustomize's objects are the chart's", lambda: equal(chart))


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
