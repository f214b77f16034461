"""Drawings of programs as SVG: the graph of a small function, kernels over time, memory over
commands.

A color is a line of the user's. The background is white, so that a drawing can be read on a dark
page, too; names are escaped, and the tooltip of a box says what does not fit in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from fnx.core.ir.kernel_code import KernelRun
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import kernel_label
from fnx.core.support.quantities import duration, size
from fnx.core.support.record import Record
from fnx.transforms.dispatch.memory_use import LivingBuffer
from fnx.transforms.inspect.array_picture import Picture
from fnx.transforms.inspect.graph_layout import draw_graph

MAX_DRAWN_NODES = 48  # of a graph; a larger one is for the page of view()
_MAX_ROWS = 16  # kernels of a timeline, by their time
_WIDTH, _LABELS, _MARGIN = 680, 250, 8  # pixels: of a drawing, of the names at its left
_BOX, _BOX_HEIGHT, _LAYER, _COLUMN = 116, 42, 58, 126  # pixels of a node; distances of nodes
_ROW, _MEMORY_HEIGHT = 20, 160  # pixels: a kernel of a timeline, all bytes of the arena
_TICKS = 5
_CHARACTER = 5.4  # pixels of a character at a size of 10, at most
_COLORS = ("#a9c9ea", "#f2c894", "#b8dfb0", "#e8b4b8", "#cfc2e6", "#e6dc9c", "#a8dcd9", "#d9d9d9")


class Drawing(Picture):
    """A drawing of a program, which a notebook shows, and which ``save`` writes to a file."""

    def __init__(self, summary: str, width: float, height: float, parts: Iterable[str]) -> None:
        self.summary = summary
        self._svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" ' \
            f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" ' \
            'font-family="sans-serif" font-size="10"><rect width="100%" height="100%" ' \
            f'fill="#fff"/>{"".join(parts)}</svg>'

    def svg(self) -> str:
        """Return the drawing as SVG."""
        return self._svg


class _Box(Record):
    """A rectangle, in pixels."""

    x: float
    y: float
    width: float
    height: float


def graph_drawing(graph: UOp) -> Drawing:
    """Draw the nodes of a FUNCTION, operands above the nodes that read them."""
    drawn = draw_graph([graph], set())
    nodes = [node for node in drawn["nodes"] if node["op"] != "FUNCTION"]
    edges = [edge for edge in drawn["edges"] if max(edge) < len(nodes)]
    left = min([node["x"] for node in nodes], default=0)
    boxes = [_Box((node["x"] - left) * _COLUMN + _MARGIN, node["y"] * _LAYER + _MARGIN, _BOX,
                  _BOX_HEIGHT) for node in nodes]
    # a PARAM is the same node in many functions
    lines = ["" if node["op"] == "PARAM" else node["line"] for node in nodes]
    color = _colors(lines)
    parts = [_line(boxes[a].x + _BOX / 2, boxes[a].y + _BOX_HEIGHT, boxes[b].x + _BOX / 2,
                   boxes[b].y) for a, b in edges]
    parts += [_box(box, color(line), f"{node['op']} {node['detail']}", node["op"].lower(),
                   node["type"], line) for node, box, line in zip(nodes, boxes, lines)]
    return Drawing(f"{len(nodes)} nodes", max([box.x for box in boxes], default=0) + _BOX + _MARGIN,
                   max([box.y for box in boxes], default=0) + _BOX_HEIGHT + _MARGIN, parts)


def time_drawing(runs: Sequence[KernelRun]) -> Drawing:
    """Draw when each kernel ran: a row for each, those that take the longest."""
    times: dict[str, int] = {}
    for run in runs:
        times[_label(run)] = times.get(_label(run), 0) + run.stop - run.start
    longest = set(sorted(times, key=lambda name: -times[name])[:_MAX_ROWS])
    rows = [name for name in times if name in longest]
    start = min([run.start for run in runs], default=0)
    span = max([run.stop for run in runs], default=0) - start or 1
    scale = (_WIDTH - _LABELS - _MARGIN) / span
    height = len(rows) * _ROW + _MARGIN
    color = _colors([_lines(run) for run in runs])
    parts = [_text(_MARGIN, _MARGIN + i * _ROW + 12, name, _LABELS - 2 * _MARGIN)
             for i, name in enumerate(rows)]
    for run in runs:
        if (name := _label(run)) in longest:
            box = _Box(_LABELS + (run.start - start) * scale, _MARGIN + rows.index(name) * _ROW,
                       max(0.5, (run.stop - run.start) * scale), _ROW - 4)
            parts.append(_box(box, color(_lines(run)),
                              f"{name}: {duration(run.stop - run.start)}"))
    unit, name = (1e6, "ms") if span >= 1e7 else (1e3, "us")
    for i in range(_TICKS):
        x = _LABELS + i * (_WIDTH - _LABELS - _MARGIN) / _TICKS
        parts.append(_text(x, height + 14, f"{(x - _LABELS) / scale / unit:,.4g} {name}", 70))
    more = f", the longest {len(rows)} of {len(times)}" if len(times) > len(rows) else ""
    return Drawing(f"{len(runs)} runs of kernels in {duration(span)}{more}", _WIDTH, height + 22,
                   parts)


def memory_drawing(buffers: Sequence[LivingBuffer], arena: int, commands: int) -> Drawing:
    """Draw where in the memory of a call each buffer between kernels is, and for which
    commands."""
    color = _colors([_lines(buffer) for buffer in buffers])
    across = (_WIDTH - 80 - _MARGIN) / max(1, commands)
    down = _MEMORY_HEIGHT / max(1, arena)
    parts = []
    for b in buffers:
        name = _label(b)
        parts.append(_box(_Box(80 + b.first * across, _MARGIN + b.offset * down,
                               (b.last + 1 - b.first) * across, b.nbytes * down), color(_lines(b)),
                          f"{name}: {b.nbytes:,} bytes, commands {b.first} to {b.last}", b.name))
    bottom = _MARGIN + _MEMORY_HEIGHT
    parts += [_text(_MARGIN, _MARGIN + 10, "0 B", 70),
              _text(_MARGIN, bottom, size(arena), 70)]
    step = -(-commands // 16)
    parts += [_text(80 + i * across, bottom + 14, str(i), across * step)
              for i in range(0, commands, step or 1)]
    return Drawing(f"{len(buffers)} buffers in {arena:,} bytes over {commands} commands", _WIDTH,
                   bottom + 22, parts)


def _label(part: KernelRun | LivingBuffer) -> str:
    return kernel_label(part.name, part.locs[:1])


def _lines(part: KernelRun | LivingBuffer) -> str:
    return kernel_label("", part.locs[:1])


def _colors(lines: Iterable[str]) -> Callable[[str], str]:
    """Return the color of each line of the user's, in the order of their appearance."""
    order = list(dict.fromkeys(lines))
    return lambda line: _COLORS[order.index(line) % len(_COLORS)]


def _box(box: _Box, color: str, title: str, *texts: str) -> str:
    """Return a box with a tooltip, and as many lines of text as fit."""
    lines = "".join([_text(box.x + 4, box.y + 12 + 13 * i, text, box.width - 8)
                     for i, text in enumerate(texts) if 13 * (i + 1) <= box.height])
    return f'<g><title>{escape(title)}</title><rect x="{box.x:.1f}" y="{box.y:.1f}" ' \
        f'width="{box.width:.1f}" height="{box.height:.1f}" fill="{color}" stroke="#667"/>' \
        f'{lines}</g>'


def _text(x: float, y: float, text: str, width: float) -> str:
    """Return text, cut to a width in pixels."""
    fits = int(width / _CHARACTER)
    if len(text) > fits:
        text = text[:fits - 2] + ".." if fits > 4 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#223">{escape(text)}</text>' if text else ""


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="#889" fill="none"/>'
