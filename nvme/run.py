"""Tests `waykeeper memload` on an emulated NVMe device in a QEMU guest. `make test-nvme` runs it.

This module has the list of runs and their devices. Exit status: 0 all passed, 1 a test failed or could not run, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from guests import packages, programs, qemu, rootfs, session
from nvme import content, counting, machine, manners, memory, pace
from nvme.counting import Judged
from nvme.load import Load

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / "target/nvme"
PACKAGES = REPOSITORY / "target/guests/packages"

IMAGE_BYTES = 32 << 20

ENGINES = (("nvme-uring", "generic"), ("nvme-ioctl", "generic"), ("uring", "block"))
"""Every engine, and the node on which it is tested."""


def loads(engine: str) -> Iterator[Load]:
    """The runs of an engine on blocks of 4096 B: every pattern in both directions, with several depths and workers."""
    for op in ("write", "read"):
        yield Load("single", op, engine, depth=8)
        yield Load("random", op, engine, commands=100, depth=4)
        yield Load("full", op, engine, commands=20)
        yield Load("packets", op, engine, stride=4, depth=8)
        yield Load("single", op, engine, workers=3, depth=4, commands=400)
        yield Load("single", op, engine, thesis=True)
    # The kernel merges several flushes at the same time into one.
    yield Load("flush", "write", engine, depth=1)
    yield Load("noop", "write", engine)


def small(engine: str) -> Iterator[Load]:
    """Runs on blocks of 512 B, for a device that is formatted with them."""
    for op in ("write", "read"):
        yield Load("single", op, engine, block_bytes=512, depth=8)
        yield Load("random", op, engine, block_bytes=512, commands=100)


def longest(engine: str, most_bytes: int, most_pages: int) -> Iterator[Load]:
    """Runs with commands of the device's maximum length. Commands of small blocks begin inside a page and are on one more page."""
    for block_bytes, pages in ((4096, most_pages), (512, most_pages - 1)):
        most = min(most_bytes, pages * 4096) // block_bytes
        for op in ("write", "read"):
            yield Load(
                "random",
                op,
                engine,
                30,
                block_bytes=block_bytes,
                buffer_blocks=2 * most,
                most_blocks=most,
                finds_most=True,
            )


def few(engine: str) -> Iterator[Load]:
    """Runs on the device whose namespace number differs from its name."""
    for op in ("write", "read"):
        yield Load("single", op, engine, commands=50, seed=3)
        yield Load("full", op, engine, commands=10, thesis=True, seed=4)


def moving(guest: machine.Machine) -> Iterator[Judged]:
    """Every pattern through every engine transfers exactly what it states."""
    first, _ = guest.devices
    nodes = guest.nodes(first)
    for engine, kind in ENGINES:
        for load in (*loads(engine), *small(engine), *longest(engine, *guest.most(nodes))):
            yield counting.run(guest, first, getattr(nodes, kind), load)
        yield Judged(f"{engine}: the SMART log", counting.by_log(guest, first))
    for load in few("nvme-ioctl"):
        yield counting.run(guest, first, nodes.block, load)


def namespace(guest: machine.Machine) -> Iterator[Judged]:
    """The program uses the namespace's own number and block size."""
    _, second = guest.devices
    nodes = guest.nodes(second)
    for engine, kind in ENGINES:
        for load in few(engine):
            yield counting.run(guest, second, getattr(nodes, kind), load)
    yield Judged("the SMART log of the second device", counting.by_log(guest, second))


def arriving(guest: machine.Machine) -> Iterator[Judged]:
    """Data arrive: checked by `--verify` and in the guest's memory."""
    first, _ = guest.devices
    nodes = guest.nodes(first)
    for engine, kind in ENGINES:
        for op in ("write", "read"):
            yield manners.verifies(guest, first, getattr(nodes, kind), engine, op)
    for load in memory.LOADS:
        yield memory.arrives(guest, first, getattr(nodes, dict(ENGINES)[load.engine]), load, CACHE)
    yield manners.notices(guest, first, nodes.generic, "nvme-uring", "write")
    yield manners.notices(guest, first, nodes.block, "uring", "read")


