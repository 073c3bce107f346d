"""runc starts containers with `linux.intelRdt`: Debian's 1.1, which finds resctrl in mountinfo, and the newest, which asks statfs."""

from __future__ import annotations

import re
import sys

from clients.testbed import checks, containers, tools
from clients.testbed.checks import Failed, Report
from clients.testbed.containers import Runtime

MODULE = "github.com/opencontainers/runc"
NEWEST = "v1.5.2"


def version(program: str) -> str:
    """What `runc --version` says."""
    found = re.search(r"runc version (\S+)", tools.run([program, "--version"]))
    if not found:
        raise Failed(f"{program} does not tell its version")
    return found[1]


def run(report: Report) -> None:
    """Runs the checks."""
    debian = tools.debian("runc", "runc")
    report.client("runc", version(debian))
    # The keys of the OCI specification 1.0; runc 1.1 reads the counters of the class itself.
    containers.run(report, Runtime(debian, {"enableCMT": True, "enableMBM": True}), seed=11)
    newest = tools.go_program("runc", f"{MODULE}@{NEWEST}", MODULE)
    report.client("runc", version(str(newest)))
    # It notes in its memory alone that it made a group (intelrdt.go: `shouldCleanupDir`), so that `delete`, another process, leaves it.
    runtime = Runtime(newest, {"enableMonitoring": True}, monitoring_group=True, forgets_groups=True)
    containers.run(report, runtime, seed=15)
    report.count(2 * containers.CHECKS)


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
