"""What a check found, as text of 80 columns, the answer first."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from ullage.runtime.kv.formats import KVFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.runtime.kv.check.result import KVCheck, LayerCheck, Loss, LossBudget

_COLUMNS = 80
_LABEL_COLUMNS, _FORMAT_COLUMNS = 21, 8
_LAYERS_SHOWN, _FORMATS_SHOWN = 8, 5
_STANDS_OUT = 4.0  # times the median: a channel that is worth naming


def check_text(found: KVCheck) -> str:
    """Return the answer, what each format cost, and the errors of the layers."""
    return "\n".join([*_answer(found), "", *_format_table(found), "", *_layer_table(found)])


def budget_text(budget: LossBudget) -> str:
    """Return what a budget allows."""
    parts = [f"perplexity {_percent(budget.perplexity_rise)}"] if budget.perplexity_rise is not None else []
    parts += [f"KL {budget.kl:g}"] if budget.kl is not None else []
    parts += [f"top-1 {100 * budget.top1_agreement:g} %"] if budget.top1_agreement is not None else []
    return ", ".join(parts)


def loss_text(loss: Loss) -> str:
    """Return a loss in a part of a sentence."""
    return (
        f"perplexity {_percent(loss.perplexity_rise)}, KL {loss.kl:.2g}, top-1 agrees on {_share(loss.top1_agreement)}"
    )


def format_label(form: KVFormat) -> str:
    """Name a format by its kind, and by what differs from `KVFormat.named`.

    Example:
        >>> format_label(KVFormat.named("int4")), format_label(KVFormat(kind="int4", rotates_values=True))
        ('int4', 'int4 without rotation, values rotated')
    """
    usual = KVFormat.named(form.kind)
    parts: list[str] = [form.kind]
    if form.rotates_keys != usual.rotates_keys:
        parts[0] += " with rotation" if form.rotates_keys else " without rotation"
    parts += ["values rotated"] if form.rotates_values else []
    parts += [f"groups of {form.group_size}"] if form.group_size != usual.group_size and not form.is_plain else []
    return ", ".join(parts)


def why_unsafe(form: KVFormat, layers: Sequence[LayerCheck], index: int) -> str:
    """Say where a format errs most: its worst layer, and the key channel that is behind it where one is."""
    worst = max(layers, key=lambda one: one.errors[index].output_error)
    error, top = worst.errors[index], worst.largest_channels[0]
    text = f"worst in layer {worst.layer}, whose attention is {_error(error.output_error)} off"
    if top.times_median >= _STANDS_OUT and error.num_lost_channels and not form.is_plain:
        return (
            f"{text}: key channel {top.channel} of head {top.head} is {top.times_median:.0f} x the median, and "
            f"{error.num_lost_channels:,} of {worst.num_kv_heads * worst.head_dim:,} channels are lost"
        )
    return text


def _answer(found: KVCheck) -> list[str]:
    lines = [found.advice.reason]
    nearest = nearest_format([(one.format, one.loss) for one in found.formats])
    for index, one in enumerate(found.formats):
        if index == nearest and not found.advice.is_safe:
            continue  # the reason says it all
        if one.verdict == "unsafe":
            lines.append(
                f"{format_label(one.format)} is not: {one.loss}; {why_unsafe(one.format, found.layers, index)}."
            )
        elif one.verdict == "unsure":
            lines.append(
                f"{format_label(one.format)} is not shown to be: perplexity {_percent(one.loss.perplexity_rise)}, give or take "
                f"{_error(2 * one.loss.rise_error)}; give more text."
            )
    return [row for line in lines for row in textwrap.wrap(line, _COLUMNS, subsequent_indent="  ")]


def nearest_format(losses: Sequence[tuple[KVFormat, Loss]]) -> int:
    """Return which format is nearest to 16 bits; one that has 16 bits itself only where there is no other."""
    return min(range(len(losses)), key=lambda at: (losses[at][0].is_plain, nearness(losses[at][1])))


def nearness(loss: Loss) -> float:
    """Return what losses are ordered by, the nearest to 16 bits first."""
    return loss.kl if math.isfinite(loss.kl) else math.inf


def _format_table(found: KVCheck) -> list[str]:
    labels = [format_label(one.format) for one in found.formats]
    width = max(min(max(map(len, labels)), _LABEL_COLUMNS), 10)
    rows = [
        f"{'all layers':{width}}  perplexity      rise   std err       KL    top-1",
        f"{format_label(found.reference):{width}}  {found.perplexity:10.4g}  ({found.num_tokens:,} tokens)",
    ]
    for label, one in zip(labels, found.formats, strict=True):
        if len(label) > width:
            rows.append(label)
            label = ""
        loss = one.loss
        rows.append(
            f"{label:{width}}  {loss.perplexity:10.4g}  {_percent(loss.perplexity_rise):>8}  {_error(loss.rise_error):>8}"
            f"  {loss.kl:7.2g}  {_share(loss.top1_agreement):>7}  {one.verdict}"
        )
    return rows


def _layer_table(found: KVCheck) -> list[str]:
    heads = [textwrap.wrap(format_label(one.format), _FORMAT_COLUMNS) for one in found.formats[:_FORMATS_SHOWN]]
    worst = sorted(found.layers, key=lambda one: -max(error.output_error for error in one.errors))[:_LAYERS_SHOWN]
    which = "" if len(worst) == len(found.layers) else f" (the worst {len(worst)} of {len(found.layers)} layers)"
    rows = textwrap.wrap(f"Error of each layer's attention{which}; its largest key channel, in medians", _COLUMNS)
    for at in range(max(map(len, heads))):
        parts = [f"{head[at] if at < len(head) else '':>{_FORMAT_COLUMNS}}" for head in heads]
        rows.append("  ".join(["layer" if not at else "     ", *parts, "head/channel" if not at else ""]).rstrip())
    for one in sorted(worst, key=lambda one: one.layer):
        errors = "  ".join(f"{_error(each.output_error):>{_FORMAT_COLUMNS}}" for each in one.errors[:_FORMATS_SHOWN])
        top = one.largest_channels[0]
        rows.append(f"{one.layer:5}  {errors}  {top.head}/{top.channel}: {top.times_median:.1f}")
    return rows


def advice_text(
    formats: Sequence[KVFormat], layers: Sequence[LayerCheck], loss: Loss, budget: LossBudget, share: float
) -> str:
    """Say what is safe, in one sentence, the answer first."""
    figures = f"{loss_text(loss)} (budget {budget}); {share:.2f} of the bytes."
    (most, num_most), *others = Counter(format_label(one) for one in formats).most_common()
    if not others:
        return f"{most} is safe: {figures}"
    parts = []
    for label, _ in others:
        where = [one.layer for one, form in zip(layers, formats, strict=True) if format_label(form) == label]
        parts.append(f"{label} in layer{'s' * (len(where) > 1)} {layer_ranges(where)}")
    return f"A mixture is safe, {', '.join(parts)}, {most} in the other {num_most}: {figures}"


def layer_ranges(layers: Sequence[int]) -> str:
    """Write ascending numbers, those that follow each other as ranges.

    Example:
        >>> layer_ranges([0, 1, 2, 5, 7, 8])
        '0-2, 5, 7-8'
    """
    parts: list[list[int]] = []
    for one in layers:
        if parts and parts[-1][-1] == one - 1:
            parts[-1].append(one)
        else:
            parts.append([one])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _percent(share: float | None) -> str:
    """Write a signed change."""
    if share is None or not math.isfinite(share):
        return "beyond measure"
    percent = 100 * share
    return (
        f"{percent:+.2f} %" if abs(percent) < 1 else f"{percent:+.1f} %" if abs(percent) < 10 else f"{percent:+,.0f} %"
    )


def _error(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:,.0f} %" if math.isfinite(share) else "all"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
