"""Primitives without bodies as operations of StableHLO: the table, and the text of types.

>>> from fnx.core.array.abstract_values import ShapedArray
>>> tensor_type(ShapedArray((2, 3), "bfloat16"))
'tensor<2x3xbf16>'
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fnx.core.array.abstract_values import ShapedArray
from fnx.jaxprs.syntax import Atom, JaxprEqn


class Body(Protocol):
    """Where operations are added (stablehlo_text.py)."""

    def value(self, atom: Atom, shape: Sequence[int] | None = None) -> str: ...
    def emit(self, text: str, n: int = 1) -> list[str]: ...
    def constant(self, value: Any, aval: Any) -> str: ...
    def mesh_name(self, mesh: Any) -> str: ...


Row = Callable[[Body, JaxprEqn], list[str]]


# ---- types and numbers --------------------------------------------------------------------------

_LETTERS = {"float": "f", "int": "i", "uint": "ui"}
_OTHERS = {"bool": "i1", "bfloat16": "bf16", "complex64": "complex<f32>",
           "complex128": "complex<f64>"}


def element_type(aval: Any) -> str:
    """Return the type of the elements: ``f32``."""
    if not isinstance(aval.dtype, np.dtype):
        return "2xui32"  # a key
    name: str = aval.dtype.name
    letters = name.rstrip("0123456789")
    if letters in _LETTERS:
        return _LETTERS[letters] + name.removeprefix(letters)
    return _OTHERS.get(name, "f8" + name.removeprefix("float8_").upper())


def tensor_type(aval: Any) -> str:
    """Return the type of an array: ``tensor<2x3xf32>``."""
    dims = [str(n) if isinstance(n, int) else "?" for n in aval.shape]
    return f"tensor<{'x'.join([*dims, element_type(aval)])}>"


def literal_text(value: Any) -> str:
    """Return the elements of a constant.

    >>> literal_text(2.0), literal_text(np.float32("inf")), literal_text(np.arange(3))
    ('2.000000e+00', '0x7F800000', '[0, 1, 2]')
    """
    if isinstance(value, str):
        return value
    x = np.asarray(value)
    if x.ndim:
        return f"[{', '.join(map(literal_text, x))}]" if len(x) else ""
    if x.dtype.kind == "b":
        return str(bool(x)).lower()
    if x.dtype.kind in "iu":
        return str(int(x))
    if x.dtype.kind == "c":
        return f"({literal_text(x.real)},{literal_text(x.imag)})"
    number = float(x)
    if np.isfinite(number):
        return f"{number:e}"
    return "0x" + struct.pack(">f", number).hex().upper()


# ---- rows ---------------------------------------------------------------------------------------

_SAME_TYPE = {
    "sin": "sine", "cos": "cosine", "tan": "tan", "neg": "negate", "exp": "exponential",
    "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one", "tanh": "tanh",
    "rsqrt": "rsqrt", "sqrt": "sqrt", "abs": "abs", "floor": "floor", "ceil": "ceil",
    "sign": "sign", "cbrt": "cbrt", "not": "not", "logistic": "logistic",
    "population_count": "popcnt", "clz": "count_leading_zeros", "round": "round_nearest_even",
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "rem": "remainder",
    "max": "maximum", "min": "minimum", "pow": "power", "and": "and", "or": "or", "xor": "xor",
    "shift_left": "shift_left", "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic", "atan2": "atan2", "clamp": "clamp",
    "add_any": "add", "optimization_barrier": "optimization_barrier"}
_CHLO = {
    "erf": "erf", "erfc": "erfc", "erf_inv": "erf_inv", "lgamma": "lgamma", "digamma": "digamma",
    "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "square": "square",
    "bessel_i1e": "bessel_i1e", "polygamma": "polygamma", "zeta": "zeta",
    "nextafter": "next_after"}
_COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
_REDUCTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "reduce_sum": ("add", lambda t: 0), "reduce_prod": ("multiply", lambda t: 1),
    "reduce_max": ("maximum", lambda t: _extreme(t, -1)),
    "reduce_min": ("minimum", lambda t: _extreme(t, 1)),
    "reduce_and": ("and", lambda t: True), "reduce_or": ("or", lambda t: False),
    "reduce_xor": ("xor", lambda t: 0)}


def _extreme(t: Any, sign: int) -> Any:
    """Return the greatest value of a dtype, or the least one."""
    kind = np.dtype(t)
    if kind.kind == "b":
        return sign > 0
    if kind.kind in "iu":
        return np.iinfo(kind).max if sign > 0 else np.iinfo(kind).min
    return np.float32(sign * np.inf)


def _list(values: Sequence[Any]) -> str:
    return f"[{', '.join(str(x) for x in values)}]"


def _types(eqn: JaxprEqn, n: int | None = None) -> str:
    ins = ", ".join(tensor_type(v.aval) for v in eqn.invars[:n])
    outs = [tensor_type(v.aval) for v in eqn.outvars]
    return f"({ins}) -> {outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'}"


def _same_type(body: Body, eqn: JaxprEqn) -> list[str]:
    names = [body.value(v, eqn.outvars[0].aval.shape) for v in eqn.invars]
    types = ", ".join(tensor_type(v.aval) for v in eqn.outvars)
    return body.emit(f"stablehlo.{_SAME_TYPE[eqn.primitive.name]} {', '.join(names)} : {types}",
                     len(eqn.outvars))


def _chlo(body: Body, eqn: JaxprEqn) -> list[str]:
    shape, t = eqn.outvars[0].aval.shape, tensor_type(eqn.outvars[0].aval)
    names = [body.value(v, shape) for v in eqn.invars]
    return body.emit(f"chlo.{_CHLO[eqn.primitive.name]} {', '.join(names)} : "
                     f"{', '.join([t] * len(names))} -> {t}")


def _compare(body: Body, eqn: JaxprEqn) -> list[str]:
    out = eqn.outvars[0].aval
    x = eqn.invars[0].aval
    names = [body.value(v, out.shape) for v in eqn.invars]
    element = element_type(x)
    kind = "FLOAT" if element[0] in "fbc" else "SIGNED" if element[0] == "i" and element != "i1" \
        else "UNSIGNED"
    wide = tensor_type(x.update(shape=out.shape))
    return body.emit(f"stablehlo.compare {_COMPARISONS[eqn.primitive.name]}, {', '.join(names)}, "
                     f"{kind} : ({wide}, {wide}) -> {tensor_type(out)}")


def _integer_pow(body: Body, eqn: JaxprEqn) -> list[str]:
    x, t = body.value(eqn.invars[0]), tensor_type(eqn.outvars[0].aval)
    power, name = abs(eqn.params["y"]), x
    for digit in f"{power:b}"[1:]:
        name, = body.emit(f"stablehlo.multiply {name}, {name} : {t}")
        if digit == "1":
            name, = body.emit(f"stablehlo.multiply {name}, {x} : {t}")
    if eqn.params["y"] < 0:
        aval = eqn.outvars[0].aval
        one = body.constant(np.ones(aval.shape, np.float32), aval)
        name, = body.emit(f"stablehlo.divide {one}, {name} : {t}")
    return [name]


def _is_finite(body: Body, eqn: JaxprEqn) -> list[str]:
    return body.emit(f"stablehlo.is_finite {body.value(eqn.invars[0])} : {_types(eqn)}")


def _select(body: Body, eqn: JaxprEqn) -> list[str]:
    which, *cases = eqn.invars
    out = eqn.outvars[0].aval
    names = [body.value(which), *[body.value(v, out.shape) for v in cases[::-1]]]
    return body.emit(f"stablehlo.select {', '.join(names)} : {tensor_type(which.aval)}, "
                     f"{tensor_type(out)}")


def _reduce(body: Body, eqn: JaxprEqn) -> list[str]:
    op, initial = _REDUCTIONS[eqn.primitive.name]
    x = eqn.invars[0]
    name, scalar = body.value(x), x.aval.update(shape=())
    start = body.constant(np.asarray(initial(x.aval.dtype), x.aval.dtype)[()], scalar)
    return body.emit(
        f"stablehlo.reduce({name} init: {start}) applies stablehlo.{op} across dimensions = "
        f"{_list(eqn.params['axes'])} : ({tensor_type(x.aval)}, {tensor_type(scalar)}) -> "
        f"{tensor_type(eqn.outvars[0].aval)}")


def _dot_general(body: Body, eqn: JaxprEqn) -> list[str]:
    (contract_x, contract_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    batch = f"batching_dims = {_list(batch_x)} x {_list(batch_y)}, " if batch_x else ""
    names = ", ".join(body.value(v) for v in eqn.invars)
    precision = eqn.params.get("precision")
    each = precision if isinstance(precision, tuple) else (precision, precision)
    words = ", ".join("DEFAULT" if p is None else str(getattr(p, "name", p)) for p in each)
    return body.emit(f"stablehlo.dot_general {names}, {batch}contracting_dims = "
                     f"{_list(contract_x)} x {_list(contract_y)}, precision = [{words}] : "
                     f"{_types(eqn)}")


def _convolution(body: Body, eqn: JaxprEqn) -> list[str]:
    p = eqn.params
    names = ", ".join(body.value(v) for v in eqn.invars)
    return body.emit(f"stablehlo.convolution({names}) dim_numbers = {p.get('dimension_numbers')}, "
                     f"window = {{stride = {_list(p.get('window_strides', ()))}}} : {_types(eqn)}")


def _with_attributes(op: str, attributes: Callable[[JaxprEqn], str]) -> Row:
    """Return a row of an operation with text between its operands and its type."""
    def row(body: Body, eqn: JaxprEqn) -> list[str]:
        names = ", ".join(body.value(v) for v in eqn.invars)
        text = attributes(eqn)
        between = "" if not text else f" {text}" if text[0] == "[" else f", {text}"
        return body.emit(f"stablehlo.{op} {names}{between} : {_types(eqn)}", len(eqn.outvars))
    return row


def _slice(eqn: JaxprEqn) -> str:
    p = eqn.params
    steps = p["strides"] or [1] * len(p["start_indices"])
    return _list([f"{a}:{b}" + f":{s}" * (s != 1) for a, b, s in
                  zip(p["start_indices"], p["limit_indices"], steps)])


def _pad(eqn: JaxprEqn) -> str:
    low, high, inner = zip(*eqn.params["padding_config"]) if eqn.params["padding_config"] else \
        ((), (), ())
    return f"low = {_list(low)}, high = {_list(high)}, interior = {_list(inner)}"


def _iota(body: Body, eqn: JaxprEqn) -> list[str]:
    return body.emit(f"stablehlo.iota dim = {eqn.params['dimension']} : "
                     f"{tensor_type(eqn.outvars[0].aval)}")


def _reverse(body: Body, eqn: JaxprEqn) -> list[str]:
    return body.emit(f"stablehlo.reverse {body.value(eqn.invars[0])}, dims = "
                     f"{_list(eqn.params['dimensions'])} : {tensor_type(eqn.outvars[0].aval)}")


def _reduce_precision(body: Body, eqn: JaxprEqn) -> list[str]:
    p = eqn.params
    return body.emit(f"stablehlo.reduce_precision {body.value(eqn.invars[0])}, format = "
                     f"e{p['exponent_bits']}m{p['mantissa_bits']} : "
                     f"{tensor_type(eqn.outvars[0].aval)}")


def _quoted(op: str) -> Row:
    """Return a row of an operation in the generic form, with its params."""
    def row(body: Body, eqn: JaxprEqn) -> list[str]:
        names = ", ".join(body.value(v) for v in eqn.invars)
        shown = [f"{k} = {str(v).lower() if isinstance(v, bool) else v}"
                 for k, v in eqn.params.items() if isinstance(v, (bool, int, tuple))]
        return body.emit(f'"stablehlo.{op}"({names}) <{{{", ".join(shown)}}}> : {_types(eqn)}',
                         len(eqn.outvars))
    return row


def _complex(body: Body, eqn: JaxprEqn) -> list[str]:
    out = eqn.outvars[0].aval
    names = ", ".join(body.value(v, out.shape) for v in eqn.invars)
    part = tensor_type(eqn.invars[0].aval.update(shape=out.shape))
    return body.emit(f"stablehlo.complex {names} : ({part}, {part}) -> {tensor_type(out)}")


def _same(body: Body, eqn: JaxprEqn) -> list[str]:
    return [body.value(v) for v in eqn.invars]


def _sharding(body: Body, eqn: JaxprEqn) -> list[str]:
    sharding, value = eqn.params["sharding"], body.value(eqn.invars[0])
    axes = [part if isinstance(part, tuple) else () if part is None else (part,)
            for part in [*sharding.spec, *[None] * len(eqn.outvars[0].aval.shape)]]
    dims = ", ".join(["{" + ", ".join([f'"{name}"' for name in part]) + "}"
                      for part in axes[:len(eqn.outvars[0].aval.shape)]])
    mesh = body.mesh_name(sharding.mesh)
    return body.emit(f"sdy.sharding_constraint {value} <{mesh}, [{dims}]> : "
                     f"{tensor_type(eqn.outvars[0].aval)}")


ROWS: dict[str, Row] = {
    "sharding_constraint": _sharding,
    **dict.fromkeys(_SAME_TYPE, _same_type), **dict.fromkeys(_CHLO, _chlo),
    **dict.fromkeys(_COMPARISONS, _compare), **dict.fromkeys(_REDUCTIONS, _reduce),
    "integer_pow": _integer_pow, "is_finite": _is_finite, "select_n": _select,
    "dot_general": _dot_general, "conv_general_dilated": _convolution, "iota": _iota,
    "rev": _reverse, "reduce_precision": _reduce_precision,
    "broadcast_in_dim": _with_attributes("broadcast_in_dim", lambda e:
                                         f"dims = {_list(e.params['broadcast_dimensions'])}"),
    "reshape": _with_attributes("reshape", lambda e: ""),
    "squeeze": _with_attributes("reshape", lambda e: ""),
    "expand_dims": _with_attributes("reshape", lambda e: ""),
    "transpose": _with_attributes("transpose", lambda e:
                                  f"dims = {_list(e.params['permutation'])}"),
    "concatenate": _with_attributes("concatenate", lambda e: f"dim = {e.params['dimension']}"),
    "slice": _with_attributes("slice", _slice), "pad": _with_attributes("pad", _pad),
    "convert_element_type": _with_attributes("convert", lambda e: ""),
    "bitcast_convert_type": _with_attributes("bitcast_convert", lambda e: ""),
    "real": _with_attributes("real", lambda e: ""), "imag": _with_attributes("imag", lambda e: ""),
    "complex": _complex,
    "dynamic_slice": _with_attributes("dynamic_slice", lambda e:
                                      f"sizes = {_list(e.params['slice_sizes'])}"),
    "dynamic_update_slice": _with_attributes("dynamic_update_slice", lambda e: ""),
    "gather": _quoted("gather"), "sort": _quoted("sort"),
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"),
                    _quoted("scatter")),
    **dict.fromkeys(("copy", "copy_p", "stop_gradient", "name"), _same)}


COUNTER = ShapedArray((), "int32")  # of a loop
