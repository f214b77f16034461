"""Sorts as a bitonic network, for devices that share no memory with the host.

    before  SORT (p0)                                              p0: (rows, n)
    after   SCAN of log2(m) * (log2(m) + 1) / 2 steps over (keys, index): n padded to m = 2 ** k;
              element i is compared with i ^ j, and takes its place if it belongs there
            GATHER (p0, index)

Keys are unsigned integers of the order of the operands. Of equal ones the element with the lower
index comes first, so the sort is stable. A step is one kernel, the same for all steps. Long rows
are sorted by the digits of the keys instead (sort_by_digits.py), which takes fewer steps.
Source: K. E. Batcher, Sorting networks and their applications, 1968.

>>> from fnx.core.ir.uop import toposort
>>> fn = build.function(build_calls.sort([build.param(0, dtypes.float32, (100,))], 1), 1)
>>> out, = sort_by_network(fn, Target("gpu")).src
>>> [n.arg.length for n in toposort([out]) if n.op is ops.SCAN]
[28]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, copy_locs, toposort
from fnx.core.rewriting.rewrite import underlying_const
from fnx.core.support.target import Target
from fnx.lower.analysis import tuning
from fnx.lower.tensor.sort_by_digits import order_by_digits

MAX_ELEMENTS = dtypes.int32.limits[1]  # of all padded rows, as indices are int32


def sort_by_network(fn: UOp, target: Target) -> UOp:
    """Return a FUNCTION without the SORTs that the target can run as a network."""
    def replace(node: UOp, src: tuple[UOp, ...]) -> Sequence[UOp] | None:
        if node.op is not ops.SORT or not _is_possible(node, target):
            return None
        return with_lines_of(node, src, _sorted(node, src))
    return fn.with_operands(tuple(replace_results(fn.src, replace)))


def with_lines_of(node: UOp, operands: Sequence[UOp], outs: Sequence[UOp]) -> list[UOp]:
    """Give the lines of a SORT to what computes its results of the operands, also in its steps."""
    for new in toposort(outs, stop=operands.__contains__, into_functions=True):
        if new not in operands and new.op is not ops.PARAM and underlying_const(new) is None:
            copy_locs(new, node)
    return [*outs]


def _is_possible(node: UOp, target: Target) -> bool:
    shape = node.arg.ins[0][0]
    return math.prod(shape[:-1]) * _padded(shape[-1]) <= MAX_ELEMENTS and all(
        dtype.kind != "key" and (target.has_64bit or dtype.itemsize < 8)
        and not dtype.is_complex for _, dtype in node.arg.ins)


def _padded(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _sorted(node: UOp, operands: Sequence[UOp]) -> list[UOp]:
    """Return the results of a SORT of these operands."""
    arg = node.arg
    shape = arg.ins[0][0]
    rows, n = math.prod(shape[:-1]), shape[-1]
    flat = [build.reshape(x, (rows, n)) for x in operands]
    keys = [sort_key(x) for x in flat[:arg.n_keys]]
    is_short = sort_steps(n, sum([key.dtype.itemsize for key in keys])) == network_steps(n)
    order = (_order_by_network if is_short else order_by_digits)(keys, arg.name)
    row = build.expand(build.reshape(build.iota(rows), (rows, 1)), (rows, n))
    return [build.reshape(order if i < 0 else build.gather(flat[i], row, order), shape)
            for i in arg.outputs]


def _order_by_network(keys: Sequence[UOp], name: str) -> UOp:
    """Return the indices of each row in the order of unsigned keys, of which the first counts
    most.
    """
    rows, n = keys[0].shape
    m = _padded(n)
    padded = [build.reshape(build.pad(k, [(0, 0), (0, m - n)], k.dtype.limits[1]), (rows * m,))
              for k in keys]
    state = [*padded, (Expr(build.iota(rows * m)) & (m - 1)).node]

    def step(consts: Sequence[UOp], carries: Sequence[UOp], xs: Sequence[UOp]
             ) -> tuple[list[UOp], list[UOp]]:
        i = build.iota(rows * m)
        distance, block = [Expr(build.expand(x, i.shape)) for x in xs]
        other = (Expr(i) ^ distance).node
        mine, theirs = ([Expr(x) for x in side] for side in (
            carries, [build.gather(x, other) for x in carries]))
        ascends = (Expr(i) & (m - 1) & block).eq(0)
        takes_less = ascends.node, (Expr(i) & distance).eq(0).node
        is_swapped = Expr(build.elementwise(ops.CMPEQ, *takes_less)).eq(_less(theirs, mine))
        return [where(is_swapped, b, a).node for a, b in zip(mine, theirs)], []
    steps = _network(m)
    final, _ = build_calls.build_scan(step, steps[0].shape[0], [], state, steps, name=name)
    return build.shrink(build.reshape(final[-1], (rows, m)), [(0, rows), (0, n)])


def network_steps(n: int) -> int:
    """Return the number of steps that sort rows of n elements.

    >>> network_steps(100)
    28
    """
    levels = (n - 1).bit_length()
    return levels * (levels + 1) // 2


def sort_steps(n: int, nbytes: int) -> int:
    """Return what sorting rows of n elements takes, in steps of a network; ``nbytes``: of all keys.

    >>> sort_steps(1 << 10, 4), sort_steps(1 << 20, 4), network_steps(1 << 20)
    (55, 72, 210)
    """
    digits = 8 * nbytes // tuning.RADIX_BITS
    return min(network_steps(n), round(digits * tuning.NETWORK_STEPS_OF_A_DIGIT))


def _network(m: int) -> tuple[UOp, UOp]:
    """Return for each step how far compared elements are apart, and the length of sorted blocks.

    Blocks of 2, 4 ... m; within one of them, distances of half of it, a quarter ... 1.
    """
    levels, length = m.bit_length() - 1, network_steps(m)
    step, level = (Expr(build.expand(build.reshape(build.iota(count), shape), (length, levels)))
                   for count, shape in ((length, (length, 1)), (levels, (1, levels))))
    first = level * (level + 1) // 2  # the step with which a level begins
    begun = (step >= first).cast(dtypes.int32)
    number = Expr(build.reduce(begun.node, ops.ADD, [1]))  # of the level, from 1 on
    rest = Expr(build.reduce(where(step >= first, first, 0).node, ops.MAX, [1])) + number \
        - Expr(build.iota(length)) - 1
    one = number.like(1)
    return (one << rest).node, (one << number).node


def sort_key(x: UOp) -> UOp:
    """Return unsigned integers of the order of an operand: NaNs are last, and zeros are equal."""
    if x.dtype.kind in ("bool", "uint"):
        return x if x.dtype.itemsize == 8 else build.cast(x, dtypes.uint32)
    is_wide = x.dtype.itemsize == 8
    unsigned, signed = (dtypes.uint64, dtypes.int64) if is_wide else (dtypes.uint32, dtypes.int32)
    top = 1 << 8 * unsigned.itemsize - 1
    if not x.dtype.is_float:
        return (Expr(build.bitcast(build.cast(x, signed), unsigned)) ^ top).node
    number = Expr(build.cast(x, dtypes.float64 if is_wide else dtypes.float32))
    bits = number.bitcast(unsigned)
    ordered = where((bits & top).eq(0), bits | top, ~bits)
    is_zero = (bits & top - 1).eq(0)
    is_nan = (bits & top - 1) > _infinity(unsigned.itemsize)
    return where(is_nan, 2 * top - 1, where(is_zero, top, ordered)).node


def _infinity(itemsize: int) -> int:
    """Return the bits of infinity."""
    return 0x7F800000 if itemsize == 4 else 0x7FF0000000000000


def _less(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """Whether tuples of numbers, whose last ones differ, are in lexicographic order."""
    *leading, result = [x < y for x, y in zip(a, b)]
    for x, y, less in reversed([*zip(a, b, leading)]):
        result = less | x.eq(y) & result
    return result
