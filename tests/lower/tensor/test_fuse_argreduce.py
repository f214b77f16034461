"""Reductions of pairs: argmax and argmin in one pass, on the machine and in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import toposort
from fnx.core.levels import spec
from fnx.core.support.errors import DTypeError, ShapeError, SpecError
from fnx.transforms.link import link
from tests.lower.steps import run_steps

RNG = np.random.default_rng(0)
TYPES = ["float32", "float64", "bfloat16", "float16", "int8", "int32", "int64", "uint32", "bool"]


def drawn(shape: tuple[int, ...], dtype: str, kind: str) -> Any:
    """Values with many ties; all equal to the worst value; NaNs and zeros of both signs."""
    x = np.round(RNG.normal(size=shape) * 2)
    if kind == "worst":
        x = np.full(shape, -np.inf if "float" in dtype else -128)
    elif kind == "nan" and "float" in dtype:
        x = np.where(x == 1, -0.0, x)
        x[RNG.random(shape) < 2 / x.size] = np.nan
    return np.asarray(jnp.asarray(x).astype(dtype))


@pytest.mark.cases(20)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, axis", [((7,), 0), ((1000,), None), ((13, 17), 0), ((40, 10), 1),
                                         ((5, 6, 7), 1), ((70001,), 0)], ids=repr)
def test_the_first_of_equals_and_of_nans(shape: tuple[int, ...], axis: Any, dtype: str) -> None:
    both = fnx.jit(lambda x: (jnp.argmax(x, axis), jnp.argmin(x, axis)))
    for kind in ("equals", "worst", "nan"):
        x = drawn(shape, dtype, kind)
        wide = x.astype(np.float64)
        for got, want in zip(both(x), (np.argmax(wide, axis), np.argmin(wide, axis))):
            np.testing.assert_array_equal(got, want)


def groups(capsys: Any, f: Any, shape: tuple[int, ...]) -> int:
    """Return the number of kernels of a function of one array."""
    capsys.readouterr()
    fnx.jit(f).lower(jnp.zeros(shape)).show("all")
    text = capsys.readouterr().out
    return text.split("==== groups")[1].split("==== kernels")[0].count("\ngroup ")


def test_what_computes_the_operand_is_in_the_same_loop_once(capsys: Any) -> None:
    def f(x: Any) -> Any:
        return jnp.argmax(jnp.tanh(x) * x + 1, 1)
    assert groups(capsys, f, (40, 50)) == 1


def test_a_long_fold_reads_its_operand_in_one_pass(capsys: Any) -> None:
    assert groups(capsys, jnp.argmax, (1 << 18,)) == 2  # partial results, and their reduction
    assert groups(capsys, lambda x: (jnp.argmax(x, 0), jnp.max(x, 0)), (9, 50)) == 1


@pytest.mark.parametrize("monoid", [ops.MAX, ops.MIN], ids=repr)
@pytest.mark.parametrize("shape, axes", [((4, 37), (1,)), ((37, 4), (0,)), ((5, 9, 8), (0, 2)),
                                         ((70000,), (0,))], ids=repr)
def test_places_in_any_order(shape: tuple[int, ...], axes: tuple[int, ...], monoid: Any) -> None:
    """Among equal keys the least index wins, wherever it is."""
    key, place = build.param(0, dtypes.float32, shape), build.param(1, dtypes.int32, shape)
    fold = build.reduce(build.arg_pair(key, place), monoid, axes)
    fn = build.function([fold], 2)
    spec.check([fn], "tensor")
    keys = drawn(shape, "float32", "nan")
    places = RNG.permutation(keys.size).reshape(shape).astype(np.int32)
    device = get_device("cpu")
    out, = link(fn, device).run([device.upload(keys), device.upload(places)])
    extreme = (np.max if monoid is ops.MAX else np.min)(keys, axes, keepdims=True)
    want = np.where((keys == extreme) | np.isnan(keys), places, keys.size).min(axes)
    np.testing.assert_array_equal(out.view(np.dtype(np.int32), fold.shape), want)
    np.testing.assert_array_equal(run_steps(fn, [keys, places])[0], want)


def test_transforms_of_functions_that_ask_for_places() -> None:
    x = RNG.normal(size=(4, 33)).astype(np.float32)

    def f(v: Any) -> Any:
        return (v * v)[jnp.argmax(v)] + v.sum()
    want = np.ones_like(x)
    want[np.arange(4), x.argmax(1)] += 2 * x.max(1)
    np.testing.assert_allclose(fnx.vmap(fnx.grad(f))(x), want, rtol=1e-6)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(fnx.jacfwd(f)))(x), want, rtol=1e-6)

    def step(c: Any, v: Any) -> Any:
        return c + v, jnp.argmin(c + v)
    _, found = fnx.jit(lambda x: lax.scan(step, jnp.zeros(33), x))(x)
    np.testing.assert_array_equal(found, np.cumsum(x, 0).argmin(1))


def test_the_largest_alone_is_that_of_a_sort() -> None:
    for dtype in TYPES:
        x = drawn((6, 21), dtype, "nan")
        for axis in (0, 1):
            for first, second in zip(lax.top_k(x, 1, axis=axis), lax.top_k(x, 2, axis=axis)):
                np.testing.assert_array_equal(np.asarray(first).astype(float), np.asarray(
                    second).astype(float).take([0], axis))
    slope = fnx.grad(lambda x: lax.top_k(x, 1)[0].sum())(jnp.asarray([1.0, 3.0, 3.0]))
    np.testing.assert_array_equal(slope, [0, 1, 0])


def test_pairs_are_for_folds_only() -> None:
    pair = build.arg_pair(build.param(0, dtypes.float32, (3,)), build.iota(3))
    with pytest.raises(SpecError, match="only REDUCE folds pairs"):
        spec.check([build.function([build.neg(pair)], 1)], "tensor")
    with pytest.raises(SpecError, match="the largest or the smallest key"):
        spec.check([build.function([build.reduce(pair, ops.ADD, (0,))], 1)], "tensor")
    with pytest.raises((DTypeError, ShapeError)):
        build.arg_pair(build.iota(3), build.iota(4))
    assert build.reduce(pair, ops.MAX, ()).op is ops.IOTA
    assert ops.ARG_PAIR in {n.op for n in toposort([pair])}
