"""Promotion: convert operands of a function to nodes of one dtype and one shape.

Operands are Arrays, NumPy data and Python numbers. A number is weak: it becomes a constant of the
dtype of the others. That dtype is the join in JAX's lattice (core/dtypes.py), adapted by the
domain of the function (core/array/elementwise.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core import build, dtypes
from fnx.core.array import axes, convert
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.elementwise import DOMAINS
from fnx.core.array.public import asarray, kind_of, promoted_kind
from fnx.core.cache import Cache
from fnx.core.dtypes import DType
from fnx.core.errors import DTypeError, ShapeError
from fnx.core.ops import Shape
from fnx.core.uop import UOp


def operand(x: Any) -> Any:
    """Convert an operand to an Array, unless it is one or a Python scalar."""
    if type(x) is Array or type(x) in convert.SCALARS:
        return x
    if isinstance(x, (list, tuple)):
        raise DTypeError(f"expected an array or a number, got {type(x).__name__}",
                         hint="convert it with fnx.numpy.asarray(...)")
    return asarray(x)


def promoted(domain: str, name: str, xs: Sequence[Any], *, broadcast: bool = True
             ) -> tuple[list[UOp], bool]:
    """Return the operands as nodes of one dtype and shape, and whether the result is weak."""
    xs = [operand(x) for x in xs]
    t, weak = promoted_kind(map(kind_of, xs))
    to = DOMAINS[domain](name, t)
    nodes = [as_node(x, to) for x in xs if type(x) is Array]
    if broadcast and len(nodes) > 1:
        nodes = same_shape(name, nodes)
    if len(nodes) < len(xs):  # insert the numbers between the arrays
        shape = nodes[0].shape if nodes and broadcast else ()
        rest = iter(nodes)
        nodes = [next(rest) if type(x) is Array else number(x, to, shape) for x in xs]
    return nodes, weak and to.kind != "bool"


def in_domain(domain: str, a: ArrayLike, dtype: DTypeLike | None = None) -> UOp:
    """Return the node of one operand as ``dtype``, by default the dtype that the domain asks for.
    """
    x = asarray(a)
    to = DOMAINS[domain]("", x._dtype) if dtype is None else \
        convert.dtype_argument(dtype)
    return as_node(x, to)


_numbers: Cache[Any, UOp] = Cache("numbers", 512)


def number(x: Any, to: DType, shape: Shape) -> UOp:
    """Return a Python number as a constant, cached because eager loops reuse the same numbers."""
    if x == 0 and type(x) is float:  # 0.0 and -0.0 are equal as keys
        return build.const(convert.wrapped(x, to), to, shape)
    key = (type(x), x, to, shape)
    node = _numbers.get(key)
    if node is None:
        node = _numbers.keep(key, build.const(convert.wrapped(x, to), to, shape))
    return node


def same_shape(name: str, nodes: list[UOp]) -> list[UOp]:
    """Broadcast nodes to one shape."""
    first = nodes[0].shape
    if all(n.shape == first for n in nodes):
        return nodes
    try:
        shape = axes.broadcast_shapes(*[n.shape for n in nodes])
    except ShapeError as e:
        raise ShapeError(f"{name}: {e.message}", hint=e.hint) from None
    return [build.expand(n, shape) for n in nodes]


def as_node(x: Any, to: DType) -> UOp:
    """Return the node of an operand, cast to a dtype."""
    if type(x) is Array:
        node = x._node
        if node.dtype is to:
            return node
        if node.dtype.kind == "key":
            raise dtypes.not_numbers()
        return build.ne(node, build.like(node, 0)) if to.is_bool and \
            not node.dtype.is_bool else build.cast(node, to)
    return build.const(convert.wrapped(x, to), to)
