"""Split a long reduction with few results in two, so that workers can share it.

    before  REDUCE(x[16777216], ADD, axis 0)
    after   REDUCE(REDUCE(RESHAPE(x, (64, 262144)), ADD, axis 1), ADD, axis 0)

Products of factors are in split_k.py.

How the sum associates follows from the shape and the target's entry (``Target.chunks``: workgroups
of threads take more of them than workers), never from the number of workers.

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.float32, (1 << 24,))
>>> whole = build.function([build.reduce(x, ops.ADD, [0])], 1)
>>> total, = split_reduction(whole, Target("cpu")).src
>>> total.src[0].op, total.src[0].src[0].shape
(REDUCE, (64, 262144))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, rebuild_results
from fnx.core.support.target import Target
from fnx.lower.tensor.split_k import split_k

MIN_WORK = 1 << 16   # reduced elements in all below which one worker is enough
MAX_RESULTS = 64     # with more results than this, workers share the results themselves
LONG_CHAIN = 1 << 13       # length of a reduction across rows from which several workers pay
BUSY_GROUPS = 128           # workgroups that keep a device busy,
# ... results per workgroup: of products, across rows
PRODUCT_RESULTS, COLUMN_RESULTS = 1 << 10, 1 << 5
MIN_CHAIN = 1 << 9       # ... and terms of each that pay for a workgroup
MIN_CHUNK = 1 << 12  # least elements reduced per chunk


def split_reduction(fn: UOp, target: Target) -> UOp:
    """Return a FUNCTION in which long REDUCEs with few results are reduced in chunks first."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REDUCE:
            return None
        if _is_long(node):
            return _split(node.with_operands(src), target.max_chunks)
        if target.threads == 1:
            return split_k(node, src[0], target)
        chunks = _workgroup_chunks(node, target)
        return _split(node.with_operands(src), chunks) if chunks > 1 else None
    return rebuild_results(fn, visit)


def _workgroup_chunks(node: UOp, target: Target) -> int:
    """Return the number of chunks for a reduction across rows, or a sum of products, that has too
    few results to keep a device with workgroups busy."""
    x, axes = node.src[0], node.arg.axes
    results: int = math.prod(node.shape)
    if x.op is ops.ARG_PAIR or not results or \
            (x.op is not ops.MUL and len(x.shape) - 1 in axes):
        return 1
    results_per_group = PRODUCT_RESULTS if x.op is ops.MUL else COLUMN_RESULTS
    chain: int = math.prod(x.shape[a] for a in axes)
    return min(target.max_chunks, chain // MIN_CHAIN,
               BUSY_GROUPS // -(-results // results_per_group))


def _is_long(node: UOp) -> bool:
    """Return whether a reduction has few results, or is long and across rows; lanes already shorten
    one along rows.

    A sum of products may be a contraction, which is tiled without a split. Below MIN_WORK the
    partial sums of a schedule (schedule/blocked_summation.py) suffice, and so does one worker.
    """
    x, axes = node.src[0], node.arg.axes
    total = math.prod(x.shape)
    if total < MIN_WORK:
        return False
    if math.prod(node.shape) <= MAX_RESULTS:
        return True
    chain = math.prod(x.shape[a] for a in axes)
    return chain >= LONG_CHAIN and len(x.shape) - 1 not in axes and \
        x.op not in (ops.MUL, ops.ARG_PAIR)


def _split(node: UOp, max_chunks: int) -> UOp:
    """Reduce chunks of the longest run of reduced axes, then the remaining ones."""
    x, monoid = node.src[0], node.arg.monoid
    # joining a product's axes would materialize it: its loops are those of its factors
    runs = [[a] for a in node.arg.axes] if x.op is ops.MUL else _reduced_runs(node.arg.axes)
    run = max(runs, key=lambda run: math.prod([x.shape[a] for a in run]))
    chunks = _chunk_count([x.shape[a] for a in run], math.prod(x.shape), max_chunks)
    if chunks == 1:
        return node
    if x.shape[run[0]] % chunks == 0:  # chunks of whole rows: indices of rows take no division
        runs = [[a] for a in node.arg.axes]
    shape, axes = _join_runs(x.shape, runs)
    axis = run[0] - sum(len(r) - 1 for r in runs if r[0] < run[0])
    n = shape[axis]
    length = -(-n // chunks)

    def reshape_chunks(x: UOp, fill: Any) -> UOp:
        x = build.reshape(x, shape)
        if length * chunks != n:
            widths = [(0, length * chunks - n if i == axis else 0) for i in range(len(shape))]
            x = build.pad(x, widths, fill)
        return build.reshape(x, (*shape[:axis], chunks, length, *shape[axis + 1:]))

    inner_axes = [a if a < axis else a + 1 for a in axes]
    partial: UOp
    if x.op is ops.ARG_PAIR:  # both results of each chunk, from one pass over it
        key, index = x.src
        key = reshape_chunks(key, monoid.identity(key.dtype))
        index = reshape_chunks(index, index.dtype.limits[1])
        partial = build.arg_pair(build.reduce(key, monoid, inner_axes),
                                 build.reduce(build.arg_pair(key, index), monoid, inner_axes))
    elif x.op is ops.MUL and n % chunks == 0:  # still a product, as fusion knows it
        partial = build.reduce(build.mul(*[reshape_chunks(factor, 0) for factor in x.src]),
                               monoid, inner_axes)
    else:
        partial = build.reduce(reshape_chunks(x, monoid.identity(x.dtype)), monoid, inner_axes)
    return build.reduce(partial, monoid, [axis - sum(a < axis for a in axes)])


def _reduced_runs(axes: Sequence[int]) -> list[list[int]]:
    """Return the runs of adjacent reduced axes."""
    runs: list[list[int]] = []
    for a in axes:
        if runs and runs[-1][-1] == a - 1:
            runs[-1].append(a)
        else:
            runs.append([a])
    return runs


def _join_runs(shape: ops.Shape, runs: list[list[int]]) -> tuple[ops.Shape, list[int]]:
    """Join the axes of each run; return the shape, and the axes that the runs have become."""
    first = {a: run[0] for run in runs for a in run}
    lengths: dict[int, int] = {}
    for a, n in enumerate(shape):
        start = first.get(a, a)
        lengths[start] = lengths.get(start, 1) * n
    return tuple(lengths.values()), [[*lengths].index(run[0]) for run in runs]


def _chunk_count(lengths: Sequence[int], total: int, max_chunks: int) -> int:
    """Return the number of chunks of a run of axes: a divisor of the first one, then chunks are of
    whole rows, or of all, if a good one exists; else as many as pay."""
    max_chunks = max(1, min(max_chunks, total // MIN_CHUNK, math.prod(lengths)))
    for n in (lengths[0], math.prod(lengths)):
        best = next(c for c in range(max_chunks, 0, -1) if n % c == 0)
        if best * 2 >= max_chunks:
            return best
    return max_chunks
