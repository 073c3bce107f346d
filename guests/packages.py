"""Downloads and unpacks Debian's kernels and busybox into the cache without installing them; installs missing programs.

This module uses apt and dpkg. It must not depend on the purpose of the kernels.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path

APT_SECONDS = 600
"""Time limit of one apt command: about 60 MB over a slow connection."""


class PackageError(Exception):
    """A required package is not available; the message has the remedy."""


def _run(*command: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=APT_SECONDS,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        )
    except FileNotFoundError:
        raise PackageError(
            f"no {command[0]}: the guests' kernels are Debian packages, so these tests run on Debian only"
        ) from None
    except subprocess.TimeoutExpired:
        raise PackageError(f"{' '.join(command)}: not finished after {APT_SECONDS} s") from None
    if done.returncode != 0:
        raise PackageError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def ensure(command: str, package: str) -> Path:
    """The path of a program of this machine. If it is missing, root installs its package."""
    # Administration tools are not in every user's path.
    path = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin" + os.pathsep + "/sbin"
    if not shutil.which(command, path=path):
        install = ["apt-get", "-q", "install", "-y", "--no-install-recommends", package]
        if os.geteuid() != 0:
            raise PackageError(f"no {command}; install it as root: {' '.join(install)}")
        _run("apt-get", "-q", "update")
        _run(*install)
    found = shutil.which(command, path=path)
    if not found:
        raise PackageError(f"no {command} although {package} is installed")
    return Path(found)


def ensure_qemu() -> str:
    """The version of qemu-system-x86_64. If it is missing, root installs it."""
    return _run(str(ensure("qemu-system-x86_64", "qemu-system-x86")), "--version").splitlines()[0]


def kernel(cache: Path, series: str) -> Path:
    """Folder of the unpacked cloud kernel of a series ("6.1"): the newest one in the cache, else the newest one of apt."""
    pattern = rf"linux-image-{re.escape(series)}\.\d.*-cloud-amd64"
    return unpacked(cache, pattern, f"a kernel {series} (linux-image-{series}.*-cloud-amd64)")


def busybox(cache: Path) -> Path:
    """The path of the static busybox."""
    return unpacked(cache, "busybox-static", "busybox-static") / "bin/busybox"


def unpacked(cache: Path, pattern: str, what: str) -> Path:
    """Folder of the unpacked package whose name matches a pattern: the newest one in the cache, else the newest one of apt."""
    cache.mkdir(parents=True, exist_ok=True)
    here = [path for path in cache.iterdir() if re.fullmatch(pattern, path.name)]
    if here:
        return max(here, key=_version)
    name = _offered(pattern)
    if name is None and os.geteuid() == 0:
        _run("apt-get", "-q", "update")
        name = _offered(pattern)
    if name is None:
        raise PackageError(
            f"apt has no {what}; it is in bookworm and bookworm-security of Debian 12: "
            "add these to /etc/apt/sources.list.d and run apt-get update"
        )
    fresh = cache / f".{name}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        _run("apt-get", "-q", "download", name, cwd=fresh)
    except PackageError as error:
        if os.geteuid() != 0:
            raise PackageError(f"{error}; if the package lists are old, run apt-get update as root") from None
        _run("apt-get", "-q", "update")
        _run("apt-get", "-q", "download", name, cwd=fresh)
    (deb,) = fresh.glob("*.deb")
    _run("dpkg-deb", "-x", str(deb), str(fresh / "root"))
    # Only a complete folder gets its final name.
    (fresh / "root").rename(cache / name)
    shutil.rmtree(fresh)
    return cache / name


def _offered(pattern: str) -> str | None:
    names = [name for name in _run("apt-cache", "pkgnames").split() if re.fullmatch(pattern, name)]
    names.sort(key=lambda name: _version(Path(name)), reverse=True)
    return next((name for name in names if _downloadable(name)), None)


def _downloadable(name: str) -> bool:
    """Whether apt has a version of the package, not only its name in the dependencies of another one."""
    return re.search(r"^  Candidate: (?!\(none\))", _run("apt-cache", "policy", name), re.MULTILINE) is not None


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def kernel_image(root: Path) -> Path:
    (image,) = (root / "boot").glob("vmlinuz-*")
    return image


def module(root: Path, name: str) -> bytes:
    """A kernel module, decompressed: those of 6.12 are compressed."""
    (path,) = root.glob(f"lib/modules/*/kernel/**/{name}.ko*")
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
