"""vmap of user-written kernels: one more range, with and without a schedule."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import OutOfBoundsError, SpecError
from tests.laws.test_user_written_kernels import Writer
from tests.transforms.test_vmap import rows


@fnx.call(out=lambda a, x, y: x)
def saxpy(a: Any, x: Any, y: Any, o: Any) -> None:
    i = k.range(o.shape[0], "i")
    o[i] = a[()] * x[i] + y[i]


TILED = [k.split("m", 4), k.split("n", 8), k.order("mo", "no", "k", "mi", "ni"), k.unroll("mi"),
         k.vectorize("ni"), k.parallel("mo"), k.stage("w", at="no")]


def matmul(schedule: Any) -> Any:
    @fnx.call(out=lambda x, w: fnx.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype),
              schedule=schedule)
    def product(x: Any, w: Any, o: Any) -> None:
        m, n = k.range(o.shape[0], "m"), k.range(o.shape[1], "n")
        kk = k.range(x.shape[1], "k")
        o[m, n] = k.sum(x[m, kk] * w[kk, n], over=kk)
    return product


@fnx.call(out=lambda i, w: fnx.ShapeDtypeStruct((5,), w.dtype))
def histogram(i: Any, w: Any, o: Any) -> None:
    r = k.range(i.shape[0])
    o.combine("add", i[r], w[r])


@pytest.mark.parametrize("axes", [(0, 0, 0), (None, 0, 0), (0, None, 0), (0, None, None),
                                  (None, 1, None)], ids=repr)
def test_batched_and_unbatched_operands(axes: Any) -> None:
    args = [rows(*((3,) if axis == 0 else ()), *shape, *((3,) if axis == 1 else ()), seed=i)
            for i, (axis, shape) in enumerate(zip(axes, [(), (7,), (7,)]))]
    want = fnx.vmap(lambda a, x, y: a * x + y, in_axes=axes)(*args)
    for device in ("cpu", "interp"):
        with override(device=device):
            got = fnx.vmap(saxpy, in_axes=axes)(*args)
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


@pytest.mark.cases(7)
@pytest.mark.parametrize("schedule", [None, TILED, TILED[:2], [k.parallel("m")],
                                      [k.split("m", 4), k.parallel("mo"), k.vectorize("n")]])
@pytest.mark.parametrize("sizes", [(1, 5, 8, 16), (3, 9, 16, 24), (2, 4, 7, 8)])
def test_under_a_schedule(schedule: Any, sizes: tuple[int, ...]) -> None:
    batch, m, kk, n = sizes
    f = matmul(schedule)
    x, w = rows(batch, m, kk), rows(batch, kk, n, seed=1)
    want = np.asarray(x) @ np.asarray(w)
    np.testing.assert_allclose(fnx.vmap(f)(x, w), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(f, in_axes=(0, None)))(x, w[0]),
                               np.asarray(x) @ np.asarray(w[0]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fnx.vmap(f, in_axes=(None, 0))(x[0], w),
                               np.asarray(x[0]) @ np.asarray(w), rtol=1e-4, atol=1e-5)


def test_of_a_vmap_of_a_vmap() -> None:
    x, w = rows(2, 3, 4, 5), rows(3, 5, 8, seed=1)
    got = fnx.vmap(fnx.vmap(matmul(TILED)), in_axes=(0, None))(x, w)
    np.testing.assert_allclose(got, np.asarray(x) @ np.asarray(w), rtol=1e-4, atol=1e-5)


def test_places_that_are_data_are_each_lanes_own() -> None:
    i = jnp.asarray(np.random.default_rng(0).integers(-1, 6, (4, 20)))
    w = rows(4, 20)
    want = [np.bincount(a[(a >= 0) & (a < 5)], b[(a >= 0) & (a < 5)], 5)
            for a, b in zip(np.asarray(i), np.asarray(w))]
    np.testing.assert_allclose(fnx.vmap(histogram)(i, w), want, rtol=1e-5, atol=1e-5)


def test_faults_of_indices_are_found() -> None:
    i = jnp.asarray([[0, 1], [2, 7]])
    with override(check_index=True):
        with pytest.raises(OutOfBoundsError, match="got 7"):
            fnx.vmap(histogram)(i, jnp.ones((2, 2)))
        fnx.vmap(histogram)(i % 5, jnp.ones((2, 2)))


def test_no_lanes() -> None:
    got = fnx.vmap(matmul(None))(jnp.ones((0, 2, 3)), jnp.ones((0, 3, 4)))
    assert got.shape == (0, 2, 4)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_random_kernels_are_the_stacked_loop(seed: int, batch: int) -> None:
    """On integers and small floats, so that sums are exact; on the interpreter and compiled."""
    writer, choice = Writer(seed), random.Random(seed)
    f = fnx.call(out=writer.out, name="random")(writer)
    rng = np.random.default_rng(seed)
    axes = [choice.choice((0, None)) for _ in range(3)]
    axes[choice.randrange(3)] = 0
    args = [rng.permuted(np.stack([x] * batch), axis=1) if a == 0 else x
            for x, a in zip(writer.inputs(), axes)]
    try:
        want = [f(*[x[lane] if a == 0 else x for x, a in zip(args, axes)])
                for lane in range(batch)]
    except (fnx.FnxError, SpecError):
        return
    for device in ("cpu", "interp"):
        with override(device=device):
            got = fnx.vmap(f, in_axes=tuple(axes))(*args)
        for g, *w in zip(fnx.tree.leaves(got), *map(fnx.tree.leaves, want)):
            np.testing.assert_array_equal(np.asarray(g), np.stack(w))


# ---- loops with carried values ------------------------------------------------------------------


@fnx.call(out=lambda x: x)
def running(x: Any, o: Any) -> None:
    def step(i: Any, total: Any) -> Any:
        o[i] = total + x[i]
        return total + x[i]

    k.loop(x.shape[0], step, 0.0)


@fnx.call(out=lambda x, limit: fnx.ShapeDtypeStruct((x.shape[0],), "int32"))
def escapes(x: Any, limit: Any, o: Any) -> None:
    """Return how often each element is squared before it exceeds a limit."""
    i = k.range(x.shape[0], "i")
    count, _ = k.loop(20, lambda t, n, z: (n + 1, z * z + x[i]), 0, 0.0,
                      until=lambda t, n, z: z > limit[()])
    o[i] = count


@pytest.mark.parametrize("f", [running, lambda x: escapes(x, 2.0)], ids=["running", "escapes"])
def test_loops_with_carried_values(f: Any) -> None:
    x = jnp.abs(rows(3, 6))
    want = np.stack([np.asarray(f(row)) for row in x])
    for device in ("cpu", "interp"):
        with override(device=device):
            np.testing.assert_allclose(fnx.vmap(f)(x), want, rtol=1e-5)
            np.testing.assert_allclose(fnx.vmap(fnx.vmap(f), 1)(x[:, None]), want[None], rtol=1e-5)


def test_a_limit_of_each_lane() -> None:
    x, limits = jnp.asarray([0.3, 0.6, 1.0]), jnp.asarray([2.0, 50.0])
    got = fnx.vmap(escapes, in_axes=(None, 0))(x, limits)
    np.testing.assert_array_equal(got, np.stack([escapes(x, limit) for limit in limits]))
