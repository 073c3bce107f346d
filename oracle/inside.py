"""What happens inside a guest: the script it runs as its first process, and how its output is read back.

It knows busybox and the markers between the outputs. It must not know how a guest is started or what an output should be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from guests import rootfs

FOLDER = "oracle"
"""Folder in the guest with the programs and their inputs."""

MOST_SECONDS = 120
"""Longest that one step may take inside; a slow host and an emulated processor are allowed for."""

# The second serial port carries the outputs, the first one the kernel's messages: they never mix.
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
    """A command of the guest's shell, run in FOLDER, meanwhile resctrl is mounted with these options (None: is not)."""

    name: str
    command: str
    mounted: str | None = "rw"


@dataclass(frozen=True)
class Outcome:
    """What a step wrote (both streams) and its exit status."""

    output: str
    status: int


def script(steps: list[Step]) -> str:
    """The guest's /init: every step on a freshly mounted resctrl, then power off."""
    parts = [HEAD]
    for step in steps:
        if step.mounted is not None:
            parts.append(f"$bb mount -t resctrl -o {step.mounted} resctrl /sys/fs/resctrl\n")
            # These two outlive an unmount: the next step must find them as after a boot. Old texts of last_cmd_status are
            # cleared by any write to schemata.
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
    """The guest's whole file system: busybox, `files` by name in FOLDER, `libraries` at their paths, and the script."""
    return rootfs.image(
        busybox, script(steps), {f"{FOLDER}/{name}": content for name, content in files.items()} | libraries
    )


def outcomes(text: str) -> dict[str, Outcome]:
    """The steps that came to their end, by name."""
    found = re.finditer(r"^@@begin (\S+)\n(.*?)\n@@end \1 (\d+)\n", text, re.MULTILINE | re.DOTALL)
    return {match[1]: Outcome(match[2], int(match[3])) for match in found}
