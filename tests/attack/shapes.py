"""Eager calls of many shapes, whose kernels take lengths as arguments, against jit's, which do not.

    python -m tests.attack.shapes --count 1000 --seed 7

A seed is a function, its numbers, and operands of some shapes. Its eager result must be bitwise
that of jit, except for sums of floats, and that of the interpreter within rounding; a second call
must give the same bits.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array import eager_cache
from fnx.core.support.config import override
from fnx.errors import FnxError
from tests.attack.seeds import attack

LENGTHS = 1, 1, 2, 3, 3, 4, 5, 5, 7, 8, 8, 13, 16, 17, 31, 32, 33, 40, 64, 65, 100, 130
DTYPES = "float32 float32 float32 float32 int32 int32 uint8 bool float16 bfloat16".split()

Function = Callable[..., Any]


class Drawn:
    """The random choices of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high))

    def pick(self, some: Any) -> Any:
        return some[self.number(0, len(some))]

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple([self.pick(LENGTHS) for _ in range(rank)])

    def array(self, shape: tuple[int, ...], dtype: str = "") -> Any:
        dtype = dtype or self.pick(DTYPES)
        if dtype in ("int32", "uint8"):
            return jnp.asarray(self.random.integers(0 if dtype == "uint8" else -9, 40, shape)
                               .astype(dtype))
        return jnp.asarray(self.random.standard_normal(shape).astype(np.float32)).astype(dtype)

    def places(self, n: int) -> Any:
        """Draw indices into an axis of length n, from either end."""
        return jnp.asarray(self.random.integers(-n, n, self.pick(LENGTHS)).astype(np.int32))


def products(d: Drawn) -> tuple[Function, tuple[Any, ...]]:
    """Contractions, in all layouts."""
    a, b, c = d.shape(3)
    f, *shapes = d.pick((
        (lambda x, y: x @ y, (a, b), (b, c)), (lambda x, y: x @ y.T, (a, b), (c, b)),
        (lambda x, y: x.T @ y, (b, a), (b, c)), (lambda x, y: x.T @ y.T, (b, a), (c, b)),
        (lambda x, y: fnx.nn.relu(jnp.dot(x, y) + 1.5), (a, b), (b, c)),
        (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), (3, a, b), (3, b, c)),
        (lambda x, y: jnp.einsum("bij,kj->ikb", x, y), (3, a, b), (c, b)),
        (lambda x, y: x @ y, (a, b), (b,))))
    return f, tuple([d.array(shape, "float32") for shape in shapes])


