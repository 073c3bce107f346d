"""`report.html` in headless Chromium, opened from the disk: charts, values under the pointer, dark colours, accessibility.

It needs the full program and Chromium. It must not know how the page is made.
"""

import json
import re
import subprocess

import pytest
from program import PROGRAM, needs_program
from waiting import PATIENCE_S
from web_server import CHROMIUM

pytestmark = [
    needs_program,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]

SCENARIO = """
name = "small"
duration_s = 8
warmup_s = 2
measure_s = 4
time_factor = 40

[[nic]]
name = "nic0"
offered_gbps = 80

[[storage]]
name = "raid0"

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0-1"
priority = "high"

[[workload]]
name = "fio"
program = "fio"
cores = "2"

[[workload]]
name = "scan"
program = "x-mem"
cores = "3"
working_set = "24M"
"""
SWEEP = """
[[sweep]]
key = "nic.nic0.offered_gbps"
values = [40, 80]
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The addresses of the report of a run and of a sweep."""
    folder = tmp_path_factory.mktemp("reports")
    for name, text in [("run", SCENARIO), ("sweep", SCENARIO + SWEEP)]:
        (folder / f"{name}.toml").write_text(text)
        words = [PROGRAM, "run", folder / f"{name}.toml", "--policy", "default", "--policy", "a4", "--sets", "1/64"]
        subprocess.run([*words, "--out", folder / name], check=True, stdout=subprocess.DEVNULL)
    return {name: (folder / name / "report.html").as_uri() for name in ["run", "sweep"]}


@pytest.fixture
def opened(browser, reports):
    """A function that opens a report. No page may log an error or ask for another file."""
    wrong, contexts = [], []

    def open_report(name, width=1400, scheme="light", **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        context.set_default_timeout(1000 * PATIENCE_S)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
        page.on("request", lambda request: wrong.append(request.url) if request.url != reports[name] else None)
        page.goto(reports[name])
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert wrong == []


def drawn(page, chart):
    """Colours of the pixels of a chart: how many there are."""
    page.locator(chart).first.locator("canvas").wait_for()
    return (
        page.locator(chart)
        .first.locator("canvas")
        .evaluate(
            "canvas => new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
            ".data.buffer)).size"
        )
    )


def test_every_chart_is_drawn_and_the_pointer_shows_values(opened):
    page = opened("run")
    chart = page.get_by_role("figure", name="LLC hit ratio per workload, share").locator("visible=true")
    assert drawn(page, "figure.chart:visible") > 10
    chart.locator(".u-over").hover()
    chart.locator(".u-legend .u-value").first.filter(has_not_text="8.0 s").wait_for()
    values = chart.locator(".u-legend .u-value").all_text_contents()
    data = json.loads(page.locator("#charts").text_content())
    shown = next(one for one in reversed(data) if one["title"].startswith("LLC hit ratio"))
    places = shown["places"]
    at = float(values[0].removesuffix(" s"))
    nearest = min(range(len(places)), key=lambda index: abs(places[index] - at))
    expected = [line["values"][nearest] for line in shown["lines"]]
    assert values[1:] == ["-" if value is None else f"{100 * value:.1f} %" for value in expected]
    assert 0 < nearest < len(places) - 1
    labels = chart.locator(".u-legend .u-label").all_text_contents()[1:]
    assert labels == [f"{line['letter']} {line['name']}" for line in shown["lines"]]
    # The bars: the value of one of them at once, without the browser's delay.
    page.locator("svg.bars g rect").first.hover()
    assert re.fullmatch(r".+, default: 1\.00.*", page.locator(".tip").text_content())
    # The other policy has charts of its own, which are drawn when they are shown.
    page.locator(".tabs label", has_text="default").click()
    assert drawn(page, "figure.chart:visible") > 10
    page.locator(".ways-at input:visible").fill("1")
    assert page.locator(".ways-at output:visible").text_content() == "1.0 s"
    assert page.locator(".ways-at:visible .part-letter").count() >= 2


def test_a_sweep_has_a_point_per_value_and_dark_colours(opened):
    light, dark = opened("sweep"), opened("sweep", width=420, scheme="dark")
    for page in (light, dark):
        page.locator("figure.chart canvas").first.wait_for()
        wide, screen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= screen
        assert page.locator("figure.chart canvas").count() == page.locator("[data-chart]").count()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(ground) == "rgb(255, 255, 255)" and dark.evaluate(ground) == "rgb(24, 33, 44)"
    # A chart follows the system while the page is open.
    before = light.locator("canvas").first.evaluate("canvas => canvas.toDataURL()")
    light.emulate_media(color_scheme="dark")
    light.wait_for_timeout(200)
    assert light.locator("canvas").first.evaluate("canvas => canvas.toDataURL()") != before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(opened, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()
    # The schemes differ in colours alone: the other rules would find the same again.
    rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
    for name in ["run", "sweep"]:
        # axe is a script of its own, which the page's policy refuses.
        page = opened(name, scheme=scheme, bypass_csp=True)
        page.locator("figure.chart canvas").first.wait_for()
        found = axe.run(page, options=rules).response["violations"]
        wrong = [(one["id"], one["impact"], one["nodes"][0]["target"]) for one in found]
        assert wrong == [], f"{name}, {scheme}"


def test_without_scripts_bars_ways_and_tables_are_there(opened):
    page = opened("run", java_script_enabled=False)
    assert page.locator("svg.bars g").count() > 0 and page.locator("svg.waymap g").count() > 0
    assert page.locator("table").count() >= 3
    assert page.locator("figure.chart").count() == 0
