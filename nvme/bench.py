"""Compares memload with Debian's fio in a guest: I/Os per second, bandwidth and processor time per I/O. `make bench-nvme`.

Both programs are measured in the same way: I/Os by QEMU, processor time as the time that the guest's processors were not idle.
This module must not depend on which result is good.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from guests import packages, programs, qemu, rootfs, session
from nvme.machine import INSTRUCTION_NS, Device, Machine, booted
from nvme.run import CACHE, PACKAGES, REPOSITORY, interrupted, say

WARM_SECONDS = 1.0
"""Warm-up from the first I/Os to the first sample."""

FEW, MANY = 500, 4500
"""I/Os of the two runs whose difference is measured, because start and end cost both the same."""

RUN_SECONDS = 300
"""Time limit of a run with this many I/Os."""

IMAGE_BYTES = 1 << 30
"""Size of the image, a file without data, which QEMU reads as fast as a file in memory."""

TICKS_PER_S = 100
"""Ticks per second of /proc/stat (USER_HZ)."""


@dataclass(frozen=True)
class Point:
    """A point of the comparison."""

    path: str
    """"passthrough": NVMe commands through io_uring; "direct": the block device, past the page cache."""
    block_bytes: int
    depth: int

    @property
    def name(self) -> str:
        return f"{self.path} {self.block_bytes // 1024} KiB depth {self.depth}"


POINTS = [
    Point(path, block, depth)
    for path in ("passthrough", "direct")
    for block, depth in ((4096, 1), (4096, 32), (131072, 1), (131072, 8))
]


@dataclass(frozen=True)
class Taken:
    """The results of one run."""

    iops: float
    bytes_per_s: float
    cpu_us_per_io: float


def fio(point: Point, target: str, ios: int | None) -> list[str]:
    """fio's command line: endless, or for `ios` I/Os. It always reads the target's first block, as memload does: after each
    I/O it seeks back by the length of the block. (With that length as `size` fio would restart after each I/O, at a fifth
    of its speed.)
    """
    length = [f"--io_size={ios * point.block_bytes}"] if ios else ["--time_based", "--runtime=3600"]
    engine = (
        ["--ioengine=io_uring_cmd", "--cmd_type=nvme"]
        if point.path == "passthrough"
        else ["--ioengine=io_uring", "--direct=1"]
    )
    return [
        "fio", "--name=bench", "--thread", f"--filename={target}", *engine, f"--rw=read:-{point.block_bytes}",
        f"--bs={point.block_bytes}", f"--iodepth={point.depth}", "--fixedbufs", "--registerfiles", "--eta=never", *length,
    ]  # fmt: skip


def fio_batched(point: Point, target: str, ios: int | None) -> list[str]:
    """fio's fastest command line: as many I/Os per system call as are available."""
    return [
        *fio(point, target, ios), f"--iodepth_batch_submit={point.depth}", "--iodepth_batch_complete_min=1",
        f"--iodepth_batch_complete_max={point.depth}",
    ]  # fmt: skip


def ours(point: Point, target: str, ios: int | None) -> list[str]:
    """memload's command line for the same load."""
    return [
        "waykeeper", "memload", target, "--json", "--pattern", "single", "--op", "write",
        "--engine", "nvme-uring" if point.path == "passthrough" else "uring",
        "--block-size", str(point.block_bytes), "--depth", str(point.depth),
        "--buffer", str(point.block_bytes * point.depth), *(["--commands", str(ios)] if ios else []),
    ]  # fmt: skip


OURS = "ours"

Words = Callable[[Point, str, int | None], list[str]]


def arms(point: Point) -> dict[str, Words]:
    """The programs that run at a point, by name. With one I/O at a time there are no batches."""
    return {OURS: ours, "fio": fio} | ({"fio batched": fio_batched} if point.depth > 1 else {})


def busy_s(machine: Machine) -> float:
    """Processor time so far of all processors, including interrupts and kernel threads: they do a part of an I/O that is
    charged to no program, and this part differs between programs. The resolution is 10 ms.
    """
    uptime, stat, processors = machine.session.check("cat /proc/uptime; grep -w cpu /proc/stat; nproc").splitlines()
    idle, waiting = (int(ticks) / TICKS_PER_S for ticks in stat.split()[4:6])
    return float(uptime.split()[0]) * int(processors) - idle - waiting


