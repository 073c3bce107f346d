"""Starts QEMU without KVM on a Debian kernel and an initramfs, and ensures that it ends.

This module uses QEMU's command line. It must not depend on what runs in the guest or how the guest is controlled.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class GuestError(Exception):
    """A guest did not finish or failed; the message names the log."""


@dataclass(frozen=True)
class Hardware:
    """The hardware of a guest."""

    processor: str
    """QEMU's -cpu."""
    processors: str
    """QEMU's -smp."""
    memory_mib: int
    threads: str
    """"single": one thread of the host runs all processors; "multi": each processor has its own thread."""
    more: tuple[str, ...] = ()
    """Further arguments."""
    pinned: bool = False
    """Whether all of QEMU's threads run on one processor of this machine."""


_running: set[subprocess.Popen] = set()
"""The running guests of this process."""


def stop_all() -> None:
    """Ends all guests; code that waits for a guest gets an error."""
    for child in list(_running):
        child.kill()


@contextlib.contextmanager
def started(
    hardware: Hardware, kernel: Path, initrd: Path, append: str, serials: list[str], log: Path
) -> Iterator[subprocess.Popen]:
    """A running QEMU, which is ended with the context. `append` is the kernel's command line; `serials` are QEMU's
    -serial arguments in order. QEMU's own messages are written to `log`.
    """
    command = [
        # The guest is killed when this thread dies for any reason.
        "setpriv", "--pdeathsig", "KILL",
        *(("taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))) * hardware.pinned),
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none",
        "-machine", "q35", "-accel", f"tcg,thread={hardware.threads}",
        "-cpu", hardware.processor, "-smp", hardware.processors, "-m", f"{hardware.memory_mib}M",
        "-kernel", str(kernel), "-initrd", str(initrd), "-append", append,
        "-no-reboot", "-net", "none",
        *(part for serial in serials for part in ("-serial", serial)),
        *hardware.more,
    ]  # fmt: skip
    with open(log, "wb") as messages:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages)
    _running.add(child)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        _running.discard(child)
