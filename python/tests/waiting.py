"""Waiting for a condition, with one limit for all tests. This module must not know what is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300
"""How long a test waits for something that must happen. Assumption: no machine is so busy that this is too short."""


def until(what: str, wanted: Callable[[], object]) -> None:
    """Waits until a condition holds; fails with what was waited for."""
    end = time.monotonic() + PATIENCE_S
    while not wanted():
        assert time.monotonic() < end, f"waited for {what} in vain"
        time.sleep(0.05)
