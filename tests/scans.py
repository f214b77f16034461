"""Random SCANs and WHILEs for property tests: bodies of scalars, small axes and batch axes."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, substitute
from tests.graphs import ALL_OPS, STEPS, Builder, values

# Float reductions round in an order of their own.
EXACT = frozenset(op for op in ALL_OPS if op.exact) - ops.MULTI_RESULT - \
    {ops.GETTUPLE, ops.FUNCTION, ops.REDUCE}
TYPES = (dtypes.float32, dtypes.int32, dtypes.bool_, dtypes.uint32)


class Loop(NamedTuple):
    """A FUNCTION whose results are those of one loop, and values for its PARAMs."""

    fn: UOp
    args: list[np.ndarray[Any, Any]]


class _Body(Builder):
    """A body that grows from consts, carries and xs; any other input becomes a const."""

    def __init__(self, rng: random.Random, shapes: Sequence[tuple[int, ...]],
                 types: Sequence[DType], allowed: Collection[Op]) -> None:
        super().__init__(rng, types, allowed, 0)
        self.shapes = shapes
        self.carries = [self.param(rng.choice(types), rng.choice(shapes))
                        for _ in range(rng.randint(1, 3))]
        self.xs = [self.param(rng.choice(types), rng.choice(shapes))
                   for _ in range(rng.randint(0, 2))]

    def shape(self, most: int = 0) -> tuple[int, ...]:
        return self.rng.choice(self.shapes)  # type: ignore[no-any-return]

    def result(self, like: UOp) -> UOp:
        """Return a value of the type of a carry, preferably one of the last computed."""
        found = [n for n in self.pool if n.shape == like.shape and n.op is not ops.PARAM]
        node = self.rng.choice(found[-4:]) if found else like
        if node.dtype is not like.dtype:
            node = build.cast(node, like.dtype)
        return node if self.rng.random() < 0.7 else build.where(
            build.lt(like, node), node, like)


def loop_of(seed: int, steps: int, lanes: int = 0, types: Sequence[DType] = TYPES,
            allowed: Collection[Op] = EXACT) -> Loop:
    """Return the SCAN of a seed. ``lanes``: the length of an axis that some values have."""
    rng = random.Random(seed)
    shapes: list[tuple[int, ...]] = [(), (), (3,), (2, 2)]
    if lanes:
        shapes += [(lanes,), (lanes, 3), (3, lanes), (2, lanes)]
    b = _Body(rng, shapes, types, [op for op in allowed if op in ops.ELEMENTWISE or op in STEPS])
    for _ in range(steps):
        b.step()
    outs = [b.result(c) for c in b.carries]
    outs += [rng.choice(b.pool) for _ in range(rng.randint(0, 2))]
    length = rng.choice((1, 2, 5, 17))
    consts = [p for p in b.params if p not in b.carries and p not in b.xs]
    ordered = [*consts, *b.carries, *b.xs]
    body = build.function(substitute(outs, {
        p: build.param(i, p.dtype, p.shape) for i, p in enumerate(ordered)}), len(ordered), "body")
    shapes_of = [p.shape for p in (*consts, *b.carries)] + [(length, *p.shape) for p in b.xs]
    params = [build.param(i, p.dtype, s) for i, (p, s) in enumerate(zip(ordered, shapes_of))]
    first, last = len(consts), len(consts) + len(b.carries)
    results = build_calls.scan(body, length, params[:first], params[first:last], params[last:],
                               rng.random() < 0.3)
    draw = np.random.default_rng(seed)
    return Loop(build.function(results, len(params)),
                [values(draw, p.dtype, p.shape) for p in params])
