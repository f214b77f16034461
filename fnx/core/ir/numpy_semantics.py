"""The meanings of ops in NumPy, for the entries of the op table.

A meaning takes the node and the values of its operands. Integer division by zero, INT_MIN / -1,
shifts past the width and float -> integer overflow have defined values (JAX's).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import low_precision
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.op import Meaning
from fnx.core.ir.uop import UOp
from fnx.core.support.process import lazy_import

complex_parts = lazy_import("fnx.core.formulas.complex_parts")
formulas = lazy_import("fnx.core.formulas.formulas")


def in_float64(f: Callable[..., NDArray]) -> Meaning:
    """Make a meaning that computes in float64 and rounds once."""
    def meaning(node: UOp, *xs: NDArray) -> NDArray:
        promoted = [x.astype(np.float64, copy=False) for x in xs]
        return f(*promoted).astype(xs[0].dtype, copy=False)
    return meaning


def from_formula(name: str) -> Callable[..., NDArray]:
    """Make a function that evaluates an op by its formula in core/formulas/formulas.py."""
    def evaluated(*xs: NDArray) -> NDArray:
        out: NDArray = formulas.evaluate_formula(name, *xs)
        return out
    return evaluated


def power(node: UOp, a: NDArray, b: NDArray) -> NDArray:
    """C's pow, rounded once.

    NumPy computes a square root for a 0-d exponent 0.5, which differs for -0 and -inf; hence the
    1-d operands.
    """
    base, exponent = (np.atleast_1d(x.astype(np.float64, copy=False)) for x in (a, b))
    out = np.power(base, exponent).astype(a.dtype, copy=False)
    return out.reshape(np.broadcast_shapes(a.shape, b.shape))


def from_ufunc(f: Callable[..., NDArray]) -> Meaning:
    def meaning(node: UOp, *xs: NDArray) -> NDArray:
        return f(*xs)
    return meaning


def complex_number(node: UOp, re: NDArray, im: NDArray) -> NDArray:
    """Make complex numbers of their parts; NumPy's re + 1j * im is NaN for an infinite part."""
    out = np.empty(re.shape, node.dtype.np)
    out.real, out.imag = re, im
    return out


def integer_divide(node: UOp, a: NDArray, b: NDArray) -> NDArray:
    """Divide, rounding toward zero. x / 0 is -1 (all ones), INT_MIN / -1 is INT_MIN, as in JAX."""
    zero, minus = b == 0, (b == -1) & (a.dtype.kind == "i")
    safe = np.where(zero | minus, 1, b).astype(b.dtype)
    floored = a // safe
    inexact = floored * safe != a
    quotient = floored + (inexact & ((a < 0) != (safe < 0)))
    quotient = np.where(minus, np.subtract(0, a, dtype=a.dtype), quotient)
    ones = np.iinfo(a.dtype).max if a.dtype.kind == "u" else -1
    return np.where(zero, ones, quotient).astype(a.dtype)


def remainder(node: UOp, a: NDArray, b: NDArray) -> NDArray:
    """Remainder with the sign of the dividend. x rem 0 is x; float: C's fmod."""
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    zero = b == 0
    divisor = np.where(zero | (b == -1), 1, b) if a.dtype.kind == "i" else np.where(zero, 1, b)
    return np.where(zero, a, np.fmod(a, divisor.astype(b.dtype))).astype(a.dtype)


def maximum(node: UOp, a: NDArray, b: NDArray) -> NDArray:
    """IEEE 754-2019 maximum: NaN propagates, and -0 < +0."""
    if a.dtype.kind != "f":
        return np.maximum(a, b)
    return np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b))


def minimum(node: UOp, a: NDArray, b: NDArray) -> NDArray:
    """IEEE 754-2019 minimum: NaN propagates, and -0 < +0."""
    if a.dtype.kind != "f":
        return np.minimum(a, b)
    return np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b))


def shift_left(node: UOp, a: NDArray, b: NDArray) -> NDArray:
    """Shift left; by the width or more, the result is 0."""
    past = b.astype(np.uint64) >= node.dtype.bits
    return np.where(past, 0, np.left_shift(a, np.where(past, 0, b).astype(b.dtype))
                    ).astype(a.dtype)


def shift_right(node: UOp, a: NDArray, b: NDArray) -> NDArray:
    """Shift right: arithmetic for signed types, logical for unsigned.

    By the width or more, the result is all sign bits (0 for unsigned types).
    """
    past = b.astype(np.uint64) >= node.dtype.bits
    max_shift = np.asarray(node.dtype.bits - 1, b.dtype)
    shifted = np.right_shift(a, np.where(past, max_shift, b).astype(b.dtype))
    return shifted if a.dtype.kind == "i" else np.where(past, 0, shifted).astype(a.dtype)


