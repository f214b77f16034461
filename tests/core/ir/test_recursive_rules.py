"""Rules that call their own function: which bodies are valid only inside them."""

from __future__ import annotations

from fnx.core.ir import build, build_calls, dtypes, op_args
from fnx.core.ir.recursive_rules import is_rule_local

F = dtypes.float32


def test_each_body_is_looked_into() -> None:
    """The first branch calls the primal again; the search also continues into the second."""
    x, which = build.param(0, F, (7,)), build.param(1, dtypes.int32, ())
    primal = build.function([build.neg(x)], 1, "f")
    inner, = build_calls.custom([primal],
                                op_args.Custom("f", (((7,), F),), (), 0, recursion_depth=0), [x])
    branches = [build.function([inner], 1, "again"), build.function([build.mul(x, x)], 1, "not")]
    assert is_rule_local(build_calls.cond(branches, which, [x])[0].src[0])
    assert not is_rule_local(build_calls.cond(branches[1:], which, [x])[0].src[0])
