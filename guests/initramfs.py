"""Writes an initramfs in the "newc" format of cpio, which the kernel unpacks (Documentation/driver-api/early-userspace/buffer-format.rst).

This module must not depend on the purpose of the files.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One file of the archive. `content` is the content of a file or the target of a link; `device` is major and minor."""

    path: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def folder(path: str) -> Entry:
    return Entry(path, stat.S_IFDIR | 0o755)


def file(path: str, content: bytes, mode: int = 0o644) -> Entry:
    return Entry(path, stat.S_IFREG | mode, content)


def link(path: str, target: str) -> Entry:
    return Entry(path, stat.S_IFLNK | 0o777, target.encode())


def character_device(path: str, major: int, minor: int) -> Entry:
    return Entry(path, stat.S_IFCHR | 0o600, b"", (major, minor))


def archive(entries: list[Entry]) -> bytes:
    """The archive; all files belong to root and have time 0. A folder must precede its content."""
    parts = [_record(number, entry) for number, entry in enumerate(entries, start=1)]
    parts.append(_record(0, Entry("TRAILER!!!", 0)))
    return b"".join(parts)


def _record(number: int, entry: Entry) -> bytes:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (
        number, entry.mode, 0, 0, links, 0, len(entry.content),
        0, 0, *entry.device, len(name), 0,
    )  # fmt: skip
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + name
    return _padded(head) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
