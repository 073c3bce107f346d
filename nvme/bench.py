"""Side by side with Debian's fio, in the guest: I/Os per second, bandwidth and processor time per I/O. `make bench-nvme`.

It knows both command lines and how to count the same way for both: I/Os by QEMU, processor time by a control group. It must
not know what would be a good result.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from guests import packages, programs, qemu, rootfs, session
from nvme.machine import INSTRUCTION_NS, Device, Machine, booted
from nvme.run import BOOT_SECONDS, CACHE, PACKAGES, REPOSITORY, interrupted, say

WARM_SECONDS = 1.0
"""Before the first look, from the first I/O on."""

FEW, MANY = 500, 4500
"""I/Os of the two runs whose difference is that of their instructions: start and end cost both the same."""

REGION_BYTES = 1 << 20
"""Where fio reads by the clock, again and again: ours reads the device's first block, so both find all in this machine's caches."""

IMAGE_BYTES = 1 << 30
"""Room for the longest run in order. A file with nothing in it, which QEMU reads as fast as any that is in memory."""


@dataclass(frozen=True)
class Point:
    """What is compared."""

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
    """One run."""

    iops: float
    bytes_per_s: float
    cpu_us_per_io: float


def fio(point: Point, target: str, ios: int | None) -> list[str]:
    """fio's words: endless, or for so many I/Os. fio ends a number of them in order, at the end of what it reads."""
    length = (
        [f"--size={ios * point.block_bytes}"] if ios else [f"--size={REGION_BYTES}", "--time_based", "--runtime=3600"]
    )
    engine = (
        ["--ioengine=io_uring_cmd", "--cmd_type=nvme"]
        if point.path == "passthrough"
        else ["--ioengine=io_uring", "--direct=1"]
    )
    return [
        "fio", "--name=bench", "--thread", f"--filename={target}", *engine, "--rw=read", f"--bs={point.block_bytes}",
        f"--iodepth={point.depth}", "--fixedbufs", "--registerfiles", "--eta=never", *length,
    ]  # fmt: skip


def ours(point: Point, target: str, ios: int | None) -> list[str]:
    """memload's words for the same."""
    return [
        "waykeeper", "memload", target, "--json", "--pattern", "single", "--op", "write",
        "--engine", "nvme-uring" if point.path == "passthrough" else "uring",
        "--block-size", str(point.block_bytes), "--depth", str(point.depth),
        "--buffer", str(point.block_bytes * point.depth), *(["--commands", str(ios)] if ios else []),
    ]  # fmt: skip


PROGRAMS = {"fio": fio, "waykeeper": ours}


def in_group(words: list[str]) -> str:
    """The words in a control group of their own."""
    return "sh -c " + shlex.quote(f"echo $$ >/sys/fs/cgroup/bench/cgroup.procs; exec {shlex.join(words)}")


def cpu_us(machine: Machine) -> int:
    """Processor time of the group so far, user and system, all threads."""
    text = machine.session.check("grep usage_usec /sys/fs/cgroup/bench/cpu.stat")
    return int(text.split()[1])


def target(machine: Machine, device: Device, point: Point) -> str:
    nodes = machine.nodes(device)
    return nodes.generic if point.path == "passthrough" else nodes.block


def by_clock(machine: Machine, device: Device, words: list[str], seconds: float) -> Taken:
    """A run as the clock has it, once it is under way."""
    before = machine.counts(device).read_operations
    machine.session.start("bench", in_group(words))
    while machine.counts(device).read_operations - before < 100:
        time.sleep(0.05)
    time.sleep(WARM_SECONDS)
    looks = []
    for pause in (seconds, 0.0):
        cpu = cpu_us(machine)
        looks.append((cpu, machine.counts(device), time.monotonic()))
        time.sleep(pause)
    machine.session.check("for process in $(cat /sys/fs/cgroup/bench/cgroup.procs); do kill -INT $process; done")
    machine.session.finish("bench")
    (cpu, counts, at), (cpu_after, counts_after, at_after) = looks
    done, length = counts_after - counts, at_after - at
    return Taken(
        done.read_operations / length, done.read_bytes / length, (cpu_after - cpu) / max(1, done.read_operations)
    )


def by_instructions(machine: Machine, words: dict[int, list[str]]) -> float:
    """Instructions per I/O, of the program and of the kernel for it."""
    spent = {}
    for ios in (FEW, MANY):
        before = cpu_us(machine)
        machine.session.check(in_group(words[ios]), seconds=300)
        spent[ios] = cpu_us(machine) - before
    return (spent[MANY] - spent[FEW]) * 1000 / INSTRUCTION_NS / (MANY - FEW)


