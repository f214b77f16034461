"""Patterns over nodes, written with Python operators.

A pattern matches a node and captures parts of it by name. Equal names must match the same node.
Operands of a commutative op match in either order. A Python number matches a constant of that
value, bit for bit (-0.0 is not 0.0), also if it is expanded to a shape.

>>> from fnx.core.ir import build, dtypes
>>> x, y = build.param(0, dtypes.float32, (3,)), build.param(1, dtypes.float32, (3,))
>>> match(var("a") * 1.0, build.mul(build.const_like(x, 1.0), x))["a"] is x
True
>>> match(var("a") * var("a"), build.mul(x, y)) is None
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fnx.core.ir import build, ops
from fnx.core.ir.operators import Operators
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import FnxError

MatchResult = dict[str, UOp]
_ANY: Any = object()
_BROADCAST_OPS = frozenset({ops.EXPAND, ops.RESHAPE})
CONSTANT_OPS = frozenset({ops.CONST}) | _BROADCAST_OPS  # ops of the root of an expanded constant


class UPat(Operators):
    """A pattern that matches a node.

    Args:
        op: the op of the node, or a set of ops; None for any.
        src: patterns of all operands; None for any operands.
        name: the name of the node in the captures.
        dtype_kinds: letters of the accepted kinds of dtype: float ("f"), integer ("i"), bool ("b").
        arg: the arg of the node.
        constant: match a plain or expanded CONST; ``name`` then captures the CONST.
        value: the number that a constant must have.
    """

    __slots__ = ("ops", "src", "name", "dtype_kinds", "arg", "constant", "value", "is_plain")

    def __init__(self, op: Op | frozenset[Op] | None = None, src: tuple[Any, ...] | None = None,
                 name: str = "", *, dtype_kinds: str = "", arg: Any = _ANY, constant: bool = False,
                 value: Any = None) -> None:
        self.ops = frozenset({op}) if isinstance(op, Op) else op
        self.src = None if src is None else tuple(as_pattern(s) for s in src)
        self.name, self.dtype_kinds, self.arg = name, dtype_kinds, arg
        self.constant, self.value = constant, value
        self.is_plain = bool(name) and src is None and not dtype_kinds and arg is _ANY and \
            not constant

    def _apply(self, op: Op, *operands: Any) -> UPat:
        return UPat(op, operands)

    def named(self, name: str) -> UPat:
        """Return this pattern with a name for the matched node."""
        return UPat(self.ops, self.src, name, dtype_kinds=self.dtype_kinds, arg=self.arg,
                    constant=self.constant, value=self.value)

    def root_ops(self) -> frozenset[Op] | None:
        """Return the ops that matched nodes can have; None for any."""
        return CONSTANT_OPS if self.constant else self.ops


def var(name: str, kinds: str = "") -> UPat:
    """Return a pattern that matches any node."""
    return UPat(name=name, dtype_kinds=kinds)


def const(name: str, kinds: str = "") -> UPat:
    """Return a pattern that matches any constant, plain or expanded, and captures the CONST."""
    return UPat(name=name, dtype_kinds=kinds, constant=True)


def as_pattern(x: Any) -> UPat:
    """Convert a number to a pattern; a pattern is returned as it is."""
    return x if isinstance(x, UPat) else UPat(constant=True, value=x)


def underlying_const(node: UOp) -> UOp | None:
    """Return the CONST below EXPANDs and RESHAPEs, or None if the node is not constant."""
    while node.op in _BROADCAST_OPS:
        node = node.src[0]
    return node if node.op is ops.CONST else None


def match(pattern: UPat, node: UOp) -> MatchResult | None:
    """Return the captures of the first match of ``pattern``, or None."""
    if pattern.is_plain:
        return {pattern.name: node} if pattern.ops is None or node.op in pattern.ops else None
    return next(_matches(pattern, node, {}), None)


def _matches(pattern: UPat, node: UOp, captures: MatchResult) -> Iterator[MatchResult]:
    if pattern.constant:
        constant = underlying_const(node)
        if constant is None or not _has_value(constant, pattern.value):
            return
        node = constant
    elif pattern.ops is not None and node.op not in pattern.ops:
        return
    if pattern.dtype_kinds and not _has_kind(node, pattern.dtype_kinds):
        return
    if pattern.arg is not _ANY and node.arg != pattern.arg:
        return
    if pattern.name:
        bound = captures.get(pattern.name)
        if bound is None:
            captures = {**captures, pattern.name: node}
        elif bound is not node:
            return
    if pattern.src is None:
        yield captures
    elif len(pattern.src) == len(node.src):
        yield from _all_match(pattern.src, node.src, captures)
        if node.op.commutative:
            yield from _all_match(pattern.src, node.src[::-1], captures)


def _all_match(patterns: tuple[UPat, ...], nodes: tuple[UOp, ...],
               captures: MatchResult) -> Iterator[MatchResult]:
    if not patterns:
        yield captures
        return
    for extended in _matches(patterns[0], nodes[0], captures):
        yield from _all_match(patterns[1:], nodes[1:], extended)


def _has_kind(node: UOp, kinds: str) -> bool:
    kind = node.dtype.kind
    return kind[0] in kinds or (kind in ("uint", "index") and "i" in kinds)


def _has_value(constant: UOp, value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) != constant.dtype.is_bool:
        return False
    if not constant.dtype.is_float and value != int(value):
        return False
    try:
        return bool(constant.arg == build.const_bits(value, constant.dtype))
    except FnxError:
        return False


def build_from(pattern: UPat, captures: MatchResult, like: UOp) -> UOp:
    """Build the node that a pattern without alternatives describes; numbers get ``like``'s type."""
    if pattern.value is not None:
        return build.const_like(like, pattern.value)
    if pattern.src is None:
        node = captures[pattern.name]
        if node.op is ops.CONST and node.shape != like.shape:
            return build.expand(node, like.shape)
        return node
    assert pattern.ops is not None and len(pattern.ops) == 1, "one op, to build it"
    (op,) = pattern.ops
    inner = like if op not in ops.COMPARISONS else _operand_like(pattern, captures, like)
    return build.elementwise(op, *[build_from(s, captures, inner) for s in pattern.src])


def _operand_like(pattern: UPat, captures: MatchResult, like: UOp) -> UOp:
    assert pattern.src is not None
    return next((captures[s.name] for s in pattern.src if s.name and not s.constant), like)
