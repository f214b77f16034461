"""Random programs: lines that call public functions, and functions of these under compositions of
transforms and loops, over inputs of any dtype and shape."""

from __future__ import annotations

import random as python_random
import re
from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
import fnx.random as random
from fnx.core.ir import dtypes
from tests.attack.agreement import Array, ulp
from tests.attack.calls import CALLS, WORDS, Call
from tests.graphs import values

SHAPES = ((), (1,), (3,), (4,), (7,), (33,), (0,), (1, 4), (3, 1), (3, 4), (4, 4), (5, 7),
          (0, 4), (2, 3, 4), (2, 1, 4), (1, 1, 1))
DTYPES = tuple([t.name for t in dtypes.USER if t.bits < 64])
_FLOAT32 = 0.45  # fraction of the inputs that are float32
SCALARS = ("2", "0", "-1", "3", "0.5", "-2.5", "1e-30", "True", "jnp.inf", "1e30", "7")
_LARGE = 1 << 24  # elements of a result
_WORDY = 0.4  # fraction of the lines that are compositions
_REFUSED = 0.15  # fraction of the rejected lines that stay, as the last one
INDICES = ("[0]", "[0, 0]", "[1, -1]", "[2, 0, 9]", "[-9, 1]", "[[0, 1], [1, 0]]")


class Program(NamedTuple):
    """Values of the inputs x0, x1 ... and lines that make v0, v1 ..."""

    inputs: list[Array]
    lines: list[str]
    exact: list[bool]  # per line: whether its bits are defined

    def __repr__(self) -> str:
        given = [f"x{i} = {x!r}  # {x.dtype}{list(x.shape)}" for i, x in enumerate(self.inputs)]
        return "\n".join([*given, *(f"v{i} = {t}" for i, t in enumerate(self.lines))])


