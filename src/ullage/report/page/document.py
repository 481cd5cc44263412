"""The page around the recordings: its modules and styles in one file that asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from ullage.errors import UllageError
from ullage.report.page.payload import clipped
from ullage.report.printable import printable
from ullage.units import format_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ullage.explain import Finding

_ENTRY = "main.js"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z0-9_]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:const|function|class) ([A-Za-z_$][\w$]*)", re.MULTILINE)
_EXPORT_WORD = re.compile(r"^export (?=(?:async )?(?:const|function|class)\b)", re.MULTILINE)

# Everything is forbidden but the one script and the one style sheet of the page, by their digests. Nothing can be loaded,
# sent, framed or submitted, and no text can become markup.
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def page_of(title: str, findings: Sequence[Finding], payloads: Iterable[bytes]) -> Iterator[str]:
    """Yield the pieces of a page.

    Args:
        title: The page's title.
        findings: What to say where the page's script does not run.
        payloads: What `rank_payload` returns, in the order to show. Each is let go when it is written.
    """
    script, style, body = bundle(), _asset("page.css"), _asset("page.html")
    policy = _POLICY.format(script=_digest(script), style=_digest(style))
    yield (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}"
    )
    yield f"<noscript>\n{_plain_findings(title, findings)}</noscript>\n"
    for payload in payloads:
        # Not a script to a browser: a block of data. Base64 has no character that could end it.
        yield '<script type="application/x-ullage" class="rank">'
        yield base64.b64encode(payload).decode("ascii")
        yield "</script>\n"
    yield f'<script type="module">{script}</script>\n</body>\n</html>\n'


@cache
def bundle() -> str:
    """Return the page's modules as one script: each a function of its own that gives what it exports, after its imports.

    Raises:
        UllageError: One imports what the other does not export, or two import each other.
    """
    order: list[str] = []
    _visit(_ENTRY, order, ())
    exports = {name: _EXPORT.findall(_asset(name)) for name in order}
    return "\n" + "\n".join(_as_function(name, exports) for name in order)


def _as_function(name: str, exports: dict[str, list[str]]) -> str:
    source = _asset(name)
    for imported, module in _IMPORT.findall(source):
        missing = {one.strip() for one in imported.split(",")} - {*exports[module]}
        if missing:
            raise UllageError(f"{name} imports {', '.join(sorted(missing))}, which {module} does not export")
    source = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_variable(found[2])};\n", source)
    source = _EXPORT_WORD.sub("", source)
    return f"const {_variable(name)} = (() => {{\n{source}\nreturn {{ {', '.join(exports[name])} }};\n}})();"


def _variable(module: str) -> str:
    return "$" + module.removesuffix(".js")


def _visit(name: str, order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise UllageError(f"modules import each other: {' → '.join((*above, name))}")
    for _, module in _IMPORT.findall(_asset(name)):
        if module not in order:
            _visit(module, order, (*above, name))
    order.append(name)


@cache
def _asset(name: str) -> str:
    return resources.files("ullage.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _text(text: str) -> str:
    return escape(printable(clipped(text), limit=len(text) + 100))  # the clipping says how much is gone


def _plain_findings(title: str, findings: Sequence[Finding]) -> str:
    rows = "".join(
        f"<li><b>{_text(one.title)}</b> ({format_bytes(one.bytes)})<br>{_text(one.why)}<br>{_text(one.next_step)}</li>\n"
        for one in findings
    )
    found = plural(len(findings), "finding")
    return (
        f'<section class="plain"><h1>{_text(title)}</h1>\n<p>{found}. The views need JavaScript, which is off.</p>\n'
        f"<ol>\n{rows}</ol></section>\n"
    )
