"""fnx.numpy against NumPy, on generated shapes, dtypes and axes."""

from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fnx
import fnx.numpy as jnp
from tests.helpers import assert_equal

DTYPES = [np.dtype(t) for t in ("bool", "int32", "uint32", "float32", "float64")]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
quick = settings(max_examples=60, deadline=None)


def elements(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return st.sampled_from([0.0, -0.0, 0.5, -1.5, 2.0, 3.75, -7.0, 1e-3, np.inf, -np.inf,
                                np.nan])
    low, high = (0, 9) if dtype.kind == "u" else (-9, 9)
    return st.booleans() if dtype.kind == "b" else st.integers(low, high)


def arrays(shapes: Any = SHAPES, dtypes: Any = None) -> Any:
    chosen = st.sampled_from(DTYPES if dtypes is None else dtypes)
    return chosen.flatmap(lambda t: hnp.arrays(t, shapes, elements=elements(t)))


FLOATS = [np.dtype("float32"), np.dtype("float64")]
NUMBERS = DTYPES[1:]


UNARY = ["negative", "absolute", "sign", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite",
         "square", "logical_not"]
UNARY_FLOAT = ["sqrt", "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan",
               "tanh", "sinh", "cosh", "exp2", "reciprocal", "rint", "arctan", "cbrt"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "less", "less_equal", "greater",
          "equal", "not_equal", "logical_and", "logical_or", "logical_xor"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]


@quick
@given(arrays(), st.sampled_from(UNARY))
def test_unary(x: Any, name: str) -> None:
    if x.dtype.kind == "b" and name in ("negative", "sign", "square", "floor", "ceil", "trunc"):
        return  # refused, or of another dtype
    with np.errstate(all="ignore"):
        assert_equal(getattr(jnp, name)(jnp.asarray(x, x.dtype)), getattr(np, name)(x))


@quick
@given(arrays(dtypes=FLOATS), st.sampled_from(UNARY_FLOAT))
def test_unary_of_floats(x: Any, name: str) -> None:
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x.astype(np.float64)).astype(x.dtype)
    assert_equal(getattr(jnp, name)(jnp.asarray(x, x.dtype)), want, ulps=6)


@quick
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4),
       st.sampled_from(DTYPES), st.sampled_from(BINARY), st.data())
def test_binary_broadcasts(shapes: Any, dtype: Any, name: str, data: Any) -> None:
    if dtype.kind == "b" and name == "subtract":
        return
    x, y = (data.draw(hnp.arrays(dtype, s, elements=elements(dtype)))
            for s in shapes.input_shapes)
    with np.errstate(all="ignore"):
        assert_equal(getattr(jnp, name)(jnp.asarray(x, dtype), jnp.asarray(y, dtype)),
             getattr(np, name)(x, y))


@quick
@given(arrays(st.just((5,)), [np.dtype("int32"), np.dtype("float32")]),
       arrays(st.just((5,)), [np.dtype("int32"), np.dtype("float32")]))
def test_floor_division_and_remainder(x: Any, y: Any) -> None:
    y = np.where(y == 0, 1, y).astype(y.dtype)
    if x.dtype != y.dtype:
        x = x.astype(np.float32)
        y = y.astype(np.float32)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return
    assert_equal(jnp.asarray(x) // jnp.asarray(y), np.floor_divide(x, y))
    assert_equal(jnp.asarray(x) % jnp.asarray(y), np.remainder(x, y), ulps=2)


@quick
@given(st.integers(-6, 6), arrays(st.just((4,)), FLOATS))
def test_whole_powers(n: int, x: Any) -> None:
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), n).astype(x.dtype)
    assert_equal(jnp.asarray(x, x.dtype) ** n, want, ulps=8)


@quick
@given(arrays(dtypes=[np.dtype("int32")], shapes=st.just((6,))), st.integers(0, 5))
def test_integer_powers(x: Any, n: int) -> None:
    assert_equal(jnp.asarray(x) ** jnp.full((6,), n), x ** np.int32(n))
    assert_equal(jnp.asarray(x) ** n, x ** np.int32(n))


