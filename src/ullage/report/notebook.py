"""What notebooks show for a trace, a device and findings: HTML fragments without scripts, styles in each element.

They read well on light and dark: text keeps the notebook's colour, and borders are half transparent. Everything from the
file is clipped and escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ullage.report.palette import OOM_COLOUR
from ullage.report.printable import line_name, printable
from ullage.report.timeline_svg import timeline_svg
from ullage.units import format_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.explain import Finding
    from ullage.trace import DeviceTrace, Frame, Trace

_MAX_DEVICES = 8
_MAX_FINDINGS = 50
_MAX_CALLERS = 3
_BORDER = "1px solid rgba(128,128,128,.4)"
_COLOURS = {"error": OOM_COLOUR, "warning": "#E69F00", "info": "#56B4E9"}
_WORDS = {"error": "error", "warning": "warning", "info": "note"}
_BOX = f"border:{_BORDER};border-radius:4px;padding:8px 12px;margin:4px 0;max-width:760px;line-height:1.45"
_DIM = "opacity:.7"


def trace_html(trace: Trace) -> str:
    """Show a trace: where it came from, and each device with its figures and its timeline.

    Cost: for each device linear in the events, three passes.
    """
    name, version = _shown(trace.path.rpartition("/")[2] or "trace", 200), _shown(trace.torch_version, 60)
    head = f"<b>{name}</b>" + (f' <span style="{_DIM}">torch {version}</span>' if version else "")
    shown = [_device(device) for device in trace.devices[:_MAX_DEVICES]]
    more = len(trace.devices) - _MAX_DEVICES
    if more > 0:
        shown.append(f'<div style="{_DIM}">and {plural(more, "more device")}</div>')
    return _box([f"<div>{head}</div>", *(shown or ["<div>No device has events or segments in this file.</div>"])])


def device_html(device: DeviceTrace) -> str:
    """Show one device: its figures and its timeline. Cost: linear in the events, three passes."""
    return _box([_device(device)])


def findings_html(findings: Sequence[Finding]) -> str:
    """Show findings as cards, in their order; a list of more than 50 is cut."""
    if not findings:
        return _box(["<div>No findings.</div>"])
    several = len({finding.device for finding in findings}) > 1
    cards = [_card(finding, several) for finding in findings[:_MAX_FINDINGS]]
    more = len(findings) - _MAX_FINDINGS
    if more > 0:
        cards.append(f'<div style="{_DIM}">and {plural(more, "more finding")}</div>')
    return f"<div>{''.join(cards)}</div>"


def _shown(text: str, limit: int) -> str:
    return escape(printable(text, limit))


def _box(parts: list[str], colour: str = "") -> str:
    edge = f";border-left:4px solid {colour}" if colour else ""
    return f'<div style="{_BOX}{edge}">{"".join(parts)}</div>'


def _device(device: DeviceTrace) -> str:
    peak, end, history = device.peak, device.end, device.history
    what = f"{device.title}, history {device.completeness.kind}"
    figures = [
        ("peak allocated", format_bytes(peak.allocated_bytes)),
        ("peak reserved", format_bytes(peak.reserved_bytes)),
        ("allocated at the end", format_bytes(end.allocated_bytes)),
        ("reserved at the end", format_bytes(end.reserved_bytes)),
        ("out-of-memory errors", f"{history.num_ooms:,}"),
    ]
    cells = "".join(
        f'<span style="display:inline-block;margin:0 18px 4px 0"><span style="{_DIM}">{name}</span> <b>{value}</b></span>'
        for name, value in figures
    )
    drawn = (
        f'<div style="{_DIM}">area: allocated; line: reserved</div>{timeline_svg(device)}' if device.num_events else ""
    )
    return f'<div style="margin:6px 0 2px">{escape(what)}</div><div>{cells}</div>{drawn}'


def _card(finding: Finding, several: bool) -> str:
    colour = _COLOURS[finding.severity]
    where = f" &middot; GPU {finding.device}" if several else ""
    kind = finding.kind.replace("_", " ")
    return _box(
        [
            f'<div><span style="border-bottom:2px solid {colour};font-weight:bold">{_WORDS[finding.severity]}</span> '
            f'<span style="{_DIM}">{kind}{where} &middot; {format_bytes(finding.bytes)}</span></div>',
            f'<div style="font-weight:bold;margin:2px 0 4px">{_shown(finding.title, 400)}</div>',
            _site(finding.site),
            _row("Why", finding.why),
            _row("Do", finding.next_step),
        ],
        colour,
    )


def _row(name: str, text: str) -> str:
    return f'<div><span style="{_DIM}">{name}</span> {_shown(text, 2000)}</div>'


def _site(stack: tuple[Frame, ...]) -> str:
    """Show the leading frame, and the user's frames that called it; names are kept in their own direction of writing."""
    if not stack:
        return ""
    lead, *callers = (f"<bdi>{escape(line_name(frame, 100))}</bdi>" for frame in stack[: _MAX_CALLERS + 1])
    dim = f' <span style="{_DIM}">from {", ".join(callers)}</span>' if callers else ""
    return f'<div style="font-family:monospace;overflow-wrap:anywhere">{lead}{dim}</div>'
