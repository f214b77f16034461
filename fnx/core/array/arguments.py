"""Checks for arguments of public functions that accept a few values; none is silently ignored.

What the annotation of a parameter says is checked for each public function (``check_annotated``).
"""

from __future__ import annotations

import inspect
import numbers
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, SupportsIndex, TypeAlias, TypeVar, cast, get_args

import numpy as np

from fnx.core.ir.dtypes import NDArray, array_words
from fnx.core.rewriting.dimensions import Dim
from fnx.core.support.errors import ArgumentError, DTypeError, FnxError, TracedValueError
from fnx.core.support.name_hints import suggestion

PrecisionName: TypeAlias = Literal[
    "default", "high", "highest", "fastest", "float32", "tensorfloat32", "bfloat16"]
ReadMode: TypeAlias = Literal["clip", "fill", "drop", "promise_in_bounds"] | None
WriteMode: TypeAlias = Literal["drop", "clip", "fill", "promise_in_bounds"] | None
TakeMode: TypeAlias = Literal["fill", "clip", "wrap", "promise_in_bounds"] | None
PrecisionLike: TypeAlias = PrecisionName | tuple[PrecisionName, PrecisionName] | None

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_COMPARABLE = (str, bool, type(None))


def positional_name(f: Callable[..., Any], i: int) -> str:
    """Return the name of a positional parameter, or ``args[i]`` if it has none.

    >>> positional_name(lambda x, y: 0, 1), positional_name(max, 1)
    ('y', 'args[1]')
    """
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return f"args[{i}]"
    names = [p.name for p in parameters if p.kind in _POSITIONAL]
    if i < len(names):
        return names[i]
    rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    return f"args[{i}]" if rest is None else f"{rest}[{i - len(names)}]"


def keyword_name(f: Callable[..., Any], name: str) -> str:
    """Return the name of an argument passed by name: ``options['a']`` if no parameter has it.

    >>> keyword_name(lambda x, **options: 0, "x"), keyword_name(lambda x, **options: 0, "a")
    ('x', "options['a']")
    """
    try:
        parameters = inspect.signature(f).parameters
    except (TypeError, ValueError):
        return name
    rest = next((p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD), None)
    return name if rest is None or name in parameters else f"{rest}[{name!r}]"


def check_choice(name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raise unless the value is one of those that the argument allows.

    >>> check_choice("mode", "clip", ("clip", "fill"))
    """
    if isinstance(value, _COMPARABLE) and value in allowed:
        return
    strings = [x for x in allowed if isinstance(x, str)]
    raise ArgumentError(f"expected {name} {_join_with_or(allowed)}; got {value!r}",
                        hint=suggestion(value, strings) if isinstance(value, str) else
                        "leave it out for the default")


def _join_with_or(allowed: Sequence[Any]) -> str:
    *first, last = map(repr, allowed)
    return f"{', '.join(first)} or {last}" if first else last


def check_bool(name: str, value: Any) -> None:
    """Raise unless the value is True or False."""
    if value is not True and value is not False:
        check_choice(name, value, (True, False))


def check_row_major(order: str) -> None:
    """Raise unless ``order`` is "C", the only memory order of arrays."""
    check_choice("order", order, ("C",))


def check_optional_bool(name: str, value: Any) -> None:
    """Raise unless the value is True, False or None."""
    check_choice(name, value, (True, False, None))


def check_int(name: str, value: SupportsIndex) -> int:
    """Return the argument as an int (or a dimension). It must be known while tracing."""
    if type(value) is Dim:
        length: Any = value
        return cast(int, length)
    try:
        return operator.index(value)
    except TypeError as error:
        if isinstance(error, FnxError) and not isinstance(error, DTypeError):
            raise
        raise ArgumentError(f"expected {name} as an int, got {array_words(value)}",
                            hint="use int(...) on a float that is a whole number") from None


def values_of(x: Any, without: str) -> NDArray:
    """Return the values of an array. Of a traced one, an error says how to do without them."""
    try:
        return np.asarray(x)
    except TracedValueError as error:
        error.set_hint(without)
        raise


def check_number(name: str, value: float) -> float:
    """Return the argument as a real number. It must be known while tracing."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise ArgumentError(f"expected {name} as a number, got {value!r}")
    return value


def check_optional(name: str, value: Any, kind: type, what: str) -> None:
    """Raise unless the value is None or of a type, which a message calls ``what``."""
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise ArgumentError(f"expected {name} as {what} or None, got {value!r}")


def check_no_out(name: str, out: Any) -> None:
    """Raise if ``out`` is given: arrays are immutable, so there is nothing to write to."""
    if out is not None:
        raise ArgumentError(f"expected {name}=None, got {type(out).__name__}",
                            hint="arrays are immutable: use the result")


def check_precision(name: str, value: PrecisionLike) -> None:
    """Check a precision: one of JAX's names, or one per operand. All mean full precision."""
    for precision in value if isinstance(value, tuple) and len(value) == 2 else (value,):
        check_choice(name, precision, (*get_args(PrecisionName), None))


# ---- by annotation ----------------------------------------------------------------------------

# Flags of which a function takes one value, and flags whose truth counts.
_OTHER_FLAGS = frozenset({
    "allow_extended_dtype", "allow_pickle", "copy", "donate", "has_aux", "inplace", "ordered",
    "overwrite_input", "symbolic_zeros"})


def check_callable(name: str, value: Any) -> None:
    """Raise unless the value can be called."""
    if not callable(value):
        raise ArgumentError(f"expected a function as {name}, got {type(value).__name__}")


def _optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], None]:
    """Return the check for a value or None."""
    return lambda name, value: None if value is None else check(name, value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "int": check_int, "int | None": _optional(check_int), "PrecisionLike": check_precision}
