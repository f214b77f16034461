"""Tracing of a hand-written kernel: Python code over references -> an untiled KERNEL.

    i = k.range(o.shape[0], "i")          KERNEL(STORE(o[i], LOAD(x[i]) * LOAD(x[i])))
    o[i] = x[i] * x[i]

A ``Value`` is one number at each point of the ranges it depends on; a ``Reference`` is a buffer
that is read and written by index. Ranges are values of dtype ``index``: whole numbers, for
places. Everything is checked where it is written, so errors have the user's line.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import build, dtypes, index_faults, ops, parts
from fnx.core.array import elementwise
from fnx.core.array.convert import SCALARS, default_float, fits
from fnx.core.array.elementwise import DOMAINS, OPERATORS, Function
from fnx.core.config import config
from fnx.core.dtypes import DType
from fnx.core.errors import DTypeError, KernelError, MutationError, OutOfBoundsError, user_site
from fnx.core.index_faults import Check
from fnx.core.operators import ValueOperators
from fnx.core.ops import Op, Shape
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, current_site, inherit, toposort
from fnx.transforms.kernels import places

# What whole numbers without bounds (dtype index) can do.
_INDEX_FUNCTIONS = frozenset({
    elementwise.ADD, elementwise.SUBTRACT, elementwise.MULTIPLY, elementwise.FLOOR_DIVIDE,
    elementwise.REMAINDER, elementwise.MAXIMUM, elementwise.MINIMUM, elementwise.NEGATIVE,
    elementwise.LESS, elementwise.LESS_EQUAL, elementwise.GREATER, elementwise.GREATER_EQUAL,
    elementwise.EQUAL, elementwise.NOT_EQUAL})
_COMBINE = {"add": ops.ADD, "multiply": ops.MUL, "min": ops.MIN, "max": ops.MAX,
            "and": ops.AND, "or": ops.OR, "xor": ops.XOR, "set": ops.STORE}


class Value(ValueOperators):
    """A number at each point of the ranges it depends on, in a kernel that is being traced.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def twice(x, o):
    ...     i = k.range(x.shape[0])  # a Value, as are x[i] and 2 * x[i]
    ...     o[i] = 2 * x[i]
    >>> twice(fnx.numpy.ones(2))
    Array([2., 2.], dtype=float32)
    """

    __slots__ = ("node",)
    node: UOp
    __array_ufunc__ = None

    def __init__(self, node: UOp) -> None:
        self.node = node

    @property
    def dtype(self) -> DType:
        """The element type; ``index`` for ranges and what is computed from them."""
        return self.node.dtype

    def _apply(self, op: Op, *operands: Any) -> Value:
        return apply(OPERATORS[op], *operands)

    def __bool__(self) -> bool:
        raise KernelError("expected a value that is known while tracing, got one of a kernel",
                          hint="choose with k.where(condition, a, b) instead of `if`")

    def __repr__(self) -> str:
        names = ", ".join(sorted(r.arg.name or f"r{r.arg.id}" for r in self.node.ranges))
        return f"<kernel value {self.dtype} over ({names})>"


class Reference(ValueOperators):
    """A buffer of a kernel: ``x[i, j]`` reads a place, ``o[i, j] = value`` writes one.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def last(x, o):  # x and o are References
    ...     i = k.range(x.shape[0])
    ...     o[i] = x[x.shape[0] - 1]
    >>> last(fnx.numpy.asarray([1.0, 2.0]))
    Array([2., 2.], dtype=float32)
    """

    __slots__ = ("_buffer", "shape", "_written")

    def __init__(self, buffer: UOp, shape: Shape, written: bool = False) -> None:
        self._buffer, self.shape, self._written = buffer, shape, written

    def _apply(self, op: Op, *operands: Any) -> Reference:
        raise _whole(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, as NumPy's dtype."""
        return self._buffer.dtype.np

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """What errors and schedules call it."""
        arg = self._buffer.arg
        return arg.name or (f"operand {arg.slot}" if self._buffer.op is ops.REF else "a local")

    def __getitem__(self, index: Any) -> Value:
        return self._load(index, None, True)

    def load(self, *index: Any, valid: Any = None, checked: bool = True) -> Value:
        """The value at a place; 0 where ``valid`` is false, where nothing is read.

        An index that is data is clamped to its axis, unless bounds or ``valid`` prove it inside.
        With ``checked=False`` it is taken as it is: you know that it is inside.
        """
        return self._load(index, valid, checked)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._store(index, value, None, None, True)

    def store(self, *index: Any, value: Any, valid: Any = None, checked: bool = True) -> None:
        """Write a place, only where ``valid`` holds.

        Places outside are not written, where the index is data. With ``checked=False`` you know
        that it is inside, and that no two iterations write one place.
        """
        self._store(index, value, valid, None, checked)

    def combine(self, how: str, index: Any, value: Any, valid: Any = None,
                checked: bool = True) -> None:
        """Fold a value into what is at a place: "add", "multiply", "min", "max", or "and", "or",
        "xor" of the bits of integers and bools; "set" replaces it.

        Places may meet; they are visited in the order of the loops ("set": the last one stays).
        Places outside are not written, where the index is data; with ``checked=False`` you know
        that it is inside.
        """
        if how not in _COMBINE:
            raise KernelError(f"combine: expected one of {', '.join(_COMBINE)}; got {how!r}")
        self._store(index, value, valid, _COMBINE[how], checked)

    def _load(self, index: Any, valid: Any, checked: bool) -> Value:
        if self._written:
            raise KernelError(
                f"expected a read of an input, got one of the output {self.name!r}",
                hint="keep the value in a variable; o.combine('add', i, v) adds to a place; "
                "iterations do not see each other's results: a running sum is "
                "k.sum(..., valid) over a second range, or fnx.numpy.cumsum")
        where = None if valid is None else _condition(valid)
        nodes = self._index(index)
        if checked:
            nodes, inside = self._inside(nodes, where, clamp=True)
            where = inside if inside is not None else where
        return Value(build.load(build.at(self._buffer, *nodes), where))

    def _store(self, index: Any, value: Any, valid: Any, monoid: Op | None, checked: bool
               ) -> None:
        if not self._written:
            raise MutationError(f"expected a store to an output, got one to {self.name!r}",
                                hint="name one more result in out= and write that")
        tracing = current()
        dtype = self._buffer.dtype
        to, _ = _kind(value)
        if isinstance(value, Value) and to is not dtype:
            raise DTypeError(f"store to {self.name!r}: expected {dtype}, got {to}",
                             hint=f"convert with k.cast(value, {dtype.name!r})")
        old, current_site.site = current_site.site, user_site(3)
        try:
            where = None if valid is None else _condition(valid)
            nodes = self._index(index)
            if checked:
                nodes, where = self._inside(nodes, where, clamp=False)
            store = build.store(build.at(self._buffer, *nodes), _as_node(value, dtype), where,
                                monoid)
            if checked:
                self._check_order(store, tracing)
            tracing.stores.append(store)
        finally:
            current_site.site = old

    def _check_order(self, store: UOp, tracing: Tracing) -> None:
        """Iterations have no order: what they write must not depend on one."""
        index = {r for i in parts.indices(store) for r in i.ranges}
        over = [r for r in places.free_ranges(store) if r not in index]
        if store.arg is None and over:
            raise KernelError(
                f"{self.name}: expected each place to be written once, got a write for each "
                f"value of range {_range_names(over)}",
                hint="fold that range: k.sum(value, over=...), or combine: "
                f"{self.name}.combine('add', index, value)")
        if store.arg is None and not places.is_written_once(store):
            raise KernelError(
                f"{self.name}: expected each place to be written once, got an index that two "
                "iterations may share", hint=f"{self.name}.combine('set', index, value) keeps "
                "the last one, 'add', 'min' and 'max' fold them")
        for other in tracing.stores:
            if parts.buffer(other) is self._buffer and not places.are_apart(store, other):
                shared = [r for r in places.free_ranges(store) if r in other.ranges]
                raise KernelError(
                    f"{self.name}: expected two stores to write different places in the loop of "
                    f"{_range_names(shared)}, got places that meet",
                    hint="make another k.range for the second store: it runs after the first")

    def _inside(self, nodes: list[UOp], valid: UOp | None, clamp: bool
                ) -> tuple[list[UOp], UOp | None]:
        """An index that stays inside: static ones are checked; data is clamped, or masked."""
        for axis, (i, n) in enumerate(zip(nodes, self.shape)):
            low, high = places.limits(i, n, valid)
            if not (low or high) or places.never_runs(nodes):
                continue
            if not places.is_data(i):
                at = symbolic.bounds(i)
                raise OutOfBoundsError(
                    f"{self.name}: expected 0 <= index < {n} along axis {axis}, got {at[0]} to "
                    f"{at[1]}", hint="use load(..., valid=condition) where the index may be "
                    "outside" if valid is None else "valid= holds where the index is outside")
            if config.check_index:
                current().checks.append((Check(self.name, axis, n, user_site(3)), i, valid))
            if clamp and n > 0:
                nodes[axis] = _clamped(i, n, low, high)
            else:
                inside = build.and_(build.le(build.index_const(0), i),
                                    build.lt(i, build.index_const(n)))
                valid = inside if valid is None else build.and_(valid, inside)
        return nodes, valid

    def _index(self, index: Any) -> list[UOp]:
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != len(self.shape):
            raise OutOfBoundsError(f"{self.name}: expected {len(self.shape)} indices, "
                                   f"got {len(given)}", hint="a place has one index an axis; "
                                   "of a 0-d array it is x[()]")
        return [_index(i) for i in given]


