"""Random programs over all public functions: jit = eager = interpreter = NumPy; vmap = the loop.

    python -m tests.attack.programs --count 20000 --seed 1
    python -m tests.attack.programs --seconds 600

A program is a few lines of Python, calls of public functions and functions of these under words of
transforms and loops, over inputs of any dtype and shape (0-d, empty, broadcast,
ragged), with odd values (NaN, infinities, both zeros, tiny, huge). It runs eagerly, under ``jit``,
under ``vmap`` and on the interpreter; what is exact has to agree bit for bit (and with NumPy,
where NumPy has the function), the rest within what a change of the last bits of each line does to
it. Its gradient is taken under ``jit``, on the interpreter and now and then eagerly, and along a
direction it is the tangent of forward mode. A program that one way refuses, all refuse, with one
error; only functions of ``VALUED`` may say under ``jit`` that they need values.

Each new line costs a compilation, so some ways are gone by some programs only (``_some``), and
samplers by rejection, dear loops, are drawn seldom.
"""

from __future__ import annotations

import argparse
import contextlib
import random as python_random
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
import fnx.random as random
from fnx.backends.base import get_device
from fnx.core import dtypes
from fnx.core.array.trace import trace
from fnx.core.config import override
from fnx.core.errors import GradError, TracedValueError
from fnx.core.levels import interp
from tests.attack.calls import CALLS, VALUED, WORDS, Call
from tests.graphs import numbers, values

Array = np.ndarray[Any, Any]
SHAPES = ((), (1,), (3,), (4,), (7,), (33,), (0,), (1, 4), (3, 1), (3, 4), (4, 4), (5, 7),
          (0, 4), (2, 3, 4), (2, 1, 4), (1, 1, 1))
DTYPES = tuple([t.name for t in dtypes.USER if t.bits < 64])
_FLOAT32 = 0.45  # part of the inputs that are float32
SCALARS = ("2", "0", "-1", "3", "0.5", "-2.5", "1e-30", "True", "jnp.inf", "1e30", "7")
WORK, HANG = 100.0, 600.0  # seconds of work for a program, and of waiting on a busy machine
_WORDY = 0.4  # part of the lines that are words
_REFUSED = 0.15  # part of the refused lines that stay, as the last one
INDICES = ("[0]", "[0, 0]", "[1, -1]", "[2, 0, 9]", "[-9, 1]", "[[0, 1], [1, 0]]")


class Program(NamedTuple):
    """Values of the inputs x0, x1 ... and lines that make v0, v1 ..."""

    inputs: list[Array]
    lines: list[str]
    exact: list[bool]  # of each line: whether its bits are defined

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
        """Writes one more line, if what it tries works; whether others may follow."""
        if self.rng.random() < _WORDY:
            text, exact = self.word(self.rng.choice(self.pool), self.rng.randint(1, 3))
        else:
            call = self.call()
            text, exact = self.text(call), call.exact
        name = f"v{len(lines)}"
        self.exact[name] = exact and all(self.exact[n] for n in self.pool if n in text)
        try:
            self.env[name] = eval(text, self.env)
        except fnx.FnxError:
            if lines and self.rng.random() > _REFUSED:
                return True
            lines.append(text)
            return False
        lines.append(text)
        if not isinstance(self.env[name], fnx.Array):
            return False
        self.pool.append(name)
        return True

    def call(self) -> Call:
        """A call, seldom a dear one."""
        call = self.rng.choice(CALLS)
        return self.rng.choice(CALLS) if call.dear and self.rng.random() < 0.8 else call

    # ---- words: a function of z under a transform or in a loop

    def word(self, a: str, depth: int) -> tuple[str, bool]:
        """A transform of a function of ``a``, of so many at most, and whether its bits are
        defined."""
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
        """A call that takes this operand."""
        for _ in range(20):
            call = self.call()
            if call.takes(self.dtype(a)) and self.rank(a) >= (call.rank or 0) and \
                    (self.exact[a] or not call.jumps) and "{a}" in call.text:
                return call
        return Call("{a} + {b}")

    # ---- the fields of a call

    def text(self, call: Call, a: str = "") -> str:
        """The call, of this operand or of one that it takes."""
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
        """A second operand: of a shape that broadcasts, often a number."""
        fitting = [n for n in steady if _broadcasts(self.env[n], self.env[a])]
        return self.rng.choice((self.rng.choice(fitting), self.rng.choice(fitting),
                                self.rng.choice(SCALARS)))

    def matching(self, a: str, steady: list[str]) -> str:
        """A second operand of exactly this shape and dtype, as lax wants it."""
        x = self.env[a]
        return self.rng.choice([n for n in steady if np.shape(self.env[n]) == np.shape(x)
                                and self.env[n].dtype == x.dtype])


