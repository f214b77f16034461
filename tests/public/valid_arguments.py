"""Valid arguments of public functions, by parameter name and by function."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.sharding import NamedSharding, PartitionSpec, make_mesh

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
SQUARE = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
LINE = np.asarray([0.5, 1.5, 2.5], np.float32)
WHOLE = np.asarray([1, 0, 2], np.int32)

BY_NAME: dict[str, Any] = {
    "arys": X, "values": X, "obj": 1, "indices_or_sections": 1, "new_shape": (2, 2), "val": 1.0,
    "filt": LINE, "x1": X, "x2": X, "p": LINE, "z": X, "args": WHOLE,
    "multi_index": (1, 1), "dims": (2, 2), "condlist": [X > 2], "choicelist": [X], "choices": [X],
    "mask": X > 2, "vals": LINE, "ind": WHOLE, "func1d": jnp.sum, "func": jnp.sum,
}
BY_FUNCTION: dict[str, dict[str, Any]] = {
    "fnx.numpy.linalg.tensorinv": {"a": np.eye(6, dtype=np.float32).reshape(2, 3, 6)},
    "fnx.numpy.linalg.tensorsolve": {"a": np.eye(6, dtype=np.float32).reshape(2, 3, 2, 3), "b": X},
    "fnx.lax.fft": {"fft_type": "rfft", "fft_lengths": (3,)},
    "fnx.numpy.bitwise_count": {"x": WHOLE}, "fnx.numpy.gcd": {"x1": WHOLE, "x2": WHOLE},
    "fnx.numpy.lcm": {"x1": WHOLE, "x2": WHOLE}, "fnx.numpy.ldexp": {"x2": WHOLE},
    "fnx.numpy.diag_indices_from": {"arr": SQUARE}, "fnx.numpy.dsplit": {"ary": X[None]},
    "fnx.lax.with_sharding_constraint": {
        "shardings": NamedSharding(make_mesh((1,), ("a",)), PartitionSpec(None))},
    "fnx.numpy.delete": {"axis": None}, "fnx.numpy.insert": {"values": 1.0},
    "fnx.numpy.put_along_axis": {"arr": SQUARE, "indices": WHOLE[None], "values": 1.0, "axis": 0,
                                 "inplace": False},
    "fnx.numpy.compress": {"condition": [True, False, True], "a": LINE},
    "fnx.numpy.fromfunction": {"function": lambda i, j: i + j},
    "fnx.numpy.mask_indices": {"mask_func": jnp.triu, "k": 0},
    "fnx.numpy.indices": {"dimensions": (2, 2)}, "fnx.numpy.choose": {"a": WHOLE * 0},
    "fnx.numpy.apply_along_axis": {"args": None}, "fnx.numpy.piecewise": {
        "funclist": [1.0], "condlist": [X > 2]},
    "fnx.numpy.append": {"axis": None},
    "fnx.numpy.frompyfunc": {"func": jnp.add, "nin": 2, "nout": 1, "identity": 0},
}
BY_NAME |= {
    "q": X / 9, "lmbda": 1.5, "beta": 1.0, "M": 4, "h": X, "c": 2.5, "d": 2, "df": 2.0, "loc": 0.0,
    "concentration": 2.0, "alpha": LINE, "lam": 2.0, "dfnum": 2.0, "dfden": 3.0, "left": 0.0,
    "right": 2.0, "mean": np.zeros(3, np.float32), "cov": np.eye(3, dtype=np.float32), "k": 1.0,
}
BY_FUNCTION |= {
    "fnx.scipy.special.bernoulli": {"n": 3}, "fnx.random.wald": {"mean": 1.0},
    **{f"fnx.scipy.special.{n}": {"a": 2.0, "b": 3.0, "m": 2.0} for n in (
        "gammainc", "gammaincc", "poch", "hyp1f1", "owens_t")},
    "fnx.scipy.special.betainc": {"x": 0.5}, "fnx.scipy.special.hyp2f1": {"x": 0.5},
    "fnx.scipy.special.expn": {"n": WHOLE}, "fnx.random.triangular": {"mode": 1.0},
    "fnx.random.pareto": {"b": 2.0}, "fnx.random.beta": {"a": 2.0, "b": 2.0},
    "fnx.random.gamma": {"a": 2.0}, "fnx.random.loggamma": {"a": 2.0},
    "fnx.random.geometric": {"p": 0.5}, "fnx.random.binomial": {"p": 0.5, "n": 3.0},
    "fnx.random.multinomial": {"p": LINE / 5}, "fnx.random.generalized_normal": {"p": 2.0},
}
BY_NAME |= {
    "from_": np.float32, "to": np.float64, "kind": "numeric", "element": 1.0, "file": "",
    "buffer": b"1234", "string": "1 2", "y": X, "rank": 3, "sizes": (1, 1), "start_dimension": 0,
}
BY_FUNCTION |= {
    "fnx.lax.population_count": {"x": WHOLE}, "fnx.lax.clz": {"x": WHOLE},
    "fnx.lax.broadcast": {"sizes": (2,)}, "fnx.lax.broadcast_shapes": {"shapes": (2,)},
    **{f"fnx.lax.{n}": {"a": 2.0, "b": 3.0, "x": 0.5} for n in ("betainc", "igamma", "igammac")},
    "fnx.numpy.isdtype": {"dtype": "float32"},
}
# Keywords without which the defaults are refused.
KEYWORDS: dict[str, dict[str, Any]] = {
    "fnx.lax.pcast": {"to": "varying"},
    **{f"fnx.numpy.{name}": {"inplace": False} for name in ("fill_diagonal", "place", "put")},
    "fnx.scipy.special.bessel_jn": {"v": 3}}
# Parameters that accept any value.
ANYTHING_IS_TAKEN: dict[str, tuple[str, ...]] = {"fnx.numpy.mask_indices": ("k",)}
# Functions that read or write files, and NumPy's own options.
NUMPYS = ("load", "save", "savez", "frombuffer", "fromstring", "fromfile", "fromiter",
          "array_repr", "array_str", "set_printoptions", "get_printoptions", "printoptions",
          "isscalar", "iterable", "iscomplexobj", "isrealobj", "can_cast", "isdtype")
BY_NAME |= {
    "ary": X, "a1": LINE, "a2": LINE, "u": LINE, "v": LINE,
    "varargs": np.float32(1.0), "seq_of_zeros": LINE, "xp": LINE, "fp": LINE,
    "bins": LINE, "sample": X, "f": SQUARE, "start": 1.0,
}
BY_FUNCTION |= {
    "fnx.numpy.vander": {"x": LINE}, "fnx.numpy.cumulative_sum": {"x": LINE},
    "fnx.numpy.cumulative_prod": {"x": LINE}, "fnx.numpy.convolve": {"a": LINE},
    "fnx.numpy.correlate": {"a": LINE}, "fnx.numpy.vecmat": {"x1": LINE, "x2": SQUARE},
    "fnx.numpy.matvec": {"x1": SQUARE, "x2": LINE}, "fnx.numpy.bincount": {"x": WHOLE},
    "fnx.numpy.searchsorted": {"a": LINE}, "fnx.numpy.polyder": {"p": LINE},
}
_ROWS = np.ones((1, 2, 5), np.float32)  # batch, features, positions
_NAMED_AXES = {"lhs_shape": (1, 5, 2), "rhs_shape": (3, 2, 4), "padding": "SAME",
               "window_strides": (1,), "dimension_numbers": ("NWC", "WIO", "NWC")}
BY_NAME |= {
    "ar1": WHOLE, "ar2": WHOLE, "ar": WHOLE, "test_elements": WHOLE, "kth": 1, "sample": X,
    "exponent_bits": 5, "mantissa_bits": 3, "arr": LINE, "like_arr": X, "pads": "SAME",
    "query": np.ones((1, 2, 1, 4), np.float32),
}
BY_FUNCTION |= {
    **{f"fnx.numpy.{n}": {"q": 0.5} for n in (
        "quantile", "nanquantile", "percentile", "nanpercentile")},
    "fnx.numpy.packbits": {"a": WHOLE}, "fnx.numpy.unpackbits": {"a": WHOLE.astype(np.uint8)},
    "fnx.numpy.lexsort": {"keys": [X, X]}, "fnx.lax.mulhi": {"x": WHOLE, "y": WHOLE},
    "fnx.numpy.isin": {"element": X}, "fnx.lax.index_take": {
        "src": X, "idxs": (WHOLE,), "axes": (0,)},
    **{f"fnx.lax.{n}": {"a": 2.0, "x": 0.5, "sample": 0.5} for n in (
        "igamma_grad_a", "random_gamma_grad")},
    "fnx.lax.broadcast_like": {"arr": np.float32(1)},
    "fnx.lax.platform_dependent": {"args": X},
    "fnx.lax.conv_general_dilated_local": {
        "lhs": _ROWS, "rhs": np.ones((3, 4, 4), np.float32), "window_strides": (1,),
        "padding": "VALID", "filter_shape": (2,)},
    "fnx.lax.conv_general_permutations": {"dimension_numbers": ("NWC", "WIO", "NWC")},
    "fnx.lax.conv_general_shape_tuple": _NAMED_AXES,
    "fnx.lax.conv_transpose_shape_tuple": _NAMED_AXES,
    "fnx.lax.conv_shape_tuple": {"lhs_shape": (1, 2, 5), "rhs_shape": (4, 2, 3), "strides": (1,)},
    "fnx.lax.padtype_to_pads": {"in_shape": (5,), "window_shape": (3,), "window_strides": (1,),
                                "padding": "SAME"},
    "fnx.lax.reduce_window_shape_tuple": {
        "operand_shape": (5,), "window_dimensions": (3,), "window_strides": (1,),
        "padding": [(0, 0)]},
    "fnx.nn.dot_product_attention": {"key": np.ones((1, 3, 1, 4), np.float32),
                                     "value": np.ones((1, 3, 1, 4), np.float32)},
}
KEYWORDS["fnx.lax.platform_dependent"] = {"cpu": lambda x: x}
BY_FUNCTION |= {
    "Array.addressable_data": {"index": 0}, "Array.to_device": {"device": None},
    "Array.choose": {"choices": [X]}, "Array.searchsorted": {"v": LINE},
    "At.apply": {"func": jnp.square},
}
RECEIVERS = {"Array.choose": WHOLE * 0, "Array.searchsorted": LINE}
BY_FUNCTION |= {"fnx.numpy.einsum_path": {"subscripts": "ij->i", "operands": X}}
BY_FUNCTION |= {
    "fnx.numpy.place": {"arr": X}, "fnx.numpy.tril_indices_from": {"arr": SQUARE},
    "fnx.numpy.triu_indices_from": {"arr": SQUARE},
}
BY_FUNCTION |= {
    "Array.compress": {"condition": [True, False, True]},
    "fnx.numpy.linalg.outer": {"x1": LINE, "x2": LINE},
    "fnx.numpy.linalg.multi_dot": {"arrays": [X, X.T]},
}
BY_FUNCTION |= {
    **{f"fnx.scipy.signal.{n}": {"in1": X, "in2": SQUARE[:1, :2]} for n in (
        "convolve", "convolve2d", "correlate", "correlate2d")},
    "fnx.scipy.signal.detrend": {"data": X},
    "fnx.scipy.cluster.vq.vq": {"obs": X, "code_book": SQUARE},
    "fnx.scipy.integrate.trapezoid": {"y": X},
    "fnx.scipy.ndimage.map_coordinates": {"input": X, "coordinates": [LINE / 2, LINE], "order": 1},
    "fnx.scipy.optimize.minimize": {"fun": lambda x: jnp.sum(x * x), "x0": LINE},
}
KEYWORDS["fnx.scipy.optimize.minimize"] = {"method": "BFGS"}
BY_FUNCTION |= {
    "fnx.scipy.special.sph_harm_y": {"n": WHOLE, "m": WHOLE * 0, "theta": LINE, "phi": LINE},
    "fnx.numpy.polyfit": {"x": LINE, "y": LINE, "deg": 1},
    "fnx.lax.ragged_dot": {"lhs": SQUARE, "rhs": np.ones((2, 3, 2), np.float32),
                           "group_sizes": WHOLE[:2] + 1},
    "fnx.lax.ragged_dot_general": {
        "lhs": SQUARE, "rhs": np.ones((2, 3, 2), np.float32), "group_sizes": WHOLE[:2] + 1,
        "ragged_dot_dimension_numbers": lax.RaggedDotDimensionNumbers(
            (([1], [1]), ([], [])), [0], [0])},
}
BY_FUNCTION |= {
    "fnx.scipy.signal.fftconvolve": {"in1": X, "in2": SQUARE[:1, :2]},
    **{f"fnx.scipy.signal.{n}": {"x": X, "y": X} for n in ("csd", "welch")},
    "fnx.scipy.signal.stft": {"x": X, "nperseg": 3}, "fnx.scipy.signal.istft": {"Zxx": X},
}
_REGULAR = SQUARE % 5 + 9 * np.eye(3, dtype=np.float32)
_POSITIVE = np.eye(3, dtype=np.float32) + 1
BY_NAME |= {"taus": LINE, "indptr": np.asarray([0, 1, 2, 3], np.int32)}
BY_FUNCTION |= {
    **{f"fnx.lax.linalg.{n}": {"x": _POSITIVE} for n in (
        "cholesky", "eig", "eigh", "qdwh", "schur")},
    "fnx.lax.linalg.cholesky_update": {"r_matrix": np.eye(3, dtype=np.float32), "w_vector": LINE},
    "fnx.lax.linalg.lu_pivots_to_permutation": {"pivots": WHOLE, "permutation_size": 3},
    "fnx.lax.linalg.ormqr": {"c": SQUARE}, "fnx.lax.linalg.symmetric_product": {
        "a_matrix": X, "c_matrix": np.eye(2, dtype=np.float32)},
    "fnx.lax.linalg.tridiagonal_solve": {"dl": LINE, "d": LINE + 5, "du": LINE, "b": SQUARE},
    **{f"fnx.scipy.linalg.{n}": {"A": _REGULAR, "B": _REGULAR, "C": SQUARE, "E": SQUARE}
       for n in ("expm", "expm_frechet", "solve_sylvester", "sqrtm")},
    "fnx.scipy.linalg.funm": {"A": _REGULAR, "func": jnp.sin},
    "fnx.scipy.linalg.block_diag": {"arrs": X}, "fnx.scipy.linalg.hadamard": {"n": 4},
    "fnx.scipy.linalg.circulant": {"c": LINE}, "fnx.scipy.linalg.convolution_matrix": {"a": LINE},
    **{f"fnx.scipy.linalg.{n}": {"a": LINE} for n in ("companion", "fiedler", "fiedler_companion")},
    **{f"fnx.scipy.linalg.{n}": {"c": LINE} for n in ("hankel", "toeplitz")},
    "fnx.scipy.linalg.cho_solve": {"c_and_lower": (_POSITIVE, True)},
    "fnx.scipy.linalg.eigh_tridiagonal": {"d": LINE, "e": LINE[:2]},
    "fnx.scipy.linalg.leslie": {"f": LINE, "s": LINE[:2]},
    "fnx.scipy.linalg.lu_solve": {"lu_and_piv": (_REGULAR, WHOLE * 0 + 2)},
    "fnx.scipy.linalg.qr_multiply": {"c": SQUARE},
    "fnx.scipy.linalg.rsf2csf": {"T": _POSITIVE, "Z": _POSITIVE},
    **{f"fnx.scipy.sparse.linalg.{n}": {"A": _REGULAR, "b": LINE} for n in (
        "bicgstab", "cg", "gmres")},
    "fnx.experimental.sparse.linalg.lobpcg_standard": {
        "A": np.eye(6, dtype=np.float32), "X": np.ones((6, 1), np.float32)},
    "fnx.experimental.sparse.linalg.spsolve": {"data": LINE, "indices": WHOLE, "b": LINE},
}
