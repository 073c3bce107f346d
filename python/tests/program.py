"""The program `waykeeper` that the build of the tests made, for tests that run it.

A test module that has `PROGRAM`, `Served` of web_server.py or a fixture `served` is marked `program` (conftest.py): `make test`
runs these again when the program is another one.
"""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "target/debug/waykeeper"

needs_program = pytest.mark.skipif(not PROGRAM.is_file(), reason="needs the full program (cargo build)")
