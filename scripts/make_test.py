"""All of `make test`: sets up, builds, tests, and says what was not run.

First one table shows what the tests need and what this machine has (`tools.py`). What is missing is installed while the build
runs: Debian packages with apt-get, goresctrl with Go. `SETUP=no` declines. Without root or on another distribution the
command for it is printed instead. Everything that can run then runs; tests that lack a requirement are listed at the end, by
name. The phases overlap, so that no core is idle: Rust's tests and Python's begin while cargo builds the rest. What
has passed with the same files is not run again (`passed.py`), unless `AGAIN=yes`. It must not know any single test.

    python3 scripts/make_test.py
    SETUP=no python3 scripts/make_test.py
    AGAIN=yes python3 scripts/make_test.py

Exit status: 0 everything passed; 1 a check, the build or a test failed; 3 everything that ran passed, but some tests were not
run. `make` shows the number (`Error 3`) and itself ends with 2 for any error.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import run_tests
import tools
from passed import Passed

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / "target/venv"
WHEELS = ROOT / "target/wheels"

T = TypeVar("T")


class Failed(Exception):
    """A phase failed; its output is on the terminal."""


@dataclass
class Phases:
    """When each phase began and how long it took, what failed or was not run, and the slowest tests, for the last lines."""

    seconds: list[tuple[float, float, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    slowest: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def run(self, name: str, work: Callable[[], T]) -> T | None:
        """Runs one phase and keeps its time. A phase that fails leaves the others to go on, and gives nothing."""
        say(f"== {name}")
        began = time.monotonic()
        try:
            return work()
        except Failed as error:
            self.failed.append(f"{name}: {error}")
            return None
        finally:
            self.seconds.append((began - self.began, time.monotonic() - began, name))


@dataclass(frozen=True)
class Machine:
    """What this machine lacks once everything is installed that can be, and what has passed on it; None: everything runs."""

    missing: set[str]
    passed: Passed | None


def say(text: str) -> None:
    """A line on standard output, at once: the programs that run write there too."""
    print(text, flush=True)


def must(*command: str | Path, cwd: Path = ROOT, quiet: bool = False, whole: bool = False) -> None:
    """Runs a command on this terminal. Raises Failed if it does not end with 0.

    `quiet`: its output is shown only when it fails. `whole`: its output is shown when it has ended, not among that of others.
    """
    words = [str(word) for word in command]
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} if quiet or whole else {}
    done = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, **kept)
    if whole or (quiet and done.returncode != 0):
        say(done.stdout)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(words)}` ended with {done.returncode}")


def pack_wheel(extension: Path) -> None:
    """Packs the wheel around the extension that the build of the tests made; maturin writes only its metadata. Raises Failed."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    content = WHEELS / "content"
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "python/waykeeper", content / "waykeeper", ignore=left_out)
    shutil.copyfile(extension, content / "waykeeper/_native.abi3.so")
    python = VENV / "bin/python"
    must(VENV / "bin/maturin", "pep517", "write-dist-info", "--metadata-directory", content,
         "--interpreter", python, cwd=ROOT / "python", quiet=True)  # fmt: skip
    must(python, "-m", "wheel", "pack", content, "--dest-dir", WHEELS, quiet=True)
    shutil.rmtree(content)


