"""What an installed program must be able to do, in any root.

This module must not know how the program came there.
"""

from __future__ import annotations

from pathlib import Path

from clients.testbed.checks import Failed, expect
from packages.roots import CleanRoot

STAND_IN = Path(__file__).with_name("systemctl")

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


def start_daemon(root: CleanRoot) -> None:
    """Starts the installed unit through the stand-in for systemctl, and waits until the daemon has changed masks."""
    root.put(STAND_IN, "/usr/bin/systemctl")
    root.run("mkdir -p /run/systemd/system && systemctl daemon-reload")
    (root.path / "etc/waykeeper/waykeeper.toml").write_text(CONFIG)
    root.run("systemctl start waykeeper.service")
    wait(root, f"ls -d {HOST}/sys/fs/resctrl/waykeeper-*", "cat /tmp/daemon.log")


def upgrades(root: CleanRoot, command: str) -> str:
    """The old daemon hands over: no mask changes while `command` exchanges the packages, and the configuration stays.

    Returns the command's output.
    """
    look = f"cat {HOST}/sys/fs/resctrl/waykeeper-*/schemata | sort -u | tr '\\n' ' '; echo"
    before = masks(root)
    root.start(f'sh -c "while [ ! -e /tmp/stop ]; do {look}; done > /tmp/watched 2>&1"')
    old = root.run("pidof waykeeper")
    text = root.run(command)
    wait(root, "systemctl is-active waykeeper.service", "cat /tmp/daemon.log")
    wait(root, "waykeeper status > /dev/null 2>&1", "cat /tmp/daemon.log")
    root.run("touch /tmp/stop")
    if old == root.run("pidof waykeeper"):
        raise Failed("the old daemon still runs")
    seen = set((root.path / "tmp/watched").read_text().splitlines())
    if len(seen) != 1:
        raise Failed(f"the masks changed while the package was upgraded: {sorted(seen)}")
    if masks(root) != before:
        raise Failed(f"the masks are not those before: {masks(root)}")
    expect((root.path / "etc/waykeeper/waykeeper.toml").read_text(), HOST)
    return text


def removes(root: CleanRoot, found: str, command: str) -> None:
    """A killed daemon has left its groups; the package's script gives the host back."""
    root.run("kill -9 $(cat /run/waykeeper-stand-in.pid)")
    if masks(root) == found:
        raise Failed("the daemon had changed nothing, so this check shows nothing")
    root.run(command)
    after = masks(root)
    if after != found:
        raise Failed(f"knobs are not as found: {after}\nthey were: {found}")


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
