"""What equations a jaxpr has, those inside included: the names of ``jax._src.jaxpr_util``.

>>> import fnx, fnx.numpy as jnp
>>> jaxpr = fnx.make_jaxpr(lambda x: jnp.sin(jnp.sin(x)) + x)(1.0).jaxpr
>>> primitives(jaxpr)
{'sin': 2, 'add': 1}
>>> primitives_by_shape(jaxpr)
{'sin :: float32[]': 2, 'add :: float32[]': 1}
"""

from __future__ import annotations

import gzip
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from fnx.as_jax.core_helpers import summarize
from fnx.jaxprs.syntax import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var, subjaxprs

__all__ = ["all_eqns", "collect_eqns", "eqns_using_var", "eqns_using_var_with_invar_index",
           "histogram", "jaxpr_and_binder_in_params", "pprof_equation_profile", "primitives",
           "primitives_by_shape", "primitives_by_source", "source_locations", "var_defs_and_refs"]


def all_eqns(jaxpr: Jaxpr, revisit_inner_jaxprs: bool = True) -> Iterator[tuple[Jaxpr, JaxprEqn]]:
    """Yield each equation with its jaxpr; of a jaxpr that occurs several times, each time or
    once."""
    waiting, visited = [jaxpr], set[int]()
    while waiting:
        current = waiting.pop()
        yield from ((current, eqn) for eqn in current.eqns)
        inner = [x for x in subjaxprs(current) if revisit_inner_jaxprs or id(x) not in visited]
        visited.update(map(id, inner))
        waiting += reversed(inner)


def collect_eqns(jaxpr: Jaxpr, key: Callable[[JaxprEqn], Any]) -> dict[Any, list[JaxprEqn]]:
    """Return the equations by their key."""
    groups: dict[Any, list[JaxprEqn]] = defaultdict(list)
    for _, eqn in all_eqns(jaxpr):
        groups[key(eqn)].append(eqn)
    return dict(groups)


def histogram(jaxpr: Jaxpr, key: Callable[[JaxprEqn], Any],
              key_fmt: Callable[[Any], Any] = lambda x: x) -> dict[Any, int]:
    """Return how many equations have each key."""
    return {key_fmt(k): len(eqns) for k, eqns in collect_eqns(jaxpr, key).items()}


def primitives(jaxpr: Jaxpr) -> dict[str, int]:
    """Return how often each primitive occurs."""
    return histogram(jaxpr, lambda eqn: eqn.primitive.name)


def primitives_by_source(jaxpr: Jaxpr) -> dict[str, int]:
    """Return how often each primitive occurs on each line."""
    return histogram(jaxpr, lambda eqn: (eqn.primitive.name, summarize(eqn.source_info)),
                     " @ ".join)


def primitives_by_shape(jaxpr: Jaxpr) -> dict[str, int]:
    """Return how often each primitive occurs with results of which types."""
    def shape(v: Var) -> str:
        return "*" if isinstance(v, DropVar) else v.aval.str_short()
    return histogram(jaxpr, lambda eqn: (eqn.primitive.name, " ".join(map(shape, eqn.outvars))),
                     " :: ".join)


def source_locations(jaxpr: Jaxpr) -> dict[str, int]:
    """Return how many equations are of each line."""
    return histogram(jaxpr, lambda eqn: summarize(eqn.source_info))


def var_defs_and_refs(jaxpr: Jaxpr) -> Any:
    """Return each variable with the equation that defines it and those that read it; None for
    arguments and results. With jaxprs inside, a list: this one, and these."""
    defs: dict[Var, JaxprEqn | None] = dict.fromkeys([*jaxpr.constvars, *jaxpr.invars])
    refs: dict[Var, list[JaxprEqn | None]] = {v: [] for v in defs}
    for eqn in jaxpr.eqns:
        for v in eqn.invars:
            if not isinstance(v, Literal):
                refs[v].append(eqn)
        defs |= {v: eqn for v in eqn.outvars if not isinstance(v, DropVar)}
        refs |= {v: [] for v in eqn.outvars if not isinstance(v, DropVar)}
    for v in jaxpr.outvars:
        if not isinstance(v, Literal):
            refs[v].append(None)
    of_this = jaxpr, [(v, defs[v], refs[v]) for v in defs]
    inner = [var_defs_and_refs(x) for x in subjaxprs(jaxpr)]
    return [of_this, *inner] if inner else of_this


