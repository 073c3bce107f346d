"""The RPM: installed, upgraded and removed with rpm.

No RPM distribution can be had here, so the root is a Debian with rpm, whose database knows no package: dependencies are read
and compared with what glibc gives, and not resolved. It must not know how the package is built.
"""

from __future__ import annotations

import re
from pathlib import Path

from clients.testbed.checks import Failed, Report, expect
from packages import program
from packages.checks_of import jobs
from packages.roots import CleanRoot

INSTALL = "apt-get -q update && apt-get -q install -y --no-install-recommends rpm"

GLIBC = re.compile(
    r"(/bin/sh|rpmlib\(.*\).*|lib(c|m|gcc_s|pthread|dl|rt|util)\.so\..*|ld-linux-x86-64\.so\.2.*|rtld\(GNU_HASH\))"
)
"""What every RPM distribution has."""


def check(report: Report, path: Path) -> None:
    """Every check, in one root."""
    with CleanRoot() as root:
        root.run(INSTALL)
        before = root.files()
        root.put(path, "/packages/waykeeper.rpm")
        report.check("rpm: it needs nothing but the C library", lambda: needs(root))
        report.check("rpm: rpm installs it", lambda: installs(root))
        report.check("rpm: the main job runs", lambda: jobs.main_job(root))
        report.check("rpm: the configuration is kept when it was changed", lambda: keeps(root))
        report.check("rpm: removed after kill -9, every knob is as found", lambda: removes(root))
        report.check("rpm: no file is left", lambda: leaves_nothing(root, before))


def needs(root: CleanRoot) -> None:
    """Every requirement is one of the C library, of rpm itself or a shell; no symbol is newer than `program.GLIBC`."""
    newest = tuple(int(part) for part in program.GLIBC.split("."))
    for line in root.run("rpm -qp --requires /packages/waykeeper.rpm").splitlines():
        if not GLIBC.fullmatch(line.strip()):
            raise Failed(f"requires {line}")
        version = re.search(r"GLIBC_(\d+)\.(\d+)", line)
        if version and (int(version[1]), int(version[2])) > newest:
            raise Failed(f"requires {line}, newer than glibc {program.GLIBC}")


def installs(root: CleanRoot) -> None:
    """Files, readers' group, version."""
    root.run("rpm -i --nodeps /packages/waykeeper.rpm")
    root.run("getent group waykeeper && test -s /usr/lib/systemd/system/waykeeper.service")
    expect(root.run("rpm -V --nodeps waykeeper && waykeeper --version"), f"waykeeper {program.version()}")


def keeps(root: CleanRoot) -> None:
    """`%config(noreplace)`: a changed configuration survives that the package is installed again."""
    (root.path / "etc/waykeeper/waykeeper.toml").write_text(jobs.CONFIG)
    root.run("rpm -U --nodeps --replacepkgs /packages/waykeeper.rpm")
    expect((root.path / "etc/waykeeper/waykeeper.toml").read_text(), jobs.HOST)


def removes(root: CleanRoot) -> None:
    """A killed daemon has left its groups; the scriptlet gives the host back."""
    jobs.mount(root)
    found = jobs.masks(root)
    root.start("waykeeper daemon > /tmp/daemon.log 2>&1")
    jobs.wait(root, f"ls -d {jobs.HOST}/sys/fs/resctrl/waykeeper-*", "cat /tmp/daemon.log")
    root.run("pkill -9 -f 'waykeeper daemon'")
    if jobs.masks(root) == found:
        raise Failed("the daemon had changed nothing, so this check shows nothing")
    root.run("rpm -e waykeeper")
    after = jobs.masks(root)
    if after != found:
        raise Failed(f"knobs are not as found: {after}\nthey were: {found}")


def leaves_nothing(root: CleanRoot, before: set[str]) -> None:
    """Only the readers' group and the changed configuration are left, as rpm does it."""
    left = {
        path for path in root.files() - before if not path.startswith(("/srv", "/var/lib/rpm", "/etc/g", "/etc/.pwd"))
    }
    left -= {"/etc/waykeeper", "/etc/waykeeper/waykeeper.toml.rpmsave"}
    if left:
        raise Failed(f"left: {sorted(left)}")
