"""Dead code elimination of jaxprs, under the names of ``jax.interpreters.partial_eval``.

>>> import fnx
>>> jaxpr = fnx.make_jaxpr(lambda x, y: (x + 1.0, y * 2.0))(1.0, 1.0).jaxpr
>>> print(*dce_jaxpr(jaxpr, [True, False]))
{ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) } [True, False]
"""

from __future__ import annotations

from fnx.jaxprs.dead_code import (
    custom_partial_eval_rules,
    dce_jaxpr,
    dce_jaxpr_call_rule,
    dce_jaxpr_closed_call_rule,
    dce_jaxpr_consts,
    dce_rules,
    partial_eval_jaxpr_custom_rules,
)

__all__ = ["custom_partial_eval_rules", "dce_jaxpr", "dce_jaxpr_call_rule",
           "dce_jaxpr_closed_call_rule", "dce_jaxpr_consts", "dce_rules",
           "partial_eval_jaxpr_custom_rules"]
