"""Plays a newcomer's first hour in a terminal, records it as an asciicast, and says where the screen was silent for long.

Each step types a command as a user would, waits for what it must show, and may press keys meanwhile. The recording is in
asciicast version 2 (docs.asciinema.org/manual/asciicast/v2), which `asciinema play FILE` shows. It must not know how a command
works.

    python3 scripts/first_hour.py --out first-hour.cast            # in a clone, with the program built
    python3 scripts/first_hour.py --whole --out first-hour.cast    # with `make run`, which builds it
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 100, 30
PROMPT = "first-hour$ "
SILENT_S = 3.0
"""Longest time without a new character that a newcomer should see (issue 23)."""
WAIT_S = 900.0
"""A step that takes longer has failed."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>()][0-9A-B]?")


@dataclass(frozen=True)
class Step:
    """A command, what its screen must show, and its exit status."""

    command: str
    shows: tuple[str, ...] = ()
    """Regular expressions, in this order."""
    status: int = 0
    presses: tuple[tuple[str, str], ...] = ()
    """Once the screen shows the first, the second is typed, such as `\\x03` for Ctrl-C."""


@dataclass
class Played:
    """What was seen of a step."""

    step: Step
    text: str
    seconds: float
    silence_s: float
    after: str
    """The last line before the longest silence."""
    problems: list[str] = field(default_factory=list)


class Terminal:
    """A shell in a terminal of its own, and the record of what it printed."""

    def __init__(self, folder: Path, path: str) -> None:
        self.events: list[tuple[float, str]] = []
        self.began = time.monotonic()
        home = folder / "home"
        home.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WAYKEEPER_", "XDG_"))}
        variables = {
            **kept,
            "HOME": str(home),
            "PATH": path,
            "PS1": PROMPT,
            "TERM": "xterm-256color",
            "BASH_SILENCE": "1",
        }
        # The newcomer has the toolchain already, which is in the home of the user who plays it.
        for name, place in (("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")):
            variables.setdefault(name, str(Path.home() / place))
        self.child, self.screen = pty.fork()
        if self.child == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], variables)
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.read_until(lambda text: text.endswith(PROMPT), WAIT_S)

    def read_until(self, done: Callable[[str], bool], within_s: float) -> tuple[str, float, str]:
        """Text until `done`, the longest silence in it, and the line before that. Raises TimeoutError."""
        text, silence, after = "", 0.0, ""
        began = last = time.monotonic()
        while not done(plain(text)):
            ready, _, _ = select.select([self.screen], [], [], 0.1)
            now = time.monotonic()
            if now - began > within_s:
                raise TimeoutError(f"nothing more within {within_s:.0f} s; the last lines are:\n{plain(text)[-500:]}")
            if not ready:
                continue
            try:
                piece = os.read(self.screen, 65536).decode(errors="replace")
            except OSError:
                raise TimeoutError(f"the shell ended; the last lines are:\n{plain(text)[-500:]}") from None
            if now - last > silence:
                silence, after = (
                    now - last,
                    (plain(text).rstrip().splitlines() or [""])[-1],
                )
            last = now
            text += piece
            self.events.append((now - self.began, piece))
        return text, silence, after

    def type(self, keys: str) -> None:
        """Types keys."""
        os.write(self.screen, keys.encode())

    def play(self, step: Step) -> Played:
        """Plays a step to its end."""
        began = time.monotonic()
        problems: list[str] = []
        self.type(step.command + "; echo status=$?\n")
        text, silence, after = "", 0.0, ""
        waits = [*step.presses, None]
        try:
            for wait in waits:
                if wait is None:
                    ended = re.compile(r"status=\d+\s+" + re.escape(PROMPT) + r"$")
                    more, longest, line = self.read_until(
                        lambda seen, ended=ended: ended.search(seen) is not None, WAIT_S
                    )
                else:
                    shown = re.compile(wait[0])
                    more, longest, line = self.read_until(
                        lambda seen, shown=shown: shown.search(seen) is not None, WAIT_S
                    )
                    self.type(wait[1])
                text += more
                if longest > silence:
                    silence, after = longest, line
        except TimeoutError as late:
            return Played(step, plain(text), time.monotonic() - began, silence, after, [str(late)])
        seen = plain(text)
        statuses = re.findall(r"status=(\d+)", seen)
        if int(statuses[-1]) != step.status:
            problems.append(f"status {statuses[-1]} and not {step.status}: {' | '.join(seen.splitlines()[-6:])}")
        at = 0
        for pattern in step.shows:
            found = re.compile(pattern).search(seen, at)
            if found is None:
                problems.append(f"`{pattern}` is not shown")
            else:
                at = found.end()
        return Played(step, seen, time.monotonic() - began, silence, after, problems)

    def close(self) -> None:
        """Ends the shell: what it started has ended, and nohup may have made it deaf to a hangup."""
        os.close(self.screen)
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)

    def cast(self, file: Path) -> None:
        """Writes the recording."""
        head = {
            "version": 2,
            "width": COLUMNS,
            "height": ROWS,
            "title": "Waykeeper: the first hour",
        }
        lines = [head, *([round(at, 3), "o", piece] for at, piece in self.events)]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def plain(text: str) -> str:
    """Text without the controls of a terminal."""
    return ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def table(played: list[Played]) -> str:
    """A line per step: seconds, the longest silence, and whether it showed what it must."""
    lines = [f"{'seconds':>7} {'silent':>6}  {'step':<62} verdict"]
    for one in played:
        verdict = "; ".join(one.problems) or (
            "ok" if one.silence_s <= SILENT_S else f"silent after `{one.after.strip()[:60]}`"
        )
        command = one.step.command.replace("\n", " ")
        lines.append(f"{one.seconds:>7.1f} {one.silence_s:>6.1f}  {command[:62]:<62} {verdict}")
    lines.append(f"{sum(one.seconds for one in played):>7.1f} {max(one.silence_s for one in played):>6.1f}  all")
    return "\n".join(lines)


