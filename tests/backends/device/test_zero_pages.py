"""Large arrays of zeros are pages that the system has not mapped yet."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx.numpy as jnp
from fnx.backends.device.allocator import HUGE, Pool

COMPILED = True


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("make, n", [(jnp.zeros, 1 << 30), (jnp.empty, 3 << 29)])
def test_zeros_take_pages_when_they_are_used(make: Callable[..., Any], n: int) -> None:
    before = _peak()
    x = make(n, "uint8").block_until_ready()
    assert _peak() - before < n // 4 and x.nbytes == n
    assert not np.asarray(x[::n // 7]).any()


def test_memory_that_was_used_is_zeros_again() -> None:
    shape = (3 * HUGE + 12_345,)
    for _ in range(3):  # fresh memory first, then reused memory
        ones = jnp.ones(shape, "uint8")
        assert int(jnp.sum(ones, dtype="int32")) == shape[0]
        del ones
        gc.collect()
        x = jnp.zeros(shape, "uint8")
        assert not np.asarray(x).any()
        del x


def test_fresh_pages_are_taken_once_and_given_back() -> None:
    pool = Pool()
    found = pool.fresh(HUGE)
    assert found is not None and pool.stats()["free"] == 0
    block, give = found
    other = pool.fresh(HUGE)
    assert other is not None and other[0].ptr != block.ptr
    give(block)
    assert pool.fresh(HUGE) is None  # one is free
    assert pool.take(HUGE)[0].ptr == block.ptr
    assert pool.fresh(HUGE - 1) is None


def test_writes_into_fresh_zeros() -> None:
    x = jnp.zeros(4 * HUGE, "float32").at[5].set(2.0) + 1
    assert float(x[5]) == 3 and float(x.sum()) == 4 * HUGE + 2
