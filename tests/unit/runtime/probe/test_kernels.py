"""The kernels touch the bytes that they are said to: on a GPU, or interpreted on the host's own addresses."""

from __future__ import annotations

import pytest
import torch

from tests.unit.runtime.kv.conftest import DEVICE
from ullage.runtime.probe import kernels

pytestmark = pytest.mark.with_kernels


def never() -> int:
    return -559038737


def test_every_word_of_a_part_is_read() -> None:
    words = torch.zeros(2 * 4096 * 4, dtype=torch.int32, device=DEVICE)
    for place in (0, 4095, 4096 * 3 + 7, 4096 * 4 - 1):
        words.zero_()
        words[place] = never()  # what is stored only where the sum is this one
        sink = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        kernels.read_kernel[(2,)](words.data_ptr(), sink, 2, WORDS=4096, UNROLL=4)
        assert int(sink) == never()


def test_more_programs_than_parts_read_them_again() -> None:
    words = torch.zeros(4096 * 4, dtype=torch.int32, device=DEVICE)
    words[5] = never()
    words = torch.cat([words, torch.ones_like(words)])  # what lies behind is not read
    sink = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    kernels.read_kernel[(3,)](words.data_ptr(), sink, 1, WORDS=4096, UNROLL=4)
    assert int(sink) == never()


def test_every_word_is_written_and_none_behind() -> None:
    words = torch.zeros(3 * 64 * 4, dtype=torch.int32, device=DEVICE)
    kernels.write_kernel[(2,)](words.data_ptr(), 1, WORDS=64, UNROLL=4)
    assert words.tolist() == [1] * (2 * 64 * 4) + [0] * (64 * 4)


def test_one_word_in_each_stride_is_read() -> None:
    words = torch.ones(8 * 128 * 2, dtype=torch.int32, device=DEVICE)
    words[::8] = 0
    words[8 * 200] = never()
    sink = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    kernels.strided_kernel[(2,)](words.data_ptr(), sink, STRIDE_WORDS=8, LANES=128)
    assert int(sink) == never()


def test_a_chain_is_followed_and_goes_on_where_it_ended() -> None:
    words = torch.tensor([3, 0, 1, 2], dtype=torch.int64, device=DEVICE)
    place = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    seen = []
    for _ in range(4):
        kernels.chain_kernel[(1,)](words.data_ptr(), place, 3, num_warps=1)
        seen.append(int(place))
    assert seen == [1, 2, 3, 0]


def test_a_gather_reads_all_places_of_the_footprint_and_nothing_else() -> None:
    stride, num_places = 1024, 7
    data = torch.zeros(stride * num_places // 4, dtype=torch.int32, device=DEVICE)
    places = [(place * stride + place * 128 % stride) // 4 for place in range(num_places)]
    hit = []
    for seed in range(80):  # as a lane's number would, a seed picks a place
        for index, place in enumerate(places):
            data.zero_()
            data[place] = never()
            sink = torch.zeros(1, dtype=torch.int32, device=DEVICE)
            kernels.gather_kernel[(1,)](data.data_ptr(), sink, num_places, stride, seed, LANES=1, ROUNDS=1)
            hit += [index] if int(sink) == never() else []
    assert len(hit) == 80
    assert set(hit) == set(range(num_places))
