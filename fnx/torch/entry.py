"""Entries of the op table: how fnx computes an op of ATen.

An entry's function takes the arguments of the op, with Arrays for tensors. PyTorch's own rule
(``torch._prims_common.elementwise_dtypes``) says in which dtype a pointwise op computes; the result
of every op gets the dtype that PyTorch recorded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes

from fnx.core.array.array import Array
from fnx.core.support.errors import FnxError, OutOfBoundsError
from fnx.core.support.record import Record

Function = Callable[..., Any]
Numbers = (torch.Tensor, int, float, complex, torch.SymInt, torch.SymFloat)


class UnsupportedOpError(FnxError):
    """An op, or arguments of it, that the table lacks."""


class Range(Record):
    """Numbers that must be within bounds: ``first <= index < end``.

    Attributes:
        index: the Array of integers.
        first, end: the bounds.
        axis: the axis that they index.
        message: of the error, if it is another than that of an index.
    """

    index: Any
    first: int
    end: int
    axis: int | None = None
    message: str = ""


class TensorIndexError(OutOfBoundsError, RuntimeError):
    """An index out of bounds: what PyTorch raises is an IndexError or a RuntimeError, by the op."""


class OpEntry(Record):
    """How to compute an op.

    Attributes:
        run: its function.
        kind: the promotion of a pointwise op; None: the arguments keep their dtypes.
        operands: the positions of the arguments that take part in promotion.
        takes_node: whether ``run`` takes the node, too, as ``node=``.
        is_random: whether ``run`` takes a key, as ``key=``.
        ranges: returns, of the op's arguments, the ``Range`` of each index.
    """

    run: Function
    kind: Any = None
    operands: tuple[int, ...] = (0, 1)
    takes_node: bool = False
    is_random: bool = False
    ranges: Callable[..., list[Range]] | None = None


Table = dict[str, OpEntry]


def pointwise(kind: Any, functions: Mapping[str, Function],
              operands: tuple[int, ...] = (0, 1)) -> Table:
    """Return the entries of pointwise ops with one kind of promotion."""
    return {name: OpEntry(f, kind, operands) for name, f in functions.items()}


def entries(functions: Mapping[str, Function], *, takes_node: bool = False,
            is_random: bool = False) -> Table:
    """Return the entries of ops whose arguments keep their dtypes."""
    return {name: OpEntry(f, None, (), takes_node, is_random) for name, f in functions.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Return fnx's name of a dtype.

    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def meta_of(node: Any) -> Any:
    """Return the value without data that PyTorch recorded for a node."""
    return node.meta["val"]


def dtype_of(node: Any) -> str:
    """Return the dtype that PyTorch recorded for the result of a node."""
    return dtype_name(meta_of(node).dtype)


def promote(entry: OpEntry, node: Any, args: list[Any]) -> list[Any]:
    """Convert the operands of a pointwise op to the dtype in which it computes."""
    kind = entry.kind(node) if callable(entry.kind) else entry.kind
    chosen = [i for i in entry.operands if i < len(args)
              and (isinstance(args[i], Array | int | float | complex))]
    metas = [meta_of(node.args[i]) if isinstance(node.args[i], torch.fx.Node) else node.args[i]
             for i in chosen]
    dtype = dtype_name(elementwise_dtypes(*metas, type_promotion_kind=kind)[0])
    result = list(args)
    for i in chosen:
        if isinstance(args[i], Array) and args[i].dtype.name != dtype:
            result[i] = args[i].astype(dtype)
    return result


__all__ = ["PROMOTION", "OpEntry", "Range", "Table", "TensorIndexError", "UnsupportedOpError",
           "dtype_name", "dtype_of", "entries", "meta_of", "pointwise", "promote"]