def places(d: Drawn) -> tuple[Function, tuple[Any, ...]]:
    """Functions that move elements."""
    m, n = shape = d.shape(2)
    x, i, j, k = d.array(shape), d.number(-m, m), d.number(0, n), d.number(1, 5)
    rows, columns = d.places(m), d.places(n)
    far = jnp.asarray(d.random.integers(-2 * n, 2 * n, 5).astype(np.int32))
    f: Function = d.pick((
        lambda x: x[i], lambda x: x[i:], lambda x: x[:, j], lambda x: x[::k], lambda x: x[::-1],
        lambda x: x[::-k, j:], lambda x: x[:, ::k], lambda x: x.at[i].set(3),
        lambda x: x.at[:, j:].set(2), lambda x: x.at[i, j].add(1), lambda x: jnp.roll(x, i),
        lambda x: jnp.roll(x, i, 1), lambda x: jnp.flip(x, 1), lambda x: x[rows],
        lambda x: jnp.pad(x, ((i % 5, j % 3), (k, 0)), constant_values=k), lambda x: x[:, columns],
        lambda x: jnp.take(x.astype("float32"), far, axis=1, mode="fill"),
        lambda x: x.at[rows].add(2), lambda x: x.at[rows].set(k), lambda x: jnp.tril(x, k),
        lambda x: jnp.triu(x, -k), lambda x: jnp.repeat(x, k, 0), lambda x: jnp.tile(x, (k, 2)),
        lambda x: jnp.concatenate([x, x[:k]]), lambda x: jnp.concatenate([x, x, x[:1], x]),
        lambda x: jnp.concatenate([x[:, :1], x[:, :1], x, x[:, j:]], 1),
        lambda x: jnp.concatenate([x, x[:, :k], x], 1),
        lambda x: jnp.stack([x, x], 1), lambda x: x.reshape(-1, m), jnp.diag, jnp.trace,
        lambda x: x.T.reshape(-1), lambda x: lax.slice(x, (m // 2, 0), (m, n), (k, 1)),
        lambda x: jnp.diagonal(x, j), lambda x: jnp.moveaxis(x.reshape(1, m, n), 0, 2),
        lambda x: lax.dynamic_slice(x, (i, j), (1 + m // 2, 1 + n // 2)),
        lambda x: lax.dynamic_update_slice(x, x[:1 + m // 2], (abs(i), 0)),
        lambda x: jnp.split(x, [min(k, m)])[0]))
    return f, (x,)


def folds(d: Drawn) -> tuple[Function, tuple[Any, ...]]:
    """Reductions, cumulative reductions, sorts."""
    shape = d.shape(d.number(1, 4))
    axis = d.pick((None, *range(len(shape))))
    f: Function = d.pick((jnp.sum, jnp.max, jnp.min, jnp.argmax, jnp.argmin, jnp.any, jnp.all,
                          jnp.cumsum, jnp.cummax if hasattr(jnp, "cummax") else jnp.cumsum,
                          jnp.sort, jnp.argsort))
    g: Function = d.pick((jnp.prod, jnp.mean, jnp.var, jnp.median, jnp.cumprod, jnp.std,
                          fnx.nn.softmax, fnx.nn.logsumexp, jnp.ptp))
    if d.number(0, 2):
        return (lambda x: f(x, axis=axis)), (d.array(shape),)
    return (lambda x: g(x, axis=axis)), (d.array(shape, "float32"),)


def elementwise(d: Drawn) -> tuple[Function, tuple[Any, ...]]:
    """Arithmetic with numbers, broadcasting, and functions of numbers only."""
    shape, k = d.shape(d.number(0, 4)), d.number(2, 50)
    other = tuple([1 if d.number(0, 3) == 0 else n for n in shape])[d.number(0, len(shape) + 1):]
    f: Function = d.pick((
        lambda x, y: x + y, lambda x, y: x * y, lambda x, y: jnp.where(x > k, x, y), jnp.maximum,
        jnp.less, lambda x, y: x + k, lambda x, y: y - k, lambda x, y: jnp.equal(x, k),
        lambda x, y: jnp.sin(x.astype("float32")), lambda x, y: jnp.clip(x, k // 3, k),
        lambda x, y: x.astype("int32") // k, lambda x, y: x.astype("int32") % k,
        lambda x, y: y.astype("int32") << (k % 5), lambda x, y: x.astype("float32"),
        lambda x, y: jnp.arange(k) + k, lambda x, y: jnp.eye(k, k + 3, k % 4), jnp.outer,
        lambda x, y: jnp.linspace(0, k, k + 1), lambda x, y: jnp.full((k, 3), k),
        lambda x, y: x.astype("int32") * -k, lambda x, y: fnx.nn.one_hot(x.astype("int32"), k),
        lambda x, y: -x.astype("float32") * k - 1.25, lambda x, y: x.astype("int32") ** 3,
        lambda x, y: jnp.broadcast_to(y, shape)))
    return f, (d.array(shape), d.array(other))


def drawn_numbers(d: Drawn) -> tuple[Function, tuple[Any, ...]]:
    """Random numbers."""
    shape = d.shape(d.number(1, 3))
    f: Function = d.pick((
        lambda k: fnx.random.normal(k, shape), lambda k: fnx.random.uniform(k, shape),
        lambda k: fnx.random.randint(k, shape, 2, 77), lambda k: fnx.random.fold_in(k, shape[0]),
        lambda k: fnx.random.split(k, shape[0]), lambda k: fnx.random.bits(k, shape),
        lambda k: fnx.random.permutation(k, shape[0])))
    return f, (fnx.random.PRNGKey(d.number(0, 99)),)


KINDS = (products, products, places, places, places, folds, folds, elementwise, elementwise,
         drawn_numbers)


def _result(f: Function, args: tuple[Any, ...]) -> Any:
    try:
        return np.asarray(f(*args))
    except FnxError as error:
        return type(error)


def _numbers(x: Any) -> Any:
    return x.astype(np.float64) if x.dtype.kind not in "biu" else x


def check(seed: int) -> str:
    """Compare the ways to call one function with each other.

    Raises:
        AssertionError: they differ.
    """
    d = Drawn(seed)
    kind = d.pick(KINDS)
    f, args = kind(d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, again = _result(f, args), _result(f, args)
        jitted = _result(fnx.jit(lambda *args: f(*args)), args)
        with override(device="interp"):
            eager_cache.clear_cache()
            meant = _result(f, args)
        eager_cache.clear_cache()
    if isinstance(meant, type):
        assert eager is meant, (eager, meant)
        return "refused"
    assert not isinstance(eager, type) and not isinstance(jitted, type), (eager, jitted)
    assert eager.tobytes() == again.tobytes(), "a second call has other bits"
    same = eager.dtype == jitted.dtype and eager.tobytes() == jitted.tobytes()
    for other in (jitted, meant):
        assert eager.dtype == other.dtype and eager.shape == other.shape
        if eager.dtype.kind in "biu":
            np.testing.assert_array_equal(eager, other)
        else:
            x, y = _numbers(eager), _numbers(other)
            scale = max(1.0, float(np.max(np.abs(y), initial=0, where=np.isfinite(y))))
            near = 2e-2 if eager.dtype.itemsize == 2 else 2e-5
            np.testing.assert_allclose(x, y, rtol=10 * near, atol=near * scale)
    return "equal to the bit" if same else "equal"


def describe(seed: int) -> str:
    """Return a description of a seed."""
    d = Drawn(seed)
    f, args = d.pick(KINDS)(d)
    code = getattr(f, "__code__", None)
    return f"line {code.co_firstlineno if code else f}, {[(x.shape, str(x.dtype)) for x in args]}"


def main() -> int:
    return attack(__doc__ or "", "calls", check, describe)


if __name__ == "__main__":
    sys.exit(main())
