"""Replays one captured CUDA graph for each token that a model generates from a `PagedCache`.

A step of a large model is some hundreds of small kernels, and starting them from Python takes longer than running them once
the cache is small. Pages make a step easy to capture: its kernels read lengths and page numbers from tensors that stay in
place, so that the same graph does for a cache of any length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ullage.errors import RuntimeMemoryError
from ullage.runtime.kv.transformers_cache import PagedCache

if TYPE_CHECKING:
    from types import TracebackType

    from ullage.runtime.kv.forward_pass import ForwardPass

_CACHE_NAMES = ("cache", "past_key_values")
_UNDERSTOOD = {
    "input_ids",
    "attention_mask",
    "position_ids",
    "cache_position",
    "use_cache",
    "return_dict",
    "logits_to_keep",
}
_CHANGING_ROPES = {"dynamic", "longrope"}
_NUM_WARMUPS = 2


class _Captured(NamedTuple):
    """A step's graph with what it reads and writes."""

    batch: int
    table: torch.Tensor
    ids: torch.Tensor
    positions: torch.Tensor
    replay: Callable[[], None]
    output: list[Any]


class decode_graphs:  # noqa: N801 (used as a function is)
    """Let a model decode by a graph while this lasts; everything else it does as before.

    Example:
        with decode_graphs(model, cache):
            out = model.generate(**inputs, past_key_values=cache, max_new_tokens=500)

    A step is replayed where it brings one token for each sequence and asks for logits only, with masks that hide nothing but
    padding; prompts, beams' first steps, assisted decoding's several tokens and all that need gradients run as before. Beams
    may be reordered and caches cropped between steps.

    Cost: the first step runs three times and is captured, again whenever a sequence's pages outgrow a power of two; memory
        for a step's activations, once. On a CPU, where there are no graphs, the step itself runs.
    """

    def __init__(self, model: Any, cache: PagedCache) -> None:
        """Prepare for a model and its cache.

        Args:
            model: A causal language model of transformers.
            cache: What `cache_for(model)` gave.

        Raises:
            RuntimeMemoryError: The model's rotary embedding changes with the length, which a graph cannot.
        """
        changing = _rope_types(model) & _CHANGING_ROPES
        if changing:
            raise RuntimeMemoryError(
                f"{type(model).__name__} has a rotary embedding of type {min(changing)!r}, which looks at the length at "
                "every step: a graph cannot; generate without decode_graphs"
            )
        self.num_replayed = 0
        self.num_captured = 0
        self._model, self._cache = model, cache
        self._captured: _Captured | None = None
        self._forward: Callable[..., Any] = model.forward
        self._own_forward: Any = None

    def __enter__(self) -> decode_graphs:
        if self._cache.batch.is_graphed:
            raise RuntimeMemoryError("the cache's steps are replayed already: one decode_graphs at a time")
        self._cache.batch.is_graphed = True
        self._own_forward = self._model.__dict__.get("forward")
        self._forward = self._model.forward

        @functools.wraps(self._forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            step = self._step_of(args, kwargs)
            return self._forward(*args, **kwargs) if step is None else self._replayed(step, kwargs)

        self._model.forward = forward
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own_forward is None:
            del self._model.forward
        else:
            self._model.forward = self._own_forward
        self._captured = None
        self._cache.batch.is_graphed = False

    def _step_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ForwardPass | None:
        """Make room for a step that can be replayed; None where it cannot."""
        ids, mask, positions = (kwargs.get(name) for name in ("input_ids", "attention_mask", "position_ids"))
        batch = self._cache.batch
        is_ours = not args and any(kwargs.get(name) is self._cache for name in _CACHE_NAMES)
        if not is_ours or torch.is_grad_enabled() or not _is_understood(kwargs) or self._model.training:
            return None
        config = self._model.config
        if getattr(config, "output_hidden_states", False) or getattr(config, "output_attentions", False):
            return None
        if ids is None or ids.shape != (len(batch.sequences), 1) or ids.device != self._cache.pool.device:
            return None
        if (positions is not None and (positions.ndim != 2 or positions.shape[1] != 1)) or (
            mask is not None and mask.ndim != 2
        ):
            return None
        return batch.step() if batch.sees_all_held(mask) else None

    def _replayed(self, step: ForwardPass, kwargs: dict[str, Any]) -> Any:
        ids, positions = kwargs["input_ids"], kwargs.get("position_ids")
        try:
            known = self._captured
            if known is None or known.batch != len(ids) or known.table is not step.table:
                self._captured = None  # its memory goes first
                known = self._captured = self._capture(step, ids, kwargs)
            known.ids.copy_(ids)
            if positions is None:
                known.positions.fill_(step.num_past)
            else:
                known.positions.copy_(positions.expand(len(ids), 1))
            known.replay()
        except BaseException:
            self._cache.batch.crop(step.num_past)
            raise
        self.num_replayed += 1
        output = known.output[0]
        return replace(output, logits=output.logits.clone())

    def _capture(self, step: ForwardPass, ids: torch.Tensor, kwargs: dict[str, Any]) -> _Captured:
        static_ids = ids.clone()
        positions = torch.full_like(ids, step.num_past)
        name = next(name for name in _CACHE_NAMES if kwargs.get(name) is self._cache)
        output: list[Any] = [None]

        def run() -> None:
            with self._cache.captured():
                output[0] = self._forward(
                    input_ids=static_ids, position_ids=positions, use_cache=True, **{name: self._cache}
                )

        self.num_captured += 1
        replay = _graph_of(run, ids.device) if ids.device.type == "cuda" else run
        return _Captured(len(ids), step.table, static_ids, positions, replay, output)


def _rope_types(model: Any) -> set[str]:
    """Return the types of a model's rotary embeddings; some models have one for each type of layer."""
    parameters = getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    each = [parameters, *(one for one in parameters.values() if isinstance(one, dict))]
    return {one["rope_type"] for one in each if "rope_type" in one}


def _is_understood(kwargs: dict[str, Any]) -> bool:
    """Tell whether a call asks for what a replay gives: logits, and nothing else."""
    if kwargs.get("return_dict") is False or kwargs.get("use_cache") is False:
        return False
    return all(
        name in _UNDERSTOOD or name in _CACHE_NAMES or value is None or value is False for name, value in kwargs.items()
    )


def _graph_of(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Capture what a function does on a GPU, after a few runs in which libraries and kernels get ready."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(_NUM_WARMUPS):
            run()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    replay: Callable[[], None] = graph.replay
    return replay
