"""Pictures of arrays: as SVG for notebooks and files, as characters for terminals.

>>> picture = ArrayPicture(np.linspace(0, 1, 100))
>>> picture
float64[100]  0 .. 1, mean 0.5
....::::::-------=======++++++*******#######%%%%%%@@@@
>>> picture.svg()[:5]
'<svg '
"""

from __future__ import annotations

import os
from html import escape

import numpy as np

from fnx.core.ir.dtypes import NDArray
from fnx.core.levels.bad_elements import decode_values
from fnx.core.support.errors import check_folder
from fnx.transforms.inspect.step_views import summarize

_RAMP = ".:-=+*#%@"  # characters from the least to the largest value; " " is not finite
_COLUMNS, _ROWS = 54, 24  # of a picture by characters, at most
_CELLS, _POINTS = 96, 480  # of a picture by SVG: cells along an axis, points of a line
_SIZE, _HEIGHT = 288, 72  # pixels of a picture of cells, of a line
_NOISE, _TINY = 1e-6, 1e-300  # relative differences that rounding may cause; no division by 0
_COLORS = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]])


class Picture:
    """SVG that a notebook shows; in a terminal, a summary.

    Attributes:
        summary: what there is to see, in one line.
    """

    summary: str

    def svg(self) -> str:
        """Return the picture as SVG."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<picture: {self.summary}>"

    def _repr_html_(self) -> str:
        return f"<div><p>{escape(self.summary)}</p>{self.svg()}</div>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to an SVG file."""
        check_folder(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg())


class ArrayPicture(Picture):
    """An array to look at: a line if it has one axis, else the cells of its last two axes, at the
    first index of the others. A large one is shown by means of blocks.

    Attributes:
        summary: type, range, mean and share of NaN.
        values: what is shown, as float64.
    """

    def __init__(self, array: NDArray) -> None:
        values = np.asarray(decode_values(array))
        self.summary = summarize(array)
        if values.ndim > 2:
            values = values[(0,) * (values.ndim - 2)]
            self.summary += f"; shown: [{'0, ' * (np.ndim(array) - 2)}:, :]"
        magnitude = np.abs(values) if values.dtype.kind == "c" else values
        self.values: NDArray = np.atleast_1d(magnitude).astype(np.float64)

    def __repr__(self) -> str:
        cells = _levels(_blocks(np.atleast_2d(self.values), _ROWS, _COLUMNS)) * (len(_RAMP) - 1)
        rows = ["".join([" " if np.isnan(x) else _RAMP[round(x)] for x in row]) for row in cells]
        return "\n".join([self.summary, *rows])

    def svg(self) -> str:
        """Return the picture as SVG; elements that are not finite are red."""
        return _line(self.values) if self.values.ndim == 1 else _cells(self.values)


def _blocks(values: NDArray, rows: int, columns: int) -> NDArray:
    """Return the means of blocks: at most so many rows and columns."""
    for axis, most in enumerate((rows, columns)):
        count = values.shape[axis]
        if count > most:
            starts = np.arange(most) * count // most
            sizes = np.diff(np.append(starts, count))
            sums = np.add.reduceat(values, starts, axis=axis)
            values = sums / (sizes[:, None] if axis == 0 else sizes)
    return values


def _levels(values: NDArray) -> NDArray:
    """Return where values are between the least and the largest; NaN for what is not finite."""
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    span = max(high / 2 - low / 2, abs(high) * _NOISE, _TINY)  # halves do not overflow
    levels = np.clip((values / 2 - low / 2) / span, 0, 1)
    return np.where(np.isfinite(values), levels, np.nan)


def _line(values: NDArray) -> str:
    levels = _levels(_blocks(values[None], 1, _POINTS)[0])
    step = _SIZE / max(1, len(levels) - 1)
    points = " ".join([f"{i * step:.1f},{_HEIGHT - y * (_HEIGHT - 2) - 1:.1f}"
                       for i, y in enumerate(levels) if not np.isnan(y)])
    gaps = "".join([f'<rect x="{i * step:.1f}" width="1.5" height="{_HEIGHT}" fill="#d33"/>'
                    for i, y in enumerate(levels) if np.isnan(y)])
    return _svg(_SIZE, _HEIGHT, f'{gaps}<polyline points="{points}" fill="none" '
                'stroke="#47a" stroke-width="1.5"/>')


def _cells(values: NDArray) -> str:
    levels = _levels(_blocks(values, _CELLS, _CELLS))
    side = _SIZE / max(levels.shape)
    cells = "".join([
        f'<rect x="{j * side:.2f}" y="{i * side:.2f}" width="{side:.2f}" height="{side:.2f}" '
        f'fill="{_color(x)}"/>' for i, row in enumerate(levels) for j, x in enumerate(row)])
    return _svg(round(levels.shape[1] * side), round(levels.shape[0] * side), cells)


def _svg(width: int, height: int, body: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" ' \
        f'shape-rendering="crispEdges">{body}</svg>'


def _color(level: float) -> str:
    """Return the color of a level, between those of ``_COLORS``.

    >>> _color(0.0), _color(0.125), _color(float("nan"))
    ('#440154', '#402a70', '#d33')
    """
    if np.isnan(level):
        return "#d33"
    at = level * (len(_COLORS) - 1)
    left = min(int(at), len(_COLORS) - 2)
    mixed = _COLORS[left] + (at - left) * (_COLORS[left + 1] - _COLORS[left])
    return "#" + "".join([f"{round(float(c)):02x}" for c in mixed])
