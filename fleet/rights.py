"""The daemon in a pod of the chart: its rights suffice, and it needs each of them: python3 -m fleet.rights (needs PyYAML and grpcio).

A real containerd makes the container; the files of the node are those of a virtual host. So counters by perf and registers are not there,
and `CAP_PERFMON`, `CAP_SYS_RAWIO` and `CAP_SYS_ADMIN` cannot be judged here. This module must not know how a pod is made.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import yaml

from clients.testbed import checks, tools
from clients.testbed.checks import Failed, Report
from clients.testbed.host import VirtualHost
from fleet import image, programs
from fleet.chart import NAME, Chart
from fleet.cri import CGROUP, FleetPod
from fleet.groups import PREFIX, SPEED, group_of, knobs
from fleet.manifests import Tree, container
from fleet.node import Node
from fleet.pod import Pod
from fleet.waiting import until
from packages import program

SHIPPED = os.environ.get("WAYKEEPER_IMAGE")
"""An archive with our container image (packages/image.py); without it an image is made of the program and its libraries."""

IMAGE = f"localhost/{NAME}:{program.version()}"

OTHER_IMAGE = "docker.io/library/waykeeper-traced:1"

GRACE = 30
"""The chart's terminationGracePeriodSeconds."""

EARLY_MASK = 0x3

EARLY = "default.early"

MASKS: Tree = {
    "config": {
        "daemon": {"mode": "manage"},
        "policy": {"name": "isolate", "settings": {"masks": {EARLY: f"{EARLY_MASK:#x}"}}},
        "twin": {"enabled": False},
    }
}
"""A policy that sets a mask for the pod that runs."""

STEPS_S = 2
"""Two steps of the control loop."""

RECORDER = {"recorder": {"dir": "/var/lib/waykeeper/recorder"}}

RECORDINGS: Tree = {"config": {"daemon": {"mode": "observe"}} | RECORDER}

PROGRAM = "busybox-traced"
"""The file name of a program whose process has another name."""

WAITS = (
    f"/bin/{PROGRAM}",
    "sh",
    "-c",
    "/bin/busybox mkfifo /fifo; echo other > /proc/self/comm; read _ < /fifo",
)
"""A shell that has another name than its program, and waits for ever."""

PATHS: Tree = {
    "config": {
        "daemon": {"mode": "manage"},
        "policy": {"name": "isolate", "settings": {"masks": {"traced": f"{EARLY_MASK:#x}"}}},
        "twin": {"enabled": False},
        "nri": {"enabled": False},
    },
    "tenants": [{"name": "traced", "priority": "low", "process": PROGRAM}],
    "programPaths": {"enabled": True},
}
"""A tenant that is found by the file name of its program."""

DCA: Tree = {
    "config": {"daemon": {"mode": "manage"}, "policy": {"name": "ddio-off"}, "twin": {"enabled": False}} | RECORDER,
    "pciConfig": {"enabled": True},
}
"""A policy that switches DCA off per port, and recordings."""


def capability(name: str) -> Callable[[Tree], None]:
    """Takes a capability away."""
    return lambda daemon_set: container(daemon_set)["securityContext"]["capabilities"]["add"].remove(name)


def mount(name: str) -> Callable[[Tree], None]:
    """Takes a mount away."""

    def change(daemon_set: Tree) -> None:
        mounts = container(daemon_set)["volumeMounts"]
        mounts.remove(next(one for one in mounts if one["name"] == name))

    return change


def read_only(name: str) -> Callable[[Tree], None]:
    """Makes a mount read-only."""

    def change(daemon_set: Tree) -> None:
        next(one for one in container(daemon_set)["volumeMounts"] if one["name"] == name)["readOnly"] = True

    return change


def of_the_pod(key: str, value: object) -> Callable[[Tree], None]:
    """Gives a key of the pod another value."""
    return lambda daemon_set: daemon_set["spec"]["template"]["spec"].update({key: value})


def user(number: int) -> Callable[[Tree], None]:
    """Runs as another user."""
    return lambda daemon_set: container(daemon_set)["securityContext"].update({"runAsUser": number})


