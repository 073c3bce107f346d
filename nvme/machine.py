"""A guest with NVMe devices whose images are on this machine: boots it, finds the devices, reads their counters.

This module uses QEMU's NVMe device, sysfs and nvme-cli. It must not depend on the load or on the expected counts.
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
"""Bytes of a SMART data unit: 1000 times 512, independent of the block size (NVM Express Base 2.0, fig. 207)."""

MEMORY_MIB = 512

BOOT_SECONDS = 60.0
"""Time limit of a boot; it takes 3 s, and about 10 s on a busy machine."""

BOOTS = 3
"""Number of attempts to boot. In about one of a hundred boots QEMU 7.2 with one thread per processor hangs before the guest's
first process: one processor waits for another that sleeps and has no interrupt pending."""

NULL_BYTES = 32 << 20
"""Size of a device that stores no data."""

INSTRUCTION_NS = 4
"""Time of an instruction in guests that count them: about its time in emulation on the tested machines."""

# In about one of some hundred thousand commands QEMU 7.2's device does not read a queue whose doorbell was rung, and the commands
# wait until the kernel's timeout. This happens if the guest's processor and QEMU's other threads run on two processors of this machine,
# but did not in 800 000 commands on one. The likely cause is a missing memory barrier of the shadow doorbells.
COUNTING = ("-icount", f"shift={INSTRUCTION_NS.bit_length() - 1}")

LEAPING = ("-icount", "shift=0,sleep=off")
"""An instruction takes a nanosecond and idle time is skipped: the event that the guest waits for comes at its due time, independent
of other work on this machine. The device must answer at once, because the guest's clock would run ahead of a slower device."""

PROCESSOR = "Skylake-Server,cx16=off"
"""Without `cx16=off` half of the boots of Linux 6.12 on QEMU 7.2 crash."""


@dataclass(frozen=True)
class Device:
    """An NVMe device with one namespace."""

    serial: str
    nsid: int
    block_bytes: int
    image: Path | None
    """None: the device stores no data and answers at once."""

    @property
    def drive(self) -> str:
        """QEMU's name of the image."""
        return f"drive-{self.serial}"

    @property
    def name(self) -> str:
        """QEMU's name of the device, used to unplug it."""
        return f"device-{self.serial}"


@dataclass(frozen=True)
class Nodes:
    """The device nodes of a device in the guest."""

    controller: str
    generic: str
    block: str


@dataclass(frozen=True)
class Smart:
    """The counters of a device's SMART log, over its whole life."""

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
        """The nodes of a device, found by its serial number, because the kernel numbers devices in the order of detection."""
        for line in self.session.check("grep -H . /sys/class/nvme/nvme*/serial").splitlines():
            path, _, serial = line.partition(":")
            if serial.strip() == device.serial:
                folder = Path(path).parent
                names = self.session.check(f"ls {folder}").split()
                generic = next(name for name in names if name.startswith("ng"))
                return Nodes(f"/dev/{folder.name}", f"/dev/{generic}", f"/dev/nvme{generic.removeprefix('ng')}")
        raise SessionError(f"the guest has no NVMe device with serial {device.serial}")

    def most(self, nodes: Nodes) -> tuple[int, int]:
        """The largest number of bytes, and of memory pages, of a command, as the guest's kernel reports them."""
        queue = f"/sys/block/{nodes.block.removeprefix('/dev/')}/queue"
        kib, pages = self.session.check(f"cat {queue}/max_sectors_kb {queue}/max_segments").split()
        return int(kib) << 10, int(pages)

    def keep_apart(self) -> None:
        """Disables merging in the kernel's block layer, because QEMU counts commands."""
        self.session.check("for queue in /sys/block/nvme*/queue; do echo 2 >$queue/nomerges; done")

    def counts(self, device: Device) -> Counts:
        """QEMU's counters of the image. Flushes are from its trace of the NVMe device, because QEMU 7.2 does not count them at
        the drive.
        """
        return dataclasses.replace(self.qmp.counts(device.drive), flushes=self.trace.flushes(device.nsid))

    @contextlib.contextmanager
    def traced(self, device: Device) -> Iterator[list[Command]]:
        """All reads and writes that the device gets in the context; the list is filled at its end."""
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
        """The device's SMART log (log page 2), read in the guest by Debian's nvme-cli."""
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
    """A booted guest, which is ended with the context.

    With `counts` it has one processor, whose clock counts instructions (INSTRUCTION_NS each), independent of other work on this
    machine. With `leaps` the same, but idle time is skipped (see LEAPING). Otherwise it has two processors, which run in turn or,
    with `parallel`, at the same time; then the guest may hang at boot (see BOOTS).

    Kernel messages are written to LOGS/NAME.console, QEMU's messages to LOGS/NAME.qemu.
    """
    console, log = logs / f"{name}.console", logs / f"{name}.qemu"
    more: list[str] = []
    for number, device in enumerate(devices, start=1):
        port = f"port{number}"
        more += [
            # QEMU counts a flush of the guest; it does not flush this machine's disk.
            "-drive", f"if=none,id={device.drive},"
            + (f"file={device.image},format=raw,cache=unsafe" if device.image else f"driver=null-co,size={NULL_BYTES}"),
            # A root port of its own, so that the device can be unplugged.
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
        # init_on_free: freed pages are zeroed, so that only memory in use has content.
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
    """The guest of the first successful boot of at most BOOTS. After a failed boot the stack is closed."""
    for left in reversed(range(BOOTS)):
        try:
            return boot()
        except (SessionError, QmpError) as error:
            if not left:
                raise
            print(f"nvme: {name}: {error}; booting again", flush=True)
            stack.close()
    raise AssertionError("BOOTS is 0")
