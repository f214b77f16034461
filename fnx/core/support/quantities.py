"""Counts, times and sizes as text, for summaries, tables and drawings.

>>> counted(1, "node"), counted(1200, "node")
('1 node', '1,200 nodes')
>>> duration(1234.5), duration(2.5e6), microseconds(2.5e6), microseconds(None)
('1.2 us', '2.50 ms', '2,500.0 us', '-')
>>> three_digits(999), three_digits(4_259_840), size(185_344)
('999 ', '4.26 M', '185 KB')
"""

from __future__ import annotations

_UNITS = ("", "K", "M", "G", "T")  # powers of 1000


def counted(n: int, what: str, plural: str = "s") -> str:
    """Return a number of things."""
    return f"{n:,} {what}{'' if n == 1 else plural}"


def microseconds(nanoseconds: float | None) -> str:
    """Return a time in us, as a column of times has it; a dash for none."""
    return "-" if nanoseconds is None else f"{nanoseconds / 1e3:,.1f} us"


def duration(nanoseconds: float) -> str:
    """Return a time in us, or in ms from one on."""
    return microseconds(nanoseconds) if nanoseconds < 1e6 else f"{nanoseconds / 1e6:,.2f} ms"


def size(n: int) -> str:
    """Return a number of bytes."""
    return f"{three_digits(n)}B"


def three_digits(n: int) -> str:
    """Return three digits of a number, a space and its unit."""
    value, unit = float(n), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}" if unit else f"{n} "
