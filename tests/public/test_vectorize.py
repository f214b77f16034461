"""jnp.vectorize against numpy.vectorize, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, ShapeError

SHAPES = [((), ()), ((3,), ()), ((3, 1), (4,)), ((1, 1), (5, 1)), ((2, 1, 4), (3, 1)),
          ((0,), (2, 1)), ((1,), (1, 1))]


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize(("signature", "f", "g"), [
    (None, lambda x, y: x * y + 1, lambda x, y: x * y + 1),
    ("(n),(n)->()", jnp.dot, np.dot),
    ("(n),(m)->(n,m)", jnp.outer, np.outer),
    ("(n),(n)->(),(n)", lambda x, y: (x @ y, x + y), lambda x, y: (x @ y, x + y)),
    ("(),(n)->(k)", lambda x, y: jnp.concatenate([x[None], y]),
     lambda x, y: np.concatenate([x[None], y])),
    ("( 3 ),(n) -> ()", lambda x, y: x.sum() * y.sum(), lambda x, y: x.sum() * y.sum())])
def test_as_numpy(shapes: Any, signature: str | None, f: Any, g: Any) -> None:
    dims = [(), ()] if signature is None else [(3,), (3,)]
    if signature == "(),(n)->(k)":
        dims = [(), (3,)]
    x, y = (drawn(*s, *d) for s, d in zip(shapes, dims))
    named = signature and signature.replace(" ", "").replace("3", "m")
    got = jnp.vectorize(f, signature=signature)(x, y)
    if 0 in x.shape:
        assert fnx.tree.leaves(got)[0].shape[:2] == (2, 0)
        return
    want = np.vectorize(g, signature=named or "(),()->()")(x, y)
    for a, b in zip(fnx.tree.leaves(got), want if isinstance(want, tuple) else [want]):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_arguments_that_are_handed_on() -> None:
    def f(x: Any, how: str, y: Any = None) -> Any:
        return x + len(how) if y is None else x * y

    x = drawn(2, 3)
    np.testing.assert_allclose(jnp.vectorize(f, excluded={1})(x, "abc"), x + 3)
    np.testing.assert_allclose(jnp.vectorize(f, excluded={"how"})(x, how="abc"), x + 3)
    np.testing.assert_allclose(jnp.vectorize(f, excluded={1})(x, "abc", x[0]), x * x[0])
    np.testing.assert_allclose(jnp.vectorize(f, excluded={1})(x, "abc", None), x + 3)


@pytest.mark.parametrize(("kind", "call", "words"), [
    (ArgumentError, lambda: jnp.vectorize(jnp.dot, signature="(n),(n)"), ["signature", "(n),(n)"]),
    (ArgumentError, lambda: jnp.vectorize(jnp.dot, signature=3), ["signature", "3"]),
    (ArgumentError, lambda: jnp.vectorize(jnp.dot, excluded={-1}), ["excluded", "-1"]),
    (ArgumentError, lambda: jnp.vectorize(3), ["expected a function"]),
    (ArgumentError, lambda: jnp.vectorize(jnp.dot, signature="(n),(n)->()")(drawn(3)),
     ["2 arguments", "got 1", "dot"]),
    (ArgumentError, lambda: jnp.vectorize(lambda a, b: a)(1.0, b=2.0), ["'b'", "excluded"]),
    (ArgumentError, lambda: jnp.vectorize(lambda a: a, signature="(n)->(n),(n)")(drawn(3)),
     ["2 results", "one result"]),
    (ShapeError, lambda: jnp.vectorize(jnp.dot, signature="(n),(n)->()")(drawn(3), drawn(4)),
     ["length 3", "'n'", "argument 1", "(4,)"]),
    (ShapeError, lambda: jnp.vectorize(jnp.dot, signature="(n),(n)->()")(1.0, drawn(4)),
     ["argument 0", "at least 1"]),
    (ShapeError, lambda: jnp.vectorize(jnp.sum, signature="(2)->()")(drawn(3)), ["length 2"]),
    (ShapeError, lambda: jnp.vectorize(lambda a: a, signature="(n)->()")(drawn(3)),
     ["result 0", "(3,)"]),
    (ShapeError, lambda: jnp.vectorize(jnp.add)(drawn(3), drawn(2)), ["(3,)", "(2,)"])])
def test_refused(kind: type[Exception], call: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value), str(caught.value)
