"""Loads a model as transformers names it, and checks it; runs no code that lies with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from ullage.errors import DeviceError, RuntimeMemoryError, UllageError
from ullage.runtime.kv.check.result import KVCheck, LossBudget
from ullage.runtime.kv.check.search import check, longest_context
from ullage.runtime.kv.formats import KVFormat

LONGEST_CONTEXT_TOKENS = 2048  # as `check` has it
_SHOWN_LETTERS = 400  # of another library's message


@dataclass(frozen=True, kw_only=True)
class PretrainedCheck:
    """A check of a model that was loaded for it; printed, it begins with the answer.

    Attributes:
        model: The directory, or the name at Hugging Face.
        device: Where it ran.
        dtype: The type of its weights, as torch names it.
        context_tokens: The longest sequence that it read.
        found: What was found.
    """

    model: str
    device: str
    dtype: str
    context_tokens: int
    found: KVCheck

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data with stable keys: the model's, then those of `KVCheck.to_json`."""
        names = ("model", "device", "dtype", "context_tokens")
        return {name: getattr(self, name) for name in names} | self.found.to_json()

    def __str__(self) -> str:
        return f"{self.found}\n\n{self.model}, {self.dtype} on {self.device}, {self.context_tokens:,} tokens at a time"


def is_hub_name(model: str) -> bool:
    """Tell whether a model is looked for at Hugging Face: it is no directory here, and not written as a path.

    Raises:
        UllageError: It is written as a path, and there is no directory.
    """
    if Path(model).is_dir():
        return False
    if Path(model).exists():
        raise UllageError(f"{model}: is a file: give the directory that save_pretrained wrote")
    if not model.strip() or model.startswith(("/", ".", "~")) or model.endswith("/") or model.count("/") > 1:
        raise UllageError(f"{model}: there is no such directory: give one, or a Hugging Face name such as owner/model")
    return True


def check_pretrained(
    model: str,
    texts: Sequence[str],
    *,
    device: str | None = None,
    dtype: str | None = None,
    formats: Sequence[KVFormat | str] | None = None,
    budget: LossBudget = LossBudget(),  # noqa: B008 (frozen)
    context_tokens: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> PretrainedCheck:
    """Load a model and its tokenizer, and check what formats cost it.

    Args:
        model: A directory that `save_pretrained` wrote, or a name at Hugging Face, which is downloaded where it is not cached.
        texts: What it reads.
        device: As torch names it; None: a GPU where there is one.
        dtype: As torch names it; None: as the model's config says.
        formats: As in `check`.
        budget: As in `check`.
        context_tokens: The longest sequence; None: 2048, or what the model was made for where that is less.
        progress: Called with what is done next. Without it, loading shows no bars.

    Raises:
        UllageError: The model cannot be loaded or checked, the texts are too short, or the context is too long for it.
        DeviceError: There is no such GPU, or it is of another kind. Nothing was loaded.
        RuntimeMemoryError: The device's memory is too small.
    """
    say = progress or (lambda _: None)
    place = _device(device)
    with _quiet(shows_bars=progress is not None), _explained(model):
        say(f"loading {model}")
        network, tokenizer = _load(model, dtype)
        network = network.to(place)
        context = _context_tokens(model, context_tokens, longest_context(network))
        found = check(
            network,
            texts,
            tokenizer=tokenizer,
            formats=formats,
            budget=budget,
            context_tokens=context,
            progress=lambda what: say(f"measuring {what}"),
        )
    return PretrainedCheck(
        model=model,
        device=str(place),
        dtype=str(next(network.parameters()).dtype).removeprefix("torch."),
        context_tokens=context,
        found=found,
    )


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceError(f"no device is called {name!r}: use cuda, cuda:1 or cpu") from None
    if device.type not in ("cuda", "cpu"):
        raise DeviceError(f"device {name}: a check runs on none such: use cuda, cuda:1 or cpu")
    num_gpus = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= num_gpus:
        raise DeviceError(f"device {name}: torch sees {num_gpus} GPUs here; use cpu, or install torch with CUDA")
    return device


def _load(model: str, dtype: str | None) -> tuple[Any, Any]:
    """Return a model and its tokenizer."""
    if not is_hub_name(model) and not Path(model, "config.json").is_file():
        raise UllageError(f"{model}: has no config.json: give a directory that save_pretrained wrote")
    with _loading(model, "cannot be loaded"):
        config = transformers.AutoConfig.from_pretrained(model, trust_remote_code=False)
        if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
            raise UllageError(f"{model}: is a {config.model_type} model: a causal language model is needed")
    with _loading(model, "its tokenizer, which belongs beside it, cannot be loaded"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    with _loading(model, "its weights cannot be loaded"):
        network, info = transformers.AutoModelForCausalLM.from_pretrained(
            model,
            config=config,
            dtype=getattr(torch, dtype) if dtype else "auto",
            trust_remote_code=False,
            output_loading_info=True,
        )
    # transformers makes up what is missing; a check of random weights would say nothing.
    missing = sorted(info["missing_keys"])
    if missing:
        raise UllageError(f"{model}: {len(missing):,} of its weights are missing (first: {missing[0]}): save it again")
    return network, tokenizer


def _context_tokens(model: str, wanted: int | None, limit: int | None) -> int:
    if wanted is None:
        return min(limit or LONGEST_CONTEXT_TOKENS, LONGEST_CONTEXT_TOKENS)
    if limit is not None and wanted > limit:
        raise UllageError(f"{model}: was made for {limit:,} tokens at a time: a context of {wanted:,} is too long")
    return wanted


@contextmanager
def _loading(model: str, problem: str) -> Iterator[None]:
    """Turn whatever loading raises, which is of many kinds, into one line."""
    try:
        yield
    except UllageError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise UllageError(
                f"{model}: needs code that lies with it, which is not run: load it yourself, and call "
                "ullage.runtime.kv.check.check"
            ) from error
        raise UllageError(f"{model}: {problem}: {_one_line(error)}") from error


@contextmanager
def _explained(model: str) -> Iterator[None]:
    """Turn whatever running a model raises into one line."""
    try:
        yield
    except UllageError:
        raise
    except torch.OutOfMemoryError as error:
        raise RuntimeMemoryError(f"{model}: give a smaller context or another device: {_one_line(error)}") from error
    except ValueError as error:
        raise UllageError(f"{model}: {_one_line(error)}") from error
    except Exception as error:
        raise UllageError(f"{model}: cannot be checked: {type(error).__name__}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS].rstrip()} ..."


@contextmanager
def _quiet(*, shows_bars: bool) -> Iterator[None]:
    """Keep what transformers says from standard error, and put it back as it was."""
    logging = transformers.utils.logging
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if not shows_bars:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
