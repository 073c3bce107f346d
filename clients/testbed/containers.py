"""Containers of an OCI runtime with a class of cache: fifty of them, seeded, checked while they run and after they are gone.

The runtime is unmodified and runs in `waykeeper vhost enter --mount-calls --own-cgroups`. This module must not know which runtime it is.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from clients.testbed import tools
from clients.testbed.checks import SLOW, Failed, Report
from clients.testbed.host import COMMAND_SECONDS, VirtualHost

CONTAINERS = 50 if SLOW else 6
CHECKS = CONTAINERS + 2
"""One for each container, one for what is left at the end, and one for a container in the foreground."""

AT_ONCE = 4
"""Containers that run at the same time. The host has 8 classes: the default one, two that are shared, and one for each container."""

SHARED = {"waykeeper-gold": (0x7F0, 70), "waykeeper-silver": (0x00F, 30)}
"""Classes with a name (`closID`): mask of the L3 and percent of the memory bandwidth."""

WAYS = 11

PROCESSES = 3
"""Processes of a container: the first one, its child, and a grandchild whose parent has ended."""

SCRIPT = "/bin/busybox sleep 600 & (/bin/busybox sleep 600 &); exec /bin/busybox sleep 600"

CONTROL_GROUP = f"waykeeper-clients-{os.getpid()}-"
"""Begin of the names of the containers' control groups, different from those of another run on this machine."""

SECONDS = 30
"""Longest wait for the processes of a container to start or end, on a busy machine."""

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Runtime:
    """An OCI runtime."""

    program: str | Path
    monitoring: dict[str, bool]
    """Keys of `linux.intelRdt` that ask for monitoring."""
    monitoring_group: bool = False
    """Whether the runtime then makes a monitoring group for the container."""
    forgets_groups: bool = False
    """Whether `delete` leaves the group of a detached container, which another process of the runtime has made."""
    hybrid_cgroups: bool = True
    """Whether it runs where cgroup v2 is mounted beside v1."""


@dataclass
class Container:
    """A container and what it must have."""

    name: str
    shared: str | None
    mask: int
    bandwidth: int
    monitored: bool
    joined: bool
    """Whether another process is started in it later (`exec`)."""

    @property
    def group(self) -> str:
        """Its group in resctrl."""
        return self.shared or self.name

    def __str__(self) -> str:
        kind = f"class {self.shared}" if self.shared else "its own class"
        words = [kind, f"L3 {self.mask:03x}", f"MB {self.bandwidth}"]
        words += ["monitored"] * self.monitored + ["joined"] * self.joined
        return f"{self.name}: {', '.join(words)}"


def containers(seed: int) -> list[Container]:
    """The containers of a seed."""
    chance = random.Random(seed)
    made = []
    for number in range(CONTAINERS):
        shared = chance.choice([None, None, *SHARED])
        ways = chance.randint(1, WAYS)
        mask = (1 << ways) - 1 << chance.randint(0, WAYS - ways)
        mask, bandwidth = SHARED[shared] if shared else (mask, 10 * chance.randint(1, 10))
        flags = chance.random() < 0.5, chance.random() < 0.3
        made.append(Container(f"waykeeper-{seed}-{number}", shared, mask, bandwidth, *flags))
    return made


