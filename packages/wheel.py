"""The wheel with the program inside, so that `pip install waykeeper` also brings the command.

maturin builds the extension module; the program is added as a script of the wheel, which installers put beside `python`. This module
must not know how the program is built.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from clients.testbed import tools
from packages import program

MATURIN = "maturin==1.16.0"
WHEEL = "wheel==0.48.0"
"""From PyPI."""


def build(binary: Path, out: Path) -> Path:
    """Writes the wheel into `out`. `binary` is the program for `program.GLIBC`."""
    python = tools.python(*program.ZIG, MATURIN, WHEEL)
    environment = {**program.environment(), "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]])}
    tag = f"manylinux_{program.GLIBC.replace('.', '_')}"
    with tempfile.TemporaryDirectory(dir=program.OUT) as folder:
        fresh = Path(folder)
        words = [python, "-m", "maturin", "build", "--release", "--locked", "--zig", "--compatibility", tag]
        words += ["--out", fresh, "--target-dir", program.OUT / "build-wheel"]
        tools.run(words, folder=program.ROOT / "python", environment=environment)
        (plain,) = fresh.glob("waykeeper-*.whl")
        tools.run([python, "-m", "wheel", "unpack", "--dest", fresh, plain], environment=environment)
        (tree,) = (path for path in fresh.iterdir() if path.is_dir())
        scripts = tree / f"{tree.name}.data/scripts"
        scripts.mkdir(parents=True)
        shutil.copyfile(binary, scripts / "waykeeper")
        (scripts / "waykeeper").chmod(0o755)
        tools.run([python, "-m", "wheel", "pack", "--dest-dir", out, tree], environment=environment)
        return out / plain.name
