"""The programs that run in the guests, with the libraries they need: a guest has none of its own.

They are those that `make test` builds anyway (same profile, same flags), so that after it nothing is left to build. It knows
cargo, the dynamic linker and ELF's tools. It must not know what the programs do.
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
"""Longest that cargo may take: everything from nothing, on a small machine with other work."""

COMMAND = ["cargo", "build", "--workspace", "--locked", "--bins", "--examples", "--message-format", "json"]
"""The whole workspace: building a part of it would unite the libraries' features differently and build them again."""

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
"""As `make build` has it."""


class BuildError(Exception):
    """cargo could not build, or what it built cannot be carried; the tool's messages are in the text."""


@dataclass
class Cargo:
    """What goes into a guest: programs by name, and shared libraries by the absolute path they are looked for at."""

    programs: dict[str, bytes] = field(default_factory=dict)
    libraries: dict[str, bytes] = field(default_factory=dict)


def build(repository: Path, names: list[str], command: list[str] = COMMAND) -> Cargo:
    """Builds the workspace and gives the programs and examples of these names, stripped, with their libraries."""
    # Debug information would be most of a guest's memory, and building it a second build where `make test` had none.
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
    """These programs by their file names, stripped, and every library that the dynamic linker would load for them."""
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
    """The files that a text of ldd names: `NAME => PATH (ADDRESS)`, and for the linker itself `PATH (ADDRESS)`."""
    lost = re.findall(r"^\s*(\S+) => not found", ldd, re.MULTILINE)
    if lost:
        raise BuildError(f"ldd finds no {', '.join(lost)}")
    return re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", ldd, re.MULTILINE)


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=BUILD_SECONDS,
        )  # fmt: skip
    except FileNotFoundError:
        raise BuildError(f"no {command[0]}; cargo comes with https://rustup.rs, the others with Debian's gcc") from None
    except subprocess.TimeoutExpired:
        raise BuildError(f"{' '.join(command)}: not done after {BUILD_SECONDS} s") from None
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}:\n{done.stderr[-8000:]}")
    return done.stdout
