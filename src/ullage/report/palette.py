"""The colours of drawings: Okabe and Ito's, which stay apart for colour-blind eyes and in print.

Source: M. Okabe and K. Ito, "Color Universal Design" (2008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.explain.live_series import OTHER
from ullage.trace import BEFORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.trace import Frame

LINE_COLOURS = ("#0072B2", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7")
BEFORE_COLOUR = "#999999"
OTHER_COLOUR = "#C8C8C8"
OOM_COLOUR = "#D55E00"
AREA_COLOUR = "#56B4E9"  # of all lines together; it stands out from white and from black


def colours_of(lines: Sequence[Frame]) -> list[str]:
    """Give each line of a series its colour; greys are for what has no line of its own."""
    colours = []
    for line in lines:
        if line in (BEFORE, OTHER):
            colours.append(BEFORE_COLOUR if line == BEFORE else OTHER_COLOUR)
        else:
            num_named = sum(colour in LINE_COLOURS for colour in colours)
            colours.append(LINE_COLOURS[num_named % len(LINE_COLOURS)])
    return colours
