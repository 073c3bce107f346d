"""The kernel's selftests of resctrl (tools/testing/selftests/resctrl of Debian's linux-source 6.1 and 6.12), each release on a virtual
host of its kernel.

Each test is run on its own: that it mounts resctrl, makes its groups and writes its masks are checks of their own, because the
measurement behind them needs processes that run on the virtual server, or perf events.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from clients.testbed import checks, tools
from clients.testbed.checks import Cannot, Failed, Report
from clients.testbed.host import VirtualHost
from guests import packages

RELEASES = {
    "6.1": ["MBM", "MBA", "CMT", "CAT"],
    "6.12": ["MBM", "MBA", "CMT", "L3_CAT", "L3_NONCONT_CAT", "L2_NONCONT_CAT"],
}
"""The tests of each release, as its option -t names them."""

GROUPS = {"MBM", "MBA", "CMT", "L3_CAT"}
"""Tests that make a group and write the benchmark's process to it (CAT of 6.1 does not come so far)."""

KILLS_ITSELF = {"CAT"}
"""Where perf_event_open fails, CAT of 6.1 sends SIGKILL to process 0 (ctrlc_handler of resctrl_val.c, before any benchmark has a PID),
which is its own process group. Which of its two processes fails first decides whether resctrl is unmounted by then."""

PARTS = ["tools/testing/selftests/resctrl", "tools/testing/selftests/*.h", "tools/testing/selftests/lib.mk"]
PARTS += ["tools/include", "tools/build", "tools/scripts"]
"""What of the kernel's source the tests are built from."""

PMU = "it counts memory traffic with the PMU of the memory controllers (/sys/bus/event_source, perf_event_open)"
CANNOT = [
    Cannot(r".*: (MBM|MBA): result", PMU, r"Unable to open PMU directory|Failed to get number of iMCs"),
    Cannot(
        r".*: CMT: result",
        "it measures the occupancy of its own buffer, but processes of the machine do not run on the virtual server",
        r"Average LLC val: 0",
    ),
    Cannot(
        r"6\.1: CAT: result",
        "it binds a process to the last CPU of the virtual server, and counts its cache misses with perf_event_open",
        r"Unable to taskset benchmark|Error opening leader",
    ),
    Cannot(
        r"6\.12: L3_CAT: result",
        "it counts its own cache misses with perf_event_open; a PMU of the machine knows no masks of the virtual server",
        r"Error opening leader|Fail: Check cache miss rate",
    ),
    Cannot(r".*: L2_NONCONT_CAT: result", "a Gold 6140 has no masks for its L2", r"SKIP Hardware does not support"),
]


def source(release: str) -> Path:
    """The folder of the selftests of a release."""
    with tools.made(f"linux-{release}") as fresh:
        if fresh:
            name = f"linux-source-{release}"
            root = packages.unpacked(fresh / "debian", re.escape(name), name)
            archive = root / "usr/src" / f"{name}.tar.xz"
            patterns = [f"*/{part}" for part in PARTS]
            tools.run(
                ["tar", "xf", archive, "-C", fresh, "--strip-components=1", "--wildcards", *patterns, "*/Makefile"]
            )
            shutil.rmtree(fresh / "debian")
    return tools.CACHE / f"linux-{release}/tools/testing/selftests/resctrl"


def version(folder: Path) -> str:
    """The kernel's version, from its Makefile."""
    text = (folder.parents[3] / "Makefile").read_text()
    return ".".join(
        re.search(rf"^{part} = (\d+)$", text, re.MULTILINE)[1] for part in ("VERSION", "PATCHLEVEL", "SUBLEVEL")
    )


def verdict(output: str) -> str | None:
    """The problem of the one test that ran."""
    line = re.search(r"^(not )?ok 1 .*$", output, re.MULTILINE)
    if line is None or line[1] or "SKIP" in line[0]:
        return output
    return None


def run_release(report: Report, release: str) -> None:
    """Runs the tests of a release."""
    folder = source(release)
    if not (folder / "resctrl_tests").exists():
        # lib.mk derives OUTPUT only where no other make runs above it, as in `make test-clients`.
        tools.run(["make", f"OUTPUT={folder}"], folder=folder)
    report.client("Linux's resctrl selftests", version(folder))
    with VirtualHost("--kernel", release) as host:
        for test in RELEASES[release]:
            run_test(report, host, folder / "resctrl_tests", f"{release}: {test}", test)


def run_test(report: Report, host: VirtualHost, program: Path, name: str, test: str) -> None:
    """Runs one test, which mounts resctrl, does its work and unmounts it. Its lines are kept also if it is killed (stdbuf)."""
    output = host.run(["stdbuf", "-oL", program, "-t", test.lower()], mounts=True, two_cpus=True).stdout
    mounting = 'Mounting resctrl to "/sys/fs/resctrl"'
    report.check(f"{name}: mounts", lambda: checks.expect(output, mounting, "1..1"))
    report.result(f"{name}: result", verdict(output))
    if test not in KILLS_ITSELF:
        report.check(f"{name}: unmounts", lambda: unmounted(host))
    if test in GROUPS:
        report.check(f"{name}: writes to its group", lambda: writes(output))


def unmounted(host: VirtualHost) -> None:
    """Fails if resctrl is mounted."""
    if host.read("waykeeper/resctrl") != "unmounted" or list(host.path("sys/fs/resctrl").iterdir()):
        raise Failed("resctrl is still mounted")


def writes(output: str) -> None:
    """Fails if a write of the test to resctrl failed."""
    checks.expect(output, "Writing benchmark parameters to resctrl FS")
    if re.search(r"write\(\) failed|Failed to|Could not", output):
        raise Failed(output)


def run(report: Report) -> None:
    """Runs all releases."""
    for release in RELEASES:
        run_release(report, release)
    # Three checks a test, a fourth for those that make a group, and two for one that kills itself.
    tests = [test for tests in RELEASES.values() for test in tests]
    report.count(sum(3 + (test in GROUPS) - (test in KILLS_ITSELF) for test in tests))


if __name__ == "__main__":
    sys.exit(checks.main(run, CANNOT))
