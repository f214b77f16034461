"""Recursive custom rules: rules that call the function they belong to.

    f = custom(jvp: (x, t) -> f(x), cos(x) * t)

The ``f`` in the rule has the same rule, so it cannot be written out. Instead it is a CUSTOM
without rules whose ``recursion_depth`` is the number of enclosing rules to skip. When a rule is
applied, such nodes are replaced by the CUSTOM that they stand for:

>>> from fnx.core.ir import build, build_calls, dtypes, op_args
>>> x, t = (build.param(i, dtypes.float32, ()) for i in (0, 1))
>>> body, outs = build.function([build.neg(x)], 1, "f"), (((), dtypes.float32),)
>>> inner, = build_calls.custom([body], op_args.Custom("f", outs, (), 0, recursion_depth=0), [x])
>>> rule = build.function([inner, build.neg(t)], 2)
>>> y, = build_calls.custom([body, rule], op_args.Custom("f", outs, ("jvp",), 0), [x])
>>> unroll_recursion(y.src[0], rule).src[0] is y, is_recursive(body)
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import accessors, ops
from fnx.core.ir.derivations import analysis
from fnx.core.ir.uop import UOp, rebuild, toposort


def is_recursive(fn: UOp) -> bool:
    """Return whether a FUNCTION calls the function whose rule it is, or one further out."""
    return _enclosing_rules(fn) > 0


@analysis
def _enclosing_rules(fn: UOp) -> int:
    """Return how many enclosing rules a FUNCTION refers to."""
    return max([_rule_depth(n) for n in toposort(fn.src) if n.op in ops.HIGHER_ORDER], default=0)


def is_rule_local(node: UOp) -> bool:
    """Return whether a structural node has a meaning only inside a rule."""
    # a list, as _level reads each
    recursive = [is_recursive(body) for body in accessors.bodies(node)]
    return any(recursive) and _rule_depth(node) > 0 or node.op is ops.CUSTOM and \
        node.arg.recursion_depth >= 0


def _rule_depth(node: UOp) -> int:
    depths = [_enclosing_rules(body) for body in accessors.bodies(node)]
    if node.op is ops.CUSTOM:
        depth: int = node.arg.recursion_depth
        depths = [depth + 1, depths[0], *[n - 1 for n in depths[1:]]]
    return max(depths, default=0)


def unroll_recursion(custom: UOp, rule: UOp) -> UOp:
    """Return a rule of a CUSTOM with the recursive calls replaced by CUSTOMs that have rules."""
    return replace_recursive_calls(
        rule, lambda src: custom.replace(src=(*accessors.bodies(custom), *src[1:])))


def replace_recursive_calls(rule: UOp, visit: Callable[[tuple[UOp, ...]], UOp | None],
                            level: int = 0) -> UOp:
    """Replace each recursive call in a rule by ``visit(src)``.

    If ``visit`` returns None the call stays, with the rebuilt operands. ``level`` is how many
    enclosing rules to skip.
    """
    if not is_recursive(rule):
        return rule

    def rewrite(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op not in ops.HIGHER_ORDER:
            return None
        if node.op is ops.CUSTOM and node.arg.recursion_depth == level:
            return visit(src)
        inner = [replace_recursive_calls(body, visit, level + (node.op is ops.CUSTOM and i > 0))
                 for i, body in enumerate(accessors.bodies(node))]
        return node.with_operands((*inner, *src[len(inner):]))
    return rule.with_operands(tuple(rebuild(rule.src, rewrite)))


def recursive_call_operands(rule: UOp) -> list[tuple[UOp, ...]]:
    """Return the operands of each recursive call in a rule."""
    calls: list[tuple[UOp, ...]] = []
    replace_recursive_calls(rule, lambda src: calls.append(src[1:]))
    return calls
