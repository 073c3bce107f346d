"""A running `waykeeper serve` and a headless browser for the tests of the web page, one each for all tests of a process.

It must not know what is tested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading

import pytest
from program import PROGRAM
from waiting import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

FLAGSHIP = "a4-hpw-heavy"
DRAWN = "document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))"
"""Resolves when what the page has by now is laid out and drawn."""


class Served:
    """The program, started; `link` is the address with its token."""

    def __init__(self, *arguments: str, port: int = 0) -> None:
        words = [PROGRAM, "serve", "--listen", f"127.0.0.1:{port}", *arguments]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.link = self.process.stdout.readline().strip()
        if not self.link:
            raise RuntimeError(self.process.stderr.read())
        # Lines that nothing reads would fill the pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    @property
    def base(self) -> str:
        """The address without token and slash."""
        return self.link.split("/#")[0]

    @property
    def port(self) -> int:
        return int(self.base.rsplit(":", 1)[1])

    @property
    def token(self) -> str:
        return self.link.split("token=")[1]

    def at(self, fragment: str) -> str:
        """The address of a view, with the token: `/timeline`, `/playground?seed=2`."""
        separator = "&" if "?" in fragment else "?"
        return f"{self.base}/#{fragment}{separator}token={self.token}"

    def kill(self) -> None:
        """Ends it at once, without a word to its clients."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()


FLAGS = ["--force-color-profile=srgb", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
"""Of Chromium. As root it has no sandbox of its own."""


@pytest.fixture(scope="session")
def playwright():
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with api.sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright):
    """Debian's Chromium, headless."""
    started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    yield started
    started.close()


@pytest.fixture(scope="session")
def served():
    """The page of A4's mix."""
    with Served("--scenario", FLAGSHIP, "--policy", "a4") as started:
        yield started
