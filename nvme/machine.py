"""A guest with two NVMe devices whose images lie on this machine: boots it, finds its devices, reads what they counted.

It knows QEMU's NVMe device, sysfs and nvme-cli. It must not know what load is made, nor what counts are expected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from guests import qemu
from guests.qmp import Counts, Qmp, QmpError
from guests.session import Session, SessionError
from nvme.trace import EVENTS, Command, Trace

UNIT_BYTES = 512_000
"""Bytes of a SMART data unit, which is a thousand times 512 whatever a block is (NVM Express Base 2.0, fig. 207)."""

MEMORY_MIB = 512

BOOT_SECONDS = 60.0
"""Longest that a boot may take; it takes 3 s, and some 10 on a machine with much other work."""

BOOTS = 3
"""Once in some hundred boots QEMU 7.2 with a thread for each processor stands still before the guest's first process: one
processor waits for another that sleeps on and has no interrupt pending."""

NULL_BYTES = 32 << 20
"""Size of a device that keeps nothing."""

INSTRUCTION_NS = 4
"""Length of an instruction where they are counted: about what emulation takes on the machines this was tried on."""

# Once in some hundred thousand commands QEMU 7.2's device does not look at a queue whose doorbell was rung, and the commands lie
# there until the kernel's timeout: with the guest's processor and QEMU's other threads on two of this machine's, never yet (800 000
# commands) on one. It reads like the shadow doorbells' missing memory barrier, which one processor does not need.
COUNTING = ("-icount", f"shift={INSTRUCTION_NS.bit_length() - 1}")

LEAPING = ("-icount", "shift=0,sleep=off")
"""An instruction takes a nanosecond, and time in which the guest has nothing to do is left out: what it waits for comes when it is
due, however busy this machine is. Only a device that answers at once may be there: one that takes its time would take no end of it."""

PROCESSOR = "Skylake-Server,cx16=off"
"""With cx16 half of the boots of Linux 6.12 on QEMU 7.2 crash."""


@dataclass(frozen=True)
class Device:
    """An NVMe device with one namespace."""

    serial: str
    nsid: int
    block_bytes: int
    image: Path | None
    """None: it keeps nothing and answers at once."""

    @property
    def drive(self) -> str:
        """QEMU's name of the image."""
        return f"drive-{self.serial}"

    @property
    def name(self) -> str:
        """QEMU's name of the device, by which it can be unplugged."""
        return f"device-{self.serial}"


@dataclass(frozen=True)
class Nodes:
    """What the guest's kernel calls a device."""

    controller: str
    generic: str
    block: str


@dataclass(frozen=True)
class Smart:
    """What a device says that it has done, over all of its life."""

    read_commands: int
    written_commands: int
    read_units: int
    written_units: int


class Machine:
    """A running guest."""

    def __init__(self, session: Session, qmp: Qmp, devices: list[Device], log: Path) -> None:
        self.session = session
        self.qmp = qmp
        self.devices = devices
        self.trace = Trace(log)

    def nodes(self, device: Device) -> Nodes:
        """The nodes of a device, which is looked for by its serial: the kernel numbers devices as they come up."""
        for line in self.session.check("grep -H . /sys/class/nvme/nvme*/serial").splitlines():
            path, _, serial = line.partition(":")
            if serial.strip() == device.serial:
                folder = Path(path).parent
                names = self.session.check(f"ls {folder}").split()
                generic = next(name for name in names if name.startswith("ng"))
                return Nodes(f"/dev/{folder.name}", f"/dev/{generic}", f"/dev/nvme{generic.removeprefix('ng')}")
        raise SessionError(f"the guest has no NVMe device with serial {device.serial}")

    def most(self, nodes: Nodes) -> tuple[int, int]:
        """Bytes, and pages of memory, that a command may have at most, as the guest's kernel says."""
        queue = f"/sys/block/{nodes.block.removeprefix('/dev/')}/queue"
        kib, pages = self.session.check(f"cat {queue}/max_sectors_kb {queue}/max_segments").split()
        return int(kib) << 10, int(pages)

    def keep_apart(self) -> None:
        """Has the kernel's block layer make one command of one request: QEMU counts commands."""
        self.session.check("for queue in /sys/block/nvme*/queue; do echo 2 >$queue/nomerges; done")

    def counts(self, device: Device) -> Counts:
        """What QEMU counted so far at the image. Flushes come from its trace of the NVMe device: QEMU 7.2 does not account
        for them at the drive.
        """
        return dataclasses.replace(self.qmp.counts(device.drive), flushes=self.trace.flushes(device.nsid))

    @contextlib.contextmanager
    def traced(self, device: Device) -> Iterator[list[Command]]:
        """All reads and writes that the device is asked for meanwhile: the list is filled when the context has ended."""
        self.trace.forget()
        self._trace(True)
        found: list[Command] = []
        try:
            yield found
        finally:
            self._trace(False)
        found += self.trace.commands(device.nsid)

    def _trace(self, enable: bool) -> None:
        for event in EVENTS:
            self.qmp.execute("trace-event-set-state", name=event, enable=enable)

    def smart(self, device: Device) -> Smart:
        """The device's log page 2, read inside by Debian's nvme-cli."""
        text = self.session.check(f"nvme smart-log {self.nodes(device).controller} -o json")
        found = json.loads(text)
        return Smart(
            int(found["host_read_commands"]),
            int(found["host_write_commands"]),
            int(found["data_units_read"]),
            int(found["data_units_written"]),
        )


