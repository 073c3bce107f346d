"""The Debian package: installed with apt, upgraded with a running daemon, removed and purged.

It must not know how the package is built, but that a second version can be.
"""

from __future__ import annotations

from pathlib import Path

from clients.testbed.checks import Failed, Report, expect
from packages import deb, program
from packages.checks_of import jobs
from packages.roots import CleanRoot

STAND_IN = Path(__file__).with_name("systemctl")


def check(report: Report, path: Path) -> None:
    """Every check, in turn, in one root."""
    with CleanRoot() as root:
        root.run("apt-get -q update")
        before = root.files()
        root.put(path, "/packages/waykeeper.deb")
        report.check("deb: apt installs it", lambda: installs(root))
        report.check("deb: the main job runs", lambda: jobs.main_job(root))
        report.check("deb: its files are there", lambda: files_are_there(root))
        jobs.mount(root)
        found = jobs.masks(root)
        root.put(STAND_IN, "/usr/bin/systemctl")
        root.run("mkdir -p /run/systemd/system && systemctl daemon-reload")
        (root.path / "etc/waykeeper/waykeeper.toml").write_text(jobs.CONFIG)
        root.run("systemctl start waykeeper.service")
        jobs.wait(root, f"ls -d {jobs.HOST}/sys/fs/resctrl/waykeeper-*", "cat /tmp/daemon.log")
        newer = deb.build(program.STAGE, program.OUT, revision="2")
        root.put(newer, "/packages/newer.deb")
        report.check("deb: an upgrade keeps configuration and knobs", lambda: upgrades(root))
        report.check("deb: removed after kill -9, every knob is as found", lambda: removes(root, found))
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


def upgrades(root: CleanRoot) -> None:
    """The old daemon hands over: no mask changes while packages are exchanged, and the configuration stays."""
    watch = f"while :; do cat {jobs.HOST}/sys/fs/resctrl/waykeeper-*/schemata | sort -u | tr '\\n' ' '; echo; done"
    before = jobs.masks(root)
    root.start(f'sh -c "{watch} > /tmp/watched 2>&1"')
    old = root.run("pidof waykeeper")
    text = root.run("apt-get -q install -y /packages/newer.deb < /dev/null")
    expect(text, "Setting up waykeeper")
    jobs.wait(root, "systemctl is-active waykeeper.service", "cat /tmp/daemon.log")
    jobs.wait(root, "waykeeper status >/dev/null 2>&1", "cat /tmp/daemon.log")
    root.run("pkill -f /tmp/watched || true")
    if old == root.run("pidof waykeeper"):
        raise Failed("the old daemon still runs")
    seen = set((root.path / "tmp/watched").read_text().splitlines())
    if len(seen) != 1:
        raise Failed(f"the masks changed while the package was upgraded: {sorted(seen)}")
    if jobs.masks(root) != before:
        raise Failed(f"the masks are not those before: {jobs.masks(root)}")
    expect((root.path / "etc/waykeeper/waykeeper.toml").read_text(), jobs.HOST)


def removes(root: CleanRoot, found: str) -> None:
    """A killed daemon has left its groups; prerm gives the host back."""
    root.run("kill -9 $(cat /run/waykeeper-stand-in.pid)")
    if jobs.masks(root) == found:
        raise Failed("the daemon had changed nothing, so this check shows nothing")
    root.run("apt-get -q remove -y waykeeper")
    after = jobs.masks(root)
    if after != found:
        raise Failed(f"knobs are not as found: {after}\nthey were: {found}")


def purges(root: CleanRoot, before: set[str]) -> None:
    """Only the readers' group is left."""
    root.run("apt-get -q purge -y waykeeper && rm -f /usr/bin/systemctl")
    left = {path for path in root.files() - before if not path.startswith((jobs.HOST, "/srv"))}
    left -= {"/etc/group-", "/etc/gshadow-", "/etc/group", "/etc/gshadow", "/etc/.pwd.lock"}
    if left:
        raise Failed(f"left: {sorted(left)}")
