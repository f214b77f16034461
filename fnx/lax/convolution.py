"""Convolutions of ``jax.lax``, as contractions of windows with a kernel.

    out[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation] * w[o, c, k]

UNFOLD makes the windows and a contraction the sum. So a convolution is a matrix product (implicit
GEMM: the windows are never written to memory), and its derivatives are convolutions again.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import fnx.numpy as jnp
from fnx.core.array import arguments, convert
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build, dtypes
from fnx.core.ir.op import inverse_permutation
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.support.record import Record
from fnx.lax.conv_polyphase import PolyphasePlan, contract_phases
from fnx.lax.conv_space_to_depth import ConvWindows
from fnx.lax.generic_reductions import Padding, extract_windows, ints_per_axis, resolve_padding
from fnx.numpy.contraction import contract

__all__ = [
    "ConvDimensionNumbers", "conv", "conv_dimension_numbers", "conv_general_dilated",
    "conv_general_dilated_patches", "conv_transpose", "conv_with_general_padding",
]


class ConvDimensionNumbers(NamedTuple):
    """The roles of the axes of the operands and of the result of a convolution.

    Args:
        lhs_spec: the axes of the batch, the features and the spatial dimensions of the input.
        rhs_spec: the axes of the output features, the input features and the spatial dimensions
            of the kernel.
        out_spec: the axes of the batch, the features and the spatial dimensions of the result.

    >>> import fnx.lax as lax
    >>> lax.ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2)).out_spec
    (0, 1, 2)
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


DimensionNumbers = ConvDimensionNumbers | Sequence[str] | None

_LAYOUT_LETTERS = ("NC", "OI", "NC")
_OPERAND_NAMES = ("the input", "the kernel", "the result")
_LAYOUT_HINT = "('NCHW', 'OIHW', 'NCHW') says: batch, channels, height, width, and so the result"


@public_api
def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                           dimension_numbers: DimensionNumbers) -> ConvDimensionNumbers:
    """Parse layouts such as ("NHWC", "HWIO", "NHWC") into axis numbers.

    Args:
        lhs_shape: the shape of the input.
        rhs_shape: the shape of the kernel.
        dimension_numbers: a layout string each for the input, the kernel and the result, with one
            letter per axis: N batch, C features, O output features, I input features, any other
            letter a spatial dimension. None means NC..., OI..., NC...

    Returns:
        The axis numbers.

    Raises:
        ShapeError: the ranks of input and kernel differ or are less than two.
        ArgumentError: a layout string does not name each axis once.

    >>> import fnx.lax as lax
    >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC"))
    ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """
    rank = len(lhs_shape)
    if len(rhs_shape) != rank or rank < 2:
        raise ShapeError("expected an input and a kernel of equal rank >= 2, got shapes "
                         f"{tuple(lhs_shape)} and {tuple(rhs_shape)}",
                         hint="the input is (batch, in channels, spatial...), the kernel (out "
                              "channels, in channels, spatial...)")
    if dimension_numbers is None:
        dimension_numbers = ConvDimensionNumbers(*[tuple(range(rank))] * 3)
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        for spec, operand in zip(dimension_numbers, _OPERAND_NAMES):
            if sorted(spec) != list(range(rank)):
                raise ArgumentError(f"expected each of {rank} axes of {operand} exactly once, got "
                                    f"{tuple(spec)}")
        return ConvDimensionNumbers(*[tuple(map(int, spec)) for spec in dimension_numbers])
    layouts = dimension_numbers
    if not isinstance(layouts, tuple | list) or len(layouts) != 3 or \
            not all(isinstance(text, str) for text in layouts):
        raise ArgumentError(f"expected three strings as dimension_numbers, got {layouts!r}",
                            hint=_LAYOUT_HINT)
    spatial = [letter for letter in layouts[1] if letter not in "OI"]
    for layout, letters, operand in zip(layouts, _LAYOUT_LETTERS, _OPERAND_NAMES):
        if sorted(layout) != sorted([*letters, *spatial]) or len(set(layout)) != rank:
            raise ArgumentError(f"expected {rank} letters for {operand}: {letters[0]}, "
                                f"{letters[1]} and one per spatial axis, the same in all three; "
                                f"got {tuple(layouts)}",
                                hint=_LAYOUT_HINT)
    return ConvDimensionNumbers(*[tuple([text.index(x) for x in (*letters, *spatial)])
                                  for text, letters in zip(layouts, _LAYOUT_LETTERS)])


class _ConvParams(Record):
    """The parameters of a convolution, one entry per spatial dimension."""

    strides: Shape
    padding: list[tuple[int, int]]
    lhs_dilation: Shape  # lhs_dilation
    dilation: Shape  # rhs_dilation


