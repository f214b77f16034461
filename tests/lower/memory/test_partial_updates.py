"""An update costs what it writes, for every axis, spelling, loop and location of the array.

A step of a loop, and a call that is given its array, run kernels over no more than is written; a
gradient adds only where the array was read. Values are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import accessors, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.config import override

SHAPE = (17, 20, 18, 19)  # longer than what a loop keeps in registers
STEPS = 5


def iterations(kernel: UOp) -> int:
    """Return how often the innermost statement of a kernel runs."""
    ranges = [n for n in toposort([kernel]) if n.op is ops.RANGE]
    return math.prod([accessors.extent(r).arg for r in ranges])


def kernels(commands: UOp) -> list[UOp]:
    return [e.src[0] for e in accessors.all_execs(commands) if e.src[0].op is ops.KERNEL]


def most_in_a_step(f: Any, *args: Any) -> int:
    """Return the iterations of the largest kernel inside loops."""
    found = fnx.jit(f).lower(*args).commands
    loops = [n for n in toposort([found]) if n.op is ops.CMD_LOOP]
    return max([iterations(k) for loop in loops for body in loop.src for k in kernels(body)],
               default=0)  # the loop is one kernel


def most_when_given(f: Any, *args: Any) -> int:
    """Return the iterations of the largest kernel of a call that donates its first argument."""
    return max(map(iterations, kernels(fnx.jit(f, donate_argnums=0).lower(*args).commands)))


# ---- spellings: (x, i, update) -> x, with an update for x[index(i)] ------------------------------


def index(axes: Sequence[int], rank: int, i: Any) -> tuple[Any, ...]:
    return tuple([(i + a) % SHAPE[a] if a in axes else slice(None) for a in range(rank)])


def by_slice(axes: Sequence[int]) -> Callable[..., Any]:
    def update(x: Any, i: Any, v: Any) -> Any:
        starts = [(i + a) % x.shape[a] if a in axes else 0 for a in range(x.ndim)]
        return lax.dynamic_update_slice(x, jnp.expand_dims(v, tuple(axes)), starts)
    return update


def by_at(method: str) -> Callable[[Sequence[int]], Callable[..., Any]]:
    return lambda axes: lambda x, i, v: getattr(x.at[index(axes, x.ndim, i)], method)(v)


def by_scatter(axes: Sequence[int]) -> Callable[..., Any]:
    def update(x: Any, i: Any, v: Any) -> Any:
        numbers = lax.ScatterDimensionNumbers(tuple(range(v.ndim)), tuple(axes), tuple(axes))
        at = jnp.stack([(i + a) % x.shape[a] for a in axes])
        return lax.scatter(x, at, v, numbers)
    return update


def by_index_in_dim(axes: Sequence[int]) -> Callable[..., Any]:
    def update(x: Any, i: Any, v: Any) -> Any:
        if len(axes) > 1:
            return by_slice(axes)(x, i, v)
        a, = axes
        return lax.dynamic_update_index_in_dim(x, v, (i + a) % x.shape[a], a)
    return update


SPELLINGS: dict[str, tuple[Callable[[Sequence[int]], Callable[..., Any]], Any]] = {
    "dynamic_update_slice": (by_slice, None), "at.set": (by_at("set"), None),
    "at.add": (by_at("add"), np.add), "at.multiply": (by_at("multiply"), np.multiply),
    "at.max": (by_at("max"), np.maximum), "scatter": (by_scatter, None),
    "dynamic_update_index_in_dim": (by_index_in_dim, None)}


def in_fori(step: Callable[..., Any], x: Any, v: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda i, x: step(x, i, v * (i + 1)), x)


def in_scan(step: Callable[..., Any], x: Any, v: Any) -> Any:
    return lax.scan(lambda x, i: (step(x, i, v * (i + 1)), i), x, jnp.arange(STEPS))[0]


def in_while(step: Callable[..., Any], x: Any, v: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < STEPS,
                          lambda s: (s[0] + 1, step(s[1], s[0], v * (s[0] + 1))), (0, x))[1]


def in_dict(step: Callable[..., Any], x: Any, v: Any) -> Any:
    def body(i: Any, c: Any) -> Any:
        return {"k": step(c["k"], i, v * (i + 1)), "v": (c["v"][0] + 1, step(c["v"][1], i, v))}
    return lax.fori_loop(0, STEPS, body, {"k": x, "v": (0, x)})["k"]


LOOPS = {"fori": in_fori, "scan": in_scan, "while": in_while, "dict": in_dict}


def wanted(x: Any, v: Any, axes: Sequence[int], ufunc: Any, steps: Iterable[int]) -> Any:
    x = x.copy()
    for i in steps:
        at = index(axes, x.ndim, i)
        new = v * np.float32(i + 1)
        x[at] = new if ufunc is None else ufunc(x[at], new)
    return x


def draw(seed: int, rank: int, axes: Sequence[int]) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    shape = SHAPE[:rank]
    rest = [n for a, n in enumerate(shape) if a not in axes]
    x, update = (rng.integers(-4, 5, s).astype(np.float32) for s in (shape, rest))
    return x, update


@st.composite
def places(d: Any) -> tuple[int, list[int]]:
    rank = d(st.integers(1, 4))
    return rank, sorted(d(st.sets(st.integers(0, rank - 1), min_size=1)))


@pytest.mark.cases(6)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("spelling", SPELLINGS)
@settings(max_examples=4, deadline=None)
@given(place=places(), seed=st.integers(0, 99))
def test_in_a_loop(spelling: str, loop: str, place: tuple[int, list[int]], seed: int) -> None:
    (rank, axes), (make, ufunc) = place, SPELLINGS[spelling]
    x, v = draw(seed, rank, axes)
    step, run = make(axes), LOOPS[loop]
    got = fnx.jit(lambda x, v: run(step, x, v))(x, v)
    np.testing.assert_array_equal(got, wanted(x, v, axes, ufunc, range(STEPS)))
    if x.size > 500:  # smaller ones may be a kernel of scalars
        assert most_in_a_step(lambda x, v: run(step, x, v), x, v) <= 2 * v.size + 64


@pytest.mark.cases(3)
@pytest.mark.parametrize("spelling", SPELLINGS)
@settings(max_examples=8, deadline=None)
@given(place=places(), seed=st.integers(0, 99))
def test_when_given(spelling: str, place: tuple[int, list[int]], seed: int) -> None:
    (rank, axes), (make, ufunc) = place, SPELLINGS[spelling]
    x, v = draw(seed, rank, axes)
    step = make(axes)
    i = np.int32(3)
    want = wanted(x, v, axes, ufunc, [3])
    for device in ("cpu", "interp"):
        with override(device=device):
            got = fnx.jit(lambda x, i, v: step(x, i, v * 4), donate_argnums=0)(jnp.array(x), i, v)
            np.testing.assert_array_equal(got, want)
    assert most_when_given(lambda x, i, v: step(x, i, v * 4), x, i, v) <= 2 * v.size + 64


# ---- several updates in a step -------------------------------------------------------------------

X = np.arange(40 * 60, dtype=np.float32).reshape(40, 60)
COLUMN, ROW = X[:, 0] * 2, X[0] * 3

STEPS_OF: dict[str, tuple[Callable[..., Any], Callable[[Any, int], object]]] = {
    "a static column": (lambda x, i: x.at[:, 3].set(COLUMN * (i + 1)),
                        lambda x, i: x.__setitem__((slice(None), 3), COLUMN * (i + 1))),
    "a static block": (lambda x, i: x.at[3:5, -4:].add(1.0),
                       lambda x, i: x.__setitem__((slice(3, 5), slice(-4, None)), x[3:5, -4:] + 1)),
    "two updates": (lambda x, i: x.at[:, i].set(COLUMN).at[i].add(ROW),
                    lambda x, i: (x.__setitem__((slice(None), i), COLUMN),
                                  x.__setitem__(i, x[i] + ROW))),
    "a column from another": (lambda x, i: x.at[:, i].set(x[:, i + 1] * 2),
                              lambda x, i: x.__setitem__((slice(None), i), x[:, i + 1] * 2)),
    "rows swapped": (
        lambda x, i: x.at[jnp.stack([i, i + 3])].set(x[jnp.stack([i + 3, i])]),
        lambda x, i: x.__setitem__([i, i + 3], x[[i + 3, i]])),
    "a part of a column": (lambda x, i: x.at[5:30:2, i].set(x[6:31:2, i]),
                           lambda x, i: x.__setitem__((slice(5, 30, 2), i), x[6:31:2, i])),
    "a window": (lambda x, i: lax.dynamic_update_slice(
        x, lax.dynamic_slice(x, (i, 2 * i), (4, 5)) + 1, (3 * i, i)),
        lambda x, i: x.__setitem__((slice(3 * i, 3 * i + 4), slice(i, i + 5)),
                                   x[i:i + 4, 2 * i:2 * i + 5] + 1)),
    "a normed column": (
        lambda x, i: x.at[:, i].set(x[:, i] / jnp.max(x[:, i])),
        lambda x, i: x.__setitem__((slice(None), i), x[:, i] / x[:, i].max())),
}


@pytest.mark.parametrize("name", STEPS_OF)
def test_what_a_step_reads_and_writes(name: str) -> None:
    step, on_numpy = STEPS_OF[name]

    def loop(x: Any) -> Any:
        return lax.fori_loop(0, STEPS, lambda i, x: step(x, i), x)

    want = X.copy()
    for i in range(STEPS):
        on_numpy(want, i)
    for device in ("cpu", "interp"):
        with override(device=device):
            np.testing.assert_array_equal(fnx.jit(loop)(X), want)
    assert most_in_a_step(loop, X) <= 2 * 60 + 64
    once = X.copy()
    on_numpy(once, 2)
    got = fnx.jit(step, donate_argnums=0)(jnp.array(X), np.int32(2))
    np.testing.assert_array_equal(got, once)
    assert most_when_given(step, X, np.int32(2)) <= 2 * 60 + 64


def test_lanes_write_their_rows() -> None:
    """Under vmap, with indices per batch element and shared ones."""
    x, v = np.zeros((7, 20, 30), np.float32), np.ones((7, 20), np.float32)
    own = np.arange(7, dtype=np.int32)
    for at, axis in ((own, 0), (np.int32(4), None)):
        def step(x: Any, at: Any, axis: Any = axis) -> Any:
            return fnx.vmap(lambda x, i, v: x.at[:, i].set(v), in_axes=(0, axis, 0))(x, at, v)
        want = x.copy()
        for lane in range(7):
            want[lane, :, own[lane] if axis == 0 else 4] = 1
        np.testing.assert_array_equal(fnx.jit(step, donate_argnums=0)(jnp.array(x), at), want)
        assert most_when_given(step, x, at) <= 2 * v.size


@pytest.mark.cases(4)
@pytest.mark.parametrize("read", [
    lambda x, i: lax.dynamic_slice(x, (0, i), (40, 3)), lambda x, i: x[:, i],
    lambda x, i: x[4:30, i], lambda x, i: jnp.take(x, jnp.stack([i, i + 2]), axis=1),
    lambda x, i: lax.dynamic_index_in_dim(x, i, 1)])
def test_a_gradient_adds_where_was_read(read: Callable[..., Any]) -> None:
    def loss(x: Any) -> Any:
        return lax.scan(lambda s, i: (s + (read(x, i) ** 2).sum(), None), 0.0, jnp.arange(9))[0]

    want = np.zeros_like(X)
    for i in range(9):
        want += np.asarray(fnx.grad(lambda x, i=i: (read(x, i) ** 2).sum())(X))
    np.testing.assert_array_equal(fnx.jit(fnx.grad(loss))(X), want)
    assert most_in_a_step(fnx.grad(loss), X) <= 2 * 3 * 40


@pytest.mark.parametrize("read", [
    lambda x, i: x[:, i], lambda x, i: x.T[i], lambda x, i: x[::-1, i], lambda x, i: x[3:9, i],
    lambda x, i: jnp.take(x, i, axis=1), lambda x, i: jnp.moveaxis(x, 1, 0)[i, 2:7],
    lambda x, i: jnp.take_along_axis(x, jnp.broadcast_to(i, (40, len(i))), axis=1)])
def test_what_is_read_along_inner_axes_is_not_copied(read: Callable[..., Any]) -> None:
    i = np.array([3, 59, 7], np.int32)
    assert fnx.jit(read).lower(X, i).arena <= 64  # for the bounds checks
    np.testing.assert_array_equal(fnx.jit(read)(X, i), read(jnp.asarray(X), i))


def test_windows_at_data_have_lanes_and_no_conditions() -> None:
    x, v = np.zeros((256, 256), np.float32), np.ones((64, 64), np.float32)
    lowered = fnx.jit(lambda x, v, i, j: lax.dynamic_update_slice(x, v, (i, j)),
                      donate_argnums=0).lower(x, v, np.int32(1), np.int32(2))
    kernel, = kernels(lowered.commands)
    store, = kernel.src
    assert len(store.src) == 2 and "vectorize" in lowered.text("schedules")
