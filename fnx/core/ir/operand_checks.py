"""Operand checks for the constructors of build.py, and their errors."""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    FnxError,
    OutOfBoundsError,
    ShapeError,
)


def operand_error(op: Op, src: tuple[UOp, ...]) -> FnxError:
    """Return the error that says why an elementwise op does not accept these operands."""
    values = src[1:] if op is ops.WHERE else src
    if len(src) != op.arity:
        return ArgumentError(f"{op}: expected {op.arity} operands, got {len(src)}")
    if any(v.dtype is not values[0].dtype for v in values):
        return DTypeError(f"{op}: expected operands of one dtype, got "
                          f"{' and '.join(v.dtype.name for v in values)}",
                          hint="convert one of them with .astype(...)")
    if any(s.shape != src[0].shape for s in src):
        return ShapeError(f"{op}: expected operands of one shape, got "
                          f"{' and '.join(str(v.shape) for v in src)}")
    if not op.accepts_dtype(values[0].dtype):
        return DTypeError(f"{op} does not take {values[0].dtype}")
    return DTypeError(f"WHERE: expected a bool condition of shape {src[1].shape}, got "
                      f"{src[0].dtype} {src[0].shape}")


def check_window_axes(name: str, x: UOp, axis: int, offset: int, stride: int, dilation: int
                       ) -> tuple[int, int]:
    """Check the axes of windows, and return the lengths of both."""
    rank = len(x.shape)
    if not (0 <= axis < rank and 0 <= offset < rank) or axis == offset:
        raise AxisError(f"{name}: expected two axes of {x.shape}, got {axis} and {offset}")
    if stride < 1 or dilation < 1:
        raise ArgumentError(f"{name}: expected stride and dilation >= 1, got {stride} and "
                            f"{dilation}")
    return x.shape[axis], x.shape[offset]


def check_monoid(name: str, monoid: Op, dtype: DType) -> None:
    if monoid not in ops.MONOIDS or not monoid.accepts_dtype(dtype):
        raise DTypeError(f"{name}: {monoid} does not fold {dtype}")


def check_updates(x: UOp, shape: Shape, updates: UOp, monoid: Op | None) -> None:
    if updates.shape != shape or updates.dtype is not x.dtype:
        raise ShapeError(f"scatter: expected updates {x.dtype}{list(shape)}, got "
                         f"{updates.dtype}{list(updates.shape)}")
    if monoid is not None:
        check_monoid("scatter", monoid, x.dtype)


def check_index_axes(x: UOp, index: Sequence[UOp], axes: Sequence[int] | None) -> tuple[int, ...]:
    """Check index arrays, and return the axes that they index; None: the leading ones."""
    if not 0 < len(index) <= len(x.shape):
        raise OutOfBoundsError(f"expected 1 to {len(x.shape)} indices, got {len(index)}")
    axes = range(len(index)) if axes is None else axes
    if len(axes) != len(index) or list(axes) != sorted(set(axes) & set(range(len(x.shape)))):
        raise AxisError(f"expected {len(index)} ascending axes of {x.shape}, one for each index, "
                        f"got {tuple(axes)}")
    for i in index:
        if not i.dtype.is_integer:
            raise DTypeError(f"expected integer indices, got {i.dtype}")
        if i.shape != index[0].shape:
            raise ShapeError(f"expected indices of one shape, got {index[0].shape}, {i.shape}")
    return tuple(axes)
