"""Finds the scripts that the page of `torch.cuda._memory_viz trace_plot` loads, so that it runs without a network.

The page itself holds only the recording. It imports MemoryViz.js from a CDN, at pytorch's `main`, and that imports
process_alloc_data.js and d3. None of them is in torch's wheel, and none is kept in this repository:

    MemoryViz.js, process_alloc_data.js    from the folder, else from the CDN at COMMIT
    d3.min.js                              from the folder, else by `npm pack`

Where the CDN cannot be reached, put the first two into the folder (build/peer_page) by hand: the results then name no
commit, only digests. The browser gets them as they are, at the addresses that it asks for. Only d3 is put together
otherwise: the CDN gives five modules, here one build of the same version stands for all five.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

COMMIT = "135deb676d1ff32eaa12d21c99a28022bfb1dbb5"  # of pytorch/pytorch
ASKED = "https://cdn.jsdelivr.net/gh/pytorch/pytorch@main/torch/utils/viz/"  # by the page
PINNED = ASKED.replace("@main", f"@{COMMIT}")
SCRIPTS = ("MemoryViz.js", "process_alloc_data.js")
D3_VERSION = "7.9.0"
D3_FILE = "d3.min.js"
D3_URL = "https://cdn.jsdelivr.net/npm/d3@7/+whole"  # only our own modules ask for it
DOWNLOAD_TIMEOUT_S = 20
_D3_IMPORT = re.compile(r'^import (\* as d3|\{[^}]*\}) from "(https://[^"]*/d3[^"]*)";', re.MULTILINE)
_D3_USE = re.compile(r"\bd3\.(\w+)")


class PeerMissingError(RuntimeError):
    """A script of the peer's page is neither here nor to be had; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class PeerScripts:
    """What the browser is given, by address, and what it was made from."""

    by_url: dict[str, str]
    sha256: dict[str, str]
    commit: str | None  # of pytorch/pytorch; None where a file was put there by hand, and may be any


def find_scripts(folder: Path) -> PeerScripts:
    """Return the scripts, fetched into `folder` where they are not there yet.

    Raises:
        PeerMissingError: One cannot be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: _script(folder, name) for name in SCRIPTS}
    d3 = _d3(folder)
    sources = texts | {D3_FILE: d3}
    return PeerScripts(
        by_url={ASKED + name: text for name, text in texts.items()} | d3_modules(texts["MemoryViz.js"], d3),
        sha256={name: hashlib.sha256(text.encode()).hexdigest() for name, text in sources.items()},
        commit=None if any((folder / name).exists() for name in SCRIPTS) else COMMIT,
    )


def d3_modules(viewer: str, d3: str) -> dict[str, str]:
    """Return modules for the addresses from which `viewer` imports d3, over one that holds the build `d3`.

    Example:
        >>> modules = d3_modules('import {zoom} from "https://cdn/d3-zoom@3/+esm";', "exports.zoom = 1;")
        >>> modules["https://cdn/d3-zoom@3/+esm"]
        'export {zoom} from "https://cdn.jsdelivr.net/npm/d3@7/+whole";'
    """
    used = sorted({*_D3_USE.findall(_D3_IMPORT.sub("", viewer))})
    names_by_url: dict[str, list[str]] = {}
    for what, url in _D3_IMPORT.findall(viewer):
        names_by_url[url] = used if what.startswith("*") else [name.strip() for name in what.strip("{}").split(",")]
    every_name = ", ".join(sorted({name for names in names_by_url.values() for name in names}))
    # The build fills `exports` where it finds it and `module`.
    whole = f"const exports = {{}}, module = {{ exports }};\n{d3}\nexport const {{ {every_name} }} = exports;"
    return {D3_URL: whole} | {
        url: f'export {{{", ".join(names)}}} from "{D3_URL}";' for url, names in names_by_url.items()
    }


def _script(folder: Path, name: str) -> str:
    by_hand, path = folder / name, folder / COMMIT / name
    if by_hand.exists():
        return by_hand.read_text(encoding="utf-8")
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        try:
            with urllib.request.urlopen(PINNED + name, timeout=DOWNLOAD_TIMEOUT_S) as answer:
                path.write_bytes(answer.read())
        except (urllib.error.URLError, TimeoutError) as error:
            raise PeerMissingError(f"{name} is not in {folder}, and {PINNED}{name} cannot be read: {error}") from error
    return path.read_text(encoding="utf-8")


def _d3(folder: Path) -> str:
    path = folder / D3_FILE
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise PeerMissingError(f"{D3_FILE} is not in {folder}, and there is no npm to fetch it")
        packed = subprocess.run(
            [npm, "pack", "--silent", f"d3@{D3_VERSION}"], cwd=folder, capture_output=True, text=True
        )
        if packed.returncode != 0:
            raise PeerMissingError(
                f"{D3_FILE} is not in {folder}, and npm pack d3@{D3_VERSION} failed: {packed.stderr}"
            )
        archive = folder / packed.stdout.split()[-1]
        with tarfile.open(archive) as package:
            member = package.extractfile(f"package/dist/{D3_FILE}")
            assert member is not None, "a regular file in every release of d3"
            path.write_bytes(member.read())
        archive.unlink()
    return path.read_text(encoding="utf-8")
