"""Control flow of ``jax.lax``: scan, map, fori_loop, while_loop, cond and switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeVar

from fnx.core.array import arguments, tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.core.tracing.state import State, StateUsedError

__all__ = ["cond", "fori_loop", "map", "scan", "switch", "while_loop"]

CarryT = TypeVar("CarryT")
X = TypeVar("X")
Y = TypeVar("Y")
_MISSING: Any = object()  # sentinel: no operand was passed
_scans = lazy_import("fnx.transforms.control_flow.scan")
_while_loops = lazy_import("fnx.transforms.control_flow.while_loop")
_branches = lazy_import("fnx.transforms.control_flow.branches")
_stateful = lazy_import("fnx.transforms.control_flow.stateful")


@public_api
def scan(f: Callable[[CarryT, X], tuple[CarryT, Y]], init: CarryT, xs: X | None = None,
         length: int | None = None, reverse: bool = False, unroll: int | bool = 1, *,
         checkpoint: int | None = None, progress: bool = False, _split_transpose: bool = False
         ) -> tuple[CarryT, Y]:
    """Run a loop that carries a state from step to step and stacks the results of the steps.

        for t in range(length):
            carry, y = f(carry, xs[t])
            ys.append(y)

    ``f`` is traced once. Python numbers in the first carry take the type that a step gives them.

    Args:
        f: one step, ``f(carry, x) -> (carry, y)``; values it closes over are loop-invariant.
        init: the carry before the first step, a pytree of arrays.
        xs: a pytree of arrays; step t gets ``x[t]`` of each. None if the steps take no input.
        length: the number of steps; required if ``xs`` has no arrays.
        reverse: whether to run from the last step to the first; the result of a step is still
            stored at the index of its x.
        unroll: the number of steps to compile as one; True unrolls all of them.
        checkpoint: reverse mode saves only the carries of every ``checkpoint``-th step and
            recomputes the steps between; None saves the residuals of every step.
        progress: whether to print the progress on a line of stderr. A loop that is compiled into
            one kernel reports only the loop as a whole.
        _split_transpose: accepted for compatibility with JAX, as libraries pass it.

    Returns:
        (the last carry, the results of the steps stacked along a leading axis).

    Raises:
        ShapeError: leading axes differ in length, or a step changes the shape of the carry.
        DTypeError: a step changes the dtype of the carry.
        PytreeError: f does not return a pair, or a step changes the structure of the carry.
        ArgumentError: the length is missing or negative.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.scan(lambda total, x: (total + x, total), 0.0, jnp.asarray([1.0, 2.0, 3.0]))
    (Array(6., dtype=float32), Array([0., 1., 3.], dtype=float32, weak_type=True))
    """
    interval = 0 if checkpoint is None else _require_positive("checkpoint", checkpoint)
    size = None if length is None else arguments.check_int("length", length)
    options = size, reverse, _resolve_unroll(unroll), interval, progress
    result: tuple[CarryT, Y]
    if any(isinstance(x, State) for x in tree.leaves(xs)):
        f, xs = _stateful.over_rows_of_references(f, xs)
    try:
        result = _scans.scan(f, init, xs, *options)
    except StateUsedError as used:
        result = _stateful.scan(used, f, init, xs, *options)
    return result


def _require_positive(name: str, value: SupportsIndex) -> int:
    n = arguments.check_int(name, value)
    if n < 1:
        raise ArgumentError(f"expected {name} >= 1, got {n}")
    return n


def _resolve_unroll(unroll: int | bool | None) -> int:
    """Resolve ``unroll`` to the number of steps to compile as one; 0 means all."""
    if unroll is True:
        return 0
    n = arguments.check_int("unroll", unroll or 0)
    if n < 0:
        raise ArgumentError(f"expected unroll >= 0, got {n}")
    return max(n, 1)  # as in JAX, none unrolls as 1 does


@public_api
def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None) -> Y:
    """Apply a function to each row, one after the other, and stack the results.

    Args:
        f: a function of one row.
        xs: a pytree of arrays with leading axes of one length.
        batch_size: the number of rows to process at once, as under ``vmap``.

    Returns:
        The results of ``f``, stacked along a leading axis.

    Raises:
        ShapeError: leading axes differ in length.
        ArgumentError: ``batch_size`` is below 1.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.map(lambda x: x * x, jnp.arange(3))
    Array([0, 1, 4], dtype=int32)
    """
    group_size = 1 if batch_size is None else _require_positive("batch_size", batch_size)
    result: Y
    try:
        result = _scans.map_(f, xs, group_size)
    except StateUsedError as used:
        result = _stateful.map_(used, f, xs)
    return result


@public_api
def fori_loop(lower: int | ArrayLike, upper: int | ArrayLike,
              body_fun: Callable[[Any, CarryT], CarryT], init_val: CarryT, *,
              unroll: int | bool | None = None) -> CarryT:
    """Run a loop over a range of integers.

        for i in range(lower, upper):
            val = body_fun(i, val)

    Args:
        lower: the first i.
        upper: the end of the range, exclusive.
        body_fun: one step, ``body_fun(i, val) -> val``.
        init_val: the value before the first step, a pytree of arrays.
        unroll: the number of steps to compile as one, if both bounds are Python integers; True
            unrolls all of them.

    Returns:
        The value after the last step; ``init_val`` if the range is empty.

    Raises:
        ShapeError: a step changes the shape of the value.
        DTypeError: a step changes the dtype of the value, or a bound is not an integer.
        PytreeError: a step changes the structure of the value.
        ArgumentError: ``unroll`` is given and a bound is an array.

    >>> import fnx.lax as lax
    >>> lax.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int32, weak_type=True)
    """
    first, last = _loop_bound("lower", lower), _loop_bound("upper", upper)
    if isinstance(first, int) and type(last) is not Array:
        count = _resolve_unroll(unroll)
        result: CarryT
        try:
            result = _scans.fori_loop(body_fun, first, last, init_val, count)
        except StateUsedError as used:
            result = _stateful.counted_loop(used, body_fun, first, last, init_val, count)
        return result
    if unroll not in (None, False, 1):
        raise ArgumentError(f"expected Python integers as bounds with unroll=, got {first} and "
                            f"{last}", hint="leave out unroll=")
    final: CarryT
    bounds = asarray(first), asarray(last)
    try:
        final = _while_loops.fori_loop_dynamic(body_fun, *bounds, init_val)
    except StateUsedError as used:
        final = _stateful.fori_loop(used, body_fun, *bounds, init_val)
    return final


def _loop_bound(name: str, bound: Any) -> int | Array:
    """Return a loop bound as a Python integer (or a dimension) if it is one, else as an Array."""
    if type(bound) is not Array and hasattr(bound, "__index__") and not isinstance(bound, bool):
        return arguments.check_int(name, bound)
    x = asarray(bound)
    if x.shape:
        raise ShapeError(f"expected {name} as an integer scalar, got {x._aval}")
    if not x._dtype.is_integer:
        raise DTypeError(f"expected {name} as an integer scalar, got {x._aval}",
                         hint="convert it with .astype(int)")
    return x


@public_api
def while_loop(cond_fun: Callable[[CarryT], Any], body_fun: Callable[[CarryT], CarryT],
               init_val: CarryT) -> CarryT:
    """Run a loop while a condition holds.

        while cond_fun(val):
            val = body_fun(val)

    Args:
        cond_fun: a function of the value that returns a bool scalar.
        body_fun: one step, ``body_fun(val) -> val``.
        init_val: the value before the first step, a pytree of arrays.

    Returns:
        The first value for which ``cond_fun`` does not hold.

    Raises:
        ShapeError: a step changes the shape of the value, or the condition is not a scalar.
        DTypeError: a step changes the dtype of the value, or the condition is not a bool.
        PytreeError: a step changes the structure of the value, or the condition is not an array.

    >>> import fnx.lax as lax
    >>> lax.while_loop(lambda x: x < 100, lambda x: 2 * x, 1)
    Array(128, dtype=int32, weak_type=True)
    """
    result: CarryT
    try:
        result = _while_loops.while_loop(cond_fun, body_fun, init_val)
    except StateUsedError as used:
        result = _stateful.while_loop(used, cond_fun, body_fun, init_val)
    return result


@public_api
def cond(pred: Any, true_fun: Callable[..., Y], false_fun: Callable[..., Y], *operands: Any,
         operand: Any = _MISSING) -> Y:
    """Call one of two functions; the other is not run.

        true_fun(*operands) if pred else false_fun(*operands)

    Args:
        pred: a scalar: a bool, or a number, which is true if nonzero.
        true_fun: the function to call if ``pred`` is true.
        false_fun: the function to call otherwise; returns the same structure and types.
        operands: the arguments of both functions. (The form ``cond(pred, true_operand, true_fun,
            false_operand, false_fun)`` is accepted, too.)
        operand: a single operand by keyword, instead of ``operands``.

    Returns:
        The result of the selected function.

    Raises:
        ShapeError: the predicate is not a scalar, or the results differ in shape.
        DTypeError: the results differ in dtype.
        PytreeError: the results differ in structure.

    >>> import fnx.lax as lax
    >>> lax.cond(True, lambda x: x + 1, lambda x: x - 1, 5)
    Array(6, dtype=int32, weak_type=True)
    """
    is_old_form = len(operands) == 2 and callable(operands[1]) and not (
        callable(true_fun) and callable(false_fun))
    if not is_old_form:
        try:
            arguments.check_callable("true_fun", true_fun)
            arguments.check_callable("false_fun", false_fun)
        except ArgumentError as error:
            error.hint = "write cond(pred, true_fun, false_fun, *operands)"
            raise
    pred_value = _branches.predicate(pred)
    if is_old_form:
        args: tuple[Any, ...] = (true_fun, operands[0])
        on_true: Callable[..., Y] = false_fun
        on_false = operands[1]
        branches = (lambda _, x: on_false(x), lambda x, _: on_true(x))
        result: Y = _branch(pred_value, branches, args, "cond")
        return result
    args, branches = _merge_operands(operands, operand), (false_fun, true_fun)
    out: Y = _branch(pred_value, branches, args, "cond")
    return out


def _branch(which: UOp, branches: Sequence[Callable[..., Any]], args: Sequence[Any], caller: str
            ) -> Any:
    try:
        return _branches.branch(which, branches, args, caller)
    except StateUsedError as used:
        return _stateful.branch(used, which, branches, args, caller)


def _merge_operands(positional: tuple[Any, ...], keyword: Any) -> tuple[Any, ...]:
    if keyword is _MISSING:
        return positional
    if positional:
        raise ArgumentError("expected operands by position or operand=, got both",
                            hint="leave out operand=")
    return (keyword,)


@public_api
def switch(index: ArrayLike, branches: Sequence[Callable[..., Y]], *operands: Any,
           operand: Any = _MISSING) -> Y:
    """Call one of several functions; the others are not run.

    Args:
        index: an integer scalar; clamped to the range of the branches.
        branches: functions that return the same structure and types.
        operands: the arguments of the functions.
        operand: a single operand by keyword, instead of ``operands``.

    Returns:
        The result of branch ``index``.

    Raises:
        ArgumentError: there are no branches.
        ShapeError: the index is not a scalar, or the results differ in shape.
        DTypeError: the index is not an integer, or the results differ in dtype.
        PytreeError: the results differ in structure.

    >>> import fnx.lax as lax
    >>> lax.switch(2, [lambda x: x, lambda x: x * 2, lambda x: x * 3], 10.0)
    Array(30., dtype=float32, weak_type=True)
    """
    if not branches:
        raise ArgumentError("expected branches, got none", hint="pass at least one function")
    index_value = _branches.branch_number(index, len(branches))
    result: Y = _branch(index_value, tuple(branches), _merge_operands(operands, operand), "switch")
    return result
