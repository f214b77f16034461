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

from fnx.core.array.array import Array
from fnx.core.ir.dtypes import is_array
from fnx.core.ir.uop import toposort
from fnx.core.scope.scope import depends_on_leaf, describe_value
from fnx.core.support.errors import (
    PACKAGE,
    ArgumentError,
    FnxError,
    OutOfMemoryError,
    TracedValueError,
)

_NUMPY = np.__file__.removesuffix("__init__.py")
_INT32_LIMIT = 2 ** 31  # Python and NumPy reject some integers from here on
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "Callable": callable, "int": lambda x: hasattr(x, "__index__"),
    "SupportsIndex": lambda x: hasattr(x, "__index__"),
    "float": lambda x: isinstance(x, numbers.Real) or hasattr(x, "__float__"),
    "bool": lambda x: isinstance(x, bool), "str": lambda x: isinstance(x, str),
    "None": lambda x: x is None, "Mapping": lambda x: isinstance(x, Mapping)}
_SEQUENCES = ("Sequence", "Iterable", "Collection", "tuple", "list")
_DESCRIPTIONS = {"Callable": "a function", "int": "an int", "SupportsIndex": "an int",
                 "float": "a number", "bool": "a bool", "str": "a str", "None": "None",
                 "Mapping": "a dict"}
_ARRAYS = ("ndarray", "Array", "list", "tuple", "dict", "int", "float", "bool", "str", "NoneType")


def explain_type_error(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
                       error: Exception) -> FnxError | None:
    """Return the error that names the bad argument; None if the error is not ours or unexplained.

    >>> def stack(arrays: Sequence[int], axis: int = 0): ...
    >>> error = TypeError("'int' object is not iterable")
    >>> print(explain_type_error(stack, (3,), {}, error).message)
    stack: expected arrays as a sequence of ints, got 3
    """
    if isinstance(error, FnxError) or not _raised_in_fnx(error.__traceback__):
        return None
    name = f.__qualname__.rpartition("<locals>.")[2]
    hint = f"help({name.rpartition('.')[2]}) describes each argument"
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"{name}: expected memory for the result, got an out-of-memory "
                                "error"
                                f"{f': {error}' if str(error) else ''}",
                                hint="check its shape")
    arguments = list(_bound_arguments(f, args, kwargs))
    for parameter, annotation, value in arguments:
        if not matches(annotation, value):
            return ArgumentError(f"{name}: expected {parameter} as {_describe(annotation)}, got "
                                 f"{_abbreviate(value)}", hint=hint)
    culprits = [(p, value) for p, _, value in arguments if _error_names(value, error)] or \
        [(p, value) for p, _, value in arguments if f"{type(value).__name__}'" in str(error)] or \
        [(p, value) for p, _, value in arguments
         if isinstance(value, np.generic) and value.dtype.kind not in "biufc"]
    if len(culprits) != 1:
        return None
    (parameter, value), = culprits
    return ArgumentError(f"{name}: expected {parameter} that it takes, got {_abbreviate(value)}: "
                         f"{error}", hint=hint)


_LISTS = ("arrays", "tup", "operands")      # first parameters that are several arrays
_OTHERS = ("axis", "axes", "dimension", "dtype")  # parameters that are never arrays of numbers
_OF_TWO = {"max": "maximum(a, b)", "amax": "maximum(a, b)", "nanmax": "fmax(a, b)",
           "min": "minimum(a, b)", "amin": "minimum(a, b)", "nanmin": "fmin(a, b)",
           "sum": "a + b", "prod": "a * b", "any": "a | b", "all": "a & b",
           "append": "concatenate([a, b, c])"}


def explain_misplaced(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
                      error: FnxError) -> None:
    """Reword an error if an argument is in the place of another one.

        concatenate(a, b)  ->  expected a sequence of arrays ...     Fix: pass a list
        max(a, b)          ->  expected an integer axis ...          Fix: ... maximum(a, b)
        normal((3,), key)  ->  expected a key as the first argument  Fix: the key comes first
    """
    name = f.__qualname__.rpartition("<locals>.")[2]
    try:
        bound = inspect.signature(f).bind(*args, **kwargs).arguments
    except TypeError:
        bound = dict(zip(inspect.signature(f).parameters, args))  # more arguments than it takes
    first, *others = bound.items() or [("", None)]
    wrong = {p for p, x in others if is_array(x) and p in _OTHERS}
    if first[0] in ("key", "keys"):
        _explain_order(name, inspect.signature(f), first[1], others, error)
    elif first[0] in _LISTS and is_array(first[1]) and (wrong or len(args) > len(bound)):
        letters = ", ".join("abcdef"[:len(args)])
        error.message = f"{name}: expected one sequence of arrays, got {len(args)} arrays"
        error.hint = f"pass a list: {name}([{letters}])"
    elif name in _OF_TWO and ("axis" in wrong or others and others[0][0] == "axis" and
                              getattr(first[1], "ndim", 0) == 0):
        error.hint = f"{name} takes one array; for several write {_OF_TWO[name]}"


