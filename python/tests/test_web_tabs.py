"""Pages that share a server and a browser: tabs, hidden pages, playgrounds that come and go, answers that are late or refused.

It needs the full program and Chromium. It must not know how the page is made.
"""

import contextlib
import os
import re
import signal
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pytest
from program import needs_program
from waiting import PATIENCE_S, until
from web_server import (
    CHROMIUM,
    FLAGS,
    FLAGSHIP,
    connections,
    errors_of,
    memory_mb,
    new_context,
    start_playground,
    wait_for_playground,
    wait_for_step,
)

pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytestmark = [
    needs_program,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


@pytest.fixture
def killable(playwright):
    """A browser of its own, and a function that kills it."""
    mark = f"--mark={uuid.uuid4()}"
    # One process for all pages, and nothing drawn: forty processes and their pictures would take most of the time.
    flags = [
        "--renderer-process-limit=1",
        "--disable-gpu",
        "--disable-gpu-compositing",
        "--disable-software-rasterizer",
    ]
    started = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags, mark])

    def kill():
        for words in Path("/proc").glob("[0-9]*/cmdline"):
            # Processes end while they are listed.
            with contextlib.suppress(OSError):
                if mark.encode() in words.read_bytes().split(b"\0"):
                    os.kill(int(words.parent.name), signal.SIGKILL)

    yield started, kill
    kill()


def playground_exists(served, id):
    try:
        urllib.request.urlopen(f"{served.base}/api/feeds/{id}", timeout=PATIENCE_S).close()
    except urllib.error.HTTPError as error:
        assert error.code == 404
        return False
    return True


def ids_of_started(page):
    """The ids of the playgrounds that the page starts from now on."""
    ids = []

    def note(answer):
        if answer.request.method == "POST" and answer.url.endswith("/api/playgrounds"):
            ids.append(answer.json()["id"])

    page.on("response", note)
    return ids


def test_forty_pages_of_a_browser_that_is_killed_leave_room_and_no_memory(tiny_served, page, killable):
    query = "/playground?scenario=tiny&policy=default&speed=0.25"
    started = ids_of_started(page)
    page.goto(tiny_served.at(query))
    wait_for_playground(page)
    page.goto("about:blank")
    # What the first page needs once stays: code, the list of scenarios.
    until("the first playground ends", lambda: not playground_exists(tiny_served, started[0]))
    before, errors = memory_mb(tiny_served), []
    forty, kill = killable
    context = new_context(forty, viewport={"width": 400, "height": 300})
    pages = [context.new_page() for _ in range(40)]
    for one in pages:
        errors_of(one, errors)
        one.goto(tiny_served.at(query), wait_until="commit")
    for one in pages:
        wait_for_playground(one)
    taken = memory_mb(tiny_served) - before
    # 32 MB in all, measured.
    assert taken > 40 * 0.5
    kill()
    page.goto(tiny_served.at(query))
    wait_for_playground(page)
    # Measured: 2 to 3 MB stay, in the allocator and in lists that do not shrink; a page that was kept would be seen at 14 of 40.
    until(f"the memory of 40 pages, {taken:.0f} MB", lambda: memory_mb(tiny_served) - before < taken / 3)
    assert errors == []


def test_a_page_that_is_loaded_again_and_again_finds_its_playground(tiny_served, page):
    started = ids_of_started(page)
    start_playground(page, tiny_served, "scenario=tiny&policy=default&speed=0.25&masks=reader:0x001")
    page.wait_for_function("/masks=reader(:|%3A)0x001/.test(location.hash)")
    for _ in range(10):
        page.reload(wait_until="commit")
        wait_for_playground(page)
    bar = page.get_by_role("slider", name="Mask of reader")
    assert bar.get_attribute("aria-valuetext") == "way 0, 1 of 11"
    # On a busy machine a page may come back too late for its playground; it then has another with the same settings.
    assert 1 <= len(started) <= 5


def show(page, is_shown):
    """Shows or hides the page, as another tab in front of it would."""
    page.evaluate(
        "isShown => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => !isShown });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        is_shown,
    )


def test_a_playground_that_ended_while_the_page_slept_starts_anew_with_what_was_set(tiny_served, page):
    started, answered = ids_of_started(page), []
    page.on("response", lambda answer: answered.append(answer.url))
    start_playground(page, tiny_served, "scenario=tiny&policy=default&speed=0.25&masks=reader:0x001")
    page.wait_for_function("/masks=reader(:|%3A)0x001/.test(location.hash)")
    # A request for the history that is under way would be answered with 404 when the playground has ended.
    history = f"{tiny_served.base}/api/feeds/{started[0]}/history"
    until("its history is there", lambda: page.evaluate("1") and history in answered)
    headers = {"Authorization": f"Bearer {tiny_served.token}"}
    request = urllib.request.Request(
        f"{tiny_served.base}/api/playgrounds/{started[0]}", method="DELETE", headers=headers
    )
    show(page, False)
    urllib.request.urlopen(request, timeout=PATIENCE_S).close()
    until("it has ended", lambda: not playground_exists(tiny_served, started[0]))
    page.wait_for_selector(".panel-head >> text=has ended")
    assert len(started) == 1, "a hidden page needs no server"
    show(page, True)
    # The page's requests are noted while Playwright waits for something.
    until("a playground is started anew", lambda: page.evaluate("1") and len(started) == 2)
    page.wait_for_function(
        "() => document.querySelector('[data-row=\"tenant/reader\"]')?.getAttribute('aria-valuetext') === 'way 0, 1 of 11'"
    )


