"""Calls whose arguments or captures are references: their values are arguments and results.

    f(r, x), r a reference    ->    f(value of r, x) = (result, next value of r)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fnx.core.array import tree
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError
from fnx.core.tracing.backward_values import InnerReferenceError
from fnx.core.tracing.state import Lift, State, StateNumber, StateUsedError
from fnx.core.tracing.trace import function_name
from fnx.transforms.dispatch.signature import leaf_path, parameters_of

R = TypeVar("R")
_LIFTED = "_lifted"  # an attribute of a function whose references are arguments already


class ReferenceValue:
    """The value of a reference among the arguments of a call; a pytree."""

    def __init__(self, kind: type[State], value: Any) -> None:
        self.kind, self.value = kind, value


register_pytree_node(ReferenceValue, lambda x: ((x.value,), x.kind),
                     lambda kind, values: ReferenceValue(kind, values[0]))


def values_of_references(arguments: Any, mapped: Sequence[bool] | None = None,
                         f: Callable[..., Any] | None = None) -> tuple[Any, list[State]]:
    """Return the arguments with ReferenceValues, and the references that these stand for.

    Args:
        arguments: a pytree.
        mapped: which leaves of it are taken; by default all.
        f: the function that is called with them.

    Raises:
        ArgumentError: a reference occurs twice.
    """
    leaves, structure = tree.flatten(arguments)
    originals = list(leaves)
    references: list[State] = []
    for i, x in enumerate(leaves):
        if isinstance(x, State) and (mapped is None or mapped[i]):
            first = next((j for j, other in enumerate(originals[:i]) if x is other), None)
            if first is not None:
                error = ArgumentError(
                    f"expected each reference as one argument, got a {x.aval} at both "
                    f"{leaf_path(structure, first)} and {leaf_path(structure, i)}",
                    hint="pass it once, as two names of one value would differ")
                error.function = f
                raise error
            references.append(x)
            leaves[i] = ReferenceValue(type(x), x.get())
    return (structure.unflatten(leaves) if references else arguments), references


def bound(f: Callable[..., Any], arguments: Any) -> tuple[Callable[..., Any], Any]:
    """Return a function that has the references among some arguments from outside, and the other
    arguments."""
    references: list[State] = []

    def bind(x: Any) -> Any:
        if not isinstance(x, State):
            return x
        references.append(x)
        return StateNumber(len(references) - 1)

    @functools.wraps(f)
    def g(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree.map(lambda x: references[x.number] if isinstance(x, StateNumber) else x,
                                (args, kwargs), is_leaf=lambda x: isinstance(x, StateNumber))
        return f(*args, **kwargs)
    return g, tree.map(bind, arguments)


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
        for path, x in tree.flatten_with_path(out)[0]:
            if isinstance(x, State):
                raise ArgumentError(f"expected {function_name(f)} to return no reference, got a "
                                    f"{x.aval} at result{tree.keystr(path)}",
                                    hint="return its value, r[...]; the caller has the reference "
                                         "if it is an argument")
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
        originals = args, kwargs
        (args, kwargs), references = values_of_references(originals, f=self._f)
        try:
            out, last, values = self.on_values(references, lambda jitted, values: jitted(
                *args, **kwargs, _values=values))
        except InnerReferenceError:  # a backward rule uses one of them: they are from outside
            if not references:
                raise
            f, (args, kwargs) = bound(self._f, originals)
            return StatefulCalls(f, self._jit).call(args, kwargs)
        self.set_values(references, self._states, last, values)
        return out

    @staticmethod
    def set_values(references: Sequence[State], states: Sequence[State], last: Sequence[Any],
                   values: Sequence[Any]) -> None:
        """Give the references their next values: those that are arguments, and those from
        outside."""
        for state, value in zip([*references, *states], [*last, *values]):
            state.set(value)

    @property
    def states(self) -> tuple[State, ...]:
        """The references from outside, as far as they are known."""
        return tuple(self._states)

    def on_values(self, references: Sequence[State], use: Callable[[Any, list[Any]], R]) -> R:
        """Use the jitted function of values.

        Args:
            references: those among the arguments.
            use: takes the function, and the values of the references from outside.
        """
        live = [state for state in self._states if _is_open(state)]
        if live != self._states:
            self._states, self._jitted = live, None
        while True:
            both = next((state for state in self._states if state in references), None)
            if both is not None:
                raise ArgumentError(f"expected {function_name(self._f)} to read the argument, got "
                                    f"a {both.aval} that is an argument and is read from outside, "
                                    "too", hint="use the argument's name in the function")
            if self._jitted is None:
                self._jitted = self._jit(self._function(tuple(self._states)))
            try:
                return use(self._jitted, [state.get() for state in self._states])
            except StateUsedError as used:
                if used.state in self._states or not _is_open(used.state):
                    raise
                used.state.get()  # raises if it is from further outside
                self._states, self._jitted = [*self._states, used.state], None

    def _function(self, states: tuple[State, ...]) -> Callable[..., Any]:
        f, lifted = on_values(self._f), Lift(states)

        @functools.wraps(self._f)
        def g(*args: Any, _values: list[Any], **kwargs: Any) -> Any:
            (out, last), values = lifted.run(f, _values, *args, **kwargs)
            return out, last, values
        setattr(g, _LIFTED, True)
        g.__signature__ = _with_values(self._f)  # type: ignore[attr-defined] # for errors
        return g


def _with_values(f: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of f with a keyword for the values of references."""
    parameters = parameters_of(f)
    rest = [p for p in parameters if p.kind is p.VAR_KEYWORD]
    values = inspect.Parameter("_values", inspect.Parameter.KEYWORD_ONLY)
    return inspect.Signature([*parameters[:len(parameters) - len(rest)], values, *rest])


def stateful(used: StateUsedError, f: Callable[..., Any],
             jit: Callable[[Callable[..., Any]], Any]) -> StatefulCalls:
    """Return the calls of a jitted function that used a reference.

    Raises:
        StateUsedError: its references are arguments already: this one is from further outside.
    """
    if hasattr(f, _LIFTED):
        raise used
    return StatefulCalls(f, jit)
