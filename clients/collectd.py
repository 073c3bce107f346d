"""collectd's plugin intel_rdt (Debian), which reads each group of cores through libpqos 4.5.

libpqos runs the CPUID instruction, so collectd runs under qemu-user as a Skylake.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from clients.testbed import checks, tools
from clients.testbed.checks import Cannot, Failed, Report
from clients.testbed.host import VirtualHost

SECONDS = 6
"""How long collectd runs: it starts within 2 s under qemu-user on a busy machine and reads every second."""

CANNOT = [
    Cannot(
        "it monitors cores",
        "it counts instructions per cycle with perf_event_open, and has no option to leave them out",
        r"Error starting cores monitoring group 0-2",
    )
]

CONFIG = """
Hostname "virtual"
FQDNLookup false
BaseDir "{folder}"
PIDFile "{folder}/pid"
PluginDir "{root}/usr/lib/collectd"
TypesDB "{root}/usr/share/collectd/types.db"
Interval 1
LoadPlugin logfile
<Plugin logfile>
  LogLevel "info"
  File stdout
</Plugin>
LoadPlugin csv
<Plugin csv>
  DataDir "{folder}/csv"
</Plugin>
LoadPlugin intel_rdt
<Plugin intel_rdt>
  Cores "0-2" "3,4"
</Plugin>
"""


def collected(host: VirtualHost, root: Path) -> tuple[str, dict[str, str]]:
    """What collectd logs, and the last value of each file that it writes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "collectd.conf"
        config.write_text(CONFIG.format(folder=folder, root=root))
        collectd = tools.as_skylake("collectd", root / "usr/sbin/collectd")
        output = host.run(["timeout", "--signal=TERM", str(SECONDS), collectd, "-f", "-C", config]).stdout
        values = {}
        for path in folder.glob("csv/virtual/intel_rdt-*/*"):
            kind = re.sub(r"-\d{4}-\d\d-\d\d$", "", path.name)
            values[f"{path.parent.name}/{kind}"] = path.read_text().splitlines()[-1].split(",")[1]
    return output, values


def finds(output: str) -> None:
    """Fails if libpqos did not find the host's cores and events."""
    checks.expect(output, 'plugin "intel_rdt" successfully loaded')
    # With an error before this point there is no group of cores to start.
    checks.expect(output, "cores monitoring group 0-2", "cores monitoring group 3,4", "Initialization complete")


def monitors(output: str, values: dict[str, str]) -> None:
    """Fails unless the plugin wrote occupancy and traffic of both groups of cores."""
    for cores in ("0-2", "3,4"):
        occupancy = values.get(f"intel_rdt-{cores}/bytes-llc", "0")
        if float(occupancy) <= 0 or f"intel_rdt-{cores}/memory_bandwidth-local" not in values:
            raise Failed(f"no values of the cores {cores} in {values}: {output}")


def run(report: Report) -> None:
    """Runs the checks."""
    root = tools.debian_files("collectd-core")
    tools.debian("pqos", "intel-cmt-cat")  # brings libpqos4
    usage = subprocess.run([root / "usr/sbin/collectd", "-h"], capture_output=True, text=True).stdout
    version = re.search(r"collectd (\d\S*),", usage)
    report.client("collectd's intel_rdt", version[1] if version else "of an unknown version")
    with VirtualHost() as host:
        output, values = collected(host, root)
        report.check("libpqos finds cores and events", lambda: finds(output))
        report.check("it monitors cores", lambda: monitors(output, values))


if __name__ == "__main__":
    sys.exit(checks.main(run, CANNOT))
