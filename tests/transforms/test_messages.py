"""Error messages of transforms, in full, with the user's line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import fnx
import fnx.numpy as jnp
from fnx import Array
from fnx.core.support.errors import FnxError, NestingError

THIS = __file__.rpartition("/")[2]
KEPT: list[Any] = []


class Model:
    def __init__(self) -> None:
        self.w = jnp.ones(2)

    @fnx.jit
    def apply(self, x: Array) -> Array:
        return x * self.w


def two(x: Array, y: Array) -> Array:
    return x + y


def keeps(x: Array) -> Array:
    KEPT.append(x.sum())
    return x


def leak() -> Any:
    fnx.jit(keeps)(jnp.ones(2))
    return KEPT.pop() + 1


def asks_a_sum(x: Array) -> Array:
    total = x.sum()
    return x if total > 0 else -x


def endless(x: Any) -> Any:
    return ENDLESS(x)


ENDLESS = fnx.jit(endless)
X = jnp.ones(2)

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "arity": (lambda: fnx.jit(two)(X, X, X),
              "two(x: 'Array', y: 'Array') -> 'Array': too many positional arguments\n"
              "  Fix: the parameters are x, y"),
    "missing": (lambda: fnx.jit(two)(X),
                "two(x: 'Array', y: 'Array') -> 'Array': missing a required argument: 'y'\n"
                "  Fix: the parameters are x, y"),
    "keyword": (lambda: fnx.jit(two)(X, z=X),
                "two(x: 'Array', y: 'Array') -> 'Array': missing a required argument: 'y'\n"
                "  Fix: the parameters are x, y"),
    "donated": (lambda: fnx.jit(two, donate_argnums=5),
                "expected donate_argnums below 2, got 5\n"
                "  Fix: the parameters are x, y"),
    "static": (lambda: fnx.jit(two, static_argnums=-3),
               "expected static_argnums below 2, got -3\n"
               "  Fix: the parameters are x, y"),
    "method": (lambda: Model().apply(X),
               "argument args[0] of apply: expected an array or a number, got Model\n"
               "  Fix: this is self of a method of Model: make Model a pytree with "
               "fnx.tree_util.register_dataclass, so that its arrays are arguments, or name it in "
               "static_argnums=0 if it never changes"),
    "key": (lambda: fnx.jit(lambda x: {x: 1}[x])(jnp.asarray(1)),
            "unhashable: expected a dict key or an element of a set, got Traced<int32[], weak_type="
            f"True>(jit of <lambda>)\n  Inside jit of <lambda> ({THIS}:LINE)\n"
            "  Fix: index an array, values[i], or use fnx.lax.switch; x.item() gives a number if "
            "the value is concrete"),
    "leaked": (leak,
               "add: expected an array, got a traced float32[2] that outlived its trace: jit of "
               f"keeps called at {THIS}:LINE\n  Fix: return it from the traced function; do not "
               "store it outside or pass it to another thread"),
    "if": (lambda: fnx.jit(asks_a_sum)(X),
           f"expected a concrete value, got a traced bool[] computed at {THIS}:LINE: "
           "jit of asks_a_sum traces with abstract values; it depends on the argument x\n"
           f"  Inside jit of asks_a_sum "
           f"({THIS}:LINE)\n"
           "  Fix: use fnx.numpy.where(condition, a, b) or fnx.lax.cond instead of Python's `if`; "
           "for a loop of traced length use fnx.lax.fori_loop or fnx.lax.while_loop"),
    "result": (lambda: fnx.jit(lambda x: {"y": [x, "text"]})(X),
               "result ['y'][1] of <lambda>: expected an array or a number, got str\n"
               f"  Inside jit of <lambda> ({THIS}:LINE)\n"
               "  Fix: return arrays, numbers or None in tuples, lists and dicts"),
    "has_aux": (lambda: fnx.grad(lambda x: x, has_aux=True)(1.0),
                "has_aux=True: expected <lambda> to return (result, aux), got Array\n"
                f"  Inside grad of <lambda> ({THIS}:LINE)\n"
                "  Fix: return a tuple (result, aux)"),
    "not a function": (lambda: fnx.grad(3.0),  # type: ignore[arg-type]
                       "grad: expected a function, got float\n"
                       "  Fix: write grad(f)(x), not grad(f(x))"),
    "endless": (lambda: ENDLESS(X),
                "expected at most 500 nested traces, got one more: jit of endless\n"
                f"  Inside jit of endless ({THIS}:LINE) 500 times in jit of endless "
                f"({THIS}:LINE)\n"
                "  Fix: check whether a traced function calls itself"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_message(name: str) -> None:
    mistake, want = MISTAKES[name]
    with pytest.raises(FnxError) as e:
        mistake()
    text = re.sub(r"[^\s(]*" + THIS + r":\d+", f"{THIS}:LINE", str(e.value))
    assert text == f"{THIS}:LINE: {want}"


def test_a_tree_that_is_too_deep() -> None:
    tree: Any = X
    for _ in range(300):
        tree = [tree]
    with pytest.raises(NestingError, match=rf"{THIS}.*at most 256 containers deep, got a list"):
        fnx.jit(lambda t: t)(tree)


@pytest.mark.parametrize("wrap", [lambda t: [t], lambda t: (t,), lambda t: {"a": t}])
def test_trees_199_deep(wrap: Any) -> None:
    tree: Any = X
    for _ in range(199):
        tree = wrap(tree)
    f = fnx.jit(lambda t: t)
    for _ in range(3):
        assert fnx.tree.leaves(f(tree))[0].tolist() == [1, 1]
    assert f._launchers


def test_200_nested_jitted_functions() -> None:
    f: Any = jnp.sin
    for _ in range(200):
        f = fnx.jit(lambda x, f=f: f(x) * 1.0)
    assert float(fnx.grad(f)(0.0)) == 1.0 and float(fnx.jit(fnx.grad(f))(0.0)) == 1.0


def test_python_says_what_an_array_lacks() -> None:
    """Outside of traces the last frame is the user's, and the message suggests the closest name."""
    code = "import fnx.numpy as jnp\nx = jnp.ones(2)\nx.shap\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "'Array' object has no attribute 'shap'. Did you mean: 'shape'?" in done.stderr
    assert done.stderr.count("File ") == 1
