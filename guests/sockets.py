"""A connection to a UNIX socket that QEMU makes a moment after it was started. It must not know what is said on it."""

from __future__ import annotations

import socket
import time


class NobodyListens(Exception):
    """The socket did not come to be in time, or nobody accepts on it."""


def connect(path: str, deadline: float) -> socket.socket:
    """Connects to the socket `path`, which may come to be only in a moment; `deadline` is in time.monotonic()."""
    while True:
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.connect(path)
            return stream
        except (FileNotFoundError, ConnectionRefusedError) as error:
            stream.close()
            if time.monotonic() > deadline:
                raise NobodyListens(f"{path}: nobody listens: {error}") from None
            time.sleep(0.02)
