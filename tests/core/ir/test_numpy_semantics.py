"""Semantics of ops in corner cases, against values recorded from JAX (record_jax.py)."""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, numpy_semantics, ops
from fnx.core.ir.dtypes import dtype_by_name, least_upper_bound, promote
from fnx.core.ir.ops import OPS
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.core.support.errors import DTypeError
from tests.graphs import values
from tests.helpers import same_bits

GOLDEN = json.loads((pathlib.Path(__file__).parent / "jax.json").read_text())


def from_bits(bits: list[int], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "bool":
        return np.array(bits, bool)
    return np.array(bits, f"uint{8 * np.dtype(dtype).itemsize}").view(dtype)


def operands(dtype: str, arity: int) -> list[np.ndarray[Any, Any]]:
    v = from_bits(GOLDEN["operands"][dtype], dtype)
    return list(np.array(list(itertools.product(v, repeat=arity)), dtype).T)


def normal(x: np.ndarray[Any, Any]) -> Any:
    """Select the cases where XLA follows IEEE: it flushes subnormals to zero, fnx keeps them."""
    tiny = np.finfo(np.float32).tiny
    return np.ones(x.shape, bool) if x.dtype.kind != "f" else (x == 0) | ~(np.abs(x) < tiny)


def value(op: ops.Op, *xs: np.ndarray[Any, Any], dtype: dtypes.DType | None = None) -> Any:
    params = [build.param(i, dtype_by_name(str(x.dtype)), x.shape) for i, x in enumerate(xs)]
    node = UOp(op, dtype or params[0].dtype, tuple(params))
    return interp.evaluate([node], dict(zip(params, xs)))[0]


@pytest.mark.parametrize("x64", [False, True])
def test_promotion(x64: bool) -> None:
    with override(x64=x64):
        for mode, a, a_weak, b, b_weak, want, weak in GOLDEN["promotion"]:
            if mode is x64:
                got = promote(dtype_by_name(a), a_weak, dtype_by_name(b), b_weak)
                assert got == (dtype_by_name(want), weak), (a, a_weak, b, b_weak)


def test_64_bits_that_were_asked_for_stay_without_x64() -> None:
    for wide in ("int64", "uint64", "float64"):
        for t in ("int8", "uint32"):
            assert promote(dtype_by_name(wide), False, dtype_by_name(t), False)[0].bits == 64
    assert promote(dtype_by_name("uint32"), False, dtype_by_name("int32"),
                   False) == (dtype_by_name("int32"), False)


def test_every_type_of_jax_widens_as_there() -> None:
    strong = {"float*": "float64", "int*": "int64"}  # JAX's type of a weak result
    for a, b, want in GOLDEN["lattice"]:
        if not want:
            with pytest.raises(DTypeError, match="no common type"):
                least_upper_bound(a, b)
            continue
        for got in (least_upper_bound(a, b), least_upper_bound(b, a)):
            assert strong.get(got, got) == want, (a, b)


@pytest.mark.parametrize("name, dtype, arity, want", GOLDEN["ops"],
                         ids=[f"{row[0]}-{row[1]}" for row in GOLDEN["ops"]])
def test_corners(name: str, dtype: str, arity: int, want: list[int]) -> None:
    xs = operands(dtype, arity)
    got = value(OPS[name], *xs)
    expected = from_bits(want, dtype)
    kept = np.logical_and.reduce([normal(x) for x in (*xs, got)])
    assert same_bits(got[kept], expected[kept])


@pytest.mark.parametrize("a, b, want", GOLDEN["casts"],
                         ids=[f"{row[0]}-{row[1]}" for row in GOLDEN["casts"]])
def test_casts(a: str, b: str, want: list[int]) -> None:
    x = from_bits(GOLDEN["corners"][a], a)
    got, expected = value(ops.CAST, x, dtype=dtype_by_name(b)), from_bits(want, b)
    kept = normal(x) & normal(got)
    assert same_bits(got[kept], expected[kept])


@given(st.sampled_from([op for op in ops.ELEMENTWISE if op.arity is not None]),
       st.sampled_from(dtypes.USER), st.integers(0, 1000))
def test_meaning_of_every_elementwise_op_keeps_dtype_and_shape(
        op: ops.Op, dtype: dtypes.DType, seed: int) -> None:
    if not op.accepts_dtype(dtype):
        return
    rng = np.random.default_rng(seed)
    kinds = [dtypes.bool_ if op is ops.WHERE and i == 0 else dtype for i in range(op.arity or 0)]
    xs = [values(rng, k, (3, 5)) for k in kinds]
    params = [build.param(i, k, (3, 5)) for i, k in enumerate(kinds)]
    if op in (ops.CAST, ops.BITCAST):
        node = UOp(op, dtype, tuple(params))
    else:
        node = build.elementwise(op, *params, arg=0 if op is ops.THREEFRY else None)
    (out,) = interp.evaluate([node], dict(zip(params, xs)))  # also checks dtype and shape
    for at in ((0, 0), (2, 4)):  # an element depends on its operands' elements only
        alone = [build.param(i, k, ()) for i, k in enumerate(kinds)]
        single = node.replace(src=tuple(alone))
        one = interp.evaluate([single], {p: x[at] for p, x in zip(single.src, (
            xs if node.src == tuple(params) else xs[::-1]))})[0]
        assert same_bits(one, out[at])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ufunc, pairwise", [(np.maximum, numpy_semantics.maximum),
                                             (np.minimum, numpy_semantics.minimum)])
def test_folded_extrema_order_zeros_and_keep_nan(ufunc: Any, pairwise: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = rng.choice(np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype,),
                       rng.integers(1, 5), p=[.3, .3, .1, .1, .05, .05, .1])
        want = x[0]
        for v in x[1:]:
            want = pairwise(None, want, v)
        start = -np.inf if ufunc is np.maximum else np.inf
        assert same_bits(numpy_semantics.reduce_array(ufunc, x, (0,), start),
                         np.asarray(want, dtype))


def test_threefry_known_answers() -> None:
    """The Random123 vectors for Threefry-2x32 with 20 rounds."""
    ones = 0xFFFFFFFF
    rows = [((0, 0, 0, 0), (0x6B200159, 0x99BA4EFE)),
            ((ones, ones, ones, ones), (0x1CB996FC, 0xBB002BE7)),
            ((0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0))]
    for operands, want in rows:
        params = [build.const(v, dtypes.uint32) for v in operands]
        got = interp.evaluate([build.elementwise(ops.THREEFRY, *params, arg=w) for w in (0, 1)],
                              {})
        assert tuple(int(g) for g in got) == want


@pytest.mark.parametrize("shape", [(), (1,), (40,)])
def test_a_power_of_a_half_is_no_root(shape: tuple[int, ...]) -> None:
    base, half = build.param(0, dtypes.float32, shape), build.param(1, dtypes.float32, shape)
    for x, want in ((-0.0, 0.0), (-np.inf, np.inf)):
        given = {base: np.full(shape, x, np.float32), half: np.full(shape, 0.5, np.float32)}
        got, = interp.evaluate([build.elementwise(ops.POW, base, half)], given)
        assert same_bits(got, np.full(shape, want, np.float32))
