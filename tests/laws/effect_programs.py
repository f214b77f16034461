"""Random programs with effects, and the effects expected of them: Python loops and branches over
NumPy.

    python -m tests.laws.effect_programs 200 7      programs from seed 7 on, under every composition

A program is a list of statements on a vector. The vector's last element is the index of the batch
element and never changes. Each effect happens once per batch element, in program order; effects of
a backward pass follow, in reverse order.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override
from fnx.core.support.errors import GradError
from fnx.experimental import io_callback

N = 3            # elements; the last is the batch index
LANES = 3
LOG: list[tuple[str, Any]] = []
Program = list[tuple[Any, ...]]

OPS: dict[str, Callable[..., Any]] = {
    "sin": lambda m, x: m.sin(x), "halve": lambda m, x: x * 0.5 + 0.25,
    "tanh": lambda m, x: m.tanh(x + x[:-1].sum()), "square": lambda m, x: x * x * 0.5}
BODIES = {"scan": 1, "fori": 1, "while": 1, "until": 1, "cond": 2, "jit": 1, "call": 1,
          "checkpoint": 1, "names": 1}


def program(rng: random.Random, size: int, depth: int = 0) -> Program:
    """Draw statements, which may contain bodies."""
    out: Program = []
    for _ in range(size):
        kind = rng.choice(["op", "op", "say", "say", "vjp", "jvp", "pure", "io",
                           *(BODIES if depth < 2 else ())])
        tag = f"{kind}{rng.randrange(10**6)}"
        if kind == "op":
            out.append((kind, rng.choice(list(OPS))))
        elif kind in BODIES:
            bodies = [program(rng, rng.randint(1, 3), depth + 1) for _ in range(BODIES[kind])]
            out.append((kind, rng.randint(0 if kind != "until" else 1, 3), *bodies))
        else:
            out.append((kind, tag))
    return out


def has(prog: Program, kinds: set[str]) -> bool:
    """Return whether the program contains a statement of these kinds at any depth."""
    return any(s[0] in kinds or any(has(b, kinds) for b in s[2:]) for s in prog)


# ---- expected effects ---------------------------------------------------------------------------


def log(tag: str, x: Any) -> None:
    LOG.append((tag, np.asarray(x, np.float64)))


def kept(old: Any, new: Any, m: Any) -> Any:
    """Return the new values with the batch index of the old ones."""
    return m.where(np.arange(N) < N - 1, new, old)


Tape = list[tuple[str, list[Any]]]  # ("say", entries), ("all", a tape), ("either", tapes)


class Reference:
    """Reference semantics: batch elements that run a program in lockstep."""

    def __init__(self, xs: list[Any]) -> None:
        self.xs, self.said = xs, list[tuple[str, Any]]()

    def run(self, prog: Program, lanes: list[int]) -> Tape:
        """Run a program and return the effects of its backward pass."""
        tape: Tape = []
        for kind, arg, *bodies in prog:
            if kind in ("say", "io", "vjp", "jvp"):
                self.said += [(arg, self.xs[i]) for i in lanes]
            if kind == "vjp":
                tape.append(("say", [(f"{arg} back", self.xs[i]) for i in lanes]))
            if kind in STEPS or kind == "op":
                for i in lanes:
                    new = OPS[arg](np, self.xs[i]) if kind == "op" else STEPS[kind](self.xs[i])
                    self.xs[i] = kept(self.xs[i], new, np)
            elif kind == "cond":
                chosen = [[i for i in lanes if (self.xs[i][0] > 0.3) == c] for c in (False, True)]
                tape.append(("either", [self.run(b, c) for b, c in zip(bodies, chosen)]))
            elif kind in BODIES:
                going = lanes
                for _ in range(arg if kind in LOOPS else 1):
                    if kind == "until":
                        going = [i for i in going if self.xs[i][0] < 0.6]
                    tape.append(("all", self.run(bodies[0], going)))
        return tape


def backwards(tape: Tape) -> list[tuple[str, Any]]:
    """Return the effects of a backward pass: the last first, but branches in their order."""
    out: list[tuple[str, Any]] = []
    for kind, items in reversed(tape):
        for part in [items] if kind == "all" else items if kind == "either" else ():
            out += backwards(part)
        out += items if kind == "say" else []
    return out


LOOPS = ("scan", "fori", "while", "until")
STEPS: dict[str, Callable[[Any], Any]] = {
    "io": lambda x: x * 0.75, "vjp": lambda x: x * 0.75, "jvp": lambda x: x * 0.75,
    "pure": lambda x: x + 0.1}


# ---- traced -------------------------------------------------------------------------------------


def say(tag: str, x: Any, loud: bool) -> None:
    if loud:
        fnx.debug.callback(lambda x: log(tag, x), x)


def scaled(kind: str, tag: str, loud: bool) -> Callable[[Any], Any]:
    """Return x * 0.75 with a custom rule that reports what it is called with."""
    def f(x: Any) -> Any:
        say(tag, x, loud)
        return x * 0.75

    def bwd(x: Any, ct: Any) -> Any:
        say(f"{tag} back", x, loud)
        return (ct * 0.75,)

    def along(primals: Any, tangents: Any) -> Any:
        return f(*primals), tangents[0] * 0.75

    if kind == "vjp":
        ruled = fnx.custom_vjp(f)
        ruled.defvjp(lambda x: (f(x), x), bwd)
        return ruled
    rule = fnx.custom_jvp(f)
    rule.defjvp(along)
    return rule


def io(tag: str, x: Any, loud: bool) -> Any:
    still = lax.stop_gradient(x)
    if not loud:
        return x * 0.75
    return x * io_callback(lambda x: (log(tag, x), np.float32(0.75))[1],
                           fnx.ShapeDtypeStruct((), "float32"), still, ordered=True)


def pure(x: Any) -> Any:
    return x + fnx.pure_callback(lambda x: np.float32(0.1), fnx.ShapeDtypeStruct((), "float32"),
                                 lax.stop_gradient(x), vmap_method="sequential")


def traced(prog: Program, x: Any, loud: bool) -> Any:
    """Return the fnx version of the program, with or without effects."""
    for kind, arg, *bodies in prog:
        def body(x: Any, b: Program = bodies[0] if bodies else []) -> Any:
            return traced(b, x, loud)

        if kind == "op":
            x = kept(x, OPS[arg](jnp, x), jnp)
        elif kind == "say":
            say(arg, x, loud)
        elif kind in ("vjp", "jvp"):
            x = kept(x, scaled(kind, arg, loud)(x), jnp)
        elif kind == "io":
            x = kept(x, io(arg, x, loud), jnp)
        elif kind == "pure":
            x = kept(x, pure(x), jnp)
        elif kind == "cond":
            no, yes = (lambda x, b=b: traced(b, x, loud) for b in bodies)
            x = lax.cond(x[0] > 0.3, yes, no, x)
        elif kind in LOOPS:
            x = looped(kind, arg, body, x)
        else:
            x = WRAPPERS[kind](body)(x)
    return x


def looped(kind: str, n: int, body: Callable[[Any], Any], x: Any) -> Any:
    if kind == "scan":
        return lax.scan(lambda x, _: (body(x), None), x, None, n)[0]
    if kind == "fori":
        return lax.fori_loop(0, n, lambda _, x: body(x), x)

    def goes_on(c: Any) -> Any:
        return (c[0] < n) & (c[1][0] < 0.6) if kind == "until" else c[0] < n
    return lax.while_loop(goes_on, lambda c: (c[0] + 1, body(c[1])), (0, x))[1]


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "jit": fnx.jit, "call": fnx.call, "checkpoint": fnx.checkpoint,
    "names": lambda f: fnx.checkpoint(f, policy=fnx.checkpoint_policies.dots_saveable)}


# ---- compositions of transforms -----------------------------------------------------------------


def grad(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return fnx.grad(lambda x: f(x).sum())


def jvp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: fnx.jvp(f, (x,), (jnp.ones_like(x),))


WORDS: dict[str, tuple[Callable[[Any], Any], bool, bool]] = {  # transform, reverse mode, batched
    "": (lambda f: f, False, False), "jit": (fnx.jit, False, False), "grad": (grad, True, False),
    "jit grad": (lambda f: fnx.jit(grad(f)), True, False),
    "grad jit": (lambda f: grad(fnx.jit(f)), True, False), "jvp": (jvp, False, False),
    "jit jvp": (lambda f: fnx.jit(jvp(f)), False, False),
    "jacrev": (fnx.jacrev, True, False), "jacfwd": (fnx.jacfwd, False, False),
    "grad grad": (lambda f: grad(grad(f)), True, False),
    "jvp grad": (lambda f: jvp(grad(f)), True, False),
    "vjp": (lambda f: lambda x: fnx.vjp(f, x)[1](jnp.ones_like(x)), True, False),
    "vmap": (fnx.vmap, False, True), "jit vmap": (lambda f: fnx.jit(fnx.vmap(f)), False, True),
    "vmap grad": (lambda f: fnx.vmap(grad(f)), True, True),
    "grad vmap": (lambda f: grad(fnx.vmap(f)), True, True),
    "vmap jvp": (lambda f: fnx.vmap(jvp(f)), False, True),
}


def argument(lane: int) -> Any:
    return np.array([0.2 + 0.25 * lane, 0.5 - 0.1 * lane, lane], np.float32)


def check(prog: Program, word: str) -> None:
    """Compare a program under a composition with the reference, and with itself without effects.

    Raises:
        AssertionError: the effects or the results differ.
    """
    transform, back, lanes = WORDS[word]
    xs = [argument(i) for i in range(LANES if lanes else 1)]
    given = np.stack(xs) if lanes else xs[0]
    reference = Reference([x.astype(np.float64) for x in xs])
    tape = reference.run(prog, list(range(len(xs))))
    want = reference.said + (backwards(tape) if back else [])
    LOG.clear()
    got = fnx.tree.leaves(transform(lambda x: traced(prog, x, True))(given))
    fnx.effects_barrier()
    said = LOG[:]
    without_effects = fnx.tree.leaves(transform(lambda x: traced(prog, x, False))(given))
    for a, b in zip(got, without_effects, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), "bits differ without effects"
    if lanes and has(prog, {"until", "cond"}):  # the order of batch elements is free
        want, said = (sorted(s, key=lambda e: e[1][-1]) for s in (want, said))
    assert [t for t, _ in said] == [t for t, _ in want], "other effects, or in another order"
    for (_, a), (_, b) in zip(said, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def refused(e: GradError) -> bool:
    """Return whether a program is unsupported: recomputation would rerun an I/O callback with
    results."""
    return "not to use a result of" in str(e)


def main(count: int, first: int) -> int:
    wrong = done = skipped = 0
    for seed in range(first, first + count):
        rng = random.Random(seed)
        prog = program(rng, rng.randint(2, 5))
        for word in WORDS:
            with override(device=rng.choice(["interp", "interp", "cpu"])):
                try:
                    done += 1
                    check(prog, word)
                except Exception as e:
                    if isinstance(e, GradError) and refused(e):
                        skipped += 1
                        continue
                    wrong += 1
                    print(f"seed {seed} under {word!r}: {type(e).__name__}: {str(e)[:300]}\n  "
                          f"{prog}", flush=True)
    print(f"{count} programs, {done} runs, {skipped} refused, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
