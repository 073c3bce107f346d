"""Which test programs have passed with the very files that they would meet again, so that a second `make test` runs only others.

A program's files are its executable, everything in its package's folder, and every file of the tree that is no Rust source: that
covers whatever a test reads while it runs. Programs whose tests read the Rust sources of others are named by the caller. git says
which files belong to the tree; where there is no git, every program is new each time. What the machine has (tools, rights,
kernel) counts as well. It must not know any test.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path


def digest_of(parts: Iterable[bytes]) -> str:
    """One SHA-256 of several byte strings, each with its length before it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def file_digest(path: Path) -> bytes:
    """SHA-256 of a file, of a link's target, or of nothing where the file has gone."""
    try:
        if path.is_symlink():
            return os.readlink(path).encode()
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while chunk := file.read(1 << 20):
                digest.update(chunk)
            return digest.digest()
    except FileNotFoundError:
        return b""


class Passed:
    """What has passed before, in a file; and the digests of the tree at the time that this was made."""

    def __init__(self, root: Path, kept: Path, machine: Iterable[str]) -> None:
        """`machine`: what else decides about a result, such as the tools that are missing."""
        self.kept, self.writing = kept, threading.Lock()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        names = sorted(set(listed.stdout.split(b"\0")) - {b""}) if listed.returncode == 0 else []
        self.files = {name.decode(errors="surrogateescape"): file_digest(root / os.fsdecode(name)) for name in names}
        self.root = root
        variables = [
            f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(("TEST_", "WAYKEEPER_"))
        ]
        self.machine = digest_of(
            part.encode() for part in [platform.release(), str(os.geteuid()), *sorted(machine), *variables]
        )
        try:
            self.keys: dict[str, str] = json.loads(kept.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.keys = {}

    def key(self, made: Iterable[Path], folder: Path | None) -> str | None:
        """Of what was built (`made`) and of the tree, with the Rust sources of `folder` alone, or all for None. None without git."""
        if not self.files:
            return None
        own = f"{folder.relative_to(self.root)}/" if folder else ""
        tree = [
            name.encode(errors="surrogateescape") + b"\0" + digest
            for name, digest in self.files.items()
            if not name.endswith(".rs") or name.startswith(own)
        ]
        return digest_of([self.machine.encode(), *map(file_digest, made), *tree])

    def has(self, name: str, key: str | None) -> bool:
        """Whether `name` passed with this key the last time that it ran."""
        return key is not None and self.keys.get(name) == key

    def note(self, name: str, key: str | None) -> None:
        """Keeps that `name` passed with this key, or with None that it did not. Threads may call it at a time."""
        with self.writing:
            if key is None:
                self.keys.pop(name, None)
            else:
                self.keys[name] = key
            self.kept.parent.mkdir(exist_ok=True)
            new = self.kept.with_suffix(".new")
            new.write_text(json.dumps(self.keys, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            new.replace(self.kept)
