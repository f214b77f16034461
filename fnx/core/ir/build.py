"""Checked constructors of tensor-level and kernel-level nodes.

Every pass and transform builds nodes through here. A constructor checks its operands (public
functions may let the errors through to the user, so they name the operands) and leaves out
movements that move nothing.

>>> x = const(2.0, dtypes.float32)
>>> add(x, x).op
ADD
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from fnx.core.ir import dtypes, kernel_args, low_precision, op_args, ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import gather_shape
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import (
    AxisError,
    DTypeError,
    OutOfBoundsError,
    OutOfMemoryError,
    OverflowedError,
    ShapeError,
)

# ---- constants --------------------------------------------------------------------------------


def const_bits(value: Any, dtype: DType) -> int:
    """Return the bit pattern of ``value``; an integer that does not fit raises."""
    if dtype.kind == "bool":
        return int(bool(value))
    if dtype.is_float:
        if dtype.storage is not None:
            return low_precision.encode_number(value, dtype)
        try:
            raw = dtype.packing.pack(float(value))
        except OverflowError:
            if isinstance(value, int):
                raise OverflowedError(f"expected a number that fits {dtype}, got an integer of "
                                      f"{value.bit_length()} bits",
                                      hint="write it as a float, such as 1e30") from None
            raw = dtype.packing.pack(math.copysign(math.inf, value))
        return int.from_bytes(raw, "little")
    if dtype.is_complex:
        number = value if isinstance(value, int) else complex(value)
        return const_bits(number.real, dtype.real) | \
            const_bits(number.imag, dtype.real) << dtype.real.bits
    number = int(value)
    low, high = dtype.limits
    if not low <= number <= high:
        raise OverflowedError(f"expected an integer that fits {dtype}, got {_format_int(number)}",
                              hint="pass a wider dtype, or use a smaller value")
    return number & ((1 << dtype.bits) - 1)


def _format_int(number: int) -> str:
    return str(number) if number.bit_length() <= 128 else f"one of {number.bit_length()} bits"


def const(value: Any, dtype: DType, shape: Shape = ()) -> UOp:
    """Return a constant, expanded to ``shape``. A dimension is one whose value the call knows."""
    node = UOp(ops.DIMENSION, dtype, (), value) if isinstance(value, op_args.Dimension) else \
        UOp(ops.CONST, dtype, (), const_bits(value, dtype))
    if not shape:
        return node
    ones = UOp(ops.RESHAPE, dtype, (node,), (1,) * len(shape))  # as expand builds it
    return ones if ones.shape == shape else UOp(ops.EXPAND, dtype, (ones,), tuple(shape))


def const_of(node: UOp) -> Any:
    """Return the Python value of a CONST node."""
    bits, kind = node.arg, node.dtype.kind
    if kind == "float":
        if node.dtype.storage is not None:
            return low_precision.decode_number(bits, node.dtype)
        return node.dtype.packing.unpack(bits.to_bytes(node.dtype.itemsize, "little"))[0]
    if kind == "bool":
        return bool(bits)
    if kind == "complex":
        real = node.dtype.real
        raw = bits.to_bytes(node.dtype.itemsize, "little")
        return complex(*[real.packing.unpack(raw[i:i + real.itemsize])[0]
                         for i in (0, real.itemsize)])
    negative = kind not in ("uint", "key") and bits >> (node.dtype.bits - 1)
    return bits - (1 << node.dtype.bits) if negative else bits


def is_liftable_const(node: UOp) -> bool:
    """Return whether a node is a float constant other than 0, 1, -1, inf and NaN.

    Such a constant may become a kernel argument, so that kernels for other values share the code.
    """
    if node.op is not ops.CONST or not node.dtype.is_float:
        return False
    value = const_of(node)
    return math.isfinite(value) and value not in (0.0, 1.0, -1.0)


def const_like(node: UOp, value: Any) -> UOp:
    """Return a constant of the dtype and shape of ``node``."""
    return const(value, node.dtype, node.shape)


# ---- elementwise ------------------------------------------------------------------------------


def elementwise(op: Op, *src: UOp, arg: Any = None) -> UOp:
    """Build an elementwise node; operands have one shape, and dtypes that ``op`` accepts."""
    if op is ops.WHERE:
        return where(*src)
    dtype, shape = src[0].dtype, src[0].shape
    for s in src:
        if s.dtype is not dtype or s.shape != shape:
            raise ops.operand_error(op, src)
    if len(src) != op.arity or dtype.scalar not in op.types:
        raise ops.operand_error(op, src)
    result = dtype if op.result == "same" else _RESULT_TYPES[op.result](dtype)
    return UOp(op, result, src, arg)


_RESULT_TYPES: dict[str, Callable[[DType], DType]] = {
    "bool": lambda t: dtypes.bool_, "real": lambda t: t.real, "complex": dtypes.complex_of}


def cast(x: UOp, dtype: DType) -> UOp:
    """Convert values: float -> integer truncates and saturates, anything -> bool is != 0, complex
    -> real drops the imaginary part."""
    return x if x.dtype is dtype else UOp(ops.CAST, dtype, (x,))


def to_compute(x: UOp) -> UOp:
    """Promote x to its compute type if its own is storage-only."""
    return x if x.dtype.storage is None else UOp(ops.CAST, x.dtype.compute, (x,))


def bitcast(x: UOp, dtype: DType) -> UOp:
    """Reinterpret the bits as another dtype of equal width."""
    if x.dtype.bits != dtype.bits or {"bool", "complex"} & {x.dtype.kind, dtype.kind}:
        raise DTypeError(f"bitcast: expected numbers of equal width, got {x.dtype} and {dtype}")
    return x if x.dtype is dtype else UOp(ops.BITCAST, dtype, (x,))


neg = partial(elementwise, ops.NEG)
exp = partial(elementwise, ops.EXP)
log = partial(elementwise, ops.LOG)
sqrt = partial(elementwise, ops.SQRT)
logical_not = partial(elementwise, ops.NOT)
add = partial(elementwise, ops.ADD)
sub = partial(elementwise, ops.SUB)
mul = partial(elementwise, ops.MUL)
div = partial(elementwise, ops.DIV)
idiv = partial(elementwise, ops.IDIV)
rem = partial(elementwise, ops.REM)
power = partial(elementwise, ops.POW)
maximum = partial(elementwise, ops.MAX)
minimum = partial(elementwise, ops.MIN)
lt = partial(elementwise, ops.CMPLT)
le = partial(elementwise, ops.CMPLE)
eq = partial(elementwise, ops.CMPEQ)
ne = partial(elementwise, ops.CMPNE)
complex_number = partial(elementwise, ops.COMPLEX)
real = partial(elementwise, ops.REAL)
imag = partial(elementwise, ops.IMAG)
and_ = partial(elementwise, ops.AND)
or_ = partial(elementwise, ops.OR)
mulacc = partial(elementwise, ops.MULACC)  # a * b + c with one rounding


def where(condition: UOp, a: UOp, b: UOp) -> UOp:
    """Select ``a`` where ``condition`` holds, else ``b``."""
    if condition.dtype is not dtypes.bool_ or a.dtype is not b.dtype or \
            not condition.shape == a.shape == b.shape:
        raise ops.operand_error(ops.WHERE, (condition, a, b))
    return UOp(ops.WHERE, a.dtype, (condition, a, b))


# ---- movement ---------------------------------------------------------------------------------


def reshape(x: UOp, shape: Shape) -> UOp:
    """Return the same elements, in row-major order, with another shape."""
    shape = tuple(shape)
    if math.prod(shape) != math.prod(x.shape) or [n for n in shape if n < 0]:
        raise ShapeError(f"reshape: expected {math.prod(x.shape)} elements, got shape {shape}")
    if x.op is ops.RESHAPE and shape != x.shape:
        return reshape(x.src[0], shape)
    return x if shape == x.shape else UOp(ops.RESHAPE, x.dtype, (x,), shape)


def permute(x: UOp, axes: Sequence[int]) -> UOp:
    """Permute the axes: axis i of the result is axis ``axes[i]`` of x."""
    axes = tuple(axes)
    if sorted(axes) != list(range(len(x.shape))):
        raise AxisError(f"permute: expected an order of {len(x.shape)} axes, got {axes}")
    if x.op is ops.PERMUTE:
        return permute(x.src[0], tuple(x.arg[a] for a in axes))
    return x if axes == tuple(range(len(axes))) else UOp(ops.PERMUTE, x.dtype, (x,), axes)


def expand(x: UOp, shape: Shape) -> UOp:
    """Broadcast x: add leading axes, and repeat axes of length 1."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    missing = len(shape) - len(x.shape)
    if missing < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[missing:])):
        raise ShapeError(f"expected a shape that broadcasts to {shape}, got {x.shape}",
                         hint="trailing axes must be equal or have length 1: insert axes with "
                              "x[:, None]")
    if missing:
        x = reshape(x, (1,) * missing + x.shape)
    if x.op is ops.EXPAND:
        x = x.src[0]
    return x if x.shape == shape else UOp(ops.EXPAND, x.dtype, (x,), shape)


