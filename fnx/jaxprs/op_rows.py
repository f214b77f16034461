"""The table of ops and primitives: one row says how a node is seen as an equation, and back.

    op        primitive           params from the node             node from operands and params
    ADD       add                                                  build.add(x, y)
    REDUCE    reduce_sum, ...     axes = arg.axes                  build.reduce(x, monoid, axes)
    EXPAND    broadcast_in_dim    shape = shape of the result      build.expand(reshape(x), shape)

A node without a row is an equation, too: its primitive has the name of the op, its param ``arg``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fnx.core.array.api_boundary import asarray, join_dtypes
from fnx.core.array.array import Array
from fnx.core.array.array_operators import slice_by_params
from fnx.core.ir import build, build_named_axes, dtypes, low_precision, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import DTypeError, ShapeError
from fnx.jaxprs.gather_rows import gather_row, scatter_row
from fnx.jaxprs.primitive import built_in, define
from fnx.jaxprs.shapes import inserted_axes
from fnx.jaxprs.templates import View, composite_view, contraction_view
from fnx.lower.tensor.fuse_argreduce import fuse_pair

# ---- elementwise --------------------------------------------------------------------------------

# op -> the primitive, and its params that are always the same
_NAMES: dict[Op, str] = {
    ops.NEG: "neg", ops.ABS: "abs", ops.NOT: "not", ops.SQRT: "sqrt", ops.CBRT: "cbrt",
    ops.EXP: "exp", ops.EXPM1: "expm1", ops.LOG: "log", ops.LOG1P: "log1p", ops.SIN: "sin",
    ops.COS: "cos", ops.TAN: "tan", ops.ATAN: "atan", ops.ASIN: "asin", ops.TANH: "tanh",
    ops.FLOOR: "floor", ops.CEIL: "ceil", ops.TRUNC: "trunc", ops.ERF: "erf",
    ops.ERFC: "erfc", ops.LGAMMA: "lgamma", ops.DIGAMMA: "digamma", ops.REAL: "real",
    ops.IMAG: "imag", ops.COMPLEX: "complex", ops.AND: "and", ops.OR: "or", ops.XOR: "xor",
    ops.ADD: "add", ops.SUB: "sub", ops.MUL: "mul", ops.DIV: "div", ops.IDIV: "div",
    ops.REM: "rem", ops.POW: "pow", ops.MAX: "max", ops.MIN: "min",
    ops.LOGADDEXP: "logaddexp", ops.CMPLT: "lt", ops.CMPLE: "le", ops.CMPEQ: "eq",
    ops.CMPNE: "ne", ops.SHL: "shift_left", ops.MULACC: "fma", ops.ROUND: "round",
}
_WITH_ACCURACY = frozenset({"sqrt", "cbrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan",
                            "tanh"})
_MIRRORED = {"lt": "gt", "le": "ge"}  # of a literal first: 0 < x is x > 0
_TO_NEAREST_EVEN = 1  # lax.RoundingMethod


def common_operands(args: Sequence[Any]) -> tuple[list[UOp], bool]:
    """Return operands as nodes of one shape and dtype, and whether it is weak: scalars are
    broadcast, and Python numbers take the dtype of the others."""
    arrays = [asarray(x) for x in args]
    strong = list(dict.fromkeys([x._dtype for x in arrays if not x.weak]))
    if len(strong) > 1:
        raise DTypeError(f"expected operands of one dtype, got {' and '.join(map(str, strong))}",
                         hint="the functions of fnx.numpy convert operands; primitives do not")
    t, weak = join_dtypes([(x._dtype, x.weak) for x in arrays])
    shape = max((x.shape for x in arrays), key=len)
    for x in arrays:
        if x.shape not in ((), shape):
            raise ShapeError(f"expected operands of one shape, got "
                             f"{' and '.join(str(a.shape) for a in arrays)}")
    return [build.expand(build.cast(x._node, t), shape) for x in arrays], weak


def _build_elementwise(op: Op, mirrored: bool = False) -> Callable[..., Array]:
    def compute(*args: Any, accuracy: Any = None, out_dtype: Any = None) -> Array:
        nodes, weak = common_operands(args[::-1] if mirrored else args)
        if out_dtype is not None:
            nodes, weak = [build.cast(x, dtypes.as_dtype(out_dtype)) for x in nodes], False
        chosen = op.for_dtype(nodes[0].dtype)
        if chosen in (ops.DIV, ops.IDIV):
            chosen = ops.DIV if nodes[0].dtype.is_inexact else ops.IDIV
        node = build.elementwise(chosen, *nodes)
        return Array(node, weak and not node.dtype.is_bool)
    return compute


def _build_round(x: Any, *, rounding_method: Any = _TO_NEAREST_EVEN) -> Array:
    return _build_elementwise(ops.ROUND)(x)


def literal_of(node: UOp) -> UOp | None:
    """Return the CONST that a node broadcasts, or None."""
    while node.op in (ops.EXPAND, ops.RESHAPE):
        node = node.src[0]
    return node if node.op is ops.CONST else None


def scalar_operands(src: Sequence[UOp]) -> list[UOp]:
    """Return operands with broadcast constants as scalars, unless all are constants."""
    literals = [literal_of(x) for x in src]
    if all(x is not None for x in literals):
        return list(src)
    return [x if c is None else c for x, c in zip(src, literals)]


def _elementwise(node: UOp) -> View:
    name, operands = _NAMES[node.op], scalar_operands(node.src)
    if name in _MIRRORED and operands[0].op is ops.CONST:
        return View(built_in(_MIRRORED[name]), operands[::-1], {})
    if node.op.commutative and operands[0].op is ops.CONST:
        operands = operands[::-1]
    params: dict[str, Any] = {"accuracy": None} if name in _WITH_ACCURACY else \
        {"out_dtype": None} if name == "mul" else \
        {"rounding_method": _TO_NEAREST_EVEN} if name == "round" else {}
    return View(built_in(name), operands, params)


def _shift_right(node: UOp) -> View:
    signed = node.dtype.kind == "int"
    name = "shift_right_arithmetic" if signed else "shift_right_logical"
    return View(built_in(name), scalar_operands(node.src), {})


def _build_shift_right(kind: str) -> Callable[..., Array]:
    def compute(x: Any, y: Any) -> Array:
        (a, b), weak = common_operands([x, y])
        as_kind = dtypes.as_dtype(a.dtype.name.replace("uint", "int") if kind == "int" else
                                  "u" + a.dtype.name.removeprefix("u"))
        shifted = build.elementwise(ops.SHR, build.bitcast(a, as_kind), build.bitcast(b, as_kind))
        return Array(build.bitcast(shifted, a.dtype), weak)
    return compute


def _where(node: UOp) -> View:
    return View(built_in("select_n"), [node.src[0], *node.src[:0:-1]], {})


def _select_n(which: Any, *cases: Any) -> Array:
    nodes, weak = common_operands(cases)
    condition = asarray(which)._node
    if len(nodes) == 1:
        return Array(nodes[0], weak)
    if condition.dtype.is_bool:
        return Array(build.where(build.expand(condition, nodes[0].shape), nodes[1], nodes[0]),
                     weak)
    result = nodes[-1]
    for i in range(len(nodes) - 2, -1, -1):
        at_most = build.le(condition, build.const_like(condition, i))
        result = build.where(build.expand(at_most, result.shape), nodes[i], result)
    return Array(result, weak)


# ---- dtypes and shapes --------------------------------------------------------------------------


def _np(t: DType) -> Any:
    return low_precision.public_dtype(t)


def _cast(node: UOp) -> View:
    return View(built_in("convert_element_type"), node.src,
                {"new_dtype": _np(node.dtype), "weak_type": False, "sharding": None})


def _convert(x: Any, *, new_dtype: Any, weak_type: bool = False, sharding: Any = None) -> Array:
    return Array(build.cast(asarray(x)._node, dtypes.as_dtype(new_dtype)), weak_type)


def _bitcast(node: UOp) -> View:
    return View(built_in("bitcast_convert_type"), node.src, {"new_dtype": _np(node.dtype)})


def _build_bitcast(x: Any, *, new_dtype: Any) -> Array:
    return Array(build.bitcast(asarray(x)._node, dtypes.as_dtype(new_dtype)))


def _reshape(node: UOp) -> View:
    x = node.src[0]
    inserted = inserted_axes(x.shape, node.shape)
    if inserted is not None:
        return _broadcast_view(x, node.shape, inserted)
    removed = inserted_axes(node.shape, x.shape)
    if removed is not None:
        return View(built_in("squeeze"), (x,), {"dimensions": tuple(removed)})
    return View(built_in("reshape"), (x,),
                {"new_sizes": node.shape, "dimensions": None, "sharding": None})


def _squeeze(x: Any, *, dimensions: Sequence[int]) -> Array:
    node = asarray(x)._node
    return Array(build.reshape(node, tuple(
        [n for i, n in enumerate(node.shape) if i not in dimensions])))


def _build_reshape(x: Any, *, new_sizes: Sequence[int], dimensions: Any = None,
                   sharding: Any = None) -> Array:
    node = asarray(x)._node
    return Array(build.reshape(node if dimensions is None else build.permute(node, dimensions),
                               tuple(new_sizes)))


def _broadcast_view(x: UOp, shape: Sequence[int], inserted: Sequence[int]) -> View:
    dims = tuple([i for i in range(len(shape)) if i not in inserted])
    return View(built_in("broadcast_in_dim"), (x,),
                {"shape": tuple(shape), "broadcast_dimensions": dims, "sharding": None})


def _broadcast_in_dim(x: Any, *, shape: Sequence[int], broadcast_dimensions: Sequence[int],
                      sharding: Any = None) -> Array:
    node, dims = asarray(x)._node, list(broadcast_dimensions)
    if len(dims) != len(node.shape):
        raise ShapeError(f"broadcast_in_dim: expected {len(node.shape)} broadcast_dimensions, one "
                         f"for each axis of {node.shape}, got {tuple(dims)}")
    wide = [1] * len(shape)
    for i, n in zip(dims, node.shape):
        wide[i] = n
    return Array(build.expand(build.reshape(node, tuple(wide)), tuple(shape)))


def _expand(node: UOp) -> View:
    x = node.src[0]
    if x.op is ops.RESHAPE:
        base = x.src[0]
        inserted = inserted_axes(base.shape, x.shape)
        if inserted is not None:
            return _broadcast_view(base, node.shape, inserted)
    return _broadcast_view(x, node.shape, ())


def _permute(node: UOp) -> View:
    return View(built_in("transpose"), node.src, {"permutation": node.arg})


def _build_transpose(x: Any, *, permutation: Sequence[int]) -> Array:
    return Array(build.permute(asarray(x)._node, tuple(permutation)))


def _pad(node: UOp) -> View:
    return View(built_in("pad"), node.src,
                {"padding_config": tuple([(lo, hi, 0) for lo, hi in node.arg])})


def _build_pad(x: Any, value: Any, *, padding_config: Any) -> Array:
    node = asarray(x)._node
    fill = build.cast(asarray(value)._node, node.dtype)
    for axis, (_, _, inner) in enumerate(padding_config):
        node = _dilate(node, axis, inner, fill) if inner else node
    crop = [(max(0, -lo), n - max(0, -hi)) for (lo, hi, _), n in zip(padding_config, node.shape)]
    return Array(build.pad(build.shrink(node, crop),
                           [(max(0, lo), max(0, hi)) for lo, hi, _ in padding_config], fill))


def _dilate(x: UOp, axis: int, inner: int, fill: UOp) -> UOp:
    """Insert ``inner`` fills between elements of an axis."""
    shape = x.shape
    if shape[axis] < 2:
        return x
    wide = build.reshape(x, (*shape[:axis + 1], 1, *shape[axis + 1:]))
    padded = build.pad(wide, [(0, inner if i == axis + 1 else 0) for i in range(len(wide.shape))],
                       fill)
    n = shape[axis] * (inner + 1)
    flat = build.reshape(padded, (*shape[:axis], n, *shape[axis + 1:]))
    return build.shrink(flat, [(0, n - inner if i == axis else m)
                               for i, m in enumerate(flat.shape)])


def _shrink(node: UOp) -> View:
    return View(built_in("slice"), node.src, {
        "start_indices": tuple([lo for lo, _ in node.arg]),
        "limit_indices": tuple([hi for _, hi in node.arg]), "strides": None})


def _flip(node: UOp) -> View:
    return View(built_in("rev"), node.src, {"dimensions": node.arg})


def _build_rev(x: Any, *, dimensions: Sequence[int]) -> Array:
    return Array(build.flip(asarray(x)._node, tuple(dimensions)))


def _concat(node: UOp) -> View:
    return View(built_in("concatenate"), node.src, {"dimension": node.arg})


def _build_concatenate(*xs: Any, dimension: int) -> Array:
    return Array(build.concat([asarray(x)._node for x in xs], dimension))


def _iota(node: UOp) -> View:
    return View(built_in("iota"), (), {
        "dtype": _np(node.dtype), "shape": node.shape, "dimension": 0, "sharding": None})


def _build_iota(*, dtype: Any, shape: Sequence[int], dimension: int, sharding: Any = None
                ) -> Array:
    along = [n if i == dimension else 1 for i, n in enumerate(shape)]
    t = dtypes.as_dtype(dtype)
    node = build.iota(shape[dimension], t) if t.is_integer else \
        build.cast(build.iota(shape[dimension]), t)
    return Array(build.expand(build.reshape(node, tuple(along)), tuple(shape)))


def _stop_gradient(node: UOp) -> View:
    return View(built_in("stop_gradient"), node.src, {})


def _build_stop_gradient(x: Any) -> Array:
    return Array(build.stop_gradient(asarray(x)._node))


def _all_gather(node: UOp) -> View:
    axis = node.arg
    return View(built_in("all_gather"), node.src, {
        "all_gather_dimension": 0, "axis_name": (axis.name,), "axis_index_groups": None,
        "axis_size": axis.size, "tiled": False})


def _build_all_gather(x: Any, *, axis_name: tuple[Hashable], **params: Any) -> Array:
    return Array(build_named_axes.all_gather(asarray(x)._node, scope.named_axis(axis_name[0])))


def _axis_index(node: UOp) -> View:
    return View(built_in("axis_index"), (), {"axis_name": node.arg.name})


def _build_axis_index(*, axis_name: Hashable) -> Array:
    return Array(build_named_axes.axis_index(scope.named_axis(axis_name)))


def _summed_or_varying(node: UOp) -> View:
    return View(built_in(node.op.name.lower()), node.src, {"axis_name": node.arg.name})


def _build_pvary_like(x: Any, like: Any, *, axis_name: Hashable) -> Array:
    return Array(build_named_axes.pvary_like(asarray(x)._node, asarray(like)._node,
                                  scope.named_axis(axis_name)))


def _build_psum_like(x: Any, like: Any, *, axis_name: Hashable) -> Array:
    return Array(build_named_axes.psum_like(asarray(x)._node, asarray(like)._node,
                                 scope.named_axis(axis_name)))


def _barrier(node: UOp) -> View:
    return View(built_in("optimization_barrier"), node.src, {})


def _build_barrier(*xs: Any) -> list[Array]:
    nodes = [asarray(x)._node for x in xs]
    return [Array(build.barrier(x, *nodes[:i], *nodes[i + 1:])) for i, x in enumerate(nodes)]


# ---- reductions ---------------------------------------------------------------------------------

_REDUCTIONS: dict[Op, str] = {
    ops.ADD: "reduce_sum", ops.MUL: "reduce_prod", ops.MAX: "reduce_max", ops.MIN: "reduce_min",
    ops.AND: "reduce_and", ops.OR: "reduce_or", ops.XOR: "reduce_xor",
    ops.LOGADDEXP: "reduce_logaddexp"}


def _reduce(node: UOp) -> View | None:
    arg = node.arg
    if node.src[0].op is ops.ARG_PAIR:
        return _arg_reduce(node)
    pair = fuse_pair(node, node.src)
    if pair is not None and (extreme := _arg_reduce(pair)) is not None:
        return extreme
    params: dict[str, Any] = {"axes": arg.axes}
    if arg.monoid is ops.ADD:
        params["out_sharding"] = None
    contraction = contraction_view(node)
    if contraction is not None:
        return contraction
    if arg.first:
        return None  # of a function that gives the derivative to one element
    return View(built_in(_REDUCTIONS[arg.monoid]), node.src, params)


def _build_reduce(monoid: Op) -> Callable[..., Array]:
    def compute(x: Any, *, axes: Sequence[int], out_sharding: Any = None) -> Array:
        node = asarray(x)._node
        return Array(build.reduce(node, monoid.for_dtype(node.dtype), axes))
    return compute


def _arg_reduce(node: UOp) -> View | None:
    key, index = node.src[0].src
    axes = node.arg.axes
    if len(axes) != 1 or index is not indices_along(key.shape, axes[0], index.dtype):
        return None
    name = "argmax" if node.arg.monoid is ops.MAX else "argmin"
    return View(built_in(name), (key,),
                {"axes": axes, "index_dtype": _np(index.dtype)})


def indices_along(shape: Sequence[int], axis: int, t: DType) -> UOp:
    wide = tuple([n if i == axis else 1 for i, n in enumerate(shape)])
    return build.expand(build.reshape(build.iota(shape[axis], t), wide), tuple(shape))


def _build_arg_reduce(monoid: Op) -> Callable[..., Array]:
    def compute(x: Any, *, axes: Sequence[int], index_dtype: Any) -> Array:
        node, (axis,) = asarray(x)._node, axes
        index = indices_along(node.shape, axis, dtypes.as_dtype(index_dtype))
        return Array(build.reduce(build.arg_pair(node, index), monoid, axes))
    return compute


# ---- the table ----------------------------------------------------------------------------------

_BUILDERS: dict[str, Callable[..., Array]] = {
    **{name: _build_elementwise(op) for op, name in _NAMES.items()},
    "round": _build_round,
    "gt": _build_elementwise(ops.CMPLT, mirrored=True),
    "ge": _build_elementwise(ops.CMPLE, mirrored=True),
    "shift_right_logical": _build_shift_right("uint"),
    "shift_right_arithmetic": _build_shift_right("int"),
    **{name: _build_reduce(op) for op, name in _REDUCTIONS.items()},
    "argmax": _build_arg_reduce(ops.MAX), "argmin": _build_arg_reduce(ops.MIN),
    "select_n": _select_n, "convert_element_type": _convert,
    "bitcast_convert_type": _build_bitcast, "squeeze": _squeeze, "reshape": _build_reshape,
    "broadcast_in_dim": _broadcast_in_dim, "transpose": _build_transpose, "pad": _build_pad,
    "slice": slice_by_params, "rev": _build_rev, "concatenate": _build_concatenate,
    "all_gather": _build_all_gather, "axis_index": _build_axis_index,
    "pvary_like": _build_pvary_like, "psum_like": _build_psum_like,
    "iota": _build_iota, "stop_gradient": _build_stop_gradient}
for _name, _build in _BUILDERS.items():
    define(_name, _build)
define("optimization_barrier", _build_barrier, multiple_results=True)

ROWS: dict[Op, Callable[[UOp], View | None]] = {
    **dict.fromkeys(_NAMES, _elementwise), ops.SHR: _shift_right, ops.WHERE: _where,
    ops.CAST: _cast, ops.BITCAST: _bitcast, ops.RESHAPE: _reshape, ops.EXPAND: _expand,
    ops.PERMUTE: _permute, ops.PAD: _pad, ops.SHRINK: _shrink, ops.FLIP: _flip,
    ops.GATHER: gather_row, ops.SCATTER: scatter_row, ops.BARRIER: _barrier,
    ops.ALL_GATHER: _all_gather, ops.AXIS_INDEX: _axis_index,
    ops.PVARY_LIKE: _summed_or_varying, ops.PSUM_LIKE: _summed_or_varying,
    ops.CONCAT: _concat, ops.IOTA: _iota, ops.STOP_GRADIENT: _stop_gradient, ops.REDUCE: _reduce,
}


def node_view(node: UOp) -> View:
    """Return a node with one result as an equation."""
    row = ROWS.get(node.op)
    view = composite_view(node) or (None if row is None else row(node))
    return view or View(define(f"{node.op.name.lower()}_op", _rebuild(node.op)), node.src,
                        {"dtype": node.dtype, "arg": node.arg})


def _rebuild(op: Op) -> Callable[..., Array]:
    def compute(*args: Any, dtype: DType, arg: Any) -> Array:
        return Array(UOp(op, dtype, tuple([asarray(x)._node for x in args]), arg))
    return compute


def literal_value(node: UOp) -> Any:
    """Return the number of a CONST: a Python number if its dtype is the default, else NumPy's."""
    value = build.const_of(node)
    default = {"float": dtypes.float32, "int": dtypes.int32, "bool": dtypes.bool_}
    if default.get(node.dtype.kind) is node.dtype:
        return value
    return np.asarray(ops.const_value(node))[()]
