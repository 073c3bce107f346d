"""The Debian package, by cargo-deb; its content is declared in crates/cli/Cargo.toml, its scripts are in dist/deb.

This module must not know how the program is built.
"""

from __future__ import annotations

from pathlib import Path

from clients.testbed import tools
from packages import program

CARGO_DEB = "3.8.0"
"""The release of cargo-deb, from crates.io."""


def build(stage: Path, out: Path, revision: str = "1") -> Path:
    """Writes the package into `out`, with a Debian revision. Its bytes depend on the stage and on the time of the commit only."""
    assert stage == program.STAGE, "crates/cli/Cargo.toml names the stage"
    cargo_deb = tools.cargo_program("cargo-deb", CARGO_DEB)
    before = {"SOURCE_DATE_EPOCH": program.moment(), "PATH": tools.search_path()}
    words = [cargo_deb, "-p", "waykeeper-cli", "--no-build", "--no-strip", "--locked", "--output", out]
    words += ["--deb-revision", revision]
    tools.run(words, folder=program.ROOT, environment=before)
    return out / f"waykeeper_{program.version()}-{revision}_amd64.deb"
