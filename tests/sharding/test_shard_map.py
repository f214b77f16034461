"""shard_map and pmap over devices of one process: values, derivatives, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx import NamedSharding, P, shard_map
from fnx.core.support.errors import (
    ArgumentError,
    AxisNameError,
    PlacementError,
    PytreeError,
    ShapeError,
)
from fnx.sharding import Mesh

X = jnp.arange(32.0).reshape(8, 4)


def test_a_mesh_of_one_device_is_the_whole() -> None:
    mesh = fnx.make_mesh((1,), ("x",))
    total = shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    assert total(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_collectives_over_one_axis_or_both(mesh: Mesh) -> None:
    def over(f: Callable[..., Any], out: P, spec: P = P("a", "b")) -> Any:
        return shard_map(f, mesh=mesh, in_specs=spec, out_specs=out)(X)

    rows = np.asarray(X).reshape(4, 2, 4)
    np.testing.assert_array_equal(over(lambda x: lax.psum(x, "a"), P(None, "b")), rows.sum(0))
    np.testing.assert_array_equal(over(lambda x: lax.psum(x.sum(), ("a", "b")), P()), X.sum())
    np.testing.assert_array_equal(
        over(lambda x: x + 10 * lax.axis_index(("a", "b")), P(("a", "b")), P(("a", "b"))),
        X + 10 * np.arange(8)[:, None])
    np.testing.assert_array_equal(
        over(lambda x: lax.ppermute(x, "a", [(i, (i + 1) % 4) for i in range(4)]), P("a", "b")),
        np.roll(rows, 1, 0).reshape(8, 4))
    with pytest.raises(ArgumentError, match="same on all devices of axis 'b'"):  # as in JAX
        over(lambda x: lax.all_gather(x, "b", axis=1, tiled=True), P("a"))
    np.testing.assert_array_equal(shard_map(
        lambda x: lax.all_gather(x, "b", axis=1, tiled=True), mesh=mesh, in_specs=P("a", "b"),
        out_specs=P("a"), check_vma=False)(X), X)
    np.testing.assert_array_equal(
        over(lambda x: lax.psum_scatter(x, "b", scatter_dimension=0, tiled=True), P(("a", "b"))),
        np.asarray(X).reshape(8, 2, 2).sum(1))
    np.testing.assert_array_equal(
        over(lambda x: lax.all_to_all(x, "b", 0, 1, tiled=True), P(("a", "b"))), X)


def test_it_composes_with_the_other_transforms(mesh: Mesh) -> None:
    def loss(w: Any, x: Any) -> Any:
        return lax.pmean(jnp.tanh(x @ w).sum(), ("a", "b"))
    sharded = shard_map(loss, mesh=mesh, in_specs=(P(), P(("a", "b"))), out_specs=P())

    def whole(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w).sum() / 8
    w = jnp.linspace(-0.1, 0.1, 12).reshape(4, 3)
    for transform in (lambda f: f, fnx.jit, fnx.grad, lambda f: fnx.jit(fnx.grad(f)),
                      lambda f: fnx.jacfwd(f), lambda f: fnx.hessian(f),
                      lambda f: lambda w, x: fnx.vmap(f, (0, None))(jnp.stack([w, -w]), x)):
        np.testing.assert_allclose(transform(sharded)(w, X), transform(whole)(w, X), rtol=2e-5,
                                   atol=1e-5)

    def step(w: Any, _: Any) -> Any:
        return w - 0.01 * fnx.grad(sharded)(w, X), sharded(w, X)
    _, losses = fnx.jit(lambda w: lax.scan(step, w, None, length=5))(w)
    assert losses[-1] < losses[0]


def test_only_the_axes_of_axis_names_are_open(mesh: Mesh) -> None:
    f = shard_map(lambda x: lax.psum(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P(),
                  axis_names={"a"})
    np.testing.assert_array_equal(f(X), np.asarray(X).reshape(4, 2, 4).sum(0))
    with pytest.raises(AxisNameError, match="'b'"):
        shard_map(lambda x: lax.psum(x, "b"), mesh=mesh, in_specs=P("a"), out_specs=P("a"),
                  axis_names={"a"})(X)


def test_pcast_is_not_needed(mesh: Mesh) -> None:
    def total(x: Any, is_cast: bool) -> Any:
        start = lax.pcast(jnp.zeros(2), ("a", "b"), to="varying") if is_cast else jnp.zeros(2)
        return lax.psum(lax.scan(lambda c, row: (c + row, None), start, x)[0], ("a", "b"))
    for is_cast in (False, True):
        f = shard_map(lambda x: total(x, is_cast), mesh=mesh, in_specs=P("a", "b"), out_specs=P())
        np.testing.assert_array_equal(f(X), X.reshape(8, 2, 2).sum((0, 1)))


def test_trees_and_the_mesh_of_the_context(mesh: Mesh) -> None:
    @shard_map(in_specs=({"x": P("a"), "y": P()}, P("b")), out_specs=(P("a"), [P("b"), P()]))
    def f(tree: Any, z: Any) -> Any:
        return tree["x"] + tree["y"], [2 * z, tree["y"]]
    with fnx.set_mesh(mesh):
        first, (second, third) = f({"x": X, "y": 1.0}, jnp.arange(4))
    np.testing.assert_array_equal(first, X + 1)
    assert second.tolist() == [0, 2, 4, 6] and third == 1


def test_pmap_has_an_index_on_each_device(mesh: Mesh) -> None:
    f = fnx.pmap(lambda x: x / lax.psum(x, "i"), "i")
    np.testing.assert_array_equal(f(jnp.ones((4, 2))), np.full((4, 2), 0.25))
    np.testing.assert_array_equal(
        fnx.pmap(lambda x, y: x[:4] * y, in_axes=(1, None), out_axes=1)(X, 2.0), 2 * X[:4])
    first, total = fnx.pmap(lambda x: (x, lax.psum(x, "i")), "i", out_axes=(0, None))(X)
    np.testing.assert_array_equal(total, X.sum(0))
    assert first.sharding.spec == P("i") and total.sharding.spec == P()
    first = fnx.pmap(lambda x: x, out_axes=None)(X)
    np.testing.assert_array_equal(first, X[0])
    rows = fnx.device_put(X, NamedSharding(mesh, P("a")))
    few = fnx.pmap(jnp.sin, "i")(rows[:4])  # moves from eight devices to four
    assert few.devices() == set(fnx.devices()[:4])
    np.testing.assert_array_equal(few, jnp.sin(X[:4]))


PMAP: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "too long": (lambda: fnx.pmap(lambda x: x)(jnp.ones((9, 2))), ShapeError,
                 "at most 8 elements.*FNX_CPU_DEVICES=9"),
    "axes of fewer arguments": (lambda: fnx.pmap(jnp.add, in_axes=(0,))(X, X), ArgumentError,
                                "in_axes of 2 arguments.*one for each"),
    "no such static argument": (lambda: fnx.pmap(jnp.sin, static_broadcasted_argnums=3)(X),
                                ArgumentError, "static_broadcasted_argnums.*by position"),
    "no mapped argument": (lambda: fnx.pmap(jnp.sin, in_axes=None)(X), ArgumentError,
                           "at least one mapped"),
    "another length": (lambda: fnx.pmap(jnp.add)(X, X[:4]), ShapeError, "one size"),
}


@pytest.mark.parametrize("name", PMAP)
def test_bad_input_of_pmap(name: str) -> None:
    call, kind, message = PMAP[name]
    with pytest.raises(kind, match=f"(?s){message}"):
        call()


def call(mesh: Mesh, f: Callable[..., Any], in_specs: Any = P("a", "b"), out_specs: Any = P("a"),
         x: Any = X, **options: Any) -> Any:
    return shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)(x)


BAD: dict[str, tuple[Callable[[Mesh], Any], type[Exception], str, str]] = {
    "a result that may differ": (lambda m: call(m, lambda x: x, out_specs=P(None, "b")),
                                 ArgumentError, "same on all devices of axis 'a'", "psum"),
    "an uneven argument": (lambda m: call(m, lambda x: x, x=jnp.ones((6, 4))), ShapeError,
                           r"args\[0\].*divisible into 4 parts", "pad"),
    "an argument of too few axes": (lambda m: call(m, lambda x: x, x=jnp.ones(8)), ShapeError,
                                    "at least 2 axes", "shorten"),
    "a result of too few axes": (lambda m: call(m, lambda x: x.sum()), ShapeError,
                                 "result of at least 1 axes", "shorten"),
    "an unknown axis": (lambda m: call(m, lambda x: x, P("z")), ArgumentError, r"in_specs.*'z'",
                        "its axes are"),
    "an axis twice": (lambda m: call(m, lambda x: x, out_specs=P("a", "a")), ArgumentError,
                      "out_specs.*'a' twice", "one axis"),
    "an axis that is not open": (lambda m: call(m, lambda x: x, axis_names={"a"}), ArgumentError,
                                 "axis_names.*'b'", "add them"),
    "specs of other arguments": (lambda m: call(m, lambda x: x, (P(), P())), ArgumentError,
                                 "specs of 1 arguments, got 2", "one for each"),
    "specs of another tree": (lambda m: call(m, lambda x: x, out_specs={"y": P()}), PytreeError,
                              "", ""),
    "no mesh": (lambda m: shard_map(lambda x: x, in_specs=P(), out_specs=P())(X), ArgumentError,
                "expected a mesh", "set_mesh"),
    "what is no mesh": (lambda m: shard_map(lambda x: x, mesh=3, in_specs=P(), out_specs=P())(X),
                        ArgumentError, "expected a mesh, got int", "make_mesh"),
    "no specs of results": (lambda m: call(m, lambda x: x, out_specs=None), ArgumentError,
                            "expected out_specs", r"fnx.P\(\)"),
    "an array on other devices": (lambda m: call(m, lambda x: x, x=fnx.device_put(
        X, fnx.devices()[3])), PlacementError, "devices of Mesh.*cpu:3", "device_put"),
    "a collective outside": (lambda m: lax.psum(X, "a"), AxisNameError, "open are: none",
                             "shard_map"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, mesh: Mesh) -> None:
    f, kind, message, cure = BAD[name]
    with pytest.raises(kind, match=f"(?s){message}.*{cure}"):
        f(mesh)


def test_without_the_check_a_result_is_that_of_the_first_device(mesh: Mesh) -> None:
    f = shard_map(lambda x: x, mesh=mesh, in_specs=P("a", "b"), out_specs=P(None, "b"),
                  check_vma=False)
    np.testing.assert_array_equal(f(X), X[:2])