FOLDS = ["sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin"]


@quick
@given(arrays(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4), NUMBERS),
       st.sampled_from(FOLDS), st.booleans(), st.data())
def test_folds(x: Any, name: str, keepdims: bool, data: Any) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-x.ndim, x.ndim - 1)))
    if not name.startswith("arg") and data.draw(st.booleans()):
        axis = tuple(range(x.ndim))
    if name in ("sum", "prod", "mean", "var", "std"):
        x = np.where(np.isfinite(x), x, 1).astype(x.dtype) if x.dtype.kind == "f" else x
    with np.errstate(all="ignore"):
        want = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
    if x.dtype.kind in "iu" and name in ("mean", "var", "std"):
        want = want.astype(np.float32)
    elif name.startswith("arg"):
        want = want.astype(np.int32)
    elif name not in ("any", "all"):
        want = want.astype(x.dtype)
    got = getattr(jnp.asarray(x, x.dtype), name)(axis=axis, keepdims=keepdims)
    assert got.dtype == want.dtype
    tolerance = 0 if want.dtype.kind != "f" or name in ("max", "min") else 1e-5
    np.testing.assert_allclose(np.asarray(got), want, rtol=tolerance, atol=tolerance)


@quick
@given(arrays(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=5), NUMBERS),
       st.data())
def test_fold_with_mask_and_start(x: Any, data: Any) -> None:
    x = np.where(np.isfinite(x), x, 1).astype(x.dtype)
    mask = data.draw(hnp.arrays(bool, x.shape))
    a = jnp.asarray(x, x.dtype)
    np.testing.assert_allclose(np.asarray(a.sum(where=mask, initial=2)),
                               np.sum(x, where=mask, initial=2, dtype=x.dtype), rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(a.max(where=mask, initial=0)),
                                  np.max(x, where=mask, initial=0))


@quick
@given(arrays(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=20),
              [np.dtype("int32")]), st.data())
def test_running_folds(x: Any, data: Any) -> None:
    axis = data.draw(st.integers(0, x.ndim - 1))
    assert_equal(jnp.cumsum(jnp.asarray(x), axis), np.cumsum(x, axis, dtype=np.int32))
    assert_equal(jnp.cumprod(jnp.asarray(x), axis), np.cumprod(x, axis, dtype=np.int32))


# ---- indexing -----------------------------------------------------------------------------------


