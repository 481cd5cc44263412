"""What is live at an instant as folded stacks, which flamegraph.pl, inferno and speedscope read: outer;...;inner bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import UllageError
from ullage.report.printable import printable
from ullage.trace import BEFORE, NO_STACK
from ullage.trace.live_stacks import live_stacks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.trace import DeviceTrace, Frame

FRAME_LENGTH = 256
"""The characters that are kept of a frame's function, and of its file."""


def folded_stacks(devices: Sequence[DeviceTrace], at: str | int) -> list[str]:
    """Return a line for each stack with its bytes, largest first; of several devices, the stacks begin with "GPU n".

    Args:
        devices: The devices. Those that have no such instant are left out, if another has it.
        at: The instant, as in `DeviceTrace.event_at`.

    Raises:
        UllageError: No device has such an instant.
    """
    bytes_of: dict[str, int] = {}
    errors: list[UllageError] = []
    for device in devices:
        try:
            event = device.event_at(at)
        except UllageError as error:
            errors.append(error)
            continue
        root = [f"GPU {device.number}"] if len(devices) > 1 else []
        for stack in live_stacks(device, event):
            folded = ";".join(root + [_frame_name(frame) for frame in stack.frames])
            bytes_of[folded] = bytes_of.get(folded, 0) + stack.bytes
    if errors and len(errors) == len(devices):
        raise errors[0]
    return [f"{folded} {size}" for folded, size in sorted(bytes_of.items(), key=lambda item: -item[1])]


def _frame_name(frame: Frame) -> str:
    """Name a frame as profilers do: function (file:line).

    It ends in a parenthesis, since a number at the end would be read as a second count.
    """
    if frame in (NO_STACK, BEFORE):
        return frame.file
    file = f"{frame.file}:{frame.line}" if frame.line else frame.file
    return f"{_clean(frame.function)} ({_clean(file)})"


def _clean(text: str) -> str:
    return printable(text, FRAME_LENGTH).replace(";", ":")
