"""Collectives over named axes: under other transforms, in nested vmaps, in keys, in errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, AxisNameError, ShapeError, TracedValueError
from tests.helpers import assert_near
from tests.transforms.test_vmap import refused, rows

SIZE = 4
GROUPS = [[0, 2], [1, 3]]

# x (4, 3) per batch element -> an array of its shape
COLLECTIVES: dict[str, Callable[[Any], Any]] = {
    "psum": lambda x: lax.psum(x, "i"),
    "psum in groups": lambda x: lax.psum(x, "i", axis_index_groups=GROUPS),
    "pmean": lambda x: lax.pmean(x, "i"),
    "pmax": lambda x: lax.pmax(x, "i"),
    "pmin": lambda x: lax.pmin(x, "i"),
    "all_gather": lambda x: lax.all_gather(x[0], "i"),
    "all_gather in groups": lambda x: lax.all_gather(x[:2], "i", tiled=True,
                                                     axis_index_groups=GROUPS),
    "ppermute": lambda x: lax.ppermute(x, "i", [(0, 1), (3, 0), (2, 2)]),
    "pbroadcast": lambda x: lax.pbroadcast(x, "i", 2),
    "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0),
    "psum_scatter": lambda x: lax.psum_scatter(x, "i") + x,
    "axis_index": lambda x: x * lax.axis_index("i"),
}


def of_all(name: str, x: Any) -> Any:
    """Return the result of a collective for the whole batch, in NumPy."""
    group = np.asarray([[0, 2], [1, 3], [0, 2], [1, 3]])
    batch = np.arange(SIZE)
    made = {
        "psum": lambda: x.sum(0)[None].repeat(SIZE, 0),
        "psum in groups": lambda: x[group].sum(1),
        "pmean": lambda: x.mean(0)[None].repeat(SIZE, 0),
        "pmax": lambda: x.max(0)[None].repeat(SIZE, 0),
        "pmin": lambda: x.min(0)[None].repeat(SIZE, 0),
        "all_gather": lambda: x[:, 0][None].repeat(SIZE, 0),
        "all_gather in groups": lambda: x[group][:, :, :2].reshape(SIZE, 4, 3),
        "ppermute": lambda: np.stack([x[3], x[0], x[2], 0 * x[0]]),
        "pbroadcast": lambda: x[2][None].repeat(SIZE, 0),
        "all_to_all": lambda: x.swapaxes(0, 1),
        "psum_scatter": lambda: x.sum(0)[batch][:, None] + x,
        "axis_index": lambda: x * batch[:, None, None],
    }
    return made[name]()


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_values(name: str) -> None:
    x = rows(SIZE, 4, 3)
    f = fnx.vmap(COLLECTIVES[name], axis_name="i")
    want = jnp.asarray(of_all(name, np.asarray(x)).astype(np.float32))
    assert_near(f(x), want)
    assert_near(fnx.jit(f)(x), want)
    assert_near(fnx.vmap(fnx.jit(COLLECTIVES[name]), axis_name="i")(x), want)


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_another_vmap_around_or_inside(name: str) -> None:
    xs = rows(2, SIZE, 4, 3)
    f = COLLECTIVES[name]
    want = jnp.stack([fnx.vmap(f, axis_name="i")(x) for x in xs])
    assert_near(fnx.vmap(fnx.vmap(f, axis_name="i"))(xs), want)
    assert_near(fnx.vmap(fnx.vmap(f, axis_name="i"), axis_name="j")(xs), want)
    assert_near(fnx.vmap(fnx.vmap(f), in_axes=1, out_axes=1, axis_name="i")(xs), want)
    inner = fnx.vmap(f, axis_name="i", in_axes=1, out_axes=1)
    assert_near(fnx.vmap(inner, in_axes=-1, out_axes=-1)(
        jnp.moveaxis(xs, 0, -1).swapaxes(0, 1)), jnp.moveaxis(want, 0, -1).swapaxes(0, 1))


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_derivatives_inside_and_outside(name: str) -> None:
    """Inside vmap, each element differentiates the sum of all elements' results with respect to its
    own x."""
    f, x, t = COLLECTIVES[name], rows(SIZE, 4, 3), rows(SIZE, 4, 3, seed=1)
    w = rows(SIZE, 4, 3, seed=2)

    def of_lane(x: Any, w: Any) -> Any:
        return (jnp.sin(f(x * x)) * w).sum()

    def of_all_lanes(x: Any) -> Any:
        return fnx.vmap(of_lane, axis_name="i")(x, w).sum()

    outside = fnx.grad(of_all_lanes)(x)
    assert_near(fnx.vmap(fnx.grad(of_lane), axis_name="i")(x, w), outside)
    _, along = fnx.jvp(of_all_lanes, (x,), (t,))
    np.testing.assert_allclose(along, (outside * t).sum(), rtol=1e-4, atol=1e-4)
    _, batch = fnx.vmap(lambda x, w, t: fnx.jvp(lambda x: of_lane(x, w), (x,), (t,)),
                        axis_name="i")(x, w, t)
    np.testing.assert_allclose(batch.sum(), along, rtol=1e-4, atol=1e-4)


def test_second_derivatives() -> None:
    x = rows(3, 2)

    def f(x: Any) -> Any:
        return (lax.psum(x ** 3, "i") * x).sum()

    def whole(x: Any) -> Any:
        return ((x ** 3).sum(0) * x).sum()

    inside = fnx.vmap(fnx.grad(lambda x: (fnx.grad(f)(x) * jnp.cos(x)).sum()), axis_name="i")(x)
    assert_near(inside, fnx.grad(lambda x: (fnx.grad(whole)(x) * jnp.cos(x)).sum())(x))


@pytest.mark.parametrize("name", [n for n in COLLECTIVES if "groups" not in n and n not in (
    "ppermute", "pbroadcast", "all_gather")])
def test_no_lanes(name: str) -> None:
    assert fnx.vmap(COLLECTIVES[name], axis_name="i")(jnp.ones((0, 0, 3))).shape[0] == 0
    assert fnx.vmap(lambda x: lax.ppermute(x, "i", []), axis_name="i")(jnp.ones((0, 2))).shape == (
        0, 2)
    assert fnx.vmap(lambda x: lax.psum_scatter(x, "i", tiled=True), axis_name="i")(
        jnp.ones((0, 0, 2))).shape[0] == 0


# ---- names --------------------------------------------------------------------------------------


def test_several_names_in_a_tuple() -> None:
    x = rows(2, 3)

    def f(x: Any) -> Any:
        return (lax.psum(x, ("i", "j")), lax.axis_index(("i", "j")), lax.axis_size(("j", "i")),
                lax.all_gather(x, ("j", "i")), lax.ppermute(x, ("i", "j"), [(5, 0), (0, 5)]))

    total, number, size, gathered, sent = fnx.vmap(fnx.vmap(f, axis_name="j"), axis_name="i")(x)
    assert_near(total, jnp.full((2, 3), x.sum()))
    assert_near(number, jnp.arange(6).reshape(2, 3))
    assert int(size[0, 0]) == 6
    assert_near(gathered[1, 2], x.T.reshape(-1))
    assert_near(sent, jnp.asarray([[x[1, 2], 0, 0], [0, 0, x[0, 0]]]))


def test_a_name_that_is_given_again_is_another_axis() -> None:
    """Values made over the outer axis keep referring to it inside the inner vmap."""
    x = rows(2, 3)

    def outer(row: Any) -> Any:
        k, total = lax.axis_index("i"), lax.psum(row, "i").sum()
        return fnx.vmap(lambda y: (k * 10 + lax.axis_index("i"), lax.psum(y, "i"), total + y * 0),
                        axis_name="i")(row)

    number, row_sums, totals = fnx.vmap(outer, axis_name="i")(x)
    assert_near(number, jnp.asarray([[0, 1, 2], [10, 11, 12]]))
    assert_near(row_sums, jnp.broadcast_to(x.sum(1)[:, None], (2, 3)))
    assert_near(totals, jnp.full((2, 3), x.sum()))


def test_names_are_any_hashable_values() -> None:
    key = object()
    assert_near(fnx.vmap(lambda x: lax.psum(x, key), axis_name=key)(jnp.ones(3)), jnp.full(3, 3.0))


def test_numbers_are_known() -> None:
    def f(x: Any) -> Any:
        assert type(lax.psum(1, "i")) is int and lax.psum(2.5, "i") == 7.5
        return jnp.ones(lax.psum(1, "i") + lax.axis_size("i"))

    assert fnx.vmap(f, axis_name="i")(jnp.ones(3)).shape == (3, 6)


# ---- keys ---------------------------------------------------------------------------------------


def test_a_jitted_function_is_traced_for_each_size_and_axis() -> None:
    f = fnx.jit(lambda x: x / lax.psum(1, "i") + lax.axis_index("i"))
    for n in (2, 4, 2):
        assert_near(fnx.vmap(f, axis_name="i")(jnp.ones(n)), 1 / n + jnp.arange(n, dtype="float32"))
    assert f.cache_info().traces == 2
    assert_near(fnx.vmap(fnx.vmap(f, axis_name="i"), axis_name="i")(jnp.ones((2, 2))),
         jnp.asarray([[0.5, 1.5]] * 2))
    with pytest.raises(AxisNameError):
        f(jnp.ones(2))
    assert not scope.open_axes()


def test_bodies_of_loops_and_calls_are_traced_for_each_size() -> None:
    def step(c: Any, x: Any) -> Any:
        return c + lax.psum(x, "i") / lax.psum(1, "i"), lax.axis_index("i")

    boundary = fnx.call(lambda x: lax.psum(x, "i"))
    for n in (2, 3):
        x = rows(n, 5)
        last, index = fnx.vmap(lambda x: lax.scan(step, 0.0, x), axis_name="i")(x)
        assert_near(last, jnp.full(n, x.mean(0).sum()))
        assert_near(index, jnp.broadcast_to(jnp.arange(n)[:, None], (n, 5)))
        assert_near(fnx.vmap(boundary, axis_name="i")(x)[0], x.sum(0))


def test_inside_branches_and_loops() -> None:
    x = rows(4)

    def f(x: Any) -> Any:
        y = lax.cond(lax.axis_size("i") > 3, lambda x: lax.psum(x, "i"), lambda x: x, x)
        return lax.fori_loop(0, 3, lambda i, c: c + lax.pmean(y, "i") * lax.axis_index("i"), y)

    assert_near(fnx.vmap(f, axis_name="i")(x), x.sum() * (1 + 3 * jnp.arange(4)))
    assert_near(fnx.jit(fnx.vmap(f, axis_name="i"))(x), x.sum() * (1 + 3 * jnp.arange(4)))


# ---- bad input --------------------------------------------------------------------------------


def test_an_unknown_name() -> None:
    def f(x: Any) -> Any:
        return lax.psum(x, "k")

    refused(AxisNameError, lambda: f(1.0), "'k'", "none", "axis_name='k'")
    refused(AxisNameError, lambda: fnx.vmap(fnx.vmap(f, axis_name="j"), axis_name="i")(
        jnp.ones((2, 2))), "'j' of vmap of f", "'i' of vmap of vmap(f)", "test_collectives.py:")
    with pytest.raises(NameError):
        lax.axis_index("i")


def test_groups_that_are_none() -> None:
    for groups in ([[0, 1], [2]], [[0, 1], [1, 2]], [[0, 1, 2]], []):
        refused(ArgumentError, lambda: fnx.vmap(
            lambda x: lax.psum(x, "i", axis_index_groups=groups), axis_name="i")(jnp.ones(4)),
            "axis_index_groups", "4 axis indices")


def test_permutations_that_are_none() -> None:
    for perm in ([(0, 1), (0, 2)], [(0, 1), (2, 1)], [(0, 9)], [(-1, 0)]):
        refused(ArgumentError, lambda: fnx.vmap(lambda x: lax.ppermute(x, "i", perm),
                                                axis_name="i")(jnp.ones(4)), "4 axis indices")
    refused(ArgumentError, lambda: fnx.vmap(lambda x: lax.pshuffle(x, "i", [0, 1, 1, 2]),
                                            axis_name="i")(jnp.ones(4)), "4 axis indices")
    refused(ArgumentError, lambda: fnx.vmap(lambda x: lax.pbroadcast(x, "i", 4),
                                            axis_name="i")(jnp.ones(4)), "4 axis indices")


def test_axes_that_are_not_as_long_as_there_are_lanes() -> None:
    for f in (lambda x: lax.all_to_all(x, "i", 0, 0), lambda x: lax.psum_scatter(x, "i"),
              lambda x: lax.psum_scatter(x, "i", tiled=True)):
        refused(ShapeError, lambda: fnx.vmap(f, axis_name="i")(jnp.ones((4, 3))),
                "float32[3]", "4 elements")


def test_the_number_of_a_lane_has_no_value() -> None:
    refused(TracedValueError, lambda: fnx.vmap(
        lambda x: x if lax.axis_index("i") > 0 else -x, axis_name="i")(jnp.ones(3)), "'i'")


# ---- inside functions with bodies of their own -------------------------------------------------


def _with_jvp(f: Any) -> Any:
    g = fnx.custom_jvp(f)
    g.defjvp(lambda xs, ts: fnx.jvp(f, xs, ts))
    return g


def _with_vjp(f: Any) -> Any:
    g = fnx.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (fnx.vjp(f, x)[1](ct)[0],))
    return g


AROUND: dict[str, Callable[[Any], Any]] = {
    "jit": fnx.jit, "call": fnx.call, "checkpoint": fnx.checkpoint, "custom_jvp": _with_jvp,
    "custom_vjp": _with_vjp,
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0],
    "scan of rows": lambda f: lambda x: lax.scan(lambda c, r: (c, f(r)), 0.0, x[None])[1][0],
    "while": lambda f: lambda x: lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, f(s[1])),
                                                (0, x))[1],
    "cond": lambda f: lambda x: lax.cond(lax.axis_size("i") > 1, f, lambda x: x, x),
    "vjp": lambda f: lambda x: fnx.vjp(lambda x: jnp.cos(x).sum(), x)[1](1.0)[0] + f(x),
    "linearize": lambda f: lambda x: fnx.linearize(lambda x: x * 2, x)[1](f(x)) / 2,
    "vmap": lambda f: lambda x: fnx.vmap(f)(jnp.stack([x, x]))[1],
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", AROUND)
def test_inside_bodies_for_several_sizes_and_in_derivatives(name: str) -> None:
    def f(x: Any) -> Any:
        return lax.psum(jnp.sin(x), "i") * x + lax.axis_index("i") * lax.ppermute(
            x, "i", [(0, 1), (1, 0)])

    g = AROUND[name](f)
    shift = (lambda x: -jnp.sin(x)) if name == "vjp" else (lambda x: 0 * x)
    for n in (2, 3, 2):
        x = rows(n, 2, seed=n)
        plain = fnx.vmap(lambda x: f(x) + shift(x), axis_name="i")
        inside = fnx.vmap(g, axis_name="i")
        assert_near(inside(x), plain(x))
        assert_near(fnx.jit(inside)(x), plain(x))
        assert_near(fnx.grad(lambda x: (inside(x) ** 2).sum())(x),
             fnx.grad(lambda x: (plain(x) ** 2).sum())(x))
        slopes = fnx.vmap(fnx.grad(lambda x: (g(x) ** 2).sum()), axis_name="i")(x)
        assert_near(slopes, fnx.vmap(fnx.grad(lambda x: ((f(x) + shift(x)) ** 2).sum()),
                                     axis_name="i")(x))