_OTHER_FUNCTIONS = frozenset({"true_fun", "false_fun"})  # cond takes operands there, too
_AXIS = "ax"  # axis, axes, axis1: they have a check of their own


def _find_check(name: str, annotation: Any) -> Callable[[str, Any], Any] | None:
    if annotation == "bool":
        return None if name in _OTHER_FLAGS else check_bool
    if annotation == "None":
        return check_no_out if name == "out" else None
    if isinstance(annotation, str) and annotation.startswith("Callable["):
        if name in _OTHER_FUNCTIONS:
            return None
        return _optional(check_callable) if annotation.endswith("| None") else \
            check_callable if annotation.endswith("]") else None
    return None if name.startswith(_AXIS) else _CHECKS.get(annotation)


def _parameter_names(f: Any) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of parameters: those with a position, and those by keyword only."""
    signature, code = getattr(f, "__signature__", None), getattr(f, "__code__", None)
    if signature is not None:
        parameters = signature.parameters.values()
        return [p.name for p in parameters if p.kind in _POSITIONAL], \
            [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if code is None:
        return (), ()
    names, count = code.co_varnames, code.co_argcount
    return names[:count], names[count:count + code.co_kwonlyargcount]


def check_annotated(f: Callable[P, R]) -> Callable[P, R]:
    """Return f with a check of each parameter whose annotation has one; f itself if none has.

        def sum(a, keepdims: bool = False, out: None = None)   check_bool, check_no_out
    """
    positional, keyword_only = _parameter_names(f)
    annotations = getattr(f, "__annotations__", {})
    names = [*enumerate(positional), *[(sys.maxsize, name) for name in keyword_only]]
    checks = [(position, name, check) for position, name in names
              if (check := _find_check(name, annotations.get(name))) is not None]
    if not checks:
        return f

    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for position, name, check in checks:
            if position < len(args):
                try:
                    check(name, args[position])
                except ArgumentError as error:
                    if check is check_callable or check is check_int and \
                            not isinstance(args[position], numbers.Number | str):
                        error.hint = _order_of(f, positional)  # it may be another argument
                    raise
            elif name in kwargs:
                check(name, kwargs[name])
        return f(*args, **kwargs)
    return checked


def _order_of(f: Any, names: Sequence[str]) -> str:
    return f"write {f.__name__}({', '.join([*names[:4], *['...'] * (len(names) > 4)])})"