def refusing(guest: machine.Machine) -> Iterator[Judged]:
    """Invalid runs are refused before any command is sent. The content of the second device is lost."""
    first, second = guest.devices
    for refused in manners.refusals(guest, first, second):
        yield manners.refuse(guest, first, refused)
    yield from manners.in_use(guest, second)


def ending(guest: machine.Machine) -> Iterator[Judged]:
    """Runs end at their limits and on errors. The second device is unplugged afterwards."""
    first, second = guest.devices
    nodes = guest.nodes(first)
    yield manners.ends_by_blocks(guest, first, nodes.generic)
    for engine, kind in ENGINES:
        yield manners.interrupt(guest, first, getattr(nodes, kind), engine)
    yield manners.stays(guest, nodes.block)
    for engine, kind in ENGINES:
        yield manners.vanish(guest, second, getattr(guest.nodes(second), kind), engine, unplug=False)
    yield manners.vanish(guest, second, guest.nodes(second).generic, "nvme-uring", unplug=True)


def pacing(guest: machine.Machine) -> Iterator[Judged]:
    """Limits hold in every slot."""
    (only,) = guest.devices
    nodes = guest.nodes(only)
    pace.prepare(guest)
    for paced in pace.RUNS:
        yield pace.keeps(guest, getattr(nodes, dict(ENGINES)[paced.engine]), paced)


Group = Callable[[machine.Machine], Iterator[Judged]]

GROUPS = {"moving": moving, "namespace": namespace, "arriving": arriving, "refusing": refusing, "ending": ending}
"""Groups in a guest that runs in real time, in order."""

LEAPING = {"pacing": pacing}
"""Groups in a guest whose clock does not depend on other work of this machine."""


def complaints(console: Path) -> list[str]:
    """Warnings and errors in the kernel's messages."""
    words = ("BUG:", "WARNING: CPU", "Oops", "Call Trace", "segfault", "general protection", "hung task")
    return [
        text.strip() for text in console.read_text(errors="replace").splitlines() if any(word in text for word in words)
    ]


def prepare(series: list[str], waykeeper: Path | None) -> tuple[dict[str, Path], Path]:
    """Kernels by series and the file system: all steps that need the network or cargo."""
    say(packages.ensure_qemu())
    roots = {one: packages.kernel(PACKAGES, one) for one in series}
    say(f"kernels: {', '.join(root.name for root in roots.values())}")
    busybox = packages.busybox(PACKAGES).read_bytes()
    tool = packages.ensure("nvme", "nvme-cli")
    began = time.monotonic()
    ours = programs.carry([waykeeper]) if waykeeper else programs.build(REPOSITORY, ["waykeeper"])
    say(f"program built in {time.monotonic() - began:.0f} s")
    theirs = programs.carry([tool])
    files = {f"bin/{name}": content for name, content in (ours.programs | theirs.programs).items()}
    initrd = CACHE / "initrd"
    initrd.write_bytes(rootfs.image(busybox, session.INIT, files | ours.libraries | theirs.libraries))
    return roots, initrd


def say(text: str) -> None:
    print(f"nvme: {text}", flush=True)


class Tally:
    """The results of one guest; failures are printed at once."""

    def __init__(self, name: str, verbose: bool) -> None:
        self.name = name
        self.verbose = verbose
        self.began = time.monotonic()
        self.passed = self.failed = 0

    def take(self, judged: Judged) -> None:
        for text in judged.wrong:
            print(f"{self.name}: FAILED {judged.name}: {text}", flush=True)
        if judged.wrong:
            self.failed += 1
            return
        self.passed += 1
        if self.verbose:
            print(f"{self.name}: ok {judged.name} ({time.monotonic() - self.began:.1f} s)", flush=True)

    def __str__(self) -> str:
        return f"{self.name}: {self.passed} passed, {self.failed} failed ({time.monotonic() - self.began:.1f} s)"


