"""goresctrl's `rdt`: the library of resctrl that containerd, CRI-O and NRI plugins use."""

from __future__ import annotations

import re
import sys
import tempfile
import time
import urllib.request

from clients.testbed import checks, tools
from clients.testbed.checks import Failed, Report, expect
from clients.testbed.host import VirtualHost
from clients.testbed.ports import free_ports

VERSION = "v0.14.0"

SECONDS = 30
"""Longest wait for an answer of `rdt monitor`."""

CONFIG = """
partitions:
  exclusive:
    l3Allocation: "60%"
    mbAllocation: ["50%"]
    classes:
      exclusive: {}
  shared:
    l3Allocation: "40%"
    mbAllocation: ["100%"]
    classes:
      normal:
        l3Allocation: "100%"
        mbAllocation: ["100%"]
      limited:
        l3Allocation: "50%"
        mbAllocation: ["40%"]
"""


def shows(host: VirtualHost, program: str) -> None:
    """Fails unless `rdt info` finds resctrl, its events and its groups."""
    host.path("sys/fs/resctrl/mine").mkdir()
    text = host.good([program, "info"])
    expect(text, "detected resctrl filesystem path=/sys/fs/resctrl", "Monitoring supported: true", "- mine")
    expect(text, "llc_occupancy, mbm_local_bytes, mbm_total_bytes", "- system/default")
    host.path("sys/fs/resctrl/mine").rmdir()


MASKS = {"exclusive": "07f", "normal": "780", "limited": "180"}
"""60 % of 11 ways are 7 (6.6, rounded), the other 4 are shared's; half of those are 2."""

MASKS_OF_20 = {"exclusive": "00fff", "normal": "ff000", "limited": "0f000"}
"""12 of 20 ways, the other 8, and 4 of those."""

BANDWIDTHS = {"exclusive": "50", "normal": "100", "limited": "40"}
"""MBA of each group, in percent."""


def configures(host: VirtualHost, program: str, masks: dict[str, str]) -> None:
    """Fails unless `rdt configure` makes the groups and masks of the file."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(CONFIG)
        file.flush()
        host.good([program, "configure", "-config-file", file.name])
    for group, mask in masks.items():
        # The kernel pads a number to the width of the masks.
        bandwidth = BANDWIDTHS[group].rjust(len(mask))
        expect(host.read(f"sys/fs/resctrl/{group}/schemata"), f"L3:0={mask}", f"MB:0={bandwidth}")


def serves(host: VirtualHost, program: str) -> None:
    """Fails unless `rdt monitor` serves the default group's occupancy to Prometheus."""
    (port,) = free_ports(1)
    with host.running([program, "monitor", "-port", str(port)]) as process:
        end = time.monotonic() + SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
                    text = answer.read().decode()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise Failed("rdt monitor does not answer") from None
                time.sleep(0.05)
    found = re.search(
        r'^l3_llc_occupancy\{cache_id="0",rdt_class="system/default",rdt_mon_group=""\} (\S+)$', text, re.MULTILINE
    )
    if not found or float(found[1]) <= 0:
        raise Failed(f"no occupancy of the default group in {text[-800:]}")


def run(report: Report) -> None:
    """Runs the checks."""
    module = f"github.com/intel/goresctrl@{VERSION}"
    program = str(tools.go_program("rdt", module, "github.com/intel/goresctrl/cmd/rdt"))
    report.client("goresctrl", VERSION)
    with VirtualHost() as host:
        report.check("rdt info shows resctrl, its events and groups", lambda: shows(host, program))
        report.check("rdt configure makes groups and masks", lambda: configures(host, program, MASKS))
        report.check("rdt monitor serves the counters", lambda: serves(host, program))
    with VirtualHost("--set", 'chip="platinum-8570"') as host:
        report.check("rdt configure makes the masks of 20 ways", lambda: configures(host, program, MASKS_OF_20))


if __name__ == "__main__":
    sys.exit(checks.main(run, []))
