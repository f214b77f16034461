"""Runtime extents: lengths, offsets and constants become arguments, so shapes share a kernel.

    before  STORE(out[r0], LOAD(x[r0 + 3]) * 0.1)       r0 < 24, x of 30
    after   STORE(out[r0], LOAD(x[r0 + v2]) * v3)       r0 < v0, x of v1     with (24, 30, 3, 0.1)

Lifted are lengths, bounds of masks and clamps, strides of slices, and constants of integer
arithmetic. Not lifted are 0, 1 and -1, lengths that are the same in all shapes (``fixed``), lengths
of loops whose index is divided (a RESHAPE that splits rows), shift amounts, and in large kernels
short lengths (windows of 2 x 2, pairs), small strides (``x[::2]``) and divisors: these are much
faster as constants. For a kernel whose
results exceed the caches, that fact (``Ref.exceeds_cache``) and which lengths are multiples of a
cache line remain static: then stores are nontemporal. Also static are whether plain stores write
disjoint locations, and whether all indices and lengths fit 32 bits (``Kernel.stores_disjoint``,
``Kernel.index_fits_int32``). A contraction has its schedule before
(``generic_tiling.generic_schedule``).

>>> from fnx.core.ir import dtypes
>>> def kernel(n, factor):
...     i = build.range_(n, 0)
...     x, o = (build.index_into(build.ref(s, dtypes.float32, (n,)), i) for s in (0, 1))
...     value = build.mul(build.load(x), build.const(factor, dtypes.float32))
...     return build.kernel([build.store(o, value)], "scale", (0,))
>>> small, large = generalize(kernel(24, 0.5)), generalize(kernel(70, 2.0))
>>> small[0] is large[0], [[float(build.const_of(s)) for s in x[1]] for x in (small, large)]
(True, [[24.0, 0.5], [70.0, 2.0]])
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import buffer, dims, extent, index_dims, indices
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.lower.analysis.split_index_sets import are_disjoint
from fnx.lower.emit.shuffles import MAX_STRIDE
from fnx.lower.emit.stores import CACHE_LINE, large_results


def generalize(kernel: UOp, fixed: frozenset[int] = frozenset()
               ) -> tuple[UOp, tuple[UOp, ...]]:
    """Return the KERNEL over VARs, and the CONST of each VAR slot. Lengths, and constants of
    indices, that are one of ``fixed`` remain constants."""
    nodes = toposort([kernel])
    if any(n.op is ops.CONST and n.dtype is dtypes.index and abs(build.const_of(n)) > _MAX_LENGTH
           for n in nodes):
        return kernel, ()  # no memory is that large: the call raises an error
    if not any(n.op is ops.RANGE for n in nodes):
        kernel = _add_unit_loop(kernel, nodes)
    kernel = _simplify_divisions(kernel)
    nodes = toposort([kernel])
    kernel = kernel.replace(arg=kernel.arg.replace(stores_disjoint=_stores_are_disjoint(kernel.src),
                                                   index_fits_int32=_fits_int32(nodes)))
    return _Generalizer(nodes, fixed).run(kernel)


def _simplify_divisions(kernel: UOp) -> UOp:
    """Simplify divisions in indices while their lengths are constants: for the diagonal of 64 rows,
    ``x[i * 65 // 64, i * 65 % 64]`` is ``x[i, i]``, for any length."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op in _DIVISIONS and node.dtype is dtypes.index:
            return symbolic.simplify(node.with_operands(src))
        return None

    simplified, = rebuild([kernel], visit)
    return simplified


def _stores_are_disjoint(stores: Sequence[UOp]) -> bool:
    """Whether no two stores write the same element, as far as the constants show."""
    return len(stores) > 1 and all(
        buffer(a) is not buffer(b) or are_disjoint(indices(a), indices(b))
        for a, b in itertools.combinations(stores, 2))


def _fits_int32(nodes: Sequence[UOp]) -> bool:
    """Whether buffers, indices and iteration counts are below half of what 32 bits can hold, as a
    schedule rounds lengths up. Data-dependent indices are ignored, and not assumed to fit."""
    counts = [math.prod([build.const_of(d) for d in dims(n)]) for n in nodes if n.op is ops.REF]
    counts += [_iterations(n) for n in nodes if n.op is ops.STORE]
    data_dependent: set[UOp] = set()
    for node in nodes:
        if node.dtype is dtypes.index and node.op is not ops.REF:
            if node.op is ops.CAST or not data_dependent.isdisjoint(node.src):
                data_dependent.add(node)
            else:
                counts += map(abs, symbolic.bounds(node))
    return max(counts, default=0) < INT32_LIMIT


def _add_unit_loop(kernel: UOp, nodes: list[UOp]) -> UOp:
    """Turn a kernel of 0-d arrays into one of arrays of length 1; others keep their indices."""
    access_buffers = {n: buffer(n) for n in nodes if n.op is ops.INDEX}
    if any(map(indices, access_buffers)):
        return kernel
    unit_range = build.range_(1, 0)
    replacements = {n: build.index_into(b.replace(src=unit_range.src), unit_range)
                    for n, b in access_buffers.items()}
    return build.kernel(rebuild(kernel.src, known=replacements), kernel.arg.name, (0,))


_MAX_LENGTH = 1 << 40
INT32_LIMIT = 1 << 30
_SHORT_LENGTH = 8  # a length that is a constant of large kernels
_SMALL_WORK = 1 << 16  # iterations above which short lengths, and divisors, are constants


class _Generalizer:
    """Decides which ranges may have any length; then lifts constants in the order of their use."""

    def __init__(self, nodes: list[UOp], fixed: frozenset[int]) -> None:
        self.nodes, self.fixed = nodes, fixed
        self.scalars: list[UOp] = []
        self.large = large_results(nodes)
        self.line = max([CACHE_LINE // ref.dtype.itemsize for ref in self.large], default=0)
        self.iterations = max([_iterations(n) for n in nodes if n.op is ops.STORE], default=1)
        self.static_ranges = self._nonlinear_ranges()
        self.static_constants = self._static_constants()
        self.ranges: dict[UOp, UOp] = {}
        self.lengths: dict[tuple[UOp, int], UOp] = {}  # dimension of a REF along an axis

    def run(self, kernel: UOp) -> tuple[UOp, tuple[UOp, ...]]:
        for r in self.nodes:
            if r.op is ops.RANGE and not self._is_static(r):
                length = self._lift(extent(r), min(1, build.const_of(extent(r))))
                self.ranges[r] = build.range_(length, r.arg.id, r.arg.kind, r.arg.name)
        generalized, = rebuild([kernel], self._visit, self.ranges)
        return _renumber_vars(generalized, self.scalars)

    def _visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.REF or node.op is ops.RANGE and self._is_static(node):
            return node  # dimensions follow their indices: see _index
        if node.op is ops.INDEX and buffer(node).op is ops.REF:
            return self._index(node, src[1:])
        return self._lift(node) if self._is_liftable(node) else None

    def _is_liftable(self, node: UOp) -> bool:
        if node.op is not ops.CONST or node in self.static_constants or \
                node.dtype in dtypes.STORAGE_ONLY:
            return False
        if node.dtype.kind in _INTEGER_KINDS:
            return build.const_of(node) not in (-1, 0, 1) and not (
                node.dtype is dtypes.index and self._is_fixed(node))
        return build.is_liftable_const(node)

    def _lift(self, value: UOp, low: int = 0) -> UOp:
        if self.line and value.dtype.kind == "index" and \
                build.const_of(value) > 0 and build.const_of(value) % self.line == 0:
            self.scalars.append(build.index_const(build.const_of(value) // self.line))
            return build.mul(build.var(len(self.scalars) - 1, value.dtype, low),
                             build.index_const(self.line))
        self.scalars.append(value)
        if value.dtype.kind == "index":
            below = low == 0 and build.const_of(value) < 0
            return build.var(len(self.scalars) - 1, value.dtype, -_MAX_LENGTH if below else low,
                             _MAX_LENGTH)
        low, high = value.dtype.limits if value.dtype.is_integer else (0, _MAX_LENGTH)
        return build.var(len(self.scalars) - 1, value.dtype, low, high)

    def _is_fixed(self, n: UOp) -> bool:
        return build.const_of(n) in self.fixed

    def _is_static(self, r: UOp) -> bool:
        is_short = self.iterations >= _SMALL_WORK and build.const_of(extent(r)) <= _SHORT_LENGTH
        return is_short or r in self.static_ranges or self._is_fixed(extent(r))

    def _nonlinear_ranges(self) -> set[UOp]:
        """Return the ranges that are used in other ways than linear expressions and comparisons."""
        nonlinear: list[UOp] = []
        for node in self.nodes:
            if node.op is ops.INDEX:
                if buffer(node).op is not ops.REF:
                    nonlinear += [i for i, d in index_dims(node)
                                  if i.op is not ops.RANGE or extent(i) is not d]
            elif node.op is ops.REDUCE or node.op is ops.STAGE:
                nonlinear += node.src[:1] if node.src[0].op is ops.RANGE else []
            elif node.op not in _LINEAR_OPS:
                nonlinear += [s for s in node.src if s.dtype is dtypes.index]
        return {r for n in nonlinear for r in n.ranges} | \
            {n for n in nonlinear if n.op is ops.RANGE}

    def _static_constants(self) -> set[UOp]:
        """Return the constants with which an op is much faster than with a variable."""
        static_ops = _STATIC_OPERAND_OPS if self.iterations < _SMALL_WORK \
            else _STATIC_OPERAND_OPS | _DIVISIONS
        constants = {s for n in self.nodes for s in n.src[1:] if s.op is ops.CONST and (
            n.op in static_ops or n.op in _DIVISIONS and n.dtype is dtypes.index)}
        strides = {s for n in self.nodes if n.op is ops.MUL and n.dtype is dtypes.index
                   for s in n.src if s.op is ops.CONST and build.const_of(s) <= MAX_STRIDE}
        return constants | strides if self.iterations >= _SMALL_WORK else constants

    def _index(self, node: UOp, rewritten: tuple[UOp, ...]) -> UOp:
        lengths: list[UOp] = []
        new_indices: list[UOp] = []
        for axis, (i, d, at) in enumerate(zip(indices(node), dims(buffer(node)), rewritten)):
            if i in self.ranges and extent(i) is d:
                d = extent(at)
            elif not self._is_fixed(d) and self.static_ranges.isdisjoint(i.ranges) and not (
                    i.op is ops.RANGE and i not in self.ranges and extent(i) is d):
                key = buffer(node), axis
                if key not in self.lengths:
                    self.lengths[key] = self._lift(d, low=min(1, build.const_of(d)))
                d = self.lengths[key]
                at = self._start(i, at)
            lengths.append(d)
            new_indices.append(at)
        ref = buffer(node)
        arg = ref.arg.replace(exceeds_cache=True) if ref in self.large else ref.arg
        return build.index_into(ref.replace(src=tuple(lengths), arg=arg), *new_indices)

    def _start(self, i: UOp, at: UOp) -> UOp:
        """Lift the constant start of a slice, even if it is 0."""
        if i.op is ops.CONST:
            return self._lift(i)
        if i.op is ops.RANGE:
            return build.add(at, self._lift(build.index_const(0)))
        if i.op is ops.ADD and i.src[0].op is ops.RANGE and i.src[1].op is ops.CONST:
            r, start = i.src
            return build.add(self.ranges.get(r, r), self._lift(start))
        return at


def _iterations(store: UOp) -> int:
    return math.prod([build.const_of(extent(r)) for r in toposort([store]) if r.op is ops.RANGE])


def _renumber_vars(kernel: UOp, scalars: list[UOp]) -> tuple[UOp, tuple[UOp, ...]]:
    """Renumber the VARs that the KERNEL reads from 0 on; return it and their CONSTs."""
    used = sorted([n for n in toposort([kernel]) if n.op is ops.VAR], key=lambda n: n.arg.slot)
    to = {n: build.var(i, n.dtype, n.arg.low, n.arg.high) for i, n in enumerate(used)}
    return substitute([kernel], to)[0], tuple([scalars[n.arg.slot] for n in used])


_INTEGER_KINDS = frozenset({"int", "uint", "index"})  # kinds of dtypes whose constants are lifted
_LINEAR_OPS = frozenset({ops.ADD, ops.SUB, ops.NEG, ops.MUL, ops.MIN, ops.MAX, ops.CAST, ops.WHERE,
                         ops.AND, ops.OR, ops.NOT, ops.LOAD, ops.STORE, ops.RANGE, ops.KERNEL,
                         ops.LOOP, ops.CARRY, ops.PER_ITERATION, ops.GETTUPLE, *ops.COMPARISONS})
_STATIC_OPERAND_OPS = frozenset({ops.SHL, ops.SHR})
_DIVISIONS = frozenset({ops.IDIV, ops.REM})
