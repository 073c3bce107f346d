"""The wheel: installed with pip and with uv in a root without Rust, Python code and program used.

It must not know how the wheel is built.
"""

from __future__ import annotations

import time
from pathlib import Path

from clients.testbed.checks import Failed, Report, expect
from packages import program
from packages.checks_of import jobs
from packages.roots import CleanRoot

MOST_SECONDS = 60
"""From nothing but Python to the first table, on two cores (issue: "below one minute")."""

PYTHON = "apt-get -q update && apt-get -q install -y --no-install-recommends python3 python3-venv ca-certificates"


def check(report: Report, path: Path) -> None:
    """Every check, in one root. Its Python is Debian's."""
    with CleanRoot() as root:
        root.run(PYTHON)
        root.put(Path("/etc/ssl/certs/ca-certificates.crt"), "/etc/ssl/certs/ca-certificates.crt")
        wheel = f"/packages/{path.name}"
        root.put(path, wheel)
        report.check("wheel: pip installs it and the first table is there", lambda: first_table(root, wheel))
        report.check("wheel: the Python package runs", lambda: python_package(root))
        report.check("wheel: uvx runs the program", lambda: by_uvx(root, wheel))
        report.check("wheel: removed, no file is left", lambda: removes(root))


def first_table(root: CleanRoot, wheel: str) -> None:
    """The first minute: a venv, pip, the flagship's table. The seconds are printed; a machine that is busy needs longer."""
    began = time.monotonic()
    root.run(f"python3 -m venv /opt/w && /opt/w/bin/pip install --quiet {wheel}")
    installed = time.monotonic() - began
    jobs.main_job(root, "/opt/w/bin/waykeeper")
    print(
        f"wheel: {installed:.1f} s to install, {time.monotonic() - began:.1f} s to the first table (aim: {MOST_SECONDS} s)"
    )
    expect(root.run("/opt/w/bin/waykeeper --version"), f"waykeeper {program.version()}")


def python_package(root: CleanRoot) -> None:
    """The extension module loads with this C library, and is of the program's version."""
    code = "import waykeeper as wk; print(wk.__version__, len(wk.scenarios()))"
    expect(root.run(f"/opt/w/bin/python -c '{code}'"), program.version())


def by_uvx(root: CleanRoot, wheel: str) -> None:
    """uv makes an environment for the command and runs it."""
    root.run("/opt/w/bin/pip install --quiet uv")
    text = root.run(
        f"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt /opt/w/bin/uvx --from {wheel} waykeeper scenario list"
    )
    expect(text, "a4-hpw-heavy")


def removes(root: CleanRoot) -> None:
    """pip takes the program and the package away."""
    root.run("/opt/w/bin/pip uninstall --quiet -y waykeeper")
    left = root.run("find /opt/w -iname '*waykeeper*'").strip()
    if left:
        raise Failed(f"left: {left}")
