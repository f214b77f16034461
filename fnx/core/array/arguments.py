"""Checks for arguments of public functions that accept a few values; none is silently ignored."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, get_args

from fnx.core.support.errors import ArgumentError, FnxError, suggestion

PrecisionName: TypeAlias = Literal[
    "default", "high", "highest", "fastest", "float32", "tensorfloat32", "bfloat16"]
ReadMode: TypeAlias = Literal["clip", "fill", "drop", "promise_in_bounds"] | None
WriteMode: TypeAlias = Literal["drop", "clip", "fill", "promise_in_bounds"] | None
TakeMode: TypeAlias = Literal["fill", "clip", "wrap", "promise_in_bounds"] | None
PrecisionLike: TypeAlias = PrecisionName | tuple[PrecisionName, PrecisionName] | None

_COMPARABLE = (str, bool, type(None))


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
    """Return the argument as an int. It must be known while tracing."""
    try:
        return operator.index(value)
    except FnxError:
        raise
    except TypeError:
        raise ArgumentError(f"expected {name} as an int, got {value!r}",
                            hint="use int(...) on a float that is a whole number") from None


def check_number(name: str, value: float) -> float:
    """Return the argument as a real number. It must be known while tracing."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise ArgumentError(f"expected {name} as a number, got {value!r}")
    return value


def check_index_promises(indices_are_sorted: bool, unique_indices: bool) -> None:
    """Check the promises a user makes about indices. They are accepted but not used."""
    check_bool("indices_are_sorted", indices_are_sorted)
    check_bool("unique_indices", unique_indices)


def check_no_out(out: None) -> None:
    """Raise if ``out`` is given: arrays are immutable, so there is nothing to write to."""
    if out is not None:
        raise ArgumentError(f"expected out=None, got {type(out).__name__}",
                            hint="arrays are immutable: use the result")


def check_precision(value: PrecisionLike) -> None:
    """Check a precision: one of JAX's names, or one per operand. All mean full precision."""
    for name in value if isinstance(value, tuple) and len(value) == 2 else (value,):
        check_choice("precision", name, (*get_args(PrecisionName), None))
