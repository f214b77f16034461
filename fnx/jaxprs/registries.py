"""The tables of the rules of primitives, and the values that rules get and return.

``fnx.interpreters`` has the functions that fill them.

>>> Zero(ShapedArray((3,), "float32"))
Zero(float32[3])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array.abstract_values import FLOAT0, Float0Aval, ShapedArray
from fnx.core.array.array import Array
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.ir import build, dtypes
from fnx.core.support.record import Record

if TYPE_CHECKING:
    from fnx.jaxprs.primitive import Primitive

Rule = Callable[..., Any]

primitive_jvps: dict[Primitive, Rule] = {}
primitive_transposes: dict[Primitive, Rule] = {}
fancy_primitive_batchers: dict[Primitive, Rule] = {}
lowerings: dict[Primitive, dict[str | None, Rule]] = {}  # by platform; None: all others


class Labelled(Record):
    """What a CALL of an identity with a label is in jaxprs.

    Attributes:
        primitive: the name of its primitive.
        params: label -> the params, or None if it is that of a derived function.
        build: builds it from an array and the params.
    """

    primitive: str
    params: Callable[[str], dict[str, Any] | None]
    build: Callable[..., Any]


labelled: dict[str, Labelled] = {}  # by the beginning of the label


class _WithoutValue:
    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval})"


class Zero(_WithoutValue):
    """A tangent or cotangent that is zero, whatever the values are.

    Args:
        aval: its shape and dtype.
    """

    __slots__ = ()

    def instantiate(self) -> Any:
        """Return an array of zeros."""
        return zeros_like_aval(self.aval)

    @staticmethod
    def from_primal_value(val: Any) -> Zero:
        """Return the zero tangent of a value."""
        return Zero(ShapedArray(val.shape, val.dtype))


class UndefinedPrimal(_WithoutValue):
    """An operand in which an equation is linear, for a transpose rule: it has no value.

    Args:
        aval: its shape and dtype.
    """

    __slots__ = ()


register_pytree_node(Zero, lambda z: ((), z.aval), lambda aval, _: Zero(aval))
register_pytree_node(UndefinedPrimal, lambda z: ((), z.aval),
                     lambda aval, _: UndefinedPrimal(aval))


def zeros_like_aval(aval: Any) -> Any:
    """Return an array of zeros of a shape and a dtype; of float0, NumPy data."""
    if aval.dtype == FLOAT0:
        return np.zeros(aval.shape, FLOAT0)
    return Array(build.const(0, dtypes.as_dtype(aval.dtype), tuple(aval.shape)))


def tangent_aval(shape: tuple[int, ...], dtype: dtypes.DType) -> Any:
    """Return the type of tangents: dtype float0 for numbers without derivatives."""
    return ShapedArray(shape, dtype.np) if dtype.is_inexact else Float0Aval(shape)


class AxisData(Record):
    """The axis that a batching rule adds: its name (None: it has none) and size."""

    name: Any
    size: int
    spmd_name: Any = None
    explicit_mesh_axis: Any = None


class BatcherTable(MutableMapping["Primitive", Rule]):
    """Batching rules ``rule(args, dims, **params)``, a view of ``fancy_primitive_batchers``, whose
    rules take an AxisData first."""

    def __setitem__(self, primitive: Primitive, rule: Rule) -> None:
        def batched(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
            return rule(args, dims, **params)
        batched.__wrapped__ = rule  # type: ignore[attr-defined]
        fancy_primitive_batchers[primitive] = batched

    def __getitem__(self, primitive: Primitive) -> Rule:
        rule = fancy_primitive_batchers[primitive]
        plain: Rule = getattr(rule, "__wrapped__", rule)
        return plain

    def __delitem__(self, primitive: Primitive) -> None:
        del fancy_primitive_batchers[primitive]

    def __iter__(self) -> Iterator[Primitive]:
        return iter(fancy_primitive_batchers)

    def __len__(self) -> int:
        return len(fancy_primitive_batchers)


class AxisBatcherTable(BatcherTable):
    """Batching rules ``rule(axis_size, axis_name, None, args, dims, **params)``."""

    def __setitem__(self, primitive: Primitive, rule: Rule) -> None:
        def batched(axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
            return rule(axis.size, axis.name, None, args, dims, **params)
        batched.__wrapped__ = rule  # type: ignore[attr-defined]
        fancy_primitive_batchers[primitive] = batched


primitive_batchers = BatcherTable()
axis_primitive_batchers = AxisBatcherTable()