def pad(x: UOp, widths: Iterable[tuple[int, int]], fill: Any = 0) -> UOp:
    """Add ``fill`` (a number, or a 0-d node) before and after each axis; widths >= 0."""
    arg = tuple([(as_length(lo), as_length(hi)) for lo, hi in widths])
    if len(arg) != len(x.shape) or any(lo < 0 or hi < 0 for lo, hi in arg):
        raise ShapeError(f"pad: expected {len(x.shape)} pairs of widths >= 0, got {arg}")
    value = fill if isinstance(fill, UOp) else const(fill, x.dtype)
    return UOp(ops.PAD, x.dtype, (x, value), arg) if any(p != (0, 0) for p in arg) else x


def shrink(x: UOp, bounds: Iterable[tuple[int, int]]) -> UOp:
    """Slice each axis to lo <= i < hi."""
    arg = tuple([(as_length(lo), as_length(hi)) for lo, hi in bounds])
    if len(arg) != len(x.shape) or any(not 0 <= lo <= hi <= n
                                       for (lo, hi), n in zip(arg, x.shape)):
        raise OutOfBoundsError(f"shrink: expected bounds inside {x.shape}, got {arg}")
    is_full = all(lo == 0 and hi == n for (lo, hi), n in zip(arg, x.shape))
    return x if is_full else UOp(ops.SHRINK, x.dtype, (x,), arg)