@public_api
def conv_general_dilated(
        lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Padding,
        lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
        dimension_numbers: DimensionNumbers = None, feature_group_count: int = 1,
        batch_group_count: int = 1, precision: PrecisionLike = None,
        preferred_element_type: DTypeLike | None = None) -> Array:
    """Convolve an input with a kernel.

    Args:
        lhs: the input, of n + 2 axes: batch, features and n spatial dimensions.
        rhs: the kernel, of n + 2 axes: output features, input features, spatial dimensions.
        window_strides: the stride of the windows in each spatial dimension.
        padding: pairs of zeros before and after each spatial dimension (negative ones crop).
            "VALID" means none, "SAME" as many as ceil(n / stride) windows need ("SAME_LOWER":
            the odd zero goes in front).
        lhs_dilation: the dilation of the input: the distance of its elements before padding.
        rhs_dilation: the dilation of the kernel: the distance of the elements of a window.
        dimension_numbers: the roles of the axes (``conv_dimension_numbers``); None: as above.
        feature_group_count: the number of groups of features, each convolved with its own part of
            the kernel; the input has this many times the features of the kernel.
        batch_group_count: the number of groups of the batch, in the same way.
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: a dtype to convert the operands to before the multiplication.

    Returns:
        An Array with one spatial element per window, of the dtype of the operands.

    Raises:
        DTypeError: the operands differ in dtype.
        ShapeError: ranks or features do not match, a group count does not divide them, or padding
            crops more than there is.
        ArgumentError: a stride or dilation is missing or below 1, the padding is unknown, or
            dimension_numbers do not name each axis once.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> x = jnp.asarray([[[1.0, 2.0, 4.0, 8.0]]])
    >>> lax.conv_general_dilated(x, jnp.asarray([[[1.0, -1.0]]]), (1,), "VALID")
    Array([[[-1., -2., -4.]]], dtype=float32)
    """
    inputs, kernel = asarray(lhs), asarray(rhs)
    numbers = conv_dimension_numbers(inputs.shape, kernel.shape, dimension_numbers)
    if inputs._dtype is not kernel._dtype:
        raise DTypeError(f"expected an input and a kernel of the same dtype, got {inputs._dtype} "
                         f"and {kernel._dtype}",
                         hint="convert one of them with .astype(...)")
    x = build.permute(inputs._node, numbers.lhs_spec)
    w = build.permute(kernel._node, numbers.rhs_spec)
    is_bool = x.dtype.is_bool and preferred_element_type is None
    if preferred_element_type is not None or is_bool:
        t = dtypes.int32 if preferred_element_type is None else \
            convert.product_dtype("convolution", x.dtype, preferred_element_type)
        x, w = build.cast(x, t), build.cast(w, t)
    groups = _group_count(x.shape, w.shape, feature_group_count, batch_group_count)
    params = _conv_params(x.shape, w.shape, window_strides, padding, lhs_dilation, rhs_dilation)
    out = _convolve(x, w, params, groups, batch_group_count > 1, numbers.out_spec)
    if is_bool:
        out = build.ne(out, build.const_like(out, 0))
    set_composite(out, "conv_general_dilated", _convolve_by_params, [inputs._node, kernel._node],
                  window_strides=params.strides, padding=tuple(params.padding),
                  lhs_dilation=params.lhs_dilation, rhs_dilation=params.dilation,
                  dimension_numbers=numbers, feature_group_count=feature_group_count,
                  batch_group_count=batch_group_count, precision=precision,
                  preferred_element_type=preferred_element_type, out_sharding=None)
    return Array(out)


def _convolve_by_params(x: Any, w: Any, *, out_sharding: Any = None, **params: Any) -> Array:
    return conv_general_dilated(x, w, **params)


def _group_count(x: Shape, w: Shape, features: int, batches: int) -> int:
    """Return the number of groups of the features or of the batch.

    The shapes are (batch, features, ...) and (output features, features, ...).
    """
    features = arguments.check_int("feature_group_count", features)
    batches = arguments.check_int("batch_group_count", batches)
    if min(features, batches) < 1 or max(features, batches) > 1 < min(features, batches):
        raise ArgumentError("expected feature_group_count and batch_group_count >= 1, at most one "
                            f"of them above 1, got {features} and {batches}")
    if x[1] != w[1] * features:
        raise ShapeError(f"expected a kernel for {x[1]} input "
                         f"features{f' in {features} groups' if features > 1 else ''}, got {w[1]}",
                         hint="input features = kernel input features * feature_group_count; check "
                              "dimension_numbers")
    for n, what, count, name in (
            (w[0], "output features", features, "feature_group_count"),
            (w[0], "output features", batches, "batch_group_count"),
            (x[0], "batch elements", batches, "batch_group_count")):
        if n % count:
            raise ShapeError(f"expected {name} to divide the {n} {what}, got {count}")
    return max(features, batches)


