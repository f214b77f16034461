"""Sorts whose ends are read become selections, with the same elements in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.core.support.target import Target
from fnx.lower.analysis import tuning
from fnx.lower.tensor.select_from_sort import select_from_sort

PROGRAMS: dict[str, Callable[[Any, int], Any]] = {
    "first": lambda x, k: jnp.sort(x)[:, :k],
    "last": lambda x, k: jnp.sort(x)[:, -k:],
    "indices": lambda x, k: jnp.argsort(x)[:, :k],
    "descending": lambda x, k: jnp.argsort(x, descending=True)[:, :k],
    "pairs": lambda x, k: lax.sort_key_val(x, -x)[1][:, :k],
    "axis": lambda x, k: jnp.sort(x.T, axis=0)[:k],
    "top_k": lambda x, k: lax.top_k(x, k),
    "two slices": lambda x, k: (jnp.sort(x)[:, :1], jnp.argsort(x)[:, 1:k])}
DTYPES = ("float32", "float16", "int8", "uint32", "int32", "int64", "float64")
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.0)


def before(f: Any, *args: Any) -> UOp:
    with override(device="null"):
        runs = fnx.jit(f).lower(*args).passes
    fn = next(run for run in runs if run.name == "select_from_sort").before
    assert isinstance(fn, UOp)
    return fn


def evaluated(fn: UOp, *args: Any) -> list[Any]:
    slots = {n: np.asarray(args[n.arg.slot]) for n in toposort(fn.src) if n.op is ops.PARAM}
    with np.errstate(all="ignore"):
        return interp.evaluate(fn.src, slots)


def drawn(dtype: str, rows: int, n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype) if "int" in dtype else None
    values = SPECIAL if limits is None else (limits.min, limits.max, 0, 1, 2, 3)
    return jnp.asarray(np.asarray(values)[rng.integers(0, len(values), (rows, n))], dtype=dtype)


@given(st.sampled_from(sorted(PROGRAMS)), st.sampled_from(DTYPES), st.integers(2, 4),
       st.integers(1, 5), st.integers(16, 60), st.integers(0, 99), st.booleans())
@settings(max_examples=25)
def test_the_ends_of_a_row_are_what_the_sort_has(program: str, dtype: str, k: int, rows: int,
                                                 n: int, seed: int, is_remote: bool) -> None:
    x = drawn(dtype, rows, n, seed)
    fn = before(lambda x: PROGRAMS[program](x, k), x)
    with mock.patch.object(tuning, "SHORT_ROW", 16), \
            mock.patch.object(tuning, "SELECT_STEP_INSTRUCTIONS", 0):
        selected = select_from_sort(fn, Target("cpu", kind="gpu" if is_remote else "cpu"),
                                    is_remote)
    assert all(n.arg.selects for n in toposort(selected.src) if n.op is ops.SORT and
               n.src[0].shape[-1] > k)
    for a, b in zip(evaluated(selected, x), evaluated(fn, x), strict=True):
        np.testing.assert_array_equal(a, b)


@given(st.sampled_from(sorted(PROGRAMS)), st.sampled_from((*DTYPES, "uint8", "uint64", "bfloat16")),
       st.integers(2, 9), st.integers(1, 3), st.integers(40, 700), st.integers(0, 99))
@settings(max_examples=60)
def test_its_program_is_what_the_sort_has(program: str, dtype: str, k: int, rows: int, n: int,
                                          seed: int) -> None:
    x = drawn(dtype, rows, n, seed)
    def f(x: Any) -> Any:
        return PROGRAMS[program](x, k)
    got = fnx.jit(f)(x)
    with override(device="interp"):
        want = f(x)
    for a, b in zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True):
        if dtype == "bfloat16":  # whose NaNs NumPy takes for different
            a, b = a.astype("float32"), b.astype("float32")
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("f", [
    fnx.grad(lambda x: (lax.top_k(x, 3)[0] * jnp.arange(1.0, 4)).sum()),
    fnx.vmap(fnx.grad(lambda x: (jnp.sort(x)[:3] ** 2).sum())),
    lambda x: fnx.jvp(lambda x: jnp.sort(x)[:, :3], (x,), (x * 2,)),
    lambda x: fnx.jvp(fnx.grad(lambda x: (lax.top_k(x, 3)[0] ** 3).sum()), (x,), (x * 2,)),
    fnx.grad(lambda x: (fnx.grad(lambda x: (jnp.sort(x)[:, :3] ** 3).sum())(x) ** 2).sum())])
def test_derivatives_select_once(f: Any) -> None:
    x = jnp.asarray(np.random.default_rng(0).permutation(800).reshape(2, 400).astype("f4"))
    fn = before(f, x)
    selected = select_from_sort(fn, Target("cpu"), is_remote=False)
    assert [n.arg.count for n in toposort(selected.src) if n.op is ops.SORT] == [3]
    for a, b in zip(evaluated(selected, x), evaluated(fn, x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_backward_pass_reads_the_order_that_there_is() -> None:
    """Before: a sort in each pass of a loop over steps that choose the largest. Expected: one."""
    def loss(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            best, i = lax.top_k(c, 3)
            return c.at[i].add(-best * 0.5), best
        return lax.scan(step, x, None, length=4)[1].sum()
    x = jnp.asarray(np.random.default_rng(0).permutation(400).astype("f4"))
    text = fnx.jit(fnx.grad(loss)).lower(x).text("graph")
    assert text.count(" sort(") == 1
    with override(device="interp"):
        want = fnx.grad(loss)(x)
    np.testing.assert_allclose(fnx.jit(fnx.grad(loss))(x), want, rtol=1e-5)


@pytest.mark.parametrize("f", [
    lambda x: jnp.sort(x), lambda x: jnp.sort(x)[:, 100], lambda x: jnp.sort(x)[:, -150:],
    lambda x: jnp.median(x, axis=1), lambda x: (jnp.sort(x)[:, :3], jnp.sort(x)[:, -3:]),
    lambda x: jnp.sort(x).reshape(-1)[:3], lambda x: jnp.sort(x + 1j)[:, :2]])
def test_a_sort_stays_whose_middle_or_most_is_read(f: Any) -> None:
    fn = before(f, jnp.ones((4, 200)))
    assert select_from_sort(fn, Target("cpu"), is_remote=False) is fn


def test_a_row_is_selected_from_only_while_that_is_cheaper() -> None:
    def selects(n: int, k: int, rows: int = 400) -> bool:
        fn = before(lambda x: jnp.sort(x)[:, -k:], jnp.ones((rows, n)))
        return select_from_sort(fn, Target("cpu", vector_bits=256), is_remote=False) is not fn
    assert selects(1000, 10) and not selects(1000, 100)
    assert selects(64, 6) and not selects(64, 30) and selects(100, 2, rows=1)


def test_its_steps_have_the_line_of_the_sort() -> None:
    fn = before(lambda x: jnp.sort(x)[:, :3], jnp.ones((400, 64)))
    selected = select_from_sort(fn, Target("gpu", kind="gpu"), is_remote=True)
    scan, = [n for n in toposort(selected.src) if n.op is ops.SCAN]
    reductions = [n for n in toposort(scan.src[0].src) if n.op is ops.REDUCE]
    assert reductions and all(n.locs for n in reductions)
