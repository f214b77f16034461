"""References in jaxprs: primitives that read and write them, their equations and their text.

    { lambda ; a:Ref{f32[3]} b:f32[]. let
        c:f32[] <- a[0]          get
        a[0] <- b                swap, of which the result is not read
        a[...] += d              addupdate
      in (c,) }

>>> import fnx
>>> print(fnx.make_jaxpr(lambda r, x: r.__setitem__(0, x))(fnx.new_ref([1.0, 2.0]), 3.0))
{ lambda ; a:Ref{f32[2]} b:f32[]. let a[0] <- b in () }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.core.tracing import references
from fnx.core.tracing.reference_log import Operand, ReferenceLog
from fnx.core.tracing.references import AbstractRef, Ref
from fnx.jaxprs.primitive import BuiltInPrimitive, built_in, define
from fnx.jaxprs.syntax import Effect, JaxprEqn, Var, aval_of
from fnx.jaxprs.templates import View


class RefEffect(Effect):
    """The effect of an equation on a reference.

    Args:
        ref: the variable of the reference.
    """

    def __init__(self, ref: Any) -> None:
        self.input_index = self.ref = ref

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, RefEffect) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash((type(self), self.ref))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ref})"


class ReadEffect(RefEffect):
    """A reference is read."""


class WriteEffect(RefEffect):
    """A reference is written."""


class AccumEffect(RefEffect):
    """A value is added to a reference."""


class InternalMutableArrayEffect(Effect):
    """A reference is made in the function."""


INTERNAL_EFFECT = InternalMutableArrayEffect()
_EFFECTS: dict[str, type[RefEffect]] = {"get": ReadEffect, "swap": WriteEffect,
                                        "addupdate": AccumEffect}


class Index(Record):
    """The index of an access, with Operands in the place of arrays; None: the whole array."""

    entries: tuple[Any, ...] | None

    def __repr__(self) -> str:
        return f"Index{self.entries}"


def is_access(name: str) -> bool:
    """Return whether a primitive is one of this module."""
    return name in _EFFECTS or name in ("new_ref", "freeze")


def effects_of(eqn: JaxprEqn) -> set[Effect]:
    """Return the effects of an equation of this module."""
    kind = _EFFECTS.get(eqn.primitive.name)
    return {INTERNAL_EFFECT} if kind is None else {kind(eqn.invars[0])}


def visible_effects(effects: Sequence[Effect], known: Sequence[Var]) -> set[Effect]:
    """Return the effects of a jaxpr: those on references that it makes are seen as one."""
    return {e if not isinstance(e, RefEffect) or e.ref in known else INTERNAL_EFFECT
            for e in effects}


# ---- from a trace --------------------------------------------------------------------------------


class LoggedTrace(Record):
    """The accesses of a trace as views, by the leaf of what they read.

    Attributes:
        views: the equations, in order.
        refs: the leaves that stand for references, and their types.
    """

    views: dict[UOp, View]
    refs: dict[UOp, AbstractRef]


def logged(log: ReferenceLog, operands: Sequence[UOp]) -> LoggedTrace:
    """Return the views of a log.

    Args:
        log: the log.
        operands: the nodes of its arrays.
    """
    refs = {leaf: AbstractRef(aval_of(leaf)) for leaf in log.leaves}
    nodes = iter(operands)
    views = {}
    for access in log.accesses:
        args = [next(nodes) for _ in access.operands]
        if access.ref is None:
            refs[access.result] = AbstractRef(aval_of(access.result))
            views[access.result] = View(built_in("new_ref"), args, {
                "memory_space": None, "kind": None})
            continue
        params = {} if access.kind == "freeze" else {"tree": Index(access.index)}
        views[access.result] = View(built_in(access.kind), [access.ref, *args], params)
    return LoggedTrace(views, refs)


# ---- binding ------------------------------------------------------------------------------------


class RefPrimitive(BuiltInPrimitive):
    """A primitive whose first operand or result is a reference."""

    ref_primitive = True

    def set_build(self, build: Callable[..., Any]) -> None:
        """Set the function that does it; references are not arrays of a graph."""
        self.build = self._compute = build


def _index(tree: Any, operands: Sequence[Any]) -> Any:
    entries = tree.entries if isinstance(tree, Index) else None
    if entries is None:
        return ...
    return tuple([operands[e.number] if isinstance(e, Operand) else e for e in entries])


def _get(ref: Ref, *index: Any, tree: Any = None) -> Any:
    return references.get(ref, _index(tree, index))


def _swap(ref: Ref, *operands: Any, tree: Any = None) -> Any:
    return references.swap(ref, _index(tree, operands[:-1]), operands[-1])


def _addupdate(ref: Ref, *operands: Any, tree: Any = None) -> list[Any]:
    references.addupdate(ref, _index(tree, operands[:-1]), operands[-1])
    return []


def _new_ref(x: Any, *, memory_space: Any = None, kind: Any = None) -> Ref:
    return references.new_ref(x)


_BUILDERS: dict[str, Callable[..., Any]] = {
    "get": _get, "swap": _swap, "addupdate": _addupdate, "new_ref": _new_ref,
    "freeze": references.freeze}
for _name, _build in _BUILDERS.items():
    define(_name, _build, _name == "addupdate", kind=RefPrimitive)


# ---- text ---------------------------------------------------------------------------------------


def access_text(eqn: JaxprEqn, name: Callable[[Any], str], binder: Callable[[Any], str]) -> str:
    """Return the text of an equation.

    Args:
        eqn: a ``get``, ``swap`` or ``addupdate``.
        name: returns the text of an operand.
        binder: returns the text of a result with its type.
    """
    ref, *operands = eqn.invars
    kind = eqn.primitive.name
    arrays = operands if kind == "get" else operands[:-1]
    where = f"{name(ref)}[{_index_text(eqn.params.get('tree'), ref.aval.shape, arrays, name)}]"
    if kind == "addupdate":
        return f"{where} += {name(operands[-1])}"
    result = binder(eqn.outvars[0])
    if kind == "get":
        return f"{result} <- {where}"
    return f"{where} <- {name(operands[-1])}" if result.startswith("_") else \
        f"{result}, {where} <- {where}, {name(operands[-1])}"


def _index_text(tree: Any, shape: Sequence[int], arrays: Sequence[Any],
                name: Callable[[Any], str]) -> str:
    entries = tree.entries if isinstance(tree, Index) else None
    if entries is None:
        return "..."
    texts = [_entry_text(e, arrays, name) for e in entries]
    if "..." in texts:
        at, missing = texts.index("..."), len(shape) - len(texts) + 1
        texts[at:at + 1] = [":"] * missing
    return ",".join([*texts, *[":"] * (len(shape) - len(texts))])


def _entry_text(entry: Any, arrays: Sequence[Any], name: Callable[[Any], str]) -> str:
    if isinstance(entry, Operand):
        return name(arrays[entry.number])
    if isinstance(entry, slice):
        parts = ["" if x is None else str(x) for x in (entry.start, entry.stop, entry.step)]
        return ":".join(parts[:2] if entry.step is None else parts)
    return "..." if entry is Ellipsis else str(entry)

