"""Loops and branches under the names of ``jax.lax``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeVar

from fnx.core.array import arguments
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.public import asarray, public
from fnx.core.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.process import load

__all__ = ["cond", "fori_loop", "map", "scan", "switch", "while_loop"]

CarryT = TypeVar("CarryT")
X = TypeVar("X")
Y = TypeVar("Y")
_NOTHING: Any = object()  # an operand that is not given
_SCAN, _WHILE, _COND = ("fnx.transforms.loops." + n for n in ("scan", "while_loop", "branches"))


@public
def scan(f: Callable[[CarryT, X], tuple[CarryT, Y]], init: CarryT, xs: X | None = None,
         length: int | None = None, reverse: bool = False, unroll: int | bool = 1, *,
         checkpoint: int | None = None, progress: bool = False, _split_transpose: bool = False
         ) -> tuple[CarryT, Y]:
    """A loop that carries a state from step to step and stacks the results of the steps.

        for t in range(length):
            carry, y = f(carry, xs[t])
            ys.append(y)

    ``f`` is traced once. Python numbers in the first carry take the type that a step gives them.

    Args:
        f: one step, ``f(carry, x) -> (carry, y)``; what it closes over is the same in each.
        init: the carry before the first step, a pytree of arrays.
        xs: a pytree of arrays; step t gets ``x[t]`` of each. None where the steps get nothing.
        length: how many steps; needed where ``xs`` has no arrays.
        reverse: from the last step to the first. Results still stand at the place of their x.
        unroll: how many steps are compiled as one; True: all of them.
        checkpoint: reverse mode keeps the carries of every so many steps only, and computes
            what lies between again; None: it keeps what it reads of every step.
        progress: print how far it is, on a line of stderr. A loop that is compiled into one
            kernel does not stop for that: its line tells of the loop as a whole.
        _split_transpose: accepted as JAX's, which libraries pass.

    Returns:
        (the last carry, results of the steps stacked along a leading axis).

    Raises:
        ShapeError: leading axes of different lengths; a carry whose shape a step changes.
        DTypeError: a carry whose dtype a step changes.
        PytreeError: f returns no pair, or a carry of another structure.
        ArgumentError: no length, or a negative one.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.scan(lambda total, x: (total + x, total), 0.0, jnp.asarray([1.0, 2.0, 3.0]))
    (Array(6., dtype=float32), Array([0., 1., 3.], dtype=float32, weak_type=True))
    """
    arguments.flag("reverse", reverse)
    arguments.flag("progress", progress)
    arguments.flag("_split_transpose", _split_transpose)
    every = 0 if checkpoint is None else _positive("checkpoint", checkpoint)
    size = None if length is None else arguments.integer("length", length)
    made: tuple[CarryT, Y] = load(_SCAN).scan(f, init, xs, size, reverse, _unroll(unroll), every,
                                                progress)
    return made


def _positive(name: str, given: SupportsIndex) -> int:
    n = arguments.integer(name, given)
    if n < 1:
        raise ArgumentError(f"expected {name} >= 1, got {n}")
    return n


def _unroll(given: int | bool | None) -> int:
    """How many steps are one; 0: all."""
    if given is True:
        return 0
    return 1 if given is False or given is None else _positive("unroll", given)


@public
def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None) -> Y:
    """A function of each row, one after the other, and the results stacked.

    Args:
        f: of one row.
        xs: a pytree of arrays with leading axes of one length.
        batch_size: so many rows at once, as under ``vmap``.

    Returns:
        The results of ``f``, stacked along a leading axis.

    Raises:
        ShapeError: leading axes of different lengths.
        ArgumentError: ``batch_size`` below 1.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.map(lambda x: x * x, jnp.arange(3))
    Array([0, 1, 4], dtype=int32)
    """
    many = 1 if batch_size is None else _positive("batch_size", batch_size)
    made: Y = load(_SCAN).map_(f, xs, many)
    return made


@public
def fori_loop(lower: int | ArrayLike, upper: int | ArrayLike,
              body_fun: Callable[[Any, CarryT], CarryT], init_val: CarryT, *,
              unroll: int | bool | None = None) -> CarryT:
    """A loop over a range of integers.

        for i in range(lower, upper):
            val = body_fun(i, val)

    Args:
        lower: the first i.
        upper: one more than the last i.
        body_fun: one step, ``body_fun(i, val) -> val``.
        init_val: the value before the first step, a pytree of arrays.
        unroll: how many steps are compiled as one, where both bounds are Python integers; True:
            all of them.

    Returns:
        The value after the last step; ``init_val`` where there is none.

    Raises:
        ShapeError: a value whose shape a step changes.
        DTypeError: a value whose dtype a step changes; bounds that are no integers.
        PytreeError: a value of another structure.
        ArgumentError: ``unroll`` with bounds that are data.

    >>> import fnx.lax as lax
    >>> lax.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int32, weak_type=True)
    """
    first, last = _bound("lower", lower), _bound("upper", upper)
    if isinstance(first, int) and isinstance(last, int):
        made: CarryT = load(_SCAN).counted(body_fun, first, last, init_val, _unroll(unroll))
        return made
    if unroll not in (None, False, 1):
        raise ArgumentError("expected bounds that are Python integers where unroll= is given, got "
                            f"{first} and {last}", hint="leave unroll= out")
    looped: CarryT = load(_WHILE).counted_by_data(body_fun, asarray(first), asarray(last), init_val)
    return looped


def _bound(name: str, given: Any) -> int | Array:
    """A Python integer, or an Array for one that is data."""
    if type(given) is not Array and hasattr(given, "__index__") and not isinstance(given, bool):
        return arguments.integer(name, given)
    x = asarray(given)
    if x.shape:
        raise ShapeError(f"expected {name} as an integer scalar, got {x._aval}")
    if not x._dtype.is_integer:
        raise DTypeError(f"expected {name} as an integer scalar, got {x._aval}",
                         hint="convert it with .astype(int)")
    return x


@public
def while_loop(cond_fun: Callable[[CarryT], Any], body_fun: Callable[[CarryT], CarryT],
               init_val: CarryT) -> CarryT:
    """A loop as long as a condition holds.

        while cond_fun(val):
            val = body_fun(val)

    Args:
        cond_fun: of the value; returns a bool scalar.
        body_fun: one step, ``body_fun(val) -> val``.
        init_val: the value before the first step, a pytree of arrays.

    Returns:
        The first value for which ``cond_fun`` does not hold.

    Raises:
        ShapeError: a value whose shape a step changes; a condition that is no scalar.
        DTypeError: a value whose dtype a step changes; a condition that is no bool.
        PytreeError: a value of another structure; a condition that is no array.

    >>> import fnx.lax as lax
    >>> lax.while_loop(lambda x: x < 100, lambda x: 2 * x, 1)
    Array(128, dtype=int32, weak_type=True)
    """
    made: CarryT = load(_WHILE).while_loop(cond_fun, body_fun, init_val)
    return made


@public
def cond(pred: Any, true_fun: Callable[..., Y], false_fun: Callable[..., Y], *operands: Any,
         operand: Any = _NOTHING) -> Y:
    """One of two functions, the other is not run.

        true_fun(*operands) if pred else false_fun(*operands)

    Args:
        pred: a scalar: a bool, or a number that is compared with 0.
        true_fun: called where it holds.
        false_fun: called where it does not hold; returns the same structure and types.
        operands: what both are called with. (The form ``cond(pred, true_operand, true_fun,
            false_operand, false_fun)`` is understood, too.)
        operand: another spelling of one operand.

    Returns:
        What the function that was chosen returns.

    Raises:
        ShapeError: a predicate that is no scalar, or results of different shapes.
        DTypeError: results of different dtypes.
        PytreeError: results of different structures.

    >>> import fnx.lax as lax
    >>> lax.cond(True, lambda x: x + 1, lambda x: x - 1, 5)
    Array(6, dtype=int32, weak_type=True)
    """
    which = load(_COND).predicate(pred)
    if len(operands) == 2 and callable(operands[1]) and not (
            callable(true_fun) and callable(false_fun)):
        given: tuple[Any, ...] = (true_fun, operands[0])
        chosen: Callable[..., Y] = false_fun
        other = operands[1]
        both = (lambda _, x: other(x), lambda x, _: chosen(x))
        made: Y = load(_COND).branch(which, both, given, "cond")
        return made
    given, both = _operands(operands, operand), (false_fun, true_fun)
    direct: Y = load(_COND).branch(which, both, given, "cond")
    return direct


def _operands(several: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    if one is _NOTHING:
        return several
    if several:
        raise ArgumentError("expected operands by position or operand=, got both",
                            hint="leave operand= out")
    return (one,)


@public
def switch(index: ArrayLike, branches: Sequence[Callable[..., Y]], *operands: Any,
           operand: Any = _NOTHING) -> Y:
    """One of several functions, the others are not run.

    Args:
        index: an integer scalar; outside of the branches it means the nearest one.
        branches: functions that return the same structure and types.
        operands: what they are called with.
        operand: another spelling of one operand.

    Returns:
        What branch ``index`` returns.

    Raises:
        ArgumentError: no branches.
        ShapeError: an index that is no scalar, or results of different shapes.
        DTypeError: an index that is no integer, or results of different dtypes.
        PytreeError: results of different structures.

    >>> import fnx.lax as lax
    >>> lax.switch(2, [lambda x: x, lambda x: x * 2, lambda x: x * 3], 10.0)
    Array(30., dtype=float32, weak_type=True)
    """
    if not branches:
        raise ArgumentError("expected branches, got none", hint="pass one function or more")
    which = load(_COND).branch_number(index, len(branches))
    made: Y = load(_COND).branch(which, tuple(branches), _operands(operands, operand), "switch")
    return made
