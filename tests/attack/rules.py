"""Wrong custom rules: each is reported with its line, or has the meaning of its numbers.

    python -m tests.attack.rules --count 3000 --seed 1

A function of a random pytree has a correct rule. Then one part of what the rule returns is
corrupted: missing or extra leaves, another shape, dtype or kind, other containers, None, Python
numbers, objects that are not arrays; or the rule raises, or takes other arguments. Random
compositions of transforms use it. The result is an fnx error with the user's line and advice (what
the rule raises itself propagates unchanged), or the value of the correct rule with the same
numbers.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.support.errors import FnxError
from fnx.custom_batching import custom_vmap

SHAPES = ((), (2,), (3,), (2, 3))
Change = Callable[[Any], Any]


class Spoilt(Exception):
    """Raised by a rule itself."""


class _Refused:
    """Marks a leaf for which no correct rule exists."""


REFUSED = _Refused()


def _raise(x: Any) -> Any:
    raise Spoilt("the rule's own")


# Corruptions of one leaf, and the array that means the same (REFUSED: none does).
LEAVES: dict[str, tuple[Change, Change]] = {
    "a row more": (lambda x: jnp.stack([x, x]), lambda x: REFUSED),
    "one element": (lambda x: x.reshape(-1)[:1], lambda x: x if x.shape == (1,) else REFUSED),
    "a sum": (lambda x: x.sum(), lambda x: x.sum() if x.shape == () else REFUSED),
    "flat": (lambda x: x.reshape(-1), lambda x: x if x.ndim == 1 else REFUSED),
    "integers": (lambda x: x.astype("int32"), lambda x: REFUSED),
    "bools": (lambda x: x > 0, lambda x: REFUSED),
    "narrow": (lambda x: x.astype("float16"), lambda x: REFUSED),
    "a number": (lambda x: 0.5, lambda x: jnp.full((), 0.5) if x.shape == () else REFUSED),
    "an int": (lambda x: 2, lambda x: jnp.full((), 2.0) if x.shape == () else REFUSED),
    "NumPy": (lambda x: np.full(x.shape, 0.25, np.float32), lambda x: jnp.full(x.shape, 0.25)),
    "wide NumPy": (lambda x: np.full(x.shape, 0.25), lambda x: jnp.full(x.shape, 0.25)),
    "a text": (lambda x: "x", lambda x: REFUSED),
    "an object": (lambda x: object(), lambda x: REFUSED),
    "a function": (lambda x: lambda: x, lambda x: REFUSED),
    "None": (lambda x: None, lambda x: REFUSED),
    "one in a list": (lambda x: [x], lambda x: REFUSED),
    "a pair": (lambda x: (x, x), lambda x: REFUSED),
    "it raises": (_raise, lambda x: REFUSED),
    "NaN": (lambda x: x * np.nan, lambda x: x * np.nan),
}
# Corruptions of the whole result.
WHOLES: dict[str, Change] = {
    "nothing": lambda t: None, "a list": lambda t: [t], "a leaf more": lambda t: (t, jnp.ones(2)),
    "a generator": lambda t: (x for x in tree.leaves(t)), "a number": lambda t: 1.0,
    "leaves alone": lambda t: {"leaves": tree.leaves(t)}, "a class": lambda t: type(t),
    "a dict": lambda t: {"a": t, "b": t}, "it raises": _raise,
}


def drawn_tree(rng: random.Random, depth: int = 2) -> Any:
    """Draw a pytree of float32 arrays with at least one leaf."""
    kind = rng.choice("ldtx") if depth else "x"
    if kind == "x":
        shape = rng.choice(SHAPES)
        return np.asarray(rng.random() + 0.1 * np.arange(np.prod(shape)), np.float32
                          ).reshape(shape)
    parts = [drawn_tree(rng, depth - 1) for _ in range(rng.choice((1, 2, 2, 3)))]
    return parts if kind == "l" else tuple(parts) if kind == "t" else dict(zip("abc", parts))


class Wrong:
    """One rule that is corrupted at one point.

    ``part`` is the part of the rule's results, ``meant`` whether it returns what the corrupted one
    means, so that both are compared.
    """

    def __init__(self, rng: random.Random, meant: bool) -> None:
        self.x, self.weights = drawn_tree(rng), drawn_tree(rng)
        self.kind = rng.choice(list(KINDS))
        self.part = rng.choice(PARTS[self.kind])
        self.words = [rng.choice(WORDS) for _ in range(rng.choice((1, 1, 2)))]
        self.whole = rng.choice(list(WHOLES)) if rng.random() < 0.3 else None
        self.change = rng.choice(list(LEAVES))
        self.place = rng.randrange(100)
        self.meant = meant

    def __repr__(self) -> str:
        what = f"the whole is {self.whole}" if self.whole else f"leaf {self.place}: {self.change}"
        return f"{self.kind}, {self.part}: {what}; under {' '.join(self.words)}; " \
               f"x {tree.structure(self.x)}, y {tree.structure(self.weights)}"

    def spoil(self, part: str, value: Any) -> Any:
        """Return what a rule returns, corrupted if it is the chosen part."""
        if part != self.part:
            return value
        if self.whole is not None:
            if self.meant and self.kind == "custom_gradient" and self.whole == "nothing":
                return fnx.tree.map(lambda x: x * 0, value)  # None is zero
            if self.meant and self.whole == "a number" and np.shape(value) == () \
                    and not isinstance(value, dict):
                return jnp.ones(())
            if self.meant:
                raise _NoMeaning
            return WHOLES[self.whole](value)
        leaves, structure = tree.flatten(value)
        i = self.place % len(leaves)
        leaves[i] = jnp.asarray(leaves[i])
        if self.meant:
            zero = part == "cotangents" and self.change == "None"
            leaves[i] = leaves[i] * 0 if zero else LEAVES[self.change][1](leaves[i])
            if leaves[i] is REFUSED:
                raise _NoMeaning
        else:
            leaves[i] = LEAVES[self.change][0](leaves[i])
        return structure.unflatten(leaves)

    # ---- the function and its rules: y = weights * tanh(sum of all x)

    def f(self, x: Any) -> Any:
        return self.outs(jnp.tanh(self.total(x)))

    def outs(self, scale: Any) -> Any:
        return fnx.tree.map(lambda w: scale * w, self.weights)

    def total(self, x: Any) -> Any:
        return sum([jnp.sum(v) for v in tree.leaves(x)], jnp.zeros(()))

    def slope(self, x: Any) -> Any:
        return 1 - jnp.tanh(self.total(x)) ** 2

    def tangents(self, x: Any, t: Any) -> Any:
        return self.outs(self.slope(x) * self.total(t))

    def cotangents(self, x: Any, ct: Any) -> Any:
        along = sum([jnp.sum(w * c) for w, c in zip(tree.leaves(self.weights), tree.leaves(ct))])
        return fnx.tree.map(lambda v: self.slope(x) * along * jnp.ones(np.shape(v)), x)

    def jvp_rule(self, primals: Any, tangents: Any) -> Any:
        x, = primals
        return self.spoil("results", self.f(x)), self.spoil(
            "tangents", self.tangents(x, tangents[0]))

    def fwd(self, x: Any) -> Any:
        return self.spoil("results", self.f(x)), x

    def bwd(self, x: Any, ct: Any) -> Any:
        return self.spoil("cotangents", (self.cotangents(x, ct),))

    def batched(self, size: int, flags: Any, x: Any) -> Any:
        which = tree.leaves(flags)[0]
        out = fnx.vmap(self.f)(x) if which else self.f(x)
        return self.spoil("results", out), which

    def function(self) -> Callable[[Any], Any]:
        return KINDS[self.kind](self)

    def value(self) -> list[Any]:
        """Return the leaves of the composition's result."""
        f, x, form = self.function(), self.x, KIND_OF[self.kind]
        for word in (form, *self.words):
            f, x = APPLY[word](f, x)
        return [np.asarray(v) for v in tree.leaves(f(x))]