def scenario() -> str:
    """The scenario of the tutorial."""
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    return page.split("cat > mine.toml <<'EOF'\n", 1)[1].split("EOF\n", 1)[0]


def steps(whole: bool) -> list[Step]:
    """What the newcomer types."""
    mistakes = [
        (
            "s/fastclick/fastclik/",
            r"wrong.toml:\d+: `workload\[firewall\].program` is `fastclik`.*did you mean `fastclick`",
        ),
        ("s/128k/128 q/", r"wrong.toml:\d+: `workload\[backup\].block` is .128 q.; it must be a size"),
        ('s/cores = "9"/cores = "0"/', r"wrong.toml:\d+: `workload\[solver\].cores` is `0`, and core 0 belongs to"),
    ]
    compare = "waykeeper run mine.toml --policy default --policy waykeeper --seeds 4 --out first"
    first = [
        Step("waykeeper scenario check mine.toml", (r"mine.toml: ok",)),
        *(
            Step(f"sed '{edit}' mine.toml > wrong.toml; waykeeper scenario check wrong.toml", (said,), 2)
            for edit, said in mistakes
        ),
        # Ctrl-C once a run has ended, which the progress shows.
        Step(compare, (r"PARTIAL: interrupted", r"--resume continues"), 130, ((r"[1-7] of 8 runs", "\x03"),)),
        Step(f"{compare} --resume", (r"HPW mean", r"verdict against default", r"wrote first/summary.json")),
        Step(compare, (r"--force",), 2),
        Step("waykeeper policy new corner --python", (r"corner.py",)),
        Step("waykeeper run mine.toml --policy default --policy ./corner.py", (r"corner", r"HPW mean")),
        Step("waykeeper demo mine.toml --for 12s", (r"mounted", r"restored")),
    ]
    if not whole:
        return first
    clone = f"git clone --quiet {ROOT} waykeeper && make -C waykeeper run"
    return [Step(clone, (r"HPW mean", r"verdict against default")), *first]


def main() -> int:
    """Plays all steps; exit status 1 if one did not show what it must, 2 if one was silent for too long."""
    parser = argparse.ArgumentParser(description="Play a newcomer's first hour in a terminal and record it.")
    parser.add_argument(
        "--program",
        type=Path,
        default=ROOT / "target/release/waykeeper",
        help="the program",
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=ROOT / "target/venv/bin/python",
        help="a Python with the package",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="also `make run` from the clone, which builds the program",
    )
    parser.add_argument("--out", type=Path, help="write the recording to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tools = folder / "bin"
        tools.mkdir()
        (tools / "waykeeper").symlink_to(options.program.resolve())
        path = os.pathsep.join([str(tools), str(options.python.absolute().parent), os.environ["PATH"]])
        (folder / "mine.toml").write_text(scenario(), encoding="utf-8")
        terminal = Terminal(folder, path)
        played = []
        for step in steps(options.whole):
            played.append(terminal.play(step))
            print(table(played[-1:]).splitlines()[1], flush=True)
            if played[-1].problems:
                break
        terminal.close()
        if options.out:
            terminal.cast(options.out)
        print(table(played))
        shutil.rmtree(folder / "home", ignore_errors=True)
    if any(one.problems for one in played):
        return 1
    return 2 if any(one.silence_s > SILENT_S for one in played) else 0


if __name__ == "__main__":
    sys.exit(main())
