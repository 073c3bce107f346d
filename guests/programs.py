"""The programs that run in the guests, with the libraries that they need: a guest has no libraries of its own.

They are the programs that `make test` builds (same profile, same flags), so that after it nothing needs to be built. This module
uses cargo, the dynamic linker and binutils. It must not depend on what the programs do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

BUILD_SECONDS = 1800
"""Time limit of cargo: a build from scratch on a small, busy machine."""

COMMAND = ["cargo", "build", "--workspace", "--locked", "--bins", "--examples", "--message-format", "json"]
"""The whole workspace: building a part of it would unify the libraries' features differently and build them again."""

RELEASE = [
    "cargo",
    "build",
    "--release",
    "--package",
    "waykeeper-cli",
    "--locked",
    "--bins",
    "--message-format",
    "json",
]
"""The same command as in `make build`."""


class BuildError(Exception):
    """cargo failed, or its programs cannot be copied into a guest; the message has the tool's output."""


@dataclass
class Cargo:
    """Files for a guest: programs by name, and shared libraries by the absolute path at which the linker searches them."""

    programs: dict[str, bytes] = field(default_factory=dict)
    libraries: dict[str, bytes] = field(default_factory=dict)


def build(repository: Path, names: list[str], command: list[str] = COMMAND) -> Cargo:
    """Builds the workspace; returns the programs and examples of these names, stripped, with their libraries."""
    # Debug information would fill a guest's memory, and would need a second build because `make test` builds without it.
    environment = {"CARGO_PROFILE_DEV_DEBUG": "none", "CARGO_PROFILE_TEST_DEBUG": "none", **os.environ}
    output = _run(command, repository, environment)
    found = {}
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            found[message["target"]["name"]] = Path(message["executable"])
    missing = [name for name in names if name not in found]
    if missing:
        raise BuildError(f"the workspace has no program {', '.join(missing)}")
    return carry([found[name] for name in names])


def carry(paths: list[Path]) -> Cargo:
    """These programs by file name, stripped, and all libraries that the dynamic linker would load for them."""
    cargo = Cargo()
    with tempfile.TemporaryDirectory(prefix="guests-") as folder:
        for path in paths:
            small = Path(folder) / path.name
            _run(["strip", "-o", str(small), str(path)], Path("/"), dict(os.environ))
            cargo.programs[path.name] = small.read_bytes()
            for library in libraries(_run(["ldd", str(path)], Path("/"), dict(os.environ))):
                cargo.libraries.setdefault(library, Path(library).read_bytes())
    return cargo


def libraries(ldd: str) -> list[str]:
    """The files in the output of ldd: `NAME => PATH (ADDRESS)`, and for the linker itself `PATH (ADDRESS)`."""
    lost = re.findall(r"^\s*(\S+) => not found", ldd, re.MULTILINE)
    if lost:
        raise BuildError(f"ldd does not find {', '.join(lost)}")
    return re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", ldd, re.MULTILINE)


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=BUILD_SECONDS,
        )  # fmt: skip
    except FileNotFoundError:
        raise BuildError(
            f"no {command[0]}; install cargo from https://rustup.rs, strip and ldd with Debian's gcc"
        ) from None
    except subprocess.TimeoutExpired:
        raise BuildError(f"{' '.join(command)}: not finished after {BUILD_SECONDS} s") from None
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}:\n{done.stderr[-8000:]}")
    return done.stdout