def _broadcasts(x: Any, y: Any) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(np.shape(x)[::-1], np.shape(y)[::-1]))


def environment(inputs: list[Any]) -> dict[str, Any]:
    """The names that a program may use."""
    return {"np": np, "jnp": jnp, "lax": lax, "nn": nn, "random": random, "fnx": fnx,
            "own_rule": own_rule, "own_pullback": own_pullback, "with_effect": with_effect,
            "total": total,
            **{f"x{i}": x if isinstance(x, fnx.Array) else jnp.asarray(x)
               for i, x in enumerate(inputs)}}


def own_rule(f: Any) -> Any:
    """f, with a rule that says what its derivative is anyway."""
    ruled = fnx.custom_jvp(f)
    ruled.defjvp(lambda primals, tangents: fnx.jvp(f, primals, tangents))
    return ruled


def own_pullback(f: Any) -> Any:
    """The same in reverse."""
    ruled = fnx.custom_vjp(f)
    ruled.defvjp(lambda x: (f(x), x), lambda x, ct: fnx.vjp(f, x)[1](ct))
    return ruled


def with_effect(f: Any) -> Any:
    """f, and a callback that is told its argument."""
    def g(x: Any) -> Any:
        fnx.debug.callback(lambda _: None, x)
        return f(x)
    return g


def total(out: Any) -> Any:
    """The sum of the floats in a result."""
    floats = [x for x in fnx.tree.leaves(out) if isinstance(x, fnx.Array)
              and dtypes.as_dtype(x.dtype).is_float]
    return sum([jnp.sum(x * 0.5) for x in floats], start=jnp.zeros(()))


# ---- running ----------------------------------------------------------------------------------


def results(program: Program, inputs: list[Any], noise: np.random.Generator | None = None,
            moderate: bool = False) -> list[Any]:
    """The value of each line. With noise, lines that are not exact are off by some ulps, and so is
    what they are given: a sum of floats in any order is the sum of operands that are.

    Args:
        moderate: folds of products are given no huge and no tiny numbers: what overflows or
            vanishes underway depends on the order, and on whether a product is rounded.
    """
    env = environment(inputs)
    out = []
    for i, text in enumerate(program.lines):
        given = env if noise is None or program.exact[i] else {**env, **{
            name: _moderate(env[name]) if moderate and _PRODUCTS.search(text)
            else _off(env[name], noise) for name in re.findall(r"\b[vx]\d+\b", text)}}
        value = env[f"v{i}"] = eval(text, given)
        if noise is not None and not program.exact[i] and isinstance(value, fnx.Array) \
                and value.dtype.kind == "f":
            env[f"v{i}"] = value = _off(value, noise)
        out.append(value)
    return out


def _off(x: Any, noise: np.random.Generator) -> Any:
    """An array with other last bits; an integer that is a float is not known better, either."""
    if not isinstance(x, fnx.Array):
        return x
    held = dtypes.as_dtype(x.dtype)
    if held.is_bool:
        return x
    by = (_ulp(held) * noise.standard_normal(x.shape)).astype("f4")
    wide = x.astype("float32")  # float8 and int4 are converted by name
    if held.is_float:
        return (wide * (1 + by)).astype(x.dtype)
    return x + jnp.round(wide * by).astype("int32").astype(x.dtype)


_PRODUCTS = re.compile(r"prod|mul|sum|dot|einsum|@|conv|inner|kron|outer|var|std|norm|cov|corr")


def _moderate(x: Any) -> Any:
    """Numbers of which no product of a few overflows or vanishes."""
    if not isinstance(x, fnx.Array) or not dtypes.as_dtype(x.dtype).is_float:
        return x
    size = jnp.abs(x)
    mild = jnp.sign(x) * jnp.clip(size, 1e-5, 1e5).astype(x.dtype)
    return jnp.where((size < 1e10) & (size > 1e-10) | (x == 0) | ~jnp.isfinite(x), x, mild)


