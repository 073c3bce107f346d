"""The file system of a guest: busybox, a first process, and whatever files it is given.

It knows where a kernel looks for things at its start. It must not know what the files are for.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from guests import initramfs

FOLDERS = ("bin", "dev", "proc", "sys", "tmp", "run")


def image(busybox: bytes, init: str, files: dict[str, bytes]) -> bytes:
    """An initramfs with the script `init` as first process; `files` by path, all of them executable."""
    folders = set(FOLDERS)
    for path in files:
        folders |= {str(parent).lstrip("/") for parent in PurePosixPath(path).parents if parent.name}
    entries = [
        # A folder sorts before what is in it.
        *(initramfs.folder(path) for path in sorted(folders)),
        initramfs.file("bin/busybox", busybox, 0o755),
        initramfs.link("bin/sh", "busybox"),
        # The first process wants it before /dev is there.
        initramfs.character_device("dev/console", 5, 1),
        initramfs.file("init", init.encode(), 0o755),
    ]
    entries += [initramfs.file(path.lstrip("/"), content, 0o755) for path, content in files.items()]
    return initramfs.archive(entries)
