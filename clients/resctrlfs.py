"""The crate resctrlfs, which `below` reads resctrl with."""

from __future__ import annotations

import re
import sys

from clients.testbed import checks, tools
from clients.testbed.checks import Failed, Report
from clients.testbed.host import VirtualHost

VERSION = "0.9.0"


def run(report: Report) -> None:
    """Runs the checks."""
    source = tools.PROGRAMS / "resctrlfs.rs"
    program = tools.rust_program("resctrlfs", {"resctrlfs": f"={VERSION}"}, source)
    report.client("resctrlfs", VERSION)
    with VirtualHost() as host:
        group = host.path("sys/fs/resctrl/a")
        group.mkdir()
        (group / "cpus_list").write_text("2-3\n")
        (group / "mon_groups/b").mkdir()
        (host.path("sys/fs/resctrl/mon_groups/c")).mkdir()

        def reads() -> None:
            text = host.good([program, "/sys/fs/resctrl", "no"])
            checks.expect(
                text, 'ctrl_mon_groups: Some({"a": CtrlMonGroupStat {', "cpus: {2, 3}", "mode: Some(Shareable)"
            )
            checks.expect(text, 'mon_groups: Some({"b": MonGroupStat {', 'mon_groups: Some({"c": MonGroupStat {')
            occupancy = re.search(r"llc_occupancy_bytes: Some\(Bytes\((\d+)\)\)", text)
            if not occupancy or int(occupancy[1]) == 0:
                raise Failed(f"no occupancy of the default group in {text}")

        report.check("it reads groups, CPUs and counters", reads)
        report.check(
            "it accepts the type of the file system",
            lambda: host.good([program, "/sys/fs/resctrl", "yes"], mounts=True),
        )


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
