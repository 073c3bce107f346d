"""How memload behaves when something is in its way: what it refuses, and how it ends when it is told to or its device goes.

It knows what must be said and counted. It must not know how memload does it.
"""

from __future__ import annotations

import dataclasses
import re
import time
from dataclasses import dataclass

from guests.qmp import Counts
from nvme import content
from nvme.counting import Judged
from nvme.load import Report, apart, report
from nvme.machine import Device, Machine

NOTHING = Counts(0, 0, 0, 0, 0)

UNDER_WAY = 100
"""So many commands, and a run is well under way."""

MOST_SECONDS = 60.0
"""Longest until a run is under way, on a slow machine with other work."""


@dataclass(frozen=True)
class Refused:
    """Words that must be refused: with this status and one line that holds these texts."""

    what: str
    words: str
    status: int
    says: tuple[str, ...]


def refusals(machine: Machine, device: Device, other: Device) -> list[Refused]:
    """What is refused on a device that nobody uses."""
    nodes = machine.nodes(device)
    write = "--op read --commands 10"
    cases = []
    for node, engine in ((nodes.generic, "nvme-uring"), (nodes.generic, "nvme-ioctl"), (nodes.block, "uring")):
        load = f"{node} --engine {engine}"
        cases += [
            Refused(f"{engine}: no consent", f"{load} {write}", 2, (f"--destroy-data-on {device.serial}",)),
            Refused(
                f"{engine}: another serial",
                f"{load} {write} --destroy-data-on {other.serial}", 2, (device.serial, other.serial),
            ),
            Refused(f"{engine}: unaligned block", f"{load} --commands 1 --block-size 1000", 2, ("--block-size", "512")),
        ]  # fmt: skip
    load = nodes.generic
    return cases + [
        Refused("unaligned buffer", f"{load} --commands 1 --buffer 5000", 2, ("--buffer is 5000", "4096")),
        Refused("depth 0", f"{load} --commands 1 --depth 0", 2, ("--depth is 0",)),
        Refused("more blocks than the device takes", f"{load} --commands 1 --max-blocks 100000", 2, ("--max-blocks",)),
        Refused("the controller", f"{nodes.controller} --commands 1", 2, ("NVMe controller", "/dev/ng0n1")),
        Refused("no device", "/dev/ng9n9 --commands 1", 2, ("/dev/ng9n9",)),
        Refused("the block engine on the generic device", f"{load} --engine uring --commands 1", 3, ("nvme-uring",)),
    ]


def refuse(machine: Machine, device: Device, refused: Refused, others: int = 0) -> Judged:
    """The words are refused, and the device hears nothing of it, but for so many reads that others may do meanwhile."""
    before = machine.counts(device)
    told = report(machine.session.run(apart(f"waykeeper memload {refused.words}")))
    wrong = []
    if told.status != refused.status or told.summary is not None:
        wrong.append(f"status {refused.status} and no summary were expected: {told}")
    errors = [text for text in told.told.splitlines() if text.startswith("error: ")]
    if len(errors) != 1:
        wrong.append(f"one line of error was expected: {told}")
    wrong += [f"{text!r} is not said: {told}" for text in refused.says if text not in told.told]
    counts = machine.counts(device) - before
    if counts.read_operations > others or dataclasses.replace(counts, read_operations=0, read_bytes=0) != NOTHING:
        wrong.append(f"QEMU counted {counts}, expected nothing")
    return Judged(f"refuses {refused.what}", wrong)


def in_use(machine: Machine, device: Device) -> list[Judged]:
    """A device that is mounted or is swap space is not touched, whatever the user agrees to; reading beside is a matter of
    asking for it. What stands on it is lost.
    """
    judged = []
    nodes = machine.nodes(device)
    # A file system reads on its own what it has not read yet; ten commands of a run would be more.
    others = 9
    consent = f"--op read --commands 10 --destroy-data-on {device.serial}"
    uses = [
        ("a mounted file system", f"mke2fs -b 4096 {nodes.block} && mkdir -p /mnt && mount -o ro {nodes.block} /mnt",
         "umount /mnt", "is mounted on /mnt"),
        ("swap space", f"mkswap {nodes.block} && swapon {nodes.block}", f"swapoff {nodes.block}", "swap"),
    ]  # fmt: skip
    for what, begin, end, says in uses:
        machine.session.check(begin)
        for node in (nodes.generic, nodes.block):
            for words in (consent, "--commands 10"):
                refused = Refused(f"{what}: {node} {words}", f"{node} {words}", 5, (says,))
                judged.append(refuse(machine, device, refused, others))
        told = report(machine.session.run(apart(f"waykeeper memload {nodes.generic} --json --shared --commands 10")))
        wrong = [] if told.status == 0 and told.summary else [f"a good end was expected: {told}"]
        judged.append(Judged(f"{what}: --shared reads", wrong))
        machine.session.check(end)
    return judged


