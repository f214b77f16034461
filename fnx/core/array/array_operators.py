"""The operators, indexing and conversions of Array, attached to the class here.

``elementwise`` creates a public function from an entry of core/formulas/elementwise.py, and adds
the operand and result types to its docstring.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np

from fnx.core.array import arguments, convert, indexing
from fnx.core.array.api_boundary import (
    asarray,
    dtype_and_weak,
    public_api,
    strong_cast,
)
from fnx.core.array.array import Array, ArrayLike, set_methods
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import family
from fnx.core.array.eager_cache import (
    CacheMiss,
    cached_dispatch,
    lift_floats,
    lift_indices,
    lift_slices,
)
from fnx.core.array.index_parsing import parse_index
from fnx.core.array.promotion import as_node, as_operand, broadcast_nodes, promote_operands
from fnx.core.formulas import elementwise as rows
from fnx.core.formulas.elementwise import OPERATORS, ElementwiseFn
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr, integer_power, maximum, minimum
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.scope import scope
from fnx.core.support.errors import DTypeError
from fnx.core.support.process import lazy_import
from fnx.core.support.traceback_filter import filter_traceback

float32_compute = lazy_import("fnx.core.array.float32_compute")

P = ParamSpec("P")


def apply(fn: ElementwiseFn, *xs: Any) -> Array:
    """Apply an elementwise function to operands: promote, broadcast, build."""
    if fn.domain == "truth":
        nodes = broadcast_nodes(fn.name, [as_node(as_operand(x), dtypes.bool_) for x in xs])
        return Array(fn.build(*nodes))
    nodes, weak = promote_operands(fn.domain, fn.name, xs)
    node = fn.build(*nodes)
    if fn.is_primitive:
        set_composite(node, fn.name, functools.partial(apply, fn), nodes)
    if weak and fn in _WEAK_RULES:
        weak = _WEAK_RULES[fn](xs)
    return Array(node, weak and not node.dtype.is_bool)


def _never_weak(xs: Sequence[Any]) -> bool:
    return False


def _all_floats(xs: Sequence[Any]) -> bool:
    return all(dtype_and_weak(as_operand(x))[0].is_inexact for x in xs)


def _no_complex(xs: Sequence[Any]) -> bool:
    return not any(dtype_and_weak(as_operand(x))[0].is_complex for x in xs)


def _all_weak(xs: Sequence[Any]) -> bool:
    return all(type(x) in convert.SCALAR_DTYPES or type(x) is Array and x.weak for x in xs)


def _weak_power(xs: Sequence[Any]) -> bool:
    (base, weak_base), (exponent, is_weak) = (dtype_and_weak(as_operand(x)) for x in xs)
    if not weak_base and not is_weak:  # uint64 and a signed type: a weak float
        return True
    if base.is_inexact or exponent.is_inexact:
        return is_weak or not exponent.is_integer
    return is_weak and not base.is_bool or xs[1] is True or xs[1] is False


# Functions with their own rule, as in JAX, for whether the result is weak if promotion says weak.
_WEAK_RULES: dict[ElementwiseFn, Callable[[Sequence[Any]], bool]] = {
    rows.LOG2: _never_weak, rows.LOG10: _never_weak, rows.RINT: _all_floats, rows.HYPOT: _all_weak,
    rows.LOGADDEXP: _no_complex, rows.LOGADDEXP2: _all_weak, rows.POWER: _weak_power}


_OPERAND_TEXTS = {
    "any": "of any dtype",
    "number": "integers or floats",
    "integer": "integers or floats; bool counts as int32",
    "float": "floats; bool and integers become the default float",
    "inexact": "floats; bool and integers become a float",
    "bits": "bool or integers",
    "whole": "integers; bool counts as int32",
    "truth": "of any dtype; what is not zero is true",
}
_ARITHMETIC = (rows.ADD, rows.SUBTRACT, rows.MULTIPLY, rows.DIVIDE)
_REJECTED_TEXTS = {"number": "bool", "bits": "floats", "whole": "floats"}


def elementwise(fn: ElementwiseFn, result: str = "", *, imports: str = "fnx.numpy as jnp"
                ) -> Callable[[Callable[P, Array]], Callable[P, Array]]:
    """Decorate the public function of an elementwise function.

    Args:
        result: the result dtype in words, if it differs from that of the operands.
        imports: the import of the docstring's example.
    """
    def decorate(f: Callable[P, Array]) -> Callable[P, Array]:
        names = f.__code__.co_varnames[:f.__code__.co_argcount]
        f.__doc__ = document_elementwise(f.__doc__ or "", fn, names, result, imports)
        wrapped = public_api(f)
        if fn in _ARITHMETIC:
            lift_floats(wrapped)
        return wrapped
    return decorate


def elementwise_family(imports: str) -> Callable[
        [Callable[Concatenate[ElementwiseFn, P], Array]],
        Callable[[ElementwiseFn, str, str, str, str], Callable[P, Array]]]:
    """Decorate the signature of public functions that apply one elementwise function each.

    Each of them has a line: the function, its name, summary, example and what the example prints.
    """
    return family(lambda text, names, fn: document_elementwise(text, fn, names, "", imports),
                  public_api)


def document_elementwise(doc: str, fn: ElementwiseFn, names: Sequence[str], result: str,
                         imports: str) -> str:
    """Insert Args, Returns and Raises of an elementwise function before a docstring's example."""
    text, prompt, example = doc.partition(">>> ")
    is_unary = len(names) == 1
    shape = f"of the shape of {names[0]}" if is_unary else "of the shape that they broadcast to"
    promotion = "" if is_unary else "; numbers give way to the dtypes of arrays"
    rejected = f"{_REJECTED_TEXTS[fn.domain]}, " if fn.domain in _REJECTED_TEXTS else ""
    lines = [
        "Args:",
        f"    {', '.join(names)}: {'an Array' if is_unary else 'Arrays'}, NumPy data or Python "
        "numbers"
        f" of any shape: {_OPERAND_TEXTS[fn.domain]}{promotion}.", "",
        "Returns:",
        f"    An Array {shape}, of {result or 'the dtype of the operands'}.", "",
        "Raises:",
        f"    DTypeError: {rejected}lists (convert them with ``asarray``), text and objects.",
        *(() if is_unary else ("    ShapeError: the shapes do not broadcast.",)), "",
        f">>> import {imports}", prompt]
    return text + "\n    ".join(lines) + example


