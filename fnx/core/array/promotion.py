"""Promotion: convert operands of a function to nodes of one dtype and one shape.

Operands are Arrays, NumPy data and Python numbers. A number is weak: it becomes a constant of the
dtype of the others. That dtype is the join in JAX's lattice (core/ir/dtypes.py), adapted by the
domain of the function (core/formulas/elementwise.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.array import axes, convert
from fnx.core.array.api_boundary import asarray, dtype_and_weak, join_dtypes
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.eager_cache import number_cache
from fnx.core.formulas.elementwise import DOMAINS
from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.scope import storage
from fnx.core.support.config import config
from fnx.core.support.errors import DTypeError, ShapeError, warn


def as_operand(x: Any) -> Any:
    """Convert an operand to an Array, unless it is one or a Python scalar."""
    if type(x) is Array or type(x) in convert.SCALAR_DTYPES:
        return x
    if isinstance(x, (list, tuple)):
        raise DTypeError(f"expected an array or a number, got {type(x).__name__}",
                         hint="convert it with fnx.numpy.asarray(...)")
    return asarray(x)


def promote_operands(domain: str, name: str, xs: Sequence[Any], *, broadcast: bool = True
                     ) -> tuple[list[UOp], bool]:
    """Return the operands as nodes of one dtype and shape, and whether the result is weak."""
    xs = [as_operand(x) for x in xs]
    t, weak = join_dtypes(map(dtype_and_weak, xs))
    to = DOMAINS[domain](name, t)
    nodes = [as_node(x, to) for x in xs if type(x) is Array]
    if broadcast and len(nodes) > 1:
        nodes = broadcast_nodes(name, nodes)
    if len(nodes) < len(xs):  # insert the numbers between the arrays
        shape = nodes[0].shape if nodes and broadcast else ()
        node_iter = iter(nodes)
        nodes = [next(node_iter) if type(x) is Array else number_const(x, to, shape) for x in xs]
    return nodes, weak and to.kind != "bool"


def domain_node(domain: str, a: ArrayLike, dtype: DTypeLike | None = None) -> UOp:
    """Return the node of one operand as ``dtype``, by default the dtype that the domain asks for.
    """
    x = asarray(a)
    to = DOMAINS[domain]("", x._dtype) if dtype is None else \
        convert.parse_dtype(dtype)
    return as_node(x, to)


def as_float(x: ArrayLike) -> Array:
    """Convert an operand to an Array of floats that is not weak."""
    return Array(domain_node("inexact", x))


def as_real(x: ArrayLike) -> Array:
    """Convert an operand to an Array of real floats that is not weak."""
    return Array(domain_node("real", x))


def promote_arrays(name: str, *operands: Any, domain: str = "inexact",
                   broadcast: bool = False) -> list[Array]:
    """Convert operands to Arrays of one dtype, by default a float one; the results are not weak."""
    nodes, _ = promote_operands(domain, name, operands, broadcast=broadcast)
    return [Array(node) for node in nodes]


def number_const(x: Any, to: DType, shape: Shape) -> UOp:
    """Return a Python number as a constant, cached because eager loops reuse the same numbers."""
    if x == 0 and type(x) in (float, complex):  # 0.0 and -0.0 are equal as keys
        return build.const(convert.wrap_scalar(x, to), to, shape)
    key = (type(x), x, to, shape)
    node: UOp | None = number_cache.get(key)
    if node is None:
        node = number_cache.put(key, build.const(convert.wrap_scalar(x, to), to, shape))
    return node


def broadcast_nodes(name: str, nodes: list[UOp]) -> list[UOp]:
    """Broadcast nodes to one shape."""
    first = nodes[0].shape
    if all(n.shape == first for n in nodes):
        return nodes
    if config.rank_promotion != "allow":
        _check_ranks(name, [n.shape for n in nodes])
    try:
        shape = axes.broadcast_shapes(*[n.shape for n in nodes])
    except ShapeError as e:
        raise ShapeError(f"{name}: {e.message}", hint=e.hint) from None
    return [build.expand(n, shape) for n in nodes]


def _check_ranks(name: str, shapes: Sequence[Shape]) -> None:
    """Warn or raise, as ``config.rank_promotion`` says, if shapes with axes have other ranks."""
    if len({len(s) for s in shapes if s}) > 1:
        text = f"{name}: expected operands of one rank, got shapes {' and '.join(map(str, shapes))}"
        hint = "insert axes with x[None], or allow rank promotion with numpy_rank_promotion"
        if config.rank_promotion == "raise":
            raise ShapeError(text, hint=hint)
        storage.mark_impure()
        warn(f"{text}; {hint}", UserWarning)


def as_node(x: Any, to: DType) -> UOp:
    """Return the node of an operand, cast to a dtype."""
    if type(x) is Array:
        node = x._node
        if node.dtype is to:
            return node
        if node.dtype.kind == "key":
            raise dtypes.random_key_error()
        return build.ne(node, build.const_like(node, 0)) if to.is_bool and \
            not node.dtype.is_bool else build.cast(node, to)
    return build.const(convert.wrap_scalar(x, to), to)