def in_guest(root: Path, initrd: Path, groups: list[str], tally: Tally) -> None:
    """Runs these groups on one kernel."""
    devices = [
        machine.Device("wk0001", 1, 512, CACHE / f"{tally.name}-1.img"),
        # The namespace number differs from the one in its name, /dev/nvme1n1.
        machine.Device("wk0002", 3, 4096, CACHE / f"{tally.name}-2.img"),
    ]
    for device in devices:
        content.write(device.image, IMAGE_BYTES)
    judge(root, initrd, devices, [GROUPS[group] for group in groups], tally)


def in_leaping_guest(root: Path, initrd: Path, groups: list[str], tally: Tally) -> None:
    """Runs these groups of LEAPING on one kernel."""
    devices = [machine.Device("wk0001", 1, 512, None)]
    judge(root, initrd, devices, [LEAPING[group] for group in groups], tally, leaps=True)


def judge(
    root: Path, initrd: Path, devices: list[machine.Device], groups: list[Group], tally: Tally, leaps: bool = False
) -> None:
    """Runs the groups in a guest with these devices; kernel warnings are failures too."""
    logs, kernel = CACHE / "logs", packages.kernel_image(root)
    try:
        with machine.booted(tally.name, kernel, initrd, devices, logs, leaps=leaps) as guest:
            if not leaps:
                # Not in a leaping guest: the clock would skip past the time limit of this command, and no requests are merged there.
                guest.keep_apart()
            for group in groups:
                for judged in group(guest):
                    tally.take(judged)
    except qemu.GuestError as error:
        tally.take(Judged("the guest", [str(error)]))
    console = logs / f"{tally.name}.console"
    tally.take(Judged("the kernel", [f"kernel message: {text}; see {console}" for text in complaints(console)]))


def interrupted(*_: object) -> None:
    """Acts as Ctrl-C: the guest is ended and temporary folders removed."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m nvme.run", description="Test memload on an emulated NVMe device in a QEMU guest."
    )
    parser.add_argument(
        "--kernel", action="append", choices=["6.1", "6.12"], help="kernel series (may be repeated; default: 6.1)"
    )
    parser.add_argument(
        "--only", action="append", choices=GROUPS | LEAPING, help="run only this group (may be repeated; default: all)"
    )
    parser.add_argument("--waykeeper", type=Path, help="use this program instead of building the workspace")
    parser.add_argument("--verbose", action="store_true", help="print passed checks too")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupted)

    began = time.monotonic()
    (CACHE / "logs").mkdir(parents=True, exist_ok=True)
    lock = open(CACHE / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"error: another run holds the lock {CACHE / 'lock'}; wait until it has ended")
        return 1
    tallies = []
    try:
        roots, initrd = prepare(arguments.kernel or ["6.1"], arguments.waykeeper)
        wanted = arguments.only or [*GROUPS, *LEAPING]
        for series, root in roots.items():
            if groups := [group for group in GROUPS if group in wanted]:
                tallies.append(Tally(f"linux-{series}", arguments.verbose))
                in_guest(root, initrd, groups, tallies[-1])
                say(str(tallies[-1]))
            if groups := [group for group in LEAPING if group in wanted]:
                tallies.append(Tally(f"linux-{series}-leaping", arguments.verbose))
                in_leaping_guest(root, initrd, groups, tallies[-1])
                say(str(tallies[-1]))
    except (packages.PackageError, programs.BuildError, OSError) as error:
        say(f"error: {error}")
        return 1
    passed, failed = sum(one.passed for one in tallies), sum(one.failed for one in tallies)
    say(f"{passed} passed, {failed} failed ({time.monotonic() - began:.0f} s)")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
