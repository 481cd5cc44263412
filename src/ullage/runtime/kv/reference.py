"""Appending and attending in plain PyTorch: what kernels are held against, and the path for CPUs.

Shapes: B sequences, T tokens, H query heads, K KV heads, D values of a head's vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ullage.runtime.kv.rounding import Codes, decode, encode

if TYPE_CHECKING:
    from ullage.runtime.kv.formats import PageLayout
    from ullage.runtime.kv.recent import RecentPart

_QUERIED = 256  # new tokens whose scores are held at a time


def append_reference(
    k_TKD: torch.Tensor,
    v_TKD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    rows: torch.Tensor,
    positions: torch.Tensor,
) -> None:
    """Write new tokens' keys and values to their pages; as `attention.append_kv`."""
    page_of = table[rows.long(), positions.long() // layout.page_tokens].long()
    offsets = positions.long() % layout.page_tokens
    there = (page_of >= 0) & (positions >= 0)
    page_of, offsets = page_of[there], offsets[there]
    form = layout.format
    for is_value, x_TKD, rotate in ((False, k_TKD, form.rotates_keys), (True, v_TKD, form.rotates_values)):
        x_TKD = x_TKD[there]
        stored = encode(x_TKD.reshape(-1, layout.head_dim), form, rotate=rotate)
        codes, parameters = _parts(pages, layout, is_value=is_value)
        codes[page_of, :, offsets] = stored.codes.view(*x_TKD.shape[:2], layout.code_bytes)
        if layout.num_groups:
            both = torch.stack([stored.scales, stored.zeros], -1).view(*x_TKD.shape[:2], layout.num_groups, 2)
            parameters[page_of, :, :, offsets] = both


def read_reference(
    pages: torch.Tensor, layout: PageLayout, table_row: torch.Tensor, begin: int, end: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Read one sequence's keys and values of tokens [begin, end), as they were before they were turned.

    Args:
        pages: A layer's pages, uint8 [num_pages, page_bytes].
        layout: What a page looks like.
        table_row: The sequence's pages, int32 [max_pages].
        begin: The first token.
        end: The one after the last.

    Returns:
        Keys and values, float32 [end - begin, K, D].
    """
    token = torch.arange(begin, end, device=pages.device)
    page_of = table_row[token // layout.page_tokens].long()
    offsets = token % layout.page_tokens
    form, out = layout.format, []
    for is_value, rotate in ((False, form.rotates_keys), (True, form.rotates_values)):
        codes, parameters = _parts(pages, layout, is_value=is_value)
        picked = codes[page_of, :, offsets].reshape(-1, layout.code_bytes)
        both = parameters[page_of, :, :, offsets].reshape(len(picked), layout.num_groups, 2)
        x = decode(Codes(picked, both[..., 0], both[..., 1]), form, layout.head_dim, rotate=rotate)
        out.append(x.view(end - begin, layout.num_kv_heads, layout.head_dim))
    return out[0], out[1]


def decode_reference(
    q_BHD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float,
    softcap: float,
    window: int,
    recent: RecentPart | None = None,
) -> torch.Tensor:
    """Attend with one token of each sequence; as `attention.decode_attention`."""
    out = torch.zeros_like(q_BHD)
    queries = q_BHD.shape[1] // layout.num_kv_heads
    for batch, length in enumerate(lengths.tolist()):
        if not length:
            continue
        begin = max(length - window, 0) if window else 0
        end = length if recent is None else int(recent.tables.ends[batch])
        k_TKD, v_TKD = read_reference(pages, layout, table[batch], min(begin, end), end)
        if recent is not None:
            base = int(recent.tables.bases[batch])
            row = recent.tables.table[batch]
            k_new, v_new = read_reference(recent.pages, recent.layout, row, max(begin, end) - base, length - base)
            k_TKD, v_TKD = torch.cat([k_TKD, k_new]), torch.cat([v_TKD, v_new])
        k_KTD = k_TKD.transpose(0, 1).repeat_interleave(queries, 0)
        v_KTD = v_TKD.transpose(0, 1).repeat_interleave(queries, 0)
        scores = torch.einsum("hd,htd->ht", q_BHD[batch].float(), k_KTD) * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        out[batch] = torch.einsum("ht,htd->hd", scores.softmax(-1), v_KTD).to(out.dtype)
    return out


def prefill_reference(
    q_THD: torch.Tensor,
    k_TKD: torch.Tensor,
    v_TKD: torch.Tensor,
    pages: torch.Tensor,
    layout: PageLayout,
    table: torch.Tensor,
    starts: torch.Tensor,
    past: torch.Tensor,
    *,
    scale: float,
    softcap: float,
    window: int,
) -> torch.Tensor:
    """Attend with new tokens over what pages hold and over each other; as `prefill.prefill_attention`."""
    out = torch.zeros_like(q_THD)
    bounds = starts.tolist()
    for row, held in enumerate(past.tolist()):
        begin, end = bounds[row], bounds[row + 1]
        first = max(held + 1 - window, 0) if window else 0
        history = read_reference(pages, layout, table[row], min(first, held), held)
        k_CKD, v_CKD = (
            torch.cat([old, new[begin:end].float()]) for old, new in zip(history, (k_TKD, v_TKD), strict=True)
        )
        position_C = torch.arange(held + end - begin - len(k_CKD), held + end - begin, device=q_THD.device)
        for at in range(begin, end, _QUERIED):
            q_QHD = q_THD[at : min(at + _QUERIED, end)].float()
            q_QKGD = q_QHD.unflatten(1, (layout.num_kv_heads, -1))
            scores = torch.einsum("qkgd,ckd->kgqc", q_QKGD, k_CKD) * scale
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            position_Q1 = torch.arange(held + at - begin, held + at - begin + len(q_QHD), device=q_THD.device)[:, None]
            is_seen = position_C <= position_Q1
            if window:
                is_seen &= position_C > position_Q1 - window
            weights = scores.masked_fill(~is_seen, -torch.inf).softmax(-1)
            out[at : at + len(q_QHD)] = torch.einsum("kgqc,ckd->qkgd", weights, v_CKD).flatten(1, 2).to(out.dtype)
    return out


def _parts(pages: torch.Tensor, layout: PageLayout, *, is_value: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of codes [pages, K, N, code_bytes] and parameters [pages, K, G, N, 2] of K or of V."""
    kv, tokens = layout.num_kv_heads, layout.page_tokens
    at = layout.codes_size if is_value else 0
    codes = pages[:, at : at + layout.codes_size]
    if is_value and layout.num_groups:
        codes = codes.unflatten(1, (kv, layout.code_bytes, tokens)).transpose(2, 3)
    else:
        codes = codes.unflatten(1, (kv, tokens, layout.code_bytes))
    at = layout.parameters_offset + (layout.parameters_size if is_value else 0)
    raw = pages[:, at : at + layout.parameters_size]
    return codes, raw.view(torch.float16).unflatten(1, (kv, layout.num_groups, tokens, 2))
