"""Objects that are not Arrays: some stand for an array, others implement operators with arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, nn

X = np.arange(4.0, dtype=np.float32).reshape(2, 2) + 1
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"]
BITS = ["and_", "or_", "xor", "lshift", "rshift"]
ORDER = ["eq", "ne", "lt", "le", "gt", "ge"]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in ARITHMETIC + BITS + ORDER}, "divmod": divmod}


class Parameter:
    """Stands for an array, or for what is one."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __jax_array__(self) -> Any:
        return self.value


class Knows:
    """Answers every operator with its name and its own side."""

    def __hash__(self) -> int:
        return 1


def _answer(name: str) -> Any:
    return lambda self, other: name


for _name in [n.strip("_") for n in ARITHMETIC + BITS] + ["divmod"]:
    setattr(Knows, f"__r{_name}__", _answer(f"r{_name}"))
for _name in ORDER:
    setattr(Knows, f"__{_name}__", _answer(_name))


class Point(tuple[int, ...]):
    __radd__ = __rmatmul__ = _answer("point")


def _given(name: str) -> Any:
    return jnp.asarray(X.astype(np.int32) if name in BITS else X)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_leave_to_others_what_they_do_not_know(name: str) -> None:
    mirrored = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
    want = mirrored.get(name, f"r{name.strip('_')}")
    assert OPERATORS[name](_given(name), Knows()) == want
    assert fnx.jit(lambda x: OPERATORS[name](x, Knows()) == want)(_given(name))
    in_place = getattr(operator, f"i{name.strip('_')}", None)
    if in_place is not None:
        assert in_place(_given(name), Knows()) == want


@pytest.mark.parametrize("name", OPERATORS)
def test_what_nobody_knows_is_pythons_error(name: str) -> None:
    for a, b in ((_given(name), object()), (object(), _given(name))):
        if name in ("eq", "ne"):
            assert OPERATORS[name](a, b) is (name == "ne")
        else:
            with pytest.raises(TypeError, match="unsupported operand|not supported between"):
                OPERATORS[name](a, b)


def test_what_is_made_of_a_tuple_may_know_arrays() -> None:
    point: Any = Point((1, 2))
    assert jnp.ones(2) + point == "point"
    assert jnp.ones(2) @ point == "point"
    with pytest.raises(TypeError, match="asarray"):
        jnp.ones(2) @ (1, 2)


@pytest.mark.cases(17)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kind", ["array", "NumPy data", "another"])
def test_operators_of_what_stands_for_an_array(name: str, kind: str) -> None:
    x = _given(name)
    p = Parameter({"array": x, "NumPy data": np.asarray(x), "another": Parameter(x)}[kind])
    for f in (OPERATORS[name], fnx.jit(lambda a, b: OPERATORS[name](a, p))):
        for got, want in zip(fnx.tree.leaves(f(x, p)), fnx.tree.leaves(OPERATORS[name](x, x))):
            np.testing.assert_array_equal(got, want)
    for got, want in zip(fnx.tree.leaves(OPERATORS[name](p, x)),
                         fnx.tree.leaves(OPERATORS[name](x, x))):
        np.testing.assert_array_equal(got, want)


TAKES: dict[str, Callable[[Any], Any]] = {
    "sin": jnp.sin, "sum": jnp.sum, "asarray": jnp.asarray, "array": jnp.array,
    "matmul": lambda p: jnp.matmul(p, p), "where": lambda p: jnp.where(2 < jnp.asarray(p), p, 0),
    "stack": lambda p: jnp.stack([p, p]), "concatenate": lambda p: jnp.concatenate([p, p]),
    "list": lambda p: jnp.asarray([p, p]), "nested list": lambda p: jnp.array([[p], [p]]),
    "zeros_like": jnp.zeros_like, "shape": jnp.shape, "einsum": lambda p: jnp.einsum("ij,jk", p, p),
    "relu": nn.relu, "lax": lambda p: lax.add(p, p), "mean": lambda p: jnp.mean(p, axis=0),
    "at": lambda p: jnp.zeros((2, 2)).at[0].set(jnp.asarray(p)[0]),
    "at with it": lambda p: jnp.zeros((2, 2)).at[:].add(p),
    "scan": lambda p: lax.scan(lambda c, _: (c + p, None), jnp.zeros((2, 2)), None, length=2)[0],
    "astype": lambda p: jnp.astype(p, int), "dtype": lambda p: jnp.asarray(p, "float16")}


@pytest.mark.parametrize("name", TAKES)
def test_functions_take_what_stands_for_an_array(name: str) -> None:
    x, f = jnp.asarray(X), TAKES[name]
    want = fnx.tree.leaves(f(x))
    for made in (f(Parameter(x)), f(Parameter(X)), fnx.jit(lambda x: f(Parameter(x)))(x)):
        for got, one in zip(fnx.tree.leaves(made), want):
            np.testing.assert_array_equal(got, one)
            assert jnp.asarray(got).dtype == jnp.asarray(one).dtype


def test_transforms_take_it_too() -> None:
    p, x = Parameter(jnp.asarray(X)), jnp.asarray(X)
    np.testing.assert_array_equal(fnx.grad(lambda x: (x * p @ p).sum())(x),
                                  fnx.grad(lambda y: (y * x @ x).sum())(x))
    for f in (fnx.jit(jnp.sin), fnx.vmap(jnp.sin)):
        np.testing.assert_array_equal(f(p), jnp.sin(x))
    np.testing.assert_array_equal(fnx.grad(lambda w: jnp.sum(jnp.sin(Parameter(w))))(x),
                                  jnp.cos(x))


def test_numbers_and_indices() -> None:
    x = jnp.arange(3.0)
    half = Parameter(0.5)
    assert (x * half).weak_type is False and (jnp.asarray(half).weak_type is True)
    assert x[Parameter(jnp.asarray(2))] == 2
    np.testing.assert_array_equal(x[Parameter(x > 0)], [1, 2])
