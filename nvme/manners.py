"""Refusals of memload, and how it ends: on signals, at its limits, and when its device disappears.

This module has the expected messages and counts. It must not depend on how memload is implemented.
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
"""After this number of commands a run counts as started."""

MOST_SECONDS = 60.0
"""Time limit for the start of a run, on a slow, busy machine."""


@dataclass(frozen=True)
class Refused:
    """Arguments that must be refused, with this status and one line that contains these texts."""

    what: str
    words: str
    status: int
    says: tuple[str, ...]


def refusals(machine: Machine, device: Device, other: Device) -> list[Refused]:
    """Arguments that are refused on a device that no other program uses."""
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
    """Checks that the arguments are refused and that the device gets no command, except up to `others` reads by the kernel."""
    before = machine.counts(device)
    ended = report(machine.session.run(apart(f"waykeeper memload {refused.words}")))
    wrong = []
    if ended.status != refused.status or ended.summary is not None:
        wrong.append(f"expected status {refused.status} and no summary: {ended}")
    errors = [text for text in ended.messages.splitlines() if text.startswith("error: ")]
    if len(errors) != 1:
        wrong.append(f"expected one error line: {ended}")
    wrong += [f"{text!r} is missing in the messages: {ended}" for text in refused.says if text not in ended.messages]
    counts = machine.counts(device) - before
    if counts.read_operations > others or dataclasses.replace(counts, read_operations=0, read_bytes=0) != NOTHING:
        wrong.append(f"QEMU counted {counts}, expected no command")
    return Judged(f"refuses {refused.what}", wrong)


def in_use(machine: Machine, device: Device) -> list[Judged]:
    """Checks that a device that is mounted or used as swap is refused, even with consent, and that --shared reads it. The
    content of the device is lost.
    """
    judged = []
    nodes = machine.nodes(device)
    # The file system may read blocks at any time; ten commands of a run would be more.
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
        ended = report(machine.session.run(apart(f"waykeeper memload {nodes.generic} --json --shared --commands 10")))
        wrong = [] if ended.status == 0 and ended.summary else [f"expected status 0 and a summary: {ended}"]
        judged.append(Judged(f"{what}: --shared reads", wrong))
        machine.session.check(end)
    return judged


def _endless(target: str, engine: str, more: str = "") -> str:
    words = (
        f"waykeeper memload {target} --json --engine {engine} --pattern single --op write --depth 8 --time 600 {more}"
    )
    return f"{words} 2>/tmp/messages"


def _under_way(machine: Machine, device: Device, before: Counts, commands: int = UNDER_WAY) -> bool:
    """Waits until a run has sent its first commands; false if it does not."""
    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until:
        counts = machine.counts(device) - before
        if counts.read_operations + counts.written_operations >= commands:
            return True
        time.sleep(0.02)
    return False


def _finished(machine: Machine, name: str) -> Report:
    outcome = machine.session.finish(name)
    ended = report(outcome)
    return Report(ended.summary, machine.session.check("cat /tmp/messages").strip(), ended.status)


def interrupt(machine: Machine, device: Device, target: str, engine: str) -> Judged:
    """Ctrl-C during a run: the summary must be exact. A second run on the same device must be refused."""
    wrong = []
    before = machine.counts(device)
    process = machine.session.start("interrupt", _endless(target, engine))
    if not _under_way(machine, device, before):
        wrong.append(f"the run has not started after {MOST_SECONDS:.0f} s")
    second = report(machine.session.run(apart(f"waykeeper memload {target} --commands 1")))
    if second.status != 5 or "another program uses it" not in second.messages:
        wrong.append(f"a second run on the same device was not refused: {second}")
    machine.session.check(f"kill -INT {process} || true")
    ended = _finished(machine, "interrupt")
    counts = machine.counts(device) - before
    if ended.status != 130 or "interrupted" not in ended.messages or ended.summary is None:
        wrong.append(f"expected status 130 and a summary: {ended}")
    else:
        commands = ended.summary["commands"]
        wanted = Counts(commands, commands * 4096, 0, 0, 0)
        if counts != wanted or ended.summary["errors"]:
            wrong.append(f"QEMU counted {counts}, the summary has {ended.summary}")
    return Judged(f"{engine}: Ctrl-C", wrong)


def stays(machine: Machine, target: str) -> Judged:
    """Kernel threads that run blocking operations must stay on the CPUs of the load."""
    wrong = []
    words = f"waykeeper memload {target} --json --engine uring --pattern flush --cpus 1 --time 600"
    process = machine.session.start("stays", f"{words} 2>/tmp/messages")
    helpers = (
        "for comm in $(grep -sl iou-wrk /proc/[0-9]*/task/*/comm); do grep Cpus_allowed_list ${comm%comm}status; done"
    )
    found: list[str] = []
    until = time.monotonic() + MOST_SECONDS
    while not found and time.monotonic() < until:
        found = machine.session.run(helpers).output.split("\n")
        found = [line.split()[1] for line in found if line.strip()]
    if not found or set(found) != {"1"}:
        wrong.append(f"expected kernel threads on CPU 1 only: {found}")
    machine.session.check(f"kill -INT {process} || true")
    ended = _finished(machine, "stays")
    if ended.status != 130 or ended.summary is None or "kernel threads" in ended.messages:
        wrong.append(f"expected status 130 and a summary: {ended}")
    return Judged("kernel threads stay on --cpus", wrong)


def vanish(machine: Machine, device: Device, target: str, engine: str, unplug: bool) -> Judged:
    """The device disappears during a run: expects one error line, and totals of the commands until then. If the guest's
    kernel removes it, it is found again afterwards; if the host unplugs it, it is not.
    """
    wrong = []
    depth = 8
    nodes = machine.nodes(device)
    before = machine.counts(device)
    machine.session.start("vanish", _endless(target, engine))
    if not _under_way(machine, device, before):
        wrong.append(f"the run has not started after {MOST_SECONDS:.0f} s")
    if unplug:
        seen = machine.counts(device)
        machine.qmp.execute("device_del", id=device.name)
        machine.qmp.wait("DEVICE_DELETED", device=device.name)
    else:
        machine.session.check(f"echo 1 >/sys/class/nvme/{nodes.controller.removeprefix('/dev/')}/device/remove")
    ended = _finished(machine, "vanish")
    errors = [text for text in ended.messages.splitlines() if text.startswith("error: ")]
    if ended.status != 1 or len(errors) != 1 or ended.summary is None or target not in errors[0]:
        wrong.append(f"expected status 1, one error line that names {target}, and a summary: {ended}")
    elif unplug:
        # QEMU removes the counters with the device; the last sample is from before.
        commands, least = ended.summary["commands"], (seen - before).read_operations - depth
        if commands < least:
            wrong.append(f"the summary has {commands} commands, QEMU had counted {least + depth} before: {ended}")
    else:
        done = (machine.counts(device) - before).read_operations
        commands = ended.summary["commands"]
        # A command that QEMU counted may not have completed before the device disappeared.
        if not commands <= done <= commands + depth:
            wrong.append(f"the summary has {commands} commands, QEMU counted {done}: {ended}")
    if not unplug:
        machine.session.check("echo 1 >/sys/bus/pci/rescan")
        machine.session.check(f"until grep -q {device.serial} /sys/class/nvme/nvme*/serial; do sleep 0.02; done")
        machine.session.check("until ls /dev/ng*n* | wc -l | grep -q 2; do sleep 0.02; done")
    return Judged(f"{engine}: the device {'is unplugged' if unplug else 'is removed'}", wrong)


def ends_by_blocks(machine: Machine, device: Device, target: str) -> Judged:
    """An end by blocks is exact: the last command has the remaining length."""
    before = machine.counts(device)
    words = "--pattern random --max-blocks 32 --blocks 100 --depth 4"
    ended = report(machine.session.run(apart(f"waykeeper memload {target} --json {words}")))
    counts = machine.counts(device) - before
    # 100 = 3 x 31 + 7.
    wanted = Counts(4, 100 * 4096, 0, 0, 0)
    wrong = [] if counts == wanted and ended.status == 0 else [f"QEMU counted {counts}, expected {wanted}: {ended}"]
    return Judged("an end after 100 blocks", wrong)


def notices(machine: Machine, device: Device, target: str, engine: str, op: str) -> Judged:
    """`--verify` reports blocks that changed during the run, with exit status 6. Commands are sent at the start of each second.
    After the first second the guest is paused, and the blocks that it has read or written on the device are overwritten.
    """
    a_second, all_of_them = 12, 36
    before = machine.counts(device)
    consent = f"--destroy-data-on {device.serial}" if op == "read" else ""
    words = f"waykeeper memload {target} --json --engine {engine} --pattern single --op {op} {consent} --verify"
    limit = f"--depth {a_second} --limit-commands {a_second} --commands {all_of_them}"
    with machine.traced(device) as commands:
        machine.session.start("notices", f"{words} {limit} 2>/tmp/messages")
        wrong = (
            []
            if _under_way(machine, device, before, a_second)
            else [f"the run has not started after {MOST_SECONDS:.0f} s"]
        )
        machine.qmp.execute("stop")
        first = len(machine.trace.commands(device.nsid))
        places = [one.lba * device.block_bytes // 4096 for one in machine.trace.commands(device.nsid)]
        content.blank(device.image, places, 4096)
        machine.qmp.execute("cont")
        ended = _finished(machine, "notices")
    # Commands after the pause read the new content, and overwrite some of the places again.
    anew = {one.lba * device.block_bytes // 4096 for one in commands[first:all_of_them]}
    expected = first if op == "write" else len(set(places) - anew)
    if not 0 < first < all_of_them:
        wrong.append(f"{first} commands were sent before the pause, expected 1 to {all_of_them - 1}")
    if (
        ended.status != 6
        or ended.summary is None
        or f" {expected} of " not in ended.messages
        or "wrong content" not in ended.messages
    ):
        wrong.append(f"expected status 6 and {expected} wrong blocks: {ended}")
    content.restore(device.image, content.changed(device.image, 4096), 4096)
    return Judged(f"{engine} {op}: --verify finds wrong blocks", wrong)


def verifies(machine: Machine, device: Device, target: str, engine: str, op: str) -> Judged:
    """`--verify` accepts correct data."""
    consent = f"--destroy-data-on {device.serial}" if op == "read" else ""
    words = f"waykeeper memload {target} --json --engine {engine} --pattern random --op {op} --commands 20 --depth 4 {consent}"
    ended = report(machine.session.run(apart(f"{words} --buffer 819200 --max-blocks 32 --verify")))
    wrong = []
    found = re.search(r"verified: (\d+) blocks", ended.messages)
    if ended.status != 0 or not found or int(found[1]) < 31:
        wrong.append(f"expected a number of verified blocks: {ended}")
    changed = content.changed(device.image, device.block_bytes)
    content.restore(device.image, changed, device.block_bytes)
    return Judged(f"{engine} {op}: --verify", wrong)