class Containers:
    """Starts and checks containers on a virtual host."""

    def __init__(self, host: VirtualHost, runtime: Runtime, folder: Path) -> None:
        self.host, self.runtime, self.folder = host, runtime, folder
        self.resctrl = host.path("sys/fs/resctrl")
        self.rootfs = folder / "rootfs"
        for name in ("bin", "proc", "dev", "tmp"):
            (self.rootfs / name).mkdir(parents=True)
        shutil.copy(tools.debian("busybox", "busybox-static"), self.rootfs / "bin/busybox")
        self.live: dict[str, Container] = {}

    def call(self, *words: str) -> str:
        """Calls the runtime; returns its standard output."""
        command = [
            str(tools.waykeeper()),
            "vhost",
            "enter",
            "--mount-calls",
            "--own-cgroups",
            str(self.host.root),
            "--",
        ]
        if not self.runtime.hybrid_cgroups and Path("/sys/fs/cgroup/unified").is_dir():
            command += ["sh", "-c", 'umount /sys/fs/cgroup/unified && exec "$@"', "sh"]
        command += [str(self.runtime.program), "--root", str(self.folder / "state"), *words]
        # A container keeps the files open that it was started with, so they cannot be pipes.
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, timeout=COMMAND_SECONDS, check=False
            )
            output.seek(0)
            errors.seek(0)
            if done.returncode != 0:
                raise Failed(f"{' '.join(words)} ended with {done.returncode}: {errors.read()}{output.read()}")
            return output.read()

    def bundle(self, container: Container, script: str = SCRIPT) -> Path:
        """Writes the container's config.json."""
        rdt: dict[str, object] = {
            "l3CacheSchema": f"L3:0={container.mask:x}",
            "memBwSchema": f"MB:0={container.bandwidth}",
        }
        rdt |= {"closID": container.shared} if container.shared else {}
        rdt |= self.runtime.monitoring if container.monitored else {}
        config = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/busybox", "sh", "-c", script], "cwd": "/"},
            "root": {"path": str(self.rootfs), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            ],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
                "cgroupsPath": f"/{CONTROL_GROUP}{container.name}",
                "intelRdt": rdt,
            },
        }
        bundle = self.folder / container.name
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(config))
        return bundle

    def start(self, container: Container) -> None:
        """Runs a container, detached, and checks it and all others that run."""
        self.call("run", "--detach", "--bundle", str(self.bundle(container)), container.name)
        self.live[container.name] = container
        if container.joined:
            self.call("exec", "--detach", container.name, "/bin/busybox", "sleep", "600")
        for other in self.live.values():
            self.check(other)

    def processes(self, container: Container) -> set[str]:
        """The pids of a container, by its pid namespace."""
        state = json.loads(self.call("state", container.name))
        if state["status"] != "running":
            raise Failed(f"{container.name} is {state['status']}")
        own = os.readlink(f"/proc/{state['pid']}/ns/pid")
        return {pid for pid, namespace in pid_namespaces().items() if namespace == own}

    def check(self, container: Container) -> None:
        """Fails unless a running container has its class, masks, limit and monitoring, with all its processes."""
        wanted = PROCESSES + container.joined
        pids = until(lambda: self.processes(container), lambda found: len(found) == wanted, f"{wanted} processes")
        group = self.resctrl / container.group
        together = [other for other in self.live.values() if other.group == container.group]
        if len(together) == 1:
            expect_equal(f"tasks of {container.group}", tasks(group), pids)
        expect_equal(f"processes of {container.name} outside of {container.group}", pids - tasks(group), set())
        expect_equal(f"processes of {container.name} in the default group", pids & tasks(self.resctrl), set())
        schemata = (group / "schemata").read_text().split()
        expected = [f"L3:0={container.mask:03x}", f"MB:0={container.bandwidth:3}"]
        for line in expected:
            if line.replace(" ", "") not in "".join(schemata):
                raise Failed(f"{container.group} has {schemata} and not {line}")
        monitored = group
        if container.monitored and self.runtime.monitoring_group:
            monitored = group / "mon_groups" / container.name
            # What joins later is in the class only: the runtime does not write it to the monitoring group.
            expect_equal(f"monitored tasks of {container.name}", len(pids & tasks(monitored)), PROCESSES)
        for counter in ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"):
            int((monitored / "mon_data/mon_L3_00" / counter).read_text())

    def stop(self, name: str) -> None:
        """Deletes a container; fails if its group or a process is left."""
        container = self.live[name]
        pids = self.processes(container)
        self.call("delete", "--force", name)
        del self.live[name]
        until(lambda: pids & set(pid_namespaces()), lambda left: not left, "no process after delete")
        group = self.resctrl / container.group
        if (group / "mon_groups" / name).exists():
            raise Failed(f"the monitoring group of {name} is left")
        if not container.shared:
            expect_equal(f"the group of {name} is left", group.exists(), self.runtime.forgets_groups)
            if group.exists():
                group.rmdir()

    def foreground(self) -> None:
        """Fails unless a container that ends in the foreground has its class and leaves no group."""
        container = Container("waykeeper-foreground", None, 0x3, 50, monitored=True, joined=False)
        bundle = self.bundle(container, "echo container")
        expect_equal("output", self.call("run", "--bundle", str(bundle), container.name), "container\n")
        expect_equal("its group is left", (self.resctrl / container.group).exists(), False)

    def left(self, before: list[str]) -> None:
        """Fails if anything is left but the shared classes, which the runtime leaves because they have a name; removes those."""
        for name in list(self.live):
            self.stop(name)
        expect_equal("groups left", sorted(set(groups(self.resctrl)) - set(SHARED)), sorted(before))
        for name in SHARED:
            group = self.resctrl / name
            if group.exists():
                expect_equal(f"tasks of {name}", tasks(group), set())
                expect_equal(f"monitoring groups of {name}", list((group / "mon_groups").iterdir()), [])
                group.rmdir()
        expect_equal("state of the runtime", [path.name for path in (self.folder / "state").glob("waykeeper-*")], [])
        left = list(Path("/sys/fs/cgroup").glob(f"**/{CONTROL_GROUP}*"))
        expect_equal("control groups left", left, [])

    def end(self) -> None:
        """Deletes what a failed check has left."""
        for name in list(self.live):
            try:
                self.call("delete", "--force", name)
            except (Failed, subprocess.SubprocessError):
                pass


def groups(resctrl: Path) -> list[str]:
    """The names in the root directory of resctrl."""
    return sorted(os.listdir(resctrl))


def tasks(group: Path) -> set[str]:
    """The tasks of a group."""
    return set((group / "tasks").read_text().split())


def pid_namespaces() -> dict[str, str]:
    """The pid namespace of every process that has not ended."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                found[path.name] = os.readlink(path / "ns/pid")
            except OSError:
                pass
    return found


def until(look: Callable[[], Seen], wanted: Callable[[Seen], bool], what: str) -> Seen:
    """Looks until it sees what is wanted; fails after SECONDS."""
    end = time.monotonic() + SECONDS
    while True:
        seen = look()
        if wanted(seen):
            return seen
        if time.monotonic() > end:
            raise Failed(f"{what} were wanted, {seen} were seen")
        time.sleep(0.02)


def expect_equal(what: str, seen: object, wanted: object) -> None:
    """Fails unless both are equal."""
    if seen != wanted:
        raise Failed(f"{what}: {seen}, and not {wanted}")


def run(report: Report, runtime: Runtime, seed: int) -> None:
    """Runs the containers of a seed, a few at a time, and reports a check for each and one for what is left."""
    with VirtualHost() as host, tempfile.TemporaryDirectory(prefix="waykeeper-containers-") as folder:
        set_of = Containers(host, runtime, Path(folder))
        before = groups(set_of.resctrl)
        try:
            for container in containers(seed):

                def lives(container: Container = container) -> None:
                    if len(set_of.live) == AT_ONCE:
                        set_of.stop(next(iter(set_of.live)))
                    set_of.start(container)

                report.check(str(container), lives)
            report.check("a container in the foreground leaves no group", set_of.foreground)
            report.check(f"seed {seed}: nothing is left", lambda: set_of.left(before))
        finally:
            set_of.end()
