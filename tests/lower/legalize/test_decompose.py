"""Decomposed ops are within 2 ulp of exact values everywhere, and exact at special values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import toposort
from fnx.core.support.target import Target
from fnx.lower.legalize.decompose import EXPANSIONS, decompose
from tests.helpers import same_bits_each
from tests.lower.legalize.elementary_references import FUSED, UNFUSED, decomposed, ulps_32

Array = np.ndarray[Any, Any]
TARGETS = pytest.mark.parametrize("target", [FUSED, UNFUSED], ids=["fma", "no-fma"])
NUMPY = {ops.EXP: np.exp, ops.EXPM1: np.expm1, ops.LOG: np.log, ops.LOG1P: np.log1p,
         ops.SIN: np.sin, ops.COS: np.cos, ops.TAN: np.tan, ops.TANH: np.tanh,
         ops.ATAN: np.arctan, ops.ASIN: np.arcsin, ops.CBRT: np.cbrt}
UNARY = sorted(NUMPY, key=lambda op: op.name)
SPECIAL = np.array([0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5, -7, np.inf, -np.inf,
                    np.nan, 1e-45, -1e-45, 3e38, -3e38, 2.0 ** 24, 2.0 ** 24 + 2, 2.0 ** 31])


# ---- float32 ------------------------------------------------------------------------------------


def _float32_points(n: int = 1 << 17) -> Array:
    """Random bit patterns, every power of two with its neighbors, and the usual range."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    powers = np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32)
    powers = np.concatenate([powers, -powers])
    near = [np.nextafter(powers, np.float32(to)) for to in (np.inf, -np.inf)]
    usual = rng.uniform(-1, 1, n) * np.exp2(rng.uniform(-10, 7.5, n))
    quarter_turns = np.arange(1, 2000) * (np.pi / 4)
    far_turns = np.rint(rng.uniform(1, 1 << 21, n)) * (np.pi / 2)
    return np.concatenate([patterns, powers, *near, usual.astype(np.float32),
                           quarter_turns.astype(np.float32), far_turns.astype(np.float32),
                           SPECIAL.astype(np.float32)])


@pytest.mark.cases(1)
@TARGETS
@pytest.mark.parametrize("op", UNARY, ids=str)
def test_float32_is_within_2_ulp(op: Op, target: Target) -> None:
    x = _float32_points(1 << (14 if target.fma else 17))  # FMA is slow in NumPy
    with np.errstate(all="ignore"):
        exact = NUMPY[op](x.astype(np.float64))
    got = decomposed(op, x, target=target)
    assert ulps_32(got, exact).max() <= 2
    zero = exact == 0
    assert same_bits_each(got[zero], exact[zero].astype(np.float32)).all()


@pytest.mark.parametrize("t", [np.float32, np.float64])
@pytest.mark.parametrize("op", UNARY, ids=str)
def test_limits_are_reached_without_underflow(op: Op, t: Any) -> None:
    """A product that is subnormal or rounds to 0 takes a processor more than a hundred cycles:
    masked scores are -inf, and their exp is 0; that of -90 is subnormal in float32."""
    x = np.array([0.0, -np.inf, np.inf, -90, -1e3, 1e3], t)
    decomposed(op, x, target=UNFUSED, under="raise")


@TARGETS
@pytest.mark.parametrize("t", [np.float32, np.float64])
def test_exp_at_both_ends_of_the_format(t: Any, target: Target) -> None:
    """Subnormal results, the last that is finite, and NaN with any payload."""
    form = np.finfo(t)
    ends = [t(e * np.log(2)) for e in (form.maxexp, form.minexp, form.minexp - form.nmant - 1)]
    near = np.concatenate([e + np.spacing(e) * np.arange(-300, 300, dtype=t) for e in ends] + [
        np.linspace(ends[2] - 2, ends[1] + 2, 5000, dtype=t)])
    with np.errstate(all="ignore"):
        wanted = np.exp(near.astype(np.longdouble)).astype(t)
    got = decomposed(ops.EXP, near, target=target)
    assert (np.isinf(got) == np.isinf(wanted)).all()
    finite = np.isfinite(wanted)
    assert (abs(got[finite] - wanted[finite]) <= 2 * np.spacing(wanted[finite])).all()
    bits = np.array([0x7ff0000000000001, -1, 0x7ff8000000000000], np.int64) if t is np.float64 \
        else np.array([0x7f800001, 0xffffffff, 0x7fc00000, 0x7fffff01], np.uint32)
    assert np.isnan(decomposed(ops.EXP, bits.view(t), target=target)).all()


