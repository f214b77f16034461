"""Elementwise operators: arithmetic, comparisons, functions, activations, conversions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import lax, nn, random
from fnx.core.array.array import Array
from fnx.numpy.bits import bitcast_convert_type
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import FLOAT, Value, convert, dtype_of, elem_type_of, to_array, type_of

# ---- functions of the same name in NumPy and fnx.numpy ------------------------------------------

_SAME_NAME = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor", "Not": "logical_not", "Equal": "equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal",
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "BitwiseNot": "invert", "Abs": "abs", "Neg": "negative", "Ceil": "ceil", "Floor": "floor",
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan",
    "Asin": "arcsin", "Acos": "arccos", "Atan": "arctan", "Sinh": "sinh", "Cosh": "cosh",
    "Tanh": "tanh", "Asinh": "arcsinh", "Acosh": "arccosh", "Atanh": "arctanh", "Sign": "sign",
    "IsNaN": "isnan", "Round": "rint", "Where": "where"}


def _by_name(function: str) -> Callable[..., Value]:
    return lambda n, *xs: getattr(n.xp, function)(*xs)


for _op, _function in _SAME_NAME.items():
    op(_op)(_by_name(_function))

_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Erf": lax.erf, "Sigmoid": nn.sigmoid, "Relu": nn.relu, "Softplus": nn.softplus,
    "Softsign": nn.soft_sign, "Mish": nn.mish}


def _by_function(function: Callable[..., Array]) -> Callable[..., Value]:
    return lambda n, x: function(to_array(x))


for _op, _of_array in _FUNCTIONS.items():
    op(_op)(_by_function(_of_array))


# ---- arithmetic ---------------------------------------------------------------------------------


@op("Div")
def _div(n: Node, x: Value, y: Value) -> Value:
    if not n.known:
        return to_array(x) / to_array(y) if type_of(x).is_inexact else \
            lax.div(*jnp.broadcast_arrays(to_array(x), to_array(y)))
    if object in (x.dtype, y.dtype):
        return x // y  # of lengths, which are not negative
    if np.issubdtype(x.dtype, np.integer):
        return ((x - np.fmod(x, y)) // y).astype(x.dtype)
    return x / y


@op("Mod")
def _mod(n: Node, x: Value, y: Value, *, fmod: int = 0) -> Value:
    return n.xp.fmod(x, y) if fmod else n.xp.remainder(x, y)


@op("Pow")
def _pow(n: Node, x: Value, y: Value) -> Value:
    x, y = to_array(x), to_array(y)
    if type_of(x).is_integer and type_of(y).is_float:
        return jnp.power(x.astype(y.dtype), y).astype(x.dtype)
    return jnp.power(x, y.astype(x.dtype) if type_of(x).is_float and type_of(y).is_float else y
                     ).astype(x.dtype)


@op("Reciprocal")
def _reciprocal(n: Node, x: Value) -> Value:
    return 1 / to_array(x)


@op("BitShift")
def _bit_shift(n: Node, x: Value, y: Value, *, direction: str = "") -> Value:
    x, y = jnp.broadcast_arrays(to_array(x), to_array(y))
    inside = (y >= 0) & (y < type_of(x).bits)
    by = jnp.where(inside, y, 0)
    if direction == "LEFT":
        return jnp.where(inside, jnp.left_shift(x, by), 0).astype(x.dtype)
    return jnp.where(inside, jnp.right_shift(x, by), -(x < 0).astype(x.dtype))


def _variadic(function: str) -> Callable[..., Value]:
    return lambda n, *xs: functools.reduce(getattr(n.xp, function), xs)


for _op, _function in {"Sum": "add", "Max": "maximum", "Min": "minimum"}.items():
    op(_op)(_variadic(_function))


@op("Mean")
def _mean(n: Node, *xs: Value) -> Value:
    return functools.reduce(n.xp.add, xs) / np.asarray(len(xs), xs[0].dtype) if n.known else \
        functools.reduce(jnp.add, xs) / len(xs)


@op("Clip", since=11)
def _clip(n: Node, x: Value, low: Value = None, high: Value = None) -> Value:
    x = x if low is None else n.xp.maximum(x, low)
    return x if high is None else n.xp.minimum(x, high)


@op("Clip", since=6)
def _clip_6(n: Node, x: Value, *, min: float = -math.inf, max: float = math.inf) -> Value:
    return jnp.clip(to_array(x), min, max)


@op("IsInf")
def _is_inf(n: Node, x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    x = to_array(x)
    return (jnp.isposinf(x) if detect_positive else False) | \
        (jnp.isneginf(x) if detect_negative else jnp.zeros_like(x, dtype=bool))


# ---- activations --------------------------------------------------------------------------------


@op("Elu")
def _elu(n: Node, x: Value, *, alpha: float = 1.0) -> Value:
    return nn.elu(to_array(x), alpha)


@op("Celu")
def _celu(n: Node, x: Value, *, alpha: float = 1.0) -> Value:
    return nn.celu(to_array(x), alpha)


@op("Selu")
def _selu(n: Node, x: Value, *, alpha: float = 1.6732632423543772,
          gamma: float = 1.0507009873554805) -> Value:
    return gamma * nn.elu(to_array(x), alpha)


@op("Gelu")
def _gelu(n: Node, x: Value, *, approximate: str = "none") -> Value:
    return nn.gelu(to_array(x), approximate=approximate == "tanh")


@op("LeakyRelu")
def _leaky_relu(n: Node, x: Value, *, alpha: float = 0.01) -> Value:
    return nn.leaky_relu(to_array(x), alpha)


@op("ThresholdedRelu")
def _thresholded_relu(n: Node, x: Value, *, alpha: float = 1.0) -> Value:
    return jnp.where(to_array(x) > alpha, x, 0)


@op("PRelu")
def _prelu(n: Node, x: Value, slope: Value) -> Value:
    x = to_array(x)
    return jnp.where(x < 0, x * slope, x)


@op("HardSigmoid")
def _hard_sigmoid(n: Node, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    return jnp.clip(alpha * to_array(x) + beta, 0, 1)


@op("HardSwish")
def _hard_swish(n: Node, x: Value) -> Value:
    return to_array(x) * jnp.clip(to_array(x) / 6 + 0.5, 0, 1)


@op("Swish")
def _swish(n: Node, x: Value, *, alpha: float = 1.0) -> Value:
    return to_array(x) * nn.sigmoid(alpha * to_array(x))


@op("Shrink")
def _shrink(n: Node, x: Value, *, lambd: float = 0.5, bias: float = 0.0) -> Value:
    x = to_array(x)
    return jnp.where(x < -lambd, x + bias, jnp.where(x > lambd, x - bias, 0)).astype(x.dtype)


def _by_axis(function: Callable[..., Array]) -> Callable[..., Value]:
    def rule(n: Node, x: Value, *, axis: int = -1) -> Value:
        return function(to_array(x), axis=axis)
    return rule


def _flattened_from_axis(function: Callable[..., Array]) -> Callable[..., Value]:
    """Before opset 13: over all dimensions from ``axis`` on, as if they were one."""
    def rule(n: Node, x: Value, *, axis: int = 1) -> Value:
        axis %= max(x.ndim, 1)
        flat = to_array(x).reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        return function(flat, axis=1).reshape(x.shape)
    return rule


def _hardmax(x: Array, axis: int) -> Array:
    return nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis)


for _op, _along in {"Softmax": nn.softmax, "LogSoftmax": nn.log_softmax,
                    "Hardmax": _hardmax}.items():
    op(_op)(_flattened_from_axis(_along))
    op(_op, since=13)(_by_axis(_along))


# ---- conversions --------------------------------------------------------------------------------


@op("Cast")
def _cast(n: Node, x: Value, *, to: int = FLOAT, saturate: int = 1, round_mode: str = "up"
          ) -> Value:
    n.result_format = to
    return convert(x, to, bool(saturate), round_mode)


@op("CastLike")
def _cast_like(n: Node, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up"
               ) -> Value:
    n.result_format = n.formats[1] or elem_type_of(like)
    return convert(x, n.result_format, bool(saturate), round_mode)


@op("BitCast")
def _bit_cast(n: Node, x: Value, *, to: int = FLOAT) -> Value:
    t, x = dtype_of(to), to_array(x)
    x = x.astype(jnp.uint8) if type_of(x).is_bool else x
    return (x != 0) if t.is_bool else bitcast_convert_type(x, t)


@op("Identity")
def _identity(n: Node, x: Value) -> Value:
    return x


@op("Dropout", since=12)
def _dropout(n: Node, x: Value, ratio: Value = None, training: Value = None, *,
             seed: Any = None) -> Value:
    if training is None or not n.read(training, "its training_mode"):
        return x, jnp.ones(x.shape, bool)
    rate = 0.5 if ratio is None else ratio
    keep = True if n.constant_or_none(rate) == 0 else random.uniform(n.key(seed), x.shape) >= rate
    keep = jnp.broadcast_to(keep, x.shape)
    return jnp.where(keep, to_array(x) / (1 - rate), 0).astype(x.dtype), keep


@op("Dropout", since=7)
def _dropout_7(n: Node, x: Value, *, ratio: float = 0.5) -> Value:
    return x, jnp.ones(x.shape, bool)