def _ulp(t: dtypes.DType) -> float:
    """How far the last bits are known, of a value of about 1."""
    return 2.0 ** -t.mantissa if t.is_float and t.storage is not None else 3e-7


class Leaf(NamedTuple):
    """An array of a result: its numbers, in a type that NumPy computes in, and its own type."""

    dtype: dtypes.DType
    numbers: Array


def leaves(tree: Any) -> list[Leaf]:
    return [Leaf(dtypes.as_dtype(np.asarray(x).dtype), numbers(x)) for x in fnx.tree.leaves(tree)]


def outcome(f: Any, *args: Any) -> list[list[Leaf]] | fnx.FnxError:
    """Leaves of each of the results, or the error."""
    try:
        return [leaves(x) for x in f(*args)]
    except fnx.FnxError as e:
        return e


def meaning(f: Any, *args: Any) -> list[list[Leaf]] | fnx.FnxError:
    """What the interpreter makes of the graph of a function, as ``outcome``."""
    try:
        with override(device="interp"):
            xs = [jnp.asarray(x) for x in args]
            traced = trace(f, [x._aval for x in xs], fnx.tree.structure((tuple(xs), {})),
                           [x._node for x in xs], by="meaning", name="program")
            held = [*args, *[np.zeros(0, bool)] * bool(traced.tokens)]
            env = dict(zip([*traced.leaves, *traced.tokens[:1]], held))
            made = interp.evaluate([x._node for x in traced.outs], env)
        return [leaves(x) for x in traced.out_tree.unflatten(made)]
    except fnx.FnxError as e:
        return e


def flat(results: list[list[Leaf]]) -> list[Leaf]:
    return [leaf for line in results for leaf in line]


class Wrong(AssertionError):
    """Two ways disagree."""


def _some(program: Program, part: int) -> bool:
    """One program of so many."""
    return sum(map(len, program.lines)) % part == 0


def _needs_values(program: Program, error: Any) -> bool:
    """Whether a trace may refuse this: the shape of a result is decided by a value."""
    return isinstance(error, TracedValueError) and \
        any(re.search(rf"\b{name}\b", text) for name in VALUED for text in program.lines)


def check(program: Program) -> str:
    """Run a program in all ways.

    Returns:
        "ran", "differentiated" or "refused".

    Raises:
        Wrong: two ways disagree.
    """
    def whole(*inputs: Any) -> Any:
        return results(program, list(inputs))

    eager = outcome(whole, *program.inputs)
    jitted = outcome(fnx.jit(whole), *program.inputs)
    if _some(program, 8):
        with override(device="interp"):
            interpreted = outcome(whole, *program.inputs)
    else:
        interpreted = meaning(whole, *program.inputs)
    if isinstance(eager, Exception):
        for way, got in (("jit", jitted), ("interp", interpreted)):
            if type(got) is not type(eager) and not (isinstance(got, Exception) and (
                    way == "jit" or _needs_values(program, got))):
                raise Wrong(f"{way}: expected {type(eager).__name__}: {eager}; got {got!r}")
        return "refused"
    for way, got in (("jit", jitted), ("interp", interpreted)):
        if isinstance(got, Exception):
            if _needs_values(program, got):  # rules are traced without values on both
                continue
            raise Wrong(f"{way} refuses what eager does: {got}") from got
        compare(program, way, got, eager)
    compare_numpy(program, eager)
    if _some(program, 3):  # it is as dear as all the rest
        in_lanes(program)
    return differentiate(program, eager)


def compare(program: Program, way: str, got: list[list[Leaf]], want: list[list[Leaf]]) -> None:
    exact = [exact for exact, line in zip(program.exact, want) for _ in line]
    noisy: list[list[Leaf]] | None = None
    for i, (g, w) in enumerate(zip(flat(got), flat(want), strict=True)):
        if g.dtype != w.dtype or g.numbers.shape != w.numbers.shape:
            raise Wrong(f"{way}, leaf {i}: {g.dtype}{g.numbers.shape} and "
                        f"{w.dtype}{w.numbers.shape}")
        if same(g.numbers, w.numbers) or (not exact[i] and _close(g, w, 1e-5)):
            continue
        if not exact[i]:
            if noisy is None:
                noisy = [_noisy(program, seed) for seed in range(5)]
            known = _known_to(w.dtype, flat(want)[:i + 1], exact)
            if _explained(g, w, [n[i] for n in noisy], known):
                continue
            if _huge(flat(want)[:i], program.inputs) and _fused(g, w, noisy[-1][i]):
                continue
        raise Wrong(f"{way}, leaf {i}, {g.dtype}: got\n{g.numbers!r}\nexpected\n{w.numbers!r}")


