"""Shape inference of ``jax.lax`` for convolutions and windows, without arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.lax.convolution import (
    ConvDimensionNumbers,
    DimensionNumbers,
    conv_dimension_numbers,
    conv_general_dilated_patches,
)
from fnx.lax.generic_reductions import Padding, ints_per_axis, resolve_padding

__all__ = [
    "ConvGeneralDilatedDimensionNumbers", "DotDimensionNumbers", "conv_general_dilated_local",
    "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple",
    "conv_transpose_shape_tuple", "padtype_to_pads", "reduce_window_shape_tuple",
]

ConvGeneralDilatedDimensionNumbers: TypeAlias = DimensionNumbers
_AxisPairs: TypeAlias = tuple[Sequence[int], Sequence[int]]
DotDimensionNumbers: TypeAlias = tuple[_AxisPairs, _AxisPairs]

_docstr = DocTemplate(
    lhs_shape="the input shape: N, C, spatial.",
    rhs_shape="the kernel shape: output features, input features, spatial.",
    strides="the stride of each axis.", window_strides="the stride of each axis.",
    pads='"SAME", "SAME_LOWER", "VALID", or (before, after) for each axis.',
    padding='"SAME", "SAME_LOWER", "VALID", or (before, after) for each axis.',
    batch_group_count="the number of batch groups.",
    dimension_numbers="layouts, as of ``conv_dimension_numbers``.",
    in_shape="lengths of the axes.", window_shape="lengths of the window.",
    operand_shape="lengths of the axes.", window_dimensions="lengths of the window.",
    base_dilation="the distance of input elements; by default 1.",
    window_dilation="the distance of window elements; by default 1.",
    returns="A tuple of ints.", imports="fnx.lax as lax",
    raises=("ShapeError: the rank does not match.",))


def _window_counts(size: Sequence[int], window: Sequence[int], strides: Sequence[int]) -> Shape:
    return tuple([max(0, (n - k) // s + 1) for n, k, s in zip(size, window, strides)])


def _dilated_lengths(name: str, lengths: Sequence[int], dilation: Sequence[int] | None) -> Shape:
    distances = ints_per_axis(name, dilation, len(lengths))
    return tuple([max(0, d * (n - 1) + 1) if n else 0 for n, d in zip(lengths, distances)])


@_docstr("A list of (before, after).", ("ArgumentError: unknown padding.",))
def padtype_to_pads(in_shape: Sequence[int], window_shape: Sequence[int],
                    window_strides: Sequence[int], padding: str) -> list[tuple[int, int]]:
    """Resolve a named padding to (before, after) for each axis.

    >>> lax.padtype_to_pads((5,), (3,), (2,), "SAME")
    [(1, 1)]
    """
    return resolve_padding(padding, tuple(in_shape), tuple(window_shape), tuple(window_strides))


@_docstr()
def conv_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int],
                     pads: Padding, batch_group_count: int = 1) -> Shape:
    """Return the shape of a convolution, with axes in the order of the arguments.

    >>> lax.conv_shape_tuple((1, 3, 8), (4, 3, 3), (1,), "VALID")
    (1, 4, 6)
    """
    groups = arguments.check_int("batch_group_count", batch_group_count)
    if len(lhs_shape) < 2 or len(lhs_shape) != len(rhs_shape):
        raise ShapeError(f"expected two shapes of equal rank >= 2, got {tuple(lhs_shape)} and "
                         f"{tuple(rhs_shape)}")
    padding = resolve_padding(pads, tuple(lhs_shape[2:]), tuple(rhs_shape[2:]), tuple(strides))
    lengths = [n + low + high for n, (low, high) in zip(lhs_shape[2:], padding)]
    if any(n < 0 for n in lengths):
        raise ShapeError(f"expected the lengths {tuple(lhs_shape[2:])} plus padding to be >= 0, "
                         f"got {padding}")
    return (lhs_shape[0] // groups, rhs_shape[0],
            *_window_counts(lengths, rhs_shape[2:], strides))


@_docstr("Three tuples of axes: of the input, the kernel and the result.",
         ("ArgumentError: not each axis is named once.",))
def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[Shape, Shape, Shape]:
    """Return the permutations to (batch, features, spatial...) that layout strings name.

    >>> lax.conv_general_permutations(("NWC", "WIO", "NWC"))
    ((0, 2, 1), (2, 1, 0), (0, 2, 1))
    """
    if len(dimension_numbers) != 3:
        raise ArgumentError(f"expected three strings, got {dimension_numbers!r}")
    rank = (1,) * len(dimension_numbers[0])
    lhs, rhs, out = (tuple(spec) for spec in conv_dimension_numbers(
        rank, (1,) * len(dimension_numbers[1]), dimension_numbers))
    return lhs, rhs, out


def _permute_shape(shape: Sequence[int], order: Sequence[int]) -> Shape:
    if len(shape) != len(order):
        raise ShapeError(f"expected a shape of {len(order)} axes, got {tuple(shape)}")
    return tuple([shape[i] for i in order])


def _unpermute_shape(shape: Sequence[int], order: Sequence[int]) -> Shape:
    return tuple([shape[list(order).index(i)] for i in range(len(shape))])


@_docstr()
def conv_general_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                             window_strides: Sequence[int], padding: Padding,
                             dimension_numbers: Sequence[str]) -> Shape:
    """Return the shape of a convolution with layout strings.

    >>> lax.conv_general_shape_tuple((1, 8, 3), (3, 3, 4), (1,), "SAME", ("NWC", "WIO", "NWC"))
    (1, 8, 4)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple(_permute_shape(lhs_shape, lhs), _permute_shape(rhs_shape, rhs),
                             window_strides, padding)
    return _unpermute_shape(shape, out)


