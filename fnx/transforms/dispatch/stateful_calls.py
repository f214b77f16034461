"""Calls whose arguments or captures are references: their values are arguments and results.

    f(r, x), r a reference    ->    f(value of r, x) = (result, next value of r)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError
from fnx.core.tracing.state import Lift, State, StateUsedError

_LIFTED = "_lifted"  # an attribute of a function whose references are arguments already


class ReferenceValue:
    """The value of a reference among the arguments of a call; a pytree."""

    def __init__(self, kind: type[State], value: Any) -> None:
        self.kind, self.value = kind, value


register_pytree_node(ReferenceValue, lambda x: ((x.value,), x.kind),
                     lambda kind, values: ReferenceValue(kind, values[0]))


def values_of_references(arguments: Any, mapped: Sequence[bool] | None = None
                         ) -> tuple[Any, list[State]]:
    """Return the arguments with ReferenceValues, and the references that these stand for.

    Args:
        arguments: a pytree.
        mapped: which leaves of it are taken; by default all.

    Raises:
        ArgumentError: a reference occurs twice.
    """
    leaves, structure = tree.flatten(arguments)
    references: list[State] = []
    for i, x in enumerate(leaves):
        if isinstance(x, State) and (mapped is None or mapped[i]):
            if any(x is other for other in references):
                raise ArgumentError("expected each reference as one argument, got one twice",
                                    hint="pass it once, as two names of one value would differ")
            references.append(x)
            leaves[i] = ReferenceValue(type(x), x.get())
    return (structure.unflatten(leaves) if references else arguments), references


def on_values(f: Callable[..., Any]) -> Callable[..., tuple[Any, list[Any]]]:
    """Return a function on ReferenceValues, that also returns the last values of the references."""
    @functools.wraps(f)
    def g(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        references: list[State] = []

        def reference(x: Any) -> Any:
            if not isinstance(x, ReferenceValue):
                return x
            references.append(x.kind(x.value))
            return references[-1]

        args, kwargs = tree.map(reference, (args, kwargs),
                                is_leaf=lambda x: isinstance(x, ReferenceValue))
        out = f(*args, **kwargs)
        return out, [state.get() for state in references]
    return g


def _is_open(state: State) -> bool:
    """Whether the innermost trace in which a state has a value is open."""
    return state.values[-1][0] in (None, *scope.open_scopes())


class StatefulCalls:
    """The calls of a jitted function that uses references.

    Args:
        f: the function.
        jit: returns a jitted function with the same options.
    """

    def __init__(self, f: Callable[..., Any], jit: Callable[[Callable[..., Any]], Any]) -> None:
        self._f, self._jit = f, jit
        self._states: list[State] = []
        self._jitted: Any = None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do a call."""
        (args, kwargs), references = values_of_references((args, kwargs))
        live = [state for state in self._states if _is_open(state)]
        if live != self._states:
            self._states, self._jitted = live, None
        while True:
            if self._jitted is None:
                self._jitted = self._jit(self._function(tuple(self._states)))
            try:
                out, last, values = self._jitted(*args, **kwargs, _values=[
                    state.get() for state in self._states])
            except StateUsedError as used:
                if used.state in self._states or not _is_open(used.state):
                    raise
                used.state.get()  # raises if it is from further outside
                self._states, self._jitted = [*self._states, used.state], None
                continue
            for state, value in zip([*references, *self._states], [*last, *values]):
                state.set(value)
            return out

    def _function(self, states: tuple[State, ...]) -> Callable[..., Any]:
        f, lifted = on_values(self._f), Lift(states)

        @functools.wraps(self._f)
        def g(*args: Any, _values: list[Any], **kwargs: Any) -> Any:
            (out, last), values = lifted.run(f, _values, *args, **kwargs)
            return out, last, values
        setattr(g, _LIFTED, True)
        return g


def stateful(used: StateUsedError, f: Callable[..., Any],
             jit: Callable[[Callable[..., Any]], Any]) -> StatefulCalls:
    """Return the calls of a jitted function that used a reference.

    Raises:
        StateUsedError: its references are arguments already: this one is from further outside.
    """
    if hasattr(f, _LIFTED):
        raise used
    return StatefulCalls(f, jit)
