"""simplify: reduce the work of a FUNCTION while preserving every bit of every value.

One bottom-up traversal with the rules below. The bodies of CALLs are visited once for each distinct
FUNCTION; user-written KERNELs are left alone. Unused PARAMs stay, as the signature does not change.

>>> from fnx.core.ir import build, dtypes, ops
>>> x = build.param(0, dtypes.float32, (2, 3))
>>> y = build.mul(build.neg(build.neg(x)), build.const_like(x, 1.0))
>>> before = build.function([build.permute(build.permute(y, (1, 0)), (1, 0))], 1)
>>> simplify(before).src[0] is x
True

All rules preserve every bit, except NaN payloads. So floats are never reassociated; ``x * 0`` stays
in floats (x may be infinite), and so does ``x + 0.0`` (x may be -0.0), while ``x + -0.0`` is x.
Integers wrap, so their ring algebra holds. Elementwise values:

    (x * 1) - (-y)                 ->  x + y
    where(c, x, where(c, y, z))    ->  where(c, x, z)
    exp(x) + sqrt(4.0)             ->  exp(x) + 2.0

Constants are folded with an op's definition, if every machine gives the same bits (``Op.exact``).
Movements, constants and nodes without elements:

    shrink(pad(x))                  ->  shrink(x), or pad(shrink(x)), or x
    permute(permute(x)), ...        ->  one movement
    expand(x) * expand(y)           ->  expand(x * y), where x and y have one shape
    permute(x) - expand(y)          ->  permute(x - expand(y)), where x is an array in memory
    gather(scatter(x, i, y), i)     ->  where(i is inside, y, gather(x, i))
    any movement of a constant      ->  the constant, expanded
    any node with no elements       ->  a constant, expanded to its shape

Thus empty arrays remain as parameters and results only: every later pass may assume that each
extent it loops over is at least 1.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.numpy_semantics import eval_node
from fnx.core.ir.op import max_value, min_value
from fnx.core.ir.ops import FUNCTION, KERNEL, Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.rewrite import (
    CONSTANT_OPS,
    RewriteRule,
    RuleSet,
    UPat,
    as_pattern,
    const,
    graph_rewrite,
    underlying_const,
    var,
)
from fnx.lower.tensor.movement_rules import MOVEMENT_RULES


def simplify(fn: UOp) -> UOp:
    """Return the simplified FUNCTION; the same object if nothing changed."""
    rewritten: dict[UOp, UOp] = {}
    for node in toposort([fn], into_functions=True, stop=lambda n: n.op is KERNEL):
        if node.op is KERNEL:
            rewritten[node] = node
        elif node.op is FUNCTION:
            rewritten[node] = node.with_operands(
                tuple(graph_rewrite(node.src, RULES, known=rewritten)))
    return rewritten[fn]


# ---- constants that are folded ------------------------------------------------------------------


n, i, f, x, t = var("x", "fi"), var("x", "i"), var("x", "f"), var("x"), var("x", "b")
m, y, z = var("y", "fi"), var("y"), var("z")
c, d = const("c"), const("d")


def broadcast_like(value: Any, like: UOp) -> UOp:
    """Return a constant with the dtype and shape of a node; ``value`` is a number or a CONST."""
    node = value if isinstance(value, UOp) else build.const(value, like.dtype)
    return build.expand(node, like.shape)


def fold_constants(node: UOp) -> UOp | None:
    """Fold an elementwise node of constants into a constant."""
    constants = [k for s in node.src if (k := underlying_const(s)) is not None]
    if len(constants) < len(node.src):
        return None
    with np.errstate(all="ignore"):
        value = np.asarray(eval_node(node, *[ops.const_value(k) for k in constants]))
    bits = int.from_bytes(value.astype(node.dtype.np).tobytes(), "little")
    return build.expand(UOp(ops.CONST, node.dtype, (), bits), node.shape)


FOLD_CONSTANTS = RewriteRule(
    UPat(frozenset(op for op in ops.ELEMENTWISE if op.exact), None, "node"),
    fold_constants, name="evaluate constants", required_ops=CONSTANT_OPS)


# ---- identities, absorbing elements -------------------------------------------------------------

_MONOIDS = sorted([op for op in ops.MONOIDS if op.exact], key=lambda op: op.name)
_IDENTITY_KINDS: dict[Op, str] = dict.fromkeys(_MONOIDS, "fib") | {ops.ADD: "i"}
_ABSORBING_ELEMENTS = {ops.AND: ops.OR.identity, ops.OR: ops.AND.identity,
                       ops.MUL: ops.ADD.identity,
                       # integers and bools only: NaN beats any float bound
                       ops.MAX: max_value, ops.MIN: min_value}


def _equals(constant: UOp, value: Any) -> bool:
    return bool(constant.arg == build.const_bits(value, constant.dtype))


def _identity_rule(op: Op) -> RewriteRule:
    identity = op.identity
    assert identity is not None
    return RewriteRule(UPat(op, (var("x", _IDENTITY_KINDS[op]), c)), x,
                       lambda x, c: _equals(c, identity(c.dtype)), f"{op} with its identity")


def _absorbing_rule(op: Op) -> RewriteRule:
    value = _ABSORBING_ELEMENTS[op]
    assert value is not None
    return RewriteRule(UPat(op, (var("x", "ib"), c)), lambda x, c: broadcast_like(c, x),
                       lambda x, c: _equals(c, value(c.dtype)), f"{op} with what absorbs")


def _merge_constants_rule(op: Op) -> RewriteRule:
    kinds = "fib" if op in (ops.MAX, ops.MIN) else "ib"
    return RewriteRule(UPat(op, (UPat(op, (var("x", kinds), c)), d)),
                       UPat(op, (x, UPat(op, (c, d)))), name=f"{op} of two constants")


IDENTITY_RULES = [
    *[_identity_rule(op) for op in _IDENTITY_KINDS],
    *[_absorbing_rule(op) for op in _ABSORBING_ELEMENTS],
    *[_merge_constants_rule(op) for op in _IDENTITY_KINDS],
    *[RewriteRule(UPat(op, (x, x)), x, name=f"{op} with itself")
      for op in (ops.AND, ops.OR, ops.MAX, ops.MIN)],
    RewriteRule(f + -0.0, f, name="x + -0"),
    RewriteRule(n - 0, n, name="x - 0"),
    RewriteRule(f / 1.0, f, name="x / 1"),
    RewriteRule(i // 1, i, name="x // 1"),
    RewriteRule(i << 0, i, name="x << 0"),
    RewriteRule(i >> 0, i, name="x >> 0"),
    RewriteRule(i - i, as_pattern(0), name="x - x"),
    RewriteRule(c - (d - i), i + (c - d), name="c - (d - x)"),
    RewriteRule(x ^ x, lambda x: broadcast_like(0, x), name="x ^ x"),
    RewriteRule(t ^ True, ~t, name="x ^ True"),
]


# ---- signs and inverses -------------------------------------------------------------------------


def _reciprocal(x: UOp, c: UOp) -> UOp | None:
    """Rewrite x / c as x * (1 / c), if 1 / c is exact: c is a power of two."""
    value = build.const_of(c)
    if value == 0 or not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    inverse = build.const(1 / value, c.dtype)
    if not math.isfinite(1 / value) or 1 / build.const_of(inverse) != value:
        return None
    return build.mul(x, broadcast_like(inverse, x))


def _not_unsigned(**matches: UOp) -> bool:
    return matches["x"].dtype.kind != "uint"


SIGN_RULES = [
    RewriteRule(-UPat(ops.NEG, (n,)), n, name="-(-x)"),
    RewriteRule(~~x, x, name="~~x"),
    RewriteRule(abs(-n), abs(n), _not_unsigned, "abs(-x)"),
    RewriteRule(abs(abs(n)), abs(n), name="abs(abs(x))"),
    RewriteRule(n + -m, n - m, name="x + -y"),
    RewriteRule(n - -m, n + m, name="x - -y"),
    RewriteRule(-n * -m, n * m, name="-x * -y"),
    RewriteRule(-n * c, lambda x, c: build.mul(x, build.neg(broadcast_like(c, x))), name="-x * c"),
    RewriteRule(n * -1, -n, name="x * -1"),
    RewriteRule(-f / -y, f / y, name="-x / -y"),
    RewriteRule(f / c, _reciprocal, name="x / 2**k"),
    RewriteRule(f ** 1.0, f, name="x**1"),
    RewriteRule(f ** 0.0, as_pattern(1.0), name="x**0"),
    RewriteRule(f ** 2.0, f * f,
                lambda x: x.dtype is dtypes.float32, "x**2"),  # float64: pow may round differently
]


# ---- conditions ---------------------------------------------------------------------------------

_condition, _without_nan = var("p"), var("x", "ib")  # without NaN, which is not equal to itself


def _where(condition: UPat | bool, a: UPat | bool, b: UPat | bool) -> UPat:
    return UPat(ops.WHERE, (condition, a, b))


_EQUAL, _DIFFERENT = UPat(ops.CMPEQ, (x, y)), UPat(ops.CMPNE, (x, y))

CONDITION_RULES = [
    RewriteRule(x < x, as_pattern(False), name="x < x"),
    RewriteRule(_without_nan <= x, as_pattern(True), name="x <= x"),
    RewriteRule(UPat(ops.CMPEQ, (_without_nan, x)), as_pattern(True), name="x == x"),
    RewriteRule(UPat(ops.CMPNE, (_without_nan, x)), as_pattern(False), name="x != x"),
    RewriteRule(~_EQUAL, _DIFFERENT, name="not =="),
    RewriteRule(~_DIFFERENT, _EQUAL, name="not !="),
    RewriteRule(~(_without_nan < y), y <= x, name="not <"),
    RewriteRule(~(_without_nan <= y), y < x, name="not <="),
    RewriteRule(_where(True, x, y), x, name="where(True)"),
    RewriteRule(_where(False, x, y), y, name="where(False)"),
    RewriteRule(_where(_condition, x, x), x, name="where of equals"),
    RewriteRule(_where(_condition, True, False), _condition, name="where as bool"),
    RewriteRule(_where(~_condition, x, y), _where(_condition, y, x), name="where not"),
    RewriteRule(_where(_condition, _where(_condition, x, y), z), _where(_condition, x, z),
                name="where in where"),
    RewriteRule(_where(_condition, z, _where(_condition, x, y)), _where(_condition, z, y),
                name="else in where"),
]


# ---- conversions --------------------------------------------------------------------------------


def _represents_all(wide: DType, narrow: DType) -> bool:
    """Return whether every value of ``narrow`` is a value of ``wide``."""
    if narrow.is_bool or wide is narrow:
        return not wide.is_bool or narrow.is_bool
    if wide.is_float:
        return narrow.bits <= wide.mantissa + 1 if narrow.is_integer else \
            narrow.mantissa <= wide.mantissa and narrow.exponent <= wide.exponent
    return wide.is_integer and wide.bits > narrow.bits and \
        (narrow.kind == "uint" or narrow.is_integer and wide.kind != "uint")


def _cast_twice(x: UOp, middle: UOp, last: UOp) -> UOp | None:
    first = x.dtype
    if not _represents_all(middle.dtype, first):
        return None
    wraps = last.dtype.is_integer and first.is_integer and middle.dtype.is_float
    return None if wraps and last.dtype is not first else build.cast(x, last.dtype)


CONVERSION_RULES = [
    RewriteRule(UPat(ops.CAST, (UPat(ops.CAST, (x,), "middle"),), "last"), _cast_twice,
                name="cast of an exact cast"),
    RewriteRule(UPat(ops.BITCAST, (UPat(ops.BITCAST, (x,)),), "last"),
                lambda x, last: build.bitcast(x, last.dtype), name="bitcast of bitcast"),
]


# ---- nodes without elements, movements of constants ---------------------------------------------


# batching has removed these
_NAMED_AXIS_OPS = {ops.ALL_GATHER, ops.AXIS_INDEX, ops.PVARY_LIKE, ops.PSUM_LIKE}
_NO_VALUES = "scope", "source", "host", "pair", "linalg", "fft", "collective"
_VALUES = frozenset(op for op in ops.OPS.values() if "t" in op.levels
                    and op.kind not in _NO_VALUES) - _NAMED_AXIS_OPS | {ops.GETTUPLE, ops.IOTA}
_SAME_ELEMENTS = frozenset({ops.RESHAPE, ops.PERMUTE, ops.EXPAND, ops.SHRINK, ops.FLIP,
                            ops.CONCAT, ops.PAD, ops.UNFOLD})


def _move_constant(node: UOp) -> UOp | None:
    """Rewrite a movement whose elements are all one constant as an EXPAND."""
    first = underlying_const(node.src[0])
    if first is None or any(underlying_const(s) is not first for s in node.src[1:]):
        return None
    return build.expand(first, node.shape)


def _gather_constant(node: UOp) -> UOp | None:
    value = underlying_const(node.src[0])
    return None if value is None else build.expand(value, node.shape)


def _fold_zeros(node: UOp) -> UOp | None:
    """Fold a FOLD of zeros, or of no windows, into zeros."""
    value = underlying_const(node.src[0])
    zeros = value is not None and value.arg == 0 or 0 in node.src[0].shape
    return broadcast_like(0, node) if zeros else None


def _reduce_constant(node: UOp) -> UOp | None:
    """Fold a MAX, MIN, AND or OR of equal elements, and any reduction over no elements."""
    monoid, value = node.arg.monoid, underlying_const(node.src[0])
    if math.prod(node.src[0].shape) == 0:
        return broadcast_like(monoid.identity(node.dtype), node)
    if value is not None and monoid in (ops.MAX, ops.MIN, ops.AND, ops.OR):
        return build.expand(value, node.shape)
    return None


CONSTANT_RULES = [
    RewriteRule(UPat(_VALUES, None, "node"), lambda node: broadcast_like(0, node),
                lambda node: 0 in node.shape and underlying_const(node) is None
                and not (node.op is ops.GETTUPLE and node.src[0].op is not ops.SORT
                         and build_calls.is_token(node)), "no elements"),
    RewriteRule(UPat(_SAME_ELEMENTS, None, "node"), _move_constant, name="movement of a constant",
                required_ops=CONSTANT_OPS),
    RewriteRule(UPat(ops.FOLD, None, "node"), _fold_zeros, name="fold of zeros",
                required_ops=CONSTANT_OPS),
    RewriteRule(UPat(ops.REDUCE, None, "node"), _reduce_constant, name="fold of a constant"),
    RewriteRule(UPat(ops.GATHER, None, "node"), _gather_constant, name="gather from a constant",
                required_ops=CONSTANT_OPS),
    RewriteRule(UPat(ops.SCATTER, None, "node"), lambda node: node.src[0],
                lambda node: 0 in node.src[-1].shape, "scatter of nothing"),
    RewriteRule(UPat(ops.PAD, None, "node"), lambda node: build.expand(node.src[1], node.shape),
                lambda node: 0 in node.src[0].shape, "pad of nothing"),
]


# ---- moving past other nodes --------------------------------------------------------------------


def _before_expand(node: UOp) -> UOp | None:
    """Move elementwise work before the EXPAND that all operands share, to fewer elements."""
    constants = [underlying_const(s) for s in node.src]
    operands = [s for s, k in zip(node.src, constants) if k is None]
    if any(s.op is not ops.EXPAND for s in operands):
        return None
    shapes = {s.src[0].shape for s in operands} or {()}
    shape = shapes.pop()
    if shapes or math.prod(shape) >= math.prod(node.shape):
        return None
    src = [s.src[0] if k is None else build.expand(k, shape)
           for s, k in zip(node.src, constants)]
    return build.expand(UOp(node.op, node.dtype, tuple(src), node.arg), node.shape)


def _drop_unit_axes(node: UOp) -> UOp | None:
    """Drop reduced axes of length 1. A float sum starts from +0, so -0.0 is lost."""
    operand, monoid = node.src[0], node.arg.monoid
    starts_from_zero = node.dtype.is_float and (monoid is ops.ADD or not monoid.exact)
    unit_axes = [a for a in node.arg.axes if operand.shape[a] == 1]
    if not unit_axes or operand.op is ops.ARG_PAIR or (starts_from_zero and
                                                       len(unit_axes) < len(node.arg.axes)):
        return None
    remaining = [a for a in range(len(operand.shape)) if a not in unit_axes]
    squeezed = build.reshape(operand, tuple(operand.shape[a] for a in remaining))
    reduced_axes = [remaining.index(a) for a in node.arg.axes if a not in unit_axes]
    if reduced_axes:
        return build.reduce(squeezed, monoid, reduced_axes)
    identity = broadcast_like(monoid.identity(node.dtype), squeezed)
    return build.elementwise(monoid, squeezed, identity) if starts_from_zero else squeezed


def _merge_reduces(x: UOp, inner: UOp, node: UOp) -> UOp | None:
    """Merge two REDUCEs, if reassociation changes no bit."""
    monoid = node.arg.monoid
    if inner.arg.monoid is not monoid or x.op is ops.ARG_PAIR or (
            node.dtype.is_float and monoid not in (ops.MAX, ops.MIN)):
        return None
    remaining = [a for a in range(len(x.shape)) if a not in inner.arg.axes]
    return build.reduce(x, monoid, [*inner.arg.axes, *[remaining[a] for a in node.arg.axes]])


def _negate_sum(x: UOp, node: UOp) -> UOp:
    """Negate the sum instead, by subtracting from zero: a sum of zeros is +0 either way."""
    total = build.reduce(x, ops.ADD, node.arg.axes)
    return build.sub(broadcast_like(0, total), total)


def _scatter_of_pad(node: UOp) -> UOp | None:
    """Add nothing instead of zeros from a PAD of updates."""
    x, index, updates = node.src[0], node.src[1], node.src[-1]
    n_axes, zero = len(index.shape), build.const(0, x.dtype)
    if node.arg.monoid is not ops.ADD or updates.op is not ops.PAD or \
            underlying_const(updates.src[1]) is not zero or \
            not any(map(any, updates.arg[:n_axes])) or \
            not (x.dtype.is_integer or underlying_const(x) is zero):  # -0.0 + 0 is 0
        return None
    bounds = [(before, n - after) for n, (before, after) in zip(updates.shape, updates.arg)]
    bounds[n_axes:] = [(0, n) for n in updates.shape[n_axes:]]
    return node.replace(src=(x, *[build.shrink(i, bounds[:n_axes]) for i in node.src[1:-1]],
                             build.shrink(updates, bounds)))


def _forward_update(node: UOp) -> UOp | None:
    """Return what was written to the places that are read; outside, nothing was."""
    scatter, index = node.src[0], node.src[1:]
    x, updates = scatter.src[0], scatter.src[-1]
    if scatter.src[1:-1] != index or scatter.arg.axes != node.arg.axes or scatter.arg.monoid or \
            not (scatter.arg.is_unique or math.prod(index[0].shape) == 1):
        return None
    conditions = [c for i, a in zip(index, node.arg.axes) for c in _is_inside(i, x.shape[a])]
    if not conditions:
        return updates
    inside = reduce(build.and_, conditions)
    rest = len(node.shape) - len(inside.shape)
    inside = build.expand(build.reshape(inside, inside.shape + (1,) * rest), node.shape)
    return build.where(inside, updates, build.gather(x, *index, axes=node.arg.axes))


def _is_inside(i: UOp, n: int) -> list[UOp]:
    low, last = i.dtype.limits
    conditions = [build.le(build.const(0, i.dtype, i.shape), i)] if low else []
    return [*conditions, build.lt(i, build.const(n, i.dtype, i.shape))] if n <= last else conditions


COMMUTING_RULES = [
    RewriteRule(UPat(ops.GATHER, None, "node"), _forward_update,
                lambda node: node.src[0].op is ops.SCATTER, "gather of scatter",
                frozenset({ops.SCATTER})),
    RewriteRule(UPat(ops.SCATTER, None, "node"), _scatter_of_pad, name="scatter of a pad"),
    RewriteRule(UPat(ops.REDUCE, (UPat(ops.NEG, (x,)),), "node"), _negate_sum,
                lambda x, node: node.arg.monoid is ops.ADD, "sum of -x"),
    RewriteRule(UPat(ops.ELEMENTWISE, None, "node"), _before_expand,
                name="elementwise before expand", required_ops=CONSTANT_OPS),
    RewriteRule(UPat(ops.REDUCE, None, "node"), _drop_unit_axes, name="fold of axes of length 1"),
    RewriteRule(UPat(ops.REDUCE, (UPat(ops.REDUCE, (x,), "inner"),), "node"), _merge_reduces,
                name="fold of fold"),
]

RULES = RuleSet((*IDENTITY_RULES, *SIGN_RULES, *CONDITION_RULES, *CONVERSION_RULES, FOLD_CONSTANTS,
                 *CONSTANT_RULES, *MOVEMENT_RULES, *COMMUTING_RULES))
