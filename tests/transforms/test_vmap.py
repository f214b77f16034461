"""vmap: its signature, its axes, and equality with the stacked loop under all other transforms."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import (
    ArgumentError,
    AxisError,
    PytreeError,
    ShapeError,
    TracedValueError,
)
from tests.helpers import assert_near


def rows(*shape: int, seed: int = 0) -> fnx.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def stacked(f: Callable[..., Any], *xs: Any) -> Any:
    """The loop over axis 0 of all arguments."""
    size = fnx.tree.leaves(xs)[0].shape[0]
    outs = [f(*fnx.tree.map(lambda x: x[i], xs)) for i in range(size)]
    return fnx.tree.map(lambda *ys: jnp.stack(ys), *outs)


# ---- axes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("out", [0, 1, 2, -1, -2, -3])
def test_axes_of_arguments_and_results(axis: int, out: int) -> None:
    x = rows(3, 4, 5)
    got = fnx.vmap(lambda v: v * 2 + 1, in_axes=axis, out_axes=out)(x)
    assert_near(got, jnp.moveaxis(x, axis, out) * 2 + 1)


def test_axes_as_pytrees_and_prefixes() -> None:
    params = {"w": rows(2, 3), "b": (rows(3), rows(2, 4))}

    def f(p: Any, x: Any) -> Any:
        return {"y": p["w"] @ x, "rest": [p["b"][0].sum(), p["b"][1] + 1]}

    got = fnx.vmap(f, in_axes=({"w": None, "b": (0, -2)}, None),
                   out_axes={"y": None, "rest": [0, 1]})
    with pytest.raises(ShapeError):
        got(params, rows(3))
    params["b"] = rows(2), rows(2, 4)
    out = got(params, rows(3))
    assert_near(out, {"y": params["w"] @ rows(3), "rest": [params["b"][0], params["b"][1].T + 1]})
    assert_near(fnx.vmap(f, in_axes=(dict(w=None, b=0), None), out_axes=dict(y=None, rest=0))(
        params, rows(3))["rest"][1], params["b"][1] + 1)


def test_keyword_arguments_are_mapped_over_axis_0() -> None:
    x, k = rows(3, 2), rows(3)
    assert_near(fnx.vmap(lambda x, *, k: x * k, in_axes=0)(x, k=k), x * k[:, None])
    assert_near(fnx.vmap(lambda x, k: x[0, 0] * k["a"], in_axes=None)(x, k={"a": k}),
         x[0, 0] * k)


def test_what_is_not_mapped_is_handed_on() -> None:
    """Strings, functions and values that Python's `if` reads."""
    def f(x: Any, how: str, flag: Any) -> Any:
        return jnp.sin(x) if how == "sin" and flag else x

    g = fnx.vmap(f, in_axes=(0, None, None))
    assert_near(g(rows(3), "sin", jnp.asarray(True)), jnp.sin(rows(3)))


def test_axis_size_for_nothing_mapped() -> None:
    assert_near(fnx.vmap(lambda x: x + 1, in_axes=None, axis_size=3)(1.5), jnp.full(3, 2.5))
    assert_near(fnx.vmap(lambda: jnp.arange(2), axis_size=2, out_axes=1)(),
                jnp.asarray([[0, 0], [1, 1]]))


def test_results_that_are_the_same_for_all() -> None:
    x = rows(4)
    assert_near(fnx.vmap(lambda x: (x, jnp.ones(2)), out_axes=(0, 1))(x), (x, jnp.ones((2, 4))))
    assert_near(fnx.vmap(lambda x: (x, jnp.ones(2)), out_axes=(0, None))(x), (x, jnp.ones(2)))


def test_no_lanes() -> None:
    assert_near(fnx.vmap(lambda x: (x @ x, x[0]))(jnp.ones((0, 3))), (jnp.ones(0), jnp.ones(0)))


def test_weak_types_and_integers() -> None:
    y = fnx.vmap(lambda x: x * 2)(jnp.arange(3, dtype="int8"))
    assert y.dtype == np.int8
    assert fnx.vmap(lambda x: 2.0, axis_size=2, in_axes=None)(1).weak_type


# ---- with other transforms ---------------------------------------------------------------------


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(w @ x) ** 2) + jnp.max(x)


