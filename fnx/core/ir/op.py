"""The class of op table entries, and functions for them: shape rules, monoid identities, sort keys
of operands. The entries are in ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import add, attrgetter
from typing import Any, Literal, Protocol, TypeVar
from zlib import crc32

import numpy as np

from fnx.core.ir import low_precision
from fnx.core.ir.dtypes import ALL, DType, float32, float64, uint32

OpKind = Literal["source", "elementwise", "movement", "pair", "reduce", "gather", "scatter",
                 "collective", "scope", "host", "sort", "linalg", "fft", "kernel", "program",
                 "command"]
Shape = tuple[int, ...]


_LETTERS = {"float": "f", "complex": "c", "int": "i", "uint": "i", "index": "i", "bool": "b",
            "key": "k", "void": "-"}


class Node(Protocol):
    """The attributes of a node that op entries may use."""

    @property
    def op(self) -> Op: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def src(self) -> tuple[Node, ...]: ...
    @property
    def arg(self) -> Any: ...
    @property
    def shape(self) -> Shape: ...


ShapeRule = Callable[[tuple[Node, ...], Any], Shape]
Meaning = Callable[..., Any]


class Op:
    """One operation. Compared by identity; registered under its name in ``OPS``.

    Attributes:
        levels: subset of "tkpc".
        arity: number of operands, or None if it varies.
        accepts: dtype kinds of the value operands ("f" float, "c" complex, "p" parts of complex
            types, "i" signed and unsigned and index, "w" uint32 only, "b" bool, "k" keys);
            ``types`` are these dtypes.
        result: dtype of the result: "same" as the first operand, "bool", "where" (as the
            second), "void" (no value), "real" (the type of the parts of a complex operand),
            "complex" (the type whose parts the operands are), or "any" if the constructor decides.
        shape: shape of the result from (src, arg); None: that of the first operand. The default
            is None at the tensor level, else the shape of a scalar.
        arg: the type of ``UOp.arg`` (NoneType if the op has none).
        meaning: NumPy value from (node, *operand values). None: the interpreter handles the op.
        symbol: format for the pretty printer, with {0} {1} ... for operands.
        commutative: swapping the operands gives the same bits.
        identity: for a monoid, dtype -> its identity element.
        ufunc: for a monoid, the NumPy ufunc that reduces with it.
        fold: for a monoid, the name of its reduction.
        on_bool: for a monoid on numbers, the equivalent monoid on bools.
        exact: every target gives the bits of ``meaning``; else results agree within ulps.
        cost: cost per element, relative to an addition.
        batching: how the op is batched: "none" (no operands to batch), "elementwise" (the batch
            axis leads all operands), "first" (batch src[0]; the value does not depend on the
            others), "body" (batch the FUNCTION that it calls), else by the rule of its kind.
        binds: which free ranges of the operands the op binds: "nothing", src[0] ("head"),
            those in src[1:] ("tail") or "all"; "itself": the op is a range.
        is_isolated: its operands are in a scope of their own, which traversal does not enter.
        source_key: of a source, arg -> its sort key among the operands of a commutative op.
        content_key: arg -> the part of the arg that orders such operands; it hashes alike in every
            process.
        code: a hash of the name, equal in every process.
    """

    __slots__ = ("__weakref__", "name", "levels", "kind", "arity", "accepts", "result", "shape",
                 "arg", "meaning", "symbol", "commutative", "identity", "ufunc", "fold",
                 "bool_equivalent", "exact", "cost", "batching", "binds", "is_isolated",
                 "source_key", "content_key", "code", "types")

    def __init__(self, name: str, levels: str, kind: OpKind, arity: int | None, *,
                 accepts: str = "fib", result: str = "same", shape: ShapeRule | None = None,
                 arg: type | tuple[type, ...] = type(None), meaning: Meaning | None = None,
                 symbol: str = "", commutative: bool = False,
                 identity: Callable[[DType], Any] | None = None,
                 ufunc: np.ufunc | None = None, fold: str = "", on_bool: Op | None = None,
                 exact: bool = True, cost: int | None = None, batching: str = "",
                 binds: Literal["nothing", "itself", "head", "tail", "all"] = "nothing",
                 is_isolated: bool = False, source_key: Callable[[Any], int] | None = None,
                 content_key: Callable[[Any], Any] | None = None) -> None:
        self.name, self.levels, self.kind, self.arity = name, levels, kind, arity
        self.accepts, self.result, self.arg = accepts, result, arg
        self.shape = shape if shape or "t" in levels else scalar
        self.meaning, self.symbol = meaning, symbol
        self.commutative, self.identity, self.ufunc = commutative, identity, ufunc
        self.fold, self.bool_equivalent, self.exact = fold, on_bool, exact
        self.cost = cost if cost is not None else int(kind == "elementwise")
        self.batching = batching or {"source": "none", "scope": "body"}.get(kind, kind)
        self.binds, self.is_isolated, self.source_key = binds, is_isolated, source_key
        self.content_key = itself if content_key is None and arg in (int, tuple) else content_key
        self.code = crc32(name.encode())
        self.types = frozenset(t for t in ALL if _LETTERS[t.kind] in accepts
                               or t is uint32 and "w" in accepts
                               or t in (float32, float64) and "p" in accepts)
        OPS[name] = self

    def __repr__(self) -> str:
        return self.name

    def accepts_dtype(self, dtype: DType) -> bool:
        """Return whether value operands may have this dtype."""
        return dtype.scalar in self.types

    def for_dtype(self, dtype: DType) -> Op:
        """Return the op that implements this one on values of a dtype."""
        return self.bool_equivalent if self.bool_equivalent is not None and dtype.is_bool else self

    def __reduce__(self) -> Any:
        return (op_by_name, (self.name,))


OPS: dict[str, Op] = {}


def op_by_name(name: str) -> Op:
    """Return the op with this name."""
    return OPS[name]


def scalar(src: tuple[Node, ...], arg: Any) -> Shape:
    """Return the shape of a scalar."""
    return ()


def itself(arg: Any) -> Any:
    """The content key of an int or a tuple."""
    return arg


# ---- op traits ----------------------------------------------------------------------------------


T = TypeVar("T")

# ---- sort keys of the operands of a commutative op, from an arg --------------------------------

LEAF_BITS = 20  # low bits of a LEAF's id: its position in its trace, the same in every trace


last_key = partial(add, 1 << 63)
slot_key, id_key, carry_key = attrgetter("slot"), attrgetter("id"), attrgetter("i")
gather_key = attrgetter("axes")
window_key = attrgetter("axis", "offset", "stride", "dilation", "length")


def dimension_key(arg: Any) -> int:
    return int(arg.node.sort_key)


def trace_key(arg: Any) -> int:
    return int(arg.id) & (1 << LEAF_BITS) - 1


def reduce_key(arg: Any) -> Any:
    return arg.monoid.code, arg.axes, arg.first


def scatter_key(arg: Any) -> Any:
    return arg.axes, combine_key(arg.monoid)


def combine_key(monoid: Op | str | None) -> int:
    """Return the key of how a STORE combines; -1 if it is nontemporal."""
    return 0 if monoid is None else -1 if isinstance(monoid, str) else monoid.code


# ---- shape rules ----------------------------------------------------------------------------


def arg_shape(src: tuple[Node, ...], arg: Any) -> Shape:
    shape: Shape = arg.shape
    return shape


def reduce_shape(src: tuple[Node, ...], arg: Any) -> Shape:
    return tuple(n for i, n in enumerate(src[0].shape) if i not in arg.axes)


def other_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the axes of an array that are not in ``axes``.

    >>> other_axes((1,), 3)
    (0, 2)
    """
    return tuple([a for a in range(rank) if a not in axes])