def busy_ns(machine: Machine) -> int:
    """The same for a guest with one processor, with a resolution of a nanosecond."""
    text = machine.session.check("grep -E '^now at|idle_sleeptime|iowait_sleeptime' /proc/timer_list")
    now, idle, waiting = (int(number) for number in re.findall(r"(\d+) nsecs", text))
    return now - idle - waiting


def target(machine: Machine, device: Device, point: Point) -> str:
    nodes = machine.nodes(device)
    return nodes.generic if point.path == "passthrough" else nodes.block


def by_clock(machine: Machine, device: Device, words: list[str], seconds: float) -> Taken:
    """Measures a run by the clock, after its warm-up."""
    before = machine.counts(device).read_operations
    process = machine.session.start("bench", shlex.join(words))
    while machine.counts(device).read_operations - before < 100:
        time.sleep(0.05)
    time.sleep(WARM_SECONDS)
    looks = []
    for pause in (seconds, 0.0):
        busy = busy_s(machine)
        looks.append((busy, machine.counts(device), time.monotonic()))
        time.sleep(pause)
    machine.session.check(f"kill -INT {process}")
    machine.session.finish("bench")
    (busy, counts, at), (busy_after, counts_after, at_after) = looks
    done, length = counts_after - counts, at_after - at
    return Taken(
        done.read_operations / length,
        done.read_bytes / length,
        (busy_after - busy) * 1e6 / max(1, done.read_operations),
    )


def by_instructions(machine: Machine, words: dict[int, list[str]]) -> float:
    """Instructions per I/O of the program and of the kernel."""
    spent = {}
    for ios in (FEW, MANY):
        before = busy_ns(machine)
        machine.session.check(shlex.join(words[ios]), seconds=RUN_SECONDS)
        spent[ios] = busy_ns(machine) - before
    return (spent[MANY] - spent[FEW]) / INSTRUCTION_NS / (MANY - FEW)


def compared(taken: dict[str, list[float]]) -> dict:
    """The medians of all programs; and of the rounds' ratios of ours to each other program: median, least, most."""
    ratios = {}
    for name, theirs in taken.items():
        if name != OURS:
            each = [mine / other for mine, other in zip(taken[OURS], theirs, strict=True)]
            ratios[name] = {"median": statistics.median(each), "least": min(each), "most": max(each)}
    return {"median": {name: statistics.median(values) for name, values in taken.items()}, "ours_over": ratios}


def rounds(point: Point, count: int) -> list[list[str]]:
    """The order of the programs in each round. The first one changes, so that drift favours none."""
    names = list(arms(point))
    return [names[turn % len(names) :] + names[: turn % len(names)] for turn in range(count)]


def by_the_clock(guest: Machine, device: Device, point: Point, count: int, seconds: float) -> dict:
    """Rounds of runs in a guest that runs in real time."""
    taken: dict[str, list[Taken]] = {name: [] for name in arms(point)}
    for order in rounds(point, count):
        for name in order:
            words = arms(point)[name](point, target(guest, device, point), None)
            taken[name].append(by_clock(guest, device, words, seconds))
    return {
        key: compared({name: [getattr(one, key) for one in runs] for name, runs in taken.items()})
        for key in ("iops", "bytes_per_s", "cpu_us_per_io")
    }


def by_count(guest: Machine, device: Device, point: Point, count: int) -> dict:
    """Rounds of runs in a guest whose clock counts instructions."""
    node = target(guest, device, point)
    taken: dict[str, list[float]] = {name: [] for name in arms(point)}
    for order in rounds(point, count):
        for name in order:
            words = {ios: arms(point)[name](point, node, ios) for ios in (FEW, MANY)}
            taken[name].append(by_instructions(guest, words))
    return {"instructions_per_io": compared(taken)}


def shown(key: str, found: dict) -> str:
    ours_, *others = (f"{value:.4g}" for value in found["median"].values())
    ratios = ", ".join(
        f"{name} {value} ({ratio['median']:.3f})"
        for value, (name, ratio) in zip(others, found["ours_over"].items(), strict=True)
    )
    return f"{key} {ours_}, {ratios}"