NEEDED: list[tuple[str, Tree, Callable[[Tree], None], str]] = [
    ("CAP_DAC_OVERRIDE", MASKS, capability("DAC_OVERRIDE"), "making the group: Permission denied"),
    ("user 0", MASKS, user(1000), "/run/waykeeper/journal.lock: cannot journal the original values: Permission denied"),
    ("CAP_SYS_PTRACE", PATHS, capability("SYS_PTRACE"), "tenant traced: it is not present"),
    ("hostPID", MASKS, of_the_pod("hostPID", False), "tenant default.early: it is not present"),
    ("writing resctrl", MASKS, read_only("resctrl"), "making the group: Read-only file system"),
    ("/run/waykeeper", MASKS, mount("run"), "/run/waykeeper/journal: cannot journal the original values: Read-only"),
    ("/var/run/nri", MASKS, mount("nri"), "no connection to NRI at /var/run/nri/nri.sock: No such file"),
    ("/sys/devices", DCA, mount("devices"), "Read-only file system"),
    ("writing /var/lib/waykeeper", RECORDINGS, read_only("state"), "cannot record: /var/lib/waykeeper/recorder"),
]
"""Each right that can be judged here: the values, how it is taken away, and what the log says then."""


class Trial:
    """The daemon in a pod of the chart, beside a pod that runs; each time in a new pod."""

    def __init__(self, chart: Chart, host: VirtualHost, node: Node, memory: Path) -> None:
        self.chart, self.host, self.node, self.memory = chart, host, node, memory
        self.made = 0
        # A node with systemd shares its mounts, which mountPropagation needs.
        subprocess.run(["mount", "--make-shared", host.root], check=True)
        if SHIPPED:
            node.load_archive(Path(SHIPPED))
        else:
            node.load(IMAGE, image.with_libraries(tools.waykeeper(), "usr/bin/waykeeper"))
        busybox = programs.busybox().read_bytes()
        node.load(OTHER_IMAGE, {f"bin/{name}": busybox for name in ("busybox", PROGRAM)})
        self.before = knobs(host)
        self.early = FleetPod("early")
        # Unmanaged, so that it is a tenant by the configuration only.
        self.traced = FleetPod("traced", annotations={"waykeeper.io/manage": "false"}, image=OTHER_IMAGE, command=WAITS)
        for pod in (self.early, self.traced):
            node.run(pod)

    @contextmanager
    def pod(self, values: Tree, change: Callable[[Tree], None] | None = None) -> Iterator[Pod]:
        """A pod with these values of the chart, that is changed after it was rendered."""
        found = yaml.safe_load_all(self.chart.text(values))
        objects = {f"{one['kind']}/{one['metadata']['name']}": copy.deepcopy(one) for one in found}
        if change:
            change(objects[f"DaemonSet/{NAME}"])
        self.made += 1
        folder = self.node.folder / f"{NAME}-{self.made}"
        folder.mkdir()
        pod = Pod(self.node.cri, folder, folder.name, f"/{CGROUP}/kubepods/pod-{folder.name}", IMAGE)
        places = {
            "/sys": self.host.path("sys"),
            "/sys/devices": self.host.path("sys/devices"),
            "/sys/fs/cgroup": Path("/sys/fs/cgroup"),
            "/sys/fs/resctrl": self.host.path("sys/fs/resctrl"),
            "/run/waykeeper": self.memory / "run",
            "/var/lib/waykeeper": self.memory / "state",
            "/var/run/nri": self.node.folder / "nri",
        }
        try:
            pod.start(objects, places, {"/proc/cpuinfo": self.host.path("proc/cpuinfo")})
            yield pod
        finally:
            # A daemon that runs on after a failed check restores its knobs, so that the next check begins as this one.
            pod.remove(GRACE)

    def mask(self, tenant: str = EARLY) -> int | None:
        """The mask of a pod that runs; none while it has no group."""
        file = self.host.path(f"sys/fs/resctrl/{PREFIX}{tenant}/schemata")
        pod = self.early if tenant == EARLY else self.traced
        if {group_of(self.host, process) for process in pod.processes()} != {file.parent.name}:
            return None
        (line,) = (line for line in file.read_text().splitlines() if "L3:" in line)
        return int(line.split("0=")[1].split(";")[0], 16)

    def wait_for_mask(self, pod: Pod, wanted: int, tenant: str = EARLY) -> None:
        """Waits until a pod that runs has a mask."""
        until(lambda: f"no mask {wanted:#x} but {self.mask(tenant)}: {pod.log}", lambda: self.mask(tenant) == wanted)

    def ends(self, pod: Pod) -> None:
        """Ends the daemon as the kubelet does; fails unless all knobs are as at first."""
        status = pod.stop(GRACE)
        if status != 0:
            raise Failed(f"the daemon ended with {status}: {pod.log}")
        found = knobs(self.host)
        if found != self.before:
            raise Failed(f"{found}, and not {self.before}")
        if (self.memory / "run/journal").exists():
            raise Failed(f"a journal is left: {pod.log}")

    def manages(self) -> None:
        """Starts, manages, releases and resumes by commands in the container, ends."""
        with self.pod(MASKS) as pod:
            until(lambda: f"the probe fails: {pod.log}", pod.is_started, pause_s=0.5)
            self.wait_for_mask(pod, EARLY_MASK)
            whole = int(next(iter(self.before.values())).split("L3:0=")[1].split()[0], 16)
            for words, mask in ((["pause", "--release"], whole), (["resume"], EARLY_MASK)):
                status, said = pod.run(["waykeeper", *words])
                if status != 0:
                    raise Failed(f"{words}: {status}: {said}")
                self.wait_for_mask(pod, mask)
            self.ends(pod)

    def is_killed(self) -> None:
        """Is killed, and starts again in a new container with the folders of the node."""
        with self.pod(MASKS) as pod:
            self.wait_for_mask(pod, EARLY_MASK)
            pod.stop(0)
            if self.mask() != EARLY_MASK or not (self.memory / "run/journal").exists():
                raise Failed(f"{self.mask()}, or no journal, after a kill")
        with self.pod(MASKS) as pod:
            until(lambda: f"the probe fails: {pod.log}", pod.is_started, pause_s=0.5)
            self.wait_for_mask(pod, EARLY_MASK)
            self.ends(pod)

    def hands_over(self) -> None:
        """Is replaced by a new pod after `hand-over`: the group stays and keeps its mask, and the last one restores all."""
        group = self.host.path(f"sys/fs/resctrl/{PREFIX}{EARLY}")
        with self.pod(MASKS) as pod:
            self.wait_for_mask(pod, EARLY_MASK)
            made = group.stat().st_ino
            status, said = pod.run(["waykeeper", "hand-over", "--within", "10m"])
            if status != 0:
                raise Failed(f"hand-over: {status}: {said}")
            status = pod.stop(GRACE)
            if status != 0 or self.mask() != EARLY_MASK:
                raise Failed(f"ended with {status}, and the mask is {self.mask()}: {pod.log}")
        with self.pod(MASKS) as pod:
            until(lambda: f"the probe fails: {pod.log}", pod.is_started, pause_s=0.5)
            time.sleep(STEPS_S)
            self.wait_for_mask(pod, EARLY_MASK)
            if group.stat().st_ino != made:
                raise Failed(f"the group was made again: {pod.log}")
            self.ends(pod)

    def finds_programs(self) -> None:
        """Finds a process by the file name of its program, ends."""
        with self.pod(PATHS) as pod:
            self.wait_for_mask(pod, EARLY_MASK, "traced")
            self.ends(pod)

    def switches_dca(self) -> None:
        """Switches DCA off, records, ends."""
        with self.pod(DCA) as pod:
            until(lambda: f"DCA is on: {pod.log}", lambda: knobs(self.host)["ddio"] != self.before["ddio"], pause_s=0.5)
            self.ends(pod)
            if not list((self.memory / "state/recorder").iterdir()):
                raise Failed(f"no recording: {pod.log}")

    def needs(self, values: Tree, change: Callable[[Tree], None], says: str) -> None:
        """Fails unless the log says what is missing, and no mask and no DCA is changed."""
        with self.pod(values, change) as pod:
            until(lambda: f"`{says}` is not in the log: {pod.log}", lambda: says in pod.log, pause_s=0.2)
            time.sleep(STEPS_S)
            found = knobs(self.host)
            if found != self.before:
                raise Failed(f"{found}, and not {self.before}")


def run(report: Report) -> None:
    """Runs the checks."""
    report.client("containerd", programs.CONTAINERD)
    with (
        tempfile.TemporaryDirectory(prefix="waykeeper-fleet-chart-") as folder,
        # /run is in memory too on a node with systemd.
        tempfile.TemporaryDirectory(prefix="waykeeper-fleet-", dir="/dev/shm") as memory,
        VirtualHost(speed=SPEED) as host,
        Node("rights") as node,
    ):
        trial = Trial(Chart(Path(folder)), host, node, Path(memory))
        try:
            report.check("the daemon manages in the chart's pod, takes orders, and restores all", trial.manages)
            report.check("killed, it starts again and restores all at its end", trial.is_killed)
            report.check("after hand-over the next pod has its groups, and restores all at its end", trial.hands_over)
            report.check("with programPaths it finds a process by its program", trial.finds_programs)
            report.check("with pciConfig and a recorder it switches DCA and records", trial.switches_dca)
            for name, values, change, says in NEEDED:
                check = partial(trial.needs, values, change, says)
                report.check(f"without {name} it says so and changes nothing", check)
        finally:
            for pod in (trial.early, trial.traced):
                node.cri.end(pod)


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
