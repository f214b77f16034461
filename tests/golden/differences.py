"""Intended differences of fnx from JAX, which comparisons ignore, each with its reason.

docs/differences.md has the same for readers. An entry is (pattern in a call, pattern in the
difference, reason); both patterns are regular expressions, and an empty one matches all.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_ROWS: tuple[tuple[str, str, str], ...] = (
    # ---- accepted where JAX rejects
    ("", "JAX refuses: NotImplementedError|Invalid integer data type|KeyError 8|failed to legalize",
     "dtypes of 8 and 4 bits are taken where JAX has not built them"),
    (r"round\(b_|b_3\.round|round\(b_3", "JAX refuses", "bools are whole numbers"),
    (r"vander\(b_", "JAX refuses", "bools are whole numbers"),
    (r"interp\(bf16", "JAX refuses", "as of all other floats"),
    (r"meshgrid\(\w+_0d", "JAX refuses", "numbers are taken, as by NumPy"),
    (r"one_hot\((?:b?f\d|e\d|c\d)", "refuses", "labels are whole numbers"),
    (r"array_(?:repr|str)\(", "ArrayImpl", "the name of the type"),
    (r"lax\.tile", "reps length", "as by jnp.tile"),
    (r"lax\.reciprocal|lax\.pow|polygamma", "cannot be raised|must have an inexact|integer type",
     "promoted as by fnx.numpy"),
    (r"jnp\.(?:gcd|lcm|fmod)\((?:.*, )?b_", "", "bools are whole numbers"),
    (r"jnp\.ediff1d\(b\)", "", "a difference of bools is whether they differ"),
    (r"special\.(?:ndtri?|log_ndtr|spence)", "JAX refuses", "whole numbers are taken"),
    (r"delete\(m, \[0, 2\], 1\)|insert\(v, \[1, 3\]", "", "lists of places are taken"),
    (r"wrap=True|jnp\.ix_\(b, i\)", "", "built here"),
    (r"its\(e\.astype\('uint8'\), -1", "", "arrays without elements are taken"),
    (r"log1mexp\(b", "JAX refuses", "bools are numbers"),
    (r"index_take\(m", "", "axes in any order"),
    (r"optimize=\[\(0, 1, 2", "", "steps of more than two terms are taken"),
    ("", r"requires ndarray or scalar arguments, got|'list' object|Cannot determine dtype of \[|"
     "not inexact", "lists and whole numbers are taken"),
    (r"sph_harm_y\(2|Rotation\.identity\(2|rfft\(np\.arange\(6", "JAX refuses",
     "numbers, several identities and narrow floats are taken"),
    (r"fftfreq\(0\)", "refuses", "as NumPy"),
    (r"lstsq\(\w+_broad|funm\(.*disp=False", "1 of 1 values", "an estimate of rounding errors"),
    (r"perturb_singular=True", "refuses", "see docs/differences.md"),
    (r"jsp\.special\.(?:gammainc\(2|comb\(5)", "weak", "of numbers without an array"),
    # ---- integers
    (r"nn\.(?:log_sigmoid|log1mexp|squareplus|standardize|softmax|log_softmax|logsumexp|soft_sign)"
     r"\([iu]\d+_", "values", "whole numbers are floats before the formula, and do not overflow"),
    (r"nn\.\w+\(b_", "JAX", "bools are floats before the formula"),
    (r"sparse_(?:plus|sigmoid)\([ib]\b", "weak", "of numbers without an array"),
    (r"pow(?:er)?\(|\*\* [iub]\w*\d_|\d \*\* [iu]", r"^\[", "negative and large exponents"),
    (r"pow(?:er)?\(b_odd, 2\)|b_odd \*\* 2", "int32", "of bools and a number the default int"),
    (r"(?:right_shift|>>).*u4|right_shift\(u4|shift_right_arithmetic.*u\d", "",
     "unsigned numbers have no sign: JAX shifts ones in"),
    (r"cumulative_prod\([iu]\d+_", "int(?:32|64)", "the default int, as cumulative_sum"),
    (r"divide\(b_|b_odd / 0", "values", "0 / 0 is NaN"),
    (r"hard_tanh\(u", "", "of unsigned numbers -1 is no bound: JAX makes 255 of it"),
    (r"(?:randint|bits)\(.*int4", "refuses", "of 8 bits or more"),
    # ---- degenerate cases
    (r"jnp\.cov\(.*ddof", r"JAX \[-|JAX \[0|\[nan", "NaN or infinite where ddof is more than n"),
    (r"unwrap\(", "weak False", "not weak: of an array"),
    (r"trapezoid\(|histogram(?:_bin_edges)?\(|poly(?:add|sub|mul)\(", "JAX refuses",
     "arrays without elements, and numbers, are taken"),
    (r"arange\(np\.uint\d+\(9\)", "", "no fewer than 0 numbers: JAX subtracts as uint16"),
    (r"flatnonzero\(.*fill_value|take\(.*\(2, 0\)", "", "of no elements as of others"),
    (r"pad\(.*'mean'", "refuses", "nothing has no mean, as NumPy"),
    (r"pad\(.*int\).*'linear_ramp'", "", "as NumPy: JAX rounds an exact whole number down"),
    # ---- values
    (r"exp2\(i8_odd", "values", "JAX's is 3e-6 off at 2**126"),
    (r"modf\(", "", "as NumPy: the fraction of an infinity is 0, that of -0.0 is -0.0"),
    (r"special\.betaln\(f32_odd", r"JAX \[-87\.596", "JAX's is 1 off at (1, 3e38)"),
    (r"population_count\(i4", "", "of 4 bits: JAX counts more"),
    (r"(?:gammaln|lgamma)\(", r"values: \[(?:0\.\s*)+\]", "lgamma(1) and (2) are 0"),
    (r"(?:gammaln|lgamma)\(f32_0d", "values", "at 1.125, near a zero, JAX's cancels"),
    (r"divide\(b?f\d+_odd|f\d+_odd /", "JAX.*nan", "1 / 3e38 is subnormal, and 0 in JAX"),
    (r"special\.(?:exp1|sici)\((?:\w+_)?odd\)|special\.expi", "", "limits, as SciPy"),
    (r"special\.exp1\(f16", "", "JAX's series overflows in float16"),
    (r"special\.loggamma", "", "NaN at -0.0 too"),
    (r"special\.gammainc\(0", "", "the limit at a = 0, as SciPy"),
    (r"gammaincc?\(\w+_odd", "JAX.*nan", "limits, as SciPy"),
    (r"special\.(?:poch|boxcox|rel_entr|kl_div|spence|beta(?:ln)?)", "JAX.*nan",
     "finite, or limits"),
    (r"special\.(?:beta\(b?f16_odd|kl_div\(.*f16)", "values", "rounded once"),
    (r"dot_product_attention\((?:f64|c128)", "values", "of float64: JAX's softmax is of float32"),
    (r"asarray\(300, 'u?int4'", "OverflowedError", "numbers that don't fit are refused"),
    (r"zeta\(|polygamma\(", r"values: .*(?:nan|inf)", "at whole q <= 0 inf, as SciPy"),
    (r"norm\.ppf\(|owens_t\(", r"float(?:16|32)\[.*JAX float", "of the dtype of its arguments"),
    (r"bessel_jn\((?:f, v=3|f\d+_vector)", "", "a number where JAX's recurrence overflows"),
    (r"nn\.standardize\(", "values", "the variance is of what the mean leaves: also far from 0"),
    (r"sinc\((?:b?f16|e[45])_", "values", "rounded once"),
    (r"size=2, fill_value=3\)", "", "where each element is, of as many as there are"),
    (r"approx_(?:max|min)_k", "", "of equal numbers the first ones"),
    (r"random\.\w+\(.*float8", "values", "made of float32, and rounded once"),
    (r"(?:argmax|argmin)\(c", "refuses", "complex numbers are ordered, as by max and sort"),
    (r"lax\.dot\(c.*preferred_element_type", "", "a real product of complex numbers is refused"),
    (r"(?:arctan2|atan2)\(c", r"values: \[-?3\.14", "on the branch cut"),
    (r"lax\.clamp\(c", "values", "the minimum of a maximum, by order"),
    # ---- derivatives
    (r"^grad\(.*CSC\.fromdense", "values", "JAX's is transposed"),
    (r"^grad\(.*\bCOO\.fromdense\(\w+_few, nse=6", "values", "JAX's padding is element 0, 0"),
    (r"^grad\(.*(?:assume_a='pos'|multivariate_normal\.logpdf)", "values",
     "it goes to the triangle that is read; JAX's complex one is of another matrix"),
    (r"^grad\(.*(?:\bsign\(c|arc?cosh\(c|acosh\(c)", "values",
     "that of z / |z|; JAX's acosh has the wrong sign left of 0"),
    (r"^grad\(.*(?:arctan2|atan2)\(c", "values", "of a sum of squares that is 0"),
    (r"^grad\(.*(?:\babs\(|absolute\(|copysign\(|fabs\(|laplace\.\w*pdf\(wide / 3)", "values",
     "the slope of abs at 0 is 0"),
    (r"^grad\(lambda wide: probe\(stats\.uniform\.cdf", "", "at its corner the slope is 0"),
    (r"^grad\(.*(?:'float(?:16|32)'\)|preferred_element_type)", "values",
     "sums are rounded elsewhere"),
    (r"^grad\(.*gammaincc?\(f\d+_2x3", "values", "elements without a value do not count"),
    (r"^grad\(.*special\.fresnel\(f\d+_odd", "values", "far out they are constant"),
    (r"^grad\(.*special\.spence", "JAX.*nan", "above 1, too, it has a slope"),
    (r"^grad\(.*jnp\.sinc", "1 of 11 values", "JAX's cancels near 0"),
    (r"^grad\(.*ldexp\(", "values", "at 0 and infinities, too, it is 2**k"),
    (r"^grad\(.*special\.i0\(\w+_odd", "values", "at 0 the slope is 0: JAX's is 1"),
    (r"^grad\(.*lax\.reduce_precision", "values", "its derivative is 1"),
    (r"^grad\(.*lax\.clamp", "values", "at a bound the slope is shared, as of clip"),
    (r"^grad\(.*(?:unique|union1d|intersect1d|setdiff1d|setxor1d)", r"JAX \[0\.",
     "derivatives go to the elements that were taken"),
    (r"^grad\(.*(?:divmod|remainder|floor_divide|\bf?mod\()", "values",
     "as many times the divisor as the value has"),
)


def on_purpose(call: str, difference: str = "") -> str:
    """Return the reason for a difference; without a difference, whether any entry matches the
    call."""
    return next((why for what, how, why in _ROWS if re.search(what, call) and (
        what if not difference else re.search(how, difference))), "")


# JAX's errors where a function of lax takes fewer dtypes and shapes than fnx's: no difference.
STRICTER = ("does not accept dtype", "requires arguments to have the same dtypes",
            "must have the same shape", "requires arguments to have equal",
            "arguments must have the same dtype", "incompatible shapes for broadcasting")
# The smallest relative tolerance for floats of a dtype.
LEAST: dict[str, float] = {
    "float32": 0.0, "float64": 0.0, "float": 0.0, "complex64": 0.0, "complex128": 0.0,
    "complex": 0.0, "float16": 4e-3, "bfloat16": 3e-2,
    "float8_e4m3fn": 0.13, "float8_e5m2": 0.26}


def probe(top: Any, jnp: Any, result: Any) -> Any:
    """Reduce all floats of a result to one number, each with a weight of its own."""
    total = 0.0
    for x in top.tree.leaves(result):
        if jnp.issubdtype(jnp.result_type(x), jnp.complexfloating):
            total += probe(top, jnp, (x.real, x.imag))
        elif jnp.issubdtype(jnp.result_type(x), jnp.floating):
            weights = np.cos(np.arange(np.size(x)) * 1.3 + 0.5).reshape(np.shape(x))
            total += (x * jnp.asarray(weights, jnp.result_type(x))).sum()
    return total


def leaves(expression: str, seen: dict[str, Any], tree_leaves: Any) -> list[Any]:
    """Return the arrays and other leaves of the result of an expression."""
    found: list[Any] = tree_leaves(eval(expression, dict(seen)),
                                   is_leaf=lambda x: hasattr(x, "__array__"))
    return found


def described(found: list[Any]) -> list[Any]:
    """Return (dtype, weak, shape, values) of each array."""
    out = []
    for x in found:
        x = x.item() if isinstance(x, np.generic) else x  # elements of shapes
        values = np.asarray(str(x) if isinstance(x, type | np.dtype) else x)
        # The class of a dtype has other names in other releases of NumPy and ml_dtypes.
        kind = "dtype" if isinstance(x, np.dtype) else type(x).__name__
        out.append((str(getattr(x, "dtype", kind)),
                    bool(getattr(x, "weak_type", False)), values.shape, values))
    return out


def answer(expression: str, seen: dict[str, Any], tree_leaves: Any) -> list[Any]:
    """Describe each array of the result; ``tree_leaves`` is of a package's pytrees."""
    return described(leaves(expression, seen, tree_leaves))