def _endless(target: str, engine: str, more: str = "") -> str:
    words = (
        f"waykeeper memload {target} --json --engine {engine} --pattern single --op write --depth 8 --time 600 {more}"
    )
    return f"{words} 2>/tmp/told"


def _under_way(machine: Machine, device: Device, before: Counts, commands: int = UNDER_WAY) -> bool:
    """Waits until a run has sent its first commands."""
    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until:
        counts = machine.counts(device) - before
        if counts.read_operations + counts.written_operations >= commands:
            return True
        time.sleep(0.02)
    return False


def _finished(machine: Machine, name: str) -> Report:
    outcome = machine.session.finish(name)
    told = report(outcome)
    return Report(told.summary, machine.session.check("cat /tmp/told").strip(), told.status)


def interrupt(machine: Machine, device: Device, target: str, engine: str) -> Judged:
    """Ctrl-C in the middle: the summary says exactly what was done. Meanwhile nobody else gets the device."""
    wrong = []
    before = machine.counts(device)
    process = machine.session.start("interrupt", _endless(target, engine))
    if not _under_way(machine, device, before):
        wrong.append(f"not under way after {MOST_SECONDS:.0f} s")
    second = report(machine.session.run(apart(f"waykeeper memload {target} --commands 1")))
    if second.status != 5 or "another program uses it" not in second.told:
        wrong.append(f"a second run beside it should have been refused: {second}")
    machine.session.check(f"kill -INT {process} || true")
    told = _finished(machine, "interrupt")
    counts = machine.counts(device) - before
    if told.status != 130 or "interrupted" not in told.told or told.summary is None:
        wrong.append(f"status 130 and a summary were expected: {told}")
    else:
        commands = told.summary["commands"]
        wanted = Counts(commands, commands * 4096, 0, 0, 0)
        if counts != wanted or told.summary["errors"]:
            wrong.append(f"QEMU counted {counts}, the summary says {told.summary}")
    return Judged(f"{engine}: Ctrl-C", wrong)


def stays(machine: Machine, target: str) -> Judged:
    """What would block is done by threads of the kernel, which run where the load may, too."""
    wrong = []
    words = f"waykeeper memload {target} --json --engine uring --pattern flush --cpus 1 --time 600"
    process = machine.session.start("stays", f"{words} 2>/tmp/told")
    helpers = (
        "for comm in $(grep -sl iou-wrk /proc/[0-9]*/task/*/comm); do grep Cpus_allowed_list ${comm%comm}status; done"
    )
    found: list[str] = []
    until = time.monotonic() + MOST_SECONDS
    while not found and time.monotonic() < until:
        found = machine.session.run(helpers).output.split("\n")
        found = [line.split()[1] for line in found if line.strip()]
    if not found or set(found) != {"1"}:
        wrong.append(f"threads of the kernel on CPU 1 alone were expected: {found}")
    machine.session.check(f"kill -INT {process} || true")
    told = _finished(machine, "stays")
    if told.status != 130 or told.summary is None or "kernel threads" in told.told:
        wrong.append(f"status 130 and a summary were expected: {told}")
    return Judged("the kernel's threads stay on --cpus", wrong)


