"""What strangers and many orders can take from the server of the web page: its owner is served meanwhile, and memory is bounded.

It needs the full program. It must not know how places are given.
"""

import collections
import concurrent.futures
import contextlib
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from program import needs_program
from waiting import PATIENCE_S, until
from web_server import memory_mb

pytestmark = needs_program

MOST_SERVERS = 64
"""Virtual servers of playgrounds at a time."""

FLOODS = {
    "silent": b"",
    "half": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX:",
    "streams": b"GET /api/feeds/main/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "histories": b"GET /api/feeds/main/history HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "files": b"GET /vendor/uplot/uPlot.iife.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20,
}
"""What a stranger sends on each of his connections, of which he reads nothing."""


def opened(served, path, order=None, method=None):
    """The answer to the owner's page: only what a script asks for, below /api, has the token."""
    headers = {"Content-Type": "application/json"}
    if path.startswith("/api/"):
        headers["Authorization"] = f"Bearer {served.token}"
    body = json.dumps(order).encode() if order else None
    request = urllib.request.Request(f"{served.base}{path}", data=body, headers=headers, method=method)
    return urllib.request.urlopen(request, timeout=PATIENCE_S)


def ask(served, path, order=None):
    """The body of an answer."""
    with opened(served, path, order) as answer:
        return answer.read()


def load_page(served):
    """What a browser loads, an event of the owner's stream, and an order."""
    page = ask(served, "/").decode()
    for path in re.findall(r'(?:href|src)="(/[^"]+)"', page):
        assert ask(served, path), path
    for path in ["/js/hub.js", "/api/catalogue", "/api/feeds/main/history"]:
        assert ask(served, path), path
    with opened(served, "/api/events?seen=main&hidden=") as stream:
        assert stream.readline() == b"id: main\n"
    assert b"speed" in ask(served, "/api/feeds/main/turn", {"do": "speed", "factor": 0.25})


@contextlib.contextmanager
def flood(served, sent):
    """Six hundred connections of a stranger, who opens others in the place of those that are closed."""
    kept, ending, ready = collections.deque(), threading.Event(), threading.Event()

    def connect():
        one = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
        with contextlib.suppress(OSError):
            one.sendall(sent)
        kept.append(one)

    def keep_on():
        while not ending.is_set():
            with contextlib.suppress(OSError):
                connect()
            if len(kept) >= 600:
                ready.set()
                kept.popleft().close()
                time.sleep(0.002)

    thread = threading.Thread(target=keep_on)
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield
    finally:
        ending.set()
        thread.join()
        for one in kept:
            one.close()


ALWAYS = ("silent", "streams")
"""The floods that are tried on each commit: those of the two kinds of places."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.long) for name in FLOODS]
)
def test_a_flood_of_strangers_leaves_the_page_to_its_owner(tiny_served, name):
    load_page(tiny_served)
    with flood(tiny_served, FLOODS[name]):
        took = []
        for _ in range(5):
            began = time.monotonic()
            load_page(tiny_served)
            took.append(time.monotonic() - began)
    print(f"seconds of the page beside 600 connections ({name}):", *(f"{one:.2f}" for one in took))


def threads_of_servers(served):
    """The threads of virtual servers, that of the main one among them, which were seen one after the other."""
    found = set()
    for name in Path(f"/proc/{served.process.pid}/task").glob("*/comm"):
        # A thread may end while it is looked at.
        with contextlib.suppress(OSError):
            if name.read_text() == "virtual-server\n":
                found.add(name.parent.name)
    return found


def servers_of(served):
    """The virtual servers, the main one among them."""
    return len(threads_of_servers(served))


def test_many_starts_at_once_make_no_more_servers_than_there_may_be(tiny_served):
    wish = {"scenario": "tiny", "policy": "default", "speed": 0.25}

    def start(_):
        try:
            started.append(json.loads(ask(tiny_served, "/api/playgrounds", wish))["id"])
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Retry-After"]
        return 200, None

    def end_all():
        for one in started:
            # It may have made room for another one.
            with (
                contextlib.suppress(urllib.error.HTTPError),
                opened(tiny_served, f"/api/playgrounds/{one}", method="DELETE"),
            ):
                pass

    started = []
    start(0)
    end_all()
    until("the first playground ends", lambda: servers_of(tiny_served) == 1)
    before, most, seen = memory_mb(tiny_served), 0, set()
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        answers = [pool.submit(start, number) for number in range(250)]
        while not all(answer.done() for answer in answers):
            # Threads come and go during one look; those that two looks saw were there together between them.
            last, seen = seen, threads_of_servers(tiny_served)
            most = max(most, len(last & seen))
            time.sleep(0.001)
    assert {answer.result() for answer in answers} <= {(200, None), (503, "2")}
    assert most <= MOST_SERVERS + 1, "a place is taken before a server is made, and until it has ended"
    taken = memory_mb(tiny_served) - before
    end_all()
    until("they end", lambda: servers_of(tiny_served) == 1)
    print(f"{most} virtual servers at most, which took {taken:.0f} MB")
    until("their memory is given back", lambda: memory_mb(tiny_served) - before < taken / 3)