@st.composite
def indexed(draw: Any) -> tuple[Any, Any]:
    """An array, and an index of any kind that NumPy accepts for it."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    index: list[Any] = []
    count = draw(st.integers(1, 3))
    for n in shape[:draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["int", "slice", "array", "array", "mask"]))
        if kind == "int":
            index.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            index.append(draw(st.slices(n)))
        elif kind == "array":
            lead = draw(st.sampled_from([(count,), (2, count), (1,), ()]))
            index.append(draw(hnp.arrays(np.int32, lead, elements=st.integers(-n, n - 1))))
        else:
            mask = np.zeros(n, bool)
            mask[draw(st.integers(0, n - 1))] = True
            index.append(mask)
    for _ in range(draw(st.integers(0, 2))):
        index.insert(draw(st.integers(0, len(index))), None)
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), Ellipsis)
    return x, tuple(index)


def numpy_takes(x: Any, index: Any) -> bool:
    try:
        x[index]
    except IndexError:  # an entry after ... does not fit its axis
        return False
    return True


@settings(max_examples=250, deadline=None)
@given(indexed())
def test_reads_as_numpy_does(case: Any) -> None:
    x, index = case
    if numpy_takes(x, index):
        assert_equal(jnp.asarray(x)[index], x[index])


@settings(max_examples=150, deadline=None)
@given(indexed(), st.sampled_from(["set", "add", "multiply", "min", "max"]))
def test_writes_as_numpy_does(case: Any, how: str) -> None:
    x, index = case
    if not numpy_takes(x, index):
        return
    want = x.copy()
    if how == "set":
        want[index] = -3
    else:
        ufunc = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
        ufunc[how].at(want, index, -3)
    assert_equal(getattr(jnp.asarray(x).at[index], how)(-3), want)


@quick
@given(st.integers(1, 12), st.slices(12), st.data())
def test_written_slices_keep_every_bit_outside(n: int, s: slice, data: Any) -> None:
    x = data.draw(hnp.arrays(np.float32, n, elements=st.sampled_from([-0.0, np.nan, 1.0])))
    want = x.copy()
    want[s] = 5
    got = np.asarray(jnp.asarray(x).at[s].set(5))
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


# ---- movement and contractions ------------------------------------------------------------------


def test_divisors_of_the_least_number() -> None:
    x = np.array([-128, -127, -6, -1, 0, 1, 2, 12, 64, 127], np.int8)
    assert_equal(jnp.gcd(x[:, None], x), np.gcd(x[:, None], x))
    assert_equal(jnp.lcm(x[1:, None], 2), np.lcm(x[1:, None], np.int8(2)))


def test_ldexp_by_exponents_of_more_bits_than_it_takes() -> None:
    far = np.array([2**40, -2**40, 2**32, 3])
    with fnx.enable_x64(True), np.errstate(all="ignore"):
        assert_equal(jnp.ldexp(np.float64(1.5), far), np.ldexp(1.5, np.clip(far, -9999, 9999)))
        assert_equal(jnp.ldexp(np.float64(1.5), np.array([2**64 - 1], np.uint64)),
                     np.array([np.inf]))


def test_4_bits_are_close() -> None:
    x = np.arange(8).astype(ml_dtypes.uint4)
    for values in (x, x.astype(bool)):
        assert jnp.allclose(values, values) and not jnp.allclose(values, values[::-1])


@quick
@given(arrays(hnp.array_shapes(min_dims=2, max_dims=3, max_side=4)), st.data())
def test_movement(x: Any, data: Any) -> None:
    a = jnp.asarray(x, x.dtype)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    order = data.draw(st.permutations(range(x.ndim)))
    shift = data.draw(st.integers(-5, 5))
    assert_equal(a.transpose(order), x.transpose(order))
    assert_equal(a.T, x.T)
    assert_equal(a.mT, x.swapaxes(-1, -2))
    assert_equal(jnp.flip(a, axis), np.flip(x, axis))
    assert_equal(jnp.roll(a, shift, axis), np.roll(x, shift, axis))
    rolled = fnx.vmap(lambda n: jnp.roll(a, n, axis))(jnp.asarray([shift, 300], "int16"))
    assert_equal(rolled, np.stack([np.roll(x, shift, axis), np.roll(x, 300, axis)]))
    assert_equal(jnp.roll(a, (shift, 2), axis), np.roll(x, (shift, 2), axis))
    assert_equal(jnp.roll(a, jnp.asarray([shift, 1]), (0, 1)), np.roll(x, (shift, 1), (0, 1)))
    assert_equal(jnp.roll(a, shift, (axis, 0)), np.roll(x, shift, (axis, 0)))
    assert_equal(jnp.moveaxis(a, axis, 0), np.moveaxis(x, axis, 0))
    assert_equal(jnp.repeat(a, 2, axis), np.repeat(x, 2, axis))
    assert_equal(jnp.tile(a, (2, 1)), np.tile(x, (2, 1)))
    assert_equal(jnp.concatenate([a, a], axis), np.concatenate([x, x], axis))
    assert_equal(jnp.stack([a, a], axis), np.stack([x, x], axis))
    assert_equal(a.reshape(-1), x.reshape(-1))
    assert_equal(jnp.tril(a, shift), np.tril(x, shift))
    assert_equal(jnp.triu(a, shift), np.triu(x, shift))
    assert_equal(jnp.diagonal(a, shift), np.diagonal(x, shift))


LETTERS = "abcd"


@st.composite
def contractions(draw: Any) -> tuple[str, list[Any]]:
    """An einsum spec over one to three operands, with repeated letters, and the operands."""
    lengths = {c: draw(st.integers(1, 3)) for c in LETTERS}
    terms = [draw(st.text(LETTERS, min_size=0, max_size=3))
             for _ in range(draw(st.integers(1, 3)))]
    present = sorted(set("".join(terms)))
    out = draw(st.permutations(present))[:draw(st.integers(0, len(present)))] if present else []
    spec = ",".join(terms) + draw(st.sampled_from(["->" + "".join(out), ""]))
    size = [tuple(lengths[c] for c in t) for t in terms]
    return spec, [draw(hnp.arrays(np.float32, s, elements=st.integers(-3, 3).map(float)))
                  for s in size]


@settings(max_examples=120, deadline=None)
@given(contractions())
def test_einsum(case: Any) -> None:
    spec, xs = case
    assert_equal(jnp.einsum(spec, *[jnp.asarray(x) for x in xs]), np.einsum(spec, *xs))


@quick
@given(hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=2, max_side=3),
       st.data())
def test_matmul(shapes: Any, data: Any) -> None:
    x, y = (data.draw(hnp.arrays(np.float32, s, elements=st.integers(-3, 3).map(float)))
            for s in shapes.input_shapes)
    assert_equal(jnp.asarray(x) @ jnp.asarray(y), x @ y)


@quick
@given(st.integers(0, 3), st.data())
def test_tensordot(n: int, data: Any) -> None:
    shared = data.draw(hnp.array_shapes(min_dims=n, max_dims=n, max_side=3)) if n else ()
    x = np.ones((2, *shared), np.float32)
    y = np.ones((*shared, 3), np.float32)
    assert_equal(jnp.tensordot(jnp.asarray(x), jnp.asarray(y), n), np.tensordot(x, y, n))


@pytest.mark.parametrize("args", [(5,), (2, 9), (2, 9, 3), (9, 2, -2), (0,), (3, 1),
                                  (0.0, 1.0, 0.3), (1.5, 4.0), (5.0,)])
def test_arange(args: tuple[float, ...]) -> None:
    want = np.arange(*args)
    got = np.asarray(jnp.arange(*args))
    assert got.dtype == (np.int32 if want.dtype.kind == "i" else np.float32)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), ()])
def test_arrays_without_elements_and_without_axes(shape: tuple[int, ...]) -> None:
    x = jnp.zeros(shape)
    assert (x + 1).shape == shape
    assert float(x.sum()) == 0.0
    assert x.reshape(-1 if shape == () else shape).size == x.size
    assert jnp.concatenate([x.reshape(x.size), jnp.ones(2)]).shape == (x.size + 2,)
    assert bool(jnp.all(x == 0))


def test_matmul_over_an_axis_without_elements_is_zero() -> None:
    assert_equal(jnp.ones((2, 0)) @ jnp.ones((0, 3)), np.zeros((2, 3), np.float32))


def test_division_and_hypotenuse_next_to_infinity() -> None:
    """As in JAX: 3 // -inf is -1; the hypotenuse of an infinity and a NaN is infinite, too."""
    inf, nan = float("inf"), float("nan")
    a, b = jnp.asarray([3.0, -1.0, 3.0, -1.0, 0.0]), jnp.asarray([-inf, inf, inf, -inf, inf])
    assert jnp.floor_divide(a, b).tolist() == [-1, -1, 0, 0, 0]
    assert jnp.hypot(jnp.asarray([nan, -inf, 3.0]), jnp.asarray([inf, nan, 4.0])).tolist() == [
        inf, inf, 5.0]