def _noisy(program: Program, seed: int) -> list[Leaf]:
    return [leaf for value in results(program, program.inputs, np.random.default_rng(seed),
                                      moderate=seed == 4) for leaf in leaves(value)]


def _known_to(t: dtypes.DType, made: list[Leaf], exact: list[bool]) -> float:
    """How far a difference of what was computed before is known: noise does not show it where it
    decides which of equal numbers is the largest."""
    sizes = [np.abs(x.numbers[np.isfinite(x.numbers)].astype("f8"))
             for x, is_exact in zip(made, exact) if x.dtype.is_float and not is_exact]
    return 2 * _ulp(t) * max([size[size < 1e6].max(initial=0.0) for size in sizes], default=0.0)


def _explained(g: Leaf, w: Leaf, noisy: list[Leaf], known: float = 0.0) -> bool:
    """Whether noise in the last bits moves the values as much. What is infinite or NaN has to be
    so, unless noise decides it."""
    if not w.dtype.is_float:
        return False
    got, want = g.numbers, w.numbers
    with np.errstate(all="ignore"):
        steady = np.all([same_each(n.numbers, want) for n in noisy], axis=0) & ~np.isfinite(want)
        spread = np.max([np.abs(n.numbers.astype("f8") - want) for n in noisy], axis=0)
        off = np.abs(got.astype("f8") - want)
        scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        near = off <= 100 * spread + max(1e-5, 2 * _ulp(w.dtype)) * scale + known
        near |= ~np.isfinite(spread)
        return bool(np.all(near & ~steady | same_each(got, want)))


def _huge(made: list[Leaf], inputs: list[Array]) -> bool:
    """Whether there are numbers of which products overflow."""
    held = [x.numbers for x in made if x.dtype.is_float] + \
        [np.asarray(fnx.numpy.asarray(x).astype("float32")) for x in inputs]
    return any(bool(np.any((np.abs(x) > 1e10) & np.isfinite(x))) for x in held)


def _fused(g: Leaf, w: Leaf, mild: Leaf) -> bool:
    """Whether results differ only where one is NaN, and the other is what moderate numbers give,
    too: a fused multiply-add does not overflow before it adds."""
    if not w.dtype.is_float:
        return False
    got, want = g.numbers, w.numbers
    infinite = np.where(np.isnan(got), want, got)
    either = (np.isnan(got) != np.isnan(want)) & np.isinf(infinite)
    return bool(np.all(same_each(got, want) | either & same_each(infinite, mild.numbers)))


def _close(g: Leaf, w: Leaf, tolerance: float) -> bool:
    if not w.dtype.is_float:
        return False
    got, want = g.numbers, w.numbers
    with np.errstate(all="ignore"):
        scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        near = np.abs(got.astype("f8") - want) <= max(tolerance, 2 * _ulp(w.dtype)) \
            * np.abs(want) + 1e-7 * scale
    return bool(np.all(near | same_each(got, want)))


def same_each(g: Array, w: Array) -> Any:
    """Where two arrays have equal bits; any NaN equals any NaN."""
    if g.dtype.kind != "f":
        return g == w
    return ((g == w) & (np.signbit(g) == np.signbit(w))) | (np.isnan(g) & np.isnan(w))


def same(g: Array, w: Array) -> bool:
    return bool(np.all(same_each(g, w)))


_OF_NUMPY = {c.text.split("(")[0] for c in CALLS if c.numpy}


