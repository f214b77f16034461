"""The kinds of derivative rules. Each op has one, in derivatives.py; both modes read it.

A rule says with respect to which operands a node is differentiable, its jvp (tangents of operands
-> tangent of the node), and its vjp (cotangent of the node -> cotangent of one operand):

    zero         no derivative                    comparisons, integer ops, FLOOR
    elementwise  partials, one for each operand   MUL: t -> t * b, t -> t * a
    linear       the op itself, and its transpose EXPAND: sum over the new axes
    reduction    REDUCE                           MAX: the winners share
    scatter      SCATTER                          None: the last of duplicates
    higher-order by deriving a body               CALL, and GETTUPLE (higher_order.py)

A partial is written as its product with a tangent, ``along(t, y, *operands)``. It is diagonal,
so its product with a cotangent is the same.

**Symbolic zeros.** A cotangent that is zero because a branch was not taken has a mask (bool, None:
true everywhere) outside of which it is zero, whatever it is multiplied by. ``vjp_mask`` returns
where the cotangent of the operand may be nonzero: it transposes the mask like the cotangent, with
"or" for the sum, and restricts it to where the operand was selected. ``jvp_mask`` does the same
for tangents, which are zero where nothing differentiable was selected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record

JvpTerm = Callable[..., Expr]               # (t, y, *operands) -> t times a partial
Factor = Callable[[Expr, UOp], Expr]        # (t, node) -> the same, for REDUCE and SCATTER


def sum_or_any(x: UOp, axes: Iterable[int]) -> UOp:
    """Sum numbers, or "or" bools, over axes; for bools, axes that were only broadcast are not
    reduced."""
    axes = tuple(axes)
    if not x.dtype.is_bool:
        return build.reduce(x, ops.ADD, axes)
    if x.op is ops.EXPAND and 0 not in x.shape:
        once_shape = tuple(n if i in axes and x.src[0].shape[i] == 1 else m
                           for i, (n, m) in enumerate(zip(x.src[0].shape, x.shape)))
        once = build.expand(x.src[0], once_shape)
        remaining_axes = [i for i in axes if once_shape[i] != 1]
        out = tuple(m for i, m in enumerate(x.shape) if i not in axes)
        return build.reshape(build.reduce(once, ops.OR, remaining_axes), out)
    return build.reduce(x, ops.OR, axes)


def and_masks(a: UOp | None, b: UOp | None) -> UOp | None:
    """Return the "and" of two masks; None is true everywhere."""
    return b if a is None else a if b is None else a if a is b else build.and_(a, b)


def or_masks(masks: Iterable[UOp | None]) -> UOp | None:
    """Return the "or" of masks; None is true everywhere."""
    out: UOp | None = None
    for mask in masks:
        if mask is None:
            return None
        out = mask if out is None else build.or_(out, mask)
    return out


def zeros_like(node: UOp) -> UOp:
    return build.const_like(node, 0)


def add_all(parts: Iterable[UOp | None]) -> UOp | None:
    """Sum in the given order; None is zero."""
    out: UOp | None = None
    for part in parts:
        if part is not None:
            out = part if out is None else build.add(out, part)
    return out


def sum_cotangents(parts: Sequence[UOp]) -> UOp:
    """Sum numbers, or "or" bools. PADs that do not overlap are concatenated: the cotangent of
    ``split`` is a CONCAT, not a sum of arrays of mostly zeros. Scatters into zeros come last,
    and scatter into the sum of the rest."""
    padded: dict[int, list[UOp]] = {}
    rest: list[UOp] = []
    for part in parts:
        axis = _padded_axis(part)
        if axis is None:
            rest.append(part)
        else:
            padded.setdefault(axis, []).append(part)
    rest += [joined for axis, pieces in padded.items() for joined in _concat_pads(pieces, axis)]
    out, *others = sorted(rest, key=_is_scatter_into_zeros)
    for part in others:
        out = build.or_(out, part) if out.dtype.is_bool else add(out, part)
    return out


def add(total: UOp, part: UOp) -> UOp:
    """Return the sum of both: scatters into zeros are added by scattering into ``total``.

    >>> from fnx.core.ir import dtypes
    >>> x, i = build.param(0, dtypes.float32, (9,)), build.param(1, dtypes.int32, (2,))
    >>> u = build.param(2, dtypes.float32, (2,))
    >>> add(x, build.scatter(zeros_like(x), [i], u, ops.ADD)) is build.scatter(x, [i], u, ops.ADD)
    True
    """
    scatters = _scatters_into_zeros(part)
    for node in reversed(scatters):
        _, *index, updates = node.src
        total = build.scatter(total, index, updates, ops.ADD, node.arg.axes)
    return total if scatters else build.add(total, part)


def _is_scatter_into_zeros(node: UOp) -> bool:
    return bool(_scatters_into_zeros(node))


def _scatters_into_zeros(node: UOp) -> list[UOp]:
    """Return the SCATTERs that a sum of them into zeros consists of, the last one first; else an
    empty list."""
    scatters = []
    while node.op is ops.SCATTER and node.arg.monoid is ops.ADD and node.dtype.storage is None:
        scatters.append(node)
        node = node.src[0]
    return scatters if scatters and node is zeros_like(node) else []


def _padded_axis(node: UOp) -> int | None:
    """Return the axis of a zero-filled PAD if it pads only one, else None."""
    if node.op is not ops.PAD or node.src[1].op is not ops.CONST or node.src[1].arg:
        return None
    axes = [a for a, widths in enumerate(node.arg) if widths != (0, 0)]
    return axes[0] if len(axes) == 1 else None


def _concat_pads(pieces: Sequence[UOp], axis: int) -> list[UOp]:
    """Join PADs along an axis into few arrays: those that do not overlap become one."""
    rows: list[list[UOp]] = []
    for piece in sorted(pieces, key=lambda p: (p.arg[axis][0], p.number)):
        row = next((r for r in rows if _pad_end(r[-1], axis) <= piece.arg[axis][0]), None)
        if row is None:
            rows.append([piece])
        else:
            row.append(piece)
    return [_concat_row(row, axis) if len(row) > 1 else row[0] for row in rows]


def _pad_end(piece: UOp, axis: int) -> int:
    after: int = piece.arg[axis][1]
    return piece.shape[axis] - after


def _concat_row(row: Sequence[UOp], axis: int) -> UOp:
    shape, parts, position = row[0].shape, list[UOp](), 0
    for piece in row:
        parts += _zero_gap(piece, axis, piece.arg[axis][0] - position)
        parts.append(piece.src[0])
        position = _pad_end(piece, axis)
    return build.concat([*parts, *_zero_gap(row[0], axis, shape[axis] - position)], axis)


def _zero_gap(like: UOp, axis: int, n: int) -> list[UOp]:
    shape = (*like.shape[:axis], n, *like.shape[axis + 1:])
    return [build.const(0, like.dtype, shape)] if n else []


class Cotangent(Record):
    """A value, and the mask outside of which it is a symbolic zero (None: nowhere)."""

    value: UOp
    mask: UOp | None = None


class Tangent(Record):
    """A value, and the mask outside of which it is a symbolic zero (None: nowhere)."""

    value: UOp
    mask: UOp | None = None


Tangents = Sequence[UOp | None]             # for each operand of a node; None: zero
Masks = Sequence[UOp | None]                # of these tangents; None: zero, or true everywhere


class DerivativeRule:
    """The rule of an op without a derivative, and the base class of the others.

    ``save_residual``: the result is saved for the backward pass instead of recomputed.
    """

    save_residual = False

    def bodies(self, node: UOp) -> Sequence[UOp]:
        """FUNCTIONs that define what the node computes."""
        return ()

    def is_active(self, node: UOp) -> bool:
        """Whether the node has a derivative if its operands have one."""
        return node.dtype.is_inexact

    def blocks_masks(self, node: UOp) -> bool:
        """Whether masks do not pass through the node: see contractions in reverse.py."""
        return False

    def operands(self, node: UOp) -> Sequence[int]:
        """Positions in ``node.src`` that the node is differentiable with respect to."""
        return ()

    def jvp(self, node: UOp, tangents: Tangents) -> UOp | None:
        """Return the tangent of the node from those of its operands (None: zero)."""
        return None

    def jvp_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        """Return the mask outside of which ``jvp`` is a symbolic zero."""
        return None

    def vjp(self, node: UOp, i: int, ct: UOp) -> UOp:
        """Return what the cotangent of the node contributes to that of operand i."""
        raise NotImplementedError(f"{node.op} has no derivative in operand {i}")

    def vjp_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        """Return the mask outside of which ``vjp`` is a symbolic zero."""
        return None

    def singular(self, node: UOp) -> bool:
        """Whether the value or a partial can be infinite or NaN for finite operands."""
        return False

    def multiplies_operand(self, node: UOp) -> bool:
        """Whether a partial multiplies by an operand, so that it is infinite where the operand
        is."""
        return False


class Elementwise(DerivativeRule):
    """``along[i](t, y, *operands)`` is t times the partial in operand i; None: no partial.

    ``selected(i, *operands)``: where the result varies with operand i (WHERE, MAX, MIN, ABS).
    """

    def __init__(self, jvps: Sequence[JvpTerm | None], multiplies: bool,
                 singular: Callable[[UOp], bool] | None = None,
                 selected: Callable[..., Expr] | None = None) -> None:
        self.jvps, self.multiplies = jvps, multiplies
        self.positions = tuple(i for i, f in enumerate(jvps) if f is not None)
        self.may_be_singular, self.selected = singular, selected

    def operands(self, node: UOp) -> Sequence[int]:
        return self.positions

    def jvp(self, node: UOp, tangents: Tangents) -> UOp | None:
        pairs = [(i, tangents[i]) for i in self.positions]
        return add_all([self.vjp(node, i, t) for i, t in pairs if t is not None])

    def jvp_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        is_choice = len(self.positions) > 1 or self.selected is None
        if is_choice and all(tangents[i] is not None and masks[i] is None
                             for i in self.positions):
            return None  # one of them is selected
        return or_masks([self.vjp_mask(node, i, masks[i])
                         for i in self.positions if tangents[i] is not None])

    def vjp(self, node: UOp, i: int, ct: UOp) -> UOp:
        jvp_term = self.jvps[i]
        assert jvp_term is not None
        return jvp_term(Expr(ct), Expr(node), *map(Expr, node.src)).node

    def vjp_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        return mask if self.selected is None else and_masks(
            mask, self.selected(i, *map(Expr, node.src)).node)

    def singular(self, node: UOp) -> bool:
        return self.may_be_singular is not None and self.may_be_singular(node)

    def multiplies_operand(self, node: UOp) -> bool:
        return self.multiplies


_CONVERSIONS = frozenset({ops.CAST, ops.REAL, ops.IMAG, ops.COMPLEX})  # of one element each


class Choice(Elementwise):
    """WHERE: the tangent is a choice of tangents, rather than a sum of two with zeros."""

    def jvp(self, node: UOp, tangents: Tangents) -> UOp | None:
        _, a, b = tangents
        if a is None or b is None:
            return super().jvp(node, tangents)
        return a if a is b else build.where(node.src[0], a, b)


class Linear(DerivativeRule):
    """The op is jointly linear in ``positions`` (None: in all its operands).

    ``transpose(node, i, ct)`` also takes a bool ct: a mask, whose sum is "or". ``reads_partially``:
    the op does not read all elements of the operand, so its transpose has zeros. ``where(node)``:
    outside of it the result is a constant; None: nowhere.
    """

    def __init__(self, transpose: Callable[[UOp, int, UOp], UOp],
                 positions: tuple[int, ...] | None = (0,), reads_partially: bool = False,
                 where: Callable[[UOp], UOp | None] | None = None) -> None:
        self.transpose, self.positions = transpose, positions
        self.reads_partially, self.where = reads_partially, where

    def operands(self, node: UOp) -> Sequence[int]:
        return range(len(node.src)) if self.positions is None else self.positions

    def jvp(self, node: UOp, tangents: Tangents) -> UOp | None:
        src = list(node.src)
        for i in self.operands(node):
            t = tangents[i]
            src[i] = zeros_like(src[i]) if t is None else t
        out = node.replace(src=tuple(src))
        where = None if self.where is None else self.where(node)
        return out if where is None else build.where(where, out, zeros_like(out))

    def jvp_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        src, is_partial = list(node.src), False
        for i in self.operands(node):
            zero, mask = tangents[i] is None, masks[i]
            is_partial = is_partial or zero or mask is not None
            src[i] = build.const(not zero, dtypes.bool_, src[i].shape) if mask is None else mask
        in_bounds = None if self.where is None else self.where(node)
        if not is_partial:
            return in_bounds
        moved = reduce(build.or_, src) if node.op in _CONVERSIONS else \
            node.replace(dtype=dtypes.bool_, src=tuple(src))
        return and_masks(moved, in_bounds)

    def vjp(self, node: UOp, i: int, ct: UOp) -> UOp:
        return self.transpose(node, i, ct)

    def vjp_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        if mask is None:
            if not self.reads_partially:
                return None
            mask = build.const(True, dtypes.bool_, node.shape)
        return self.transpose(node, i, mask)


def broadcast_reduced(node: UOp, x: UOp) -> UOp:
    """Broadcast a result of a REDUCE back over the reduced axes."""
    shape = node.src[0].shape
    keepdims_shape = tuple(1 if i in node.arg.axes else n for i, n in enumerate(shape))
    return build.expand(build.reshape(x, keepdims_shape), shape)


class ReduceRule(DerivativeRule):
    """REDUCE: a sum of ``along(t, node)`` over the reduced axes; one ``jvps`` for each monoid."""

    def __init__(self, jvps: dict[ops.Op, Factor],
                 selected: dict[ops.Op, Callable[[UOp], Expr]]) -> None:
        self.jvps, self.selected = jvps, selected

    def _jvp_term(self, t: UOp, node: UOp) -> UOp:
        return self.jvps[node.arg.monoid](Expr(t), node).node

    def blocks_masks(self, node: UOp) -> bool:
        """Whether it is a contraction: a sum over the product of two broadcast arrays."""
        product = node.src[0]
        return node.arg.monoid is ops.ADD and product.op is ops.MUL and \
            all(map(_is_broadcast, product.src))

    def operands(self, node: UOp) -> Sequence[int]:
        return (0,) if node.arg.monoid in self.jvps else ()

    def jvp(self, node: UOp, tangents: Tangents) -> UOp | None:
        t = tangents[0]
        if t is None:
            return None
        terms = self._jvp_term(t, node)
        if terms.op is ops.ADD and self.blocks_masks(node):  # each term is a contraction
            return add_all([build.reduce(s, ops.ADD, node.arg.axes) for s in terms.src])
        return build.reduce(terms, ops.ADD, node.arg.axes)

    def jvp_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        mask, winner_of = masks[0], self.selected.get(node.arg.monoid)
        if mask is None:
            return None
        selected_mask = mask if winner_of is None else build.and_(mask, winner_of(node).node)
        return sum_or_any(selected_mask, node.arg.axes)

    def vjp(self, node: UOp, i: int, ct: UOp) -> UOp:
        return self._jvp_term(broadcast_reduced(node, ct), node)

    def vjp_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        winner_of = self.selected.get(node.arg.monoid)
        return and_masks(None if mask is None else broadcast_reduced(node, mask),
                         None if winner_of is None else winner_of(node).node)

    def multiplies_operand(self, node: UOp) -> bool:
        return node.arg.monoid is ops.MUL


class ScatterRule(DerivativeRule):
    """SCATTER: elements of x that remain, and updates that were written, each with its factor.

    ``kept[monoid](t, node)`` is the jvp in x, ``written[monoid](t, node)`` in the updates; both
    are zero for what was overwritten or dropped.
    """

    def __init__(self, x_factors: dict[ops.Op | None, Factor],
                 update_factors: dict[ops.Op | None, Factor], read: Factor) -> None:
        self.x_factors, self.update_factors, self.read = x_factors, update_factors, read

    def _factor(self, node: UOp, i: int, t: UOp) -> UOp:
        return (self.update_factors if i else self.x_factors)[node.arg.monoid](Expr(t), node).node

    def _read_result(self, node: UOp, i: int, x: UOp) -> UOp:
        """Return the elements of x (like the result) that operand i contributed to."""
        return self.read(Expr(x), node).node if i else x

    def operands(self, node: UOp) -> Sequence[int]:
        return (0, len(node.src) - 1) if node.arg.monoid in self.x_factors else ()

    def jvp(self, node: UOp, tangents: Tangents) -> UOp | None:
        x, index, updates = tangents[0], node.src[1:-1], tangents[-1]
        base = zeros_like(node) if x is None else self._factor(node, 0, x)
        return base if updates is None else build.scatter(
            base, index, self._factor(node, -1, updates), ops.ADD, node.arg.axes)

    def jvp_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        index, nowhere = node.src[1:-1], build.const(False, dtypes.bool_, node.shape)
        x_mask = nowhere if tangents[0] is None else self._restrict_mask(node, 0, masks[0])
        if tangents[-1] is None or x_mask is None:
            return x_mask
        update_mask = self._restrict_mask(node, -1, masks[-1])
        count = build.const(0, dtypes.int32, node.shape)
        ones = build.const(1, dtypes.int32, node.src[-1].shape) if update_mask is None else \
            build.cast(update_mask, dtypes.int32)
        marks = build.scatter(count, index, ones, ops.ADD, node.arg.axes)
        return build.or_(x_mask, build.ne(marks, count))

    def vjp(self, node: UOp, i: int, ct: UOp) -> UOp:
        return self._factor(node, i, self._read_result(node, i, ct))

    def vjp_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        return self._restrict_mask(node, i,
                                   None if mask is None else self._read_result(node, i, mask))

    def _restrict_mask(self, node: UOp, i: int, mask: UOp | None) -> UOp | None:
        """Restrict a mask, shaped like operand i, to where the operand contributed to the
        result."""
        if node.arg.monoid is ops.MUL:  # a factor of zero is a value, not a selection
            return mask
        ones = build.const_like(node.src[i], 1)
        factor = self._factor(node, i, ones)
        return mask if factor is ones else and_masks(mask, build.ne(factor, zeros_like(ones)))

    def multiplies_operand(self, node: UOp) -> bool:
        return node.arg.monoid is ops.MUL


def _is_broadcast(node: UOp) -> bool:
    while node.op is ops.PERMUTE or node.op is ops.RESHAPE:
        node = node.src[0]
    return node.op is ops.EXPAND
