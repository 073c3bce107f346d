"""Seeds faults into a checkout and says which of them its tests catch: what a change of the tests must not lose.

`seeded_faults.toml` has the faults. One build serves almost all of them: a copy of the checkout gets every fault at once, each
behind a guard that asks, once per process, whether `SEEDED_FAULT` names it. (Not `WAYKEEPER_…`: the daemon reads those.) A
fault in a file that Rust includes is guarded where the text is read. Only entries with `rebuild` are built by themselves. The
tests first run without a fault; what fails then is left out, and said. Then each fault is looked for, first by the tests
of its crate, then by those of crates that depend on it, then by the others, up to the first test that fails. That test runs again
alone, with the fault and without: only if both agree is the fault caught. It must not know any test.

    python3 scripts/seeded_faults.py check                     # does each entry fit, exactly once?
    python3 scripts/seeded_faults.py apply ID; … revert        # one fault, unguarded, in the checkout itself
    python3 scripts/seeded_faults.py run                       # all, with the test programs
    python3 scripts/seeded_faults.py run --tree ../fast --results fast.jsonl --program '^(?!fuzz-targets)'
    python3 scripts/seeded_faults.py run --tree ../fast --command 'make test-fast'
    python3 scripts/seeded_faults.py table now.jsonl fast.jsonl

Results are JSON lines; the same call continues where it stopped. Exit status of `check`: 1 if an entry does not fit.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:
    from pip._vendor import tomli as tomllib

HERE = Path(__file__).resolve().parent
SWITCH, MARK = "SEEDED_FAULT", "SEEDED_RUN"
"""Environment of the tests: the fault to show, and which run a process belongs to."""
NONE = "none"
ITSELF = "the program itself"
Spot = tuple[int, int]


@dataclass(frozen=True)
class Fault:
    """One fault: `old` in `file` is right, `new` is the slip. `within` is a text around `old` where `old` alone is not unique.

    In Rust both are expressions, or statements if `old` ends with `;`; in Python they are expressions. With `rebuild` they are any text.
    For a file that Rust includes, `reader_file` and `reader` name the Rust expression that reads its text.
    """

    id: str
    kind: str
    area: str
    file: str
    old: str
    new: str
    wrong: str
    within: str = ""
    rebuild: bool = False
    reader_file: str = ""
    reader: str = ""
    reader_within: str = ""

    @property
    def crate(self) -> str:
        """The folder of the package whose tests are first to ask."""
        parts = (self.reader_file or self.file).split("/")
        return parts[1] if parts[0] == "crates" else parts[0]


@dataclass(frozen=True)
class Program:
    """Tests that run as one process. `arguments` selects one test or leaves some out, by `alone` and `skip`."""

    package: str
    name: str
    words: list[str]
    folder: Path
    kind: str
    """`libtest`, `pytest`, `unittest` or `command`."""

    def command(self, skip: Iterable[str] = (), alone: str = "") -> list[str]:
        if self.kind == "libtest":
            one = [alone, "--exact"] if alone else []
            left_out = [word for name in sorted(skip) for word in ("--skip", name)]
            return [*self.words, *one, *left_out, *(["--exact"] if left_out and not one else [])]
        if self.kind == "pytest":
            where = [alone] if alone else ["python/tests", *(f"--deselect={name}" for name in sorted(skip))]
            return [*self.words, *(["--numprocesses=0"] if alone else []), *where]
        return self.words


@dataclass
class Ended:
    """How a program ended: its failed tests, none if it passed or was stopped."""

    failed: list[str] = field(default_factory=list)
    tail: str = ""
    stopped: bool = False


def faults(path: Path = HERE / "seeded_faults.toml") -> list[Fault]:
    """All entries. Raises ValueError for two with one id or an `old` that does not change."""
    found = [Fault(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["fault"]]
    for number, fault in enumerate(found):
        if fault.old == fault.new or any(other.id == fault.id for other in found[:number]):
            raise ValueError(f"{path}: {fault.id}: two entries have this id, or `new` is `old`")
    return found


# Where a fault is put, and its guard.


def once(text: str, part: str) -> int | None:
    """Where `part` is in `text`; None unless it is there exactly once."""
    return text.find(part) if part and text.count(part) == 1 else None


def spot(text: str, old: str, within: str = "") -> Spot | None:
    """Begin and end of `old` in `text`, by `within` where that is given; None unless it is there exactly once."""
    around = within or old
    outer, inner = once(text, around), once(around, old)
    return None if outer is None or inner is None else (outer + inner, outer + inner + len(old))


def guarded(fault: Fault, length: int = 0) -> str:
    """The replacement that shows the fault only when the environment names it; `length` is that of an included file in bytes."""
    if fault.file.endswith(".py") and not fault.reader:
        asks = f'__import__("os").environ.get("{SWITCH}") == "{fault.id}"'
        return f"(({fault.new}) if {asks} else ({fault.old}))"
    asks = (
        "{ static SEEDED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| "
        f'std::env::var_os("{SWITCH}").is_some_and(|own| own == "{fault.id}")); *SEEDED }}'
    )
    if fault.reader:
        old, new = (f'r###"{text}"###' for text in (fault.old, fault.new))
        # One reader reads many files: the length and the text tell this one.
        asks = f"text.len() == {length} && text.contains({old}) && {asks}"
        return f"{{ let text: &str = {fault.reader}; if {asks} {{ &*text.replace({old}, {new}).leak() }} else {{ text }} }}"
    both = f"if {asks} {{ {fault.new} }} else {{ {fault.old} }}"
    return both if fault.old.rstrip().endswith(";") else f"({both})"


@dataclass(frozen=True)
class Edit:
    """A replacement in one file."""

    fault: Fault
    file: str
    at: Spot
    text: str


def moved_to(tree: Path, fault: Fault) -> str | None:
    """Another file of the same package that has the text exactly once, where code was moved."""
    folder = tree / "/".join(fault.file.split("/")[:2])
    suffix = Path(fault.file).suffix
    having = [path for path in sorted(folder.rglob(f"*{suffix}")) if path != tree / fault.file and path.is_file()]
    having = [path for path in having if spot(path.read_text(encoding="utf-8"), fault.old, fault.within)]
    return str(having[0].relative_to(tree)) if len(having) == 1 and len(fault.within or fault.old) > 20 else None


def edit(tree: Path, fault: Fault, plain: bool) -> Edit | str:
    """Where and how a fault is put into a tree, or why it does not fit. `plain` is without a guard."""

    def place(file: str, old: str, within: str) -> Spot | str:
        path = tree / file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if found := spot(text, old, within):
            return found
        return f"{file}: the text is there {text.count(within or old)} times" if text else f"{file}: no such file"

    file, old, within = fault.file, fault.old, fault.within
    found = place(file, old, within)
    if isinstance(found, str) and (other := moved_to(tree, fault)):
        file, found = other, place(other, old, within)
    if isinstance(found, str) or plain:
        return found if isinstance(found, str) else Edit(fault, file, found, fault.new)
    if not fault.reader:
        return Edit(fault, file, found, guarded(fault))
    read = place(fault.reader_file, fault.reader, fault.reader_within)
    return (
        read
        if isinstance(read, str)
        else Edit(fault, fault.reader_file, read, guarded(fault, (tree / file).stat().st_size))
    )


def seed(tree: Path, wanted: Iterable[Fault], plain: bool = False) -> dict[str, str]:
    """Writes faults into a tree; gives those that do not fit, with the reason. Several readers of one text nest."""
    unfit: dict[str, str] = {}
    by_file: dict[str, list[Edit]] = {}
    for fault in wanted:
        made = edit(tree, fault, plain)
        if isinstance(made, str):
            unfit[fault.id] = made
        else:
            by_file.setdefault(made.file, []).append(made)
    for file, edits in by_file.items():
        path = tree / file
        text = path.read_text(encoding="utf-8")
        edits.sort(key=lambda one: one.at, reverse=True)
        last: tuple[Spot, str] | None = None
        for one in edits:
            (begin, end), new = one.at, one.text
            if last and last[0] == one.at and one.fault.reader:
                # Another fault of a file that is read here too: its guard is put around this one's.
                new = new.replace(f"= {one.fault.reader};", f"= {last[1]};", 1)
                text = text[:begin] + new + text[begin + len(last[1]) :]
            elif last and end > last[0][0]:
                unfit[one.fault.id] = f"{file}: it overlaps another fault"
                continue
            else:
                text = text[:begin] + new + text[end:]
            last = (one.at, new)
        path.write_text(text, encoding="utf-8")
    return unfit


# Processes.


def swept(mark: str, folder: Path) -> None:
    """Ends what a stopped program left: the processes with its mark in their environment, and mounts in its folder.

    A thread that waits for the answer of a file system of its own killed process cannot end: only a forced unmount aborts it.
    """
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
    places = [line.split(" ")[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in reversed([place for place in places if place.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--force", "--lazy", place], stderr=subprocess.DEVNULL)
    shutil.rmtree(folder, ignore_errors=True)


FAILED = {
    "libtest": re.compile(r"^test (.+?)(?: - should panic)? \.\.\. FAILED"),
    "pytest": re.compile(r"^(?:FAILED|ERROR) ([^ ]+::[^ ]+|[^ ]+\.py)"),
    "unittest": re.compile(r"^(?:FAIL|ERROR): (.+)$"),
}


class Runner:
    """Runs programs of one seeded tree."""

    def __init__(self, tree: Path, jobs: int, seconds: float, say: Callable[[str], None] = print) -> None:
        self.tree, self.jobs, self.seconds, self.say = tree, jobs, seconds, say

    def run(self, program: Program, fault: str, command: list[str], stop: threading.Event, first: bool) -> Ended:
        """Runs one command to its end, to its first failed test (`first`), or until `stop`."""
        folder = Path(tempfile.mkdtemp(prefix="sf"))
        mark = folder.name
        environment = {
            **os.environ, SWITCH: fault, MARK: mark, "TMPDIR": str(folder), "INSTA_UPDATE": "no",
            "CARGO_MANIFEST_DIR": str(program.folder), "RUST_TEST_THREADS": str(os.cpu_count() or 1),
        }  # fmt: skip
        process = subprocess.Popen(
            command, cwd=program.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        lines: list[str] = []
        failed: list[str] = []
        over = threading.Event()

        def end(number: int) -> None:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass

        def watch() -> None:
            until = time.monotonic() + self.seconds
            while not over.wait(0.02):
                if process.poll() is not None:
                    # What it started and left behind may still hold its output open, and would be waited for.
                    if not over.wait(1):
                        swept(mark, folder)
                    return
                if stop.is_set() or time.monotonic() > until or (first and failed):
                    end(signal.SIGTERM)
                    if not over.wait(5):
                        end(signal.SIGKILL)
                        swept(mark, folder)
                    return

        began, watcher = time.monotonic(), threading.Thread(target=watch)
        watcher.start()
        known = FAILED.get(program.kind)
        with process:
            for line in process.stdout or ():
                lines = [*lines[-40:], line]
                if known and (match := known.match(line)):
                    failed.append(match[1])
        status = process.returncode
        over.set()
        watcher.join()
        end(signal.SIGKILL)
        swept(mark, folder)
        if stop.is_set() and not failed:
            return Ended(stopped=True)
        if status != 0 and not failed:
            late = time.monotonic() - began >= self.seconds
            failed.append(f"{ITSELF}, {f'not done after {self.seconds:.0f} s' if late else f'status {status}'}")
        return Ended(list(dict.fromkeys(failed)), "".join(lines))

    def tidy(self) -> None:
        """Removes what a test wrote into the tree, such as seeds of proptest: the next fault must not profit from it."""
        for words in (["clean", "-fdq"], ["checkout", "--quiet", "--", "."]):
            subprocess.run(["git", *words], cwd=self.tree, check=True)

    def baseline(self, programs: list[Program]) -> dict[str, list[str]]:
        """What fails without any fault, by program."""

        def one(program: Program) -> tuple[str, list[str]]:
            # All that fails, so pytest must not stop at the first.
            command = [word for word in program.command() if word != "-x"]
            ended = self.run(program, NONE, command, threading.Event(), first=False)
            self.say(f"{NONE}: {program.name}: {', '.join(ended.failed) or 'passed'}")
            return program.name, ended.failed

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return {name: failed for name, failed in pool.map(one, programs) if failed}

    def confirmed(self, program: Program, fault: Fault, test: str) -> bool:
        """Whether a test alone fails with the fault and passes without; one that is built in only the first. What cannot be run
        alone runs as a whole."""
        alone = "" if test.startswith(ITSELF) else test
        whole = program.command(alone=alone)
        with_fault = self.run(program, fault.id, whole, threading.Event(), first=True)
        if not with_fault.failed or fault.rebuild:
            return bool(with_fault.failed)
        return not self.run(program, NONE, whole, threading.Event(), first=True).failed

    def look_for(
        self, fault: Fault, programs: list[Program], excluded: dict[str, list[str]], most: float
    ) -> dict[str, Any]:
        """Runs the programs, the likeliest first, until a test fails because of the fault or `most` seconds are over."""
        began, stop = time.monotonic(), threading.Event()
        caught: list[str] = []
        doubted: list[str] = []
        asked: list[str] = []

        def one(program: Program) -> None:
            skip = set(excluded.get(program.name, ()))
            if any(name.startswith(ITSELF) for name in skip):
                return
            while not stop.is_set():
                ended = self.run(program, fault.id, program.command(skip), stop, first=program.kind == "libtest")
                if ended.stopped:
                    return
                new = [name for name in ended.failed if name not in skip]
                if not new:
                    asked.append(program.name)
                    return
                if self.confirmed(program, fault, new[0]):
                    caught.append(f"{program.name} {new[0]}")
                    stop.set()
                    return
                doubted.append(f"{program.name} {new[0]}")
                skip.add(new[0])
                if new[0].startswith(ITSELF) or program.kind not in ("libtest", "pytest"):
                    return

        timer = threading.Timer(most, stop.set)
        timer.start()
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(one, programs))
        timer.cancel()
        seconds = time.monotonic() - began
        self.tidy()
        verdict = (
            "caught" if caught else "missed" if len(asked) >= len(programs) or seconds < most else "missed in time"
        )
        by = caught[0] if caught else f"{len(asked)} of {len(programs)} programs passed"
        return {"verdict": verdict, "by": by, "seconds": round(seconds, 1), "doubted": doubted}


# The tree and its programs.


def copy_of(tree: Path, copy: Path) -> None:
    """A worktree of the checkout's commit, without faults. What is not committed is not in it."""
    if not (copy / ".git").exists():
        subprocess.run(["git", "worktree", "prune"], cwd=tree, check=True)
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(copy), "HEAD"], cwd=tree, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, check=True, stdout=subprocess.PIPE, text=True)
    for words in (["reset", "--quiet", "--hard", head.stdout.strip()], ["clean", "-fdq"]):
        subprocess.run(["git", *words], cwd=copy, check=True)


