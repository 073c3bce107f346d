"""The shell blocks of the pages: those of the tutorial and of the tour are run, every command of the others is one that exists.

A block that is not run has the line `<!-- not run: REASON -->` before it. Its commands are checked all the same: each line
that begins with `waykeeper` must be accepted up to its `--help`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from program import PROGRAM, needs_program

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```sh\n(?P<text>.*?)^```$", re.M | re.S)
SHARED = ("scenarios", "inputs", "examples", "scripts")
"""Folders of the repository that commands name."""

LONG = ("docs/own-policies.md", "docs/tour.md", "docs/tutorial.md")


@dataclass(frozen=True)
class Block:
    """A shell block of a page."""

    page: str
    line: int
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page for users."""
    return [ROOT / "README.md", ROOT / "python/README.md", *sorted(ROOT.glob("docs/*.md"))]


def blocks(page: Path) -> list[Block]:
    """The shell blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT))
    return [
        Block(name, text.count("\n", 0, found.start("text")) + 1, found["text"], found["reason"])
        for found in BLOCK.finditer(text)
    ]


ALL = [block for page in pages() for block in blocks(page)]


def commands(text: str) -> list[list[str]]:
    """The calls of waykeeper in a block, as words, without `sudo`, variables before them, pipes, redirections and comments."""
    found = []
    here = None
    for line in text.replace("\\\n", " ").splitlines():
        if here is not None:
            here = None if line.strip() == here else here
            continue
        if marker := re.search(r"<<-?'?(\w+)'?", line):
            here = marker[1]
        for part in re.split(r"\s*(?:&&|\|\|?|;|(?<!>)&(?![>\d]))\s*", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue
            while words and (words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=.*", words[0])):
                words = words[1:]
            cut = next((index for index, word in enumerate(words) if re.match(r"\d?[<>]", word)), len(words))
            if words and words[0] == "waykeeper":
                found.append(words[1:cut])
    return found


def environment(folder: Path) -> dict[str, str]:
    """The program, this Python and a home of its own."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "waykeeper").symlink_to(PROGRAM)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    home = folder / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WAYKEEPER_")}
    return {**kept, "PATH": path, "HOME": str(home), "NO_COLOR": "1", "WAYKEEPER_PYTHON": sys.executable}


@needs_program
def run_pages() -> list[object]:
    """The pages whose blocks are run. Those that compare policies on whole scenarios take minutes."""
    pages = sorted({block.page for block in ALL if block.reason is None})
    return [pytest.param(page, marks=pytest.mark.long) if page in LONG else page for page in pages]


@pytest.mark.parametrize("page", run_pages())
def test_the_blocks_of_a_page_run_in_their_order(page: str, tmp_path: Path) -> None:
    variables = environment(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    for name in SHARED:
        (work / name).symlink_to(ROOT / name)
    for block in (block for block in ALL if block.page == page and block.reason is None):
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", block.text],
            cwd=work,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{block} ended with {done.returncode}:\n{done.stdout[-2000:]}"
    if page == "docs/tutorial.md":
        drawn = (work / "first/headline.svg").read_bytes()
        assert drawn == (ROOT / "docs/tutorial.svg").read_bytes(), "its picture is not the one that it draws"


@needs_program
def test_every_command_of_a_block_exists() -> None:
    count, refused = 0, []
    for block in ALL:
        for words in commands(block.text):
            count += 1
            end = words.index("--") if "--" in words else len(words)
            asked = [str(PROGRAM), *words[:end], "--help"]
            done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0:
                refused.append(f"{block}: waykeeper {' '.join(words)}: {done.stderr.splitlines()[0]}")
    assert count > 30, f"only {count} commands were found"
    assert not refused, "\n".join(refused)


def test_a_command_is_found_behind_sudo_variables_and_pipes_and_not_in_a_document() -> None:
    text = "A=1 sudo waykeeper run x --json | jq . # waykeeper no\ncat > f <<'E'\nwaykeeper not\nE\n"
    text += "waykeeper vhost d & waykeeper status > out\n"
    assert commands(text) == [["run", "x", "--json"], ["vhost", "d"], ["status"]]


def test_a_block_that_is_not_run_says_why() -> None:
    page = "a\n\n<!-- not run: needs a server -->\n```sh\nwaykeeper doctor\n```\n\n```sh\ntrue\n```\n"
    found = [(match["reason"], match["text"]) for match in BLOCK.finditer(page)]
    assert found == [("needs a server", "waykeeper doctor\n"), (None, "true\n")]
