"""Random programs of loops: compiled, batched and differentiated as plain Python says.

    python -m tests.attack.loops --count 3000 --seed 1

A program is a loop over a few carries of small shapes, whose steps slice at moving indices, read
diagonals and repeated axes, swap carries, update in place, branch and run loops of their own (some
with no steps). Numbers are integers, so every bit is defined. It runs as Python on NumPy, under
jit, under vmap and with its arguments donated; if no condition depends on data, its gradient is
that of the unrolled steps. Half of the programs cut unbounded loops into strips of one to three
steps, and also loops of commands that are one kernel.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.lower.loops import strip_mine
from tests.attack import seeds

Env = list[tuple[tuple[int, ...], Any]]
Value = Callable[[Any, Env], Any]  # (language, variables) -> array
SHAPES = ((), (3,), (4, 4), (2, 5), (20,), (5,), (4,), (12, 12))
TRIPS = (0, 1, 2, 3, 5, 12, 40)
MODULUS = 1009


class Compiled:
    """The language of fnx."""

    np, lax = jnp, lax

    def scan(self, f: Any, init: Any, xs: Any, n: int, reverse: bool) -> Any:
        return lax.scan(f, init, xs, length=n, reverse=reverse)

    def fori(self, n: Any, f: Any, init: Any) -> Any:
        return lax.fori_loop(0, n, f, init)

    def while_(self, holds: Any, f: Any, init: Any) -> Any:
        return lax.while_loop(holds, f, init)

    def cond(self, holds: Any, f: Any, g: Any, x: Any) -> Any:
        return lax.cond(holds, f, g, x)

    def row(self, x: Any, i: Any) -> Any:
        return lax.dynamic_index_in_dim(x, i, 0, False)

    def part(self, x: Any, i: Any, n: int) -> Any:
        return lax.dynamic_slice(x, (i,), (n,))

    def order(self, x: Any) -> Any:
        return jnp.argsort(x)

    def put(self, x: Any, i: Any, value: Any, add: bool) -> Any:
        return x.at[i].add(value) if add else x.at[i].set(value)


class Plain:
    """The same in Python, on NumPy (or, for gradients, on traced arrays)."""

    def __init__(self, module: Any = np) -> None:
        self.np = module

    def scan(self, f: Any, init: Any, xs: Any, n: int, reverse: bool) -> Any:
        ys: list[Any] = [None] * n
        for t in reversed(range(n)) if reverse else range(n):
            init, ys[t] = f(init, None if xs is None else xs[t])
        return init, self.np.stack(ys) if n and ys[0] is not None else None

    def fori(self, n: Any, f: Any, init: Any) -> Any:
        for i in range(int(n)):
            init = f(np.int32(i), init)
        return init

    def while_(self, holds: Any, f: Any, init: Any) -> Any:
        while holds(init):
            init = f(init)
        return init

    def cond(self, holds: Any, f: Any, g: Any, x: Any) -> Any:
        return f(x) if holds else g(x)

    def row(self, x: Any, i: Any) -> Any:
        return x[min(max(int(i), 0), len(x) - 1)]

    def part(self, x: Any, i: Any, n: int) -> Any:
        start = min(max(int(i), 0), len(x) - n)
        return x[start:start + n]

    def order(self, x: Any) -> Any:
        return jnp.argsort(x) if self.np is jnp else np.argsort(x, kind="stable")

    def put(self, x: Any, i: Any, value: Any, add: bool) -> Any:
        if self.np is jnp:
            return x.at[int(i)].add(value) if add else x.at[int(i)].set(value)
        out = np.array(x)
        out[int(i)] = out[int(i)] + value if add else value
        return out


class Writer:
    """Draws a program. ``smooth``: of floats, without what has no comparable gradient."""

    def __init__(self, seed: int, smooth: bool) -> None:
        self.rng, self.smooth = random.Random(seed), smooth

    def tame(self, value: Value) -> Value:
        if self.smooth:
            return lambda L, env: L.np.tanh(value(L, env))
        return lambda L, env: L.np.remainder(value(L, env), np.int32(MODULUS))

    # ---- values

    def value(self, shape: tuple[int, ...], known: Sequence[tuple[int, ...]], depth: int) -> Value:
        """Draw an expression of a shape over variables of known shapes; the last variable is i."""
        rng = self.rng
        makers = [self._leaf]
        if depth > 0:
            makers += [self._binary, self._binary, self._choice]
            makers += {0: [self._element, self._total, self._corner],
                       1: [self._row, self._diagonal, self._sum, self._moved, self._part,
                           self._update, self._product, self._sorted, self._found],
                       2: [self._transposed, self._outer, self._update]}[len(shape)]
        for _ in range(20):
            made = rng.choice(makers)(shape, known, depth)
            if made is not None:
                return made
        found = self._leaf(shape, known, depth)
        assert found is not None
        return found

    def _variable(self, shapes: Any, known: Sequence[tuple[int, ...]]) -> int | None:
        """Draw a variable with an accepted shape."""
        found = [k for k, s in enumerate(known[:-1]) if shapes(s)]
        return self.rng.choice(found) if found else None

    def _leaf(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: s == shape, known)
        if k is not None and self.rng.random() < 0.8:
            return lambda L, env: env[k][1]
        if self.rng.random() < 0.3:
            return lambda L, env: L.np.broadcast_to(self._cast(L, env[-1][1]), shape)
        c = self.rng.randrange(-3, 9)
        kind = np.float32 if self.smooth else np.int32
        return lambda L, env: L.np.full(shape, kind(c / 7 if self.smooth else c))

    def _cast(self, L: Any, i: Any) -> Any:
        return L.np.asarray(i, dtype=np.float32 if self.smooth else np.int32)

    def _binary(self, shape: Any, known: Any, depth: int) -> Value:
        a, b = (self.value(shape, known, depth - 1) for _ in range(2))
        name = self.rng.choice(("add", "subtract", "multiply") if self.smooth else
                               ("add", "subtract", "multiply", "maximum", "minimum"))
        return lambda L, env: getattr(L.np, name)(a(L, env), b(L, env))

    def _choice(self, shape: Any, known: Any, depth: int) -> Value:
        a, b = (self.value(shape, known, depth - 1) for _ in range(2))
        k = self.rng.randrange(1, 5)
        return lambda L, env: L.np.where(env[-1][1] % k == 0, a(L, env), b(L, env))

    def _element(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: len(s) == 1, known)
        if k is None:
            return None
        n = known[k][0]
        return lambda L, env: L.row(env[k][1], env[-1][1] % n)

    def _corner(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: len(s) == 2, known)
        if k is None:
            return None
        n = min(known[k])
        return lambda L, env: L.row(L.row(env[k][1], env[-1][1] % n), env[-1][1] % n)

    def _total(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: len(s) > 0, known)
        if k is None:
            return None
        name = "sum" if self.smooth else self.rng.choice(("sum", "max", "min"))
        return lambda L, env: getattr(L.np, name)(env[k][1]).astype(env[k][1].dtype)

    def _row(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: len(s) == 2 and s[1:] == shape, known)
        if k is None:
            return None
        n, step = known[k][0], self.rng.randrange(1, 4)
        return lambda L, env: L.row(env[k][1], (env[-1][1] * step) % n)

    def _diagonal(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: s == shape * 2, known)
        if k is None:
            return None
        return self.rng.choice((
            lambda L, env: L.np.diagonal(env[k][1]),
            lambda L, env: L.np.einsum("ii->i", env[k][1]),
            lambda L, env: (env[k][1] * env[k][1].T).sum(1).astype(env[k][1].dtype)))

    def _sum(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: len(s) == 2 and shape[0] in s, known)
        if k is None:
            return None
        axis = 1 if known[k][0] == shape[0] else 0
        return lambda L, env: env[k][1].sum(axis).astype(env[k][1].dtype)

    def _moved(self, shape: Any, known: Any, depth: int) -> Value:
        a = self.value(shape, known, depth - 1)
        shift = self.rng.randrange(1, max(2, shape[0]))
        return self.rng.choice((
            lambda L, env: L.np.flip(a(L, env), 0),
            lambda L, env: L.np.concatenate([a(L, env)[shift:], a(L, env)[:shift]]),
            lambda L, env: L.np.cumsum(a(L, env)).astype(
                np.float32 if self.smooth else np.int32)))

    def _sorted(self, shape: Any, known: Any, depth: int) -> Value:
        """The elements sorted, or in the sorted order of others."""
        a, b = (self.value(shape, known, depth - 1) for _ in range(2))
        if self.rng.random() < 0.5:
            return lambda L, env: L.np.sort(a(L, env), 0)
        return lambda L, env: L.np.take(a(L, env), L.order(b(L, env)), 0)

    def _found(self, shape: Any, known: Any, depth: int) -> Value | None:
        """Elements at data-dependent indices: where searchsorted would insert others."""
        if self.smooth:
            return None
        a, b = (self.value(shape, known, depth - 1) for _ in range(2))
        return lambda L, env: L.np.take(
            a(L, env), L.np.searchsorted(L.np.sort(b(L, env), 0), a(L, env)) % shape[0], 0)

    def _part(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: len(s) == 1 and s[0] > shape[0], known)
        if k is None:
            return None
        far = self.rng.randrange(0, 4)  # clamped at the end
        return lambda L, env: L.part(env[k][1], env[-1][1] + far, shape[0])

    def _product(self, shape: Any, known: Any, depth: int) -> Value | None:
        k = self._variable(lambda s: len(s) == 2 and s[0] == shape[0], known)
        j = k if k is None else self._variable(lambda s: s == known[k][1:], known)
        if k is None or j is None:
            return None
        return lambda L, env: (env[k][1] * env[j][1]).sum(1).astype(env[k][1].dtype)

    def _transposed(self, shape: Any, known: Any, depth: int) -> Value:
        a = self.value(shape[::-1], known, depth - 1)
        return lambda L, env: L.np.transpose(a(L, env))

    def _outer(self, shape: Any, known: Any, depth: int) -> Value:
        a, b = (self.value((n,), known, depth - 1) for n in shape)
        same = shape[0] == shape[1] and self.rng.random() < 0.5

        def outer(L: Any, env: Env) -> Any:
            left = a(L, env)
            return left[:, None] * (left if same else b(L, env))[None, :]
        return outer

    def _update(self, shape: Any, known: Any, depth: int) -> Value:
        a, b = self.value(shape, known, depth - 1), self.value(shape[1:], known, depth - 1)
        add, step, n = self.rng.random() < 0.5, self.rng.randrange(1, 4), shape[0]
        return lambda L, env: L.put(a(L, env), (env[-1][1] * step) % n, b(L, env), add)

    # ---- loops

    def step(self, carries: Sequence[tuple[int, ...]], known: Sequence[tuple[int, ...]],
             depth: int) -> Callable[[Any, Env, list[Any]], list[Any]]:
        """Draw a step to the next carries; variables are the outer ones, the carries, and i."""
        rng, inside = self.rng, [*known[:-1], *carries, ()]
        values = [self.tame(self.value(s, inside, rng.randrange(0, 3))) for s in carries]
        inner = self.loop(carries, inside, depth - 1) if depth and rng.random() < 0.6 else None
        swap = rng.random() < 0.4 and [i for i in range(1, len(carries))
                                       if carries[i] == carries[0]]
        kept = rng.randrange(len(carries)) if rng.random() < 0.3 else None

        def run(L: Any, env: Env, state: list[Any]) -> list[Any]:
            here = [*env[:-1], *zip(carries, state), env[-1]]
            out = [v(L, here) for v in values]
            if inner is not None:
                out = inner(L, [*env[:-1], *zip(carries, out), env[-1]], out)
            if swap:
                out[0], out[swap[0]] = out[swap[0]], out[0]
            if kept is not None and not swap:
                out[kept] = state[kept]
            return out
        return run

    def loop(self, carries: Sequence[tuple[int, ...]], known: Sequence[tuple[int, ...]],
             depth: int) -> Callable[[Any, Env, list[Any]], list[Any]]:
        """Draw a loop or a branch over the carries."""
        kinds = [self._scan, self._scan, self._fori]
        if not self.smooth:
            kinds += [self._while, self._cond, self._counted]
        return self.rng.choice(kinds)(carries, known, depth)

    def _scan(self, carries: Any, known: Any, depth: int) -> Any:
        rng, step = self.rng, self.step(carries, known, depth)
        n, reverse = rng.choice(TRIPS[:5] if depth < 1 else TRIPS), rng.random() < 0.3
        column = next((k for k, s in enumerate(carries) if len(s) and s[0]), None)
        y = rng.randrange(len(carries))

        def run(L: Any, env: Env, state: list[Any]) -> list[Any]:
            def body(c: Any, i: Any) -> Any:
                out = step(L, [*env[:-1], ((), i)], list(c))
                return tuple(out), out[y]
            last, ys = L.scan(body, tuple(state), L.np.arange(n, dtype=np.int32), n, reverse)
            out = list(last)
            if n and column is not None and carries[column] == carries[y]:
                out[column] = out[column] + ys.sum(0).astype(out[column].dtype)
                out[column] = L.np.tanh(out[column]) if self.smooth else \
                    L.np.remainder(out[column], np.int32(MODULUS))
            return out
        return run

    def _fori(self, carries: Any, known: Any, depth: int) -> Any:
        step, n = self.step(carries, known, depth), self.rng.choice(TRIPS[:6])

        def run(L: Any, env: Env, state: list[Any]) -> list[Any]:
            return list(L.fori(n, lambda i, c: tuple(step(L, [*env[:-1], ((), i)], list(c))),
                               tuple(state)))
        return run

    def _counted(self, carries: Any, known: Any, depth: int) -> Any:
        """A loop with a data-dependent trip count."""
        step, most = self.step(carries, known, depth), self.rng.randrange(1, 6)

        def run(L: Any, env: Env, state: list[Any]) -> list[Any]:
            n = state[0].sum().astype(np.int32) % most
            return list(L.fori(n, lambda i, c: tuple(step(L, [*env[:-1], ((), i)], list(c))),
                               tuple(state)))
        return run

    def _while(self, carries: Any, known: Any, depth: int) -> Any:
        step, most = self.step(carries, known, depth), self.rng.randrange(0, 7)
        parity = self.rng.randrange(2, 6)

        def run(L: Any, env: Env, state: list[Any]) -> list[Any]:
            def holds(s: Any) -> Any:
                return (s[0] < most) & (s[1].sum() % parity != 1)

            def body(s: Any) -> Any:
                return (s[0] + np.int32(1), *step(L, [*env[:-1], ((), s[0])], list(s[1:])))
            return list(L.while_(holds, body, (L.np.asarray(np.int32(0)), *state)))[1:]
        return run

    def _cond(self, carries: Any, known: Any, depth: int) -> Any:
        one, two = (self.step(carries, known, depth) for _ in range(2))

        def run(L: Any, env: Env, state: list[Any]) -> list[Any]:
            holds = state[-1].sum() % 2 == 0
            return list(L.cond(holds, lambda c: tuple(one(L, env, list(c))),
                               lambda c: tuple(two(L, env, list(c))), tuple(state)))
        return run


def draw(seed: int, smooth: bool) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function (language, arrays) -> arrays, and arrays."""
    writer = Writer(seed, smooth)
    rng = writer.rng
    shapes = [rng.choice(SHAPES) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.5:
        shapes.append(shapes[0])
    const = rng.choice(SHAPES)
    run = writer.loop(shapes, [const, ()], rng.randrange(2 if smooth else 3))
    numbers = np.random.default_rng(seed)

    def array(shape: tuple[int, ...]) -> Any:
        if smooth:
            return (numbers.standard_normal(shape) / 2).astype(np.float32)
        return numbers.integers(0, MODULUS, shape).astype(np.int32)

    def program(L: Any, *xs: Any) -> Any:
        env: Env = [(const, xs[0]), ((), L.np.asarray(np.int32(3)))]
        return tuple(run(L, env, list(xs[1:])))

    return program, [np.asarray(array(s)) for s in (const, *shapes)]


@contextlib.contextmanager
def portions_of(steps: int | None) -> Iterator[None]:
    """Strip-mine unbounded loops into this many steps, and loops of commands that are one kernel at
    this many times 200 cycles; None: use the defaults."""
    before = strip_mine._MIN_STEPS, strip_mine.MAX_STEPS, strip_mine.KERNEL_CYCLES
    if steps is not None:
        strip_mine._MIN_STEPS, strip_mine.MAX_STEPS = steps, steps
        strip_mine.KERNEL_CYCLES = 200 * steps
    try:
        yield
    finally:
        strip_mine._MIN_STEPS, strip_mine.MAX_STEPS, strip_mine.KERNEL_CYCLES = before


def check(seed: int) -> None:
    """Raise if a program differs from Python; the seed determines how it runs."""
    with portions_of(1 + seed % 3 if seed // 4 % 2 else None):
        _check(seed)


def _check(seed: int) -> None:
    way = ("gradient", "lanes", "donated", "plain")[seed % 4]
    program, xs = draw(seed, way == "gradient")

    def ours(*xs: Any) -> Any:
        return program(Compiled(), *xs)

    if way == "gradient":
        _same_gradient(program, xs)
        return
    given = [np.stack([x, x[::-1] if x.ndim else x + 1]) for x in xs] if way == "lanes" else xs
    with np.errstate(all="ignore"):
        if way == "lanes":
            each = [program(Plain(), *[x[k] for x in given]) for k in range(2)]
            want = [np.stack([np.asarray(a), np.asarray(b)]) for a, b in zip(*each)]
        else:
            want = [np.asarray(o) for o in program(Plain(), *xs)]
    donated = range(1, len(xs)) if way == "donated" else ()
    f = fnx.jit(fnx.vmap(ours) if way == "lanes" else ours, donate_argnums=tuple(donated))
    _same(f(*map(jnp.asarray, given)), want, False)


def _same_gradient(program: Callable[..., Any], xs: Sequence[Any]) -> None:
    """Check values and gradients against those of the unrolled steps."""
    def total(L: Any) -> Any:
        return lambda *xs: sum([o.sum() for o in program(L, *xs)])

    numbers = tuple(range(len(xs)))
    value, got = fnx.jit(fnx.value_and_grad(total(Compiled()), numbers))(*xs)
    want, flat = fnx.value_and_grad(total(Plain(jnp)), numbers)(*map(jnp.asarray, xs))
    _same([value, *got], [np.asarray(a) for a in (want, *flat)], True)


def _same(got: Any, want: Sequence[Any], smooth: bool) -> None:
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, want)):
        found = np.asarray(a)
        assert found.shape == b.shape, f"result {i}: {found.shape}, expected {b.shape}"
        if smooth:
            np.testing.assert_allclose(found, b, rtol=2e-3, atol=2e-4, err_msg=f"result {i}")
        else:
            np.testing.assert_array_equal(found, b, err_msg=f"result {i}")


def main() -> int:
    def right(seed: int) -> str:
        check(seed)
        return "right"

    return seeds.attack(str(__doc__), "programs of loops", right)



if __name__ == "__main__":
    sys.exit(main())
