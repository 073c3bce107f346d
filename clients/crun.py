"""crun starts containers with `linux.intelRdt`. Debian 12's crun 1.8 reads that key and ignores it; this one is Debian 13's source."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from clients.testbed import checks, containers, tools
from clients.testbed.checks import Failed, Report
from clients.testbed.containers import Runtime

VERSION = "1.21-1"
RELEASE = "trixie"

HEADERS = {
    "sys/capability.h": "libcap-dev",
    "seccomp.h": "libseccomp-dev",
    "yajl/yajl_tree.h": "libyajl-dev",
}
"""Headers that the build needs, and Debian's packages of them."""


def built() -> Path:
    """crun, built from its unchanged source."""
    source = tools.debian_source("crun", VERSION, RELEASE)
    program = source / "crun"
    if not program.exists():
        missing = [package for header, package in HEADERS.items() if not Path("/usr/include", header).exists()]
        if missing:
            tools.run(["apt-get", "-q", "install", "-y", "--no-install-recommends", *missing])
        tools.debian("pkg-config", "pkg-config")
        tools.run(["./configure", "--quiet", "--disable-systemd", "--disable-shared"], folder=source)
        tools.run(["make", "--quiet"], folder=source)
    return program


def run(report: Report) -> None:
    """Runs the checks."""
    program = built()
    found = re.search(r"crun version (\S+)", tools.run([program, "--version"]))
    if not found:
        raise Failed(f"{program} does not tell its version")
    report.client("crun", found[1])
    # crun 1.21 makes no monitoring groups: the class of a container is monitored as a whole.
    runtime = Runtime(program, {"enableCMT": True, "enableMBM": True}, hybrid_cgroups=False)
    containers.run(report, runtime, seed=21)
    report.count(containers.CHECKS)


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
