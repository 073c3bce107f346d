"""A running `waykeeper serve` and a headless browser for the tests of the web page, one each for all tests of a process; and what
these tests wait for on a page.

It must not know what is tested.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

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
    """The page of A4's mix, with a fifth of its traffic: beside a browser the simulation is not what is tested."""
    with Served("--scenario", FLAGSHIP, "--policy", "a4", "--set", "time_factor=100") as started:
        yield started


def new_context(browser, **options):
    """Pages of their own, apart from those of other tests."""
    # Playwright evaluates conditions as texts, which the page's policy refuses; crates/web tests the policy.
    context = browser.new_context(bypass_csp=True, **options)
    context.set_default_timeout(1000 * PATIENCE_S)
    return context


def errors_of(page, into):
    """Collects what the page logs as errors."""
    page.on("pageerror", lambda error: into.append(str(error)))
    page.on("console", lambda line: into.append(line.text) if line.type == "error" else None)


@pytest.fixture
def page(browser):
    """A page that must not log an error."""
    context = new_context(browser, viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    opened = context.new_page()
    errors = []
    errors_of(opened, errors)
    opened.expected_errors = []
    yield opened
    context.close()
    wrong = [text for text in errors if not any(part in text for part in opened.expected_errors)]
    assert wrong == [], f"the page logged {wrong}"


def wait_for_step(page, least=2):
    """Waits until the page shows a step of at least this number."""
    page.wait_for_function(
        "least => { const found = /step (\\d+)/.exec(document.querySelector('#time').textContent);"
        " return found && Number(found[1]) >= least; }", arg=least)  # fmt: skip


def wait_for_playground(page):
    page.wait_for_function("/runs/.test(document.querySelector('.panel-head .note')?.textContent ?? '')")


def start_playground(page, served, query):
    page.goto(served.at(f"/playground?{query}"))
    wait_for_playground(page)


TINY = """\
name = "tiny"
policies = ["default"]
duration_s = 10
warmup_s = 1
measure_s = 5
time_factor = 1000
[[workload]]
name = "reader"
program = "x-mem"
cores = 0
working_set = "4 MiB"
priority = "high"
"""
"""A scenario of which forty servers take a part of a core."""


@pytest.fixture
def tiny_served(tmp_path):
    """A server of its own, on which playgrounds cost little; its memory is measured. It has to outlive the page."""
    scenario = tmp_path / "tiny.toml"
    scenario.write_text(TINY)
    with Served("--scenario", str(scenario), "--policy", "default", "--speed", "0.25") as started:
        yield started


def memory_mb(served):
    """Resident memory of the server."""
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024


def connections(served):
    """Established connections to the server."""
    lines = Path(f"/proc/{served.process.pid}/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1].endswith(f":{served.port:04X}") and line.split()[3] == "01" for line in lines)