class _NoMeaning(Exception):
    """This corruption must be rejected."""


def _custom_jvp(w: Wrong) -> Any:
    f = fnx.custom_jvp(lambda x: w.f(x))
    f.defjvp(lambda primals, tangents: w.jvp_rule(primals, tangents))
    return f


def _custom_vjp(w: Wrong) -> Any:
    f = fnx.custom_vjp(lambda x: w.f(x))
    f.defvjp(lambda x: w.fwd(x), lambda x, ct: w.bwd(x, ct))
    return f


def _custom_vmap(w: Wrong) -> Any:
    f = custom_vmap(lambda x: w.f(x))
    f.def_vmap(lambda size, flags, x: w.batched(size, flags, x))
    return f


KINDS: dict[str, Callable[[Wrong], Any]] = {
    "custom_jvp": _custom_jvp, "custom_vjp": _custom_vjp, "custom_vmap": _custom_vmap,
    "custom_gradient": lambda w: fnx.custom_gradient(
        lambda x: (w.f(x), lambda ct: w.bwd(x, ct)[0] if w.whole is None else w.bwd(x, ct))),
    "call jvp": lambda w: fnx.call(lambda x: w.f(x), jvp=lambda p, t: w.jvp_rule(p, t)),
    "call vjp": lambda w: fnx.call(lambda x: w.f(x), vjp=(lambda x: w.fwd(x),
                                                          lambda x, ct: w.bwd(x, ct))),
    "call vjp of three": lambda w: fnx.call(lambda x: w.f(x),
                                            vjp=lambda args, out, ct: w.bwd(args[0], ct)),
    "call vmap": lambda w: fnx.call(lambda x: w.f(x), vmap=lambda n, b, x: w.batched(n, b, x)),
}
PARTS = {"custom_jvp": ("results", "tangents"), "call jvp": ("results", "tangents"),
         "custom_vjp": ("results", "cotangents"), "call vjp": ("results", "cotangents"),
         "call vjp of three": ("cotangents",), "custom_gradient": ("cotangents",),
         "custom_vmap": ("results",), "call vmap": ("results",)}