def _conv_params(x: Shape, w: Shape, strides: Sequence[int], padding: Padding,
                 lhs_dilation: Sequence[int] | None,
                 rhs_dilation: Sequence[int] | None) -> _ConvParams:
    n = len(x) - 2
    steps = ints_per_axis("window_strides", strides, n)
    input_steps = ints_per_axis("lhs_dilation", lhs_dilation, n)
    kernel_steps = ints_per_axis("rhs_dilation", rhs_dilation, n)
    if isinstance(padding, str) and max(input_steps, default=1) > 1 and padding != "VALID":
        raise ArgumentError(f"expected padding as pairs with lhs_dilation {input_steps}, got "
                            f"{padding!r}",
                            hint="pass (before, after) pairs, or use lax.conv_transpose")
    spatial = tuple([max(0, (m - 1) * d + 1) for m, d in zip(x[2:], input_steps)])
    extents = tuple([max(0, (m - 1) * d + 1) for m, d in zip(w[2:], kernel_steps)])
    pairs = resolve_padding(padding, spatial, extents, steps)
    for m, (lo, hi) in zip(spatial, pairs):
        if m + lo + hi < 0:
            raise ShapeError(f"expected the length {m} plus padding to be >= 0, got "
                             f"{(lo, hi)}")
    return _ConvParams(steps, pairs, input_steps, kernel_steps)


