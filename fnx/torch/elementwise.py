"""Elementwise ops of ATen."""

from __future__ import annotations

from typing import Any

import fnx.numpy as jnp
from fnx import lax, nn
from fnx.core.array.array import Array
from fnx.scipy import special
from fnx.torch.entry import (
    PROMOTION,
    Function,
    OpEntry,
    Table,
    UnsupportedOpError,
    entries,
    pointwise,
)


def _divide(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return jnp.true_divide(a, b)
    if rounding_mode == "floor":
        return jnp.floor_divide(a, b)
    quotient = lax.div(*jnp.broadcast_arrays(a, jnp.asarray(b, a.dtype)))
    return quotient if jnp.issubdtype(quotient.dtype, jnp.integer) else jnp.trunc(quotient)


def _division_kind(node: Any) -> Any:
    """The quotient of integers is a float, unless it is rounded."""
    return PROMOTION.DEFAULT if node.kwargs.get("rounding_mode") else PROMOTION.INT_TO_FLOAT


def _clamp(x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = min if low is None else low, max if high is None else high
    x = x if low is None else jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


def _elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    negative = alpha * jnp.expm1(jnp.minimum(x, 0) * input_scale)
    return scale * jnp.where(x > 0, x, negative)


def _gelu(x: Array, *, approximate: str = "none") -> Any:
    return nn.gelu(x, approximate=approximate == "tanh")


def _pow(a: Any, b: Any) -> Any:
    if isinstance(b, int | float) and b == 0.5:
        return jnp.sqrt(a)
    if isinstance(b, float) and b.is_integer() and abs(b) < 64:
        return lax.integer_pow(a, int(b))
    return jnp.power(a, b)


def _round(x: Any, *, decimals: int = 0) -> Any:
    if decimals == 0 or jnp.issubdtype(x.dtype, jnp.integer):
        if decimals < 0:
            raise UnsupportedOpError("round of integers to tens is not supported")
        return jnp.round(x) if not jnp.issubdtype(x.dtype, jnp.integer) else x
    scale = 10.0 ** abs(decimals)
    return jnp.round(x * scale) / scale if decimals > 0 else jnp.round(x / scale) * scale


def _sign(x: Any) -> Any:
    if x.dtype.name == "bool":
        return x
    return jnp.where(jnp.isnan(x), 0, jnp.sign(x)) if jnp.issubdtype(x.dtype, jnp.floating) \
        else jnp.sign(x)


def _ignoring_bool(f: Any) -> Any:
    """Rounding functions leave integers as they are."""
    return lambda x: f(x) if jnp.issubdtype(x.dtype, jnp.floating) else x


def _shift(x: Any, y: Any, left: bool) -> Any:
    return jnp.left_shift(x, y) if left else jnp.right_shift(x, y)


DEFAULT: dict[str, Function] = {
    "add": lambda a, b, *, alpha=1: a + (b if alpha == 1 else alpha * b),
    "sub": lambda a, b, *, alpha=1: a - (b if alpha == 1 else alpha * b),
    "rsub": lambda a, b, alpha=1: b - (a if alpha == 1 else alpha * a),
    "mul": lambda a, b: a * b,
    "neg": lambda x: -x,
    "sign": _sign,
    "sgn": lambda x: _sign(x) if not jnp.iscomplexobj(x) else jnp.sign(x),
    "floor": _ignoring_bool(jnp.floor),
    "ceil": _ignoring_bool(jnp.ceil),
    "trunc": _ignoring_bool(jnp.trunc),
    "round": _round,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "fmax": jnp.fmax,
    "fmin": jnp.fmin,
    "fmod": lambda a, b: jnp.fmod(a, b),
    "remainder": lambda a, b: jnp.remainder(a, b),
    "floor_divide": lambda a, b: jnp.floor_divide(a, b),
    "relu": nn.relu,
    "leaky_relu": lambda x, slope=0.01: jnp.where(x > 0, x, x * slope),
    "elu": _elu,
    "gelu": _gelu,
    "silu": nn.silu,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "bitwise_not": jnp.bitwise_not,
    "bitwise_left_shift": lambda a, b: _shift(a, b, True),
    "bitwise_right_shift": lambda a, b: _shift(a, b, False),
    "__lshift__": lambda a, b: _shift(a, b, True),
    "__rshift__": lambda a, b: _shift(a, b, False),
    "pow": _pow,
    "hypot": jnp.hypot,
    "copysign": jnp.copysign,
    "nextafter": jnp.nextafter,
    "conj_physical": jnp.conj,
    "gcd": jnp.gcd,
    "logaddexp": jnp.logaddexp,
    "logaddexp2": jnp.logaddexp2,
}

FLOAT: dict[str, Function] = {
    "exp": jnp.exp, "exp2": jnp.exp2, "expm1": jnp.expm1, "log": jnp.log, "log1p": jnp.log1p,
    "log2": jnp.log2, "log10": jnp.log10, "sqrt": jnp.sqrt, "rsqrt": lax.rsqrt,
    "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan, "asin": jnp.arcsin, "acos": jnp.arccos,
    "atan": jnp.arctan, "sinh": jnp.sinh, "cosh": jnp.cosh, "tanh": jnp.tanh,
    "asinh": jnp.arcsinh, "acosh": jnp.arccosh, "atanh": jnp.arctanh, "atan2": jnp.arctan2,
    "sigmoid": nn.sigmoid, "erf": lax.erf, "erfc": lax.erfc, "erfinv": lax.erf_inv,
    "lgamma": special.gammaln, "digamma": special.digamma, "reciprocal": lambda x: 1 / x,
    "sinc": jnp.sinc,
    "i0": jnp.i0, "special_erfcx": lambda x: jnp.exp(x * x) * lax.erfc(x),
    "igamma": special.gammainc, "igammac": special.gammaincc,
}

BOOL: dict[str, Function] = {
    "eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal,
    "gt": jnp.greater, "ge": jnp.greater_equal,
    "logical_and": jnp.logical_and, "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor, "logical_not": jnp.logical_not,
    "isinf": jnp.isinf, "isnan": jnp.isnan, "isfinite": jnp.isfinite, "signbit": jnp.signbit,
}

TABLE: Table = {
    **pointwise(PROMOTION.DEFAULT, DEFAULT),
    **pointwise(PROMOTION.INT_TO_FLOAT, FLOAT),
    **pointwise(PROMOTION.ALWAYS_BOOL, BOOL),
    **pointwise(PROMOTION.COMPLEX_TO_FLOAT, {"abs": jnp.abs}),
    **pointwise(PROMOTION.DEFAULT, {
        "clamp": _clamp,
        "clamp_min": lambda x, low: jnp.maximum(x, low),
        "clamp_max": lambda x, high: jnp.minimum(x, high),
        "hardtanh": lambda x, low=-1, high=1: _clamp(x, low, high),
    }, (0, 1, 2)),
    **pointwise(PROMOTION.DEFAULT, {"fma": lambda a, b, c: a * b + c}, (0, 1, 2)),
    "where": OpEntry(jnp.where, PROMOTION.DEFAULT, (1, 2)),
    "div": OpEntry(_divide, _division_kind),
    **entries({
        "real": jnp.real, "imag": jnp.imag, "_conj": jnp.conj, "angle": jnp.angle,
        "complex": lax.complex, "polar": lambda r, a: lax.complex(r * jnp.cos(a), r * jnp.sin(a)),
    }),
}