def alias(name: str, f: Callable[P, Array], module: str = "lax") -> Callable[P, Array]:
    """Return a public function under the name that it has in another module."""
    wrap = float32_compute.compute_in_float32 if "rounds" in f.__dict__ else public_api
    result: Callable[P, Array] = wrap(inspect.unwrap(f), name)
    result.__doc__ = (f.__doc__ or "").replace(f"jnp.{f.__name__}(", f"{module}.{name}(").replace(
        "import fnx.numpy as jnp", f"import fnx.{module} as {module}")
    return result


_OPERANDS = (Array, bool, int, float, complex, np.ndarray, np.generic)


def _operator(op: Op, operands: tuple[Any, ...]) -> Any:
    """Apply the Python operator that core/ir/expr.py represents by an op."""
    call = _OPERATOR_CALLS[op] \
        if op is not ops.POW or type(operands[1]) not in (int, float) else power
    if not scope.is_open():
        result = cached_dispatch(call, operands, {})
        if result.__class__ is not CacheMiss:
            return result
    try:
        for x in operands:
            if not _is_operand(x):
                return _reject_operand(OPERATORS[op].name, x)
        return call(*operands)
    except Exception as error:
        filter_traceback(error)
        raise


def _is_operand(x: Any) -> bool:
    """Whether an operator takes x: also arrays of JAX, PyTorch and others, as functions do."""
    return type(x) is Array or isinstance(x, _OPERANDS) or hasattr(type(x), "__jax_array__") \
        or hasattr(type(x), "__dlpack__")


def _reject_operand(name: str, x: Any) -> Any:
    """Raise for a known bad operand, else return NotImplemented, as its type may handle arrays."""
    if type(x) in (list, tuple) or type(x) in (str, bytes) and name not in _EQUALITY_NAMES:
        raise DTypeError(f"{name}: expected an array or a number, got {type(x).__name__}",
                         hint="convert it with fnx.numpy.asarray(...)"
                         if type(x) in (list, tuple) else "convert the data to numbers first")
    if x is None and name not in _EQUALITY_NAMES:
        raise DTypeError(f"{name}: expected an array or a number, got None",
                         hint="a function without a return statement returns None")
    return NotImplemented


_EQUALITY_NAMES = (OPERATORS[ops.CMPEQ].name, OPERATORS[ops.CMPNE].name)


def as_operator(f: Callable[[Any, Any], Array]) -> Callable[[Any, Any], Any]:
    """Wrap a binary function as a Python operator: NotImplemented for operands it cannot take."""
    def call(a: Any, b: Any) -> Any:
        for x in (a, b):
            if not _is_operand(x):
                return _reject_operand(f.__name__, x)
        return f(a, b)
    return call


_OPERATOR_CALLS = {op: public_api(functools.partial(apply, row), row.name)
                   for op, row in OPERATORS.items()}


