"""`ullage kv check` on a small model with random weights, saved as any other is: no GPU, nothing from elsewhere."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import safetensors.torch
import torch
from benchmarks.kv_accuracy import new_model, plant_outlier, save

from tests.unit.cli.conftest import Command
from ullage.cli.kv import Format
from ullage.errors import UllageError
from ullage.runtime.kv.check import LossBudget, check
from ullage.runtime.kv.check import pretrained as loading
from ullage.runtime.kv.check.search import DEFAULT_FORMATS

CONTEXT, ROWS = 64, 8
PRINTABLE = slice(32, 127)


def saved(folder: Path, *, layers: int = 2, outlier_times: float = 1.0) -> Path:
    """A model whose weights are large enough for attention to pick, and a text that it wrote itself."""
    torch.manual_seed(0)
    model = new_model(32, layers, CONTEXT, "cpu").eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(10)
    save(model, [bytes(row) for row in written_by(model).tolist()], folder)
    if outlier_times != 1:
        plant_outlier(model, 0, 0, 5, outlier_times)
        model.save_pretrained(folder)
    return folder


def written_by(model: Any) -> torch.Tensor:
    """Return printable bytes that follow each other as the model has it, [ROWS, CONTEXT]: rounding can only hurt."""
    text = torch.full((ROWS, 1), ord(" "))
    with torch.no_grad():
        while text.shape[1] < CONTEXT:
            chances = model(input_ids=text).logits[:, -1, PRINTABLE].softmax(-1)
            text = torch.cat([text, PRINTABLE.start + torch.multinomial(chances, 1)], 1)
    return text


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    """The model's files, for a test to spoil."""
    return Path(shutil.copytree(model, tmp_path / "copy"))


def one_line(err: str) -> str:
    """What a command that failed says, whole."""
    assert err.startswith("ullage: ")
    assert err.count("\n") == 1
    return err


def test_the_answer_comes_first_within_80_columns(model: Path, command: Command) -> None:
    done = command("kv", "check", str(model), str(model / "held_out.txt"), "--budget", "50", "--device", "cpu")
    assert (done.code, done.err) == (0, "")
    answer, table, layers, last = done.out.split("\n\n")
    assert answer.startswith("int4 is safe: perplexity ")
    assert " ".join(answer.split()).endswith("(budget perplexity +50 %); 0.28 of the bytes.")
    assert [line.split()[0] for line in table.splitlines()] == ["all", "bf16", "int4", "int8", "fp8"]
    assert len(layers.splitlines()) == 4
    assert last == f"{model}, float32 on cpu, 64 tokens at a time\n"
    assert [line for line in done.out.splitlines() if len(line) > 80 and str(model) not in line] == []


def test_json_is_what_the_library_finds(model: Path, command: Command) -> None:
    file = str(model / "held_out.txt")
    done = command("kv", "check", str(model), file, file, "--json", "--format", "int8", "--device", "cpu")
    assert done.err == ""
    plain = json.loads(done.out)
    named = ["texts", "model", "device", "dtype", "context_tokens"]
    assert list(plain)[:5] == named
    assert [plain.pop(name) for name in named] == [[file, file], str(model), "cpu", "float32", CONTEXT]
    network = loading.transformers.AutoModelForCausalLM.from_pretrained(model)
    tokens = list(Path(file).read_bytes())
    found = check(network, [tokens, tokens], formats=["int8"], context_tokens=CONTEXT)
    assert plain == found.to_json()
    assert isinstance(plain["advice"]["bytes_per_token"], int)
    assert done.code == (0 if found.advice.is_safe else 1)


def test_nothing_safe_is_exit_code_1_and_says_why(tmp_path: Path, command: Command) -> None:
    model = saved(tmp_path, layers=1, outlier_times=256.0)
    arguments = ("kv", "check", str(model), str(model / "held_out.txt"), "--format", "int4")
    done = command(*arguments)
    assert (done.code, done.err) == (1, "")
    answer = " ".join(done.out.split("\n\n")[0].split())
    assert answer.startswith("No: no format is safe within the budget (perplexity +1.0 %). The nearest is int4: ")
    assert "key channel" in answer
    done = command(*arguments, "--json")
    plain = json.loads(done.out)
    assert (done.code, plain["advice"]["is_safe"], plain["formats"][0]["verdict"]) == (1, False, "unsafe")


