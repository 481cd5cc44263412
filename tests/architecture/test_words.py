"""Words that name nothing, work that was put off, and this or that machine's folders stay out of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, all_files, shown, text_files

NAMELESS = {"utils", "util", "common", "helpers", "helper", "misc"}
# Written in pieces, so that this file does not hold what it forbids.
PUT_OFF = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
# Notebooks compile their cells under tmp/ipykernel_N on every machine, so frames name it.
MACHINE_FOLDER = re.compile(r"(?<![\w.*$}/])/(?:work|root|tmp)/(?!ipykernel)")
GLOSSARY = ROOT / "docs" / "glossary.md"
# Those of DESIGN (words as PyTorch defines them) and STYLE (names).
KEY_WORDS = (
    "trace",
    "finding",
    "segment",
    "block",
    "pool",
    "stream",
    "site",
    "step",
    "peak",
    "requested",
    "allocated",
    "active",
    "reserved",
    "used",
    "waste",
)


def names_nothing(path: Path) -> bool:
    """Tell whether a file or a folder above it has a name that says nothing."""
    relative = path.relative_to(ROOT)
    return any(
        word in NAMELESS for part in (*relative.parts[:-1], relative.stem) for word in re.split(r"[_.-]", part.lower())
    )


def lines_with(pattern: re.Pattern[str], text: str) -> list[int]:
    """Return the numbers of the lines in which the pattern is found."""
    return [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def places_with(pattern: re.Pattern[str]) -> list[str]:
    """Return each place in the repository's text in which the pattern is found."""
    files = text_files()
    assert files
    return [f"{shown(path)}:{line}" for path in files for line in lines_with(pattern, path.read_text("utf-8"))]


def defines(glossary: str, word: str) -> bool:
    """Tell whether a line of the glossary begins with the word: an item, a row, a heading or bold text."""
    return re.search(rf"^[\s|#*_`-]*{word}s?\b", glossary, re.IGNORECASE | re.MULTILINE) is not None


def test_every_file_name_says_what_is_in_it() -> None:
    assert [shown(path) for path in all_files() if names_nothing(path)] == []


def test_nothing_is_put_off() -> None:
    assert places_with(PUT_OFF) == []


def test_no_machines_folders_are_named() -> None:
    assert places_with(MACHINE_FOLDER) == []


def test_the_glossary_defines_the_key_words() -> None:
    glossary = GLOSSARY.read_text("utf-8")
    assert [word for word in KEY_WORDS if not defines(glossary, word)] == []


@pytest.mark.parametrize("name", ["src/ullage/utils.py", "cpp/core/string_helpers.hpp", "src/ullage/common/x.py"])
def test_a_name_that_says_nothing_is_seen(name: str) -> None:
    assert names_nothing(ROOT / name)


def test_put_off_work_and_machine_folders_are_seen() -> None:
    text = "fine\n# TO" + "DO: later\nopen('/wo" + "rk/x')\nbuild/work/x https://host/tmp/x\n"
    assert lines_with(PUT_OFF, text) == [2]
    assert lines_with(MACHINE_FOLDER, text) == [3]


def test_a_word_that_is_only_mentioned_is_not_defined() -> None:
    glossary = "| **Segment** | one driver allocation, cut into blocks |\n"
    assert defines(glossary, "segment")
    assert not defines(glossary, "block")
