"""The file system of a guest: busybox, a first process, and further files.

This module contains the paths that a kernel needs at boot. It must not depend on the purpose of the files.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from guests import initramfs

FOLDERS = ("bin", "dev", "proc", "sys", "tmp", "run")


def image(busybox: bytes, init: str, files: dict[str, bytes]) -> bytes:
    """An initramfs with the script `init` as first process, and with `files` by path, all of them executable."""
    folders = set(FOLDERS)
    for path in files:
        folders |= {str(parent).lstrip("/") for parent in PurePosixPath(path).parents if parent.name}
    entries = [
        # A folder sorts before its content.
        *(initramfs.folder(path) for path in sorted(folders)),
        initramfs.file("bin/busybox", busybox, 0o755),
        initramfs.link("bin/sh", "busybox"),
        # The first process needs it before /dev is mounted.
        initramfs.character_device("dev/console", 5, 1),
        initramfs.file("init", init.encode(), 0o755),
    ]
    entries += [initramfs.file(path.lstrip("/"), content, 0o755) for path, content in files.items()]
    return initramfs.archive(entries)
