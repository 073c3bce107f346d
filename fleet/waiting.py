"""Waiting on a busy machine: for a condition, and for the end of a process. This module must not know what is waited for."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

from clients.testbed.checks import Failed

SECONDS = 60
"""Longest wait for a program to start or end, on a busy machine."""


def until(
    what: str | Callable[[], str], wanted: Callable[[], object], *, seconds: float = SECONDS, pause_s: float = 0.05
) -> None:
    """Waits until a condition holds, which is tested again after a pause. `what` tells what is wrong if it never does."""
    end = time.monotonic() + seconds
    while not wanted():
        if time.monotonic() > end:
            raise Failed(what if isinstance(what, str) else what())
        time.sleep(pause_s)


def ended(process: subprocess.Popen[bytes] | subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
    """Ends a process with a signal, and kills it if it does not end."""
    process.send_signal(number)
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