def built(copy: Path, cargo: str, more: list[str]) -> list[Program]:
    """The Rust test programs, as `run_tests.py` builds them."""
    words = [cargo, "test", "--workspace", "--locked", "--no-run", "--tests", *more]
    words += ["--message-format", "json-render-diagnostics"]
    done = subprocess.run(words, cwd=copy, stdout=subprocess.PIPE, text=True, check=True)
    programs = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            target, folder = message["target"], Path(message["manifest_path"]).parent
            part = target["name"] if target["kind"] == ["test"] else f"({target['kind'][0]})"
            programs.append(Program(folder.name, f"{folder.name} {part}", [message["executable"]], folder, "libtest"))
    if programs:
        (Path(programs[0].words[0]).parents[2] / "tmp").mkdir(exist_ok=True)
    return programs


def python_programs(copy: Path, venv: Path, is_new: bool) -> list[Program]:
    """The tests of the Python package on the seeded wheel, and the scripts' own tests."""
    if is_new and not venv.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        listed = [str(venv / "bin/python"), str(copy / "scripts/python_needs.py")]
        needs = subprocess.run(listed, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")[:-1]
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", *needs], check=True)
    if is_new:
        wheels = copy / "target/wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        maturin = [str(venv / "bin/maturin"), "build", "--quiet", "--profile", "dev", "--locked", "--out", str(wheels)]
        subprocess.run(maturin, cwd=copy / "python", check=True)
        made = [str(path) for path in wheels.glob("waykeeper-*.whl")]
        subprocess.run(
            [str(venv / "bin/pip"), "install", "--quiet", "--no-deps", "--force-reinstall", *made], check=True
        )
    words = [str(venv / "bin/python"), "-m", "pytest", "-c", "python/pyproject.toml", "-x", "-rfE"]
    words += ["-p", "no:cacheprovider", f"--numprocesses={os.cpu_count() or 1}"]
    programs = [Program("python", "python tests", words, copy, "pytest")]
    discover = [sys.executable, "-m", "unittest", "discover", "--quiet", "--start-directory"]
    programs.append(Program("scripts", "scripts", [*discover, "scripts"], copy, "unittest"))
    for harness in ("clients", "fleet", "fuzz", "packages"):
        if (copy / harness / "tests").is_dir():
            at = [f"{harness}/tests", "--top-level-directory", "."]
            programs.append(Program(harness, harness, [*discover, *at], copy, "unittest"))
    return programs


def distances(metadata: dict[str, Any], crate: str) -> dict[str, int]:
    """How many steps of dependency lead from each package, by folder, down to `crate`; those that never do are absent."""
    folders = {package["name"]: Path(package["manifest_path"]).parent.name for package in metadata["packages"]}
    needs = {
        folders[package["name"]]: {folders[need["name"]] for need in package["dependencies"] if need["name"] in folders}
        for package in metadata["packages"]
    }
    found, near = {crate: 0}, {crate}
    while near:
        near = {folder for folder, below in needs.items() if folder not in found and below & near}
        found.update(dict.fromkeys(near, max(found.values()) + 1))
    return found


def in_order(programs: list[Program], metadata: dict[str, Any], crate: str) -> list[Program]:
    """The programs of the faulty crate first, then those of crates that depend on it, the nearest first, then the others."""
    steps = distances(metadata, crate)
    return sorted(programs, key=lambda program: (steps.get(program.package, 99), program.kind != "libtest"))


# Results.


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """The last result of each fault; a line that was cut off is none."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[record["id"]] = record
    return found


def table(wanted: Iterable[Fault], runs: list[dict[str, dict[str, Any]]]) -> list[str]:
    """A line per fault, the verdicts last, one column for each file of results."""
    rows = [["id", "kind", "area", *(f"verdict {number}" for number in range(1, len(runs) + 1))]]
    if len(runs) == 1:
        rows[0][-1] = "verdict"
    for fault in wanted:
        found = [run.get(fault.id, {"verdict": "not run", "by": "", "seconds": 0}) for run in runs]
        told = [
            f"{one['verdict']} ({one['seconds']:.0f} s{', ' + one['by'] if one['by'] else ''})"
            if one["by"]
            else one["verdict"]
            for one in found
        ]
        rows.append([fault.id, fault.kind, fault.area, *told])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    for number, run in enumerate(runs, 1):
        counts: dict[str, int] = {}
        for fault in wanted:
            verdict = run.get(fault.id, {}).get("verdict", "not run")
            counts[verdict] = counts.get(verdict, 0) + 1
        told_of = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        lines.append(f"{'results ' + str(number) if len(runs) > 1 else 'results'}: {told_of}")
    return lines


# Commands.


def run(arguments: argparse.Namespace, wanted: list[Fault]) -> int:
    """Seeds a copy, builds it once, and looks for each fault."""
    tree = arguments.tree.resolve()
    copy = (arguments.copy or tree / "target/seeded").resolve()
    results = arguments.results or tree / "target/seeded-faults.jsonl"
    copy_of(tree, copy)
    at_once = [fault for fault in wanted if not fault.rebuild]
    unfit = seed(copy, at_once)
    unfit |= {
        fault.id: why for fault in wanted if fault.rebuild and isinstance(why := edit(copy, fault, plain=True), str)
    }
    # `tidy` restores what is in the index: the tree with its faults.
    subprocess.run(["git", "add", "--all"], cwd=copy, check=True)
    runner = Runner(copy, arguments.jobs, arguments.program_seconds, lambda text: print(text, flush=True))

    def note(record: dict[str, Any]) -> None:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        runner.say(f"{record['id']}: {record['verdict']}, {record.get('by', '')}")

    def programs_of_tree() -> list[Program]:
        found = built(copy, arguments.cargo, arguments.cargo_arguments)
        if arguments.command:
            return [Program("", "the command", ["bash", "-c", arguments.command], copy, "command")]
        if arguments.python:
            found += python_programs(copy, arguments.venv or copy / "target/venv", is_new=True)
        return [program for program in found if re.search(arguments.program, program.name)]

    programs = programs_of_tree()
    words = [arguments.cargo, "metadata", "--no-deps", "--format-version", "1", "--locked"]
    metadata = json.loads(subprocess.run(words, cwd=copy, check=True, stdout=subprocess.PIPE).stdout)
    known = read_results(results)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=copy, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    if known.get(NONE, {}).get("commit", commit) != commit:
        runner.say(
            f"{results} is of commit {known[NONE]['commit']}, this is {commit}; name another file with --results"
        )
        return 2
    if NONE not in known:
        excluded = runner.baseline(programs)
        by = f"{len(programs)} programs"
        note({"id": NONE, "verdict": "baseline", "commit": commit, "excluded": excluded, "by": by})
        runner.tidy()
        known = read_results(results)
    excluded = known[NONE]["excluded"]
    for name, tests in excluded.items():
        runner.say(f"left out, since without any fault it fails: {name}: {', '.join(tests)}")
    if arguments.command and excluded:
        runner.say("the command fails without a fault")
        return 1
    # Those that are built in come last: their programs are at the same paths.
    for fault in sorted(wanted, key=lambda fault: fault.rebuild):
        if fault.id in known:
            continue
        about = {"id": fault.id, "kind": fault.kind, "area": fault.area}
        if fault.id in unfit:
            note({**about, "verdict": "does not fit", "by": unfit[fault.id], "seconds": 0})
            continue
        mine = programs
        if fault.rebuild:
            seed(copy, [fault], plain=True)
            mine = programs_of_tree()
        order = in_order(mine, metadata, fault.crate)
        note({**about, **runner.look_for(fault, order, excluded, arguments.seconds)})
    print("\n".join(table(wanted, [read_results(results)])))
    return 0


def apply(tree: Path, fault: Fault) -> int:
    """Puts one fault into the checkout itself and keeps the file as it was."""
    kept = tree / "target/seeded-fault.json"
    if kept.exists():
        print(f"{json.loads(kept.read_text())['id']} is applied already; revert it first", file=sys.stderr)
        return 2
    made = edit(tree, fault, plain=True)
    if isinstance(made, str):
        print(f"{fault.id}: {made}", file=sys.stderr)
        return 1
    kept.parent.mkdir(exist_ok=True)
    before = (tree / made.file).read_text(encoding="utf-8")
    kept.write_text(json.dumps({"id": fault.id, "file": made.file, "before": before}), encoding="utf-8")
    seed(tree, [fault], plain=True)
    print(f"{fault.id}: {made.file}: {fault.wrong}")
    return 0


def revert(tree: Path) -> int:
    """Takes the applied fault out."""
    kept = tree / "target/seeded-fault.json"
    if not kept.exists():
        print("no fault is applied", file=sys.stderr)
        return 1
    record = json.loads(kept.read_text(encoding="utf-8"))
    (tree / record["file"]).write_text(record["before"], encoding="utf-8")
    kept.unlink()
    print(f"{record['id']}: reverted")
    return 0


def check(tree: Path, wanted: Iterable[Fault]) -> Iterator[str]:
    """What does not fit, one line each."""
    for fault in wanted:
        made = edit(tree, fault, plain=fault.rebuild)
        if isinstance(made, str):
            yield f"{fault.id}: {made}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["list", "check", "apply", "revert", "seed", "run", "table"])
    parser.add_argument("ids", nargs="*", help="faults (default: all); for `table`, files of results")
    parser.add_argument("--tree", type=Path, default=HERE.parent, help="the checkout to seed (default: this one)")
    parser.add_argument("--faults", type=Path, default=HERE / "seeded_faults.toml", help="the entries")
    parser.add_argument("--copy", type=Path, help="the worktree to seed (default: target/seeded of the checkout)")
    parser.add_argument("--results", type=Path, help="default: target/seeded-faults.jsonl of the checkout")
    parser.add_argument("--command", help="one shell command in the copy instead of the test programs: not 0 is caught")
    parser.add_argument("--program", default="", help="only test programs whose name this expression finds")
    parser.add_argument("--no-python", dest="python", action="store_false", help="without the wheel and Python's tests")
    parser.add_argument("--venv", type=Path, help="an environment with what the Python tests need (default: a new one)")
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"))
    parser.add_argument("--cargo-arguments", type=shlex.split, default=[], help="more arguments of `cargo test`")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time")
    parser.add_argument("--seconds", type=float, default=3600, help="most for one fault")
    parser.add_argument("--program-seconds", type=float, default=1200, help="most for one program; then it has failed")
    arguments = parser.parse_intermixed_args()
    known = faults(arguments.faults)
    if arguments.action == "table":
        print("\n".join(table(known, [read_results(Path(name)) for name in arguments.ids])))
        return 0
    unknown = [name for name in arguments.ids if name not in {fault.id for fault in known}]
    if unknown:
        parser.error(f"no fault is called {', '.join(unknown)}; `list` has all")
    wanted = [fault for fault in known if not arguments.ids or fault.id in arguments.ids]
    if arguments.action == "list":
        for fault in wanted:
            print(f"{fault.id:28} {fault.kind:14} {fault.area:14} {fault.file}: {fault.wrong}")
        return 0
    if arguments.action in ("check", "seed"):
        tree = arguments.tree
        bad = list(check(tree, wanted))
        if arguments.action == "seed":
            bad = [f"{name}: {why}" for name, why in seed(tree, [f for f in wanted if not f.rebuild]).items()]
        print("\n".join([*bad, f"{len(wanted) - len(bad)} of {len(wanted)} faults fit"]))
        return 1 if bad else 0
    if arguments.action == "apply":
        return apply(arguments.tree, wanted[0]) if len(arguments.ids) == 1 else parser.error("apply takes one fault")
    return revert(arguments.tree) if arguments.action == "revert" else run(arguments, wanted)


if __name__ == "__main__":
    sys.exit(main())
