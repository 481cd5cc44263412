"""A cache for transformers that keeps keys and values in a pool's pages, and the attention function that reads them there.

A model stores by `Cache.update` and attends by a function that it looks up by name. `cache_for` gives it a function of ours:
keys that come from a `PagedCache` are known by a mark that `update` left on them; with any other keys the function does what
the one before it did. A prompt is left to the function before; what comes after it attends to pages. Where a model asks for
more than that (weights, masks with holes), the history is read back, and attending left to the function before.

Columns are what the model counts, padding included; pages hold none of it (see `batch`).

Shapes: B sequences, H query heads, K KV heads, Q new columns, C columns, T tokens, D values of a head's vector.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from collections.abc import Sequence as List
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from ullage.errors import RuntimeMemoryError, UllageError
from ullage.runtime.kv.batch import Batch
from ullage.runtime.kv.formats import KVFormat, PageLayout
from ullage.runtime.kv.pool import KVPool

try:
    from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
    from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from ullage.runtime.kv.paged_layer import MARK, Attention, PagedLayer
except ImportError as error:
    raise UllageError(
        f"a cache for transformers needs transformers 5.24 or newer ({error}): pip install 'ullage[transformers]'"
    ) from None

_PREFIX = "ullage_paged_"
_BASES = ("sdpa", "eager")  # the functions that ours stands before


class PagedCache(Cache):  # type: ignore[misc]
    """A transformers cache whose keys and values are in a pool. `cache_for` makes it.

    Its pages go back to the pool when it is reset or collected. A copy (`copy.deepcopy`) shares pages until one of the two
    writes. Gradients do not flow into what is held.

    Attributes:
        pool: The pool.
        batch: Its sequences.
    """

    def __init__(self, pool: KVPool, windows: List[int], batch: Batch | None = None) -> None:
        """Make a cache over a pool.

        Args:
            pool: Where the pages are; one for a model, whose caches may share it.
            windows: By layer, how many of the last tokens it sees; 0: all.
            batch: The sequences to begin with; None: none.
        """
        self.pool, self._windows = pool, list(windows)
        self.batch = batch or Batch(pool)
        weakref.finalize(self, self.batch.clear).atexit = False
        super().__init__(layers=[PagedLayer(self.batch, index, window) for index, window in enumerate(windows)])

    @property
    def batch_size(self) -> int:
        """The sequences that it holds; -1 where there are none."""
        return len(self.batch.sequences) or -1

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a layer's new keys and values; see `PagedLayer.update`."""
        keys, values = self.layers[layer_idx].update(key_states, value_states)
        return keys, values

    def reset(self) -> None:
        """Give all pages back; the next batch may have another size."""
        self.batch.clear()

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last columns of all sequences.

        Args:
            tokens_to_remove: How many, as a number below 0; above 0: how many to keep.
        """
        columns = self.batch.num_columns
        kept = columns + tokens_to_remove if tokens_to_remove <= 0 else min(tokens_to_remove, columns)
        self.batch.crop(kept)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Go on with these sequences, in this order; those that are named twice share pages."""
        self.batch.select(beam_idx.tolist())

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these sequences: indices, or a bool for each."""
        chosen = indices.nonzero().flatten() if indices.dtype == torch.bool else indices
        self.batch.select(chosen.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence; the copies share pages."""
        self.batch.select([index for index in range(len(self.batch.sequences)) for _ in range(repeats)])

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Let the model run a step that the batch has made room for, without a mask and without accounts, to be captured."""
        _maskless.is_on = True
        try:
            with self.batch.captured():
                yield
        finally:
            _maskless.is_on = False

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedCache:
        return PagedCache(self.pool, self._windows, self.batch.copy())


def cache_for(
    model: Any,
    format: str | KVFormat | List[str | KVFormat] = "int4",
    *,
    max_tokens: int | None = None,
    num_pages: int | None = None,
    page_tokens: int = 64,
    recent_tokens: int = 0,
    max_sequences: int = 16,
) -> PagedCache:
    """Make a cache for a transformers model, to be given to `model.generate(..., past_key_values=cache)`.

    The model's attention implementation becomes ours, and stays it: with any other cache it does what the one before did.

    Args:
        model: A decoder, of Llama's, Qwen's, Mistral's or Gemma's kind, with "sdpa" or "eager" attention, on one device.
        format: How keys and values are stored: a name or a format, or one for each layer.
        max_tokens: How many tokens all sequences hold together, each rounded up to whole pages; or
        num_pages: how many pages. Neither: as many as the model has positions, and on a GPU at most half of what is free.
        page_tokens: The tokens of a page: 16, 32 or 64.
        recent_tokens: How many of each sequence's last tokens are read in 16 bits: a multiple of page_tokens; 0: none.
        max_sequences: How many sequences there are at once where recent tokens are kept; beams are there twice for a moment.

    Returns:
        An empty cache. It serves one batch after another: `reset()` lies between them.

    Raises:
        RuntimeMemoryError: The model cannot be served, or the pages do not fit; the model is as it was.
        ValueError: A format or a figure is out of its range, or both sizes are given.

    Cost: allocates the pages. A prompt is attended to in 16 bits as before; what comes after it reads pages, and recent tokens
    where there is one new token.
    """
    if max_tokens is not None and num_pages is not None:
        raise ValueError("give either max_tokens or num_pages")
    config = model.config.get_text_config(decoder=True)
    windows = _windows(model, config)
    name = _implementation(model, config)
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    listed = [format] * len(windows) if isinstance(format, str | KVFormat) else format
    formats = [one if isinstance(one, KVFormat) else KVFormat.named(one) for one in listed]
    if num_pages is None:
        num_pages = -(-(config.max_position_embeddings if max_tokens is None else max_tokens) // page_tokens)
        if max_tokens is None and model.device.type == "cuda":
            sizes = (
                PageLayout(format=one, num_kv_heads=kv_heads, head_dim=head_dim, page_tokens=page_tokens).page_bytes
                for one in formats
            )
            free = torch.cuda.mem_get_info(model.device)[0] // 2
            rings = recent_tokens and max_sequences * (recent_tokens + page_tokens) * 4 * kv_heads * head_dim * len(
                windows
            )
            num_pages = min(num_pages, max(free - rings, 0) // sum(sizes))
    pool = KVPool(
        num_layers=len(windows),
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        formats=formats,
        page_tokens=page_tokens,
        num_pages=num_pages,
        recent_tokens=recent_tokens,
        max_sequences=max_sequences,
        device=model.device,
    )
    model.set_attn_implementation(name)
    if config._attn_implementation != name:
        raise RuntimeMemoryError(f"{type(model).__name__} does not let its attention implementation be set")
    return PagedCache(pool, windows)


def _windows(model: Any, config: Any) -> list[int]:
    """Return each layer's window, 0 where it has none, from the layers of the cache that transformers would make."""
    if model.config.is_encoder_decoder:
        raise RuntimeMemoryError(f"{type(model).__name__} has cross attention, which pages do not hold")
    if not getattr(model, "_supports_attention_backend", False):
        raise RuntimeMemoryError(f"{type(model).__name__} does not take attention functions by name")
    windows = []
    for index, layer in enumerate(DynamicCache(config=config).layers):
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise RuntimeMemoryError(
                f"layer {index} of {type(model).__name__} keeps a {type(layer).__name__}, not pages"
            )
        windows.append(getattr(layer, "sliding_window", None) or 0)
    return windows


