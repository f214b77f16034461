"""Random user-written kernels: both modes agree with finite differences and compose with vmap.

The kernels of test_user_written_kernels.py on smooth data, also with loops that carry values,
skipped work, windows and strides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.support.config import override
from tests.laws.test_user_written_kernels import Writer

Array = np.ndarray[Any, Any]


class SmoothWriter(Writer):
    """Kernels of float64 values, with loops."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rows, self.columns = min(self.rows, 5), min(self.columns, 7)
        self.dtype = "float64"

    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(self.seed)
        at = rng.integers(-1, self.rows + 1, self.rows).astype(np.int32)
        return [rng.standard_normal((self.rows, self.columns)), rng.standard_normal(self.rows), at]

    def value(self, depth: int, i: Any, j: Any) -> Any:
        kind = self.rng.randrange(12)
        if depth == 0 or kind > 4:
            return super().value(depth, i, j)
        return (self.carried, self.ended, self.skipped, self.window, self.smooth)[kind](depth, i, j)

    def carried(self, depth: int, i: Any, j: Any) -> Any:
        """A loop over columns, whose step reads the previous value and an element of its own."""
        mixed = self.rng.random() < 0.5
        start = self.value(depth - 1, i, j)

        def step(t: Any, s: Any, u: Any) -> Any:
            read = self.x[i, t] if mixed else self.read(i, j)
            return k.sin(s) + read * u, 0.5 * u + s

        first, second = k.loop(self.columns, step, start, 1.0)
        return first - 0.3 * second

    def ended(self, depth: int, i: Any, j: Any) -> Any:
        """A loop with per-element exit."""
        return k.loop(4, lambda t, s: s * 0.5 + self.y[i], self.value(depth - 1, i, j) + 4.0,
                      until=lambda t, s: s < self.y[i] + 1.5)

    def skipped(self, depth: int, i: Any, j: Any) -> Any:
        """A root, taken only of positive values."""
        value = self.value(depth - 1, i, j)
        return k.when(value > 0.05, lambda: k.sqrt(value), 0.0)

    def window(self, depth: int, i: Any, j: Any) -> Any:
        """Strided elements, some out of bounds."""
        d = k.range(3)
        at = self.rng.choice((j + d - 1, 2 * j + d, j - 2 * d, (self.columns - 1 - j) + d))
        return k.sum(self.x.load(i, at, valid=(at >= 0) & (at < self.columns)) * (d + 1), over=d)

    def smooth(self, depth: int, i: Any, j: Any) -> Any:
        return k.tanh(self.value(depth - 1, i, j)) * self.value(depth - 1, i, j)


def generated(seed: int) -> tuple[SmoothWriter, Any] | None:
    """Return a kernel as a function of its float arguments, or None if it is rejected."""
    writer = SmoothWriter(seed)
    f = fnx.call(writer, name="generated", out=writer.out)
    x, y, at = writer.inputs()

    def of(x: Any, y: Any) -> Any:
        out = f(x, y, at)
        return out if isinstance(out, tuple) else (out,)

    try:
        of(x, y)
    except fnx.FnxError:
        return None
    return writer, of


def check(seed: int) -> bool:
    """Return whether the kernel of a seed was differentiated (otherwise it was rejected)."""
    with override(x64=True):
        return _check(seed)


def _check(seed: int) -> bool:
    found = generated(seed)
    if found is None:
        return False
    writer, f = found
    x, y, _ = writer.inputs()
    rng = np.random.default_rng(seed)
    dx, dy = rng.standard_normal(x.shape), rng.standard_normal(y.shape)
    step = 1e-6
    up, down = f(x + step * dx, y + step * dy), f(x - step * dx, y - step * dy)
    if not all(np.isfinite(v).all() for v in (*up, *down)):
        return False  # an empty reduction, or an unwritten output
    values, tangents = fnx.jvp(f, (x, y), (dx, dy))
    cts = []
    for value, plain, t, a, b in zip(values, f(x, y), tangents, up, down):
        np.testing.assert_array_equal(value, plain)  # the primal runs the kernel itself
        slope = (np.asarray(a) - np.asarray(b)) / (2 * step)
        np.testing.assert_allclose(t, slope, rtol=1e-4, atol=1e-5)
        cts.append(rng.standard_normal(np.shape(t)))
    outs, pull = fnx.vjp(f, x, y)
    gx, gy = pull(tuple(map(jnp.asarray, cts)))
    for value, plain in zip(outs, values):
        np.testing.assert_array_equal(value, plain)
    want = sum(float((np.asarray(t) * c).sum()) for t, c in zip(tangents, cts))
    got = float((np.asarray(gx) * dx).sum() + (np.asarray(gy) * dy).sum())
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)
    return True


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_both_modes_agree_with_differences(seed: int) -> None:
    check(seed)


def test_many_kernels_are_derived() -> None:
    assert sum(check(seed) for seed in range(8)) >= 3


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(8))
def test_gradients_batch_and_nest(seed: int) -> None:
    with override(x64=True):
        _batch_and_nest(seed)


def _batch_and_nest(seed: int) -> None:
    found = generated(seed)
    if found is None:
        return
    writer, f = found
    x, y, _ = writer.inputs()
    xs = jnp.asarray(np.stack([x, 1.1 * x, -0.3 * x]))

    def loss(x: Any) -> Any:
        return sum((jnp.sin(o).sum() for o in f(x, y)), start=jnp.zeros((), "float64"))

    each = [np.asarray(fnx.grad(loss)(v)) for v in xs]
    np.testing.assert_allclose(fnx.vmap(fnx.grad(loss))(xs), each, rtol=1e-9, atol=1e-12)
    whole = fnx.grad(lambda xs: fnx.vmap(loss)(xs).sum())
    np.testing.assert_allclose(whole(xs), each, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fnx.jit(whole)(xs), each, rtol=1e-9, atol=1e-12)

    def slope(x: Any) -> Any:
        return (fnx.grad(loss)(x) * xs[1]).sum()

    second = fnx.jvp(fnx.grad(loss), (xs[0],), (xs[1],))[1]
    np.testing.assert_allclose(fnx.grad(slope)(xs[0]), second, rtol=1e-7, atol=1e-9)
