"""The longer rules of the derivative table: REDUCE, GATHER, SCATTER.

Each is a factor, or a selection of winners, that both modes apply to a tangent or cotangent. Like
the table's rules they are formulas on Exprs; what moves or combines elements works on nodes.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence

from fnx.core.formulas.formulas import FORMULAS
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import sort_order_length
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.index_arrays import index_dtype
from fnx.core.ir.uop import UOp
from fnx.transforms.autodiff.rules import Factor, broadcast_reduced, zeros_like

# ---- REDUCE -----------------------------------------------------------------------------------


def winner_mask(node: UOp) -> Expr:
    """Where the operand of a REDUCE MAX or MIN equals the result, or the first such element."""
    is_winner = Expr(node.src[0]).eq(Expr(broadcast_reduced(node, node)))
    if not node.arg.first:
        return is_winner
    shape, axes = node.src[0].shape, node.arg.axes
    lengths = tuple([n if a in axes else 1 for a, n in enumerate(shape)])
    count = math.prod(lengths)
    number = build.expand(build.reshape(build.iota(count, index_dtype(count)), lengths), shape)
    lowest = build.reduce(where(is_winner, Expr(number), count).node, ops.MIN, axes)
    return Expr(number).eq(Expr(broadcast_reduced(node, lowest)))


def split_ties(t: Expr, node: UOp) -> Expr:
    """t / (number of winners) at the winners, 0 elsewhere."""
    is_winner = winner_mask(node)
    if node.arg.first:
        return where(is_winner, t, 0)
    count = build.reduce(is_winner.cast(t.dtype).node, ops.ADD, node.arg.axes)
    return where(is_winner, t / Expr(broadcast_reduced(node, count)), 0)


def times_other_elements(t: Expr, node: UOp) -> Expr:
    """t times the product of all other elements along the reduced axes.

    Not product / x, which is wrong if an element is zero: a tree of pairwise products up and
    down, which is linear work, and has correct derivatives of every order.
    """
    x, axes = node.src[0], node.arg.axes
    order = [*axes, *(i for i in range(len(x.shape)) if i not in axes)]
    moved = build.permute(x, order)
    rest = node.shape
    n = math.prod(x.shape[a] for a in axes)
    others = _other_products(build.reshape(moved,
                                           (n, *rest))) if math.prod(x.shape) else zeros_like(moved)
    others = build.reshape(others, moved.shape)
    return t * Expr(build.permute(others, sorted(range(len(order)), key=order.__getitem__)))


def _other_products(x: UOp) -> UOp:
    """For each row, the product of all other rows."""
    levels: list[tuple[UOp, UOp, int]] = []  # left and right halves of pairs; number of rows
    while x.shape[0] > 1:
        rows, rest = x.shape[0], x.shape[1:]
        even = build.pad(x, [(0, rows % 2), *[(0, 0)] * len(rest)], fill=1)
        pairs = build.reshape(even, ((rows + 1) // 2, 2, *rest))
        left, right = (_take_column(pairs, k) for k in (0, 1))
        levels.append((left, right, rows))
        x = build.mul(left, right)
    out = build.const_like(x, 1)
    for left, right, rows in reversed(levels):
        interleaved = build.concat([_as_column(build.mul(out, right)),
                                    _as_column(build.mul(out, left))], 1)
        flat = build.reshape(interleaved, (2 * interleaved.shape[0], *interleaved.shape[2:]))
        out = build.shrink(flat, [(0, rows), *((0, n) for n in flat.shape[1:])])
    return out


def _take_column(pairs: UOp, k: int) -> UOp:
    n, _, *rest = pairs.shape
    return build.reshape(build.shrink(pairs, [(0, n), (k, k + 1), *((0, m) for m in rest)]),
                         (n, *rest))


def _as_column(x: UOp) -> UOp:
    return build.reshape(x, (x.shape[0], 1, *x.shape[1:]))


# ---- GATHER -----------------------------------------------------------------------------------


def _broadcast_over_rows(x: Expr, rows: UOp) -> Expr:
    """Repeat one value per index over the row that the index selects."""
    shape = rows.shape
    column = build.reshape(x.node, x.shape + (1,) * (len(shape) - len(x.shape)))
    return Expr(build.expand(column, shape))


def _in_bounds(rows: UOp, index: Sequence[UOp], lengths: Sequence[int]) -> Expr | None:
    """Whether the index of each row is in bounds; None: all are."""
    in_bounds = [(0 <= Expr(i)) & (Expr(i) < n) for i, n in zip(index, lengths)
                 if not _are_surely_in_bounds(i, n)]
    return _broadcast_over_rows(functools.reduce(operator.and_, in_bounds), rows) \
        if in_bounds else None


def _are_surely_in_bounds(index: UOp, n: int) -> bool:
    """Whether indices are from 0 to n - 1 by construction: counters, or the order of a sort."""
    while index.op.kind == "movement" and index.op is not ops.PAD and len(index.src) == 1:
        index = index.src[0]
    length = index.arg if index.op is ops.IOTA else sort_order_length(index)
    return length is not None and length <= n


def _indexed_lengths(node: UOp) -> tuple[int, ...]:
    """Return the lengths of the indexed axes."""
    return tuple([node.src[0].shape[a] for a in node.arg.axes])


def gather_in_bounds(node: UOp) -> UOp | None:
    """Where GATHER has an in-bounds index, rather than reading the nearest element; None:
    everywhere."""
    in_bounds = _in_bounds(node, node.src[1:], _indexed_lengths(node))
    return None if in_bounds is None else in_bounds.node


def transpose_gather(node: UOp, i: int, ct: UOp) -> UOp:
    """Scatter-add each value that was read to its index; for a mask: mark the index.

    An out-of-bounds index reads the nearest element as a constant: it has no derivative, as in
    JAX.
    """
    x, *index = node.src
    if ct.dtype.is_bool:
        count = build.const(0, dtypes.int32, x.shape)
        marks = build.scatter(count, index, build.cast(ct, dtypes.int32), ops.ADD, node.arg.axes)
        return build.ne(marks, count)
    return build.scatter(zeros_like(x), index, ct, ops.ADD, node.arg.axes)


# ---- SCATTER ----------------------------------------------------------------------------------


def gather_at(x: Expr, node: UOp) -> Expr:
    """Gather the values of x (like the result) at the indices, in the shape of the updates."""
    return Expr(build.gather(x.node, *node.src[1:-1], axes=node.arg.axes))


def _scatter_into(base: Expr, node: UOp, updates: Expr, monoid: ops.Op | None = None) -> Expr:
    return Expr(build.scatter(base.node, node.src[1:-1], updates.node, monoid, node.arg.axes))


def _join_updates(node: UOp, updates: Sequence[Expr], monoid: ops.Op, start: float) -> list[Expr]:
    """Combine all updates at the location of each; several kinds of updates by one SCATTER."""
    axis = len(node.src[-1].shape)
    rows = build.concat([build.reshape(u.node, (*u.shape, 1)) for u in updates], axis)
    base = build.const(start, node.dtype, (*node.shape, len(updates)))
    combined = gather_at(_scatter_into(Expr(base), node, Expr(rows), monoid), node).node
    edges = [(0, n) for n in combined.shape[:-1]]
    return [Expr(build.reshape(build.shrink(combined, [*edges, (i, i + 1)]), combined.shape[:-1]))
            for i in range(len(updates))]


def _if_written(t: Expr, node: UOp) -> Expr:
    """0 for updates that are out of bounds, so dropped."""
    in_bounds = _in_bounds(node.src[-1], node.src[1:-1], _indexed_lengths(node))
    return t if in_bounds is None else where(in_bounds, t, 0)


def _is_last_update(node: UOp) -> Expr:
    """Whether each replacing update is the last at its location: scatter the update numbers, and
    gather them."""
    index = node.src[1]
    count = math.prod(index.shape)
    number = Expr(build.reshape(build.iota(count, index_dtype(count)), index.shape))
    no_writer = build.const(-1, number.dtype, _indexed_lengths(node))
    last = build.gather(build.scatter(no_writer, node.src[1:-1], number.node), *node.src[1:-1])
    return _broadcast_over_rows(Expr(last).eq(number), node.src[-1])


def _count_ties(node: UOp) -> Expr:
    """How many of x and the updates at a location equal the result."""
    x, updates, out = Expr(node.src[0]), Expr(node.src[-1]), Expr(node)
    return _scatter_into(x.eq(out).cast(x.dtype), node,
                         updates.eq(gather_at(out, node)).cast(x.dtype), ops.ADD)


def _identity(t: Expr, node: UOp) -> Expr:
    return t


def _zero_overwritten(t: Expr, node: UOp) -> Expr:
    return _scatter_into(t, node, Expr(zeros_like(node.src[-1])))


def _x_share(t: Expr, node: UOp) -> Expr:
    return where(Expr(node.src[0]).eq(Expr(node)), t / _count_ties(node), 0)


def _times_updates(t: Expr, node: UOp) -> Expr:
    return t * _scatter_into(Expr(build.const_like(node, 1)), node, Expr(node.src[-1]), ops.MUL)


def _if_last(t: Expr, node: UOp) -> Expr:
    return where(_is_last_update(node), t, 0)


def _update_share(t: Expr, node: UOp) -> Expr:
    is_winner = Expr(node.src[-1]).eq(gather_at(Expr(node), node))
    return _if_written(where(is_winner, t / gather_at(_count_ties(node), node), 0), node)


_MAX_ZEROS = 4  # zeros per location; derivatives up to this order are right


def _times_other_updates(t: Expr, node: UOp) -> Expr:
    """t times x times the other updates at the same location.

    Zeros are counted separately: so a product of the others is a quotient of nonzero numbers,
    times the remaining zeros.
    """
    x, u = Expr(node.src[0]), Expr(node.src[-1])
    is_zero = u.eq(0)
    powers = [where(is_zero, u, 0)**n for n in range(1, _MAX_ZEROS)]
    count, *sums = _join_updates(node, [is_zero.cast(u.dtype), *powers], ops.ADD, 0)
    other_zeros = u.like(0)
    for n, others in enumerate(_symmetric_polynomials([s - p for s, p in zip(sums, powers)]), 1):
        other_zeros = where(count.eq(n), others, other_zeros)
    product, zeros_product = _join_updates(
        node, [where(is_zero, 1, u), where(is_zero, u, 1)], ops.MUL, 1)
    others = where(is_zero, product * other_zeros, product / where(is_zero, 1, u) * zeros_product)
    return _if_written(t * (gather_at(x, node) * others), node)


def _symmetric_polynomials(powers: list[Expr]) -> list[Expr]:
    """Return the elementary symmetric polynomials [1, e1, e2, e3] of values with these power
    sums.

    For n values, e_n is their product. Newton's identities need no quotient, so the derivatives
    of every order are right, also where all values are zero.
    """
    out = [powers[0].like(1)]
    for n in range(1, len(powers) + 1):
        terms = [out[n - i - 1] * powers[i] * (-1) ** i for i in range(n)]
        out.append(functools.reduce(operator.add, terms) / n)
    return out


# ---- monoids that are formulas ----------------------------------------------------------------


_ShareFormula = Callable[[Expr, Expr, Expr], Expr]
_SHARES = {op: row.reduction_jvp for op, row in FORMULAS.items() if row.reduction_jvp is not None}


def _reduce_factor(share: _ShareFormula) -> Factor:
    return lambda t, node: share(t, Expr(broadcast_reduced(node, node)), Expr(node.src[0]))


def _scatter_x_factor(share: _ShareFormula) -> Factor:
    return lambda t, node: share(t, Expr(node), Expr(node.src[0]))


def _scatter_update_factor(share: _ShareFormula) -> Factor:
    def written(t: Expr, node: UOp) -> Expr:
        return _if_written(share(t, gather_at(Expr(node), node), Expr(node.src[-1])), node)
    return written


REDUCE_FACTORS: dict[ops.Op, Factor] = {op: _reduce_factor(share) for op, share in _SHARES.items()}

SCATTER_X: dict[ops.Op | None, Factor] = {
    ops.ADD: _identity, None: _zero_overwritten, ops.MUL: _times_updates, ops.MAX: _x_share,
    ops.MIN: _x_share} | {op: _scatter_x_factor(share) for op, share in _SHARES.items()}

SCATTER_UPDATES: dict[ops.Op | None, Factor] = {
    ops.ADD: _if_written, None: _if_last, ops.MUL: _times_other_updates, ops.MAX: _update_share,
    ops.MIN: _update_share} | {op: _scatter_update_factor(share) for op, share in _SHARES.items()}
