"""The inside of a guest: the script of its first process, and the parser of its output.

This module uses busybox and markers between outputs. It must not depend on how a guest is started or which output is expected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from guests import rootfs

FOLDER = "oracle"
"""Folder in the guest with the programs and their inputs."""

MOST_SECONDS = 120
"""Time limit of one step in the guest, for a slow host with an emulated processor."""

# The second serial port carries the outputs, the first one the kernel's messages, so that they do not mix.
HEAD = f"""#!/bin/busybox sh
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs devtmpfs /dev
$bb stty -F /dev/ttyS1 raw
exec </dev/null >/dev/ttyS1 2>&1
cd /{FOLDER}
for module in *.ko; do [ -e $module ] && $bb insmod $module; done
"""


@dataclass(frozen=True)
class Step:
    """A shell command, run in FOLDER while resctrl is mounted with these options (None: not mounted)."""

    name: str
    command: str
    mounted: str | None = "rw"


@dataclass(frozen=True)
class Outcome:
    """The output of a step (both streams) and its exit status."""

    output: str
    status: int


def script(steps: list[Step]) -> str:
    """The guest's /init: runs every step on a newly mounted resctrl, then powers off."""
    parts = [HEAD]
    for step in steps:
        if step.mounted is not None:
            parts.append(f"$bb mount -t resctrl -o {step.mounted} resctrl /sys/fs/resctrl\n")
            # These two survive an unmount: restore them, so that the next step finds them as after boot. Any write to
            # schemata clears the old text of last_cmd_status.
            parts.append("limit=$($bb cat /sys/fs/resctrl/info/L3_MON/max_threshold_occupancy)\n")
        command = step.command.replace("'", "'\\''")
        parts.append(
            f"echo '@@begin {step.name}'\n"
            f"$bb timeout -s KILL {MOST_SECONDS} $bb sh -c '{command}'\n"
            f"printf '\\n@@end {step.name} %s\\n' $?\n"
        )
        if step.mounted is not None:
            parts.append(
                "echo $limit >/sys/fs/resctrl/info/L3_MON/max_threshold_occupancy\n"
                "$bb cat /sys/fs/resctrl/schemata >/tmp/schemata\n"
                "$bb cat /tmp/schemata >/sys/fs/resctrl/schemata\n"
                "$bb umount /sys/fs/resctrl\n"
            )
    parts.append("$bb poweroff -f\n")
    return "".join(parts)


def initrd(busybox: bytes, files: dict[str, bytes], libraries: dict[str, bytes], steps: list[Step]) -> bytes:
    """The guest's file system: busybox, `files` by name in FOLDER, `libraries` at their paths, and the script."""
    return rootfs.image(
        busybox, script(steps), {f"{FOLDER}/{name}": content for name, content in files.items()} | libraries
    )


def outcomes(text: str) -> dict[str, Outcome]:
    """The finished steps, by name."""
    found = re.finditer(r"^@@begin (\S+)\n(.*?)\n@@end \1 (\d+)\n", text, re.MULTILINE | re.DOTALL)
    return {match[1]: Outcome(match[2], int(match[3])) for match in found}
