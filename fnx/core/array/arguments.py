"""Checks for arguments of public functions that accept a few values; none is silently ignored."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, get_args

from fnx.core.errors import ArgumentError, FnxError, suggestion

PrecisionName: TypeAlias = Literal[
    "default", "high", "highest", "fastest", "float32", "tensorfloat32", "bfloat16"]
ReadMode: TypeAlias = Literal["clip", "fill", "drop", "promise_in_bounds"] | None
WriteMode: TypeAlias = Literal["drop", "clip", "fill", "promise_in_bounds"] | None
TakeMode: TypeAlias = Literal["fill", "clip", "wrap", "promise_in_bounds"] | None
PrecisionLike: TypeAlias = PrecisionName | tuple[PrecisionName, PrecisionName] | None

_COMPARED = (str, bool, type(None))


def one_of(name: str, given: Any, allowed: Sequence[Any]) -> None:
    """Raise unless the value is one of those that the argument allows.

    >>> one_of("mode", "clip", ("clip", "fill"))
    """
    if isinstance(given, _COMPARED) and given in allowed:
        return
    texts = [x for x in allowed if isinstance(x, str)]
    raise ArgumentError(f"expected {name} {_either(allowed)}; got {given!r}",
                        hint=suggestion(given, texts) if isinstance(given, str) else
                        "leave it out for the default")


def _either(allowed: Sequence[Any]) -> str:
    *first, last = map(repr, allowed)
    return f"{', '.join(first)} or {last}" if first else last


def flag(name: str, given: Any) -> None:
    """Raise unless the value is True or False."""
    if given is not True and given is not False:
        one_of(name, given, (True, False))


def row_major(order: str) -> None:
    """Raise unless ``order`` is "C", the only memory order of arrays."""
    one_of("order", order, ("C",))


def flag_or_none(name: str, given: Any) -> None:
    """Raise unless the value is True, False or None."""
    one_of(name, given, (True, False, None))


def integer(name: str, given: SupportsIndex) -> int:
    """Return the argument as an int. It must be known while tracing."""
    try:
        return operator.index(given)
    except FnxError:
        raise
    except TypeError:
        raise ArgumentError(f"expected {name} as an int, got {given!r}",
                            hint="use int(...) on a float that is a whole number") from None


def number(name: str, given: float) -> float:
    """Return the argument as a real number. It must be known while tracing."""
    if not isinstance(given, numbers.Real) or isinstance(given, bool):
        raise ArgumentError(f"expected {name} as a number, got {given!r}")
    return given


def promises(indices_are_sorted: bool, unique_indices: bool) -> None:
    """Check the promises a user makes about indices. They are accepted but not used."""
    flag("indices_are_sorted", indices_are_sorted)
    flag("unique_indices", unique_indices)


def no_out(out: None) -> None:
    """Raise if ``out`` is given: arrays are immutable, so there is nothing to write to."""
    if out is not None:
        raise ArgumentError(f"expected out=None, got {type(out).__name__}",
                            hint="arrays are immutable: use the result")


def precision(given: PrecisionLike) -> None:
    """Check a precision: one of JAX's names, or one per operand. All mean full precision."""
    for one in given if isinstance(given, tuple) and len(given) == 2 else (given,):
        one_of("precision", one, (*get_args(PrecisionName), None))
