"""Opens one page in headless Chromium, in a process of its own, and prints as JSON how soon and how smoothly it draws.

    python -m benchmarks.page_timing report.html
    python -m benchmarks.page_timing plot.html --peer build/peer_page

The pointer zooms in with the wheel and pans by dragging, at three magnifications, then zooms out:

    zoom to 4x, pan, zoom to 16x, pan, zoom to 64x, pan, zoom out

Events are real ones, sent through the browser. A frame counts when it is the one in which an event was handled: its time
is that from its animation callback to the next one's, so script, layout, paint and the raster that holds up the next
frame are all in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peer_page import find_scripts
from playwright.sync_api import BrowserContext, Error, Page, Route, TimeoutError, ViewportSize, sync_playwright

VIEWPORT: ViewportSize = {"width": 1280, "height": 720}
SETTLE_MS = 2500  # after the first picture: what a page prepares while nothing is to be done
PAINTER_TIMEOUT_MS = 10_000
POINTER = (0.37, 0.5)  # where in the picture
MAGNIFICATION = 4
NUM_ZOOMS = 3
WHEELS = 24  # for one magnification
DRAGS = 60  # half to the left, half back
DRAG_PX = 8.0
STRETCH_LIMIT_S = 10.0  # a stretch that takes longer ends there

# Sees when an event was handled, and how long until the next frame.
RECORDER = """
window.frames_ms = [];
(() => {
  let last = null, handled = false, draws = false;
  const see = () => { handled = true; };
  for (const kind of ["wheel", "pointermove"]) addEventListener(kind, see, { capture: true, passive: true });
  const frame = (now) => {
    if (draws && last !== null) window.frames_ms.push(now - last);
    [draws, handled, last] = [handled, false, now];
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})();
"""
# The peer's page says nothing when it has drawn. The frame that finds polygons paints them; the next one has been painted.
PEER_READY = """
(() => {
  const look = () => {
    if (!document.querySelector("svg polygon, svg path")) return requestAnimationFrame(look);
    requestAnimationFrame(() => { document.documentElement.dataset.ready = Math.round(performance.now()); });
  };
  requestAnimationFrame(look);
})();
"""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A kind of page: where its picture is, and by how much a pixel of the wheel zooms."""

    picture: str
    zoom_per_pixel: float  # the logarithm of the magnification


ULLAGE = Subject(picture="#timeline canvas.over", zoom_per_pixel=0.0016)
PEER = Subject(picture="svg >> nth=0", zoom_per_pixel=0.002 * math.log(2))  # d3's zoom


@dataclass(kw_only=True)
class PageTiming:
    """What opening a page once gave."""

    outcome: str = "drawn"  # or "timeout", "crash", "not loaded": a script that it asked for did not come
    first_picture_ms: int | None = None
    painter: str | None = None
    frames_ms: dict[str, list[float]] = field(default_factory=dict)
    peak_rss_bytes: dict[str, int] = field(default_factory=dict)  # by kind of process
    chromium: str = ""
    messages: list[str] = field(default_factory=list)  # what the page said went wrong


def stretches(subject: Subject) -> Iterator[tuple[str, bool, list[float]]]:
    """Yield each stretch: its name, whether the button is held, and the pixels that the wheel turns or the pointer goes."""
    pixels = math.log(MAGNIFICATION) / subject.zoom_per_pixel / WHEELS
    there, back = [-DRAG_PX] * (DRAGS // 2), [DRAG_PX] * (DRAGS // 2)
    for level in range(1, NUM_ZOOMS + 1):
        yield f"zoom to {MAGNIFICATION**level}x", False, [-pixels] * WHEELS
        yield f"pan at {MAGNIFICATION**level}x", True, there + back
    yield "zoom out", False, [pixels] * (NUM_ZOOMS * WHEELS)


def move(page: Page, subject: Subject) -> dict[str, list[float]]:
    """Zoom and pan; returns the times of the frames of each stretch, in milliseconds."""
    box = page.locator(subject.picture).bounding_box()
    assert box is not None, "the picture has been drawn"
    x, y = box["x"] + POINTER[0] * box["width"], box["y"] + POINTER[1] * box["height"]
    page.mouse.move(x, y)
    found = {}
    for name, is_pan, events in stretches(subject):
        page.evaluate("() => { window.frames_ms = []; }")
        if is_pan:
            page.mouse.down()
        deadline, at = time.monotonic() + STRETCH_LIMIT_S, x
        for pixels in events:
            if time.monotonic() > deadline:
                break
            if is_pan:
                at += pixels
                page.mouse.move(at, y)
            else:
                page.mouse.wheel(0, pixels)
        # Two frames more, so that the last event's is over.
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found[name] = page.evaluate("() => window.frames_ms")
        if is_pan:
            page.mouse.up()
            page.mouse.move(x, y)
    return found


def serve(context: BrowserContext, by_url: dict[str, str]) -> None:
    """Answer what a page asks of the network from `by_url`; anything else fails."""

    def answer(route: Route) -> None:
        text = by_url.get(route.request.url)
        if text is None:
            route.abort()
        else:
            headers = {"access-control-allow-origin": "*"}
            route.fulfill(body=text, content_type="text/javascript; charset=utf-8", headers=headers)

    context.route(re.compile("^https?://"), answer)


def peak_rss(process_id: int) -> int:
    """Return a process's highest resident memory in bytes."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def time_page(url: str, peer_scripts: Path | None, options: argparse.Namespace) -> PageTiming:
    """Open a page and move in it."""
    timing, failed = PageTiming(), list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        timing.chromium = browser.version
        context = browser.new_context(viewport=VIEWPORT)
        serve(context, find_scripts(peer_scripts).by_url if peer_scripts else {})
        context.add_init_script(RECORDER)
        if peer_scripts:
            context.add_init_script(PEER_READY)
        page = context.new_page()
        page.on("pageerror", lambda error: timing.messages.append(str(error)))
        page.on("requestfailed", lambda request: failed.append(request.url))
        try:
            page.goto(url, wait_until="commit")
            page.locator("html[data-ready]").wait_for(state="attached", timeout=options.timeout_s * 1000)
            timing.first_picture_ms = int(page.evaluate("() => document.documentElement.dataset.ready"))
            if peer_scripts is None:
                timing.painter = painter_of(page, may_be_gl="#webgl" in url)
            page.wait_for_timeout(SETTLE_MS)
            if not options.no_frames:
                timing.frames_ms = move(page, PEER if peer_scripts else ULLAGE)
        except TimeoutError as error:
            timing.outcome = "not loaded" if failed else "timeout"
            timing.messages.append(error.message.splitlines()[0])
        except Error as error:
            timing.outcome = "crash"
            timing.messages.append(error.message.splitlines()[0])
        timing.messages += [f"did not come: {url}" for url in failed]
        timing.peak_rss_bytes = peaks(browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo"))
        browser.close()
    return timing


def painter_of(page: Page, *, may_be_gl: bool) -> str | None:
    """Return what our page draws with, once it has had the time to go over to WebGL."""
    if may_be_gl:
        with contextlib.suppress(TimeoutError):
            page.locator("#timeline[data-painter=webgl2]").wait_for(state="attached", timeout=PAINTER_TIMEOUT_MS)
    return page.locator("#timeline").get_attribute("data-painter")


def peaks(processes: dict[str, Any]) -> dict[str, int]:
    """Return the highest memory of the processes that hold a page: the renderer, and the GPU's, which paints."""
    found: dict[str, int] = {}
    for process in processes["processInfo"]:
        if process["type"] in ("renderer", "GPU"):
            found[process["type"]] = max(found.get(process["type"], 0), peak_rss(process["id"]))
    return found


def main() -> None:
    """Print the timing."""
    parser = argparse.ArgumentParser(description="Time one page in headless Chromium.")
    parser.add_argument("page", help="the file; may end in #webgl")
    parser.add_argument("--peer", type=Path, help="it is PyTorch's page, and its scripts are in this folder")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--timeout-s", type=float, default=120.0)
    parser.add_argument("--no-frames", action="store_true", help="only the first picture")
    options = parser.parse_args()
    file, mark, fragment = options.page.partition("#")
    timing = time_page(Path(file).resolve().as_uri() + mark + fragment, options.peer, options)
    print(json.dumps(vars(timing)))


if __name__ == "__main__":
    main()
