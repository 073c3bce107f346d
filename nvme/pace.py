"""Do limits hold, and are bursts as configured? Judged by when the guest's kernel passed commands to the device.

It knows what a limit dealt out in slots means, and the kernel's trace of its NVMe driver. It must not know how memload keeps to it, nor
believe the times that it tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nvme.counting import Judged
from nvme.load import apart, report
from nvme.machine import Machine

TRACING = "/sys/kernel/tracing"

TICK_NS = 10_000
"""Times are told in steps of these, and how many commands there were in each: a guest's serial port is slow."""

TOLERANCE = 0.01
"""Of all commands, so many may lack, and so many may be late: a slot of a millisecond of emulated time is short."""

LEAD = 0.25
"""Part of a slot that may go by before its burst begins, and before the first command that the kernel sees of a run."""

EACH_NS = 8_000
"""What each command of a burst may take. The guest's processor needs 5 us for one, unoptimised."""

MOST_SECONDS = 3600.0
"""Of a clock that leaps (nvme.machine.LEAPING) and so goes by when something is printed."""


@dataclass(frozen=True)
class Paced:
    """A run under a limit."""

    engine: str
    rate: int
    """Commands a second."""
    slots: int
    """A second."""
    seconds: float
    depth: int
    """Enough for several slots: nobody waits for a command to come back."""
    by_bytes: bool = False
    """The limit is one of bytes, of commands of 31 blocks."""

    @property
    def name(self) -> str:
        what = "x 31 blocks" if self.by_bytes else "commands"
        return f"{self.engine}: {self.rate} {what}/s in {self.slots} slots for {self.seconds} s"

    @property
    def slot_ns(self) -> float:
        return 1e9 / self.slots

    def share(self, slot: int) -> int:
        """Commands of a slot: what does not divide is dealt out in turn."""
        return self.rate * (slot + 1) // self.slots - self.rate * slot // self.slots

    def shares(self) -> list[int]:
        """Of all slots."""
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
    # The kernel has 1023 places for commands of a queue. One slot of the short run may not be late.
    Paced("nvme-uring", 100_000, 500, 0.01, 1000),
    Paced("nvme-uring", 100_000, 500, 0.3, 1000),
    Paced("nvme-ioctl", 1000, 100, 1.0, 64),
    Paced("uring", 10_000, 100, 0.5, 512),
]
"""From 10 to 100 000 commands a second; short slots and long, shares that divide and that do not."""


def prepare(machine: Machine) -> None:
    """Has the kernel write down when it passes commands to a queue that is not the administrator's."""
    machine.session.check(
        f"mount -t tracefs none {TRACING} && cd {TRACING} && echo 20000 >buffer_size_kb && echo mono >trace_clock"
        " && echo 'qid != 0' >events/nvme/nvme_setup_cmd/filter && echo 1 >events/nvme/nvme_setup_cmd/enable",
        MOST_SECONDS,
    )


def keeps(machine: Machine, target: str, paced: Paced) -> Judged:
    """A run under a limit, as the kernel saw it."""
    machine.session.check(f"echo >{TRACING}/trace", MOST_SECONDS)
    told = report(machine.session.run(apart(paced.words(target)), MOST_SECONDS))
    if told.status != 0 or told.summary is None:
        return Judged(paced.name, [f"a good end was expected: {told}"])
    # A line is "TASK-PID [CPU] FLAGS SECONDS.MICROSECONDS: EVENT: ...", whose columns are fixed; the last digit of the time is left out.
    times = f"cut -c37-48 {TRACING}/trace | uniq -c"
    lost = machine.session.check(f"grep -h ^overrun {TRACING}/per_cpu/cpu*/stats", MOST_SECONDS).split()[1::2]
    if set(lost) != {"0"}:
        return Judged(paced.name, [f"the kernel's buffer was too small for its trace: {lost} lines are lost"])
    return Judged(paced.name, judge(paced, read(machine.session.check(times, MOST_SECONDS))))


def read(text: str) -> list[int]:
    """Times in ns, one for each command, of lines "COUNT SECONDS.HUNDRED-THOUSANDTHS"."""
    found = re.findall(r"^ *(\d+) +(\d+)\.(\d{5})$", text, re.MULTILINE)
    return [int(s) * 10**9 + int(part) * TICK_NS for count, s, part in found for _ in range(int(count))]


def _late(paced: Paced, share: int, burst: list[float]) -> int:
    """How many commands are late of those that went in a slot, so many ns after its beginning. None is early, so what is more
    than its share is of the slot before.
    """
    due = [LEAD * paced.slot_ns + number * EACH_NS for number in range(1, share + 1)]
    return max(len(burst) - share, 0) + sum(at > then for at, then in zip(burst, due, strict=False))


def judge(paced: Paced, times: list[int]) -> list[str]:
    """Every slot has its share, in one burst at its beginning: none early, and hardly any late or not at all.

    When the run began is not known; the first command comes after it, and no command before its slot. The latest time that allows
    all commands is taken for it, and must lie just before the first command.
    """
    shares = paced.shares()
    wanted = sum(shares)
    if abs(len(times) - wanted) > TOLERANCE * wanted:
        return [f"{len(times)} commands went in {paced.seconds} s, expected {wanted}"]
    earliest = [slot * paced.slot_ns for slot, share in enumerate(shares) for _ in range(share)]
    if len(times) > wanted:
        return [f"{len(times)} commands went, the limit allows {wanted}"]
    # What is late may be told a step early.
    begin = min(time + TICK_NS - least for time, least in zip(times, earliest, strict=False))
    first = times[0] - earliest[0]
    if first - begin > LEAD * paced.slot_ns:
        worst = max(range(len(times)), key=lambda number: earliest[number] - times[number])
        return [
            f"command {worst} went {(times[worst] - first) / 1e6:.2f} ms after the run's beginning at the latest,"
            f" its slot begins at {earliest[worst] / 1e6:.2f} ms"
        ]
    # The tightest command lies on its slot's boundary, where rounding must not decide.
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
        return [f"commands went late in {len(late)} slots ({shown})"]
    return []
