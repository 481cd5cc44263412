"""What each format does to one layer's attention, all before it being as it was in 16 bits; and which key channels stand out.

While a model reads in 16 bits, each of its attention modules is called again with the same input and, in the place of its
cache, one that hands out the same keys and values rounded. So the model's own attention is what is measured, whatever it is.
Of a model in float32 the keys and values are those of the 16-bit cache, rounded once more.

Shapes: B sequences, C tokens of a call, S tokens attended, K KV heads, D values of a head's vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ullage.runtime.kv.check.model import TokenBatch, rounded, rounding_cache, run_chunk
from ullage.runtime.kv.check.result import FormatError, KeyChannel, LayerCheck
from ullage.runtime.kv.formats import KVFormat

_NUM_CHANNELS = 3  # that are named for a layer
_LOST = 0.5  # a channel whose error is more of its size than this says little


@dataclass
class _FormatSums:
    """Squared errors of one format in one layer, float64 on the CPU; keys' by head and channel, [K, D]."""

    output: float = 0.0
    value: float = 0.0
    keys: torch.Tensor | float = 0.0


@dataclass
class _LayerSums:
    """Squares of one layer's outputs, values and keys, and the errors of each format."""

    errors: list[_FormatSums]
    num_vectors: int = 0
    output: float = 0.0
    value: float = 0.0
    keys: torch.Tensor | float = 0.0


class _StandIn:
    """A cache for one more call of an attention module: what is attended is given."""

    def __init__(self, cache: Any, attended: tuple[torch.Tensor, torch.Tensor]) -> None:
        self._cache, self._attended = cache, attended

    def update(self, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Hand out what is attended."""
        return self._attended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


@dataclass
class _Survey:
    formats: Sequence[KVFormat]
    layers: dict[int, _LayerSums] = field(default_factory=dict)
    is_real: torch.Tensor | None = None  # [B, C]
    cache: Any = None
    calls: list[Any] = field(default_factory=list)  # the modules that are running, outermost first
    attended: dict[Any, tuple[int, torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def begin(self, model: Any, reference: KVFormat) -> None:
        """Take a new cache, in 16 bits, that tells which module asks it for what."""
        self.cache = rounding_cache(model, lambda _: reference)
        store = self.cache.update

        def update(keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
            attended = store(keys, values, layer_idx, *args, **kwargs)
            if self.calls:
                self.attended[self.calls[-1]] = (layer_idx, *attended)
            return attended

        self.cache.update = update

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Follow the calls of all of a model's modules."""
        handles = []
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(lambda module, _: self.calls.append(module)))
            handles.append(module.register_forward_hook(self._after, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _after(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        self.calls.pop()
        if module not in self.attended:
            return
        layer, keys_BKSD, values_BKSD = self.attended.pop(module)
        passed = [*args, *kwargs.values()]
        if not any(one is self.cache for one in passed):
            raise ValueError(f"layer {layer}: {type(module).__name__} has its cache from elsewhere than its arguments")
        sums = self.layers.setdefault(layer, _LayerSums([_FormatSums() for _ in self.formats]))
        num_new = out[0].shape[1] if isinstance(out, tuple) else out.shape[1]
        output, keys, values = self._seen(out), self._new(keys_BKSD, num_new), self._new(values_BKSD, num_new)
        sums.num_vectors += keys.shape[0]
        sums.output += _squares(output)
        sums.value += _squares(values)
        sums.keys = sums.keys + _squares_by_channel(keys)
        for form, errors in zip(self.formats, sums.errors, strict=True):
            near_k = rounded(keys_BKSD, form, rotate=form.rotates_keys)
            near_v = rounded(values_BKSD, form, rotate=form.rotates_values)
            stand_in = _StandIn(self.cache, (near_k, near_v))
            again = module.forward(
                *(stand_in if one is self.cache else one for one in args),
                **{name: stand_in if one is self.cache else one for name, one in kwargs.items()},
            )
            errors.output += _squares(self._seen(again) - output)
            errors.value += _squares(self._new(near_v, num_new) - values)
            errors.keys = errors.keys + _squares_by_channel(self._new(near_k, num_new) - keys)

    def _seen(self, out: Any) -> torch.Tensor:
        """Return a module's output for tokens that are no padding."""
        out = out[0] if isinstance(out, tuple) else out
        assert self.is_real is not None
        seen: torch.Tensor = out[self.is_real.to(out.device)].float()
        return seen

    def _new(self, x_BKSD: torch.Tensor, num_new: int) -> torch.Tensor:
        """Return the vectors of tokens that are new in this call and no padding, [tokens, K, D]."""
        assert self.is_real is not None
        new: torch.Tensor = x_BKSD[:, :, -num_new:].transpose(1, 2)[self.is_real.to(x_BKSD.device)].float()
        return new


def survey_layers(
    model: Any, batches: Sequence[TokenBatch], formats: Sequence[KVFormat], reference: KVFormat, *, chunk_tokens: int
) -> list[LayerCheck]:
    """Measure each format in each layer alone, with what comes into the layer as it is in 16 bits.

    Args:
        model: The model, evaluating.
        batches: What it reads.
        formats: The formats.
        reference: The 16-bit one, which they are held against.
        chunk_tokens: The most tokens of a call.

    Returns:
        One for each layer that has a cache, in their order.

    Raises:
        ValueError: No module asks a cache for keys and values.

    Cost: one run over the batches, and its attention once more for each format.
    """
    survey = _Survey(formats)
    with survey.watching(model):
        for batch in batches:
            survey.begin(model, reference)
            for ids_BC, survey.is_real, _ in batch.chunks(chunk_tokens):
                run_chunk(model, ids_BC, survey.cache)
    if not survey.layers:
        raise ValueError("the model keeps no keys and values in the cache that it is given")
    return [_layer_check(layer, sums, formats) for layer, sums in sorted(survey.layers.items())]


def _layer_check(layer: int, sums: _LayerSums, formats: Sequence[KVFormat]) -> LayerCheck:
    size_KD = torch.as_tensor(sums.keys)
    num_heads, dim = size_KD.shape
    rms_KD = (size_KD / sums.num_vectors).sqrt()
    times_KD = rms_KD / rms_KD.median(-1, keepdim=True).values.clamp_min(1e-30)
    places = times_KD.flatten().argsort(descending=True, stable=True)[:_NUM_CHANNELS].tolist()
    channels = tuple(
        KeyChannel(
            head=at // dim,
            channel=at % dim,
            size=float(rms_KD.flatten()[at]),
            times_median=float(times_KD.flatten()[at]),
        )
        for at in places
    )
    errors = tuple(
        FormatError(
            format=form,
            output_error=_ratio(one.output, sums.output),
            key_error=_ratio(float(torch.as_tensor(one.keys).sum()), float(size_KD.sum())),
            value_error=_ratio(one.value, sums.value),
            num_lost_channels=int((torch.as_tensor(one.keys) > _LOST**2 * size_KD).sum()),
        )
        for form, one in zip(formats, sums.errors, strict=True)
    )
    return LayerCheck(layer=layer, num_kv_heads=num_heads, head_dim=dim, largest_channels=channels, errors=errors)


def _squares(x: torch.Tensor) -> float:
    return float(x.square().sum())


def _squares_by_channel(x_NKD: torch.Tensor) -> torch.Tensor:
    return x_NKD.square().sum(0).cpu().double()


def _ratio(error: float, whole: float) -> float:
    """Return a relative error from two sums of squares."""
    return float((error / whole) ** 0.5) if whole else 0.0 if not error else float("inf")
