"""Compares what `waykeeper doctor --json` says in a guest with what it is known to have to say.

It knows JSON and what differs from one Debian kernel to the next. It must not know how the answer was got.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path


def normal(text: str) -> str:
    """The answer with the kernel's build number blotted out, one key a line; then what came on standard error."""
    value, end = json.JSONDecoder().raw_decode(text)
    shown = json.dumps(value, indent=2, ensure_ascii=False) + "\n" + text[end:].lstrip("\n")
    return re.sub(r"\b(6\.\d+)\.\d+[-+\w]*-cloud-amd64", r"\1.N-cloud-amd64", shown)


def differences(path: Path, text: str, status: int, bless: bool) -> str | None:
    """What differs from the file at `path`, whose last line is the exit status; None if nothing does."""
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
