"""Storage-only types: every bit pattern, against ml_dtypes (NumPy for float16)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, low_precision
from fnx.core.ir.cache import clear_caches
from fnx.core.ir.dtypes import DType
from fnx.core.support.config import override
from fnx.core.support.errors import DTypeError, NotFiniteError, OverflowedError, TypePromotionError
from fnx.lower.legalize import emulate_unsupported_dtypes
from tests.helpers import same_bits

STORED = [t for t in dtypes.USER if t.storage is not None]
FLOATS = [t for t in STORED if t.is_float]


def peer(t: DType) -> np.dtype[Any]:
    """Return the same type of ml_dtypes, or NumPy's."""
    return np.dtype(t.np if t.np.names is None else getattr(ml_dtypes, t.name))


def patterns(t: DType) -> Any:
    """Return all bit patterns."""
    assert t.storage is not None
    return np.arange(1 << t.bits).astype(t.storage.np)


def numbers(t: DType) -> Any:
    """Return the values of all bit patterns, by ml_dtypes."""
    with np.errstate(all="ignore"):
        return patterns(t).view(peer(t)).astype(np.int32 if t.is_integer else t.compute.np
                                                ).astype(t.compute.np)


def operands(t: DType) -> Any:
    """Return float32 values to round: all values of the type, midpoints between neighbors, the
    float32 values next to both, random ones and limits."""
    own = np.sort(numbers(t)[np.isfinite(numbers(t))])
    with np.errstate(all="ignore"):
        middle = own[:-1] + (own[1:] - own[:-1]) / 2
    inf = np.float32(np.inf)
    neighbors = [np.nextafter(x, y) for x in (own, middle) for y in (inf, -inf)]
    random = np.random.default_rng(0).integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    ends = np.float32([np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-45])
    return np.concatenate([own, middle, *neighbors, random, ends])


