"""The pod of a DaemonSet on a node, made as the kubelet makes it: folders of the node, rights, limits and probes are those of the object.

Two things differ: the folders belong to a virtual host, which `places` tells, and the pod uses the node's network, so that no network
plugin is needed. Field numbers as in `cri`. This module must not know the chart.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from clients.testbed.checks import Failed
from fleet.cri import NODE, SECONDS, Cri
from fleet.manifests import Tree, container
from fleet.protobuf import Value, fields, text

EXITED = 2
"""ContainerState: the container's process has ended."""

PROPAGATION = {"None": 0, "HostToContainer": 1, "Bidirectional": 2}
"""MountPropagation."""


class Pod:
    """A pod with one container."""

    def __init__(self, cri: Cri, folder: Path, name: str, cgroup: str, image: str) -> None:
        self.cri, self.folder, self.name, self.cgroup, self.image = cri, folder, name, cgroup, image
        self.sandbox = self.made = ""

    def start(self, objects: Mapping[str, Tree], places: Mapping[str, Path], extra: Mapping[str, Path]) -> None:
        """Starts the only DaemonSet's pod. `places` has the folder for each path of the node; `extra` is mounted besides, read-only."""
        (daemon_set,) = (one for key, one in objects.items() if key.startswith("DaemonSet/"))
        template = daemon_set["spec"]["template"]
        own, context = container(daemon_set), container(daemon_set)["securityContext"]
        namespaces: dict[int, Value] = {1: NODE}
        if template["spec"].get("hostPID"):
            namespaces[2] = NODE
        annotations: list[Value] = [{1: key, 2: value} for key, value in template["metadata"]["annotations"].items()]
        sandbox: dict[int, Value] = {
            1: {1: self.name, 2: f"uid-{self.name}", 3: "waykeeper"},
            3: str(self.folder),
            7: annotations,
            8: {1: self.cgroup, 2: {1: namespaces}},
        }
        self.sandbox = text(self.cri.call("RunPodSandbox", {1: sandbox}), 1)
        rights: dict[int, Value] = {
            1: {1: list(context["capabilities"]["add"]), 2: list(context["capabilities"]["drop"])},
            2: int(context["privileged"]),
            3: namespaces,
            5: {1: context["runAsUser"]},
            7: int(context["readOnlyRootFilesystem"]),
            11: int(not context["allowPrivilegeEscalation"]),
            12: {1: context["runAsGroup"]},
            # ProfileType RuntimeDefault is 0.
            15: {} if context["seccompProfile"]["type"] == "RuntimeDefault" else {1: 1},
        }
        wanted: dict[int, Value] = {
            1: {1: own["name"]},
            2: {1: self.image},
            3: list(own["command"]),
            7: [*self._mounts(objects, template["spec"], places), *map(_plain, extra.items())],
            11: "log",
            15: {1: {4: _bytes(own["resources"]["limits"]["memory"])}, 2: rights},
        }
        made = text(self.cri.call("CreateContainer", {1: self.sandbox, 2: wanted, 3: sandbox}), 1)
        self.cri.call("StartContainer", {1: made})
        self.made = made
        self.probe = own["startupProbe"]

    def is_started(self) -> bool:
        """The result of the startup probe."""
        return self.run(self.probe["exec"]["command"], self.probe["timeoutSeconds"])[0] == 0

    def run(self, words: list[str], seconds: int = SECONDS) -> tuple[int, str]:
        """Runs a command in the container; its exit status and output."""
        found = fields(self.cri.call("ExecSync", {1: self.made, 2: list(words), 3: seconds}))
        said = b"".join(one for number in (1, 2) for one in found.get(number, []) if isinstance(one, bytes))
        (status,) = found.get(3, [0])
        return int(status), said.decode(errors="replace")

    def exit_status(self) -> int | None:
        """The exit status of the container's process; none while it runs."""
        found = fields(self.cri.call("ContainerStatus", {1: self.made}))
        (status,) = found[1]
        state = fields(bytes(status))
        return int(state.get(7, [0])[0]) if state.get(3) == [EXITED] else None

    def stop(self, seconds: int) -> int:
        """Ends the container as the kubelet does, with SIGTERM and so many seconds before SIGKILL; its exit status."""
        self.cri.call("StopContainer", {1: self.made, 2: seconds})
        end = time.monotonic() + SECONDS
        while (status := self.exit_status()) is None:
            if time.monotonic() > end:
                raise Failed("the container did not end")
            time.sleep(0.05)
        return status

    def remove(self, seconds: int) -> None:
        """Ends the container, if it runs, with so many seconds before SIGKILL, and removes what is there of the pod."""
        if self.made:
            self.stop(seconds)
        if self.sandbox:
            self.cri.call("StopPodSandbox", {1: self.sandbox})
            self.cri.call("RemovePodSandbox", {1: self.sandbox})
            self.sandbox = self.made = ""

    @property
    def log(self) -> str:
        """What the container wrote: each line is behind its time, its stream, and a mark of whole lines."""
        file = self.folder / "log"
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        return "".join(f"{line.split(' ', 3)[-1]}\n" for line in lines)

    def _mounts(self, objects: Mapping[str, Tree], spec: Tree, places: Mapping[str, Path]) -> list[Value]:
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        (own,) = spec["containers"]
        made: list[Value] = []
        for mount in own["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "configMap" in volume:
                data = objects[f"ConfigMap/{volume['configMap']['name']}"]["data"]
                source = self.folder / mount["subPath"]
                source.write_text(data[mount["subPath"]])
                source.chmod(0o644)
            else:
                source = places[volume["hostPath"]["path"]]
                if volume["hostPath"]["type"] == "DirectoryOrCreate":
                    source.mkdir(mode=0o755, exist_ok=True)
                elif not source.is_dir():
                    raise Failed(f"{source} is not a folder")
            one: dict[int, Value] = {
                1: mount["mountPath"],
                2: str(source),
                3: int(mount.get("readOnly", False)),
                5: PROPAGATION[mount.get("mountPropagation", "None")],
                8: int(mount.get("recursiveReadOnly") == "IfPossible"),
            }
            made.append(one)
        return made


def _plain(mount: tuple[str, Path]) -> Value:
    place, source = mount
    return {1: place, 2: str(source), 3: 1}


def _bytes(quantity: str) -> int:
    """A quantity of memory in Mi."""
    return int(quantity.removesuffix("Mi")) << 20
