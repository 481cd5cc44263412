"""One report in a browser: what a person does with it, and what the page knows.

The page's policy forbids `eval`, so Playwright's `wait_for_function` does not work on it; what is run here are functions.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page

SIZE = {"width": 1280, "height": 720}

# What the driver of WebGL says when a screenshot reads its pixels. Nothing else is let through.
_DRIVER_NOTE = re.compile(
    r"^\[\.WebGL-0x[0-9a-f]+\]GL Driver Message \(OpenGL, Performance, .*GPU stall due to ReadPixels"
)

_SETTLE = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  do await frame(); while (window.ullage.state.isWaiting);
  await new Promise((done) => setTimeout(done)); // views that changed their size draw at the end of the frame
}"""

_RESET = """async (event) => {
  const page = window.ullage;
  document.getElementById("keys").close();
  if (page.state.get("axis").kind !== "time") page.turnAxis();
  if (document.documentElement.dataset.theme) {
    delete document.documentElement.dataset.theme;
    page.dress();
  }
  page.clear();
  page.state.set({ tab: "address", view: { x0: 0, x1: page.state.get("axis").end }, event: -1 });
  page.state.set({ event });
  if (page.state.get("rank") !== 0) await page.open(0);
}"""

_GET = """(name) => {
  const value = window.ullage.state.get(name);
  return value instanceof Set ? [...value].sort((a, b) => a - b) : value;
}"""

_POINT = """([x, bytes]) => {
  const { timeline } = window.ullage;
  const box = timeline.over.surface.canvas.getBoundingClientRect();
  const { left, top, width, height } = timeline.over.frame;
  const { x0, x1, low, high } = timeline.view();
  return [box.left + left + ((x - x0) / (x1 - x0)) * width, box.top + top + height * (1 - (bytes - low) / (high - low))];
}"""


class ReportPage:
    """A report's page, and all that it asked for and complained of since it was opened.

    Attributes:
        page: Playwright's page.
        requests: The addresses that it asked for.
        complaints: What it wrote to the console as an error or a warning, exceptions that nobody caught, and dialogs.
    """

    def __init__(self, context: BrowserContext, path: Path, *, fragment: str = "") -> None:
        self.url = path.as_uri()
        self._fragment = fragment
        self._first_event = -1
        self.page: Page = context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("console", self._hear)
        self.page.on("dialog", self._refuse)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _DRIVER_NOTE.match(message.text):
            self.complaints.append(f"{message.type}: {message.text}")

    def _refuse(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self) -> ReportPage:
        """Open the page, and wait for its first picture."""
        self.load()
        self.page.locator("html[data-ready]").wait_for(state="attached")
        self.settle()
        self._first_event = self.get("event")
        return self

    def load(self) -> None:
        """Open the page, which may fail to show its recording."""
        self.page.goto(self.url + self._fragment)

    def reset(self) -> None:
        """Bring the page back to what it shows at first."""
        self.page.bring_to_front()  # a page behind others draws once a second
        self.page.mouse.move(2, 2)
        if self.page.viewport_size != SIZE:
            self.page.set_viewport_size(SIZE)
        self.page.evaluate(_RESET, self._first_event)
        self.settle()

    def settle(self) -> None:
        """Wait until the views have drawn what was last asked for."""
        self.page.evaluate(_SETTLE)

    def take_complaints(self) -> list[str]:
        """Return what the page complained of since this was last asked."""
        said, self.complaints = self.complaints, []
        return said

    # --- what the page knows ---

    def get(self, name: str) -> Any:
        """Return a value that all views share; a set as a sorted list."""
        return self.page.evaluate(_GET, name)

    def view(self) -> tuple[float, float]:
        """Return the part of the axis that is shown."""
        view = self.get("view")
        return view["x0"], view["x1"]

    def ask(self, expression: str, argument: Any = None) -> Any:
        """Evaluate an expression over `recording`, `timeline`, `state` and `argument`; its value travels as JSON."""
        code = (
            "(argument) => { const { state, timeline } = window.ullage; const recording = state.get('recording');"
            f" return JSON.stringify({expression}, (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value); }}"
        )
        return json.loads(self.page.evaluate(code, argument))

    def line_named(self, name: str) -> int:
        """Return the number of the line whose place is written so."""
        found: int = self.ask("recording.lines.findIndex((line) => line.name === argument)", name)
        assert found >= 0, f"no line is called {name}"
        return found

    # --- what a person does ---

    def press(self, *keys: str) -> None:
        """Press keys one after the other, and wait for the views."""
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def click(self, target: str | Locator) -> None:
        """Click an element, and wait for the views."""
        (self.page.locator(target) if isinstance(target, str) else target).click()
        self.settle()

    def click_at(self, point: tuple[float, float]) -> None:
        """Click a place of the window, and wait for the views."""
        self.page.mouse.click(*point)
        self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float], *, shift: bool = False) -> None:
        """Drag the mouse, with Shift held or not, and wait for the views."""
        mouse, keyboard = self.page.mouse, self.page.keyboard
        if shift:
            keyboard.down("Shift")
        mouse.move(*start)
        mouse.down()
        mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        mouse.move(*end)
        mouse.up()
        if shift:
            keyboard.up("Shift")
        self.settle()

    def wheel(self, point: tuple[float, float], turn: float) -> None:
        """Turn the wheel over a place of the window, and wait for the views."""
        self.page.mouse.move(*point)
        self.page.mouse.wheel(0, turn)
        self.page.evaluate("() => new Promise((done) => setTimeout(done, 60))")  # it arrives with a later frame
        self.settle()

    def point(self, x: float, size_bytes: float) -> tuple[float, float]:
        """Return where a place of the axis and a number of bytes are on the window."""
        left, top = self.page.evaluate(_POINT, [x, size_bytes])
        return left, top

    def axis_at(self, event: int) -> float:
        """Return the place on the axis of the state after an event."""
        return float(self.ask("timeline.axis.at(argument)", event))

    # --- what it looks like ---

    def text(self, target: str) -> str:
        """Return an element's text as it is shown."""
        return self.page.locator(target).inner_text()

    def picture(self, target: str) -> NDArray[np.uint8]:
        """Return the pixels of an element: rows, columns, and red, green, blue."""
        return pixels_of(self.page.locator(target).screenshot())

    def painted_columns(self) -> NDArray[np.bool_]:
        """Tell for each column of pixels whether a block is painted in it."""
        url = self.page.evaluate("() => window.ullage.timeline.boxSurface.canvas.toDataURL()")
        image = matplotlib.image.imread(io.BytesIO(base64.b64decode(url.partition(",")[2])), format="png")
        painted: NDArray[np.bool_] = (image[:, :, 3] > 0).any(axis=0)
        return painted


Open = Callable[..., ReportPage]


def pixels_of(png: bytes) -> NDArray[np.uint8]:
    """Decode a picture: rows, columns, and red, green, blue."""
    image = matplotlib.image.imread(io.BytesIO(png), format="png")
    return np.asarray(image[:, :, :3] * 255).round().astype(np.uint8)


def num_colors(pixels: NDArray[np.uint8]) -> int:
    """Count the distinct colours of a picture."""
    return len(np.unique(pixels.reshape(-1, 3), axis=0))
