"""grad, value_and_grad, vjp: arguments, results, errors. Values come from the interpreter."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from fnx.core.array import eager_cache, tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.array_operators import apply
from fnx.core.formulas import elementwise
from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.scope import storage
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    GradError,
    LeakedTracerError,
    PytreeError,
    ShapeError,
)
from fnx.core.tracing import trace
from fnx.transforms.autodiff.arguments import FLOAT0
from fnx.transforms.grad import grad, value_and_grad
from fnx.transforms.vjp import vjp

EVALUATED: list[list[UOp]] = []


class Values:
    """Storage of the interpreter."""

    def __init__(self, value: Any) -> None:
        self.value, self.nbytes = np.array(value), np.asarray(value).nbytes

    def view(self, dtype: Any, shape: Any) -> Any:
        return self.value.reshape(shape)

    def wait(self) -> None:
        pass


def evaluate(nodes: Any, keep: object = None) -> list[Values]:
    trace.close(nodes, ())  # detects leaked tracers, as jit does
    EVALUATED.append(list(nodes))
    return [Values(v) for v in interp.evaluate(nodes, {})]


@pytest.fixture(autouse=True)
def _by_the_interpreter() -> Iterator[None]:
    before = storage.evaluate, storage.put
    eager_cache.clear_cache()
    storage.set_evaluator(evaluate, Values)
    EVALUATED.clear()
    yield
    storage.set_evaluator(*before)
    eager_cache.clear_cache()


@public_api
def total(x: Any) -> Array:
    node = asarray(x)._node
    return Array(build.reduce(node, ops.ADD, range(len(node.shape))))


def sin(x: Any) -> Array:
    return apply(elementwise.SIN, x)


X = np.array([1.0, 2.0, 3.0], np.float32)


def close(tree_: Any, expected: Any) -> None:
    got, structure = tree.flatten(tree_)
    want, wanted = tree.flatten(expected)
    assert structure == wanted
    for a, b in zip(got, want):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5)


# ---- values, arguments ------------------------------------------------------------------------


def test_scalars_and_orders() -> None:
    cube = lambda x: x ** 3
    close([grad(cube)(2.0), grad(grad(cube))(2.0), grad(grad(grad(cube)))(2.0)],
          [12.0, 12.0, 6.0])
    assert grad(cube)(2.0).weak_type and not grad(cube)(np.float32(2.0)).weak_type


def test_argnums() -> None:
    f = lambda x, y, z: total(x * y) + z
    close(grad(f)(X, 2 * X, 1.0), 2 * X)
    close(grad(f, argnums=1)(X, 2 * X, 1.0), X)
    close(grad(f, argnums=(0, 2))(X, 2 * X, 1.0), (2 * X, 1.0))
    close(grad(f, argnums=[2])(X, 2 * X, 1.0), (1.0,))
    close(grad(f, argnums=-2)(X, 2 * X, 1.0), X)


def test_keyword_arguments_are_handed_on() -> None:
    close(grad(lambda x, *, k: total(x * k))(X, k=3.0), [3.0, 3.0, 3.0] * np.ones(3))


class Layer(NamedTuple):
    w: Any
    b: Any


def test_pytrees() -> None:
    params = {"l": [Layer(X, 1.0), Layer(2 * X, None)], "n": ()}
    loss = lambda p: total(p["l"][0].w * p["l"][1].w) * p["l"][0].b
    close(grad(loss)(params), {"l": [Layer(2 * X, 28.0), Layer(X, None)], "n": ()})


def test_value_and_aux() -> None:
    f = lambda x: (total(x * x), {"twice": x + x, "name": "aux", "n": 3})
    (value, aux), g = value_and_grad(f, has_aux=True)(X)
    close([value, g, aux["twice"]], [14.0, 2 * X, 2 * X])
    assert aux["name"] == "aux" and aux["n"] == 3
    g, aux = grad(f, has_aux=True)(X)
    close([g, aux["twice"]], [2 * X, 2 * X])


def test_the_whole_is_one_graph_and_runs_once() -> None:
    value_and_grad(lambda x: total(sin(x) * x))(asarray(X))
    assert len(EVALUATED) == 1 and len(EVALUATED[0]) == 2


def test_what_does_not_depend_has_gradient_zero() -> None:
    close(grad(lambda x, y: total(y), argnums=(0, 1))(X, X), (0 * X, np.ones(3)))
    close(grad(lambda x: asarray(3.0))(X), 0 * X)
    close(grad(lambda x: 3.0)(X), 0 * X)


def test_identity() -> None:
    close(value_and_grad(lambda x: x)(5.0), (5.0, 1.0))


def test_branches_on_values() -> None:
    def f(x: Any) -> Any:
        while x < 100.0:
            x = x * x
        return x if x > 300.0 else -x
    close([grad(f)(2.0), grad(f)(5.0)], [-8 * 2.0 ** 7, 4 * 5.0 ** 3])


def test_inner_gradients_do_not_mix() -> None:
    """d/dx (x * d/dy (x + y)) = 1; if both shared one leaf, it would be 2."""
    close(grad(lambda x: x * grad(lambda y: x + y)(x))(3.0), 1.0)
    close(grad(lambda x: x * grad(lambda y: x * y)(x))(3.0), 6.0)
    inner = lambda x: grad(lambda y: sin(x * y))(x)
    close(grad(inner)(1.5), -2 * 1.5 ** 2 * np.sin(2.25) + np.cos(2.25))


def test_integers_when_allowed() -> None:
    f = lambda p: p["x"] * p["n"]
    g = grad(f, allow_int=True)({"x": 2.0, "n": 3})
    close(g["x"], 3.0)
    assert g["n"].dtype == FLOAT0 and g["n"].shape == ()


def test_integers_that_are_not_differentiated_are_welcome() -> None:
    close(grad(lambda x, n: x * n)(2.0, np.int32(4)), 4.0)


def test_the_wrapper_looks_like_the_function() -> None:
    def loss(params: Any, batch: Any, *, scale: float = 1.0) -> Any:
        return 0.0
    g = grad(loss)
    assert "loss" in g.__name__
    assert list(inspect.signature(g).parameters) == ["params", "batch", "scale"]


def test_half_and_double_widths_keep_their_dtype() -> None:
    x = asarray(X.astype(np.float64), dtype=np.float64)
    assert grad(lambda x: total(x * x))(x).dtype == np.float64


# ---- vjp --------------------------------------------------------------------------------------


def test_vjp() -> None:
    out, pull = vjp(lambda x, y: {"p": x * y, "s": sin(x)}, X, 2 * X)
    close(out, {"p": 2 * X * X, "s": np.sin(X)})
    close(pull({"p": np.ones(3, np.float32), "s": 0 * X}), (2 * X, X))
    close(pull({"p": 0 * X, "s": X}), (X * np.cos(X), 0 * X))


def test_vjp_with_aux_and_integers() -> None:
    out, pull, aux = vjp(lambda x, n: (x * n, {"x": x, "text": "t"}), X, 3, has_aux=True)
    close([out, aux["x"]], [3 * X, X])
    gx, gn = pull(X)
    close(gx, 3 * X)
    assert gn.dtype == FLOAT0 and aux["text"] == "t"


def test_vjp_reads_what_forward_saved() -> None:
    """exp(sum(sin x)): the sum is saved, and the pullback does not recompute it."""
    out, pull = vjp(lambda x: apply(elementwise.EXP, total(sin(x))), asarray(X))
    close(out, np.exp(np.sin(X).sum()))
    EVALUATED.clear()
    close(pull(1.0), (np.exp(np.sin(X).sum()) * np.cos(X),))
    (nodes,) = EVALUATED
    assert not any(n.op is ops.REDUCE for n in _all(nodes))


def _all(nodes: list[UOp]) -> list[UOp]:
    return toposort(nodes)


def test_vjp_is_differentiable_in_its_captures_and_is_a_pytree() -> None:
    def f(x: Any) -> Any:
        _, pull = vjp(lambda y: x * y * y, 3.0)
        return pull(1.0)[0]
    close(grad(f)(2.0), 6.0)
    _, pull = vjp(lambda y: total(y * y), X)
    doubled = tree.map(lambda x: 2 * x, pull)
    close(doubled(1.0), (4 * X,))


def test_vjp_of_nothing() -> None:
    out, pull = vjp(lambda: 3.0)
    close(out, 3.0)
    assert pull(1.0) == ()


# ---- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("call, cls, words", [
    (lambda: grad(lambda x: x * 2)(X), GradError, ["float32[3]", ".sum()", "vjp"]),
    (lambda: grad(lambda x: (x, x))(2.0), GradError, ["(*, *)", "has_aux"]),
    (lambda: grad(lambda x: None)(2.0), GradError, ["scalar", "None"]),
    (lambda: grad(lambda x: x > 1)(2.0), GradError, ["bool[]", "astype"]),
    (lambda: grad(lambda x: x * 2)(2), GradError, ["args[0]", "int32[]", "write 2.0"]),
    (lambda: grad(lambda p: p["w"][1] * 2.0)({"w": [1.0, X.astype(np.int32)]}), GradError,
     ["args[0]['w'][1]", "int32[3]", "allow_int"]),
    (lambda: grad(lambda x, p: x, argnums=1)(2.0, {"name": "adam"}), GradError,
     ["args[1]['name']", "str", "argnums"]),
    (lambda: grad(lambda x: x, argnums=1)(2.0), ArgumentError, ["argnums", "1 positional"]),
    (lambda: grad(3.0), ArgumentError, ["float", "grad(f)(x)"]),
    (lambda: grad(lambda x: x, has_aux=True)(2.0), ArgumentError, ["aux", "tuple"]),
    (lambda: vjp(lambda x: x, X)[1](1.0), ShapeError, ["(3,)", "()"]),
    (lambda: vjp(lambda x: x, X)[1]((X,)), PytreeError, ["(*,)"]),
    (lambda: vjp(lambda x: x, X)[1](X.astype(np.int32)), DTypeError, ["float32", "int32"]),
])
def test_errors_name_what_came_where_and_the_cure(call: Any, cls: type, words: list[str]) -> None:
    with pytest.raises(cls) as e:
        call()
    text = str(e.value)
    assert all(w in text for w in words), text
    assert e.value.loc[0] == __file__
    assert e.value.loc[1] == call.__code__.co_firstlineno  # type: ignore[attr-defined]
    assert "  Fix: " in text


def test_leaks() -> None:
    kept: list[Any] = []
    grad(lambda x: kept.append(x * 2) or x)(1.0)  # type: ignore[func-returns-value]
    with pytest.raises(LeakedTracerError):
        kept[0] + 1.0
    with pytest.raises(LeakedTracerError):
        grad(lambda x: x * kept[0])(1.0)


def test_an_error_inside_leaves_nothing_open() -> None:
    with pytest.raises(ZeroDivisionError):
        grad(lambda x: 1 // 0)(1.0)
    assert gc.isenabled()
    close(grad(lambda x: x * x)(2.0), 4.0)