@pytest.mark.cases(1)
@TARGETS
def test_float32_power_is_within_2_ulp(target: Target) -> None:
    rng, n = np.random.default_rng(1), 1 << (12 if target.fma else 16)  # FMA is slow in NumPy
    patterns = rng.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    patterns = patterns[np.isfinite(patterns)]
    a = np.concatenate([np.resize(patterns, n), rng.uniform(0, 4, n),
                        (1 + rng.uniform(-1, 1, n) * np.exp2(rng.uniform(-24, 0, n)))])
    b = np.concatenate([rng.uniform(-1, 1, n) * np.exp2(rng.uniform(-6, 8, n)),
                        rng.uniform(-60, 60, n),
                        rng.uniform(-1, 1, n) * np.exp2(rng.uniform(0, 31, n))])
    b[:1000] = np.rint(b[:1000])
    with np.errstate(all="ignore"):
        a, b = a.astype(np.float32), b.astype(np.float32)
        exact = np.power(a.astype(np.float64), b.astype(np.float64))
    assert ulps_32(decomposed(ops.POW, a, b, target=target), exact).max() <= 2


# ---- float64, against mpmath --------------------------------------------------------------------


def _saturating(f: Callable[[Any], Any], low: Any, high: Any) -> Callable[[Any], Any]:
    return lambda x: high if x > 800 else low if x < -800 else f(x)


_TINY, _HUGE = mpf(2) ** -3000, mpf(2) ** 3000
EXACT: dict[Op, Callable[[Any], Any]] = {
    ops.EXP: _saturating(mpmath.exp, _TINY, _HUGE),
    ops.EXPM1: _saturating(mpmath.expm1, mpf(-1), _HUGE),
    ops.TANH: _saturating(mpmath.tanh, mpf(-1), mpf(1)),
    ops.LOG: lambda x: mpmath.log(x) if x > 0 else mpmath.nan,
    ops.LOG1P: lambda x: mpmath.log1p(x) if x > -1 else mpmath.nan,
    ops.SIN: mpmath.sin,
    ops.COS: mpmath.cos,
    ops.TAN: mpmath.tan,
    ops.ATAN: mpmath.atan,
    ops.ASIN: lambda x: mpmath.asin(x) if abs(x) <= 1 else mpmath.nan,
    ops.CBRT: lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}


def ulps_64(got: Array, exact: list[Any]) -> float:
    """Return the largest error in ulps."""
    worst = 0.0
    for g, e in zip(got.tolist(), exact):
        if mpmath.isnan(e):
            assert np.isnan(g)
        elif not np.isfinite(g):
            assert g == float(e)
        else:
            unit = mpf(2) ** max(mpmath.frexp(abs(e))[1] - 53, -1074)
            worst = max(worst, float(abs(mpf(g) - e) / unit))
    return worst


def _float64_points(n: int = 350) -> Array:
    rng = np.random.default_rng(2)
    patterns = rng.integers(0, 1 << 64, n, dtype=np.uint64).view(np.float64)
    usual = rng.uniform(-1, 1, 2 * n) * np.exp2(rng.uniform(-10, 10, 2 * n))
    around_1 = 1 + rng.uniform(-1, 1, n) * np.exp2(rng.uniform(-53, -1, n))
    powers = [s * 2.0 ** k * (1 + d * 2.0 ** -52) for k in range(-1074, 1024, 61)
              for s in (1, -1) for d in (-1, 0, 1)]
    turns = [float(k * mp.pi / 4) for k in (*range(1, 40), 10 ** 5, 2 ** 30, 2 ** 52 - 1)]
    # The float64 values nearest to a multiple of pi / 2 (W. Kahan, nearpi).
    nearest = [6381956970095103 * 2.0 ** 797, -6381956970095103 * 2.0 ** 797]
    # Values whose first products with the words of 1 / (2 pi) exceed the exact range by one bit.
    nearest += [3.8296393325205522e+230, 1.8989673308754371e+230, -3.771730714055211e+230]
    x = np.concatenate([patterns, usual, around_1, powers, turns, nearest])
    return x[np.isfinite(x) & (x != 0) & (x != -1)]