def test_linspace_of_whole_numbers_is_exact() -> None:
    for stop, n in ((25, 6), (7, 29), (59, 40), (-3, 11)):
        np.testing.assert_array_equal(jnp.linspace(0, stop, n),
                                      np.linspace(0, stop, n).astype(np.float32))
    counts, _ = jnp.histogram(jnp.asarray([1, 2, 3, 10, 11, 15, 19, 25]), 5, (0, 25))
    assert counts.tolist() == [3, 0, 2, 2, 1]


@pytest.mark.parametrize("x64", [False, True])
def test_dtypes_of_histograms(x64: bool) -> None:
    """Counts have the default int dtype, weighted ones the promoted dtype of weights and points."""
    points, whole = np.ones((4, 2), np.float32), np.ones(4, np.int8)
    with fnx.enable_x64(x64):
        cells = [jnp.histogramdd(points, 2)[0], jnp.histogram2d(*points.T, 2)[0],
                 jnp.histogramdd(points, 2, weights=whole)[0],
                 jnp.histogramdd(points, 2, density=True)[0]]
        count = jnp.asarray(0).dtype
    assert [c.dtype for c in cells] == [count, count, np.float32, np.float32]
    assert cells[2].tolist() == [[0, 0], [0, 4]]


def test_vander_of_many_columns() -> None:
    """The number of operations does not depend on the number of columns."""
    lowered = [fnx.jit(lambda x, n=n: jnp.vander(x, n, True)).lower(jnp.ones(2)) for n in (9, 4096)]
    assert len({str(low.commands).count("EXEC") for low in lowered}) == 1
    assert jnp.vander(jnp.full(2, -1.0), 4096, True)[0, -3:].tolist() == [-1, 1, -1]


