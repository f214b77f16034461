"""Measure the overhead of a jitted call on one target: microseconds, medians of rounds.

    python benchmarks/calls.py jax
    python benchmarks/calls.py fnx

The arrays are small, so this measures Python: flattening the arguments, finding the program,
wrapping the results. Each case has arguments of another kind.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from eager import report


class Pair:
    """A container registered with flatten and unflatten functions."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


@dataclasses.dataclass
class State:
    """A container registered as a dataclass."""

    a: Any
    b: Any


def cases(m: SimpleNamespace) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Return calls to time, and how many of each make a round."""
    jax, jnp = m.jax, m.jnp
    x, several = jnp.ones(8), [jnp.ones(n) for n in range(1, 9)]
    jax.tree_util.register_pytree_node(Pair, lambda p: ((p.a, p.b), None),
                                       lambda _, leaves: Pair(*leaves))
    jax.tree_util.register_dataclass(State, ("a", "b"), ())
    add = jax.jit(lambda x, y: x + y)
    both = jax.jit(lambda p: p.a + p.b)
    items = jax.jit(lambda d: {k: v + 1 for k, v in d.items()})
    scaled = jax.jit(lambda x, n: x * n, static_argnames="n")
    one, plus = jax.jit(lambda x: x + 1), lambda x: x + 1
    pair, state = Pair(x, x), State(x, x)
    numbered, hundred = {1: x, 2: x}, {f"p{i}": x for i in range(100)}
    turn, scalar = itertools.cycle(several), np.float32(2.0)
    return {
        "dispatch": (1000, lambda: one(x)), "dispatch100": (30, lambda: items(hundred)),
        "keyword static": (300, lambda: scaled(x, n=3)),
        "dataclass": (300, lambda: both(state)), "custom node": (300, lambda: both(pair)),
        "dict with int keys": (300, lambda: items(numbered)),
        "Python float": (300, lambda: add(x, 2.0)), "NumPy scalar": (300, lambda: add(x, scalar)),
        "8 signatures in turn": (300, lambda: one(next(turn))),
        "jit(f)(x) again": (100, lambda: jax.jit(plus)(x)),
    }


if __name__ == "__main__":
    report(__doc__, cases)