def difference(got: Any, want: Any, rtol: float, weak: bool = True, least: float = 1e-30) -> str:
    """Return how two answers differ; empty if they do not.

    ``least``: a lower bound of the magnitude of their terms, whose rounding errors may be all that
    is left.
    """
    if len(got) != len(want):
        return f"{len(got)} arrays, JAX {len(want)}"
    for (t, w, shape, x), (t2, w2, shape2, y) in zip(got, want):
        if (t, shape) != (t2, shape2):
            return f"{t}{list(shape)}, JAX {t2}{list(shape2)}"
        if weak and w != w2 and t != "bool":
            return f"weak {w}, JAX {w2}"
        if t not in LEAST:
            if not np.array_equal(x, y):
                return f"{x.ravel()[:9]}, JAX {y.ravel()[:9]}"
            continue
        wide = np.complex128 if "complex" in t else np.float64
        x, y = np.asarray(x, wide), np.asarray(y, wide)
        near = max(rtol * (1e-8 if t in ("float64", "float", "complex128", "complex") else 1),
                   LEAST[t])
        bound = near * max(least, float(np.abs(y[np.isfinite(y)]).max(initial=0))) / 10
        differs = ~np.isclose(x, y, rtol=near, atol=bound, equal_nan=True)
        if differs.any():
            return f"{differs.sum()} of {x.size} values: {x[differs][:4]}, JAX {y[differs][:4]}"
    return ""
