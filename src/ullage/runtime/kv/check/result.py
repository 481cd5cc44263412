"""What a check of a model's cache found: losses, errors by layer, the advice; as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from ullage.runtime.kv.check.text import budget_text, check_text, loss_text
from ullage.runtime.kv.formats import KVFormat

Verdict = Literal["safe", "unsure", "unsafe"]


@dataclass(frozen=True, kw_only=True)
class LossBudget:
    """What rounding may cost. None: it may cost anything.

    Attributes:
        perplexity_rise: By which share perplexity may rise.
        kl: The mean divergence of the next token's distribution from that in 16 bits, in nats. Text that the model wrote itself
            would rise in perplexity by about as much.
        top1_agreement: The share of tokens for which the likeliest next one must stay the same.
    """

    perplexity_rise: float | None = 0.01
    kl: float | None = None
    top1_agreement: float | None = None

    def __post_init__(self) -> None:
        if self.perplexity_rise is None and self.kl is None and self.top1_agreement is None:
            raise ValueError("a budget needs at least one of perplexity_rise, kl and top1_agreement")

    def verdict(self, loss: Loss) -> Verdict:
        """Return whether a loss is within the budget; "unsure" where two standard errors more would not be.

        Example:
            >>> loss = Loss(
            ...     num_tokens=500, perplexity=4.02, perplexity_rise=0.005, rise_error=0.004, kl=0.003, top1_agreement=0.98
            ... )
            >>> LossBudget().verdict(loss), LossBudget(kl=0.001).verdict(loss), LossBudget(perplexity_rise=0.02).verdict(loss)
            ('unsure', 'unsafe', 'safe')
        """
        limit = self.perplexity_rise
        if not (
            (limit is None or loss.perplexity_rise <= limit)
            and (self.kl is None or loss.kl <= self.kl)
            and (self.top1_agreement is None or loss.top1_agreement >= self.top1_agreement)
        ):
            return "unsafe"
        return "safe" if limit is None or loss.perplexity_rise + 2 * loss.rise_error <= limit else "unsure"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {"perplexity_rise": self.perplexity_rise, "kl": self.kl, "top1_agreement": self.top1_agreement}

    def __str__(self) -> str:
        return budget_text(self)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a way to store keys and values did to the model's words, beside 16 bits.

    Attributes:
        num_tokens: The tokens foretold.
        perplexity: Of these tokens.
        perplexity_rise: The share by which it is higher than in 16 bits.
        rise_error: The standard error of that, taking tokens as independent.
        kl: The mean divergence of the next token's distribution from that in 16 bits, in nats.
        top1_agreement: The share of tokens for which the likeliest next one is the same.
    """

    num_tokens: int
    perplexity: float
    perplexity_rise: float
    rise_error: float
    kl: float
    top1_agreement: float

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys; what is not finite is a string."""
        return {
            "num_tokens": self.num_tokens,
            "perplexity": _plain(self.perplexity),
            "perplexity_rise": _plain(self.perplexity_rise),
            "rise_error": _plain(self.rise_error),
            "kl": _plain(self.kl),
            "top1_agreement": self.top1_agreement,
        }

    def __str__(self) -> str:
        return loss_text(self)


@dataclass(frozen=True, kw_only=True)
class FormatLoss:
    """One format in all layers."""

    format: KVFormat
    loss: Loss
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {"format": _format_json(self.format), "loss": self.loss.to_json(), "verdict": self.verdict}


@dataclass(frozen=True, kw_only=True)
class KeyChannel:
    """A channel of one head's keys.

    Attributes:
        head: The KV head.
        channel: The value's place in the vector.
        size: The root of its mean square.
        times_median: How many times that of the head's median channel this is.
    """

    head: int
    channel: int
    size: float
    times_median: float

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {"head": self.head, "channel": self.channel, "size": self.size, "times_median": self.times_median}


@dataclass(frozen=True, kw_only=True)
class FormatError:
    """One format in one layer; errors are root sums of squares over those of what is right.

    Attributes:
        format: The format.
        output_error: Of what the attention module gives.
        key_error: Of keys.
        value_error: Of values.
        num_lost_channels: The key channels, over all heads, whose error is more than half their size.
    """

    format: KVFormat
    output_error: float
    key_error: float
    value_error: float
    num_lost_channels: int

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {
            "format": _format_json(self.format),
            "output_error": _plain(self.output_error),
            "key_error": _plain(self.key_error),
            "value_error": _plain(self.value_error),
            "num_lost_channels": self.num_lost_channels,
        }


@dataclass(frozen=True, kw_only=True)
class LayerCheck:
    """One layer: its key channels that stand out, the largest first, and the errors of each format."""

    layer: int
    num_kv_heads: int
    head_dim: int
    largest_channels: tuple[KeyChannel, ...]
    errors: tuple[FormatError, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {
            "layer": self.layer,
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "largest_channels": [one.to_json() for one in self.largest_channels],
            "errors": [one.to_json() for one in self.errors],
        }


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """What one layer in one format does while all others are in 16 bits: the mean divergence, on the first of the texts."""

    layer: int
    format: KVFormat
    kl: float

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {"layer": self.layer, "format": _format_json(self.format), "kl": _plain(self.kl)}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A format for each layer.

    Attributes:
        is_safe: Whether there is one that saves memory and keeps to the budget; else all layers stay in 16 bits.
        formats: One for each layer with a cache, in their order, as `KVPool` takes them.
        loss: Measured with just these.
        bytes_per_token: Over all layers.
        reference_bytes_per_token: The same in 16 bits.
        reason: Why, in one sentence.
    """

    is_safe: bool
    formats: tuple[KVFormat, ...]
    loss: Loss
    bytes_per_token: int
    reference_bytes_per_token: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {
            "is_safe": self.is_safe,
            "formats": [_format_json(one) for one in self.formats],
            "loss": self.loss.to_json(),
            "bytes_per_token": self.bytes_per_token,
            "reference_bytes_per_token": self.reference_bytes_per_token,
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True)
class KVCheck:
    """What was found; printed, it begins with the answer.

    Attributes:
        budget: What the loss is held against.
        reference: The 16-bit format that all is compared with.
        perplexity: With that.
        num_tokens: The tokens foretold.
        formats: Each format in all layers, in the order asked for.
        layers: Each layer that has a cache.
        sensitivities: Each format in each layer alone; empty where the smallest format was safe.
        advice: What to use.
    """

    budget: LossBudget
    reference: KVFormat
    perplexity: float
    num_tokens: int
    formats: tuple[FormatLoss, ...]
    layers: tuple[LayerCheck, ...]
    sensitivities: tuple[Sensitivity, ...]
    advice: Advice

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys."""
        return {
            "budget": self.budget.to_json(),
            "reference": _format_json(self.reference),
            "perplexity": self.perplexity,
            "num_tokens": self.num_tokens,
            "formats": [one.to_json() for one in self.formats],
            "layers": [one.to_json() for one in self.layers],
            "sensitivities": [one.to_json() for one in self.sensitivities],
            "advice": self.advice.to_json(),
        }

    def __str__(self) -> str:
        return check_text(self)


def _format_json(form: KVFormat) -> dict[str, Any]:
    return {
        "kind": form.kind,
        "group_size": form.group_size,
        "rotates_keys": form.rotates_keys,
        "rotates_values": form.rotates_values,
    }


def _plain(figure: float) -> float | str:
    return figure if math.isfinite(figure) else str(figure)
