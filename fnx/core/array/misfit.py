"""Explain a Python error from inside a public function by the argument that caused it.

    stack(3)        TypeError: 'int' object is not iterable
                ->  stack: expected arrays as a sequence of arrays, got 3

Functions check only arguments that could be misread. An argument of an impossible type fails
somewhere inside; it is then matched against the annotations and the text of the error.
"""

from __future__ import annotations

import inspect
import numbers
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from fnx.core.errors import PACKAGE, ArgumentError, FnxError, OutOfMemoryError

_NUMPY = np.__file__.removesuffix("__init__.py")
_WIDE = 2 ** 31  # Python and NumPy reject some integers from here on
_FITS: dict[str, Callable[[Any], bool]] = {
    "Callable": callable, "int": lambda x: hasattr(x, "__index__"),
    "SupportsIndex": lambda x: hasattr(x, "__index__"),
    "float": lambda x: isinstance(x, numbers.Real) or hasattr(x, "__float__"),
    "bool": lambda x: isinstance(x, bool), "str": lambda x: isinstance(x, str),
    "None": lambda x: x is None, "Mapping": lambda x: isinstance(x, Mapping)}
_MANY = ("Sequence", "Iterable", "Collection", "tuple", "list")
_WORDS = {"Callable": "a function", "int": "an int", "SupportsIndex": "an int",
          "float": "a number", "bool": "a bool", "str": "a str", "None": "None",
          "Mapping": "a dict"}
_ARRAYS = ("ndarray", "Array", "list", "tuple", "dict", "int", "float", "bool", "str", "NoneType")


def misfit(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
           error: Exception) -> FnxError | None:
    """Return the error that names the bad argument; None if the error is not ours or unexplained.

    >>> def stack(arrays: Sequence[int], axis: int = 0): ...
    >>> print(misfit(stack, (3,), {}, TypeError("'int' object is not iterable")).message)
    stack: expected arrays as a sequence of ints, got 3
    """
    if isinstance(error, FnxError) or not _of_fnx(error.__traceback__):
        return None
    name = f.__qualname__.rpartition("<locals>.")[2]
    hint = f"help({name.rpartition('.')[2]}) says what each argument is"
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"{name}: expected memory for the result, the system has no more"
                                f"{f': {error}' if str(error) else ''}",
                                hint="see whether its shape is the one that is meant")
    given = list(_given(f, args, kwargs))
    for parameter, annotation, value in given:
        if not fits(annotation, value):
            return ArgumentError(f"{name}: expected {parameter} as {_words(annotation)}, got "
                                 f"{_short(value)}", hint=hint)
    named = [(p, value) for p, _, value in given if _named(value, error)] or \
        [(p, value) for p, _, value in given if f"{type(value).__name__}'" in str(error)] or \
        [(p, value) for p, _, value in given
         if isinstance(value, np.generic) and value.dtype.kind not in "biufc"]
    if len(named) != 1:
        return None
    (parameter, value), = named
    return ArgumentError(f"{name}: expected {parameter} that it takes, got {_short(value)}: "
                         f"{error}", hint=hint)


def _of_fnx(tb: TracebackType | None) -> bool:
    """Whether an error was raised by fnx, or by NumPy called from fnx, and not by user code."""
    tb = tb.tb_next if tb is not None else None  # skip the API boundary
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith((PACKAGE, "<fnx", _NUMPY)):
            return False
        tb = tb.tb_next
    return True


def _given(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
           ) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, annotation and value of each argument."""
    signature = inspect.signature(f)
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        p = signature.parameters[name]
        values = value if p.kind is p.VAR_POSITIONAL else \
            list(value.values()) if p.kind is p.VAR_KEYWORD else (value,)
        for one in values:
            yield name, str(p.annotation), one


def fits(annotation: str, value: Any) -> bool:
    """Whether a value may match an annotation; an unknown annotation matches anything.

    >>> fits("Sequence[int] | None", None), fits("Sequence[int]", (1, 2)), fits("int", "a")
    (True, True, False)
    """
    return any(_fits(option, value) for option in _split(annotation, "|"))


def _fits(option: str, value: Any) -> bool:
    kind, _, inner = option.partition("[")
    if kind in _MANY:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes) and \
            hasattr(value, "__len__") and all(
                any(fits(item, x) for item in _split(inner.removesuffix("]"), ","))
                for x in (value if isinstance(value, tuple | list) else ()))
    check = _FITS.get(kind)
    return check is None or check(value)


def _split(text: str, by: str) -> list[str]:
    """Split an annotation at separators that are outside brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if sign == by and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _words(annotation: str) -> str:
    """Return an annotation in words."""
    words = [_word(option) for option in _split(annotation, "|")]
    return " or ".join(words)


def _word(option: str) -> str:
    kind, _, inner = option.partition("[")
    if kind in _MANY:
        item = re.sub(r"^an? ", "", _words(_split(inner.removesuffix("]"), ",")[0]))
        return f"a sequence of {item if item == 'None' else item + 's'}"
    return _WORDS.get(kind, "an array" if kind == "ArrayLike" else kind)


def _named(value: Any, error: Exception) -> bool:
    """Whether a Python error is about this value: its text has the value or its type."""
    text, kind = str(error), type(value).__name__
    if "inhomogeneous" in text:
        return isinstance(value, list | tuple) and _is_ragged(value)
    number = _number(value)
    if number is not None:
        return f"'{value}'" in text or (_REFUSES.search(text) is not None and
                                        not -_WIDE < number < _WIDE)
    if isinstance(value, str):
        return repr(value) in text or "'str'" in text
    return kind not in _ARRAYS and (f"{kind}'" in text or repr(value) in text)


_REFUSES = re.compile("NaN|infinity|too large|Maximum|negative dim|out of bounds|integral|exceed")


def _number(value: Any) -> float | None:
    """Return the value as a Python number; None if it is not a number."""
    if isinstance(value, numbers.Real):
        return value  # type: ignore[return-value]
    scalar = getattr(value, "shape", None) == () and hasattr(value, "item")
    found = value.item() if scalar else None
    return found if isinstance(found, int | float) else None


def _is_ragged(value: Any) -> bool:
    try:
        np.asarray(value)
    except ValueError:
        return True
    return False


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | None | tuple | list) or \
        getattr(value, "shape", ()) == () else f"{type(value).__name__} of shape {value.shape}"
    return text if len(text) <= 60 else f"{text[:57]}..."
