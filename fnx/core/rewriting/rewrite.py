"""Rewrite rules as data, and the driver that applies them.

``graph_rewrite`` visits every node once, operands first, and rewrites it until no rule matches:

    rules: x + 0 -> x,  --x -> x          -(-(x + 0))   ->   x

An unchanged graph comes back as the same object. The result of a rule is visited in turn, so
rules need not build simplified nodes. New nodes get the sites of the node that they replace.

>>> from fnx.core.ir import build, dtypes
>>> from fnx.core.rewriting.pattern import var
>>> x = build.param(0, dtypes.int32, (3,))
>>> rules = RuleSet([RewriteRule(var("a") + 0, var("a"), name="add zero"),
...                  RewriteRule(-(-var("a")), var("a"))])
>>> [y] = graph_rewrite([build.neg(build.neg(build.add(x, build.const_like(x, 0))))], rules)
>>> y is x, rules.counts["add zero"]
(True, 1)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from fnx.core.ir.ops import FUNCTION, OPS, Op
from fnx.core.ir.uop import UOp, copy_locs, current_loc, toposort
from fnx.core.rewriting.pattern import UPat, build_from, match
from fnx.core.support.errors import SpecError

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
        site = current_loc.loc
        if node.locs:
            current_loc.loc = node.locs[0]
        try:
            new = build_from(self.replacement, captures, node) \
                if isinstance(self.replacement, UPat) else self.replacement(**captures)
        finally:
            current_loc.loc = site
        if new is None or new is node:
            return None
        if new.dtype is not node.dtype or new.shape != node.shape:
            raise SpecError(f"{self}: expected {node.dtype}{list(node.shape)}, got {new}")
        return copy_locs(new, node)


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
