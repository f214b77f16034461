"""Random programs as Python source, with a line whose derivative (or value) is NaN."""

from __future__ import annotations

import random

HEAD = '''
import fnx
import fnx.numpy as jnp
from fnx import lax
'''
AT = 2  # the iteration in which ``v`` is 0
SOURCES = ("jnp.sqrt(v)", "v ** 0.5", "(v * 3) ** 0.25",
           "jnp.arccos(1 - v)", "jnp.cbrt(v)", "jnp.power(v, 0.25)",
           "jnp.sqrt(jnp.sum(jnp.ones(4) * v))", "jnp.log1p(jnp.sqrt(v))", "v * jnp.log(v)")
VALUES = ("v / v", "jnp.log(v) * v", "jnp.sqrt(v - 1e-3)", "jnp.log(v - 1e-3)")
HARMLESS = ("{n} = jnp.sin({a}) + 2", "{n} = {a} * 0.5", "{n} = jnp.tanh({a} + {b})",
            "{n} = {a} - {b} * 0.25", "{n} = jnp.exp(-{a} * {a})", "{n} = twice({a})")
LOOPS = {
    "scan": "(a, acc), _ = lax.scan(lambda s, i: (body(i, s), None), (x, 0.0), jnp.arange(4))",
    "backward scan": "(a, acc), _ = lax.scan(lambda s, i: (body(3 - i, s), None), (x, 0.0), "
                     "jnp.arange(4), reverse=True)",
    "fori": "a, acc = lax.fori_loop(0, 4, body, (x, 0.0))",
    "while": "_, a, acc = lax.while_loop(lambda s: s[0] < 4, "
             "lambda s: (s[0] + 1, *body(s[0], s[1:])), (0, x, 0.0))",
    "long while": "_, a, acc = lax.while_loop(lambda s: s[0] < 70, "
                  "lambda s: (s[0] + 1, *body(s[0], s[1:])), (0, x, 0.0))",
    "cond": "a, acc = lax.cond(x > 0, lambda x: body(AT, (x, 0.0)), lambda x: (x, x), x)",
    "nested": "(a, acc), _ = lax.scan(lambda s, _: (lax.fori_loop(0, 4, body, s), None), "
              "(x, 0.0), None, length=2)",
    "cond in scan": "(a, acc), _ = lax.scan(lambda s, i: (lax.cond(i > 1, body, "
                    "lambda i, s: (s[0] * 0.9, s[1]), i, s), None), (x, 0.0), jnp.arange(4))",
    "checkpoint": "(a, acc), _ = lax.scan(fnx.checkpoint(lambda s, i: (body(i, s), None)), "
                  "(x, 0.0), jnp.arange(4))",
}


def source(seed: int, sources: tuple[str, ...] = SOURCES) -> tuple[str, int, str]:
    """Return the source of ``f(x)``, the number of the line with the NaN, and the kind of loop."""
    rng = random.Random(seed)
    loop = list(LOOPS)[seed % len(LOOPS)]
    names, lines = ["a", "acc"], []
    at = rng.randrange(4)
    for k in range(5):
        if k == at:
            lines += [f"v = a * a * jnp.where(i == {AT}, 0.0, 1.0)", f"p = {rng.choice(sources)}"]
            planted = len(lines)
            names.append("p")
        lines.append(rng.choice(HARMLESS).format(n=f"t{k}", a=rng.choice(names),
                                                 b=rng.choice(names)))
        names.append(f"t{k}")
    lines.append(f"return jnp.tanh(a) + 0.1, acc + p + {names[-1]} * 0.125")
    text = f"{HEAD}\nAT = {AT}\n\n\ndef twice(x):\n    return x * {1.5 + seed / 1024}\n\n\n" \
        "def body(i, s):\n    a, acc = s\n    "
    line = text.count("\n") + planted
    text += "\n    ".join(lines) + f"\n\n\ndef f(x):\n    {LOOPS[loop]}\n    out = acc * 2 + a\n" \
        "    return out\n"
    return text, line, loop
