"""References of a user-written kernel: buffers that are loaded and stored by index.

Each access is checked when it is traced, so errors point at the user's line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.bounds_checks import BoundsCheck
from fnx.core.ir.expr import Expr
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp, current_loc, toposort
from fnx.core.rewriting import symbolic
from fnx.core.scope.scope import recorded_location
from fnx.core.support.config import config
from fnx.core.support.errors import (
    DTypeError,
    KernelError,
    Location,
    MutationError,
    OutOfBoundsError,
    set_missing_names,
    user_location,
)
from fnx.core.support.name_hints import CURES_OF_REFERENCES, suggestion
from fnx.transforms.kernel_lang import accesses
from fnx.transforms.kernel_lang.trace_state import check_owner, current, range_names
from fnx.transforms.kernel_lang.values import (
    NotAValue,
    Value,
    as_condition,
    as_index,
    as_node,
    fits,
    number_kind,
    ranges_of,
)

_COMBINE = {"add": ops.ADD, "multiply": ops.MUL, "min": ops.MIN, "max": ops.MAX,
            "and": ops.AND, "or": ops.OR, "xor": ops.XOR, "set": ops.STORE}


class Reference(NotAValue):
    """A buffer of a kernel: ``x[i, j]`` loads an element, ``o[i, j] = value`` stores one.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def last(x, o):  # x and o are References
    ...     i = k.range(x.shape[0])
    ...     o[i] = x[x.shape[0] - 1]
    >>> last(fnx.numpy.asarray([1.0, 2.0]))
    Array([2., 2.], dtype=float32)
    """

    __slots__ = ("_buffer", "shape", "_written", "_tracing")

    def __init__(self, buffer: UOp, shape: Shape, written: bool = False) -> None:
        self._buffer, self.shape, self._written = buffer, shape, written
        self._tracing = current()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type as a NumPy dtype."""
        return self._buffer.dtype.np

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """The name used in errors and schedules."""
        return name_of(self._buffer)

    def __repr__(self) -> str:
        return f"<reference {self.name!r} {self._buffer.dtype}{list(self.shape)}>"

    def __iter__(self) -> Iterator[Value]:
        if self.ndim != 1:
            raise KernelError(f"expected a reference with one axis to iterate over, got "
                              f"{self.name!r} of shape {self.shape}",
                              hint="loop over elements with a range: i = k.range(x.shape[0])")
        return iter([self[i] for i in range(self.shape[0])])

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, index: Any) -> Value:
        return self._load(index, None, True)

    def load(self, *index: Any, valid: Any = None, checked: bool = True) -> Value:
        """Load the element at an index; where ``valid`` is false, read nothing and return 0.

        A data-dependent index is clamped to its axis, unless bounds or ``valid`` prove it in
        bounds. With ``checked=False`` it is not clamped: the caller guarantees that it is in
        bounds.
        """
        return self._load(index, valid, checked)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._store(index, value, None, None, True)

    def store(self, *index: Any, value: Any, valid: Any = None, checked: bool = True) -> None:
        """Store an element at an index, only where ``valid`` holds.

        A data-dependent index that is out of bounds writes nothing. With ``checked=False`` the
        caller guarantees that the index is in bounds, and that it is distinct in each iteration.
        """
        self._store(index, value, valid, None, checked)

    def combine(self, how: str, index: Any, value: Any, valid: Any = None,
                checked: bool = True) -> None:
        """Combine a value with the element at an index.

        ``how`` is "add", "multiply", "min", "max", "set" (replace), or the bitwise "and", "or",
        "xor" of integers and bools.

        Several iterations may write one element; they do so in loop order (for "set" the last one
        wins). A data-dependent index that is out of bounds writes nothing; with ``checked=False``
        the caller guarantees that it is in bounds.
        """
        if how not in _COMBINE:
            raise KernelError(f"combine: expected one of {', '.join(_COMBINE)}; got {how!r}",
                              hint=suggestion(str(how), _COMBINE) or "use \"add\" for a sum")
        self._store(index, value, valid, _COMBINE[how], checked)

    def _load(self, index: Any, valid: Any, checked: bool) -> Value:
        check_owner(f"reference {self.name!r}", self._tracing)
        if self._written:
            raise KernelError(
                f"expected a read of an input, got one of the output {self.name!r}",
                hint="keep the value in a variable; o.combine('add', i, v) accumulates into an "
                     "element; for a running sum use k.sum(..., valid) over a second range, or "
                     "fnx.numpy.cumsum")
        where = None if valid is None else as_condition(valid)
        nodes = self._index_nodes(index)
        guard = self._tracing.guard()
        needs_guard = guard is not None and (self._tracing.forces_guard() or not checked or any(
            any(accesses.may_be_outside(i, n, where)) for i, n in zip(nodes, self.shape)))
        if checked:
            nodes, where = self._check_bounds(nodes, where, clamp=True)
        if needs_guard and guard is not None:
            where = guard if where is None else build.and_(guard, where)
        return Value(build.load(build.index_into(self._buffer, *nodes), where))

    def _store(self, index: Any, value: Any, valid: Any, monoid: Op | None, checked: bool
               ) -> None:
        check_owner(f"reference {self.name!r}", self._tracing)
        if not self._written:
            raise MutationError(f"expected a store to an output, got one to {self.name!r}",
                                hint="declare another output in out= and write to it")
        tracing = self._tracing
        dtype = self._buffer.dtype
        if not fits(value, dtype):
            raise DTypeError(f"store to {self.name!r}: expected {dtype}, got "
                             f"{number_kind(value)[0]}",
                             hint=f"convert with k.cast(value, {dtype.name!r})")
        old, current_loc.loc = current_loc.loc, recorded_location(3)
        try:
            where = None if valid is None else as_condition(valid)
            nodes = self._index_nodes(index)
            if checked:
                nodes, where = self._check_bounds(nodes, where, clamp=False)
            store = build.store(build.index_into(self._buffer, *nodes), as_node(value, dtype),
                                where, monoid)
            if not tracing.ended.isdisjoint(store.ranges):
                raise KernelError(f"{self.name}: expected loop values to be used inside the loop, "
                                  "got a store after it",
                                  hint="return the value from the step: k.loop returns the final "
                                       "values")
            if checked and tracing.scopes:  # checked once all carried ranges are known
                tracing.written[store] = current_loc.loc
            elif checked:
                check_order(store, tracing.stores, None)
            tracing.put(store)
        finally:
            current_loc.loc = old

    def _check_bounds(self, nodes: list[UOp], valid: UOp | None, clamp: bool
                ) -> tuple[list[UOp], UOp | None]:
        """Keep an index in bounds: check a static one; clamp or mask a data-dependent one."""
        known_true = valid
        for condition in self._tracing.conditions():
            known_true = condition if known_true is None else build.and_(condition, known_true)
        _check_width(nodes if known_true is None else [*nodes, known_true])
        for axis, (i, n) in enumerate(zip(nodes, self.shape)):
            low, high = accesses.may_be_outside(i, n, known_true)
            if not (low or high) or accesses.has_empty_range(nodes):
                continue
            if not accesses.is_data(i):
                bounds = symbolic.bounds(i)
                raise OutOfBoundsError(
                    f"{self.name}: expected 0 <= index < {n} along axis {axis}, got {bounds[0]} to "
                    f"{bounds[1]}", hint=("use load(..., valid=condition) if the index may be "
                    "out of bounds" if clamp else "use store(..., valid=condition) if "
                    "the index may be out of bounds, or give out= a larger shape")
                    if valid is None else "valid= is true for an out-of-bounds index: "
                    "narrow the condition")
            if config.check_index:
                self._tracing.report(BoundsCheck(self.name, axis, n, user_location(3)), i, valid)
            if clamp and n > 0:
                nodes[axis] = _clamp(i, n, low, high)
            else:
                number = Expr(i)
                inside = ((number >= 0) & (number < n)).node
                valid = inside if valid is None else build.and_(valid, inside)
        return nodes, valid

    def _index_nodes(self, index: Any) -> list[UOp]:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self.shape):
            raise OutOfBoundsError(f"{self.name}: expected {len(self.shape)} indices, "
                                   f"got {len(indices)}",
                                   hint="use one index per axis" if self.shape else
                                   "write x[()] for the value of a 0-d array")
        return [as_index(i) for i in indices]


