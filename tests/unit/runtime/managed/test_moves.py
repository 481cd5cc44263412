"""Moves are ordered by events: in after out, out after the last use, a use after what was brought."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.runtime.managed.fake_cuda import FakeCalls
from ullage.errors import RuntimeMemoryError
from ullage.runtime.managed.memory import ManagedRange
from ullage.runtime.managed.moves import CudaMoves
from ullage.runtime.managed.roles import HOST, Role

PAGE = 4096
COMPUTE, IN, OUT = 0, 1, 2


class FakeEvent:
    """An event that knows what its stream had been given when it was recorded."""

    def __init__(self) -> None:
        self.after: set[Any] = set()

    def record(self, stream: FakeStream) -> None:
        self.after = set(stream.after)


class FakeStream:
    """A stream that knows what has to be done before what it is given next."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream, self.after = handle, set[Any]()

    def wait_event(self, event: FakeEvent) -> None:
        self.after |= event.after


class Streams:
    """The streams of a fake GPU, and what each move came after.

    Attributes:
        moves: Each call with the stream's number, and all that is done before it begins.
    """

    def __init__(self, calls: FakeCalls, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all = [FakeStream(handle) for handle in (COMPUTE, IN, OUT)]
        self.moves: list[tuple[str, int, set[Any]]] = []
        made = iter(self.all[1:])
        monkeypatch.setattr(torch.cuda, "Stream", lambda device=None: next(made))
        monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.all[COMPUTE])
        for name in ("prefetch", "prefetch_each", "discard", "discard_and_prefetch"):
            monkeypatch.setattr(calls, name, self._noting(name))

    def _noting(self, name: str) -> Any:
        def call(spans: Any, *where: int) -> None:
            stream = self.all[where[-1]]
            label = "evict" if where[0] == HOST else name
            self.moves.append((label, stream.cuda_stream, set(stream.after)))
            stream.after |= {(label, span.address) for span in spans}

        return call

    def compute(self, one: ManagedRange) -> set[Any]:
        """Use a range; return what is done before."""
        before = set(self.all[COMPUTE].after)
        self.all[COMPUTE].after.add(("use", one.address))
        return before


@pytest.fixture
def streams(calls: FakeCalls, monkeypatch: pytest.MonkeyPatch) -> Streams:
    return Streams(calls, monkeypatch)


def test_each_waits_for_what_it_has_to(calls: FakeCalls, streams: Streams) -> None:
    ranges = [ManagedRange(PAGE, Role.MOVED, calls) for _ in range(3)]
    moves = CudaMoves(ranges)
    moves.bring([0, 1])
    moves.wait_for([0])
    assert ("prefetch_each", ranges[0].address) in streams.compute(ranges[0])
    moves.done_with([0])
    streams.compute(ranges[1])  # later than what is sent away, which does not wait for it
    moves.send_away([0])
    moves.bring([2])
    assert [move[:2] for move in streams.moves] == [("prefetch_each", IN), ("evict", OUT), ("prefetch_each", IN)]
    assert ("use", ranges[0].address) in streams.moves[1][2]
    assert ("use", ranges[1].address) not in streams.moves[1][2]
    assert ("evict", ranges[0].address) in streams.moves[2][2]


def test_what_was_brought_and_not_used_is_sent_away_after_it_came(calls: FakeCalls, streams: Streams) -> None:
    ranges = [ManagedRange(PAGE, Role.MOVED, calls)]
    moves = CudaMoves(ranges)
    moves.bring([0])
    moves.send_away([0])
    assert ("prefetch_each", ranges[0].address) in streams.moves[1][2]


def test_scratch_is_discarded_and_comes_back_as_room(calls: FakeCalls, streams: Streams) -> None:
    ranges = [ManagedRange(PAGE, Role.SCRATCH, calls)]
    moves = CudaMoves(ranges)
    moves.bring([0])
    moves.done_with([0])
    moves.send_away([0])
    assert ranges[0].is_lost
    moves.bring([0])
    assert [move[0] for move in streams.moves] == ["prefetch_each", "discard", "discard_and_prefetch"]
    assert ("discard", ranges[0].address) in streams.moves[2][2]


def test_what_was_written_unseen_is_not_discarded_again(calls: FakeCalls, streams: Streams) -> None:
    ranges = [ManagedRange(PAGE, Role.SCRATCH, calls)]
    moves = CudaMoves(ranges)
    moves.bring([0])
    moves.send_away([0])
    moves.bring([0])
    assert ranges[0].is_lost  # a kernel that torch does not see may have written it since
    moves.bring([0])
    assert streams.moves[-1][0] == "prefetch_each"


def test_each_range_that_moves_is_a_call_of_its_own(
    calls: FakeCalls, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the calls are written down by the fake itself; streams are faked anew
    Streams(FakeCalls(), monkeypatch)
    moves = CudaMoves([ManagedRange(size * PAGE, Role.MOVED, calls) for size in (1, 2)])
    moves.bring([0, 1])
    moves.send_away([1, 0])
    assert calls.log == [
        ("prefetch one", PAGE, 0, IN),
        ("prefetch one", 2 * PAGE, 0, IN),
        ("prefetch one", 2 * PAGE, HOST, OUT),
        ("prefetch one", PAGE, HOST, OUT),
    ]


def test_scratch_whose_move_was_refused_is_still_room_without_content(
    calls: FakeCalls, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = CudaMoves([ManagedRange(PAGE, Role.SCRATCH, calls)])
    moves.bring([0])
    moves.send_away([0])
    with monkeypatch.context() as patch:
        patch.setattr(calls, "discard_and_prefetch", _refuse)
        with pytest.raises(RuntimeMemoryError, match="refused"):
            moves.bring([0])
    moves.bring([0])
    assert [move[0] for move in streams.moves] == ["prefetch_each", "discard", "discard_and_prefetch"]


def _refuse(*arguments: Any) -> None:
    raise RuntimeMemoryError("refused")