@pytest.mark.parametrize("make", [
    lambda f: fnx.vmap(fnx.jit(f)), lambda f: fnx.jit(fnx.vmap(f)),
    lambda f: fnx.jit(fnx.vmap(fnx.jit(f)))])
def test_with_jit(make: Callable[..., Any]) -> None:
    ws, xs = rows(5, 2, 3), rows(5, 3)
    assert_near(make(loss)(ws, xs), stacked(loss, ws, xs))


@pytest.mark.cases(6)
@pytest.mark.parametrize("make", [
    lambda f: fnx.vmap(fnx.grad(f)), lambda f: fnx.jit(fnx.vmap(fnx.grad(f))),
    lambda f: fnx.vmap(fnx.jit(fnx.grad(f))), lambda f: fnx.vmap(fnx.grad(fnx.jit(f)))])
def test_of_gradients(make: Callable[..., Any]) -> None:
    ws, xs = rows(5, 2, 3), rows(5, 3)
    assert_near(make(loss)(ws, xs), stacked(fnx.grad(loss), ws, xs))


def test_gradient_of_a_batch() -> None:
    w, xs = rows(2, 3), rows(5, 3)
    one = fnx.grad(lambda w: fnx.vmap(loss, in_axes=(None, 0))(w, xs).sum())(w)
    assert_near(one, sum(fnx.grad(loss)(w, x) for x in xs))
    assert_near(fnx.grad(lambda xs: fnx.vmap(loss, (None, 0))(w, xs).sum())(xs),
         jnp.stack([fnx.grad(loss, 1)(w, x) for x in xs]))


def test_within_vmap() -> None:
    ws, xs = rows(4, 2, 3), rows(5, 3)
    got = fnx.vmap(fnx.vmap(loss, in_axes=(None, 0)), in_axes=(0, None))(ws, xs)
    assert_near(got, jnp.stack([jnp.stack([loss(w, x) for x in xs]) for w in ws]))


def test_a_function_that_closes_over_an_outer_lane() -> None:
    xs, ys = rows(4), rows(3)
    got = fnx.vmap(lambda x: fnx.vmap(lambda y: fnx.grad(lambda z: x * z * z)(y))(ys))(xs)
    assert_near(got, 2 * xs[:, None] * ys)


def test_hand_made_pull_of_a_batch() -> None:
    xs = rows(5, 3)

    def gradient(x: Any) -> Any:
        y, pull = fnx.vjp(lambda x: jnp.sin(x) * x[0], x)
        return pull(jnp.ones_like(y))[0]

    assert_near(fnx.vmap(gradient)(xs), stacked(gradient, xs))


def test_vectorize() -> None:
    dots = jnp.vectorize(jnp.dot, signature="(n),(n)->()")
    x, y = rows(2, 1, 3), rows(4, 3, seed=1)
    assert_near(fnx.jit(fnx.grad(lambda x: dots(x, y).sum()))(x),
                jnp.broadcast_to(y.sum(0), x.shape))
    assert dots.__name__ == "vectorize(dot)"


def test_random_numbers_of_keys_have_the_bits_of_the_loop() -> None:
    keys = fnx.random.split(fnx.random.key(3), 4)

    def draw(key: Any) -> Any:
        a, b = fnx.random.split(key)
        return (fnx.random.normal(a, (3,)), fnx.random.uniform(b, (2, 2)),
                fnx.random.randint(fnx.random.fold_in(a, 7), (5,), 0, 100),
                fnx.random.permutation(b, 6), fnx.random.categorical(a, jnp.zeros(4)))

    got, want = fnx.vmap(draw)(keys), stacked(draw, keys)
    for g, w in zip(got, want):
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


def test_infinities_of_one_lane_stay_there() -> None:
    xs = jnp.asarray([0.0, 1.0, -1.0, np.inf])
    got = fnx.vmap(fnx.grad(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)))(xs)
    assert_near(got, jnp.asarray([0.0, 0.5, 0.0, 0.0]))