class Writer:
    """Writes a program line by line; each line is tried, so that the next knows shapes."""

    def __init__(self, seed: int) -> None:
        self.rng = python_random.Random(seed)
        draw = np.random.default_rng(seed)
        shapes = [self.rng.choice(SHAPES) for _ in range(2)]
        shapes.append(self.rng.choice(shapes))
        self.inputs = [values(draw, dtypes.as_dtype(
            "float32" if self.rng.random() < _FLOAT32 else self.rng.choice(DTYPES)), s)
            for s in shapes]
        self.env = environment(self.inputs)
        self.pool = [f"x{i}" for i in range(len(self.inputs))]
        self.exact = dict.fromkeys(self.pool, True)
        self.fields: dict[str, str] = {}

    def program(self, calls: int) -> Program:
        lines: list[str] = []
        for _ in range(3 * calls):
            if len(lines) == calls or not self.line(lines):
                break
        return Program(self.inputs, lines, [self.exact[f"v{i}"] for i in range(len(lines))])

    def line(self, lines: list[str]) -> bool:
        """Write one more line if it works and is small enough; return whether others may follow."""
        if self.rng.random() < _WORDY:
            text, exact = self.word(self.rng.choice(self.pool), self.rng.randint(1, 3))
        else:
            call = self.call()
            text, exact = self.text(call), call.exact
        name = f"v{len(lines)}"
        self.exact[name] = exact and all(self.exact[n] for n in self.pool if n in text)
        try:
            self.env[name] = eval(text, self.env)
        except fnx.FnxError as e:
            if isinstance(e, MemoryError):
                return True
            if lines and self.rng.random() > _REFUSED:
                return True
            lines.append(text)
            return False
        if any(getattr(x, "size", 0) > _LARGE for x in fnx.tree.leaves(self.env[name])):
            return True
        lines.append(text)
        if not isinstance(self.env[name], fnx.Array):
            return False
        self.pool.append(name)
        return True

    def call(self) -> Call:
        """Draw a call, rarely an expensive one."""
        call = self.rng.choice(CALLS)
        return self.rng.choice(CALLS) if call.expensive and self.rng.random() < 0.8 else call

    # ---- compositions: a function of z under transforms or in loops

    def word(self, a: str, depth: int) -> tuple[str, bool]:
        """Return at most ``depth`` nested transforms of a function of ``a``, and whether the
        result's bits are defined."""
        x = self.env[a]
        fitting = [w for w in WORDS if (not w.rows or np.ndim(x) and len(x))
                   and (not w.floats or self.dtype(a) == "float32")]
        word = self.rng.choice(fitting)
        before = self.env.get("z"), self.exact.get("z")
        self.env["z"], self.exact["z"] = x[0] if word.rows else x, self.exact[a]
        self.pool.append("z")
        try:
            if depth > 1 and self.rng.random() < 0.6:
                inner, exact = self.word("z", depth - 1)
            else:
                call = self.call_of("z")
                inner, exact = self.text(call, "z"), call.exact
        finally:
            self.pool.remove("z")
            self.env["z"], self.exact["z"] = before
        text = word.text.format(f=f"lambda z: {inner}", a=a, int=self.rng.randrange(-2, 3),
                                n=self.matching(a, self.pool))
        return text, exact and word.exact

    def call_of(self, a: str) -> Call:
        """Draw a call that takes this operand."""
        for _ in range(20):
            call = self.call()
            if call.takes(self.dtype(a)) and self.rank(a) >= (call.rank or 0) and \
                    (self.exact[a] or not call.jumps) and "{a}" in call.text:
                return call
        return Call("{a} + {b}")

    # ---- the fields of a call

    def text(self, call: Call, a: str = "") -> str:
        """Return the call on this operand or on one that it accepts."""
        steady = [n for n in self.pool if self.exact[n]] if call.jumps else self.pool
        for _ in range(0 if a else 7):
            a = self.rng.choice((steady[-1], self.rng.choice(steady)))
            if call.takes(self.dtype(a)) and (call.rank is None or self.rank(a) >= call.rank):
                break
        fields = {"a": a, "b": self.like(a, steady), "n": self.matching(a, steady)}
        shape = tuple(np.shape(self.env[a]))
        axis = self.rng.randrange(-len(shape), len(shape)) if shape else 0
        axes = self.rng.choice(("None", str(axis), f"({axis},)"))
        fields |= {
            "s": self.rng.choice(SCALARS), "axis": str(axis), "axes": axes,
            "keep": self.rng.choice(("True", "False")), "shape": str(shape),
            "size": str(int(np.prod(shape))), "rank": str(max(1, len(shape))),
            "order": str(tuple(self.rng.sample(range(len(shape)), len(shape)))),
            "int": str(self.rng.randrange(-4, 5)), "count": str(self.rng.randrange(0, 4)),
            "dtype": repr(self.rng.choice(("float32", "int32", "uint32", "bool"))),
            "index": f"jnp.asarray({self.rng.choice(INDICES)})",
            "wide": str((2, *shape)), "seed": str(self.rng.randrange(9)),
            "length": str(shape[axis] if shape else 0), "scalar_of": "jnp.zeros((), "
            f"'{self.dtype(a)}')"}
        return call.text.format(**fields)

    def dtype(self, name: str) -> str:
        return str(self.env[name].dtype)

    def rank(self, name: str) -> int:
        return len(np.shape(self.env[name]))

    def like(self, a: str, steady: list[str]) -> str:
        """Draw a second operand: of a shape that broadcasts, often a number."""
        fitting = [n for n in steady if _broadcasts(self.env[n], self.env[a])]
        return self.rng.choice((self.rng.choice(fitting), self.rng.choice(fitting),
                                self.rng.choice(SCALARS)))

    def matching(self, a: str, steady: list[str]) -> str:
        """Draw a second operand of exactly this shape and dtype, as lax requires."""
        x = self.env[a]
        return self.rng.choice([n for n in steady if np.shape(self.env[n]) == np.shape(x)
                                and self.env[n].dtype == x.dtype])


