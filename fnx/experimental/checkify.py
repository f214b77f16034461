"""Checks in traced functions: their errors are values, as in ``jax.experimental.checkify``.

``checkify(f)`` returns (error, result). The first check that fails is the error; what follows is
computed nevertheless. Checks are those that f makes (``check``) and, if asked for, those of all its
operations: NaN, division by zero, indices out of bounds. The error is a state of the function
(core/tracing/state.py), so checks may stand in loops, branches and derivatives.

>>> import fnx, fnx.numpy as jnp
>>> from fnx.experimental import checkify
>>> def f(x):
...     checkify.check(x > 0, "expected x > 0, got {}", x)
...     return jnp.log(x)
>>> error, y = fnx.jit(checkify.checkify(f))(-1.0)
>>> error.get()
'expected x > 0, got -1.0 (`check` failed)'
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.bounds_checks import NO_FAULT, access_faults
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import Composite, UOp, creation_mark, current_loc, toposort
from fnx.core.scope import scope
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    FnxError,
    choose_location,
    format_location,
    lazy_module,
)
from fnx.core.support.format_strings import check_format
from fnx.core.support.record import Record
from fnx.core.tracing.state import State, Watcher, watch
from fnx.transforms.jit import jit

__all__ = [
    "Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check",
    "check_error", "checkify", "debug_check", "div_checks", "float_checks", "index_checks",
    "init_error", "nan_checks", "user_checks",
]


class JaxRuntimeError(FnxError, ValueError):
    """A check of checkify failed. Its text begins with that of the check, which programs match."""

    def __str__(self) -> str:
        return self.message


class ErrorCategory(Exception):
    """A kind of check: the elements of the sets below."""


class FailedCheckError(ErrorCategory):
    """Checks that the function makes."""


class NaNError(ErrorCategory):
    """Operations whose result has a NaN."""


class DivisionByZeroError(ErrorCategory):
    """Divisions by zero."""


class OOBError(ErrorCategory):
    """Indices out of bounds."""


Categories = frozenset[type[ErrorCategory]]
user_checks: Categories = frozenset({FailedCheckError})
nan_checks: Categories = frozenset({NaNError})
div_checks: Categories = frozenset({DivisionByZeroError})
index_checks: Categories = frozenset({OOBError})
float_checks: Categories = nan_checks | div_checks
automatic_checks: Categories = float_checks | index_checks
all_checks: Categories = automatic_checks | user_checks


class Check(Record):
    """A check of a function.

    Attributes:
        text: the message, a format string.
        payload: the tree of its arguments, ``(args, kwargs)``.
        types: (shape, dtype) of their leaves.
        category: what kind of check it is.
    """

    text: str
    payload: tree.TreeDef
    types: tuple[tuple[tuple[int, ...], Any], ...]
    category: type[ErrorCategory] = FailedCheckError

    def message(self, leaves: Sequence[Any]) -> str:
        """Return the message with values of the arguments."""
        args, kwargs = self.payload.unflatten(leaves)
        return self.text.format(*args, **kwargs)


class Error:
    """The first check that failed, if one did: a pytree, of which vmap makes many.

    Attributes:
        code: 0, or the number of the check, counted from 1.
        values: for each check, the arrays that its message names.
        checks: the checks.
    """

    def __init__(self, code: Any, values: Sequence[Sequence[Any]], checks: Sequence[Check]) -> None:
        self.code, self.values, self.checks = code, values, tuple(checks)

    def get(self) -> str | None:
        """Return the message of the check that failed, or None.

        Returns:
            A str with a line for each batch element whose check failed, or None.

        >>> init_error.get()
        """
        codes = np.asarray(self.code)
        lines = []
        for at in np.ndindex(codes.shape):
            if codes[at]:
                number = int(codes[at]) - 1
                values = self.values[number] if number < len(self.values) else ()
                text = self.checks[number].message([_concrete(x)[at] for x in values])
                where = f"at mapped index {', '.join(map(str, at))}: " if at else ""
                lines.append(f"{where}{text}")
        return "\n".join(lines) or None

    def get_exception(self) -> ErrorCategory | None:
        """Return the failed check as an exception of its category, or None.

        Returns:
            A NaNError, DivisionByZeroError, OOBError or FailedCheckError, or None.

        >>> init_error.get_exception()
        """
        failed = [int(code) for code in np.ravel(np.asarray(self.code)) if code]
        return self.checks[failed[0] - 1].category(self.get()) if failed else None

    def throw(self) -> None:
        """Raise if a check failed.

        Raises:
            JaxRuntimeError: with the message of the check.

        >>> init_error.throw()
        """
        check_error(self)

    def __repr__(self) -> str:
        return f"Error({self.get()!r})" if not scope.is_open() else "Error(...)"


register_pytree_node(Error, lambda e: ((e.code, e.values), e.checks),
                     lambda checks, children: Error(children[0], children[1], checks))
init_error = Error(np.int32(0), (), ())


class _ErrorState(State):
    """The error so far: its code, and for each check its values."""

    def merge(self, before: Any, rows: Any, batched: Sequence[bool]) -> Any:
        """Return the error of the last batch element that has one."""
        code = rows[0]
        n = code.shape[0]
        if not n:
            return before
        which = ((code != 0) * np.arange(1, n + 1, dtype=np.int32)).max()
        last = Array(build.maximum((which - 1)._node, build.const(0, dtypes.int32)))
        return tree.map(lambda x: x[last], rows)


class _Checker(Watcher):
    """The checks of one call of a function under ``checkify``."""

    def __init__(self, errors: Categories) -> None:
        self.errors, self.checks = errors, list[Check]()
        self.state, self.has_new_values = _ErrorState(None), False
        self.done: list[Any] = []

    def run(self, f: Callable[[], Any]) -> tuple[Error, Any]:
        """Return the error and the result of f."""
        self.since, self.outermost = creation_mark(), scope.innermost()
        while True:  # the checks are known after the first run
            self.has_new_values, self.done = False, []
            self.state = _ErrorState((asarray(np.int32(0)), [
                [Array(build.const(0, t, shape)) for shape, t in check.types]
                for check in self.checks]))
            with watch(self):
                out = f()
                self.on_close([x for x in tree.leaves(out) if type(x) is Array], self.since)
            if not self.has_new_values:
                code, values = self.state.get()
                return Error(code, values, self.checks), out

    def record(self, fails: Array, check: Check, values: Sequence[Array]) -> None:
        """Record a check, which fails where ``fails`` holds."""
        if check not in self.checks:
            self.checks.append(check)
        number = self.checks.index(check)
        code, old = self.state.get()
        if number >= len(old) and values:
            self.has_new_values = True
        first = build.and_(fails._node, build.eq(code._node, build.const_like(code._node, 0)))
        new = [list(row) for row in old]
        if number < len(new):
            new[number] = [Array(build.where(build.expand(first, x.shape), x._node, y._node))
                           for x, y in zip(values, old[number])]
        self.state.set((Array(build.where(first, build.const_like(code._node, number + 1),
                                          code._node)), new))

    def on_static_index(self, i: int, axis: int, shape: Shape) -> None:
        """Record an index that is known to be out of bounds."""
        if OOBError in self.errors:
            loc = current_loc.loc
            place = f" at {format_location(loc)}" if loc else ""
            text = _OUT_OF_BOUNDS.format(shape=shape, index=i, axis=axis, size=shape[axis])
            self.record(Array(build.const(True, dtypes.bool_)), Check(
                f"{text}{place}", tree.structure(((), {})), (), OOBError), ())

    def on_close(self, outs: Sequence[Array], since: int) -> None:
        """Check the operations of a trace: those that depend on its arguments; in the one of the
        call, all that are new."""
        trace = scope.innermost()
        if not self.errors - user_checks or any(trace is t for t in self.done):
            return
        dependent: set[UOp] = set() if trace is None else set(trace.leaves)
        nodes = toposort([x._node for x in outs])
        for node in nodes:
            if any(s in dependent for s in node.src) or trace is self.outermost and \
                    node.number >= self.since:
                dependent.add(node)
        for node in sorted(dependent, key=lambda n: n.number):
            self._check_node(node)
        self.done.append(trace)

    def _check_node(self, node: UOp) -> None:
        for category, rule in _RULES:
            if category in self.errors:
                for fails, text, values in rule(node):
                    loc = choose_location(node.locs)
                    place = f" at {format_location(loc)}" if loc else ""
                    leaves, structure = tree.flatten((values, {}))
                    self.record(Array(fails), Check(f"{text}{place}", structure, tuple(
                        [(x.shape, x._dtype) for x in leaves]), category), leaves)


def _any(x: UOp) -> UOp:
    return build.reduce(x, ops.OR, range(len(x.shape))) if x.shape else x


Failure = tuple[UOp, str, tuple[Array, ...]]
Failures = list[Failure]
_NOT_ARITHMETIC = frozenset({ops.CONST, ops.LEAF, ops.BUFFER, ops.PARAM, ops.GETTUPLE, ops.CAST,
                             ops.WHERE, ops.BITCAST})


_REDUCTIONS = {m: {ops.ADD: "sum", ops.MUL: "prod"}.get(m, m.name.lower()) for m in (
    ops.ADD, ops.MUL, ops.MAX, ops.MIN, ops.LOGADDEXP)}  # of floats


def _nan_failures(node: UOp) -> Failures:
    if not node.dtype.is_float or node.op in _NOT_ARITHMETIC or \
            node.op.kind not in ("elementwise", "reduce", "fft"):
        return []
    name = f"reduce_{_REDUCTIONS[node.arg.monoid]}" if node.op is ops.REDUCE else \
        node.op.name.lower()
    return [(_any(build.ne(node, node)), f"nan generated by primitive: {name}.", ())]


def _division_failures(node: UOp) -> Failures:
    if node.op not in (ops.DIV, ops.IDIV, ops.REM):
        return []
    divisor = node.src[1]
    return [(_any(build.eq(divisor, build.const_like(divisor, 0))), "division by zero", ())]


_OUT_OF_BOUNDS = ("out-of-bounds indexing for array of shape {shape}: index {index} is out of "
                  "bounds for axis {axis} with size {size}.")


def _index_failures(node: UOp) -> Failures:
    if node.composite is not None and node.composite.name in _DYNAMIC_SLICES:
        return _slice_failures(node.composite)
    if node.op not in (ops.GATHER, ops.SCATTER):
        return []
    return [_index_failure(node.src[0].shape, check.axis, build.ne(
        fault, build.const_like(fault, NO_FAULT)), fault) for fault, check in access_faults(node)]


def _index_failure(shape: Shape, axis: int, failed: UOp, index: UOp) -> Failure:
    text = _OUT_OF_BOUNDS.format(shape=shape, index="{}", axis=axis, size=shape[axis])
    return failed, text, (Array(index),)


_DYNAMIC_SLICES = "dynamic_slice", "dynamic_update_slice"


def _slice_failures(slicing: Composite) -> Failures:
    """Return the axes along which a slice is moved inside, as its start is too low or too high."""
    x, *starts = slicing.operands
    sizes = slicing.params["slice_sizes"] if slicing.name == "dynamic_slice" else \
        starts.pop(0).shape
    out = []
    for axis, (start, size) in enumerate(zip(starts, sizes)):
        last = build.const_like(start, x.shape[axis] - size)
        moved = build.or_(build.lt(start, build.const_like(start, 0)), build.lt(last, start))
        out.append(_index_failure(x.shape, axis, moved, start))
    return out


_RULES: tuple[tuple[type[ErrorCategory], Callable[[UOp], Failures]], ...] = (
    (OOBError, _index_failures), (DivisionByZeroError, _division_failures),
    (NaNError, _nan_failures))


def checkify(f: Callable[..., Any], errors: Categories = user_checks
             ) -> Callable[..., tuple[Error, Any]]:
    """Return a function that returns the first error of ``f`` along with its result.

    Args:
        f: a function of pytrees of arrays.
        errors: which checks to make: one of the sets of this module, or several joined by ``|``.

    Returns:
        A function with the arguments of ``f`` that returns (error, result).

    >>> from fnx.experimental import checkify
    >>> error, y = checkify.checkify(lambda x: 1 / x, checkify.float_checks)(0.0)
    >>> error.get()[:16]
    'division by zero'
    """
    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        return _Checker(errors).run(lambda: f(*args, **kwargs))
    jitted = jit(checked)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        return jitted(*args, **kwargs)
    return call


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Check that a predicate holds: an error of the enclosing ``checkify`` if it does not.

    Args:
        pred: a bool scalar.
        msg: the message, a format string.
        fmt_args: arrays that it names.
        debug: whether it is ignored outside of ``checkify``.
        fmt_kwargs: arrays that it names.

    Raises:
        JaxRuntimeError: it does not hold, outside of all traces.
        ArgumentError: it is traced, and not under ``checkify``; or it is no bool scalar.

    >>> check(True, "fine")
    """
    _check(pred, msg, fmt_args, fmt_kwargs, debug)


