"""An error names each enclosing transform, innermost first, with the user's line."""

from __future__ import annotations

import inspect
import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.errors import FnxError

Call = Callable[[Any], Any]


def _custom_vjp(f: Call) -> Call:
    g = fnx.custom_vjp(f)
    g.defvjp(lambda x: (f(x), None), lambda saved, ct: (ct,))
    return g


def _custom_jvp(f: Call) -> Call:
    g = fnx.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return g


# transform(f, x), and its name in errors
TRANSFORMS: dict[str, tuple[Callable[[Call, Any], Any], str]] = {
    "jit": (lambda f, x: fnx.jit(f)(x), "jit"),
    "grad": (lambda f, x: fnx.grad(f)(x), "grad"),
    "vmap": (lambda f, x: fnx.vmap(f)(jnp.stack([x, x])).sum(0), "vmap"),
    "jvp": (lambda f, x: fnx.jvp(f, (x,), (x,))[1], "jvp"),
    "vjp": (lambda f, x: fnx.vjp(f, x)[0], "vjp"),
    "linearize": (lambda f, x: fnx.linearize(f, x)[1](x), "linearize"),
    "jacfwd": (lambda f, x: fnx.jacfwd(f)(x), "jacfwd"),
    "jacrev": (lambda f, x: fnx.jacrev(f)(x), "jacrev"),
    "scan": (lambda f, x: lax.scan(lambda c, y: (c, f(y)), 0, x[None])[1], "scan"),
    "map": (lambda f, x: lax.map(f, x[None]), "map"),
    "while": (lambda f, x: lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, f(s[1]) + x),
                                          (0, x)), "while_loop"),
    "fori": (lambda f, x: lax.fori_loop(0, 2, lambda i, y: f(y) + x, x), "fori_loop"),
    "associative_scan": (lambda f, x: lax.associative_scan(
        lambda a, b: f(b[0]) + a * 0, jnp.stack([x, x])), "associative_scan"),
    "reduce": (lambda f, x: lax.reduce(x, 0.0, lambda a, b: f(b * jnp.ones(3)) + a, (0,)),
               "reduce"),
    "reduce_window": (lambda f, x: lax.reduce_window(
        x, 0.0, lambda a, b: f(b * jnp.ones(3)) + a, (2,), (1,)), "reduce_window"),
    "cond": (lambda f, x: lax.cond(True, f, lambda x: x.sum(), x), "cond"),
    "switch": (lambda f, x: lax.switch(0, [f], x), "switch"),
    "checkpoint": (lambda f, x: fnx.checkpoint(f)(x), "checkpoint"),
    "call": (lambda f, x: fnx.call(f)(x), "call"),
    "custom_vjp": (lambda f, x: fnx.jit(_custom_vjp(f))(x), "custom_vjp"),
    "custom_jvp": (lambda f, x: fnx.jit(_custom_jvp(f))(x), "custom_jvp"),
    "eval_shape": (lambda f, x: x * len(fnx.eval_shape(f, x).shape), "eval_shape"),
    "linear_transpose": (lambda f, x: fnx.linear_transpose(f, x)(1.0)[0], "linear_transpose"),
}
FAULTS: list[Call] = [
    lambda x: (x + jnp.ones(7)).sum(), lambda x: lax.psum(x, "no such axis").sum(),
    lambda x: lax.scan(lambda c, y: (c, y), x, (jnp.ones(2), jnp.ones(3))),
    lambda x: lax.fori_loop(0, 3, lambda i, c: c[:1], x),
    lambda x: lax.cond(x, jnp.sin, jnp.cos, x),
    lambda x: fnx.vmap(lambda y: y, out_axes=3)(x), lambda x: jnp.zeros(3).at["a"].set(x),
]


def around(name: str, f: Call) -> Call:
    """Wrap f in a transform, as a function that has a line of its own."""
    transform, _ = TRANSFORMS[name]

    def g(x: Any) -> Any:
        return transform(lambda x: f(x).sum(), x).sum()
    return g


@pytest.mark.cases(1)
@pytest.mark.parametrize("part", range(4))
def test_all_are_named_in_order(part: int) -> None:
    rng = random.Random(part)
    pairs = list(itertools.product(TRANSFORMS, repeat=2))
    words = [*[(name,) for name in TRANSFORMS], *pairs[part::4],
             *[tuple(rng.choices(list(TRANSFORMS), k=4)) for _ in range(20)]]
    for word in words:
        fault = rng.choice(FAULTS)
        f = fault
        for name in reversed(word):
            f = around(name, f)
        with pytest.raises(FnxError) as caught:
            f(jnp.ones(3))
        text = str(caught.value)
        line = inspect.getsourcelines(fault)[1]
        assert re.match(rf"\S*test_open_transforms.py:{line}: ", text), (word, text)
        said = re.findall(r"(?:Inside|in) (\w+) of [^(]*\(\S*test_open_transforms.py:\d+\)"
                          r"(?: (\d+) times)?", text)
        found = [kind for kind, times in said for _ in range(int(times or 1))]
        wanted = iter(found)  # transforms may contain others, such as the jit around custom_vjp
        assert all(TRANSFORMS[name][1] in wanted for name in reversed(word)), (word, text)
