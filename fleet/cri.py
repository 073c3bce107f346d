"""A client of the container runtime's interface for the kubelet (CRI): pods start and end as the kubelet starts and ends them.

Field numbers of k8s.io/cri-api v0.37.0 (pkg/apis/runtime/v1/api.proto). Needs the package grpcio. This module must not know what is
checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from fleet.protobuf import Value, message, text, texts

SECONDS = 120
"""Time limit of a call on a small, busy machine."""

NODE = 2
"""NamespaceMode: pods use the node's network, so no network plugin is needed."""

IMAGE = "docker.io/library/waykeeper-pod:1"


CGROUP = f"waykeeper-fleet-{os.getpid()}"
"""The control group above those of all pods, different from that of another run on this machine."""


@dataclass
class FleetPod:
    """A pod with one container."""

    name: str
    quality: str = "burstable"
    """Part of the path of its control group: `burstable`, `besteffort`, or nothing for a guaranteed pod."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ("/bin/busybox", "sh", "-c", "/bin/busybox sleep 600 & exec /bin/busybox sleep 600")
    uid: str = ""
    """Its unique id; that of its name if there is none."""
    image: str = IMAGE
    sandbox: str = ""
    container: str = ""

    @property
    def cgroup_parent(self) -> str:
        """The control group of the pod."""
        return "/" + "/".join(part for part in (CGROUP, "kubepods", self.quality, f"pod-{self.name}") if part)

    @property
    def cgroup(self) -> str:
        """The control group of its container, from the root of a hierarchy."""
        return f"{self.cgroup_parent}/{self.container}".lstrip("/")

    def processes(self) -> set[int]:
        """The processes of its container."""
        for mount in ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"):
            file = Path(mount, self.cgroup, "cgroup.procs")
            if file.exists():
                return {int(line) for line in file.read_text().split()}
        return set()


class Cri:
    """The runtime's service at a socket."""

    def __init__(self, socket: Path) -> None:
        options = [("grpc.default_authority", "localhost")]
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=options)

    def close(self) -> None:
        """Ends the connection."""
        self.channel.close()

    def call(self, method: str, request: Mapping[int, Value]) -> bytes:
        """Calls a method."""
        path = f"/runtime.v1.RuntimeService/{method}"
        send = self.channel.unary_unary(path, request_serializer=message, response_deserializer=bytes)
        return send(request, timeout=SECONDS, wait_for_ready=True)

    def start(self, pod: FleetPod) -> float:
        """Starts a pod; returns how long that took, in seconds."""
        begun = time.monotonic()
        security: Mapping[int, Value] = {1: {1: NODE}}
        sandbox: dict[int, Value] = {
            1: {1: pod.name, 2: pod.uid or f"uid-{pod.name}", 3: "default"},
            7: texts(pod.annotations),
            8: {1: pod.cgroup_parent, 2: security},
        }
        pod.sandbox = text(self.call("RunPodSandbox", {1: sandbox}), 1)
        container: dict[int, Value] = {
            1: {1: "main"},
            2: {1: pod.image},
            3: list(pod.command),
            15: {2: {3: {1: NODE}}},
        }
        made = self.call("CreateContainer", {1: pod.sandbox, 2: container, 3: sandbox})
        pod.container = text(made, 1)
        self.call("StartContainer", {1: pod.container})
        return time.monotonic() - begun

    def end(self, pod: FleetPod) -> None:
        """Ends a pod and removes it."""
        self.call("StopContainer", {1: pod.container, 2: 0})
        self.call("StopPodSandbox", {1: pod.sandbox})
        self.call("RemovePodSandbox", {1: pod.sandbox})
