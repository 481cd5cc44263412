"""Blocks too small to be drawn one by one are merged into boxes, and none is lost by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ullage
from tests.browser.recorded import KINDS, LEAK, VARLEN, device_of, many_small_blocks
from tests.browser.report_page import Open, ReportPage
from ullage.report.page_file import write_report
from ullage.trace import NONE

# Of blocks given by their rows: those in view that no box shows. A box holds a block's middle, up to a pixel's width.
UNSHOWN = """(([rows, x0, x1, pixels]) => {
  const { boxes } = timeline;
  const { single, merged } = boxes.inView(x0, x1, pixels);
  const perPixel = (x1 - x0) / pixels;
  const stretches = [...single.map((one) => [boxes.single, one]), ...(merged ? [[merged.boxes, merged.stretch]] : [])];
  const isShown = (row) => {
    const x = (Math.max(boxes.x0[row], x0) + Math.min(boxes.x1[row], x1)) / 2;
    const y = (recording.drawn[row] + recording.size[row] / 2) / boxes.yUnit;
    return stretches.some(([{ places }, [begin, end]]) => {
      for (let at = begin * 4; at < end * 4; at += 4) {
        const isAcross = places[at] <= x && x <= Math.max(places[at + 1], places[at] + perPixel);
        if (isAcross && places[at + 2] <= y && y <= places[at + 2] + places[at + 3]) return true;
      }
      return false;
    });
  };
  const inView = rows.filter((row) => boxes.x1[row] >= x0 && boxes.x0[row] <= x1);
  const numMerged = merged ? merged.stretch[1] - merged.stretch[0] : 0;
  return { numInView: inView.length, numMerged, unshown: inView.filter((row) => !isShown(row)) };
})(argument)"""


@pytest.fixture(scope="module")
def small_blocks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ullage.DeviceTrace]:
    """Return the report of a history of very many small blocks, and what Python has of it."""
    folder = tmp_path_factory.mktemp("small_blocks")
    recording, page = folder / "small.pickle", folder / "small.html"
    recording.write_bytes(many_small_blocks().pickled())
    write_report([str(recording)], str(page), simulate=False)
    return page, ullage.load(recording).device()


@pytest.mark.parametrize("axis", ["time", "events"])
@pytest.mark.parametrize("share", [1.0, 0.3, 0.02])
def test_every_block_in_view_is_in_a_box(
    open_report: Open, small_blocks: tuple[Path, ullage.DeviceTrace], share: float, axis: str
) -> None:
    path, device = small_blocks
    report = open_report(path=path)
    if axis == "events":
        report.press("x")
    end = report.ask("timeline.axis.end")
    rows = np.random.default_rng(5).choice(len(device.blocks.birth), 250 if share > 0.1 else 4000, replace=False)
    found = report.ask(UNSHOWN, [rows.tolist(), end * (0.5 - share / 2), end * (0.5 + share / 2), 800])
    assert found["numInView"] >= 50
    assert found["unshown"] == []
    assert (found["numMerged"] > 0) == (share == 1.0)


def test_so_many_blocks_are_drawn_as_few_boxes(
    open_report: Open, small_blocks: tuple[Path, ullage.DeviceTrace]
) -> None:
    report = open_report(path=small_blocks[0])
    drawn = report.ask("""(() => {
      const { single, merged } = timeline.boxes.inView(0, timeline.axis.end, 800);
      return [...single, ...(merged ? [merged.stretch] : [])].reduce((sum, [begin, end]) => sum + end - begin, 0);
    })()""")
    assert 0 < drawn < 40_000


def test_every_column_in_which_something_lives_has_a_pixel(
    open_report: Open, small_blocks: tuple[Path, ullage.DeviceTrace]
) -> None:
    report = open_report(path=small_blocks[0])
    assert report.painted_columns().all()  # something lives from the first event on


@pytest.mark.parametrize("name", [LEAK, VARLEN, *KINDS[4:9], "record_stream_backlog", None])
def test_the_block_at_a_place_is_pythons(
    open_report: Open, small_blocks: tuple[Path, ullage.DeviceTrace], name: str | None
) -> None:
    report: ReportPage = open_report(name) if name else open_report(path=small_blocks[0])
    device = device_of(name) if name else small_blocks[1]
    report.press("x")  # along events each instant has a place of its own
    birth, size, low = device.blocks.birth, device.blocks.size_bytes, device.drawing.offset
    ends = np.where(device.blocks.death == NONE, device.num_events, device.blocks.death)
    chance = np.random.default_rng(11)
    places, expected = [], []
    for event in chance.integers(-1, device.num_events, 120).tolist():
        height = int(chance.integers(0, device.drawing.height)) // 512 * 512 + 256
        there = np.flatnonzero((birth <= event) & (ends > event) & (low <= height) & (low + size > height))
        assert len(there) <= 1
        expected.append(int(there[0]) if len(there) else -1)
        places.append([event + 1, height])
    picked = report.ask("argument.map(([x, y]) => timeline.boxes.pick(x, x + 1, y / timeline.boxes.yUnit))", places)
    assert picked == expected
    assert sum(row >= 0 for row in picked) > 10