@pytest.mark.cases(1)
@TARGETS
@pytest.mark.parametrize("op", UNARY, ids=str)
def test_float64_is_within_2_ulp(op: Op, target: Target) -> None:
    x = _float64_points()
    with mp.workprec(1250):
        exact = [EXACT[op](mpf(v)) for v in x.tolist()]
    assert ulps_64(decomposed(op, x, target=target), exact) <= 2


@TARGETS
def test_float64_power_is_within_2_ulp(target: Target) -> None:
    rng, n = np.random.default_rng(3), 500
    a = np.concatenate([rng.uniform(0, 4, n), np.exp2(rng.uniform(-1074, 1023, n)),
                        1 + rng.uniform(-1, 1, n) * np.exp2(rng.uniform(-52, -1, n))])
    a = a[a != 1]
    wide = rng.uniform(-1078, 1024, len(a)) / np.log2(a)
    b = np.where(rng.integers(0, 2, len(a)) == 0, wide, rng.uniform(-30, 30, len(a)))
    with mp.workprec(300):
        exact = [mpf(2) ** min(max(mpf(v) * mpmath.log(mpf(u), 2), -3000), 3000)
                 for u, v in zip(a.tolist(), b.tolist())]
    assert ulps_64(decomposed(ops.POW, a, b, target=target), exact) <= 2


# ---- special values -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", UNARY, ids=str)
def test_special_values_are_those_of_c99(op: Op, dtype: Any) -> None:
    x = SPECIAL.astype(dtype)
    with np.errstate(all="ignore"):
        want = NUMPY[op](x)
    got = decomposed(op, x)
    fixed = ~np.isfinite(want) | (want == 0) | ~np.isfinite(x)
    assert same_bits_each(got[fixed], want[fixed]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@TARGETS
def test_powers_of_special_values_are_those_of_c99(dtype: Any, target: Target) -> None:
    a, b = (g.ravel().astype(dtype) for g in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        want = np.power(a, b)
    got = decomposed(ops.POW, a, b, target=target)
    finite = np.isfinite(want) & (want != 0)
    assert same_bits_each(got[~finite], want[~finite]).all()
    np.testing.assert_allclose(got[finite], want[finite], rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@TARGETS
def test_powers_of_small_integers_are_exact(dtype: Any, target: Target) -> None:
    pairs = [(a, b) for a in range(-40, 41) for b in range(24)
             if abs(a) ** b < 2 ** np.finfo(dtype).nmant]
    a, b = (np.array(column, dtype) for column in zip(*pairs))
    want = np.array([float(u ** v) for u, v in pairs])
    assert (decomposed(ops.POW, a, b, target=target) == want).all()


# ---- remainders, integers -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_remainder_is_exact(dtype: Any) -> None:
    rng, n = np.random.default_rng(4), 1 << 14
    info, integer = np.finfo(dtype), np.dtype(f"u{np.dtype(dtype).itemsize}")
    columns = [[], []]  # type: list[list[Array]]
    for column in columns:
        scaled = rng.uniform(-1, 1, n) * np.exp2(rng.uniform(-20, 20, n))
        column += [rng.integers(0, np.iinfo(integer).max, n, integer, True).view(dtype),
                   scaled.astype(dtype), np.rint(scaled).astype(dtype)]
    # Values close to multiples, where a rounded quotient may be one too large; up to the largest
    # values.
    quotients = np.rint(np.exp2(rng.uniform(0, info.nmant + 7, n)))
    b = rng.integers(1, 1 << info.nmant, n).astype(dtype)
    b[::2] = info.max / quotients[::2].astype(dtype)
    with np.errstate(over="ignore"):
        columns[0].append(np.nextafter(quotients.astype(dtype) * b, np.where(
            rng.integers(0, 2, n) == 0, 0, info.max).astype(dtype)))
    columns[1].append(b)
    corners = np.array([*SPECIAL, info.max, info.tiny, 3 * info.smallest_subnormal], dtype)
    a, b = (np.concatenate([*column, grid.ravel()])
            for column, grid in zip(columns, np.meshgrid(corners, corners)))
    with np.errstate(all="ignore"):
        want = np.fmod(a, b)
    assert same_bits_each(decomposed(ops.REM, a, b), want).all()


def _integers(dtype: Any) -> st.SearchStrategy[int]:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    corners = [v for v in (low, low + 1, -2, -1, 0, 1, 2, 3, high - 1, high) if low <= v <= high]
    return st.one_of(st.sampled_from(corners), st.integers(low, high),
                     st.integers(max(low, -40), 40))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64], ids=["i32", "u32", "index"])
@pytest.mark.parametrize("op", [ops.IDIV, ops.REM], ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_integer_division_has_its_meaning(op: Op, dtype: Any, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(_integers(dtype), _integers(dtype)), min_size=1,
                               max_size=30))
    a, b = (np.array(column, dtype) for column in zip(*pairs))
    want = []
    for x, y in pairs:
        quotient = -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        want.append(quotient if op is ops.IDIV else x if y == 0 else x - quotient * y)
    width = 8 * np.dtype(dtype).itemsize
    wrapped = np.array([w % (1 << width) for w in want], f"u{width // 8}").view(dtype)
    assert (decomposed(op, a, b) == wrapped).all()


@pytest.mark.parametrize("divisor", [0, -1, 1, 7, -2 ** 31])
def test_only_safe_constants_stay_divisors(divisor: int) -> None:
    x = build.var(0, dtypes.int32)
    node = build.idiv(x, build.const(divisor, dtypes.int32))
    assert (decompose(node, FUSED) is node) == (divisor not in (0, -1))


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.integers(0, 2 ** 32 - 1)] * 4), min_size=1, max_size=8),
       st.integers(0, 1))
