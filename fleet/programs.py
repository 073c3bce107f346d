"""The programs of a cluster and of a node: built with Go from their modules and kept with the programs of `clients`, or Debian's.

Also files of other projects that are in their modules: definitions of objects, and the stages of kwok. This module must not know how
they are used.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from clients.testbed import tools

HELM = "v4.3.1"
KUSTOMIZE = "v5.8.1"
KUBERNETES = "v1.36.3"
ETCD = "v3.7.3"
KWOK = "v0.8.0"
CONTAINERD = "v2.4.2"
OPERATOR = ("github.com/prometheus-operator/prometheus-operator", "v0.85.0")
DISCOVERY = ("sigs.k8s.io/node-feature-discovery", "v0.18.3")

COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

DEFINITIONS = (
    (OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"),
    (DISCOVERY, "deployment/base/nfd-crds/nfd-api-crds.yaml"),
)
"""Files with the definitions of ServiceMonitor and NodeFeatureRule."""

STAGES = ("node/fast", "node/heartbeat", "pod/fast")
"""Folders of kwok's stages: nodes that are ready and stay so, pods that run at once and end at once."""

ENVIRONMENT = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0"}


def helm() -> Path:
    """Helm."""
    return tools.go_program("helm", f"helm.sh/helm/v4@{HELM}", "helm.sh/helm/v4/cmd/helm")


def kustomize() -> Path:
    """Kustomize."""
    module = "sigs.k8s.io/kustomize/kustomize/v5"
    return tools.go_program("kustomize", f"{module}@{KUSTOMIZE}", module)


def etcd() -> Path:
    """etcd, which keeps the objects."""
    module = "go.etcd.io/etcd/server/v3"
    return tools.go_program("etcd", f"{module}@{ETCD}", module)


def kubernetes() -> Path:
    """A folder with the programs of `COMMANDS`."""
    name = f"kubernetes-{KUBERNETES}"
    with tools.made(name) as fresh:
        if fresh:
            # The module replaces its parts by folders of its repository; their published versions begin with v0.
            found = tools.run(
                [tools.go(), "list", "-m", "-json", f"k8s.io/kubernetes@{KUBERNETES}"], environment=ENVIRONMENT
            )
            own = Path(json.loads(found)["GoMod"]).read_text()
            published = KUBERNETES.replace("v1.", "v0.", 1)
            parts = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", own, re.MULTILINE)
            lines = ["module fleet", "go 1.26", f"require k8s.io/kubernetes {KUBERNETES}"]
            lines += [f"replace {part} => {part} {published}" for part in parts]
            lines += [f"tool k8s.io/kubernetes/cmd/{command}" for command in COMMANDS]
            (fresh / "go.mod").write_text("\n".join(lines) + "\n")
            tools.run([tools.go(), "mod", "tidy"], folder=fresh, environment=ENVIRONMENT)
            major, minor, _ = KUBERNETES.lstrip("v").split(".")
            version = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
            flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in version.items())
            packages = [f"k8s.io/kubernetes/cmd/{command}" for command in COMMANDS]
            build = [tools.go(), "build", "-ldflags", f"-s -w {flags}", "-o", f"{fresh}/", *packages]
            tools.run(build, folder=fresh, environment=ENVIRONMENT)
    return tools.CACHE / name


def containerd() -> Path:
    """A folder with containerd's programs."""
    name = f"containerd-{CONTAINERD}"
    with tools.made(name) as fresh:
        if fresh:
            module = "github.com/containerd/containerd/v2/cmd"
            words = [f"{module}/{command}@{CONTAINERD}" for command in ("containerd", "containerd-shim-runc-v2", "ctr")]
            environment = {"GOBIN": str(fresh), "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
            tools.run([tools.go(), "install", *words], environment=environment)
    return tools.CACHE / name


def runc() -> Path:
    """Debian's runc, which starts the containers."""
    return Path(tools.debian("runc", "runc"))


def busybox() -> Path:
    """Debian's static busybox, the only program of the pods."""
    return Path(tools.debian("busybox", "busybox-static"))


def openssl() -> Path:
    """Debian's openssl, which makes the cluster's key."""
    return Path(tools.debian("openssl", "openssl"))


def slurm() -> dict[str, Path]:
    """Debian's Slurm and munge, by command."""
    packages = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
    return {command: Path(tools.debian(command, package)) for command, package in packages.items()}


def kwok() -> tuple[Path, list[Path]]:
    """kwok, which plays the nodes of a cluster, and the files that say how its nodes and pods behave."""
    module = "sigs.k8s.io/kwok"
    program = tools.go_program("kwok", f"{module}@{KWOK}", f"{module}/cmd/kwok")
    name = f"kwok-stages-{KWOK}"
    with tools.made(name) as fresh:
        if fresh:
            folder = _module(module, KWOK) / "kustomize/stage"
            for stage in STAGES:
                for file in (folder / stage).glob("*.yaml"):
                    if file.name != "kustomization.yaml":
                        shutil.copyfile(file, fresh / file.name)
    return program, sorted((tools.CACHE / name).glob("*.yaml"))


def definitions() -> list[Path]:
    """The files of `DEFINITIONS`."""
    name = f"definitions-{OPERATOR[1]}-{DISCOVERY[1]}"
    with tools.made(name) as fresh:
        if fresh:
            for (module, version), file in DEFINITIONS:
                shutil.copyfile(_module(module, version) / file, fresh / Path(file).name)
    return sorted((tools.CACHE / name).glob("*.yaml"))


def _module(module: str, version: str) -> Path:
    """The folder of a module's files."""
    found = tools.run([tools.go(), "mod", "download", "-json", f"{module}@{version}"], environment=ENVIRONMENT)
    return Path(json.loads(found)["Dir"])
