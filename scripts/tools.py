"""What the tests need besides Rust and Python: looks, shows one table, installs.

One `Need` is one requirement of some tests: a command, a device file, a privilege or a part of Python. It knows packages and
how a distribution installs them. It must not know how a test is built or run: a test that lacks a requirement says so itself
(`not run: needs NAME`), and `run_tests.py` compares NAME with this table.

    python3 scripts/tools.py              # the table; exit status 3 if something is missing
    python3 scripts/tools.py --install    # installs what is missing, then shows the table
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target/tools"
"""Where Go puts the programs that no distribution packages."""

GORESCTRL = "github.com/intel/goresctrl/cmd/rdt@v0.8.0"
"""The release whose `rdt` runs on the virtual host; Debian's Go 1.19 can build it."""

PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
"""The system call's number (linux arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h)."""

PERF_ATTR_BYTES = 64
"""Size of the first version of perf_event_attr (linux include/uapi/linux/perf_event.h)."""

IN_MEMORY = Path("/dev/shm")
"""A folder whose files are in memory (linux Documentation/filesystems/tmpfs.rst)."""

IN_MEMORY_BYTES = 4 << 30
"""Room that is enough for the files of all tests together: 86 MB were seen, looking every 5 s. Containers often have 64 MiB."""

LOCKED_BYTES = 64 << 20
"""A limit of locked memory that is enough for memload's test runs. The kernel's default of 8 MiB was too little for two at a time."""

MISSING_STATUS = 3
"""Exit status of a run that passed but left tests out."""

ADMIN_FOLDERS = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"]
"""Folders of administrators' tools; a user's PATH often lacks them."""


def search_path() -> str:
    """PATH with the administrators' folders behind it."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *ADMIN_FOLDERS])


def command_is_here(name: str) -> Callable[[], bool]:
    """A check that finds a command in `search_path`."""
    return lambda: shutil.which(name, path=search_path()) is not None


def rdt_is_here() -> bool:
    """goresctrl's program, where `install` builds it or in PATH."""
    return os.access(TOOLS / "rdt", os.X_OK) or command_is_here("rdt")()


