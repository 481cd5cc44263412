"""Pages are handed out and counted; a call does all of what is asked, or nothing."""

from __future__ import annotations

import pytest

from ullage.errors import OutOfPagesError, PageAccountError
from ullage.runtime.kv.pages import PageAllocator


def test_the_lowest_pages_go_first_and_freed_ones_come_back() -> None:
    pages = PageAllocator(4)
    assert pages.take(2, "a test") == [0, 1]
    assert pages.release([0]) == [0]
    assert pages.take(2, "a test") == [0, 2]
    assert pages.num_free == 1


def test_too_few_pages_change_nothing_and_the_error_has_the_numbers() -> None:
    pages = PageAllocator(3)
    pages.take(2, "a test")
    with pytest.raises(OutOfPagesError, match="a long prompt needs 2, 1 of 3 are free") as caught:
        pages.take(2, "a long prompt")
    assert (caught.value.asked, caught.value.free, caught.value.total) == (2, 1, 3)
    assert pages.num_free == 1


def test_a_page_with_two_holders_is_freed_by_the_second_release() -> None:
    pages = PageAllocator(1)
    (page,) = pages.take(1, "a test")
    pages.hold([page])
    assert (pages.holders(page), pages.release([page]), pages.release([page])) == (2, [], [page])


def test_a_double_free_is_refused_before_anything_is_released() -> None:
    pages = PageAllocator(2)
    pages.take(2, "a test")
    with pytest.raises(PageAccountError, match="page 1 is released 2 times and held 1 times: a double free"):
        pages.release([0, 1, 1])
    assert pages.num_free == 0


def test_free_and_foreign_pages_cannot_be_held() -> None:
    pages = PageAllocator(2)
    with pytest.raises(PageAccountError, match="used after its free"):
        pages.hold([1])
    with pytest.raises(PageAccountError, match="none of this pool's 2"):
        pages.hold([2])


def test_a_leak_and_a_double_free_differ_by_their_sign() -> None:
    pages = PageAllocator(3)
    pages.take(2, "a test")
    assert pages.differences([0, 1]) == {}
    assert pages.differences([0]) == {1: 1}
    assert pages.differences([0, 1, 1, 2]) == {1: -1, 2: -1}
