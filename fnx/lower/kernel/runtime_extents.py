"""Extents: loop lengths, offsets and constants become scalar arguments: shapes share a kernel.

    before  STORE(out[r0], LOAD(x[r0 + 3]) * 0.1)       r0 < 24, x of 30
    after   STORE(out[r0], LOAD(x[r0 + v2]) * v3)       r0 < v0, x of v1     with (24, 30, 3, 0.1)

Only where a number is nothing but a length or the start of a slice: an index that is masked,
split or compared keeps its numbers. Contractions keep theirs, since tiles are chosen from them.
"""

from __future__ import annotations

from fnx.core import build, ops
from fnx.core.uop import UOp, toposort


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
    places = [n for n in nodes if n.op is ops.INDEX]
    if any(len(n.src) > 1 for n in places):
        return kernel
    one = build.range_(1, 0)
    new: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is ops.INDEX:
            buffer = node.src[0]
            new[node] = node.replace(src=(buffer.replace(src=(one.src[0],)), one))
        else:
            src = tuple([new[s] for s in node.src])
            new[node] = node if src == node.src else node.replace(src=src)
    return build.kernel(new[kernel].src, kernel.arg.name, (0,))


class _Generalizer:
    def __init__(self, nodes: list[UOp]) -> None:
        self.nodes = nodes
        self.new: dict[UOp, UOp] = {}
        self.scalars: list[UOp] = []
        masked = {n.src[0] for n in nodes
                  if n.op is ops.LOAD and len(n.src) > 1 or n.op is ops.STORE and len(n.src) > 2}
        self.fixed = self._fixed_ranges(masked)
        self.masked = masked

    def run(self, kernel: UOp) -> tuple[UOp, tuple[UOp, ...]]:
        new = self.new
        for node in self.nodes:
            if node.op is ops.RANGE and node not in self.fixed:
                extent = self._lift(node.src[0], low=1)
                new[node] = build.range_(extent, node.arg.id, node.arg.kind, node.arg.name)
        for node in self.nodes:
            if node in new:
                continue
            if node.op is ops.REF:
                new[node] = node  # its dimensions follow its indices: see _index
            elif node.op is ops.INDEX and node.src[0].op is ops.REF:
                new[node] = self._index(node)
            elif build.is_number(node):
                new[node] = self._lift(node)
            else:
                src = tuple([new[s] for s in node.src])
                new[node] = node if src == node.src else node.replace(src=src)
        return new[kernel], tuple(self.scalars)

    def _lift(self, value: UOp, low: int = 0) -> UOp:
        self.scalars.append(value)
        return build.var(len(self.scalars) - 1, value.dtype, low=low)

    def _fixed_ranges(self, masked: set[UOp]) -> set[UOp]:
        """Ranges that something else than a place, a slice or a conversion looks at."""
        slices = {i for n in self.nodes if n.op is ops.INDEX and n not in masked
                  and n.src[0].op is ops.REF for i in n.src[1:] if _is_slice(i)}
        fixed: set[UOp] = set()
        for node in self.nodes:
            if node.op is ops.INDEX:
                dims = node.src[0].src if node.src[0].op is ops.REF else \
                    [r.src[0] for r in node.src[0].src[1:]]
                if node in masked or node.src[0].op is not ops.REF:
                    fixed.update(i for i, d in zip(node.src[1:], dims)
                                 if i.op is ops.RANGE and i.src[0] is not d)
            elif node.op is ops.REDUCE or node.op is ops.STAGE:
                fixed.update(s for s in node.src[:1] if s.op is ops.RANGE)
            elif node.op is not ops.CAST and node not in slices:
                fixed.update(s for s in node.src if s.op is ops.RANGE)
        return fixed

    def _index(self, node: UOp) -> UOp:
        buffer, *index = node.src
        dims: list[UOp] = []
        places: list[UOp] = []
        for i, d in zip(index, buffer.src):
            place = self.new.get(i, i)
            if i.op is ops.RANGE and i.src[0] is d and i not in self.fixed:
                d = place.src[0]
            elif node not in self.masked and i not in self.fixed and (
                    i.op in (ops.RANGE, ops.CONST) or _is_slice(i)):
                d = self._lift(d, low=1)
                place = self._start(i)
            dims.append(d)
            places.append(place)
        return node.replace(src=(buffer.replace(src=tuple(dims)), *places))

    def _start(self, i: UOp) -> UOp:
        """A slice from a number on: the number is an argument."""
        if i.op is ops.RANGE:
            return build.add(self.new[i], self._lift(build.index_const(0)))
        if i.op is ops.CONST:
            return self._lift(i)
        r, start = i.src
        return build.add(self.new[r], self._lift(start))


def _is_slice(i: UOp) -> bool:
    return i.op is ops.ADD and i.src[0].op is ops.RANGE and i.src[1].op is ops.CONST