def _convolve(x: UOp, w: UOp, params: _ConvParams, groups: int, by_batch: bool, spec: Sequence[int]
              ) -> UOp:
    """Convolve (batch, features, spatial...) with (output features, features, spatial...).

    ``spec`` is the layout of the result.
    """
    plans = _polyphase_plans(x.shape, w.shape, params)
    size, padding, dilation = list(w.shape[2:]), list(params.padding), list(params.lhs_dilation)
    for i, plan in plans.items():
        size[i], padding[i], dilation[i] = plan.size, plan.padding(x.shape[2 + i]), 1
    x = _dilate_and_pad(x, params.replace(padding=padding, lhs_dilation=tuple(dilation)))
    shifts = {i: spread.num_shifts for i, spread in plans.items() if spread.num_shifts > 1}
    conv_input = ConvWindows(x, tuple(size), params.strides, params.dilation, shifts)
    depthwise = not by_batch and x.shape[1] == w.shape[0] == groups
    if not depthwise:
        conv_input.space_to_depth()
    patches, window_labels = conv_input.windows(depthwise,
                                                may_flatten=not plans or spec[1] < len(spec) - 1)
    batch, features, *tail = patches.shape
    if by_batch:
        patches = build.reshape(patches, (groups, batch // groups, features, *tail))
    else:
        patches = build.reshape(patches, (batch, groups, features // groups, *tail))
    w = build.reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
    element_labels = [("in", i) for i in range(len(params.strides))]
    leading = ("group", "batch") if by_batch else ("batch", "group")
    labels = (*leading, "feature", *window_labels, *element_labels, *[("late", i) for i in shifts])
    if plans:
        return contract_phases(w, patches, labels, plans, conv_input, spec)
    out = contract(w, ("group", "out", "feature", *element_labels), patches, labels,
                   ("batch", "group", "out", *window_labels))
    count, _, outs, *spatial = out.shape
    out = conv_input.restore_axes(build.reshape(out, (count, groups * outs, *spatial)))
    return build.permute(out, inverse_permutation(spec))


def _polyphase_plans(x: Shape, w: Shape, params: _ConvParams) -> dict[int, PolyphasePlan]:
    """Return the polyphase plan of each spatial dimension with input dilation and stride 1."""
    if 0 in (*x, *w):
        return {}
    plans = {}
    for i, (n, k, d) in enumerate(zip(x[2:], w[2:], params.lhs_dilation)):
        length = (n - 1) * d + 1 + sum(params.padding[i]) - k + 1
        if d > 1 and length > 0 and params.strides[i] == params.dilation[i] == 1:
            plans[i] = PolyphasePlan(length, k, params.padding[i][0], d)
    return plans


def _dilate_and_pad(x: UOp, params: _ConvParams) -> UOp:
    """Dilate the input, then pad or crop it."""
    for axis, d in enumerate(params.lhs_dilation, 2):
        if d > 1 and x.shape[axis] > 1:
            length = (x.shape[axis] - 1) * d + 1
            x = build.fold(build.reshape(x, (*x.shape, 1)), axis, len(x.shape), d, 1, length)
            x = build.reshape(x, x.shape[:-1])
    x = build.pad(x, [(0, 0), (0, 0), *[(max(0, lo), max(0, hi)) for lo, hi in params.padding]])
    cuts = [(max(0, -lo), m - max(0, -hi)) for m, (lo, hi) in zip(x.shape[2:], params.padding)]
    return build.shrink(x, [(0, x.shape[0]), (0, x.shape[1]), *cuts])


_docstr = DocTemplate(
    lhs="the input: batch, features and n spatial dimensions.",
    rhs="the kernel: output features, input features and n spatial dimensions.",
    window_strides="the stride of each spatial dimension.",
    padding='"VALID", "SAME", or (before, after) for each dimension.',
    lhs_dilation="the dilation of the input; None: 1.",
    rhs_dilation="the dilation of the kernel; None: 1.",
    precision="one of JAX's names, or a pair of them; all mean full precision here.",
    preferred_element_type="a dtype that the operands are converted to before they are\n"
                           "multiplied.",
    returns="An Array of one element per window, of the dtype of the operands.",
    raises=("DTypeError: the dtypes differ.",
            "ShapeError: ranks or features do not match.",
            "ArgumentError: a number is not >= 1; unknown padding."),
    imports="fnx.lax as lax, fnx.numpy as jnp")


@_docstr()
def conv(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Padding,
         precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None) -> Array:
    """Call ``conv_general_dilated`` without dilation, in the layouts NC..., OI..., NC...

    >>> lax.conv(jnp.ones((1, 2, 5, 5)), jnp.ones((3, 2, 3, 3)), (2, 2), "VALID").shape
    (1, 3, 2, 2)
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision,
                                preferred_element_type=preferred_element_type)


@_docstr()
def conv_with_general_padding(
        lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Padding,
        lhs_dilation: Sequence[int] | None, rhs_dilation: Sequence[int] | None,
        precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None) -> Array:
    """Call ``conv_general_dilated`` in the layouts NC..., OI..., NC...

    >>> x, w = jnp.ones((1, 2, 5)), jnp.ones((3, 2, 3))
    >>> lax.conv_with_general_padding(x, w, (1,), [(1, 2)], (2,), None).shape
    (1, 3, 10)
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
                                precision=precision,
                                preferred_element_type=preferred_element_type)


# ---- transposed ---------------------------------------------------------------------------------


_SPATIAL_LETTERS = ("", "H", "HW", "HWD")


@public_api
def conv_transpose(
        lhs: ArrayLike, rhs: ArrayLike, strides: Sequence[int], padding: Padding,
        rhs_dilation: Sequence[int] | None = None, dimension_numbers: DimensionNumbers = None,
        transpose_kernel: bool = False, precision: PrecisionLike = None,
        preferred_element_type: DTypeLike | None = None, use_consistent_padding: bool = False
        ) -> Array:
    """Compute a transposed convolution: dilate the input by the strides, then convolve.

    Args:
        lhs: the input, of n + 2 axes.
        rhs: the kernel, of n + 2 axes.
        strides: the dilation of the input in each spatial dimension.
        padding: "SAME" and "VALID" name the padding of the convolution that is transposed; pairs
            are zeros before and after each spatial dimension of the dilated input.
        rhs_dilation: the dilation of the kernel: the distance of the elements of a window.
        dimension_numbers: the roles of the axes; None: channels last (NHWC, HWIO, NHWC).
        transpose_kernel: whether to flip the spatial dimensions of the kernel and swap its
            features, which gives the transpose of the convolution with that kernel.
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: a dtype to convert the operands to before the multiplication.
        use_consistent_padding: whether pairs, too, are those of the convolution that is
            transposed.

    Returns:
        An Array of the dtype of the operands.

    Raises:
        DTypeError: the operands differ in dtype.
        ShapeError: ranks or features do not match.
        ArgumentError: a stride or dilation is missing or below 1, the padding is unknown, or there
            are more than three spatial dimensions without dimension_numbers.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.conv_transpose(jnp.ones((1, 5, 5, 2)), jnp.ones((3, 3, 2, 4)), (2, 2), "SAME").shape
    (1, 10, 10, 4)
    """
    x, w = asarray(lhs), asarray(rhs)
    n = x.ndim - 2
    layout = _channels_last(n) if dimension_numbers is None else dimension_numbers
    numbers = conv_dimension_numbers(x.shape, w.shape, layout)
    steps = ints_per_axis("strides", strides, n)
    kernel_steps = ints_per_axis("rhs_dilation", rhs_dilation, n)
    if use_consistent_padding or padding in ("SAME", "VALID"):
        extents = [(w.shape[a] - 1) * d + 1 for a, d in zip(numbers.rhs_spec[2:], kernel_steps)]
        paddings = [padding] * n if isinstance(padding, str) else list(padding)
        if len(paddings) != n:
            raise ArgumentError(f"expected padding for {n} spatial axes, got {padding!r}")
        padding = [_transposed_padding(k, s, p) for k, s, p in zip(extents, steps, paddings)]
    if transpose_kernel:
        w = jnp.swapaxes(jnp.flip(w, numbers.rhs_spec[2:]), *numbers.rhs_spec[:2])
    return conv_general_dilated(x, w, (1,) * n, padding, steps, kernel_steps, numbers,
                                precision=precision,
                                preferred_element_type=preferred_element_type)


def _channels_last(n: int) -> tuple[str, str, str]:
    """Return the default layouts for n spatial dimensions: channels last."""
    if n not in range(len(_SPATIAL_LETTERS)):
        raise ArgumentError(f"expected dimension_numbers for {n + 2} axes, got None",
                            hint=_LAYOUT_HINT)
    spatial = _SPATIAL_LETTERS[n]
    return (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C") if n < 3 else \
        ("NHWDC", "HWDIO", "NHWDC")


def _transposed_padding(k: int, s: int, padding: Any) -> tuple[int, int]:
    """Return the padding of the dilated input, for windows of dilated size k and stride s."""
    if padding == "VALID":
        return k - 1, s - 1 + max(k - s, 0)
    if padding == "SAME":
        total = k + s - 2
        before = k - 1 if s > k - 1 else -(-total // 2)
        return before, total - before
    try:
        before, after = map(operator.index, padding)
    except (TypeError, ValueError):
        raise ArgumentError("expected padding 'VALID', 'SAME' or pairs (before, after), got "
                            f"{padding!r}") from None
    return k - 1 - before, k - 1 - after


# ---- patches ------------------------------------------------------------------------------------


@public_api
def conv_general_dilated_patches(
        lhs: ArrayLike, filter_shape: Sequence[int], window_strides: Sequence[int],
        padding: Padding, lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None, dimension_numbers: DimensionNumbers = None,
        precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None) -> Array:
    """Extract the windows of a convolution (im2col) as features: channels, then window elements.

    Args:
        lhs: the input, of n + 2 axes: batch, features and n spatial dimensions.
        filter_shape: the size of a window in each spatial dimension.
        window_strides: the stride of the windows in each spatial dimension.
        padding: "VALID", "SAME", or pairs of zeros before and after each spatial dimension.
        lhs_dilation: the dilation of the input: the distance of its elements before padding.
        rhs_dilation: the distance of the elements of a window.
        dimension_numbers: the roles of the axes (``conv_dimension_numbers``).
        precision: one of JAX's names, or a pair of them; ignored, as nothing is multiplied.
        preferred_element_type: a dtype to convert the elements to.

    Returns:
        An Array with one spatial element per window.

    Raises:
        ShapeError: the rank does not match, or padding crops more than there is.
        ArgumentError: a size, stride or dilation is missing or below 1, the padding is unknown, or
            dimension_numbers do not name each axis once.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.conv_general_dilated_patches(jnp.arange(4).reshape(1, 1, 4), (2,), (1,), "VALID")
    Array([[[0, 1, 2],
            [1, 2, 3]]], dtype=int32)
    """
    inputs = asarray(lhs)
    size = ints_per_axis("filter_shape", filter_shape, max(0, inputs.ndim - 2))
    numbers = conv_dimension_numbers(inputs.shape, (1, 1, *size), dimension_numbers)
    x = build.permute(inputs._node, numbers.lhs_spec)
    if preferred_element_type is not None:
        t = convert.product_dtype("patches", x.dtype, preferred_element_type)
        x = build.cast(x, t)
    params = _conv_params(x.shape, (1, 1, *size), window_strides, padding, lhs_dilation,
                          rhs_dilation)
    n = len(size)
    patches = extract_windows(_dilate_and_pad(x, params), size, params.strides, params.dilation,
                              axes=range(2, 2 + n))
    batch, features, *_ = patches.shape
    spatial = patches.shape[2:2 + n]
    patches = build.permute(patches, (0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n)))
    out = build.reshape(patches, (batch, math.prod(patches.shape[1:2 + n]), *spatial))
    return Array(build.permute(out, inverse_permutation(numbers.out_spec)), inputs.weak)
