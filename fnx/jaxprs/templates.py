"""Primitives of JAX that are several nodes here: recognized by the graph that they build.

    DIV(1, SQRT(x))                                  ->   rsqrt x
    REDUCE(MUL(EXPAND(x), EXPAND(y)), axis)          ->   dot_general[dimension_numbers=...] x y

A function is recognized by its template: its graph of PARAMs, which a node is equal to but for
what stands for the PARAMs. The nodes in between are equations only if something else reads them.

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.float32, (3,))
>>> view = composite_view(rows.RSQRT.build(x))
>>> view.primitive, view.operands[0] is x
(rsqrt, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fnx.core.array.api_boundary import asarray, join_dtypes
from fnx.core.array.array import Array
from fnx.core.formulas import bessel, elementwise_math, error_functions
from fnx.core.formulas import elementwise as rows
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir import build, dtypes, low_precision, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import FnxError
from fnx.core.support.record import Record
from fnx.jaxprs.primitive import Primitive, built_in, define
from fnx.jaxprs.shapes import inserted_axes


class View(Record):
    """A node as an equation."""

    primitive: Primitive
    operands: Sequence[UOp]
    params: dict[str, Any]


# ---- elementwise functions ----------------------------------------------------------------------

_FUNCTIONS: dict[str, tuple[ElementwiseFn, int, dict[str, Any]]] = {
    "rsqrt": (rows.RSQRT, 1, {"accuracy": None}), "logistic": (rows.SIGMOID, 1, {"accuracy": None}),
    "sign": (rows.SIGN, 1, {}), "is_finite": (rows.ISFINITE, 1, {}),
    "exp2": (rows.EXP2, 1, {"accuracy": None}), "sinh": (rows.SINH, 1, {}),
    "cosh": (rows.COSH, 1, {}), "atan2": (rows.ARCTAN2, 2, {}),
    "acos": (ElementwiseFn("arccos", "inexact", elementwise_math.arccos), 1, {}),
    "asinh": (ElementwiseFn("arcsinh", "inexact", elementwise_math.arcsinh), 1, {}),
    "acosh": (ElementwiseFn("arccosh", "inexact", elementwise_math.arccosh), 1, {}),
    "atanh": (ElementwiseFn("arctanh", "inexact", elementwise_math.arctanh), 1, {}),
    "nextafter": (ElementwiseFn("nextafter", "inexact", elementwise_math.nextafter, True), 2, {}),
    "erf_inv": (error_functions.ERF_INV, 1, {}),
    "bessel_i0e": (bessel.I0E, 1, {}), "bessel_i1e": (bessel.I1E, 1, {})}


def _build_function(fn: ElementwiseFn) -> Callable[..., Array]:
    def compute(*args: Any, accuracy: Any = None) -> Array:
        arrays = [asarray(x) for x in args]
        t, weak = join_dtypes([(x._dtype, x.weak) for x in arrays])
        shape = max((x.shape for x in arrays), key=len)
        node = fn.build(*[build.expand(build.cast(x._node, t), shape) for x in arrays])
        return Array(node, weak and not node.dtype.is_bool)
    return compute


def _template(name: str, t: DType, shape: tuple[int, ...]) -> UOp | None:
    fn, n, _ = _FUNCTIONS[name]
    if not t.is_inexact and name != "sign":
        return None
    try:
        return fn.build(*[build.param(i, t, shape) for i in range(n)])
    except FnxError:  # no function of this dtype
        return None


_names_by_root: dict[DType, dict[ops.Op, list[str]]] = {}  # of those that were asked for


def _functions_by_root(t: DType) -> dict[ops.Op, list[str]]:
    """Return the functions of a dtype by the op of their last node."""
    if t not in _names_by_root:
        names: dict[ops.Op, list[str]] = {}
        for name in _FUNCTIONS:
            template = _template(name, t, ())
            if template is not None and template.op is not ops.PARAM:
                names.setdefault(template.op, []).append(name)
        _names_by_root[t] = names
    return _names_by_root[t]


def _candidates(node: UOp) -> Iterator[tuple[str, UOp | None, dict[str, Any]]]:
    for t in (node.dtype, *_OPERAND_DTYPES) if node.dtype.is_bool else (node.dtype,):
        for name in _functions_by_root(t).get(node.op, ()):
            yield name, _template(name, t, node.shape), _FUNCTIONS[name][2]


_OPERAND_DTYPES = (dtypes.float32, dtypes.float64)  # of functions with a bool result


def composite_view(node: UOp) -> View | None:
    """Return an elementwise function as an equation, or None."""
    for name, template, params in _candidates(node):
        binding: dict[UOp, UOp] = {}
        if template is not None and _unify(template, node, binding, set()):
            operands = [binding[p] for p in sorted(binding, key=lambda p: p.arg.slot)]
            if len(operands) == _FUNCTIONS[name][1]:
                return View(built_in(name), operands, params)
    return None


def _unify(template: UOp, node: UOp, binding: dict[UOp, UOp], done: set[tuple[int, int]]) -> bool:
    """Whether a node is a template, but for what its PARAMs are bound to."""
    if template.op is ops.PARAM:
        return binding.setdefault(template, node) is node and node.dtype is template.dtype \
            and node.shape == template.shape
    key = id(template), id(node)
    if key in done:
        return True
    if template.op is not node.op or template.arg != node.arg or \
            template.dtype is not node.dtype or len(template.src) != len(node.src):
        return False
    orders = [node.src, node.src[::-1]] if node.op.commutative and len(node.src) == 2 else \
        [node.src]
    for order in orders:
        tried = dict(binding)
        if all(_unify(a, b, tried, done) for a, b in zip(template.src, order)):
            binding.update(tried)
            done.add(key)
            return True
    return False


# ---- contractions -------------------------------------------------------------------------------


def contraction_view(node: UOp) -> View | None:
    """Return a sum of products of two arrays that are broadcast as ``dot_general``, or None."""
    product, axes = node.src[0], node.arg.axes
    if node.arg.monoid is not ops.ADD or product.op is not ops.MUL or product.dtype.is_bool:
        return None
    factors = [_base(x) for x in product.src]
    for (x, x_axes), (y, y_axes) in (factors, factors[::-1]):
        shared = [a for a in x_axes if a in y_axes]
        batch = [a for a in shared if a not in axes]
        left = [a for a in x_axes if a not in y_axes]
        right = [a for a in y_axes if a not in x_axes]
        order = [a for a in range(len(product.shape)) if a not in axes]
        if None in (*x_axes, *y_axes) or not left and not right or \
                batch + left + right != order or not set(axes) <= set(shared):
            continue
        numbers = tuple([tuple([tuple(map(of.index, group)) for of in (x_axes, y_axes)])
                         for group in (axes, batch)])
        return View(built_in("dot_general"), (x, y), {
            "dimension_numbers": numbers, "precision": None,
            "preferred_element_type": low_precision.public_dtype(node.dtype),
            "out_sharding": None})
    return None


def _base(node: UOp) -> tuple[UOp, list[int | None]]:
    """Return what a factor broadcasts, and the axis of the product of each of its axes."""
    axes: list[int | None] = list(range(len(node.shape)))
    while True:
        if node.op is ops.EXPAND:
            x = node.src[0]
            axes = [None if m == 1 != n else a for a, m, n in zip(axes, x.shape, node.shape)]
        elif node.op is ops.PERMUTE:
            axes = [axes[node.arg.index(i)] for i in range(len(axes))]
        elif node.op is ops.RESHAPE and None in axes and (
                inserted := inserted_axes(node.src[0].shape, node.shape)) is not None:
            if any(axes[i] is not None for i in inserted):
                return node, axes
            axes = [a for i, a in enumerate(axes) if i not in inserted]
        else:
            return node, axes
        node = node.src[0]


def _dot_general(x: Any, y: Any, *, dimension_numbers: Any, precision: Any = None,
                 preferred_element_type: Any = None, out_sharding: Any = None) -> Array:
    arrays = [asarray(x), asarray(y)]
    t, weak = join_dtypes([(a._dtype, a.weak) for a in arrays])
    if preferred_element_type is not None:
        t = dtypes.as_dtype(preferred_element_type)
    (contracted_x, contracted_y), (batch_x, batch_y) = dimension_numbers
    n = len(batch_x)
    a, left = _with_order(build.cast(arrays[0]._node, t), batch_x, contracted_x)
    b, right = _with_order(build.cast(arrays[1]._node, t), batch_y, contracted_y)
    wide = (*a.shape[:n + left], *b.shape[n:n + right], *b.shape[n + right:])
    a = build.reshape(a, (*a.shape[:n + left], *[1] * right, *a.shape[n + left:]))
    b = build.reshape(b, (*b.shape[:n], *[1] * left, *b.shape[n:]))
    product = build.mul(build.expand(a, wide), build.expand(b, wide))
    summed = range(n + left + right, len(wide))
    node = build.reduce(product, ops.ADD.for_dtype(t), tuple(summed)) if summed else product
    return Array(node, weak)


def _with_order(x: UOp, batch: Sequence[int], contracted: Sequence[int]) -> tuple[UOp, int]:
    """Return x with the batch axes first and the contracted ones last, and how many others."""
    others = [i for i in range(len(x.shape)) if i not in batch and i not in contracted]
    return build.permute(x, (*batch, *others, *contracted)), len(others)


for _name in _FUNCTIONS:
    define(_name, _build_function(_FUNCTIONS[_name][0]))
define("dot_general", _dot_general)