for _op, _call in _OPERATOR_CALLS.items():
    if OPERATORS[_op] in _ARITHMETIC:
        lift_floats(_call)


def record(out: Array, name: str, f: Callable[..., Any], *operands: UOp, **params: Any
           ) -> Array:
    """Record that an Array is an operation on nodes."""
    set_composite(out._node, name, f, operands, **params)
    return out


def record_elementwise(out: Array, name: str, f: Callable[..., Any], *operands: Array
                       ) -> Array:
    """Record an elementwise operation, whose operands have the shape and dtype of the result."""
    return record(out, name, f, *[
        build.expand(build.cast(x._node, out._dtype), out.shape) for x in operands])


def record_results(outs: Sequence[Array], name: str, f: Callable[..., Any], operand: UOp,
                   **params: Any) -> None:
    """Record an operation with several results, unless some of them are equal."""
    results = [x._node for x in outs]
    if len({operand, *results}) > len(results):
        for i, node in enumerate(results):
            set_composite(node, name, f, [operand], i, **params)


def static_power(x: Array, n: Any) -> Array:
    """``x ** n`` for a Python number n; an integer n (or 2.0) is expanded to multiplications."""
    is_integer = type(n) is int or n == 2.0
    if type(n) is int and n < 0 and not x._dtype.is_inexact:
        raise DTypeError(f"expected a power >= 0 of integers, got {n}",
                         hint="convert to float first: x.astype(float32) ** n")
    (node, exponent), weak = promote_operands("integer", "power", (x, n))
    weak = weak and (x.weak or type(n) in (float, complex))
    if not is_integer or abs(n) > 1 << 16:
        return Array(rows.POWER.build(node, exponent), weak)
    power = integer_power(Expr(node), int(n)).node
    return Array(set_composite(power, "integer_pow", _integer_pow, [node], y=int(n)), weak)


def _integer_pow(x: Any, *, y: int) -> Array:
    return static_power(asarray(x), y)


power = public_api(static_power, "power")


def _item(x: Array, index: Any) -> Array:
    """``x[index]``."""
    return Array(indexing.get(x._node, parse_index(index)), x.weak)


def slice_by_params(x: Any, *, start_indices: Sequence[int], limit_indices: Sequence[int],
                    strides: Sequence[int] | None = None) -> Array:
    """Slice each axis, as JAX's primitive does."""
    steps = strides or (1,) * len(start_indices)
    return _item(asarray(x), tuple(map(slice, start_indices, limit_indices, steps)))


def _slices(x: Array, starts: Sequence[Array | None], lengths: Sequence[int]) -> Array:
    """Return slices of some axes, from starts that are data."""
    # The clamps tell the compiler that the slice is inside, so that it reads contiguous elements.
    nodes: dict[int, UOp | int] = {
        a: minimum(maximum(Expr(s._node), 0), x._shape[a] - lengths[a]).node
        for a, s in enumerate(starts) if s is not None}
    return Array(indexing.dynamic_slice(x._node, nodes, lengths), x.weak)


_get, _get_slices = public_api(_item, "index"), public_api(_slices, "index")


def get_item(x: Array, index: Any) -> Array:
    """``x[index]`` as users write it, with static ints turned into data for the eager cache."""
    lifted = lift_slices(x, index) if type(index) in (slice, tuple) else None
    return _get(x, lift_indices(x, index)) if lifted is None else _get_slices(x, *lifted)


@public_api
def astype(x: ArrayLike, dtype: DTypeLike, copy: bool = False) -> Array:
    """Convert x to another dtype.

    Args:
        x: an Array or anything that ``asarray`` accepts, of any shape.
        dtype: the result dtype. Float to integer truncates towards zero; NaN and out-of-range
            values saturate as in JAX; nonzero values become True. Complex to real drops the
            imaginary part, with a warning.
        copy: accepted for compatibility with NumPy; it has no effect, as Arrays are immutable.

    Returns:
        An Array of the shape of x.

    Raises:
        DTypeError: an unsupported dtype.

    >>> import fnx.numpy as jnp
    >>> jnp.astype(1.5, "int32")
    Array(1, dtype=int32)
    """
    arguments.check_bool("copy", copy)
    array, to = asarray(x), convert.parse_dtype(dtype)
    if "key" in (array._dtype.kind, to.kind) and to is not array._dtype:
        raise dtypes.random_key_error()
    if array._dtype.is_complex and not (to.is_complex or to.is_bool):
        warnings.warn(f"astype({to}) drops the imaginary part: write x.real if that is meant",
                      np.exceptions.ComplexWarning, stacklevel=3)
    return strong_cast(array, to)


set_methods({"_operator": _operator, "_get_item": get_item, "astype": astype})
