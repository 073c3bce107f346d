"""Builds the programs that run in the guests: linked statically, since a guest has no libraries.

It knows cargo. It must not know what the programs do.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TARGET = "x86_64-unknown-linux-gnu"
"""The usual target, named so that the flags below do not reach build scripts and procedural macros."""

BUILD_SECONDS = 1800
"""Longest that cargo may take: everything from nothing, on a small machine with other work."""


class BuildError(Exception):
    """cargo could not build; its messages are in the text."""


def build(repository: Path, folder: Path, arguments: list[str]) -> Path:
    """Runs `cargo build ARGUMENTS` with FOLDER as target folder; gives the folder of the programs."""
    command = ["cargo", "build", "--locked", "--target", TARGET, "--target-dir", str(folder), *arguments]
    environment = {
        **os.environ,
        # In the place of what .cargo/config.toml says: static, and for any x86-64, since QEMU emulates the processor.
        "RUSTFLAGS": "-C target-feature=+crt-static",
        # Little to optimise: the programs wait for the emulated kernel.
        "CARGO_PROFILE_DEV_OPT_LEVEL": "0",
        "CARGO_PROFILE_DEV_DEBUG": "0",
    }
    try:
        done = subprocess.run(
            command, cwd=repository, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=BUILD_SECONDS,
        )  # fmt: skip
    except FileNotFoundError:
        raise BuildError("no cargo; install Rust with https://rustup.rs") from None
    except subprocess.TimeoutExpired:
        raise BuildError(f"{' '.join(command)}: not done after {BUILD_SECONDS} s") from None
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}:\n{done.stderr[-8000:]}")
    return folder / TARGET / "debug"
