"""Type queries, printing, input and output, and index tricks of ``fnx.numpy``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.call_validation import validate_call
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import dtypes
from fnx.core.support.errors import ArgumentError
from fnx.numpy.base import arange, concatenate, linspace, meshgrid, stack, transpose
from fnx.numpy.dtypes import dtype_of

__all__ = [
    "array_repr", "array_str", "c_", "can_cast", "frombuffer", "fromfile", "fromiter", "fromstring",
    "get_printoptions", "index_exp", "iscomplexobj", "isdtype", "isrealobj", "isscalar", "iterable",
    "load", "mgrid", "ogrid", "printoptions", "r_", "s_", "save", "savez", "set_printoptions",
]

_docstr = DocTemplate(
    x="any value.", element="any value.", y="any value.", from_="a dtype, or a value with a dtype.",
    to="a dtype.", dtype="a dtype.", arr="an Array.", a="an Array.", file="a path or a file.",
    max_line_width="as in NumPy.", precision="the number of digits.",
    suppress_small="whether to print numbers close to 0 as 0.",
    args="arguments of NumPy's function.", kwargs="arguments of NumPy's function.",
    allow_pickle="as in NumPy.", kwds="Arrays by name.", buffer="a bytes-like object.",
    string="the text to parse.", count="the number of elements; -1 means all.",
    offset="the byte offset to start at.", sep="the separator of the numbers.",
    casting='the casting rule: "no", "equiv", "safe", "same_kind" or "unsafe".',
    kind="a dtype, the name of a kind, or a tuple of these.", returns="True or False.",
    raises=("ArgumentError: an option is unknown.",), wrap=validate_call)


@_docstr()
def isscalar(element: Any) -> bool:
    """Return whether a value is a number or a 0-d array.

    >>> jnp.isscalar(1.5), jnp.isscalar(jnp.ones(1))
    (True, False)
    """
    return bool(np.isscalar(element)) or getattr(element, "ndim", None) == 0


@_docstr()
def iterable(y: Any) -> bool:
    """Return whether a value can be iterated over.

    >>> jnp.iterable(jnp.ones(1)), jnp.iterable(1)
    (True, False)
    """
    return bool(getattr(y, "ndim", 1)) and bool(np.iterable(y))


@_docstr()
def iscomplexobj(x: Any) -> bool:
    """Return whether a value has a complex type.

    >>> jnp.iscomplexobj(1.5), jnp.iscomplexobj(1j)
    (False, True)
    """
    return x is not None and np.dtype(getattr(x, "dtype", type(x))).kind == "c" if hasattr(
        x, "dtype") else isinstance(x, complex)


@_docstr()
def isrealobj(x: Any) -> bool:
    """Return whether a value does not have a complex type.

    >>> jnp.isrealobj(1.5)
    True
    """
    return not iscomplexobj(x)


@_docstr()
def can_cast(from_: Any, to: DTypeLike, casting: str = "safe") -> bool:
    """Return whether NumPy's casting rules allow the conversion between two dtypes.

    >>> jnp.can_cast("int32", "float64"), jnp.can_cast("float32", "int32")
    (True, False)
    """
    arguments.check_choice("casting", casting, ("no", "equiv", "safe", "same_kind", "unsafe"))
    source = from_.dtype if hasattr(from_, "dtype") else from_
    return bool(np.can_cast(source, dtype_of(to).np, casting))  # type: ignore[arg-type]


_KIND_LETTERS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
                 "real floating": "f", "complex floating": "c", "numeric": "iufc"}


@_docstr()
def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Return whether a dtype is of a kind.

    >>> jnp.isdtype("float32", "real floating"), jnp.isdtype("int32", ("bool", "integral"))
    (True, True)
    """
    t = dtypes.as_dtype(dtype)
    letter = {"bool": "b", "int": "i", "uint": "u", "float": "f", "complex": "c"}[t.kind]
    for candidate in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(candidate, str) and candidate in _KIND_LETTERS:
            if letter in _KIND_LETTERS[candidate]:
                return True
        elif dtypes.as_dtype(candidate) is t:
            return True
    return False


# ---- text and files -----------------------------------------------------------------------------