def environment_for_python(installing: concurrent.futures.Future[None] | None) -> str | None:
    """A fresh virtual environment with what the Python tests need besides the wheel, made once `installing` is done.

    Returns why it could not be made.
    """
    if installing is not None:
        installing.result()
    if not tools.venv_is_here():
        return "needs python venv"
    try:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], **quiet)
        if made.returncode != 0:
            return f"python venv: {made.stdout.strip()[-300:]}"
        pip = [str(VENV / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        # The names come from the package itself, so that they are written down once.
        listed = subprocess.run([str(VENV / "bin/python"), str(ROOT / "scripts/python_needs.py")], **quiet)
        if listed.returncode != 0:
            return f"python needs: {listed.stdout.strip()[-300:]}"
        needs = listed.stdout.split("\n")[:-1]
        # uv takes a tenth of pip's time, but does not read pip's configuration: where that names a mirror, pip may be the one that works.
        with_uv = [str(VENV / "bin/uv"), "pip", "install", "--quiet", "--python", str(VENV / "bin/python")]
        subprocess.run([*pip, "uv"], **quiet)
        if (VENV / "bin/uv").exists() and subprocess.run([*with_uv, *needs], **quiet).returncode == 0:
            return None
        fetched = subprocess.run([*pip, *needs], **quiet)
        return None if fetched.returncode == 0 else f"pip: {fetched.stdout.strip()[-300:]}"
    except OSError as error:
        return str(error)


def install_wheel() -> None:
    """Installs the packed wheel into the environment of the tests."""
    must(VENV / "bin/pip", "install", "--quiet", "--no-deps", "--force-reinstall", *WHEELS.glob("waykeeper-*.whl"))


def pytest_arguments(long: bool, program: bool = False) -> list[str]:
    """What pytest is called with: as many processes as cores, and the seconds of the slowest tests.

    `program`: only tests that run the program `waykeeper`, which python/tests/conftest.py marks.
    """
    words = ([] if long else ["not long"]) + (["program"] if program else [])
    chosen = ["-m", " and ".join(words)] if words else []
    processes = str(os.cpu_count() or 1)
    return ["-c", "python/pyproject.toml", "--numprocesses", processes, "--durations", "10", *chosen, "python/tests"]


def python_tests(products: run_tests.Products, long: bool, passed: Passed | None) -> None:
    """The Python package's tests on a wheel in the fresh environment; with `passed`, those that have not passed as they are."""
    names = [
        f"python/tests{' of the program' if program else ''}{' --long' if long else ''}" for program in (False, True)
    ]
    keys: list[str | None] = [None, None]
    if passed is not None:
        sources = ROOT / "python"
        both = [products.extension, products.waykeeper]
        keys = [passed.key([products.extension], sources), passed.key(both, sources)]
    known = [passed is not None and passed.has(name, key) for name, key in zip(names, keys)]
    if all(known):
        say("python/tests have passed as they are, and are not run again")
        return
    if known[0]:
        say("python/tests: those that do not run the program have passed as they are, and are not run again")
    pack_wheel(products.extension)
    install_wheel()
    must(VENV / "bin/pytest", *pytest_arguments(long, program=known[0]), whole=True)
    if passed is not None:
        for name, key in zip(names, keys):
            passed.note(name, key)


def script_tests() -> None:
    """The own tests of the scripts, and of the harnesses that take long themselves (`make test-fleet` and others)."""
    must(sys.executable, "-m", "unittest", "discover", "--quiet", "--start-directory", "scripts")
    for harness in ("clients", "fleet", "fuzz", "packages"):
        words = ["--quiet", "--start-directory", f"{harness}/tests", "--top-level-directory", "."]
        must(sys.executable, "-m", "unittest", "discover", *words)


def fleet_checks() -> None:
    """The short form of `make test-fleet` with the wheel, without parts whose programs would have to be built. Raises Failed.

    What is left out is said, and is no test that was not run: `make test-fleet` is where all of it runs.
    """
    if tools.is_root() and tools.fuse_is_here():
        program = f"WAYKEEPER={ROOT / 'target/debug/waykeeper'}"
        (wheel,) = WHEELS.glob("waykeeper-*.whl")
        must("env", program, f"WAYKEEPER_WHEEL={wheel}", sys.executable, "-m", "fleet.run", "--quick", "--cached")
    else:
        say("left out: it needs root and /dev/fuse")


def set_up(pool: concurrent.futures.Executor, wanted: bool) -> concurrent.futures.Future[None] | None:
    """Shows the table and begins to install. What the build needs is installed before this returns."""
    lacking = tools.missing()
    installs = wanted and tools.can_install(lacking)
    say(tools.table(lacking, "to be installed" if installs else "missing"))
    if not installs:
        for line in tools.advice(lacking):
            say(f"  {line}")
        if lacking and not wanted:
            say("  SETUP=no: nothing is installed")
        return None
    root = tools.as_root()
    first, rest = [need for need in lacking if need.builds], [need for need in lacking if not need.builds]
    if first:
        say(f"== installing what the build needs: {', '.join(need.name for need in first)}")
        tools.install(first, root)
    return pool.submit(tools.install, rest, root)


def ready_machine(installing: concurrent.futures.Future[None] | None, again: bool) -> Machine:
    """The machine once `installing` is done."""
    if installing is not None:
        installing.result()
        left = [need.name for need in tools.missing() if need.packages]
        say(f"setup: still missing: {', '.join(left)}" if left else "setup: everything is installed")
    missing = {need.name for need in tools.missing()}
    return Machine(missing, None if again else Passed(ROOT, run_tests.KEPT, missing))


def whole(cargo: str, wanted: bool, long: bool, again: bool, phases: Phases) -> None:
    """Every phase: tests from the time that what they run is built, the short ones once all is. Raises Failed without a compiler."""
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        installing = set_up(pool, wanted)
        if not shutil.which(cargo, path=os.environ["PATH"]):
            raise Failed("no cargo; install Rust with https://rustup.rs")
        if not tools.command_is_here("cc")():
            raise Failed("no C compiler (cc); install gcc and the headers of the C library")
        fetching = pool.submit(environment_for_python, installing)
        ready = pool.submit(ready_machine, installing, again)
        queue = run_tests.Queue()
        testing = pool.submit(phases.run, "tests", lambda: rust_tests(queue, ready.result(), long, phases))
        python: list[concurrent.futures.Future[None]] = []

        def made(products: run_tests.Products) -> None:
            """Python's tests wait for browsers, and take longer than what is left of Rust's after the build."""
            python.append(pool.submit(python_package, products, long, fetching, ready, phases))

        built = None
        try:
            built = phases.run("build of the tests", lambda: build(cargo, queue.put, made))
        finally:
            # What is wrong with the build is the last to be read, not what tests of the other crates say.
            queue.close(keeps=built is not None)
        if built is None:
            return
        # They wait for the linker and for processes, so they run beside the others.
        short = pool.submit(short_tests, cargo, phases)
        for one in [*python, short, testing]:
            one.result()
        if long:
            phases.run("short form of make test-fleet", fleet_checks)


def python_package(
    products: run_tests.Products,
    long: bool,
    fetching: concurrent.futures.Future[str | None],
    ready: concurrent.futures.Future[Machine],
    phases: Phases,
) -> None:
    """The Python package's tests, once their environment is `fetching` no more and the machine is `ready`."""
    why = fetching.result()
    if why is None:
        phases.run("Python package", lambda: python_tests(products, long, ready.result().passed))
    else:
        phases.not_run.append(f"all of python/tests: {why}")


def short_tests(cargo: str, phases: Phases) -> None:
    """What takes seconds: the examples in the documentation and the tests of the scripts."""
    phases.run("examples in the documentation", lambda: must_be_zero(run_tests.examples(cargo)))
    phases.run("tests of the scripts", script_tests)


def only_python(cargo: str, long: bool, phases: Phases) -> None:
    """The Python package alone, all of its tests. Raises Failed if they cannot run."""
    why = environment_for_python(None)
    if why is not None:
        raise Failed(f"python/tests cannot run: {why}")
    built = build(cargo)
    phases.run("Python package", lambda: python_tests(built.products, long, None))


def must_be_zero(status: int) -> None:
    """Raises Failed for another exit status."""
    if status != 0:
        raise Failed(f"ended with {status}")


def build(
    cargo: str,
    found: Callable[[run_tests.Program], None] = lambda _: None,
    made: Callable[[run_tests.Products], None] = lambda _: None,
) -> run_tests.Built:
    """The test programs, Waykeeper and the Python extension. Raises Failed if cargo does not build them."""
    try:
        return run_tests.build(cargo, found, made)
    except subprocess.CalledProcessError as error:
        raise Failed(f"the build ended with {error.returncode}") from None


def rust_tests(queue: run_tests.Queue, machine: Machine, long: bool, phases: Phases) -> None:
    """All test programs. Raises Failed if a test failed."""
    summary = run_tests.run_all(queue, run_tests.JOBS, machine.missing, say, long, machine.passed)
    run_tests.keep_times(summary.times)
    phases.slowest = run_tests.slowest(summary.times)
    if run_tests.report(summary, say) == 1:
        raise Failed(f"{len(summary.failed)} tests failed")
    phases.not_run += [f"{name}: needs {why}" for name, why in summary.not_run.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"), help="cargo (default: %(default)s)")
    parser.add_argument(
        "--long", action="store_true", help="every test in its long form, and the tests that only it has (hours)"
    )
    parser.add_argument("--only-python", action="store_true", help="only the Python package, without the set-up")
    arguments = parser.parse_args()
    answers = {name: os.environ.get(name, usual) for name, usual in (("SETUP", "yes"), ("AGAIN", "no"))}
    for name, answer in answers.items():
        if answer not in ("yes", "no"):
            parser.error(f"{name}={answer}: expected yes or no")
    # rustup's shims may not be in the PATH of a shell that is no login shell.
    rustup = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    os.environ["PATH"] = os.pathsep.join([tools.search_path(), str(rustup)])
    phases = Phases()
    try:
        with tools.folder_in_memory():
            if arguments.only_python:
                only_python(arguments.cargo, arguments.long, phases)
            else:
                whole(arguments.cargo, answers["SETUP"] == "yes", arguments.long, answers["AGAIN"] == "yes", phases)
    except Failed as error:
        phases.failed.append(str(error))
    say("== summary")
    if phases.slowest:
        say("\n".join(["slowest tests of all (target/test-times.tsv):", *phases.slowest]))
    for began, seconds, name in sorted(phases.seconds):
        say(f"{seconds:7.1f} s from {began:5.0f} s  {name}")
    say(f"{time.monotonic() - phases.began:7.1f} s  all")
    if phases.failed:
        for line in phases.failed:
            say(f"make test: FAILED: {line}")
        return 1
    if phases.not_run:
        say(f"make test: everything that ran passed; {len(phases.not_run)} not run:")
        for line in phases.not_run:
            say(f"  {line}")
        return tools.MISSING_STATUS
    say("make test: everything passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
