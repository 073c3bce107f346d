"""Runs commands in the shell of a running guest over a serial port, one after the other, and returns their output.

This module uses busybox's shell and markers between outputs. It must not depend on the purpose of a command.
"""

from __future__ import annotations

import re
import secrets
import shlex
import time
from dataclasses import dataclass

from guests import sockets

PORT = "/dev/ttyS1"
"""The guest's end. The first port carries the kernel's messages, so that they do not mix with outputs."""

READY = "@@ready"

# A child of the first process reads the lines, because the first process inherits orphans: a shell whose child ends during
# `read` loses the part of the line that it has read (busybox 1.35).
INIT = f"""#!/bin/busybox sh
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs devtmpfs /dev
$bb --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
stty -F {PORT} raw -echo
exec <{PORT} >{PORT} 2>&1
echo {READY}
(
    while read -r mark command; do
        sh -c "$command" </dev/null
        printf '\\n@@%s %s\\n' "$mark" $?
    done
)
poweroff -f
"""
"""The guest's first process. It reads lines `MARK COMMAND` and writes the command's output and `@@MARK STATUS`."""


class SessionError(Exception):
    """The guest's shell does not answer, or its answer is invalid."""


@dataclass(frozen=True)
class Outcome:
    """The output of a command (both streams) and its exit status."""

    output: str
    status: int


class Session:
    """A connection to the shell of one guest."""

    def __init__(self, path: str, deadline: float) -> None:
        """Connects to the UNIX socket `path` and waits until the guest has booted; `deadline` is in time.monotonic()."""
        self.buffer = b""
        try:
            self.socket = sockets.connect(path, deadline)
        except sockets.NotConnected as error:
            raise SessionError(str(error)) from None
        self._until(rb"@@ready\n", deadline, "the guest did not boot")

    def close(self) -> None:
        self.socket.close()

    def run(self, command: str, seconds: float = 60.0) -> Outcome:
        """Runs one shell command, which must not read standard input. After `seconds` the guest kills it, and its status
        is 137."""
        if "\n" in command:
            raise SessionError(f"a command must be one line: {command!r}")
        # A random mark that no output contains by accident.
        mark = secrets.token_hex(4)
        line = f"{mark} timeout -s KILL {seconds:.0f} sh -c {shlex.quote(command)}\n"
        try:
            self.socket.sendall(line.encode())
        except (BrokenPipeError, ConnectionResetError):
            raise SessionError(f"QEMU ended before {command!r}") from None
        # The guest's own time limit ends first, unless its kernel hangs.
        text, status = self._until(
            rb"\n@@%s (\d+)\n" % mark.encode(), time.monotonic() + 1.5 * seconds + 30, f"no answer to {command!r}"
        )
        return Outcome(text.decode(errors="replace"), int(status))

    def check(self, command: str, seconds: float = 60.0) -> str:
        """The output of a command that must succeed."""
        outcome = self.run(command, seconds)
        if outcome.status != 0:
            raise SessionError(f"{command!r} ended with status {outcome.status}: {outcome.output[-2000:]}")
        return outcome.output

    def start(self, name: str, command: str) -> int:
        """Starts a shell command in the background; returns its pid. Signals act on it as at a terminal, which they do not
        with the shell's own `&`.
        """
        inner = f"sh -c {shlex.quote(f'echo $$ >/tmp/{name}.pid; exec {command}')} >/tmp/{name}.out 2>&1"
        outer = f"{inner}; echo $? >/tmp/{name}.end; mv /tmp/{name}.end /tmp/{name}.status"
        self.check(f"cd /tmp && rm -f {name}.pid {name}.out {name}.status {name}.shell")
        self.check(f"start-stop-daemon -S -b -p /tmp/{name}.shell -m -x /bin/sh -- -c {shlex.quote(outer)}")
        return int(self.check(f"until [ -s /tmp/{name}.pid ]; do sleep 0.02; done; cat /tmp/{name}.pid"))

    def finish(self, name: str, seconds: float = 60.0) -> Outcome:
        """Waits for the end of a command that `start` has started."""
        self.check(f"until [ -e /tmp/{name}.status ]; do sleep 0.02; done", seconds)
        return Outcome(self.check(f"cat /tmp/{name}.out"), int(self.check(f"cat /tmp/{name}.status")))

    def _until(self, end: bytes, deadline: float, what: str) -> tuple[bytes, bytes]:
        """The data before the first match of `end`, and the group of the match."""
        while not (found := re.search(end, self.buffer)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise SessionError(f"{what}: {self.buffer[-500:]!r}")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except (TimeoutError, ConnectionResetError):
                data = b""
            if not data:
                raise SessionError(f"{what}: {self.buffer[-500:]!r}")
            self.buffer += data
        text, self.buffer = self.buffer[: found.start()], self.buffer[found.end() :]
        return text, found[1] if found.re.groups else b""
