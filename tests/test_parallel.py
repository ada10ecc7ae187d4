"""Independent work on all cores: order, errors, and calls from within calls."""

import threading
import time

import pytest

from planner import parallel
from planner.parallel import in_parallel, together


@pytest.fixture(autouse=True)
def _several_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: 4)


def test_results_come_in_the_order_of_the_items() -> None:
    def late_first(item: int) -> int:
        time.sleep(0.01 if item == 0 else 0.0)
        return item * item

    assert in_parallel(late_first, range(20)) == [item * item for item in range(20)]


def test_calls_within_calls_end_though_no_thread_is_free() -> None:
    def deep(level: int) -> int:
        return 1 if level == 0 else sum(in_parallel(lambda _: deep(level - 1), range(5)))

    assert deep(4) == 5**4


def test_the_first_error_ends_the_work_on_items_not_begun() -> None:
    begun: list[int] = []

    def fails(item: int) -> None:
        begun.append(item)
        if item == 3:
            raise ValueError("item 3")
        time.sleep(0.002)

    with pytest.raises(ValueError, match="item 3"):
        in_parallel(fails, range(200))
    assert len(begun) < 20


def test_an_error_on_another_thread_is_raised_by_the_call() -> None:
    here = threading.get_ident()

    def fails_elsewhere(_item: int) -> None:
        if threading.get_ident() != here:
            raise ValueError("elsewhere")
        time.sleep(0.005)

    with pytest.raises(ValueError, match="elsewhere"):
        in_parallel(fails_elsewhere, range(50))


def test_many_threads_may_call_at_once() -> None:
    found: list[list[int]] = []

    def call() -> None:
        found.append(in_parallel(lambda item: item + 1, range(50)))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(1, 51))] * 8


def test_no_items_give_no_results() -> None:
    assert in_parallel(lambda item: item, []) == []


def test_two_functions_return_together() -> None:
    met = threading.Barrier(2, timeout=5.0)

    def first() -> str:
        met.wait()
        return "first"

    def second() -> int:
        met.wait()
        return 2

    assert together(first, second) == ("first", 2)