def vanish(machine: Machine, device: Device, target: str, engine: str, unplug: bool) -> Judged:
    """The device goes in the middle: one message, and totals that are true so far. Pulled out by the guest's kernel it comes
    back; unplugged by the host it is gone for good.
    """
    wrong = []
    depth = 8
    nodes = machine.nodes(device)
    before = machine.counts(device)
    machine.session.start("vanish", _endless(target, engine))
    if not _under_way(machine, device, before):
        wrong.append(f"not under way after {MOST_SECONDS:.0f} s")
    if unplug:
        seen = machine.counts(device)
        machine.qmp.execute("device_del", id=device.name)
        machine.qmp.wait("DEVICE_DELETED", device=device.name)
    else:
        machine.session.check(f"echo 1 >/sys/class/nvme/{nodes.controller.removeprefix('/dev/')}/device/remove")
    told = _finished(machine, "vanish")
    errors = [text for text in told.told.splitlines() if text.startswith("error: ")]
    if told.status != 1 or len(errors) != 1 or told.summary is None or target not in errors[0]:
        wrong.append(f"status 1, one line of error that names {target}, and a summary were expected: {told}")
    elif unplug:
        # Its counts have gone with it; the last look was earlier.
        commands, least = told.summary["commands"], (seen - before).read_operations - depth
        if commands < least:
            wrong.append(f"the summary says {commands} commands, QEMU had counted {least + depth} before: {told}")
    else:
        done = (machine.counts(device) - before).read_operations
        commands = told.summary["commands"]
        # A command that QEMU counted may not have come back before the device went.
        if not commands <= done <= commands + depth:
            wrong.append(f"the summary says {commands} commands, QEMU counted {done}: {told}")
    if not unplug:
        machine.session.check("echo 1 >/sys/bus/pci/rescan")
        machine.session.check(f"until grep -q {device.serial} /sys/class/nvme/nvme*/serial; do sleep 0.02; done")
        machine.session.check("until ls /dev/ng*n* | wc -l | grep -q 2; do sleep 0.02; done")
    return Judged(f"{engine}: the device {'is unplugged' if unplug else 'is removed'}", wrong)


def ends_by_blocks(machine: Machine, device: Device, target: str) -> Judged:
    """An end by blocks is exact: the last command is as long as what is left."""
    before = machine.counts(device)
    words = "--pattern random --max-blocks 32 --blocks 100 --depth 4"
    told = report(machine.session.run(apart(f"waykeeper memload {target} --json {words}")))
    counts = machine.counts(device) - before
    # 100 = 3 x 31 + 7.
    wanted = Counts(4, 100 * 4096, 0, 0, 0)
    wrong = [] if counts == wanted and told.status == 0 else [f"QEMU counted {counts}, expected {wanted}: {told}"]
    return Judged("an end after 100 blocks", wrong)


def notices(machine: Machine, device: Device, target: str, engine: str, op: str) -> Judged:
    """`--verify` tells of blocks that changed behind its back, with a status of its own. Commands go at the start of each second; after
    the first the guest is halted, and what it read or wrote on the device becomes something else.
    """
    a_second, all_of_them = 12, 36
    before = machine.counts(device)
    consent = f"--destroy-data-on {device.serial}" if op == "read" else ""
    words = f"waykeeper memload {target} --json --engine {engine} --pattern single --op {op} {consent} --verify"
    limit = f"--depth {a_second} --limit-commands {a_second} --commands {all_of_them}"
    with machine.traced(device) as commands:
        machine.session.start("notices", f"{words} {limit} 2>/tmp/told")
        wrong = [] if _under_way(machine, device, before, a_second) else [f"not under way after {MOST_SECONDS:.0f} s"]
        machine.qmp.execute("stop")
        first = len(machine.trace.commands(device.nsid))
        places = [one.lba * device.block_bytes // 4096 for one in machine.trace.commands(device.nsid)]
        content.blank(device.image, places, 4096)
        machine.qmp.execute("cont")
        told = _finished(machine, "notices")
    # What came after the halt read what is there now, and wrote some of the places anew.
    anew = {one.lba * device.block_bytes // 4096 for one in commands[first:all_of_them]}
    expected = first if op == "write" else len(set(places) - anew)
    if not 0 < first < all_of_them:
        wrong.append(f"{first} commands had gone when the guest was halted, fewer than {all_of_them} were expected")
    if (
        told.status != 6
        or told.summary is None
        or f" {expected} of " not in told.told
        or "wrong content" not in told.told
    ):
        wrong.append(f"status 6 and {expected} wrong blocks were expected: {told}")
    content.restore(device.image, content.changed(device.image, 4096), 4096)
    return Judged(f"{engine} {op}: --verify finds what is wrong", wrong)


def verifies(machine: Machine, device: Device, target: str, engine: str, op: str) -> Judged:
    """`--verify` looks and finds all in its place."""
    consent = f"--destroy-data-on {device.serial}" if op == "read" else ""
    words = f"waykeeper memload {target} --json --engine {engine} --pattern random --op {op} --commands 20 --depth 4 {consent}"
    told = report(machine.session.run(apart(f"{words} --buffer 819200 --max-blocks 32 --verify")))
    wrong = []
    found = re.search(r"verified: (\d+) blocks", told.told)
    if told.status != 0 or not found or int(found[1]) < 31:
        wrong.append(f"blocks that were verified were expected: {told}")
    changed = content.changed(device.image, device.block_bytes)
    content.restore(device.image, changed, device.block_bytes)
    return Judged(f"{engine} {op}: --verify", wrong)