def compare_numpy(program: Program, eager: list[list[Leaf]]) -> None:
    """Lines that NumPy defines, computed from the values that the lines before gave."""
    env: dict[str, Any] = {"np": np, "jnp": np, **{f"x{i}": x
                                                   for i, x in enumerate(program.inputs)}}
    for i, (text, line) in enumerate(zip(program.lines, eager)):
        if len(line) != 1:
            continue
        value = env[f"v{i}"] = line[0].numbers
        used = [env[name] for name in re.findall(r"\b[vx]\d+\b", text)]
        if text.split("(")[0] not in _OF_NUMPY or "index" in text or "asarray" in text or \
                any(x.dtype.names for x in used) or line[0].dtype.storage is not None:
            continue
        if used and np.result_type(*used).itemsize > max(x.dtype.itemsize for x in used):
            continue  # NumPy computes in 64 bits
        if any(x.dtype.kind == "u" for x in used) and "-" in text:
            continue  # NumPy compares with -1, JAX with what it is as an unsigned number
        try:
            with np.errstate(all="ignore"):
                want = np.asarray(eval(text, env))
        except (OverflowError, TypeError):  # NumPy refuses the number, or bools
            continue
        if text.startswith(("jnp.maximum", "jnp.minimum")):  # either zero is the larger
            value, want = value + value.dtype.type(0), want + want.dtype.type(0)
        if want.dtype.kind != value.dtype.kind or want.dtype.itemsize < value.dtype.itemsize:
            continue
        if not same(value, want.astype(value.dtype)) and want.dtype == value.dtype:
            raise Wrong(f"NumPy, line {i}: got\n{value!r}\nexpected\n{want!r}")


def in_lanes(program: Program, size: int = 3) -> None:
    """Under vmap, over inputs of which some differ from lane to lane, it is the stacked loop."""
    batched = [i % 2 == len(program.lines) % 2 or len(program.inputs) == 1
               for i in range(len(program.inputs))]
    if not any(batched):
        return
    lanes = [[np.roll(x, k) if b else x for x, b in zip(program.inputs, batched)]
             for k in range(size)]
    alone = [outcome(lambda *xs: results(program, list(xs)), *lane) for lane in lanes]
    if any(isinstance(a, Exception) for a in alone):
        return
    given = [np.stack(column) if b else column[0] for column, b in zip(zip(*lanes), batched)]
    mapped = fnx.vmap(lambda *xs: results(program, list(xs)),
                      in_axes=tuple([0 if b else None for b in batched]))
    ways = [fnx.jit(mapped), mapped]
    for f in ways if _some(program, 4) else ways[_some(program, 2):][:1]:
        got = outcome(f, *given)
        if _needs_values(program, got):
            return
        if isinstance(got, Exception):
            raise Wrong(f"vmap refuses what each lane does: {got}") from got
        for k, lane in enumerate(lanes):
            own = Program(lane, program.lines, program.exact)
            in_lane = [[Leaf(leaf.dtype, leaf.numbers[k]) for leaf in line] for line in got]
            compare(own, f"vmap, lane {k}", in_lane, alone[k])


def differentiate(program: Program, eager: list[list[Leaf]]) -> str:
    """The gradient of the last float32: all ways agree, also about what has none."""
    moving = [i for i, x in enumerate(program.inputs) if x.dtype == np.float32]
    last = [i for i, leaf in enumerate(flat(eager)) if leaf.dtype == dtypes.float32]
    if not moving or not last:
        return "ran"
    draw = np.random.default_rng(1)
    weights = draw.standard_normal(flat(eager)[last[-1]].numbers.shape).astype("f4")

    def loss(noise: int | None, *inputs: Any) -> Any:
        made = list(program.inputs)
        for i, x in zip(moving, inputs):
            made[i] = x
        rng = None if noise is None else np.random.default_rng(noise)
        return (fnx.tree.leaves(results(program, made, rng))[last[-1]] * weights).sum()

    gradient = fnx.grad(loss, argnums=tuple(range(1, len(moving) + 1)))
    given = [program.inputs[i] for i in moving]
    along = [draw.standard_normal(x.shape).astype("f4") for x in given]

    def tangent(noise: int | None, *inputs: Any) -> Any:
        return [fnx.jvp(partial(loss, noise), inputs, tuple(along))[1]]

    def both(*inputs: Any) -> Any:
        return [*gradient(None, *inputs), *tangent(None, *inputs)]

    want = meaning(both, *given)
    if isinstance(want, GradError):  # of a mode only
        want = meaning(partial(gradient, None), *given)
        along.clear()
    ways = {"jit": fnx.jit(partial(gradient, None)), "eager": partial(gradient, None)}
    for way, f in [*ways.items()][:1 + _some(program, 4)]:
        got = outcome(f, *given)
        if way == "jit" and _needs_values(program, got):
            continue
        if isinstance(got, Exception) or isinstance(want, Exception):
            if type(got) is not type(want):
                raise Wrong(f"gradient: {way} {got!r}, interp {want!r}")
            return "ran"
        noisy: list[Any] | None = None
        for i, (g, w) in enumerate(zip(flat(got), flat(want))):
            if same(g.numbers, w.numbers) or _close(g, w, 1e-4):
                continue
            if noisy is None:
                noisy = [outcome(gradient, seed, *given) for seed in range(4)]
            if not _explained(g, w, [n[i][0] for n in noisy]):
                raise Wrong(f"gradient by x{moving[i]}: {way}\n{g.numbers!r}\ninterp\n"
                            f"{w.numbers!r}")
    if isinstance(want, Exception):
        return "ran"
    if along:
        fault = both_modes(flat(want), along, lambda: [
            flat(made)[0] for made in (outcome(tangent, seed, *given) for seed in range(4))
            if not isinstance(made, Exception)])
        if fault:  # beside 1e30 the modes round differently, by more than all the rest
            again = meaning(both, *[np.asarray(_moderate(jnp.asarray(x))) for x in given])
            if not isinstance(again, Exception) and both_modes(flat(again), along, list):
                raise Wrong(fault)
    return "differentiated"