def _clamped(i: UOp, n: int, low: bool, high: bool) -> UOp:
    i = build.maximum(i, build.index_const(0)) if low else i
    return build.minimum(i, build.index_const(n - 1)) if high else i


def _range_names(ranges: Sequence[UOp]) -> str:
    return " and ".join(repr(r.arg.name) if r.arg.name else f"number {r.arg.id}" for r in ranges)


# ---- the kernel that is being traced --------------------------------------------------------


class Tracing:
    """The stores and the number of ranges and locals of a kernel so far."""

    __slots__ = ("name", "ranges", "stores", "locals", "checks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ranges: list[UOp] = []
        self.stores: list[UOp] = []
        self.locals = 0
        self.checks: list[tuple[Check, UOp, UOp | None]] = []  # of indices that are data


class _Open(threading.local):
    def __init__(self) -> None:
        self.tracings: list[Tracing] = []


_open = _Open()


def current() -> Tracing:
    """The kernel that is being traced in this thread."""
    if not _open.tracings:
        raise KernelError("expected to be called in a kernel",
                          hint="a kernel is a function under fnx.call(out=...)")
    return _open.tracings[-1]


def trace_kernel(f: Callable[..., Any], name: str,
                 make_args: Callable[[Callable[[DType, Shape, bool, str], Reference]],
                                     Sequence[Any]]) -> UOp:
    """The untiled KERNEL that f writes; ``make_args`` makes its arguments of references."""
    tracing = Tracing(name)
    outputs: list[Reference] = []
    count = 0

    def reference(dtype: DType, shape: Shape, written: bool, label: str) -> Reference:
        nonlocal count
        made = Reference(build.ref(count, dtype, shape, label), shape, written)
        count += 1
        if written:
            outputs.append(made)
        return made

    _open.tracings.append(tracing)
    old, current_site.site = current_site.site, None  # of the call: its stores have their own
    try:
        returned = f(*make_args(reference))
        if returned is not None:
            raise KernelError(f"kernel {name}: expected no return value, got "
                              f"{type(returned).__name__}", hint="write results: o[i] = value")
        for o in outputs:
            _fill(o, tracing)
        for slot, check in enumerate(tracing.checks, count):
            _report(slot, *check, tracing)
    finally:
        current_site.site = old
        _open.tracings.pop()
    used = set(toposort(tracing.stores))
    return build.kernel(tracing.stores, name, [r.arg.id for r in tracing.ranges if r in used])


def _report(slot: int, check: Check, i: UOp, valid: UOp | None, tracing: Tracing) -> None:
    """A further output, the fault of an index (core/index_faults.py)."""
    place = build.at(build.ref(slot, dtypes.int32, (), check.name))
    tracing.stores.append(build.store(place, build.const(index_faults.NONE, dtypes.int32)))
    store = build.store(place, index_faults.fault(i, check.length), valid, ops.MAX)
    store.sites = () if check.site is None else (check.site,)
    tracing.stores.append(store)


def _fill(o: Reference, tracing: Tracing) -> None:
    """What no store writes is 0; where the kernel combines, what changes nothing."""
    stores = [s for s in tracing.stores if parts.buffer(s) is o._buffer]
    size = math.prod(o.shape)
    if not size:
        return
    if not stores:
        raise KernelError(f"kernel {tracing.name}: expected a store to {o.name!r}, got none")
    plain = list(itertools.takewhile(lambda s: s.arg is None, stores))
    if places.is_covered(plain, size):
        return
    combining = stores[len(plain):len(plain) + 1]
    start = 0 if not combining or combining[0].arg is ops.STORE else \
        combining[0].arg.identity(o._buffer.dtype)
    zero = build.const(start, o._buffer.dtype)
    if plain and len(plain[0].src) == 3:
        place, value, valid = plain[0].src
        whole = build.store(place, build.where(valid, value, zero))
        outside = any(any(places.limits(i, n, None)) for i, n in zip(parts.indices(place), o.shape))
        if not outside and places.is_written_once(whole) and places.is_covered([whole], size):
            tracing.stores[tracing.stores.index(plain[0])] = inherit(whole, plain[0])
            return
    index = [build.index_const(0) if n == 1 else
             make_range(n, f"fill{o._buffer.arg.slot}_{axis}").node
             for axis, n in enumerate(o.shape)]
    fill = build.store(build.at(o._buffer, *index), zero)
    tracing.stores.insert(0, inherit(fill, stores[0]))


# ---- values ---------------------------------------------------------------------------------


def _kind(x: Any) -> tuple[DType, bool]:
    """(dtype, whether it is a Python scalar that gives way)."""
    if isinstance(x, Value):
        return x.dtype, False
    scalar = SCALARS.get(type(x))
    if scalar is not None:
        return scalar(), type(x) is not bool
    if isinstance(x, np.generic):
        return dtypes.as_dtype(x.dtype), False
    if isinstance(x, Reference):
        raise _whole(x)
    raise KernelError(f"expected a value of the kernel or a number, got {type(x).__name__}",
                      hint="an array comes in as an argument of the kernel")


def _whole(x: Reference) -> KernelError:
    return KernelError(f"expected a value, got the whole of {x.name!r}",
                       hint="read one place: x[i], or x[()] of a 0-d array")


def _as_node(x: Any, to: DType) -> UOp:
    if not isinstance(x, Value):
        return build.const(fits(x, to), to)
    if to.is_bool and not x.dtype.is_bool:
        return build.ne(x.node, build.like(x.node, 0))
    return build.cast(x.node, to)


def _index(x: Any) -> UOp:
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return build.index_const(int(x))
    if isinstance(x, Value) and x.dtype.is_integer:
        return build.cast(x.node, dtypes.index)
    raise KernelError(f"expected an index (a range, or an integer value), got {x!r}",
                      hint="k.range(n) makes a range; slices are loops over one")


def _condition(x: Any) -> UOp:
    if isinstance(x, Value) and x.dtype.is_bool:
        return x.node
    raise KernelError(f"expected a condition, got {x!r}", hint="compare values: i < n")


def apply(f: Function, *operands: Any) -> Value:
    """An elementwise function of values and Python scalars, with fnx's promotion."""
    kinds = [_kind(x) for x in operands]
    if any(t is dtypes.index for t, _ in kinds):
        return _apply_index(f, operands, kinds)
    t, weak = kinds[0]
    for other in kinds[1:]:
        t, weak = dtypes.promote(t, weak, *other)
    to = DOMAINS[f.domain](f.name, t, default_float())
    return Value(f.build(*[_as_node(x, to) for x in operands]))


def _apply_index(f: Function, operands: Sequence[Any],
                 kinds: Sequence[tuple[DType, bool]]) -> Value:
    if f not in _INDEX_FUNCTIONS or any(not t.is_integer for t, _ in kinds):
        names = " and ".join(t.name for t, _ in kinds)
        raise DTypeError(f"{f.name}: expected numbers, got {names}",
                         hint="ranges are for places; as numbers: k.cast(i, 'float32')")
    nodes = [_index(x) for x in operands]
    plain = {elementwise.FLOOR_DIVIDE: build.idiv, elementwise.REMAINDER: build.rem}.get(f)
    if plain is not None and symbolic.bounds(nodes[0])[0] >= 0 < symbolic.bounds(nodes[1])[0]:
        return Value(symbolic.simplify(plain(*nodes)))
    return Value(symbolic.simplify(f.build(*nodes)))


def select(condition: Any, a: Any, b: Any) -> Value:
    """``a`` where the condition holds, else ``b``."""
    (ta, wa), (tb, wb) = _kind(a), _kind(b)
    if dtypes.index in (ta, tb):
        return Value(build.where(_condition(condition), _index(a), _index(b)))
    t, _ = dtypes.promote(ta, wa, tb, wb)
    return Value(build.where(_condition(condition), _as_node(a, t), _as_node(b, t)))


def convert(x: Any, dtype: Any) -> Value:
    """A value as another dtype."""
    to = dtypes.as_dtype(dtype)
    return Value(_as_node(x, to))


def make_range(n: Any, name: str) -> Value:
    """A new range of the kernel that is being traced."""
    tracing = current()
    extent = symbolic.simplify(_index(n))
    if extent.op is not ops.CONST:
        raise KernelError(
            "range: expected a length that is known while tracing, got one that depends on "
            + (f"range {_range_names(sorted(extent.ranges, key=lambda r: r.arg.id))}"
               if extent.ranges else "data"),
            hint="take the longest and mask the rest: j = k.range(n), "
            "x.load(i, j, valid=j <= i)")
    if symbolic.bounds(extent)[0] < 0:
        raise KernelError(f"range: expected a length >= 0, got {n!r}")
    if name and any(r.arg.name == name for r in tracing.ranges):
        raise KernelError(f"range: expected a new name, got {name!r} again")
    r = build.range_(extent, len(tracing.ranges), "SEQ", name)
    tracing.ranges.append(r)
    return Value(r)


def _ranges(name: str, over: Any) -> list[UOp]:
    given = over if isinstance(over, tuple | list) else (over,)
    for r in given:
        if not (isinstance(r, Value) and r.node.op is ops.RANGE):
            raise KernelError(f"{name}: expected ranges in over=, got {r!r}",
                              hint="over= takes what k.range(...) returned")
    return [r.node for r in given]


def fold(name: str, monoid: Op, x: Any, over: Any) -> Value:
    """Fold a value over ranges; they are closed then, and the result is free of them."""
    t, _ = _kind(x)
    to = t if t is not dtypes.bool_ or monoid in (ops.AND, ops.OR) else dtypes.int32
    if to is dtypes.index:
        raise DTypeError(f"{name}: expected numbers, got index",
                         hint="convert with k.cast(i, 'int32') first")
    return Value(build.reduce_ranges(_as_node(x, to), monoid, _ranges(name, over)))


def make_local(x: Any, over: Any) -> Reference:
    """A small buffer that holds a value over ranges, and is read by index."""
    tracing = current()
    ranges = _ranges("local", over)
    t, _ = _kind(x)
    stage = build.stage(_as_node(x, t), ranges, tracing.locals)
    tracing.locals += 1
    return Reference(stage, tuple(symbolic.bounds(parts.extent(r))[1] for r in ranges))
