"""Values that backward rules give to states: they run through a program against its direction.

    f(x, D) = (f(x), D)                  D has the shape of a state, and is 0
    bwd(saved, (ct, S)) = (ct_x, S')     S: the state's value before this rule, S': after it

Each call of a function whose backward rule uses a state returns an array D that it takes. So the
cotangent of D is what runs from rule to rule: no other pass knows of it. ``vjp`` and ``grad`` start
with the value of the state after the function, and end with its next one. D is a float, as only
these have cotangents; all integers of at most 32 bits are float64s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fnx.core.array import tree
from fnx.core.array.abstract_values import AbstractValue
from fnx.core.array.array import Array
from fnx.core.ir import build, dtypes
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, RuleError
from fnx.core.tracing.state import Lift, State, StateUsedError, lift, values_of

R = TypeVar("R")
_DERIVATIVES = "grad", "vjp", "jvp", "linearize", "jacfwd", "jacrev"


class InnerReferenceError(RuleError):
    """A backward rule uses a reference that the function of which a derivative is taken makes."""


class BackwardValue(State):
    """The array D of a state.

    Args:
        owner: the state that backward rules use.
    """

    __slots__ = ("owner",)

    def __init__(self, owner: State) -> None:
        self.owner, self.backward = owner, None
        where, value = owner.values[0]
        self.values = [(where, tree.map(_zeros, value))]

    @property
    def aval(self) -> AbstractValue:
        """The type of the state that backward rules use."""
        return self.owner.aval

    def merge(self, before: Any, rows: Any, batched: Sequence[bool]) -> Any:
        """Raise: the batch elements have no order in which they would write."""
        raise ArgumentError(f"expected a vmapped function without backward rules that use a "
                            f"reference from outside, got a {self.owner.aval}",
                            hint="write vmap(grad(f)) with a reference that is mapped, too")


def used_by_bwd(used: StateUsedError) -> StateUsedError:
    """Return the error of the use of a state in a backward rule.

    Raises:
        RuleError: the function that is differentiated makes it.
    """
    owner = used.state
    if isinstance(owner, BackwardValue):
        return used
    if not _is_outside_of_derivative(owner):
        raise InnerReferenceError(
            f"expected a backward rule to use references from outside of the derivative, got a "
            f"{owner.aval}",
            hint="make it where the gradient is taken, and pass it to the function")
    if owner.backward is None:
        owner.backward = BackwardValue(owner)
    return StateUsedError(owner.backward)


def _is_outside_of_derivative(state: State) -> bool:
    """Whether a derivative of a function that a state is not made in is taken."""
    scopes = scope.open_scopes()
    where = state.values[0][0]
    inside = scopes[scopes.index(where) + 1:] if where in scopes else scopes
    return any(s.name.partition(" of ")[0] in _DERIVATIVES for s in inside)


def encode(value: Any) -> Any:
    """Return the value of a state as floats."""
    return tree.map(lambda x: Array(build.cast(x._node, _float_of(x)), x.weak), value)


def decode(floats: Any, like: Any) -> Any:
    """Return a value of a state from floats.

    Args:
        floats: a result of ``encode``, or a cotangent like it.
        like: a value with the dtypes.
    """
    return tree.map(lambda x, y: Array(build.cast(x._node, y._dtype), y.weak), floats, like)


def _float_of(x: Array) -> dtypes.DType:
    if x._dtype.is_inexact:
        return x._dtype
    if x._dtype.itemsize > 4:
        raise RuleError(f"expected a reference of at most 32 bits in a backward rule, got "
                        f"{x._aval}", hint="use floats, or int32")
    return dtypes.float64


def _zeros(x: Any) -> Array:
    return Array(build.const(0, _float_of(x), x._shape))


def refuse_backward(lifted: Lift, by: str) -> None:
    """Raise if backward rules use states, which only ``vjp`` and ``grad`` have values for."""
    for state in lifted.states:
        if isinstance(state, BackwardValue):
            raise ArgumentError(f"{by}: expected a function without backward rules that use a "
                                f"reference, got one of a {state.aval}",
                                hint="take the derivative by grad, value_and_grad or vjp")


class BackwardLift:
    """The states of a reverse derivative, apart from those that its backward rules use.

    Args:
        states: all that are used, with the owners of BackwardValues.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self.backward = [s for s in states if isinstance(s, BackwardValue)]
        self.lifted = Lift([s for s in states if not isinstance(s, BackwardValue)])
        self.zeros = [tree.map(_zeros, s.owner.get()) for s in self.backward]

    def function(self, f: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
        """Return (arguments, arrays D) -> ((result, arrays D), (aux, next values))."""
        g = self.lifted.as_aux(f, has_aux)

        def with_arrays(args: Sequence[Any], zeros: Sequence[Any]) -> Any:
            with values_of(self.backward, zeros):
                result, aux = g(*args)
                return (result, [s.get() for s in self.backward]), aux
        with_arrays.__name__ = g.__name__
        return with_arrays

    def set(self, values: Sequence[Any]) -> None:
        """Set the states to the values that the function returns."""
        for state, value in zip(self.lifted.states, values):
            state.set(value)

    def pull(self, pullback: Callable[..., Any], cotangent: Any) -> tuple[Any, ...]:
        """Return the cotangents of the arguments, and have backward rules change the states.

        Args:
            pullback: that of ``function``.
            cotangent: that of the result.
        """
        before = [s.owner.get() for s in self.backward]
        cts, after = pullback((cotangent, [encode(x) for x in before]))
        for s, x, floats in zip(self.backward, before, after):
            s.owner.set(decode(floats, x))
        return tuple(cts)


def lift_reverse(used: StateUsedError, call: Callable[[Lift], tuple[R, Sequence[Any]]],
                 reverse: Callable[[BackwardLift], R]) -> R:
    """Do a reverse derivative again that used states from outside.

    Args:
        used: the first one.
        call: does it, as for ``lift``.
        reverse: does it if backward rules use states, too, and sets the states.

    Raises:
        StateUsedError: a state is from further outside.
    """
    def again(lifted: Lift) -> tuple[R, Sequence[Any]]:
        try:
            return call(lifted)
        except StateUsedError as more:
            if not isinstance(more.state, BackwardValue):
                raise
            raise _UsedByBwd(more, lifted.states) from None

    try:
        if isinstance(used.state, BackwardValue):
            raise _UsedByBwd(used, ())
        return lift(used, again)
    except _UsedByBwd as first:
        states, used = list(first.states), first.used
    while True:
        new = [used.state, used.state.owner] if isinstance(used.state, BackwardValue) else \
            [used.state]
        if used.state in states:
            raise used
        states += [s for s in new if s not in states]
        backward = BackwardLift(states)
        try:
            return reverse(backward)
        except StateUsedError as more:
            used = more


class _UsedByBwd(Exception):
    def __init__(self, used: StateUsedError, states: Sequence[State]) -> None:
        self.used, self.states = used, states
