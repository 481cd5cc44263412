"""Sites: the stacks that allocate, and which of their frames is the user's own."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ullage.errors import UllageError
from ullage.trace.tables import NONE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ullage import _core

# Python files that are not the user's: installed packages, the standard library, torch's own tree, code made at run time.
_TORCH = re.compile(
    r"(^|/)torch/(_\w+|nn|optim|cuda|autograd|utils|distributed|fx|amp|func|profiler|jit|backends|testing|library|ao|export|"
    r"distributions|functional|serialization|random|storage|overrides|hub|masked|sparse|special|compiler)(/|\.py)"
)
_LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages)/|(^|/)lib(64)?/python\d|^<(frozen|string|__array)|"
    r"^(contextlib|threading|functools|runpy|concurrent/futures/.*)\.py$|/torchinductor_|^<eval_with_key>"
)
# Native frames that every request passes through: the unwinder, the allocator, and what makes an empty tensor.
_PLUMBING = re.compile(
    r"torch::unwind|CapturedTraceback|gather_with_cpp|CachingAllocator|^c10::|at::detail::empty|at::empty|create_out|"
    r"set_output|allocate_or_resize|TensorIteratorBase|^_Py|^Py[A-Z]|_start|__libc|_main$"
)


class Frame(NamedTuple):
    """One line of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        place = f"{_short(self.file)}:{self.line}" if self.line else _short(self.file)
        return f"{place} {self.function}".strip()


NO_STACK = Frame("(no Python stack)", 0, "")
"""Stands for requests made where no Python stack was recorded; in training that is mostly autograd's backward."""

BEFORE = Frame("(before the recording)", 0, "")
"""Stands for blocks that were there before the first event and whose stack the file does not hold."""

BEFORE_ID = -2
"""The id of `BEFORE` among frame ids; `NONE` is that of `NO_STACK`."""


def compile_mine(mine: str | None) -> re.Pattern[str] | None:
    """Turn the pattern that tells the user's own files into one that can be searched with.

    Raises:
        UllageError: It is no regular expression.
    """
    if not mine:
        return None
    try:
        return re.compile(mine)
    except re.error as error:
        raise UllageError(f"--mine {mine!r} is no regular expression: {error}") from None


def _short(file: str) -> str:
    for marker in ("site-packages/", "dist-packages/"):
        _, found, rest = file.rpartition(marker)
        if found:
            return rest
    parts = file.split("/")
    return "/".join(parts[-2:]) if len(parts) > 2 else file


class Sites:
    """The sites of a trace, and the frame that leads each: the innermost one of the user's own code.

    Where no frame is the user's, the innermost Python frame outside torch leads, then any Python frame, then any frame.
    """

    def __init__(self, tables: _core.Tables, mine: str | None = None) -> None:
        self._tables = tables
        self._mine = compile_mine(mine)
        self._frames: dict[int, Frame] = {}

    def frame(self, frame_id: int) -> Frame:
        """Return one frame by its id; `NONE` is `NO_STACK`, `BEFORE_ID` is `BEFORE`."""
        if frame_id < 0:
            return BEFORE if frame_id == BEFORE_ID else NO_STACK
        found = self._frames.get(frame_id)
        if found is None:
            found = self._frames[frame_id] = Frame(*self._tables.frame(frame_id))
        return found

    def stack(self, site: int) -> tuple[Frame, ...]:
        """Return a site's frames, innermost first; empty where none were recorded."""
        return tuple(self.frame(frame_id) for frame_id in self._frame_ids(site))

    def user_stack(self, site: int) -> tuple[Frame, ...]:
        """Return the leading frame and the user's own frames that called it; library frames fold."""
        frame_ids = self._frame_ids(site)
        if not frame_ids:
            return ()
        lead = int(self.leads[site])
        after = frame_ids[frame_ids.index(lead) + 1 :]
        ranks = self.frame_ranks
        return tuple(self.frame(i) for i in [lead, *(i for i in after if ranks[i] == 0)])

    def leaf(self, site: int) -> Frame | None:
        """Return the library frame in which the leading frame's allocation happened, if it is another one."""
        frame_ids = self._frame_ids(site)
        if not frame_ids:
            return None
        lead = int(self.leads[site])
        ranks = self.frame_ranks
        inner = frame_ids[: frame_ids.index(lead)]
        best = min((ranks[i] for i in inner), default=4)
        return None if best == 4 else next(self.frame(i) for i in inner if ranks[i] == best)

    def python_stack(self, site: int) -> list[int]:
        """Return the ids of a site's Python frames, outermost first."""
        ranks = self.frame_ranks
        return [i for i in reversed(self._frame_ids(site)) if ranks[i] < 3]

    def native_stack(self, site: int) -> list[int]:
        """Return the ids of a site's native frames, outermost first; not what every request passes through."""
        ranks = self.frame_ranks
        return [i for i in reversed(self._frame_ids(site)) if ranks[i] == 3]

    def _frame_ids(self, site: int) -> list[int]:
        if site == NONE:
            return []
        starts = self._starts
        return [int(i) for i in self._flat[starts[site] : starts[site + 1]]]

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return self._tables.site_starts

    @cached_property
    def _flat(self) -> NDArray[np.int32]:
        return self._tables.site_frames

    @cached_property
    def frame_ranks(self) -> list[int]:
        """Whose each frame is: 0 the user's, 1 a Python library, 2 torch's Python, 3 native, 4 native plumbing."""
        return [self._rank(self.frame(i)) for i in range(self._tables.num_frames)]

    def _rank(self, frame: Frame) -> int:
        if self._mine is not None:
            if self._mine.search(frame.file):
                return 0
            return 1 if frame.line and frame.file.endswith(".py") else self._native_rank(frame)
        is_python = frame.file.endswith((".py", ".ipynb")) or re.match(r"^<ipython-input|^/tmp/ipykernel", frame.file)
        if not is_python:
            return self._native_rank(frame)
        if _TORCH.search(frame.file):
            return 2
        return 1 if _LIBRARY.search(frame.file) else 0

    @staticmethod
    def _native_rank(frame: Frame) -> int:
        return 4 if _PLUMBING.search(frame.function) else 3

    @cached_property
    def leads(self) -> NDArray[np.int32]:
        """The leading frame's id for each site."""
        import numpy as np

        starts, flat = self._starts, self._flat
        num_sites = len(starts) - 1
        leads = np.full(num_sites, NONE, dtype=np.int32)
        if not len(flat):
            return leads
        ranks = np.asarray(self.frame_ranks, dtype=np.int64)[flat]
        # The best rank of each site, then the first place that has it: one sortable number for both.
        order = ranks * len(flat) + np.arange(len(flat))
        filled = starts[:-1] < starts[1:]
        best = np.minimum.reduceat(order, starts[:-1][filled])
        leads[filled] = flat[best % len(flat)]
        return leads

    def lead_of(self, sites: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the leading frame's id for each of `sites`; `NONE` stays `NONE`."""
        import numpy as np

        if not len(self.leads):
            return np.full(len(sites), NONE, dtype=np.int32)
        return np.where(sites == NONE, NONE, self.leads[np.maximum(sites, 0)]).astype(np.int32)
