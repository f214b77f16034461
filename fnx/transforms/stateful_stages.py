"""Stages of a jitted function that uses references: traced, lowered, compiled.

    f.trace(r, x)                  that of the function of values, f(value of r, x)
     .lower().compile()(r, x)      runs it, and writes the next value of r

What they say of arguments and results is that of the user's function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from fnx.core.array import tree
from fnx.core.tracing.state import State
from fnx.transforms.dispatch.specialized_call import SpecializedCall
from fnx.transforms.dispatch.stateful_calls import (
    ReferenceValue,
    StatefulCalls,
    values_of_references,
)
from fnx.transforms.inspect.lowering import Lowering
from fnx.transforms.stages import Compiled, TracedCall


class StatefulStages:
    """The stages of a function for one signature.

    Args:
        calls: its calls.
        f: the user's function.
        args, kwargs: the arguments.
        jaxpr: returns the jaxpr of the function, with references.
    """

    def __init__(self, calls: StatefulCalls, f: Callable[..., Any], args: tuple[Any, ...],
                 kwargs: dict[str, Any], jaxpr: Callable[[], Any]) -> None:
        self._calls, self._f, self._jaxpr = calls, f, jaxpr
        (args, kwargs), references = values_of_references((args, kwargs), f=f)
        self._inner: TracedCall = calls.on_values(
            references, lambda jitted, values: jitted.trace(*args, **kwargs, _values=values))
        self._states = calls.states

    def trace(self) -> TracedCall:
        """Return the traced stage."""
        return TracedCall(self._signed(), self._jaxpr, self.lower)

    def lower(self) -> Lowering:
        """Return the lowered stage."""
        lowering = self._inner.lower()
        compiled, signed = lowering._compiled, self._signed()
        lowering.sign(signed, lambda: StatefulCompiled(
            compiled(), signed, self._f, self._states), lowering._stablehlo,
            lowering.default_dialect)
        return lowering

    def _signed(self) -> SpecializedCall:
        """Return the signature of the user's function."""
        inner = self._inner._specialized
        closed, key = inner.cached_trace.closed, inner.key
        args, kwargs = key.in_tree.unflatten(range(len(key.avals)))
        kwargs.pop("_values")
        arguments = tree.map(lambda x: x.value if isinstance(x, ReferenceValue) else x,
                             (args, kwargs), is_leaf=lambda x: isinstance(x, ReferenceValue))
        order, in_tree = tree.flatten(arguments)
        out_tree = closed.out_tree.subtrees[0]
        outs = SimpleNamespace(out_tree=out_tree, outs=closed.outs[:out_tree.num_leaves])
        signed: SpecializedCall = inner.replace(
            function=self._f, cached_trace=SimpleNamespace(closed=outs),
            key=key._replace(in_tree=in_tree, avals=tuple([key.avals[i] for i in order])),
            donated=tuple([n for n, i in enumerate(order) if i in inner.donated]))
        return signed


class StatefulCompiled(Compiled):
    """A compiled function that uses references.

    Args:
        inner: the compiled function of values.
        signed: the signature of the user's function.
        f: the user's function.
        states: the references from outside.
    """

    def __init__(self, inner: Any, signed: SpecializedCall, f: Callable[..., Any],
                 states: Sequence[State]) -> None:
        vars(self).update(vars(inner))
        self._inner, self._specialized, self._f, self._states = inner, signed, f, states

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        (args, kwargs), references = values_of_references((args, kwargs), f=self._f)
        out, last, values = self._inner._run(
            args, {**kwargs, "_values": [state.get() for state in self._states]})
        StatefulCalls.set_values(references, self._states, last, values)
        return out
