"""Compares the output of `waykeeper doctor --json` in a guest with the recorded one.

This module handles JSON and the differences between Debian kernels. It must not depend on how the output was produced.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path


def normal(text: str) -> str:
    """The output without the kernel's build number, one key per line; then the text on standard error."""
    value, end = json.JSONDecoder().raw_decode(text)
    shown = json.dumps(value, indent=2, ensure_ascii=False) + "\n" + text[end:].lstrip("\n")
    return re.sub(r"\b(6\.\d+)\.\d+[-+\w]*-cloud-amd64", r"\1.N-cloud-amd64", shown)


def differences(path: Path, text: str, status: int, bless: bool) -> str | None:
    """The differences from the file at `path`, whose last line is the exit status; None if there are none."""
    try:
        seen = normal(text.lstrip()) + f"exit status {status}\n"
    except ValueError as error:
        return f"no JSON ({error}), status {status}: {text[-1000:]!r}"
    if bless:
        path.parent.mkdir(exist_ok=True)
        path.write_text(seen)
        return None
    if not path.exists():
        return f"{path} is missing; `python3 -m oracle.run --bless` writes it:\n{seen}"
    wanted = path.read_text()
    if wanted == seen:
        return None
    return "\n".join(difflib.unified_diff(wanted.splitlines(), seen.splitlines(), path.name, "seen", lineterm=""))