def _concrete(x: Any) -> Any:
    """Return a value as a message shows it: a number of Python is an array with memory, too."""
    array = asarray(x)
    return array if array._dtype.kind == "key" else asarray(np.asarray(x))


@public_api
def _check(pred: Any, msg: str, args: tuple[Any, ...], kwargs: dict[str, Any], debug: bool) -> None:
    holds = asarray(pred)
    if holds.shape or not holds._dtype.is_bool:
        raise ArgumentError(f"{'debug_' * debug}check: expected a bool scalar, got {holds._aval}",
                            hint="reduce it with .all()")
    if not isinstance(msg, str):
        return
    check_format(msg, args, kwargs)
    leaves, structure = tree.flatten((args, kwargs))
    for x in leaves:
        if isinstance(x, str | bytes):
            raise DTypeError(f"check: expected arrays as arguments of the message, got "
                             f"{type(x).__name__}", hint="write texts into the message itself")
    values = [asarray(x) for x in leaves]
    failed = Check(f"{msg} (`check` failed)", structure,
                 tuple([(x.shape, x._dtype) for x in values]))
    checkers = [w for w in scope.thread_state.watchers if isinstance(w, _Checker)]
    for checker in checkers[::-1]:
        if FailedCheckError in checker.errors:
            checker.record(~holds, failed, values)
            return
    if debug or checkers:  # as in JAX, one that is not asked for is not made
        return
    if scope.is_open():
        raise ArgumentError("check: expected a call within checkify, as the predicate is traced",
                            hint="write checkify.checkify(f), and jit and the like around that")
    if not bool(holds):
        raise JaxRuntimeError(failed.message([_concrete(x) for x in values]))


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Check that a predicate holds under ``checkify``; outside of it do nothing.

    Args:
        pred: a bool scalar.
        msg: the message, a format string.
        fmt_args: arrays that it names.
        fmt_kwargs: arrays that it names.

    >>> debug_check(False, "not seen")
    """
    _check(pred, msg, fmt_args, fmt_kwargs, True)


def check_error(error: Error) -> None:
    """Raise if an error is one; under ``checkify`` record it as an error of the function.

    Args:
        error: what a checkified function returned.

    Raises:
        JaxRuntimeError: a check failed, outside of all traces.
        ArgumentError: it is traced, and not under ``checkify``.

    >>> check_error(init_error)
    """
    if not isinstance(error, Error):
        raise ArgumentError(f"check_error: expected an Error, got {type(error).__name__}",
                            hint="pass the first result of a function under checkify")
    checkers = [w for w in scope.thread_state.watchers if isinstance(w, _Checker)]
    if not checkers:
        if scope.is_open():
            raise ArgumentError("check_error: expected a call within checkify, as the error is "
                                "traced", hint="return the error from the traced function")
        text = error.get()
        if text is not None:
            raise JaxRuntimeError(text)
        return
    for i, failed in enumerate(error.checks):
        checkers[-1].record(asarray(error.code) == i + 1, failed,
                            [asarray(x) for row in error.values[i:i + 1] for x in row])


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
