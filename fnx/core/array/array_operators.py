"""The operators, indexing, ``x.at[...]`` and conversions of Array, attached to the class here.

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
from fnx.core.array.api_boundary import asarray, dtype_and_weak, public_api, strong_cast
from fnx.core.array.arguments import ReadMode, WriteMode
from fnx.core.array.array import Array, ArrayLike, set_methods
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import family
from fnx.core.array.eager_cache import (
    CacheMiss,
    cached_dispatch,
    lift_floats,
    lift_indices,
    register_key_parts,
)
from fnx.core.array.index_parsing import parse_index
from fnx.core.array.promotion import as_node, as_operand, broadcast_nodes, promote_operands
from fnx.core.formulas import elementwise as rows
from fnx.core.formulas.elementwise import OPERATORS, ElementwiseFn
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr, integer_power
from fnx.core.ir.ops import Op
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, DTypeError, MutationError, UnknownNameError
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
    return type(x) is Array or isinstance(x, _OPERANDS) or hasattr(type(x), "__jax_array__")


def _reject_operand(name: str, x: Any) -> Any:
    """Raise for a known bad operand, else return NotImplemented, as its type may handle arrays."""
    if type(x) in (list, tuple):
        raise DTypeError(f"{name}: expected an array or a number, got {type(x).__name__}",
                         hint="convert it with fnx.numpy.asarray(...)")
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
    return Array(integer_power(Expr(node), int(n)).node, weak)


power = public_api(static_power, "power")


def _item(x: Array, index: Any) -> Array:
    """``x[index]``."""
    return Array(indexing.get(x._node, parse_index(index)), x.weak)


_get = public_api(_item, "index")


def get_item(x: Array, index: Any) -> Array:
    """``x[index]`` as users write it, with static ints turned into data for the eager cache."""
    return _get(x, lift_indices(x, index))


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


# ---- x.at[...] --------------------------------------------------------------------------------

def _write_method(summary: str, call: str, result: str
                  ) -> Callable[[Callable[P, Array]], Callable[P, Array]]:
    """Decorate a writing method of At: generate its docstring and make it public."""
    def decorate(f: Callable[P, Array]) -> Callable[P, Array]:
        f.__doc__ = f"""{summary}

        Args:
            value: what broadcasts to the shape of ``x[index]``; converted to the dtype of x.
            mode: of indices outside: "drop" (default; "fill" and
                "promise_in_bounds" do the same), or "clip" to the nearest inside.
            unique_indices, indices_are_sorted: promises, which nothing here needs.
            wrap_negative_indices: whether -1 is the last; else negative indices are outside.

        Returns:
            An Array of the shape and dtype of x; x stays as it is.

        Raises:
            OutOfBoundsError: an index outside, under ``config.check_index``.
            ShapeError: the value does not broadcast.

        >>> import fnx.numpy as jnp
        >>> jnp.asarray([1.0, 2.0, 3.0]).at[1].{call}
        {result}
        """
        return public_api(f)
    return decorate


class At:
    """``x.at``: index it, then call an update method.

    Args:
        x: the array.
        index: an index as in ``x[index]``.

    >>> import fnx.numpy as jnp
    >>> jnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("_x", "_index")

    def __init__(self, x: Array, index: Any = None) -> None:
        self._x, self._index = x, index

    def __getitem__(self, index: Any) -> At:
        return At(self._x, lift_indices(self._x, index, False))

    def __setitem__(self, index: Any, value: Any) -> None:
        raise MutationError("expected no assignment to x.at[...]: an Array is immutable",
                            hint="write x = x.at[index].set(value)")

    def __call__(self, *args: Any) -> Any:
        raise ArgumentError("expected x.at[index], got x.at(index)",
                            hint="write x.at[index].set(value), with square brackets")

    def __getattr__(self, name: str) -> Any:
        raise UnknownNameError("x.at[...]", name, vars(At),
                               "use set, add, multiply or another update method")

    def _resolve_negative(self, wrap: bool) -> Any:
        """Return the index, in which negative numbers are out of bounds unless they wrap."""
        if wrap:
            return self._index
        entries = self._index if isinstance(self._index, tuple) else (self._index,)
        return tuple([_invalidate_negative(i) for i in entries])

    def _write(self, value: ArrayLike, monoid: Op | None, mode: WriteMode, wrap: bool,
               x: Array | None = None) -> Array:
        """Combine what is in x, by default the array, with the value; without a monoid replace it.
        """
        target = self._x if x is None else x
        update = as_node(asarray(value) if isinstance(value, (list, tuple)) else as_operand(value),
                         target._dtype)
        index = parse_index(self._resolve_negative(wrap))
        return Array(indexing.write(target._node, index, update, monoid, mode), target.weak)

    def _write_product(self, value: ArrayLike, mode: WriteMode, wrap: bool) -> Array:
        """Return the product of the values for each element, 1 where there are none."""
        ones = Array(build.const(1, self._x._dtype, self._x._shape))
        return self._write(value, ops.MUL, mode, wrap, ones)

    @public_api
    def get(self, *, mode: ReadMode = None, fill_value: ArrayLike | None = None,
            indices_are_sorted: bool = False, unique_indices: bool = False,
            wrap_negative_indices: bool = True) -> Array:
        """Return the elements at the index.

        Args:
            mode: for out-of-bounds indices: "promise_in_bounds" (default) reads the nearest
                element, which gets no gradient if the index is traced; "clip" reads the nearest
                element; "fill" reads ``fill_value``.
            fill_value: the value for "fill"; by default NaN, the smallest int, the largest
                unsigned int, or True.
            unique_indices, indices_are_sorted: promises; accepted but not used.
            wrap_negative_indices: whether -1 is the last element; else negative indices are out of
                bounds.

        Returns:
            An Array of the shape of ``x[index]`` and the dtype of x.

        Raises:
            OutOfBoundsError: an out-of-bounds index, if ``config.check_index`` is set.

        >>> import fnx.numpy as jnp
        >>> jnp.arange(3).at[jnp.asarray([2, 9])].get(mode="fill", fill_value=-1)
        Array([ 2, -1], dtype=int32)
        """
        return at_get(self._x, self._resolve_negative(wrap_negative_indices), mode, fill_value)

    @_write_method("A copy with ``value`` there.",
                   "set(5.0)", "Array([1., 5., 3.], dtype=float32)")
    def set(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._write(value, None, mode, wrap_negative_indices)

    @_write_method("A copy with ``value`` added there, once for each time that an index occurs.",
                   "add(5.0)", "Array([1., 7., 3.], dtype=float32)")
    def add(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._write(value, ops.ADD, mode, wrap_negative_indices)

    @_write_method("A copy with ``value`` subtracted there.",
                   "subtract(5.0)", "Array([ 1., -3.,  3.], dtype=float32)")
    def subtract(self, value: ArrayLike, *, mode: WriteMode = None,
                 indices_are_sorted: bool = False, unique_indices: bool = False,
                 wrap_negative_indices: bool = True) -> Array:
        return self._write(-asarray(value), ops.ADD, mode, wrap_negative_indices)

    @_write_method("A copy with what is there multiplied by ``value``.",
                   "multiply(5.0)", "Array([ 1., 10.,  3.], dtype=float32)")
    def multiply(self, value: ArrayLike, *, mode: WriteMode = None,
                 indices_are_sorted: bool = False, unique_indices: bool = False,
                 wrap_negative_indices: bool = True) -> Array:
        return self._write(value, ops.MUL, mode, wrap_negative_indices)

    @_write_method("A copy with what is there divided by ``value``.",
                   "divide(4.0)", "Array([1. , 0.5, 3. ], dtype=float32)")
    def divide(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
               unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._x / self._write_product(value, mode, wrap_negative_indices)

    @_write_method("A copy with the smaller of what is there and ``value``.",
                   "min(0.0)", "Array([1., 0., 3.], dtype=float32)")
    def min(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._write(value, ops.MIN, mode, wrap_negative_indices)

    @_write_method("A copy with the larger of what is there and ``value``.",
                   "max(5.0)", "Array([1., 5., 3.], dtype=float32)")
    def max(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        return self._write(value, ops.MAX, mode, wrap_negative_indices)

    @_write_method("A copy with what is there raised to the power of ``value``.",
                   "power(2.0)", "Array([1., 4., 3.], dtype=float32)")
    def power(self, value: ArrayLike, *, mode: WriteMode = None, indices_are_sorted: bool = False,
              unique_indices: bool = False, wrap_negative_indices: bool = True) -> Array:
        exponents = self._write_product(value, mode, wrap_negative_indices)
        return apply(rows.POWER, self._x, exponents)

    @public_api
    def apply(self, func: Callable[[Array], Any], *, mode: WriteMode = None,
              indices_are_sorted: bool = False, unique_indices: bool = False,
              wrap_negative_indices: bool = True) -> Array:
        """Return a copy with a function applied to the elements; repeated indices apply it once.

        Args:
            func: an elementwise function of an Array; its results are cast to the dtype of x.
            mode: for out-of-bounds indices: "drop" (default), or "clip" to the nearest element.
            unique_indices, indices_are_sorted: promises; accepted but not used.
            wrap_negative_indices: whether -1 is the last element; else negative indices are out of
                bounds.

        Returns:
            An Array of the shape and dtype of x; x is unchanged.

        Raises:
            OutOfBoundsError: an out-of-bounds index, if ``config.check_index`` is set.

        >>> import fnx.numpy as jnp
        >>> jnp.asarray([1.0, 2.0, 3.0]).at[1].apply(jnp.square)
        Array([1., 4., 3.], dtype=float32)
        """
        if not callable(func):
            raise ArgumentError(f"expected a function, got {func!r}", hint="use .set(value)")
        x = self._x
        mask = self._write(True, None, mode, wrap_negative_indices,
                           Array(build.const(False, dtypes.bool_, x._shape)))
        new_values = as_node(as_operand(func(x)), x._dtype)
        if new_values.shape != x._shape:
            raise ArgumentError(f"expected an elementwise function, got shape {new_values.shape} "
                                f"of {x._shape}")
        return Array(build.where(mask._node, new_values, x._node), x.weak)

    mul = multiply


def _invalidate_negative(entry: Any) -> Any:
    """Return an index entry with negative numbers replaced by an out-of-bounds index."""
    if isinstance(entry, int) and not isinstance(entry, bool) and entry < 0:
        return Array(build.const(indexing.OUT_OF_BOUNDS, dtypes.int32))
    if isinstance(entry, slice) or entry is None or entry is Ellipsis:
        return entry
    x = asarray(entry)
    if not x._dtype.is_integer or x._dtype is dtypes.unsigned(x._dtype):
        return entry
    return Array(indexing.invalidate_negative(x._node))


def at_get(x: Array, index: Any, mode: ReadMode, fill_value: ArrayLike | None) -> Array:
    """``x.at[index].get(...)``."""
    fill = None if fill_value is None else as_node(as_operand(fill_value), x._dtype)
    return Array(indexing.get(x._node, parse_index(index), mode, fill), x.weak)


register_key_parts(At, lambda at: (at._x, at._index))
set_methods({"_operator": _operator, "_get_item": get_item, "astype": astype, "at": At})