def table(rows: list[dict]) -> str:
    """Tables in Markdown, one per metric: medians, and the ratios of ours to the others as median of the rounds and, in brackets,
    their range."""
    lines = []
    for key in (key for key in rows[0] if key != "point"):
        lines += [f"| {key} | ours | fio | ours/fio | fio batched | ours/fio batched |", "| --- " * 6 + "|"]
        for row in rows:
            median, ratios = row[key]["median"], row[key]["ours_over"]
            cells = [Point(**row["point"]).name, f"{median[OURS]:.4g}"]
            for name in ("fio", "fio batched"):
                ratio = ratios.get(name)
                cells += (
                    [f"{median[name]:.4g}", f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"]
                    if ratio
                    else ["", ""]
                )
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def prepare(waykeeper: Path | None, series: str) -> tuple[Path, Path]:
    """Prepares the kernel and the file system with both programs."""
    say(packages.ensure_qemu())
    root = packages.kernel(PACKAGES, series)
    busybox = packages.busybox(PACKAGES).read_bytes()
    theirs = programs.carry([packages.ensure("fio", "fio")])
    ours = programs.carry([waykeeper]) if waykeeper else programs.build(REPOSITORY, ["waykeeper"], programs.RELEASE)
    files = {f"bin/{name}": data for name, data in (ours.programs | theirs.programs).items()}
    initrd = CACHE / "initrd-bench"
    initrd.write_bytes(rootfs.image(busybox, session.INIT, files | ours.libraries | theirs.libraries))
    return packages.kernel_image(root), initrd


def bench(arguments: argparse.Namespace) -> list[dict]:
    """Measures all points, first by the clock, then by instructions; one guest at a time."""
    kernel, initrd = prepare(arguments.waykeeper, arguments.kernel)
    points = [point for point in POINTS if arguments.only in point.name]
    rows = [{"point": asdict(point)} for point in points]
    kinds = [("clock", False, arguments.rounds), ("count", True, arguments.counted)]
    for name, counts, count in kinds:
        if not count:
            continue
        device = Device("wk0001", 1, 512, CACHE / f"bench-{name}.img")
        with open(device.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        with booted(f"bench-{name}", kernel, initrd, [device], CACHE / "logs", counts, parallel=not counts) as guest:
            guest.keep_apart()
            say(f"{name}: {guest.session.check('uname -r').strip()}, {guest.session.check('fio --version').strip()}")
            for point, row in zip(points, rows, strict=True):
                found = (
                    by_count(guest, device, point, count)
                    if counts
                    else by_the_clock(guest, device, point, count, arguments.seconds)
                )
                row.update(found)
                say(f"{point.name}: " + "; ".join(shown(key, one) for key, one in found.items()))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m nvme.bench", description="Compare memload with fio in a QEMU guest."
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="runs of each program by the clock (default: %(default)s)"
    )
    parser.add_argument(
        "--counted", type=int, default=3, help="runs of each program by instructions (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="seconds of a run by the clock (default: %(default)s)"
    )
    parser.add_argument("--kernel", choices=["6.1", "6.12"], default="6.1", help="kernel series (default: %(default)s)")
    parser.add_argument(
        "--waykeeper",
        type=Path,
        help="use this program, a file named waykeeper, instead of a release build of the workspace",
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help='only points whose name contains TEXT, for example "direct 128 KiB"'
    )
    parser.add_argument(
        "--json", type=Path, default=CACHE / "bench.json", help="file for the results (default: %(default)s)"
    )
    arguments = parser.parse_args()
    if not any(arguments.only in point.name for point in POINTS):
        parser.error(
            f"--only {arguments.only}: no point has this in its name; points: {', '.join(point.name for point in POINTS)}"
        )
    if arguments.waykeeper and arguments.waykeeper.name != "waykeeper":
        parser.error(f"--waykeeper {arguments.waykeeper}: the file must be named waykeeper, as in the guest")
    signal.signal(signal.SIGTERM, interrupted)
    (CACHE / "logs").mkdir(parents=True, exist_ok=True)
    try:
        rows = bench(arguments)
    except (packages.PackageError, programs.BuildError, qemu.GuestError, OSError) as error:
        say(f"error: {error}")
        return 1
    print(table(rows))
    arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    say(f"wrote {arguments.json}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