def flip(x: UOp, axes: Iterable[int]) -> UOp:
    """Reverse the order along ``axes``."""
    arg = tuple(sorted([a for a in set(axes) if x.shape[a] not in (0, 1)]))
    return UOp(ops.FLIP, x.dtype, (x,), arg) if arg else x


def unfold(x: UOp, axis: int, offset: int, stride: int = 1, dilation: int = 1,
           length: int | None = None) -> UOp:
    """Extract windows (im2col): at i along ``axis`` and j along ``offset``, the result is x at
    i * stride + j * dilation along ``axis``, and at j.

    If x is constant along its axis ``offset`` these are sliding windows. ``length`` is the number
    of windows, by default all that fit.
    """
    n, size = ops.check_window_axes("unfold", x, axis, offset, stride, dilation)
    max_count = max(0, (n - max(0, size - 1) * dilation - 1) // stride + 1)
    count = max_count if length is None else length
    if count < 0 or size and count > max_count:  # empty windows fit anywhere
        raise OutOfBoundsError(f"unfold: expected at most {max_count} windows of {size} along axis "
                               f"{axis} of {x.shape}, got {count}")
    return UOp(ops.UNFOLD, x.dtype, (x,), op_args.Window(axis, offset, stride, dilation, count))


def fold(windows: UOp, axis: int, offset: int, stride: int, dilation: int, length: int) -> UOp:
    """Build the transpose of ``unfold``: put y[i, j] at index i * stride + j * dilation, and at j.

    The other elements along ``axis``, of the given length, are zero (False). Summing the result
    over the axis ``offset`` adds overlapping windows (col2im).
    """
    count, size = ops.check_window_axes("fold", windows, axis, offset, stride, dilation)
    if count and size and (count - 1) * stride + (size - 1) * dilation >= length:
        raise OutOfBoundsError(f"fold: expected {count} windows of {size} to fit, got length "
                               f"{length}")
    return UOp(ops.FOLD, windows.dtype, (windows,),
               op_args.Window(axis, offset, stride, dilation, length))


def concat(xs: Sequence[UOp], axis: int) -> UOp:
    """Concatenate along ``axis``; the other axes agree."""
    first = xs[0]
    for x in xs:
        if x.dtype is not first.dtype:
            raise DTypeError(f"expected one dtype, got {first.dtype} and {x.dtype}")
        if x.shape[:axis] + x.shape[axis + 1:] != first.shape[:axis] + first.shape[axis + 1:]:
            raise ShapeError(f"expected shapes that agree except along axis {axis}, got "
                             f"{first.shape} and {x.shape}",
                             hint="insert an axis with x[None], or reshape one of them")
    if len(xs) == 1:
        return first
    whole = _all_parts(xs, axis)
    return UOp(ops.CONCAT, first.dtype, tuple(xs), axis) if whole is None else whole


def _all_parts(xs: Sequence[UOp], axis: int) -> UOp | None:
    """Return the array whose parts along its last axis, each of length 1, these are, in order: both
    parts of complex numbers that come from memory and go there."""
    if axis != len(xs[0].shape) - 1 or any(x.shape[axis] != 1 for x in xs):
        return None
    parts = [x.src[0] if x.op is ops.RESHAPE else x for x in xs]
    base = parts[0].src[0] if parts[0].op is ops.SHRINK else None
    if base is None or base.shape[-1] != len(xs):
        return None
    bounds = tuple([(0, n) for n in base.shape[:-1]])
    if any(p.op is not ops.SHRINK or p.src[0] is not base or p.arg != (*bounds, (i, i + 1))
           for i, p in enumerate(parts)):
        return None
    return reshape(base, (*xs[0].shape[:-1], len(xs)))


def barrier(x: UOp, *after: UOp) -> UOp:
    """Return x, ordered after ``after``; its users are not merged with those of x (no CSE)."""
    return UOp(ops.BARRIER, x.dtype, (x, *after))


def stop_gradient(x: UOp) -> UOp:
    """Return x as a constant for derivatives; simplify removes the node."""
    return UOp(ops.STOP_GRADIENT, x.dtype, (x,))


def as_length(n: Any) -> Any:
    """Return a whole number as an int; a dimension as it is."""
    return n if type(n) is int or isinstance(n, op_args.Dimension) else int(n)


def iota(n: int, dtype: DType = dtypes.int32) -> UOp:
    """0, 1, ... n-1."""
    return UOp(ops.IOTA, dtype, (), as_length(n))


# ---- reductions, indexed reads and writes -----------------------------------------------------


def arg_pair(key: UOp, index: UOp) -> UOp:
    """Pair keys with indices for an arg-reduction: the least index of the largest or smallest key.

    A NaN counts as the extreme key, as for MAX and MIN.

    >>> x = param(0, dtypes.float32, (5,))
    >>> reduce(arg_pair(x, iota(5)), ops.MAX, [0]).dtype
    int32
    """
    key = to_compute(key)
    if key.shape != index.shape or not index.dtype.is_integer or \
            not ops.MAX.accepts_dtype(key.dtype):
        raise ops.operand_error(ops.ARG_PAIR, (key, index))
    return UOp(ops.ARG_PAIR, index.dtype, (key, index))


def drop_key(x: UOp) -> UOp:
    """Return the value of a reduction over no axes: the index of an ARG_PAIR, else x."""
    return x.src[1] if x.op is ops.ARG_PAIR else x


def reduce(x: UOp, monoid: Op, axes: Iterable[int], first_only: bool = False) -> UOp:
    """Reduce ``axes`` (0 <= axis < ndim) of x with a monoid; they are removed (op_args.Reduce).

    Storage-only dtypes are reduced in their compute type, and rounded once.
    """
    arg = tuple(sorted(set(axes)))
    if any(not 0 <= a < len(x.shape) for a in arg):
        raise AxisError(f"reduce: expected axes of {x.shape}, got {arg}")
    ops.check_monoid("reduce", monoid, x.dtype)
    if not arg:
        return drop_key(x)
    wide = to_compute(x)
    reduced = UOp(ops.REDUCE, wide.dtype, (wide,), op_args.Reduce(monoid, arg, None, first_only))
    return cast(reduced, x.dtype)


def gather(x: UOp, *index: UOp, axes: Sequence[int] | None = None) -> UOp:
    """Read x at index arrays of one shape along ``axes``, by default the leading ones; clamped.

    The axes of the indices come first in the result, then the other axes of x.
    """
    arg = op_args.Gather(ops.check_index_axes(x, index, axes))
    if 0 in [x.shape[a] for a in arg.axes] and 0 not in index[0].shape:
        raise OutOfBoundsError(f"gather: expected axes with elements, got shape {x.shape}")
    return UOp(ops.GATHER, x.dtype, (x, *index), arg)


def scatter(x: UOp, index: Sequence[UOp], updates: UOp, monoid: Op | None = None,
            axes: Sequence[int] | None = None, is_unique: bool = False) -> UOp:
    """Write ``updates`` to x at index, or combine them with the old elements by a monoid.

    The updates have the shape of what ``gather`` reads. Those out of bounds are dropped;
    duplicates apply in index order, and there must be none if ``is_unique``. Storage-only dtypes
    are combined in their compute type, and rounded once.
    """
    arg = op_args.Scatter(ops.check_index_axes(x, index, axes), monoid, is_unique)
    ops.check_updates(x, gather_shape((x, *index), arg), updates, monoid)
    if monoid is None or x.dtype.storage is None:
        return UOp(ops.SCATTER, x.dtype, (x, *index, updates), arg)
    return cast(scatter(to_compute(x), index, to_compute(updates), monoid, axes), x.dtype)


# ---- scopes -----------------------------------------------------------------------------------


def param(slot: int, dtype: DType, shape: Shape) -> UOp:
    """Return input ``slot`` of the enclosing FUNCTION."""
    return UOp(ops.PARAM, dtype, (), op_args.Param(slot, tuple(shape)))


def function(outs: Iterable[UOp], n_params: int, name: str = "") -> UOp:
    """Close a graph over PARAM(0..n_params-1)."""
    return UOp(ops.FUNCTION, dtypes.void, tuple(outs), op_args.Function(name, n_params))


@memoized
def params(fn: UOp) -> dict[int, UOp]:
    """Return the PARAMs that a FUNCTION reads, by slot."""
    return {node.arg.slot: node for node in toposort(fn.src) if node.op is ops.PARAM}


def results(called: UOp) -> tuple[UOp, ...]:
    """Return a GETTUPLE for each result of a structural node (CALL, SCAN, ...), a CALLBACK or a
    LOOP."""
    return tuple(UOp(ops.GETTUPLE, dtype, (called,), i)
                 for i, (_, dtype) in enumerate(called.arg.outs))


# ---- kernel level -----------------------------------------------------------------------------

_SMALL_INDICES = [const(n, dtypes.index) for n in range(65)]  # most of those that are asked for


def index_const(n: int) -> UOp:
    """Return a constant element count or index.

    Raises:
        OutOfMemoryError: n does not fit in 64 bits, so no memory has that many elements.
    """
    if 0 <= n < len(_SMALL_INDICES):
        return _SMALL_INDICES[n]
    try:
        return const(n, dtypes.index)
    except OverflowedError:
        raise OutOfMemoryError(f"expected arrays of fewer than 2**63 elements, got "
                               f"{_format_int(n)}", hint="check the shapes") from None


def range_(extent: UOp | int, id: int, kind: str = "SEQ", name: str = "") -> UOp:
    """Return a loop variable 0 <= r < extent."""
    bound = index_const(extent) if isinstance(extent, int) else extent
    return UOp(ops.RANGE, dtypes.index, (bound,), kernel_args.Range(id, kind, name))


def ref(slot: int, dtype: DType, dims: Iterable[UOp | int], name: str = "") -> UOp:
    """Return buffer argument ``slot`` of a kernel; dims are extents (numbers or index nodes)."""
    src = tuple(index_const(d) if isinstance(d, int) else d for d in dims)
    return UOp(ops.REF, dtype, src, kernel_args.Ref(slot, name))


def var(slot: int, dtype: DType, low: int = 0, high: int = 1 << 40, name: str = "") -> UOp:
    """Return scalar argument ``slot`` of a kernel."""
    return UOp(ops.VAR, dtype, (), kernel_args.Var(slot, low, high, name))


def index_into(buffer: UOp, *index: UOp) -> UOp:
    """Index a REF or STAGE, with one index per dimension."""
    if len(index) != (dims := len(buffer.src) - (buffer.op is ops.STAGE)):
        raise ShapeError(f"expected {dims} indices, got {len(index)}")
    return UOp(ops.INDEX, buffer.dtype, (buffer, *index))


def load(access: UOp, condition: UOp | None = None) -> UOp:
    """Load from an INDEX; where ``condition`` is false nothing is read, and the value is 0."""
    return UOp(ops.LOAD, access.dtype, (access,) if condition is None else (access, condition))


def store(access: UOp, value: UOp, condition: UOp | None = None, combine: Op | None = None) -> UOp:
    """Store ``value`` where ``condition``, or combine it with the old element."""
    if value.dtype is not access.dtype:
        raise DTypeError(f"store: expected {access.dtype}, got {value.dtype}")
    src = (access, value) if condition is None else (access, value, condition)
    return UOp(ops.STORE, dtypes.void, src, combine)


def reduce_ranges(value: UOp, monoid: Op, ranges: Sequence[UOp]) -> UOp:
    """Build a kernel-level REDUCE over ranges."""
    arg = op_args.Reduce(monoid, (), value.dtype)
    return UOp(ops.REDUCE, value.dtype, (value, *ranges), arg) if ranges else drop_key(value)


def stage(value: UOp, ranges: Sequence[UOp], id: int, space: str = "PRIV", name: str = "",
          double: bool = False) -> UOp:
    """Build a small buffer filled over ``ranges`` (its dimensions, outermost first)."""
    return UOp(ops.STAGE, value.dtype, (value, *ranges), kernel_args.Stage(id, space, name, double))


def kernel(stores: Iterable[UOp], name: str, order: Iterable[int] = (),
           stores_disjoint: bool = False, index_fits_int32: bool = False) -> UOp:
    """Build a finished kernel (kernel_args.Kernel)."""
    arg = kernel_args.Kernel(name, tuple(order), stores_disjoint, index_fits_int32)
    return UOp(ops.KERNEL, dtypes.void, tuple(stores), arg)
