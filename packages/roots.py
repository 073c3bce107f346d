"""Clean roots: a Debian with its essential packages only, in which a package is installed as its users install it.

The root is made once with mmdebstrap and kept as a tar; each check gets a fresh copy with mounts and processes of its own, which end with
it. This module must not know what is installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from clients.testbed import tools
from clients.testbed.checks import Failed

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"

COMMAND_SECONDS = 600
"""Time limit of a command in a root: apt may download."""

START_SECONDS = 30
"""Longest wait for the namespaces of a root."""


def base() -> Path:
    """The tar of a Debian with its essential packages and apt."""
    mmdebstrap = tools.debian("mmdebstrap", "mmdebstrap")
    with tools.made(f"root-{SUITE}") as fresh:
        if fresh:
            tools.run([mmdebstrap, "--variant=apt", "--mode=root", SUITE, fresh / "root.tar", MIRROR])
    return tools.CACHE / f"root-{SUITE}/root.tar"


class CleanRoot:
    """A copy of `base` in a folder, with its own processes and mounts. Use it with `with`."""

    def __enter__(self) -> CleanRoot:
        if os.geteuid() != 0:
            raise Failed("needs root for chroot and mounts")
        self.folder = tempfile.TemporaryDirectory(prefix="waykeeper-root-")
        self.path = Path(self.folder.name)
        tools.run(["tar", "-x", "-C", self.path, "--exclude=./dev/*", "-f", base()])
        mounts = [
            f"mount --rbind /dev {self.path}/dev",
            f"mount -t proc proc {self.path}/proc",
            f"mount -t sysfs -o ro sysfs {self.path}/sys",
            f"mount -t tmpfs -o mode=755 tmpfs {self.path}/run",
            f"touch {self.path}/run/.ready",
            "exec sleep infinity",
        ]
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", "\n".join(mounts)]
        self.keeper = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while not self._child():
            if self.keeper.poll() is not None or time.monotonic() > end:
                self.__exit__(None, None, None)
                raise Failed("the namespaces of a clean root did not start")
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.keeper.poll() is None:
            self.keeper.send_signal(signal.SIGKILL)
        self.keeper.wait()
        self.folder.cleanup()

    def _child(self) -> int | None:
        """The first process of the root, once its mounts are there."""
        listed = Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read_text().split()
        if not listed or not Path(f"/proc/{listed[0]}/root{self.path}/run/.ready").exists():
            return None
        return int(listed[0])

    def words(self, command: str) -> list[str]:
        """The command line that runs a shell command in the root."""
        enter = ["nsenter", "--target", str(self._child()), "--mount", "--pid", "chroot", str(self.path)]
        environment = (
            "export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root"
        )
        return [*enter, "sh", "-c", f"{environment}\n{command}"]

    def try_run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Runs a shell command; both outputs are in `stdout`."""
        return subprocess.run(
            self.words(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=COMMAND_SECONDS,
        )  # fmt: skip

    def run(self, command: str) -> str:
        """The output of a shell command that must succeed."""
        done = self.try_run(command)
        if done.returncode != 0:
            raise Failed(f"{command}: ended with {done.returncode}: {done.stdout.strip()[-2000:]}")
        return done.stdout

    def start(self, command: str) -> None:
        """Starts a shell command in the background; it ends with the root."""
        subprocess.Popen(self.words(f"exec {command}"), stdin=subprocess.DEVNULL, start_new_session=True)

    def put(self, source: Path, target: str) -> None:
        """Copies a file into the root."""
        place = self.path / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(source.read_bytes())
        place.chmod(source.stat().st_mode & 0o777)

    def files(self) -> set[str]:
        """Every file and folder, but those of proc, sys, dev and run and what apt and dpkg keep of packages."""
        skip = " ".join(f"-path {path} -prune -o" for path in ("/proc", "/sys", "/dev", "/run", *CACHES))
        return set(self.run(f"find / {skip} -print").splitlines())


CACHES = ("/var/cache", "/var/lib/apt", "/var/lib/dpkg", "/var/log", "/tmp", "/root", "/packages")
"""Folders in which package managers leave files by design, and those of the checks."""
