"""What is set on a virtual host: groups of resctrl with their masks and CPUs, DDIO ways and DCA. This module must not know who set it."""

from __future__ import annotations

from clients.testbed import tools
from clients.testbed.host import VirtualHost

SPEED = 0.02
"""Speed of the virtual host's clock: its model keeps up beside two containerds. A read of a counter waits for a model that does not, as it
never does on a real host."""

PREFIX = "waykeeper-"


def resctrl(host: VirtualHost) -> dict[str, str]:
    """The masks and CPUs of all groups."""
    root = host.path("sys/fs/resctrl")
    groups = [root, *(path for path in root.iterdir() if (path / "schemata").exists())]
    return {
        f"{group.name} {file}": (group / file).read_text() for group in groups for file in ("schemata", "cpus_list")
    }


def knobs(host: VirtualHost) -> dict[str, str]:
    """The same, with DDIO's ways and the DCA of all root ports."""
    return resctrl(host) | {"ddio": host.good([tools.waykeeper(), "ddio", "show"])}


def group_of(host: VirtualHost, process: int) -> str | None:
    """The group of ours that has a process."""
    for path in host.path("sys/fs/resctrl").glob(f"{PREFIX}*/tasks"):
        if str(process) in path.read_text().split():
            return path.parent.name
    return None
