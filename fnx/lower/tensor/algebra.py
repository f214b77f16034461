"""Rules of simplify for elementwise values. All of them preserve every bit, except NaN payloads.

So floats are never reassociated; ``x * 0`` stays in floats (x may be infinite), and so does ``x +
0.0`` (x may be -0.0), while ``x + -0.0`` is x. Integers wrap, so their ring algebra holds.

    (x * 1) - (-y)                 ->  x + y
    where(c, x, where(c, y, z))    ->  where(c, x, z)
    exp(x) + sqrt(4.0)             ->  exp(x) + 2.0

Constants are folded with an op's definition, if every machine gives the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.numpy_semantics import eval_node
from fnx.core.ir.op_traits import max_value, min_value
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.pattern import CONSTANT_OPS, UPat, as_pattern, const, underlying_const, var
from fnx.core.rewriting.rewrite import RewriteRule

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


# ---- identities, absorbing elements -----------------------------------------------------------

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
    RewriteRule(x ^ x, lambda x: broadcast_like(0, x), name="x ^ x"),
    RewriteRule(t ^ True, ~t, name="x ^ True"),
]


# ---- signs and inverses -----------------------------------------------------------------------


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


# ---- conditions -------------------------------------------------------------------------------

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


# ---- conversions ------------------------------------------------------------------------------


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

RULES = (*IDENTITY_RULES, *SIGN_RULES, *CONDITION_RULES, *CONVERSION_RULES, FOLD_CONSTANTS)
