"""The page is one file that loads nothing, runs one script alone, and lets no text become markup."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import playwright
import pytest

from tests.unit.report.hostile_names import NAMES, QUOTE, TAG
from ullage.errors import UllageError
from ullage.explain import Finding
from ullage.report.page import document, page_of
from ullage.report.printable import printable

PAYLOADS = (b"</script><script>alert(1)</script>", bytes(range(256)))


class Page(HTMLParser):
    """Reads a page: each element's tag and attributes, and the text that it begins with."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._text = []
        self.elements.append((tag, dict(attrs), self._text))

    def handle_endtag(self, tag: str) -> None:
        self._text = []

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    def texts(self, tag: str, **attributes: str) -> list[str]:
        return [
            "".join(text) for one, given, text in self.elements if one == tag and attributes.items() <= given.items()
        ]

    @property
    def policy(self) -> dict[str, str]:
        (content,) = [given["content"] for tag, given, _ in self.elements if "http-equiv" in given and tag == "meta"]
        assert content is not None
        return dict(rule.strip().partition(" ")[::2] for rule in content.split(";"))


def finding(title: str = "a", why: str = "b", next_step: str = "c") -> Finding:
    return Finding(kind="peak", severity="info", device=0, bytes=1 << 30, title=title, why=why, next_step=next_step)


def page(
    title: str = "train.pickle", findings: tuple[Finding, ...] = (), payloads: tuple[bytes, ...] = PAYLOADS
) -> Page:
    return Page("".join(page_of(title, findings, payloads)))


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_only_the_pages_one_script_and_one_style_sheet_are_allowed() -> None:
    shown = page()
    (script,), (style,) = shown.texts("script", type="module"), shown.texts("style")
    assert len(script) > 10_000
    assert shown.policy["default-src"] == "'none'"
    assert shown.policy["script-src"] == digest(script)
    assert shown.policy["style-src"] == digest(style)
    assert shown.policy["base-uri"] == shown.policy["form-action"] == "'none'"
    assert shown.policy["require-trusted-types-for"] == "'script'"
    # The policy holds for what comes after it.
    tags = [tag for tag, _, _ in shown.elements]
    assert tags.index("style") > next(index for index, one in enumerate(shown.elements) if "http-equiv" in one[1])


def test_recordings_are_blocks_of_data_in_their_order() -> None:
    shown = page()
    blocks = shown.texts("script", type="application/x-ullage")
    assert [base64.b64decode(block, validate=True) for block in blocks] == list(PAYLOADS)
    assert sorted({str(given["type"]) for tag, given, _ in shown.elements if tag == "script"}) == [
        "application/x-ullage",
        "module",
    ]
    assert len(shown.texts("script")) == len(PAYLOADS) + 1


def test_nothing_is_loaded_or_run_from_an_attribute() -> None:
    for tag, given, _ in page(QUOTE, (finding(TAG, QUOTE, TAG),)).elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        for name, value in given.items():
            assert name not in {"src", "href", "srcset", "style", "action", "data"}
            assert not name.startswith("on")
            assert not re.search(r"https?:|//|javascript:|url\(", value or "")


def test_the_script_and_the_style_sheet_name_no_address() -> None:
    shown = page()
    for text in (*shown.texts("script", type="module"), *shown.texts("style")):
        assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|@import|import\(|url\(", text)


def test_texts_of_a_recording_are_texts_of_the_page() -> None:
    names = [name for name in NAMES if len(name) < 1000]
    for name in names:
        shown = page(name, (finding(name, name, name),), ())
        assert shown.texts("title") == shown.texts("b")[-1:] == [printable(name)]
        plain = page("a", (finding("a", "a", "a"),), ())
        assert [tag for tag, _, _ in shown.elements] == [tag for tag, _, _ in plain.elements]


def test_without_javascript_the_findings_can_be_read() -> None:
    whole = "".join(page_of("rank0.pickle", [finding("4 GiB in 3 lines", "Because.", "Do this.")], []))
    plain = whole[whole.index("<noscript>") : whole.index("</noscript>")]
    for words in ("rank0.pickle", "1 finding. ", "4 GiB in 3 lines", "(1 GiB)", "Because.", "Do this."):
        assert words in plain


def test_a_megabyte_of_text_is_cut() -> None:
    whole = "".join(page_of("t" * (1 << 20), [finding("x" * (1 << 20), "y" * (1 << 20), "z" * (1 << 20))], []))
    empty = "".join(page_of("t", [finding()], []))
    assert len(whole) < len(empty) + 5 * 500
    assert f"{'y' * 400}… (1,048,176 more characters)" in whole


# --- the bundle ---


@pytest.fixture
def assets(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Return a dictionary whose texts stand for the page's modules."""
    texts: dict[str, str] = {}
    monkeypatch.setattr(document, "_asset", lambda name: texts[name])
    document.bundle.cache_clear()
    yield texts
    document.bundle.cache_clear()


def test_modules_that_import_each_other_are_refused(assets: dict[str, str]) -> None:
    assets["main.js"] = 'import { a } from "./a.js";\n'
    assets["a.js"] = 'import { b } from "./b.js";\nexport const a = 1;\n'
    assets["b.js"] = 'import { a } from "./a.js";\nexport const b = 1;\n'
    with pytest.raises(UllageError, match=r"import each other: main\.js → a\.js → b\.js → a\.js"):
        document.bundle()


def test_what_is_not_exported_cannot_be_imported(assets: dict[str, str]) -> None:
    assets["main.js"] = 'import { a, hidden } from "./a.js";\n'
    assets["a.js"] = "export const a = 1;\nconst hidden = 2;\n"
    with pytest.raises(UllageError, match=r"main\.js imports hidden, which a\.js does not export"):
        document.bundle()


def test_a_module_comes_once_after_what_it_imports_and_gives_what_it_exports(assets: dict[str, str]) -> None:
    assets["main.js"] = 'import { f } from "./a.js";\nimport { B } from "./b.js";\nf(B);\n'
    assets["a.js"] = 'import { B } from "./b.js";\nexport async function f() {}\nexport const g = 1;\n'
    assets["b.js"] = "export class B {}\n// export const none = 1;\n"
    assert document.bundle() == (
        "\n"
        "const $b = (() => {\nclass B {}\n// export const none = 1;\n\nreturn { B };\n})();\n"
        "const $a = (() => {\nconst { B } = $b;\nasync function f() {}\nconst g = 1;\n\nreturn { f, g };\n})();\n"
        "const $main = (() => {\nconst { f } = $a;\nconst { B } = $b;\nf(B);\n\nreturn {  };\n})();"
    )


def test_no_import_or_export_is_left_and_each_module_is_there(assets_on_disk: list[str]) -> None:
    script = document.bundle()
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert sorted(re.findall(r"^const \$(\w+) = \(\(\) => \{$", script, re.MULTILINE)) == assets_on_disk
    assert "</script" not in script.lower()
    assert "<!--" not in script


@pytest.fixture
def assets_on_disk() -> list[str]:
    folder = Path(document.__file__).parent / "assets"
    return sorted(path.stem for path in folder.glob("*.js"))


def node() -> Path:
    """Return Node, which Playwright brings along."""
    return Path(playwright.__file__).parent / "driver" / "node"


def test_the_script_is_well_formed(tmp_path: Path) -> None:
    script = tmp_path / "page.mjs"
    script.write_text(document.bundle(), encoding="utf-8")
    done = subprocess.run([str(node()), "--check", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
