"""Parts of a block: each byte in turn, none beyond its end; and what is measured goes through whole blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.probe.fake_gpu import GIB, MIB, FakeGpu
from ullage.runtime.probe.copies import measure_copies
from ullage.runtime.probe.core import CoreWatch
from ullage.runtime.probe.gpu import Block, MemoryKind, Run
from ullage.runtime.probe.kinds import measure_reached_kinds
from ullage.runtime.probe.parts import Walk, in_turn, parts_of
from ullage.runtime.probe.result import Kind
from ullage.runtime.probe.sizes import sizes_for

SIZES = sizes_for(128 * GIB, 50 * MIB, host_bytes=128 * GIB)


def block_of(size_bytes: int) -> Block:
    return Block(kind="pageable", address=1000, size_bytes=size_bytes, host=bytes(range(size_bytes)))


@given(st.integers(1, 200), st.integers(1, 250))
def test_parts_lie_side_by_side_within_the_block(size: int, part: int) -> None:
    parts = parts_of(block_of(size), part)
    held = b"".join(one.host for one in parts)
    assert held == bytes(range(len(held)))
    assert len(held) > size - min(part, size)
    assert [one.address for one in parts] == [1000 + index * parts[0].size_bytes for index in range(len(parts))]
    assert {one.size_bytes for one in parts} == {min(part, size)}


@given(st.integers(8, 200), st.lists(st.integers(1, 8), min_size=1, max_size=60))
def test_a_walk_takes_what_comes_next_and_begins_again_at_the_end(size: int, takes: list[int]) -> None:
    walk, at = Walk(block_of(size)), 0
    for take in takes:
        at = at if at + take <= size else 0
        assert walk.take(take).host == bytes(range(at, at + take))
        at += take


def test_prepared_runs_are_done_in_turn() -> None:
    done: list[int] = []
    run = in_turn([lambda index=index: done.append(index) for index in range(3)])  # type: ignore[misc]
    for _ in range(7):
        run()
    assert done == [0, 1, 2, 0, 1, 2, 0]


class Watched(FakeGpu):
    """A GPU that notes the blocks it is asked for, and which parts of the host's memory are copied or reached."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[MemoryKind, int]] = []
        self.done: list[tuple[str, int, int]] = []  # what, where in its block, how much

    def allocate(self, kind: MemoryKind, size_bytes: int) -> Block:
        self.asked.append((kind, size_bytes))
        return super().allocate(kind, size_bytes)

    def _noted(self, what: str, block: Block, size_bytes: int, run: Run) -> Run:
        def noted() -> None:
            self.done.append((what, block.address % (1 << 44), size_bytes))
            run()

        return noted

    def copying(self, target: Block, source: Block, size_bytes: int) -> Run:
        host, what = (target, "back") if source.kind == "torch" else (source, "there")
        return self._noted(what, host, size_bytes, super().copying(target, source, size_bytes))

    def reading(self, block: Block, size_bytes: int, *, num_rounds: int = 1) -> Run:
        return self._noted("read", block, size_bytes, super().reading(block, size_bytes, num_rounds=num_rounds))

    def writing(self, block: Block, size_bytes: int) -> Run:
        return self._noted("write", block, size_bytes, super().reading(block, size_bytes))

    def prefetching(self, block: Block) -> Run:
        return self._noted("prefetch", block, block.size_bytes, super().prefetching(block))

    def touching(self, block: Block) -> Run:
        return self._noted("touch", block, block.size_bytes, super().touching(block))


def test_each_copy_takes_what_comes_next() -> None:
    gpu = Watched()
    measure_copies(gpu, ("pageable",), SIZES, CoreWatch(gpu.loop_ns))
    assert gpu.asked == [("pageable", 512 * MIB), ("torch", 256 * MIB)]
    assert gpu.done[0] == ("touch", 0, 512 * MIB)
    for direction in ("there", "back"):
        at = 0
        for begin, size in [(begin, size) for what, begin, size in gpu.done if what == direction]:
            at = at if at + size <= 512 * MIB else 0
            assert begin == at
            at += size


@pytest.mark.parametrize(
    ("kind", "size", "part"),
    [
        ("managed_by_fault", 256 * MIB, 64 * MIB),
        ("managed_prefetched", 256 * MIB, 128 * MIB),
        ("mapped", 256 * MIB, 128 * MIB),
    ],
)
def test_memory_that_a_kernel_reaches_is_touched_before_it_is_gone_through(kind: Kind, size: int, part: int) -> None:
    gpu = Watched()
    measure_reached_kinds(gpu, (kind,), SIZES, CoreWatch(gpu.loop_ns))
    is_prefetched = kind == "managed_prefetched"
    begins = [index for index, one in enumerate(gpu.done) if one == ("touch", 0, size)]
    for at, what in zip(begins, ("read", "write"), strict=True):
        want = [("touch", 0, size)]
        for begin in range(0, size, part):
            want += [("prefetch", begin, part)] * is_prefetched + [(what, begin, part)]
        assert gpu.done[at : at + len(want)] == want
