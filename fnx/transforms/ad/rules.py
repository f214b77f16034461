"""The kinds of derivative rules. Each op has one, in derivatives.py; both modes read it.

A rule says which operands it can be differentiated in, how a tangent is pushed from them to the
node, and how a cotangent is pulled from the node to one of them:

    zero         not at all                       comparisons, integer ops, FLOOR
    elementwise  partials, one for an operand     MUL: t -> t * b, t -> t * a
    linear       the op itself, and its transpose EXPAND: sum over the new axes
    fold         REDUCE                           MAX: the winners share
    scatter      SCATTER                          None: the last of duplicates
    structural   by deriving a body               CALL, and GET (structural.py)

A partial is written as what it does to a tangent, ``along(t, y, *operands)``. It is diagonal,
so it does the same to a cotangent.

**Structural zeros.** A cotangent that is zero because a branch was not taken has a mask (bool,
None for everywhere) outside of which it is zero whatever is multiplied to it. ``pull_mask``
says where the pulled cotangent can be other than zero: it pulls the mask as the cotangent, with
"or" for the sum, and cuts it to where the operand was taken. ``push_mask`` does the same for
tangents, which are zero where nothing differentiable was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fnx.core import build, dtypes, ops
from fnx.core.expr import Expr
from fnx.core.record import Record
from fnx.core.uop import UOp

JvpTerm = Callable[..., Expr]               # (t, y, *operands) -> t times a partial
Factor = Callable[[Expr, UOp], Expr]        # (t, node) -> the same for REDUCE and SCATTER


def total(x: UOp, axes: Iterable[int]) -> UOp:
    """Sum of numbers, "or" of bools; repetition along an axis is not undone twice."""
    axes = tuple(axes)
    if not x.dtype.is_bool:
        return build.reduce(x, ops.ADD, axes)
    if x.op is ops.EXPAND and 0 not in x.shape:
        kept = tuple(n if i in axes and x.src[0].shape[i] == 1 else m
                     for i, (n, m) in enumerate(zip(x.src[0].shape, x.shape)))
        once = build.expand(x.src[0], kept)
        left = [i for i in axes if kept[i] != 1]
        out = tuple(m for i, m in enumerate(x.shape) if i not in axes)
        return build.reshape(build.reduce(once, ops.OR, left), out)
    return build.reduce(x, ops.OR, axes)


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """Where two masks hold; None is everywhere."""
    return b if a is None else a if b is None else a if a is b else build.and_(a, b)


def either(masks: Iterable[UOp | None]) -> UOp | None:
    """Where one of some masks holds; None is everywhere."""
    out: UOp | None = None
    for mask in masks:
        if mask is None:
            return None
        out = mask if out is None else build.or_(out, mask)
    return out


def zeros(node: UOp) -> UOp:
    return build.like(node, 0)


def add_all(parts: Iterable[UOp | None]) -> UOp | None:
    """Sum in the order given; None is zero."""
    out: UOp | None = None
    for part in parts:
        if part is not None:
            out = part if out is None else build.add(out, part)
    return out


def summed(parts: Sequence[UOp]) -> UOp:
    """Sum of numbers, "or" of bools. What was cut out of an array side by side is joined: the
    cotangent of ``split`` is a CONCAT, not a sum of arrays that are zeros for the most part. What
    was read at indices is added there, behind the rest."""
    cut: dict[int, list[UOp]] = {}
    rest: list[UOp] = []
    for part in parts:
        axis = _padded_axis(part)
        if axis is None:
            rest.append(part)
        else:
            cut.setdefault(axis, []).append(part)
    rest += [joined for axis, pieces in cut.items() for joined in _side_by_side(pieces, axis)]
    out, *others = sorted(rest, key=_is_added_to_zeros)
    for part in others:
        out = build.or_(out, part) if out.dtype.is_bool else added(out, part)
    return out


def added(total: UOp, part: UOp) -> UOp:
    """The sum of both: a part that is zeros but at some indices is added there.

    >>> from fnx.core import dtypes
    >>> x, i = build.param(0, dtypes.float32, (9,)), build.param(1, dtypes.int32, (2,))
    >>> u = build.param(2, dtypes.float32, (2,))
    >>> added(x, build.scatter(zeros(x), [i], u, ops.ADD)) is build.scatter(x, [i], u, ops.ADD)
    True
    """
    if not _is_added_to_zeros(part):
        return build.add(total, part)
    _, *index, updates = part.src
    return build.scatter(total, index, updates, ops.ADD, part.arg.axes)


def _is_added_to_zeros(node: UOp) -> bool:
    return node.op is ops.SCATTER and node.arg.monoid is ops.ADD and \
        node.src[0] is zeros(node) and node.dtype.storage is None


def _padded_axis(node: UOp) -> int | None:
    """The one axis that zeros were added to."""
    if node.op is not ops.PAD or node.src[1].op is not ops.CONST or node.src[1].arg:
        return None
    axes = [a for a, widths in enumerate(node.arg) if widths != (0, 0)]
    return axes[0] if len(axes) == 1 else None


def _side_by_side(pieces: Sequence[UOp], axis: int) -> list[UOp]:
    """PADs along an axis as few arrays: those that do not overlap are one."""
    rows: list[list[UOp]] = []
    for piece in sorted(pieces, key=lambda p: (p.arg[axis][0], p.number)):
        row = next((r for r in rows if _end(r[-1], axis) <= piece.arg[axis][0]), None)
        if row is None:
            rows.append([piece])
        else:
            row.append(piece)
    return [_joined(row, axis) if len(row) > 1 else row[0] for row in rows]


def _end(piece: UOp, axis: int) -> int:
    after: int = piece.arg[axis][1]
    return piece.shape[axis] - after


def _joined(row: Sequence[UOp], axis: int) -> UOp:
    shape, parts, at = row[0].shape, list[UOp](), 0
    for piece in row:
        parts += _gap(piece, axis, piece.arg[axis][0] - at)
        parts.append(piece.src[0])
        at = _end(piece, axis)
    return build.concat([*parts, *_gap(row[0], axis, shape[axis] - at)], axis)


def _gap(like: UOp, axis: int, n: int) -> list[UOp]:
    shape = (*like.shape[:axis], n, *like.shape[axis + 1:])
    return [build.const(0, like.dtype, shape)] if n else []


class Cotangent(Record):
    """A value, and the mask outside of which it is structurally zero (None: none)."""

    value: UOp
    mask: UOp | None = None


class Tangent(Record):
    """A value, and the mask outside of which it is structurally zero (None: none)."""

    value: UOp
    mask: UOp | None = None


Tangents = Sequence[UOp | None]             # of the operands of a node; None: zero
Masks = Sequence[UOp | None]                # of these tangents; None: zero, or everywhere


class DerivativeRule:
    """The rule of an op without a derivative, and the base of the others.

    ``dear``: a backward pass reads the result that was saved instead of computing it again.
    """

    dear = False

    def bodies(self, node: UOp) -> Sequence[UOp]:
        """FUNCTIONs that say what the node computes."""
        return ()

    def is_active(self, node: UOp) -> bool:
        """Whether it has a derivative if its operands have one."""
        return node.dtype.is_float

    def hides_masks(self, node: UOp) -> bool:
        """Whether no mask goes through it: see "A contraction" in reverse.py."""
        return False

    def operands(self, node: UOp) -> Sequence[int]:
        """Positions in ``node.src`` that it can be differentiated in."""
        return ()

    def push(self, node: UOp, tangents: Tangents) -> UOp | None:
        """The tangent of the node from those of its operands (None: zero)."""
        return None

    def push_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        """Outside of which ``push`` is structurally zero."""
        return None

    def pull(self, node: UOp, i: int, ct: UOp) -> UOp:
        """What the cotangent of the node adds to that of operand i."""
        raise NotImplementedError(f"{node.op} has no derivative in operand {i}")

    def pull_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        """Outside of which ``pull`` is structurally zero."""
        return None

    def singular(self, node: UOp) -> bool:
        """Whether value or partial can be infinite or NaN though the operands are finite."""
        return False

    def scales(self, node: UOp) -> bool:
        """Whether a partial multiplies by an operand, and is infinite where that is."""
        return False


class Elementwise(DerivativeRule):
    """``along[i](t, y, *operands)`` is t times the partial in operand i; None: no partial.

    ``taken(i, *operands)``: where the result is operand i (WHERE, MAX, MIN).
    """

    def __init__(self, along: Sequence[JvpTerm | None], multiplies: bool,
                 singular: Callable[[UOp], bool] | None = None,
                 taken: Callable[..., Expr] | None = None) -> None:
        self.along, self.multiplies = along, multiplies
        self.positions = tuple(i for i, f in enumerate(along) if f is not None)
        self.may_be_singular, self.taken = singular, taken

    def operands(self, node: UOp) -> Sequence[int]:
        return self.positions

    def push(self, node: UOp, tangents: Tangents) -> UOp | None:
        pairs = [(i, tangents[i]) for i in self.positions]
        return add_all([self.pull(node, i, t) for i, t in pairs if t is not None])

    def push_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        if all(tangents[i] is not None and masks[i] is None for i in self.positions):
            return None  # one of them is taken
        return either([self.pull_mask(node, i, masks[i])
                       for i in self.positions if tangents[i] is not None])

    def pull(self, node: UOp, i: int, ct: UOp) -> UOp:
        along = self.along[i]
        assert along is not None
        return along(Expr(ct), Expr(node), *map(Expr, node.src)).node

    def pull_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        return mask if self.taken is None else both(
            mask, self.taken(i, *map(Expr, node.src)).node)

    def singular(self, node: UOp) -> bool:
        return self.may_be_singular is not None and self.may_be_singular(node)

    def scales(self, node: UOp) -> bool:
        return self.multiplies


class Linear(DerivativeRule):
    """The op is linear in ``positions`` (None: in all its operands) together.

    ``transpose(node, i, ct)`` also takes a bool ct: a mask, whose sum is "or". ``drops``: it
    leaves places of the operand at zero, the op did not read them. ``where(node)``: outside of
    it the result is a constant.
    """

    def __init__(self, transpose: Callable[[UOp, int, UOp], UOp],
                 positions: tuple[int, ...] | None = (0,), drops: bool = False,
                 where: Callable[[UOp], UOp] | None = None) -> None:
        self.transpose, self.positions, self.drops, self.where = transpose, positions, drops, where

    def operands(self, node: UOp) -> Sequence[int]:
        return range(len(node.src)) if self.positions is None else self.positions

    def push(self, node: UOp, tangents: Tangents) -> UOp | None:
        src = list(node.src)
        for i in self.operands(node):
            t = tangents[i]
            src[i] = zeros(src[i]) if t is None else t
        out = node.replace(src=tuple(src))
        return out if self.where is None else build.where(self.where(node), out, zeros(out))

    def push_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        src, cut = list(node.src), False
        for i in self.operands(node):
            zero, mask = tangents[i] is None, masks[i]
            cut = cut or zero or mask is not None
            src[i] = build.const(not zero, dtypes.bool_, src[i].shape) if mask is None else mask
        inside = None if self.where is None else self.where(node)
        if not cut:
            return inside
        moved = src[0] if node.op is ops.CAST else node.replace(dtype=dtypes.bool_, src=tuple(src))
        return both(moved, inside)

    def pull(self, node: UOp, i: int, ct: UOp) -> UOp:
        return self.transpose(node, i, ct)

    def pull_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        if mask is None:
            if not self.drops:
                return None
            mask = build.const(True, dtypes.bool_, node.shape)
        return self.transpose(node, i, mask)


def spread(node: UOp, x: UOp) -> UOp:
    """A result of a REDUCE repeated over the axes that it folded."""
    shape = node.src[0].shape
    kept = tuple(1 if i in node.arg.axes else n for i, n in enumerate(shape))
    return build.expand(build.reshape(x, kept), shape)


class ReduceRule(DerivativeRule):
    """REDUCE: a sum of ``along(t, node)`` over the folded axes; one ``along`` for a monoid."""

    def __init__(self, along: dict[ops.Op, Factor],
                 taken: dict[ops.Op, Callable[[UOp], Expr]]) -> None:
        self.along, self.taken = along, taken

    def _along(self, t: UOp, node: UOp) -> UOp:
        return self.along[node.arg.monoid](Expr(t), node).node

    def hides_masks(self, node: UOp) -> bool:
        """A sum over the product of two arrays that were repeated for it."""
        product = node.src[0]
        return node.arg.monoid is ops.ADD and product.op is ops.MUL and \
            all(map(_is_repeated, product.src))

    def operands(self, node: UOp) -> Sequence[int]:
        return (0,) if node.arg.monoid in self.along else ()

    def push(self, node: UOp, tangents: Tangents) -> UOp | None:
        t = tangents[0]
        if t is None:
            return None
        terms = self._along(t, node)
        if terms.op is ops.ADD and self.hides_masks(node):  # each of them is a contraction
            return add_all([build.reduce(s, ops.ADD, node.arg.axes) for s in terms.src])
        return build.reduce(terms, ops.ADD, node.arg.axes)

    def push_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        mask, taken = masks[0], self.taken.get(node.arg.monoid)
        if mask is None:
            return None
        chosen = mask if taken is None else build.and_(mask, taken(node).node)
        return total(chosen, node.arg.axes)

    def pull(self, node: UOp, i: int, ct: UOp) -> UOp:
        return self._along(spread(node, ct), node)

    def pull_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        taken = self.taken.get(node.arg.monoid)
        return both(None if mask is None else spread(node, mask),
                    None if taken is None else taken(node).node)

    def scales(self, node: UOp) -> bool:
        return node.arg.monoid is ops.MUL


class ScatterRule(DerivativeRule):
    """SCATTER: places of x that were kept, and updates that were written, each by its factor.

    ``kept[monoid](t, node)`` goes along x, ``written[monoid](t, node)`` along the updates; both
    give zero for what was overwritten or dropped.
    """

    def __init__(self, kept: dict[ops.Op | None, Factor],
                 written: dict[ops.Op | None, Factor], read: Factor) -> None:
        self.kept, self.written, self.read = kept, written, read

    def _factor(self, node: UOp, i: int, t: UOp) -> UOp:
        return (self.written if i else self.kept)[node.arg.monoid](Expr(t), node).node

    def _read(self, node: UOp, i: int, x: UOp) -> UOp:
        """What of x, which is like the result, operand i had a hand in."""
        return self.read(Expr(x), node).node if i else x

    def operands(self, node: UOp) -> Sequence[int]:
        return (0, len(node.src) - 1) if node.arg.monoid in self.kept else ()

    def push(self, node: UOp, tangents: Tangents) -> UOp | None:
        x, index, updates = tangents[0], node.src[1:-1], tangents[-1]
        base = zeros(node) if x is None else self._factor(node, 0, x)
        return base if updates is None else build.scatter(
            base, index, self._factor(node, -1, updates), ops.ADD, node.arg.axes)

    def push_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        index, nowhere = node.src[1:-1], build.const(False, dtypes.bool_, node.shape)
        kept = nowhere if tangents[0] is None else self._cut(node, 0, masks[0])
        if tangents[-1] is None or kept is None:
            return kept
        written = self._cut(node, -1, masks[-1])
        count = build.const(0, dtypes.int32, node.shape)
        ones = build.const(1, dtypes.int32, node.src[-1].shape) if written is None else \
            build.cast(written, dtypes.int32)
        marks = build.scatter(count, index, ones, ops.ADD, node.arg.axes)
        return build.or_(kept, build.ne(marks, count))

    def pull(self, node: UOp, i: int, ct: UOp) -> UOp:
        return self._factor(node, i, self._read(node, i, ct))

    def pull_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        return self._cut(node, i, None if mask is None else self._read(node, i, mask))

    def _cut(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        """A mask, shaped like operand i, less where this had no hand in the result."""
        if node.arg.monoid is ops.MUL:  # a factor of zero is a number, not a choice
            return mask
        ones = build.like(node.src[i], 1)
        factor = self._factor(node, i, ones)
        return mask if factor is ones else both(mask, build.ne(factor, zeros(ones)))

    def scales(self, node: UOp) -> bool:
        return node.arg.monoid is ops.MUL


def _is_repeated(node: UOp) -> bool:
    while node.op is ops.PERMUTE or node.op is ops.RESHAPE:
        node = node.src[0]
    return node.op is ops.EXPAND
