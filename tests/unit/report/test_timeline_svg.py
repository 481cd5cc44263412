"""The timeline as SVG: valid XML, with the peak at its height."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.recordings import EXPECTED, device_of
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import MIB, SimulatedOutOfMemoryError, SnapshotBuilder
from ullage.report.timeline_svg import timeline_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_recording_becomes_a_small_and_valid_image(name: str) -> None:
    text = timeline_svg(device_of(name))
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert len(text) < 100_000


def test_allocated_reaches_as_high_as_its_share_of_reserved(load: Load) -> None:
    one = SnapshotBuilder()
    one.free(one.alloc(40 * MIB))
    one.alloc(20 * MIB)
    root = ElementTree.fromstring(timeline_svg(load(one).device()))
    area, reserved = [path.get("d", "") for path in root.findall(f"{SVG}path") if "V" in path.get("d", "")][:2]
    assert "V34.0" in area
    assert "V101.0" in area
    assert "V34.0" in reserved


def test_the_peak_and_an_error_are_named(load: Load) -> None:
    one = SnapshotBuilder(limit_bytes=64 * MIB)
    one.alloc(30 * MIB)
    with pytest.raises(SimulatedOutOfMemoryError):
        one.alloc(60 * MIB)
    words = [text.text for text in ElementTree.fromstring(timeline_svg(load(one).device())).iter(f"{SVG}text")]
    assert "peak 30 MiB" in words
    assert "out of memory: 60 MiB asked for" in words
