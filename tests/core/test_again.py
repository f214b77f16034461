"""Rules that call the function they belong to: what means something only inside them."""

from __future__ import annotations

from fnx.core import build, build_calls, dtypes, op_args
from fnx.core.recursive_rules import is_rule_local

F = dtypes.float32


def test_each_body_is_looked_into() -> None:
    """The first branch calls again; the second is asked for its depth all the same."""
    x, which = build.param(0, F, (7,)), build.param(1, dtypes.int32, ())
    primal = build.function([build.neg(x)], 1, "f")
    inner, = build_calls.custom([primal], op_args.Custom("f", (((7,), F),), (), 0, again=0), [x])
    branches = [build.function([inner], 1, "again"), build.function([build.mul(x, x)], 1, "not")]
    assert is_rule_local(build_calls.cond(branches, which, [x])[0].src[0])
    assert not is_rule_local(build_calls.cond(branches[1:], which, [x])[0].src[0])