@contextlib.contextmanager
def booted(
    name: str,
    kernel: Path,
    initrd: Path,
    devices: list[Device],
    logs: Path,
    counts: bool = False,
    leaps: bool = False,
    parallel: bool = False,
) -> Iterator[Machine]:
    """A guest that is up, and has ended when the context has. If it `counts`, its one processor's time is a count of its
    instructions, INSTRUCTION_NS each, however busy this machine is. If it `leaps`, too, but for idle time (see LEAPING).
    Else it has two processors, which take turns; if it is `parallel` they run at the same time, and may stand still (see BOOTS).

    The kernel's messages go to LOGS/NAME.console, QEMU's to LOGS/NAME.qemu.
    """
    console, log = logs / f"{name}.console", logs / f"{name}.qemu"
    more: list[str] = []
    for number, device in enumerate(devices, start=1):
        port = f"port{number}"
        more += [
            # A flush of the guest is counted like any other; this machine's disk need not follow.
            "-drive", f"if=none,id={device.drive},"
            + (f"file={device.image},format=raw,cache=unsafe" if device.image else f"driver=null-co,size={NULL_BYTES}"),
            # A port of its own, so that it can be unplugged.
            "-device", f"pcie-root-port,id={port},chassis={number},slot={number}",
            "-device", f"nvme,id={device.name},bus={port},serial={device.serial}",
            "-device", f"nvme-ns,drive={device.drive},bus={device.name},nsid={device.nsid},"
            f"logical_block_size={device.block_bytes},physical_block_size={device.block_bytes}",
        ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="nvme-") as folder:
        shell, control = f"{folder}/shell", f"{folder}/qmp"
        hardware = qemu.Hardware(
            processor=PROCESSOR,
            processors="1" if counts or leaps else "2",
            memory_mib=MEMORY_MIB,
            threads="multi" if parallel else "single",
            pinned=counts or leaps,
            more=(
                *more,
                "-qmp",
                f"unix:{control},server=on,wait=off",
                "-trace",
                "pci_nvme_flush_ns",
                *COUNTING * counts,
                *LEAPING * leaps,
            ),
        )
        serials = [f"file:{console}", f"unix:{shell},server=on,wait=off"]
        # What is in memory is in use: freed pages do not keep what they held.
        append = "console=ttyS0 panic=-1 quiet loglevel=4 init_on_free=1"
        with contextlib.ExitStack() as stack:

            def boot() -> Machine:
                for path in (console, Path(shell), Path(control)):
                    path.unlink(missing_ok=True)
                stack.enter_context(qemu.started(hardware, kernel, initrd, append, serials, log))
                deadline = time.monotonic() + BOOT_SECONDS
                session = stack.enter_context(contextlib.closing(Session(shell, deadline)))
                qmp = stack.enter_context(contextlib.closing(Qmp(control, deadline)))
                return Machine(session, qmp, devices, log)

            try:
                yield until_up(name, stack, boot)
            except (SessionError, QmpError) as error:
                raise qemu.GuestError(f"{name}: {error}; see {console} and {log}") from error


def until_up(name: str, stack: contextlib.ExitStack, boot: Callable[[], Machine]) -> Machine:
    """The guest of the first boot that comes to its end, of BOOTS at most. What a failed one has left on the stack is ended."""
    for left in reversed(range(BOOTS)):
        try:
            return boot()
        except (SessionError, QmpError) as error:
            if not left:
                raise
            print(f"nvme: {name}: {error}; booted again", flush=True)
            stack.close()
    raise AssertionError("BOOTS is 0")
