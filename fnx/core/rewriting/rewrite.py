"""Patterns over nodes, rewrite rules as data, and the driver that applies them.

``graph_rewrite`` visits every node once, operands first, and rewrites it until no rule matches:

    rules: x + 0 -> x,  --x -> x          -(-(x + 0))   ->   x

An unchanged graph comes back as the same object. The result of a rule is visited in turn, so
rules need not build simplified nodes. New nodes get the locations of the node that they replace.

>>> from fnx.core.ir import build, dtypes
>>> x = build.param(0, dtypes.int32, (3,))
>>> rules = RuleSet([RewriteRule(var("a") + 0, var("a"), name="add zero"),
...                  RewriteRule(-(-var("a")), var("a"))])
>>> [y] = graph_rewrite([build.neg(build.neg(build.add(x, build.const_like(x, 0))))], rules)
>>> y is x, rules.counts["add zero"]
(True, 1)

Patterns are written with Python operators. A pattern matches a node and captures parts of it by
name. Equal names must match the same node. Operands of a commutative op match in either order. A
Python number matches a constant of that value, bit for bit (-0.0 is not 0.0), also if it is
expanded to a shape.

>>> x, y = build.param(0, dtypes.float32, (3,)), build.param(1, dtypes.float32, (3,))
>>> match(var("a") * 1.0, build.mul(build.const_like(x, 1.0), x))["a"] is x
True
>>> match(var("a") * var("a"), build.mul(x, y)) is None
True
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fnx.core.ir import build, ops
from fnx.core.ir.expr import Operators
from fnx.core.ir.ops import FUNCTION, OPS, Op
from fnx.core.ir.uop import UOp, copy_locs, current_loc, joint_location, toposort
from fnx.core.support.errors import FnxError, SpecError

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
    if pattern.dtype_kinds:
        kind = node.dtype.kind
        letter = "i" if kind == "uint" else kind[0]
        if letter not in pattern.dtype_kinds:
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


# ---- rules --------------------------------------------------------------------------------------


_MAX_REWRITES = 200  # rewrites of one node, after which rules are assumed to cycle


class RewriteRule:
    """A rule: if ``pattern`` matches and ``guard`` holds, ``replacement`` replaces the node.

    Args:
        pattern: the pattern to match.
        replacement: a pattern over the same names, or a function of the captures (by name)
            that returns a node, or None if the rule does not apply after all.
        guard: a condition on the captures.
        name: the name of the rule in counts and errors.
        required_ops: ops one of which an operand must have, a quick test before matching; by
            default derived from the pattern if it names its operands.
    """

    __slots__ = ("pattern", "replacement", "guard", "name", "loc", "required_ops")

    def __init__(self, pattern: UPat, replacement: UPat | Callable[..., UOp | None],
                 guard: Callable[..., bool] | None = None, name: str = "",
                 required_ops: frozenset[Op] | None = None) -> None:
        frame = sys._getframe(1)
        self.loc = frame.f_code.co_filename, frame.f_lineno
        self.pattern, self.replacement, self.guard = pattern, replacement, guard
        self.name = name or f"line {self.loc[1]}"
        self.required_ops = required_ops or _required_ops(pattern)

    def __repr__(self) -> str:
        return f"Rule({self.name!r}, {self.loc[0]}:{self.loc[1]})"

    def apply(self, node: UOp) -> UOp | None:
        """Return the replacement of ``node``, or None."""
        captures = match(self.pattern, node)
        if captures is None or (self.guard is not None and not self.guard(**captures)):
            return None
        loc = current_loc.loc
        if node.locs:
            current_loc.loc = joint_location(node)
        try:
            new = build_from(self.replacement, captures, node) \
                if isinstance(self.replacement, UPat) else self.replacement(**captures)
        finally:
            current_loc.loc = loc
        if new is None or new is node:
            return None
        if new.dtype is not node.dtype or new.shape != node.shape:
            raise SpecError(f"{self}: expected {node.dtype}{list(node.shape)}, got {new}")
        # x of x * 1 is made by its own line alone
        return new if new.locs and any(new is x for x in captures.values()) else \
            copy_locs(new, node)


def _required_ops(pattern: UPat) -> frozenset[Op] | None:
    """Return ops one of which an operand must have for a match, or None if unknown."""
    known = [s.root_ops() for s in pattern.src or ()]
    return min((k for k in known if k is not None), key=len, default=None)


class RuleSet:
    """Rules by the op of their root, tried in order. ``counts`` counts applications by rule."""

    def __init__(self, rules: Iterable[RewriteRule]) -> None:
        self.rules = tuple(rules)
        self.counts: Counter[str] = Counter()
        self.by_op: dict[Op, list[RewriteRule]] = {}
        for rule in self.rules:
            for op in rule.pattern.root_ops() or OPS.values():
                self.by_op.setdefault(op, []).append(rule)

    def __add__(self, other: RuleSet) -> RuleSet:
        return RuleSet((*self.rules, *other.rules))

    def apply(self, node: UOp) -> UOp | None:
        """Apply the first rule that matches; return the replacement of ``node``, or None."""
        rules = self.by_op.get(node.op)
        if rules is None:
            return None
        below = {s.op for s in node.src}
        for rule in rules:
            if rule.required_ops is None or not rule.required_ops.isdisjoint(below):
                new = rule.apply(node)
                if new is not None:
                    self.counts[rule.name] += 1
                    return new
        return None


def graph_rewrite(roots: Iterable[UOp], rules: RuleSet,
                  known: Mapping[UOp, UOp] | None = None) -> list[UOp]:
    """Rewrite graphs bottom up to a fixed point. Does not enter a FUNCTION.

    Args:
        roots: the graphs.
        rules: the rules to apply.
        known: replacements of nodes that are known beforehand.

    Raises:
        SpecError: rules cycle, or a rule changes a dtype or shape.
    """
    roots = list(roots)
    done: dict[UOp, UOp] = dict(known or {})
    by_op = rules.by_op
    for node in toposort(roots, stop=done.__contains__ if done else None):
        if node in done:
            continue
        changed = False
        if node.op is not FUNCTION:
            for s in node.src:
                if done[s] is not s:
                    changed = True
                    break
        if changed:
            _rewrite_to_fixpoint(node, rules, done)
        elif node.op in by_op and (new := rules.apply(node)) is not None:
            _rewrite_to_fixpoint(node, rules, done, new)
        else:
            done[node] = node
    return [done[r] for r in roots]


def _rewrite_to_fixpoint(root: UOp, rules: RuleSet, done: dict[UOp, UOp],
                         replacement: UOp | None = None) -> None:
    """Rewrite ``root`` to a fixed point, into ``done``; ``replacement`` is its first
    replacement."""
    stack = [(root, root if replacement is None else replacement, 0)]
    while stack:
        node, current, count = stack.pop()
        if current is not node and current in done:
            done[node] = done[current]
            continue
        waiting = [s for s in current.src if s not in done] if current.op is not FUNCTION else []
        if waiting:
            if node in waiting:
                raise SpecError(f"{rules.counts.most_common(3)}: a rule puts {node} below itself")
            stack.append((node, current, count))
            stack += [(s, s, 0) for s in waiting]
            continue
        rebuilt = current if current.op is FUNCTION else \
            current.with_operands(tuple([done[s] for s in current.src]))
        if rebuilt in done:
            done[node] = done[current] = done[rebuilt]
            continue
        new = rules.apply(rebuilt)
        if new is None:
            done[node] = done[current] = done[rebuilt] = rebuilt
        elif count == _MAX_REWRITES:
            raise SpecError(f"rules run in a circle at {rebuilt}: {rules.counts.most_common(5)}")
        else:
            stack.append((node, new, count + 1))