def test_threefry_has_its_meaning(rows: list[tuple[int, ...]], word: int) -> None:
    columns = [np.array(c, np.uint32) for c in zip(*rows)]
    node = build.elementwise(ops.THREEFRY, *[
        build.param(i, dtypes.uint32, c.shape) for i, c in enumerate(columns)], arg=word)
    assert ops.THREEFRY.meaning is not None
    want = ops.THREEFRY.meaning(node, *columns)
    assert (decomposed(ops.THREEFRY, *columns, arg=word) == want).all()


# ---- the pass -----------------------------------------------------------------------------------


def _kernel_of(op: Op, dtype: dtypes.DType) -> Any:
    i = build.range_(8, 0)
    operands = [build.load(build.index_into(build.ref(s, dtype, (8,)), i))
                for s in range(op.arity or 0)]
    value = build.elementwise(op, *operands, arg=0 if op is ops.THREEFRY else None)
    return build.kernel([build.store(build.index_into(build.ref(9, dtype, (8,)), i), value)], "k",
                        (0,))


def _accepted(op: Op) -> list[dtypes.DType]:
    letters = {"f": [dtypes.float32, dtypes.float64], "i": [dtypes.int32, dtypes.uint32]}
    return [t for letter in op.accepts for t in letters.get(letter, ())]


@pytest.mark.parametrize("op", EXPANSIONS, ids=str)
@TARGETS
def test_no_op_with_a_row_is_left(op: Op, target: Target) -> None:
    for dtype in [dtypes.uint32] if op is ops.THREEFRY else _accepted(op):
        out = decompose(_kernel_of(op, dtype), target)
        left = {n.op for n in toposort([out])}
        assert out.op is ops.KERNEL
        assert not left & set(EXPANSIONS)
        assert target.fma or ops.MULACC not in left
        assert decompose(out, target) is out


def test_what_has_no_row_comes_back_as_the_same_object() -> None:
    kernel = _kernel_of(ops.ADD, dtypes.float32)
    assert decompose(kernel, FUSED) is kernel


def test_both_words_of_threefry_share_their_rounds() -> None:
    words = [build.var(i, dtypes.uint32) for i in range(4)]
    both = build.elementwise(ops.XOR, *[build.elementwise(ops.THREEFRY, *words, arg=w)
                                        for w in (0, 1)])
    one = build.elementwise(ops.THREEFRY, *words, arg=1)
    count = [len(toposort([decompose(n, FUSED)])) for n in (one, both)]
    assert count[1] <= count[0] + 3
