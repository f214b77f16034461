"""Kinds of values of settings: how one is read from text, which are valid, what messages say.

>>> Number(0, 8).parse("3"), Number(0, 8).is_valid(9), Number(0, 8).description
(3, False, 'an integer from 0 to 8')
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from fnx.core.support.record import Record

_BOOL_NAMES = {"1": True, "true": True, "yes": True, "on": True,
               "": False, "0": False, "false": False, "no": False, "off": False}


class Bool(Record):
    """True or False."""

    description: str = "True or False (as text also 1, 0, yes, no, on, off)"

    def parse(self, text: str) -> Any:
        return _BOOL_NAMES.get(text.lower())

    def is_valid(self, value: Any) -> bool:
        return isinstance(value, bool)


class Number(Record):
    """An integer or a float within bounds, as the type of the bounds says."""

    low: float
    high: float

    @property
    def description(self) -> str:
        kind = "an integer" if isinstance(self.low, int) else "a number"
        return f"{kind} from {self.low:,} to {self.high:,}"

    def parse(self, text: str) -> Any:
        with contextlib.suppress(ValueError):
            return type(self.low)(text or 0)

    def is_valid(self, value: Any) -> bool:
        types = int if isinstance(self.low, int) else (int, float)
        return isinstance(value, types) and not isinstance(value, bool) \
            and self.low <= value <= self.high


class OneOf(Record):
    """One of several strings."""

    choices: tuple[str, ...]

    @property
    def description(self) -> str:
        return f"one of {', '.join([choice or repr(choice) for choice in self.choices])}"

    def parse(self, text: str) -> Any:
        return text

    def is_valid(self, value: Any) -> bool:
        return value in self.choices


class Folder(Record):
    """A path; ``~`` is the home directory. None: the default path. Empty: no folder."""

    description: str = "a path, '' or None"

    def parse(self, text: str) -> Any:
        return os.path.expanduser(text)

    def is_valid(self, value: Any) -> bool:
        return value is None or isinstance(value, str)