def test_a_full_server_is_said_in_words_and_tried_again(tiny_served, page):
    page.expected_errors = ["503 (Service Unavailable)"]
    full = {"status": 503, "body": "pages show 64 virtual servers, which is the most at a time\n"}
    page.route("**/api/playgrounds", lambda route: route.fulfill(**full))
    page.goto(tiny_served.at("/playground?scenario=tiny&policy=default&speed=0.25"))
    page.wait_for_selector("text=which is the most at a time; the page tries again by itself")
    page.unroute("**/api/playgrounds")
    wait_for_playground(page)


def step_of(page):
    """The step that the page shows."""
    return int(re.search(r"step (\d+)", page.locator("#time").text_content()).group(1))


def test_nine_tabs_and_three_playgrounds_are_live_and_share_one_stream(served, page):
    """Browsers open six connections to a server: with a stream for each, the seventh tab would not load."""
    errors, took = [], []
    tabs = [page, *(page.context.new_page() for _ in range(11))]
    query = f"scenario={FLAGSHIP}&policy=default&against=isolate&speed=1"
    for number, tab in enumerate(tabs):
        errors_of(tab, errors)
        began = time.monotonic()
        if number < 9:
            tab.goto(served.link if number == 0 else f"{served.base}/#/")
            wait_for_step(tab, 0)
        else:
            tab.goto(f"{served.base}/#/playground?{query}")
            tab.wait_for_selector("#comparison tbody tr")
        took.append(time.monotonic() - began)
    print("seconds until each of nine tabs and three playgrounds is live:", *(f"{one:.2f}" for one in took))
    assert connections(served) <= 6, "one browser opens at most six connections to a server"
    # All of them go on, and an order of the last one is answered.
    steps = [step_of(tab) for tab in tabs[:9]]
    for tab, step in zip(tabs, steps):
        wait_for_step(tab, step + 1)
    tabs[-1].get_by_role("slider", name="Mask of lbm").first.press("-")
    tabs[-1].wait_for_function("location.hash.includes('masks=lbm')")
    assert errors == []


def test_hidden_pages_let_go_of_their_stream(tiny_served, page):
    page.goto(tiny_served.link)
    wait_for_step(page, 0)
    show(page, False)
    until("a hidden page has no connection", lambda: page.evaluate("1") and connections(tiny_served) == 0)
    step = step_of(page)
    show(page, True)
    wait_for_step(page, step + 1)


def test_a_browser_without_shared_workers_shows_the_same_and_lets_go_when_hidden(tiny_served, page):
    started = ids_of_started(page)
    page.add_init_script("delete globalThis.SharedWorker")
    start_playground(page, tiny_served, "scenario=tiny&policy=default&speed=0.25&masks=reader:0x001")
    page.wait_for_function("/masks=reader(:|%3A)0x001/.test(location.hash)")
    # A stream for each hidden tab would take the connections of the one in front.
    show(page, False)
    until("a hidden page has no connection", lambda: page.evaluate("1") and connections(tiny_served) == 0)
    until("its playground ends", lambda: not playground_exists(tiny_served, started[0]))
    show(page, True)
    until("a playground is started anew", lambda: page.evaluate("1") and len(started) == 2)
    page.wait_for_function(
        "() => document.querySelector('[data-row=\"tenant/reader\"]')?.getAttribute('aria-valuetext') === 'way 0, 1 of 11'"
    )


def test_a_hub_that_ends_is_replaced_and_no_step_is_lost(served, page, browser):
    page.goto(served.link)
    wait_for_step(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/history") else None)
    control = browser.new_browser_cdp_session()
    hubs = [one for one in control.send("Target.getTargets")["targetInfos"] if one["type"] == "shared_worker"]
    assert hubs
    for hub in hubs:
        control.send("Target.closeTarget", {"targetId": hub["targetId"]})
    began = time.monotonic()
    until("the page asks for what it missed", lambda: page.evaluate("1") and asked)
    wait_for_step(page, step_of(page) + 2)
    print(f"{time.monotonic() - began:.2f} s after the hub has ended the page goes on")
    control.detach()


def test_an_answer_that_is_late_is_said_in_words(tiny_served, page):
    held = []
    late = "no answer from the server for 3 s; the page waits for it"

    def hold(pattern):
        page.route(pattern, lambda route: held.append(route))

    def let_go(pattern):
        for route in held:
            route.continue_()
        page.unroute(pattern)
        held.clear()

    hold("**/api/catalogue")
    page.goto(tiny_served.link)
    page.wait_for_selector(f"#alarm:has-text('The page cannot start: {late}')")
    let_go("**/api/catalogue")
    wait_for_step(page, 0)
    assert page.locator("#alarm").is_hidden()
    hold("**/turn")
    page.get_by_role("button", name="Pause policy").click()
    page.wait_for_selector(f"#say:has-text('{late}')")
    let_go("**/turn")
    page.wait_for_selector("#say:has-text('the policy is paused')")
    hold("**/api/playgrounds")
    page.goto(f"{tiny_served.base}/#/playground?scenario=tiny&policy=default&speed=0.25")
    page.wait_for_selector(f".panel:has-text('{late}')")
    let_go("**/api/playgrounds")
    wait_for_playground(page)


def test_a_server_without_a_place_for_a_stream_is_said_in_words(tiny_served, page):
    page.expected_errors = ["503 (Service Unavailable)"]
    # Playwright cannot answer the requests of a shared worker.
    page.add_init_script("delete globalThis.SharedWorker")
    why = "too many streams of events are sent at the same time; close a page"
    page.route("**/api/events?*", lambda route: route.fulfill(status=503, body=f"{why}\n"))
    page.goto(tiny_served.link)
    page.wait_for_selector(f"#alarm:has-text('The server is full: {why}. The page reconnects by itself.')")
    assert page.locator("#state").text_content() == "server full"
    page.unroute("**/api/events?*")
    wait_for_step(page, 0)
    page.wait_for_selector("#alarm", state="hidden")
