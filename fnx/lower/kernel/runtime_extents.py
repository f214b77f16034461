"""Runtime extents: lengths, offsets and constants become arguments, so shapes share a kernel.

    before  STORE(out[r0], LOAD(x[r0 + 3]) * 0.1)       r0 < 24, x of 30
    after   STORE(out[r0], LOAD(x[r0 + v2]) * v3)       r0 < v0, x of v1     with (24, 30, 3, 0.1)

Only where a number is nothing but a length or the start of a slice: an index that is masked,
split or compared keeps its numbers. Contractions keep theirs, since tiles are chosen from them.

>>> from fnx.core import dtypes
>>> def kernel(n, factor):
...     i = build.range_(n, 0)
...     x, o = (build.at(build.ref(s, dtypes.float32, (n,)), i) for s in (0, 1))
...     value = build.mul(build.load(x), build.const(factor, dtypes.float32))
...     return build.kernel([build.store(o, value)], "scale", (0,))
>>> small, large = generalize(kernel(24, 0.5)), generalize(kernel(70, 2.0))
>>> small[0] is large[0], [[float(build.const_of(s)) for s in x[1]] for x in (small, large)]
(True, [[24.0, 0.5], [70.0, 2.0]])
"""

from __future__ import annotations

from fnx.core import build, ops
from fnx.core.parts import buffer, dims, extent, indices, place, validity
from fnx.core.uop import UOp, rebuild, toposort


def generalize(kernel: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """The KERNEL over VARs and the CONST of each VAR slot."""
    nodes = toposort([kernel])
    if any(n.op is ops.STORE and n.arg is not None for n in nodes):
        return kernel, ()
    if not any(n.op is ops.RANGE for n in nodes):
        kernel = _with_loop(kernel, nodes)
        nodes = toposort([kernel])
    return _Generalizer(nodes).run(kernel)


def _with_loop(kernel: UOp, nodes: list[UOp]) -> UOp:
    """A kernel of 0-d arrays is one of arrays of length 1; others keep what they index by."""
    places = {n: buffer(n) for n in nodes if n.op is ops.INDEX}
    if any(map(indices, places)):
        return kernel
    once = build.range_(1, 0)
    known = {n: build.at(b.replace(src=once.src), once) for n, b in places.items()}
    return build.kernel(rebuild(kernel.src, known=known), kernel.arg.name, (0,))


class _Generalizer:
    """Decides which ranges may have any length; then lifts numbers as they are met."""

    def __init__(self, nodes: list[UOp]) -> None:
        self.nodes = nodes
        self.scalars: list[UOp] = []
        self.masked = {place(n) for n in nodes if n.op in (ops.LOAD, ops.STORE)
                       and validity(n) is not None}
        self.fixed = self._fixed_ranges()
        self.ranges: dict[UOp, UOp] = {}

    def run(self, kernel: UOp) -> tuple[UOp, tuple[UOp, ...]]:
        for r in self.nodes:
            if r.op is ops.RANGE and r not in self.fixed:
                length = self._lift(extent(r), low=1)
                self.ranges[r] = build.range_(length, r.arg.id, r.arg.kind, r.arg.name)
        general, = rebuild([kernel], self._visit, self.ranges)
        return general, tuple(self.scalars)

    def _visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.REF:
            return node  # its dimensions follow its indices: see _index
        if node.op is ops.INDEX and buffer(node).op is ops.REF:
            return self._index(node, src[1:])
        return self._lift(node) if build.is_number(node) else None

    def _lift(self, value: UOp, low: int = 0) -> UOp:
        self.scalars.append(value)
        return build.var(len(self.scalars) - 1, value.dtype, low=low)

    def _fixed_ranges(self) -> set[UOp]:
        """Ranges that something else than a place, a slice or a conversion looks at."""
        slices = {i for n in self.nodes if n.op is ops.INDEX and n not in self.masked
                  and buffer(n).op is ops.REF for i in indices(n) if _is_slice(i)}
        seen: list[UOp] = []
        for node in self.nodes:
            if node.op is ops.INDEX:
                if node in self.masked or buffer(node).op is not ops.REF:
                    seen += [i for i, d in zip(indices(node), dims(buffer(node)))
                             if i.op is ops.RANGE and extent(i) is not d]
            elif node.op is ops.REDUCE or node.op is ops.STAGE:
                seen += node.src[:1]
            elif node.op is not ops.CAST and node not in slices:
                seen += node.src
        return {n for n in seen if n.op is ops.RANGE}

    def _index(self, node: UOp, now: tuple[UOp, ...]) -> UOp:
        lengths: list[UOp] = []
        places: list[UOp] = []
        for i, d, at in zip(indices(node), dims(buffer(node)), now):
            if i in self.ranges and extent(i) is d:
                d = extent(at)
            elif node not in self.masked and i not in self.fixed and (
                    i.op in (ops.RANGE, ops.CONST) or _is_slice(i)):
                d = self._lift(d, low=1)
                at = self._start(i)
            lengths.append(d)
            places.append(at)
        return build.at(buffer(node).replace(src=tuple(lengths)), *places)

    def _start(self, i: UOp) -> UOp:
        """A slice from a number on: the number is an argument."""
        if i.op is ops.CONST:
            return self._lift(i)
        r, start = i.src if _is_slice(i) else (i, build.index_const(0))
        return build.add(self.ranges.get(r, r), self._lift(start))


def _is_slice(i: UOp) -> bool:
    return i.op is ops.ADD and i.src[0].op is ops.RANGE and i.src[1].op is ops.CONST