def _broadcasts(x: Any, y: Any) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(np.shape(x)[::-1], np.shape(y)[::-1]))


def environment(inputs: list[Any]) -> dict[str, Any]:
    """Return the names that a program may use."""
    return {"np": np, "jnp": jnp, "lax": lax, "nn": nn, "random": random, "fnx": fnx,
            "own_rule": own_rule, "own_pullback": own_pullback, "with_effect": with_effect,
            "total": total,
            **{f"x{i}": x if isinstance(x, fnx.Array) else jnp.asarray(x)
               for i, x in enumerate(inputs)}}


def own_rule(f: Any) -> Any:
    """Return f with a rule equal to its own derivative."""
    ruled = fnx.custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: fnx.jvp(f, primals, tangents))
    return ruled


def own_pullback(f: Any) -> Any:
    """The same in reverse."""
    ruled = fnx.custom_vjp(f)
    ruled.defvjp(lambda x: (f(x), x), lambda x, ct: fnx.vjp(f, x)[1](ct))
    return ruled


def with_effect(f: Any) -> Any:
    """Return f with a callback on its argument."""
    def g(x: Any) -> Any:
        fnx.debug.callback(lambda _: None, x)
        return f(x)
    return g


def total(out: Any) -> Any:
    """Return the sum of the floats in a result."""
    floats = [x for x in fnx.tree.leaves(out) if isinstance(x, fnx.Array)
              and dtypes.as_dtype(x.dtype).is_float]
    return sum([jnp.sum(x * 0.5) for x in floats], start=jnp.zeros(()))


# ---- running ----------------------------------------------------------------------------------


def results(program: Program, inputs: list[Any], noise: np.random.Generator | None = None,
            moderate: bool = False) -> list[Any]:
    """Return the value of each line. With noise, lines that are not exact are perturbed by some
    ulps, and so are their operands: a sum of floats in any order equals the sum of perturbed
    operands.

    Args:
        moderate: reductions of products get no huge and no tiny numbers, as intermediate overflow
            and underflow depend on the order and on whether a product is rounded.
    """
    env = environment(inputs)
    out = []
    for i, text in enumerate(program.lines):
        given = env if noise is None or program.exact[i] else {**env, **{
            name: moderated(env[name]) if moderate and _PRODUCTS.search(text)
            else _off(env[name], noise) for name in re.findall(r"\b[vx]\d+\b", text)}}
        value = env[f"v{i}"] = eval(text, given)
        if noise is not None and not program.exact[i] and isinstance(value, fnx.Array) \
                and value.dtype.kind == "f":
            env[f"v{i}"] = value = _off(value, noise)
        out.append(value)
    return out


def _off(x: Any, noise: np.random.Generator) -> Any:
    """Perturb the last bits; integers are perturbed as if they were float32."""
    if not isinstance(x, fnx.Array):
        return x
    held = dtypes.as_dtype(x.dtype)
    if held.is_bool:
        return x
    by = (ulp(held) * noise.standard_normal(x.shape)).astype("f4")
    wide = x.astype("float32")  # float8 and int4 are converted by name
    if held.is_float:
        return (wide * (1 + by)).astype(x.dtype)
    return x + jnp.round(wide * by).astype("int32").astype(x.dtype)


_PRODUCTS = re.compile(r"prod|mul|sum|dot|einsum|@|conv|inner|kron|outer|var|std|norm|cov|corr")


def moderated(x: Any) -> Any:
    """Clip numbers so that products of a few neither overflow nor vanish."""
    if not isinstance(x, fnx.Array) or not dtypes.as_dtype(x.dtype).is_float:
        return x
    size = jnp.abs(x)
    mild = jnp.sign(x) * jnp.clip(size, 1e-5, 1e5).astype(x.dtype)
    return jnp.where((size < 1e10) & (size > 1e-10) | (x == 0) | ~jnp.isfinite(x), x, mild)
