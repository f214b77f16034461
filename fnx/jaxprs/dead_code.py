"""Dead code elimination: drop equations whose results nobody reads, also in jaxprs in params."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.support.errors import ArgumentError
from fnx.jaxprs import bodies
from fnx.jaxprs.primitive import Primitive, built_in
from fnx.jaxprs.syntax import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Var

Rule = Callable[[list[bool], JaxprEqn], tuple[list[bool], "JaxprEqn | None"]]

dce_rules: dict[Primitive, Rule] = {}
# fnx differentiates graphs, so that nothing reads these
custom_partial_eval_rules: dict[Primitive, Callable[..., Any]] = {}
partial_eval_jaxpr_custom_rules: dict[Primitive, Callable[..., Any]] = {}


def dce_jaxpr(jaxpr: Jaxpr, used_outputs: bool | Sequence[bool],
              instantiate: bool | Sequence[bool] = False) -> tuple[Jaxpr, list[bool]]:
    """Drop what does not contribute to some results.

    Args:
        jaxpr: a jaxpr.
        used_outputs: which results are used.
        instantiate: which arguments are kept in any case.

    Returns:
        The jaxpr of the used results and arguments, and which arguments are used.

    Raises:
        ArgumentError: another number of flags than of results or arguments.
    """
    outs = _flags(used_outputs, len(jaxpr.outvars), "used_outputs")
    forced = _flags(instantiate, len(jaxpr.invars), "instantiate")
    live = {v for v, used in zip(jaxpr.outvars, outs) if used and isinstance(v, Var)}
    eqns: list[JaxprEqn] = []
    for eqn in reversed(jaxpr.eqns):
        used = [v in live for v in eqn.outvars]
        if not any(used) and not eqn.effects:
            continue
        rule = dce_rules.get(eqn.primitive)
        ins: list[bool]
        new: JaxprEqn | None
        ins, new = rule(used, eqn) if rule is not None else ([True] * len(eqn.invars), eqn)
        if new is not None:
            new = new.replace(outvars=[v if v in live or isinstance(v, DropVar) else
                                       DropVar(v.aval) for v in new.outvars])
            eqns.append(new)
        live.update(v for v, u in zip(eqn.invars, ins) if u and isinstance(v, Var))
    used_inputs = [v in live or k for v, k in zip(jaxpr.invars, forced)]
    return jaxpr.replace(
        invars=[v for v, u in zip(jaxpr.invars, used_inputs) if u],
        outvars=[v for v, u in zip(jaxpr.outvars, outs) if u], eqns=eqns[::-1],
        effects={e for eqn in eqns for e in eqn.effects}), used_inputs


def dce_jaxpr_consts(jaxpr: Jaxpr, used_outputs: Sequence[bool],
                     instantiate: bool | Sequence[bool] = False
                     ) -> tuple[Jaxpr, list[bool], list[bool]]:
    """Drop what does not contribute to some results, constants too.

    Args:
        jaxpr: a jaxpr.
        used_outputs: which results are used.
        instantiate: which arguments are kept in any case.

    Returns:
        The jaxpr, which constants are used, and which arguments.
    """
    n = len(jaxpr.constvars)
    forced = _flags(instantiate, len(jaxpr.invars), "instantiate")
    moved = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    new, used = dce_jaxpr(moved, used_outputs, [*[False] * n, *forced])
    consts = sum(used[:n])
    return new.replace(constvars=new.invars[:consts], invars=new.invars[consts:]), used[:n], \
        used[n:]


def _flags(value: bool | Sequence[bool], n: int, what: str) -> list[bool]:
    flags = [value] * n if isinstance(value, bool) else list(value)
    if len(flags) != n:
        raise ArgumentError(f"dce_jaxpr: expected {n} flags as {what}, got {len(flags)}")
    return flags


# ---- equations with jaxprs ----------------------------------------------------------------------


def dce_jaxpr_call_rule(used_outputs: list[bool], eqn: JaxprEqn
                        ) -> tuple[list[bool], JaxprEqn | None]:
    """Drop dead code in the param ``call_jaxpr`` of an equation, which is a Jaxpr."""
    return _call_rule("call_jaxpr", used_outputs, eqn)


def dce_jaxpr_closed_call_rule(used_outputs: list[bool], eqn: JaxprEqn
                               ) -> tuple[list[bool], JaxprEqn | None]:
    """Drop dead code in the param ``call_jaxpr`` of an equation, which is a ClosedJaxpr."""
    return _call_rule("call_jaxpr", used_outputs, eqn)


def _call_rule(param: str, used_outputs: list[bool], eqn: JaxprEqn
               ) -> tuple[list[bool], JaxprEqn | None]:
    inner = eqn.params[param]
    closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    if not any(used_outputs) and not closed.effects:
        return [False] * len(eqn.invars), None
    new, used_inputs = dce_jaxpr(closed.jaxpr, used_outputs)
    live_jaxpr = ClosedJaxpr(new, closed.consts) if isinstance(inner, ClosedJaxpr) else new
    params = {**eqn.params, param: live_jaxpr}
    for per_input in ("donated_invars", "in_layouts", "in_shardings"):
        if len(params.get(per_input, ())) == len(used_inputs):
            params[per_input] = tuple([x for x, u in zip(params[per_input], used_inputs) if u])
    return used_inputs, eqn.replace(
        invars=[v for v, u in zip(eqn.invars, used_inputs) if u],
        outvars=[v for v, u in zip(eqn.outvars, used_outputs) if u], params=params,
        effects=new.effects)


def _cond_rule(used_outputs: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    branches = eqn.params["branches"]
    used_by_branch = [dce_jaxpr(b.jaxpr, used_outputs)[1] for b in branches]
    used_inputs = [any(flags) for flags in zip(*used_by_branch)] if eqn.invars[1:] else []
    new = tuple([ClosedJaxpr(dce_jaxpr(b.jaxpr, used_outputs, used_inputs)[0], b.consts)
                 for b in branches])
    return [True, *used_inputs], eqn.replace(
        invars=[eqn.invars[0], *[v for v, u in zip(eqn.invars[1:], used_inputs) if u]],
        outvars=[v for v, u in zip(eqn.outvars, used_outputs) if u],
        params={**eqn.params, "branches": new})


def _scan_rule(used_outputs: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    params, closed = eqn.params, eqn.params["jaxpr"]
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    carries, ys = used_outputs[:n_carry], used_outputs[n_carry:]
    while True:
        new, used = dce_jaxpr(closed.jaxpr, [*carries, *ys])
        grown = [a or b for a, b in zip(carries, used[n_consts:n_consts + n_carry])]
        if grown == carries:
            break
        carries = grown
    used_inputs = [*used[:n_consts], *carries, *used[n_consts + n_carry:]]
    new = dce_jaxpr(closed.jaxpr, [*carries, *ys], used_inputs)[0]
    outs = [*carries, *ys]
    return used_inputs, eqn.replace(
        invars=[v for v, u in zip(eqn.invars, used_inputs) if u],
        outvars=[v for v, u in zip(eqn.outvars, outs) if u],
        params={**params, "jaxpr": ClosedJaxpr(new, closed.consts),
                "num_consts": sum(used_inputs[:n_consts]), "num_carry": sum(carries)})


TABLE = bodies  # which defines these primitives
dce_rules[built_in("jit")] = lambda used, eqn: _call_rule("jaxpr", used, eqn)
dce_rules[built_in("remat2")] = lambda used, eqn: _call_rule("jaxpr", used, eqn)
dce_rules[built_in("cond")] = _cond_rule
dce_rules[built_in("scan")] = _scan_rule
