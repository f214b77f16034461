"""NumPy's functions on fnx arrays, with the names, arguments and meaning they have in JAX.

>>> import fnx.numpy as jnp
>>> jnp.sum(jnp.asarray([1.0, 2.0]) * 3)
Array(9., dtype=float32)
"""

from typing import TYPE_CHECKING, Any

from fnx.core.array import axes
from fnx.core.array.array import Array
from fnx.core.array.operate import astype
from fnx.core.array.public import public
from fnx.core.errors import module_face
from fnx.numpy import linalg, methods
from fnx.numpy.binary import (
    add,
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    divide,
    equal,
    float_power,
    floor_divide,
    fmod,
    greater,
    greater_equal,
    hypot,
    left_shift,
    less,
    less_equal,
    logaddexp,
    logaddexp2,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    pow,
    power,
    remainder,
    right_shift,
    subtract,
    true_divide,
)
from fnx.numpy.contraction import (
    dot,
    einsum,
    inner,
    kron,
    matmul,
    outer,
    tensordot,
    vdot,
)
from fnx.numpy.creation import (
    arange,
    array,
    asarray,
    empty,
    empty_like,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from fnx.numpy.elementwise import clip, isclose, nan_to_num, round, where
from fnx.numpy.joining import (
    array_split,
    column_stack,
    concat,
    concatenate,
    hstack,
    split,
    stack,
    vstack,
)
from fnx.numpy.matrices import eye, identity, meshgrid, tri, tril, triu
from fnx.numpy.movement import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    moveaxis,
    permute_dims,
    ravel,
    reshape,
    squeeze,
    swapaxes,
    transpose,
)
from fnx.numpy.rearranging import (
    diag,
    diagonal,
    flip,
    pad,
    repeat,
    roll,
    tile,
)
from fnx.numpy.reductions import (
    all,
    allclose,
    amax,
    amin,
    any,
    array_equal,
    count_nonzero,
    max,
    mean,
    min,
    prod,
    ptp,
    std,
    sum,
    trace,
    var,
)
from fnx.numpy.scalars import (
    bool_,
    double,
    dtype,
    finfo,
    float32,
    float64,
    float_,
    floating,
    generic,
    iinfo,
    inexact,
    int8,
    int32,
    int_,
    integer,
    issubdtype,
    number,
    promote_types,
    result_type,
    signedinteger,
    single,
    uint,
    uint32,
    unsignedinteger,
)
from fnx.numpy.searching import argmax, argmin, cumprod, cumsum
from fnx.numpy.taking import take, take_along_axis
from fnx.numpy.unary import (
    abs,
    absolute,
    bitwise_invert,
    bitwise_not,
    cbrt,
    ceil,
    cos,
    cosh,
    exp,
    exp2,
    expm1,
    fabs,
    floor,
    invert,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    negative,
    positive,
    reciprocal,
    rint,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
euler_gamma = 0.5772156649015329
newaxis = None
ndarray = Array


@public
def shape(a: Any) -> tuple[int, ...]:
    """The lengths of the axes.

    Args:
        a: an Array or what ``asarray`` takes.

    Returns:
        A tuple of ints.

    >>> shape([[1, 2]])
    (1, 2)
    """
    return asarray(a).shape


@public
def ndim(a: Any) -> int:
    """How many axes.

    Args:
        a: an Array or what ``asarray`` takes.

    Returns:
        An int.

    >>> ndim([[1, 2]])
    2
    """
    return asarray(a).ndim


@public
def size(a: Any, axis: int | None = None) -> int:
    """How many elements, of all or along one axis.

    Args:
        a: an Array or what ``asarray`` takes.
        axis: one axis, or None for all elements.

    Returns:
        An int.

    >>> size([[1, 2]], 0)
    1
    """
    x = asarray(a)
    return x.size if axis is None else x.shape[axes.one(axis, x.ndim)]

__all__ = [
    "Array",
    "abs",
    "absolute",
    "add",
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "arange",
    "argmax",
    "argmin",
    "array",
    "array_equal",
    "array_split",
    "asarray",
    "astype",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool_",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "cbrt",
    "ceil",
    "clip",
    "column_stack",
    "concat",
    "concatenate",
    "cos",
    "cosh",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "diag",
    "diagonal",
    "divide",
    "dot",
    "double",
    "dtype",
    "e",
    "einsum",
    "empty",
    "empty_like",
    "equal",
    "euler_gamma",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "eye",
    "fabs",
    "finfo",
    "flip",
    "float32",
    "float64",
    "float_",
    "float_power",
    "floating",
    "floor",
    "floor_divide",
    "fmod",
    "full",
    "full_like",
    "generic",
    "greater",
    "greater_equal",
    "hstack",
    "hypot",
    "identity",
    "iinfo",
    "inexact",
    "inf",
    "inner",
    "int8",
    "int32",
    "int_",
    "integer",
    "invert",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "issubdtype",
    "kron",
    "left_shift",
    "less",
    "less_equal",
    "linalg",
    "linspace",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "meshgrid",
    "min",
    "minimum",
    "mod",
    "moveaxis",
    "multiply",
    "nan",
    "nan_to_num",
    "ndarray",
    "ndim",
    "negative",
    "newaxis",
    "not_equal",
    "number",
    "ones",
    "ones_like",
    "outer",
    "pad",
    "permute_dims",
    "pi",
    "positive",
    "pow",
    "power",
    "prod",
    "promote_types",
    "ptp",
    "ravel",
    "reciprocal",
    "remainder",
    "repeat",
    "reshape",
    "result_type",
    "right_shift",
    "rint",
    "roll",
    "round",
    "shape",
    "sign",
    "signedinteger",
    "sin",
    "single",
    "sinh",
    "size",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "trace",
    "transpose",
    "tri",
    "tril",
    "triu",
    "true_divide",
    "trunc",
    "uint",
    "uint32",
    "unsignedinteger",
    "var",
    "vdot",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]

if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__, frozenset({
        "apply_along_axis", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2",
        "arctanh", "argpartition", "argsort", "argwhere", "bfloat16", "bincount", "complex128",
        "complex64", "convolve", "corrcoef", "correlate", "cov", "cross", "fft", "flatnonzero",
        "float16", "histogram", "indices", "int16", "int64", "int8", "interp", "lexsort",
        "median", "mgrid", "nanmax", "nanmean", "nanmin", "nansum", "nonzero", "ogrid",
        "partition", "percentile", "piecewise", "quantile", "searchsorted", "select", "sort",
        "uint16", "uint64", "uint8", "unique", "vectorize",
    }))