def test_linspace_to_the_largest() -> None:
    np.testing.assert_allclose(jnp.linspace(0, 3e38, 3), [0, 1.5e38, 3e38], rtol=1e-6)


def test_bfloat16_in_files_of_numpy() -> None:
    file = io.BytesIO()
    jnp.save(file, jnp.asarray([1.5, -2], "bfloat16"))
    file.seek(0)
    found = jnp.load(file)
    assert found.dtype == jnp.bfloat16 and found.tolist() == [1.5, -2]


@pytest.mark.parametrize("dtype", ["uint4", "int4", "uint8", "int32"])
def test_sizes_come_from_numbers_of_any_width(dtype: str) -> None:
    numbers = jnp.asarray([1, 1, 3]).astype(dtype)
    assert jnp.bincount(numbers).tolist() == [0, 2, 0, 1]
    assert fnx.ops.segment_sum(jnp.asarray([1.0, 2.0, 3.0]), numbers).tolist() == [0, 3, 0, 3]


def test_the_largest_and_the_smallest_of_truth_values() -> None:
    """As in JAX, which has no sum and no product of bools."""
    x = jnp.asarray([[True, False], [True, True]])
    assert fnx.lax.reduce_max(x, (1,)).tolist() == [True, True]
    assert fnx.lax.reduce_min(x, (1,)).tolist() == [False, True]
    for refused in (fnx.lax.reduce_sum, fnx.lax.reduce_prod):
        with pytest.raises(fnx.FnxError, match="does not fold bool"):
            refused(x, (1,))


def test_unwrap_of_unsigned_numbers_goes_down_too() -> None:
    down = np.array([240, 180, 120, 60, 0])
    for dtype in ("uint8", "uint16", "int32", "float32"):
        np.testing.assert_allclose(jnp.unwrap(down.astype(dtype)), np.unwrap(down * 1.0), 1e-5)


def test_bits_of_four_bit_numbers_are_counted_in_four() -> None:
    for dtype, first in (("int4", -8), ("uint4", 0)):
        x = jnp.asarray(np.arange(first, first + 16)).astype(dtype)
        bits = [f"{n & 15:04b}" for n in range(first, first + 16)]
        assert [int(n) for n in np.asarray(fnx.lax.population_count(x))] == [
            b.count("1") for b in bits]
        assert [int(n) for n in np.asarray(fnx.lax.clz(x))] == [
            len(b) - len(b.lstrip("0")) for b in bits]


@pytest.mark.parametrize("n", [0, 1])
def test_rows_of_one_are_in_order(n: int) -> None:
    x = np.full((n, 3), np.nan, np.float32)
    for f in (jnp, np):
        np.testing.assert_array_equal(f.sort(f.asarray(x), 0), x)
        np.testing.assert_array_equal(f.argsort(f.asarray(x), 0), np.zeros((n, 3), int))
    assert jnp.argsort(x, 0).dtype == np.int32
    np.testing.assert_array_equal(fnx.grad(lambda x: (2 * jnp.sort(x, 0)).sum())(jnp.asarray(x)),
                                  np.full((n, 3), 2.0))
