"""A connection to a UNIX socket that QEMU creates shortly after its start. This module must not depend on the protocol."""

from __future__ import annotations

import socket
import time


class NotConnected(Exception):
    """The socket did not exist in time, or no process accepts connections on it."""


def connect(path: str, deadline: float) -> socket.socket:
    """Connects to the socket `path`, which may not exist yet; `deadline` is in time.monotonic()."""
    while True:
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.connect(path)
            return stream
        except (FileNotFoundError, ConnectionRefusedError) as error:
            stream.close()
            if time.monotonic() > deadline:
                raise NotConnected(f"{path}: no process accepts connections: {error}") from None
            time.sleep(0.02)
