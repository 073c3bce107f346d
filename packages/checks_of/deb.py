"""The Debian package: installed with apt, upgraded with a running daemon, removed and purged.

It must not know how the package is built, but that a second version can be.
"""

from __future__ import annotations

from pathlib import Path

from clients.testbed.checks import Failed, Report, expect
from packages import deb, program
from packages.checks_of import jobs
from packages.roots import CleanRoot


def check(report: Report, path: Path) -> None:
    """Every check, in turn, in one root."""
    with CleanRoot() as root:
        root.run("apt-get -q update && apt-get -q install -y --no-install-recommends systemd procps")
        before = root.files()
        root.put(path, "/packages/waykeeper.deb")
        report.check("deb: apt installs it", lambda: installs(root))
        report.check("deb: the main job runs", lambda: jobs.main_job(root))
        report.check("deb: its files are there", lambda: files_are_there(root))
        report.check("deb: systemd accepts the unit", lambda: unit_is_sound(root))
        jobs.mount(root)
        found = jobs.masks(root)
        jobs.start_daemon(root)
        newer = deb.build(program.STAGE, program.OUT, revision="2")
        root.put(newer, "/packages/newer.deb")
        report.check("deb: an upgrade keeps configuration and knobs", lambda: upgrades(root))
        remove = "apt-get -q remove -y waykeeper"
        report.check("deb: removed after kill -9, every knob is as found", lambda: jobs.removes(root, found, remove))
        report.check("deb: purged, no file is left", lambda: purges(root, before))


def installs(root: CleanRoot) -> None:
    """Installs it with what it depends on. It starts nothing, and the readers' group exists."""
    text = root.run("apt-get -q install -y --no-install-recommends /packages/waykeeper.deb")
    expect(text, "Setting up waykeeper", "waykeeper: next: waykeeper doctor")
    root.run("getent group waykeeper")
    expect(root.run("waykeeper --version"), f"waykeeper {program.version()}")
    if root.try_run("pidof waykeeper").returncode == 0:
        raise Failed("the package has started a process")


def files_are_there(root: CleanRoot) -> None:
    """Unit, group, pages of the manual, completions; the configuration is a conffile."""
    for path in (
        "/usr/lib/systemd/system/waykeeper.service",
        "/usr/lib/systemd/system/sys-fs-resctrl.mount",
        "/usr/lib/sysusers.d/waykeeper.conf",
        "/usr/share/man/man1/waykeeper-daemon.1.gz",
        "/usr/share/bash-completion/completions/waykeeper",
        "/usr/share/doc/waykeeper/copyright",
    ):
        root.run(f"test -s {path}")
    expect(root.run("dpkg-query -W -f '${Conffiles}' waykeeper"), "/etc/waykeeper/waykeeper.toml")


def unit_is_sound(root: CleanRoot) -> None:
    """`systemd-analyze verify` finds no fault; the exposure that `security` reports is at most what docs/daemon.md says."""
    root.run("systemd-analyze verify waykeeper.service")
    root.run("systemd-analyze security --offline=true --threshold=33 waykeeper.service")


def upgrades(root: CleanRoot) -> None:
    """apt exchanges the packages."""
    expect(jobs.upgrades(root, "apt-get -q install -y /packages/newer.deb < /dev/null"), "Setting up waykeeper")


def purges(root: CleanRoot, before: set[str]) -> None:
    """Only the readers' group is left."""
    root.run("apt-get -q purge -y waykeeper && rm -f /usr/bin/systemctl")
    left = {path for path in root.files() - before if not path.startswith((jobs.HOST, "/srv"))}
    left -= {"/etc/group-", "/etc/gshadow-", "/etc/group", "/etc/gshadow", "/etc/.pwd.lock"}
    if left:
        raise Failed(f"left: {sorted(left)}")
