"""Which ranges are moved to the GPU next, and which leave. It knows no GPU: what moves bytes is handed to it.

Modules run in an order that the first pass shows and later ones repeat. While one runs, ranges of the next few are brought::

    order         m0   m1   m2   m3   m4   m0   m1 ...
    m1 runs            ^    brings those of m2 and m3 (ahead = 2)
                            where they do not fit, those leave that are needed last: m0's, and never m2's

What leaves is what is needed last, which the order tells; so a part of what does not fit stays from pass to pass, where the
driver, which moves out what was used longest ago, keeps nothing of it.

Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", 1966.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ullage.errors import RuntimeMemoryError
from ullage.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_NEVER = float("inf")


class Moves(Protocol):
    """What moves ranges, beside the computation that is being issued."""

    def bring(self, ranges: Sequence[int]) -> None:
        """Issue moves to the GPU, after what was sent away so far."""

    def send_away(self, ranges: Sequence[int]) -> None:
        """Issue moves from the GPU, after what `done_with` last marked for them."""

    def wait_for(self, ranges: Sequence[int]) -> None:
        """Let what is computed from now on wait until ranges were brought."""

    def done_with(self, ranges: Sequence[int]) -> None:
        """Mark that what was computed so far may have used ranges."""


@dataclass(kw_only=True)
class ScheduleStats:
    """What a schedule has done so far.

    Attributes:
        num_passes: The passes that ended.
        brought_bytes: Moved to the GPU.
        sent_away_bytes: Moved from it, or discarded.
        late_bytes: Of what was brought, that which no earlier module asked for: its module waits for all of the move.
        unmoved_bytes: Not brought, since it did not fit beside what was running: left to page faults.
        peak_bytes: The most that was on the GPU at once by this account.
    """

    num_passes: int = 0
    brought_bytes: int = 0
    sent_away_bytes: int = 0
    late_bytes: int = 0
    unmoved_bytes: int = 0
    peak_bytes: int = 0


class Schedule:
    """An account of what is on the GPU, kept below a budget.

    Attributes:
        stats: What was done so far.
        order: The modules in the order in which they run; empty before the first pass has ended.
        resident_bytes: What is on the GPU by this account.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        needs: Sequence[Sequence[int]],
        moves: Moves,
        *,
        ahead: int,
        gpu_bytes: int | None = None,
        staying: Collection[int] = (),
    ) -> None:
        """Begin with nothing on the GPU.

        Args:
            sizes: The bytes of each range.
            needs: The ranges of each module.
            moves: What moves them.
            ahead: For how many modules ranges are brought before they run; 0: each when it runs.
            gpu_bytes: What may be on the GPU at once; None: nothing leaves.
            staying: Ranges that never leave.

        Raises:
            RuntimeMemoryError: The ranges of one module, and those that stay, are more than may be there.
        """
        if ahead < 0:
            raise RuntimeMemoryError(f"modules cannot be prefetched {-ahead} behind; ahead is 0 or more")
        self.stats, self.order, self.resident_bytes = ScheduleStats(), list[int](), 0
        self._sizes, self._needs, self._moves, self._ahead = sizes, needs, moves, ahead
        self._gpu_bytes, self._staying = gpu_bytes, frozenset(staying)
        self._resident: dict[int, None] = {}  # the one that was used last comes last
        self._running: Counter[int] = Counter()
        self._seen: list[int] | None = None
        self._position: int | None = None
        self._uses: dict[int, list[int]] = {}
        least = self._least_bytes()
        if gpu_bytes is not None and gpu_bytes < least:
            raise RuntimeMemoryError(
                f"{format_bytes(gpu_bytes)} on the GPU are too few: the largest module, and what stays, take "
                f"{format_bytes(least)}; give gpu_bytes={least} or more"
            )

    def begin(self) -> None:
        """Begin a pass; one that was broken off is forgotten."""
        self._running.clear()
        self._seen, self._position = [], -1 if self.order else None

    def end(self) -> None:
        """End a pass: its order is what the next one is expected to keep to."""
        self.stats.num_passes += 1
        if self._seen and self._seen != self.order:
            self.order, self._uses = self._seen, {}
            for position, module in enumerate(self.order):
                for one in self._needs[module]:
                    self._uses.setdefault(one, []).append(position)
        self._seen = None

    def before(self, module: int) -> None:
        """Let a module run: bring what it needs and wait for it, then bring what the next ones need.

        A move that is refused is not booked: a later pass tries it again.
        """
        needs = self._needs[module]
        if self._seen is not None:
            self._seen.append(module)
        self._position = self._find(module)
        self._running.update(needs)
        self._bring_now(needs)
        present = [one for one in needs if one in self._resident]
        for one in present:
            self._resident[one] = self._resident.pop(one)
        if present:
            self._moves.wait_for(present)
        self._look_ahead()

    def after(self, module: int) -> None:
        """Take note that a module has run, or raised."""
        needs = self._needs[module]
        self._running.subtract(needs)
        self._running += Counter()  # drops what is not above 0
        if self._gpu_bytes is not None and needs:
            self._moves.done_with(needs)

    def forget(self) -> None:
        """Take everything for gone from the GPU, as after work of the host on it: it is brought again."""
        self._resident.clear()
        self.resident_bytes = 0

    def _least_bytes(self) -> int:
        stays = sum(self._sizes[one] for one in self._staying)
        most = max((sum(self._sizes[one] for one in set(needs) - self._staying) for needs in self._needs), default=0)
        return stays + most

    def _find(self, module: int) -> int | None:
        """Return where in the order a pass is now: the next place of a module, None where the order has none."""
        begin = -1 if self._position is None else self._position
        for position in range(begin + 1, len(self.order)):
            if self.order[position] == module:
                return position
        return self.order.index(module) if self._seen is None and module in self.order else None

    def _bring_now(self, needs: Sequence[int]) -> None:
        wanted = [one for one in dict.fromkeys(needs) if one not in self._resident]
        size = sum(self._sizes[one] for one in wanted)
        if not wanted:
            return
        if self._make_room(size, set(needs), horizon=0):
            self._bring(wanted)
            self.stats.late_bytes += size
        else:
            self.stats.unmoved_bytes += size

    def _look_ahead(self) -> None:
        if self._position is None:
            return
        kept, coming = set(self._needs[self.order[self._position]]), list[int]()
        for step in range(1, min(self._ahead, len(self.order) - 1) + 1):
            needs = self._needs[self.order[(self._position + step) % len(self.order)]]
            kept.update(needs)
            wanted = [one for one in dict.fromkeys(needs) if one not in self._resident and one not in coming]
            size = sum(self._sizes[one] for one in wanted + coming)
            if not self._make_room(size, kept, horizon=step):
                break
            coming += wanted
        if coming:
            self._bring(coming)

    def _make_room(self, size_bytes: int, kept: Collection[int], horizon: int) -> bool:
        """Send away what is needed later than `horizon` modules from now, last first; where that is too little, nothing."""
        missing = 0 if self._gpu_bytes is None else self.resident_bytes + size_bytes - self._gpu_bytes
        if missing <= 0:
            return True
        leaving: list[int] = []
        newest_first = list(self._resident)[::-1]
        for one in sorted(newest_first, key=self._next_use, reverse=True):
            if missing <= 0:
                break
            if one in self._running or one in kept or one in self._staying or self._next_use(one) <= horizon:
                continue
            leaving.append(one)
            missing -= self._sizes[one]
        if missing > 0:
            return False
        self._moves.send_away(leaving)  # where it is refused, the account is as it was
        for one in leaving:
            del self._resident[one]
        size_sent = sum(self._sizes[one] for one in leaving)
        self.resident_bytes -= size_sent
        self.stats.sent_away_bytes += size_sent
        return True

    def _next_use(self, one: int) -> float:
        """Return how many modules from now a range is needed; without an order, all that is known is that it was used."""
        places = self._uses.get(one)
        if not places or self._position is None:
            return _NEVER
        index = bisect_right(places, self._position)
        return (places[index] if index < len(places) else places[0] + len(self.order)) - self._position

    def _bring(self, ranges: Sequence[int]) -> None:
        size = sum(self._sizes[one] for one in ranges)
        assert self._gpu_bytes is None or self.resident_bytes + size <= self._gpu_bytes
        self._moves.bring(ranges)  # where it is refused, the account is as it was
        self._resident.update(dict.fromkeys(ranges))
        self.resident_bytes += size
        self.stats.brought_bytes += size
        self.stats.peak_bytes = max(self.stats.peak_bytes, self.resident_bytes)
