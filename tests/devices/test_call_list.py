"""Lists of calls of C functions, run by machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.backends.gpu.call_list import CallList, CallRunner

PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 9)


class Library:
    """C functions that note their arguments."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.status = 0
        self._functions: list[Any] = []

    def address(self, name: str, note: Callable[..., tuple[int, ...]]) -> int:
        def called(*arguments: int) -> int:
            self.seen.append((name, *note(*arguments)))
            return self.status
        self._functions.append(PROTOTYPE(called))
        return ctypes.cast(self._functions[-1], ctypes.c_void_p).value or 0


def word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


@pytest.fixture(scope="module")
def runner() -> CallRunner:
    return CallRunner()


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=4),
       st.lists(st.tuples(st.integers(0, 1), st.tuples(*[st.sampled_from([8, 16, 1 << 50])] * 3)),
                max_size=5))
def test_what_it_calls(runner: CallRunner, launches: list[list[int]],
                       runs: list[tuple[int, tuple[int, ...]]]) -> None:
    """As a loop in Python would: memory that changed is set, then all kernels start in order."""
    library = Library()
    setting = library.address("set", lambda k, i, size, at, *_: (k, i, size, word(at)))
    starting = library.address("start", lambda *a: (a[0], word(a[1]), *a[2:]))
    calls = CallList(runner, sum(len(numbers) + 1 for numbers in launches), 3)
    for k, numbers in enumerate(launches):
        for i, number in enumerate(numbers):
            calls.call("set", setting, k, i, 8, calls.store(number), if_changed=True)
        calls.call("start", starting, k, calls.word(5 * k), *range(7))
    last: dict[tuple[int, int], int] = {}
    current = 0
    for generation, memory in runs:
        library.seen.clear()
        if generation != current:
            last, current = {}, generation
        assert calls.run([*memory], generation) is None
        want: list[tuple[int | str, ...]] = []
        for k, numbers in enumerate(launches):
            for i, number in enumerate(numbers):
                if last.get((k, i)) != memory[number]:
                    last[k, i] = memory[number]
                    want.append(("set", k, i, 8, memory[number]))
            want.append(("start", k, 5 * k, *range(7)))
        assert library.seen == want


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-99, 99)), min_size=1, max_size=5),
       st.lists(st.tuples(*[st.integers(-(1 << 20), 1 << 20)] * 2), max_size=5), st.booleans())
def test_argument_words_and_whether_they_changed(
        runner: CallRunner, places: list[tuple[int, int]], runs: list[tuple[int, int]],
        is_short: bool) -> None:
    calls = CallList(runner, len(places) + 1, 2, ctypes.c_int32 if is_short else ctypes.c_int64)
    calls.add([7])
    calls.add_stores(places)
    words: list[int] = []
    for memory in runs:
        assert calls.run([*memory]) is None
        want = [7, *[memory[number] + offset for number, offset in places]]
        assert list(calls.words) == want
        assert calls.has_changed == (want != words)  # all words, in the first run
        calls.has_changed, words = False, want


@pytest.mark.parametrize("argument", range(9))
def test_an_argument_of_each_run_and_functions_without_status(runner: CallRunner, argument: int
                                                              ) -> None:
    library = Library()
    library.status = 3
    calls = CallList(runner, 0, 2)
    calls.call("f", library.address("f", lambda *a: a), *range(1, 10), memory=(1, argument),
               has_status=False)
    for handle in (1 << 40, 17):
        assert calls.run([0, handle]) is None
        want = [*range(1, 10)]
        want[argument] = handle
        assert library.seen.pop() == ("f", *want)


@given(st.lists(st.sampled_from([8, 16]), min_size=1, max_size=8))
def test_calls_that_share_a_change(runner: CallRunner, runs: list[int]) -> None:
    """Words that changed are copied to a piece of memory, then from there: both, or none."""
    library = Library()
    calls = CallList(runner, 1, 2)
    at = calls.store(0)
    calls.call("copy", library.address("copy", lambda to, source, *_: (to, word(source))), 0, at,
               if_changed=True, keeps_changed=True, memory=(1, 0), has_status=False)
    calls.call("send", library.address("send", lambda a, b, *_: (a, b)), 5, 0, if_changed=True,
               memory=(1, 1))
    calls.call("start", library.address("start", lambda *_: ()))
    last = 0
    for i, memory in enumerate(runs):
        assert calls.run([memory, i]) is None
        want = [("copy", i, memory), ("send", 5, i)] if memory != last else []
        assert library.seen == [*want, ("start",)]
        library.seen.clear()
        last = memory


def test_a_call_that_failed_is_made_again(runner: CallRunner) -> None:
    library = Library()
    calls = CallList(runner, 2, 2)
    for i in range(2):
        calls.call("set", library.address("set", lambda a, *_: (a,)), i, calls.store(i),
                   if_changed=True)
    assert calls.run([8, 16]) is None
    library.status = -38
    assert calls.run([8, 24]) == ("set", -38)
    library.status = 0
    library.seen.clear()
    assert calls.run([8, 24]) is None
    assert library.seen == [("set", 0), ("set", 1)]


def test_what_a_function_returns_is_the_first_argument_of_others(runner: CallRunner) -> None:
    library = Library()
    calls = CallList(runner, 0, 2)
    calls.call("make", library.address("make", lambda *a: a[:1]), 5, returns=1)
    calls.call("use", library.address("use", lambda *a: (a[0], word(a[1]))), 0,
               calls.address_of(1), memory=(1, 0), has_status=False)
    for handle in (3, 17):
        library.status = handle
        assert calls.run([0, 0]) is None
        assert calls.handle(1) == handle
    assert library.seen == [("make", 5), ("use", 3, 3), ("make", 5), ("use", 17, 17)]


def test_a_status_ends_the_run_and_names_the_call(runner: CallRunner) -> None:
    library = Library()
    calls = CallList(runner, 0, 0)
    for name in ("first", "second"):
        calls.call(name, library.address(name, lambda *a: ()))
    assert calls.run([]) is None and library.seen == [("first",), ("second",)]
    library.status = -5
    assert calls.run([]) == ("first", -5)
    assert library.seen == [("first",), ("second",), ("first",)]
