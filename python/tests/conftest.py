"""What the tests share: scenarios that take milliseconds, and one page and browser for all tests of the web page."""

import signal
import tempfile
from pathlib import Path

import pytest
from program import PROGRAM
from web_server import Served, browser, page, playwright, served, tiny_served  # noqa: F401

TINY = """\
name = "tiny"
policies = ["default"]
duration_s = 0.4
warmup_s = 0.1
measure_s = 0.2
time_factor = 20
interval_s = 0.1
[[workload]]
name = "reader"
program = "x-mem"
cores = 0
working_set = "4 MiB"
priority = "high"
[[workload]]
name = "streamer"
program = "x-mem"
cores = 1
working_set = "64 MiB"
"""


@pytest.fixture
def tiny():
    import waykeeper as wk

    return wk.Scenario.parse(TINY, "tiny.toml")


@pytest.fixture(scope="module")
def socket_folder():
    """A folder with a short path: that of a socket has at most 90 bytes, and pytest names its folders after user and test."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def pytest_collection_modifyitems(items):
    """Marks the tests that run the program: those that are given a page of it, and all of a module that has it."""
    for item in items:
        has_it = any(value is PROGRAM or value is Served for value in vars(item.module).values())
        if has_it or {"served", "tiny_served"} & set(item.fixturenames):
            item.add_marker("program")


def pytest_configure(config):
    """The package under test is the installed wheel, never the source tree; and Ctrl-C is heeded.

    A shell without job control starts a command in the background with SIGINT ignored, and what is started by that ignores it
    too: a test that interrupts a program would wait in vain.
    """
    import waykeeper

    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert "site-packages" in waykeeper.__file__, f"waykeeper is imported from {waykeeper.__file__}"