def both_modes(made: list[Leaf], along: list[Array], noisy: Callable[[], list[Leaf]]) -> str:
    """The gradient along a direction is the tangent of forward mode: what differs, where both are
    finite and noise does not explain it."""
    with np.errstate(all="ignore"):
        terms = np.concatenate([(g.numbers.astype("f8") * v).ravel()
                                for g, v in zip(made, along)])
        tangent, size = float(made[-1].numbers), np.abs(terms).sum()
    if not np.isfinite(size) or not np.isfinite(tangent) or size > 1e30:
        return ""
    off = abs(terms.sum() - tangent)
    if off > 1e-2 * size + 1e-5 and \
            not off <= 100 * max([abs(n.numbers - tangent) for n in noisy()], default=0.0):
        return f"reverse mode along a direction: {terms.sum()}; forward mode: {tangent}"
    return ""


# ---- the attack -------------------------------------------------------------------------------


def program_of(seed: int) -> Program:
    """The program of a seed."""
    return Writer(seed).program(1 + seed % 4)


@contextlib.contextmanager
def within(work: float, seconds: float) -> Iterator[None]:
    """What works or takes longer is reported."""
    def handler(number: int, _: Any) -> None:
        raise Wrong(f"not done in {seconds} s" if number == signal.SIGALRM else
                    f"not done in {work} s of work")

    timers = {signal.SIGALRM: (signal.ITIMER_REAL, seconds),
              signal.SIGPROF: (signal.ITIMER_PROF, work)}
    before = {number: signal.signal(number, handler) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def attack(first: int, count: int | None, seconds: float | None, report: int = 500
           ) -> tuple[Counter[str], list[int]]:
    """Run programs from a seed on; how many did what, and the seeds that were wrong."""
    counts: Counter[str] = Counter()
    wrong: list[int] = []
    start = time.monotonic()
    seed = first
    while (count is None or seed < first + count) and \
            (seconds is None or time.monotonic() - start < seconds):
        try:
            with override(cache_dir=""), within(WORK, HANG):
                counts[check(program_of(seed))] += 1
        except (Wrong, fnx.FnxError, ArithmeticError, LookupError, TypeError, ValueError,
                AssertionError, AttributeError, RuntimeError, StopIteration, MemoryError) as e:
            wrong.append(seed)
            counts["wrong"] += 1
            print(f"seed {seed}: {type(e).__name__}: {str(e)[:1500]}")
            device: Any = get_device("cpu")
            device.queue.abort()  # what does not end is not in the way of others
            if not isinstance(e, Wrong):
                traceback.print_exc(limit=-4, file=sys.stdout)
            print(program_of(seed) if isinstance(e, Wrong) else "", flush=True)
        seed += 1
        if (seed - first) % report == 0:
            print(f"{seed - first} programs, {time.monotonic() - start:.0f} s: {dict(counts)}",
                  flush=True)
    return counts, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gigabytes", type=int, default=8, help="of addresses; above: an error")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (given.gigabytes << 30,) * 2)
    seconds = 60.0 if given.count is None and given.seconds is None else given.seconds
    counts, wrong = attack(given.seed, given.count, seconds)
    print(f"{sum(counts.values())} programs: {dict(counts)}; wrong seeds: {wrong}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
