"""A virtual host for a client: mounts it, runs programs that see its files at their usual paths, unmounts it.

It must not know which programs run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from clients.testbed import tools
from clients.testbed.checks import Failed

MOUNT_SECONDS = 120
"""Longest wait for the mounted files, for a busy machine."""

COMMAND_SECONDS = 300
"""Time limit of a program on the host."""

ENDING_SECONDS = 10
"""Longest wait for a client that was asked to end."""

FEW_SETS = ["--sets", "1/128"]
SPEED = 0.2
"""Few sets and a slow clock: the clients are tested here, not the model."""


@contextmanager
def started(
    command: list[str], stdin: int, *, folder: Path | None = None, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A command with a session of its own, of which no process is left at the end."""
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=folder,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # SIGTERM first: `vhost enter` passes it on, and a client may have files to remove.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(ENDING_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        process.communicate()


class VirtualHost:
    """A mounted host, a Gold 6140 with a NIC and four disks (the default scenario of `waykeeper vhost`)."""

    def __init__(self, *options: str, speed: float = SPEED) -> None:
        self.options = [*FEW_SETS, "--speed", str(speed), *options]

    def __enter__(self) -> VirtualHost:
        if os.geteuid() != 0 or not Path("/dev/fuse").exists():
            raise Failed("needs root and /dev/fuse")
        self.folder = tempfile.TemporaryDirectory(prefix="waykeeper-clients-")
        self.root = Path(self.folder.name)
        self.server = subprocess.Popen(
            [tools.waykeeper(), "vhost", self.root, *self.options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        end = time.monotonic() + MOUNT_SECONDS
        while not self.path("sys/fs/resctrl/schemata").exists():
            if self.server.poll() is not None or time.monotonic() > end:
                self.__exit__(None, None, None)
                raise Failed(f"waykeeper vhost did not mount {self.root}")
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(MOUNT_SECONDS)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
            subprocess.run(["umount", "-l", self.root], check=False)
        self.folder.cleanup()

    def path(self, path: str) -> Path:
        """A file of the host."""
        return self.root / path

    def read(self, path: str) -> str:
        """The text of a file, without white space around it."""
        return self.path(path).read_text().strip()

    def command(self, words: list[str | Path], *, mounts: bool = False, two_cpus: bool = False) -> list[str]:
        """The command line that runs a program on the host.

        `mounts`: its calls about mounts know resctrl. `two_cpus`: it can bind itself only to the first two CPUs (two_cpus.c).
        """
        enter = [str(tools.waykeeper()), "vhost", "enter", *(["--mount-calls"] if mounts else []), str(self.root), "--"]
        if two_cpus:
            enter += ["env", f"LD_PRELOAD={tools.two_cpus_library()}"]
        return enter + [str(word) for word in words]

    def run(
        self,
        words: list[str | Path],
        *,
        mounts: bool = False,
        two_cpus: bool = False,
        seconds: float = COMMAND_SECONDS,
        folder: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program on the host; its standard output has its standard error too. It has a session of its own, which ends with it."""
        command = self.command(words, mounts=mounts, two_cpus=two_cpus)
        with started(command, subprocess.DEVNULL, folder=folder, environment=environment) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                raise Failed(f"{words[0]}: not finished after {seconds} s: {output}") from None
        return subprocess.CompletedProcess(words, process.returncode, output, None)

    @contextmanager
    def running(self, words: list[str | Path], *, mounts: bool = False) -> Iterator[subprocess.Popen[str]]:
        """A program that runs on the host, with pipes as its input and output, until the end of the block."""
        with started(self.command(words, mounts=mounts), subprocess.PIPE) as process:
            yield process

    def good(self, words: list[str | Path], **how: object) -> str:
        """The output of a program that must succeed."""
        done = self.run(words, **how)  # type: ignore[arg-type]
        if done.returncode != 0:
            raise Failed(f"{words[0]} ended with {done.returncode}: {done.stdout}")
        return done.stdout
