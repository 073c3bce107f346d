"""Talks to the shell of a running guest: one command after the other over a serial port, each answered with its output.

It knows busybox's shell, the markers between outputs and the far end of the port. It must not know what a command is for.
"""

from __future__ import annotations

import re
import secrets
import shlex
import time
from dataclasses import dataclass

from guests import sockets

PORT = "/dev/ttyS1"
"""The guest's end. The first port carries the kernel's messages: they never mix."""

READY = "@@ready"

# The lines are read by a child of the first process, which inherits orphans: a shell whose child ends in the middle of `read`
# forgets what it has read of the line (busybox 1.35).
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
    """The guest's shell does not answer, or what it said makes no sense."""


@dataclass(frozen=True)
class Outcome:
    """What a command wrote (both streams) and its exit status."""

    output: str
    status: int


class Session:
    """A conversation with the first process of one guest."""

    def __init__(self, path: str, deadline: float) -> None:
        """Connects to the UNIX socket `path` and waits until the guest is up; `deadline` is in time.monotonic()."""
        self.buffer = b""
        try:
            self.socket = sockets.connect(path, deadline)
        except sockets.NobodyListens as error:
            raise SessionError(str(error)) from None
        self._until(rb"@@ready\n", deadline, "the guest did not come up")

    def close(self) -> None:
        self.socket.close()

    def run(self, command: str, seconds: float = 60.0) -> Outcome:
        """Runs one command of the shell, which must not read its standard input. After `seconds` it is killed inside, and
        its status is 137."""
        if "\n" in command:
            raise SessionError(f"a command is one line: {command!r}")
        # A mark that no output holds by accident.
        mark = secrets.token_hex(4)
        line = f"{mark} timeout -s KILL {seconds:.0f} sh -c {shlex.quote(command)}\n"
        try:
            self.socket.sendall(line.encode())
        except (BrokenPipeError, ConnectionResetError):
            raise SessionError(f"QEMU ended before {command!r}") from None
        # The guest's own limit comes first, unless its kernel no longer runs anything.
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
        """Starts a command of the shell and goes on: its process. Signals do to it what they would do at a terminal, which
        they do not behind the shell's own `&`.
        """
        inner = f"sh -c {shlex.quote(f'echo $$ >/tmp/{name}.pid; exec {command}')} >/tmp/{name}.out 2>&1"
        outer = f"{inner}; echo $? >/tmp/{name}.end; mv /tmp/{name}.end /tmp/{name}.status"
        self.check(f"cd /tmp && rm -f {name}.pid {name}.out {name}.status {name}.shell")
        self.check(f"start-stop-daemon -S -b -p /tmp/{name}.shell -m -x /bin/sh -- -c {shlex.quote(outer)}")
        return int(self.check(f"until [ -s /tmp/{name}.pid ]; do sleep 0.02; done; cat /tmp/{name}.pid"))

    def finish(self, name: str, seconds: float = 60.0) -> Outcome:
        """Waits for the end of what was started."""
        self.check(f"until [ -e /tmp/{name}.status ]; do sleep 0.02; done", seconds)
        return Outcome(self.check(f"cat /tmp/{name}.out"), int(self.check(f"cat /tmp/{name}.status")))

    def _until(self, end: bytes, deadline: float, what: str) -> tuple[bytes, bytes]:
        """All up to `end`, and its group."""
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
