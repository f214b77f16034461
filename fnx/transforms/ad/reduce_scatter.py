"""Parts of the derivative table that are more than a line: REDUCE, GATHER, SCATTER.

Each is a factor, or a choice of winners, that both modes apply to a tangent or cotangent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp
from fnx.transforms.ad.rules import ReduceRule, zeros

# ---- REDUCE -----------------------------------------------------------------------------------


def winners(node: UOp) -> UOp:
    """Where the operand of a REDUCE MAX or MIN is the result."""
    return build.eq(node.src[0], ReduceRule.spread(node, node))


def share(t: UOp, node: UOp) -> UOp:
    """t / (number of winners) at the winners, 0 elsewhere."""
    won = winners(node)
    count = build.reduce(build.cast(won, t.dtype), ops.ADD, node.arg.axes)
    return build.where(won, build.div(t, ReduceRule.spread(node, count)), zeros(t))


def times_others(t: UOp, node: UOp) -> UOp:
    """t times the product of all other elements along the folded axes.

    Not product / x, which is wrong beside a zero: products of pairs up a tree and back down,
    which is linear work, and right to every order.
    """
    x, axes = node.src[0], node.arg.axes
    order = [*axes, *(i for i in range(len(x.shape)) if i not in axes)]
    moved = build.permute(x, order)
    rest = node.shape
    n = math.prod(x.shape[a] for a in axes)
    others = _others(build.reshape(moved, (n, *rest))) if math.prod(x.shape) else zeros(moved)
    others = build.reshape(others, moved.shape)
    return build.mul(t, build.permute(others, sorted(range(len(order)), key=order.__getitem__)))


def _others(x: UOp) -> UOp:
    """For each row, the product of all other rows."""
    levels: list[tuple[UOp, UOp, int]] = []  # left and right halves of pairs; rows before
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


def clamped(index: Sequence[UOp], shape: Sequence[int]) -> list[UOp]:
    """Indices as GATHER reads them: SCATTER drops what GATHER clamps."""
    return [build.minimum(build.maximum(i, zeros(i)), build.like(i, max(n - 1, 0)))
            for i, n in zip(index, shape)]


def put_back(node: UOp, i: int, ct: UOp) -> UOp:
    """Add each value that was read to the place it came from; for a mask: mark the place."""
    x, index = node.src[0], clamped(node.src[1:], node.src[0].shape)
    if ct.dtype.is_bool:
        count = build.const(0, dtypes.int32, x.shape)
        marks = build.scatter(count, index, build.cast(ct, dtypes.int32), "add")
        return build.ne(marks, count)
    return build.scatter(zeros(x), index, ct, "add")


# ---- SCATTER ----------------------------------------------------------------------------------


def read(t: UOp, node: UOp) -> UOp:
    """The values of t (like the result) at the indices, in the shape of the updates."""
    return build.gather(t, *node.src[1:-1])


def _write(base: UOp, node: UOp, updates: UOp, mode: str) -> UOp:
    return build.scatter(base, node.src[1:-1], updates, mode)


def _over_rows(x: UOp, node: UOp) -> UOp:
    """One value an index, repeated over the row that the index names."""
    shape = node.src[-1].shape
    return build.expand(build.reshape(x, x.shape + (1,) * (len(shape) - len(x.shape))), shape)


def _inside(node: UOp) -> UOp:
    """Which updates were not dropped."""
    inside = None
    for i, n in zip(node.src[1:-1], node.shape):
        ok = build.and_(build.le(zeros(i), i), build.lt(i, build.like(i, n)))
        inside = ok if inside is None else build.and_(inside, ok)
    assert inside is not None
    return _over_rows(inside, node)


def _last(node: UOp) -> UOp:
    """Which updates of "set" were not overwritten by a later one: write their numbers, look."""
    index = node.src[1]
    places = node.shape[:len(node.src) - 2]
    number = build.reshape(build.iota(math.prod(index.shape)), index.shape)
    nobody = build.const(-1, dtypes.int32, places)
    last = build.scatter(nobody, node.src[1:-1], number, "set")
    return _over_rows(build.eq(build.gather(last, *node.src[1:-1]), number), node)


def _tied(node: UOp) -> UOp:
    """How many of x and the updates at a place are the result."""
    x, updates = node.src[0], node.src[-1]
    kept = build.cast(build.eq(x, node), x.dtype)
    return _write(kept, node, build.cast(build.eq(updates, read(node, node)), x.dtype), "add")


def _share_kept(t: UOp, node: UOp) -> UOp:
    return build.where(build.eq(node.src[0], node), build.div(t, _tied(node)), zeros(t))


def _share_written(t: UOp, node: UOp) -> UOp:
    won = build.and_(build.eq(node.src[-1], read(node, node)), _inside(node))
    return build.where(won, build.div(t, read(_tied(node), node)), zeros(t))


def _times_product(t: UOp, node: UOp) -> UOp:
    ones = build.like(node, 1)
    return build.mul(t, _write(ones, node, node.src[-1], "mul"))


def _times_other_updates(t: UOp, node: UOp) -> UOp:
    """t times x times the other updates at the same place (exact to second order).

    Zeros are counted apart: a product over the others is then a quotient of nonzero numbers,
    times the zeros that are left.
    """
    x, u = node.src[0], node.src[-1]
    zero, one, none = build.eq(u, zeros(u)), build.like(u, 1), zeros(node)
    product = _read_back(node, build.where(zero, one, u), "mul")
    zeros_product = _read_back(node, build.where(zero, u, one), "mul")
    count = read(_write(none, node, build.cast(zero, u.dtype), "add"), node)
    zero_sum = read(_write(none, node, build.where(zero, u, zeros(u)), "add"), node)
    other_zeros = build.where(build.eq(count, one), one, build.where(
        build.eq(count, build.like(u, 2)), build.sub(zero_sum, u), zeros(u)))
    others = build.where(zero, build.mul(product, other_zeros),
                         build.mul(build.div(product, build.where(zero, one, u)), zeros_product))
    slope = build.mul(read(x, node), others)
    return build.where(_inside(node), build.mul(t, slope), zeros(t))


def _read_back(node: UOp, updates: UOp, mode: str) -> UOp:
    """``updates`` combined into ones, and read at their places again."""
    return read(_write(build.like(node, 1), node, updates, mode), node)


JvpTerm = Callable[[UOp, UOp], UOp]

KEPT: dict[str, JvpTerm] = {
    "add": lambda t, node: t,
    "set": lambda t, node: _write(t, node, zeros(node.src[-1]), "set"),
    "mul": _times_product, "max": _share_kept, "min": _share_kept}

WRITTEN: dict[str, JvpTerm] = {
    "add": lambda t, node: build.where(_inside(node), t, zeros(t)),
    "set": lambda t, node: build.where(_last(node), t, zeros(t)),
    "mul": _times_other_updates, "max": _share_written, "min": _share_written}
