"""Functions with a custom vjp that use references: the rules as functions of their values.

    f(x, r)                ->  f(values, x) = (result, next values)
    fwd(x, r)              ->  fwd(values, x) = ((result, next values), saved)
    bwd(saved, ct)         ->  bwd(saved, (ct, S)) = (S', cotangents), with S as the value of r

A reference among arguments or saved values is its number among those of the call. What S is, is in
core/tracing/backward_values.py; if the backward rule uses no reference, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.tracing.backward_values import BackwardValue, decode, encode
from fnx.core.tracing.references import Ref, RowRef
from fnx.core.tracing.state import (
    Lift,
    State,
    StateNumber,
    StateUsedError,
    show_to_watchers,
    values_of,
)
from fnx.core.tracing.trace import function_name


class _HiddenRow:
    """A reference to a row of a state; a pytree of the number of the row."""

    def __init__(self, number: int, row: Any) -> None:
        self.number, self.row = number, row


register_pytree_node(_HiddenRow, lambda x: ((x.row,), x.number),
                     lambda number, rows: _HiddenRow(number, rows[0]))


def hide_states(values: Any, states: Sequence[State]) -> Any:
    """Return a pytree without the states in it.

    Raises:
        StateUsedError: one is not in ``states``.
    """
    def one(x: Any) -> Any:
        if not isinstance(x, State):
            return x
        if x.lifted not in states:
            raise StateUsedError(x.lifted)
        number = list(states).index(x.lifted)
        return _HiddenRow(number, x.number) if isinstance(x, RowRef) else StateNumber(number)
    return tree.map(one, values)


def _shown(values: Any, states: Sequence[State]) -> Any:
    def one(x: Any) -> Any:
        if isinstance(x, _HiddenRow):
            of = states[x.number]
            assert isinstance(of, Ref)
            return RowRef(of, x.row)
        return states[x.number] if isinstance(x, StateNumber) else x
    return tree.map(one, values, is_leaf=lambda x: isinstance(x, StateNumber | _HiddenRow))


def on_values(f: Callable[..., Any], lifted: Lift) -> Callable[..., tuple[Any, list[Any]]]:
    """Return a function with the values of states as first argument and second result."""
    def g(values: Any, *args: Any) -> tuple[Any, list[Any]]:
        return lifted.run(f, values, *_shown(args, lifted.states))
    g.__name__ = function_name(f)
    return g


def rules_on_values(fwd: Callable[..., Any], bwd: Callable[..., Any], n_nondiff: int, lifted: Lift
                    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the rules of the function on values."""
    backward = [(i, s) for i, s in enumerate(lifted.states) if isinstance(s, BackwardValue)]

    def fwd_on_values(values: Any, *args: Any) -> Any:
        plain = tree.map(lambda x: getattr(x, "value", x), values)  # of a CustomVJPPrimal
        (out, saved), last = lifted.run(fwd, plain, *_shown(args, lifted.states))
        return (out, last), hide_states(saved, lifted.states)

    def bwd_on_values(*args: Any) -> Any:
        nondiff, saved = args[:n_nondiff], _shown(args[n_nondiff], lifted.states)
        ct, ct_of_values = args[n_nondiff + 1]
        states = [s.owner for _, s in backward]
        before = [decode(ct_of_values[i], s.owner.values[0][1]) for i, s in backward]
        with values_of(states, before):
            cts = bwd(*_shown(nondiff, lifted.states), saved, ct)
            show_to_watchers(cts)
            after = [encode(s.get()) for s in states]
        first: list[Any] = [None] * len(lifted.states)
        for (i, _), value in zip(backward, after):
            first[i] = value
        return (first, *hide_states(cts, lifted.states))
    return fwd_on_values, bwd_on_values