@pytest.mark.parametrize("name", ["devices", ("rows", "columns"), 3])
def test_lanes_laid_out_over_devices_are_lanes(name: Any) -> None:
    """There is one device, so spmd_axis_name changes nothing and names no axis."""
    def mean(x: Any) -> Any:
        return fnx.lax.scan(lambda c, y: (c + fnx.lax.pmean(y * y, "i"), c), 0.0, x)[0]

    x = rows(3, 4)
    for outer in (lambda f: f, fnx.jit, lambda f: fnx.grad(lambda x: f(x).sum())):
        laid = outer(fnx.vmap(mean, axis_name="i", spmd_axis_name=name))
        assert_near(laid(x), outer(fnx.vmap(mean, axis_name="i"))(x))
    assert_near(fnx.vmap(fnx.vmap(jnp.sin, spmd_axis_name=name), spmd_axis_name=name)(x),
                jnp.sin(x))
    with pytest.raises(NameError):
        fnx.vmap(lambda x: fnx.lax.psum(x, name), spmd_axis_name=name)(x)


# ---- bad input --------------------------------------------------------------------------------


def refused(kind: type[Exception], call: Callable[[], Any], *words: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert re.match(r"\S*test_\w+\.py:\d+: ", str(caught.value)), str(caught.value)


def f(x: Any, y: Any = 0) -> Any:
    return x


def test_nothing_is_mapped() -> None:
    refused(ArgumentError, lambda: fnx.vmap(f, in_axes=None)(1.0), "vmap of f", "none",
            "axis_size")
    refused(ArgumentError, lambda: fnx.vmap(f)(None), "vmap of f", "none")


def test_axes_that_do_not_exist() -> None:
    refused(AxisError, lambda: fnx.vmap(f)(1.0), "args[0]", "float32[] weak")
    refused(AxisError, lambda: fnx.vmap(f, in_axes=({"a": 2},))({"a": jnp.ones((2, 3))}),
            "args[0]['a']", "float32[2, 3]")
    refused(AxisError, lambda: fnx.vmap(f, out_axes=2)(jnp.ones((2, 3))),
            "vmap of f: result", "float32[3]", "-2 to 1", "got 2")


def test_sizes_that_differ() -> None:
    refused(ShapeError, lambda: fnx.vmap(f, in_axes=(0, 1))(jnp.ones(3), {"k": jnp.ones((3, 2))}),
            "3 at args[0] (float32[3], axis 0)", "2 at args[1]['k'] (float32[3, 2], axis 1)")
    refused(ShapeError, lambda: fnx.vmap(f, axis_size=4)(jnp.ones(3)), "axis_size=4", "3 at")
    refused(ShapeError, lambda: fnx.vmap(f)(jnp.ones(3), y=jnp.ones(2)), "2 at kwargs['y']")


def test_axes_that_do_not_fit_the_trees() -> None:
    refused(PytreeError, lambda: fnx.vmap(f, in_axes=((0, 0),))([jnp.ones(3)] * 2), "in_axes",
            "[0]")
    refused(PytreeError, lambda: fnx.vmap(f, out_axes=(0, 0))(jnp.ones(3)), "out_axes")
    refused(ArgumentError, lambda: fnx.vmap(f, in_axes=(0, 0))(jnp.ones(3)), "1 positional")
    refused(ArgumentError, lambda: fnx.vmap(f, in_axes=({"a": "x"},))({"a": 1}), "'x'", "[0]['a']")
    refused(ArgumentError, lambda: fnx.vmap(f, in_axes={"a": 0}), "in_axes", "tuple")


def test_a_result_that_differs_is_not_the_same_for_all() -> None:
    refused(ArgumentError, lambda: fnx.vmap(f, out_axes=None)(jnp.ones(3)), "out_axes=None",
            "vmap of f: result", "float32[]")


def test_values_of_lanes_are_not_known() -> None:
    refused(TracedValueError, lambda: fnx.vmap(lambda x: x if x > 0 else -x)(jnp.ones(3)),
            "vmap of <lambda>", "fnx.numpy.where")


def test_options_that_mean_nothing() -> None:
    for size in (2.5, "a", True + 0.5, -1):
        refused(ArgumentError, lambda: fnx.vmap(f, axis_size=size)(jnp.ones(3)), "axis_size")
    refused(ArgumentError, lambda: fnx.vmap(f, axis_name=["i"])(jnp.ones(3)), "axis_name", "['i']")
    refused(ArgumentError, lambda: fnx.vmap(f, spmd_axis_name=["d"])(jnp.ones(3)),
            "spmd_axis_name", "['d']")


def test_what_is_no_array_is_not_mapped() -> None:
    refused(ArgumentError, lambda: fnx.vmap(f, in_axes=0)("text"), "args[0]", "str", "None")
    refused(ArgumentError, lambda: fnx.vmap(3), "vmap: expected a function")
