"""A client of QEMU's machine protocol (QMP): commands, events, and the counters of a block device.

This module implements the protocol (QEMU's docs/interop/qmp-spec) and reads the answer of `query-blockstats`. It must not depend
on the purpose of the machine.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields

from guests import sockets

PATIENCE_SECONDS = 60.0
"""Time limit of an answer from QEMU, on a slow, busy machine."""


class QmpError(Exception):
    """QEMU refused a command, or ended."""


@dataclass(frozen=True)
class Counts:
    """QEMU's counters of a drive. Bytes are bytes of data; operations are commands of the guest."""

    read_operations: int
    read_bytes: int
    written_operations: int
    written_bytes: int
    flushes: int

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)))


class Qmp:
    """A connection to one QEMU, for use by one thread."""

    def __init__(self, path: str, deadline: float) -> None:
        """Connects to the UNIX socket `path`, which may not exist yet; `deadline` is in time.monotonic()."""
        self.events: list[dict] = []
        self.buffer = b""
        try:
            self.socket = sockets.connect(path, deadline)
        except sockets.NotConnected as error:
            raise QmpError(str(error)) from None
        if "QMP" not in self._message():
            raise QmpError(f"{path}: no QMP greeting")
        self.execute("qmp_capabilities")

    def close(self) -> None:
        self.socket.close()

    def execute(self, command: str, **arguments: object) -> object:
        """The answer to a command. Events that arrive in the meantime are kept for `wait`."""
        question = {"execute": command, "arguments": arguments}
        try:
            self.socket.sendall(json.dumps(question).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            raise QmpError(f"{command}: QEMU ended") from None
        while True:
            message = self._message()
            if "event" in message:
                self.events.append(message)
            elif "error" in message:
                raise QmpError(f"{command}: {message['error'].get('desc', message['error'])}")
            else:
                return message["return"]

    def wait(self, event: str, **data: object) -> dict:
        """The first event of this name that `wait` has not returned yet and whose data contain `data`."""
        while True:
            for message in self.events:
                if message["event"] == event and data.items() <= message.get("data", {}).items():
                    self.events.remove(message)
                    return message
            message = self._message()
            if "event" not in message:
                raise QmpError(f"expected an event, got {message}")
            self.events.append(message)

    def counts(self, drive: str) -> Counts:
        """The counters of the drive with this id."""
        for one in self.execute("query-blockstats"):
            if one.get("device") == drive:
                stats = one["stats"]
                return Counts(
                    stats["rd_operations"],
                    stats["rd_bytes"],
                    stats["wr_operations"],
                    stats["wr_bytes"],
                    stats["flush_operations"],
                )
        raise QmpError(f"query-blockstats: no drive {drive}")

    def _message(self) -> dict:
        """The next line."""
        until = time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0:
                raise QmpError(f"no answer from QEMU within {PATIENCE_SECONDS:.0f} s")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                continue
            except ConnectionResetError:
                data = b""
            if not data:
                raise QmpError("QEMU closed the connection: it ended")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)
