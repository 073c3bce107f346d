"""intel-cmt-cat's functional tests of pqos and rdtset, of the release in Debian trixie, with the programs of that source.

The programs run the CPUID instruction, so they run under qemu-user as a Skylake, which has no RDT by CPUID: the tests of the interface
`OS` (resctrl) run whole, of the interface `MSR` only the one that shows that libpqos finds nothing. memtester is ended by `killall`, which
here reaches only processes of the tests.
"""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

from clients.testbed import checks, tools
from clients.testbed.checks import SLOW, Cannot, Failed, Report
from clients.testbed.host import VirtualHost

VERSION = "25.04-1"
"""The newest release whose source Debian's mirrors offered (November 2026)."""

PYTHON = [
    "pytest==9.2.0",
    "pytest-timeout==2.4.0",
    "pytest-rerunfailures==16.7",
    "pexpect==4.9.0",
    "jsonschema==4.26.0",
    "psutil==7.2.2",
]
"""What the tests need (their Pipfile)."""

HARDWARE = {
    "cpu": {"sockets": 1, "cores": 18, "threads_per_cores": 1},
    "cat": {"l3": {"cos": 16, "ways": 11, "cdp": True, "minCbmBits": 1}},
    "mba": {"cos": 8},
    "cmt": {"occup_llc": True},
    "mbm": {"mbm_local": True, "mbm_total": True},
}
"""The virtual host as the tests' environment file describes a machine (chips/gold-6140.toml)."""

TESTS = 73
"""Number of tests for the interface OS."""

HANGS = [
    *(
        f"test_rdtset_affinity.py::TestRdtsetAffinity::test_rdtset_affinity_command_{cores}_core"
        for cores in ("single", "multiple")
    ),
    "test_rdtset_l3cat.py::TestRdtsetL3Cat::test_rdtset_l3cat_set_command[OS]",
    "test_rdtset_mba.py::TestRdtsetMba::test_rdtset_mba_set_command",
    "test_pqos_cmt.py::TestPqosCMT::test_pqos_cmt_llc_occupancy_tasks",
]
"""Beginnings of the tests that wait for a program that did not start, until the limit of `SECONDS_OF_A_TEST`; six tests."""

HANGING = 6
SECONDS_OF_A_TEST = 15
"""Half of the tests' own limit; on a busy machine the others take 2 s."""

CPUS = "it binds a program to CPU 4, 5 or 6: the machine shows it two CPUs, and those of the virtual server run no other programs"
PERF = "pqos counts instructions and misses with perf_event_open beside each event of resctrl"
L2 = "a Gold 6140 has no masks for its L2"

CANNOT = [
    Cannot(
        r"(pqos|rdtset)_l2cat: test_(?!pqos_l2cat_detection_negative).*",
        L2,
        r"skipped: c(at|dp)_l2 requirement not met",
    ),
    Cannot(
        r"pqos_l3cat: test_pqos_l3cat_detection_negative",
        "it is for machines without L3 CAT",
        r"cat_l3 requirement met",
    ),
    Cannot(
        r"pqos_cmt: test_pqos_cmt_llc_.*|pqos_mbm: test_pqos_mbm_(cores|tasks)",
        PERF,
        r"Failed to start perf counters|Timeout",
    ),
    Cannot(
        r"rdtset_affinity: .*_command_.*|rdtset_l3cat: test_rdtset_l3cat_set_command|rdtset_mba: .*_set_command",
        CPUS,
        r"Timeout",
        here=SLOW,
    ),
    Cannot(
        r"rdtset_affinity: .*_task_.*|rdtset_l3cat: test_rdtset_l3cat_set_task", CPUS, r"Failed to set core affinity"
    ),
    Cannot(
        r"pqos_l3cat: MSR .*",
        "libpqos asks the CPUID instruction for RDT, which no file can answer",
        r"No Platform QoS capability",
    ),
]


def programs() -> tuple[Path, Path, Path]:
    """The source's folder and its pqos and rdtset, each as a script."""
    source = tools.debian_source("intel-cmt-cat", VERSION, "trixie")
    if not (source / "rdtset/rdtset").exists():
        for part in ("lib", "pqos", "rdtset"):
            tools.run(["make", "-s", "-C", part], folder=source)
    pqos = tools.as_skylake("cmt-cat-pqos", source / "pqos/pqos", libraries=source / "lib")
    return source, pqos, tools.as_skylake("cmt-cat-rdtset", source / "rdtset/rdtset", libraries=source / "lib")


def outcomes(host: VirtualHost, source: Path, pqos: Path, rdtset: Path, *options: str) -> dict[str, str | None]:
    """The problem of each test by its name; None if it passed."""
    python = tools.python(*PYTHON)
    tools.debian("memtester", "memtester")
    # `killall -9 NAME` and `killall NAME` of the tests, for the session of the caller alone.
    killall = tools.script("killall", 'for name; do :; done\nexec pkill -KILL -x -s 0 "$name"')
    environment = tools.CACHE / "cmt-cat.json"
    environment.write_text(json.dumps(HARDWARE))
    results = tools.CACHE / "cmt-cat.xml"
    results.unlink(missing_ok=True)
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", f"--junitxml={results}"]
    words += ["-o", "junit_logging=all", "--log-level=DEBUG", f"--timeout={SECONDS_OF_A_TEST}"]
    words += [f"--env={environment}", f"--pqos={pqos}", f"--rdtset={rdtset}", *options]
    path = os.pathsep.join([str(killall.parent), os.environ["PATH"], *tools.ADMIN_FOLDERS])
    output = host.run(
        words, mounts=True, two_cpus=True, folder=source / "tests", environment={"PATH": path}, seconds=900
    ).stdout
    if not results.exists():
        raise Failed(output)
    found: dict[str, str | None] = {}
    for case in xml.parse(results).iter("testcase"):
        # `testcases.test_pqos_cmt.TestPqosCMT`: the files have tests of the same name.
        file = case.get("classname", "").split(".")[-2].removeprefix("test_")
        name = case.get("name", "").replace("[OS]", "").replace("[OS-", "[")
        texts = [f"{part.tag}: {part.get('message')} {part.text}" for part in case]
        bad = any(part.tag in ("failure", "error", "skipped") for part in case)
        found[f"{file}: {name}"] = "\n".join(texts) if bad else None
    return found


def run(report: Report) -> None:
    """Runs the tests."""
    source, pqos, rdtset = programs()
    report.client("intel-cmt-cat", VERSION)
    left_out = [] if SLOW else [f"--deselect=testcases/{name}" for name in HANGS]
    with VirtualHost() as host:
        for name, problem in outcomes(host, source, pqos, rdtset, "--iface-os", "testcases", *left_out).items():
            report.result(name, problem)
        report.count(TESTS if SLOW else TESTS - HANGING)
        one = "testcases/test_pqos_l3cat.py::TestPqosL3Cat::test_pqos_l3cat_detection[MSR]"
        for problem in outcomes(host, source, pqos, rdtset, "--iface-msr", one).values():
            report.result("pqos_l3cat: MSR interface", problem)


if __name__ == "__main__":
    sys.exit(checks.main(run, CANNOT))
