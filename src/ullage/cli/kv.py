"""`ullage kv check MODEL TEXTS`."""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ullage.cli.options import AsJson, Debug, print_json, standard_input_path
from ullage.errors import UllageError

kv = typer.Typer(
    help="A KV cache in fewer bits: which formats a model bears.", no_args_is_help=True, rich_markup_mode=None
)


class Format(StrEnum):
    """The formats that save memory."""

    INT4 = "int4"
    INT8 = "int8"
    FP8 = "fp8"


class Dtype(StrEnum):
    """The types that a model's weights are run in."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A directory that save_pretrained wrote, or a Hugging Face name.")
]
Texts = Annotated[
    list[str],
    typer.Argument(metavar="TEXTS", help="Files of such text as the model will see, UTF-8; - is standard input."),
]
Formats = Annotated[
    list[Format] | None, typer.Option("--format", help="A format to try; may be given again. Without: all three.")
]
Budget = Annotated[
    float | None,
    typer.Option("--budget", min=0, metavar="PERCENT", help="By how much perplexity may rise. Without: 1."),
]
ContextTokens = Annotated[
    int | None,
    typer.Option(
        "--context-tokens",
        min=2,
        metavar="N",
        help="The tokens that texts are cut into. Without: 2048, or what the model was made for.",
    ),
]
Device = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="cuda, cuda:1 or cpu. Without: a GPU where there is one.")
]
DtypeName = Annotated[
    Dtype | None, typer.Option("--dtype", help="The type of the weights. Without: as the model's config says.")
]


@kv.command("check", short_help="Measure it on your texts: what is safe, and what it costs")
def check(
    model: Model,
    texts: Texts,
    formats: Formats = None,
    budget: Budget = None,
    context_tokens: ContextTokens = None,
    device: Device = None,
    dtype: DtypeName = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure on your texts which formats a model bears; exit with 1 if none is shown to be safe."""
    if budget is not None and not math.isfinite(budget):
        raise UllageError(f"--budget {budget} is no share: give per cent, as in 0.5")
    checked = _checked(
        model,
        [_text(standard_input_path(path) or path) for path in texts],
        budget,
        device=device,
        dtype=dtype,
        formats=[one.value for one in formats] if formats else None,
        context_tokens=context_tokens,
    )
    if as_json:
        print_json({"texts": texts} | checked.to_json())
    else:
        print(checked)
    if not checked.found.advice.is_safe:
        raise typer.Exit(1)


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise UllageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UllageError(f"{path}: is no UTF-8 text at byte {error.start:,}: give text files") from None


def _checked(model: str, texts: list[str], budget: float | None, **options: Any) -> Any:
    try:
        from ullage.runtime.kv.check import LossBudget
        from ullage.runtime.kv.check.pretrained import check_pretrained, is_hub_name
    except ImportError as error:
        raise UllageError(
            f"to check a model needs torch, triton and transformers ({error}): pip install 'ullage[transformers]'"
        ) from None
    if is_hub_name(model):
        print(f"ullage: {model} is no directory here: it comes from Hugging Face, or its cache", file=sys.stderr)
    limit = LossBudget() if budget is None else LossBudget(perplexity_rise=budget / 100)
    progress = _progress if sys.stderr.isatty() else None
    try:
        return check_pretrained(model, texts, budget=limit, progress=progress, **options)
    finally:
        if progress is not None:
            progress("")


def _progress(what: str) -> None:
    """Show what is done next where what was done before was shown."""
    print(f"\r\033[K{what[:72]}", end="", file=sys.stderr, flush=True)
