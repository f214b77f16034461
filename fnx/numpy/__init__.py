"""NumPy's functions on fnx arrays, with the names, arguments and semantics of ``jax.numpy``.

>>> import fnx.numpy as jnp
>>> jnp.sum(jnp.asarray([1.0, 2.0]) * 3)
Array(9., dtype=float32)
"""

from typing import TYPE_CHECKING

import numpy as np

from fnx.core.support.errors import lazy_module
from fnx.numpy import array_methods, base
from fnx.numpy.base import Array, astype, ndarray
from fnx.numpy.composite_ufuncs import *
from fnx.numpy.contraction import *
from fnx.numpy.creation import *
from fnx.numpy.dtypes import *
from fnx.numpy.rearrange import *
from fnx.numpy.reductions import *
from fnx.numpy.shape_manipulation import *
from fnx.numpy.ufuncs import *

if TYPE_CHECKING:  # loaded on first use
    from fnx.dlpack import from_dlpack
    from fnx.numpy import fft, linalg
    from fnx.numpy.bits import *
    from fnx.numpy.einsum_paths import *
    from fnx.numpy.histograms import *
    from fnx.numpy.indexing import *
    from fnx.numpy.io_index_tricks import *
    from fnx.numpy.manipulation import *
    from fnx.numpy.math_functions import *
    from fnx.numpy.namespace_info import __array_namespace_info__
    from fnx.numpy.padding import *
    from fnx.numpy.polynomials import *
    from fnx.numpy.quantiles import *
    from fnx.numpy.selection import *
    from fnx.numpy.sets import *
    from fnx.numpy.sorting import *
    from fnx.numpy.statistics import *
    from fnx.numpy.ufunc_methods import *
    from fnx.numpy.vector_math import *
    from fnx.numpy.vectorization import *
    from fnx.numpy.windows import *

_LAZY_MODULES = {
    "manipulation": (
        "append", "around", "array_equiv", "atleast_1d", "atleast_2d", "atleast_3d", "block",
        "copy", "delete", "diagflat", "dsplit", "dstack", "fill_diagonal", "fliplr", "flipud",
        "hsplit", "insert", "matrix_transpose", "resize", "rollaxis", "rot90", "trim_zeros",
        "unstack", "vsplit"),
    "vector_math": (
        "convolve", "correlate", "cross", "diff", "ediff1d", "geomspace", "gradient",
        "logspace", "matvec", "trapezoid", "vecdot", "vecmat"),
    "selection": (
        "apply_along_axis", "apply_over_axes", "choose", "piecewise", "place", "put",
        "put_along_axis", "select"),
    "histograms": (
        "bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges",
        "histogramdd", "interp", "searchsorted"),
    "math_functions": (
        "acos", "acosh", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctanh", "asin",
        "asinh", "atanh", "bitwise_count", "conj", "conjugate", "copysign", "deg2rad",
        "degrees", "divmod", "fmax", "fmin", "frexp", "gcd", "heaviside", "imag", "iscomplex",
        "isneginf", "isposinf", "isreal", "lcm", "ldexp", "modf", "nextafter", "rad2deg",
        "radians", "real", "signbit", "sinc", "spacing", "unwrap"),
    "io_index_tricks": (
        "array_repr", "array_str", "c_", "can_cast", "frombuffer", "fromfile", "fromiter",
        "fromstring", "get_printoptions", "index_exp", "iscomplexobj", "isdtype", "isrealobj",
        "isscalar", "iterable", "load", "mgrid", "ogrid", "printoptions", "r_", "s_", "save",
        "savez", "set_printoptions"),
    "indexing": (
        "argwhere", "compress", "diag_indices", "diag_indices_from", "extract", "flatnonzero",
        "fromfunction", "indices", "ix_", "mask_indices", "nonzero", "ravel_multi_index",
        "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from",
        "unravel_index"),
    "polynomials": (
        "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub",
        "polyval", "roots", "vander"),
    "bits": ("packbits", "unpackbits"),
    "padding": ("pad",),
    "quantiles": (
        "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"),
    "sets": (
        "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all",
        "unique_counts", "unique_inverse", "unique_values"),
    "sorting": ("argpartition", "argsort", "lexsort", "partition", "sort", "sort_complex"),
    "statistics": (
        "average", "corrcoef", "cov", "cumulative_prod", "cumulative_sum", "nanargmax",
        "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod",
        "nanstd", "nansum", "nanvar"),
    "ufunc_methods": ("frompyfunc", "ufunc"),
    "vectorization": ("vectorize",),
    "windows": (
        "bartlett", "blackman", "hamming", "hanning", "i0", "kaiser"),
}
_HOMES = {name: f"fnx.numpy.{room}" for room, names in _LAZY_MODULES.items() for name in names} | {
    "bool": "fnx.numpy.dtypes:bool_", "fft": "fnx.numpy.fft",
    "linalg": "fnx.numpy.linalg",
    "einsum_path": "fnx.numpy.einsum_paths",
    "__array_namespace_info__": "fnx.numpy.namespace_info",
    "from_dlpack": "fnx.dlpack"}

__all__ = [*base.__all__, *_HOMES]
__array_api_version__ = "2024.12"

if not TYPE_CHECKING:  # __getattr__ would make every name exist for type checkers
    __getattr__, __dir__ = lazy_module(__name__, __all__, ["bfloat16", *np.__all__],
                                       _HOMES)