@_docstr()
def conv_transpose_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                               window_strides: Sequence[int], padding: Padding,
                               dimension_numbers: Sequence[str]) -> Shape:
    """Return the shape of a transposed convolution with layout strings.

    >>> lax.conv_transpose_shape_tuple((1, 4, 3), (3, 3, 5), (2,), "SAME", ("NWC", "WIO", "NWC"))
    (1, 8, 5)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    x, w = _permute_shape(lhs_shape, lhs), _permute_shape(rhs_shape, rhs)
    spatial = []
    if isinstance(padding, str):
        arguments.check_choice("padding", padding.upper(), ("SAME", "VALID"))
    for i, (n, k, s) in enumerate(zip(x[2:], w[2:], window_strides)):
        if isinstance(padding, str):
            total = k + s - 2 if padding.upper() != "VALID" else k + s - 2 + max(k - s, 0)
        else:
            total = sum(padding[i])
        spatial.append((n - 1) * s - k + 2 + total)
    return _unpermute_shape((x[0], w[0], *spatial), out)


@_docstr(padding="(before, after) for each axis.")
def reduce_window_shape_tuple(
        operand_shape: Sequence[int], window_dimensions: Sequence[int],
        window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
        base_dilation: Sequence[int] | None = None,
        window_dilation: Sequence[int] | None = None) -> Shape:
    """Return the shape of a window reduction.

    >>> lax.reduce_window_shape_tuple((8,), (3,), (2,), [(0, 0)])
    (3,)
    """
    lengths = [n + low + high
               for n, (low, high) in zip(
                 _dilated_lengths("base_dilation", operand_shape, base_dilation), padding)]
    return _window_counts(lengths,
                          _dilated_lengths("window_dilation", window_dimensions, window_dilation),
                          window_strides)


@_docstr("An Array.", lhs="the input.", rhs="a kernel for each place of the result: features of "
         "the result, features of the input by places of the window, places of the result.",
         filter_shape="lengths of the window.",
         lhs_dilation="the distance of input elements; by default 1.",
         rhs_dilation="the distance of window elements; by default 1.",
         dimension_numbers="as of ``conv_dimension_numbers``.",
         raises=("ShapeError: the shapes do not match.",))
def conv_general_dilated_local(
        lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Padding,
        filter_shape: Sequence[int], lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None, dimension_numbers: DimensionNumbers = None,
        precision: PrecisionLike = None) -> Array:
    """Convolve with a different kernel at each spatial position (a locally connected layer).

    >>> import fnx.numpy as jnp
    >>> x, w = jnp.ones((1, 1, 4)), jnp.arange(6.0).reshape(1, 2, 3)
    >>> lax.conv_general_dilated_local(x, w, (1,), "VALID", (2,))
    Array([[[3., 5., 7.]]], dtype=float32)
    """
    x, w = asarray(lhs), asarray(rhs)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    assert isinstance(numbers, ConvDimensionNumbers)
    patches = conv_general_dilated_patches(
        x, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation,
        dimension_numbers=numbers, precision=precision)
    patches = jnp.transpose(patches, tuple(numbers.out_spec))
    w = jnp.transpose(w, tuple(numbers.rhs_spec))
    if patches.shape[1:] != w.shape[1:]:
        raise ShapeError(f"expected a kernel of shape (features, {patches.shape[1:]}), got "
                         f"{w.shape}", hint="the axes are output features, input features x window "
                                            "size, output positions")
    result = jnp.einsum("nk...,ok...->no...", patches, w)
    order = list(numbers.out_spec)
    return jnp.transpose(result, [order.index(i) for i in range(result.ndim)])
