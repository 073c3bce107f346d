"""A containerd of this machine with NRI, and a daemon of ours on a virtual host beside it.

This module must not know what is checked.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from clients.testbed import tools
from clients.testbed.checks import Failed
from clients.testbed.host import VirtualHost
from fleet import image, programs
from fleet.cri import CGROUP, IMAGE, Cri, FleetPod
from fleet.waiting import SECONDS, ended

CONFIG = """
version = 3
root = "{folder}/root"
state = "{folder}/state"

[grpc]
address = "{folder}/containerd.sock"

[plugins.'io.containerd.nri.v1.nri']
disable = false
socket_path = "{folder}/nri/nri.sock"
plugin_path = "{folder}/none"
plugin_config_path = "{folder}/none"

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{image}"
"""
"""`restrict_oom_score_adj`: a machine in a container has no CAP_SYS_RESOURCE, without which runc cannot lower a score."""


class Node:
    """A containerd with a folder of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Node:
        self.made = tempfile.TemporaryDirectory(prefix=f"waykeeper-fleet-{self.name}-")
        self.folder = Path(self.made.name)
        (self.folder / "config.toml").write_text(CONFIG.format(folder=self.folder, image=IMAGE))
        path = f"{programs.containerd()}:{programs.runc().parent}:{os.environ.get('PATH', os.defpath)}"
        self.environment = {**os.environ, "PATH": path}
        try:
            self.start()
            busybox = programs.busybox().read_bytes()
            self.load(IMAGE, {"bin/busybox": busybox}, ["/bin/busybox", "sleep", "86400"])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process:
            ended(self.process)
        # A failed check leaves shims; their folder is mounted in places.
        words = ["-namespace", "k8s.io", "-address", str(self.folder / "containerd.sock")]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if command[0].endswith("containerd-shim-runc-v2") and words[3] in command:
                os.kill(int(path.parent.name), signal.SIGKILL)
        for mount in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = mount.split()[1]
            if place.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)
        for tree in Path("/sys/fs/cgroup").glob(f"**/{CGROUP}"):
            for folder, _, _ in os.walk(tree, topdown=False):
                os.rmdir(folder)

    @property
    def log(self) -> str:
        """containerd's log."""
        return (self.folder / "containerd.log").read_text(errors="replace")

    def start(self) -> None:
        """Starts containerd, and waits until it answers."""
        with open(self.folder / "containerd.log", "ab") as log:
            self.process = subprocess.Popen(
                [programs.containerd() / "containerd", "-c", self.folder / "config.toml"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.cri = Cri(self.folder / "containerd.sock")
        self.cri.call("Version", {})

    def load(self, name: str, files: Mapping[str, bytes], command: Sequence[str] = ()) -> None:
        """Gives containerd an image with these files."""
        archive = self.folder / "image.tar"
        image.write(archive, name, files, command)
        self.load_archive(archive)
        archive.unlink()

    def load_archive(self, archive: Path) -> None:
        """Gives containerd the image of an archive, by the name that it has there."""
        ctr = [programs.containerd() / "ctr", "-a", self.folder / "containerd.sock", "-n", "k8s.io"]
        tools.run([*ctr, "images", "import", archive])

    def kill(self) -> None:
        """Kills containerd; its pods run on."""
        self.cri.close()
        if self.process:
            ended(self.process, signal.SIGKILL)

    def run(self, pod: FleetPod) -> float:
        """Starts a pod; returns the seconds that it took."""
        return self.cri.start(pod)


class Daemon:
    """Our daemon on a virtual host, as a plugin of a node."""

    def __init__(self, host: VirtualHost, node: Node) -> None:
        self.host, self.node = host, node
        self.config = node.folder / "waykeeper.toml"
        # Its usual place, /run, is a tmpfs on a node with systemd: a sync there writes to no disk.
        self.memory = tempfile.TemporaryDirectory(prefix="waykeeper-fleet-", dir="/dev/shm")
        self.journal = Path(self.memory.name, "journal")
        self.process: subprocess.Popen[bytes] | None = None
        self.highest = 0

    def start(self, policy: str) -> None:
        """Starts it with the keys of a policy, and waits until containerd has given it the list of pods."""
        self.config.write_text(
            f"""
[daemon]
journal = "{self.journal}"
[policy]
{policy}
[twin]
enabled = false
[socket]
path = "{self.node.folder}/waykeeper.sock"
[nri]
enabled = true
socket = "{self.node.folder}/nri/nri.sock"
"""
        )
        before = self.node.log.count("connected and synchronized")
        command = [tools.waykeeper(), "vhost", "enter", "--own-cgroups", self.host.root, "--"]
        command += [tools.waykeeper(), "daemon", "--config", self.config]
        with open(self.node.folder / "waykeeper.log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_connected(before)

    def wait_connected(self, before: int) -> None:
        """Waits until containerd has connected more often than before."""
        end = time.monotonic() + SECONDS
        while self.node.log.count("connected and synchronized") == before:
            if time.monotonic() > end or (self.process and self.process.poll() is not None):
                raise Failed(f"the plugin is not connected: {self.log[-1500:]}{self.node.log[-1500:]}")
            time.sleep(0.02)

    @property
    def log(self) -> str:
        """The daemon's log."""
        return (self.node.folder / "waykeeper.log").read_text(errors="replace")

    def kill(self) -> None:
        """Kills it."""
        if self.process:
            self.peak_bytes()
            for process in self._own():
                os.kill(process, signal.SIGKILL)
            ended(self.process, signal.SIGKILL)

    def peak_bytes(self) -> int:
        """The most resident memory that it, or one that was killed, has had (VmHWM of /proc/PID/status)."""
        (process,) = self._own()
        (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
        self.highest = max(self.highest, int(kib) << 10)
        return self.highest

    def _own(self) -> list[int]:
        """The daemon itself: `vhost enter`, which ends with its command, is its parent."""
        if not self.process:
            return []
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in children.read_text().split()]

    def stop(self) -> None:
        """Ends it; it restores every knob."""
        if self.process:
            ended(self.process)
            self.process = None
