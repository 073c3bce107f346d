"""The RPM: installed, upgraded and removed with rpm.

No RPM distribution can be had here, so the root is a Debian with rpm, whose database knows no package: dependencies are read
and compared with what glibc gives, and not resolved. It must not know how the package is built.
"""

from __future__ import annotations

import re
from pathlib import Path

from clients.testbed.checks import Failed, Report, expect
from packages import program, rpm
from packages.checks_of import jobs
from packages.roots import CleanRoot

INSTALL = "apt-get -q update && apt-get -q install -y --no-install-recommends rpm"

GLIBC = re.compile(
    r"(/bin/sh|rpmlib\(.*\).*|config\(waykeeper\) = .*|util-linux|ld-linux-x86-64\.so\.2.*|rtld\(GNU_HASH\)"
    r"|lib(c|m|gcc_s|pthread|dl|rt|util)\.so\..*)"
)
"""What every RPM distribution has (util-linux has kill), and the package's own configuration, which it provides itself."""


def check(report: Report, path: Path) -> None:
    """Every check, in one root."""
    with CleanRoot() as root:
        root.run(INSTALL)
        before = root.files()
        root.put(path, "/packages/waykeeper.rpm")
        report.check("rpm: it needs nothing but the C library", lambda: needs(root))
        report.check("rpm: rpm installs it", lambda: installs(root))
        report.check("rpm: the main job runs", lambda: jobs.main_job(root))
        jobs.mount(root)
        found = jobs.masks(root)
        jobs.start_daemon(root)
        root.put(rpm.build(program.STAGE, program.OUT, release="2"), "/packages/newer.rpm")
        upgrade = "rpm -U --nodeps /packages/newer.rpm"
        report.check("rpm: an upgrade keeps configuration and knobs", lambda: jobs.upgrades(root, upgrade))
        remove = "rpm -e waykeeper"
        report.check("rpm: removed after kill -9, every knob is as found", lambda: jobs.removes(root, found, remove))
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


OF_THE_DISTRIBUTION = (
    "/usr/lib/sysusers.d",
    "/usr/share/fish",
    "/usr/share/fish/vendor_completions.d",
    "/usr/share/zsh",
    "/usr/share/zsh/site-functions",
)
"""Folders that the package `filesystem` of every RPM distribution has, and a Debian has not."""


def leaves_nothing(root: CleanRoot, before: set[str]) -> None:
    """Only the readers' group and the changed configuration are left, as rpm does it."""
    left = {
        path for path in root.files() - before if not path.startswith(("/srv", "/var/lib/rpm", "/etc/g", "/etc/.pwd"))
    }
    left -= {*OF_THE_DISTRIBUTION, "/usr/bin/systemctl", "/etc/waykeeper", "/etc/waykeeper/waykeeper.toml.rpmsave"}
    if left:
        raise Failed(f"left: {sorted(left)}")