KIND_OF = {kind: "vmap" if "vmap" in kind else "jvp" if "jvp" in kind else "grad"
           for kind in KINDS}


def _sum(out: Any) -> Any:
    return sum([jnp.sum(v) for v in tree.leaves(out)], jnp.zeros(()))


def _doubled(x: Any) -> Any:
    return fnx.tree.map(lambda v: np.stack([v, v + np.float32(0.125)]), x)


Made = tuple[Callable[[Any], Any], Any]
APPLY: dict[str, Callable[[Callable[[Any], Any], Any], Made]] = {
    "jit": lambda f, x: (fnx.jit(f), x),
    "grad": lambda f, x: (fnx.grad(lambda x: _sum(f(x))), x),
    "jvp": lambda f, x: (lambda x: fnx.jvp(f, (x,), (x,))[1], x),
    "vmap": lambda f, x: (fnx.vmap(f), _doubled(x)),
    "scan": lambda f, x: (lambda x: lax.scan(lambda c, _: (c, f(c)), x, None, length=2)[1], x),
    "cond": lambda f, x: (lambda x: lax.cond(_sum(x) > -99, f, f, x), x),
    "checkpoint": lambda f, x: (fnx.checkpoint(f), x),
}
WORDS = tuple(APPLY)

LINE = re.compile(r"rules\.py:\d+: ")


def attempt(wrong: Wrong) -> tuple[str, Any]:
    try:
        return "value", wrong.value()
    except _NoMeaning:
        return "no meaning", None
    except Spoilt as e:
        return "own", e
    except FnxError as e:
        return "error", e


def fault(seed: int) -> tuple[str, str | None]:
    """Return how the program of a seed ends, and what is wrong with that."""
    wrong, right = Wrong(random.Random(seed), False), Wrong(random.Random(seed), True)
    how, got = attempt(wrong)
    raises = "raises" in (wrong.whole or wrong.change)
    if how == "error":
        text = str(got)
        if not LINE.search(text) or "  Fix: " not in text:
            return how, f"no line, or no advice:\n{text}"
        return how, None
    if how == "own":
        return how, None if raises else "it raised what it should not"
    meant, want = attempt(right)
    if meant != "value":
        return how, f"a wrong rule gave {got}"
    if len(got) != len(want) or not all(
            a.shape == b.shape and np.allclose(a, b, 1e-4, 1e-5, equal_nan=True)
            for a, b in zip(got, want)):
        return how, f"got {got}\nexpected {want}"
    return how, None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    end, ways, wrong = time.monotonic() + options.seconds, dict[str, int](), 0

    def hangs(*_: Any) -> None:
        raise TimeoutError("it hangs")
    signal.signal(signal.SIGALRM, hangs)
    for seed in range(options.seed, options.seed + options.count):
        if time.monotonic() > end:
            break
        signal.alarm(60)
        try:
            how, said = fault(seed)
        except Exception:
            how, said = "crash", traceback.format_exc()
        signal.alarm(0)
        ways[how] = ways.get(how, 0) + 1
        if said:
            wrong += 1
            print(f"seed {seed}: {Wrong(random.Random(seed), False)}\n{said}\n", flush=True)
    print(f"{sum(ways.values())} wrong rules {ways}: {wrong} wrong, 0 hangs")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