def eqns_using_var_with_invar_index(jaxpr: Jaxpr, invar: Var) -> Iterator[tuple[JaxprEqn, int]]:
    """Yield the equations that read a variable, and as which operand."""
    for eqn in jaxpr.eqns:
        if any(v is invar for v in eqn.invars):
            yield eqn, next(i for i, v in enumerate(eqn.invars) if v is invar)


def jaxpr_and_binder_in_params(params: dict[str, Any], index: int) -> Iterator[tuple[Jaxpr, Var]]:
    """Yield the jaxprs in params, and the variable of each for an operand."""
    for value in params.values():
        for x in value if isinstance(value, tuple) else (value,):
            inner = x.jaxpr if isinstance(x, ClosedJaxpr) else x
            if isinstance(inner, Jaxpr):
                if index >= len(inner.invars):
                    raise RuntimeError(f"Failed to find index {index} in jaxpr.invars while "
                                       "building report")
                yield inner, inner.invars[index]


def eqns_using_var(jaxpr: Jaxpr, invar: Var) -> Iterator[JaxprEqn]:
    """Yield the equations that read a variable; of calls, those inside."""
    for eqn, i in eqns_using_var_with_invar_index(jaxpr, invar):
        inner = list(jaxpr_and_binder_in_params(eqn.params, i))
        for called, v in inner:
            yield from eqns_using_var(called, v)
        if not inner:
            yield eqn


# ---- profiles of equations ----------------------------------------------------------------------


def pprof_equation_profile(jaxpr: Jaxpr, *, workspace_root: str | None = None) -> bytes:
    """Return how many equations each line has as a profile for pprof, compressed by gzip.

    Args:
        jaxpr: the jaxpr.
        workspace_root: names of files begin after it.

    >>> import fnx
    >>> profile = pprof_equation_profile(fnx.make_jaxpr(lambda x: x + 1)(1.0).jaxpr)
    >>> b"add" in gzip.decompress(profile)
    True
    """
    counts = Counter([(eqn.source_info.loc, eqn.primitive.name) for _, eqn in
                      all_eqns(jaxpr, revisit_inner_jaxprs=False)])
    numbers = itertools.count(1)
    strings: dict[str, int] = {"": 0}

    def text(s: str) -> int:
        return strings.setdefault(s, len(strings))

    def shorter(file: str) -> str:
        return file.rpartition(workspace_root)[2] if workspace_root else file

    lines = {loc: next(numbers) for loc in dict.fromkeys([loc for loc, _ in counts])}
    parts = [_message(1, _number(1, text("equations")) + _number(2, text("count")))]
    for (loc, name), count in counts.items():
        label = _number(1, text("primitive")) + _number(2, text(name))
        parts.append(_message(2, _number(1, lines[loc]) + _number(2, count) + _message(3, label)))
    for loc, number in lines.items():
        file, line = ("unknown", 0) if loc is None else (shorter(str(loc[0])), int(loc[1]))
        function = _number(1, number) + _number(2, text(file)) + _number(4, text(file))
        parts.append(_message(4, _number(1, number) + _message(
            4, _number(1, number) + _number(2, line))))
        parts.append(_message(5, function))
    parts.append(_number(13, text(jaxpr.debug_info.func_name or "jaxpr")))
    parts += [_message(6, s.encode()) for s in strings]
    return gzip.compress(b"".join(parts))


def _varint(n: int) -> bytes:
    """Return an integer in the format of protocol buffers: groups of 7 bits, the lowest first."""
    groups = bytearray()
    while n >= 0x80:
        groups.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*groups, n])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content