@_docstr("A str.")
def array_repr(arr: ArrayLike, max_line_width: int | None = None, precision: int | None = None,
               suppress_small: bool | None = None) -> str:
    """Format an array as text, with its dtype.

    >>> jnp.array_repr(jnp.ones(1))
    'Array([1.], dtype=float32)'
    """
    x = asarray(arr)
    text = np.array2string(np.asarray(x), max_line_width, precision, suppress_small, ", ",
                           prefix="Array(", suffix=",")
    return f"Array({text}, dtype={x.dtype})"


@_docstr("A str.")
def array_str(a: ArrayLike, max_line_width: int | None = None, precision: int | None = None,
              suppress_small: bool | None = None) -> str:
    """Format an array as text, without its dtype.

    >>> jnp.array_str(jnp.ones(1))
    '[1.]'
    """
    return np.array_str(np.asarray(asarray(a)), max_line_width, precision, suppress_small)


@_docstr("A dict.", raises=())
def get_printoptions() -> dict[str, Any]:
    """Return the options for printing arrays, which are NumPy's.

    >>> jnp.get_printoptions()["precision"]
    8
    """
    return dict(np.get_printoptions())


@_docstr("None.", raises=())
def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """Set the options for printing arrays, which are NumPy's.

    >>> jnp.set_printoptions(precision=8)
    """
    np.set_printoptions(*args, **kwargs)


@contextlib.contextmanager
def printoptions(*args: Any, **kwargs: Any) -> Iterator[Any]:
    """Set the options for printing arrays, which are NumPy's, within a ``with`` block.

    Args:
        args: positional arguments of ``numpy.printoptions``.
        kwargs: keyword arguments of ``numpy.printoptions``.

    Returns:
        A context manager.

    >>> import fnx.numpy as jnp
    >>> with printoptions(precision=2):
    ...     print(jnp.asarray([1 / 3]))
    [0.33]
    """
    with np.printoptions(*args, **kwargs) as options:
        yield options


