"""Check format strings before their values are known.

>>> check_format("{} and {x:.2f}", (1,), {"x": 2})
>>> check_format("{}", (1, 2), {})
Traceback (most recent call last):
    ...
fnx.core.support.errors.FormatStringError: ...expected a format string that names all arguments, got
'{}', ...
"""

from __future__ import annotations

from typing import Any

from fnx.core.support.errors import ArgumentError, FormatStringError
from fnx.core.support.process import lazy_import

string = lazy_import("string")


def check_format(fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if a format string does not fit its arguments."""
    if not isinstance(fmt, str):
        raise ArgumentError(f"expected a format string, got {type(fmt).__name__}",
                            hint='write print("x = {}", x)')
    used, automatic = set[Any](), 0
    try:
        for _, field, _, _ in string.Formatter().parse(fmt):
            if field is None:
                continue
            name = field.partition(".")[0].partition("[")[0]
            if not name:
                name, automatic = str(automatic), automatic + 1
            used.add(int(name) if name.isdecimal() else name)
    except ValueError as e:
        raise ArgumentError(f"expected a format string, got {fmt!r}: {e}",
                            hint="double literal braces: {{ }}") from None
    available = {*range(len(args)), *kwargs}
    if used != available:
        what, names = ("names", used - available) if used - available else \
            ("does not name", available - used)
        raise FormatStringError(f"expected a format string that names all arguments, got {fmt!r}, "
                                f"which {what} {', '.join(map(str, sorted(names, key=str)))}",
                                hint="write a field for each argument: {} in order, or {name}")
