"""The kinds of operands and the functions whose promotion is compared with JAX's.

Used by scripts/record_jax_promotion.py and tests/public/test_promotion.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

# bool, int32, uint32 and float32 arrays; weak arrays; Python numbers.
KINDS = ("b", "i", "u", "f", "weak_i", "weak_f", "True", "2", "-1", "2.5")

_UNARY = """abs absolute bitwise_not ceil cos cosh exp exp2 expm1 fabs floor invert isfinite isinf
isnan log log10 log1p log2 logical_not nan_to_num negative positive reciprocal rint round sign sin
sinh sqrt square tan tanh trunc sum prod max mean all cumsum argmax var"""
_BINARY = """add subtract multiply divide floor_divide remainder mod fmod power float_power maximum
minimum logaddexp logaddexp2 hypot less less_equal greater greater_equal equal not_equal
bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or logical_xor"""
_LAX_UNARY = """abs bitwise_not ceil cos erf erf_inv erfc exp floor is_finite log logistic neg
reciprocal round rsqrt sign sin sqrt square tanh"""
_LAX_BINARY = """add sub mul div rem pow max min eq ne lt le gt ge bitwise_and bitwise_or
bitwise_xor shift_left shift_right_logical shift_right_arithmetic"""
_NN = """celu elu gelu hard_sigmoid hard_silu hard_tanh identity leaky_relu log_sigmoid log_softmax
logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus squareplus"""

FUNCTIONS: dict[str, int] = {
    **{f"jnp.{n}": 1 for n in _UNARY.split()}, **{f"jnp.{n}": 2 for n in _BINARY.split()},
    **{f"lax.{n}": 1 for n in _LAX_UNARY.split()}, **{f"lax.{n}": 2 for n in _LAX_BINARY.split()},
    **{f"nn.{n}": 1 for n in _NN.split()}}


def cases(arity: int) -> list[tuple[str, ...]]:
    """Return the kinds of the operands, in order of the recording."""
    return list(itertools.product(KINDS, repeat=arity))


def operands(jnp: Any) -> dict[str, Any]:
    """Return an operand of each kind, made by the given module."""
    return {
        "b": jnp.asarray(np.array([True, False, True])),
        "i": jnp.asarray(np.array([1, -2, 0], np.int32)),
        "u": jnp.asarray(np.array([3, 0, 2], np.uint32)),
        "f": jnp.asarray(np.array([0.5, -1.5, 2.25], np.float32)),
        "weak_i": jnp.asarray(3), "weak_f": jnp.asarray(0.75),
        "True": True, "2": 2, "-1": -1, "2.5": 2.5}


# ---- every dtype: only types are compared, so nothing is computed -------------------------------

TYPES = ("bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32",
         "uint64", "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64",
         "complex64", "complex128")
CODES = dict(zip(TYPES, "bcdefghijklmnopqrst"))
WEAK = {"1": 1, "1.0": 1.0, "1j": 1j}  # Python numbers


def typed_cases(arity: int, x64: bool) -> list[tuple[str, ...]]:
    """Return the kinds of the operands: each dtype of the mode and numbers, but not numbers
    only."""
    arrays = [t for t in TYPES if x64 or t == "complex64" or not t.endswith(("64", "128"))]
    cases = itertools.product((*arrays, *WEAK), repeat=arity)
    return [case for case in cases if any(k not in WEAK for k in case)]


def traced(module: Any, f: Any, case: tuple[str, ...]) -> Any:
    """Return shape, dtype and weak type of f on operands of these kinds, by
    ``module.eval_shape``."""
    arrays = [module.ShapeDtypeStruct((3,), k) for k in case if k not in WEAK]

    def g(*xs: Any) -> Any:
        rest = iter(xs)
        return f(*[WEAK[k] if k in WEAK else next(rest) for k in case])
    return module.eval_shape(g, *arrays)
