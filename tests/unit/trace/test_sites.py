"""Of a stack, the innermost frame of the user's own code leads; library frames fold."""

from __future__ import annotations

import pytest

import ullage
from tests.unit.conftest import Load
from tests.unit.snapshot_builder import SnapshotBuilder
from ullage.trace import BEFORE, BEFORE_ID, NO_STACK, NONE, Frame

LINEAR = "/opt/lib/python3.12/site-packages/torch/nn/modules/linear.py:125 forward"
BERT = "/opt/lib/python3.12/site-packages/transformers/bert.py:80 forward"
EMPTY = "CUDACachingAllocator.cpp:0 c10::cuda::CUDACachingAllocator::malloc"
GEMM = "??:0 at::native::addmm_out_cuda_impl"


def led_by(stack: str, load: Load, mine: str | None = None) -> tuple[Frame, ...]:
    one = SnapshotBuilder()
    one.alloc(700, stack)
    trace = load(one, mine=mine)
    return trace.sites.user_stack(int(trace.device().blocks.site[0]))


@pytest.mark.parametrize(
    ("stack", "lead"),
    [
        (f"{EMPTY} < {GEMM} < {LINEAR} < {BERT} < /home/me/train.py:12 step < /home/me/train.py:40 main", "train.py"),
        (f"{EMPTY} < {GEMM} < {LINEAR} < {BERT}", "bert.py"),
        (f"{EMPTY} < {GEMM} < {LINEAR}", "linear.py"),
        (f"{EMPTY} < {GEMM}", "??"),
        (f"{EMPTY}", "CUDACachingAllocator.cpp"),
        (f"{LINEAR} < <frozen runpy>:88 _run_code < train.py:1 main", "train.py"),
        ("notebook.ipynb:3 cell", "notebook.ipynb"),
    ],
)
def test_the_users_innermost_frame_leads_then_libraries_then_native_code(stack: str, lead: str, load: Load) -> None:
    assert led_by(stack, load)[0].file.endswith(lead)


def test_the_users_callers_follow_and_library_frames_between_them_fold(load: Load) -> None:
    stack = led_by(f"{LINEAR} < model.py:5 forward < {BERT} < train.py:12 step", load)
    assert [str(frame) for frame in stack] == ["model.py:5 forward", "train.py:12 step"]


def test_mine_says_which_files_are_the_users(load: Load) -> None:
    stack = f"{LINEAR} < {BERT} < train.py:12 step"
    assert led_by(stack, load, mine="transformers")[0].file.endswith("bert.py")
    assert led_by(stack, load, mine=r"nothing at all")[0].file.endswith("linear.py")


def test_a_request_without_a_stack_has_no_site(load: Load) -> None:
    one = SnapshotBuilder()
    one.alloc(700, "")
    trace = load(one)
    assert trace.device().blocks.site.tolist() == [NONE]
    assert trace.sites.stack(NONE) == trace.sites.user_stack(NONE) == ()
    assert (trace.sites.frame(NONE), trace.sites.frame(BEFORE_ID)) == (NO_STACK, BEFORE)


def test_equal_stacks_are_one_site(load: Load) -> None:
    one = SnapshotBuilder()
    for line in (3, 4, 3, 4):
        one.alloc(700, f"train.py:{line} step < train.py:9 main")
    trace: ullage.Trace = load(one)
    sites = trace.device().blocks.site.tolist()
    assert sites == [sites[0], sites[1]] * 2
    assert sites[0] != sites[1]


def test_a_frame_is_written_with_the_end_of_its_path() -> None:
    assert str(Frame("/home/me/project/train.py", 12, "step")) == "project/train.py:12 step"
    assert str(Frame("/opt/site-packages/torch/nn/linear.py", 5, "forward")) == "torch/nn/linear.py:5 forward"
    assert str(Frame("libtorch.so", 0, "")) == "libtorch.so"
