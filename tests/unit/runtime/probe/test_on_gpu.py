"""A probe of a real GPU: its figures are possible ones, and it leaves no memory behind."""

from __future__ import annotations

import pytest

from ullage.runtime.probe import known_probe, probe

pytestmark = pytest.mark.gpu


def test_a_gpu_is_measured_and_left_as_it_was(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("ULLAGE_CACHE", str(tmp_path))
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    free_before, _ = torch.cuda.mem_get_info()
    result = probe()
    free_after, _ = torch.cuda.mem_get_info()
    assert result.why_no_gpu is None
    assert free_after >= free_before - (256 << 20)  # kernels and libraries stay loaded
    assert [one for one in result.device if one.bytes_per_s is None] == []
    assert [curve.why for curve in result.copies] == [None] * 4
    assert known_probe() == result


def test_a_chain_goes_through_every_place_once() -> None:
    import torch

    from ullage.runtime.probe.cuda_gpu import CudaGpu
    from ullage.runtime.probe.identity import identify

    with CudaGpu(identify()) as gpu:
        block = gpu.allocate("torch", 1 << 20)
        gpu.accessing("chain", block, 1 << 20, 1 << 17, 64)()
        torch.cuda.synchronize()
        words = block.gpu.view(torch.int64)
        place, seen = 0, []
        for _ in range(8):
            place = int(words[place])
            seen.append(place * 8 >> 17)
        assert sorted(seen) == list(range(8))
        gpu.free(block)
