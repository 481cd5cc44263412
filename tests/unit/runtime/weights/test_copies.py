"""Copies on a stream of their own are ordered by events alone; streams and events are fakes that write down what is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tests.unit.runtime.weights.test_stream import Model, expected, streamed, x_of
from ullage.runtime.weights.copies import Arrival, CudaCopies

LOG = list[tuple[str, ...]]


class FakeCuda:
    """Streams by name; each remembers what it was told."""

    def __init__(self) -> None:
        self.log: LOG = []
        self.current = FakeStream(self, "compute")
        self.num_events = 0


class FakeStream:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_event(self, event: FakeEvent) -> None:
        self.cuda.log.append((self.name, "waits for", event.at))

    def synchronize(self) -> None:
        self.cuda.log.append(("host", "waits for", self.name))


class FakeEvent:
    def __init__(self, blocking: bool = False) -> None:
        self.at = "nothing"

    def synchronize(self) -> None:
        assert self.stream is not None
        self.stream.cuda.log.append(("host", "waits for", self.at))

    def record(self, stream: FakeStream) -> None:
        self.stream = stream
        self.at = f"{stream.name} {len(stream.cuda.log)}"
        stream.cuda.log.append((stream.name, "marks", self.at))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()

    @contextmanager
    def on(stream: FakeStream) -> Iterator[None]:
        before, fake.current = fake.current, stream
        yield
        fake.current = before

    names = iter(("copies", "making"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream(fake, next(names)))
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: fake.current)
    monkeypatch.setattr(torch.cuda, "stream", on)
    return fake


def made(num_slots: int = 2, arrival: Any = None) -> CudaCopies:
    sources = [torch.full((8,), number, dtype=torch.uint8) for number in range(3)]
    slots = [torch.zeros(8, dtype=torch.uint8) for _ in range(num_slots)]
    return CudaCopies(sources, slots, torch.device("cpu"), arrival)


def test_a_copy_waits_for_the_last_use_and_a_use_for_the_last_copy(cuda: FakeCuda) -> None:
    copies = made()
    begin = len(cuda.log)
    copies.done_with(1)
    copies.copy_in(2, 1)
    copies.wait_for(1)
    used, waits, copied, uses = cuda.log[begin:]
    assert used[:2] == ("compute", "marks")
    assert waits == ("copies", "waits for", used[2])
    assert copied[:2] == ("copies", "marks")
    assert uses == ("compute", "waits for", copied[2])
    assert copies._slots[1].tolist() == [2] * 8


def test_a_use_on_another_stream_is_waited_for_there(cuda: FakeCuda) -> None:
    copies = made()
    cuda.current = FakeStream(cuda, "another")
    copies.wait_for(0)
    copies.done_with(0)
    copies.copy_in(1, 0)
    assert cuda.log[-4][0] == "another"
    assert cuda.log[-3][:2] == ("another", "marks")
    assert cuda.log[-2] == ("copies", "waits for", cuda.log[-3][2])


def test_the_first_copy_waits_for_what_had_the_memory_before(cuda: FakeCuda) -> None:
    copies = made()
    copies.copy_in(0, 0)
    waits = next(entry for entry in cuda.log if entry[1] == "waits for")
    assert waits[0] == "copies"
    assert waits[2].startswith("compute")


def landed(cuda: FakeCuda) -> tuple[CudaCopies, list[tuple[int, int, int]]]:
    """Copies that something becomes of: which landing, block and buffer, checked where it is made."""
    landings = tuple(torch.zeros(8, dtype=torch.uint8) for _ in range(2))
    made_of: list[tuple[int, int, int]] = []

    def land(landing: torch.Tensor, block: int, slot: int) -> None:
        assert cuda.current.name == "making"
        assert landing.tolist() == [block] * 8
        made_of.append((next(at for at, one in enumerate(landings) if one is landing), block, slot))

    return made(arrival=Arrival(landings, land)), made_of


def test_a_block_is_made_of_what_landed_on_another_stream_once_its_buffer_is_free(cuda: FakeCuda) -> None:
    copies, made_of = landed(cuda)
    begin = len(cuda.log)
    copies.done_with(1)
    copies.copy_in(2, 1)
    copies.wait_for(1)
    used, free, has_landed, waits, also_waits, is_free, made_at, uses = cuda.log[begin:]
    assert used[:2] == ("compute", "marks")
    assert (free[:2], has_landed[:2]) == (("copies", "waits for"), ("copies", "marks"))
    assert (waits, also_waits) == (("making", "waits for", has_landed[2]), ("making", "waits for", used[2]))
    assert is_free[:2] == made_at[:2] == ("making", "marks")
    assert uses == ("compute", "waits for", made_at[2])
    assert made_of == [(0, 2, 1)]


def test_landings_take_turns_and_a_copy_waits_for_what_was_made_of_the_one_it_goes_to(cuda: FakeCuda) -> None:
    copies, made_of = landed(cuda)
    for block in range(3):
        copies.copy_in(block, block % 2)
    assert made_of == [(0, 0, 0), (1, 1, 1), (0, 2, 0)]
    waited = [at for name, what, at in cuda.log if (name, what) == ("copies", "waits for")]
    free = [at for name, what, at in cuda.log if (name, what) == ("making", "marks")][::2]
    assert [at.split()[0] for at in waited] == ["compute", "compute", "making"]
    assert waited[2] == free[0]


def test_the_host_waits_when_it_is_told_to_alone(cuda: FakeCuda) -> None:
    copies = made()
    copies.copy_in(0, 0)
    copies.wait_for(0)
    assert not [entry for entry in cuda.log if entry[0] == "host"]
    copies.settle()
    assert cuda.log[-1] == ("host", "waits for", "copies")


def test_what_is_made_is_waited_for_too(cuda: FakeCuda) -> None:
    copies, _ = landed(cuda)
    copies.copy_in(0, 0)
    copies.settle()
    assert cuda.log[-2:] == [("host", "waits for", "copies"), ("host", "waits for", "making")]


@pytest.mark.gpu
def test_passes_on_several_streams_are_right() -> None:
    model = Model()
    inputs = [x_of(seed) for seed in range(6)]
    want = [expected(model, x) for x in inputs]
    streams = [torch.cuda.Stream() for _ in range(2)]
    with streamed(model), torch.no_grad():
        got = []
        for number, x in enumerate(inputs):
            stream = streams[number % 2]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                got.append(model(x))
        torch.cuda.synchronize()
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))
