"""cAdvisor's collector of resctrl, called as cAdvisor calls it (programs/cadvisor.go), for a container and for the whole server."""

from __future__ import annotations

import json
import subprocess
import sys

from clients.testbed import checks, tools
from clients.testbed.checks import Failed, Report
from clients.testbed.host import VirtualHost

VERSION = "v0.57.0"
"""The last release that a module outside of cAdvisor's repository can build: later ones replace a module by a folder."""


def collects(host: VirtualHost, program: str, container: str, group: str) -> dict[str, list[dict[str, int]]]:
    """What the collector reads for a container with one process; fails unless the monitoring group is right meanwhile."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            with host.running([program, container, str(process.pid)], mounts=True) as collector:
                said = []
                for line in collector.stdout or []:
                    said.append(line)
                    # Before it are warnings.
                    if line.startswith("{"):
                        break
                else:
                    raise Failed("".join(said))
                tasks = host.read(f"sys/fs/resctrl/{group}tasks").split()
                if str(process.pid) not in tasks:
                    raise Failed(f"{process.pid} is not in {tasks}")
                # The end of its input ends it.
                collector.communicate(timeout=30)
        finally:
            process.kill()
    return json.loads(said[-1])


def container(host: VirtualHost, program: str) -> None:
    """Fails unless a container gets a monitoring group in the default class for as long as the collector lives."""
    group = "mon_groups/cadvisor-pod-one/"
    found = collects(host, program, "/pod/one", group)
    # One domain; its process does not run on the virtual server, and zeros are left out.
    if found != {"memory_bandwidth": [{}], "cache": [{}]}:
        raise Failed(str(found))
    if host.path(f"sys/fs/resctrl/{group}").exists():
        raise Failed(f"{group} is left behind")


def server(host: VirtualHost, program: str) -> None:
    """Fails unless the root container has the counters of the default group."""
    found = collects(host, program, "/", "")
    if found["cache"][0]["llc_occupancy"] <= 0 or found["memory_bandwidth"][0]["mbm_total_bytes"] <= 0:
        raise Failed(str(found))


def run(report: Report) -> None:
    """Runs the checks."""
    module = f"github.com/google/cadvisor@{VERSION}"
    program = str(tools.go_program("cadvisor", module, "", source=tools.PROGRAMS / "cadvisor.go"))
    report.client("cAdvisor's resctrl collector", VERSION)
    with VirtualHost() as host:
        report.check("it monitors a container", lambda: container(host, program))
        report.check("it reads the counters of the server", lambda: server(host, program))


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
