"""Run a host PROGRAM in NumPy, line by line, and check each address that it accesses.

A vector is an array of its lanes. An access is legal, because it cannot fault, if:

    load or store without a mask            every lane is an element
    with a one-bit mask                     the same, or the mask is false
    with a mask, within ``first`` to
    ``last``, or without these              each lane is in a cache line that holds an element
                                            where the active lanes are the first ones, a number
                                            known at run time: the first lane is an element
    outside of ``first`` to ``last``        the lanes that the mask selects are elements
    strided lanes                           every lane is an element

The inactive lanes of a masked store may be out of bounds: only memory that fnx owns is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.ir import build, ops
from fnx.core.ir.numpy_semantics import eval_node
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.active_lanes import may_end_out_of_bounds

Array = np.ndarray[Any, Any]
LINE = 64


class Host:
    """The memory of one run: buffers by slot, scratch as slot -1."""

    def __init__(self, program: UOp, buffers: Sequence[Array], scalars: Sequence[int],
                 part: tuple[int, int], scratch: int) -> None:
        self.lines = program.src
        self.memory = {i: b.reshape(-1).view(np.uint8) for i, b in enumerate(buffers)}
        self.memory[-1] = np.zeros(scratch, np.uint8)
        self.scalars, self.part = scalars, part
        self.values: dict[UOp, Any] = {}
        self.partial = 0  # number of accesses with some lanes inactive

    def run(self) -> None:
        self.block(0, len(self.lines))

    def end_of(self, start: int) -> int:
        return next(i for i in range(start, len(self.lines)) if self.lines[i].op in (
            ops.ENDFOR, ops.ENDIF) and self.lines[i].src[0] is self.lines[start])

    def block(self, start: int, stop: int) -> bool:
        """Run a block; return whether a BREAK left the loop."""
        i = start
        while i < stop:
            node = self.lines[i]
            if node.op is ops.FOR:
                end = self.end_of(i)
                self.loop(node, i + 1, end)
                i = end
            elif node.op is ops.IF:
                end = self.end_of(i)
                if self.value(node.src[0]):
                    self.block(i + 1, end)
                i = end
            elif node.op is ops.BREAK:
                if self.value(node.src[1]):
                    return True
            else:
                self.line(node)
            i += 1
        return False

    def loop(self, node: UOp, start: int, end: int) -> None:
        first, stop = (int(self.value(s)) for s in node.src)
        phis = [n for n in self.lines[start:end] if n.op is ops.PHI and n.src[0] is node]
        held = [self.value(p.src[1]) for p in phis]
        for i in range(first, stop):
            self.values[node] = np.int64(i)
            self.values.update(zip(phis, held))
            if self.block(start + len(phis), end):
                break
            held = [self.value(n) for n in self.lines[end].src[1:]]
        self.values[self.lines[end]] = held

    def value(self, node: UOp) -> Any:
        if node.op is ops.CONST:
            return np.asarray(build.const_of(node), node.dtype.np)[()]
        if node.op is ops.VAR:
            return np.int64(self.scalars[node.arg.slot])
        if node.op is ops.PARALLEL_RANGE:
            return np.int64(self.part[node.arg])
        if node.op is ops.LANES:
            return np.arange(node.dtype.lanes, dtype=node.dtype.scalar.np)
        if node.op is ops.REF:
            return node.arg.slot, np.int64(0)
        return self.values[node]

    def line(self, node: UOp) -> None:
        op, src = node.op, [self.value(s) for s in node.src]
        lanes = node.dtype.lanes
        if op is ops.SCRATCH:
            self.values[node] = -1, src[0]
        elif op is ops.ADDRESS:
            (memory, at), offset = src
            self.values[node] = memory, at + offset * node.dtype.itemsize
        elif op is ops.LOAD:
            self.values[node] = self.load(node, *src)
        elif op is ops.STORE:
            self.store(node, *src)
        elif op is ops.SPLAT:
            self.values[node] = np.broadcast_to(src[0], lanes)
        elif op is ops.LANE_MASK:
            self.values[node] = np.arange(lanes) < src[0]
        elif op is ops.SHUFFLE:
            self.values[node] = np.concatenate(src)[list(node.arg)]
        elif op is ops.EXTRACT:
            self.values[node] = src[0][node.arg]
        elif op is ops.ALL_LANES:
            self.values[node] = bool(src[0].all())
        elif op is ops.LOOP_RESULT:
            self.values[node] = src[0][node.arg]
        else:
            assert op in ops.ELEMENTWISE, node
            with np.errstate(all="ignore"):
                self.values[node] = np.asarray(eval_node(node, *src))[()]

    # ---- memory -----------------------------------------------------------------------------

    def places(self, place: UOp, at: tuple[int, Any], mask: Any, single: bool,
               ends: Sequence[tuple[int, Any]], one_access: bool = False) -> tuple[Array, Array]:
        """Return the byte offset and the activity of each lane; fail if one is illegal.
        ``one_access``: a masked load that is issued where its first lane is in bounds."""
        memory, first = at
        lanes, size = place.dtype.lanes, place.dtype.itemsize
        strided = place.src[1].dtype.lanes > 1
        where = np.asarray(first) if strided else np.asarray(first) + size * np.arange(lanes)
        where = where.reshape(-1)
        meant = np.ones(lanes, bool) if mask is None else np.broadcast_to(mask, lanes)
        nbytes = self.memory[memory].size
        touched, end = np.ones(lanes, bool), nbytes
        if mask is not None and (single or not strided):
            self.partial += not single
            inside = all(e[0] == memory for e in ends) and (
                not ends or first <= ends[0][1]) and (len(ends) < 2 or first >= ends[1][1])
            in_a_line = place.arg >= lanes * size and first % (lanes * size) == 0
            assert inside or not (one_access or in_a_line) or not meant.any(), \
                "lanes of a vector that is outside"
            touched = meant if single or not inside else touched
            end = -(-nbytes // LINE) * LINE if in_a_line else nbytes
            if inside and one_access:
                assert 0 <= first < nbytes, f"the first lane, {first}, is outside of {nbytes} bytes"
                end = max(end, nbytes + size * lanes)
        bad = touched & ((where < 0) | (where + size > end))
        assert not bad.any(), f"lanes outside of a buffer of {nbytes} bytes: {where[bad]}"
        assert not (meant & (where + size > nbytes)).any()
        assert first.size > 1 or first % place.arg == 0, "an address that is not aligned"
        return where, meant

    def load(self, node: UOp, at: tuple[int, Any], mask: Any = None,
             *ends: tuple[int, Any]) -> Any:
        single = len(node.src) > 1 and (node.src[1].op is ops.SPLAT or node.dtype.lanes == 1)
        one_access = len(node.src) > 1 and not single and \
            may_end_out_of_bounds(node.src[0], node.src[1])
        where, meant = self.places(node.src[0], at, mask, single, ends, one_access)
        out = np.zeros(node.dtype.lanes, node.dtype.scalar.np)
        if meant.all() and where[-1] - where[0] == (meant.size - 1) * out.itemsize:
            out = self.memory[at[0]][where[0]:where[-1] + out.itemsize].view(out.dtype).copy()
            return out if node.dtype.lanes > 1 else out[0]
        for lane in np.flatnonzero(meant):
            raw = self.memory[at[0]][where[lane]:where[lane] + out.itemsize]
            out[lane] = raw.view(out.dtype)[0]
        return out if node.dtype.lanes > 1 else out[0]

    def store(self, node: UOp, at: tuple[int, Any], stored: Any, mask: Any = None) -> None:
        where, meant = self.places(node.src[0], at, mask, mask is not None, ())
        values = np.broadcast_to(np.asarray(stored, node.src[1].dtype.scalar.np), meant.shape)
        if meant.all() and where[-1] - where[0] == (meant.size - 1) * values.itemsize:
            raw = np.frombuffer(values.tobytes(), np.uint8)
            self.memory[at[0]][where[0]:where[0] + raw.size] = raw
            return
        for lane in np.flatnonzero(meant):
            raw = np.frombuffer(values[lane].tobytes(), np.uint8)
            self.memory[at[0]][where[lane]:where[lane] + raw.size] = raw