def cast(node: UOp, x: NDArray) -> NDArray:
    """float -> integer rounds toward zero and saturates, NaN is 0; anything -> bool is x != 0.

    Conversions from and to storage-only types go through their compute types.
    """
    t, x = node.dtype, low_precision.decode(x, node.src[0].dtype)
    if t.is_bool:
        return np.asarray(x != 0)
    if x.dtype.kind == "c" and not t.is_complex:
        x = x.real
    target_np = t.np if t.storage is None else t.compute.np
    if t.is_integer and x.dtype.kind == "f":
        least, most = t.limits
        truncated = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf,
                                           neginf=-np.inf))
        low, high = truncated <= least, truncated >= most
        middle = np.where(low | high, 0, truncated).astype(target_np)
        x = np.where(low, np.asarray(least, target_np),
                     np.where(high, np.asarray(most, target_np), middle))
    return low_precision.encode(x.astype(target_np), t)


def bitcast(node: UOp, x: NDArray) -> NDArray:
    return np.ascontiguousarray(x).view(node.dtype.np).reshape(x.shape)


def multiply_add(node: UOp, a: NDArray, b: NDArray, c: NDArray) -> NDArray:
    """a * b + c with one rounding (float64: two, in the interpreter)."""
    return (a.astype(np.float64) * b + c).astype(a.dtype)


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(node: UOp, k0: NDArray, k1: NDArray, c0: NDArray, c1: NDArray) -> NDArray:
    """Threefry-2x32, 20 rounds (Salmon et al., SC 2011); ``arg`` selects the word to return."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x, y = c0 + keys[0], c1 + keys[1]
    for block in range(5):
        for r in _ROTATIONS[block % 2]:
            x = x + y
            y = ((y << np.uint32(r)) | (y >> np.uint32(32 - r))) ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + np.uint32(block + 1)
    return (x, y)[node.arg]


_PARTS_APART = frozenset({"CAST", "REAL", "IMAG"})  # NumPy has their values for complex numbers
_BITWISE_OPS = frozenset({"WHERE", "CAST", "BITCAST"})  # handle storage-only types themselves


def eval_node(node: UOp, *xs: NDArray) -> Any:
    """Compute the value of a node that has a meaning, from those of its operands.

    Storage-only types are computed in their compute type, and rounded once; complex numbers by
    the formulas over their parts, which lowering also uses, because NumPy's products are fused
    multiply-adds on some machines.
    """
    op = node.op
    assert op.meaning is not None, f"{op} has no meaning of its own"
    if xs and node.src[0].dtype.is_complex and op.kind == "elementwise" and \
            op.name not in _PARTS_APART:
        out: NDArray = complex_parts.evaluate(op, *xs)
        return out
    if not xs or node.src[-1].dtype.storage is None or op.name in _BITWISE_OPS or \
            op.kind not in ("elementwise", "reduce"):
        return op.meaning(node, *xs)
    return _in_compute_dtype(op.meaning, node, node.src[-1].dtype, xs)


def combine(node: UOp, a: NDArray, b: NDArray) -> NDArray:
    """Combine two partial results of a REDUCE."""
    meaning = node.arg.monoid.meaning
    if node.dtype.storage is None:
        return np.asarray(meaning(node, a, b))
    return np.asarray(_in_compute_dtype(meaning, node, node.dtype, (a, b)))


def _in_compute_dtype(meaning: Meaning, node: UOp, t: DType, xs: Sequence[NDArray]) -> NDArray:
    compute_node = node if node.dtype is not t else UOp(node.op, t.compute, node.src, node.arg)
    out = np.asarray(meaning(compute_node, *[low_precision.decode(x, t) for x in xs]))
    return out if node.dtype is not t else low_precision.encode(out, t)


def const(node: UOp) -> NDArray:
    return const_value(node)


def const_value(node: UOp) -> NDArray:
    """Return the 0-d NumPy value of a CONST, from its bit pattern."""
    np_dtype = node.dtype.np
    if np_dtype.kind == "b":
        return np.asarray(bool(node.arg))
    raw = int(node.arg).to_bytes(np_dtype.itemsize, "little")
    return np.frombuffer(raw, np_dtype.newbyteorder("<")).reshape(()).astype(np_dtype)


def iota(node: UOp) -> NDArray:
    t = node.dtype
    return np.arange(node.arg, dtype=t.np) if t.storage is None else \
        low_precision.encode(np.arange(node.arg).astype(t.compute.np), t)


def expand(node: UOp, x: NDArray) -> NDArray:
    return np.broadcast_to(x, node.arg)


def pad(node: UOp, x: NDArray, fill: NDArray) -> NDArray:
    out = np.full(node.shape, fill, x.dtype)
    out[tuple(slice(lo, lo + n) for (lo, _), n in zip(node.arg, x.shape))] = x
    return out


def shrink(node: UOp, x: NDArray) -> NDArray:
    return x[tuple(slice(lo, hi) for lo, hi in node.arg)]


def _window_indices(window: Any, count: int, size: int) -> tuple[NDArray, NDArray]:
    """Return the index of element j of window i, and j: index arrays over (i, j)."""
    i, j = np.ogrid[:count, :size]
    return i * window.stride + j * window.dilation, j


def unfold(node: UOp, x: NDArray) -> NDArray:
    """Element j of window i is x[i * stride + j * dilation, j]."""
    w = node.arg
    index, j = _window_indices(w, w.length, x.shape[w.offset])
    front = np.moveaxis(x, (w.axis, w.offset), (0, 1))
    return np.moveaxis(front[index, j], (0, 1), (w.axis, w.offset))


def fold_windows(node: UOp, y: NDArray) -> NDArray:
    """Write y[i, j] to the element that UNFOLD reads at [i, j]; other elements are zero."""
    w = node.arg
    index, j = _window_indices(w, y.shape[w.axis], y.shape[w.offset])
    front = np.moveaxis(y, (w.axis, w.offset), (0, 1))
    out = np.zeros((w.length, *front.shape[1:]), y.dtype)
    out[index, j] = front
    return np.moveaxis(out, (0, 1), (w.axis, w.offset))


def arg_pair(node: UOp, key: NDArray, index: NDArray) -> NDArray:
    """Return records of a key and an index."""
    key, index = np.broadcast_arrays(key, index)
    out = np.empty(key.shape, [("key", key.dtype), ("place", index.dtype)])
    out["key"], out["place"] = key, index
    return out


def reduce(node: UOp, x: NDArray) -> NDArray:
    monoid, axes = node.arg.monoid, node.arg.axes
    if x.dtype.names:
        return arg_reduce(monoid.ufunc, x, axes)
    return reduce_array(monoid.ufunc, x, axes, monoid.identity(node.dtype))


def arg_reduce(ufunc: np.ufunc, pairs: NDArray, axes: tuple[int, ...]) -> NDArray:
    """Return the least index at which the key is the extreme one, or NaN if any key is."""
    key, index = pairs["key"], pairs["place"]
    extreme = ufunc.reduce(key, axis=axes, keepdims=True)
    hit = (key == extreme) | (key != key)
    return np.asarray(np.where(hit, index, np.iinfo(index.dtype).max).min(axis=axes))


def reduce_array(ufunc: np.ufunc, x: NDArray, axes: tuple[int, ...], identity: Any) -> NDArray:
    """Reduce ``x`` over ``axes``, which are removed; an empty reduction gives the identity."""
    if not axes:
        return x
    if x.dtype.kind == "f" and ufunc is np.add:
        return np.asarray(np.sum(x, axis=axes, dtype=x.dtype))
    start = np.asarray(identity, x.dtype)
    if _is_extremum(ufunc, x):
        bits = ufunc.reduce(_to_ordered_ints(x, ufunc), axis=axes,
                            initial=_to_ordered_ints(start, ufunc)[()])
        return _from_ordered_ints(np.asarray(bits), x.dtype)
    return np.asarray(ufunc.reduce(x, axis=axes, dtype=x.dtype, initial=start[()]))


def reduce_at(ufunc: np.ufunc, out: NDArray, indices: tuple[NDArray, ...],
              updates: NDArray) -> None:
    """Combine updates with elements of ``out``, one after the other."""
    if _is_extremum(ufunc, out):
        bits = _to_ordered_ints(out, ufunc)
        ufunc.at(bits, indices, _to_ordered_ints(updates, ufunc))
        out[...] = _from_ordered_ints(bits, out.dtype)
    else:
        ufunc.at(out, indices, updates)


def _is_extremum(ufunc: np.ufunc, x: NDArray) -> bool:
    return x.dtype.kind == "f" and ufunc in (np.maximum, np.minimum)


def _to_ordered_ints(x: NDArray, ufunc: np.ufunc) -> NDArray:
    """Map floats to integers of the same order, with -0 < +0, and NaN at the end that wins."""
    info = np.iinfo(np.dtype(f"int{8 * x.dtype.itemsize}"))
    bits = np.asarray(x).view(info.dtype)
    bits = np.where(bits < 0, bits ^ info.max, bits)
    return np.where(np.isnan(x), info.max if ufunc is np.maximum else info.min,
                    bits).astype(info.dtype)


def _from_ordered_ints(bits: NDArray, dtype: np.dtype[Any]) -> NDArray:
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits).view(dtype)


def gather(node: UOp, x: NDArray, *index: NDArray) -> NDArray:
    """Gather with indices clamped to their axis; for other modes the caller masks."""
    front = np.moveaxis(x, node.arg.axes, range(len(index)))
    clamped = tuple(np.clip(i.astype(np.int64), 0, max(n - 1, 0))
                    for i, n in zip(index, front.shape))
    return front[clamped]


def scatter(node: UOp, x: NDArray, *operands: NDArray) -> NDArray:
    """Scatter: out-of-bounds updates are dropped, duplicates apply in index order."""
    index, updates = operands[:-1], operands[-1]
    out = np.array(x)
    front = np.moveaxis(out, node.arg.axes, range(len(index)))
    in_bounds = np.ones(index[0].shape, bool)
    for i, n in zip(index, front.shape):
        in_bounds &= (i.astype(np.int64) >= 0) & (i.astype(np.int64) < n)
    positions = tuple(i[in_bounds] for i in index)
    monoid = node.arg.monoid
    if monoid is None:
        for row, update in zip(zip(*positions), updates[in_bounds]):
            front[row] = update
    else:
        reduce_at(monoid.ufunc, front, positions, updates[in_bounds])
    return out


# ---- sorting ----------------------------------------------------------------------------------


def sort_key(x: NDArray, is_float: bool = False) -> NDArray:
    """Map elements to unsigned integers of the same order: NaNs are last, and zeros are equal.

    >>> sort_key(np.array([-1, 0, 1], np.int8))
    array([127, 128, 129], dtype=uint8)
    """
    if x.dtype == np.bool_:
        return x.astype(np.uint8)
    bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)
    top = bits.dtype.type(1 << 8 * x.dtype.itemsize - 1)
    if not is_float:
        return np.asarray(bits if x.dtype.kind == "u" else bits ^ top)
    size = bits & ~top
    flipped = np.where(size == 0, top, np.where(bits & top, ~bits, bits | top))
    return np.asarray(np.where(np.isnan(x), ~bits.dtype.type(0), flipped))


def fft(node: UOp, x: NDArray, table: NDArray) -> NDArray:
    """Return the discrete Fourier transform of pairs."""
    arg = node.arg
    transform = _real_transform if arg.real else _transform
    return transform(x, arg.axis, arg.inverse, arg.scale)


def _real_transform(x: NDArray, axis: int, inverse: bool, scale: float) -> NDArray:
    """Return the transform of pairs of neighbors in a real array, or of such a transform."""
    if inverse:
        n = 2 * (x.shape[axis] - 1)
        y = np.fft.irfft(x[..., 0].astype(np.float64) + 1j * x[..., 1], n, axis) * (n * scale)
        split = y.reshape(*y.shape[:axis], n // 2, 2, *y.shape[axis + 1:])
        pairs: NDArray = np.moveaxis(split, axis + 1, -1).astype(x.dtype)
        return pairs
    joined = np.moveaxis(x.astype(np.float64), -1, axis + 1)
    z = np.fft.rfft(joined.reshape(*x.shape[:axis], -1, *x.shape[axis + 1:-1]), axis=axis) * scale
    return np.stack([z.real, z.imag], -1).astype(x.dtype)


def _transform(x: NDArray, axis: int, inverse: bool, scale: float, twiddles: bool = False
               ) -> NDArray:
    z = x[..., 0].astype(np.float64) + 1j * x[..., 1]
    z = np.fft.fft(z.conj() if inverse else z, axis=axis)
    if twiddles:
        k, c = np.ogrid[:z.shape[1], :z.shape[2]]
        z = np.swapaxes(z * np.exp(-2j * np.pi * (k * c / (z.shape[1] * z.shape[2]))), 1, 2)
    z = (z.conj() if inverse else z) * scale
    return np.stack([z.real, z.imag], -1).astype(x.dtype)


def fft_step(arg: Any, x: NDArray) -> list[NDArray]:
    """Return the result of an FFT_STEP."""
    if arg.roots >= 0:
        return [_real_transform(x, 2, arg.inverse, arg.scale)]
    return [_transform(x, 2 if arg.rows else 1, arg.inverse, arg.scale, arg.twiddles >= 0)]


def sort_operands(arg: Any, xs: Sequence[NDArray]) -> list[NDArray]:
    """Return the results of a SORT."""
    keys = [sort_key(part, t.real.is_float) for x, (_, t) in zip(xs[:arg.n_keys], arg.ins)
            for part in ((x.real, x.imag) if t.is_complex else (x,))]
    if arg.selects == "largest":
        keys = [k[..., ::-1] for k in keys]
    order = np.lexsort(keys[::-1], -1)
    if arg.selects == "largest":
        order = order.shape[-1] - 1 - order[..., ::-1]
    order = order[..., :arg.count] if arg.selects else order
    return [order.astype(np.int32) if i < 0 else np.take_along_axis(xs[i], order, -1)
            for i in arg.outputs]
