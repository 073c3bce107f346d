"""The judge: `waykeeper memload` on an emulated NVMe device, in a guest. `make test-nvme` runs it.

It knows which runs there are and what they stand on. Exit status: 0 all passed, 1 something failed or could not be tried, 2
wrong arguments.
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
"""Every engine, and the node it is tried on most."""


def loads(engine: str) -> Iterator[Load]:
    """The runs of an engine on blocks of 4096 B: every pattern, both ways, and how commands are kept outstanding."""
    for op in ("write", "read"):
        yield Load("single", op, engine, depth=8)
        yield Load("random", op, engine, commands=100, depth=4)
        yield Load("full", op, engine, commands=20)
        yield Load("packets", op, engine, stride=4, depth=8)
        yield Load("single", op, engine, workers=3, depth=4, commands=400)
        yield Load("single", op, engine, thesis=True)
    # The kernel makes one flush of several at the same time.
    yield Load("flush", "write", engine, depth=1)
    yield Load("noop", "write", engine)


def small(engine: str) -> Iterator[Load]:
    """Runs on blocks of 512 B, which only a device formatted so can do."""
    for op in ("write", "read"):
        yield Load("single", op, engine, block_bytes=512, depth=8)
        yield Load("random", op, engine, block_bytes=512, commands=100)


def longest(engine: str, most_bytes: int, most_pages: int) -> Iterator[Load]:
    """Runs whose commands are as long as the device takes: those of small blocks begin within a page, and lie on one more."""
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
    """Runs on the device whose namespace has a number that its name does not say."""
    for op in ("write", "read"):
        yield Load("single", op, engine, commands=50, seed=3)
        yield Load("full", op, engine, commands=10, thesis=True, seed=4)


def moving(guest: machine.Machine) -> Iterator[Judged]:
    """Every pattern through every engine moves what it says."""
    first, _ = guest.devices
    nodes = guest.nodes(first)
    for engine, kind in ENGINES:
        for load in (*loads(engine), *small(engine), *longest(engine, *guest.most(nodes))):
            yield counting.run(guest, first, getattr(nodes, kind), load)
        yield Judged(f"{engine}: the SMART log", counting.by_log(guest, first))
    for load in few("nvme-ioctl"):
        yield counting.run(guest, first, nodes.block, load)


def namespace(guest: machine.Machine) -> Iterator[Judged]:
    """The namespace is asked for its number and its blocks."""
    _, second = guest.devices
    nodes = guest.nodes(second)
    for engine, kind in ENGINES:
        for load in few(engine):
            yield counting.run(guest, second, getattr(nodes, kind), load)
    yield Judged("the SMART log of the second device", counting.by_log(guest, second))


def arriving(guest: machine.Machine) -> Iterator[Judged]:
    """What is moved arrives, as the program looks at it and as it lies in memory."""
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
    """What must not be is refused before anything is sent. What stood on the second device is lost."""
    first, second = guest.devices
    for refused in manners.refusals(guest, first, second):
        yield manners.refuse(guest, first, refused)
    yield from manners.in_use(guest, second)


def ending(guest: machine.Machine) -> Iterator[Judged]:
    """Runs end when they should and when they must. The second device is gone afterwards."""
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
    """Limits hold, slot by slot."""
    (only,) = guest.devices
    nodes = guest.nodes(only)
    pace.prepare(guest)
    for paced in pace.RUNS:
        yield pace.keeps(guest, getattr(nodes, dict(ENGINES)[paced.engine]), paced)


Group = Callable[[machine.Machine], Iterator[Judged]]

GROUPS = {"moving": moving, "namespace": namespace, "arriving": arriving, "refusing": refusing, "ending": ending}
"""What is tried in a guest whose clock is the world's, in order."""

LEAPING = {"pacing": pacing}
"""What is tried in a guest whose clock knows no other work of this machine."""


def complaints(console: Path) -> list[str]:
    """Lines in which the kernel says that something is wrong with itself."""
    words = ("BUG:", "WARNING: CPU", "Oops", "Call Trace", "segfault", "general protection", "hung task")
    return [
        text.strip() for text in console.read_text(errors="replace").splitlines() if any(word in text for word in words)
    ]


def prepare(series: list[str], waykeeper: Path | None) -> tuple[dict[str, Path], Path]:
    """Kernels by series and the file system; all that needs the network or cargo."""
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
    """What came of one guest, told as it comes."""

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
    """These groups on one kernel."""
    devices = [
        machine.Device("wk0001", 1, 512, CACHE / f"{tally.name}-1.img"),
        # Its number is not that of its name, /dev/nvme1n1.
        machine.Device("wk0002", 3, 4096, CACHE / f"{tally.name}-2.img"),
    ]
    for device in devices:
        content.write(device.image, IMAGE_BYTES)
    judge(root, initrd, devices, [GROUPS[group] for group in groups], tally)


def in_leaping_guest(root: Path, initrd: Path, groups: list[str], tally: Tally) -> None:
    """These groups of LEAPING on one kernel."""
    devices = [machine.Device("wk0001", 1, 512, None)]
    judge(root, initrd, devices, [LEAPING[group] for group in groups], tally, leaps=True)


def judge(
    root: Path, initrd: Path, devices: list[machine.Device], groups: list[Group], tally: Tally, leaps: bool = False
) -> None:
    """What the groups find in a guest with these devices, and what its kernel has complained of."""
    logs, kernel = CACHE / "logs", packages.kernel_image(root)
    try:
        with machine.booted(tally.name, kernel, initrd, devices, logs, leaps=leaps) as guest:
            if not leaps:
                # Its clock would leap past the end of a command that is not about time, and nothing there can be merged.
                guest.keep_apart()
            for group in groups:
                for judged in group(guest):
                    tally.take(judged)
    except qemu.GuestError as error:
        tally.take(Judged("the guest", [str(error)]))
    console = logs / f"{tally.name}.console"
    tally.take(Judged("the kernel", [f"it said: {text}; see {console}" for text in complaints(console)]))


def interrupted(*_: object) -> None:
    """As Ctrl-C: the guest is ended and temporary folders removed."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m nvme.run", description="memload on an emulated NVMe device")
    parser.add_argument(
        "--kernel", action="append", choices=["6.1", "6.12"], help="this series (may be repeated; default: 6.1)"
    )
    parser.add_argument(
        "--only", action="append", choices=GROUPS | LEAPING, help="this group (may be repeated; default: all)"
    )
    parser.add_argument("--waykeeper", type=Path, help="this program instead of the workspace's")
    parser.add_argument("--verbose", action="store_true", help="tell what passed as well")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupted)

    began = time.monotonic()
    (CACHE / "logs").mkdir(parents=True, exist_ok=True)
    lock = open(CACHE / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"error: another run is at work here: it holds {CACHE / 'lock'}")
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
