"""Golden pictures of the web page: fixed data in, a picture out that is like the one kept in `pictures/`.

The data is one step of the flagship (`pictures/step.json`). Fonts differ between machines, so pictures are compared as grey ones
of a quarter of the size: a layout that moves, a colour or a bar that is missing shows, another font does not. After an intended
change, run with `WAYKEEPER_WRITE_PICTURES=1` and look at the new files. It must not know how the page is made.
"""

import json
import os
from pathlib import Path

import pytest
from program import needs_program
from waiting import PATIENCE_S
from web_server import CHROMIUM, DRAWN

pytest.importorskip("playwright.sync_api", reason="needs playwright")
image_of = pytest.importorskip("PIL.Image", reason="needs pillow")
from PIL import ImageChops, ImageStat  # noqa: E402

pytestmark = [
    needs_program,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 4.0
"""Mean difference of two grey pictures, of 255. Two fonts differ by 1 to 2; a missing way map by more than 8."""

CASES = [("overview-light", "/", 1440, "light"), ("overview-dark", "/", 1440, "dark"), ("overview-narrow", "/", 360, "light"),
         ("tenant", "/tenant/parest", 1440, "light")]  # fmt: skip


@pytest.fixture(scope="module")
def small(browser, served, tmp_path_factory):
    """A function that makes the small grey picture of a view."""
    step = json.loads((PICTURES / "step.json").read_text(encoding="utf-8"))
    events = f"id: main\nevent: picture\ndata: {json.dumps(step)}\n\n"
    folder = tmp_path_factory.mktemp("pictures")

    def make(view, width, scheme, hide=None):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(1000 * PATIENCE_S)
        page = context.new_page()
        # Playwright cannot answer the requests of a shared worker.
        page.add_init_script("delete globalThis.SharedWorker")
        stream = {"content_type": "text/event-stream", "body": events}
        page.route("**/api/events?*", lambda route: route.fulfill(**stream))
        page.route("**/api/feeds/main/history", lambda route: route.fulfill(content_type="application/json", body="[]"))
        page.goto(f"{served.base}/#{view}")
        page.wait_for_selector("#view .card dd, #view .card td")
        page.evaluate(DRAWN)
        if hide:
            hidden = "name => document.querySelectorAll(name).forEach(it => (it.style.visibility = 'hidden'))"
            page.evaluate(hidden, hide)
        page.screenshot(path=folder / "whole.png")
        context.close()
        whole = image_of.open(folder / "whole.png").convert("L")
        return whole.resize((whole.width // 4, whole.height // 4), image_of.Resampling.BOX)

    return make


def difference(one, other):
    return ImageStat.Stat(ImageChops.difference(one, other)).mean[0]


@pytest.mark.parametrize(("name", "view", "width", "scheme"), CASES, ids=[case[0] for case in CASES])
def test_the_view_looks_like_its_golden_picture(small, name, view, width, scheme):
    golden = PICTURES / f"{name}.png"
    made = small(view, width, scheme)
    if os.environ.get("WAYKEEPER_WRITE_PICTURES"):
        made.save(golden, optimize=True)
    kept = image_of.open(golden).convert("L")
    assert made.size == kept.size
    assert difference(made, kept) < TOLERANCE


def test_a_view_without_its_way_map_is_not_like_the_golden_picture(small):
    made = small("/", 1440, "light", hide="#way-map")
    kept = image_of.open(PICTURES / "overview-light.png").convert("L")
    assert difference(made, kept) > TOLERANCE
