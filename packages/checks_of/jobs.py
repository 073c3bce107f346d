"""What an installed program must be able to do, in any root.

This module must not know how the program came there.
"""

from __future__ import annotations

from clients.testbed.checks import Failed, expect
from packages.roots import CleanRoot

HOST = "/srv/host"
"""Where a virtual host is mounted in a root."""

CONFIG = f"""\
[daemon]
root = "{HOST}"
period_s = 0.2

[policy]
name = "isolate"

[[tenant]]
name = "front"
priority = "high"
cores = "0-3"

[[tenant]]
name = "batch"
priority = "low"
cores = "4-7"
"""
"""A configuration of the daemon for that host, whose policy sets masks at once."""


def main_job(root: CleanRoot, program: str = "waykeeper") -> None:
    """Compares two policies on a simulated server, and prints the table."""
    text = root.run(f"{program} run --policy default --policy a4 --sets 1/128")
    expect(text, "performance relative to default", "HPW mean")


def mount(root: CleanRoot) -> None:
    """Mounts a virtual host; it ends with the root."""
    root.run(f"mkdir -p {HOST}")
    root.start(f"waykeeper vhost {HOST} --sets 1/128 --speed 0.2 > /tmp/vhost.log 2>&1")
    wait(root, f"test -e {HOST}/sys/fs/resctrl/schemata", "cat /tmp/vhost.log")


def masks(root: CleanRoot) -> str:
    """Every group of the host's resctrl with its masks, its CPUs and its simulated tasks.

    Those have numbers of seven digits; tasks of this machine come and go.
    """
    files = "schemata cpus_list tasks"
    only = "grep -v -x -E '[0-9]{1,6}'"
    each = f'for f in {files}; do echo "$d/$f: $(cat $d/$f 2>&1 | {only} | tr "\\n" " ")"; done'
    return root.run(f"cd {HOST}/sys/fs/resctrl && for d in . $(ls -d waykeeper-* 2>/dev/null); do {each}; done")


def wait(root: CleanRoot, condition: str, why: str, seconds: int = 60) -> None:
    """Waits until a shell command succeeds. Raises Failed with the output of `why`."""
    done = root.try_run(f"for i in $(seq {seconds * 10}); do if {condition}; then exit 0; fi; sleep 0.1; done; exit 1")
    if done.returncode != 0:
        raise Failed(f"`{condition}` did not hold after {seconds} s: {root.try_run(why).stdout.strip()[-1500:]}")
