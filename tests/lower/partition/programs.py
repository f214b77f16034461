"""Programs on whole arrays against the same on blocks, by threads that stand for processes.

    python -m tests.lower.partition.programs 1000            random graphs, layers; random cuts
    python -m tests.lower.partition.programs 1000 --from 500
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.ir import dtypes, ops
from fnx.core.ir.axis_partitions import Names, Partitions, fit
from fnx.core.ir.collectives import Collective, ProcessGrid, position
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp, spec
from fnx.core.tracing.trace import trace
from fnx.lower.partition.partition import partition
from tests import graphs
from tests.lower.partition.processes import run_ranks

GRIDS = (ProcessGrid(("a",), (2,)), ProcessGrid(("a",), (4,)), ProcessGrid(("a", "b"), (2, 2)),
         ProcessGrid(("a", "b"), (4, 2)))
LENGTHS = 1, 2, 2, 4, 4, 4, 8, 8, 8, 16, 6, 3, 0
TYPES = (dtypes.float64, dtypes.int32, dtypes.float64, dtypes.bool_, dtypes.complex128)
# Their results jump where the rounding of a sum changes, or their values grow without bounds.
UNSTABLE = frozenset({ops.POW, ops.DIV, ops.REM, ops.TAN, ops.LGAMMA, ops.DIGAMMA, ops.EXP,
                      ops.EXPM1, ops.BITCAST, ops.ASIN, ops.IDIV})
# Sums, and what they pass through: in every other program.
SUMS = frozenset({ops.ADD, ops.SUB, ops.MUL, ops.NEG, ops.REDUCE, ops.PERMUTE, ops.RESHAPE,
                  ops.EXPAND, ops.SHRINK, ops.FLIP, ops.CONCAT, ops.CALL, ops.SCAN, ops.COND,
                  ops.GATHER, ops.SCATTER})


def cut(x: Any, grid: ProcessGrid, rank: int, parts: Partitions) -> Any:
    """Return the block of a process."""
    for i, names in enumerate(parts):
        if names:
            x = np.split(x, grid.count(names), i)[position(grid, rank, names)]
    return x


def compare(function: UOp, args: Sequence[Any], grid: ProcessGrid, params: Sequence[Partitions],
            wanted: Sequence[Partitions | None] = (), rtol: float = 1e-9, **options: Any
            ) -> tuple[UOp, list[Partitions], list[Collective]]:
    """Check that the blocks of results are those of the results; return the local program, the cuts
    of results, and the collectives that a process ran."""
    local, parts = partition(function, grid, params, wanted, **options)
    spec.check([local], "tensor")
    blocks = [[cut(x, grid, rank, p) for x, p in zip(args, params)]
              for rank in range(grid.count(grid.names))]
    outs, log = run_ranks(grid, lambda rank: interp.apply(local, blocks[rank]))
    wholes = interp.apply(function, args)
    for i, whole in enumerate(wholes):
        scale = float(np.abs(whole[np.isfinite(whole)]).max(initial=1)) \
            if whole.dtype.kind in "fc" else 0
        if scale and _differ(outs, whole, grid, parts[i], i, rtol * scale):
            scale += _moved(function, args, i, whole) / rtol
        for rank, out in enumerate(outs):
            np.testing.assert_allclose(out[i], cut(whole, grid, rank, parts[i]), rtol=rtol,
                                       atol=rtol * scale, err_msg=f"result {i} of rank {rank}")
    return local, parts, log


def _differ(outs: Sequence[Any], whole: Any, grid: ProcessGrid, parts: Partitions, i: int,
            atol: float) -> bool:
    return not all(np.allclose(out[i], cut(whole, grid, rank, parts), atol=atol, equal_nan=True)
                   for rank, out in enumerate(outs))


def _moved(function: UOp, args: Sequence[Any], i: int, whole: Any) -> float:
    """Return how far a result moves if the arguments change by a rounding error: as far may it be
    from what processes compute, which add in another order."""
    moved = 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        near = [x * (1 + np.finfo(x.dtype).eps / 2 * rng.choice([-1, 1], x.shape)).astype(x.dtype)
                if x.dtype.kind == "f" else x for x in args]
        moved = max(moved, float(np.abs(interp.apply(function, near)[i] - whole).max(initial=0)))
    return moved


def random_cuts(rng: random.Random, grid: ProcessGrid, shape: tuple[int, ...]) -> Partitions:
    """Draw cuts that fit a shape."""
    parts: list[Names] = [()] * len(shape)
    for name in rng.sample(grid.names, rng.randint(0, len(grid.names))):
        if shape:
            i = rng.randrange(len(shape))
            parts[i] = (*parts[i], name)
    return fit(tuple(parts), shape, dict(zip(grid.names, grid.sizes)))


def compare_random(seed: int) -> list[Collective]:
    """Compare the random graph of a seed with random cuts."""
    rng = random.Random(seed)
    with mock.patch.object(graphs, "LENGTHS", LENGTHS):
        graph = graphs.graph_of(seed, rng.randint(1, 24), TYPES[:2] if seed % 2 else TYPES,
                                SUMS if seed % 2 else graphs.ALL_OPS - UNSTABLE, smooth=True)
    grid = rng.choice(GRIDS)
    params = [random_cuts(rng, grid, x.shape) for x in graph.args]
    wanted = [random_cuts(rng, grid, x.shape) if rng.random() < 0.3 else None
              for x in graph.fn.src]
    return compare(graph.fn, graph.args, grid, params, wanted)[2]


def traced(f: Callable[..., Any], *xs: Any) -> tuple[UOp, list[Any]]:
    """Return the FUNCTION of a Python function, and values for its parameters."""
    leaves, in_tree = tree.flatten((tuple([fnx.numpy.asarray(x) for x in xs]), {}))
    closed = trace(f, [x._aval for x in leaves], in_tree, transform="partition", name="f").close()
    return closed.function, [np.asarray(x) for x in
                             (*leaves, *map(fnx.Array, closed.captures))]


LAYERS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda x, w: x @ w * 0.3, "left": lambda x, w: w.T @ x * 0.3,
    "add": lambda x, w: x + w, "tanh": lambda x, w: jnp.tanh(x), "transpose": lambda x, w: x.T,
    "mean": lambda x, w: x - x.mean(0), "total": lambda x, w: x * 0.1 + (x * w).sum(1)[:, None],
    "max": lambda x, w: x - x.max(0), "softmax": lambda x, w: fnx.nn.softmax(x @ w) @ w.T,
    "rows": lambda x, w: w[jnp.arange(8) // 2] + x, "roll": lambda x, w: x - jnp.roll(x, 1, 0),
    "split": lambda x, w: (x.reshape(8, 2, 4) + w.sum(0).reshape(2, 4)).reshape(8, 8),
    "scan": lambda x, w: lax.scan(lambda c, row: (jnp.tanh(c @ w + row), c), x, w)[0],
    "heat": lambda x, w: x.at[1:-1].add(0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])),
    "differences": lambda x, w: x * 0.5 + ((x[1:] - x[:-1]) ** 2).mean(),
    "borders": lambda x, w: jnp.concatenate([x[:1], (x[2:] + w[:-2]) / 2, w[-1:]]),
    "next": lambda x, w: x - jnp.pad(x, ((1, 2), (0, 0)), constant_values=0.5)[2:-1] * w,
    "loop": lambda x, w: lax.fori_loop(0, 3, lambda i, c: c * 0.5 + w, x),
}


def compare_layers(seed: int) -> list[Collective]:
    """Compare a random program of layers, its gradients or its tangents with random cuts."""
    rng, data = random.Random(seed), np.random.default_rng(seed)
    steps = [(rng.choice(list(LAYERS)), rng.randrange(2)) for _ in range(rng.randint(1, 6))]

    def f(x: Any, *ws: Any) -> Any:
        for name, i in steps:
            x = LAYERS[name](x, ws[i])
        return (x ** 2).sum() if seed % 2 else x
    xs = [data.standard_normal((8, 8)).astype(np.float32) for _ in range(3)]
    forms = (f, fnx.value_and_grad(f, argnums=(0, 1, 2)), lambda *xs: fnx.jvp(f, xs, xs[::-1]))
    function, args = traced(forms[seed % 2 or seed % 4], *xs)
    grid = rng.choice(GRIDS)
    params = [*[random_cuts(rng, grid, (8, 8)) for _ in xs],
              *[((),) * x.ndim for x in args[len(xs):]]]
    wanted = [random_cuts(rng, grid, x.shape) if rng.random() < 0.3 else None
              for x in function.src]
    return compare(function, args, grid, params, wanted, rtol=5e-4)[2]


def main() -> int:
    """Return 1 if a program differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--from", type=int, default=0, dest="start")
    options = parser.parse_args()
    wrong = with_collectives = 0
    for seed in range(options.start, options.start + options.count):
        try:
            with_collectives += bool(compare_random(seed)) + bool(compare_layers(seed))
        except Exception as error:
            wrong += 1
            print(f"seed {seed}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    print(f"{2 * options.count} programs, {with_collectives} with collectives, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
