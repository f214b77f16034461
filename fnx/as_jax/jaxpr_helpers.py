"""Functions on jaxprs that JAX's inside has, and libraries and tests call.

>>> import fnx
>>> closed = fnx.make_jaxpr(lambda x, y: (x * 2.0, x * y))(1.0, 1.0)
>>> known, unknown, which, residuals = partial_eval_jaxpr_nounits(closed, [False, True])
>>> print(known, unknown, which, residuals, sep="\\n")
{ lambda ; a:f32[]. let b:f32[] = mul a 2.0:f32[] in (b, a) }
{ lambda ; a:f32[] b:f32[]. let c:f32[] = mul a b in (c,) }
[False, True]
[ShapedArray(float32[], weak_type=True)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fnx.as_jax import pretty_printer as pp
from fnx.jaxprs.dead_code import dce_jaxpr
from fnx.jaxprs.syntax import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var


def _flags(flags: bool | Sequence[bool], n: int) -> list[bool]:
    return [flags] * n if isinstance(flags, bool) else list(flags)


def partial_eval_jaxpr_nounits(jaxpr: ClosedJaxpr, unknowns: Sequence[bool],
                               instantiate: bool | Sequence[bool] = False
                               ) -> tuple[ClosedJaxpr, ClosedJaxpr, list[bool], list[Any]]:
    """Split a jaxpr into what known arguments decide, and the rest.

    Args:
        jaxpr: the jaxpr.
        unknowns: which arguments are unknown.
        instantiate: which results are to be of the second part in any case.

    Returns:
        The jaxpr of the known results and of the values that the rest needs (residuals); the jaxpr
        of the rest, of these and of the unknown arguments; which results are of the rest; and the
        types of the residuals.
    """
    inner = jaxpr.jaxpr
    unknown = {v for v, flag in zip(inner.invars, unknowns) if flag}
    parts: tuple[list[JaxprEqn], list[JaxprEqn]] = [], []
    for eqn in inner.eqns:
        late = any(isinstance(v, Var) and v in unknown for v in eqn.invars)
        parts[late].append(eqn)
        if late:
            unknown.update(eqn.outvars)
    forced = _flags(instantiate, len(inner.outvars))
    which = [flag or isinstance(v, Var) and v in unknown
             for v, flag in zip(inner.outvars, forced)]
    late_outs = [v for v, flag in zip(inner.outvars, which) if flag]
    bound = {v for eqn in parts[True] for v in eqn.outvars}
    read = [v for eqn in parts[True] for v in eqn.invars] + late_outs
    residuals = list(dict.fromkeys(
        v for v in read if isinstance(v, Var) and v not in unknown and v not in bound))
    outs = [v for v, flag in zip(inner.outvars, which) if not flag]
    consts = dict(zip(inner.constvars, jaxpr.consts))
    known = inner.replace(
        invars=[v for v, flag in zip(inner.invars, unknowns) if not flag],
        outvars=[*outs, *residuals], eqns=parts[False])
    rest = Jaxpr([], [*residuals, *[v for v, flag in zip(inner.invars, unknowns) if flag]],
                 late_outs, parts[True], {e for eqn in parts[True] for e in eqn.effects},
                 inner.debug_info)
    return (ClosedJaxpr(known, list(consts.values())), ClosedJaxpr(rest, ()), which,
            [v.aval for v in residuals])


def prune_jaxpr_outputs(jaxpr: Jaxpr, used_outputs: Sequence[bool]) -> Jaxpr:
    """Return a jaxpr without some results, and without what only these need."""
    pruned, _ = dce_jaxpr(jaxpr, list(used_outputs), instantiate=True)
    return pruned


def move_binders_to_front(closed_jaxpr: ClosedJaxpr, to_move: Sequence[bool]) -> ClosedJaxpr:
    """Return a jaxpr with some arguments before the others."""
    jaxpr = closed_jaxpr.jaxpr
    first = [v for v, flag in zip(jaxpr.invars, to_move) if flag]
    rest = [v for v, flag in zip(jaxpr.invars, to_move) if not flag]
    return closed_jaxpr.replace(jaxpr=jaxpr.replace(invars=[*first, *rest]))


def move_binders_to_back(closed_jaxpr: ClosedJaxpr, to_move: Sequence[bool]) -> ClosedJaxpr:
    """Return a jaxpr with some arguments after the others."""
    return move_binders_to_front(closed_jaxpr, [not flag for flag in to_move])


def has_effects(eqn: JaxprEqn) -> bool:
    """Return whether an equation has effects."""
    return bool(eqn.effects)


def last_used(jaxpr: Jaxpr) -> dict[Var, JaxprEqn | None]:
    """Return the equation that reads each variable last; of a result, None."""
    last: dict[Var, JaxprEqn | None] = {
        v: None for v in jaxpr.outvars if not isinstance(v, Literal)}
    for eqn in reversed(jaxpr.eqns):
        for v in eqn.invars:
            if not isinstance(v, Literal):
                last.setdefault(v, eqn)
    return last


def clean_up_dead_vars(eqn: JaxprEqn, env: dict[Var, Any],
                       last_used: dict[Var, JaxprEqn | None]) -> None:
    """Remove from an environment what an equation reads last."""
    for v in {v for v in eqn.invars if not isinstance(v, Literal)}:
        if last_used[v] is eqn:
            del env[v]


OF_PARTIAL_EVAL = {f.__name__: f for f in (
    partial_eval_jaxpr_nounits, prune_jaxpr_outputs, move_binders_to_front, move_binders_to_back,
    has_effects)}
class JaxprPpContext:
    """Names that texts of several jaxprs share; here each text has its own."""


class JaxprPpSettings(NamedTuple):
    """What the text of a jaxpr shows."""

    print_shapes: bool = True
    source_info: bool = False
    name_stack: bool = False
    custom_pp_eqn_rules: bool = True
    print_effects: bool = False


def pp_jaxpr(jaxpr: Jaxpr, context: JaxprPpContext, settings: JaxprPpSettings) -> pp.Doc:
    """Return the text of a jaxpr as a document.

    >>> from fnx.jaxprs.make import make_jaxpr
    >>> jaxpr = make_jaxpr(lambda x: x)(1.0).jaxpr
    >>> pp_jaxpr(jaxpr, JaxprPpContext(), JaxprPpSettings()).format()
    '{ lambda ; a:f32[]. let  in (a,) }'
    """
    return pp.text(jaxpr.pretty_print(source_info=settings.source_info,
                                      name_stack=settings.name_stack))


OF_CORE = {"last_used": last_used, "clean_up_dead_vars": clean_up_dead_vars,
           "JaxprPpContext": JaxprPpContext, "JaxprPpSettings": JaxprPpSettings,
           "pp_jaxpr": pp_jaxpr}