def venv_is_here() -> bool:
    """Debian packages `venv` and `ensurepip` apart from Python."""
    return subprocess.run([sys.executable, "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL).returncode == 0


def is_root() -> bool:
    """Whether this is root with root's rights: root of a plain container may not mount, for example."""
    if os.geteuid() != 0:
        return False
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "waykeeper-test", "/mnt"]
    try:
        return subprocess.run(mount, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def fuse_is_here() -> bool:
    """The kernel's FUSE device, which this user can open."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError:
        return False
    return True


def perf_is_here() -> bool:
    """Whether perf_event_open(2) counts a software event of all programs on CPU 0, as linux' tests of perf do."""
    # perf_event_attr up to PERF_ATTR_SIZE_VER0: type 1 is PERF_TYPE_SOFTWARE, configuration 0 its CPU clock.
    attributes = ctypes.create_string_buffer(struct.pack("=IIQ", 1, PERF_ATTR_BYTES, 0), PERF_ATTR_BYTES)
    number = PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        return False
    found = ctypes.CDLL(None, use_errno=True).syscall(number, attributes, -1, 0, -1, 0)
    if found < 0:
        return False
    os.close(found)
    return True


def groups_are_here() -> bool:
    """Whether control groups with cpuset can be made, as linux' census makes them."""
    for base in ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"):
        place = Path(base, f"waykeeper-test-{os.getpid()}")
        try:
            place.mkdir()
        except OSError:
            continue
        try:
            if (place / "cpuset.cpus").exists():
                return True
        finally:
            place.rmdir()
    return False


@contextmanager
def folder_in_memory(place: Path = IN_MEMORY) -> Iterator[None]:
    """Has what runs in the context make its temporary files in `place`, if files there have room and may be run.

    Tests build thousands of small trees, and on a disk the kernel spends as long on them as the tests. Who set TMPDIR keeps it.
    """
    try:
        there = os.statvfs(place)
        fits = there.f_bavail * there.f_frsize >= IN_MEMORY_BYTES and not there.f_flag & os.ST_NOEXEC
    except OSError:
        fits = False
    if "TMPDIR" in os.environ or not fits or not os.access(place, os.W_OK):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="wk-", dir=place, ignore_cleanup_errors=True) as folder:
        # Some tests become another user.
        os.chmod(folder, 0o1777)
        os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            del os.environ["TMPDIR"]


def memory_may_be_locked() -> bool:
    """Whether several rings of io_uring with registered buffers fit: the kernel counts those of all processes of a user."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return os.geteuid() == 0 or limit == resource.RLIM_INFINITY or limit >= LOCKED_BYTES


def user_namespaces_are_here() -> bool:
    """Whether an ordinary user can make a user namespace: not in a chroot, and not where a sysctl forbids it."""
    words = ["setpriv", "--reuid=65534", "--clear-groups", "unshare", "--user", "--map-root-user", "true"]
    try:
        return subprocess.run(words[3:] if os.geteuid() else words, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


@dataclass(frozen=True)
class Need:
    """One requirement. `packages` is keyed by package manager; an empty dict is something that no package brings."""

    name: str
    used_by: str
    is_here: Callable[[], bool]
    packages: dict[str, tuple[str, ...]]
    builds: bool = False
    """Whether the build itself needs it, so that nothing can run without it."""


def _tool(name: str, used_by: str, *, builds: bool = False, **packages: str) -> Need:
    spread = {manager.replace("_", "-"): tuple(names.split()) for manager, names in packages.items()}
    return Need(name, used_by, command_is_here(name), spread, builds)


NEEDS = [
    _tool("cc", "the build: links every program", builds=True, apt_get="gcc libc6-dev", dnf="gcc glibc-devel",
          pacman="gcc", zypper="gcc glibc-devel"),
    Need("python venv", "the Python package's tests", venv_is_here, {"apt-get": ("python3-venv",)}),
    _tool("valgrind", "cli recording: records a real program", apt_get="valgrind", dnf="valgrind", pacman="valgrind",
          zypper="valgrind"),
    _tool("pqos", "cli third_party: Intel's tool on the virtual host", apt_get="intel-cmt-cat", dnf="intel-cmt-cat",
          zypper="intel-cmt-cat"),
    _tool("qemu-x86_64", "cli third_party: pqos on a CPU of another maker", apt_get="qemu-user", dnf="qemu-user",
          pacman="qemu-user", zypper="qemu-linux-user"),
    _tool("rdmsr", "cli third_party: MSRs of the virtual host", apt_get="msr-tools", dnf="msr-tools",
          pacman="msr-tools", zypper="msr-tools"),
    _tool("wrmsr", "cli third_party: MSRs of the virtual host", apt_get="msr-tools", dnf="msr-tools",
          pacman="msr-tools", zypper="msr-tools"),
    _tool("cpuid", "cli third_party: CPUID of the virtual host", apt_get="cpuid", dnf="cpuid", pacman="cpuid",
          zypper="cpuid"),
    _tool("lspci", "cli third_party: PCI of the virtual host", apt_get="pciutils", dnf="pciutils", pacman="pciutils",
          zypper="pciutils"),
    _tool("setpci", "cli third_party: PCI of the virtual host", apt_get="pciutils", dnf="pciutils", pacman="pciutils",
          zypper="pciutils"),
    _tool("script", "cli daemon_client: a status on a terminal", apt_get="bsdutils", dnf="util-linux-script",
          pacman="util-linux", zypper="util-linux"),
    _tool("lsblk", "cli third_party: disks of the virtual host", apt_get="util-linux", dnf="util-linux",
          pacman="util-linux", zypper="util-linux"),
    Need("rdt", "cli third_party: goresctrl on the virtual host", rdt_is_here,
         {"apt-get": ("golang-go",), "dnf": ("golang",), "pacman": ("go",), "zypper": ("go",)}),
    _tool("fio", "load jobs: the same job files in fio", apt_get="fio", dnf="fio", pacman="fio", zypper="fio"),
    _tool("promtool", "service edge: judges the metrics", apt_get="prometheus", dnf="golang-github-prometheus",
          pacman="prometheus", zypper="golang-github-prometheus-prometheus"),
    _tool("prometheus", "service edge: scrapes the metrics", apt_get="prometheus", dnf="golang-github-prometheus",
          pacman="prometheus", zypper="golang-github-prometheus-prometheus"),
    _tool("chromium", "python test_web: the web page in a browser", apt_get="chromium", dnf="chromium", pacman="chromium",
          zypper="chromium"),
    _tool("strace", "cli killed: kills the daemon at each of its system calls", apt_get="strace", dnf="strace",
          pacman="strace", zypper="strace"),
    _tool("tmux", "cli top: a terminal that is typed into and read", apt_get="tmux", dnf="tmux", pacman="tmux",
          zypper="tmux"),
    _tool("setpriv", "cli sandbox, linux faults: other users and capabilities", apt_get="util-linux", dnf="util-linux",
          pacman="util-linux", zypper="util-linux"),
    _tool("systemd-analyze", "cli sandbox: the unit's system call filter", apt_get="systemd", dnf="systemd",
          pacman="systemd", zypper="systemd"),
    _tool("perl", "linux faults: a program that holds a lock", apt_get="perl-base", dnf="perl-interpreter",
          pacman="perl", zypper="perl-base"),
    _tool("script", "cli demo: on a terminal", apt_get="bsdutils", dnf="util-linux", pacman="util-linux",
          zypper="util-linux"),
    _tool("kill", "tests that end a program by a signal", apt_get="procps", dnf="util-linux", pacman="util-linux",
          zypper="util-linux"),
    _tool("slurmctld", "fleet sweeps: a real Slurm", apt_get="slurmctld"),
    _tool("slurmd", "fleet sweeps: a real Slurm", apt_get="slurmd"),
    _tool("sbatch", "fleet sweeps: a real Slurm", apt_get="slurm-client"),
    _tool("munged", "fleet sweeps: a real Slurm", apt_get="munge"),
    Need("root", "tests that mount, change users or open MSRs", is_root, {}),
    Need("/dev/fuse", "tests on the virtual host", fuse_is_here, {}),
    Need("perf_event_open", "linux perf: counts events", perf_is_here, {}),
    Need("user namespaces", "vhost enter, cli demo: an ordinary user", user_namespaces_are_here, {}),
    Need("control groups", "linux census: processes in groups of this machine", groups_are_here, {}),
    Need("locked memory", "memload runs: several rings of io_uring", memory_may_be_locked, {}),
    Need("2 CPUs", "linux census: a program with a core of its own", lambda: (os.cpu_count() or 1) >= 2, {}),
]  # fmt: skip
"""Every requirement of `make test`, in the order of the table."""

INSTALL_COMMANDS = {
    # Another apt, such as a nightly upgrade, may hold the lock for a while.
    "apt-get": ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", "install", "-y", "--no-install-recommends"],
    "dnf": ["dnf", "install", "-y"],
    "pacman": ["pacman", "-S", "--needed"],
    "zypper": ["zypper", "install", "-y"],
}
"""How each known package manager installs. Only apt-get is run; for the others the command is printed."""

INSTALL_SECONDS = 900
"""Longest that apt-get or go may take over a slow line."""


def package_manager() -> str | None:
    """The first known package manager in PATH."""
    return next((name for name in INSTALL_COMMANDS if command_is_here(name)()), None)


def missing() -> list[Need]:
    """The needs that are not met now."""
    return [need for need in NEEDS if not need.is_here()]


def packages_of(needs: Iterable[Need], manager: str) -> list[str]:
    """The packages that bring these needs, each once, in the order of the table. rdt needs Go only where Go is missing."""
    names: dict[str, None] = {}
    for need in needs:
        if need.name == "rdt" and command_is_here("go")():
            continue
        names.update(dict.fromkeys(need.packages.get(manager, ())))
    return list(names)


def as_root() -> list[str] | None:
    """What to put before a command that needs root: nothing for root, sudo where it asks no password, else None."""
    if os.geteuid() == 0:
        return []
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], **quiet).returncode == 0:
        return ["sudo", "-n"]
    return None


def table(lacking: list[Need], plan: str) -> str:
    """One line a need: tool, package, which tests need it, `present` or the plan for what is missing."""
    manager = package_manager() or "apt-get"
    rows = [("tool", f"package ({manager})", "needed by", "state")]
    for need in NEEDS:
        packages = " ".join(need.packages.get(manager, ())) or "-"
        if need.name == "rdt":
            packages = f"{packages}, then go install"
        if need not in lacking:
            state = "present"
        elif not need.packages:
            state = "missing"
        else:
            state = plan
        rows.append((need.name, packages, need.used_by, state))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def advice(lacking: list[Need]) -> list[str]:
    """The commands that would bring what is missing, for a person with root to run."""
    manager, lines = package_manager(), []
    if manager is None:
        wanted = ", ".join(packages_of(lacking, "apt-get"))
        if wanted:
            lines.append(f"no known package manager here; Debian's packages are: {wanted}")
    else:
        packages = packages_of(lacking, manager)
        if packages:
            lines.append("as root: " + " ".join([*INSTALL_COMMANDS[manager], *packages]))
        unknown = [need.name for need in lacking if need.packages and manager not in need.packages]
        if unknown:
            lines.append(f"{manager} has no package known to bring: {', '.join(unknown)}; build from source")
    names = [need.name for need in lacking]
    if "rdt" in names:
        lines.append(f"GOBIN=$PWD/target/tools go install {GORESCTRL}")
    if "/dev/fuse" in names:
        lines.append("as root: modprobe fuse (and read and write access to /dev/fuse)")
    if "locked memory" in names:
        lines.append(f"as root: raise the limit of locked memory of this user to {LOCKED_BYTES >> 20} MiB (ulimit -l)")
    if {"root", "perf_event_open", "control groups"} & set(names):
        lines.append("tests that need root's rights: run make test as root, outside of a container")
    return lines


def _say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def _install_packages(lacking: list[Need], root: list[str]) -> None:
    packages = packages_of(lacking, "apt-get")
    if not packages:
        return
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    install = INSTALL_COMMANDS["apt-get"]
    # A package that this release lacks must not keep the others away: one by one if all at once fails.
    attempts = [packages] if len(packages) == 1 else [packages, *([name] for name in packages)]
    for words in (["apt-get", "-q", "update"], *([*install, *attempt] for attempt in attempts)):
        done = subprocess.run([*root, *environment, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=INSTALL_SECONDS)  # fmt: skip
        if done.returncode != 0:
            _say(f"`{' '.join(words)}` ended with {done.returncode}: {done.stdout.strip().splitlines()[-1:]}")
        elif words[-len(packages) :] == packages:
            return


def _install_rdt() -> None:
    go = shutil.which("go", path=search_path())
    if rdt_is_here() or go is None:
        return
    TOOLS.mkdir(parents=True, exist_ok=True)
    # GOTOOLCHAIN=local: the Go that is here builds it and downloads no other Go.
    environment = {**os.environ, "GOBIN": str(TOOLS), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    done = subprocess.run([go, "install", GORESCTRL], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=INSTALL_SECONDS)  # fmt: skip
    if done.returncode != 0:
        _say(f"go install {GORESCTRL} ended with {done.returncode}: {done.stderr.strip()[-300:]}")


def install(lacking: list[Need], root: list[str] | None) -> None:
    """Installs what can be installed. What could not be is said, and is still missing afterwards."""
    try:
        if root is not None and command_is_here("apt-get")():
            _install_packages(lacking, root)
        if root is not None and not Path("/dev/fuse").exists() and command_is_here("modprobe")():
            subprocess.run([*root, "modprobe", "fuse"], stderr=subprocess.DEVNULL)
        if any(need.name == "rdt" for need in lacking):
            _install_rdt()
    except (OSError, subprocess.TimeoutExpired) as error:
        _say(f"installing stopped: {error}")


def can_install(lacking: list[Need]) -> bool:
    """Whether `install` can bring any of these here: by apt-get or modprobe as root, or, for rdt, by Go."""
    names = {need.name for need in lacking}
    if "rdt" in names and command_is_here("go")():
        return True
    return as_root() is not None and (
        (any(need.packages for need in lacking) and command_is_here("apt-get")())
        or ("/dev/fuse" in names and not Path("/dev/fuse").exists() and command_is_here("modprobe")())
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install what is missing (Debian packages, goresctrl)")
    arguments = parser.parse_args()
    if arguments.install:
        install(missing(), as_root())
    lacking = missing()
    print(table(lacking, "missing"))
    for line in advice(lacking):
        print(f"  {line}")
    return MISSING_STATUS if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
