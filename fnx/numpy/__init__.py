"""NumPy's functions on fnx arrays, with the names, arguments and semantics of ``jax.numpy``.

>>> import fnx.numpy as jnp
>>> jnp.sum(jnp.asarray([1.0, 2.0]) * 3)
Array(9., dtype=float32)
"""

from typing import TYPE_CHECKING

import numpy as np

from fnx.core.array.array import Array
from fnx.core.array.operate import astype
from fnx.core.errors import module_face
from fnx.numpy import (
    binary,
    contraction,
    creation,
    elementwise,
    joining,
    limits,
    matrices,
    methods,
    movement,
    rearranging,
    reductions,
    scalars,
    searching,
    taking,
    unary,
)
from fnx.numpy.binary import *
from fnx.numpy.contraction import *
from fnx.numpy.creation import *
from fnx.numpy.elementwise import *
from fnx.numpy.joining import *
from fnx.numpy.limits import *
from fnx.numpy.matrices import *
from fnx.numpy.movement import *
from fnx.numpy.rearranging import *
from fnx.numpy.reductions import *
from fnx.numpy.scalars import *
from fnx.numpy.searching import *
from fnx.numpy.taking import *
from fnx.numpy.unary import *

if TYPE_CHECKING:  # loaded on first use
    from fnx.dlpack import from_dlpack
    from fnx.numpy import linalg
    from fnx.numpy.arranging import *
    from fnx.numpy.calculus import *
    from fnx.numpy.choosing import *
    from fnx.numpy.counting import *
    from fnx.numpy.einsum_paths import *
    from fnx.numpy.elementary import *
    from fnx.numpy.inquiries import *
    from fnx.numpy.packing import *
    from fnx.numpy.padding import *
    from fnx.numpy.places import *
    from fnx.numpy.polynomials import *
    from fnx.numpy.quantiles import *
    from fnx.numpy.sets import *
    from fnx.numpy.sorting import *
    from fnx.numpy.statistics import *
    from fnx.numpy.ufuncs import *
    from fnx.numpy.vectorizing import *
    from fnx.numpy.windows import *

ndarray = Array

_LATER = {
    "arranging": (
        "append", "around", "array_equiv", "atleast_1d", "atleast_2d", "atleast_3d", "block",
        "copy", "delete", "diagflat", "dsplit", "dstack", "fill_diagonal", "fliplr", "flipud",
        "hsplit", "insert", "matrix_transpose", "resize", "rollaxis", "rot90", "trim_zeros",
        "unstack", "vsplit"),
    "calculus": (
        "convolve", "correlate", "cross", "diff", "ediff1d", "geomspace", "gradient",
        "logspace", "matvec", "trapezoid", "vecdot", "vecmat"),
    "choosing": (
        "apply_along_axis", "apply_over_axes", "choose", "piecewise", "place", "put",
        "put_along_axis", "select"),
    "counting": (
        "bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges",
        "histogramdd", "interp", "searchsorted"),
    "elementary": (
        "acos", "acosh", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctanh", "asin",
        "asinh", "atanh", "bitwise_count", "conj", "conjugate", "copysign", "deg2rad",
        "degrees", "divmod", "fmax", "fmin", "frexp", "gcd", "heaviside", "imag", "iscomplex",
        "isneginf", "isposinf", "isreal", "lcm", "ldexp", "modf", "nextafter", "rad2deg",
        "radians", "real", "signbit", "sinc", "spacing", "unwrap"),
    "inquiries": (
        "array_repr", "array_str", "c_", "can_cast", "frombuffer", "fromfile", "fromiter",
        "fromstring", "get_printoptions", "index_exp", "iscomplexobj", "isdtype", "isrealobj",
        "isscalar", "iterable", "load", "mgrid", "ogrid", "printoptions", "r_", "s_", "save",
        "savez", "set_printoptions"),
    "places": (
        "argwhere", "compress", "diag_indices", "diag_indices_from", "extract", "flatnonzero",
        "fromfunction", "indices", "ix_", "mask_indices", "nonzero", "ravel_multi_index",
        "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from",
        "unravel_index"),
    "polynomials": (
        "poly", "polyadd", "polyder", "polydiv", "polyint", "polymul", "polysub", "polyval",
        "vander"),
    "packing": ("packbits", "unpackbits"),
    "padding": ("pad",),
    "quantiles": (
        "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"),
    "sets": (
        "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all",
        "unique_counts", "unique_inverse", "unique_values"),
    "sorting": ("argpartition", "argsort", "lexsort", "partition", "sort"),
    "statistics": (
        "average", "corrcoef", "cov", "cumulative_prod", "cumulative_sum", "nanargmax",
        "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod",
        "nanstd", "nansum", "nanvar"),
    "ufuncs": ("frompyfunc", "ufunc"),
    "vectorizing": ("vectorize",),
    "windows": (
        "bartlett", "blackman", "hamming", "hanning", "i0", "kaiser"),
}
_HOMES = {name: f"fnx.numpy.{room}" for room, names in _LATER.items() for name in names} | {
    "bool": "fnx.numpy.scalars:bool_", "linalg": "fnx.numpy.linalg",
    "einsum_path": "fnx.numpy.einsum_paths",
    "from_dlpack": "fnx.dlpack"}

__all__ = [
    "Array", "astype", "ndarray", *binary.__all__, *contraction.__all__,
    *creation.__all__, *elementwise.__all__, *joining.__all__, *limits.__all__,
    *matrices.__all__, *movement.__all__,
    *rearranging.__all__, *reductions.__all__, *scalars.__all__, *searching.__all__,
    *taking.__all__, *unary.__all__, *_HOMES,
]

if not TYPE_CHECKING:  # __getattr__ would make every name exist for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__, ["bfloat16", *np.__all__],
                                        _HOMES)
