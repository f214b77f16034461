"""A step of ``debug.step``: its values, as text for terminals, as HTML for notebooks.

>>> summarize(np.array([[1.0, np.nan, 3.0]] * 3, np.float32))
'float32[3, 3]  1 .. 3, mean 2, 3 of 9 NaN'
>>> summarize(np.array([2, 3]))
'int64[2]  [2 3]'
"""

from __future__ import annotations

import linecache
import math
import reprlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.ir import ops
from fnx.core.ir.dtypes import NDArray, as_dtype
from fnx.core.ir.uop import toposort
from fnx.core.levels import interp
from fnx.core.levels.bad_elements import decode_values, is_bad
from fnx.core.levels.line_steps import Caller, Stop
from fnx.core.levels.loop_iterations import Iteration
from fnx.core.support.errors import FnxError, format_location

MAX_SHOWN = 6  # elements that are printed one by one
CONTEXT = 2  # lines around the current one
SHOWN_NAMES = "derivative of ", "tangent of ", "part of ", "return"  # these are no expressions
BINS, BAR, HEIGHT = 24, 6, 36  # of a histogram; pixels


class OutsideLoopError(IndexError):
    """A condition asked for an iteration at a line that fewer loops are around."""


class Loops(tuple[Iteration, ...]):
    """The iterations of the loops around a line, the innermost last."""

    def __getitem__(self, at: Any) -> Any:
        try:
            return super().__getitem__(at)
        except IndexError:
            n = len(self)
            raise OutsideLoopError(f"step.loops[{at}]: expected a line in a loop, got one in "
                                   f"{f'only {n}' if n else 'none'}") from None


class Step:
    """A line that was executed, with the values that it gave.

    Attributes:
        file: path of the source file.
        line: line number.
        function: the name of the function around it.
        kind: "", or "derivative" or "tangent" if the line's derivative was computed.
        values: variable -> its value, a NumPy array.
        constants: variable -> a Python number or string that tracing assigned.
        loops: the iterations around it, the innermost last.
        callers: the lines whose calls led here, the innermost last.
        depth: how many functions are around it.
        number: counts the steps from 1.
        notes: what conditions of breakpoints raised here.
        origin: what made a NaN in the line, or an infinity in its derivative.
        visit: its execution while tracing.
    """

    def __init__(self, stop: Stop, number: int) -> None:
        self.visit = visit = stop.visit
        self.file, self.line = visit.loc
        self.function, self.kind, self.depth = visit.function, visit.kind, visit.depth
        self.values: dict[str, NDArray] = dict(stop.values)
        self.constants, self.number = dict(visit.constants), number
        self.loops = Loops(stop.loops)
        self.callers: tuple[Caller, ...] = stop.callers[::-1]
        self.notes: tuple[str, ...] = () if stop.origin is None else (
            stop.origin.describe_in_line(visit.loc),)
        self.origin = stop.origin

    def has(self, check: str) -> bool:
        """Whether a value has a "nan", or an "inf" or a NaN."""
        is_made = self.origin is not None and (check == "inf" or self.origin.is_nan)
        return is_made or any(
            bool(is_bad(x, check).any()) for x in self.values.values())

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def summarize(value: Any, shape: tuple[Any, ...] | None = None) -> str:
    """Return type and contents of an array in one line; any other object as it is, but short.

    ``shape`` is that of one example, if the array may be a batch of them.
    """
    if not isinstance(value, np.ndarray | np.generic):
        return reprlib.repr(value)
    array = decode_values(value)
    kind = f"{as_dtype(np.asarray(value).dtype).name}{list(array.shape)}"
    if shape is not None and array.ndim > len(shape) and math.prod(shape):
        kind += f" (batch of {array.size // math.prod(shape)}, each {list(shape) or 'a number'})"
    if array.size <= MAX_SHOWN:
        text = np.array2string(array, precision=5, separator=" ").replace("\n", "")
        return f"{kind}  {text}"
    if array.dtype == bool:
        return f"{kind}  {int(array.sum())} of {array.size} True"
    if array.dtype.kind == "c":
        return f"{kind}  |z| {_range(abs(array))}{_nonfinite(array)}"
    return f"{kind}  {_range(array)}{_nonfinite(array)}"


class _NoValue:
    """Stands for an array without a value."""

    def __repr__(self) -> str:
        return "(no value)"


NO_VALUE = _NoValue()


def with_values(name: str, value: Any, shown: Mapping[str, Any]) -> Any:
    """Return what a variable holds, with a NumPy array in the place of each Array; NO_VALUE for one
    without a value.

    >>> with_values("pair", (1, "b"), {})
    (1, 'b')
    """
    if type(value) is Array:
        if name in shown:
            return shown[name]
        try:
            return _own_value(value)
        except FnxError:  # its memory was donated
            return NO_VALUE
    if not isinstance(value, list | tuple | dict) and not hasattr(value, "__dataclass_fields__"):
        return value
    leaves, structure = tree.flatten(value)
    if not any(type(x) is Array for x in leaves):
        return value
    values = [with_values(name + tree.keystr(path), x, shown) if type(x) is Array else x
              for path, x in zip(tree.paths(structure), leaves)]
    try:
        return structure.unflatten(values)
    except Exception:  # of a class of the user's that takes no NumPy array
        return NO_VALUE


