"""Checks of the places that a long call will write, before its work starts. This module must not depend on what is written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ._native import BadInput


def check_folder(name: str, path: str | os.PathLike[str]) -> None:
    """Raises `BadInput` unless `path`, the value of `name`, is a folder or can become one, and can be written."""
    folder = Path(path)
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise BadInput(f"{name} {folder}: {there} is no folder; name another place")
    _try_to_write(name, folder, there)


def check_file(name: str, path: str | os.PathLike[str], *, replace: bool) -> None:
    """Raises `BadInput` unless the file `path`, the value of `name`, can be written; an existing one only with `replace`."""
    file = Path(path)
    if file.is_dir():
        raise BadInput(f"{name} {file}: it is a folder; name a file")
    if not file.parent.is_dir():
        raise BadInput(f"{name} {file}: {file.parent} is no folder; create it, or name another file")
    if file.exists() and not replace:
        raise BadInput(f"{name} {file}: it exists already; name another file, or give --force")
    _try_to_write(name, file, file.parent)


def _try_to_write(name: str, path: Path, folder: Path) -> None:
    try:
        handle, tried = tempfile.mkstemp(dir=folder, prefix=".waykeeper-")
        os.close(handle)
        os.unlink(tried)
    except OSError as why:
        raise BadInput(f"{name} {path} cannot be written: {why.strerror}") from why