def name_traced_arguments(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
                          error: TracedValueError) -> None:
    """Reword an error about a value that f computed: name the arguments that it depends on.

        unique(x)  ->  expected a concrete value, got a traced float32[2, 3] as ar ...
    """
    arrays = [(p, x._node) for p, _, x in _bound_arguments(f, args, kwargs) if type(x) is Array]
    nodes = {node for _, node in arrays}
    between = [n for n in toposort([error.requested], stop=nodes.__contains__) if n not in nodes]
    read = {error.requested, *[s for n in between for s in n.src]}
    traced = [describe_value(node, f" as {parameter}") for parameter, node in arrays
              if node in read and depends_on_leaf(node)]
    if traced:
        error.message = error.message.replace(describe_value(error.requested),
                                              " and ".join(traced), 1)
        error.args = (error.message,)
        error.is_derived = False


def _explain_order(name: str, signature: inspect.Signature, first: Any,
                   others: list[tuple[str, Any]], error: FnxError) -> None:
    """Reword an error of a sampler whose key or shape has the place of another argument."""
    order = ", ".join([p for p in signature.parameters if p != "out_sharding"])
    if any(_is_key(x) for _, x in others) and not _is_key(first):
        error.message = f"{name}: expected a key as the first argument, got {_abbreviate(first)}"
        error.hint = f"the key comes first: {name}({order})"
    values = dict(others)
    shape = next((x for x in values.values()
                  if type(x) is tuple and {*map(type, x)} == {int}), None)
    if shape is not None and "shape" in signature.parameters and \
            type(values.get("shape")) is not tuple:
        error.hint = f"the order is {name}({order}): pass the shape as shape={shape}"


def _is_key(x: Any) -> bool:
    return getattr(getattr(x, "_dtype", None), "kind", "") == "key"


def _raised_in_fnx(tb: TracebackType | None) -> bool:
    """Whether an error was raised by fnx, or by NumPy called from fnx, and not by user code."""
    tb = tb.tb_next if tb is not None else None  # skip the API boundary
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith((PACKAGE, "<fnx", _NUMPY)):
            return False
        tb = tb.tb_next
    return True


def _bound_arguments(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
                     ) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, annotation and value of each argument."""
    signature = inspect.signature(f)
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        p = signature.parameters[name]
        values = value if p.kind is p.VAR_POSITIONAL else \
            list(value.values()) if p.kind is p.VAR_KEYWORD else (value,)
        for item in values:
            yield name, str(p.annotation), item


def matches(annotation: str, value: Any) -> bool:
    """Whether a value may match an annotation; an unknown annotation matches anything.

    >>> matches("Sequence[int] | None", None), matches("Sequence[int]", (1, 2)), matches("int", "a")
    (True, True, False)
    """
    return any(_matches_option(option, value) for option in _split_top_level(annotation, "|"))


def _matches_option(option: str, value: Any) -> bool:
    kind, _, inner = option.partition("[")
    if kind in _SEQUENCES:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes) and \
            hasattr(value, "__len__") and all(
                any(matches(item, x) for item in _split_top_level(inner.removesuffix("]"), ","))
                for x in (value if isinstance(value, tuple | list) else ()))
    check = _CHECKS.get(kind)
    return check is None or check(value)


def _split_top_level(text: str, separator: str) -> list[str]:
    """Split an annotation at separators that are outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == separator and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _describe(annotation: str) -> str:
    """Return an annotation in words."""
    words = [_describe_option(option) for option in _split_top_level(annotation, "|")]
    return " or ".join(words)


def _describe_option(option: str) -> str:
    kind, _, inner = option.partition("[")
    if kind in _SEQUENCES:
        item = re.sub(r"^an? ", "", _describe(_split_top_level(inner.removesuffix("]"), ",")[0]))
        return f"a sequence of {item if item == 'None' else item + 's'}"
    return _DESCRIPTIONS.get(kind, "an array" if kind == "ArrayLike" else kind)


def _error_names(value: Any, error: Exception) -> bool:
    """Whether a Python error is about this value: its text has the value or its type."""
    text, kind = str(error), type(value).__name__
    if "inhomogeneous" in text:
        return isinstance(value, list | tuple) and _is_ragged(value)
    number = _as_number(value)
    if number is not None:
        return f"'{value}'" in text or (_RANGE_ERRORS.search(text) is not None and
                                        not -_INT32_LIMIT < number < _INT32_LIMIT)
    if isinstance(value, str):
        return repr(value) in text or "'str'" in text
    return kind not in _ARRAYS and (f"{kind}'" in text or repr(value) in text)


_RANGE_ERRORS = re.compile("NaN|infinity|too large|Maximum|negative dim|out of "
                           "bounds|integral|exceed")


def _as_number(value: Any) -> float | None:
    """Return the value as a Python number; None if it is not a number."""
    if isinstance(value, numbers.Real):
        return value  # type: ignore[return-value]
    is_scalar = getattr(value, "shape", None) == () and hasattr(value, "item") and \
        getattr(getattr(value, "dtype", None), "kind", "V") in "biuf"  # not a random key
    number = value.item() if is_scalar else None
    return number if isinstance(number, int | float) else None


def _is_ragged(value: Any) -> bool:
    try:
        np.asarray(value)
    except ValueError:
        return True
    return False


def _abbreviate(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | None | tuple | list) or \
        getattr(value, "shape", ()) == () else f"{type(value).__name__} of shape {value.shape}"
    return text if len(text) <= 60 else f"{text[:57]}..."
