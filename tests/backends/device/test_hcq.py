"""Small results of a call share blocks: no two overlap, and each lives as long as it is
referenced."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
from fnx.backends.device.allocator import ALIGNMENT
from fnx.backends.device.base import get_device
from fnx.backends.device.hcq import _MAX_SHARED_BLOCK, SharedBlock, group_small_results

COMPILED = True
CPU = get_device("cpu")


@given(st.lists(st.sampled_from([1, 4, 8, 64, 65, 128, 200, 256, 257, 512, 1024, 5000])))
def test_results_keep_their_order_and_parts_lie_apart(sizes):
    laid, found = group_small_results(sizes), []
    for what in laid:
        if not isinstance(what, SharedBlock):
            found.append(what)
            continue
        assert len(what.parts) > 1 and what.nbytes <= _MAX_SHARED_BLOCK
        end = 0
        for offset, nbytes in what.parts:
            assert offset >= end and offset % ALIGNMENT == 0
            end = offset + nbytes
        assert end <= what.nbytes
        found += [nbytes for _, nbytes in what.parts]
    assert found == sizes
    memory = CPU.allocate(laid)
    assert [m.nbytes for m in memory] == sizes
    ends = sorted((m.ptr, m.ptr + m.nbytes) for m in memory)
    assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:]))


def test_memory_of_parts_comes_back_with_the_last_of_them():
    plan = group_small_results([8] * 16)
    assert len(plan) == 1
    kept = CPU.allocate(plan)[7]
    address = kept.ptr - 7 * ALIGNMENT
    assert all(CPU.allocate(plan)[0].ptr != address for _ in range(3))
    del kept
    gc.collect()
    assert CPU.allocate(plan)[0].ptr == address


@pytest.mark.cases(1)
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sets(st.integers(0, 39)), st.booleans(), st.booleans()),
                min_size=1, max_size=12))
@pytest.mark.parametrize("length", [1, 8, 50])
def test_what_is_kept_of_many_results_stays(length, steps):
    """Arrays and views of some results are retained, the others are dropped, and donated ones are
    overwritten: the retained ones keep their values."""
    make = {donates: fnx.jit(lambda t: [x + i for i, x in enumerate(t)],
                             donate_argnums=(0,) if donates else ()) for donates in (False, True)}
    state = [fnx.numpy.full(length, i, "int32") for i in range(40)]
    now = [np.full(length, i, "int32") for i in range(40)]
    kept = []
    for chosen, donates, looks in steps:
        for i in chosen:
            x = state[i]
            kept.append((np.asarray(x) if looks else x + 0 if donates else x, now[i]))
        state = make[donates](state)
        now = [x + i for i, x in enumerate(now)]
    for x, value in [*kept, *zip(state, now)]:
        np.testing.assert_array_equal(np.asarray(x), value)
