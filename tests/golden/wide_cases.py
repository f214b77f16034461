"""Every public function over every dtype and shape: families of expressions for comparison.

The operands are named by dtype and shape, as ``f16_2x3`` or ``u8_odd`` (``operands`` makes them).
``scripts/compare_jax.py`` evaluates the expressions with JAX and fnx, with and without 64-bit
types, and the gradients of those whose operands are float32 or float64.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    "b": "bool", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u4": "uint4", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "e4": "float8_e4m3fn", "e5": "float8_e5m2", "bf16": "bfloat16", "f16": "float16",
    "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
SHAPES: dict[str, tuple[int, ...]] = {
    "0d": (), "none": (0,), "3x0": (3, 0), "1": (1,), "3": (3,), "37": (37,), "2x3": (2, 3),
    "3x3": (3, 3), "2x1": (2, 1), "2x1x3": (2, 1, 3)}
WHOLE = ("b", "i8", "i16", "i32", "u8", "u16", "u32")
FLOATS = ("bf16", "f16", "f32")
PLAIN = (*WHOLE, *FLOATS)                 # in both modes
STORED = ("i4", "u4", "e4", "e5")         # not part of promotion
WIDE = ("i64", "u64", "f64")              # under x64 only
COMPLEX = ("c64", "c128")                 # the latter under x64 only
# JAX's Euclidean algorithm never ends if the minimum of a dtype is among the operands.
ENDLESS = re.compile(r"jnp\.(?:gcd|lcm)\(.*\bi\d+_odd")
# Nor do its float64 incomplete gamma functions and their derivatives, for some pairs of these.
ENDLESS_GAMMA = re.compile(r"special\.gammaincc?\(f64_odd.*f64_odd")
ODD_FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 300.0, 3e38, -2.5, 1e-3)


def _numbers(dtype: str) -> Any:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def _odd(dtype: str) -> Any:
    """Return numbers for which casts, overflow, division and shifts are defined but not obvious."""
    t = _numbers(dtype)
    if dtype == "bool":
        return np.array([True, False])
    if "complex" in dtype:  # tests/transforms/test_complex.py has infinities
        return np.array([0, 1, -1.5, 2j, -0.5j, 3 - 4j, -2 + 1e-3j, 0.3 + 20j, -7 - 7j], t)
    if "float" in dtype:
        with np.errstate(all="ignore"):
            return np.array(ODD_FLOATS, np.float64).astype(t)
    info = ml_dtypes.iinfo(t) if dtype.endswith("int4") else np.iinfo(t)
    least, most = int(info.min), int(info.max)
    found = dict.fromkeys([least, least + 1, -1, 0, 1, 2, 3, 7, most // 2 + 1, most - 1, most])
    return np.array([n for n in found if least <= n <= most]).astype(t)


def _filled(dtype: str, shape: tuple[int, ...]) -> Any:
    count = int(np.prod(shape))
    if dtype == "bool":
        return (np.arange(count) % 3 != 1).reshape(shape)
    if "complex" in dtype:
        return _filled("float64", shape) + 1j * _filled("float64", shape[::-1]).reshape(shape)
    if "float" in dtype:
        x = np.sin(np.arange(count) * 1.7 + 0.4) * 2.2 + 0.3
        return np.round(x * 8).reshape(shape).astype(_numbers(dtype)) / _numbers(dtype).type(8)
    low = 0 if dtype.startswith("u") else -3
    return ((np.arange(count) * 5 + 1) % 8 + low).reshape(shape).astype(_numbers(dtype))


def operands(jnp: Any, x64: bool) -> dict[str, Any]:
    """Return all operands by name."""
    found = {}
    for short, dtype in DTYPES.items():
        if x64 or short not in (*WIDE, "c128"):
            for name, shape in SHAPES.items():
                found[f"{short}_{name}"] = jnp.asarray(_filled(dtype, shape), dtype)
            found[f"{short}_odd"] = jnp.asarray(_odd(dtype), dtype)
    return found


def differentiable(expression: str) -> list[str]:
    """Return the operands of an expression whose gradients are compared."""
    names = dict.fromkeys(re.findall(r"\b(?:f32|f64|c64|c128)_\w+", expression))
    return [n for n in names if "none" not in n and "x0" not in n]


def _over(names: str, module: str, templates: Iterable[str], types: Iterable[str],
          shapes: Iterable[str]) -> list[str]:
    """Combine functions, types and shapes; ``{f}`` is the function, ``{t}_...`` operands."""
    return [template.format(f=f"{module}.{name}", t=t, s=s) for name in names.split()
            for template in templates for t in types for s in shapes]


_UNARY = """abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh
atan atanh bitwise_count bitwise_invert bitwise_not cbrt ceil conj conjugate cos cosh deg2rad
degrees exp exp2 expm1 fabs floor frexp i0 imag invert iscomplex isfinite isinf isnan isneginf
isposinf isreal log log10 log1p log2 logical_not modf nan_to_num negative positive rad2deg radians
real reciprocal rint round sign signbit sin sinc sinh spacing sqrt square tan tanh trunc"""
_LAX_UNARY = """abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e bitwise_not cbrt ceil clz
cos cosh digamma erf erf_inv erfc exp exp2 expm1 floor is_finite lgamma log log1p logistic neg
population_count reciprocal round rsqrt sign sin sinh sqrt square tan tanh stop_gradient"""
_NN = """celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log1mexp
log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid
squareplus swish tanh"""
_SPECIAL = """dawsn digamma entr erf erfc erfcx erfinv exp1 expi expit factorial fresnel gamma
gammaln gammasgn i0 i0e i1 i1e log_ndtr loggamma logit ndtr ndtri sici spence"""
_BINARY = """add arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
bitwise_xor copysign divide divmod equal float_power floor_divide fmax fmin fmod gcd greater
greater_equal heaviside hypot lcm ldexp left_shift less less_equal logaddexp logaddexp2 logical_and
logical_or logical_xor maximum minimum mod multiply nextafter not_equal pow power remainder
right_shift subtract true_divide"""
_LAX_BINARY = """add atan2 bitwise_and bitwise_or bitwise_xor div eq ge gt igamma igammac le lt max
min mul mulhi ne nextafter polygamma pow rem shift_left shift_right_arithmetic shift_right_logical
sub zeta"""
_SPECIAL_BINARY = """beta betaln boxcox boxcox1p gammainc gammaincc kl_div poch polygamma rel_entr
xlog1py xlogy zeta"""
_FOLDS = """all amax amin any argmax argmin average count_nonzero max mean median min nanargmax
nanargmin nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar prod ptp std sum var"""
_RUNNING = "cumprod cumsum nancumprod nancumsum cumulative_sum cumulative_prod"
_FIVE = ("0d", "none", "37", "2x3", "odd")
_MOST = ("0d", "3x0", "2x3", "3")

_PAIRS = ("{f}({t}_2x3, {t}_3)", "{f}({t}_2x1, {t}_3)", "{f}({t}_0d, {t}_37)",
          "{f}({t}_3x0, {t}_1)", "{f}({t}_odd[:, None], {t}_odd)")
_SAME = ("{f}({t}_0d, {t}_0d)", "{f}({t}_37, {t}_37[::-1])", "{f}({t}_none, {t}_none)",
         "{f}({t}_odd, {t}_odd[::-1])")
_WITH_NUMBERS = ("{f}({t}_odd, 2)", "{f}(3, {t}_odd)", "{f}({t}_3, 1.5)", "{f}(True, {t}_3)")

UNARY = [*_over(_UNARY, "jnp", ("{f}({t}_{s})",), (*PLAIN, *WIDE), _FIVE),
         *_over(_UNARY, "jnp", ("{f}({t}_odd)",), STORED, "1")]
LAX_UNARY = [*_over(_LAX_UNARY, "lax", ("{f}({t}_{s})",), (*PLAIN, *WIDE), _FIVE),
             *_over(_LAX_UNARY, "lax", ("{f}({t}_odd)",), STORED, "1")]
ACTIVATIONS = _over(_NN, "nn", ("{f}({t}_{s})",), (*FLOATS, "i32", "u8", "b", "f64", "i64"), _FIVE)
SPECIAL_UNARY = _over(_SPECIAL, "special", ("{f}({t}_{s})",), (*FLOATS, "i32", "f64"), _FIVE)
BINARY = [*_over(_BINARY, "jnp", (*_PAIRS, *_WITH_NUMBERS), (*PLAIN, *WIDE), "1"),
          *_over(_BINARY, "jnp", ("{f}({t}_odd[:, None], {t}_odd)",), STORED, "1")]
LAX_BINARY = _over(_LAX_BINARY, "lax", (*_SAME, *_WITH_NUMBERS), (*PLAIN, *WIDE), "1")
SPECIAL_BINARY = _over(_SPECIAL_BINARY, "special", (*_PAIRS, "{f}(abs({t}_37), 2)"),
                       (*FLOATS, "f64"), "1")
FOLDS = [*_over(_FOLDS, "jnp", ("{f}({t}_{s})", "{f}({t}_{s}, axis=0)",
                                "{f}({t}_{s}, axis=-1, keepdims=True)"), (*PLAIN, *WIDE),
                (*_MOST, "odd")),
         *_over("max min prod sum", "jnp", ("{f}({t}_2x3, initial=2, where={t}_3 > 1)",
                                            "{f}({t}_2x1x3, (0, 2), dtype='float32')"),
                (*PLAIN, *WIDE), "1"),
         *_over("mean std var", "jnp", ("{f}({t}_2x3, where={t}_3 > 0)",
                                        "{f}({t}_2x3, 0, 'float16')"), (*PLAIN, *WIDE), "1"),
         *_over("reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor",
                "lax", ("{f}({t}_2x3, (0,))", "{f}({t}_3x0, (1,))"), (*PLAIN, *WIDE), "1"),
         *_over("argmax argmin", "lax", ("{f}({t}_2x3, 1, 'int32')", "{f}({t}_odd, 0, 'uint8')"),
                (*PLAIN, *WIDE), "1"),
         *_over("logsumexp softmax log_softmax standardize logmeanexp", "nn",
                ("{f}({t}_{s}, axis=0)", "{f}({t}_{s})"), (*FLOATS, "i32", "f64"),
                (*_MOST, "odd"))]
RUNNING = [*_over(_RUNNING, "jnp", ("{f}({t}_{s})", "{f}({t}_{s}, axis=0)"), (*PLAIN, *WIDE),
                  (*_MOST, "odd")),
           *_over("cumsum cumprod cummax cummin cumlogsumexp", "lax",
                  ("{f}({t}_2x3, 1)", "{f}({t}_37, reverse=True)", "{f}({t}_3x0)", "{f}({t}_odd)"),
                  (*PLAIN, *WIDE), "1")]

_ALL = (*PLAIN, *STORED, *WIDE)
_MOVES = (
    "jnp.reshape({0}, -1)", "jnp.ravel({0})", "jnp.transpose({0})", "jnp.permute_dims({0}, (1, 0))",
    "jnp.moveaxis({0}, 0, -1)", "jnp.swapaxes({0}, 0, 1)", "jnp.squeeze({0})",
    "jnp.expand_dims({0}, 1)", "jnp.flip({0})", "jnp.roll({0}, 1)",
    "jnp.broadcast_to({0}, (2, 2, 3))",
    "jnp.concatenate([{0}, {0}])", "jnp.concat([{0}, {0}], axis=None)", "jnp.stack([{0}, {0}], 1)",
    "jnp.hstack([{0}, {0}])", "jnp.vstack([{0}, {0}])", "jnp.column_stack([{0}, {0}])",
    "jnp.dstack([{0}])", "jnp.tile({0}, 2)", "jnp.repeat({0}, 2, 0)", "jnp.pad({0}, 1)",
    "jnp.split({0}, 1)", "jnp.array_split({0}, 2)", "jnp.atleast_3d({0})", "jnp.tril({0})",
    "jnp.triu({0}, 1)", "jnp.diagonal({0})", "jnp.diag({0})", "jnp.trace({0})", "jnp.rot90({0})",
    "jnp.take({0}, 1)", "jnp.take({0}, np.array([0, 5, -1]), axis=0)", "{0}[0]", "{0}[..., ::-1]",
    "{0}[np.array([1, -1])]", "{0}.at[0].set(1)", "{0}.at[0].add(1)", "{0}.at[0].max(1)",
    "{0}.at[0].multiply(2)", "{0}.at[np.array([0, 0])].add(1)",
    "jnp.where({0}, {0}, {0})", "jnp.where({0} > 0, {0}, 2)", "jnp.clip({0}, 0, 2)",
    "jnp.copy({0})", "jnp.array({0})", "jnp.asarray({0}, 'float32')", "jnp.zeros_like({0})",
    "jnp.ones_like({0})", "jnp.full_like({0}, 3)", "jnp.empty_like({0}).shape", "jnp.ndim({0})",
    "jnp.size({0})", "jnp.shape({0})", "jnp.isrealobj({0})", "jnp.iscomplexobj({0})",
    "jnp.isscalar({0})", "jnp.iterable({0})", "jnp.broadcast_arrays({0}, {0})",
    "jnp.array_equal({0}, {0})", "jnp.allclose({0}, {0})", "jnp.unstack({0})",
    "jnp.resize({0}, (2, 2))", "jnp.delete({0}, 0)", "jnp.insert({0}, 0, 1)",
    "jnp.append({0}, {0})",
    "jnp.nonzero({0})", "jnp.flatnonzero({0})", "jnp.argwhere({0})", "jnp.extract({0} > 0, {0})",
    "jnp.isin({0}, {0}[:1])", "jnp.choose(np.array([0, 0]), [{0}])", "jnp.meshgrid({0}, {0})",
    "jnp.trim_zeros({0})", "jnp.matrix_transpose({0})", "jnp.block([{0}, {0}])",
    "lax.rev({0}, (0,))", "lax.squeeze({0}, ())", "lax.expand_dims({0}, (0,))",
    "lax.broadcast({0}, (2,))", "lax.broadcast_to_rank({0}, 4)", "lax.collapse({0}, 0)",
    "lax.reshape({0}, ({0}.size,))", "lax.slice_in_dim({0}, 0, 1)", "lax.index_in_dim({0}, 0)",
    "lax.dynamic_slice_in_dim({0}, 0, 1)", "lax.dynamic_index_in_dim({0}, -1)",
    "lax.dynamic_update_slice_in_dim({0}, {0}, 1, 0)",
    "lax.dynamic_update_index_in_dim({0}, {0}[0], 1, 0)", "lax.transpose({0}, (1, 0))",
    "lax.select({0} > 0, {0}, {0})", "lax.optimization_barrier({0})", "lax.tile({0}, (2,))",
    "lax.pad({0}, {0}.dtype.type(1), [(1, -1, 1)])", "lax.shape_as_value({0}.shape)",
    "lax.concatenate([{0}, {0}], 0)", "lax.broadcasted_iota({0}.dtype, (2, 3), 1)",
    "lax.full_like({0}, 1)", "lax.convert_element_type({0}, 'int16')",
    "lax.clamp({0}.dtype.type(0), {0}, {0}.dtype.type(2))", "lax.scatter_apply({0}, "
    "np.array([[0]]), lambda x: x, lax.ScatterDimensionNumbers((), (0,), (0,)))")
ARRANGED = [text.format(f"{t}_{s}") for text in _MOVES for t in _ALL for s in _MOST
            if t in ("i32", "f32", "u8") or s in ("2x3", "3")]
SORTED = _over("sort argsort unique lexsort", "jnp", ("{f}({t}_{s})",), (*PLAIN, *WIDE), _FIVE) + [
    text.format(t=t) for t in (*PLAIN, *WIDE) for text in (
        "lax.sort({t}_2x3, dimension=0)", "lax.sort_key_val({t}_37, {t}_37)",
        "lax.top_k({t}_37, 3)", "lax.approx_max_k({t}_37, 3)", "lax.approx_min_k({t}_37, 3)",
        "jnp.searchsorted(jnp.sort({t}_37), {t}_2x3)", "jnp.partition({t}_37, 5)[5]",
        "jnp.digitize({t}_3, jnp.sort({t}_37))", "jnp.bincount({t}_3, length=4)",
        "jnp.histogram({t}_37, 3)", "jnp.union1d({t}_3, {t}_37)", "jnp.setdiff1d({t}_37, {t}_3)",
        "jnp.intersect1d({t}_37, {t}_3)", "jnp.setxor1d({t}_37, {t}_3)",
        "jnp.quantile({t}_37, 0.3)",
        "jnp.percentile({t}_2x3, 40, axis=1)", "jnp.nanquantile({t}_37, 0.7)",
        "jnp.unique_counts({t}_37)", "jnp.nanmedian({t}_2x3, 0)", "jnp.cov({t}_2x3)",
        "jnp.corrcoef({t}_3, {t}_3 * 2)", "jnp.interp({t}_3, jnp.sort({t}_37), {t}_37)")]
_PRODUCTS = (
    "jnp.matmul({0}_2x3, {0}_3x3)", "jnp.matmul({0}_2x3, {0}_3)", "jnp.dot({0}_3, {0}_3)",
    "jnp.dot({0}_0d, {0}_3)", "jnp.vdot({0}_2x3, {0}_2x3)", "jnp.inner({0}_2x3, {0}_3x3)",
    "jnp.outer({0}_3, {0}_37)", "jnp.tensordot({0}_2x3, {0}_3x3, 1)", "jnp.kron({0}_2x3, {0}_3)",
    "jnp.einsum('ij,jk->ik', {0}_2x3, {0}_3x3)", "jnp.vecdot({0}_2x3, {0}_3)",
    "jnp.matvec({0}_2x3, {0}_3)", "jnp.vecmat({0}_3, {0}_3x3)", "jnp.cross({0}_3, {0}_2x3)",
    "jnp.convolve({0}_37, {0}_3)", "jnp.correlate({0}_37, {0}_3, 'same')",
    "jnp.matmul({0}_3x0.T, {0}_3)", "jnp.matmul({0}_3x0, {0}_3x0.T)", "lax.dot({0}_2x3, {0}_3x3)",
    "lax.batch_matmul({0}_2x1x3, jnp.moveaxis({0}_2x1x3, 1, 2))",
    "lax.dot({0}_2x3, {0}_3x3, preferred_element_type='float32')", "jnp.polyval({0}_3, {0}_2x3)",
    "jnp.polyadd({0}_3, {0}_37)", "jnp.polymul({0}_3, {0}_3)", "jnp.vander({0}_3)",
    "jnp.diff({0}_37)", "jnp.ediff1d({0}_3)", "jnp.gradient({0}_37)", "jnp.trapezoid({0}_37)",
    "jnp.linalg.norm({0}_2x3)", "jnp.linalg.norm({0}_3, 1)", "jnp.linalg.norm({0}_2x3, jnp.inf)",
    "lax.conv({0}_2x1x3, {0}_2x1x3, (1,), 'SAME')", "lax.integer_pow({0}_odd, 3)",
    "lax.integer_pow({0}_3, -2)", "lax.conv_with_general_padding({0}_2x1x3, {0}_2x1x3, (1,), "
    "[(1, 1)], None, None)", "nn.one_hot({0}_3, 4)", "nn.glu(jnp.concatenate([{0}_3, {0}_1]))",
    "jnp.unwrap({0}_37)", "jnp.average({0}_2x3, weights={0}_3, axis=1)",
    "lax.reduce_precision({0}_odd, 5, 4)", "nn.dot_product_attention({0}_2x1x3[None], "
    "{0}_2x1x3[None], {0}_2x1x3[None])", "top.image.resize({0}_2x3, (4, 5), 'linear')",
    "top.ops.segment_sum({0}_3, np.array([0, 1, 0]), 2)",
    "top.ops.segment_max({0}_3, np.array([0, 1, 0]), 3)")
PRODUCTS = [text.format(t) for text in _PRODUCTS for t in (*PLAIN, *WIDE)]
CASTS = [f"{a}_odd.astype('{DTYPES[b]}')" for a in DTYPES for b in DTYPES
         if b not in WIDE or a in (*WIDE, "f32", "i32", "u8")] + [
    f"jnp.astype({a}_0d, {b})" for a in DTYPES for b in ("int", "float", "bool")] + [
    f"{a}_odd.view('{DTYPES[b]}')" for a, b in itertools.permutations(DTYPES, 2)
    if re.sub(r"\D", "", a) == re.sub(r"\D", "", b)]
OPERATORS = [text.format(t) for t in (*PLAIN, *WIDE) for text in (
    "-{0}_odd", "~{0}_odd", "abs({0}_odd)", "+{0}_odd", "{0}_odd ** 2", "2 ** {0}_3",
    "{0}_3 ** 0.5",
    "{0}_odd // 0", "{0}_odd % 0", "1 // {0}_odd", "divmod({0}_odd, 3)", "{0}_odd / 0",
    "{0}_odd << 3", "{0}_odd >> 40", "{0}_odd @ {0}_odd", "{0}_odd & 5", "{0}_odd | True",
    "{0}_odd ^ 1", "{0}_odd == 1.5", "{0}_odd != {0}_odd", "{0}_odd < 2", "round({0}_3, 1)",
    "{0}_3.sum()", "{0}_3.mean()", "{0}_3.dot({0}_3)", "{0}_3.clip(0, 1)", "{0}_3.item(0)",
    "{0}_3.tolist()", "{0}_3.argsort()", "{0}_3.nbytes", "{0}_3.itemsize", "{0}_2x3.T",
    "{0}_2x3.mT", "{0}_3.real", "{0}_3.imag", "{0}_3.conj()", "{0}_3.round()", "{0}_3.ptp()",
    "{0}_3.sort()", "{0}_3.any()", "{0}_3.var()", "{0}_3.cumsum()", "{0}_3.repeat(2)",
    "{0}_3.nonzero()", "{0}_3.searchsorted(1)", "{0}_3.take(np.array([0, 9]))")] + [
    f"{x}_3 {op} {y}_3" for op in ("+", "/", "//", "**", "<") for x, y in
    itertools.product((*PLAIN, *WIDE), repeat=2) if x != y]
_MADE = ("jnp.zeros((2,), {0})", "jnp.ones((), {0})", "jnp.full((2,), 3, {0})",
         "jnp.full((2,), 2.75, {0})", "jnp.arange(5, dtype={0})", "jnp.arange(1, 6, 2, dtype={0})",
         "jnp.linspace(0, 5, 4, dtype={0})", "jnp.logspace(0, 1, 3, dtype={0})",
         "jnp.geomspace(1, 4, 3, dtype={0})", "jnp.eye(2, 3, dtype={0})", "jnp.identity(2, {0})",
         "jnp.tri(3, dtype={0})", "jnp.array([1, 2], {0})", "jnp.array(2.5, {0})",
         "jnp.array([[True], [False]], {0})", "jnp.asarray(300, {0})", "jnp.asarray(-1.0, {0})",
         "lax.full((2,), 3, {0})", "lax.iota({0}, 4)", "jnp.indices((2, 2), {0})",
         "jnp.fromfunction(lambda i: i, (3,), dtype={0})", "jnp.finfo({0}).eps",
         "jnp.finfo({0}).max", "jnp.iinfo({0}).max", "jnp.iinfo({0}).min",
         "jnp.dtype({0}).itemsize",
         "nn.one_hot(np.array([1]), 2, dtype={0})", "random.uniform(k, (3,), {0})",
         "random.randint(k, (3,), 0, 5, {0})", "random.normal(k, (3,), {0})",
         "random.bits(k, (3,), {0})", "random.rademacher(k, (3,), {0})",
         "random.exponential(k, (3,), {0})", "random.gumbel(k, (3,), {0})",
         "random.laplace(k, (3,), {0})", "random.logistic(k, (3,), {0})",
         "random.cauchy(k, (3,), {0})", "random.truncated_normal(k, -1, 1, (3,), {0})",
         "random.permutation(k, jnp.arange(5, dtype={0}))", "random.gamma(k, 2.0, (3,), {0})",
         "random.beta(k, 2.0, 1.0, (3,), {0})", "random.poisson(k, 3.0, (3,), {0})",
         "random.triangular(k, 0.0, 0.5, 1.0, (3,), {0})", "random.rayleigh(k, 1.0, (3,), {0})",
         "random.ball(k, 2, 2.0, (2,), {0})", "random.dirichlet(k, jnp.ones(2), (2,), {0})",
         "jnp.issubdtype({0}, jnp.floating)", "jnp.issubdtype({0}, jnp.integer)",
         "jnp.isdtype({0}, 'numeric')", "jnp.promote_types({0}, 'int8')",
         "jnp.result_type({0}, 1)", "jnp.result_type({0}, 1.5)", "jnp.can_cast({0}, 'float32')")
MADE = [text.format(repr(t)) for text in _MADE for t in DTYPES.values()] + [
    *[f"jnp.{w}({n})" for w in ("bartlett", "blackman", "hamming", "hanning") for n in (0, 1, 7)],
    "jnp.kaiser(7, 2.5)", "jnp.array_repr(f32_2x3)", "jnp.array_str(f32_2x3)",
    "jnp.vectorize(lambda x, y: x + y)(f32_2x1, f32_3)",
    "jnp.vectorize(jnp.dot, signature='(n),(n)->()')(f32_2x3, f32_3)",
    "jnp.frombuffer(b'abcdefgh', 'int32')", "jnp.fromstring('1 2 3', 'int32', sep=' ')",
    "jnp.fromiter([1, 2], 'float32')", "jnp.broadcast_shapes((2, 1), (3,))",
    "lax.broadcast_shapes((2, 1), (3,))", "jnp.einsum_path('ij,jk->ik', f32_2x3, f32_3x3)[0]"]
ON_COMPLEX = [
    *_over(_UNARY, "jnp", ("{f}({t}_{s})",), COMPLEX, ("0d", "2x3", "odd")),
    *_over(_LAX_UNARY, "lax", ("{f}({t}_odd)",), COMPLEX, "1"),
    *_over("sigmoid silu swish tanh softplus", "nn", ("{f}({t}_37)",), COMPLEX, "1"),
    *_over(_BINARY, "jnp", (*_PAIRS, *_WITH_NUMBERS, "{f}({t}_odd, 0.5 - 2j)", "{f}(2j, {t}_3)",
                            "{f}(f32_3, {t}_3)", "{f}({t}_2x3, i32_3)", "{f}(1j, f32_3)"),
           COMPLEX, "1"),
    *_over(_LAX_BINARY, "lax", _SAME, COMPLEX, "1"),
    *_over(_FOLDS, "jnp", ("{f}({t}_{s})", "{f}({t}_{s}, axis=0)",
                           "{f}({t}_{s}, axis=-1, keepdims=True)"), COMPLEX, ("3x0", "2x3")),
    *_over("max min prod sum", "jnp", ("{f}({t}_2x3, initial=2j, where=f32_3 > 1)",), COMPLEX, "1"),
    *_over("mean std var", "jnp", ("{f}({t}_2x3, where=f32_3 > 0)",), COMPLEX, "1"),
    *_over(_RUNNING, "jnp", ("{f}({t}_2x3)", "{f}({t}_2x3, axis=0)"), COMPLEX, "1"),
    *_over("cumsum cumprod", "lax", ("{f}({t}_2x3, 1)", "{f}({t}_37, reverse=True)"), COMPLEX, "1"),
    *_over("sort argsort unique lexsort sort_complex", "jnp", ("{f}({t}_37)", "{f}({t}_2x3)"),
           COMPLEX, "1"),
    *[text.format(f"{t}_2x3") for text in _MOVES for t in COMPLEX],
    *[text.format(t) for text in _PRODUCTS for t in COMPLEX],
    *[text.format(t) for t in COMPLEX for text in (
        "-{0}_odd", "abs({0}_odd)", "+{0}_odd", "{0}_odd ** 2", "{0}_odd ** -1", "2 ** {0}_3",
        "{0}_3 ** 0.5", "{0}_odd * 2j", "1 - {0}_odd", "{0}_odd == 1.5", "{0}_odd != {0}_odd",
        "{0}_3.sum()", "{0}_3.mean()", "{0}_3.dot({0}_3)", "{0}_3.item(0)", "{0}_3.tolist()",
        "{0}_2x3.T", "{0}_3.real", "{0}_3.imag", "{0}_3.conj()", "{0}_3.conjugate()",
        "{0}_3.var()", "{0}_3.any()", "{0}_3.nbytes", "complex({0}_0d)", "{0}_2x3 @ f32_3x3",
        "f32_2x3 @ {0}_3x3", "jnp.einsum('ij,j->i', {0}_2x3, f32_3)", "jnp.fill_diagonal({0}_3x3, "
        "1j, inplace=False)", "lax.conj({0}_3)", "lax.real({0}_3)", "lax.imag({0}_3)",
        "jnp.iscomplexobj({0}_3)", "{0}_2x3.at[0].set(2j)", "{0}_2x3.at[:, 1].add(1j)",
        "lax.map(lambda z: z * 1j, {0}_3)", "lax.fori_loop(0, 3, lambda i, z: z * z + 1j, {0}_3)",
        "vmap(lambda z: z @ z)({0}_2x3)", "jnp.array([1j, 2, 2.5])", "jnp.asarray(1j)",
        "jnp.asarray([1, 2], {0}_3.dtype)", "jnp.linspace(0, 1j, 4)", "jnp.full((2,), 1j)",
        "random.normal(k, (3,), {0}_3.dtype)")],
    "lax.complex(f32_3, f32_3)", "lax.complex(f64_3, f64_3)", "lax.complex(1.0, f32_2x3)",
    *[f"jnp.issubdtype('complex64', jnp.{kind})" for kind in (
        "complexfloating", "inexact", "floating", "number")],
    *[f"jnp.promote_types('complex64', '{t}')" for t in DTYPES.values()],
    *[f"jnp.result_type({t}_3, 1j)" for t in DTYPES if t not in ("e4", "e5", "i4", "u4")]]
FAMILIES = {
    "wide unary": UNARY, "wide lax unary": LAX_UNARY, "wide activations": ACTIVATIONS,
    "wide special": SPECIAL_UNARY, "wide binary": BINARY, "wide lax binary": LAX_BINARY,
    "wide special binary": SPECIAL_BINARY, "wide folds": FOLDS, "wide running": RUNNING,
    "wide arranged": ARRANGED, "wide sorted": SORTED, "wide products": PRODUCTS,
    "wide casts": CASTS, "wide operators": OPERATORS, "wide made": MADE,
    "wide complex": ON_COMPLEX}


def families(x64: bool) -> dict[str, list[str]]:
    """Return the families of a mode; without x64 those that name no 64-bit operand."""
    wide = re.compile(r"\b[iuf]64_|\bc128_|'u?int64'|'float64'|'complex128'")
    return {name: [e for e in dict.fromkeys(calls) if (x64 or not wide.search(e))
                   and not ENDLESS.match(e)]
            for name, calls in FAMILIES.items()}
