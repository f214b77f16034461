"""Random user-written kernels: devices, derivatives, searched schedules, compositions of
transforms.

    python -m tests.attack.kernels --count 3000 --seed 1

The generators are those of the property tests: kernels of reads, reductions, local arrays and
stores (tests/laws/test_user_written_kernels.py), smooth ones with loops and conditions
(test_kernel_derivatives.py), nests of loops that add to indices (test_kernel_programs.py). A seed
is compared with the interpreter, with finite differences or with Python; or it runs under a
composition of transforms and loops, which is compared with the same without loops and batching; or
its schedule is also searched for, and must give the bits of the default schedule.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.config import override
from tests.attack import seeds
from tests.laws import test_kernel_derivatives, test_kernel_programs, test_user_written_kernels
from tests.laws.test_kernel_derivatives import SmoothWriter

SECONDS = 0.1  # of a search
STEPS = 3
Function = Callable[[Any], Any]


def _step(f: Function, like: Any) -> Function:
    """A loop step: f's result for the carry, in the shape of the carry."""
    shape = np.shape(like)

    def step(c: Any) -> Any:
        made = sum([jnp.sum(y) for y in f(c)], jnp.zeros((), "float64"))
        return jnp.sin(c + jnp.broadcast_to(made, shape) / (1 + abs(made)))
    return step


def _loss(f: Function) -> Function:
    return lambda x: sum([jnp.sin(y).sum() for y in f(x)], jnp.zeros((), "float64"))


# A composition on a function of one array, and the same without loops and batching: (function, x)
# -> results.
WORDS: dict[str, tuple[Callable[[Function, Any], Any], Callable[[Function, Any], Any]]] = {
    "alone": (lambda f, x: f(x), lambda f, x: f(x)),
    "jit": (lambda f, x: fnx.jit(f)(x), lambda f, x: f(x)),
    "vmap": (lambda f, x: fnx.vmap(f)(jnp.stack([x, -0.5 * x])),
             lambda f, x: [jnp.stack(ys) for ys in zip(f(x), f(-0.5 * x))]),
    "scan": (lambda f, x: lax.scan(lambda c, _: (_step(f, x)(c), None), x, None, STEPS)[0],
             lambda f, x: _step(f, x)(_step(f, x)(_step(f, x)(x)))),
    "while": (lambda f, x: lax.while_loop(
        lambda s: s[0] < STEPS, lambda s: (s[0] + 1, _step(f, x)(s[1])), (0, x))[1],
              lambda f, x: _step(f, x)(_step(f, x)(_step(f, x)(x)))),
    "grad": (lambda f, x: fnx.grad(_loss(f))(x), lambda f, x: fnx.grad(_loss(f))(x)),
    "grad of a scan": (
        lambda f, x: fnx.grad(lambda x: lax.scan(
            lambda c, _: (_step(f, x)(c), None), x, None, STEPS)[0].sum())(x),
        lambda f, x: fnx.grad(lambda x: _step(f, x)(_step(f, x)(_step(f, x)(x))).sum())(x)),
    "vmap of grad": (
        lambda f, x: fnx.vmap(fnx.grad(_loss(f)))(jnp.stack([x, -0.5 * x])),
        lambda f, x: jnp.stack([fnx.grad(_loss(f))(x), fnx.grad(_loss(f))(-0.5 * x)])),
    "checkpoint": (lambda f, x: fnx.grad(fnx.checkpoint(_loss(f)))(x),
                   lambda f, x: fnx.grad(_loss(f))(x)),
}


def under_a_word(seed: int, **options: Any) -> bool:
    """Return whether a kernel with options ran (otherwise it was rejected), alone and in a
    composition."""
    with override(x64=True):
        writer = SmoothWriter(seed)
        x, y, at = writer.inputs()

        def made(**options: Any) -> Function:
            f = fnx.call(writer, name="generated", out=writer.out, **options)

            def of(x: Any) -> Any:
                out = f(x, y, at)
                return out if isinstance(out, tuple) else (out,)
            return of

        plain, other = made(), made(**options)
        try:
            alone = plain(x)
        except fnx.FnxError:
            return False
        if not all(np.isfinite(v).all() for v in alone):
            return False
        with override(cache_dir=""):
            for a, b in zip(other(x), alone, strict=True):
                np.testing.assert_array_equal(a, b)
            name = random.Random(seed).choice(list(WORDS))
            word, meaning = WORDS[name]
            got, want = word(other, jnp.asarray(x)), meaning(plain, jnp.asarray(x))
            for a, b in zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10, err_msg=name)
    return True


def searched(seed: int) -> bool:
    """Return whether a kernel ran with schedule search."""
    return under_a_word(seed, search=SECONDS)


def nested(seed: int) -> bool:
    test_kernel_programs.check(seed)
    return True


WAYS: dict[str, Callable[[int], bool]] = {
    "devices": test_user_written_kernels.check, "derivatives": test_kernel_derivatives.check,
    "nests": nested, "words": under_a_word, "searched": searched}


def check(seed: int) -> tuple[str, bool]:
    """Return how a seed is checked, and whether its kernel ran (otherwise it was rejected when
    written)."""
    way = list(WAYS)[seed % len(WAYS)]
    return way, WAYS[way](seed)


def main() -> int:
    def counted(seed: int) -> str:
        way, ran = check(seed)
        return way if ran else "refused"

    return seeds.attack(str(__doc__), "kernels", counted)



if __name__ == "__main__":
    sys.exit(main())
