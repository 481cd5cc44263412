"""CUDA graphs: one pool for each, buffers that alias or outlive a capture, and a pool that is gone."""

from __future__ import annotations

import torch

from recorded_cases.registry import DEVICE, Program, case


@case()
def graph_per_length() -> Program:
    weight, kept, reserved = torch.randn(4096, 4096, device=DEVICE, dtype=torch.half), [], []
    for length in range(64, 64 + 12 * 7, 7):
        x = torch.randn(length, 4096, device=DEVICE, dtype=torch.half)
        (x @ weight).relu()  # kernels and handles are loaded outside the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x @ weight).relu()
        graph.replay()
        kept.append((graph, x, y))
        reserved.append(torch.cuda.memory_reserved())
    yield {"reserved_bytes_after_graph": reserved}


def capture_with_workspace(before_capture: bool) -> Program:
    graph, pool, stream = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    src = torch.full((1 << 18,), 3.0, device=DEVICE)
    workspace = torch.empty(1 << 18, device=DEVICE) if before_capture else None
    (src * 2).sum()  # kernels are loaded outside the capture
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        t = src * 2
        address = t.data_ptr()
        total = t.sum()
        del t
        if workspace is None:
            workspace = torch.empty(1 << 18, device=DEVICE)
    workspace.fill_(1234.5)
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    num_changed = int((workspace.cpu() != 1234.5).sum())
    yield {"is_alias": workspace.data_ptr() == address, "num_changed": num_changed, "total": total.item()}


@case()
def graph_workspace() -> Program:
    yield from capture_with_workspace(before_capture=False)


@case()
def graph_workspace_before() -> Program:
    yield from capture_with_workspace(before_capture=True)


@case()
def graph_input_freed() -> Program:
    graph, x = torch.cuda.CUDAGraph(), torch.ones(1 << 20, device=DEVICE)
    address = x.data_ptr()
    x * 2  # kernels are loaded outside the capture
    with torch.cuda.graph(graph):
        y = x * 2
    del x
    junk = torch.full((1 << 20,), 7.0, device=DEVICE)
    graph.replay()
    yield {"is_alias": junk.data_ptr() == address, "y": y[0].item()}


@case()
def graph_chain() -> Program:
    """The second graph reads what the first one wrote; its owner is gone, but the shared pool still holds the bytes."""
    first, second, pool = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    x = torch.ones(1 << 20, device=DEVICE)
    x * 2 + 1  # kernels are loaded outside the capture
    with torch.cuda.graph(first, pool=pool):
        h = x * 2
    with torch.cuda.graph(second, pool=pool):
        y = h + 1
    del h
    first.replay()
    second.replay()
    yield {"y": y[0].item()}


@case()
def graph_destroyed() -> Program:
    graph, x = torch.cuda.CUDAGraph(), torch.ones(4 << 20, device=DEVICE)
    (x * 2).sqrt() + 1  # kernels are loaded outside the capture
    with torch.cuda.graph(graph):
        y = (x * 2).sqrt() + 1
    graph.replay()
    torch.cuda.synchronize()
    del graph, y
    torch.cuda.empty_cache()
    x.add_(1)
    yield None


@case(variants={"reuse": "graph_capture_record_stream_reuse:True"})
def graph_record_stream() -> Program:
    """Blocks freed in a capture after a side stream used them: they stay until it ends, unless the setting says not."""
    graph, side, x = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.ones(4 << 20, device=DEVICE)
    (x * 2 + 1).mul_(2)  # kernels are loaded outside the capture
    with torch.cuda.graph(graph):
        y = x * 2
        for _ in range(6):
            h = y * 2
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                h.mul_(2)
            h.record_stream(side)
            torch.cuda.current_stream().wait_stream(side)
            y = h + 1
            del h
    graph.replay()
    yield {"y": y[0].item()}
