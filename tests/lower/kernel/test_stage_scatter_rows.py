"""The operands of a scatter's updates are computed in lanes; each update is applied once, in
order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import conjuncts
from fnx.core.support.config import override
from fnx.lower.emit.merge_bounds_checks import merge_bounds_checks

RNG = np.random.default_rng(0)
PLACES = 50
FAR = (PLACES, -PLACES - 1, 2**31 - 1, -2**31, -1, 0)


def places(*shape: int) -> Any:
    """Indices with duplicates, negative ones and out-of-bounds ones."""
    found = RNG.integers(-PLACES - 3, PLACES + 3, shape).astype("int32")
    found.flat[:len(FAR)] = FAR
    return found


def values(dtype: str, *shape: int) -> Any:
    drawn = RNG.normal(size=shape) * 3
    return jnp.asarray(drawn > 0 if dtype == "bool" else drawn).astype(dtype)


def is_staged(f: Any, *args: Any) -> bool:
    return "local0" in fnx.jit(f).lower(*args).text("tiled")


def as_interpreted(f: Any, *args: Any, rtol: float = 0.0) -> None:
    with override(device="interp"):
        wanted = fnx.jit(f)(*[jnp.asarray(np.asarray(a)) for a in args]).astype("float32")
    got = fnx.jit(f)(*args).astype("float32")
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol, rtol)


LANES = get_device("cpu").target.vector_lanes(4)
MANY = 4 * LANES  # the least number of rows that is staged
BLOCK = get_device("cpu").target.l1 // 8 // 4  # in 32-bit indices


# All at once, in blocks, and in blocks the last of which is shorter.
@pytest.mark.cases(26)
@pytest.mark.parametrize("rows", [MANY - 1, MANY, 250, 2 * BLOCK - 2 * LANES, 2 * BLOCK - 3])
@pytest.mark.parametrize("width", [(), (1,), (2,), (3,), (64,), (65,)])
def test_rows_and_widths(rows: int, width: tuple[int, ...]) -> None:
    def f(x: Any, i: Any, j: Any, v: Any) -> Any:
        return x.at[i].add(v[j] * 2)
    args = (values("float32", PLACES, *width), places(rows), places(rows),
            values("float32", PLACES, *width))
    as_interpreted(f, *args)
    if width != (64,):  # few wide vectors, many narrow ones
        assert is_staged(f, *args) == (rows >= MANY and width != (65,))


@pytest.mark.cases(14)
@pytest.mark.parametrize(("how", "dtype"), [
    (how, dtype) for how in ["add", "max", "min", "multiply", "set"]
    for dtype in ["bool", "int8", "int32", "float16", "bfloat16", "float32"]
    if (how, dtype) != ("add", "bool")])  # bools are not summed
def test_monoids_and_types(how: str, dtype: str) -> None:
    def f(x: Any, i: Any, v: Any) -> Any:
        return getattr(x.at[i], how)(v)
    x, v = values(dtype, PLACES), values(dtype, 300)
    as_interpreted(f, x, places(300), v)
    for runs in (np.repeat(places(6), 50), np.sort(places(300) // 10), np.full(300, 7, np.int32)):
        as_interpreted(f, x, runs, v)


def counted(x: Any, i: Any, j: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, c: c.at[i].add(jnp.sin(c[j])), x)


def of_gradient(x: Any, i: Any, j: Any) -> Any:
    return fnx.grad(lambda x: jnp.sum((x[i] - x[j]) ** 2))(x)


def of_axes(x: Any, i: Any, j: Any) -> Any:
    return jnp.zeros((7, PLACES)).at[i % 7, j].max(1.5)


def of_lanes(x: Any, i: Any, j: Any) -> Any:
    both = jnp.stack([i, j])
    return fnx.vmap(lambda x, i: x.at[i].add(x[i] + 1), (None, 0))(x, both)


def of_blocks(x: Any, i: Any, j: Any) -> Any:
    return x.at[jnp.stack([i, j])].min(jnp.stack([x[j], -x[i]]))


@pytest.mark.parametrize("f", [counted, of_gradient, of_axes, of_lanes, of_blocks])
def test_idioms(f: Any) -> None:
    args = values("float32", PLACES), places(300), places(300)
    as_interpreted(f, *args, rtol=1e-5)
    assert is_staged(f, *args)


@settings(deadline=None, max_examples=6)
@given(st.integers(64, 2 * BLOCK + 700), st.integers(1, 4), st.booleans())
def test_any_number_of_rows(rows: int, width: int, both: bool) -> None:
    def f(x: Any, i: Any, v: Any) -> Any:
        return x.at[i].set(v[i] if both else v[:rows])
    as_interpreted(f, values("float32", PLACES, width), places(rows),
                   values("float32", max(rows, PLACES), width))


@pytest.mark.parametrize(("dtype", "n", "count"), [
    (dtypes.int32, 9, 1), (dtypes.int32, 2**31 - 1, 1), (dtypes.int32, 2**31, 2),
    (dtypes.int64, 9, 2), (dtypes.uint32, 9, 2), (dtypes.int32, -3, 2)])
def test_one_comparison_for_both_ends(dtype: Any, n: int, count: int) -> None:
    p = build.load(build.index_into(build.ref(0, dtype, (1,)), build.index_const(0)))
    i = build.cast(p, dtypes.index)
    valid = build.and_(build.le(build.index_const(0), i), build.lt(i, build.index_const(n)))
    store = build.store(build.index_into(build.ref(1, dtype, (max(n, 1),)), i), p, valid, ops.ADD)
    after = merge_bounds_checks(build.kernel([store], "scatter", ()))
    assert len(conjuncts(after.src[0].src[2])) == count
