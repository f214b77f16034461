"""The public interface of forward mode: what it takes, returns and rejects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes
from fnx.core.support.errors import ArgumentError, DTypeError, FnxError, PytreeError, ShapeError
from fnx.transforms.autodiff.arguments import FLOAT0
from fnx.transforms.autodiff.forward import jvp_form
from fnx.transforms.autodiff.higher_order import JvpKey
from tests.helpers import jvp_derivative


def test_results_and_tangents_are_like_the_result() -> None:
    f = lambda p, n: {"a": p["w"] * n, "b": (n + 1, p["w"].sum())}
    out, t = fnx.jvp(f, ({"w": jnp.ones(3)}, 2), ({"w": jnp.arange(3.0)}, None))
    np.testing.assert_array_equal(out["a"], [2, 2, 2])
    np.testing.assert_array_equal(t["a"], [0, 2, 4])
    assert t["b"][0].dtype == FLOAT0 and t["b"][1] == 3.0 and out["b"][0] == 3


def test_aux_is_handed_on() -> None:
    out, t, aux = fnx.jvp(lambda x: (x * x, {"x": x, "text": "t"}), (3.0,), (1.0,), has_aux=True)
    assert (out, t, aux["text"], aux["x"]) == (9.0, 6.0, "t", 3.0)


def test_python_may_look_at_values() -> None:
    assert jvp_derivative(lambda x: x * x if x > 2 else x)(3.0) == 6.0


def test_a_closed_over_variable_is_a_constant() -> None:
    """Perturbations are not confused, whatever the modes."""
    for outer in (fnx.grad, jvp_derivative):
        for inner in (fnx.grad, jvp_derivative):
            assert outer(lambda x: x * inner(lambda y: x + y)(1.0))(3.0) == 1.0
            assert outer(lambda x: x * inner(lambda y: x * y * y)(1.0))(3.0) == 12.0
            assert outer(fnx.jit(lambda x: x * inner(fnx.jit(lambda y: x * y))(x)))(3.0) == 6.0


@pytest.mark.parametrize("given, error", [
    (((1.0,), (1.0, 2.0)), PytreeError),
    (((1.0,), (None,)), PytreeError),
    (((1.0,), (np.zeros((), FLOAT0),)), PytreeError),
    (((1.0,), ({"a": 1.0},)), PytreeError),
    (((1.0,), (1,)), DTypeError),
    (((1,), (1.0,)), DTypeError),
    (((jnp.ones(3),), (1.0,)), ShapeError),
    ((1.0, 1.0), ArgumentError),
])
def test_tangents_that_do_not_fit(given: Any, error: type[FnxError]) -> None:
    with pytest.raises(error, match="test_jvp.py"):
        fnx.jvp(lambda x: x, *given)


def test_a_body_is_pushed_once_for_each_pattern() -> None:
    x, y = (build.param(i, dtypes.float32, ()) for i in range(2))
    body = build.function([build.mul(x, y), y], 2, "f")
    assert jvp_form(body, JvpKey((0,))) is jvp_form(body, JvpKey((0,)))
    assert jvp_form(body, JvpKey((0,))).active == (0,)
    assert jvp_form(body, JvpKey((0,), instantiate=(1,))).active == (0, 1)
    assert jvp_form(body, JvpKey(())).active == ()


def test_float0_goes_through_every_transform() -> None:
    f = lambda x: fnx.jvp(lambda x: (x * x, 3), (x,), (x,))[1]
    for g in (f, fnx.jit(f), fnx.vmap(f, axis_size=2, in_axes=None, out_axes=None)):
        slope, nothing = g(2.0)
        assert slope == 8.0 and nothing.dtype == FLOAT0
    (first, nothing), second = fnx.jvp(f, (2.0,), (1.0,))
    assert (first, second[0]) == (8.0, 8.0) and nothing.dtype == second[1].dtype == FLOAT0
    g = fnx.jit(fnx.grad(lambda x, n: x * n, argnums=(0, 1), allow_int=True))(2.0, 3)
    assert g[0] == 3.0 and g[1].dtype == FLOAT0


def test_float0_is_a_leaf_to_users() -> None:
    params = {"n": np.arange(3, dtype=np.int32), "w": np.float32(2.0)}
    for transform in (lambda f: f, fnx.jit):
        g = transform(fnx.grad(lambda p: p["w"] * p["n"].sum(), allow_int=True))(params)
        assert fnx.tree.structure(g) == fnx.tree.structure(params)
        assert [x.dtype for x in fnx.tree.leaves(g)] == [FLOAT0, np.float32]
        left, right = fnx.tree.map(lambda a, b: (a.shape, b.shape), g, params).values()
        assert left == ((3,), (3,)) and right == ((), ())
        assert fnx.tree.map(lambda a, b: b.dtype, params, g)["n"] == FLOAT0
        assert fnx.tree.leaves(g, lambda x: isinstance(x, dict)) == [g]
        paths = [path for path, _ in fnx.tree.leaves_with_path(g)]
        assert len(paths) == 2 and fnx.tree.broadcast(1, g) == {"n": 1, "w": 1}
        assert fnx.tree_util.all_leaves([g["n"]])
        assert not fnx.tree_util.is_tree_node(type(g["n"]))


def test_the_tangent_of_a_choice_is_one_choice() -> None:
    x = jnp.arange(6.0)
    text = fnx.jit(lambda x, t: fnx.jvp(lambda x: jnp.where(x > 2, x * x, x * 3), (x,), (t,))
                   ).lower(x, x).text("graph")
    assert text.count("where") == 2
    np.testing.assert_array_equal(
        fnx.jvp(lambda x: jnp.where(x > 2, x * x, x * 3), (x,), (x,))[1], [0, 3, 6, 18, 32, 50])
