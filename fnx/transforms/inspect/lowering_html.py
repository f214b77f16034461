"""A Lowering as HTML for notebooks: a table of kernels, pictures, a collapsible section for each
step.

All text from the user (names of functions and files) is escaped.

>>> row = "add", "m.py:3", "vec(16)", 16, 64, "", "model"
>>> page("<f>", [row], [("graph", "1 ms", "a < b")])[:28]
'<div><p>&lt;f&gt;</p><table>'
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

HEADS = ("kernel", "line", "loops", "FLOP", "bytes", "schedule", "chosen by")
_PRE = '<pre style="line-height: 1.25; overflow-x: auto">'
_TD = '<td style="text-align: left; font-family: monospace">'

KernelRow = tuple[str, str, str, int, int, str, str]


def page(title: str, kernels: Sequence[KernelRow], steps: Sequence[tuple[str, str, str]],
         pictures: Sequence[tuple[str, str]] = ()) -> str:
    """Return HTML of rows (columns as in ``HEADS``), of pictures (title, SVG), and of steps (name,
    times, text)."""
    heads = "".join(f"<th>{h}</th>" for h in HEADS)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in kernels)
    shown = "".join(f"<p>{escape(head)}</p><div style='overflow-x: auto'>{svg}</div>"
                    for head, svg in pictures)
    parts = "".join(
        f"<details><summary><b>{escape(name)}</b> &nbsp; {escape(times)}</summary>"
        f"{_PRE}{escape(text)}</pre></details>" for name, times, text in steps)
    return f"<div><p>{escape(title)}</p><table><tr>{heads}</tr>{rows}</table>{shown}{parts}" \
        "</div>"


def _cell(value: object) -> str:
    return f"<td>{value:,}</td>" if isinstance(value, int) else f"{_TD}{escape(str(value))}</td>"