def _own_value(x: Array) -> Any:
    """Return the value of an array that depends on no argument."""
    node = x._uop
    if node is not None:
        sources = [n for n in toposort([node]) if not n.src]
        if any(n.op in (ops.LEAF, ops.PARAM) for n in sources):
            return NO_VALUE
        return decode_values(interp.evaluate([node], {})[0])
    return decode_values(x._numpy())


def _range(array: NDArray) -> str:
    finite = array[np.isfinite(array)].astype(np.float64) if array.dtype.kind == "f" else array
    if not finite.size:
        return "no finite element"
    return f"{finite.min():.4g} .. {finite.max():.4g}, mean {finite.mean():.4g}"


def _nonfinite(array: NDArray) -> str:
    if array.dtype.kind not in "fc":
        return ""
    counts = {"NaN": int(np.isnan(array).sum()), "infinite": int(np.isinf(array).sum())}
    return "".join([f", {n} of {array.size} {name}" for name, n in counts.items() if n])


def headline(step: Step) -> str:
    """Return where a step is: file, function, iterations."""
    return f"step {step.number}: " + _position(
        step.kind, (step.file, step.line), step.function, step.loops)


def _position(kind: str, loc: tuple[str, int], function: str, loops: Sequence[Iteration]) -> str:
    around = "".join([
        f", {i.describe()} of {i.loop}{' (backwards)' if i.is_backward else ''}" for i in loops])
    return f"{kind}{' of ' if kind else ''}{format_location(loc)} in {function}{around}"


def call_stack(step: Step) -> list[str]:
    """Return the lines whose calls led to a step, the innermost last, and its own; each with the
    iterations of the loops that it is in and its caller is not."""
    rows: list[str] = []
    n_outer = 0
    for c in step.callers:
        visit = c.visit
        rows.append(_position("", visit.loc, visit.function, step.loops[n_outer:c.n_loops]))
        n_outer = c.n_loops
    rows.append(_position(step.kind, (step.file, step.line), step.function, step.loops[n_outer:]))
    return rows


def source_lines(step: Step, context: int = CONTEXT) -> list[tuple[int, str, bool]]:
    """Return the lines around a step: (number, text, whether it is the step's own)."""
    lines = range(max(1, step.line - context), step.line + context + 1)
    texts = [(n, linecache.getline(step.file, n).rstrip(), n == step.line) for n in lines]
    if not any(is_current and text for _, text, is_current in texts):
        return []
    return [(n, text, is_current) for n, text, is_current in texts if text or is_current]


def as_text(step: Step) -> str:
    """Return a step as text: where it is, the lines around it, its values."""
    rows = [headline(step), *step.notes, *source_text(step)]
    width = max(map(len, (*step.values, *step.constants)), default=0)
    rows += [f"   {name:{width}} = {summarize(x, step.visit.shape_of(name))}"
             for name, x in step.values.items()]
    rows += [f"   {name:{width}} = {value!r}" for name, value in step.constants.items()]
    return "\n".join(rows)


def source_text(step: Step, context: int = CONTEXT) -> list[str]:
    """Return the lines around a step, with an arrow at the one that has run."""
    return [f"{'->' if is_current else '  '} {n:4}  {text}"
            for n, text, is_current in source_lines(step, context)] or ["    (no source)"]


def as_html(step: Step) -> str:
    """Return a step as HTML: where it is, the lines around it, its values with histograms."""
    lines = "\n".join([
        f"<b>{n:4}  {escape(text)}</b>" if is_current else f"{n:4}  {escape(text)}"
        for n, text, is_current in source_lines(step)])
    cell = '<td style="text-align: left; font-family: monospace">'
    rows = [f"<tr>{cell}{escape(name)}</td>"
            f"{cell}{escape(summarize(x, step.visit.shape_of(name)))}</td>"
            f"<td>{histogram(decode_values(x))}</td></tr>" for name, x in step.values.items()]
    rows += [f"<tr>{cell}{escape(name)}</td>{cell}{escape(repr(value))}</td><td></td></tr>"
             for name, value in step.constants.items()]
    head = "<br>".join([escape(text) for text in (headline(step), *step.notes)])
    return f"<div><p>{head}</p><pre>{lines}</pre>" \
        f"<table>{''.join(rows)}</table></div>"


def preformatted(text: str) -> str:
    """Return text as HTML."""
    return f"<pre>{escape(text)}</pre>"


def histogram(array: NDArray) -> str:
    """Return the histogram of the finite elements of an array as SVG; "" if there are few."""
    if array.dtype.kind not in "fiu" or array.size <= MAX_SHOWN:
        return ""
    finite = array[np.isfinite(array)].astype(np.float64)
    if not finite.size:
        return ""
    counts, edges = np.histogram(finite, BINS)
    bars = "".join([
        f'<rect x="{i * BAR}" y="{HEIGHT - h:.1f}" width="{BAR - 1}" height="{h:.1f}"/>'
        for i, h in enumerate(counts / counts.max() * HEIGHT)])
    return f'<svg width="{BINS * BAR}" height="{HEIGHT}" fill="currentColor" role="img">' \
        f"<title>{edges[0]:.4g} .. {edges[-1]:.4g}</title>{bars}</svg>"
