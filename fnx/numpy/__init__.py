"""NumPy's functions on fnx arrays, with the names, arguments and meaning they have in JAX.

>>> import fnx.numpy as jnp
>>> jnp.sum(jnp.asarray([1.0, 2.0]) * 3)
Array(9., dtype=float32)
"""

from fnx.core.array import Array, astype
from fnx.numpy import linalg, methods
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
    eye,
    full,
    full_like,
    identity,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    zeros,
    zeros_like,
)
from fnx.numpy.elementwise import (
    abs,
    absolute,
    add,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    cos,
    cosh,
    divide,
    equal,
    exp,
    exp2,
    expm1,
    fabs,
    float_power,
    floor,
    floor_divide,
    fmod,
    greater,
    greater_equal,
    hypot,
    invert,
    isclose,
    isfinite,
    isinf,
    isnan,
    left_shift,
    less,
    less_equal,
    log,
    log10,
    log1p,
    log2,
    logaddexp,
    logaddexp2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    nan_to_num,
    negative,
    not_equal,
    positive,
    pow,
    power,
    reciprocal,
    remainder,
    right_shift,
    rint,
    round,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
    where,
)
from fnx.numpy.movement import (
    array_split,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    column_stack,
    concat,
    concatenate,
    diag,
    diagonal,
    expand_dims,
    flip,
    hstack,
    moveaxis,
    pad,
    permute_dims,
    ravel,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    take,
    take_along_axis,
    tile,
    transpose,
    vstack,
)
from fnx.numpy.reductions import (
    all,
    allclose,
    amax,
    amin,
    any,
    argmax,
    argmin,
    array_equal,
    count_nonzero,
    cumprod,
    cumsum,
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

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
euler_gamma = 0.5772156649015329
newaxis = None
ndarray = Array


def shape(a: object) -> tuple[int, ...]:
    """The lengths of the axes.

    >>> shape([[1, 2]])
    (1, 2)
    """
    return asarray(a).shape


def ndim(a: object) -> int:
    """How many axes.

    >>> ndim([[1, 2]])
    2
    """
    return asarray(a).ndim


def size(a: object, axis: int | None = None) -> int:
    """How many elements, of all or along one axis.

    >>> size([[1, 2]], 0)
    1
    """
    x = asarray(a)
    return x.size if axis is None else x.shape[axis]
