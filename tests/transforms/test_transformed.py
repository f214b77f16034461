"""Metadata of transformed functions: for readers, for tools and as methods of classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx import Array
from fnx.transforms.transformed import Transformed


def loss(w: Array, x: Array, *, scale: float = 1.0) -> Array:
    """How far off."""
    return jnp.sum((w - x) ** 2) * scale


TRANSFORMED: list[tuple[Callable[..., Any], str, str]] = [
    (fnx.jit(loss), "loss", "<jit of loss>"),
    (fnx.jit(static_argnames="scale")(loss), "loss", "<jit of loss>"),
    (fnx.grad(loss), "grad(loss)", "<grad of loss>"),
    (fnx.value_and_grad(loss), "value_and_grad(loss)", "<value_and_grad of loss>"),
    (fnx.jit(fnx.grad(loss)), "grad(loss)", "<jit of grad(loss)>"),
    (fnx.call(loss), "call(loss)", "<call of loss>"),
]


@pytest.mark.parametrize(("f", "name", "text"), TRANSFORMED, ids=lambda x: str(x))
def test_names_signature_and_text(f: Any, name: str, text: str) -> None:
    assert (f.__name__, repr(f)) == (name, text)
    assert inspect.signature(f) == inspect.signature(loss)
    assert f.__doc__.endswith("How far off.") and f.__module__ == __name__


def test_the_signature_of_a_kernel_has_no_outputs() -> None:
    @fnx.call(out=lambda x: x)
    def copied(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[i] = x[i]

    assert list(inspect.signature(copied).parameters) == ["x"]
    assert fnx.jit(copied)(jnp.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize("transform", [fnx.jit, fnx.grad, fnx.call])
def test_methods_are_bound(transform: Any) -> None:
    class Model(tuple):
        @transform
        def apply(self, x: Any) -> Any:
            return self[0] * x

    fnx.tree_util.register_pytree_node(Model, lambda m: (tuple(m), None), lambda _, xs: Model(xs))
    model = Model((jnp.asarray(3.0),))
    out = model.apply(jnp.asarray(2.0))
    assert fnx.tree.leaves(out)[0].tolist() == (2 if transform is fnx.grad else 6)
    assert list(inspect.signature(model.apply).parameters) == ["x"]


def test_a_transform_does_not_take_on_the_attributes_of_the_one_that_it_wraps() -> None:
    class First(Transformed[..., int]):
        kind = "first"

        def __init__(self, f: Callable[..., int]) -> None:
            super().__init__(f)
            self._private = 1

    def f() -> int:
        return 0

    f.note = "user's"  # type: ignore[attr-defined]
    second = type("Second", (Transformed,), {"kind": "second"})(First(f))
    assert not hasattr(second, "_private")
    assert second.note == "user's"
