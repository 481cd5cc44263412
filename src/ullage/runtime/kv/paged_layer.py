"""A layer of a cache for transformers: it stores new keys and values in pages, and attends there.

Shapes: B sequences, H query heads, K KV heads, Q new columns, C columns, T tokens, D values of a head's vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import CacheLayerMixin

from ullage.errors import RuntimeMemoryError
from ullage.runtime.kv.attention import append_kv, decode_attention
from ullage.runtime.kv.prefill import prefill_attention
from ullage.runtime.kv.reference import read_reference

if TYPE_CHECKING:
    from ullage.runtime.kv.batch import Batch
    from ullage.runtime.kv.forward_pass import ForwardPass

MARK = "ullage_paged_layer"  # on keys: the layer that they belong to
_EXTRAS = ("s_aux", "position_bias", "head_mask")  # what a model may ask of attention and pages are not read with

Attention = Callable[..., tuple[torch.Tensor, Any]]


class PagedLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not seen by mypy
    """A layer of a `PagedCache`. It hands the model its own new keys and values back; attention stores them."""

    is_croppable = True

    def __init__(self, batch: Batch, index: int, window: int) -> None:
        """Make a layer.

        Args:
            batch: The sequences, which all layers share.
            index: Its number.
            window: How many of the last tokens it sees; 0: all.
        """
        super().__init__()
        self.is_initialized = True
        self.is_sliding = window > 0
        self._batch, self._index, self._window = batch, index, window
        self._pages, self._layout = batch.pool.layer(index), batch.pool.layouts[index]
        self._recent = None if self._layout.format.is_plain else batch.pool.recent  # 16-bit pages need none

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the pages are there."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mark new keys as this layer's, and return them and the values as they are.

        Args:
            key_states: [B, K, Q, D].
            value_states: The same.
            args: Not used.
            kwargs: Not used.

        Raises:
            RuntimeMemoryError: They do not fit the pages, or those before never came to attention.
        """
        wanted = (self._layout.num_kv_heads, self._layout.head_dim)
        for states in (key_states, value_states):
            if (states.shape[1], states.shape[3]) != wanted or states.device != self._pages.device:
                raise RuntimeMemoryError(
                    f"layer {self._index} has {states.shape[1]} KV heads of {states.shape[3]} on {states.device}, "
                    f"the pages {wanted[0]} of {wanted[1]} on {self._pages.device}"
                )
        if self._index in self._batch.waiting:
            raise RuntimeMemoryError(
                f"the keys of layer {self._index} never came to ullage's attention: the model is not the one that the cache "
                "is for, or its attention implementation was changed; make the cache again with cache_for(model)"
            )
        setattr(key_states, MARK, self)
        self._batch.waiting.add(self._index)
        return key_states, value_states

    def attend(
        self,
        attention: Attention,
        module: Any,
        q_BHQD: torch.Tensor,
        k_BKQD: torch.Tensor,
        v_BKQD: torch.Tensor,
        mask: torch.Tensor | None,
        options: dict[str, Any],
    ) -> tuple[torch.Tensor, Any]:
        """Store new keys and values, and attend over them and all that is held.

        Args:
            attention: The function before ours.
            module: The model's attention module.
            q_BHQD: Queries.
            k_BKQD: New keys.
            v_BKQD: New values.
            mask: As the function before takes it: None, bool, or to be added to scores, [B, 1, Q, C].
            options: What else the model says: scaling, softcap and so on.

        Returns:
            [B, Q, H, D], and what the function before returns beside it.

        Raises:
            OutOfPagesError: There are too few pages; nothing changed.
            RuntimeMemoryError: The mask has another shape; or see `Batch.enter`.
        """
        self._batch.waiting.discard(self._index)
        num_batch, _, num_new, _ = q_BHQD.shape
        if mask is not None and (mask.ndim != 4 or mask.shape[-1] < num_new):
            raise RuntimeMemoryError(f"pages are read with masks [B, 1, Q, C], and this one is {tuple(mask.shape)}")
        step = self._batch.enter(self._index, num_batch, num_new, mask)
        self._append(step, k_BKQD, v_BKQD)
        if not step.num_past:
            return attention(module, q_BHQD, k_BKQD, v_BKQD, mask, **options)
        if _is_plain(options) and step.shows_all(mask, self._window):
            sees: dict[str, Any] = {
                "scale": options.get("scaling"),
                "softcap": options.get("softcap") or 0.0,
                "window": self._window,
            }
            if num_new > 1:
                return self._attend_with_many(step, q_BHQD, k_BKQD, v_BKQD, sees), None
            if self._recent is not None and step.recent is not None:
                sees["recent"] = self._recent.part(self._index, step.recent)
            out_BHD = decode_attention(q_BHQD[:, :, 0], self._pages, self._layout, step.table, step.lengths, **sees)
            return out_BHD.unsqueeze(1), None
        num_columns = step.num_columns if mask is None else mask.shape[-1]
        k_old, v_old = self._history(step, num_columns - num_new, k_BKQD)
        k_BKCD, v_BKCD = torch.cat([k_old, k_BKQD], 2), torch.cat([v_old, v_BKQD], 2)
        return attention(module, q_BHQD, k_BKCD, v_BKCD, step.without_padding(mask, num_columns), **options)

    def _attend_with_many(
        self, step: ForwardPass, q_BHQD: torch.Tensor, k_BKQD: torch.Tensor, v_BKQD: torch.Tensor, sees: dict[str, Any]
    ) -> torch.Tensor:
        """Attend with several new tokens of each sequence, [B, Q, H, D]; padding is zero."""
        q_THD, k_TKD, v_TKD = (_tokens_of(step, states) for states in (q_BHQD, k_BKQD, v_BKQD))
        out_THD = prefill_attention(
            *(q_THD, k_TKD, v_TKD, self._pages, self._layout, step.table, step.starts, step.past),
            max_new=step.num_new,
            **sees,
        )
        num_batch, num_heads, num_new, dim = q_BHQD.shape
        if step.kept is not None:
            out_THD = out_THD.new_zeros((num_batch * num_new, num_heads, dim)).index_copy_(0, step.kept, out_THD)
        return out_THD.view(num_batch, num_new, num_heads, dim)

    def _append(self, step: ForwardPass, k_BKQD: torch.Tensor, v_BKQD: torch.Tensor) -> None:
        k_TKD, v_TKD = (_tokens_of(step, states.detach()) for states in (k_BKQD, v_BKQD))
        if not len(k_TKD):
            return
        append_kv(k_TKD, v_TKD, self._pages, self._layout, step.table, step.rows, step.positions)
        if self._recent is not None and step.recent is not None:
            pages, layout = self._recent.layer(self._index), self._recent.layouts[self._index]
            append_kv(k_TKD, v_TKD, pages, layout, step.recent.table, step.rows, step.recent_positions())

    def _history(self, step: ForwardPass, num_columns: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the last columns before a pass, [B, K, num_columns, D]; padding is zero."""
        if num_columns > step.num_past:
            raise RuntimeMemoryError(f"a mask shows {num_columns} columns before, where there are {step.num_past}")
        shape = (like.shape[0], like.shape[1], num_columns, like.shape[3])
        k_BKCD, v_BKCD = like.new_zeros(shape), like.new_zeros(shape)
        skipped = step.num_past - num_columns
        for row in range(like.shape[0]):
            first, count, where = skipped, num_columns, torch.ones(num_columns, dtype=torch.bool)
            if step.past_held is not None:
                where = step.past_held[row, skipped:]
                first, count = int(step.past_held[row, :skipped].sum()), int(where.sum())
            k_TKD, v_TKD = read_reference(self._pages, self._layout, step.table[row], first, first + count)
            places = where.nonzero().flatten().to(like.device)
            k_BKCD[row, :, places] = k_TKD.transpose(0, 1).to(like.dtype)
            v_BKCD[row, :, places] = v_TKD.transpose(0, 1).to(like.dtype)
        return k_BKCD, v_BKCD

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many columns a mask has, and which is its first."""
        past = self.get_seq_length()
        skipped = max(past - self._window + 1, 0) if self._window else 0
        return past - skipped + query_length, skipped

    def get_seq_length(self) -> int:
        """Return the columns so far."""
        return self._batch.columns_of[self._index]

    def get_max_length(self) -> int:
        """Return -1: the pool's pages are the limit, for all sequences together."""
        return -1


def _tokens_of(step: ForwardPass, x_BHQD: torch.Tensor) -> torch.Tensor:
    """Return the vectors of new tokens without padding, [T, H, D]."""
    x_THD = x_BHQD.transpose(1, 2).flatten(0, 1)
    return x_THD if step.kept is None else x_THD[step.kept]


def _is_plain(options: dict[str, Any]) -> bool:
    """Tell whether reading pages does all that a model asks of attention."""
    is_asked = options.get("dropout") or options.get("output_attentions")
    return not is_asked and all(options.get(name) is None for name in _EXTRAS)
