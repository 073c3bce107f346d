"""The RPM, by cargo-generate-rpm; its content is declared in crates/cli/Cargo.toml, its scripts are in dist/rpm.

This module must not know how the program is built.
"""

from __future__ import annotations

from pathlib import Path

from clients.testbed import tools
from packages import program

CARGO_GENERATE_RPM = "0.21.1"
"""The release of cargo-generate-rpm, from crates.io."""


def build(stage: Path, out: Path, release: str = "1") -> Path:
    """Writes the package into `out`, with a release. Its bytes depend on the stage and on the time of the commit only."""
    assert stage == program.STAGE, "crates/cli/Cargo.toml names the stage"
    generate = tools.cargo_program("cargo-generate-rpm", CARGO_GENERATE_RPM)
    before = {"SOURCE_DATE_EPOCH": program.moment(), "PATH": tools.search_path()}
    words = [generate, "-p", "crates/cli", "--output", out, "--source-date", program.moment(), "--auto-req", "builtin"]
    words += ["--set-metadata", f'release = "{release}"']
    tools.run(words, folder=program.ROOT, environment=before)
    return out / f"waykeeper-{program.version()}-{release}.x86_64.rpm"
