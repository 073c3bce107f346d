"""The files that calls write: their places are checked before long work starts. This module must not depend on what is written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from . import _native
from ._native import BadInput


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a file, whole or not at all.

    An existing file is replaced, a link is followed, a pipe or a device is written through. Raises `OSError` if it cannot be
    written; what had the name then stays.
    """
    try:
        _native.write_output(_beside(path), content.encode() if isinstance(content, str) else content)
    except OSError as why:
        raise type(why)(f"{os.fspath(path)} cannot be written: {why}") from why


def _beside(path: str | os.PathLike[str]) -> str:
    """The path of a file, also of one that is named `-`, which is standard output on a command line."""
    return os.path.join(os.curdir, path)


def check_folder(name: str, path: str | os.PathLike[str]) -> None:
    """Raises `BadInput` unless `path`, the value of `name`, is a folder or can become one, and can be written."""
    folder = Path(path)
    there = folder
    # A link to a folder that does not exist is there.
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise BadInput(f"{name} {folder}: {there} is no folder; name another place")
    try:
        handle, tried = tempfile.mkstemp(dir=there, prefix=".waykeeper-")
        os.close(handle)
        os.unlink(tried)
    except OSError as why:
        raise BadInput(f"{name} {folder} cannot be written: {why.strerror}") from why


def check_file(name: str, path: str | os.PathLike[str], *, replace: bool) -> None:
    """Raises `BadInput` unless the file `path`, the value of `name`, can be written; an existing one only with `replace`."""
    file = Path(path)
    if not file.parent.is_dir():
        raise BadInput(f"{name} {file}: {file.parent} is no folder; create it, or name another file")
    try:
        _native.check_output(_beside(file), replace)
    except FileExistsError as why:
        raise BadInput(f"{name} {file}: it exists already; name another file, or give --force") from why
    except OSError as why:
        raise BadInput(f"{name} {file} cannot be written: {why}") from why