def paired(take: dict[str, list[float]]) -> dict[str, float]:
    """Medians of both, and the median of the pairs' ratios, ours to fio's."""
    ratios = [mine / theirs for mine, theirs in zip(take["waykeeper"], take["fio"], strict=True)]
    return {
        "fio": statistics.median(take["fio"]),
        "waykeeper": statistics.median(take["waykeeper"]),
        "ratio": statistics.median(ratios),
        "ratio_least": min(ratios),
        "ratio_most": max(ratios),
    }


def by_the_clock(guest: Machine, device: Device, point: Point, pairs: int, seconds: float) -> dict:
    """Pairs of runs in a guest whose clock is the world's."""
    taken: dict[str, list[Taken]] = {name: [] for name in PROGRAMS}
    for pair in range(pairs):
        # Who goes first alternates: whatever drifts does not favour one.
        for name in list(PROGRAMS)[:: 1 if pair % 2 == 0 else -1]:
            words = PROGRAMS[name](point, target(guest, device, point), None)
            taken[name].append(by_clock(guest, device, words, seconds))
    return {
        key: paired({name: [getattr(one, key) for one in runs] for name, runs in taken.items()})
        for key in ("iops", "bytes_per_s", "cpu_us_per_io")
    }


def by_count(guest: Machine, device: Device, point: Point, pairs: int) -> dict:
    """Pairs of runs in a guest that counts instructions."""
    node = target(guest, device, point)
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for pair in range(pairs):
        for name in list(PROGRAMS)[:: 1 if pair % 2 == 0 else -1]:
            words = {ios: PROGRAMS[name](point, node, ios) for ios in (FEW, MANY)}
            taken[name].append(by_instructions(guest, words))
    return {"instructions_per_io": paired(taken)}


def shown(key: str, pair: dict[str, float]) -> str:
    return f"{key} {pair['waykeeper']:.4g} against {pair['fio']:.4g} ({pair['ratio']:.3f})"


def table(rows: list[dict]) -> str:
    """The table in Markdown, medians; a ratio is ours to fio's, the median of pairs and in brackets their range."""
    keys = [key for key in rows[0] if key not in ("point", "pairs")]
    head = ["", *(f"{key}: {what}" for key in keys for what in ("ours", "fio", "ratio"))]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        cells = [Point(**row["point"]).name]
        for key in keys:
            one = row[key]
            cells += [
                f"{one['waykeeper']:.4g}", f"{one['fio']:.4g}",
                f"{one['ratio']:.3f} ({one['ratio_least']:.2f} to {one['ratio_most']:.2f})",
            ]  # fmt: skip
        lines.append(cells)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def prepare(waykeeper: Path | None, series: str) -> tuple[Path, Path]:
    """The kernel and the file system with both programs."""
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
    """All points, first by the clock, then by instructions: one guest at a time."""
    kernel, initrd = prepare(arguments.waykeeper, arguments.kernel)
    rows = [{"point": asdict(point), "pairs": arguments.pairs} for point in POINTS]
    kinds = [("clock", False, arguments.pairs), ("count", True, arguments.counted)]
    for name, counts, pairs in kinds:
        if not pairs:
            continue
        device = Device("wk0001", 1, 512, CACHE / f"bench-{name}.img")
        with open(device.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        with booted(f"bench-{name}", kernel, initrd, [device], CACHE / "logs", BOOT_SECONDS, counts) as guest:
            guest.session.check("mount -t cgroup2 none /sys/fs/cgroup && mkdir /sys/fs/cgroup/bench")
            say(f"{name}: {guest.session.check('uname -r').strip()}, {guest.session.check('fio --version').strip()}")
            for point, row in zip(POINTS, rows, strict=True):
                found = (
                    by_count(guest, device, point, pairs)
                    if counts
                    else by_the_clock(guest, device, point, pairs, arguments.seconds)
                )
                row.update(found)
                say(f"{point.name}: " + ", ".join(shown(key, pair) for key, pair in found.items()))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m nvme.bench", description="memload side by side with fio")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs by the clock (default: %(default)s)")
    parser.add_argument("--counted", type=int, default=3, help="pairs by instructions (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="length of a run by the clock (default: %(default)s)"
    )
    parser.add_argument("--kernel", choices=["6.1", "6.12"], default="6.1", help="(default: %(default)s)")
    parser.add_argument("--waykeeper", type=Path, help="this program instead of the workspace's, built for release")
    parser.add_argument("--json", type=Path, default=CACHE / "bench.json", help="(default: %(default)s)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupted)
    (CACHE / "logs").mkdir(parents=True, exist_ok=True)
    try:
        rows = bench(arguments)
    except (packages.PackageError, programs.BuildError, qemu.GuestError, OSError) as error:
        say(f"error: {error}")
        return 1
    print(table(rows))
    arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    say(f"also in {arguments.json}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
