"""Checks that limits hold and bursts are as configured, by the times at which the guest's kernel passed commands to the device.

This module uses the definition of a limit in slots and the kernel's trace of its NVMe driver. It must not depend on memload's
implementation or on the times that memload prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nvme.counting import Judged
from nvme.load import apart, report
from nvme.machine import Machine

TRACING = "/sys/kernel/tracing"

TICK_NS = 10_000
"""Resolution of times. The guest sends only the number of commands per step, because its serial port is slow."""

TOLERANCE = 0.01
"""This part of all commands may be missing, and this part may be late: a slot of a millisecond of emulated time is short."""

LEAD = 0.25
"""Part of a slot that may pass before its burst begins, and before the first command of a run."""

EACH_NS = 8_000
"""Time limit of each command of a burst. The guest's processor needs 5 us for one with an unoptimised program."""

MOST_SECONDS = 3600.0
"""Time limit on a clock that skips idle time (nvme.machine.LEAPING) and therefore advances fast while output is sent."""


@dataclass(frozen=True)
class Paced:
    """A run under a limit."""

    engine: str
    rate: int
    """Commands per second."""
    slots: int
    """Slots per second."""
    seconds: float
    depth: int
    """Enough for several slots, so that no thread waits for a completion."""
    by_bytes: bool = False
    """Whether the limit is in bytes, with commands of 31 blocks."""

    @property
    def name(self) -> str:
        what = "x 31 blocks" if self.by_bytes else "commands"
        return f"{self.engine}: {self.rate} {what}/s in {self.slots} slots for {self.seconds} s"

    @property
    def slot_ns(self) -> float:
        return 1e9 / self.slots

    def share(self, slot: int) -> int:
        """Number of commands of a slot; a remainder is distributed over the slots."""
        return self.rate * (slot + 1) // self.slots - self.rate * slot // self.slots

    def shares(self) -> list[int]:
        """The numbers of commands of all slots."""
        return [self.share(slot) for slot in range(round(self.seconds * self.slots))]

    def words(self, target: str) -> str:
        shape = "--pattern random --max-blocks 32" if self.by_bytes else "--pattern single"
        limit = f"--limit-bytes {self.rate * 31 * 4096}" if self.by_bytes else f"--limit-commands {self.rate}"
        return (
            f"waykeeper memload {target} --json --engine {self.engine} {shape} {limit} --slots {self.slots}"
            f" --time {self.seconds} --depth {self.depth}"
        )


RUNS = [
    Paced("nvme-uring", 10, 10, 2.0, 8),
    Paced("nvme-uring", 200, 2, 2.0, 512),
    Paced("nvme-uring", 1000, 1000, 1.0, 16),
    Paced("nvme-uring", 30, 7, 2.0, 32),
    Paced("nvme-uring", 20, 2, 2.0, 32, by_bytes=True),
    # A queue of the kernel has 1023 entries. In the short run no slot may be late.
    Paced("nvme-uring", 100_000, 500, 0.01, 1000),
    Paced("nvme-uring", 100_000, 500, 0.3, 1000),
    Paced("nvme-ioctl", 1000, 100, 1.0, 64),
    Paced("uring", 10_000, 100, 0.5, 512),
]
"""From 10 to 100 000 commands per second, with short and long slots, with and without a remainder."""


def prepare(machine: Machine) -> None:
    """Enables the kernel's trace of commands that it passes to I/O queues."""
    machine.session.check(
        f"mount -t tracefs none {TRACING} && cd {TRACING} && echo 20000 >buffer_size_kb && echo mono >trace_clock"
        " && echo 'qid != 0' >events/nvme/nvme_setup_cmd/filter && echo 1 >events/nvme/nvme_setup_cmd/enable",
        MOST_SECONDS,
    )


def keeps(machine: Machine, target: str, paced: Paced) -> Judged:
    """Checks a run under a limit by the kernel's trace."""
    machine.session.check(f"echo >{TRACING}/trace", MOST_SECONDS)
    ended = report(machine.session.run(apart(paced.words(target)), MOST_SECONDS))
    if ended.status != 0 or ended.summary is None:
        return Judged(paced.name, [f"expected status 0 and a summary: {ended}"])
    # A line is "TASK-PID [CPU] FLAGS SECONDS.MICROSECONDS: EVENT: ..." with fixed columns; the last digit of the time is cut off.
    times = f"cut -c37-48 {TRACING}/trace | uniq -c"
    lost = machine.session.check(f"grep -h ^overrun {TRACING}/per_cpu/cpu*/stats", MOST_SECONDS).split()[1::2]
    if set(lost) != {"0"}:
        return Judged(paced.name, [f"the kernel's trace buffer was too small: {lost} lines were lost"])
    return Judged(paced.name, judge(paced, read(machine.session.check(times, MOST_SECONDS))))


def read(text: str) -> list[int]:
    """Times in ns, one for each command, of lines "COUNT SECONDS.HUNDRED-THOUSANDTHS"."""
    found = re.findall(r"^ *(\d+) +(\d+)\.(\d{5})$", text, re.MULTILINE)
    return [int(s) * 10**9 + int(part) * TICK_NS for count, s, part in found for _ in range(int(count))]


def _late(paced: Paced, share: int, burst: list[float]) -> int:
    """The number of late commands of a slot; `burst` has their times in ns since the start of the slot. No command is early, so
    commands beyond the slot's share belong to the slot before.
    """
    due = [LEAD * paced.slot_ns + number * EACH_NS for number in range(1, share + 1)]
    return max(len(burst) - share, 0) + sum(at > then for at, then in zip(burst, due, strict=False))


def judge(paced: Paced, times: list[int]) -> list[str]:
    """Checks that every slot has its share of commands in one burst at its start: none early, and at most TOLERANCE late or missing.

    The start of the run is not known. It is before the first command, and no command is before its slot. So the latest start that
    is consistent with all commands is used; it must be shortly before the first command.
    """
    shares = paced.shares()
    wanted = sum(shares)
    if abs(len(times) - wanted) > TOLERANCE * wanted:
        return [f"{len(times)} commands were sent in {paced.seconds} s, expected {wanted}"]
    earliest = [slot * paced.slot_ns for slot, share in enumerate(shares) for _ in range(share)]
    if len(times) > wanted:
        return [f"{len(times)} commands were sent, the limit allows {wanted}"]
    # Because of the resolution a late command may appear one step early.
    begin = min(time + TICK_NS - least for time, least in zip(times, earliest, strict=False))
    first = times[0] - earliest[0]
    if first - begin > LEAD * paced.slot_ns:
        worst = max(range(len(times)), key=lambda number: earliest[number] - times[number])
        return [
            f"command {worst} was sent at most {(times[worst] - first) / 1e6:.2f} ms after the start of the run,"
            f" its slot begins at {earliest[worst] / 1e6:.2f} ms"
        ]
    # The command that determines the start is at the boundary of its slot; the small term avoids rounding errors.
    bursts: dict[int, list[float]] = {}
    for time in times:
        slot, part = divmod((time + TICK_NS - begin) / paced.slot_ns + 1e-6, 1)
        bursts.setdefault(int(slot), []).append(part * paced.slot_ns)
    late = {}
    for slot, burst in bursts.items():
        if number := _late(paced, shares[slot] if slot < len(shares) else 0, burst):
            late[slot] = number
    if sum(late.values()) > TOLERANCE * wanted:
        shown = ", ".join(f"slot {slot}: {late[slot]} of {len(bursts[slot])}" for slot in sorted(late)[:5])
        return [f"commands were late in {len(late)} slots ({shown})"]
    return []
