"""Which formats a model's keys and values bear: measured on the user's own texts, against 16 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.runtime.kv.check.layers import survey_layers
from ullage.runtime.kv.check.model import (
    FormatOf,
    TokenBatch,
    evaluating,
    measure_losses,
    reference_format,
    token_batches,
)
from ullage.runtime.kv.check.result import (
    Advice,
    FormatLoss,
    KVCheck,
    LayerCheck,
    Loss,
    LossBudget,
    Sensitivity,
)
from ullage.runtime.kv.check.text import advice_text, format_label, nearest_format, nearness, why_unsafe
from ullage.runtime.kv.formats import KVFormat

DEFAULT_FORMATS = ("int4", "int8", "fp8")
_NOTHING_YET = Loss(num_tokens=0, perplexity=math.nan, perplexity_rise=0.0, rise_error=0.0, kl=0.0, top1_agreement=1.0)
_SAMPLE_TOKENS = 1024  # on which a layer's own part in the loss is measured


def check(
    model: Any,
    texts: Iterable[Any],
    *,
    tokenizer: Any = None,
    formats: Sequence[KVFormat | str] | None = None,
    budget: LossBudget = LossBudget(),  # noqa: B008 (frozen)
    context_tokens: int = 2048,
    chunk_tokens: int = 512,
    progress: Callable[[str], None] | None = None,
) -> KVCheck:
    """Measure what formats cost a model on texts of the kind that it will see, and advise one for each layer.

    The model reads the texts with each key and value, a token's own too, as its page would give it back. That is what decoding
    every token from the pages gives; a prompt that is first read in 16 bits does not suffer so much.

    Args:
        model: A causal language model of transformers, or one that takes a cache as these do.
        texts: Strings, sequences of token numbers, or tensors of them of one dimension or two.
        tokenizer: What makes tokens of strings: a call returns a mapping with "input_ids".
        formats: The formats, or their names; None: int4, int8 and fp8 as `KVFormat.named` makes them.
        budget: What rounding may cost.
        context_tokens: The longest sequence; longer texts are cut. No more than the model was made for.
        chunk_tokens: The most tokens of one call of the model.
        progress: Called with what is measured next.

    Returns:
        What was found. The same on each call, as far as the device's own sums are.

    Raises:
        ValueError: There are too few tokens, or the model's vectors do not fit in pages.

    Cost: about 2 runs over the texts and 2 for each format; where the smallest format is not safe, as many more as the
    logarithm of layers times formats, and a short one for each layer and format. Memory beside the model: caches of one
    sequence for five formats, and three times the logits of a chunk in float32.

    Example:
        >>> print(check(model, paragraphs, tokenizer=tokenizer))  # doctest: +SKIP
        int4 is safe: perplexity +0.21 %, KL 0.0031, top-1 agrees on 98.4 % (budget
          perplexity +1.0 %); 0.28 of the bytes.
    """
    listed = [KVFormat.named(one) if isinstance(one, str) else one for one in formats or DEFAULT_FORMATS]
    say = progress or (lambda _: None)
    context_tokens = min(context_tokens, longest_context(model) or context_tokens)
    with evaluating(model):
        device = next(model.parameters()).device
        batches = token_batches(
            texts, tokenizer, context_tokens=context_tokens, chunk_tokens=chunk_tokens, device=device
        )
        reference = reference_format(model)
        say("layers")
        layers = tuple(survey_layers(model, batches, listed, reference, chunk_tokens=chunk_tokens))
        search = _Search(model, batches, layers, listed, reference, budget, chunk_tokens, say)
        losses = search.uniform_losses()
        advice, sensitivities = search.advise(losses)
    formats_found = tuple(
        FormatLoss(format=form, loss=loss, verdict=budget.verdict(loss))
        for form, loss in zip(listed, losses, strict=True)
    )
    return KVCheck(
        budget=budget,
        reference=reference,
        perplexity=search.base.perplexity,
        num_tokens=search.base.num_tokens,
        formats=formats_found,
        layers=layers,
        sensitivities=sensitivities,
        advice=advice,
    )


def longest_context(model: Any) -> int | None:
    """Return the tokens that a model was made for, as its config has it; None: that says nothing."""
    config: Any = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


@dataclass
class _Search:
    """Looks for the smallest formats that keep to a budget."""

    model: Any
    batches: list[TokenBatch]
    layers: tuple[LayerCheck, ...]
    formats: list[KVFormat]
    reference: KVFormat
    budget: LossBudget
    chunk_tokens: int
    say: Callable[[str], None]
    base: Loss = _NOTHING_YET

    def uniform_losses(self) -> list[Loss]:
        """Measure each format in all layers, and 16 bits."""
        self.say(", ".join(format_label(one) for one in self.formats))
        losses = self._measure([_everywhere(one) for one in [*self.formats, self.reference]], self.batches)
        self.base = losses.pop()
        return losses

    def advise(self, losses: Sequence[Loss]) -> tuple[Advice, tuple[Sensitivity, ...]]:
        """Return a format for each layer, and what each layer's part in the loss was taken for."""
        rungs = self._rungs()
        best = self._best_uniform(losses)
        if not rungs or (best is not None and self._size(best[0]) == self._size(rungs[0][0])):
            return (self._advice(*best) if best else self._refusal(losses)), ()
        self.say("each layer alone")
        sensitivities = self._alone(rungs)
        mixture, loss = self._smallest_mixture(rungs, sensitivities)
        is_smaller = self._bytes(mixture) < self._bytes(self._whole(self.reference))
        if is_smaller and (best is None or self._bytes(mixture) < self._bytes(self._whole(best[0]))):
            return self._mixed_advice(mixture, loss), sensitivities
        return (self._advice(*best) if best else self._refusal(losses)), sensitivities

    def _rungs(self) -> list[list[KVFormat]]:
        """Return the formats that save something, those of one size together, the smallest first."""
        sizes = sorted({self._size(one) for one in self.formats if not one.is_plain})
        return [[one for one in self.formats if self._size(one) == size] for size in sizes]

    def _best_uniform(self, losses: Sequence[Loss]) -> tuple[KVFormat, Loss] | None:
        """Return the smallest safe format, of several the nearest; None where none is."""
        safe = [
            (form, loss)
            for form, loss in zip(self.formats, losses, strict=True)
            if self.budget.verdict(loss) == "safe" and not form.is_plain
        ]
        return min(safe, key=lambda one: (self._size(one[0]), nearness(one[1])), default=None)

    def _alone(self, rungs: list[list[KVFormat]]) -> tuple[Sensitivity, ...]:
        """Measure each format in each layer with all others in 16 bits, on the first of the texts."""
        sample: list[TokenBatch] = []
        for batch in self.batches:
            if sum(one.num_tokens for one in sample) < _SAMPLE_TOKENS:
                sample.append(batch)
        pairs = [(one.layer, form) for one in self.layers for rung in rungs for form in rung]
        losses = self._measure([self._only(layer, form) for layer, form in pairs], sample)
        return tuple(
            Sensitivity(layer=layer, format=form, kl=loss.kl) for (layer, form), loss in zip(pairs, losses, strict=True)
        )

    def _smallest_mixture(
        self, rungs: list[list[KVFormat]], sensitivities: Sequence[Sensitivity]
    ) -> tuple[tuple[KVFormat, ...], Loss]:
        """Raise the most sensitive layer, one rung at a time, until the budget holds; the last mixture is 16 bits alone.

        The order comes from the layers' own parts in the loss; how far to go is found by halving, each mixture measured.
        """
        kl = {(one.layer, one.format): one.kl if math.isfinite(one.kl) else math.inf for one in sensitivities}
        ladders = {
            one.layer: [min(rung, key=lambda form: kl[one.layer, form]) for rung in rungs] + [self.reference]
            for one in self.layers
        }
        at = dict.fromkeys(ladders, 0)
        mixtures = [self._at(ladders, at)]
        for _ in range(len(ladders) * len(rungs)):
            layer = max((one for one in at if at[one] < len(rungs)), key=lambda one: kl[one, ladders[one][at[one]]])
            at[layer] += 1
            mixtures.append(self._at(ladders, at))
        low, high, found = 0, len(mixtures) - 1, self.base
        while low < high:
            middle = (low + high) // 2
            self.say(f"mixture {middle + 1} of {len(mixtures)}")
            loss = self._measure([self._mixed(mixtures[middle])], self.batches)[0]
            if self.budget.verdict(loss) == "safe":
                high, found = middle, loss
            else:
                low = middle + 1
        return mixtures[high], found

    def _at(self, ladders: dict[int, list[KVFormat]], at: dict[int, int]) -> tuple[KVFormat, ...]:
        return tuple(ladders[one.layer][at[one.layer]] for one in self.layers)

    def _advice(self, form: KVFormat, loss: Loss) -> Advice:
        return self._mixed_advice(self._whole(form), loss)

    def _mixed_advice(self, mixture: tuple[KVFormat, ...], loss: Loss) -> Advice:
        size, whole = self._bytes(mixture), self._bytes(self._whole(self.reference))
        return Advice(
            is_safe=True,
            formats=mixture,
            loss=loss,
            bytes_per_token=size,
            reference_bytes_per_token=whole,
            reason=advice_text(mixture, self.layers, loss, self.budget, size / whole),
        )

    def _refusal(self, losses: Sequence[Loss]) -> Advice:
        whole = self._whole(self.reference)
        index = nearest_format(list(zip(self.formats, losses, strict=True)))
        form, loss = self.formats[index], losses[index]
        if self.budget.verdict(loss) == "unsafe":
            why = f"{loss}; {why_unsafe(form, self.layers, index)}"
        elif form.is_plain:
            why = "it takes no fewer bytes than 16 bits"
        else:
            why = f"{loss}, on too few tokens ({loss.num_tokens:,}) to tell; give more text"
        return Advice(
            is_safe=False,
            formats=whole,
            loss=self.base,
            bytes_per_token=self._bytes(whole),
            reference_bytes_per_token=self._bytes(whole),
            reason=f"No: no format is safe within the budget ({self.budget}). The nearest is {format_label(form)}: {why}.",
        )

    def _measure(self, variants: list[FormatOf], batches: list[TokenBatch]) -> list[Loss]:
        return measure_losses(self.model, batches, variants, self.reference, chunk_tokens=self.chunk_tokens)

    def _only(self, layer: int, form: KVFormat) -> FormatOf:
        return lambda one: form if one == layer else self.reference

    def _mixed(self, mixture: tuple[KVFormat, ...]) -> FormatOf:
        by_layer = dict(zip((one.layer for one in self.layers), mixture, strict=True))
        return by_layer.__getitem__

    def _whole(self, form: KVFormat) -> tuple[KVFormat, ...]:
        return (form,) * len(self.layers)

    def _size(self, form: KVFormat) -> int:
        return self._bytes(self._whole(form))

    def _bytes(self, mixture: tuple[KVFormat, ...]) -> int:
        """Return the bytes of a token over all layers."""
        return sum(
            2 * one.num_kv_heads * form.vector_bytes(one.head_dim)
            for one, form in zip(self.layers, mixture, strict=True)
        )


def _everywhere(form: KVFormat) -> FormatOf:
    return lambda _: form