def _check_width(roots: Iterable[UOp]) -> None:
    """Reject index arithmetic that may overflow 64 bits, as bounds proofs would not hold."""
    for node in toposort(roots, stop=lambda n: n.dtype not in (dtypes.index, dtypes.bool_)):
        overflow = accesses.overflow_bounds(node) if node.dtype is dtypes.index else None
        if overflow is not None:
            raise OutOfBoundsError(f"expected index arithmetic of 64 bits, got {overflow[0]} to "
                                   f"{overflow[1]}",
                                   hint="clamp indices read from data before arithmetic: "
                                        "k.clip(x[i], 0, n)")


def _clamp(i: UOp, n: int, low: bool, high: bool) -> UOp:
    i = build.maximum(i, build.index_const(0)) if low else i
    return build.minimum(i, build.index_const(n - 1)) if high else i


set_missing_names(Reference, "an argument of a kernel", CURES_OF_REFERENCES)


def check_order(store: UOp, others: Iterable[UOp], loc: Location | None) -> None:
    """Check that the result of a STORE does not depend on the order of iterations.

    Raises:
        KernelError: two iterations may write one element.
    """
    name = name_of(accessors.buffer(store))
    index = {r for i in accessors.indices(store) for r in i.ranges}
    unindexed = [r for r in accesses.free_ranges(store) if r not in index]
    if store.arg is None and unindexed:
        raise KernelError(
            f"{name}: expected each element to be written once, got a write in each iteration of "
            f"{range_names(unindexed)}",
            hint="reduce over that range with k.sum(value, over=...), or accumulate: "
            f"{name}.combine('add', index, value)", loc=loc)
    if store.arg is None and not accesses.is_written_once(store):
        raise KernelError(
            f"{name}: expected each element to be written once, got an index that two iterations "
            "may share", hint=f"{name}.combine('set', index, value) keeps the last value; 'add', "
                              "'min' and 'max' accumulate", loc=loc)
    for other in others:
        if accessors.buffer(other) is accessors.buffer(store) and \
                not accesses.may_share_loops(store, other):
            shared = [r for r in accesses.free_ranges(store) if r in other.ranges]
            raise KernelError(
                f"{name}: expected two stores to write different elements in the loop over "
                f"{range_names(shared)}, got elements that overlap",
                hint="make another k.range for the second store: it runs after the first",
                loc=loc)


def name_of(buffer: UOp) -> str:
    """Return the name of a REF or a STAGE in errors."""
    arg = buffer.arg
    return arg.name or (f"operand {arg.slot}" if buffer.op is ops.REF else "a local")


def make_local(x: Any, over: Any) -> Reference:
    """Store a value over ranges in a small buffer that can be indexed."""
    tracing = current()
    ranges = ranges_of("local", over)
    t, _ = number_kind(x)
    stage = build.stage(as_node(x, t), ranges, tracing.locals)
    tracing.locals += 1
    return Reference(stage, tuple(symbolic.bounds(accessors.extent(r))[1] for r in ranges))
