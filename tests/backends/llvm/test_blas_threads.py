"""SciPy's BLAS has one thread while kernels call it, then as many as before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends.llvm import blas_threads

MATRICES = np.tile(np.eye(40, dtype=np.float32) * 4, (3, 1, 1))


@pytest.fixture
def threads() -> Iterator[tuple[Callable[[], int], Callable[[int], None]]]:
    fnx.block_until_ready(jnp.linalg.eigvals(MATRICES))  # SciPy is loaded
    functions = blas_threads.thread_functions()
    if functions is None:
        pytest.skip("another BLAS")
    get, set_ = functions
    before = get()
    yield get, set_
    set_(before)


@pytest.mark.parametrize("count", [1, 2])
def test_the_number_of_threads_comes_back(
        count: int, threads: tuple[Callable[[], int], Callable[[int], None]]) -> None:
    get, set_ = threads
    set_(count)
    f = fnx.jit(jnp.linalg.eigvals)

    def call() -> None:
        for _ in range(5):
            fnx.block_until_ready(f(MATRICES))
    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert get() == count
