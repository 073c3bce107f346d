"""Reads files that a user names, up to a bound on their bytes (docs/limits.md), as `crates/bounded-read` does for Rust.

Must not know what a file contains.
"""

from __future__ import annotations

import os

MOST = 64 << 20
"""Longest text in bytes: a sweep of 10,000 points has 3 MB."""


def text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file; `what` names its kind in the error, for example "a manifest".

    Raises `OSError` if it cannot be read, and `ValueError` if it is not UTF-8 or has more than `MOST` bytes.
    """
    with open(path, "rb") as file:
        return _decoded(file.read(MOST + 1), what)


def _decoded(content: bytes, what: str) -> str:
    if len(content) > MOST:
        raise ValueError(f"{what} has at most {MOST} bytes, this file has more")
    return content.decode("utf-8")
