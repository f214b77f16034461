"""Functions with rules that a jvp rule calls on tangents.

    jvp(x, t) = f(x), f(t)      with f = custom_jvp(g)      transposed:      g's transpose

What is linear already is transposed, not differentiated again: a function with a jvp rule is its
function there, so that a rule may apply its own function to tangents. A primitive of the user's is
marked, and transposed by its own transpose rule (fnx/jaxprs/user_rules.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.ir import accessors, build, op_args, ops
from fnx.core.ir.uop import UOp, toposort


def mark_linear_calls(rule: UOp, slots: Iterable[int]) -> UOp:
    """Return a FUNCTION with the calls rewritten that depend on the PARAMs of these slots."""
    params = build.params(rule)
    linear = {params[i] for i in slots if i in params}
    new: dict[UOp, UOp] = {}
    for n in toposort(rule.src):
        src = tuple([new.get(s, s) for s in n.src])
        m = n if src == n.src else n.replace(src=src)
        if not linear.isdisjoint(n.src):
            linear.add(n)
            m = _marked(m, [s in linear for s in n.src])
        new[n] = m
    outs = tuple([new[x] for x in rule.src])
    return rule if outs == rule.src else rule.with_operands(outs)


def _marked(node: UOp, flags: Sequence[bool]) -> UOp:
    if node.op is ops.CALL and node.src[0].op is ops.FUNCTION:
        fn = mark_linear_calls(node.src[0], [i for i, linear in enumerate(flags[1:]) if linear])
        return node if fn is node.src[0] else node.replace(src=(fn, *node.src[1:]))
    if node.op is not ops.CUSTOM or node.arg.recursion_depth >= 0:
        return node
    arg, operands = node.arg, accessors.operands(node)
    if arg.rule_maker is not None:
        marked: UOp = arg.rule_maker.marked(node, flags[len(node.src) - len(operands):])
        return marked
    if "jvp" in arg.rules and not arg.n_linear:
        return node.replace(op=ops.CALL, src=(node.src[0], *operands),
                            arg=op_args.Call(arg.name, arg.outs))
    return node
