"""The longer rules of the derivative table: REDUCE, GATHER, SCATTER.

Each is a factor, or a selection of winners, that both modes apply to a tangent or cotangent. Like
the table's rules they are formulas on Exprs; what moves or combines elements works on nodes.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence

from fnx.core import build, dtypes, ops
from fnx.core.expr import Expr, where
from fnx.core.formulas import FORMULAS
from fnx.core.index_arrays import index_type
from fnx.core.uop import UOp
from fnx.transforms.ad.rules import Factor, spread, zeros

# ---- REDUCE -----------------------------------------------------------------------------------


def winners(node: UOp) -> Expr:
    """Where the operand of a REDUCE MAX or MIN equals the result, or the first such element."""
    won = Expr(node.src[0]).eq(Expr(spread(node, node)))
    if not node.arg.first:
        return won
    shape, axes = node.src[0].shape, node.arg.axes
    lengths = tuple([n if a in axes else 1 for a, n in enumerate(shape)])
    count = math.prod(lengths)
    number = build.expand(build.reshape(build.iota(count, index_type(count)), lengths), shape)
    lowest = build.reduce(where(won, Expr(number), count).node, ops.MIN, axes)
    return Expr(number).eq(Expr(spread(node, lowest)))


def share(t: Expr, node: UOp) -> Expr:
    """t / (number of winners) at the winners, 0 elsewhere."""
    won = winners(node)
    if node.arg.first:
        return where(won, t, 0)
    count = build.reduce(won.cast(t.dtype).node, ops.ADD, node.arg.axes)
    return where(won, t / Expr(spread(node, count)), 0)


def times_others(t: Expr, node: UOp) -> Expr:
    """t times the product of all other elements along the reduced axes.

    Not product / x, which is wrong if an element is zero: a tree of pairwise products up and
    down, which is linear work, and has correct derivatives of every order.
    """
    x, axes = node.src[0], node.arg.axes
    order = [*axes, *(i for i in range(len(x.shape)) if i not in axes)]
    moved = build.permute(x, order)
    rest = node.shape
    n = math.prod(x.shape[a] for a in axes)
    others = _others(build.reshape(moved, (n, *rest))) if math.prod(x.shape) else zeros(moved)
    others = build.reshape(others, moved.shape)
    return t * Expr(build.permute(others, sorted(range(len(order)), key=order.__getitem__)))


def _others(x: UOp) -> UOp:
    """For each row, the product of all other rows."""
    levels: list[tuple[UOp, UOp, int]] = []  # left and right halves of pairs; number of rows
    while x.shape[0] > 1:
        rows, rest = x.shape[0], x.shape[1:]
        even = build.pad(x, [(0, rows % 2), *[(0, 0)] * len(rest)], fill=1)
        pairs = build.reshape(even, ((rows + 1) // 2, 2, *rest))
        left, right = (_column(pairs, k) for k in (0, 1))
        levels.append((left, right, rows))
        x = build.mul(left, right)
    out = build.like(x, 1)
    for left, right, rows in reversed(levels):
        both = build.concat([_as_column(build.mul(out, right)),
                             _as_column(build.mul(out, left))], 1)
        flat = build.reshape(both, (2 * both.shape[0], *both.shape[2:]))
        out = build.shrink(flat, [(0, rows), *((0, n) for n in flat.shape[1:])])
    return out


def _column(pairs: UOp, k: int) -> UOp:
    n, _, *rest = pairs.shape
    return build.reshape(build.shrink(pairs, [(0, n), (k, k + 1), *((0, m) for m in rest)]),
                         (n, *rest))


def _as_column(x: UOp) -> UOp:
    return build.reshape(x, (x.shape[0], 1, *x.shape[1:]))


# ---- GATHER -----------------------------------------------------------------------------------


def _over_rows(x: Expr, rows: UOp) -> Expr:
    """Repeat one value per index over the row that the index selects."""
    shape = rows.shape
    column = build.reshape(x.node, x.shape + (1,) * (len(shape) - len(x.shape)))
    return Expr(build.expand(column, shape))


def _inside(rows: UOp, index: Sequence[UOp], places: Sequence[int]) -> Expr:
    """Whether the index of each row is in bounds."""
    inside = [(0 <= i) & (i < n) for i, n in zip(map(Expr, index), places)]
    return _over_rows(functools.reduce(operator.and_, inside), rows)


def _places(node: UOp) -> tuple[int, ...]:
    """Return the lengths of the indexed axes."""
    return tuple([node.src[0].shape[a] for a in node.arg.axes])


def read_inside(node: UOp) -> UOp:
    """Where GATHER has an in-bounds index, rather than reading the nearest element."""
    return _inside(node, node.src[1:], _places(node)).node


def put_back(node: UOp, i: int, ct: UOp) -> UOp:
    """Scatter-add each value that was read to its index; for a mask: mark the index.

    An out-of-bounds index reads the nearest element as a constant: it has no derivative, as in
    JAX.
    """
    x, *index = node.src
    if ct.dtype.is_bool:
        count = build.const(0, dtypes.int32, x.shape)
        marks = build.scatter(count, index, build.cast(ct, dtypes.int32), ops.ADD, node.arg.axes)
        return build.ne(marks, count)
    return build.scatter(zeros(x), index, ct, ops.ADD, node.arg.axes)


# ---- SCATTER ----------------------------------------------------------------------------------


def read(x: Expr, node: UOp) -> Expr:
    """Gather the values of x (like the result) at the indices, in the shape of the updates."""
    return Expr(build.gather(x.node, *node.src[1:-1], axes=node.arg.axes))


def _write(base: Expr, node: UOp, updates: Expr, monoid: ops.Op | None = None) -> Expr:
    return Expr(build.scatter(base.node, node.src[1:-1], updates.node, monoid, node.arg.axes))


def _there(node: UOp, updates: Sequence[Expr], monoid: ops.Op, start: float) -> list[Expr]:
    """Combine all updates at the location of each; several kinds of updates by one SCATTER."""
    axis = len(node.src[-1].shape)
    rows = build.concat([build.reshape(u.node, (*u.shape, 1)) for u in updates], axis)
    base = build.const(start, node.dtype, (*node.shape, len(updates)))
    found = read(_write(Expr(base), node, Expr(rows), monoid), node).node
    edges = [(0, n) for n in found.shape[:-1]]
    return [Expr(build.reshape(build.shrink(found, [*edges, (i, i + 1)]), found.shape[:-1]))
            for i in range(len(updates))]


def _written(node: UOp) -> Expr:
    """Whether each update was in bounds, so not dropped."""
    return _inside(node.src[-1], node.src[1:-1], _places(node))


def _last(node: UOp) -> Expr:
    """Whether each replacing update is the last at its location: scatter the update numbers, and
    gather them."""
    index = node.src[1]
    count = math.prod(index.shape)
    number = Expr(build.reshape(build.iota(count, index_type(count)), index.shape))
    nobody = build.const(-1, number.dtype, _places(node))
    last = build.gather(build.scatter(nobody, node.src[1:-1], number.node), *node.src[1:-1])
    return _over_rows(Expr(last).eq(number), node.src[-1])


def _tied(node: UOp) -> Expr:
    """How many of x and the updates at a location equal the result."""
    x, updates, out = Expr(node.src[0]), Expr(node.src[-1]), Expr(node)
    return _write(x.eq(out).cast(x.dtype), node,
                  updates.eq(read(out, node)).cast(x.dtype), ops.ADD)


def _keep(t: Expr, node: UOp) -> Expr:
    return t


def _unwritten(t: Expr, node: UOp) -> Expr:
    return _write(t, node, Expr(zeros(node.src[-1])))


def _share_kept(t: Expr, node: UOp) -> Expr:
    return where(Expr(node.src[0]).eq(Expr(node)), t / _tied(node), 0)


def _times_product(t: Expr, node: UOp) -> Expr:
    return t * _write(Expr(build.like(node, 1)), node, Expr(node.src[-1]), ops.MUL)


def _added(t: Expr, node: UOp) -> Expr:
    return where(_written(node), t, 0)


def _written_last(t: Expr, node: UOp) -> Expr:
    return where(_last(node), t, 0)


def _share_written(t: Expr, node: UOp) -> Expr:
    won = Expr(node.src[-1]).eq(read(Expr(node), node)) & _written(node)
    return where(won, t / read(_tied(node), node), 0)


_MOST_ZEROS = 4  # zeros per location; derivatives up to this order are right


def _times_other_updates(t: Expr, node: UOp) -> Expr:
    """t times x times the other updates at the same location.

    Zeros are counted separately: so a product of the others is a quotient of nonzero numbers,
    times the remaining zeros.
    """
    x, u = Expr(node.src[0]), Expr(node.src[-1])
    is_zero = u.eq(0)
    powers = [where(is_zero, u, 0)**n for n in range(1, _MOST_ZEROS)]
    count, *sums = _there(node, [is_zero.cast(u.dtype), *powers], ops.ADD, 0)
    left = u.like(0)
    for n, others in enumerate(_products([s - p for s, p in zip(sums, powers)]), 1):
        left = where(count.eq(n), others, left)
    product, zeros_product = _there(
        node, [where(is_zero, 1, u), where(is_zero, u, 1)], ops.MUL, 1)
    others = where(is_zero, product * left, product / where(is_zero, 1, u) * zeros_product)
    return where(_written(node), t * (read(x, node) * others), 0)


def _products(powers: list[Expr]) -> list[Expr]:
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


_Share = Callable[[Expr, Expr, Expr], Expr]
_SHARES = {op: row.share for op, row in FORMULAS.items() if row.share is not None}


def _folded_by(share: _Share) -> Factor:
    return lambda t, node: share(t, Expr(spread(node, node)), Expr(node.src[0]))


def _kept_by(share: _Share) -> Factor:
    return lambda t, node: share(t, Expr(node), Expr(node.src[0]))


def _written_by(share: _Share) -> Factor:
    def written(t: Expr, node: UOp) -> Expr:
        found = share(t, read(Expr(node), node), Expr(node.src[-1]))
        return where(_written(node), found, 0)
    return written


BY_SHARE: dict[ops.Op, Factor] = {op: _folded_by(share) for op, share in _SHARES.items()}

KEPT: dict[ops.Op | None, Factor] = {
    ops.ADD: _keep, None: _unwritten, ops.MUL: _times_product, ops.MAX: _share_kept,
    ops.MIN: _share_kept} | {op: _kept_by(share) for op, share in _SHARES.items()}

WRITTEN: dict[ops.Op | None, Factor] = {
    ops.ADD: _added, None: _written_last, ops.MUL: _times_other_updates, ops.MAX: _share_written,
    ops.MIN: _share_written} | {op: _written_by(share) for op, share in _SHARES.items()}
