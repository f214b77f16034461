"""Jacobians and Hessians: their trees, axes and dtypes, and what they reject."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, GradError
from fnx.transforms.autodiff.arguments import FLOAT0

W = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
X = np.linspace(0.3, 2, 12, dtype=np.float32).reshape(4, 3)


def model(w: Any, x: Any) -> Any:
    return {"a": jnp.tanh(x @ w), "b": (jnp.sum(x * x), jnp.max(w))}


@pytest.mark.cases(1)
@pytest.mark.parametrize("jac", [fnx.jacfwd, fnx.jacrev, fnx.jacobian])
@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1,)])
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_a_jacobian_is_a_column_for_each_unit(jac: Any, argnums: Any, wrap: Any) -> None:
    got = wrap(jac(wrap(model), argnums))(W, X)
    chosen = (argnums,) if isinstance(argnums, int) else argnums
    for path in (lambda t: t["a"], lambda t: t["b"][0], lambda t: t["b"][1]):
        found = path(got) if not isinstance(argnums, int) else (path(got),)
        for i, block in zip(chosen, found):
            args = [np.asarray(v) for v in (W, X)]
            for place in np.ndindex(args[i].shape):
                unit = [np.zeros_like(a) for a in args]
                unit[i][place] = 1
                column = path(fnx.jvp(model, tuple(args), tuple(unit))[1])
                np.testing.assert_allclose(np.asarray(block)[(..., *place)], column, atol=1e-6)


def test_a_hessian_is_symmetric_and_both_orders_agree() -> None:
    def loss(w: Any) -> Any:
        return jnp.sum(jnp.tanh(X @ w) ** 2)
    found = [np.asarray(f(loss)(W)) for f in (
        fnx.hessian, lambda f: fnx.jit(fnx.hessian(fnx.jit(f))),
        lambda f: fnx.jacrev(fnx.jacfwd(f)), lambda f: fnx.jacfwd(fnx.jacfwd(f)),
        lambda f: fnx.jacrev(fnx.grad(f)))]
    assert found[0].shape == (3, 2, 3, 2)
    np.testing.assert_allclose(found[0], found[0].transpose(2, 3, 0, 1), atol=1e-5)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-5)


def test_trees_of_a_hessian() -> None:
    h = fnx.hessian(lambda p: p["a"] ** 2 * p["b"].sum())({"a": 2.0, "b": jnp.ones(3)})
    assert h["a"]["a"] == 6.0
    np.testing.assert_array_equal(h["a"]["b"], [4, 4, 4])
    np.testing.assert_array_equal(h["b"]["a"], [4, 4, 4])
    np.testing.assert_array_equal(h["b"]["b"], np.zeros((3, 3)))


def test_aux_and_argnums_by_list() -> None:
    for jac in (fnx.jacfwd, fnx.jacrev):
        found, aux = jac(lambda x, y: (x * y, {"k": x}), argnums=[1], has_aux=True)(2.0, 3.0)
        assert found == (2.0,) and aux["k"] == 2.0 and found[0].weak_type


def test_dtypes_of_the_blocks() -> None:
    f = lambda x: x.sum().astype(np.float64)
    assert fnx.jacfwd(f)(jnp.ones(2)).dtype == np.float64
    assert fnx.jacrev(f)(jnp.ones(2)).dtype == jnp.float32


def test_integers() -> None:
    assert fnx.jacfwd(lambda x: (x * 2, 3))(2.0)[1] == 0
    assert fnx.jacrev(lambda n: n * 2.0, allow_int=True)(jnp.arange(2)).dtype == FLOAT0
    with pytest.raises(GradError, match="args.0."):
        fnx.jacfwd(lambda x: x * 2.0)(2)
    with pytest.raises(GradError, match="float results"):
        fnx.jacrev(lambda x: (x, 3))(2.0)


def test_nothing_to_differentiate() -> None:
    empty = jnp.zeros((0, 2))
    for jac in (fnx.jacfwd, fnx.jacrev):
        assert jac(lambda x: x.sum(0))(empty).shape == (2, 0, 2)
        assert jac(lambda x: x[:0])(jnp.ones(3)).shape == (0, 3)
        np.testing.assert_array_equal(jac(lambda x: jnp.ones(2))(jnp.ones(3)), np.zeros((2, 3)))
        np.testing.assert_array_equal(jac(lambda x: x)(jnp.ones(3)), np.eye(3))


def test_python_may_look_at_values() -> None:
    f = lambda x: x * x if x.sum() > 2 else x
    np.testing.assert_array_equal(fnx.jacfwd(f)(jnp.ones(3)), 2 * np.eye(3))


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match="argnums"):
        fnx.jacfwd(lambda x: x, argnums=1)(1.0)
    for transform in (fnx.jacfwd, fnx.jacrev, fnx.hessian, fnx.grad, fnx.value_and_grad):
        with pytest.raises(GradError, match="expected complex arguments"):
            transform(lambda x: x, holomorphic=True)(1.0)


def test_a_unit_reaches_no_infinite_partial_that_it_is_not_in() -> None:
    """Column i of sqrt at 0 is infinite at i and zero elsewhere."""
    with np.errstate(divide="ignore"):
        for jac in (fnx.jacfwd, fnx.jacrev):
            found = jac(lambda x: jnp.sum(jnp.sqrt(jnp.pad(x, 1))))(jnp.array([1.0, 4.0]))
            np.testing.assert_array_equal(found, [0.5, 0.25])


# ---- basis vectors ------------------------------------------------------------------------------

MATRIX = np.sin(np.arange(12.0, dtype=np.float32)).reshape(4, 3)
PRODUCTS: list[tuple[str, Any, Any]] = [
    ("a matrix", lambda x: MATRIX @ x, 3),
    ("behind movements", lambda x: jnp.flip(MATRIX @ jnp.stack([x, x])[0], 0), 3),
    ("in calls", fnx.jit(lambda x: fnx.jit(jnp.matmul)(
        MATRIX, fnx.jit(lambda x: x[None])(x)[0])), 3),
    ("from the left", lambda x: x @ MATRIX, 4),
    ("two sums", lambda x: jnp.einsum("ij,i->", jnp.asarray(MATRIX), x), 4),
    ("with itself", lambda x: x @ x, 3),
    ("rows", lambda x: (jnp.asarray(MATRIX) * x).sum(0), 3),
    ("twice", lambda x: MATRIX @ x + jnp.tanh(MATRIX @ x), 3),
    ("outer", lambda x: x[:, None] * x[None, :], 3),
]


@pytest.mark.cases(5)
@pytest.mark.parametrize("jac", [fnx.jacfwd, fnx.jacrev, fnx.hessian])
@pytest.mark.parametrize("name, f, n", PRODUCTS, ids=[p[0] for p in PRODUCTS])
def test_products_with_units(name: str, f: Any, n: int, jac: Any) -> None:
    """Each column is the derivative along its basis vector."""
    x = np.linspace(0.2, 1.4, n, dtype=np.float32)
    inner = f if jac is not fnx.hessian else fnx.jacrev(f)
    found = np.asarray(jac(f)(x))
    for i in range(n):
        column = fnx.jvp(inner, (x,), (np.eye(n, dtype=np.float32)[i],))[1]
        np.testing.assert_allclose(found[..., i], column, rtol=1e-5, atol=1e-5)


def test_a_unit_picks_what_it_is_multiplied_with() -> None:
    """Nothing is summed: infinities at other indices do not spread."""
    x = jnp.asarray(np.array([[1, np.inf, 2]], np.float32))
    for jac in (fnx.jacfwd, fnx.jacrev):
        np.testing.assert_array_equal(jac(lambda w: x @ w)(jnp.ones(3)), x)
    graph = fnx.make_jaxpr(fnx.jacfwd(lambda w: MATRIX @ w))(jnp.ones(3))
    assert "sum" not in graph.show()
    hessian = fnx.make_jaxpr(fnx.hessian(fnx.jit(lambda w: jnp.sum(jnp.tanh(MATRIX @ w)))))
    assert hessian(jnp.ones(3)).show().count("[i, j] = sum(") <= 1


CUBE = np.cos(np.arange(24.0, dtype=np.float32)).reshape(2, 3, 4)
PRODUCTS_OF_ARRAYS: list[tuple[str, Any, tuple[int, ...]]] = [
    ("a matrix", lambda x: MATRIX @ x, (3, 2)),
    ("transposed", lambda x: MATRIX @ x.T, (2, 3)),
    ("a batch", lambda x: CUBE @ x, (2, 4, 2)),
    ("axes joined", lambda x: MATRIX @ x.reshape(3, 4), (3, 2, 2)),
    ("axes split", lambda x: MATRIX @ x.reshape(3, 2), (6,)),
    ("some axes", lambda x: jnp.einsum("ijk,jkl->jil", CUBE, x), (3, 4, 2)),
    ("all axes", lambda x: jnp.einsum("ij,ij->", MATRIX, x), (4, 3)),
    ("axes of length 1", lambda x: jnp.einsum("ij,ajb->ib", MATRIX, x), (1, 3, 1)),
    ("layers", lambda x: jnp.tanh(jnp.tanh(MATRIX @ x).T @ MATRIX), (3, 2)),
]


@pytest.mark.cases(2)
@pytest.mark.parametrize("name, f, shape", PRODUCTS_OF_ARRAYS,
                         ids=[p[0] for p in PRODUCTS_OF_ARRAYS])
def test_products_with_units_of_any_shape(name: str, f: Any, shape: tuple[int, ...]) -> None:
    """Each column is the derivative along its basis vector, in both modes and twice."""
    x = np.linspace(0.2, 1.4, math.prod(shape), dtype=np.float32).reshape(shape)
    forward, backward = (np.asarray(jac(f)(x)) for jac in (fnx.jacfwd, fnx.jacrev))
    np.testing.assert_allclose(forward, backward, rtol=1e-5, atol=1e-6)
    for place in np.ndindex(shape):
        unit = np.zeros_like(x)
        unit[place] = 1
        np.testing.assert_allclose(forward[(..., *place)], fnx.jvp(f, (x,), (unit,))[1],
                                   rtol=1e-5, atol=1e-6)
    loss = lambda x: jnp.sum(jnp.sin(f(x)))
    np.testing.assert_allclose(fnx.hessian(loss)(x), fnx.jacfwd(fnx.jacfwd(loss))(x),
                               rtol=1e-4, atol=1e-5)


def test_a_unit_of_a_matrix_picks() -> None:
    w = jnp.asarray(np.array([[1, np.inf, 2], [3, 4, 5]], np.float32))
    for jac in (fnx.jacfwd, fnx.jacrev):
        found = np.asarray(jac(lambda x: w @ x)(jnp.ones((3, 2))))
        np.testing.assert_array_equal(found[:, 0, :, 0], w)
        np.testing.assert_array_equal(found[:, 0, :, 1], 0)
    graph = fnx.make_jaxpr(fnx.jacfwd(lambda x: MATRIX @ x))(jnp.ones((3, 2)))
    assert "sum" not in graph.show()
