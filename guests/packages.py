"""Brings Debian's kernels and busybox into the cache, unpacked and without installing them; installs programs that lack.

It knows apt and dpkg. It must not know what the kernels are for.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path

APT_SECONDS = 600
"""Longest that one command of apt may take: some sixty megabytes over a slow line."""


class PackageError(Exception):
    """Something that is needed cannot be had; the message says what to do."""


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
            f"no {command[0]}: the guests' kernels come from Debian's packages, and this runs on Debian only"
        ) from None
    except subprocess.TimeoutExpired:
        raise PackageError(f"{' '.join(command)}: not done after {APT_SECONDS} s") from None
    if done.returncode != 0:
        raise PackageError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def ensure(command: str, package: str) -> Path:
    """The path of a program of this machine, whose package is installed when it is missing and this is root."""
    # The tools of administrators are not in everybody's path.
    path = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin" + os.pathsep + "/sbin"
    if not shutil.which(command, path=path):
        install = ["apt-get", "-q", "install", "-y", "--no-install-recommends", package]
        if os.geteuid() != 0:
            raise PackageError(f"no {command}, and only root can install it: {' '.join(install)}")
        _run("apt-get", "-q", "update")
        _run(*install)
    found = shutil.which(command, path=path)
    if not found:
        raise PackageError(f"no {command}, though {package} is installed")
    return Path(found)


def ensure_qemu() -> str:
    """The version of qemu-system-x86_64, which is installed when it is missing and this is root."""
    return _run(str(ensure("qemu-system-x86_64", "qemu-system-x86")), "--version").splitlines()[0]


def kernel(cache: Path, series: str) -> Path:
    """Folder of the newest cloud kernel of a series ("6.1"), unpacked. What is in the cache is taken, whatever is newer."""
    pattern = rf"linux-image-{re.escape(series)}\.\d.*-cloud-amd64"
    return _unpacked(cache, pattern, f"a kernel {series} (linux-image-{series}.*-cloud-amd64)")


def busybox(cache: Path) -> Path:
    """The static busybox."""
    return _unpacked(cache, "busybox-static", "busybox-static") / "bin/busybox"


def _unpacked(cache: Path, pattern: str, what: str) -> Path:
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
            f"apt offers no {what}: Debian 12 has it in bookworm and bookworm-security; "
            "put these into /etc/apt/sources.list.d and run apt-get update"
        )
    fresh = cache / f".{name}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        _run("apt-get", "-q", "download", name, cwd=fresh)
    except PackageError as error:
        if os.geteuid() != 0:
            raise PackageError(f"{error}; if the lists of packages are old: apt-get update") from None
        _run("apt-get", "-q", "update")
        _run("apt-get", "-q", "download", name, cwd=fresh)
    (deb,) = fresh.glob("*.deb")
    _run("dpkg-deb", "-x", str(deb), str(fresh / "root"))
    # Only a complete folder gets the name under which it is looked for.
    (fresh / "root").rename(cache / name)
    shutil.rmtree(fresh)
    return cache / name


def _offered(pattern: str) -> str | None:
    names = [name for name in _run("apt-cache", "pkgnames").split() if re.fullmatch(pattern, name)]
    names.sort(key=lambda name: _version(Path(name)), reverse=True)
    return next((name for name in names if _downloadable(name)), None)


def _downloadable(name: str) -> bool:
    """Whether apt has a version of it, and not only its name in somebody's dependencies."""
    return re.search(r"^  Candidate: (?!\(none\))", _run("apt-cache", "policy", name), re.MULTILINE) is not None


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def kernel_image(root: Path) -> Path:
    (image,) = (root / "boot").glob("vmlinuz-*")
    return image


def module(root: Path, name: str) -> bytes:
    """A module of the kernel, decompressed: 6.12 has them packed."""
    (path,) = root.glob(f"lib/modules/*/kernel/**/{name}.ko*")
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