@_docstr("None.", raises=())
def save(file: Any, arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Save an array to a file in NumPy's ``.npy`` format.

    >>> import io
    >>> file = io.BytesIO(); jnp.save(file, jnp.ones(2)); file.tell()
    136
    """
    np.save(file, np.asarray(asarray(arr)), allow_pickle=allow_pickle)


@_docstr("None.", raises=())
def savez(file: Any, *args: ArrayLike, allow_pickle: bool = True, **kwds: ArrayLike) -> None:
    """Save arrays to an archive in NumPy's ``.npz`` format.

    >>> import io
    >>> file = io.BytesIO(); jnp.savez(file, x=jnp.ones(2)); file.tell() > 0
    True
    """
    np.savez(file, *map(np.asarray, args), allow_pickle=allow_pickle,
             **{name: np.asarray(x) for name, x in kwds.items()})


@_docstr("An Array, or an archive of NumPy data.", raises=())
def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Load arrays from a file that ``save`` or ``savez`` wrote.

    >>> import io
    >>> file = io.BytesIO(); jnp.save(file, jnp.ones(2)); _ = file.seek(0); jnp.load(file)
    Array([1., 1.], dtype=float32)
    """
    data = np.load(file, *args, **kwargs)
    if isinstance(data, np.ndarray) and data.dtype == np.dtype("V2"):  # bfloat16
        return asarray(data.view(np.uint16)).view("bfloat16")
    return asarray(data) if isinstance(data, np.ndarray) else data


@_docstr("An Array.", raises=())
def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> Array:
    """Interpret a buffer of bytes as a one-dimensional array.

    >>> jnp.frombuffer(b"\\x01\\x00\\x00\\x00", "int32")
    Array([1], dtype=int32)
    """
    return asarray(np.frombuffer(buffer, dtypes.as_dtype(dtype).np, count, offset))


@_docstr("An Array.", raises=())
def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """Parse the numbers in a text into an array.

    >>> jnp.fromstring("1 2", dtype=int, sep=" ")
    Array([1, 2], dtype=int32)
    """
    return asarray(np.fromstring(string, dtypes.as_dtype(dtype).np, count, sep=sep))


@_docstr("An Array.", raises=())
def fromfile(*args: Any, **kwargs: Any) -> Array:
    """Read the bytes of a file into an array; takes the arguments of NumPy's function.

    >>> import numpy, tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(b"\\x01\\x00\\x00\\x00"), file.seek(0)
    ...     jnp.fromfile(file, numpy.int32)
    Array([1], dtype=int32)
    """
    return asarray(np.fromfile(*args, **kwargs))


@_docstr("An Array.", raises=())
def fromiter(*args: Any, **kwargs: Any) -> Array:
    """Create an array from an iterator; takes the arguments of NumPy's function.

    >>> jnp.fromiter(range(3), "int32")
    Array([0, 1, 2], dtype=int32)
    """
    return asarray(np.fromiter(*args, **kwargs))


# ---- index tricks -------------------------------------------------------------------------------


def _slice_to_range(part: slice) -> Array:
    """Convert a slice to a range. An imaginary step gives the number of points."""
    start = 0 if part.start is None else part.start
    step = 1 if part.step is None else part.step
    if isinstance(step, complex):
        return asarray(linspace(start, part.stop, int(abs(step))))
    return arange(start, part.stop, step)


class GridIndexer:
    """The type of ``mgrid`` and ``ogrid``, which build grids from slices."""

    def __init__(self, sparse: bool) -> None:
        self._sparse = sparse

    def __getitem__(self, parts: Any) -> Any:
        if isinstance(parts, slice):
            return _slice_to_range(parts)
        lines = [_slice_to_range(part) for part in parts]
        kind = concatenate([line[:0] for line in lines]).dtype
        lines = [line.astype(kind) for line in lines]
        n = len(lines)
        if self._sparse:
            return [line.reshape([-1 if j == i else 1 for j in range(n)])
                    for i, line in enumerate(lines)]
        return stack(meshgrid(*lines, indexing="ij"))


class AxisConcatenator:
    """The type of ``r_`` and ``c_``, which concatenate arrays, numbers and slices by indexing.

    Args:
        axis: the axis to concatenate along.
        least: the minimum number of axes of each part.
        place: where the axes of a part of lower rank begin; -1 puts them after the added axes.
    """

    def __init__(self, axis: int, min_rank: int, position: int) -> None:
        self._defaults = (axis, min_rank, position)

    def __getitem__(self, parts: Any) -> Array:
        items = list(parts) if isinstance(parts, tuple) else [parts]
        axis, min_rank, position = self._defaults
        matrix = ""
        if items and isinstance(items[0], str):
            text = items.pop(0)
            if text in ("r", "c"):
                matrix = text
            else:
                axis, min_rank, position = self._parse_directive(text)
        if not items:
            raise ArgumentError("expected at least one array, got none")
        out = concatenate([_expand_rank(x, min_rank, position) for x in items], axis)
        if matrix and out.ndim == 1:
            return out[None] if matrix == "r" else out[:, None]
        return out

    def _parse_directive(self, text: str) -> tuple[int, int, int]:
        try:
            numbers = [int(part) for part in text.split(",")[:3]]
        except ValueError:
            raise ArgumentError("expected 'r', 'c', or integers as 'axis,ndmin,position'; got "
                                f"{text!r}") from None
        axis, min_rank, position = (*numbers, *self._defaults[len(numbers):])
        return axis, min_rank, position


def _expand_rank(part: Any, min_rank: int, position: int) -> Array:
    """Expand a part to at least ``min_rank`` axes.

    Its own axes begin at ``position``; the added ones have length 1.
    """
    x = _slice_to_range(part) if isinstance(part, slice) else asarray(part)
    own_rank = 0 if isinstance(part, slice) else x.ndim
    expanded = x.reshape((1,) * (min_rank - x.ndim) + x.shape)
    if position == -1 or own_rank >= min_rank:
        return expanded
    shift = min_rank - abs(min_rank + position + 1) % min_rank
    order = tuple(range(min_rank))
    return transpose(expanded, order[shift:] + order[:shift])


class IndexExpression:
    """The type of ``s_`` and ``index_exp``, which return their index as a value."""

    def __init__(self, tuples: bool) -> None:
        self._always_tuple = tuples

    def __getitem__(self, index: Any) -> Any:
        return (index,) if self._always_tuple and not isinstance(index, tuple) else index


mgrid, ogrid = GridIndexer(False), GridIndexer(True)
r_, c_ = AxisConcatenator(0, 1, -1), AxisConcatenator(-1, 2, 0)
s_, index_exp = IndexExpression(False), IndexExpression(True)
