"""A jaxpr as text, in the format of JAX.

>>> import fnx
>>> import fnx.numpy as jnp
>>> print(fnx.make_jaxpr(lambda x: jnp.sin(x) * 2.0)(jnp.ones(3)))
{ lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) }

Variables get their names in the order in which they are printed. Jaxprs that occur several times,
and long ones, are printed in front, by a name.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fnx.core.array.abstract_values import short_name
from fnx.core.array.array import Array
from fnx.core.support.process import lazy_import
from fnx.jaxprs.layout import Doc, brk, comment, concat, group, join, layout, nest, text
from fnx.jaxprs.syntax import (
    Atom,
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    jaxprs_in_params,
)

references = lazy_import("fnx.jaxprs.references")

MAX_INLINE = 10  # equations of a jaxpr that is printed in place
_DIGITS = "abcdefghijklmnopqrstuvwxyz"
# params that are not printed where they have these values: they say nothing
_TRIVIAL: Mapping[str, Any] = {
    "accuracy": None, "out_dtype": None, "precision": None, "donated_invars": (),
    "ctx_mesh": None, "keep_unused": False, "compiler_options_kvs": (), "num_consts": 0}
_ALWAYS_HIDDEN = {
    "broadcast_in_dim": ("shape", "sharding"), "convert_element_type": ("sharding",),
    "dot_general": ("out_sharding",),
    "jit": ("inline", "in_shardings", "out_shardings", "in_layouts", "out_layouts"),
    "scan": ("_split_transpose", "linear"), "custom_vjp_call": ("out_trees",),
    "custom_jvp_call": (), "debug_print": ("callback",), "device_put": ("call", "name")}


class Names:
    """The names of variables and of shared jaxprs in one text."""

    def __init__(self, source_info: bool = False, name_stack: bool = False) -> None:
        self.source_info, self.name_stack = source_info, name_stack
        self.of_vars: dict[Var, str] = {}
        self.of_jaxprs: dict[Jaxpr, str] = {}
        self.count = 0

    def of(self, v: Var) -> str:
        """Return the name of a variable, a new one if it has none."""
        if isinstance(v, DropVar):
            return "_"
        if v not in self.of_vars:
            taken = self.of_jaxprs.values()
            while (name := _letters(self.count)) in taken:
                self.count += 1
            self.count += 1
            self.of_vars[v] = name
        return self.of_vars[v]

    def alias(self, inner: Sequence[Atom], outer: Sequence[Atom]) -> None:
        """Name the variables of a called jaxpr like what they stand for."""
        used: set[Var] = set()
        if len(inner) != len(outer):
            return
        for v, like in zip(inner, outer):
            if isinstance(v, Var) and isinstance(like, Var) and like not in used \
                    and v not in self.of_vars:
                used.add(like)
                self.of_vars[v] = self.of(like)


def _letters(i: int) -> str:
    """Return the i-th of a, b, ..., z, ba, bb, ...

    >>> _letters(0), _letters(27)
    ('a', 'bb')
    """
    name = ""
    while i or not name:
        i, digit = divmod(i, len(_DIGITS))
        name = _DIGITS[digit] + name
    return name


def short_type(aval: Any) -> str:
    """Return dtype and shape as in ``f32[3,4]``, and of a reference as in ``Ref{f32[3,4]}``."""
    inner = getattr(aval, "inner_aval", None)
    if inner is not None:
        return f"Ref{{{short_type(inner)}}}"
    return f"{short_name(aval.dtype)}[{','.join(map(str, aval.shape))}]"


def format_jaxpr(jaxpr: Jaxpr, source_info: bool = False, name_stack: bool = False) -> str:
    """Return a jaxpr as text; each equation with its line and the named parts it is in, if asked
    for."""
    names = Names(source_info, name_stack)
    docs: list[Doc] = []
    for name, shared in _shared_jaxprs(jaxpr):
        names.of_jaxprs[shared] = name
        docs.append(concat([text(f"let {name} = "), _skeleton(shared, names), text(" in"), brk()]))
    return layout(concat([*docs, _skeleton(jaxpr, names)]))


def format_eqn(eqn: JaxprEqn, names: Names | None = None) -> str:
    """Return an equation as text; ``names``: those of the variables so far."""
    return layout(_eqn(eqn, names or Names()))


def _shared_jaxprs(top: Jaxpr) -> list[tuple[str, Jaxpr]]:
    """Return the jaxprs to print in front, with their names."""
    names: dict[Jaxpr, str] = {}
    counts: Counter[Jaxpr] = Counter()
    waiting = deque([top])
    while waiting:
        jaxpr = waiting.popleft()
        counts[jaxpr] += 1 + (jaxpr is not top and len(jaxpr.eqns) > MAX_INLINE)
        for eqn in jaxpr.eqns:
            name = eqn.params.get("name")
            for inner in jaxprs_in_params(eqn.params):
                waiting.append(inner)
                if name is not None:
                    names.setdefault(inner, str(name).strip("<>"))
    shared = [j for j, n in counts.items() if n > 1]
    used: Counter[str] = Counter()
    out = []
    for jaxpr in shared:
        name = names.get(jaxpr, "jaxpr")
        used[name] += 1
        out.append((name if used[name] == 1 else f"{name}{used[name] - 1}", jaxpr))
    return out


def _skeleton(jaxpr: Jaxpr, names: Names) -> Doc:
    constvars, invars = _vars(jaxpr.constvars, names, True), _vars(jaxpr.invars, names, True)
    eqns = join(brk("; "), [concat([_eqn(e, names), _comment(e, names)]) for e in jaxpr.eqns])
    outvars = concat([text("("), _vars(jaxpr.outvars, names, separator=","),
                      text(",)" if len(jaxpr.outvars) == 1 else ")")])
    return group(concat([nest(2, concat([
        text("{ lambda "), constvars, text("; "), invars, text(". let"),
        nest(2, concat([brk(), eqns])), brk(), text("in "), outvars])), text(" }")]))


def _jaxpr(jaxpr: Jaxpr, names: Names) -> Doc:
    name = names.of_jaxprs.get(jaxpr)
    return text(name) if name else _skeleton(jaxpr, names)


def _vars(atoms: Iterable[Atom], names: Names, types: bool = False, separator: str = "") -> Doc:
    return nest(2, group(join(concat([text(separator), group(brk())]), [
        text(_atom(v, names) + (f":{short_type(v.aval)}" if types else "")) for v in atoms])))


def _atom(v: Atom, names: Names) -> str:
    if isinstance(v, Literal):
        return "<callback>" if type(v.val) is Array else f"{v.val}:{short_type(v.aval)}"
    return names.of(v)


def _comment(eqn: JaxprEqn, names: Names) -> Doc:
    info = eqn.source_info
    parts = [*[repr(info)] * names.source_info, *[f"[{info.name_stack}]"] * names.name_stack]
    return comment(f" # {' '.join(parts)}") if parts else text("")


def _eqn(eqn: JaxprEqn, names: Names) -> Doc:
    params = printed_params(eqn)
    if eqn.primitive.name == "jit" and (inner := eqn.params.get("jaxpr")) is not None \
            and inner.jaxpr not in names.of_jaxprs:
        names.alias(inner.jaxpr.invars, eqn.invars)
        names.alias(inner.jaxpr.outvars, eqn.outvars)
    if eqn.primitive.ref_primitive and eqn.primitive.name not in ("new_ref", "freeze"):
        return text(references.access_text(
            eqn, lambda v: _atom(v, names), lambda v: f"{names.of(v)}:{short_type(v.aval)}"))
    lhs = [_vars(eqn.outvars, names, True), text(" = ")] if eqn.outvars else []
    return concat([*lhs, text(eqn.primitive.name), _params(params, names), text(" "),
                   _vars(eqn.invars, names)])


def printed_params(eqn: JaxprEqn) -> dict[str, Any]:
    """Return the params of an equation that are printed, in order."""
    name, params = eqn.primitive.name, dict(eqn.params)
    for key in _ALWAYS_HIDDEN.get(name, ()):
        params.pop(key, None)
    for key, value in _TRIVIAL.items():
        if key in params and (params[key] == value or
                              key == "donated_invars" and not any(params[key])):
            if key != "num_consts" or name.startswith("custom_"):
                del params[key]
    if name == "dot_general":
        (a, b), (c, d) = params["dimension_numbers"]
        params["dimension_numbers"] = (list(a), list(b)), (list(c), list(d))
    if name == "broadcast_in_dim" and not params.get("broadcast_dimensions"):
        params.pop("broadcast_dimensions", None)
    for long, short in (("jvp_jaxpr_fun", "jvp"), ("fwd_jaxpr_thunk", "fwd")):
        if long in params:
            params[short] = params.pop(long)
    if name.startswith("custom_") and "call_jaxpr" in params:
        label = params["call_jaxpr"].jaxpr.debug_info.func_name
        return {"name": label, **dict(sorted(params.items()))}
    ordered = dict(sorted(params.items()))
    return {"name": ordered.pop("name"), **ordered} if name == "jit" and "name" in ordered \
        else ordered


def _params(params: Mapping[str, Any], names: Names) -> Doc:
    if not params:
        return text("")
    pairs = [concat([text(f"{key}="), _value(value, names)]) for key, value in params.items()]
    return group(concat([nest(2, concat([text("["), brk(""), join(brk(), pairs)])), brk(""),
                         text("]")]))


def _value(value: Any, names: Names) -> Doc:
    if isinstance(value, ClosedJaxpr):
        return _jaxpr(value.jaxpr, names)
    if isinstance(value, Jaxpr):
        return _jaxpr(value, names)
    if type(value) is tuple and value and all(isinstance(j, Jaxpr | ClosedJaxpr) for j in value):
        inner = [_value(j, names) for j in value]
        return group(concat([nest(2, concat([text("("), brk(""), join(brk(), inner)])), brk(""),
                             text(")")]))
    return text(re.sub(r" at 0x([0-9a-fA-F]+)", lambda m: " at 0x" + "X" * len(m[1]), str(value)))