@pytest.fixture(params=["interp", "cpu", "cpu without F16C"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where conversions run: in NumPy, by instructions, by integer arithmetic."""
    name, _, without = request.param.partition(" ")
    if without:
        monkeypatch.setattr(emulate_unsupported_dtypes, "has_float16_cast", lambda target: False)
        clear_caches()
    with override(device=name, cache_dir="" if without else None):
        yield
    if without:
        clear_caches()


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("t", STORED, ids=str)
def test_every_pattern_has_its_value_and_comes_back(t: DType) -> None:
    x = jnp.asarray(patterns(t).view(peer(t)))
    assert x.dtype == peer(t)
    wide = fnx.jit(lambda x: x.astype(t.compute.name))(x)
    assert same_bits(np.asarray(wide), numbers(t))
    back = np.asarray(fnx.jit(lambda x: x.astype(t.name))(wide))
    assert same_bits(back.astype(np.float32), numbers(t).astype(np.float32))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_floats_round_to_the_nearest(t: DType) -> None:
    x = operands(t)
    with np.errstate(all="ignore"):
        want = x.astype(peer(t)).astype(np.float32)
    got = np.asarray(fnx.jit(lambda x: x.astype(t.name))(jnp.asarray(x))).astype(np.float32)
    assert same_bits(got, want)
    for n in (1, 3, 17):  # no whole vector; with a tail
        part = np.asarray(fnx.jit(lambda x: x.astype(t.name))(jnp.asarray(x[-n:])))
        assert same_bits(part.astype(np.float32), want[-n:])


@pytest.mark.parametrize("t", STORED, ids=str)
def test_constants_have_the_bits_of_arrays(t: DType) -> None:
    values = operands(t)[::997] if t.is_float else numbers(t)
    for value in values.tolist():
        node = build.const(value, t)
        with np.errstate(all="ignore"):
            want = np.asarray(value).astype(t.compute.np).astype(peer(t))
        held = np.asarray(node.arg).astype(t.storage.np if t.storage else None).view(peer(t))
        assert same_bits(held.astype(np.float32), want.astype(np.float32))
        assert same_bits(np.float32(build.const_of(node)), want.astype(np.float32))


@pytest.mark.parametrize("t", STORED, ids=str)
def test_arrays_print_pickle_and_convert(t: DType) -> None:
    x = jnp.asarray([1, 2, 3], t.name)
    assert x.tolist() == [1, 2, 3] and int(x[1]) == 2 and f"dtype={t}" in repr(x)
    again = pickle.loads(pickle.dumps(x))
    assert again.dtype == x.dtype and again.tolist() == x.tolist()
    assert np.asarray(x).dtype == peer(t) and np.asarray(x, np.float32).tolist() == [1, 2, 3]
    assert jnp.asarray(np.asarray(x)).dtype == x.dtype
    assert x.dtype == getattr(jnp, t.name) and jnp.zeros(2, x.dtype).dtype == x.dtype
    assert jnp.issubdtype(x.dtype, jnp.floating if t.is_float else jnp.integer)
    limits: Any = jnp.finfo(t.name) if t.is_float else jnp.iinfo(t.name)
    theirs: Any = ml_dtypes.finfo(peer(t)) if t.is_float else ml_dtypes.iinfo(peer(t))
    for name in ("max", "min", "bits", *(("eps", "tiny", "nmant", "maxexp", "minexp",
                                         "smallest_subnormal") if t.is_float else ())):
        assert float(getattr(limits, name)) == float(getattr(theirs, name)), name


def test_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy gets no array of such a type; everything else works."""
    monkeypatch.setattr(low_precision, "ml_dtypes", lambda: None)
    x = jnp.asarray([1.5, 2.0], jnp.bfloat16)
    with pytest.raises(DTypeError, match="install ml_dtypes, or convert"):
        np.asarray(x)
    assert x.tolist() == [1.5, 2.0] and np.asarray(x, np.float32).tolist() == [1.5, 2.0]
    assert x.dtype == jnp.bfloat16 and str(x.dtype) == "bfloat16" and x.dtype.itemsize == 2
    assert jnp.zeros(1, x.dtype).dtype == x.dtype
    assert np.asarray(x.view("uint16")).tolist() == [0x3FC0, 0x4000]


def test_what_does_not_promote_and_what_does_not_fit() -> None:
    for a, b in (("int4", "int8"), ("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2", "bfloat16"),
                 ("int4", "float32")):
        with pytest.raises(TypePromotionError, match="convert one of them"):
            jnp.ones(2, a) + jnp.ones(2, b)
    assert (jnp.ones(2, "int4") + 1).dtype == jnp.int4
    assert (jnp.ones(2, "float8_e5m2") * 2.5).dtype == jnp.float8_e5m2
    assert (jnp.ones(2, "bfloat16") + jnp.ones(2, "float16")).dtype == jnp.float32
    with pytest.raises(OverflowedError, match="int4, got 8"):
        jnp.asarray(np.array([8]), "int4")


@pytest.mark.cases(4)
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("t", ["bfloat16", "float16"])
def test_sums_and_products_are_those_of_float32(t: str) -> None:
    rng = np.random.default_rng(1)
    x, w = (jnp.asarray(rng.normal(size=s), t) for s in ((33, 300), (300, 47)))
    wide_x, wide_w = (np.asarray(a, np.float32) for a in (x, w))
    got = fnx.jit(lambda x, w: (x @ w, x.sum(0), x.mean(), jnp.var(x), jnp.einsum("ij,jk->", x, w))
                  )(x, w)
    want = (wide_x @ wide_w, wide_x.sum(0), wide_x.mean(), wide_x.var(), (wide_x @ wide_w).sum())
    eps = float(jnp.finfo(t).eps)
    for g, e in zip(got, want):
        assert g.dtype == jnp.dtype(x.dtype)
        np.testing.assert_allclose(np.asarray(g, np.float32), e, rtol=eps, atol=eps * 1e-2)
    ones = jnp.ones(5000, t)
    assert float(ones.sum()) == float(jnp.asarray(5000.0, t))
    assert float(jnp.zeros(2, t).at[jnp.zeros(5000, int)].add(ones)[0]) == float(ones.sum())


@pytest.mark.parametrize("t", ["bfloat16", "float16"])
def test_they_are_looked_at_called_back_and_shown(t: str) -> None:
    x = jnp.asarray([1.5, -2.0], t)
    with override(check="nan"), pytest.raises(NotFiniteError, match="NaN"):
        fnx.jit(lambda x: jnp.log(x) + 1)(x)
    like = fnx.ShapeDtypeStruct((2,), t)
    twice = fnx.jit(lambda x: fnx.pure_callback(lambda a: a + a, like, x))(x)
    assert twice.dtype == x.dtype and twice.tolist() == [3.0, -4.0]
    assert f"{t}[2]" in fnx.make_jaxpr(lambda x: x * 1.5)(x).show()
    assert str(x) == "[ 1.5 -2. ]" and f"{x[0]:.2f}" == "1.50"