def test_too_little_text_to_tell_is_exit_code_1_and_asks_for_more(tmp_path: Path, command: Command) -> None:
    model = saved(tmp_path, layers=1)
    arguments = ("kv", "check", str(model), str(model / "held_out.txt"), "--format", "int4")
    loss = json.loads(command(*arguments, "--json").out)["formats"][0]["loss"]
    one_error_more = 100 * (loss["perplexity_rise"] + loss["rise_error"])
    done = command(*arguments, "--budget", str(one_error_more))
    assert (done.code, done.err) == (1, "")
    assert f"on too few tokens ({ROWS * (CONTEXT - 1)}) to tell; give more text." in " ".join(done.out.split())


def test_options_reach_the_check(model: Path, command: Command) -> None:
    chosen = ("--format", "fp8", "--format", "int4", "--dtype", "bfloat16", "--context-tokens", "32", "--budget", "0.5")
    plain = json.loads(command("kv", "check", str(model), str(model / "held_out.txt"), *chosen, "--json").out)
    assert [one["format"]["kind"] for one in plain["formats"]] == ["fp8", "int4"]
    assert (plain["dtype"], plain["context_tokens"], plain["budget"]["perplexity_rise"]) == ("bfloat16", 32, 0.005)
    assert plain["num_tokens"] == ROWS * CONTEXT - 16


def test_a_dash_reads_standard_input(model: Path, command: Command) -> None:
    kept = os.dup(0)
    with open(model / "held_out.txt") as file:
        os.dup2(file.fileno(), 0)
    try:
        done = command("kv", "check", str(model), "-", "--format", "int8", "--json")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    plain = json.loads(done.out)
    assert (plain["texts"], plain["num_tokens"]) == (["-"], ROWS * (CONTEXT - 1))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument 'MODEL'"),
        (("{model}",), "Missing argument 'TEXTS'"),
        (("{model}", "{text}", "--format", "int3"), "'int3' is not one of 'int4', 'int8', 'fp8'"),
        (("{model}", "{text}", "--budget", "-1"), "'--budget'"),
        (("{model}", "{text}", "--budget", "inf"), "--budget inf is no share: give per cent, as in 0.5"),
        (("{model}", "{text}", "--dtype", "int8"), "'int8' is not one of 'bfloat16', 'float16', 'float32'"),
        (("{model}", "{text}", "--context-tokens", "1"), "'--context-tokens'"),
        (("{model}", "{text}", "--device", "gpu"), "no device is called 'gpu': use cuda, cuda:1 or cpu"),
        (("{model}", "{text}", "--device", "cuda:99"), "device cuda:99: torch sees "),
        (
            ("{model}", "{text}", "--context-tokens", "65"),
            ": was made for 64 tokens at a time: a context of 65 is too long",
        ),
        (("{model}", "no-such.txt"), "no-such.txt: cannot be read: No such file or directory"),
        (("{model}", "{model}"), "cannot be read: Is a directory"),
        (("{model}", "{model}/model.safetensors"), "model.safetensors: is no UTF-8 text at byte "),
        (("{text}", "{text}"), "held_out.txt: is a file: give the directory that save_pretrained wrote"),
        (
            ("./no-such-model", "{text}"),
            "./no-such-model: there is no such directory: give one, or a Hugging Face name",
        ),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_clear_line(
    arguments: tuple[str, ...], said: str, model: Path, command: Command
) -> None:
    filled = [one.format(model=model, text=model / "held_out.txt") for one in arguments]
    done = command("kv", "check", *filled)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("device", ["mps", "meta", "xpu:0"])
def test_other_devices_are_refused_before_the_model_is_loaded(
    device: str, model: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any) -> None:
        raise AssertionError("it was loaded")

    monkeypatch.setattr(loading, "_load", load)
    done = command("kv", "check", str(model), str(model / "held_out.txt"), "--device", device)
    assert (done.code, done.out) == (2, "")
    assert one_line(done.err) == f"ullage: device {device}: a check runs on none such: use cuda, cuda:1 or cpu\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"config.json": None}, "has no config.json: give a directory that save_pretrained wrote"),
        ({"config.json": "{"}, "cannot be loaded: It looks like the config file at "),
        ({"config.json": '{"model_type": "t5"}'}, "is a t5 model: a causal language model is needed"),
        ({"tokenizer.json": None}, "its tokenizer, which belongs beside it, cannot be loaded: "),
        ({"model.safetensors": None}, "its weights cannot be loaded: Error no file named model.safetensors"),
        ({"model.safetensors": "nothing"}, "its weights cannot be loaded: "),
        ({"held_out.txt": "few words"}, "the texts have 8 tokens to foretell: give at least 100"),
    ],
)
def test_files_that_are_no_model_or_no_text_are_one_line(
    files: dict[str, str | None], said: str, copy: Path, command: Command
) -> None:
    texts = copy / "held_out.txt"
    for name, content in files.items():
        (copy / name).unlink()
        if content is not None:
            (copy / name).write_text(content)
    done = command("kv", "check", str(copy), str(texts))
    assert (done.code, done.out) == (2, "")
    assert one_line(done.err).startswith(f"ullage: {copy}: {said}")


