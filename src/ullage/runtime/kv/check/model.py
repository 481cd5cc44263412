"""Runs a causal language model with keys and values rounded as pages store them, and measures what becomes of its words.

A cache of transformers is given a vector's codes turned back into values, each rounded once, when it is new; what is attended
is all of it, a token's own key and value too, as `decode_attention` does. So many tokens at a time give what decoding one by
one gives. Not in it: the kernels' own order of sums. In it and not in theirs: values turned back from codes are rounded to the
model's type.

Shapes: B sequences, T tokens, C of them in one call, K KV heads, D values of a head's vector, N tokens to foretell, V words.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from ullage.errors import UllageError
from ullage.runtime.kv.check.result import Loss
from ullage.runtime.kv.formats import KVFormat, PageLayout
from ullage.runtime.kv.rounding import decode, encode

FormatOf = Callable[[int], KVFormat]
"""Which format a layer has."""
FEWEST_TOKENS = 100
_AT_ONCE = 4  # caches that are filled beside the 16-bit one


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """Sequences that are run together, padded on the right: what is causal never sees the padding.

    Attributes:
        ids: Tokens, int64 [B, T].
        lengths: The tokens of each without padding, int64 [B].
    """

    ids: torch.Tensor
    lengths: torch.Tensor

    @property
    def num_tokens(self) -> int:
        """The tokens to foretell: all but each sequence's first."""
        return int(self.lengths.sum()) - len(self.lengths)

    def chunks(self, chunk_tokens: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield tokens [B, C], which of them are no padding [B, C], and those that follow them [B, C]; a last one's is 0."""
        next_BT = torch.nn.functional.pad(self.ids[:, 1:], (0, 1))
        position_T = torch.arange(self.ids.shape[1], device=self.ids.device)
        is_real_BT = position_T < self.lengths[:, None]
        step = max(1, chunk_tokens // len(self.ids))
        for begin in range(0, len(position_T), step):
            part = slice(begin, begin + step)
            yield self.ids[:, part], is_real_BT[:, part], next_BT[:, part]


def token_batches(
    texts: Iterable[Any], tokenizer: Any, *, context_tokens: int, chunk_tokens: int, device: torch.device
) -> list[TokenBatch]:
    """Cut texts into sequences of at most context_tokens, and put short ones together.

    Args:
        texts: Strings, sequences of token numbers, or tensors of them of one dimension or two.
        tokenizer: What makes tokens of strings; None: there are none.
        context_tokens: The longest sequence.
        chunk_tokens: The most tokens of short sequences that are put together.
        device: Where the tokens are to be.

    Raises:
        ValueError: There are too few tokens, or strings and no tokenizer.
    """
    cut = [
        row[at : at + context_tokens] for row in _rows(texts, tokenizer) for at in range(0, len(row), context_tokens)
    ]
    rows = sorted((row for row in cut if len(row) > 1), key=len, reverse=True)
    num_tokens = sum(len(row) - 1 for row in rows)
    if num_tokens < FEWEST_TOKENS:
        raise ValueError(
            f"the texts have {num_tokens:,} tokens to foretell: give at least {FEWEST_TOKENS}, better thousands, of the kind "
            "that the model will see"
        )
    batches = []
    while rows:
        count = max(1, chunk_tokens // len(rows[0]))
        taken, rows = rows[:count], rows[count:]
        ids = torch.zeros((len(taken), len(taken[0])), dtype=torch.int64)
        for index, row in enumerate(taken):
            ids[index, : len(row)] = torch.tensor(row)
        lengths = torch.tensor([len(row) for row in taken])
        batches.append(TokenBatch(ids=ids.to(device), lengths=lengths.to(device)))
    return batches


def _rows(texts: Iterable[Any], tokenizer: Any) -> Iterator[list[int]]:
    if isinstance(texts, str):
        raise ValueError("texts is one string: give a list of them")
    for text in texts:
        if isinstance(text, str):
            if tokenizer is None:
                raise ValueError("texts are strings: give the model's tokenizer too, or sequences of token numbers")
            yield list(tokenizer(text)["input_ids"]) if text else []
        elif isinstance(text, torch.Tensor) and text.dim() == 2:
            yield from text.tolist()
        else:
            yield text.tolist() if isinstance(text, torch.Tensor) else list(text)


def rounded(x_BKTD: torch.Tensor, form: KVFormat, *, rotate: bool) -> torch.Tensor:
    """Return what a page gives back of keys or values, in their type."""
    dim = x_BKTD.shape[-1]
    stored = encode(x_BKTD.reshape(-1, dim), form, rotate=rotate)
    return decode(stored, form, dim, rotate=rotate).view(x_BKTD.shape).to(x_BKTD.dtype)


def rounding_cache(model: Any, format_of: FormatOf) -> Any:
    """Return a `DynamicCache` of transformers that keeps each layer's keys and values as its format gives them back.

    Raises:
        UllageError: transformers is not installed.
        ValueError: From its first use on, where a layer's vectors do not fit in pages.
    """
    try:
        transformers = import_module("transformers")
    except ImportError as error:
        raise UllageError(f"to check a model needs transformers ({error}): pip install transformers") from None
    cache = transformers.DynamicCache(config=getattr(model, "config", None))
    store = cache.update

    def update(keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        form = format_of(layer_idx)
        if keys.shape[-1] != values.shape[-1]:
            raise ValueError(
                f"layer {layer_idx} has keys of {keys.shape[-1]} and values of {values.shape[-1]}: pages hold equal ones"
            )
        PageLayout(format=form, num_kv_heads=keys.shape[1], head_dim=keys.shape[-1])
        keys = rounded(keys, form, rotate=form.rotates_keys)
        values = rounded(values, form, rotate=form.rotates_values)
        return store(keys, values, layer_idx, *args, **kwargs)

    cache.update = update
    return cache


def run_chunk(model: Any, ids_BC: torch.Tensor, cache: Any) -> torch.Tensor:
    """Return the logits [B, C, V] of tokens that follow what a cache holds, and add them to it."""
    names = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in names else "past_key_values"  # as transformers calls it from 5.24 on, and before
    out = model(input_ids=ids_BC, use_cache=True, **{name: cache})
    logits: torch.Tensor = out.logits if hasattr(out, "logits") else out[0]
    return logits


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Turn dropout and gradients off, and put the model back as it was."""
    was_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in was_training:
            module.training = True


def reference_format(model: Any) -> KVFormat:
    """Return the 16-bit format that a model is held against: its own, bfloat16 where it has more bits."""
    return KVFormat(kind="fp16" if next(model.parameters()).dtype == torch.float16 else "bf16")


def measure_losses(
    model: Any, batches: Sequence[TokenBatch], variants: Sequence[FormatOf], reference: KVFormat, *, chunk_tokens: int
) -> list[Loss]:
    """Measure what each way to store keys and values does to a model's words.

    Args:
        model: The model, evaluating.
        batches: What it reads.
        variants: The ways, each the formats of the layers.
        reference: What they are held against.
        chunk_tokens: The most tokens of a call.

    Returns:
        One for each variant.

    Raises:
        ValueError: The model's own logits are not finite.

    Cost: 1.25 to 2 runs over the batches for each variant; the memory of five caches of a batch and of three times the
    logits of a chunk as float32.
    """
    losses = []
    for at in range(0, len(variants), _AT_ONCE):
        group = variants[at : at + _AT_ONCE]
        sums = [_Sums() for _ in group]
        for batch in batches:
            _add_batch(model, batch, group, sums, reference, chunk_tokens)
        losses += [one.loss() for one in sums]
    return losses


def _add_batch(
    model: Any,
    batch: TokenBatch,
    variants: Sequence[FormatOf],
    sums: Sequence[_Sums],
    reference: KVFormat,
    chunk_tokens: int,
) -> None:
    base_cache = rounding_cache(model, lambda _: reference)
    caches = [rounding_cache(model, one) for one in variants]
    num_done = 0
    for ids_BC, is_real_BC, next_BC in batch.chunks(chunk_tokens):
        has_next_BC = is_real_BC.clone()
        last_B = batch.lengths - 1 - num_done
        ends_here = (last_B >= 0) & (last_B < ids_BC.shape[1])
        has_next_BC[ends_here, last_B[ends_here]] = False
        num_done += ids_BC.shape[1]
        next_N = next_BC[has_next_BC]
        base_NV = run_chunk(model, ids_BC, base_cache)[has_next_BC].float().log_softmax(-1)
        if base_NV.isnan().any():
            raise ValueError("the model's own logits are not finite, before anything is rounded")
        for cache, one in zip(caches, sums, strict=True):
            one.add(base_NV, run_chunk(model, ids_BC, cache)[has_next_BC].float().log_softmax(-1), next_N)


@dataclass
class _Sums:
    """Running sums over tokens, in float64."""

    num_tokens: int = 0
    base_nats: float = 0.0
    more_nats: float = 0.0
    more_squared: float = 0.0
    kl: float = 0.0
    num_agreed: int = 0

    def add(self, base_NV: torch.Tensor, log_NV: torch.Tensor, next_N: torch.Tensor) -> None:
        at = next_N.to(base_NV.device)[:, None]
        base_N = -base_NV.gather(1, at)[:, 0]
        more_N = -log_NV.gather(1, at)[:, 0] - base_N
        share_NV = base_NV.exp()
        # A word of no chance at all counts for nothing, not for 0 * (inf - inf); below zero is rounding of float32.
        kl_N = torch.where(share_NV > 0, share_NV * (base_NV - log_NV), 0).sum(-1).clamp_min(0)
        self.num_tokens += len(next_N)
        self.base_nats += float(base_N.cpu().double().sum())
        self.more_nats += float(more_N.cpu().double().sum())
        self.more_squared += float(more_N.cpu().double().square().sum())
        self.kl += float(kl_N.cpu().double().sum())
        self.num_agreed += int((base_NV.argmax(-1) == log_NV.argmax(-1)).sum())

    def loss(self) -> Loss:
        mean = self.more_nats / self.num_tokens
        variance = max(self.more_squared / self.num_tokens - mean**2, 0.0)
        ratio = _exp(mean)
        return Loss(
            num_tokens=self.num_tokens,
            perplexity=_exp(self.base_nats / self.num_tokens) * ratio,
            perplexity_rise=ratio - 1,
            rise_error=ratio * math.sqrt(variance / self.num_tokens),
            kl=self.kl / self.num_tokens,
            top1_agreement=self.num_agreed / self.num_tokens,
        )


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
