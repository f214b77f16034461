"""Every construct inside every other, under compositions of transforms, equals the plain formula.

    python -m tests.attack.compositions --count 3000 --seed 1

A leaf (user-written kernels, sorts, loops, callbacks, solvers ...) is wrapped a few times (scan,
while, cond, checkpoint, custom rules, vmap ...) and put under a composition of derivatives and
batching. Wrappers have a plain meaning: a scan of two steps is f(f(x)). So each program is compared
with the same composition of the plain formula, in float64: three of four by the interpreter, one
compiled.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx
import fnx.kernel as k
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.ad_checkpoint import checkpoint_name
from fnx.core.array import tree
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.core.tracing.trace import trace
from fnx.custom_batching import custom_vmap, sequential_vmap
from fnx.custom_derivatives import SymbolicZero
from fnx.experimental import io_callback
from fnx.scipy.sparse.linalg import cg
from tests.attack import seeds
from tests.attack.writer import own_rule

Function = Callable[[Any], Any]  # a (3,) array of float64 -> another
N = 3

# ---- leaves: the construct, and its plain formula ----------------------------------------------


def _kernel(body: Callable[..., None]) -> Function:
    made: Function = fnx.call(body, out=lambda x: x)
    return made


def _looped(x: Any, o: Any) -> None:
    i = k.range(x.shape[0])
    o[i] = k.loop(3, lambda t, s: s * 0.5 + x[t] * x[i], x[i])


def _when(x: Any, o: Any) -> None:
    i = k.range(x.shape[0])
    o[i] = k.when(x[i] > 0, lambda: k.sqrt(x[i] + 1.0), 1.0) * 0.5


def _softmax(x: Any, o: Any) -> None:
    a, b, c = (k.range(x.shape[0]) for _ in range(3))
    e = k.exp(x[a])
    kept = k.local(e, over=a)
    o[c] = kept[c] / k.sum(k.exp(x[b]), over=b)


def _stored(x: Any, o: Any) -> None:
    def step(t: Any, s: Any) -> Any:
        s = s * 0.7 + k.sin(x[t])
        o[t] = s
        return s
    k.loop(x.shape[0], step, 0.1)


def _combined(x: Any, o: Any) -> None:
    i = k.range(x.shape[0])
    o.combine("add", (i * 2) % 3, x[i] * x[i] * 0.5)


def _plain_loop(x: Any) -> Any:
    s = x
    for t in range(3):
        s = s * 0.5 + x[t] * x
    return s


def _plain_stored(x: Any) -> Any:
    s, out = 0.1, []
    for t in range(N):
        s = s * 0.7 + jnp.sin(x[t])
        out.append(s)
    return jnp.stack(out)


def _newton(x: Any) -> Any:
    """Return the root of y**3 + y = x."""
    return lax.custom_root(lambda y: y ** 3 + y - x, x * 0.5,
                           lambda f, y: lax.fori_loop(0, 40, lambda i, y: y - f(y) / (
                               3 * y * y + 1), y),
                           lambda g, y: y / g(jnp.ones_like(y)))


def _root(x: Any) -> Any:
    y = x * 0.5
    for _ in range(40):
        y = y - (y ** 3 + y - x) / (3 * y * y + 1)
    return y


_MATRIX = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.8]])


def _solved(x: Any) -> Any:
    a = jnp.asarray(_MATRIX) * (1 + 0.1 * jnp.sin(x).sum())
    inverse = jnp.asarray(np.linalg.inv(_MATRIX)) / (1 + 0.1 * jnp.sin(x).sum())
    return lax.custom_linear_solve(lambda v: a @ v, x, lambda mv, b: inverse @ b, symmetric=True)


def _iterated(x: Any) -> Any:
    """The same by iteration."""
    a = jnp.asarray(_MATRIX) * (1 + 0.1 * jnp.sin(x).sum())
    return cg(lambda v: a @ v, x, tol=1e-13, maxiter=12)[0]


def _inverse(x: Any) -> Any:
    return jnp.asarray(np.linalg.inv(_MATRIX)) @ x / (1 + 0.1 * jnp.sin(x).sum())


def _with_effects(x: Any) -> Any:
    fnx.debug.callback(lambda v: None, x)
    io_callback(lambda v: None, None, x, ordered=True)
    return jnp.sin(x)


def _pure(x: Any) -> Any:
    stopped = lax.stop_gradient(x)
    kind = fnx.ShapeDtypeStruct((N,), "float64")
    one = fnx.pure_callback(lambda v: np.ones_like(v), kind, stopped, vmap_method="sequential")
    return jnp.sin(x) * one


def _sorted(x: Any) -> Any:
    return jnp.sort(x) * x + x[jnp.argsort(-x)]


def _plain_sorted(x: Any) -> Any:
    low = jnp.minimum(jnp.minimum(x[0], x[1]), x[2])
    high = jnp.maximum(jnp.maximum(x[0], x[1]), x[2])
    middle = x.sum() - low - high
    return jnp.stack([low, middle, high]) * x + jnp.stack([high, middle, low])


_batched = custom_vmap(lambda x: jnp.cos(x) * x)
_batched.def_vmap(lambda size, batched, x: (jnp.cos(x) * x, batched[0]))


def _named(x: Any) -> Any:
    """Elements of a named batch axis."""
    return fnx.vmap(lambda y: jnp.sin(y) + lax.psum(y * y, "inner") * 0.1 +
                    lax.all_gather(y, "inner")[0] * 0.2, axis_name="inner")(x)


def _switched(x: Any) -> Any:
    """Each batch element takes one of three branches."""
    which = (x.sum() * 10).astype(np.int32) % 3
    return lax.switch(which, [jnp.sin, lambda x: x * x * 0.5, lambda x: x * x.sum() * 0.3], x)


def _plain_switched(x: Any) -> Any:
    which = (x.sum() * 10).astype(np.int32) % 3
    return jnp.where(which == 0, jnp.sin(x),
                     jnp.where(which == 1, x * x * 0.5, x * x.sum() * 0.3))


def _recurrence(x: Any) -> Any:
    """b = a * b + x from the end, by a scan of pairs."""
    def combine(later: Any, earlier: Any) -> Any:
        return {"a": later["a"] * earlier["a"], "b": earlier["a"] * later["b"] + earlier["b"]}
    found: Any = lax.associative_scan(combine, {"a": jnp.sin(x), "b": x}, reverse=True)
    return found["b"] * found["a"]


def _plain_recurrence(x: Any) -> Any:
    a = jnp.sin(x)
    b1 = a[1] * x[2] + x[1]
    return jnp.stack([(a[0] * b1 + x[0]) * a[0] * a[1] * a[2], b1 * a[1] * a[2], x[2] * a[2]])


def _grown(x: Any) -> Any:
    """A data-dependent number of steps, which differs between batch elements."""
    return lax.while_loop(lambda y: y.sum() < 2.0, lambda y: y * 1.3 + x * 0.2, x)


def _plain_grown(x: Any) -> Any:
    y = x
    for _ in range(8):
        y = jnp.where(y.sum() < 2.0, y * 1.3 + x * 0.2, y)
    return y


def _outer(x: Any, o: Any) -> None:
    i, j = k.range(x.shape[0], "i"), k.range(x.shape[0], "j")
    o[i] = k.sum(x[j] * k.sin(x[i] * x[j]), over=j)


LEAVES: dict[str, tuple[Function, Function]] = {
    "kernel with a loop": (_kernel(_looped), _plain_loop),
    "kernel with a condition": (
        _kernel(_when), lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 0) + 1), 1) * 0.5),
    "kernel with a local array": (_kernel(_softmax), lambda x: jnp.exp(x) / jnp.exp(x).sum()),
    "kernel that stores in a loop": (_kernel(_stored), _plain_stored),
    "kernel that combines": (_kernel(_combined), lambda x: (x * x * 0.5)[np.array([0, 2, 1])]),
    "root": (_newton, _root), "solve": (_solved, _inverse),
    "solve by iteration": (_iterated, _inverse), "effects": (_with_effects, jnp.sin),
    "pure callback": (_pure, jnp.sin), "sort": (_sorted, _plain_sorted),
    "rule for a batch": (_batched, lambda x: jnp.cos(x) * x),
    "one after the other": (sequential_vmap(lambda x: jnp.cos(x) * x), lambda x: jnp.cos(x) * x),
    "named lanes": (_named, lambda x: jnp.sin(x) + (x * x).sum() * 0.1 + x[0] * 0.2),
    "running fold": (lambda x: jnp.cumsum(x) + jnp.cumprod(x), lambda x: jnp.stack(
        [x[0] + x[0], x[0] + x[1] + x[0] * x[1], x.sum() + x[0] * x[1] * x[2]])),
    "associative scan": (
        lambda x: lax.associative_scan(lambda a, b: a * b + a + b, x, reverse=True),
        lambda x: jnp.stack([(1 + x).prod(), (1 + x[1]) * (1 + x[2]), 1 + x[2]]) - 1),
    "scatter": (lambda x: x.at[jnp.argmax(x)].multiply(2.0).at[0].add(x[1]),
                lambda x: jnp.where(x >= x.max(), 2 * x, x) + x[1] * np.array([1.0, 0.0, 0.0])),
    "windows": (lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + b, (2,), (1,), "SAME"),
                lambda x: x + jnp.stack([x[1], x[2], 0 * x[2]])),
    "switch": (_switched, _plain_switched), "pairs": (_recurrence, _plain_recurrence),
    "steps by value": (_grown, _plain_grown),
    "windows of a function": (
        lambda x: lax.reduce_window(x, 0.0, lambda a, b: a * b + a + b, (2,), (1,), "SAME"),
        lambda x: (1 + x) * (1 + jnp.stack([x[1], x[2], 0 * x[2]])) - 1),
    "kernel under a schedule": (
        fnx.call(_outer, out=lambda x: x, schedule=[
            k.split("i", 2, "io", "ii"), k.stage("x", at="io"), k.order("io", "j", "ii"),
            k.vectorize("ii")]),
        lambda x: (x * jnp.sin(x[:, None] * x)).sum(1)),
    "fold": (lambda x: x * lax.reduce(x, np.float64(1), lambda a, b: a * b + 0.1 * b, (0,)),
             lambda x: x * (((1.1 * x[0]) * x[1] + 0.1 * x[1]) * x[2] + 0.1 * x[2])),
}

# ---- wrappers: the construct around f, and its plain formula -----------------------------------


def _custom_vjp(f: Function) -> Function:
    g = fnx.custom_vjp(f)
    g.defvjp(lambda x: fnx.vjp(f, x), lambda pull, ct: pull(ct))
    return g


def _twice(f: Function) -> Function:
    return lambda x: f(f(x))


def _linear(f: Function) -> Function:
    def g(x: Any) -> Any:
        out, push = fnx.linearize(f, x)
        return out + push(jnp.ones_like(x)) * 0.1
    return g


def _tangent(f: Function) -> Function:
    def g(x: Any) -> Any:
        out, t = fnx.jvp(f, (x,), (jnp.ones_like(x),))
        return out + t * 0.1
    return g


def _descent(f: Function) -> Function:
    return lambda x: x - 0.1 * fnx.grad(lambda x: jnp.sin(f(x)).sum())(x)


def _collected(f: Function) -> Function:
    """A scan whose rows and results are both used."""
    def g(x: Any) -> Any:
        c, ys = lax.scan(lambda c, y: (f(c) + y * 0.1, c * y), x, jnp.stack([x, x * 0.5]))
        return c + ys.sum(0)
    return g


def _plain_collected(f: Function) -> Function:
    def g(x: Any) -> Any:
        first = f(x) + x * 0.1
        return f(first) + x * 0.05 + x * x + first * x * 0.5
    return g


def _looped_rule(f: Function) -> Function:
    """Rules that are loops with effects."""
    g = fnx.custom_vjp(f)

    def bwd(x: Any, ct: Any) -> Any:
        def step(total: Any, part: Any) -> Any:
            fnx.debug.callback(lambda v: None, part)
            return total + fnx.vjp(f, x)[1](part)[0], None
        return lax.scan(step, jnp.zeros_like(x), jnp.stack([ct * 0.25, ct * 0.75]))[0],

    g.defvjp(lambda x: (lax.fori_loop(0, 2, lambda i, y: f(x) + y * 0, x), x), bwd)
    return g


def _half_used(f: Function) -> Function:
    """A function of two results, one of which is read, whose rule checks for that."""
    g = fnx.custom_vjp(lambda x: (x * 2, f(x)))

    def bwd(x: Any, cts: Any) -> Any:
        first, second = cts
        if type(second) is SymbolicZero:
            return first * 2,
        back, = fnx.vjp(f, x)[1](second)
        return back if type(first) is SymbolicZero else back + first * 2,

    g.defvjp(lambda x: ((x.value * 2, f(x.value)), x.value), bwd, symbolic_zeros=True)
    return lambda x: g(x)[1] + lax.stop_gradient(g(x)[0] - 2 * x)


def _kept_by_name(f: Function) -> Function:
    """Steps of a scan that are recomputed except for a named value."""
    only = fnx.checkpoint_policies.save_only_these_names("kept")

    def step(c: Any, _: Any) -> Any:
        return jnp.cos(checkpoint_name(f(c), "kept")), None
    return lambda x: lax.scan(fnx.checkpoint(step, policy=only), x, None, 2)[0]


def _swapped(f: Function) -> Function:
    """A carry of several types, two parts of which are swapped."""
    def step(c: Any, _: Any) -> Any:
        return {"a": f(c["b"]), "b": c["a"], "n": c["n"] + 1, "odd": ~c["odd"]}, c["n"] * c["b"]

    def g(x: Any) -> Any:
        first = {"a": x, "b": x * 0.5, "n": 1, "odd": False}
        last, rows = lax.scan(step, first, None, 2)
        return jnp.where(last["odd"], 0.0, last["a"] - last["b"] * 0.3) + rows.sum(0) * 0.1
    return g


def _plain_swapped(f: Function) -> Function:
    return lambda x: f(x) - f(x * 0.5) * 0.3 + (x * 0.5 + 2 * x) * 0.1


def _by_value(f: Function) -> Function:
    """Apply f twice to some batch elements, once to others."""
    def g(x: Any) -> Any:
        most = jnp.where(x[1] > 0.45, 2, 1)
        return lax.while_loop(lambda s: s[0] < most, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]
    return g


def _plain_by_value(f: Function) -> Function:
    def g(x: Any) -> Any:
        once = f(x)
        return jnp.where(x[1] > 0.45, f(once), once)
    return g


def _one_of_three(f: Function) -> Function:
    return lambda x: lax.switch((x[2] * 9).astype(np.int32) % 3, [
        f, lambda x: f(x * 0.5), lambda x: x * 0.3], x)


def _plain_one_of_three(f: Function) -> Function:
    def g(x: Any) -> Any:
        which = (x[2] * 9).astype(np.int32) % 3
        return jnp.where(which == 0, f(x), jnp.where(which == 1, f(x * 0.5), x * 0.3))
    return g


def _chosen(f: Function) -> Function:
    """A branch per batch element."""
    return lambda x: lax.cond(x[0] > 0.4, f, lambda x: x * 0.5, x)


WRAPPERS: dict[str, tuple[Callable[[Function], Function], Callable[[Function], Function]]] = {
    "jit": (fnx.jit, lambda f: f), "call": (fnx.call, lambda f: f),
    "checkpoint": (fnx.checkpoint, lambda f: f),
    "custom_jvp": (own_rule, lambda f: f), "custom_vjp": (_custom_vjp, lambda f: f),
    "scan": (lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, 2)[0], _twice),
    "scan with checkpoints": (lambda f: lambda x: lax.scan(
        lambda c, _: (f(c), None), x, None, 2, checkpoint=1)[0], _twice),
    "unrolled": (lambda f: lambda x: lax.scan(
        lambda c, _: (f(c), None), x, None, 2, unroll=2)[0], _twice),
    "scan with rows": (_collected, _plain_collected),
    "while": (lambda f: lambda x: lax.while_loop(
        lambda s: s[0] < 2, lambda s: (s[0] + 1, f(s[1])), (0, x))[1], _twice),
    "fori": (lambda f: lambda x: lax.fori_loop(0, 2, lambda i, x: f(x), x), _twice),
    "map": (lambda f: lambda x: lax.map(f, jnp.stack([x, x * 0.5])).sum(0),
            lambda f: lambda x: f(x) + f(x * 0.5)),
    "vmap": (lambda f: lambda x: fnx.vmap(f)(jnp.stack([x, x * 0.5])).sum(0),
             lambda f: lambda x: f(x) + f(x * 0.5)),
    "choice": (_chosen, lambda f: lambda x: jnp.where(x[0] > 0.4, f(x), x * 0.5)),
    "switch": (lambda f: lambda x: lax.switch(jnp.asarray(1), [lambda x: x, f], x), lambda f: f),
    "one of three": (_one_of_three, _plain_one_of_three),
    "as often as a value says": (_by_value, _plain_by_value),
    "rules that are loops": (_looped_rule, lambda f: f), "half used": (_half_used, lambda f: f),
    "kept by name": (_kept_by_name, lambda f: _twice(lambda x: jnp.cos(f(x)))),
    "exchanged": (_swapped, _plain_swapped),
    "jvp": (_tangent, _tangent), "linearize": (_linear, _tangent), "grad": (_descent, _descent),
    "donated": (lambda f: lambda x: fnx.jit(f, donate_argnums=0)(x + 0.0), lambda f: f),
    "donated into a carry": (lambda f: lambda x: fnx.jit(
        lambda x: lax.fori_loop(0, 2, lambda i, x: f(x), x), donate_argnums=0)(x + 0.0), _twice),
}

# ---- compositions ------------------------------------------------------------------------------


def _scalar(f: Function) -> Function:
    return lambda x: (f(x) * jnp.asarray([0.3, -0.7, 1.1])).sum()


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "jit": fnx.jit,
    "grad": lambda f: fnx.grad(_scalar(f)),
    "jvp": lambda f: lambda x: fnx.jvp(f, (x,), (jnp.cos(x),))[1],
    "vmap": lambda f: lambda x: fnx.vmap(f)(jnp.stack([x, x[::-1], 0.5 * x])).sum(0),
    "vjp": lambda f: lambda x: fnx.vjp(f, x)[1](jnp.cos(x))[0],
    "jacfwd": lambda f: lambda x: fnx.jacfwd(f)(x).sum(0),
    "jacrev": lambda f: lambda x: fnx.jacrev(f)(x).sum(0),
    "hessian": lambda f: lambda x: fnx.hessian(_scalar(f))(x) @ jnp.cos(x),
    "transpose": lambda f: lambda x: fnx.linear_transpose(
        fnx.linearize(f, x)[1], x)(jnp.cos(x))[0],
}


class Composed:
    """A leaf in wrappers, innermost first, under a composition of transforms."""

    def __init__(self, leaf: str, wrappers: Sequence[str], word: Sequence[str]) -> None:
        self.leaf, self.wrappers, self.word = leaf, wrappers, word

    def __repr__(self) -> str:
        return " of ".join([*self.word[::-1], *self.wrappers[::-1], self.leaf])

    def function(self, plain: bool) -> Function:
        f = LEAVES[self.leaf][plain]
        for name in self.wrappers:
            f = WRAPPERS[name][plain](f)
        for name in self.word:
            f = TRANSFORMS[name](f)
        return f


def drawn(seed: int) -> Composed:
    """Return the program of a seed."""
    rng = random.Random(seed)
    return Composed(rng.choice(list(LEAVES)),
                    [rng.choice(list(WRAPPERS)) for _ in range(rng.choice((1, 2, 2, 3)))],
                    [rng.choice(list(TRANSFORMS)) for _ in range(rng.choice((1, 1, 2)))])


def check(program: Composed, seed: int) -> None:
    """Compare a program with the plain one at the point of a seed.

    Raises:
        AssertionError: they differ; or what the program raises.
    """
    x = np.random.default_rng(seed).uniform(0.2, 0.8, N)
    with override(x64=True):
        f = program.function(False)
        got = (meaning, meaning, meaning, compiled)[seed % 4](f, x)
        want = meaning(program.function(True), x)
    np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-9)


def meaning(f: Function, x: Any) -> Any:
    """Evaluate f(x) by the interpreter, from the graph."""
    leaves, in_tree = tree.flatten(((jnp.asarray(x),), {}))
    closed = trace(f, [leaf._aval for leaf in leaves], in_tree, transform="compositions",
                   name="f").close()
    captured = [np.asarray(fnx.Array(c)) for c in closed.operands()]
    return interp.apply(closed.function, [x, *captured])[0]


def compiled(f: Function, x: Any) -> Any:
    return np.asarray(fnx.jit(f)(x))


def main() -> int:
    def right(seed: int) -> str:
        check(drawn(seed), seed)
        return "right"

    return seeds.attack(str(__doc__), "compositions", right, drawn)


if __name__ == "__main__":
    sys.exit(main())
