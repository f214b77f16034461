"""The op table: a row for each operator of ONNX and each opset in which its meaning changed.

A row's rule is called as ``rule(node, *inputs, **attributes)`` and returns a value or a tuple of
values. Inputs that are absent are None. ``static`` names the inputs that must be known while
tracing (shapes, axes, repeats): the rule gets them as NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx.core.support.record import Record
from fnx.onnx.types import Value

Rule = Callable[..., Value]


class OpRow(Record):
    """An operator from an opset on. ``limit``: how a static input that is not known is named."""

    name: str
    since: int
    rule: Rule
    static: tuple[int, ...] = ()


_ROWS: dict[str, list[OpRow]] = {}


def op(*names: str, since: int = 1, static: tuple[int, ...] = ()) -> Callable[[Rule], Rule]:
    """Add a row for each name to the table, with the decorated function as its rule."""
    def add(rule: Rule) -> Rule:
        for name in names:
            rows = _ROWS.setdefault(name, [])
            rows.append(OpRow(name, since, rule, static))
            rows.sort(key=lambda row: row.since)
        return rule

    return add


def find_row(name: str, version: int) -> OpRow | None:
    """Return the row of an operator in an opset: the latest that is not newer."""
    rows = [row for row in _ROWS.get(name, ()) if row.since <= version]
    return rows[-1] if rows else None


def covered() -> dict[str, list[OpRow]]:
    """Return all rows by name of the operator."""
    return _ROWS


def attributes_of(rule: Rule) -> dict[str, Any]:
    """Return the keyword-only arguments of a rule with their defaults: the attributes it reads."""
    return dict(getattr(rule, "__kwdefaults__", None) or {})