def test_weights_that_are_missing_are_not_made_up(copy: Path, command: Command) -> None:
    weights = safetensors.torch.load_file(copy / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    safetensors.torch.save_file(weights, copy / "model.safetensors", {"format": "pt"})
    done = command("kv", "check", str(copy), str(copy / "held_out.txt"))
    assert (done.code, done.out) == (2, "")
    said = "1 of its weights are missing (first: model.layers.1.mlp.up_proj.weight): save it again"
    assert one_line(done.err) == f"ullage: {copy}: {said}\n"


def test_code_that_lies_with_a_model_is_not_run(copy: Path, command: Command) -> None:
    config = json.loads((copy / "config.json").read_text())
    own = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": own}))
    (copy / "own.py").write_text(f"open({str(copy / 'it ran')!r}, 'w')")
    done = command("kv", "check", str(copy), str(copy / "held_out.txt"))
    assert (done.code, done.out) == (2, "")
    assert "needs code that lies with it, which is not run: load it yourself" in one_line(done.err)
    assert not (copy / "it ran").exists()


def test_a_name_that_is_no_directory_is_looked_for_at_hugging_face_and_said_so(
    model: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    done = command("kv", "check", "nobody/no-model", str(model / "held_out.txt"))
    assert (done.code, done.out) == (2, "")
    first, second = done.err.splitlines()
    assert first == "ullage: nobody/no-model is no directory here: it comes from Hugging Face, or its cache"
    assert second.startswith("ullage: nobody/no-model: cannot be loaded: ")


def test_missing_libraries_are_one_line_that_says_what_to_install(
    model: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, loading.__name__, None)
    done = command("kv", "check", str(model), str(model / "held_out.txt"))
    assert (done.code, done.out) == (2, "")
    assert one_line(done.err).startswith("ullage: to check a model needs torch, triton and transformers (")
    assert done.err.endswith("pip install 'ullage[transformers]'\n")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory."),
            "give a smaller context or another device: CUDA out of memory.",
        ),
        (IndexError("index out\nof range"), "cannot be checked: IndexError: index out of range"),
    ],
)
def test_a_check_that_fails_is_one_line_and_a_traceback_only_with_debug(
    error: Exception, said: str, model: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(loading, "check", fail)
    arguments = ("kv", "check", str(model), str(model / "held_out.txt"))
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert one_line(done.err) == f"ullage: {model}: {said}\n"
    with pytest.raises(UllageError) as raised:
        command(*arguments, "--debug")
    assert raised.value.__cause__ is error


def test_a_terminal_is_told_what_is_done_and_cleaned(
    model: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    done = command("kv", "check", str(model), str(model / "held_out.txt"), "--format", "int8", "--budget", "50")
    said = [one.split("\r")[0].strip() for one in done.err.split("\r\033[K")]
    assert said == ["", f"loading {model}"[:72], "measuring layers", "measuring int8", ""]


def test_what_the_help_says_is_what_the_library_does(command: Command) -> None:
    text = " ".join(command("kv", "check", "--help").out.split())
    assert f"Without: {100 * (LossBudget().perplexity_rise or 0):g}." in text
    usual = inspect.signature(check).parameters["context_tokens"].default
    assert f"Without: {usual}, or" in text
    assert usual == loading.LONGEST_CONTEXT_TOKENS
    assert set(DEFAULT_FORMATS) == {one.value for one in Format}


def test_transformers_speaks_again_after_a_check(model: Path, command: Command) -> None:
    logging = loading.transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    command("kv", "check", str(model), str(model / "model.safetensors"))
    command("kv", "check", str(model), str(model / "held_out.txt"), "--format", "int8")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
