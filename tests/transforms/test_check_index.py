"""config.check_index: an out-of-bounds dynamic index is an error with line, index and bound."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import OutOfBoundsError

X = np.arange(5, dtype=np.float32)


@pytest.fixture(params=["cpu", "interp"], autouse=True)
def _checked(request: Any) -> Iterator[None]:
    with override(device=request.param, check_index=True):
        yield


def gather(x: Any, i: Any) -> Any:
    return jnp.asarray(x)[i]


def take(x: Any, i: Any) -> Any:
    return jnp.take(x, i)


def scatter(x: Any, i: Any) -> Any:
    return jnp.asarray(x).at[i].add(1.0)


def rows(x: Any, i: Any) -> Any:
    return jnp.ones((len(x), 2))[i, 1:]


def gradient(x: Any, i: Any) -> Any:
    return fnx.grad(lambda x: (x[i] ** 2).sum())(jnp.asarray(x))


def reads(x: Any, i: Any, o: Any) -> None:
    r = k.range(i.shape[0])
    o[r] = x[i[r]]


def writes(x: Any, i: Any, o: Any) -> None:
    r = k.range(i.shape[0])
    o.combine("add", i[r], x[r])


def sums(x: Any, i: Any, o: Any) -> None:
    r, c = k.range(i.shape[0]), k.range(i.shape[0])
    o[r] = k.sum(x[i[c]], over=c)


PUBLIC = [gather, take, scatter, rows, gradient]
KERNELS = [reads, writes, sums]


def called(f: Callable[..., Any]) -> Any:
    if f not in KERNELS:
        return f
    return fnx.call(f, out=lambda x, i: x if f is writes else
                    fnx.ShapeDtypeStruct(i.shape, x.dtype))


@pytest.mark.cases(12)
@pytest.mark.parametrize("f", PUBLIC + KERNELS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_an_index_outside_is_named(f: Any, jitted: bool) -> None:
    # Equal graphs share one node with the lines of all who made it, so each length is different.
    x = np.arange(5 + 2 * (PUBLIC + KERNELS).index(f) + jitted, dtype="f4")
    run = fnx.jit(called(f)) if jitted else called(f)
    at = jnp.asarray([0, 1, 2], "int32")
    inside = np.asarray(run(x, at))
    with override(check_index=False):
        np.testing.assert_array_equal(np.asarray(fnx.jit(called(f))(x, at)), inside)
    with pytest.raises(OutOfBoundsError, match=f"index < {len(x)} along axis 0, got 77") as e:
        run(x, jnp.asarray([0, 77, 2], "int32"))
    lines, first = inspect.getsourcelines(f)
    assert e.value.loc is not None and e.value.loc[0] == __file__
    assert first <= e.value.loc[1] < first + len(lines)
    np.testing.assert_array_equal(np.asarray(run(x, at)), inside)  # later calls work


def test_indices_from_the_end_are_inside_of_arrays() -> None:
    at = np.array([-1, -5], np.int32)
    np.testing.assert_array_equal(jnp.asarray(X)[jnp.asarray(at)], X[at])
    with pytest.raises(OutOfBoundsError, match="expected -5 <= index < 5 along axis 0, got -6"):
        jnp.asarray(X)[jnp.asarray([-6], "int32")]
    with pytest.raises(OutOfBoundsError, match="x: expected 0 <= index < 5 .* got -1"):
        called(reads)(X, jnp.asarray(at))


def test_what_a_condition_leaves_out_is_no_fault() -> None:
    @fnx.call(out=lambda x, i: fnx.ShapeDtypeStruct(i.shape, x.dtype))
    def some(x: Any, i: Any, o: Any) -> None:
        r = k.range(i.shape[0])
        o[r] = x.load(i[r], valid=i[r] < 5)
    np.testing.assert_array_equal(some(X, jnp.asarray([4, 9], "int32")), [4, 0])
    with pytest.raises(OutOfBoundsError, match="got -1"):
        some(X, jnp.asarray([4, -1], "int32"))


def test_a_schedule_gives_way() -> None:
    @fnx.call(out=lambda x, i: fnx.ShapeDtypeStruct(i.shape, x.dtype),
              schedule=[k.split("r", 4), k.order("ro", "ri"), k.vectorize("ri")])
    def scheduled(x: Any, i: Any, o: Any) -> None:
        r = k.range(i.shape[0], "r")
        o[r] = x[i[r]]
    np.testing.assert_array_equal(scheduled(X, jnp.asarray([4, 0], "int32")), [4, 0])


def test_a_device_that_computes_nothing_finds_nothing() -> None:
    with override(device="null"):
        assert fnx.jit(gather)(X, jnp.asarray([0, 9], "int32")).shape == (2,)


def _one(x: Any, i: Any) -> Any:
    return x[i] * 3.25


def _other(x: Any, i: Any) -> Any:
    return _helper(x, i) * 3.25


def _helper(x: Any, i: Any) -> Any:
    return x[i]


def _line_of(f: Callable[..., Any]) -> int:
    return inspect.getsourcelines(f)[1] + 1


def test_of_functions_with_one_graph_the_one_that_runs_is_named() -> None:
    """Equal graphs are the same nodes and share their programs."""
    x, inside, outside = jnp.asarray(X), jnp.asarray([0, 1]), jnp.asarray([0, 9])
    one, other = fnx.jit(_one), fnx.jit(_other)
    for f in (one, other, one):
        f(x, inside)
    for f, line in ((one, _line_of(_one)), (other, _line_of(_helper)), (one, _line_of(_one))):
        with pytest.raises(OutOfBoundsError) as caught:
            f(x, outside)
        assert caught.value.loc == (__file__, line)
    here = inspect.currentframe()
    assert here is not None
    with pytest.raises(OutOfBoundsError) as caught:
        x[outside] * 3.25
    assert caught.value.loc == (__file__, here.f_lineno - 1)


# ---- in loops, branches and batches ------------------------------------------------------------

ROWS = np.ones((3, 5), np.float32)


def scan(x: Any) -> Any:
    def cell(c: Any, i: Any) -> Any:
        return c + x[i], c
    return lax.scan(cell, 0.0, jnp.asarray([1, 2, 9, 3, 8]))[0]


def backwards(x: Any) -> Any:
    def cell(c: Any, i: Any) -> Any:
        return c + x[i], c * i
    return lax.scan(cell, 0.0, jnp.asarray([1, 2, 9, 3]), reverse=True)[1]


def writes_in_place(x: Any) -> Any:
    def cell(i: Any, x: Any) -> Any:
        return x.at[2 * i].set(1.0)
    return lax.fori_loop(0, 8, cell, x)


def data_says(x: Any) -> Any:
    def cell(s: Any) -> Any:
        return s[0] + 3, s[1] + x[s[0]]
    return lax.while_loop(lambda s: s[0] < 20, cell, (0, x[0]))


def nested(x: Any) -> Any:
    def outer(i: Any, c: Any) -> Any:
        def inner(j: Any, c: Any) -> Any:
            return c + x[i + j]
        return lax.fori_loop(0, 4, inner, c)
    return lax.fori_loop(0, 3, outer, 0.0)


def branch(x: Any) -> Any:
    def cell(i: Any, c: Any) -> Any:
        return lax.cond(i == 6, lambda: x[i], lambda: c)
    return lax.fori_loop(0, 8, cell, 0.0)


def backward(x: Any) -> Any:
    return fnx.grad(scan)(x)


LOOPS = {scan: "got 9 in iteration 2 of cell", backwards: "got 9 in iteration 1 of cell",
         writes_in_place: "got 6 in iteration 3 of cell",
         data_says: "got 6 in iteration 2 of cell",
         nested: "got 5 in iteration 3 of inner in iteration 2 of outer",
         branch: "got 6 in iteration 6 of cell", backward: "got 8 in iteration 0 of cell.backward"}


@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_an_index_inside_of_a_loop(f: Any) -> None:
    with pytest.raises(OutOfBoundsError, match="-5 <= index < 5 along axis 0, " + LOOPS[f]) as e:
        fnx.jit(f)(jnp.asarray(X))
    assert e.value.loc is not None and e.value.loc[0] == __file__
    lines, first = inspect.getsourcelines(nested)
    assert f is not nested or first <= e.value.loc[1] < first + len(lines)


@pytest.mark.parametrize("f", [scan, nested, branch, data_says], ids=lambda f: f.__name__)
def test_loops_whose_indices_are_inside_are_the_same(f: Any) -> None:
    x = jnp.asarray(np.arange(30, dtype=np.float32))
    checked = fnx.jit(f)(x)
    with override(check_index=False):
        for a, b in zip(fnx.tree.leaves(checked), fnx.tree.leaves(fnx.jit(f)(x))):
            np.testing.assert_array_equal(a, b)


def test_axes_of_lanes_are_the_users() -> None:
    at = jnp.asarray([1, 7, 2])
    for f, what in ((lambda x, i: x[i], "read"), (lambda x, i: x.at[i].set(1.0), "write")):
        with pytest.raises(OutOfBoundsError, match=f"{what}: .* index < 5 along axis 0, got 7"):
            fnx.jit(fnx.vmap(f))(jnp.asarray(ROWS), at)
    with pytest.raises(OutOfBoundsError, match="index < 5 along axis 0, got 5 in iteration 1 of"):
        fnx.jit(fnx.vmap(lambda x, i: lax.fori_loop(0, 3, lambda k, c: c + x[i + k], 0.0)))(
            jnp.asarray(ROWS), jnp.asarray([1, 4, 2]))
