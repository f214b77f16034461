"""FUNCTIONs of the property tests, for checks of kernels by other tools.

Public differentiable functions and their gradients, loops, branches and calls, and random graphs:
each once, in an order that depends on the seed only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import fnx
from fnx.core.array import tree
from fnx.core.ir import dtypes
from fnx.core.ir.uop import UOp
from fnx.core.tracing.trace import trace
from tests.graphs import graph_of
from tests.laws.matrix import APPLY
from tests.laws.matrix_cases import public_cases, structural_cases

STEPS = 14  # of a random graph


class Collected(NamedTuple):
    """A FUNCTION, its origin, and values for its PARAMs."""

    name: str
    fn: UOp
    args: list[Any]


def traced(name: str, f: Callable[[Any], Any], xs: tuple[Any, ...]) -> Collected:
    """Trace a function of a tuple of float32 arrays."""
    given = tuple([fnx.numpy.asarray(x, np.float32) for x in xs])
    leaves, in_tree = tree.flatten(((given,), {}))
    closed = trace(f, [x._aval for x in leaves], in_tree, transform="collected", name="f").close()
    return Collected(name, closed.function,
                     [np.asarray(x) for x in (*leaves, *map(fnx.Array, closed.captures))])


def collected(count: int, seed: int = 0) -> Iterator[Collected]:
    """Collect this many of each of the two kinds."""
    cases = [*public_cases()[0], *structural_cases()]
    random.Random(seed).shuffle(cases)
    for i, case in enumerate(cases[:count]):
        f = case.f if i % 2 else APPLY["grad"](case.f)
        yield traced(f"{'' if i % 2 else 'grad '}{case.name.removeprefix('fnx.')}", f, case.xs)
    types = [t for t in dtypes.USER if t.storage is None]
    for i in range(count):
        graph = graph_of(seed * 100_000 + i, STEPS, types)
        yield Collected(f"graph {i}", graph.fn, list(graph.args))
