"""Starts QEMU without KVM on a Debian kernel and an initramfs, and makes sure that it ends.

It knows QEMU's command line and processes. It must not know what runs in the guest, nor who talks to it how.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class GuestError(Exception):
    """A guest that did not come to its end or did not do as it should; the message names the log."""


@dataclass(frozen=True)
class Hardware:
    """What a guest finds."""

    processor: str
    """QEMU's -cpu."""
    processors: str
    """QEMU's -smp."""
    memory_mib: int
    threads: str
    """"single": one thread of the host runs all processors; "multi": each its own."""
    more: tuple[str, ...] = ()
    """Further arguments."""
    pinned: bool = False
    """All of QEMU's threads take turns on one processor of this machine."""


_running: set[subprocess.Popen] = set()
"""The guests of this process that have not ended."""


def stop_all() -> None:
    """Ends every guest; whoever waits for one gets an error."""
    for child in list(_running):
        child.kill()


@contextlib.contextmanager
def started(
    hardware: Hardware, kernel: Path, initrd: Path, append: str, serials: list[str], log: Path
) -> Iterator[subprocess.Popen]:
    """A running QEMU, which has ended when the context has. `append` is the kernel's command line, `serials` are QEMU's
    -serial in order. QEMU's own messages go to `log`.
    """
    command = [
        # If this thread dies, however it dies, so does the guest.
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
