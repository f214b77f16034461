"""Random tensor graphs for property tests: legal by construction, driven by the op table.

    @given(graphs())
    def test_law(graph):
        assert_same(apply(my_pass(graph.fn), graph.args), apply(graph.fn, graph.args))

A graph has PARAMs, constants, every elementwise op on every dtype that it takes, all movements,
reductions, gathers, scatters and calls of inner functions. Lengths include 0, 1 and vector tails;
values include both zeros, infinities, NaN, subnormals and the limits of the integers.

Hypothesis draws a seed and a number of steps. A graph of fewer steps is a prefix of one of more, so
a failure shrinks to its first steps. Choices inside come from ``random``, which spreads them more
widely than drawing each would.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, substitute
from fnx.core.levels import show
from tests.helpers import encoded

LENGTHS = (1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 0)
MOST_ELEMENTS = 600
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.5, math.inf, -math.inf, math.nan, 1e-40, 1e30,
          -1e30, 88.5, 1e-5)
ORDINARY = (0.5, -0.25, 1.5, -0.75, 0.125)
INTEGERS = (0, 1, 2, 3, -1, -2, 7, 31, 32, 33, 100, -2**31, 2**31 - 1, 2**32 - 1)


# Below complex_to_real there are no complex numbers.
REAL = tuple([t for t in dtypes.USER if not t.is_complex])
COMPUTED = tuple([t for t in REAL if t.storage is None])  # the others are storage-only


class Graph(NamedTuple):
    """A closed FUNCTION and values for its PARAMs."""

    fn: UOp
    args: list[np.ndarray[Any, Any]]

    def __repr__(self) -> str:  # printed by hypothesis for a failing example
        return f"\n{show.pretty(self.fn)}\nargs = {self.args}"


def values(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...],
           smooth: bool = False) -> Any:
    """Random values, a third of them special; with ``smooth``, floats between -0.9 and 0.9."""
    if dtype.is_complex:
        out = np.empty(shape, dtype.np)
        out.real, out.imag = (values(rng, dtype.real, shape, smooth) for _ in range(2))
        return out
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if smooth:
        return encoded(rng.uniform(-0.9, 0.9, shape) if dtype.is_float else
                       rng.integers(0, 4, shape),
                    dtype)
    low, high = dtype.limits
    special: Sequence[Any] = FLOATS if dtype.is_float else \
        sorted({i for i in (*INTEGERS, low, high) if low <= i <= high})
    plain = rng.standard_normal(shape) if dtype.is_float else \
        rng.integers(0, min(100, high + 1), shape)
    odd = np.asarray(special, np.float64 if dtype.is_float else
                     np.uint64 if dtype.kind == "uint" else np.int64)
    picked = odd[rng.integers(0, len(odd), shape)]
    with np.errstate(all="ignore"):
        return encoded(np.where(rng.random(shape) < 0.33, picked, plain.astype(odd.dtype)), dtype)


class Builder:
    """A graph that grows: ``pool`` holds the nodes so far; every step adds one."""

    def __init__(self, rng: random.Random, types: Sequence[DType], allowed: Collection[Op],
                 depth: int, smooth: bool = False) -> None:
        if not any(t.is_complex for t in types):
            allowed = frozenset(allowed) - {ops.COMPLEX}
        self.rng, self.types, self.allowed, self.depth = rng, tuple(types), allowed, depth
        self.smooth = smooth
        self.monoids = [m for m in _sorted(ops.MONOIDS) if m in allowed] or _sorted(ops.MONOIDS)
        self.plain = [op for op in _sorted(allowed) if op in ops.ELEMENTWISE]
        self.other = [op for op in _sorted(allowed) if op not in ops.ELEMENTWISE]
        self.pool: list[UOp] = []
        self.params: list[UOp] = []

    # ---- choices ----

    def one(self, choices: Sequence[Any]) -> Any:
        return self.rng.choice(choices)

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def shape(self, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
        """Draw a shape of rank 0 to 3 with at most this many elements."""
        while True:
            shape = tuple(self.one(LENGTHS) for _ in range(self.number(0, 3)))
            if math.prod(shape) <= most:
                return shape

    def param(self, dtype: DType, shape: tuple[int, ...]) -> UOp:
        node = build.param(len(self.params), dtype, shape)
        self.params.append(node)
        self.pool.append(node)
        return node

    def constant(self, dtype: DType, shape: tuple[int, ...]) -> UOp:
        floats = ORDINARY if self.smooth else FLOATS
        if dtype.is_complex:
            return build.const(complex(self.one(floats), self.one(floats)), dtype, shape)
        special: Sequence[Any] = (True, False) if dtype.is_bool else floats if dtype.is_float \
            else [i for i in INTEGERS
                  if dtype.limits[0] <= i <= dtype.limits[1]]
        return build.const(self.one(special), dtype, shape)

    def operand(self, dtype: DType, shape: tuple[int, ...]) -> UOp:
        """Return a node of this type: from the pool, a constant, or a new PARAM."""
        found = [n for n in self.pool if n.dtype is dtype and n.shape == shape]
        if found and self.number(0, 3):
            return self.one(found)
        return self.constant(dtype, shape) if self.number(0, 1) else self.param(dtype, shape)

    def any(self, accepted: Callable[[UOp], bool]) -> UOp | None:
        """Return a node of the pool; often the youngest, so that graphs get deep."""
        found = [n for n in self.pool if accepted(n)]
        return self.one(found[-2:] if self.number(0, 2) else found) if found else None

    # ---- steps ----

    def step(self) -> None:
        op = self.one((self.plain if self.number(0, 1) else self.other) or self.plain
                      or self.other)
        if op in STEPS:
            accepted, make = STEPS[op]
        else:
            accepted, make = (lambda n: op.accepts_dtype(n.dtype)), _elementwise
        x = self.any(accepted)
        node = None if x is None else make(self, op, x)
        if node is not None and math.prod(node.shape) <= 4 * MOST_ELEMENTS:
            self.pool.append(node)


def _sorted(some: Collection[Op]) -> list[Op]:
    return sorted(some, key=lambda op: op.name)


def _elementwise(b: Builder, op: Op, x: UOp) -> UOp:
    assert op.arity is not None
    rest = [b.operand(x.dtype, x.shape) for _ in range(op.arity - 1)]
    arg = b.number(0, 1) if op is ops.THREEFRY else None
    src = [x, *rest] if b.number(0, 1) else [*rest, x]
    return build.elementwise(op, *src, arg=arg)


def _cast(b: Builder, op: Op, x: UOp) -> UOp:
    return build.cast(x, b.one(b.types))


def _bitcast(b: Builder, op: Op, x: UOp) -> UOp:
    same = [t for t in b.types if t.bits == x.dtype.bits and t.kind not in ("bool", "complex")]
    return build.bitcast(x, b.one(same or [x.dtype]))


def _where(b: Builder, op: Op, x: UOp) -> UOp:
    src = [x, b.operand(x.dtype, x.shape)]
    return build.where(b.operand(dtypes.bool_, x.shape), *(src if b.number(0, 1) else src[::-1]))


def _reshape(b: Builder, op: Op, x: UOp) -> UOp:
    dims = list(x.shape)
    for _ in range(b.number(1, 3)):
        at = b.number(0, len(dims))
        kind = b.one(("insert", "drop", "merge", "split"))
        if kind == "insert" and len(dims) < 5:
            dims.insert(at, 1)
        elif kind == "drop" and at < len(dims) and dims[at] == 1:
            del dims[at]
        elif kind == "merge" and at + 1 < len(dims):
            dims[at:at + 2] = [dims[at] * dims[at + 1]]
        elif kind == "split" and at < len(dims) and len(dims) < 5:
            factors = [f for f in (2, 3, 5) if dims[at] % f == 0]
            if factors:
                f = b.one(factors)
                dims[at:at + 1] = [f, dims[at] // f]
    return build.reshape(x, tuple(dims))


def _permute(b: Builder, op: Op, x: UOp) -> UOp:
    return build.permute(x, b.rng.sample(range(len(x.shape)), len(x.shape)))


def _expand(b: Builder, op: Op, x: UOp) -> UOp:
    shape = [b.one(LENGTHS) if n == 1 and b.number(0, 1) else n for n in x.shape]
    if len(shape) < 3 and b.number(0, 1):
        shape.insert(0, b.one(LENGTHS))
    return build.expand(x, tuple(shape)) if math.prod(shape) <= 4 * MOST_ELEMENTS else x


def _pad(b: Builder, op: Op, x: UOp) -> UOp:
    return build.pad(x, [(b.number(0, 2), b.number(0, 3)) for _ in x.shape],
                           b.operand(x.dtype, ()))


def _shrink(b: Builder, op: Op, x: UOp) -> UOp:
    return build.shrink(x, [sorted((b.number(0, n), b.number(0, n))) for n in x.shape])


def _flip(b: Builder, op: Op, x: UOp) -> UOp:
    return build.flip(x, [a for a in range(len(x.shape)) if b.number(0, 1)])


def _windows(b: Builder, op: Op, x: UOp) -> UOp:
    """Windows of a value broadcast over their elements (UNFOLD), or their inverse (FOLD)."""
    axis, offset = b.rng.sample(range(len(x.shape) + 1), 2)
    stride, dilation = b.number(1, 3), b.number(1, 2)
    if op is ops.UNFOLD:
        shape = list(x.shape)
        shape.insert(offset, 1)
        size = b.number(1, 3)
        wide = build.expand(build.reshape(x, tuple(shape)),
                            (*shape[:offset], size, *shape[offset + 1:]))
        most = (shape[axis] - (size - 1) * dilation - 1) // stride + 1
        return build.unfold(wide, axis, offset, stride, dilation, b.number(0, max(0, most)))
    if len(x.shape) < 2:
        return x
    axis, offset = b.rng.sample(range(len(x.shape)), 2)
    least = max(0, (x.shape[axis] - 1) * stride + (x.shape[offset] - 1) * dilation + 1)
    if math.prod(x.shape) // max(1, x.shape[axis]) * (least + 3) > 4 * MOST_ELEMENTS:
        return x
    return build.fold(x, axis, offset, stride, dilation, least + b.number(0, 3))


def _concat(b: Builder, op: Op, x: UOp) -> UOp:
    axis = b.number(0, len(x.shape) - 1)
    parts = [x]
    for _ in range(b.number(1, 2)):
        shape = (*x.shape[:axis], b.one((0, 1, 2, x.shape[axis])), *x.shape[axis + 1:])
        parts.insert(b.number(0, 1), b.operand(x.dtype, shape))
    return build.concat(parts, axis)


def _barrier(b: Builder, op: Op, x: UOp) -> UOp:
    return build.barrier(x, *[b.one(b.pool or [x]) for _ in range(b.number(0, 2))])


def _stop(b: Builder, op: Op, x: UOp) -> UOp:
    return build.stop_gradient(x)


def _reduce(b: Builder, op: Op, x: UOp) -> UOp:
    monoid = b.one([m for m in b.monoids if m.accepts_dtype(x.dtype)])
    return build.reduce(x, monoid, [a for a in range(len(x.shape)) if b.number(0, 1)])


def _indices(b: Builder, x: UOp) -> dict[int, UOp]:
    """Return index arrays for some axes of x, by axis; in bounds if the graph is smooth."""
    shape = b.shape(30)
    first = b.number(0, len(x.shape) - 1)
    axes = [a for a in range(len(x.shape)) if a == first or b.number(0, 1)]
    index = {a: b.operand(b.one((dtypes.int32, dtypes.uint32)), shape) for a in axes}
    if not b.smooth:
        return index
    return {a: build.rem(build.elementwise(ops.AND, i, build.const_like(i, 255)),
                         build.const_like(i, x.shape[a])) for a, i in index.items()}


def _gather(b: Builder, op: Op, x: UOp) -> UOp:
    if x.op is ops.SCATTER and b.number(0, 1):  # what was written there
        return build.gather(x, *x.src[1:-1], axes=x.arg.axes)
    index = _indices(b, x)
    return build.gather(x, *index.values(), axes=[*index])


def _scatter(b: Builder, op: Op, x: UOp) -> UOp:
    index = _indices(b, x)
    monoids = [None, *[m for m in b.monoids if m.accepts_dtype(x.dtype)
                       and (m is ops.ADD or not x.dtype.is_complex)]]
    shape = next(iter(index.values())).shape
    rest = tuple([n for a, n in enumerate(x.shape) if a not in index])
    updates = b.operand(x.dtype, shape + rest)
    if not b.number(0, 3):  # zeros, as in derivatives of slices
        before = [b.number(0, min(n, 2)) for n in updates.shape]
        updates = build.pad(build.shrink(updates, [*zip(before, updates.shape)]),
                            [(n, 0) for n in before])
    return build.scatter(x, [*index.values()], updates, b.one(monoids), [*index])


def _iota(b: Builder, op: Op, x: UOp) -> UOp:
    numeric = [t for t in b.types if t.kind not in ("bool", "complex")]
    return build.iota(b.one(LENGTHS), b.one(numeric))


def _const(b: Builder, op: Op, x: UOp) -> UOp:
    return b.constant(b.one(b.types), b.shape(64))


def _call(b: Builder, op: Op, x: UOp) -> UOp:
    if not b.depth:
        return x
    inner = Builder(b.rng, b.types, b.allowed, b.depth - 1, b.smooth)
    fn = _grow(inner, b.number(1, 4), b.number(1, 2))
    args = [b.operand(p.dtype, p.shape) for p in inner.params]
    results = build_calls.call(fn, args, name="inner")
    b.pool.extend(results)
    return results[0]


def _body(b: Builder, given: Sequence[UOp], wanted: Sequence[UOp]) -> UOp:
    """Return a FUNCTION with these input and result types: it computes results or returns an
    operand."""
    inner = Builder(b.rng, b.types, b.allowed, b.depth - 1, b.smooth)
    for node in given:
        inner.param(node.dtype, node.shape)
    for _ in range(b.number(1, 4)):
        inner.step()
    outs = [inner.operand(node.dtype, node.shape) for node in wanted]
    more = inner.params[len(given):]  # replaced by constants, as the body has no other inputs
    fixed = [inner.constant(p.dtype, p.shape) for p in more]
    return build.function(substitute(outs, dict(zip(more, fixed))), len(given), "body")


def _rows(b: Builder, x: UOp) -> UOp:
    return build.param(0, x.dtype, x.shape[1:])


def _some(b: Builder, x: UOp) -> list[UOp]:
    """Return x or another node, and up to two nodes of the pool."""
    return [b.operand(x.dtype, x.shape), *[b.one(b.pool) for _ in range(b.number(0, 2))]]


def _scan(b: Builder, op: Op, x: UOp) -> UOp:
    if not b.depth:
        return x
    consts, carries, length = _some(b, x)[1:], _some(b, x), b.one((0, 1, 2, 3, 4))
    xs = [b.operand(x.dtype, (length, *x.shape)) for _ in range(b.number(0, 1))]
    given = [*consts, *carries, *[_rows(b, x) for x in xs]]
    body = _body(b, given, [*carries, *[b.one(given) for _ in range(b.number(0, 2))]])
    results = build_calls.scan(body, length, consts, carries, xs, bool(b.number(0, 1)))
    b.pool.extend(results)
    return results[0]


def _while(b: Builder, op: Op, x: UOp) -> UOp:
    """A few iterations, counted by a carry of its own beside the computed ones."""
    if not b.depth:
        return x
    consts, carries = _some(b, x)[1:], _some(b, x)
    body = _body(b, [*consts, *carries], carries)
    n = len(consts) + len(carries)
    count = build.param(n, dtypes.int32, ())
    condition = build.function([build.lt(count, build.const_like(count, 0))], n + 1, "more")
    step = build.function([*body.src, build.add(count, build.const_like(count, 1))], n + 1, "step")
    trips = build.const(-b.number(0, 4), dtypes.int32)
    results = build_calls.while_(condition, step, consts, [*carries, trips])
    b.pool.extend(results)
    return results[0]


def _cond(b: Builder, op: Op, x: UOp) -> UOp:
    if not b.depth:
        return x
    args = _some(b, x)
    wanted = [x, *[b.one(args) for _ in range(b.number(0, 1))]]
    branches = [_body(b, args, wanted) for _ in range(b.number(1, 3))]
    results = build_calls.cond(branches, b.operand(dtypes.int32, ()), args)
    b.pool.extend(results)
    return results[0]


def _whatever(x: UOp) -> bool:
    return True


def _sort(b: Builder, op: Op, x: UOp) -> UOp:
    given = [x, b.operand(x.dtype, x.shape)]
    keys = b.number(1, 2)
    return b.one(build_calls.sort(given, keys, (0, 1, -1)))


STEPS: dict[Op, tuple[Callable[[UOp], bool], Callable[[Builder, Op, UOp], UOp]]] = {
    ops.CAST: (_whatever, _cast), ops.WHERE: (_whatever, _where),
    ops.BITCAST: (lambda x: x.dtype.kind not in ("bool", "complex"), _bitcast),
    ops.RESHAPE: (_whatever, _reshape), ops.PERMUTE: (_whatever, _permute),
    ops.EXPAND: (_whatever, _expand), ops.PAD: (_whatever, _pad),
    ops.SHRINK: (_whatever, _shrink), ops.FLIP: (_whatever, _flip),
    ops.CONCAT: (lambda x: x.shape != (), _concat),
    ops.UNFOLD: (lambda x: x.shape != (), _windows), ops.FOLD: (lambda x: x.shape != (), _windows),
    ops.BARRIER: (_whatever, _barrier), ops.STOP_GRADIENT: (_whatever, _stop),
    ops.REDUCE: (_whatever, _reduce),
    ops.GATHER: (lambda x: x.shape != () and 0 not in x.shape, _gather),
    ops.SCATTER: (lambda x: x.shape != () and 0 not in x.shape, _scatter),
    ops.IOTA: (_whatever, _iota), ops.CONST: (_whatever, _const), ops.CALL: (_whatever, _call),
    ops.SCAN: (_whatever, _scan), ops.WHILE: (_whatever, _while), ops.COND: (_whatever, _cond),
    ops.SORT: (lambda x: x.shape != (), _sort),
}
ALL_OPS = frozenset(STEPS) | ops.ELEMENTWISE


def _grow(b: Builder, steps: int, n_outs: int) -> UOp:
    b.param(b.one(b.types), b.shape())
    for _ in range(steps):
        b.step()
    read = {s for n in b.pool for s in n.src}
    unread = [n for n in b.pool if n not in read]  # as outputs, so that most nodes matter
    outs = unread[-n_outs:]
    return build.function([*outs, b.one(b.pool)], len(b.params), "generated")


@st.composite
def graphs(draw: Any, types: Sequence[DType] = dtypes.USER, allowed: Collection[Op] = ALL_OPS,
           steps: int = 24, calls: int = 1, smooth: bool = False) -> Graph:
    """Draw a random graph and values for its PARAMs.

    Args:
        types: dtypes that PARAMs, constants and casts may have. (Comparisons make bools.)
        allowed: ops that are used; the keys of ``STEPS`` and any elementwise op. Monoids too,
            if there is one among them.
        steps: maximum number of nodes besides operands and constants.
        calls: how deep functions may be nested.
        smooth: no special values, and all floats of magnitude below 1, as finite differences need.
    """
    return graph_of(draw(st.integers(0, 2**32)), draw(st.integers(1, steps)), types, allowed,
                    calls, smooth)


def graph_of(seed: int, steps: int, types: Sequence[DType] = dtypes.USER,
             allowed: Collection[Op] = ALL_OPS, calls: int = 1, smooth: bool = False) -> Graph:
    """Return the graph of a seed: what ``graphs`` draws."""
    b = Builder(random.Random(seed), types, allowed, calls, smooth)
    fn = _grow(b, steps, 1 + seed % 8)
    rng = np.random.default_rng(seed)
    return Graph(fn, [values(rng, p.dtype, p.shape, smooth) for p in b.params])


