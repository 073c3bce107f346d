"""telegraf's plugin intel_rdt, built into a telegraf with this input alone, which starts Debian's pqos and reads its output."""

from __future__ import annotations

import re
import sys
import tempfile

from clients.testbed import checks, tools
from clients.testbed.checks import Cannot, Failed, Report
from clients.testbed.host import VirtualHost

VERSION = "v1.37.2"

SECONDS = 12
"""How long telegraf runs: pqos starts within 3 s under qemu-user on a busy machine, then there is a line a second."""

TAGS = "custom,inputs.intel_rdt,outputs.file,serializers.influx"
"""telegraf's build tags for a part of its plugins."""

CONFIG = """
[agent]
  interval = "1s"
  flush_interval = "1s"
  omit_hostname = true
[[inputs.intel_rdt]]
  pqos_path = "{pqos}"
  cores = ["0-3", "4"]
  sampling_interval = 10
  shortened_metrics = true
[[outputs.file]]
  files = ["stdout"]
"""

CANNOT = [
    Cannot(
        "it monitors cores",
        "it starts pqos with the events `all`, among them instructions and misses, which pqos counts with perf_event_open",
        r"no measurement of the cores",
    )
]


def monitors(host: VirtualHost, program: str) -> None:
    """Fails unless telegraf prints occupancy and traffic of both groups of cores."""
    pqos = tools.as_skylake("pqos", tools.debian("pqos", "intel-cmt-cat"))
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(CONFIG.format(pqos=pqos))
        file.flush()
        command = ["timeout", "--signal=INT", str(SECONDS), program, "--config", file.name]
        output = host.run(command).stdout
    for cores in ("0\\\\,1\\\\,2\\\\,3", "4"):
        found = re.search(rf"^rdt_metric,cores={re.escape(cores)},name=LLC value=(\S+) ", output, re.MULTILINE)
        if not found or float(found[1]) <= 0:
            raise Failed(f"no measurement of the cores {cores}: {output}")


def run(report: Report) -> None:
    """Runs the check."""
    module = f"github.com/influxdata/telegraf@{VERSION}"
    program = str(tools.go_program("telegraf", module, "github.com/influxdata/telegraf/cmd/telegraf", tags=TAGS))
    report.client("telegraf's intel_rdt", VERSION)
    with VirtualHost() as host:
        report.check("it monitors cores", lambda: monitors(host, program))


if __name__ == "__main__":
    sys.exit(checks.main(run, CANNOT))
