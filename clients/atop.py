"""Debian's atop, which shows occupancy and traffic of each L3 from resctrl's default group."""

from __future__ import annotations

import re
import sys

from clients.testbed import checks, tools
from clients.testbed.checks import Failed, Report
from clients.testbed.host import VirtualHost


def shows(host: VirtualHost, program: str) -> None:
    """Fails unless the interval's line has the occupancy in percent and the traffic in bytes."""
    total = host.path("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes")
    before = int(total.read_text())
    text = host.good([program, "-P", "LLC", "2", "2"])
    after = int(total.read_text())
    lines = re.findall(r"^LLC .* LLC000 ([0-9.]+)% (\d+) (\d+)$", text, re.MULTILINE)
    # The first line counts since the start, the second the interval of 2 s.
    if len(lines) != 2:
        raise Failed(f"not two lines of the L3: {text}")
    share, traffic, local = float(lines[1][0]), int(lines[1][1]), int(lines[1][2])
    if not (0 < share <= 100 and 0 < traffic <= after - before and 0 < local <= after - before):
        raise Failed(f"{share} % occupied, {traffic} bytes, {local} local; resctrl counted {after - before}")


def run(report: Report) -> None:
    """Runs the check."""
    program = str(tools.debian_files("atop") / "usr/bin/atop")
    version = re.search(r"Version: (\S+)", tools.run([program, "-V"]))
    report.client("atop", version[1] if version else "of an unknown version")
    with VirtualHost() as host:
        report.check("it shows occupancy and traffic of the L3", lambda: shows(host, program))


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
