"""The shardings of results: they follow those of arguments and constraints, outside of jit, in it,
and on its fast path."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx import NamedSharding, P
from fnx.core.support.errors import ArgumentError, MeshError, PlacementError, ShapeError
from fnx.jaxprs.evaluate import jaxpr_as_fun
from fnx.sharding import Mesh, SingleDeviceSharding

X = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
W = np.ones((8, 4), np.float32)

CASES: dict[str, tuple[Callable[[Any], Any], P]] = {
    "elementwise": (lambda x: jnp.sin(x) + 1, P("a", "b")),
    "with a row": (lambda x: x * jnp.arange(8.0), P("a", "b")),
    "transpose": (lambda x: x.T, P("b", "a")),
    "sum of an axis": (lambda x: x.sum(0), P("b")),
    "sum of the other": (lambda x: x.max(1, keepdims=True), P("a")),
    "sum of all": (lambda x: x.sum(), P()),
    "product": (lambda x: x @ jnp.asarray(W), P("a")),
    "product of two": (lambda x: x.T @ x, P("b")),
    "outer product": (lambda x: x[:, None, :] * x[None, :, :], P("a", None, "b")),
    "flattened": (lambda x: x.reshape(64), P("a")),
    "split": (lambda x: x.reshape(4, 2, 8), P("a", None, "b")),
    "split where the axis does not divide": (lambda x: x.reshape(2, 4, 8), P(None, None, "b")),
    "an index": (lambda x: x[:, 3], P("a")),
    "a slice": (lambda x: x[:3], P(None, "b")),
    "joined": (lambda x: jnp.concatenate([x, x]), P("a", "b")),
    "rolled": (lambda x: jnp.roll(x, 1, 0), P("a", "b")),
    "averaged": (fnx.jit(lambda x: jnp.concatenate([x[:1], (x[2:] + x[:-2]) / 2, x[-1:]])),
                 P("a", "b")),
    "moved": (fnx.jit(lambda x: jnp.pad(x[1:] * 2, ((1, 0), (0, 0)))), P("a", "b")),
    "sorted": (lambda x: jnp.sort(x, 0), P("a", "b")),
    "the largest": (lambda x: lax.top_k(x, 4)[1], P("a")),
    "reversed": (lambda x: x[::-1], P("a", "b")),
    "written": (lambda x: x.at[3].set(0), P("a", "b")),
    "factors": (lambda x: jnp.linalg.cholesky(
        x[:, :4, None] * x[:, None, :4] + jnp.eye(4)), P("a")),
    "softmax": (lambda x: fnx.nn.softmax(x), P("a", "b")),
    "gradient": (fnx.grad(lambda x: (jnp.tanh(x @ W) ** 2).sum()), P("a")),
    "mapped": (fnx.vmap(lambda row: jnp.cumsum(row)), P("a", "b")),
    "a loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + i, x), P("a", "b")),
    "steps": (lambda x: lax.scan(lambda c, row: (c + row, c * row), jnp.zeros(8), x)[1],
              P(None, "b")),
    "a branch": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), P("a", "b")),
    "a constraint": (lambda x: lax.with_sharding_constraint(
        x + 1, NamedSharding(fnx.make_mesh((4, 2), ("a", "b")), P(None, ("b", "a")))),
        P(None, ("b", "a"))),
    "new": (lambda x: jnp.ones(3) + x.shape[0], P()),
}


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", CASES)
def test_results_follow_their_arguments(name: str, mesh: Mesh) -> None:
    f, spec = CASES[name]
    x = fnx.device_put(X, NamedSharding(mesh, P("a", "b")))
    compiled = fnx.jit(f)
    for y in (compiled(x), compiled(x), compiled(x), compiled(x), f(x), f(x)):
        np.testing.assert_allclose(y, f(jnp.asarray(X)), rtol=1e-5, atol=1e-6)
        if name != "new" or y.committed:
            assert y.sharding.is_equivalent_to(NamedSharding(mesh, spec), y.ndim), y.sharding


def test_constraints_place_what_was_not(mesh: Mesh) -> None:
    sharding = NamedSharding(mesh, P("b"))
    f = fnx.jit(lambda x: lax.with_sharding_constraint(x * 2, sharding).T)
    with fnx.set_mesh(mesh):
        assert lax.with_sharding_constraint(jnp.ones(8), P("a")).sharding.spec == P("a")
    for _ in range(4):
        assert f(X).sharding == NamedSharding(mesh, P(None, "b"))
    g = fnx.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"))
    assert g(X).sharding == fnx.jit(g)(X).sharding == NamedSharding(mesh, P("a", "b"))
    assert fnx.jit(lambda x: fnx.device_put(x, sharding))(X).sharding == sharding
    assert fnx.pmap(jnp.sin)(X).sharding.shard_shape((8, 8)) == (1, 8)


def test_jit_moves_arguments_and_results(mesh: Mesh) -> None:
    rows, columns = NamedSharding(mesh, P("a")), NamedSharding(mesh, P(None, "b"))
    seen = []

    def f(x: Any, y: Any, n: int) -> Any:
        seen.append(n)
        return {"sum": x + y, "n": n * x}
    g = fnx.jit(f, in_shardings=(rows, None), out_shardings=columns, static_argnums=2)
    for _ in range(5):
        out = g(X, jnp.asarray(X), 3)
        assert out["sum"].sharding == out["n"].sharding == columns
        np.testing.assert_array_equal(out["sum"], X + X)
    assert seen == [3]
    assert fnx.jit(jnp.sin, in_shardings=rows)(X).sharding == rows
    assert fnx.jit(jnp.sin, out_shardings=rows).lower(X).compile()(X).sharding == rows
    compiled = fnx.jit(lambda x, y: (x @ y, y)).lower(fnx.device_put(X, rows), X).compile()
    assert compiled.input_shardings[0][0] == rows
    assert compiled.output_shardings[0] == rows
    whole = fnx.ShapeDtypeStruct((8, 8), np.float32, sharding=columns)
    assert fnx.jit(jnp.sin).lower(whole).compile().output_shardings == columns
    with fnx.set_mesh(mesh):
        decorated: Any = fnx.jit(out_shardings=P("b"))
        assert decorated(lambda x: x + 1)(X).sharding.spec == P("b")
    one = NamedSharding(fnx.make_mesh((1,), "x"), P("x"))
    assert isinstance(fnx.jit(jnp.sin, in_shardings=one, out_shardings=one)(X).sharding,
                      SingleDeviceSharding)


def test_what_does_not_fit_is_refused(mesh: Mesh) -> None:
    rows = NamedSharding(mesh, P("a"))
    with pytest.raises(ShapeError, match="divisible into 4 parts"):
        fnx.jit(lambda x: x, out_shardings=rows)(jnp.ones(6))
    with pytest.raises(ArgumentError, match="(?s)sharding of in_shardings.*device_put"):
        fnx.jit(lambda x: x, in_shardings=rows)(
            fnx.device_put(X, NamedSharding(mesh, P("b"))))
    with pytest.raises(MeshError, match="(?s)expected a mesh for P.*set_mesh"):
        lax.with_sharding_constraint(X, P("a"))
    half = NamedSharding(Mesh(np.array(fnx.devices()[:4]), "a"), P("a"))
    with pytest.raises(PlacementError, match="(?s)0,1,2,3,4,5,6,7 and .*0,1,2,3.*device_put"):
        fnx.jit(lambda x: lax.with_sharding_constraint(x, half))(fnx.device_put(X, rows))
    with pytest.raises(PlacementError, match="(?s)devices of a constraint.*cpu:3.*device_put"):
        fnx.jit(lambda x: lax.with_sharding_constraint(x, rows))(
            fnx.device_put(X, fnx.devices()[3]))


def test_copies_and_arrays_like_another_have_its_sharding(mesh: Mesh) -> None:
    x = fnx.device_put(X, NamedSharding(mesh, P("a", "b")))
    for f in (jnp.copy, jnp.array, copy.deepcopy, jnp.zeros_like, jnp.ones_like, jnp.empty_like,
              lambda x: jnp.full_like(x, 2, dtype=int)):
        y = f(x)
        assert y.sharding == x.sharding and y is not x, f
    np.testing.assert_array_equal(jnp.copy(x), X)
    donating = fnx.jit(lambda x: x + 1, donate_argnums=0)
    np.testing.assert_array_equal(donating(jnp.copy(x)), X + 1)
    np.testing.assert_array_equal(x, X)
    assert jnp.zeros_like(x, shape=(3,)).sharding.is_fully_replicated


def test_meshes_of_the_same_devices_mix(mesh: Mesh) -> None:
    other = fnx.make_mesh((2, 4), ("a", "c"))
    x = fnx.device_put(X, NamedSharding(mesh, P("a")))
    y = fnx.device_put(X, NamedSharding(other, P(None, "c")))
    f = fnx.jit(lambda x, y: (x + y, y.T, lax.with_sharding_constraint(
        x * y, NamedSharding(other, P("a", "c")))))
    for _ in range(3):
        total, transposed, product = f(x, y)
        assert total.sharding == x.sharding and product.sharding.spec == P("a", "c")
        assert transposed.sharding == NamedSharding(other, P("c"))
        assert product.sharding.mesh == other
        np.testing.assert_array_equal(total, X + X)


def test_derivatives_have_the_sharding_of_their_arguments(mesh: Mesh) -> None:
    sharding = NamedSharding(mesh, P(None, "b"))
    f = fnx.grad(lambda x: (lax.with_sharding_constraint(x, sharding) ** 2).sum())
    assert f(X).sharding == fnx.jit(f)(X).sharding == sharding
    g = fnx.shard_map(lambda x: lax.psum(x ** 2, "a"), mesh=mesh, in_specs=P("a"), out_specs=P())
    assert fnx.grad(lambda x: g(x).sum())(X).sharding.is_equivalent_to(
        NamedSharding(mesh, P("a")), 2)
    for out in (*fnx.jvp(g, (X,), (X,)), *fnx.jit(lambda x: fnx.jvp(g, (x,), (x,)))(X)):
        assert out.sharding == NamedSharding(mesh, P())
    rows = NamedSharding(mesh, P("a"))
    for out in fnx.jvp(lambda x: lax.with_sharding_constraint(x * x, rows), (X,), (X,)):
        assert out.sharding == rows
    mapped = fnx.vmap(lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh, P("a"))))
    assert mapped(X).sharding == NamedSharding(mesh, P(None, "a"))


def test_a_picture_shows_who_has_what(mesh: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    fnx.debug.visualize_array_sharding(fnx.device_put(X, NamedSharding(mesh, P("b", None))))
    assert capsys.readouterr().out == (
        "+-----------+\n|CPU 0,2,4,6|\n+-----------+\n|CPU 1,3,5,7|\n+-----------+\n")
    fnx.debug.visualize_sharding((4, 2), NamedSharding(mesh, P("a", "b")))
    assert capsys.readouterr().out.splitlines()[:3] == [
        "+-----+-----+", "|CPU 0|CPU 1|", "+-----+-----+"]
    with pytest.raises(ShapeError, match="1 or 2 axes"):
        fnx.debug.visualize_array_sharding(jnp.ones((2, 2, 2)))


def test_constraints_over_meshes_of_other_devices_are_not_the_same() -> None:
    first, last = [Mesh(np.array(fnx.devices()[i:i + 4]), ("a",)) for i in (0, 4)]
    functions = [fnx.jit(lambda x, mesh=mesh: lax.with_sharding_constraint(
        x * 2, NamedSharding(mesh, P("a")))) for mesh in (first, last)]
    for mesh, f in [*zip((first, last), functions), (first, functions[0])]:
        assert f(jnp.ones(8)).sharding == NamedSharding(mesh, P("a"))


def test_jaxprs_and_their_text_say_constraints(mesh: Mesh) -> None:
    """A constraint is an equation that is evaluated again, and a line of StableHLO."""
    wanted = NamedSharding(mesh, P(("a", "b"), None))
    f = fnx.jit(lambda x: lax.with_sharding_constraint(jnp.sin(x), wanted) * 2)
    jaxpr = f.trace(X).jaxpr
    assert [str(e.primitive) for e in jaxpr.eqns] == ["sin", "sharding_constraint", "mul"]
    assert jaxpr.eqns[1].params["sharding"] == wanted
    again, = jaxpr_as_fun(jaxpr)(jnp.asarray(X))
    np.testing.assert_allclose(again, f(X))
    assert again.sharding.is_equivalent_to(wanted, 2)
    text = f.lower(X).as_text("stablehlo")
    assert '  sdy.mesh @mesh = <["a"=4, "b"=2]> {stablehlo.mesh = {axes = [{name = "a", size = ' \
        '4 : i64}, {name = "b", size = 2 : i64}]}}\n' in text
    assert '%1 = sdy.sharding_constraint %0 <@mesh, [{"a", "b"}, {}]> : tensor<8x8xf32>\n' in text
    assert "num_partitions = 8" in text
