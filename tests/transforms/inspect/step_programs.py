"""Random programs as Python source, for ``debug.step``: each line assigns one 3 x 3 variable."""

from __future__ import annotations

import random

HELPERS = '''
import fnx
import fnx.numpy as jnp
from fnx import lax


def helper(p, q):
    r = p * 0.5 - q
    return jnp.tanh(r) + p


def body(c, row):
    c = c * 0.9 + row
    return c, c - row


jitted = fnx.jit(helper)
'''

LINES = (
    "{v} = jnp.sin({a})", "{v} = {a} + {b}", "{v} = {a} * 0.5 - 1", "{v} = {a} @ {b}",
    "{v} = helper({a}, {b})", "{v} = jitted({a}, {b})", "{v} = jitted({a}, {a} * 2)",
    "{v}, _ = lax.scan(body, {a}, jnp.stack([{b}, {a}]))",
    "_, {v} = lax.scan(body, {a}[0], {b})",
    "{v} = lax.fori_loop(0, 3, lambda i, t: t * 0.5 + i, {a})",
    "{v} = lax.while_loop(lambda t: t.sum() > 1, lambda t: t - 1, {a})",
    "{v} = lax.cond({a}.sum() > 0, lambda t: t * 2, lambda t: t - {b}, {a})",
    "{v} = fnx.vmap(lambda t: helper(t, t * 2))({a})",
    "{v} = fnx.grad(lambda t: (jnp.sin(t) * {b}).sum())({a})",
    "{v} = fnx.jvp(jnp.tanh, ({a},), ({b},))[1]",
    "{v} = jnp.where({a} > 0,\n           {a},\n           {b})",
    "for i in range(2):\n        {v} = {a} * i + 1",
    "{v} = jnp.ones((3, 3)) * 2", "{v} = -{a}",
    "{v} = lax.fori_loop(0, 2, lambda i, t: jnp.cos(t) * {b} + i, {a})",
    "{v} = lax.scan(lambda c, row: (c * 0.5 + jnp.tanh({b}), row.sum()), {a}, {a} - {b})[0]",
    "{v} = lax.cond({b}.sum() > 0, lambda: {a} * 2, lambda: jnp.sin({b}))",
)


def source(seed: int, length: int = 7) -> tuple[str, list[str]]:
    """Return the source of three functions, and their variables: ``f(x, y)``; ``all_values(x, y)``,
    which returns all variables; and ``shifted(x, y, by)``, which adds to each variable one of
    ``by`` and returns what ``f`` does, so that its derivatives are those with respect to variables.
    """
    rng = random.Random(seed)
    names, lines, shifted = ["x", "y"], [], []
    for i in range(length):
        a, b = rng.choice(names), rng.choice(names)
        lines.append("    " + rng.choice(LINES).format(v=f"v{i}", a=a, b=b))
        shifted += [lines[-1], f"    v{i} = v{i} + by['v{i}']"]
        names.append(f"v{i}")
    body, last = "\n".join(lines), names[-1]
    every = ", ".join([f'"{n}": {n}' for n in names[2:]])
    result = f"    return {last}.sum() + sum([v.sum() for v in ({', '.join(names)})])\n"
    return (f"{HELPERS}\n\ndef f(x, y):\n{body}\n{result}\n\n"
            f"def all_values(x, y):\n{body}\n    return {{{every}}}\n\n\n"
            "def shifted(x, y, by):\n" + "\n".join(shifted) + f"\n{result}", names[2:])