def inverse_permutation(order: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse of a permutation.

    >>> inverse_permutation((1, 2, 0))
    (2, 0, 1)
    """
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def merge_by_axis(axes: Sequence[int], index: Iterable[T], rest: Iterable[T]) -> tuple[T, ...]:
    """Merge one entry per axis: ``index`` for the axes in ``axes``, ``rest`` for the others.

    >>> merge_by_axis((1,), "i", "ab")
    ('a', 'i', 'b')
    """
    by_axis, others_left = dict(zip(axes, index)), [*rest]
    return tuple([by_axis[a] if a in by_axis else others_left.pop(0)
                  for a in range(len(by_axis) + len(others_left))])


def gather_shape(src: tuple[Node, ...], arg: Any) -> Shape:
    return src[1].shape + tuple([n for a, n in enumerate(src[0].shape) if a not in arg.axes])


def concat_shape(src: tuple[Node, ...], axis: int) -> Shape:
    first = src[0].shape
    return (*first[:axis], sum(s.shape[axis] for s in src), *first[axis + 1:])


def window_shape(src: tuple[Node, ...], arg: Any) -> Shape:
    shape = src[0].shape
    return (*shape[:arg.axis], arg.length, *shape[arg.axis + 1:])


def gettuple_shape(src: tuple[Node, ...], i: int) -> Shape:
    shape: Shape = src[0].arg.outs[i][0]
    return shape


# ---- identities of monoids ------------------------------------------------------------------


def min_value(t: DType) -> Any:
    """Return the smallest value of a type, the identity of MAX."""
    if t.is_complex:
        return complex(-np.inf, -np.inf)
    return -_max_float(t) if t.is_float else False if t.is_bool else t.limits[0]


def max_value(t: DType) -> Any:
    """Return the largest value of a type, the identity of MIN."""
    if t.is_complex:
        return complex(np.inf, np.inf)
    return _max_float(t) if t.is_float else True if t.is_bool else t.limits[1]


def _max_float(t: DType) -> float:
    return low_precision.decode_number(low_precision.infinity_bits(t), t) \
        if t.has_no_inf else np.inf


def zero(t: DType) -> Any:
    return False if t.is_bool else 0


def all_ones(t: DType) -> Any:
    return True if t.is_bool else -1 if t.kind in ("int", "index") else (1 << t.bits) - 1
