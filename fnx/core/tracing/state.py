"""State: values that a function reads and writes besides its arguments and results.

    r = new_ref(0.0)
    def f(x): r[...] += x            ->    f(x, value of r) = (result, next value of r)

A ``State`` has a value in each open trace that uses it. Code that uses one in a trace where it has
none raises ``StateUsedError``; the transform or loop that opened the trace catches it and traces
again with the value as one more argument and result (``lift``). So all transforms see functions
without state. A use further inside is lifted by each trace on the way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from fnx.core.array import tree
from fnx.core.array.abstract_values import AbstractValue
from fnx.core.array.array import Array
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.ir.ops import Shape
from fnx.core.scope import scope
from fnx.core.support.errors import LeakedTracerError

R = TypeVar("R")


class State:
    """A value, a pytree of Arrays, that functions read and write.

    Attributes:
        values: (the trace, the value in it), innermost last; None stands for no trace.
        backward: what backward rules that use it read and write (backward_values.py).
    """

    __slots__ = ("values", "backward", "__weakref__")

    def __init__(self, value: Any) -> None:
        self.backward: State | None = None
        self.values: list[tuple[scope.Scope | None, Any]] = [(scope.innermost(), value)]

    def get(self) -> Any:
        """Return its value in the innermost trace."""
        self._check()
        return self.values[-1][1]

    def set(self, value: Any) -> None:
        """Replace its value in the innermost trace."""
        self._check()
        self.values[-1] = self.values[-1][0], value

    @property
    def lifted(self) -> State:
        """The state that transforms have a value of: this one."""
        return self

    @property
    def aval(self) -> AbstractValue:
        """The type of the state."""
        raise NotImplementedError

    def _check(self) -> None:
        owner = self.values[-1][0]
        if owner is scope.innermost():
            return
        if owner is None or owner in scope.open_scopes():
            raise StateUsedError(self)
        raise LeakedTracerError(f"expected a reference, got one that outlived its trace: "
                                f"{owner.name}", hint="create it outside of the traced function")

    def merge(self, before: Any, rows: Any, batched: Sequence[bool]) -> Any:
        """Return the value after ``vmap``, given those of all batch elements along axis 0.

        Args:
            before: the value before.
            rows: the values after, with a batch axis.
            batched: which leaves differ between the batch elements.

        Raises:
            ArgumentError: they differ.
        """
        raise NotImplementedError


class StateUsedError(LeakedTracerError):
    """A state was used in a trace in which it has no value yet: transforms catch it."""

    def __init__(self, state: State) -> None:
        names = [s.name for s in scope.open_scopes()[-1:]]
        hint = "pass its value as an argument, and return the next one"
        if names and names[0].startswith("the bwd of"):
            hint = "a backward rule uses references from outside of the derivative: return what " \
                   "it would write as a cotangent, or add cotangents by vjp(f, x)[1].with_refs"
        super().__init__(f"expected no reference from outside in {names[0] if names else 'a trace'}"
                         ", got one", hint=hint)
        self.state = state


class Lift:
    """The states that a function uses, with their values around it."""

    def __init__(self, states: Sequence[State]) -> None:
        self.states = tuple(states)
        self.values: list[Any] = [state.get() for state in states]

    def run(self, f: Callable[..., R], values: Sequence[Any], *args: Any, **kwargs: Any
            ) -> tuple[R, list[Any]]:
        """Return the result of f in the innermost trace, and the next values of the states."""
        with values_of(self.states, values):
            out = f(*args, **kwargs)
            show_to_watchers(out)
            return out, [state.get() for state in self.states]

    def closed(self, f: Callable[..., R]) -> Callable[..., tuple[R, list[Any]]]:
        """Return ``f`` as a function that also returns the next values, and captures these."""
        def g(*args: Any, **kwargs: Any) -> tuple[R, list[Any]]:
            return self.run(f, self.values, *args, **kwargs)
        g.__name__ = getattr(f, "__name__", type(f).__name__)
        return g


    def as_aux(self, f: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
        """Return ``f`` as a function (result, (aux, next values)); aux is None if it has none."""
        g = self.closed(f)

        def with_aux(*args: Any, **kwargs: Any) -> Any:
            out, values = g(*args, **kwargs)
            result, aux = out if has_aux else (out, None)
            return result, (aux, values)
        with_aux.__name__ = g.__name__
        return with_aux


@contextlib.contextmanager
def values_of(states: Sequence[State], values: Sequence[Any]) -> Iterator[None]:
    """Give states values in the innermost trace, for a ``with`` block."""
    here = scope.innermost()
    for state, value in zip(states, values):
        state.values.append((here, value))
    try:
        yield
    finally:
        for state in states:
            state.values.pop()


def lift(used: StateUsedError, call: Callable[[Lift], tuple[R, Sequence[Any]]]) -> R:
    """Do a call again that used states from outside; ``call`` also returns their next values.

    Raises:
        StateUsedError: a state is from further outside.
    """
    states: list[State] = []
    while True:
        if used.state in states:
            raise used
        states.append(used.state)
        lifted = Lift(states)
        try:
            out, values = call(lifted)
        except StateUsedError as more:
            used = more
            continue
        for state, value in zip(states, values):
            state.set(value)
        return out


# ---- what watches every trace --------------------------------------------------------------------


class Watcher:
    """An object that sees the results of each trace that is closed while it watches.

    ``key`` is part of the keys of cached traces.
    """

    key: Any

    def on_close(self, outs: Sequence[Array], since: int) -> None:
        """See the results of a trace before it is closed; nodes from ``since`` on are its own."""

    def on_static_index(self, i: int, axis: int, shape: Shape) -> None:
        """See an index that is known, and out of bounds."""


def show_to_watchers(out: Any) -> None:
    """Show the results of the innermost trace to all watchers, before it is closed."""
    if scope.thread_state.watchers:
        trace = scope.innermost()
        for watcher in scope.thread_state.watchers:
            watcher.on_close([x for x in tree.leaves(out) if type(x) is Array],
                             trace.start_number if trace else 0)


@contextlib.contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Have a watcher see all traces of a ``with`` block."""
    watchers = scope.thread_state.watchers
    watchers.append(watcher)
    try:
        yield
    finally:
        watchers.remove(watcher)


class StateNumber:
    """A state among arguments or saved values, by its number among those of a call; a pytree
    without leaves."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateNumber) and self.number == other.number

    def __hash__(self) -> int:
        return hash((StateNumber, self.number))


register_pytree_node(StateNumber, lambda x: ((), x.number), lambda number, _: StateNumber(number))