def _implementation(model: Any, config: Any) -> str:
    """Return the name of our attention function before the model's own."""
    current: str = config._attn_implementation
    base = current.removeprefix(_PREFIX)
    if base not in _BASES:
        raise RuntimeMemoryError(
            f"{type(model).__name__} attends by {current!r}; call model.set_attn_implementation('sdpa'), or 'eager', first"
        )
    return _PREFIX + base


def _paged_attention(
    base: str,
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, Any]:
    """Attend by pages where keys are marked, and else as `base` does."""
    attention: Attention | None = ALL_ATTENTION_FUNCTIONS.get(base)
    attention = attention or getattr(sys.modules[type(module).__module__], f"{base}_attention_forward", None)
    if attention is None:
        raise RuntimeMemoryError(f"{type(module).__name__} has no {base} attention that could be called")
    layer: PagedLayer | None = getattr(key, MARK, None)
    if layer is None:
        return attention(module, query, key, value, attention_mask, **options)
    return layer.attend(attention, module, query, key, value, attention_mask, options)


class _Maskless(threading.local):
    is_on = False  # while a step is captured: pages say what is seen


_maskless = _Maskless()


def _paged_mask(base: str, *args: Any, **options: Any) -> Any:
    """Make the mask that `base` takes."""
    return None if _maskless.is_on else ALL_MASK_ATTENTION_FUNCTIONS[base](*args, **options)


for _base in _BASES:
    AttentionInterface.register(_PREFIX + _base, partial(_paged_attention, _base))
    AttentionMaskInterface.register(_PREFIX + _base, partial(_paged_mask, _base))
